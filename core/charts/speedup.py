"""How GPU types compare: speedup bars, absolute times, heat map by precision, curves over a size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from core import units
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode
from core.records import PRECISIONS

SHOWN_ROWS = 9
"""At most so many rows are drawn; the table holds the rest and the subtitle says how many."""


def _fitted(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows that are drawn, and what is said about the others."""
    left = len(frame) - SHOWN_ROWS
    return (frame.head(SHOWN_ROWS), f"; {left} more in the table") if left > 0 else (frame, "")


def speedup_bars(
    rows: pd.DataFrame,
    theory: pd.DataFrame,
    baseline: str,
    finding: str,
    conditions: str,
    mode: Mode,
    time_header: str = "median time",
) -> alt.LayerChart:
    """Speedup of each row against a baseline, as bars from 1x on a logarithmic axis, with interval and theory.

    rows: label, gpu_key, ratio, low, high (None without interval), time (text, drawn at the right edge), origin, detail
    (n, boards; shown on hover), in display order.
    theory: label, kind (bandwidth, compute, measured), name, ratio: a line across that row's bar.
    """
    rows, rest = _fitted(rows)
    t = TOKENS[mode]
    frame = rows.reset_index(drop=True).copy()
    frame["y"] = range(len(frame))
    frame["x"], frame["one"] = frame["ratio"].astype(float), 1.0
    frame["top"], frame["bottom"] = frame["y"] - 0.28, frame["y"] + 0.28
    frame["colour"] = [theme.gpu_colour(key if isinstance(key, str) else None, mode) for key in frame["gpu_key"]]
    frame["hollow"] = frame["origin"] == "reported"
    edge = (frame["origin"] == "imported") & ~frame["hollow"]
    frame["edge"] = [t.text if imported else colour for imported, colour in zip(edge, frame["colour"], strict=True)]
    frame["text"] = [
        units.ratio(r) + ("" if low is None or math.isnan(low) else f"  ({units.ratio_interval(low, high)})")
        for r, low, high in zip(frame["x"], frame["low"].astype(float), frame["high"].astype(float), strict=True)
    ]
    frame["said"] = (
        frame["label"].str.replace("\n", ", ")
        + ": "
        + frame["text"]
        + " against "
        + baseline
        + "; "
        + frame["detail"].fillna("")
    )
    frame["end"] = frame[["x", "high"]].astype(float).max(axis=1).clip(lower=1.0)

    lines = theory[theory["label"].isin(frame["label"])].copy()
    lines["y"] = lines["label"].map(dict(zip(frame["label"], frame["y"], strict=True))).astype(float)
    lines["x"] = lines["ratio"].astype(float)
    lines["top"], lines["bottom"] = lines["y"] - 0.42, lines["y"] + 0.42

    values = [1.0, *parts.values_of(frame, "x", "low", "high"), *parts.values_of(lines, "x")]
    domain = parts.domain_with_room(values, left=0.03, right=0.42, least=3.0)
    x = parts.ratio_axis(domain, f"times as fast as {baseline} (1x), logarithmic", last=max(values) * 1.3)
    tags = _theory_tags(lines, domain)
    above = 0.45 * (1 + (tags["row"].max() if len(tags) else 0))
    y = parts.row_axis(list(frame["label"]), above=above, field="top:Q")

    base = alt.Chart(frame)
    bars = base.mark_bar(strokeWidth=2, cornerRadius=2).encode(
        x=x,
        x2="one:Q",
        y=y,
        y2="bottom:Q",
        stroke=alt.Stroke("edge:N", scale=None),
        fill=alt.Fill("colour:N", scale=None),
        fillOpacity=alt.condition("datum.hollow", alt.value(0.0), alt.value(1.0)),
        description="said:N",
        tooltip=[alt.Tooltip("said:N", title=" ")],
    )
    layers: list[alt.Chart | alt.LayerChart] = [bars, parts.vertical(1.0, t.text, 1.5)]
    layers += _theory_lines(lines, mode)
    for side in sorted(set(tags["side"])):
        layers.append(
            alt.Chart(tags[tags["side"] == side])
            .mark_text(
                align="left" if side == "left" else "right", dx=5 if side == "left" else -5, fontSize=13, color=t.muted
            )
            .encode(x="x:Q", y="tag_y:Q", text="name:N")
        )
    layers.append(parts.whiskers(frame, mode))
    frame["end"] = parts.end_labels(
        list(frame["end"]), list(frame["text"]), [list(lines.loc[lines["y"] == y, "x"]) for y in frame["y"]], domain
    )
    layers += [
        mark.encode(x="end:Q", y="y:Q", text="text:N")
        for mark in parts.label(alt.Chart(frame), mode, 15, 600, align="left", dx=9)
    ]
    layers += parts.right_column(frame, "time", time_header, mode)
    chart = alt.layer(*layers)
    tall = max(len(parts.name_lines(label)) for label in frame["label"]) > 1
    height = max(int((parts.ROW_HEIGHT + 8 * tall) * (len(frame) + above)), 110)
    return theme.finish(chart, mode, theme.title(finding, conditions + rest), height, names=list(frame["label"]))


def _theory_tags(lines: pd.DataFrame, domain: Sequence[float]) -> pd.DataFrame:
    """Names of the theory lines of the top row that has some, in rows above it so that none covers another."""
    if lines.empty:
        return lines.assign(row=0, side="left", tag_y=0.0)
    tags = lines[lines["y"] == lines["y"].min()].copy()
    places = [parts.place(x, domain) for x in tags["x"]]
    tags["side"] = ["left" if place <= 0.5 else "right" for place in places]
    tags["row"] = theme.label_rows(places, list(tags["name"]), 640)
    tags["tag_y"] = tags["y"] - 0.6 - 0.38 * tags["row"]
    tags["top"] = tags["tag_y"]
    return tags


def _theory_lines(lines: pd.DataFrame, mode: Mode) -> list[alt.Chart]:
    """Theory as lines across a row, each with its kind's dash, with a halo so that they show on a bar."""
    if lines.empty:
        return []
    t = TOKENS[mode]
    thin = {"measured": 1.5}
    drawn = [
        (x, top, bottom, dash, ink, thin.get(kind, 2.5) + wider)
        for x, top, bottom, kind in lines[["x", "top", "bottom", "kind"]].itertuples(index=False)
        for dash, ink, wider in (("halo", t.background, 3), (kind, t.text, 0))
    ]
    dashes = {"halo": [1, 0], **theme.DASHES}
    return [
        alt.Chart(pd.DataFrame(drawn, columns=["x", "top", "bottom", "dash", "ink", "width"]))
        .mark_rule()
        .encode(
            x="x:Q",
            y="top:Q",
            y2="bottom:Q",
            color=alt.Color("ink:N", scale=None),
            strokeWidth=alt.StrokeWidth("width:Q", scale=None),
            strokeDash=alt.StrokeDash(
                "dash:N", scale=alt.Scale(domain=list(dashes), range=list(dashes.values())), legend=None
            ),
        )
    ]


def time_bars(rows: pd.DataFrame, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Absolute times with their spread: bars from zero, or points on a logarithmic axis when they span over 30x.

    rows: label, gpu_key, median_ms, low_ms, high_ms (spread of the samples or None), origin, detail.
    """
    rows, rest = _fitted(rows)
    t = TOKENS[mode]
    frame = rows.reset_index(drop=True).copy()
    frame["y"] = range(len(frame))
    unit = units.time_unit(frame["median_ms"])
    for column, source in (("x", "median_ms"), ("low", "low_ms"), ("high", "high_ms")):
        frame[column] = [units.time_value(value, unit) for value in frame[source].astype(float)]
    frame = frame.astype({"x": float, "low": float, "high": float})
    frame["top"], frame["bottom"], frame["zero"] = frame["y"] - 0.28, frame["y"] + 0.28, 0.0
    frame["colour"] = [theme.gpu_colour(key if isinstance(key, str) else None, mode) for key in frame["gpu_key"]]
    frame["hollow"] = frame["origin"] == "reported"
    frame["text"] = [units.time_ms(value, unit) for value in frame["median_ms"].astype(float)]
    frame["said"] = frame["label"].str.replace("\n", ", ") + ": " + frame["text"] + "; " + frame["detail"].fillna("")
    frame["end"] = frame[["x", "high"]].max(axis=1)
    wide = parts.is_wide(list(frame["x"]))
    values = parts.values_of(frame, "x", "low", "high")
    domain = parts.domain_with_room(values, left=0.05, right=0.2) if wide else [0.0, max(values) * 1.25]
    x = parts.time_axis(domain, f"{unit} per forward pass" + (", logarithmic" if wide else ""), wide)
    y = parts.row_axis(list(frame["label"]), field="y:Q" if wide else "top:Q")
    base = alt.Chart(frame)
    colour = alt.Stroke("colour:N", scale=None)
    fill = alt.condition("datum.hollow", alt.value(t.background), alt.Fill("colour:N", scale=None))
    if wide:
        marks = base.mark_point(size=190, strokeWidth=2.5, opacity=1).encode(
            x=x, y=y, stroke=colour, fill=fill, description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")]
        )
    else:
        marks = base.mark_bar(strokeWidth=2, cornerRadius=2).encode(
            x=x,
            x2="zero:Q",
            y=y,
            y2="bottom:Q",
            stroke=colour,
            fill=alt.Fill("colour:N", scale=None),
            fillOpacity=alt.condition("datum.hollow", alt.value(0.0), alt.value(1.0)),
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
        )
    labels = base.mark_text(align="left", dx=12, fontWeight=600, fontSize=15).encode(x="end:Q", y="y:Q", text="text:N")
    chart = alt.layer(marks, parts.whiskers(frame, mode), labels)
    return theme.finish(
        chart,
        mode,
        theme.title(finding, conditions + rest),
        max(parts.ROW_HEIGHT * len(frame), 110),
        names=list(frame["label"]),
    )


_HEAT = {"light": ("#E4EEF7", "#0A4A7A"), "dark": ("#1F3347", "#9CCFF6")}


def heat_map(cells: pd.DataFrame, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """GPU x precision: speedup as colour and number; a cell without a number says why.

    cells: label, precision, ratio (None without a measurement), time (text), reason (why a number is missing or does
    not count: "emulated"), in display order of the labels. One row per pair; pairs that are absent are drawn as "not
    measured". What has a reason is grey.
    """
    t = TOKENS[mode]
    labels = list(dict.fromkeys(cells["label"]))
    grid = pd.MultiIndex.from_product([labels, PRECISIONS], names=["label", "precision"]).to_frame(index=False)
    frame = grid.merge(cells, on=["label", "precision"], how="left")
    frame["ratio"] = frame["ratio"].astype(float)
    known = frame["ratio"].notna()
    counts = known & frame["reason"].isna()
    logs = [math.log(ratio) for ratio in frame.loc[counts, "ratio"]] or [0.0]
    low, high = min(logs), max(logs)
    frame["fill"] = [
        _mix(*_HEAT[mode], (math.log(ratio) - low) / (high - low) if high > low else 0.5) if ok else t.surface
        for ratio, ok in zip(frame["ratio"], counts, strict=True)
    ]
    frame["ink"] = [_ink_on(fill) if ok else t.muted for ok, fill in zip(counts, frame["fill"], strict=True)]
    frame["big"] = [units.ratio(ratio) if not math.isnan(ratio) else "–" for ratio in frame["ratio"]]
    frame["small"] = [
        ", ".join(filter(None, [reason if isinstance(reason, str) else "", time if isinstance(time, str) else ""]))
        or "not measured"
        for time, reason in zip(frame["time"], frame["reason"], strict=True)
    ]
    frame["said"] = frame["label"] + ", " + frame["precision"] + ": " + frame["big"] + " " + frame["small"]
    x = alt.X(
        "precision:N",
        sort=list(PRECISIONS),
        title=None,
        axis=alt.Axis(orient="top", labelAngle=0, labelFontSize=14, ticks=False, domain=False),
        scale=alt.Scale(paddingInner=0.04),
    )
    y = alt.Y("label:N", sort=labels, title=None, axis=parts.name_axis(labels), scale=alt.Scale(paddingInner=0.06))
    base = alt.Chart(frame)
    rects = base.mark_rect(cornerRadius=3).encode(
        x=x, y=y, fill=alt.Fill("fill:N", scale=None), description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")]
    )
    ink = alt.Color("ink:N", scale=None)
    chart = alt.layer(
        rects,
        base.mark_text(dy=-8, fontSize=17, fontWeight=600).encode(x=x, y=y, text="big:N", color=ink),
        base.mark_text(dy=12, fontSize=12, limit=150).encode(x=x, y=y, text="small:N", color=ink),
    )
    return theme.finish(chart, mode, theme.title(finding, conditions), 62 * len(labels) + 30, names=labels)


def _ink_on(fill: str) -> str:
    """Black or white, whichever reads better on this colour."""
    return "#FFFFFF" if theme.contrast("#FFFFFF", fill) > theme.contrast("#10161C", fill) else "#10161C"


def _mix(one: str, other: str, share: float) -> str:
    pairs = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


def size_curve(points: pd.DataFrame, axis: str, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Time against one size (resolution, frames, points), log-log, one line per series with its name at its end.

    points: series, gpu_key, precision, size (number on the axis), median_ms, low_ms, high_ms, status, detail. A row
    that is not ok (out of memory, unsupported) is drawn as a cross at the top with its status. `exponent` (fitted
    power, NaN without) stands behind the name; where `full` has the share of the memory, a ring says so.
    """
    t = TOKENS[mode]
    frame = points.sort_values(["series", "size"]).reset_index(drop=True).copy()
    ok = frame[frame["status"] == "ok"].copy()
    failed = frame[frame["status"] != "ok"].copy()
    unit = units.time_unit(ok["median_ms"])
    for column, source in (("x", "median_ms"), ("low", "low_ms"), ("high", "high_ms")):
        ok[column] = [units.time_value(value, unit) for value in ok[source].astype(float)]
    ok = ok.astype({"x": float, "low": float, "high": float})
    ok["said"] = (
        ok["series"]
        + ", "
        + ok["size"].astype(str)
        + ": "
        + [units.time_ms(v, unit) for v in ok["median_ms"]]
        + "; "
        + ok["detail"].fillna("")
    )
    ok["colour"] = [theme.gpu_colour(key if isinstance(key, str) else None, mode) for key in ok["gpu_key"]]
    sizes = sorted(set(frame["size"].astype(float)))
    domain_x = parts.domain_with_room(sizes, left=0.05, right=0.28, least=1.5)
    domain_y = parts.domain_with_room(parts.values_of(ok, "x", "low", "high") or [1.0], left=0.08, right=0.14)
    x = alt.X(
        "size:Q",
        title=f"{axis}, logarithmic",
        scale=alt.Scale(type="log", domain=domain_x, nice=False),
        axis=alt.Axis(values=sizes, labelExpr=parts.NUMBER, grid=False),
    )
    y = alt.Y(
        "x:Q",
        title=f"{unit} per forward pass, logarithmic",
        scale=alt.Scale(type="log", domain=domain_y, nice=False),
        axis=alt.Axis(values=parts.log_ticks(domain_y), labelExpr=parts.NUMBER),
    )
    base = alt.Chart(ok)
    colour = alt.Color("colour:N", scale=None)
    shape = alt.Shape(
        "precision:N",
        legend=None,
        scale=alt.Scale(domain=list(theme.PRECISION_SHAPES), range=list(theme.PRECISION_SHAPES.values())),
    )
    dash = alt.StrokeDash(
        "precision:N",
        legend=None,
        scale=alt.Scale(domain=list(theme.PRECISION_DASHES), range=list(theme.PRECISION_DASHES.values())),
    )
    ends = ok.sort_values("size").groupby("series", as_index=False).tail(1).copy()
    powers = ends["exponent"] if "exponent" in ends else pd.Series(math.nan, index=ends.index)
    ends["name"] = [
        name if pd.isna(power) else f"{name}  n^{power:.1f}" for name, power in zip(ends["series"], powers, strict=True)
    ]
    full = ok[ok["full"].notna()].copy() if "full" in ok else ok.iloc[:0].copy()
    ends = _spread_ends(ends, domain_y)
    layers: list[alt.Chart] = [
        base.mark_line(strokeWidth=2.5).encode(x=x, y=y, color=colour, detail="series:N", strokeDash=dash),
        base.mark_rule(strokeWidth=2).encode(x="size:Q", y="low:Q", y2="high:Q", color=colour),
        base.mark_point(size=90, filled=True, opacity=1).encode(
            x="size:Q",
            y="x:Q",
            color=colour,
            shape=shape,
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
        ),
        alt.Chart(ends)
        .mark_text(align="left", dx=12, fontSize=14, fontWeight=600)
        .encode(x="size:Q", y="label_y:Q", text="name:N", color=colour),
    ]
    if len(full):
        full["told"] = [f"memory {units.percent(share)} full" for share in full["full"].astype(float)]
        rings = alt.Chart(full)
        layers += [
            rings.mark_point(size=260, filled=False, strokeWidth=2, color=t.text).encode(x="size:Q", y="x:Q"),
            rings.mark_text(dy=-18, fontSize=13, color=t.muted).encode(x="size:Q", y="x:Q", text="told:N"),
        ]
    if len(failed):
        failed["at"] = domain_y[1] / (domain_y[1] / domain_y[0]) ** 0.04
        failed["said"] = failed["series"] + ", " + failed["size"].astype(str) + ": " + failed["status"]
        marks = failed.groupby(["size", "status"], as_index=False).agg(at=("at", "first"), said=("said", "; ".join))
        layers += [
            alt.Chart(marks)
            .mark_point(shape="cross", angle=45, size=130, filled=True, color=t.muted)
            .encode(x="size:Q", y="at:Q", description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")]),
            alt.Chart(marks).mark_text(dy=16, fontSize=13, color=t.muted).encode(x="size:Q", y="at:Q", text="status:N"),
        ]
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), 340)


def _spread_ends(ends: pd.DataFrame, domain: Sequence[float], least: float = 0.062) -> pd.DataFrame:
    """Label heights that keep their order, lie at least `least` of the axis apart and as near their lines as can be."""
    ends = ends.sort_values("x").reset_index(drop=True)
    span = math.log(domain[1] / domain[0])
    groups: list[tuple[float, int]] = []  # middle and number of labels of each block that touches itself
    for value in ends["x"]:
        middle, number = math.log(value / domain[0]) / span, 1
        while groups and middle - groups[-1][0] < least * (number + groups[-1][1]) / 2:
            other, count = groups.pop()
            middle, number = (middle * number + other * count) / (number + count), number + count
        groups.append((min(max(middle, least * number / 2), 1 - least * number / 2), number))
    places = [middle + least * (i - (number - 1) / 2) for middle, number in groups for i in range(number)]
    ends["label_y"] = [domain[0] * math.exp(span * place) for place in places]
    return ends
