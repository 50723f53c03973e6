"""A prediction: the time and its alternatives with their bands, and the back-test as a scatter."""

from __future__ import annotations

import altair as alt
import pandas as pd

from core import units
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode


def options_chart(
    rows: pd.DataFrame, gpu_key: str | None, finding: str, conditions: str, mode: Mode
) -> alt.LayerChart:
    """The predicted time of the work itself and of its alternatives, hollow points with their 95 % bands.

    rows: name, predicted_ms, low_ms, high_ms, asked (True for the work itself), text. Hollow marks: nothing here is
    measured.
    """
    frame = rows.reset_index(drop=True).copy()
    unit = units.time_unit(parts.values_of(frame, "predicted_ms", "low_ms", "high_ms"))
    for place, column in (("x", "predicted_ms"), ("low", "low_ms"), ("high", "high_ms")):
        frame[place] = frame[column].astype(float) / units.TIME_UNITS_MS[unit]
    frame["y"] = [float(place) for place in range(len(frame))]
    frame["said"] = frame["name"] + ": " + frame["text"] + ", predicted"
    domain = parts.domain_with_room(parts.values_of(frame, "low", "high"), left=0.04, right=0.32)
    names = list(frame["name"])
    colour = theme.gpu_colour(gpu_key, mode)
    base = alt.Chart(frame)
    points = base.mark_point(
        shape="circle", size=210, strokeWidth=3, filled=True, fill=TOKENS[mode].background, opacity=1
    ).encode(
        x=parts.time_axis(domain, f"{unit} per forward pass, predicted, logarithmic", True),
        y=parts.row_axis(names),
        stroke=alt.value(colour),
        description="said:N",
        tooltip=[alt.Tooltip("said:N", title=" ")],
    )
    layers = [points, parts.whiskers(frame, mode), points, *parts.right_column(frame, "text", "predicted", mode)]
    height = int(parts.ROW_HEIGHT * (len(frame) + 0.6))
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), height, names=names)


def back_test_scatter(points: pd.DataFrame, finding: str, conditions: str, mode: Mode) -> alt.LayerChart:
    """Predicted against true time of operations that the fit had not seen, both logarithmic, with the line of equality.

    points: true_ms, predicted_ms, inside (True where the band holds the truth), said.
    """
    t = TOKENS[mode]
    frame = points.copy()
    domain = parts.domain_with_room(parts.values_of(frame, "true_ms", "predicted_ms"), left=0.03, right=0.03)
    line = pd.DataFrame({"true_ms": domain, "predicted_ms": domain})
    scale = alt.Scale(type="log", domain=list(domain), nice=False)
    axis = alt.Axis(values=parts.log_ticks(domain), labelExpr=parts.NUMBER, titleAnchor="start")
    x = alt.X("true_ms:Q", title="true time, ms, logarithmic", scale=scale, axis=axis)
    y = alt.Y("predicted_ms:Q", title="predicted, ms, logarithmic", scale=scale, axis=axis)
    equal = alt.Chart(line).mark_line(color=t.text, strokeWidth=1.5, strokeDash=[6, 4])
    layers: list[alt.Chart] = [equal.encode(x=x, y=y)]
    for inside, shape, colour in ((True, "circle", t.accent), (False, "cross", t.text)):
        part = frame[frame["inside"] == inside]
        if len(part):
            layers.append(
                alt.Chart(part)
                .mark_point(shape=shape, size=28 if inside else 60, strokeWidth=1.5, opacity=0.75, color=colour)
                .encode(x=x, y=y, description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")])
            )
    return theme.finish(alt.layer(*layers), mode, theme.title(finding, conditions), 380)
