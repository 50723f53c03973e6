"""Energy and money per clip: bars from zero."""

from __future__ import annotations

import altair as alt
import pandas as pd

from core.charts import parts, theme
from core.charts.theme import Mode

MOST_ROWS = 12


def amount_bars(rows: pd.DataFrame, axis: str, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """One amount per device as a bar from zero; a device without a figure keeps its row and says why.

    rows: label, gpu_key, amount (None without a figure), text (the figure, or the reason for none), detail, in display
    order. axis: what the amount is, with its unit; less is better.
    """
    left = len(rows) - MOST_ROWS
    frame = rows.head(MOST_ROWS).reset_index(drop=True).astype({"amount": float}).copy()
    frame["y"], frame["zero"] = range(len(frame)), 0.0
    frame["top"], frame["bottom"] = frame["y"] - 0.28, frame["y"] + 0.28
    frame["x"] = frame["amount"].fillna(0.0)
    frame["colour"] = [theme.gpu_colour(key if isinstance(key, str) else None, mode) for key in frame["gpu_key"]]
    frame["said"] = frame["label"] + ": " + frame["text"] + "; " + frame["detail"]
    domain = [0.0, (max(parts.values_of(frame, "amount"), default=1.0)) * 1.3]
    base = alt.Chart(frame)
    bars = base.mark_bar(cornerRadius=2).encode(
        x=parts.time_axis(domain, axis, logarithmic=False),
        x2="zero:Q",
        y=parts.row_axis(list(frame["label"]), field="top:Q"),
        y2="bottom:Q",
        fill=alt.Fill("colour:N", scale=None),
        description="said:N",
        tooltip=[alt.Tooltip("said:N", title=" ")],
    )
    known, missing = frame[frame["amount"].notna()], frame[frame["amount"].isna()]
    labels = alt.Chart(known).mark_text(align="left", dx=10, fontSize=15, fontWeight=600)
    layers = [bars, labels.encode(x="x:Q", y="y:Q", text="text:N")]
    if len(missing):
        reasons = alt.Chart(missing).mark_text(align="left", dx=10, fontSize=14, color=theme.TOKENS[mode].muted)
        layers.append(reasons.encode(x="x:Q", y="y:Q", text="text:N"))
    rest = f"; {left} more in the table" if left > 0 else ""
    return theme.finish(
        alt.layer(*layers),
        mode,
        theme.title(finding, conditions + rest),
        max(int(parts.ROW_HEIGHT * 0.9 * len(frame)), 110),
        names=list(frame["label"]),
    )
