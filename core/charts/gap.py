"""One gap: against theory, against the norm of its pair, and by stage."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from core import units
from core.analysis.verdict import WITHIN
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode


def _this_gap(
    ratio: float,
    verdict: str,
    mode: Mode,
    top: float,
    bottom: float,
    label_y: float,
    domain: Sequence[float],
    text: str,
) -> list[alt.Chart]:
    """The line and name of the gap in question, in its verdict's colour."""
    colour = theme.verdict_style(verdict).colour(mode)
    side = "left" if parts.place(ratio, domain) <= 0.5 else "right"
    data = pd.DataFrame({"x": [ratio], "top": [top], "bottom": [bottom], "label_y": [label_y], "text": [text]})
    base = alt.Chart(data)
    return [
        base.mark_rule(color=colour, strokeWidth=4).encode(x="x:Q", y="bottom:Q", y2="top:Q"),
        base.mark_point(shape="diamond", filled=True, size=240, color=colour, opacity=1).encode(
            x="x:Q", y="bottom:Q", description="text:N"
        ),
        *(
            mark.encode(x="x:Q", y="label_y:Q", text="text:N")
            for mark in parts.label(base, mode, 17, 700, colour, align=side, dx=10 if side == "left" else -10)
        ),
    ]


def norm_strip(
    bins: pd.DataFrame,
    norm: dict[str, float],
    theory: pd.DataFrame,
    ratio: float,
    verdict: str,
    finding: str,
    conditions: str,
    mode: Mode,
) -> alt.LayerChart:
    """Where this gap stands among healthy operations on the same pair of cards, on a logarithmic ratio axis.

    bins: low, high (ratio), share (of all operations; one row per bin, empty without a distribution).
    norm: some of low (p0.5), median, high (p99.5), max. theory: name, kind, ratio. All ratios baseline / target time.
    """
    t = TOKENS[mode]
    peak = float(bins["share"].max()) if len(bins) else 1.0
    values = [
        ratio,
        1.0,
        *parts.values_of(theory, "ratio"),
        *[v for v in norm.values() if v > 0],
    ]
    domain = parts.domain_with_room(values, left=0.05, right=0.06, least=10)
    shown = bins[(bins["share"] > 0) & (bins["low"] >= domain[0])]

    width = 620.0
    tags = theory.copy()
    tags["x"] = tags["ratio"].astype(float)
    tags["text"] = [f"{name} {units.ratio(x)}" for name, x in zip(tags["name"], tags["x"], strict=True)]
    places = [parts.place(x, domain) for x in tags["x"]]
    tags["side"] = ["left" if place <= 0.5 else "right" for place in places]
    tags["row"] = theme.label_rows(places, list(tags["text"]), width)
    rows_above = 1 + (int(tags["row"].max()) if len(tags) else 0)
    tags["y"] = [peak * (1.16 + 0.2 * row) for row in tags["row"]]
    tags["zero"] = 0.0
    gap_y = peak * (1.2 + 0.2 * rows_above)

    names = {"median": "median", "high": "99.5 % below", "max": "never above"}
    marks = pd.DataFrame(
        [
            {"key": key, "x": norm[key], "text": f"{names[key]} {units.ratio(norm[key])}"}
            for key in names
            if key in norm
        ],
        columns=["key", "x", "text"],
    )
    mark_places = [parts.place(x, domain) for x in marks["x"]]
    marks["side"] = ["left" if place <= 0.5 else "right" for place in mark_places]
    marks["row"] = theme.label_rows(mark_places, list(marks["text"]), width, outer_first=False) if len(marks) else []
    marks["y"] = -0.11 * peak
    marks["label_y"] = [-peak * (0.27 + 0.19 * row) for row in marks["row"]]
    rows_below = (1 + int(marks["row"].max())) if len(marks) else 0
    bottom = -peak * (0.22 + 0.19 * rows_below) if len(marks) else 0.0

    scale_y = alt.Scale(domain=[bottom, gap_y + 0.12 * peak], nice=False)
    axis_name = "baseline time / target time, logarithmic"
    x = parts.ratio_axis(domain, axis_name, grid=False)
    layers: list[alt.Chart] = []
    if len(shown):
        histogram = shown.assign(
            zero=0.0,
            said=[
                f"{units.percent(share)} of operations between {units.ratio(low)} and {units.ratio(high)}"
                for low, high, share in zip(shown["low"], shown["high"], shown["share"], strict=True)
            ],
        )
        layers.append(
            alt.Chart(histogram)
            .mark_bar(color=t.band, opacity=0.55, cornerRadius=0, binSpacing=0)
            .encode(
                x=parts.ratio_axis(domain, axis_name, field="low:Q", grid=False),
                x2="high:Q",
                y=alt.Y("share:Q", axis=None, scale=scale_y),
                y2="zero:Q",
                tooltip=[alt.Tooltip("said:N", title=" ")],
                description="said:N",
            )
        )
    ground = pd.DataFrame({"x": [domain[0]], "x2": [domain[1]], "y": [0.0]})
    layers.append(
        alt.Chart(ground).mark_rule(color=t.line).encode(x=x, x2="x2:Q", y=alt.Y("y:Q", axis=None, scale=scale_y))
    )
    if "low" in norm and "high" in norm:
        span = pd.DataFrame({"x": [norm["low"]], "x2": [norm["high"]], "y": [-0.11 * peak]})
        layers.append(
            alt.Chart(span)
            .mark_rule(color=t.band, strokeWidth=7, strokeCap="round")
            .encode(x="x:Q", x2="x2:Q", y="y:Q")
        )
        if "max" in norm:
            tail = span.assign(x=norm["high"], x2=norm["max"])
            layers.append(alt.Chart(tail).mark_rule(color=t.band, strokeWidth=2).encode(x="x:Q", x2="x2:Q", y="y:Q"))
    if len(marks):
        layers.append(
            alt.Chart(marks).mark_tick(orient="vertical", color=t.text, thickness=3, size=16).encode(x="x:Q", y="y:Q")
        )
        layers += _tags(marks.assign(label=marks["text"], at=marks["label_y"]), 13, t.muted, mode)
    for kind, dash in theme.DASHES.items():
        of_kind = tags[tags["kind"] == kind]
        if len(of_kind):
            layers.append(
                alt.Chart(of_kind)
                .mark_rule(color=t.text, strokeDash=dash, strokeWidth=1.5 if kind == "measured" else 2.2)
                .encode(x="x:Q", y="zero:Q", y2="y:Q")
            )
    layers += _tags(tags.assign(label=tags["text"], at=tags["y"]), 14, t.text, mode)
    layers += _this_gap(ratio, verdict, mode, gap_y, 0.0, gap_y, domain, f"this gap {units.ratio(ratio)}")
    height = 190 + 24 * (rows_above + rows_below)
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), height)


def _tags(frame: pd.DataFrame, size: int, colour: str, mode: Mode) -> list[alt.Chart]:
    """Labels beside their lines: columns x, at (y), label, side."""
    return [
        mark.encode(x="x:Q", y="at:Q", text="label:N")
        for side in ("left", "right")
        if (frame["side"] == side).any()
        for mark in parts.label(
            alt.Chart(frame[frame["side"] == side]), mode, size, 400, colour, align=side, dx=6 if side == "left" else -6
        )
    ]


def theory_chart(
    readings: pd.DataFrame,
    ratio: float,
    low: float | None,
    high: float | None,
    verdict: str,
    finding: str,
    conditions: str,
    mode: Mode,
) -> alt.LayerChart:
    """The measured ratio against each theory reading, with the zone in which it would be as expected.

    readings: name, kind (bandwidth, compute, measured), ratio, judged (True: it takes part in the verdict).
    """
    t = TOKENS[mode]
    style = theme.verdict_style(verdict)
    colour = style.colour(mode)
    frame = readings.reset_index(drop=True).copy()
    frame["x"] = frame["ratio"].astype(float)
    frame["y"] = range(len(frame))
    frame["text"] = [units.ratio(value) for value in frame["x"]]
    frame["said"] = frame["name"] + ": " + frame["text"]
    judged = frame[frame["judged"].astype(bool)]
    zone = (judged["x"].min() / WITHIN, judged["x"].max() * WITHIN) if len(judged) else None
    values = [ratio, *parts.values_of(frame, "x"), *[v for v in (low, high) if v], *(zone or ())]
    domain = parts.domain_with_room(values, left=0.06, right=0.14, least=4)
    count = len(frame)
    names = list(frame["name"])
    y = parts.row_axis(names, above=1.1)
    x = parts.ratio_axis(domain, "baseline time / target time, logarithmic")
    layers: list[alt.Chart] = []
    if zone:
        area = pd.DataFrame(
            {
                "x": [zone[0]],
                "x2": [zone[1]],
                "top": [-0.5],
                "bottom": [count - 0.5],
                "text": ["as expected"],
                "label_y": [-0.66],
            }
        )
        blue = theme.VERDICTS["as_expected"].colour(mode)
        layers += [
            alt.Chart(area)
            .mark_rect(color=blue, opacity=0.13)
            .encode(x=x, x2="x2:Q", y=parts.row_axis(names, above=1.1, field="top:Q"), y2="bottom:Q"),
            alt.Chart(area)
            .mark_text(color=blue, fontSize=13, align="left")
            .encode(x="x:Q", y="label_y:Q", text="text:N"),
        ]
    if low and high:
        band = pd.DataFrame({"x": [low], "x2": [high], "top": [-0.5], "bottom": [count - 0.5]})
        layers.append(
            alt.Chart(band).mark_rect(color=colour, opacity=0.25).encode(x="x:Q", x2="x2:Q", y="top:Q", y2="bottom:Q")
        )
    text = f"measured {units.ratio(ratio)}"
    layers += _this_gap(ratio, verdict, mode, -0.55, count - 0.5, -1.15, domain, text)
    base = alt.Chart(frame)
    layers.append(
        base.mark_point(size=170, filled=False, strokeWidth=2.5, color=t.text, opacity=1).encode(
            x=x,
            y=y,
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
            shape=alt.Shape(
                "kind:N",
                legend=None,
                scale=alt.Scale(domain=["bandwidth", "compute", "measured"], range=["circle", "square", "triangle-up"]),
            ),
        )
    )
    layers += [
        mark.encode(x="x:Q", y="y:Q", text="text:N") for mark in parts.label(base, mode, 15, 600, align="left", dx=13)
    ]
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), 40 * count + 80, names=names)


def factor_waterfall(
    rows: pd.DataFrame, ratio: float, verdict: str, finding: str, conditions: str, mode: Mode
) -> alt.LayerChart:
    """The measured ratio as steps on a logarithmic axis: each factor starts where the one before ended, from 1x on.

    rows: name, kind (hardware, software, residual), ratio, start, end, text, said; in the order of the steps.
    """
    t = TOKENS[mode]
    frame = rows.reset_index(drop=True).copy()
    frame["y"] = [float(i) for i in range(len(frame))]
    frame["top"], frame["bottom"] = frame["y"] - 0.28, frame["y"] + 0.28
    values = [ratio, 1.0, *parts.values_of(frame, "start", "end")]
    domain = parts.domain_with_room(values, left=0.1, right=0.14, least=3)
    width = 0.004 * math.log(domain[1] / domain[0])
    # A factor of one still needs a mark that can be seen.
    frame["low"] = [min(a, b) * math.exp(-width) for a, b in zip(frame["start"], frame["end"], strict=True)]
    frame["high"] = [max(a, b) * math.exp(width) for a, b in zip(frame["start"], frame["end"], strict=True)]
    software = theme.VERDICTS["slower_than_expected"].colour(mode)
    colours = {"hardware": t.accent, "software": software, "residual": t.band}
    frame["colour"] = [colours[kind] for kind in frame["kind"]]
    names = [str(name) for name in frame["name"]]
    x = parts.ratio_axis(domain, "baseline time / target time, logarithmic")
    steps = frame.iloc[:-1].assign(below=frame["y"].to_numpy()[1:], x=frame["end"].to_numpy()[:-1])
    base = alt.Chart(frame)
    y = parts.row_axis(names, above=0.9)
    layers: list[alt.Chart] = [
        parts.vertical(1.0, t.line, 1.5),
        alt.Chart(steps).mark_rule(color=t.line, strokeDash=[3, 3]).encode(x=x, y=y, y2="below:Q"),
        base.mark_bar(cornerRadius=2).encode(
            x=parts.ratio_axis(domain, "baseline time / target time, logarithmic", field="low:Q"),
            x2="high:Q",
            y=parts.row_axis(names, above=0.9, field="top:Q"),
            y2="bottom:Q",
            color=alt.Color("colour:N", scale=None),
            fillOpacity=alt.condition("datum.kind == 'residual'", alt.value(0.45), alt.value(1.0)),
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
        ),
    ]
    layers += _this_gap(ratio, verdict, mode, -0.5, len(frame) - 0.5, -0.95, domain, f"measured {units.ratio(ratio)}")
    layers += [
        mark.encode(x="high:Q", y="y:Q", text="text:N")
        for mark in parts.label(base, mode, 15, 600, align="left", dx=8)
    ]
    return theme.finish(
        alt.layer(*layers), mode, theme.title(finding, conditions), 36 * len(frame) + 40, names=names
    )


def lost_time(rows: pd.DataFrame, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Lost kernel time of operations as steps from zero to the whole difference; what was gained steps back.

    rows: name, stage, start_ms, end_ms, lost_ms; in the order of the steps.
    """
    frame = rows.reset_index(drop=True).copy()
    unit = units.time_unit(parts.values_of(frame, "lost_ms"))
    scale = units.TIME_UNITS_MS[unit]
    frame["low"] = frame[["start_ms", "end_ms"]].min(axis=1) / scale
    frame["high"] = frame[["start_ms", "end_ms"]].max(axis=1) / scale
    frame["y"] = [float(i) for i in range(len(frame))]
    frame["top"], frame["bottom"] = frame["y"] - 0.28, frame["y"] + 0.28
    frame["text"] = [units.time_ms(value) for value in frame["lost_ms"]]
    frame["said"] = frame["name"] + ", " + frame["stage"] + ": " + frame["text"]
    frame["colour"] = [theme.stage_colour(stage, mode) for stage in frame["stage"]]
    names = [str(name) for name in frame["name"]]
    reach = float(frame["high"].max()) - min(float(frame["low"].min()), 0.0)
    domain = [min(float(frame["low"].min()), 0.0), float(frame["high"].max()) + 0.18 * reach]
    x = alt.X(
        "low:Q",
        title=f"{unit} of kernel time, baseline minus target",
        scale=alt.Scale(domain=domain, nice=False),
        axis=alt.Axis(tickCount=6, titleAnchor="start", labelExpr=parts.NUMBER),
    )
    base = alt.Chart(frame)
    bars = base.mark_bar(cornerRadius=2).encode(
        x=x,
        x2="high:Q",
        y=parts.row_axis(names, field="top:Q"),
        y2="bottom:Q",
        color=alt.Color("colour:N", scale=None),
        description="said:N",
        tooltip=[alt.Tooltip("said:N", title=" ")],
    )
    labels = [
        mark.encode(x="high:Q", y="y:Q", text="text:N") for mark in parts.label(base, mode, 14, 600, align="left", dx=8)
    ]
    return theme.finish(
        alt.layer(parts.vertical(0.0, TOKENS[mode].line, 1.5), bars, *labels),
        mode,
        theme.title(finding, conditions),
        40 * len(frame) + 20,
        names=names,
    )


def stage_chart(
    stages: pd.DataFrame, baseline: str, target: str, finding: str, conditions: str, mode: Mode
) -> alt.LayerChart:
    """Both sides' time per stage, in the given order, with the ratio of each stage at the right edge.

    stages: name, baseline_ms, target_ms, ratio. Bars from zero, the baseline pale; where the times span over 30x, a
    logarithmic axis with the baseline as a hollow and the target as a full point, so that a line's length is a ratio.
    """
    frame = stages.reset_index(drop=True).copy()
    unit = units.time_unit(parts.values_of(frame, "baseline_ms", "target_ms"))
    sides = []
    for side, column, shift in ((baseline, "baseline_ms", -0.19), (target, "target_ms", 0.19)):
        times = frame[column].astype(float)
        part = frame[["name"]].assign(row=[float(i) for i in range(len(frame))], side=side, shift=shift)
        part["full"] = column == "target_ms"
        part["x"] = times / units.TIME_UNITS_MS[unit]
        part["text"] = [units.time_ms(value, unit) for value in times]
        sides.append(part)
    marks = pd.concat(sides).dropna(subset=["x"]).astype({"x": float})
    marks = marks[marks["x"] > 0]
    marks["colour"] = [theme.stage_colour(name, mode) for name in marks["name"]]
    marks["said"] = marks["name"] + ", " + marks["side"] + ": " + marks["text"]
    names = [name.replace("_", " ") for name in frame["name"]]
    wide = parts.is_wide(list(marks["x"]))
    drawn = _stage_points(marks, names, unit, mode) if wide else _stage_bars(marks, names, unit)
    ratios = frame.assign(
        row=[float(i) for i in range(len(frame))],
        text=[units.ratio(value) if pd.notna(value) else "" for value in frame["ratio"]],
    )
    ratio_text = (
        alt.Chart(ratios)
        .mark_text(align="right", dx=-4, fontSize=17, fontWeight=600, color=TOKENS[mode].text)
        .encode(x=alt.value("width"), y="row:Q", text="text:N")
    )
    height = (48 if wide else 58) * len(frame) + 10
    return theme.finish(
        alt.layer(*drawn, ratio_text), mode, theme.title(finding, conditions), height, names=list(frame["name"])
    )


def _stage_bars(marks: pd.DataFrame, names: Sequence[str], unit: str) -> list[alt.Chart]:
    marks = marks.assign(y=marks["row"] + marks["shift"], zero=0.0)
    marks = marks.assign(top=marks["y"] - 0.15, bottom=marks["y"] + 0.15)
    base = alt.Chart(marks)
    bars = base.mark_bar(strokeWidth=2, cornerRadius=2).encode(
        x=parts.time_axis([0.0, marks["x"].max() * 1.42], f"{unit} per forward pass", False),
        x2="zero:Q",
        y=parts.row_axis(names, above=0.15, field="top:Q"),
        y2="bottom:Q",
        stroke=alt.Stroke("colour:N", scale=None),
        fill=alt.Fill("colour:N", scale=None),
        fillOpacity=alt.condition("datum.full", alt.value(1.0), alt.value(0.3)),
        description="said:N",
        tooltip=[alt.Tooltip("said:N", title=" ")],
    )
    return [bars, base.mark_text(align="left", dx=8, fontSize=14).encode(x="x:Q", y="y:Q", text="text:N")]


def _stage_points(marks: pd.DataFrame, names: Sequence[str], unit: str, mode: Mode) -> list[alt.Chart]:
    domain = parts.domain_with_room(list(marks["x"]), left=0.13, right=0.26)
    span = marks.groupby(["row", "colour"], as_index=False).agg(low=("x", "min"), high=("x", "max"))
    upper = marks["x"] >= marks.groupby("row")["x"].transform("max")
    base = alt.Chart(marks)
    back = TOKENS[mode].background
    colour = alt.Stroke("colour:N", scale=None)
    x = parts.time_axis(domain, f"{unit} per forward pass, logarithmic", True)
    layers: list[alt.Chart] = [
        alt.Chart(span)
        .mark_rule(strokeWidth=5, opacity=0.55)
        .encode(
            x=parts.time_axis(domain, f"{unit} per forward pass, logarithmic", True, field="low:Q"),
            x2="high:Q",
            y=parts.row_axis(names, field="row:Q"),
            color=alt.Color("colour:N", scale=None),
        ),
        base.mark_point(size=210, strokeWidth=3, opacity=1).encode(
            x=x,
            y="row:Q",
            stroke=colour,
            fill=alt.condition("datum.full", alt.Fill("colour:N", scale=None), alt.value(back)),
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
        ),
    ]
    for part, align, shift in ((marks[upper], "left", 15), (marks[~upper], "right", -15)):
        layers += [
            mark.encode(x="x:Q", y="row:Q", text="text:N")
            for mark in parts.label(alt.Chart(part), mode, 14, 400, align=align, dx=shift)
        ]
    return layers
