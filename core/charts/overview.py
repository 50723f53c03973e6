"""What is there: GPUs x workloads."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import pandas as pd

from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode

SHOWN_WORKLOADS = 8


def coverage_map(cells: pd.DataFrame, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """A dot for each GPU and workload with results; its look is the origin and never the colour alone.

    measured: filled; imported: filled with a ring; reported: hollow; predicted: hollow and dashed.

    cells: label, gpu_key, workload (short text), cells (number), precisions (number), origin; display order of both
    axes is that of first appearance.
    """
    t = TOKENS[mode]
    labels = list(dict.fromkeys(cells["label"]))
    workloads = list(dict.fromkeys(cells["workload"]))
    rest = len(workloads) - SHOWN_WORKLOADS
    workloads = workloads[:SHOWN_WORKLOADS]
    frame = cells[cells["workload"].isin(workloads)].copy()
    frame["colour"] = [theme.gpu_colour(key if isinstance(key, str) else None, mode) for key in frame["gpu_key"]]
    frame["hollow"] = frame["origin"].isin(["reported", "predicted"])
    frame["text"] = [str(number) for number in frame["cells"]]
    frame["said"] = frame["label"] + ", " + frame["workload"] + ": " + frame["text"] + " cells " + frame["origin"]
    lines = {name: [line for part in name.split(" · ") for line in _lines(part)] for name in workloads}
    tallest = max(len(broken) for broken in lines.values())
    x = alt.X(
        "workload:N",
        sort=workloads,
        title=None,
        axis=alt.Axis(
            orient="top",
            labelAngle=0,
            ticks=False,
            domain=False,
            labelFontSize=13,
            labelLineHeight=17,
            labelLimit=0,
            labelBaseline="top",
            labelPadding=17 * tallest + 4,
            labelExpr=f"{json.dumps(lines)}[datum.label]",
        ),
    )
    y = alt.Y("label:N", sort=labels, title=None, axis=parts.name_axis(labels, grid=True))
    stroke = alt.Stroke("colour:N", scale=None)
    layers: list[alt.Chart] = []
    looks: tuple[tuple[Any, dict[str, Any]], ...] = (
        (frame["origin"] == "measured", {}),
        (frame["origin"] == "imported", {}),
        (frame["origin"] == "reported", {"fill": t.background}),
        (frame["origin"] == "predicted", {"fill": t.background, "strokeDash": [4, 3]}),
    )
    for chosen, style in looks:
        if not chosen.any():
            continue
        dots = alt.Chart(frame[chosen]).mark_circle(size=620, strokeWidth=2.5, opacity=1, **style)
        encoded: dict[str, alt.Fill] = {} if style else {"fill": alt.Fill("colour:N", scale=None)}
        layers.append(
            dots.encode(
                x=x, y=y, stroke=stroke, description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")], **encoded
            )
        )
    ringed = frame[frame["origin"] == "imported"]
    if len(ringed):
        ring = alt.Chart(ringed).mark_point(size=1150, strokeWidth=1.5, opacity=1)
        layers.append(ring.encode(x=x, y=y, stroke=stroke))
    ink = alt.condition("datum.hollow", alt.value(t.text), alt.value(t.background))
    numbers = alt.Chart(frame).mark_text(fontSize=13, fontWeight=600).encode(x=x, y=y, text="text:N", color=ink)
    more = f"; {rest} more workloads in the table" if rest > 0 else ""
    return theme.finish(
        alt.layer(*layers, numbers), mode, theme.title(finding, conditions + more), 48 * len(labels), names=labels
    )


_NARROW = 17  # characters of a column's heading


def _lines(part: str) -> list[str]:
    """One part of a workload's name in lines; a long tracker breaks between its name and its variant."""
    tracker, colon, variant = part.partition(":")
    if colon and len(part) > _NARROW:
        return [*parts.name_lines(tracker + colon, _NARROW), *parts.name_lines(variant, _NARROW)]
    return parts.name_lines(part, _NARROW)
