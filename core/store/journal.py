"""What people did, one JSON line each in runs/journal.jsonl: append-only, on disk before anybody is told.

An entry is {id, time, act, actor, target, base_version, data}. A target's version is the number of its entries;
whoever changes a text says which version it was based on, and a stale one is refused with both texts.
Deleting is an entry, too: nothing is removed, so everything can be restored.
"""
from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import UserError
from core.records import RecordError, now_utc
from core.store.access import require_write

if sys.platform != "win32":
    import fcntl

UPLOAD, UNDO, DELETE, RESTORE, RELEASE, HOLD = "upload", "undo", "delete", "restore", "release", "hold"
"""Acts that change which rows count: `upload:<sha256>` in and out, `run:<run_id>` hidden and shown again,
`quarantine:<item>` let through and held again."""

MAPPING = "mapping"
"""`mapping:<format and columns>`: what a person answered for a table, offered for the next one with these columns."""

ADD_CARD, REMOVE_CARD = "add_card", "remove_card"
"""`card:<key>`: a card that is not in the shipped catalogue, with the values that a person gave (core.store.cards)."""

MAX_ENTRY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Entry:
    id: str
    time: str
    act: str
    actor: str
    target: str
    base_version: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def shown(self) -> str:
        """The text of a note or decision, else all its data."""
        text = self.data.get("text")
        return str(text) if text is not None else json.dumps(dict(self.data), ensure_ascii=False)


class StaleVersionError(UserError):
    """Somebody else changed the target meanwhile: `theirs` is the newest entry, `yours` the refused data."""

    def __init__(self, theirs: Entry, yours: Entry, version: int) -> None:
        self.theirs, self.yours, self.version = theirs, yours, version
        super().__init__(
            f"{theirs.target} was changed by {theirs.actor or 'somebody'} at {theirs.time} to "
            f"{theirs.shown()[:300]!r}, yours is {yours.shown()[:300]!r}",
            f"a change based on version {version}", "read theirs, then save yours again",
        )


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path

    def append(
        self,
        act: str,
        target: str,
        data: Mapping[str, Any] | None = None,
        *,
        actor: str = "",
        base_version: int | None = None,
    ) -> Entry:
        """Write one entry; it is on disk when this returns.

        `base_version` None: the act does not depend on what others did. Raises `StaleVersionError`, and `UserError`
        for an entry that is too large.
        """
        who = require_write(act.replace("_", " "))
        by = (actor or who)[:100]
        entry = Entry(secrets.token_hex(8), now_utc(), act, by, target, base_version, dict(data or {}))
        raw = json.dumps(asdict(entry), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if len(raw) > MAX_ENTRY_BYTES:
            raise UserError(f"a text of {len(raw)} bytes", f"at most {MAX_ENTRY_BYTES}", "shorten it")
        parse_entry(raw)
        with self._locked() as stream:
            _cut_torn_tail(stream)
            if base_version is not None:
                stream.seek(0)
                earlier = [e for e, _ in _entries(stream) if e is not None and e.target == target]
                if len(earlier) != base_version:
                    newest = earlier[-1] if earlier else Entry("", "", "", "", target)
                    raise StaleVersionError(newest, entry, len(earlier))
            stream.seek(0, os.SEEK_END)
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        return entry

    def read(self) -> tuple[list[Entry], list[RecordError]]:
        """All complete entries in order, and what is wrong with the lines that are none."""
        try:
            with open(self.path, "rb") as stream:
                found = list(_entries(stream))
        except FileNotFoundError:
            return [], []
        return [e for e, _ in found if e is not None], [error for _, error in found if error is not None]

    def entries(self, target: str | None = None) -> list[Entry]:
        return [entry for entry in self.read()[0] if target is None or entry.target == target]

    def version(self, target: str) -> int:
        return len(self.entries(target))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        with open(self.path, "a+b") as stream:
            if sys.platform != "win32":
                fcntl.flock(stream, fcntl.LOCK_EX)
                if new:
                    sync_folder(self.path.parent)
            yield stream


def sync_folder(folder: Path) -> None:
    """Make a new file's name durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def active_uploads(entries: Iterable[Entry]) -> dict[str, int]:
    """Upload id -> position of its entry, for uploads that were not undone; one that comes back takes a new place."""
    active: dict[str, int] = {}
    for position, entry in enumerate(entries):
        kind, _, name = entry.target.partition(":")
        if kind != "upload" or not _is_sha256(name):
            continue
        if entry.act == UPLOAD:
            active.setdefault(name, position)
        elif entry.act == UNDO:
            active.pop(name, None)
    return active


def hidden_runs(entries: Iterable[Entry]) -> list[str]:
    """Runs whose last delete was not followed by a restore."""
    hidden: dict[str, None] = {}
    for entry in entries:
        kind, _, name = entry.target.partition(":")
        if kind == "run" and entry.act == DELETE:
            hidden[name] = None
        elif kind == "run" and entry.act == RESTORE:
            hidden.pop(name, None)
    return sorted(hidden)


def released_items(entries: Iterable[Entry]) -> dict[str, Entry]:
    """What a person let through quarantine and did not hold again -> the entry with the reason."""
    released: dict[str, Entry] = {}
    for entry in entries:
        kind, _, item = entry.target.partition(":")
        if kind == "quarantine" and entry.act == RELEASE:
            released[item] = entry
        elif kind == "quarantine" and entry.act == HOLD:
            released.pop(item, None)
    return released


def parse_entry(raw: bytes, number: int | None = None) -> Entry:
    """One line as an entry. Raises `RecordError` naming line, field, found, expected."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise RecordError("(line)", "no JSON", "a JSON object", number) from None
    if not isinstance(data, dict):
        raise RecordError("(line)", type(data).__name__, "a JSON object", number)
    for name in ("id", "time", "act", "actor", "target"):
        if not isinstance(data.get(name), str):
            raise RecordError(name, repr(data.get(name))[:60], "text", number)
    base, more = data.get("base_version"), data.get("data", {})
    if base is not None and (not isinstance(base, int) or isinstance(base, bool)):
        raise RecordError("base_version", repr(base)[:60], "an integer or null", number)
    if not isinstance(more, dict):
        raise RecordError("data", repr(more)[:60], "a JSON object", number)
    return Entry(data["id"], data["time"], data["act"], data["actor"], data["target"], base, more)


def _entries(stream: BinaryIO) -> Iterator[tuple[Entry | None, RecordError | None]]:
    for number, raw in enumerate(stream, start=1):
        if not raw.endswith(b"\n"):
            return  # torn: never acknowledged
        if not raw.strip():
            continue
        try:
            yield parse_entry(raw, number), None
        except RecordError as error:
            yield None, error


def _cut_torn_tail(stream: BinaryIO) -> None:
    """Drop what a killed writer left behind the last newline; nobody was told that it was saved."""
    size = stream.seek(0, os.SEEK_END)
    keep = size
    while keep > 0:
        step = min(4096, keep)
        stream.seek(keep - step)
        newline = stream.read(step).rfind(b"\n")
        if newline >= 0:
            keep = keep - step + newline + 1
            break
        keep -= step
    if keep < size:
        stream.truncate(keep)


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and all(char in "0123456789abcdef" for char in text)
