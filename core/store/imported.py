"""What is kept of a file of another program: its original, the answers, and the lines that both become.

The original lies under its hash, the answers in the journal; the lines are made of them in the limited child and kept
in `runs/uploads/.lines` only to spare the time: without them a rebuild ends in the same rows.
"""
from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.records import RunsFolder
from core.store.child import read_in_child
from core.store.journal import MAPPING, Journal

IMPORT_VERSION = 1
"""Raise it when a reader comes to make other lines of the same file: they are then made anew."""

DATABASE = "database"
"""Format of another machine's results.duckdb (core.store.importers.database)."""

COPY = "copy-"
"""What the id of a copied run starts with; the run's own id follows (view `known_run`)."""

OF_ONE_FILE = ("attach",)
"""Answers that hold for one file and are not offered for the next one with the same columns."""

_FOLDER = ".lines"


@dataclass(frozen=True)
class Question:
    """What a file does not say. `default` None: it must be answered. `free`: any text; `many`: several, `;` between."""

    key: str
    text: str
    choices: tuple[str, ...]
    default: str | None
    free: bool
    many: bool


@dataclass(frozen=True)
class Imported:
    """What was understood of another program's file.

    `answers` were used, `assumed` are defaults that nobody confirmed; `facts` are what it says about its companion, of
    the format `facts_for`; `tasks`: the first works as they were understood; `sample`: header and first rows.
    `from_saved`: answered as the last time a table with these columns came.
    """

    format: str
    title: str
    said: tuple[str, ...]
    questions: tuple[Question, ...]
    answers: Mapping[str, str]
    assumed: Mapping[str, str]
    columns: tuple[str, ...]
    facts: Mapping[str, str]
    facts_for: str | None
    tasks: tuple[Mapping[str, Any], ...]
    sample: tuple[tuple[str, ...], ...]
    left_out: int
    received_at: str
    from_saved: bool

    def for_journal(self, name: str) -> dict[str, Any]:
        """All that makes the same lines of the same bytes again."""
        return {"format": self.format, "name": name, "answers": dict(self.answers), "received_at": self.received_at}


def from_child(found: Mapping[str, Any], received_at: str, from_saved: bool) -> Imported:
    return Imported(
        found["format"], found["title"], tuple(found["said"]),
        tuple(Question(q["key"], q["text"], tuple(q["choices"]), q["default"], q["free"], q["many"])
              for q in found["questions"]),
        found["answers"], found["assumed"], tuple(found["columns"]), found["facts"], found["facts_for"],
        tuple(found["tasks"]), tuple(tuple(row) for row in found["sample"]), found["left_out"], received_at, from_saved,
    )


# --- saved answers ---------------------------------------------------------------------------------------------------


def mapping_target(format_key: str, columns: Sequence[str]) -> str:
    """The journal's name for tables of this format with these columns."""
    return "mapping:" + hashlib.sha256(json.dumps([format_key, list(columns)]).encode()).hexdigest()[:32]


def saved_answers(runs: RunsFolder, format_key: str, columns: Sequence[str]) -> Mapping[str, str]:
    """What was answered last for such a table; empty when nobody was asked yet."""
    if not columns:
        return {}
    entries = [e for e in Journal(runs.journal).entries(mapping_target(format_key, columns)) if e.act == MAPPING]
    answers = entries[-1].data.get("answers") if entries else None
    if not isinstance(answers, Mapping):
        return {}
    return {str(key): str(value) for key, value in answers.items() if key not in OF_ONE_FILE}


# --- lines -----------------------------------------------------------------------------------------------------------


def lines_path(runs: RunsFolder, upload_id: str, about: Mapping[str, Any]) -> Path:
    stamp = hashlib.sha256(json.dumps([IMPORT_VERSION, dict(about)], sort_keys=True).encode()).hexdigest()[:16]
    return runs.uploads / _FOLDER / f"{upload_id}-{stamp}.jsonl"


def keep_lines(runs: RunsFolder, upload_id: str, about: Mapping[str, Any], lines: bytes) -> Path:
    path = lines_path(runs, upload_id, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".incoming-{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(lines)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def lines_of(runs: RunsFolder, upload_id: str, about: Mapping[str, Any]) -> Path:
    """The file with an upload's lines, made of the original where it is not there.

    Raises `UserError` when the original gives no lines any more, and `OSError`.
    """
    from core.store import uploads

    path = lines_path(runs, upload_id, about)
    if path.is_file():
        return path
    name, answers = str(about.get("name") or "the file"), about.get("answers")
    found = read_in_child(
        (runs.uploads / upload_id).read_bytes(), name, limits=uploads.LIMITS, timeout_s=uploads.TIMEOUT_S,
        sha=upload_id, answers={str(k): str(v) for k, v in answers.items()} if isinstance(answers, Mapping) else {},
        received_at=str(about.get("received_at") or ""),
    )
    lines = found.get("import_lines")
    if not lines:
        why = found["refused"][0] if "refused" in found else "its answers do not suffice any more"
        raise UserError(f"{name} cannot be read as before ({why})", "the file as it was accepted",
                        "undo it on the Data page and give it again")
    return keep_lines(runs, upload_id, about, lines.encode())
