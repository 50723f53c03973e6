"""What several charts share: rows with direct labels, logarithmic axes with room for them, whiskers, end labels.

Rows lie on a quantitative y axis (0, 1, 2, ... downwards) with their names as axis labels, so that lines, bars and
labels of one row can be placed exactly.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from core.charts import theme
from core.charts.theme import TOKENS, Mode

ROW_HEIGHT = 46
"""Pixels per row: legible from the far end of a room."""


NAME_CHARACTERS = 30
_LINE = 17


def name_lines(name: str, characters: int = NAME_CHARACTERS) -> list[str]:
    """A long name in lines for an axis; never cut. A name with line breaks keeps them and is not wrapped otherwise."""
    if "\n" in name:
        return name.split("\n")
    return textwrap.wrap(theme.short_name(name), characters, break_long_words=True) or [""]


def name_axis(names: Sequence[str], characters: int = NAME_CHARACTERS, **style: Any) -> alt.Axis:
    """An axis of names (a nominal scale), long ones in several lines."""
    lines = {name: name_lines(name, characters) for name in names}
    return alt.Axis(
        labelExpr=f"{json.dumps(lines)}[datum.label]",
        ticks=False,
        domain=False,
        labelLimit=0,
        labelPadding=10,
        labelFontSize=14,
        **style,
    )


def row_axis(names: Sequence[str], above: float = 0.0, field: str = "y:Q") -> alt.Y:
    """The y axis of a chart with named rows; `above`: free rows for labels over the first one."""
    lines = [name_lines(name) for name in names]
    heights = {len(broken) for broken in lines}
    raised = -(heights.pop() - 1) * _LINE / 2 if len(heights) == 1 else 0.0  # lines hang from the first one's middle
    axis = alt.Axis(
        values=list(range(len(names))),
        labelExpr=f"{json.dumps(lines)}[datum.value]",
        title=None,
        grid=False,
        ticks=False,
        domain=False,
        labelLimit=0,
        labelPadding=10,
        labelFontSize=14,
        labelOverlap=False,
        labelOffset=raised,
        labelLineHeight=_LINE,
    )
    domain = [-0.5 - above, max(len(names) - 0.5, 0.5)]
    return alt.Y(field, axis=axis, scale=alt.Scale(domain=domain, reverse=True, nice=False, zero=False))


def domain_with_room(
    values: Sequence[float], left: float = 0.04, right: float = 0.25, least: float = 2.0
) -> list[float]:
    """A logarithmic domain around `values` (> 0) that leaves these shares of the axis free for labels.

    At least a factor of `least` wide, so that one value alone still has an axis.
    """
    low, high = min(values), max(values)
    if high / low < least:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(least), middle * math.sqrt(least)
    span = math.log(high / low) / (1 - left - right)
    return [low * math.exp(-span * left), high * math.exp(span * right)]


def place(value: float, domain: Sequence[float]) -> float:
    """Where `value` lies on a logarithmic axis, 0 to 1."""
    return math.log(value / domain[0]) / math.log(domain[1] / domain[0])


def log_ticks(domain: Sequence[float]) -> list[float]:
    """Round values inside the domain: powers of ten over a wide one, 1, 2, 5 over less, more steps within a decade."""
    low, high = math.floor(math.log10(domain[0])), math.ceil(math.log10(domain[1]))
    decades = math.log10(domain[1] / domain[0])
    steps = (1.0,) if decades > 3.2 else (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return [tick for tick in ticks if domain[0] <= tick <= domain[1]]


NUMBER = "replace(format(datum.value, ',~r'), regexp(',', 'g'), '\\u2009')"
"""A tick in plain decimals with thin spaces, as core.units writes numbers."""


def ratio_axis(
    domain: Sequence[float], name: str, field: str = "x:Q", grid: bool = True, last: float = math.inf
) -> alt.X:
    """A logarithmic axis of ratios, in plain decimals with an x behind; no tick beyond `last` (room for labels)."""
    return alt.X(
        field,
        title=name,
        scale=alt.Scale(type="log", domain=list(domain), nice=False),
        axis=alt.Axis(
            values=[tick for tick in log_ticks(domain) if tick <= last],
            titleAnchor="start",
            labelExpr=f"{NUMBER} + 'x'",
            grid=grid,
        ),
    )


def time_axis(domain: Sequence[float], name: str, logarithmic: bool, field: str = "x:Q") -> alt.X:
    """An axis of times that are already in the unit which `name` states."""
    if logarithmic:
        return alt.X(
            field,
            title=name,
            scale=alt.Scale(type="log", domain=list(domain), nice=False),
            axis=alt.Axis(values=log_ticks(domain), labelExpr=NUMBER, titleAnchor="start"),
        )
    return alt.X(
        field,
        title=name,
        scale=alt.Scale(domain=[0, domain[1]], nice=False),
        axis=alt.Axis(tickCount=6, titleAnchor="start", labelExpr=NUMBER),
    )


def is_wide(values: Sequence[float]) -> bool:
    """A time axis turns logarithmic when its range exceeds 30x."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) / min(positive) > 30


def whiskers(frame: pd.DataFrame, mode: Mode, half: float = 0.13) -> Any:
    """Intervals as a rule with end caps. Columns: y, low, high (x positions); rows without an interval are left out."""
    known = frame.dropna(subset=["low", "high"])
    ink, halo = TOKENS[mode].text, TOKENS[mode].background
    segments = [
        segment
        for y, low, high in zip(known["y"], known["low"].astype(float), known["high"].astype(float), strict=True)
        for segment in (
            (low, high, y, y, halo, 5),
            (low, high, y, y, ink, 2),
            (low, low, y - half, y + half, ink, 2),
            (high, high, y - half, y + half, ink, 2),
        )
    ]
    return _rules(pd.DataFrame(segments, columns=["x", "x2", "y", "y2", "ink", "width"]))


def _rules(segments: pd.DataFrame) -> alt.Chart:
    """Straight lines in one layer (each layer takes its time in a browser), each with its own ink and width."""
    return (
        alt.Chart(segments)
        .mark_rule()
        .encode(
            x="x:Q",
            x2="x2:Q",
            y="y:Q",
            y2="y2:Q",
            color=alt.Color("ink:N", scale=None),
            strokeWidth=alt.StrokeWidth("width:Q", scale=None),
        )
    )


def vertical(value: float, colour: str, width: float = 2, dash: Sequence[int] | None = None) -> alt.Chart:
    """A line over the whole height at one x position."""
    style: dict[str, Any] = {"strokeDash": list(dash)} if dash else {}
    return alt.Chart(pd.DataFrame({"x": [value]})).mark_rule(color=colour, strokeWidth=width, **style).encode(x="x:Q")


def label(
    data: alt.Chart, mode: Mode, size: int = 14, weight: Any = 400, colour: Any = None, **style: Any
) -> list[alt.Chart]:
    """Text marks of `data` twice: a halo in the background's colour first, so that lines behind stay apart."""
    back = TOKENS[mode].background
    halo = data.mark_text(
        fontSize=size, fontWeight=weight, stroke=back, strokeWidth=5, strokeJoin="round", color=back, **style
    )
    return [halo, data.mark_text(fontSize=size, fontWeight=weight, color=colour or TOKENS[mode].text, **style)]


def right_column(frame: pd.DataFrame, field: str, header: str, mode: Mode, above: float = -0.6) -> list[alt.Chart]:
    """A column of text at the right edge of a chart of rows (column y of `frame`), with its header in small type."""
    head = alt.Chart(pd.DataFrame({"y": [above], "text": [header]}))
    heading = head.mark_text(align="right", dx=-2, fontSize=13, color=TOKENS[mode].muted)
    return [
        heading.encode(x=alt.value("width"), y="y:Q", text="text:N"),
        alt.Chart(frame)
        .mark_text(fontSize=15, align="right", dx=-2, color=TOKENS[mode].text)
        .encode(x=alt.value("width"), y="y:Q", text=f"{field}:N"),
    ]


def values_of(frame: pd.DataFrame, *columns: str) -> list[float]:
    """All present values of these columns, as floats."""
    return [float(value) for column in columns for value in frame[column].dropna() if math.isfinite(float(value))]


def end_labels(
    ends: Sequence[float],
    texts: Sequence[str],
    lines: Sequence[Sequence[float]],
    domain: Sequence[float],
    width: float = 640.0,
    character: float = 8.0,
) -> list[float]:
    """Where each row's label starts: at the end of its bar, or behind the lines that it would cover.

    `lines`: for each row the positions of lines across it; all positions on the logarithmic axis `domain`.
    """
    starts = []
    for end, text, own in zip(ends, texts, lines, strict=True):
        reach = math.exp(math.log(domain[1] / domain[0]) * (len(text) * character + 14) / width)
        start = end
        while covered := [line for line in own if start * 1.001 < line < start * reach]:
            start = max(covered)
        starts.append(start)
    return starts
