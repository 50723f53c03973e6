"""One card: ceilings against its data sheet, its roofline with work under it, its bandwidth over working sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from core import units
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode

SHOWN_ROWS = 12


def ceiling_chart(rows: pd.DataFrame, gpu_key: str | None, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Measured ceilings as a share of the data-sheet figure they belong to, which is the line at 100 %.

    rows: name, share (measured over printed, of one), value (text), origin ("measured" by a run stored here, filled;
    "reported" by others, hollow), in display order.
    """
    t = TOKENS[mode]
    left = len(rows) - SHOWN_ROWS
    frame = rows.head(SHOWN_ROWS).reset_index(drop=True).copy()
    frame["x"] = frame["share"].astype(float)
    frame["y"] = range(len(frame))
    frame["top"], frame["bottom"], frame["zero"] = frame["y"] - 0.28, frame["y"] + 0.28, 0.0
    frame["text"] = [
        f"{units.percent(share)}  ({value})" for share, value in zip(frame["x"], frame["value"], strict=True)
    ]
    frame["said"] = frame["name"] + ": " + frame["text"] + ", " + frame["origin"]
    frame["filled"] = [1.0 if origin == "measured" else 0.0 for origin in frame["origin"]]
    domain = [0.0, max(1.0, frame["x"].max()) * 1.45]
    colour = theme.gpu_colour(gpu_key, mode)
    base = alt.Chart(frame)
    ticks = [0, 0.25, 0.5, 0.75, 1.0]
    bars = base.mark_bar(color=colour, stroke=colour, strokeWidth=2, cornerRadius=2).encode(
        fillOpacity=alt.FillOpacity("filled:Q", scale=None, legend=None),
        x=alt.X(
            "x:Q",
            title="share of the data sheet",
            scale=alt.Scale(domain=domain, nice=False),
            axis=alt.Axis(values=ticks, format="%", titleAnchor="start"),
        ),
        x2="zero:Q",
        y=parts.row_axis(list(frame["name"]), above=0.45, field="top:Q"),
        y2="bottom:Q",
        description="said:N",
        tooltip=[alt.Tooltip("said:N", title=" ")],
    )
    sheet = alt.Chart(pd.DataFrame({"x": [1.0], "y": [-0.62], "text": ["data sheet"]}))
    layers: list[alt.Chart] = [
        bars,
        sheet.mark_rule(color=t.text, strokeWidth=2, strokeDash=[12, 4]).encode(x="x:Q"),
        *(
            mark.encode(x="x:Q", y="y:Q", text="text:N")
            for mark in parts.label(sheet, mode, 13, 400, align="left", dx=6)
        ),
        *(
            mark.encode(x=alt.value("width"), y="y:Q", text="text:N")
            for mark in parts.label(base, mode, 15, 600, align="right", dx=-2)
        ),
    ]
    more = f"; {left} more in the table" if left > 0 else ""
    height = int(parts.ROW_HEIGHT * (len(frame) + 0.45))
    return theme.finish(
        alt.layer(*layers), mode, theme.title(finding, conditions + more), height, names=list(frame["name"])
    )


def roofline_chart(
    points: pd.DataFrame, roofs: Sequence[Mapping[str, Any]], finding: str, conditions: str, mode: Mode
) -> alt.LayerChart:
    """Stages (large, named) and operations (small) by arithmetic intensity and reached TFLOP/s, under their roofs.

    points: kind ("stage" or "operation"), name, stage, intensity (FLOP per byte), tflops, share (of the time), said.
    roofs: source ("data sheet" or "measured"), bandwidth_gb_s, peak_tflops. Both axes are logarithmic.
    """
    t = TOKENS[mode]
    frame = points.reset_index(drop=True).copy()
    frame["colour"] = [theme.stage_colour(str(stage), mode) for stage in frame["stage"]]
    frame["text"] = frame["name"].str.replace("_", " ")
    knees = [roof["peak_tflops"] * 1e3 / roof["bandwidth_gb_s"] for roof in roofs]
    x_domain = parts.domain_with_room([*frame["intensity"], *knees], left=0.06, right=0.2, least=100)
    tops = [roof["peak_tflops"] for roof in roofs] or [float(frame["tflops"].max())]
    y_domain = [float(frame["tflops"].min()) / 1.8, max(*tops, float(frame["tflops"].max())) * 2.2]
    x = alt.X(
        "intensity:Q",
        title="arithmetic intensity, FLOP per byte, logarithmic",
        scale=alt.Scale(type="log", domain=x_domain, nice=False, clamp=True),
        axis=alt.Axis(values=parts.log_ticks(x_domain), labelExpr=parts.NUMBER, titleAnchor="start"),
    )
    y = alt.Y(
        "tflops:Q",
        title="TFLOP/s, logarithmic",
        scale=alt.Scale(type="log", domain=y_domain, nice=False, clamp=True),
        axis=alt.Axis(values=parts.log_ticks(y_domain), labelExpr=parts.NUMBER),
    )
    layers: list[Any] = []
    for place, (roof, knee) in enumerate(zip(roofs, knees, strict=True)):
        slope, peak = roof["bandwidth_gb_s"] / 1e3, roof["peak_tflops"]
        start = max(x_domain[0], y_domain[0] / slope)
        lines = {
            "bandwidth": pd.DataFrame({"intensity": [start, knee], "tflops": [start * slope, peak]}),
            "compute": pd.DataFrame({"intensity": [knee, x_domain[1]], "tflops": [peak, peak]}),
        }
        sheet = roof["source"] == "data sheet"
        for name, line in lines.items():
            style: dict[str, Any] = {"strokeDash": theme.DASHES[name]} if sheet else {}
            layers.append(
                alt.Chart(line)
                .mark_line(color=t.text, strokeWidth=2 if sheet else 1.2, **style)
                .encode(x=x, y=y)
            )
        middle = (start * knee * knee) ** (1 / 3)
        words = pd.DataFrame(
            {
                "intensity": [x_domain[1], middle],
                "tflops": [peak, middle * slope],
                "text": [
                    f"{units.tflops(peak)}, {roof['source']}",
                    f"{units.gb_s(roof['bandwidth_gb_s'])}, {roof['source']}",
                ],
            }
        )
        for text, style in ((words.head(1), {"align": "right", "dy": -9 if sheet else 14}),
                            (words.tail(1), {"align": "right", "dx": -8, "dy": -8 + 18 * place})):  # fmt: skip
            layers += [
                mark.encode(x=x, y=y, text="text:N")
                for mark in parts.label(alt.Chart(text), mode, 13, 400, **style)
            ]
    colour = alt.Color("colour:N", scale=None)
    tip = [alt.Tooltip("said:N", title=" ")]
    operations, stages = frame[frame["kind"] == "operation"], frame[frame["kind"] == "stage"]
    if len(operations):
        layers.append(
            alt.Chart(operations)
            .mark_circle(opacity=0.55)
            .encode(
                x=x,
                y=y,
                color=colour,
                size=alt.Size("share:Q", scale=alt.Scale(domain=[0, 0.3], range=[36, 700], clamp=True), legend=None),
                description="said:N",
                tooltip=tip,
            )
        )
    if len(stages):
        layers.append(
            alt.Chart(stages)
            .mark_point(size=260, shape="diamond", stroke=t.background, strokeWidth=2, opacity=1)
            .encode(x=x, y=y, fill=alt.Fill("colour:N", scale=None), description="said:N", tooltip=tip)
        )
        at = [
            (parts.place(row["intensity"], x_domain) * _PLOT[0], (1 - parts.place(row["tflops"], y_domain)) * _PLOT[1])
            for _, row in stages.iterrows()
        ]
        for index, style in enumerate(_label_sides(at, list(stages["text"]))):
            layers += [
                mark.encode(x=x, y=y, text="text:N")
                for mark in parts.label(alt.Chart(stages.iloc[[index]]), mode, 14, 600, **style)
            ]
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), _PLOT[1])


_PLOT = (900, 460)
"""Pixels of a roofline's plot on the narrowest wide screen; labels that are apart there are apart on wider ones."""
_SIDES: tuple[dict[str, Any], ...] = (
    {"align": "left", "dx": 15, "dy": 0},
    {"align": "right", "dx": -15, "dy": 0},
    {"align": "center", "dx": 0, "dy": -20},
    {"align": "center", "dx": 0, "dy": 20},
    {"align": "left", "dx": 15, "dy": -18},
    {"align": "left", "dx": 15, "dy": 18},
)


def _label_sides(points: Sequence[tuple[float, float]], texts: Sequence[str]) -> list[dict[str, Any]]:
    """For each point (pixels) the side on which its text covers no other point and no earlier text."""
    taken = [(x - 12, x + 12, y - 12, y + 12) for x, y in points]
    chosen = []
    for index, ((x, y), text) in enumerate(zip(points, texts, strict=True)):
        long = len(text) * theme.CHARACTER_WIDTH
        boxes = []
        for side in _SIDES:
            start = x + side["dx"] - long * {"left": 0.0, "center": 0.5, "right": 1.0}[side["align"]]
            boxes.append((start, start + long, y + side["dy"] - 9, y + side["dy"] + 9))
        others = [box for place, box in enumerate(taken) if place != index]
        free = [
            place
            for place, (left, right, top, bottom) in enumerate(boxes)
            if not any(left < b and a < right and top < d and c < bottom for a, b, c, d in others)
        ]
        best = free[0] if free else 0
        taken.append(boxes[best])
        chosen.append(_SIDES[best])
    return chosen


WORKING_SET_SHAPES = {"copy_by_size": ("copy", "circle", [1, 0]), "read_by_size": ("read", "square", [4, 3])}


def working_set_curve(
    rows: pd.DataFrame, gpu_key: str | None, l2_bytes: float | None, printed_gb_s: float | None, finding: str,
    conditions: str, mode: Mode,
) -> alt.LayerChart:  # fmt: skip
    """Bandwidth over the working set, with the L2 size and the data sheet's memory bandwidth as lines.

    rows: metric (copy_by_size, read_by_size), working_set_bytes, value (GB/s).
    """
    t = TOKENS[mode]
    frame = rows.copy()
    frame["mib"] = frame["working_set_bytes"].astype(float) / 2**20
    frame["value"] = frame["value"].astype(float)
    frame["said"] = [
        f"{WORKING_SET_SHAPES[metric][0]} of {units.bytes_size(size)}: {units.gb_s(value)}"
        for metric, size, value in zip(frame["metric"], frame["working_set_bytes"], frame["value"], strict=True)
    ]
    domain = parts.domain_with_room([*frame["mib"]], left=0.03, right=0.12)
    x = alt.X(
        "mib:Q",
        title="working set, MiB, logarithmic",
        scale=alt.Scale(type="log", domain=domain, nice=False),
        axis=alt.Axis(values=parts.log_ticks(domain), labelExpr=parts.NUMBER, titleAnchor="start", grid=False),
    )
    top = max([frame["value"].max(), printed_gb_s or 0.0]) * 1.16
    y = alt.Y(
        "value:Q",
        title="GB/s",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(tickCount=6, labelExpr=parts.NUMBER),
    )
    layers: list[Any] = []
    if printed_gb_s:
        sheet = alt.Chart(
            pd.DataFrame({"value": [printed_gb_s], "text": [f"memory, data sheet: {units.gb_s(printed_gb_s)}"]})
        )
        layers.append(sheet.mark_rule(color=t.text, strokeWidth=2, strokeDash=theme.DASHES["bandwidth"]).encode(y=y))
        layers += [
            mark.encode(x=alt.value("width"), y=y, text="text:N")
            for mark in parts.label(sheet, mode, 13, 400, align="right", dy=-9)
        ]
    if l2_bytes and domain[0] < l2_bytes / 2**20 < domain[1]:
        words = f"L2, {units.bytes_size(l2_bytes)}"
        knee = alt.Chart(pd.DataFrame({"mib": [l2_bytes / 2**20], "value": [top * 0.97], "text": [words]}))
        layers.append(knee.mark_rule(color=t.line, strokeWidth=2).encode(x=x))
        layers += [
            mark.encode(x=x, y=y, text="text:N") for mark in parts.label(knee, mode, 13, 400, align="left", dx=6)
        ]
    colour = theme.gpu_colour(gpu_key, mode)
    ends = frame.sort_values("mib").drop_duplicates("metric", keep="last").set_index("metric")["value"]
    for metric, part in frame.groupby("metric", sort=False):
        name, shape, dash = WORKING_SET_SHAPES[str(metric)]
        base = alt.Chart(part)
        layers.append(base.mark_line(color=colour, strokeWidth=2, strokeDash=dash).encode(x=x, y=y))
        layers.append(
            base.mark_point(filled=True, size=70, color=colour, shape=shape, opacity=1).encode(
                x=x, y=y, description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")]
            )
        )
        up = -9 if ends[metric] == ends.max() else 9
        last = alt.Chart(part.sort_values("mib").tail(1).assign(text=name))
        layers += [
            mark.encode(x=x, y=y, text="text:N")
            for mark in parts.label(last, mode, 14, 600, align="left", dx=10, dy=up)
        ]
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), 340)
