"""Compare: which cells meet, what their ratio is, and what is said about those that do not."""
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.answers.compare import compare
from core.answers.coverage import coverage, twin_of_run
from core.answers.selection import parse_filters
from core.records import Cell
from core.store import Store, open_files, open_reading
from tests.builders import build_run, cell

T4, H200, CPU = (f"20261130-10000{i}-0000000{i}" for i in range(1, 4))
FIVE = range(5)


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Any]:
    """A store of run files, given as {gpu: cells} or {(gpu, run_id, board): cells}."""
    opened: list[Store] = []

    def make(runs: dict[Any, Iterable[Cell]], **fields: Any) -> Store:
        paths = []
        for number, (key, cells) in enumerate(runs.items()):
            own_id = f"20261130-10000{number}-0000000{number}"
            gpu, run_id, board = key if isinstance(key, tuple) else (key, own_id, None)
            path = tmp_path / f"{len(opened)}-{number}.jsonl"
            paths.append(build_run(path, gpu, cells, run_id=run_id, board=board, **fields))
        opened.append(open_files(paths))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def test_40_ms_against_10_ms_is_four_times_as_fast(stored: Any) -> None:
    store = stored({"t4": [cell(wall_ms=[39, 40, 41])], "h200-sxm-141gb": [cell(wall_ms=[9, 10, 11])]})
    answer = compare(store, "t4", "h200")
    (row,) = answer["rows"]
    assert row["speedup"]["value"] == pytest.approx(4)
    assert (row["baseline_ms"], row["target_ms"]) == (40, 10)
    assert 3.54 < row["speedup"]["low"] < 4 < row["speedup"]["high"] < 4.56  # 39 / 11 to 41 / 9
    assert row["speedup"]["interval"] == "within-process"
    assert row["n"] == {"baseline": 3, "target": 3}
    assert row["boards"] == 2
    assert row["expected"]["bandwidth"] == pytest.approx(4800 / 320)
    assert answer["headline"].startswith("The Tesla T4 took 4.00x as long as the H200 SXM 141GB (")
    assert "40.0 ms against 10.0 ms for local4d:base, 47 frames of 256x256, 256 points, fp32 (n 3 and 3)" in (
        answer["headline"])


def test_swapped_sides_invert_the_ratio_and_its_interval(stored: Any) -> None:
    store = stored({"t4": [cell(4)], "h200-sxm-141gb": [cell(1)]})
    there, back = (compare(store, *sides)["rows"][0]["speedup"] for sides in (("t4", "h200"), ("h200", "t4")))
    assert back["value"] == pytest.approx(1 / there["value"])
    assert back["low"] == pytest.approx(1 / there["high"], rel=0.02)
    told = [compare(store, *sides)["headline"].split(" (")[0] for sides in (("t4", "h200"), ("h200", "t4"))]
    assert told[0] == told[1]  # the slower side is named first, whichever it is
    assert "44.0 ms against 11.0 ms" in compare(store, "h200", "t4")["headline"]


def test_the_answer_is_plain_json_without_nan(stored: Any) -> None:
    store = stored({"cpu": [cell(40, cuda=False)], "h200-sxm-141gb": [cell(1), cell(status="oom", precision="fp16")]})
    for answer in (compare(store, "cpu", "h200"), coverage(store)):
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_the_newest_ok_attempt_of_a_process_counts(stored: Any) -> None:
    attempts = [cell(9), cell(status="failed"), cell(2)]
    store = stored({"t4": attempts, "h200-sxm-141gb": [cell(1)]})
    answer = compare(store, "t4", "h200")
    assert answer["rows"][0]["speedup"]["value"] == pytest.approx(2)
    assert answer["failed"] == []


def test_five_processes_on_both_sides_give_an_interval_between_processes(stored: Any) -> None:
    store = stored({
        "t4": [cell(4 + i / 10, process=i) for i in FIVE], "h200-sxm-141gb": [cell(1, process=i) for i in FIVE],
    })
    (row,) = compare(store, "t4", "h200")["rows"]
    assert row["speedup"]["interval"] == "between-process"
    assert row["speedup"]["value"] == pytest.approx(4.2)
    assert row["processes"] == {"baseline": 5, "target": 5}


def test_settings_meet_their_equals_unless_both_sides_fix_another(stored: Any) -> None:
    store = stored({
        "t4": [cell(4), cell(2, precision="fp16")],
        "h200-sxm-141gb": [cell(1), cell(0.5, precision="tf32"), cell(0.25, precision="fp16")],
    })
    equal = compare(store, "t4", "h200")
    assert {row["precision"]: round(row["speedup"]["value"]) for row in equal["rows"]} == {"fp32": 4, "fp16": 8}
    assert [row["precision"] for row in equal["only_target"]] == ["tf32"]
    one_side = compare(store, "t4,precision=fp16", "h200")
    assert [row["precision"] for row in one_side["rows"]] == ["fp16"]
    own = compare(store, "h200,precision=fp32", "h200,precision=tf32")
    assert own["differing_settings"] == ["precision"]
    assert own["rows"][0]["precision"] == "fp32 against tf32"
    assert own["rows"][0]["speedup"]["value"] == pytest.approx(2)
    assert own["n"]["boards"] == 1
    assert "H200 SXM 141GB in FP32 took 2.00x as long as the H200 SXM 141GB in TF32" in own["headline"]


def test_other_work_never_meets_and_the_nearest_difference_is_named(stored: Any) -> None:
    store = stored({"t4": [cell(4)], "h200-sxm-141gb": [cell(1, work_changes={"frames": 96})]})
    answer = compare(store, "t4", "h200")
    assert answer["rows"] == []
    assert answer["headline"] == "The Tesla T4 and the H200 SXM 141GB cannot be compared: frames 47 against 96."
    assert len(answer["only_baseline"]) == len(answer["only_target"]) == 1


def test_different_method_versions_enter_no_ratio(stored: Any, tmp_path: Path) -> None:
    path = build_run(tmp_path / "old.jsonl", "h200-sxm-141gb", [cell(1)], run_id=H200)
    newer = tmp_path / "newer.jsonl"
    newer.write_text(path.read_text().replace('"method":1', '"method":2'))
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4)], run_id=T4)
    with open_files([newer, tmp_path / "t4.jsonl"]) as store:
        answer = compare(store, "t4", "h200")
    assert answer["rows"] == []
    assert answer["other_method"][0] | {"work_key": ""} == {"work_key": "", "baseline_method": 1, "target_method": 2}
    assert "different versions of the method" in answer["headline"]


def test_a_failed_cell_is_listed_with_its_reason(stored: Any) -> None:
    store = stored({"t4": [cell(4), cell(status="oom", precision="fp16", reason="15 GiB were not enough")],
                    "h200-sxm-141gb": [cell(1), cell(0.5, precision="fp16")]})
    answer = compare(store, "t4", "h200")
    (failed,) = answer["failed"]
    assert (failed["side"], failed["status"], failed["reason"]) == ("baseline", "oom", "15 GiB were not enough")
    (alone,) = answer["only_target"]
    assert alone["partner"] == {"status": "oom", "reason": "15 GiB were not enough"}


def test_emulated_bf16_is_compared_only_when_asked_for(stored: Any) -> None:
    emulated = cell(4, precision="bf16", execution_path={"emulated_bf16": True})
    store = stored({"t4": [cell(4), emulated], "h200-sxm-141gb": [cell(1), cell(1, precision="bf16")]})
    answer = compare(store, "t4", "h200")
    assert [row["precision"] for row in answer["rows"]] == ["fp32"]
    assert "emulates BF16" in answer["left_out"][0]["reason"]
    assert len(compare(store, "t4", "h200", parse_filters(precision=["bf16"]))["rows"]) == 1


def test_a_cpu_has_no_theory_and_the_verdict_cannot_tell(stored: Any) -> None:
    store = stored({"cpu": [cell(40, cuda=False)], "h200-sxm-141gb": [cell(1)]})
    answer = compare(store, "cpu", "h200")
    (row,) = answer["rows"]
    assert (row["verdict"], row["expected"]["low"]) == ("undecided", None)
    assert any("no data sheet" in text and "the verdict is undecided" in text for text in answer["assumptions"])
    assert not any("differs" in text for text in answer["assumptions"])  # a CPU has no CUDA and no driver to differ


def test_a_card_outside_the_catalogue_gets_its_peaks_from_its_driver(stored: Any) -> None:
    store = stored({"unknown": [cell(4)], "h200-sxm-141gb": [cell(1)]})
    (row,) = compare(store, "NVIDIA Prototype 9", "h200")["rows"]
    assert row["speedup"]["value"] == pytest.approx(4)
    assert row["baseline"]["gpu_key"] is None


def test_the_range_of_several_cells_is_told_and_none_is_averaged(stored: Any) -> None:
    small = {"frames": 24}
    store = stored({"t4": [cell(4), cell(4, work_changes=small)],
                    "h200-sxm-141gb": [cell(1), cell(2, work_changes=small)]})
    answer = compare(store, "t4", "h200")
    assert "took 4.00x" in answer["headline"]  # the founding size
    assert answer["headline"].endswith("Over 2 matching cells the ratio runs from 2.00x to 4.00x.")


def test_a_file_is_compared_with_stored_cells(stored: Any, tmp_path: Path) -> None:
    store = stored({"h200-sxm-141gb": [cell(1)]})
    path = build_run(tmp_path / "mine.jsonl", "t4", [cell(3)], run_id=T4)
    answer = compare(store, str(path), "h200")
    assert answer["rows"][0]["speedup"]["value"] == pytest.approx(3)
    assert answer["baseline"]["kind"] == "file"


def test_software_that_differs_is_named(stored: Any, tmp_path: Path) -> None:
    path = build_run(tmp_path / "t4.jsonl", "t4", [cell(4)], run_id=T4)
    path.write_text(path.read_text().replace('"torch":"2.13.0"', '"torch":"2.1.0"'))
    build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(1)], run_id=H200)
    with open_files([path, tmp_path / "h.jsonl"]) as store:
        assert "torch differs: 2.1.0 against 2.13.0." in compare(store, "t4", "h200")["assumptions"]


# --- coverage --------------------------------------------------------------------------------------------------------


def test_coverage_counts_settings_per_card_and_work(stored: Any) -> None:
    store = stored({"t4": [cell(4), cell(2, precision="fp16"), cell(status="oom", work_changes={"frames": 96})],
                    "h200-sxm-141gb": [cell(1, process=i) for i in FIVE]})
    answer = coverage(store)
    rows = {(row["label"], row["frames"]): (row["cells"], row["failed"]) for row in answer["table"]}
    assert rows == {("Tesla T4", 47): (2, 0), ("Tesla T4", 96): (0, 1), ("H200 SXM 141GB", 47): (1, 0)}
    assert answer["table"][0]["frames"] == 47  # what most cards have comes first
    assert [gpu["label"] for gpu in answer["gpus"]] == ["Tesla T4", "H200 SXM 141GB"]
    assert answer["headline"] == "2 device types measured on 2 workloads: Tesla T4, H200 SXM 141GB."


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with open_reading(tmp_path / "r.duckdb", reference=tmp_path / "empty") as store:
        assert coverage(store)["headline"] == "Nothing is measured yet."


def test_a_run_finds_its_shipped_twin_of_its_own_card_first(tmp_path: Path) -> None:
    reference = tmp_path / "reference"
    build_run(reference / "runs" / "h200.jsonl.gz", "h200-sxm-141gb", [cell(1)], run_id=H200)
    build_run(reference / "runs" / "t4.jsonl.gz", "t4", [cell(4)], run_id=T4)
    mine = build_run(tmp_path / "runs" / "mine.jsonl", "t4", [cell(5)], run_id="20261130-120000-00000009", board="mine")
    with open_reading(tmp_path / "r.duckdb", reference=reference) as store:
        twin = twin_of_run(store, "20261130-120000-00000009")
        assert twin is not None
        assert (twin["run_id"], twin["cells"]) == (T4, 1)
        assert "Tesla T4 of run 20261130-120000-00000009 took 1.25x as long as the Tesla T4 of run" in twin["headline"]
        assert twin == twin_of_run(store, str(mine)) | {"command": twin["command"]}


def test_the_setting_is_told_in_words_where_more_than_the_precision_differs(tmp_path: Path) -> None:
    path = build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [
        cell(4), cell(2, setting_changes={"cudnn_benchmark": True}),
        cell(9, setting_changes={"handicap": "launch_delay_us=10+sm_count=40", "sdp_backend": "math"}),
    ])
    with open_files([path]) as store:
        flags = compare(store, "h200,cudnn_benchmark=off", "h200,cudnn_benchmark=on")
        ladder = compare(store, "h200,sdp_backend=math,handicap.sm_count=40,handicap.launch_delay_us=10",
                         "h200,sdp_backend=default,cudnn_benchmark=off")
    assert [row["setting_words"] for row in flags["rows"]] == ["fp32 against fp32, cudnn.benchmark on"]
    assert "the H200 SXM 141GB with cudnn.benchmark off took 2.00x" in flags["headline"].replace("The", "the")
    assert ladder["rows"][0]["setting_words"] == (
        "fp32, attention without fused kernels, every operation 10 us later, 40 SMs against fp32")


def test_two_settings_of_a_card_meet_on_one_board_where_one_measured_both(tmp_path: Path) -> None:
    # the newest FP32 cell is of another board: 20 ms there, 40 ms on the board that measured TF32 too
    paths = [
        build_run(tmp_path / "both.jsonl", "h200-sxm-141gb", [cell(4), cell(1, precision="tf32")],
                  run_id="20261130-100000-00000001", board="one"),
        build_run(tmp_path / "newer.jsonl", "h200-sxm-141gb", [cell(2)], run_id="20261130-110000-00000002",
                  board="two", started_at="2026-11-30T11:00:00Z"),
    ]
    with open_files(paths) as store:
        apart = compare(store, "h200,precision=fp32", "h200,precision=tf32")
        newest = compare(store, "h200", "h200")
    assert (apart["rows"][0]["speedup"]["value"], apart["n"]["boards"]) == (pytest.approx(4), 1)
    assert newest["rows"][0]["baseline"]["run_id"] == "20261130-110000-00000002"


def test_theory_takes_the_share_of_the_sms_that_a_handicap_left(tmp_path: Path) -> None:
    path = build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [
        cell(2.5, setting_changes={"handicap": "sm_count=44"}), cell(1)])
    with open_files([path]) as store:
        answer = compare(store, "h200,handicap.sm_count=44", "h200")
    expected = answer["rows"][0]["expected"]
    assert (expected["bandwidth"], expected["executed_precision"]) == (1, pytest.approx(132 / 44))
    assert answer["rows"][0]["verdict"] == "as_expected"
    assert any("limited to 44 of its 132 SMs" in text for text in answer["assumptions"])
