"""Files of other programs as tables and sentences: what was understood, what is asked, what would come in."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from core import units
from core.charts.theme import short_name


def understood_sentence(found: Any) -> str:
    """What the file is and how far it is understood. `found`: core.store.uploads.Preview with `imported`."""
    about = found.imported
    said = f"{found.name}: {about.title}"
    if about.facts_for is not None:
        return f"{said}; it says something about another file, give both together"
    open_count = len(found.open_questions)
    if open_count:
        return f"{said}; {open_count} question{'' if open_count == 1 else 's'} to answer before anything comes in"
    runs = f"{len(found.runs)} run{'' if len(found.runs) == 1 else 's'}"
    devices = ", ".join(short_name(label) for label in found.gpus) or "a device it does not name"
    said += f"; {runs} on {devices}, {found.cells} cell{'' if found.cells == 1 else 's'}"
    if found.already_known:
        said += "; it is here already"
    return said


def settled_sentence(about: Any) -> str:
    """How the questions were settled: by a person, by the last table with these columns, by default."""
    parts = []
    if about.answers:
        how = "As for the last table with these columns" if about.from_saved else "Answered"
        parts.append(f"{how}: {_pairs(about.answers)}.")
    if about.assumed:
        parts.append(f"Assumed: {_pairs(about.assumed)}.")
    return " ".join(parts)


def _pairs(answers: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in answers.items())


def label(question: Any) -> str:
    """The question itself, without its explanations."""
    sentences = re.findall(r"[^?.]+(?:[?.](?!\d)|$)", question.text)
    asked = next((sentence for sentence in sentences if sentence.strip().endswith("?")), question.text)
    return str(asked).strip()


def task_table(about: Any) -> pd.DataFrame:
    """The works that were read, one row each."""
    return pd.DataFrame(
        [
            {
                "task": task["task"],
                "variant": task["variant"] or "",
                "device": short_name(task["gpu"]) + (f" x {task['gpus']}" if task["gpus"] > 1 else ""),
                "precision": task["precision"],
                "batch": task["batch"],
                "median": units.time_ms(task["median_ms"]),
                "n": task["n"],
                "status": task["status"],
                "how": task["how"],
            }
            for task in about.tasks
        ]
    )


def sample_table(about: Any) -> pd.DataFrame:
    """The first rows of a table that nobody has explained yet, as they are in the file."""
    header, *rows = about.sample
    return pd.DataFrame(rows, columns=list(header))


def left_out_words(found: Any) -> str:
    """How much of the file could not be used."""
    count = found.imported.left_out
    return f"{count} part{'' if count == 1 else 's'} of it cannot be used, and why:" if count else ""


def phase_table(phases: list[dict[str, Any]]) -> pd.DataFrame:
    """What a board did by a log, most readings first."""
    return pd.DataFrame(
        [
            {
                "state": row["state"],
                "readings": row["readings"],
                "SM clock": units.mhz(row["clock_mhz"]),
                "power": units.watt(row["power_w"]),
                "load": units.percent(None if row["load_percent"] is None else row["load_percent"] / 100),
                "means": row["means"],
            }
            for row in phases
        ]
    )
