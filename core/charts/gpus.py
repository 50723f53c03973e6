"""One card: what others measured on it against its data sheet."""

from __future__ import annotations

import altair as alt
import pandas as pd

from core import units
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode

SHOWN_ROWS = 9


def ceiling_chart(rows: pd.DataFrame, gpu_key: str | None, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Measured ceilings as a share of the data-sheet figure they belong to, which is the line at 100 %.

    rows: name, share (measured over printed, of one), value (text), in display order.
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
    frame["said"] = frame["name"] + ": " + frame["text"]
    domain = [0.0, max(1.0, frame["x"].max()) * 1.45]
    colour = theme.gpu_colour(gpu_key, mode)
    base = alt.Chart(frame)
    ticks = [0, 0.25, 0.5, 0.75, 1.0]
    bars = base.mark_bar(color=colour, cornerRadius=2).encode(
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
