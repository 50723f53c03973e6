"""A whole workload on another card: total, host, memory, alternatives, price, the command and its mistakes."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import GIB, build_run, cell, op

from core.answers.predict import back_test, back_test_points, host_interval_ms, predict
from core.answers.selection import parse_filters
from core.cli import main
from core.errors import UserError
from core.store import Store, open_files

MATMUL = op("aten::linear", "transformer", 4.0, shapes=((3008, 1536), (1536, 1536), (1536,)), calls=10, launches=10,
            scalars=(), flops=141_900_000_000, bytes=464_000_000)
COPY = op("aten::add", "correlation", 2.0, shapes=((47, 256, 64, 64), (47, 256, 64, 64)), calls=4, launches=4,
          scalars=(), flops=0, bytes=2_365_000_000)  # fmt: skip
TINY = op("aten::relu", "encoder", 0.4, shapes=((64, 64),), calls=200, launches=200, scalars=(), flops=0,
          bytes=6_553_600)
VIEW = op("aten::view", "encoder", None, shapes=((64, 64),), calls=3, launches=0, scalars=(), flops=0, bytes=0)
OPS = (MATMUL, COPY, TINY, VIEW)


def store_of(tmp_path: Path, *cells: Any, gpu: str = "h200-sxm-141gb") -> Store:
    return open_files([build_run(tmp_path / "a.jsonl", gpu, list(cells), run_id="20261130-100000-0000000a")])


def test_a_cell_with_operation_times_is_predicted_with_its_band(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(wall_ms=[9.0, 9.0, 9.0], ops=OPS)) as store:
        answer = predict(store, "h200", "t4")
    assert answer["origin"] == "predicted"
    assert answer["low_ms"] < answer["predicted_ms"] < answer["high_ms"]
    assert answer["predicted_ms"] > 9.0 * 5
    assert [row["op"] for row in answer["ops"]] == ["aten::linear", "aten::add", "aten::relu"]
    assert {row["name"] for row in answer["totals"]["by_stage"]} == {"transformer", "correlation", "encoder"}
    assert answer["backtest"]["situation"] == "ceilings"
    assert "Predicted for the Tesla T4" in answer["headline"]


def test_the_same_card_takes_the_measured_time(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(wall_ms=[9.0, 9.0, 9.0], ops=OPS)) as store:
        answer = predict(store, "h200", "h200")
    assert answer["predicted_ms"] == pytest.approx(9.0, rel=1e-6)


def test_the_host_interval_explains_the_wall_time_of_the_source() -> None:
    device, launches = np.array([4.0, 0.2]), np.array([10.0, 200.0])
    interval = host_interval_ms(device, launches, wall_ms=10.0)
    assert interval == pytest.approx(0.03)  # max(0.3, 4) + max(200 x 0.03, 0.2) = 10
    assert host_interval_ms(device, launches, wall_ms=4.2) is None


def test_a_workload_that_waits_for_its_host_says_so_and_gains_little(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(wall_ms=[100.0] * 3, ops=OPS)) as store:
        answer = predict(store, "h200", "b200")
    assert answer["totals"]["bound_by"] == "host"
    assert answer["predicted_ms"] == pytest.approx(100.0, rel=0.05)
    assert any("one launch every" in text for text in answer["assumptions"])


def test_a_target_too_small_in_memory_is_said_first(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(ops=OPS, peak_bytes=20 * GIB)) as store:
        answer = predict(store, "h200", "t4")
        assert predict(store, "h200", "l4")["memory"]["fits"] is True
    assert answer["memory"]["fits"] is False
    assert "would not fit on the Tesla T4" in answer["headline"]


def test_a_price_per_hour_gives_a_price_per_clip(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(ops=OPS)) as store:
        answer = predict(store, "h200", "t4", price_per_hour=3.6)
        assert predict(store, "h200", "t4")["price"] is None
        with pytest.raises(UserError, match="price per hour"):
            predict(store, "h200", "t4", price_per_hour=-1)
    assert answer["price"]["per_clip"] == pytest.approx(3.6 * answer["predicted_ms"] / 3.6e6)


def test_precisions_that_the_target_has_and_sizes_that_the_source_has_are_alternatives(tmp_path: Path) -> None:
    other = cell(wall_ms=[3.0] * 3, work_changes={"points": 64})
    with store_of(tmp_path, cell(wall_ms=[9.0] * 3, ops=OPS), other) as store:
        for_t4, for_a100 = predict(store, "h200", "t4"), predict(store, "h200", "a100")
    changes = [row["change"] for row in for_t4["alternatives"]]
    assert changes == ["fp16 instead of fp32", "47 frames of 256x256, 64 points"]
    scaled = for_t4["alternatives"][1]
    assert scaled["how"] == "scaled"
    assert scaled["ratio"] == pytest.approx(3 / 9)
    assert [row["change"].split(" ")[0] for row in for_a100["alternatives"]][:3] == ["tf32", "fp16", "bf16"]
    assert all(row["ratio"] < 1 for row in for_a100["alternatives"])


def test_ceilings_of_the_target_change_the_time(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(wall_ms=[7.0] * 3, ops=OPS)) as store:
        slow = predict(store, "h200", "l4", ceilings={"gemm_fp32_tflops": 5.0, "copy_gb_s": 150.0})
        fast = predict(store, "h200", "l4", ceilings={"gemm_fp32_tflops": 13.0, "copy_gb_s": 250.0})
    assert slow["target"]["situation"] == "ceilings"
    assert slow["predicted_ms"] > fast["predicted_ms"] * 1.3


def test_cells_without_operation_times_get_one_sentence(tmp_path: Path) -> None:
    without = tuple(row.__class__(**{**row.__dict__, "device_ms": None}) for row in OPS)
    with store_of(tmp_path, cell(ops=without)) as store, pytest.raises(UserError, match="times of its operations"):
        predict(store, "h200", "t4")


def test_filters_choose_the_cell(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(ops=OPS), cell(precision="tf32", wall_ms=[5.0] * 3, ops=OPS)) as store:
        answer = predict(store, "h200", "a100", parse_filters(precision=["tf32"]))
        on_t4 = predict(store, "h200,precision=tf32", "t4")
    assert answer["workload"]["precision"] == "tf32"
    assert any("has no TF32" in text for text in on_t4["assumptions"])


def test_the_back_test_has_every_situation_and_points_to_draw() -> None:
    for situation in ("measured", "ceilings", "spec"):
        found = back_test(situation)
        assert 0 < found["median_error"] < 0.25
        assert 0.90 <= found["inside_band"] <= 1
        assert (back_test_points()["situation"] == situation).sum() > 100


def test_the_command_prints_one_document_or_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(ops=OPS)], run_id="20261130-100000-0000000a")
    assert main(["predict", "--from", str(path), "--to", "T4", "--json", "--price-per-hour", "0.5"]) == 0
    answer = json.loads(capsys.readouterr().out)
    for key in ("predicted_ms", "low_ms", "high_ms", "ops", "totals", "memory", "assumptions", "backtest",
                "alternatives", "headline", "origin"):
        assert key in answer
    assert main(["predict", "--from", str(path), "--to", "T4"]) == 0
    printed = capsys.readouterr().out
    assert "back-test: ceilings" in printed or "back-test: spec" in printed or "back-test: measured" in printed
    assert "matmul" in printed
    for words, sentence in (
        (["--to", "Foo 9000"], "its memory in GB"), (["--to", "T4", "--ceiling", "speed=3"], "NAME=VALUE"),
        (["--to", "T4", "--ceiling", "copy_gb_s=fast"], "a number after"),
        (["--to", "T4", "--precision", "fp23"], "fp23"),
    ):
        assert main(["predict", "--from", str(path), *words]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith("error: ")
        assert sentence in told.err
        assert told.err.count("\n") == 1
    described = ["--to", "Foo", "--ceiling", "gemm_fp32_tflops=20", "copy_gb_s=600"]
    assert main(["predict", "--from", str(path), *described]) == 0


def test_the_headline_tells_the_error_of_products_apart_from_easy_operations(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(wall_ms=[9.0, 9.0, 9.0], ops=OPS)) as store:
        answer = predict(store, "h200", "t4")
    classes = answer["backtest"]["by_class"]
    assert classes["matmul"]["median_error"] > classes["elementwise"]["median_error"]
    assert "matrix products by" in answer["headline"]
    assert "element-wise operations by" in answer["headline"]


def test_an_older_run_with_operations_serves_where_the_newest_has_none(tmp_path: Path) -> None:
    older, newer = "20261130-100000-00000001", "20261130-110000-00000002"
    profiled = [cell(1, ops=OPS), cell(0.5, precision="bf16", ops=OPS)]
    paths = [
        build_run(tmp_path / "older.jsonl", "h200-sxm-141gb", profiled, run_id=older),
        build_run(tmp_path / "newer.jsonl", "h200-sxm-141gb", [cell(1.1)], run_id=newer,
                  started_at="2026-11-30T11:00:00Z"),
    ]
    with open_files(paths) as store:
        answer = predict(store, "h200", "t4")
    assert (answer["source"]["run_id"], answer["workload"]["precision"]) == (older, "fp32")


def test_several_cards_are_refused_and_an_ambiguous_name_is_told(tmp_path: Path) -> None:
    with store_of(tmp_path, cell(wall_ms=[9.0, 9.0, 9.0], ops=OPS)) as store:
        with pytest.raises(UserError, match="means 8 GPUs"):
            predict(store, "h200", "8x A100")
        assert any("A100" in text for text in predict(store, "h200", "A100")["assumptions"])
