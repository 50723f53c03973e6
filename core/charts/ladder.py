"""What each advantage of one board is worth: bars of time against its fastest setting."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from core import units
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode

MOST_RUNGS = 12


def ladder_bars(
    rungs: pd.DataFrame,
    gpu_key: str | None,
    base: str,
    product: float | None,
    finding: str,
    conditions: str,
    mode: Mode,
) -> alt.LayerChart:
    """Times as long as with every advantage, one bar for each cell of the same board and work, from 1x.

    rungs: label, ratio, low, high (None without interval), time (text), parts (number of advantages taken away), in
    display order, the fastest setting first. product: of the single rungs that the last one takes together; a line
    across its bar.
    """
    t = TOKENS[mode]
    left = len(rungs) - MOST_RUNGS
    frame = pd.concat([rungs.head(MOST_RUNGS - 1), rungs.tail(1)]) if left > 0 else rungs
    frame = frame.reset_index(drop=True).astype({"ratio": float, "low": float, "high": float})
    frame["y"], frame["x"], frame["one"] = range(len(frame)), frame["ratio"], 1.0
    frame["top"], frame["bottom"] = frame["y"] - 0.28, frame["y"] + 0.28
    frame["strength"] = [0.5 if number == 1 else 1.0 for number in frame["parts"]]
    frame["text"] = [
        units.ratio(value) + ("" if math.isnan(low) else f"  ({units.ratio_interval(low, high)})")
        for value, low, high in zip(frame["ratio"], frame["low"], frame["high"], strict=True)
    ]
    frame["said"] = frame["label"] + ": " + frame["text"] + " as long as " + base + ", " + frame["time"]
    extra = [product] if product is not None else []
    values = [1.0, *parts.values_of(frame, "x", "low", "high"), *extra]
    domain = parts.domain_with_room(values, left=0.03, right=0.42, least=3.0)
    x = parts.ratio_axis(domain, f"times as long as {base} (1x), logarithmic", last=max(values) * 1.3)
    y = parts.row_axis(list(frame["label"]), above=0.45, field="top:Q")
    fill = theme.gpu_colour(gpu_key, mode)
    base_chart = alt.Chart(frame)
    layers: list[alt.Chart | alt.LayerChart] = [
        base_chart.mark_bar(fill=fill, stroke=fill, strokeWidth=2, cornerRadius=2).encode(
            x=x,
            x2="one:Q",
            y=y,
            y2="bottom:Q",
            fillOpacity=alt.FillOpacity("strength:Q", scale=None),
            description="said:N",
            tooltip=[alt.Tooltip("said:N", title=" ")],
        ),
        parts.vertical(1.0, t.text, 1.5),
    ]
    own: list[list[float]] = [[] for _ in range(len(frame))]
    if product is not None:
        last = len(frame) - 1
        own[last] = [product]
        line = pd.DataFrame({"x": [product], "top": [last - 0.42], "bottom": [last + 0.42]})
        for colour, width, dash in ((t.background, 5.5, [1, 0]), (t.text, 2.5, theme.DASHES["compute"])):
            layers.append(
                alt.Chart(line)
                .mark_rule(color=colour, strokeWidth=width, strokeDash=dash)
                .encode(x="x:Q", y="top:Q", y2="bottom:Q")
            )
    layers.append(parts.whiskers(frame, mode))
    frame["end"] = parts.end_labels(
        list(frame[["x", "high"]].max(axis=1).clip(lower=1.0)), list(frame["text"]), own, domain
    )
    layers += [
        mark.encode(x="end:Q", y="y:Q", text="text:N")
        for mark in parts.label(alt.Chart(frame), mode, 15, 600, align="left", dx=9)
    ]
    layers += parts.right_column(frame, "time", "median time", mode)
    rest = f"; {left} more in the table" if left > 0 else ""
    height = max(int(parts.ROW_HEIGHT * 0.9 * (len(frame) + 0.45)), 110)
    return theme.finish(
        alt.layer(*layers), mode, theme.title(finding, conditions + rest), height, names=list(frame["label"])
    )
