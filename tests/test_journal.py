"""What people did is appended, durable, and never overwrites what somebody else did meanwhile."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import UserError
from core.store.journal import Entry, Journal, StaleVersionError, active_uploads, hidden_runs, parse_entry

A, B = "a" * 64, "b" * 64


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "runs" / "journal.jsonl")


def entry(act: str, target: str) -> Entry:
    return Entry("id", "2026-11-30T10:00:00Z", act, "ann", target)


def test_an_entry_is_on_disk_before_anybody_is_told(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(journal.path.stat().st_size), real(descriptor)))
    written = journal.append("note", "run:x", {"text": "fine"}, actor="ann")
    assert synced[-1] == journal.path.stat().st_size > 0
    assert journal.entries() == [written]
    assert (written.actor, written.data["text"]) == ("ann", "fine")


def test_a_change_based_on_an_old_version_is_refused_with_both_texts(journal: Journal) -> None:
    journal.append("note", "run:x", {"text": "first"}, actor="ann", base_version=0)
    journal.append("note", "run:y", {"text": "elsewhere"}, base_version=0)
    with pytest.raises(StaleVersionError) as caught:
        journal.append("note", "run:x", {"text": "mine"}, actor="bob", base_version=0)
    assert (caught.value.theirs.shown(), caught.value.yours.shown()) == ("first", "mine")
    assert caught.value.version == 1
    assert "'first'" in str(caught.value)
    assert "'mine'" in str(caught.value)
    journal.append("note", "run:x", {"text": "merged"}, actor="bob", base_version=1)
    assert [e.shown() for e in journal.entries("run:x")] == ["first", "merged"]
    assert journal.version("run:x") == 2


def test_an_act_that_depends_on_nothing_is_never_stale(journal: Journal) -> None:
    journal.append("undo", f"upload:{A}")
    journal.append("undo", f"upload:{A}")
    assert journal.version(f"upload:{A}") == 2


def test_a_torn_tail_is_dropped_by_the_next_entry(journal: Journal) -> None:
    first = journal.append("note", "run:x", {"text": "kept"})
    with open(journal.path, "ab") as stream:
        stream.write(b'{"id":"torn')
    assert journal.entries() == [first]
    second = journal.append("note", "run:x", {"text": "next"})
    assert journal.entries() == [first, second]
    assert b"torn" not in journal.path.read_bytes()


def test_a_bad_line_is_named_and_the_others_count(journal: Journal) -> None:
    journal.append("note", "run:x")
    with open(journal.path, "ab") as stream:
        stream.write(b'{"id": 3}\n')
    journal.append("note", "run:y")
    entries, errors = journal.read()
    assert [e.target for e in entries] == ["run:x", "run:y"]
    assert (errors[0].line, errors[0].field, errors[0].raw_found) == (2, "id", "3")


def test_entries_have_a_limit_and_no_nan(journal: Journal) -> None:
    with pytest.raises(UserError, match="shorten it"):
        journal.append("note", "run:x", {"text": "x" * 70_000})
    with pytest.raises(ValueError, match="JSON compliant"):
        journal.append("note", "run:x", {"price": float("nan")})
    assert journal.entries() == []


_APPEND_20 = """
import sys
from pathlib import Path
from core.store.journal import Journal
for number in range(20):
    Journal(Path(sys.argv[1])).append("note", "run:x", {"text": str(number)})
"""


def test_writers_in_several_processes_lose_nothing(journal: Journal) -> None:
    root = Path(__file__).resolve().parent.parent
    writers = [subprocess.Popen([sys.executable, "-c", _APPEND_20, str(journal.path)], cwd=root) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    entries, errors = journal.read()
    assert (len(entries), errors) == (40, [])
    assert len({e.id for e in entries}) == 40


def test_uploads_are_active_until_undone_and_keep_their_order() -> None:
    up_a, up_b, down_a = entry("upload", f"upload:{A}"), entry("upload", f"upload:{B}"), entry("undo", f"upload:{A}")
    assert active_uploads([up_a, up_b]) == {A: 0, B: 1}
    assert active_uploads([up_a, up_b, down_a]) == {B: 1}
    assert active_uploads([up_a, up_b, down_a, up_a]) == {B: 1, A: 3}
    assert active_uploads([up_a, up_b, up_a]) == {A: 0, B: 1}
    assert active_uploads([entry("upload", "upload:../../etc/passwd"), entry("upload", "run:x")]) == {}


def test_a_deleted_run_is_hidden_until_restored() -> None:
    assert hidden_runs([entry("delete", "run:x"), entry("delete", "run:y"), entry("restore", "run:x")]) == ["y"]
    assert hidden_runs([entry("restore", "run:x"), entry("delete", "upload:x")]) == []


def test_a_line_survives_the_round_trip(journal: Journal) -> None:
    written = journal.append("decision", "pair:a|b", {"text": "rund 170-fach, \u00e4ltere Karte"}, base_version=0)
    assert parse_entry(journal.path.read_bytes()) == written
