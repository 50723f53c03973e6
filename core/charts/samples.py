"""Every repetition of a cell as a point, and below it what the board said meanwhile, on one axis of repetitions."""

from __future__ import annotations

from collections.abc import Callable

import altair as alt
import pandas as pd

from core import units
from core.charts import parts, theme
from core.charts.theme import TOKENS, Mode

MOST_POINTS = 1200
"""Points drawn; flagged ones always. The table has all."""

_BANDS = (
    ("wall_ms", "time", 2.4),
    ("sm_clock_mhz", "SM clock", 1.0),
    ("power_w", "power", 1.0),
    ("temperature_c", "temperature", 1.0),
)
_GAP, _BAND_PIXELS = 0.32, 66


def thinned(samples: pd.DataFrame, most: int = MOST_POINTS) -> pd.DataFrame:
    """At most about `most` rows, evenly spaced, and every flagged one; column `at` is the place among all, from 1."""
    frame = samples.reset_index(drop=True).assign(at=range(1, len(samples) + 1))
    step = max(-(-len(frame) // most), 1)
    return frame[(frame.index % step == 0) | frame["flag"].notna()]


def sample_strip(
    samples: pd.DataFrame, gpu_key: str | None, median_ms: float, finding: str, conditions: str, mode: Mode
) -> alt.LayerChart:
    """Bands over one axis of repetitions: time (with its median), clock, power, temperature; crosses are flagged.

    samples: process, wall_ms, sm_clock_mhz, power_w, temperature_c (NaN: not read), flag (None: nothing to say), in
    the order of measuring. Each band has its own linear axis, whose ends are written at its left; a band without a
    reading is left out. A thin line stands where another worker process begins.
    """
    t = TOKENS[mode]
    frame = thinned(samples)
    unit = units.time_unit([median_ms])
    bands, lines, names, top = [], [], [], 0.0
    for column, name, height in _BANDS:
        values = frame[["at", "process", "flag", column]].dropna(subset=[column])
        if values.empty:
            continue
        read = [float(v) for v in values[column]]
        span = [*read, median_ms] if column == "wall_ms" else read
        low, high = min(span), max(span)
        room = max(high - low, abs(high) * 0.002, 1e-9)
        low, high = low - room * 0.06, high + room * 0.06
        place = [top + height * (high - v) / (high - low) for v in read]
        words = _words(column, unit)
        bands.append(values.assign(y=place, band=name, said=[
            f"{name} {words(v)}, repetition {at}, process {process}" + (f", {flag}" if isinstance(flag, str) else "")
            for v, at, process, flag in zip(read, values["at"], values["process"], values["flag"], strict=True)
        ]).drop(columns=[column]))  # fmt: skip
        ends = list(dict.fromkeys((words(min(read)), words(max(read)))))
        names.append((top + height / 2, name, " to ".join(ends)))
        lines += [{"y": top, "kind": "edge"}, {"y": top + height, "kind": "edge"}]
        if column == "wall_ms":
            lines.append({"y": top + height * (high - median_ms) / (high - low), "kind": "median"})
        top += height + _GAP
    points = pd.concat(bands, ignore_index=True)
    last = int(frame["at"].max())
    rows = pd.DataFrame(names, columns=["y", "name", "range"])
    expression = " : ".join(
        f"abs(datum.value - {y}) < 1e-6 ? ['{name}', '{text}']" for y, name, text in rows.itertuples(index=False)
    )
    axis = alt.Axis(
        values=list(rows["y"]), labelExpr=f"{expression} : ''", title=None, grid=False, ticks=False, domain=False,
        labelLimit=0, labelPadding=10, labelFontSize=13, labelLineHeight=17, labelOffset=-8,
    )  # fmt: skip
    domain = [-0.05, top - _GAP + 0.05]
    y = alt.Y("y:Q", axis=axis, scale=alt.Scale(domain=domain, reverse=True, nice=False, zero=False))
    x = alt.X(
        "at:Q",
        title="repetition, in the order of measuring",
        scale=alt.Scale(domain=[0.5 if last < 60 else 1 - last * 0.01, last + max(0.5, last * 0.01)], nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1, tickCount=8, labelExpr=parts.NUMBER),
    )
    ruled = pd.DataFrame(lines)
    starts = frame.loc[frame["process"].diff().fillna(0) != 0, ["at"]] - 0.5
    colour = theme.gpu_colour(gpu_key, mode)
    clean, flagged = points[points["flag"].isna()], points[points["flag"].notna()]
    layers = [
        alt.Chart(ruled[ruled["kind"] == "edge"]).mark_rule(color=t.grid, strokeWidth=1).encode(y=y),
        alt.Chart(starts).mark_rule(color=t.line, strokeWidth=1, strokeDash=[2, 3]).encode(x=x),
        alt.Chart(ruled[ruled["kind"] == "median"])
        .mark_rule(color=t.text, strokeWidth=1.5, strokeDash=theme.DASHES["compute"])
        .encode(y=y),
        alt.Chart(clean)
        .mark_point(filled=True, size=34 if len(clean) < 800 else 14, color=colour, opacity=0.75)
        .encode(x=x, y=y, description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")]),
    ]
    if len(flagged):
        layers.append(
            alt.Chart(flagged)
            .mark_point(
                shape="cross", angle=45, filled=True, size=70, opacity=1,
                color=theme.verdict_style("beyond_hardware").colour(mode),
            )
            .encode(x=x, y=y, description="said:N", tooltip=[alt.Tooltip("said:N", title=" ")])
        )  # fmt: skip
    left = len(samples) - len(frame)
    rest = f"; {units.count(len(frame))} of {units.count(len(samples))} drawn" if left else ""
    return theme.finish(
        alt.layer(*layers),
        mode,
        theme.title(finding, conditions + rest),
        int(_BAND_PIXELS * top),
        names=[f"{name}\n{text}" for _, name, text in names],
    )


def _words(column: str, unit: str) -> Callable[[float], str]:
    if column == "wall_ms":
        return lambda value: units.time_ms(value, unit)
    return {"sm_clock_mhz": units.mhz, "power_w": units.watt, "temperature_c": units.celsius}[column]
