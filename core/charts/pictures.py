"""The pictures of one answer, the same wherever they stand: in the report and in meeting mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from core.charts import gap, speedup
from core.charts.tables import gap as gap_tables
from core.charts.tables import speedup as speedup_tables
from core.charts.theme import short_name

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Picture:
    """`draw(*arguments, mode=...)` makes the chart; `finding` is its title and alt text, `table` has the numbers."""

    name: str
    draw: Callable[..., Any]
    arguments: tuple[Any, ...]
    finding: str
    table: Callable[[], pd.DataFrame]


def pictures(answers: Sequence[Answer], names: Sequence[str] = ()) -> list[Picture]:
    """The pictures of an explanation, or of one comparison per target; the most telling one first.

    `names`: what the sides are called, the baseline first. Empty where nothing is comparable.
    """
    if not answers:
        return []
    if "measured_ratio" in answers[0]:
        return _of_explain(answers[0])
    return _of_compare(answers, names)


def _of_explain(answer: Answer) -> list[Picture]:
    told = dict(answer)
    ratio = answer["measured_ratio"]
    if ratio["value"] is None:
        return []
    finding = gap_tables.factor_finding(told)
    found = [Picture(
        "factors", gap.factor_waterfall,
        (gap_tables.factor_steps(told), ratio["value"], answer["verdict"], finding, gap_tables.factor_conditions(told)),
        finding, partial(gap_tables.factor_table, told),
    )]  # fmt: skip
    rows = gap_tables.theory_rows(told)
    if len(rows):
        finding = gap_tables.theory_finding(told)
        found.append(Picture(
            "theory", gap.theory_chart,
            (rows, ratio["value"], ratio["low"], ratio["high"], answer["verdict"], finding,
             gap_tables.theory_conditions(told)),
            finding, partial(gap_tables.readings_table, told),
        ))  # fmt: skip
    if answer["stages"]:
        finding = gap_tables.stage_finding(told)
        found.append(Picture(
            "stages", gap.stage_chart,
            (gap_tables.stage_rows(told), *gap_tables.side_names(told), finding, gap_tables.stage_conditions(told)),
            finding, partial(gap_tables.stage_table, told),
        ))  # fmt: skip
    return found


def _of_compare(answers: Sequence[Answer], names: Sequence[str]) -> list[Picture]:
    told = [dict(answer) for answer in answers]
    called = list(names) or [told[0]["baseline"]["label"], *(answer["target"]["label"] for answer in told)]
    bars = speedup_tables.speedup_rows(told, called[0], told[0]["baseline"]["gpu_key"], called[1:])
    if not len(bars):
        return []
    theory = speedup_tables.speedup_theory(told, called[1:])
    row = next(filter(None, map(speedup_tables.main_row, told)))
    finding = speedup_tables.range_finding(bars, called[0])
    conditions = f"{row['workload']}, {row['precision']}; ratio of medians with its 95 % interval; lines: data sheets"
    return [Picture(
        "speedup", speedup.speedup_bars, (bars, theory, short_name(called[0]), finding, conditions), finding,
        partial(speedup_tables.speedup_table, bars),
    )]  # fmt: skip
