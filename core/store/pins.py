"""Pins of the review meeting, kept in the journal: a view, the answer it gave when it was pinned, and what people made
of it (title, note, owner, status, the command that would decide).

The frozen answer never changes. The words do, each change naming the version that it was based on.
"""
from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import UserError
from core.records import RunsFolder
from core.store.journal import Entry, Journal

PIN, EDIT_PIN, UNPIN = "pin", "edit_pin", "unpin"
"""Acts on `pin:<id>` in the journal."""

STATUSES = ("open", "decided", "done")
MOST_CHARACTERS = {"title": 200, "note": 4000, "owner": 100, "command": 500}
MAX_FROZEN_BYTES = 44 * 1024
"""Room for the frozen answers in an entry of the journal, beside the words."""


@dataclass(frozen=True)
class Words:
    """What people say about a pin. `wanted`: what a run must hold to answer `command` (core.answers.deciding)."""

    title: str
    note: str = ""
    owner: str = ""
    status: str = "open"
    command: str = ""
    wanted: Mapping[str, Any] | None = None

    def checked(self) -> Words:
        """Without blanks at the ends. Raises `UserError` without a title, for an unknown status and a long text."""
        given = {name: str(getattr(self, name)).strip() for name in MOST_CHARACTERS}
        if not given["title"]:
            raise UserError("a pin without a title", "a few words that name the question", "write one")
        for name, most in MOST_CHARACTERS.items():
            if len(given[name]) > most:
                raise UserError(f"a {name} of {len(given[name])} characters", f"at most {most}", "shorten it")
        if self.status not in STATUSES:
            raise UserError(f"status {self.status[:40]!r}", " or ".join(STATUSES))
        return Words(**given, status=self.status, wanted=self.wanted)

    def shown(self) -> str:
        """All words as one text, so that two people who wrote at once can be shown both."""
        parts = [f"{self.title} ({self.status}{f', {self.owner}' if self.owner else ''})", self.note, self.command]
        return "\n".join(filter(None, parts))


@dataclass(frozen=True)
class View:
    """What was pinned. `page` and `query` make the link; `question` is asked again later (core.answers.review).

    `answers` as they were; `runs` behind them; `method` of those runs, None where they differ; `data_version`: a
    fingerprint of all stored runs.
    """

    page: str
    query: tuple[tuple[str, str], ...]
    question: Mapping[str, Any]
    answers: tuple[Mapping[str, Any], ...]
    runs: tuple[str, ...]
    method: int | None
    data_version: str


@dataclass(frozen=True)
class Pin:
    """`version`: the number of its journal entries, which a change must name."""

    id: str
    time: str
    actor: str
    view: View
    words: Words
    version: int
    changed_at: str
    changed_by: str


def add_pin(runs: RunsFolder, view: View, words: Words, actor: str = "") -> Pin:
    """Raises `UserError` for words that cannot be and for an answer that does not fit into the journal."""
    words = words.checked()
    target = f"pin:{secrets.token_hex(6)}"
    entry = Journal(runs.journal).append(PIN, target, {**_data(words), "view": asdict(view)}, actor=actor,
                                         base_version=0)
    return pins([entry])[0]


def edit_pin(runs: RunsFolder, pin_id: str, words: Words, *, base_version: int, actor: str = "") -> None:
    """Raises `StaleVersionError`, whose `theirs` and `yours` hold both texts, when the pin was changed meanwhile."""
    journal, target = Journal(runs.journal), f"pin:{pin_id}"
    _standing(journal, pin_id)
    journal.append(EDIT_PIN, target, _data(words.checked()), actor=actor, base_version=base_version)


def remove_pin(runs: RunsFolder, pin_id: str, *, base_version: int, actor: str = "") -> None:
    """The journal keeps what it was. Raises `UserError` as `edit_pin`."""
    journal, target = Journal(runs.journal), f"pin:{pin_id}"
    _standing(journal, pin_id)
    journal.append(UNPIN, target, {"text": "removed"}, actor=actor, base_version=base_version)


def pins(entries: Iterable[Entry]) -> list[Pin]:
    """The pins that stand after these entries, newest first; what this version cannot read is left out."""
    of: dict[str, list[Entry]] = {}
    for entry in entries:
        kind, _, name = entry.target.partition(":")
        if kind == "pin":
            of.setdefault(name, []).append(entry)
    found = [pin for name, own in of.items() if (pin := _pin(name, own)) is not None]
    return sorted(found, key=lambda pin: (pin.time, pin.id), reverse=True)


def pins_of(runs: RunsFolder) -> list[Pin]:
    """The same for a runs folder, whose journal need not exist."""
    return pins(Journal(runs.journal).entries())


def _standing(journal: Journal, pin_id: str) -> None:
    if pin_id not in {pin.id for pin in pins(journal.entries(f"pin:{pin_id}"))}:
        raise UserError(f"no pin {pin_id[:40]}", "a pin of this journal", "it may have been removed: reload the page")


def _data(words: Words) -> dict[str, Any]:
    return {"text": words.shown(), "words": asdict(words)}


def _pin(name: str, own: Sequence[Entry]) -> Pin | None:
    first, last = own[0], own[-1]
    if first.act != PIN or last.act == UNPIN:
        return None
    try:
        view = dict(first.data["view"])
        view |= {"query": tuple((str(key), str(value)) for key, value in view["query"]),
                 "answers": tuple(view["answers"]), "runs": tuple(view["runs"])}
        return Pin(name, first.time, first.actor, View(**view), Words(**last.data["words"]).checked(), len(own),
                   last.time, last.actor)
    except (KeyError, TypeError, ValueError, UserError):
        return None
