"""Time on another card: laws that must hold, bands, mapping of names, and what bad input gets."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.predict import predict_ops
from core.analysis.predict.cards import card_of
from core.analysis.predict.coefficients import shipped
from core.analysis.predict.physics import kernel_of_latency, latency_ms
from core.analysis.predict.trees import Trees, from_table
from core.analysis.predict.work import precision_of, read_work
from core.errors import UserError

A100, T4, H100 = "a100-pcie-40gb", "t4", "h100-sxm5-80gb"
COLUMNS = ["predicted_ms", "low_ms", "high_ms"]


def table(**changes: object) -> pd.DataFrame:
    rows = {
        "op": ["aten::linear", "aten::bmm", "aten::conv2d", "aten::add", "aten::layer_norm", "aten::grid_sampler"],
        "shapes": [
            [[3008, 1536], [384, 1536], [384]], [[64, 128, 64], [64, 64, 128]], [[8, 64, 64, 64], [64, 64, 3, 3]],
            [[4096, 1024], [4096, 1024]], [[4096, 1024], [1024], [1024]], [[47, 256, 32, 32], [47, 64, 49, 2]],
        ],
        "device_ms": [0.26, 0.012, 0.2, 0.04, 0.04, 0.3],
        "calls": [1, 1, 1, 1, 1, 1],
        "flops": [None] * 6,
        "bytes": [None] * 5 + [2e8],
    }  # fmt: skip
    return pd.DataFrame({**rows, **changes})


def test_rows_come_back_in_order_with_a_time_and_a_band_around_it() -> None:
    ops = table().iloc[::-1]
    result = predict_ops(ops, A100, T4)
    assert list(result["op"]) == list(ops["op"])
    assert list(result.index) == list(ops.index)
    assert (result["low_ms"] < result["predicted_ms"]).all()
    assert (result["predicted_ms"] < result["high_ms"]).all()
    assert (result["predicted_ms"] > ops["device_ms"]).all()  # a T4 is slower in all of these
    assert list(ops.columns) == list(table().columns)  # the input is left alone


@pytest.mark.parametrize("timing", ["kernel", "latency"])
@pytest.mark.parametrize("card", [A100, T4, H100, "rtx-4090"])
def test_the_same_gpu_gives_exactly_the_same_time(card: str, timing: str) -> None:
    ops = table(timing=timing)
    result = predict_ops(ops, card, card)
    for column in COLUMNS:
        assert list(result[column]) == list(ops["device_ms"])


def test_names_of_driver_and_catalogue_mean_the_same_card() -> None:
    by_key, by_name = predict_ops(table(), A100, T4), predict_ops(table(), "NVIDIA A100-PCIE-40GB", "Tesla T4")
    pd.testing.assert_frame_equal(by_key, by_name)


@settings(max_examples=15, deadline=None)
@given(
    gemm=st.floats(2, 80),
    copy=st.floats(150, 5000),
    more=st.floats(1, 3),
    also=st.floats(1, 3),
    target=st.sampled_from([T4, H100, "l4", "Prototype 9"]),
    timing=st.sampled_from(["kernel", "latency"]),
)
def test_more_bandwidth_and_flops_are_never_slower(
    gemm: float, copy: float, more: float, also: float, target: str, timing: str
) -> None:
    ops = table(timing=timing)
    slow = predict_ops(ops, A100, target, {"gemm_fp32_tflops": gemm, "copy_gb_s": copy, "launch_us": 20.0})
    fast = predict_ops(
        ops, A100, target, {"gemm_fp32_tflops": gemm * more, "copy_gb_s": copy * also, "launch_us": 20.0}
    )
    if target != "Prototype 9":  # of an unlisted card the number of SMs follows its rate, and tiles may fill it worse
        assert (fast["predicted_ms"] <= slow["predicted_ms"] * (1 + 1e-9)).all()
    memory_bound = ops["op"].isin(["aten::add", "aten::grid_sampler"])
    assert (fast["predicted_ms"] <= slow["predicted_ms"] * (1 + 1e-9))[memory_bound].all()


@settings(max_examples=15, deadline=None)
@given(factor=st.integers(2, 8))
def test_far_above_the_launch_floor_twice_the_work_takes_twice_the_time(factor: int) -> None:
    rows = 20_000
    once = pd.DataFrame({"op": ["aten::add"], "shapes": [[[rows, 4096]] * 2], "device_ms": [0.75]})
    more = pd.DataFrame({"op": ["aten::add"], "shapes": [[[rows * factor, 4096]] * 2], "device_ms": [0.75 * factor]})
    ratio = predict_ops(more, A100, H100)["predicted_ms"][0] / predict_ops(once, A100, H100)["predicted_ms"][0]
    assert ratio == pytest.approx(factor, rel=0.02)


def test_totals_over_calls_scale_with_the_calls() -> None:
    ops = table()
    ten = table(calls=[10] * 6, device_ms=list(ops["device_ms"] * 10), bytes=[None] * 5 + [2e9])
    one_call, ten_calls = predict_ops(ops, A100, T4), predict_ops(ten, A100, T4)
    np.testing.assert_allclose(ten_calls["predicted_ms"], one_call["predicted_ms"] * 10, rtol=1e-9)


def test_a_tiny_operation_takes_the_launch_floor_of_the_target() -> None:
    ops = pd.DataFrame({"op": ["add"], "shapes": [[[4, 4]]], "device_ms": [0.0267], "timing": ["latency"]})
    ceilings = {"gemm_fp32_tflops": 50.0, "copy_gb_s": 2700.0, "launch_us": 10.0}
    assert predict_ops(ops, A100, H100, ceilings)["predicted_ms"][0] == pytest.approx(0.010, rel=0.03)


def test_a_large_copy_takes_the_bytes_over_the_bandwidth() -> None:
    ops = pd.DataFrame({"op": ["aten::add"], "shapes": [[[2**28]] * 2], "device_ms": [3 * 4 * 2**28 / 1368e6]})
    result = predict_ops(ops, A100, H100, {"gemm_fp32_tflops": 50.0, "copy_gb_s": 2000.0})
    assert result["predicted_ms"][0] == pytest.approx(3 * 4 * 2**28 / 2000e6, rel=0.05)


def test_a_missing_time_stays_missing_and_is_never_zero() -> None:
    result = predict_ops(table(device_ms=[0.26, math.nan, None, 0.04, 0.0, 0.3]), A100, T4)
    assert list(result["predicted_ms"].isna()) == [False, True, True, False, True, False]


def test_an_empty_table_gives_an_empty_table() -> None:
    result = predict_ops(table().iloc[:0], A100, T4)
    assert len(result) == 0
    assert set(COLUMNS) <= set(result.columns)


def test_another_precision_has_a_wider_band_and_halves_are_faster_than_fp32() -> None:
    fp32 = predict_ops(table(), A100, H100)
    fp16 = predict_ops(table(dtype="float16"), A100, H100)
    assert ((fp16["high_ms"] / fp16["low_ms"]) > (fp32["high_ms"] / fp32["low_ms"])).all()


def test_arithmetic_that_a_card_lacks_gives_no_number() -> None:
    ops = table(dtype="float64").iloc[:1]
    without = predict_ops(ops, A100, "Prototype 9", {"gemm_fp32_tflops": 20.0, "copy_gb_s": 900.0})
    assert without["predicted_ms"].isna().all()


def test_an_sm_limited_card_is_slower_in_products_by_its_share() -> None:
    ops = pd.DataFrame({"op": ["aten::mm"], "shapes": [[[8192, 8192]] * 2], "device_ms": [22.0]})
    half = predict_ops(ops, H100, H100, {"sm_count": 66})["predicted_ms"][0]
    assert half == pytest.approx(44.0, rel=0.08)


def test_on_fewer_sms_a_full_speed_copy_keeps_its_time_and_a_slow_gather_does_not() -> None:
    full_speed_ms = 1e9 / 3809e6  # 1 GB at the bandwidth that the catalogue gives the H200
    ops = pd.DataFrame({
        "op": ["aten::add", "aten::grid_sampler"], "shapes": [None, None], "bytes": [1e9, 1e9],
        "device_ms": [full_speed_ms, 5 * full_speed_ms],
    })  # fmt: skip
    slower = predict_ops(ops, "h200", "h200", {"sm_count": 66})["predicted_ms"] / ops["device_ms"]
    assert slower[0] == pytest.approx(1.0, abs=0.05)
    assert slower[1] == pytest.approx(2**0.7, rel=0.05)


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        ({}, {"target": "Foo 9000"}, "bandwidth in GB/s, its FP32 TFLOP/s and its memory"),
        ({}, {"target": "cpu"}, "a CPU is no GPU"),
        ({}, {"target": T4, "ceilings": {"copy_gb_s": -1}}, "a number above zero"),
        ({}, {"target": T4, "ceilings": {"launch_us": "many"}}, "a number above zero"),
        ({"dtype": "fp23"}, {"target": T4}, 'precision "fp23" is unknown'),
        ({"timing": "guess"}, {"target": T4}, 'timing "guess" is unknown'),
        ({"shapes": [None] * 6, "bytes": [None] * 6}, {"target": T4}, "has no shapes, flops or bytes"),
        ({"op": [None] * 6}, {"target": T4}, "no operation name"),
    ],
)
def test_bad_input_gets_one_sentence(change: dict[str, object], arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        predict_ops(table(**change), A100, **arguments)  # type: ignore[arg-type]


def test_a_table_without_times_gets_one_sentence() -> None:
    with pytest.raises(UserError, match="device_ms"):
        predict_ops(table().drop(columns="device_ms"), A100, T4)


def test_flops_and_bytes_stand_in_for_shapes() -> None:
    ops = table(shapes=[None] * 6, flops=[3.5e9] * 6, bytes=[3e7] * 6)
    assert predict_ops(ops, A100, T4)["predicted_ms"].gt(0).all()


def test_two_numbers_describe_a_card_that_the_catalogue_lacks() -> None:
    result = predict_ops(table(), A100, "Prototype 9", {"gemm_fp32_tflops": 30.0, "copy_gb_s": 2400.0})
    assert result["predicted_ms"].gt(0).all()


# --- the parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "shapes", "expected"),
    [
        ("aten::linear", [[64, 47, 1536], [384, 1536], [384]], ("matmul", 1, 64 * 47, 384, 1536)),
        ("aten::addmm", [[384], [3008, 1536], [1536, 384]], ("matmul", 1, 3008, 384, 1536)),
        ("aten::mm", [[8, 16], [16, 4]], ("matmul", 1, 8, 4, 16)),
        ("aten::matmul", [[1, 64, 2303, 256], [1, 64, 256, 49]], ("matmul", 64, 2303, 49, 256)),
        ("aten::matmul", [[5, 8, 16], [16, 4]], ("matmul", 1, 40, 4, 16)),
        ("aten::baddbmm", [[5, 8, 4], [5, 8, 16], [5, 16, 4]], ("matmul", 5, 8, 4, 16)),
        ("bmm", [2, 8, 16, 4], ("matmul", 2, 8, 4, 16)),  # batch, m, summed, out as the timing data have them
        ("aten::conv2d", [[2, 3, 16, 16], [8, 3, 3, 3], [8]], ("conv", 1, 8, 512, 27)),
    ],
)
def test_shapes_become_a_product(op: str, shapes: list[object], expected: tuple[object, ...]) -> None:
    work = read_work(op, shapes, "fp32", None, None, ["[1, 1]", "[1, 1]", "[1, 1]", "1"] if "conv" in op else None)
    assert work is not None
    assert (work.op_class, work.batch, work.m, work.n, work.k) == expected
    assert work.flops == 2 * work.batch * work.m * work.n * work.k


def test_stride_and_groups_of_a_convolution_count() -> None:
    work = read_work(
        "aten::conv2d",
        [[6016, 49, 7, 7], [64, 49, 3, 3], [64]],
        "fp32",
        None,
        None,
        ["[2, 2]", "[1, 1]", "[1, 1]", "1"],
    )
    assert work is not None
    assert work.op_class == "conv_other"
    assert (
        work.flops == 2 * 6016 * 16 * 64 * 49 * 9
    )  # 4 x 4 output pixels, as the shipped H200 op table counts them / 48


def test_a_scalar_operand_moves_two_tensors_and_a_tensor_three() -> None:
    tensor = read_work("aten::add", [[10, 10], [10, 10]], "fp32", None, None)
    scalar = read_work("aten::add", [[10, 10], []], "fp32", None, None)
    listed = read_work("addu", [[10, 10]], "fp32", None, None)
    assert tensor is not None
    assert scalar is not None
    assert listed is not None
    assert tensor.bytes == 1200
    assert listed.bytes == 800
    assert scalar.bytes == pytest.approx(804)


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
     ("torch.float16", "fp16"), ("float", "fp32"), (None, "fp32"), (math.nan, "fp32"), ("TF32", "tf32"),
     ("int64", "fp32"),
     (["int64", "bfloat16"], "bf16"), ('["float32", "float32"]', "fp32")],
)  # fmt: skip
def test_a_dtype_names_its_precision(dtype: object, precision: str) -> None:
    assert precision_of(dtype) == precision


@given(kernel=st.floats(0.05, 50), floor=st.floats(0.005, 0.03))
def test_latency_and_kernel_time_invert_each_other_above_the_floor(kernel: float, floor: float) -> None:
    back, seen = kernel_of_latency(latency_ms(np.array([kernel]), np.array([floor])), np.array([floor]))
    assert seen[0] == 1.0
    assert back[0] == pytest.approx(kernel, rel=1e-3)


def test_a_low_power_card_slows_down_in_long_products() -> None:
    boards = shipped().boards
    for name in ("t4", "l4"):
        card = card_of(name, boards)
        assert card.sustained_tflops < 0.8 * card.burst_tflops
    assert card_of(A100, boards).sustained_tflops == card_of(A100, boards).burst_tflops


def test_trees_survive_the_table() -> None:
    trees = Trees(
        ("a", "b"),
        np.array([[1, -1, 0, -1, -1, -1, -1]]),
        np.array([[0.5, 0, 2.0, 0, 0, 0, 0]], dtype=np.float32),
        np.array([[0, 1.0, 0, 0, 0, 5.0, 7.0]]),
    )
    features = {"a": np.array([1.0, 1.0, 3.0]), "b": np.array([0.0, 1.0, 1.0])}
    assert list(trees.predict(features)) == [1.0, 5.0, 7.0]
    assert list(from_table(trees.table("x")).predict(features)) == [1.0, 5.0, 7.0]


def test_every_class_has_a_band_in_every_situation() -> None:
    bands = shipped().bands
    for kind in ("ceilings", "spec", "measured:t4", "measured:a100"):
        for op_class in ("matmul", "conv", "softmax", "layer_norm", "elementwise"):
            low, high = bands[kind, op_class, "far/seen"]
            assert low < high
