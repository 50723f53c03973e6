"""Selections and filters: what a person writes, and which stored cells it means."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.answers.selection import Filters, handicap_parts, parse_filters, parse_selection, select
from core.errors import UserError
from core.store import Store, open_files
from tests.builders import build_run, cell

T4_OLD, T4_NEW, H200, CPU = (f"20261130-10000{i}-0000000{i}" for i in range(1, 5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two T4 boards (the second one newer), an H200 and a CPU."""
    root = tmp_path_factory.mktemp("selection")
    build_run(root / "t4-old.jsonl", "t4", [cell(8), cell(6, precision="fp16")], run_id=T4_OLD,
              started_at="2026-11-01T10:00:00Z")
    newer = [cell(4, at="2026-11-30T12:00:00Z"), cell(2, at="2026-11-30T12:00:00Z", process=1)]
    build_run(root / "t4-new.jsonl", "t4", newer, run_id=T4_NEW, board="second", started_at="2026-11-30T11:00:00Z")
    handicapped = cell(9, setting_changes={"handicap": "sm_count=40"})
    sizes = [cell(3, work_changes={"frames": 24}), cell(2, work_changes={"height": 384, "width": 512})]
    failed = [cell(status="oom", precision="fp16"), cell(status="failed", precision="tf32"), cell(1, precision="tf32")]
    build_run(root / "h200.jsonl", "h200-sxm-141gb", [cell(1), handicapped, *sizes, *failed], run_id=H200)
    build_run(root / "cpu.jsonl", "cpu", [cell(100, cuda=False)], run_id=CPU)
    return root


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    with open_files(sorted(folder.glob("*.jsonl"))) as opened:
        yield opened


def test_a_selection_is_a_head_and_fields() -> None:
    found = parse_selection("a,b.jsonl, precision=fp16 ,points=none,resolution=256x384,cudnn_benchmark=on")
    assert found.head == "a,b.jsonl"
    assert found.fields == {"precision": "fp16", "points": None, "height": 256, "width": 384, "cudnn_benchmark": True}
    assert parse_selection("t4,tracker=local4d:small").fields == {"tracker": "local4d", "variant": "small"}
    assert parse_selection("a.jsonl,handicap.sm_count=40").fields == {"handicap.sm_count": "40"}


@pytest.mark.parametrize(("text", "words"), [
    ("", "no GPU, run or file"), (",precision=fp32", "no GPU, run or file"), ("precision=fp32", "no GPU, run or file"),
    ("t4,presicion=fp32", "expected one of precision"), ("t4,precision=fp33", "one of fp32"),
    ("t4,frames=many", "whole number"),
    ("t4,frames=8,frames=9", "given twice"), ("t4,cudnn_benchmark=maybe", "true or false"),
    ("t4,resolution=0", "height x width"),
])
def test_what_cannot_be_read_is_told_with_what_could(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_selection(text)
    assert words in str(caught.value)


def test_filters_take_several_values_and_refuse_others() -> None:
    found = parse_filters(precision=["FP32", "tf32"], resolution=["256", "256x384"], points=["64"])
    assert found == Filters(precision=("fp32", "tf32"), resolution=((256, 256), (256, 384)), points=(64,))
    with pytest.raises(UserError, match="unknown origin 'messured'; expected one of measured"):
        parse_filters(origin=["messured"])


def test_a_bare_gpu_takes_the_newest_run_of_each_cell_with_all_its_processes(store: Store) -> None:
    side = select(store, "t4")
    fp32 = side.lines[side.lines["precision"] == "fp32"]
    assert list(fp32["run_id"]) == [T4_NEW, T4_NEW]
    assert list(fp32["process"]) == [0, 1]
    assert list(side.lines[side.lines["precision"] == "fp16"]["run_id"]) == [T4_OLD]
    assert (side.kind, side.gpu_key, side.label, side.boards) == ("gpu", "t4", "Tesla T4", 2)


@pytest.mark.parametrize("name", ["t4", "T4", "Tesla T4", "tesla t4", "nvidia T4"])
def test_a_gpu_is_found_by_key_label_and_spelling(store: Store, name: str) -> None:
    assert select(store, name).gpu_key == "t4"


def test_a_cpu_is_found_by_its_word_and_its_name(store: Store) -> None:
    assert select(store, "cpu").label == "Builder CPU 3000"
    assert select(store, "builder cpu 3000").gpu_key == "cpu"


def test_a_run_and_a_file_are_themselves(store: Store, folder: Path) -> None:
    old = select(store, T4_OLD)
    assert (old.kind, old.gpu_key, set(old.lines["run_id"])) == ("run", "t4", {T4_OLD})
    from_file = select(store, f"{folder / 't4-old.jsonl'},precision=fp16")
    assert from_file.kind == "file"
    assert list(from_file.lines["wall_median_ms"]) == [66.0]
    assert from_file.store is not store


def test_a_handicapped_board_never_stands_for_the_board(store: Store) -> None:
    assert select(store, "h200").lines["handicap"].isna().all()
    assert list(select(store, "h200,handicap.sm_count=40").lines["wall_median_ms"]) == [99.0]
    assert handicap_parts("cold_l2+sm_count=40") == {"cold_l2": "on", "sm_count": "40"}
    assert handicap_parts('{"sm_count": 40}') == handicap_parts("sm_count=40") == {"sm_count": "40"}


def test_a_handicap_is_chosen_alone_and_several_only_together(tmp_path: Path) -> None:
    handicaps = (None, "sm_count=40", "host_cores=1+sm_count=40", "cold_l2")
    path = build_run(tmp_path / "ladder.jsonl", "h200-sxm-141gb", [
        cell(place + 1, setting_changes={"handicap": text}) for place, text in enumerate(handicaps)])
    with open_files([path]) as opened:
        def chosen(text: str) -> list[str | None]:
            return [None if value != value else value for value in select(opened, text).lines["handicap"]]

        assert chosen("h200") == [None]
        assert chosen("h200,handicap.sm_count=40") == ["sm_count=40"]
        assert chosen("h200,handicap.sm_count=40,handicap.host_cores=1") == ["host_cores=1+sm_count=40"]
        assert chosen("h200,handicap.cold_l2=on") == ["cold_l2"]


def test_filters_and_fields_narrow_both(store: Store) -> None:
    assert list(select(store, "h200", parse_filters(frames=["24"])).lines["frames"]) == [24]
    assert list(select(store, "h200", parse_filters(resolution=["384x512"])).lines["width"]) == [512]
    assert len(select(store, "h200", parse_filters(tracker=["local4d:base"])).lines) == 4
    assert list(select(store, "h200,precision=tf32").lines["wall_median_ms"]) == [11.0]


def test_a_failed_cell_is_listed_until_an_attempt_works(store: Store) -> None:
    failed = select(store, "h200").failed
    assert list(failed["precision"]) == ["fp16"]
    assert list(failed["status"]) == ["oom"]


@pytest.mark.parametrize(("text", "words"), [
    ("h2000", "one of NVIDIA H200"),
    ("a100", "A100 SXM4 40GB has no stored run; expected one that has: Builder CPU 3000, H200 SXM 141GB, Tesla T4"),
    ("20261130-999999-ffffffff", "no run 20261130-999999-ffffffff is stored"),
    ("nowhere.jsonl", "no file nowhere.jsonl"), ("some/where", "no file where"),
    ("8x t4", "8 GPUs"),
    ("t4,frames=3", "but none passes frames=3"),
])
def test_what_is_not_there_is_told_with_what_is(store: Store, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        select(store, text)
    assert words in str(caught.value)


def test_an_unknown_tracker_is_told_with_the_nearest(store: Store) -> None:
    with pytest.raises(UserError, match=r"unknown tracker 'local5d'; expected .*local4d"):
        select(store, "t4", parse_filters(tracker=["local5d"]))


def test_a_name_of_several_cards_is_read_as_the_one_with_runs(tmp_path: Path) -> None:
    build_run(tmp_path / "a.jsonl", "a100-sxm4-40gb")
    with open_files([tmp_path / "a.jsonl"]) as store:
        assert select(store, "A100").gpu_key == "a100-sxm4-40gb"
        assert select(store, "A100").assumptions == ()


def test_reported_and_predicted_cells_are_taken_only_when_asked_for(tmp_path: Path) -> None:
    build_run(tmp_path / "p.jsonl", "t4", origin="predicted")
    with open_files([tmp_path / "p.jsonl"]) as store:
        with pytest.raises(UserError, match="origin measured or imported"):
            select(store, "t4")
        assert len(select(store, "t4,origin=predicted").lines) == 1
        assert len(select(store, "t4", parse_filters(origin=["predicted"])).lines) == 1
