"""Explain: ratio, theory, verdict, stages and operations of one common cell, and what is said when there is none."""
from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.answers.explain import OP_ROWS, OTHER_OPS, explain
from core.answers.selection import parse_filters
from core.records import Ceiling
from core.store import Store, open_files
from tests.builders import DEVICES, build_run, cell, op

KEYS = {
    "measured_ratio", "expected", "norm", "verdict", "factors", "residual", "findings", "not_comparable_because",
    "assumptions", "headline", "stages", "op_diff", "n", "other_cells",
}
T4, H200 = "20261130-100000-00000001", "20261130-100000-00000002"


def linear(device_ms: float) -> object:
    return op("aten::linear", "transformer", device_ms, shapes=((12032, 384), (384, 384)), scalars=(),
              flops=10**10, bytes=10**8)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A T4 that is four times slower than an H200; its operations are an encoder convolution and a linear layer."""
    root = tmp_path_factory.mktemp("explain")
    big, little = {"frames": 96}, {"frames": 24}
    build_run(root / "t4.jsonl", "t4", [
        cell(4, ops=(op(device_ms=4.0), linear(8.0))), cell(8, work_changes=big), cell(2, work_changes=little),
        cell(3, precision="fp16"),
    ], run_id=T4)
    build_run(root / "h200.jsonl", "h200-sxm-141gb", [
        cell(1, ops=(op(device_ms=1.0), linear(1.0), op("aten::add", "other", 0.5))),
        cell(1, work_changes=big), cell(1, work_changes=little), cell(0.5, precision="fp16"),
        cell(0.5, precision="tf32", ops=(op(device_ms=0.5), linear(0.5))),
    ], run_id=H200)
    with open_files([root / "t4.jsonl", root / "h200.jsonl"]) as opened:
        yield opened


def test_the_answer_has_the_agreed_keys_and_its_factors_multiply_to_the_ratio(store: Store) -> None:
    answer = explain(store, "t4", "h200")
    assert set(answer) >= KEYS
    product = math.prod(factor["ratio"] for factor in answer["factors"]) * answer["residual"]
    assert product == pytest.approx(answer["measured_ratio"]["value"], rel=1e-9)
    assert "cache" in {item["name"] for item in answer["not_assessed"]}
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_the_founding_size_is_explained_and_the_rest_listed(store: Store) -> None:
    answer = explain(store, "t4", "h200")
    assert answer["measured_ratio"]["value"] == pytest.approx(4)
    assert (answer["workload"]["frames"], answer["precision"]) == (47, "fp32")
    others = {(cell["frames"], cell["setting"]["precision"]): cell["ratio"] for cell in answer["other_cells"]}
    assert others == {(96, "fp32"): 8.0, (24, "fp32"): 2.0, (47, "fp16"): pytest.approx(6.0)}


def test_without_the_founding_size_the_largest_work_is_taken(store: Store) -> None:
    answer = explain(store, "t4", "h200", parse_filters(frames=["24", "96"]))
    assert answer["workload"]["frames"] == 96


def test_theory_comes_from_the_data_sheets_in_the_executed_precision(store: Store) -> None:
    expected = explain(store, "t4", "h200")["expected"]
    assert expected["bandwidth"] == pytest.approx(15)
    assert expected["fp32"] == expected["executed_precision"] == pytest.approx(67 / 8.1)
    half = explain(store, "t4", "h200", parse_filters(precision=["fp16"]))["expected"]
    assert half["executed_precision"] == pytest.approx(989 / 65, rel=0.01)


def test_the_verdict_is_about_the_target_and_the_headline_says_both(store: Store) -> None:
    answer = explain(store, "t4", "h200")
    assert answer["verdict"] == "undecided"  # 4x, where hardware says 8.3x to 15x: launches may hide it
    assert answer["headline"].startswith("The Tesla T4 took 4.00x as long as the H200 SXM 141GB (")
    assert "Bandwidth says 15.0x" in answer["headline"]
    assert answer["conditions"].startswith(
        "local4d:base, 47 frames of 256x256, 256 points, fp32: baseline 44.0 ms, target 11.0 ms; n 3 and 3")


def test_swapped_sides_invert_the_ratio_and_keep_the_verdict(store: Store) -> None:
    there, back = explain(store, "t4", "h200"), explain(store, "h200", "t4")
    assert back["measured_ratio"]["value"] == pytest.approx(1 / there["measured_ratio"]["value"])
    assert back["expected"]["bandwidth"] == pytest.approx(1 / there["expected"]["bandwidth"])
    assert back["verdict"] == there["verdict"]


def test_swapped_sides_invert_every_factor_and_the_residual(store: Store) -> None:
    there, back = explain(store, "t4", "h200"), explain(store, "h200", "t4")
    turned = {factor["name"]: 1 / factor["ratio"] for factor in back["factors"]}
    assert turned == pytest.approx({factor["name"]: factor["ratio"] for factor in there["factors"]})
    assert back["residual"] == pytest.approx(1 / there["residual"])


def test_of_equal_sizes_the_work_with_operation_tables_is_explained(tmp_path: Path) -> None:
    small = {"variant": "small"}
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4), cell(3, work_changes=small, ops=(op(),))], run_id=T4)
    build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(1), cell(1, work_changes=small, ops=(op(),))], run_id=H200)
    with open_files([tmp_path / "t4.jsonl", tmp_path / "h.jsonl"]) as store:
        answer = explain(store, "t4", "h200")
    assert answer["workload"]["variant"] == "small"
    assert [cell["variant"] for cell in answer["other_cells"]] == ["base"]


def test_an_older_operation_table_serves_where_the_newest_profile_was_blind_and_is_named(tmp_path: Path) -> None:
    blind = op(device_ms=None, launches=None)
    build_run(tmp_path / "old.jsonl", "h200-sxm-141gb", [cell(ops=(op(device_ms=5.0),))], run_id=T4,
              started_at="2026-11-29T10:00:00Z")
    build_run(tmp_path / "new.jsonl", "h200-sxm-141gb", [cell(ops=(blind,), at="2026-11-30T12:00:00Z")], run_id=H200)
    third = "20261130-100000-00000003"
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4, ops=(op(device_ms=9.0),))], run_id=third)
    with open_files([tmp_path / name for name in ("old.jsonl", "new.jsonl", "t4.jsonl")]) as store:
        answer = explain(store, "t4", "h200")
    assert answer["op_diff"][0]["device_ms_target"] == 5.0
    assert any(f"those of run {T4}" in text for text in answer["assumptions"])


def test_stages_have_both_times_shares_and_floors(store: Store) -> None:
    stages = {row["name"]: row for row in explain(store, "t4", "h200")["stages"]}
    assert list(stages) == ["encoder", "correlation", "transformer", "other"]
    encoder = stages["encoder"]
    assert (encoder["baseline_ms"], encoder["target_ms"]) == (pytest.approx(8.8), pytest.approx(2.2))
    assert encoder["ratio"] == pytest.approx(4)
    assert encoder["baseline_share"] == pytest.approx(0.2)
    assert encoder["lost_share"] == pytest.approx(0.2)
    # 1e9 flops on 8.1 TFLOP/s and on 67 TFLOP/s, from the op table
    assert encoder["floor_ms_baseline"] == pytest.approx(1e9 / 8.1e12 * 1e3)
    assert encoder["bound_by_baseline"] == "compute"
    assert sum(row["baseline_share"] for row in stages.values()) == pytest.approx(1)


def test_operations_are_joined_and_sorted_by_lost_time(store: Store) -> None:
    rows = explain(store, "t4", "h200")["op_diff"]
    assert [(row["op"], row["lost_ms"], row["only_in"]) for row in rows] == [
        ("aten::linear", 7.0, "both"), ("aten::conv2d", 3.0, "both"), ("aten::add", -0.5, "target")]
    assert rows[0]["ratio"] == pytest.approx(8)
    assert rows[2]["ratio"] is None


def test_two_precisions_of_one_card_are_two_sides(store: Store) -> None:
    answer = explain(store, "h200,precision=fp32", "h200,precision=tf32")
    assert answer["measured_ratio"]["value"] == pytest.approx(2)
    assert answer["measured_ratio"]["low"] < 2 < answer["measured_ratio"]["high"]
    assert answer["expected"]["bandwidth"] == 1
    assert answer["expected"]["executed_precision"] == pytest.approx(494 / 67, rel=0.01)
    assert answer["verdict"] == "as_expected"
    assert {row["op"] for row in answer["op_diff"]} == {"aten::conv2d", "aten::linear", "aten::add"}
    assert answer["n"] == {"baseline": 3, "target": 3, "boards": 1, "baseline_processes": 1, "target_processes": 1}
    assert "One board of the H200 SXM 141GB was measured: the ratio supports a claim about that board." in (
        answer["assumptions"])
    assert answer["norm"] is None


def test_a_whole_workload_has_a_norm_where_its_pair_and_its_classes_are_covered(tmp_path: Path) -> None:
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4, ops=(linear(8.0), op(device_ms=2.0)))], run_id=T4)
    build_run(tmp_path / "a.jsonl", "a100-sxm4-40gb", [cell(1, ops=(linear(2.0), op(device_ms=1.0)))], run_id=H200)
    with open_files([tmp_path / "t4.jsonl", tmp_path / "a.jsonl"]) as store:
        found = explain(store, "t4", "a100")["norm"]
        assert found["op_class"] == "weighted"
        assert "80% of it covered" in found["source"]  # 8 of 10 ms; a 7x7 convolution has no norm
        assert found["low"] < found["median"] < found["high"] <= found["max"]


def test_operations_measured_here_are_a_norm_of_their_own(tmp_path: Path) -> None:
    def ops(scale: float) -> tuple[object, ...]:
        return tuple(
            op("aten::linear", "transformer", scale * factor, shapes=((size, 64), (64, 64)), scalars=())
            for size, factor in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0))
        )

    build_run(tmp_path / "t4.jsonl", "t4", [cell(4, ops=ops(6.0))], run_id=T4)
    build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(1, ops=ops(2.0))], run_id=H200)
    with open_files([tmp_path / "t4.jsonl", tmp_path / "h.jsonl"]) as store:
        answer = explain(store, "t4", "h200")
        alone = explain(store, "h200", "h200")
    assert answer["norm"] is None  # no shipped data for this pair, and none is borrowed
    assert [(norm["op_class"], norm["n"]) for norm in answer["own_norm"]] == [("all", 5), ("gemm", 5)]
    assert answer["own_norm"][0]["median"] == pytest.approx(3)
    assert answer["own_norm"][0]["source"] == "operations measured here, one work, torch 2.13.0 against 2.13.0"
    assert alone["own_norm"] == []


def test_without_op_tables_there_is_no_norm_and_the_reader_is_told(tmp_path: Path) -> None:
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4)], run_id=T4)
    build_run(tmp_path / "a.jsonl", "a100-sxm4-40gb", [cell(1)], run_id=H200)
    with open_files([tmp_path / "t4.jsonl", tmp_path / "a.jsonl"]) as store:
        answer = explain(store, "t4", "a100")
    assert (answer["norm"], answer["op_diff"]) == (None, [])
    assert any("No op table on the baseline" in text for text in answer["assumptions"])
    assert answer["expected"]["roofline_of"] == "stages"


def test_beyond_the_shown_rows_operations_are_summed(tmp_path: Path) -> None:
    many = [op(device_ms=float(i), scalars=(f"stride={i}",)) for i in range(1, OP_ROWS + 11)]
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4, ops=tuple(many))], run_id=T4)
    build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(1, ops=tuple(many[:1]))], run_id=H200)
    with open_files([tmp_path / "t4.jsonl", tmp_path / "h.jsonl"]) as store:
        rows = explain(store, "t4", "h200")["op_diff"]
    assert len(rows) == OP_ROWS + 1
    assert rows[-1]["op"] == OTHER_OPS
    # the ten smallest: 2 ms to 10 ms on the baseline alone, and the 1 ms one that both sides have
    assert (rows[-1]["rows"], rows[-1]["device_ms_baseline"]) == (10, sum(range(1, 11)))


def test_no_common_work_is_not_comparable_with_the_reason(tmp_path: Path) -> None:
    build_run(tmp_path / "t4.jsonl", "t4", [cell(4, work_changes={"revision": "2"})], run_id=T4)
    build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(1)], run_id=H200)
    with open_files([tmp_path / "t4.jsonl", tmp_path / "h.jsonl"]) as store:
        answer = explain(store, "t4", "h200")
    assert set(answer) >= KEYS
    assert answer["verdict"] == "not_comparable"
    assert answer["not_comparable_because"] == ["revision 2 against 1"]
    assert answer["measured_ratio"]["value"] is None


def test_a_cpu_against_a_gpu_has_a_ratio_and_no_theory(tmp_path: Path) -> None:
    build_run(tmp_path / "c.jsonl", "cpu", [cell(40, cuda=False)], run_id=T4)
    build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [cell(1)], run_id=H200)
    with open_files([tmp_path / "c.jsonl", tmp_path / "h.jsonl"]) as store:
        answer = explain(store, "cpu", "h200")
    assert answer["measured_ratio"]["value"] == pytest.approx(40)
    assert answer["verdict"] == "undecided"
    assert answer["expected"]["bandwidth"] is None
    assert "theory has no say" in answer["headline"]


def test_the_environment_says_what_differs(store: Store) -> None:
    rows = {row["name"]: row for row in explain(store, "t4", "h200")["environment"]}
    assert (rows["sm_count"]["baseline"], rows["sm_count"]["target"], rows["sm_count"]["differs"]) == (40, 132, True)
    assert rows["torch"]["differs"] is False
    assert rows["sm_clock_mhz while timed"]["baseline"] == 1500


def rates(board: str, path: Path, run_id: str, sm_count: int = 132) -> Path:
    """A run of ceilings alone on an H200: products, copy and the rate of the smallest operation."""
    device = dataclasses.replace(DEVICES["h200-sxm-141gb"], sm_count=sm_count)
    return build_run(path, "h200-sxm-141gb", [], run_id=run_id, board=board, device=device, extra_records=[
        Ceiling("gemm", 50.0, "TFLOPS", precision="fp32"), Ceiling("gemm", 400.0, "TFLOPS", precision="tf32"),
        Ceiling("copy", 4000.0, "GB/s"), Ceiling("op_rate", 100.0, "1/ms"),
    ])


def two_precisions(tmp_path: Path) -> Path:
    """FP32 filled with kernels, TF32 for 10 of its 11 ms idle: 2000 launches of 5 us each explain it."""
    ops = op(device_ms=1.0, calls=2000, launches=2000)
    return build_run(tmp_path / "own.jsonl", "h200-sxm-141gb", [
        cell(4, ops=(dataclasses.replace(ops, device_ms=43.0),), kernel_busy_ms=43.0),
        cell(1, precision="tf32", ops=(ops,), kernel_busy_ms=1.0),
    ], run_id=H200, board="own")


def test_ceilings_of_another_board_of_the_type_stand_in_by_name_without_its_host(tmp_path: Path) -> None:
    paths = [two_precisions(tmp_path), rates("another", tmp_path / "rates.jsonl", T4)]
    with open_files(paths) as store:
        answer = explain(store, f"{H200},precision=fp32", f"{H200},precision=tf32")
    by_name = {factor["name"]: factor for factor in answer["factors"]}
    assert by_name["compute"]["basis"] == "FP32 TFLOP/s 50 against 50 (ceiling of another H200 SXM 141GB)"
    assert by_name["compute"]["evidence"] == "possible"
    assert "against 8 (measured products)" in by_name["precision"]["basis"]
    assert answer["expected"]["roofline_measured_of"] == "ceiling of another H200 SXM 141GB"
    assert answer["expected"]["board_ceilings"] == []  # one figure for both sides says nothing
    assert "100" not in by_name["host"]["basis"]


def test_a_slice_takes_no_ceilings_of_a_whole_card(tmp_path: Path) -> None:
    paths = [two_precisions(tmp_path), rates("slice", tmp_path / "rates.jsonl", T4, sm_count=16)]
    with open_files(paths) as store:
        answer = explain(store, f"{H200},precision=fp32", f"{H200},precision=tf32")
    assert answer["expected"]["roofline_measured"] is None


def test_the_host_of_one_machine_is_one_and_may_still_hold_a_side_up(tmp_path: Path) -> None:
    with open_files([two_precisions(tmp_path)]) as store:
        answer = explain(store, f"{H200},precision=fp32", f"{H200},precision=tf32")
    host = next(factor for factor in answer["factors"] if factor["name"] == "host")
    assert host["ratio"] == 1.0
    assert "from a pass on this machine whose kernels fill 9%" in host["basis"]
    found = next(finding for finding in answer["findings"] if finding["cause"] == "host holds the GPU up")
    assert (found["side"], found["most"]) == ("target", None)
    assert "starts the kernels of both sides" in found["detail"]
