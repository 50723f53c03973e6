"""Measured against theory: each stage or operation by its least and its measured time, with the line of equality."""

from __future__ import annotations

from typing import Any

import altair as alt
import pandas as pd

from core import units
from core.answers.json_values import records
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode

BOUND_COLOURS = {"compute": "Hopper", "bandwidth": "Turing", "launch": "Blackwell"}
BOUND_SHAPES = {"compute": "circle", "bandwidth": "square", "launch": "triangle-up"}
_LABELLED = 5
_COVERED = 0.995
"""Points are drawn until they hold this share of the time; thousands of tiny ones would only widen the axes."""


def floor_scatter(rows: pd.DataFrame, unit_of: str, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Log-log: x the least time by theory, y the measured one. On the line nothing is lost; ten times above it, nine
    tenths are. Colour and shape say what bounds the least time, area the share of all measured time.

    rows: name, stage, measured_ms, floor_ms, bound_by, share. unit_of: what a row is ("operations", "stages").
    """
    t = TOKENS[mode]
    index = 0 if mode == "light" else 1
    frame = rows.reset_index(drop=True)
    covered = frame["share"].cumsum() - frame["share"]
    frame = frame[(covered < _COVERED) | (frame.index < _LABELLED)].copy()
    unit = units.time_unit(frame["measured_ms"])
    frame["x"] = [units.time_value(value, unit) for value in frame["floor_ms"].astype(float)]
    frame["y"] = [units.time_value(value, unit) for value in frame["measured_ms"].astype(float)]
    frame["stage_name"] = frame["stage"].fillna("").str.replace("_", " ")
    frame["said"] = [
        f"{row['name']}: {units.time_ms(row['measured_ms'])} measured, {units.time_ms(row['floor_ms'])} at least, "
        f"bound by {row['bound_by']}, {units.percent(row['share'])} of the time"
        for row in records(frame)
    ]
    domain_x = parts.domain_with_room(parts.values_of(frame, "x"), left=0.06, right=0.12, least=30)
    domain_y = parts.domain_with_room(parts.values_of(frame, "y"), left=0.06, right=0.1, least=30)
    low, high = max(domain_x[0], domain_y[0]), min(domain_x[1], domain_y[1])

    def scale(domain: list[float]) -> dict[str, Any]:
        axis = alt.Axis(values=parts.log_ticks(domain), labelExpr=parts.NUMBER)
        return {"scale": alt.Scale(type="log", domain=domain, nice=False), "axis": axis}

    x = alt.X("x:Q", title=f"least time by data sheet, {unit}, logarithmic", **scale(domain_x))
    y = alt.Y("y:Q", title=f"measured, {unit}, logarithmic", **scale(domain_y))
    names = list(BOUND_COLOURS)
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, opacity=0.8, stroke=t.background, strokeWidth=1)
        .encode(
            x=x,
            y=y,
            size=alt.Size("share:Q", scale=alt.Scale(domain=[0, max(frame["share"])], range=[30, 900]), legend=None),
            color=alt.Color(
                "bound_by:N",
                title="least time bound by",
                scale=alt.Scale(domain=names, range=[theme.FAMILIES[BOUND_COLOURS[name]][index] for name in names]),
            ),
            shape=alt.Shape(
                "bound_by:N",
                title="least time bound by",
                scale=alt.Scale(domain=names, range=[BOUND_SHAPES[name] for name in names]),
            ),
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
        )
    )
    layers: list[alt.Chart] = []
    if low < high:
        ends = pd.DataFrame({"x": [low, high], "y": [low, high], "text": ["", "measured = theory"]})
        line = alt.Chart(ends)
        layers += [
            line.mark_line(color=t.text, strokeWidth=1.5, strokeDash=theme.DASHES["bandwidth"]).encode(x=x, y=y),
            line.mark_text(align="right", dx=-6, dy=14, fontSize=13, color=t.muted).encode(x=x, y=y, text="text:N"),
        ]
    layers.append(points)
    heavy = frame.head(_LABELLED).copy()
    heavy["text"] = [
        name if name.replace("_", " ") == stage or not stage else f"{name}, {stage}"
        for name, stage in zip(heavy["name"].str.replace("_", " "), heavy["stage_name"], strict=True)
    ]
    heavy = heavy.drop_duplicates("text")
    places = [(parts.place(a, domain_x), parts.place(b, domain_y)) for a, b in heavy[["x", "y"]].to_numpy()]
    heavy = heavy[_apart(places)]
    layers += [
        mark.encode(x=x, y=y, text="text:N")
        for mark in parts.label(alt.Chart(heavy), mode, 13, 600, align="right", dx=-14)
    ]
    small = len(rows) - len(frame)
    rest = f"; {small} smaller ones in the table" if small else ""
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions + rest), 420)


def _apart(places: list[tuple[float, float]]) -> list[bool]:
    """Which labels to draw so that none covers an earlier one; places in 0..1 of both axes."""
    kept: list[tuple[float, float]] = []
    told = []
    for x, y in places:
        free = all(abs(y - other_y) > 0.05 or abs(x - other_x) > 0.3 for other_x, other_y in kept)
        told.append(free)
        if free:
            kept.append((x, y))
    return told
