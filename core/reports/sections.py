"""What a report says, before it is HTML or Markdown: one section per answer or pin, from the tables of the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from core import units
from core.answers import review, sentences
from core.answers.review import Item
from core.charts.pictures import Picture, pictures
from core.charts.tables import gap as gap_tables
from core.charts.tables import review as review_tables
from core.charts.theme import verdict_style
from core.errors import UserError
from core.records import now_utc

MOST_CAUSES, MOST_OTHER_CELLS = 8, 40


@dataclass(frozen=True)
class Table:
    caption: str
    rows: pd.DataFrame


@dataclass(frozen=True)
class Cause:
    grade: str
    text: str
    command: str


@dataclass(frozen=True)
class Section:
    """All text is as it came, never markup. `remarks` stand under the headline, `rests_on` at the end."""

    title: str
    verdict: str | None
    headline: str
    remarks: tuple[str, ...]
    figures: Table
    pictures: tuple[Picture, ...]
    causes: tuple[Cause, ...]
    tables: tuple[Table, ...]
    rests_on: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    title: str
    made_at: str
    sections: tuple[Section, ...]


def report_of(sections: Sequence[Section], title: str = "Gapscope report", made_at: str | None = None) -> Report:
    """Raises `UserError` without a section."""
    if not sections:
        raise UserError("nothing to report", "a view or a pin", "choose other items")
    return Report(title, made_at or now_utc(), tuple(sections))


def of_answers(answers: Sequence[Mapping[str, Any]], names: Sequence[str] = (), title: str = "") -> Section:
    """The section of one view: an explanation, or a comparison per target."""
    figures = pd.DataFrame(review.figures(answers, names), columns=["figure", "value"])
    return _section(title or review.title_of(answers, names), answers, names, (), figures)


def of_item(item: Item, told: Mapping[str, Any]) -> Section:
    """The section of a pin: its frozen answer, with the present figures beside. `told`: review.then_and_now."""
    pin = item.pin
    remarks = [f"Status: {pin.words.status}. {review_tables.pinned_words(item)}"]
    remarks += [f"Marked: {item.mark}."] if item.mark else []
    remarks += [pin.words.note] if pin.words.note else []
    remarks += [item.gone_words] if item.gone else []
    remarks.append(told["headline"])
    if pin.words.command and not item.mark:
        remarks.append(f"What would decide: {pin.words.command}")
    return _section(pin.words.title, pin.view.answers, item.names, remarks, review_tables.then_and_now_table(told))


def _section(
    title: str, answers: Sequence[Mapping[str, Any]], names: Sequence[str], remarks: Sequence[str],
    figures: pd.DataFrame,
) -> Section:
    first = dict(answers[0])
    explained = "measured_ratio" in first
    headline = review.headline_of(answers, names)
    said = [str(first["conditions"])] if first.get("conditions") else []
    rests = [sentences.meaning(first["verdict"], first["verdict_reason"])] if explained else []
    rests += dict.fromkeys(str(text) for answer in answers for text in answer["assumptions"])
    return Section(
        title, first.get("verdict"), headline, (*said, *remarks), Table("Figures", figures),
        tuple(pictures(answers, names)), tuple(_causes(first)) if explained else (),
        tuple(_tables(first)) if explained else (), tuple(rests),
    )  # fmt: skip


def _causes(answer: dict[str, Any]) -> list[Cause]:
    return [
        Cause(cause["grade"], f"{cause['cause']}: {cause['size']}. {cause['detail']} Fix: {cause['fix']} "
                              f"{cause['measurement']}:", cause["command"])
        for cause in gap_tables.top_findings(answer, MOST_CAUSES)
    ]  # fmt: skip


def _tables(answer: dict[str, Any]) -> list[Table]:
    """The numbers behind the pictures, what differs between the runs, and the other works in common."""
    if answer["not_comparable_because"]:
        return [Table("Why the two sides cannot be compared", gap_tables.reasons_table(answer))]
    found = [Table("Factors", gap_tables.factor_table(answer)), Table("Theory", gap_tables.readings_table(answer))]
    if answer["stages"]:
        found.append(Table("Stages", gap_tables.stage_table(answer)))
    environment = gap_tables.environment_table(answer)
    differing = environment[environment["differs"] == "yes"]
    if len(differing):
        found.append(Table("What differs between the runs", differing.drop(columns="differs")))
    if answer["other_cells"]:
        found.append(Table("Other works in common", _others(answer)))
    return found


def _others(answer: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([
        {"workload": row["workload"], "precision": row["setting"]["precision"],
         "baseline": units.time_ms(row["baseline_ms"]), "target": units.time_ms(row["target_ms"]),
         "ratio of medians": units.ratio(row["ratio"])}
        for row in answer["other_cells"][:MOST_OTHER_CELLS]
    ])  # fmt: skip


def verdict_word(section: Section) -> str:
    return verdict_style(section.verdict).word if section.verdict else ""


def made_words(report: Report) -> str:
    return (f"Made {report.made_at} by Gapscope. Speedup = baseline time / target time, from medians of synchronised "
            "times, with 95 % intervals.")
