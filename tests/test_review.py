"""Pins: the frozen answer stays, the words change by turns, and the run that decides marks its item."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.answers import review
from core.answers.explain import explain
from core.answers.review import Question, agenda, pin_view, search, then_and_now
from core.answers.selection import Filters
from core.errors import UserError
from core.records import RunsFolder
from core.store import Store, open_reading, queries, uploads
from core.store.journal import MAX_ENTRY_BYTES, Journal, StaleVersionError
from core.store.pins import STATUSES, Words, add_pin, edit_pin, pins_of, remove_pin
from tests.builders import build_run, cell, op

T4, H200, LATER = (f"20261130-100000-0000000{i}" for i in (1, 2, 3))
GAP = Question("explain", ("t4", "h200"))
FP16 = "python -m core run --precision fp16 fp32 --tracker local4d:base --resolution 256 --frames 47 --points 256"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsFolder:
    """A T4 that is four times slower than an H200, without shipped data."""
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "results.duckdb"))
    monkeypatch.setenv("GAPSCOPE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "reference").mkdir()
    monkeypatch.setattr("core.store.store.reference_root", lambda: tmp_path / "reference")
    runs = RunsFolder(tmp_path / "runs")
    build_run(runs, "t4", [cell(4)], run_id=T4)
    build_run(runs, "h200-sxm-141gb", [cell(1)], run_id=H200)
    return runs


@pytest.fixture
def store(folder: RunsFolder) -> Iterator[Store]:
    with open_reading() as opened:
        yield opened


def pin(store: Store, folder: RunsFolder, title: str = "T4 is slow", **words: str) -> review.Item:
    made = pin_view(store, folder, "Gap", [("baseline", "Tesla T4")], GAP, Words(title, **words), actor="ann")
    return next(item for item in agenda(store, folder) if item.pin.id == made.id)


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_a_pin_keeps_view_runs_method_data_and_the_answer_of_that_day(store: Store, folder: RunsFolder) -> None:
    kept = pin(store, folder, note="look at TF32", owner="bob").pin
    assert (kept.view.page, kept.view.query, kept.view.runs) == ("Gap", (("baseline", "Tesla T4"),), (T4, H200))
    assert kept.view.method == 1
    assert kept.view.data_version == review.data_version(store)
    assert kept.view.answers[0]["measured_ratio"] == explain(store, "t4", "h200")["measured_ratio"]
    assert (kept.words.status, kept.words.note, kept.words.owner, kept.actor) == ("open", "look at TF32", "bob", "ann")
    assert kept.words.command == explain(store, "t4", "h200")["findings"][0]["command"]


def test_pins_and_decisions_outlive_a_rebuild_of_the_database(folder: RunsFolder, tmp_path: Path) -> None:
    with open_reading() as first:
        item = pin(first, folder)
        edit_pin(folder, item.pin.id, Words("T4 is slow", status="decided", note="buy L4s"), base_version=1)
        before = agenda(first, folder)
    (tmp_path / "results.duckdb").unlink()
    with open_reading() as second:
        assert agenda(second, folder) == before
        assert queries.journal(second, f"pin:{item.pin.id}")["act"].tolist() == ["pin", "edit_pin"]
    assert before[0].pin.words.note == "buy L4s"


def test_a_long_answer_gives_up_rows_but_never_its_figures(store: Store) -> None:
    answer = explain(store, "t4", "h200")
    answer["op_diff"] = [{"op": f"aten::op{i}", "shapes": "x" * 900} for i in range(200)]
    frozen = review.freeze([answer])[0]
    assert len(json.dumps(frozen)) < MAX_ENTRY_BYTES
    assert frozen["frozen_rows_left_out"]["op_diff"] == 200 - len(frozen["op_diff"])
    for part in ("measured_ratio", "headline", "factors", "residual", "findings", "expected"):
        assert frozen[part] == answer[part]


@pytest.mark.parametrize(("words", "told"), [
    (Words("  "), "without a title"), (Words("x" * 201), "title of 201"), (Words("x", status="maybe"), "status"),
])
def test_words_that_cannot_be_are_refused(store: Store, folder: RunsFolder, words: Words, told: str) -> None:
    with pytest.raises(UserError, match=told):
        add_pin(folder, pin(store, folder).pin.view, words)


# --- editing ---------------------------------------------------------------------------------------------------------


def test_a_stale_edit_is_refused_and_both_texts_are_told(store: Store, folder: RunsFolder) -> None:
    kept = pin(store, folder).pin
    edit_pin(folder, kept.id, Words("T4 is slow", note="theirs"), base_version=kept.version, actor="cy")
    with pytest.raises(StaleVersionError) as caught:
        edit_pin(folder, kept.id, Words("T4 is slow", note="mine"), base_version=kept.version)
    assert "theirs" in caught.value.theirs.shown()
    assert "mine" in caught.value.yours.shown()
    assert caught.value.theirs.actor == "cy"
    assert "{" not in caught.value.theirs.shown()
    edit_pin(folder, kept.id, Words("T4 is slow", note="both"), base_version=caught.value.version)
    assert pins_of(folder)[0].words.note == "both"


def test_a_removed_pin_is_gone_and_cannot_be_edited(store: Store, folder: RunsFolder) -> None:
    kept = pin(store, folder).pin
    remove_pin(folder, kept.id, base_version=1)
    assert pins_of(folder) == []
    with pytest.raises(UserError, match="no pin"):
        edit_pin(folder, kept.id, Words("again"), base_version=2)


def test_a_pin_that_this_version_cannot_read_is_left_out(store: Store, folder: RunsFolder) -> None:
    kept = pin(store, folder).pin
    Journal(folder.journal).append("pin", "pin:strange", {"words": {"title": "x"}, "view": {"page": 3}})
    assert [found.id for found in pins_of(folder)] == [kept.id]


# --- the deciding run ------------------------------------------------------------------------------------------------


def later(folder: RunsFolder, gpu: str, *cells: object, run_id: str = LATER, **more: object) -> None:
    build_run(folder, gpu, cells, run_id=run_id, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("gpu", "cells", "decides"), [
    ("t4", [cell(2, precision="fp16")], True),
    ("t4", [cell(2, precision="fp16"), cell(4)], True),
    ("t4", [cell(4)], False),  # the same as before: FP16 is still not known
    ("t4", [cell(2, precision="fp16", work_changes={"frames": 24})], False),
    ("t4", [cell(precision="fp16", status="oom")], False),
    ("a100-sxm4-40gb", [cell(2, precision="fp16"), cell(1)], False),  # not a card of this view
])
def test_the_run_that_answers_the_command_marks_the_item(
    folder: RunsFolder, gpu: str, cells: list[object], decides: bool
) -> None:
    with open_reading() as store:
        assert pin(store, folder, command=FP16).mark == ""
    later(folder, gpu, *cells, started_at="2025-01-01T00:00:00Z")  # its clock is wrong, which must not matter
    with open_reading() as store:
        item = agenda(store, folder)[0]
        assert item.mark == (f"decided by run {LATER} on Tesla T4" if decides else "")
        assert item.pin.words.status == "open"  # a person decides
        assert ("one has the measurement" in review.agenda_words([item])) is decides


def test_what_was_stored_before_the_pin_never_decides_it(folder: RunsFolder) -> None:
    later(folder, "t4", cell(2, precision="fp16"))
    with open_reading() as store:
        assert pin(store, folder, command=FP16).mark == ""


def test_operations_are_wanted_where_the_command_asks_for_them(folder: RunsFolder) -> None:
    command = "python -m core run --ops all --tracker local4d:base --resolution 256 --frames 47 --points 256"
    with open_reading() as store:
        pin(store, folder, command=command)
    later(folder, "t4", cell(4))
    with open_reading() as store:
        assert agenda(store, folder)[0].mark == ""
    later(folder, "t4", cell(4, ops=(op(),)), run_id="20261130-100000-00000004")
    with open_reading() as store:
        assert "00000004" in agenda(store, folder)[0].mark


@pytest.mark.parametrize("command", ["python -m core doctor", "ask the vendor", 'run "', "python -m core cost"])
def test_other_commands_are_a_persons_to_answer(folder: RunsFolder, command: str) -> None:
    with open_reading() as store:
        assert pin(store, folder, command=command).pin.words.wanted is None
    later(folder, "t4", cell(2, precision="fp16"))
    with open_reading() as store:
        assert agenda(store, folder)[0].mark == ""


def test_another_command_starts_to_wait_from_now_on(folder: RunsFolder) -> None:
    with open_reading() as store:
        kept = pin(store, folder, command=FP16).pin
    later(folder, "t4", cell(2, precision="fp16"))
    with open_reading() as store:
        tf32 = FP16.replace("fp16 fp32", "tf32")
        review.change_words(store, folder, kept, Words("T4 is slow", command=tf32), base_version=1)
        assert agenda(store, folder)[0].mark == ""


# --- then and now ----------------------------------------------------------------------------------------------------


def test_then_stands_beside_now(folder: RunsFolder) -> None:
    with open_reading() as store:
        kept = pin(store, folder).pin
        assert then_and_now(store, kept)["headline"] == "The answer is the same as when it was pinned."
    later(folder, "t4", cell(8), started_at="2026-12-01T10:00:00Z")
    with open_reading() as store:
        told = then_and_now(store, kept)
    ratio = next(row for row in told["rows"] if row["what"] == "measured ratio")
    assert (ratio["then"], ratio["now"], ratio["changed"]) == ("4.00x", "8.00x", True)
    assert "measured ratio 4.00x, now 8.00x" in told["headline"]


def test_a_pin_whose_runs_were_deleted_says_so_and_keeps_its_answer(folder: RunsFolder) -> None:
    with open_reading() as store:
        pin(store, folder)
    uploads.delete_run(folder, T4)
    with open_reading() as store:
        item = agenda(store, folder)[0]
        told = then_and_now(store, item.pin)
    assert item.gone == (T4,)
    assert f"Run {T4} of this pin was deleted" in item.gone_words
    assert told["now"] is None
    assert "no answer any more" in told["headline"]
    assert {row["what"]: row["then"] for row in told["rows"]}["measured ratio"] == "4.00x"


def test_a_comparison_of_several_cards_is_pinned_with_all_of_them(folder: RunsFolder) -> None:
    build_run(folder, "a100-sxm4-40gb", [cell(2)], run_id=LATER)
    question = Question("compare", ("t4", "h200", "a100"), Filters(precision=("fp32",), resolution=((256, 256),)),
                        ("T4", "H200", "A100"))
    with open_reading() as store:
        pin_view(store, folder, "Speedup", [], question, Words("cards"))
        kept = agenda(store, folder)[0].pin
        assert review.question_of(json.loads(json.dumps(kept.view.question))) == question
        told = dict(review.figures(kept.view.answers, question.names))
    assert (told["speedup, H200"], told["speedup, A100"]) == ("4.00x", "2.00x")


# --- the agenda ------------------------------------------------------------------------------------------------------


def test_open_items_come_first_and_every_word_is_searched(store: Store, folder: RunsFolder) -> None:
    for title, status in (("first", "done"), ("second", "open"), ("third", "decided")):
        kept = pin(store, folder, title, note=f"about {title}").pin
        edit_pin(folder, kept.id, Words(title, note=f"about {title}", status=status), base_version=1)
    items = agenda(store, folder)
    assert [item.pin.words.status for item in items] == ["open", "decided", "done"] == list(STATUSES)
    assert [item.pin.words.title for item in search(items, "tesla THIRD")] == ["third"]
    assert search(items, "second", status="done") == []
    assert review.agenda_words(items) == "1 open item."
    assert review.agenda_words(search(items, "first")) == "No open item; 1 decided or done."
