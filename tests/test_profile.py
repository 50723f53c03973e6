"""The op table out of a Chrome trace made by hand: two streams that overlap, nested ops, stages, launches."""
from __future__ import annotations

from typing import Any

import pytest

from core.measure.op_formulas import OpWork
from core.measure.profile import busy_ms, layout_name, limited, read_trace, short_kernel_name
from core.records import REST_OP, Op

CONV = {
    "Input Dims": [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], []],
    "Input type": ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
    "Input Strides": [[192, 64, 8, 1], [27, 9, 3, 1], [], [], [], [], []],
    "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"],
}
ADD = {
    "Input Dims": [[1, 4, 8, 8], [], []], "Input type": ["float", "double", "Scalar"],
    "Input Strides": [[256, 1, 32, 4], [], []], "Concrete Inputs": ["", "", "1"],
}
VIEW = {"Input Dims": [[1, 4, 8, 8], []], "Input type": ["float", "ScalarList"],
        "Input Strides": [[256, 64, 8, 1], []], "Concrete Inputs": ["", "[4, 64]"]}


def host(name: str, start: float, end: float, category: str = "cpu_op", **arguments: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "tid": 7, "ts": start, "dur": end - start, "args": arguments}


def launch(correlation: int, start: float) -> dict[str, Any]:
    return host("cudaLaunchKernel", start, start + 2, "cuda_runtime", correlation=correlation)


def kernel(name: str, correlation: int, start: float, end: float, stream: int = 7, cat: str = "kernel"
           ) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "tid": stream, "ts": start, "dur": end - start,
            "args": {"correlation": correlation, "stream": stream}}


# Times in microseconds. Device work: 100-200, 150-250 on another stream, 300-340, 400-410: busy 150 + 40 + 10.
TRACE: list[dict[str, Any]] = [
    host("stage:encoder", 0, 60, "user_annotation"),
    host("aten::conv2d", 5, 50, **{"External id": 1}, **CONV),
    host("aten::convolution", 8, 48, **{"External id": 2}),
    host("aten::cudnn_convolution", 10, 45, **{"External id": 3}),
    launch(11, 12),
    launch(12, 30),
    host("aten::view", 52, 55, **VIEW),
    host("aten::reshape", 56, 58, **VIEW),
    host("aten::conv2d", 70, 90, **CONV),  # outside every stage
    launch(13, 75),
    host("stage:transformer", 100, 150, "user_annotation"),
    host("aten::add", 101, 120, **ADD),
    host("cudaDeviceSynchronize", 160, 170, "cuda_runtime", correlation=99),
    launch(14, 105),
    kernel("void conv_kernel<float, 4>(Params<float>)", 11, 100, 200),
    kernel("void conv_tail<float>(float*)", 12, 150, 250, stream=8),
    kernel("void conv_kernel<float, 4>(Params<float>)", 13, 300, 340),
    kernel("Memset (Device)", 14, 400, 410, cat="gpu_memset"),
    {"ph": "i", "cat": "kernel", "name": "no interval"},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "stage:encoder", "ts": 100, "dur": 500, "args": {}},
]


def row(ops: tuple[Op, ...], op: str, stage: str) -> Op:
    return next(found for found in ops if (found.op, found.stage) == (op, stage))


def test_busy_time_is_the_union_over_streams() -> None:
    assert read_trace(TRACE, on_cuda=True).kernel_busy_ms == pytest.approx(0.200)
    assert busy_ms([]) == 0


def test_children_and_their_kernels_fold_into_the_top_level_op_of_a_stage() -> None:
    ops = read_trace(TRACE, on_cuda=True).ops
    assert {op.op for op in ops} == {"aten::conv2d", "aten::view", "aten::reshape", "aten::add"}
    conv = row(ops, "aten::conv2d", "encoder")
    assert conv.device_ms == pytest.approx(0.200)  # sum of both kernels, although they overlap
    assert conv.launches == 2
    assert conv.kernels == ("conv_kernel<float, 4>", "conv_tail<float>")
    assert row(ops, "aten::conv2d", "other").device_ms == pytest.approx(0.040)
    assert row(ops, "aten::add", "transformer").kernels == ("Memset (Device)",)


def test_launches_are_counted_by_stage_and_a_synchronisation_is_none() -> None:
    assert read_trace(TRACE, on_cuda=True).launches_by_stage == {"encoder": 2, "other": 1, "transformer": 1}


def test_an_ops_key_has_shapes_dtypes_layout_and_scalars() -> None:
    ops = read_trace(TRACE, on_cuda=True).ops
    conv, add = row(ops, "aten::conv2d", "encoder"), row(ops, "aten::add", "transformer")
    assert conv.shapes == ((1, 3, 8, 8), (4, 3, 3, 3))
    assert conv.dtypes == ("float32", "float32")
    assert conv.layout == "contiguous"
    assert conv.scalars == ("None", "[1, 1]", "[1, 1]", "[1, 1]", "1")  # None: no bias
    assert add.layout == "channels_last;contiguous"
    assert add.shapes == ((1, 4, 8, 8), ())


def test_work_of_a_call_comes_from_its_arguments_and_a_view_without_kernel_moves_nothing() -> None:
    profiled = read_trace(TRACE, on_cuda=True)
    conv = row(profiled.ops, "aten::conv2d", "encoder")
    assert conv.flops == 2 * (4 * 8 * 8) * (3 * 3 * 3)
    assert conv.bytes == 4 * (192 + 108 + 256)
    assert row(profiled.ops, "aten::reshape", "encoder").bytes == 0
    assert profiled.coverage == 1


def test_equal_calls_are_summed_and_different_stages_are_not() -> None:
    twice = [*TRACE, host("aten::conv2d", 200, 210, **CONV)]
    ops = read_trace(twice, on_cuda=True).ops
    assert row(ops, "aten::conv2d", "other").calls == 2
    assert row(ops, "aten::conv2d", "encoder").calls == 1


def test_on_a_cpu_an_op_has_its_own_time_with_children_and_no_kernels() -> None:
    profiled = read_trace(TRACE, on_cuda=False)
    conv = row(profiled.ops, "aten::conv2d", "encoder")
    assert conv.device_ms == pytest.approx(0.045)
    assert (conv.kernels, conv.launches) == ((), None)
    assert (profiled.kernel_busy_ms, profiled.launches_by_stage) == (None, None)


def test_a_trace_without_device_work_has_no_device_times_rather_than_zeros() -> None:
    profiled = read_trace([event for event in TRACE if event.get("cat") == "cpu_op"], on_cuda=True)
    assert profiled.kernel_busy_ms is None
    assert profiled.coverage is None
    assert {op.device_ms for op in profiled.ops} == {None}
    assert {op.launches for op in profiled.ops} == {None}


def test_an_older_trace_without_strides_and_values_has_no_layout_and_no_scalars() -> None:
    old = {name: CONV[name] for name in ("Input Dims", "Input type")}
    conv = read_trace([host("aten::conv2d", 0, 9, **old)], on_cuda=False).ops[0]
    assert (conv.layout, conv.scalars) == (None, ())
    assert conv.shapes == ((1, 3, 8, 8), (4, 3, 3, 3))


def test_work_that_a_trace_does_not_tell_is_taken_from_the_counted_ops() -> None:
    cat = {"Input Dims": [[[2, 3], [2, 3]], []], "Input type": ["TensorList", "Scalar"],
           "Input Strides": [[[3, 1], [3, 1]], []], "Concrete Inputs": ["", "1"]}
    counted = {("aten::cat", "other", ((2, 3), (2, 3))): OpWork(0, 0, 96)}
    events = [host("aten::cat", 0, 9, **cat)]
    assert read_trace(events, False, counted).ops[0].bytes == 96
    assert read_trace(events, False).ops[0].bytes is None
    assert read_trace(events, False).coverage == 0


def test_launches_outside_every_op_are_kept_as_such() -> None:
    events = [host("stage:encoder", 0, 50, "user_annotation"), launch(5, 10), kernel("triton_k", 5, 20, 30),
              kernel("stray", 77, 40, 45)]
    ops = read_trace(events, on_cuda=True).ops
    assert {(op.op, op.stage, op.kernels) for op in ops} == {
        ("(no op)", "encoder", ("triton_k",)), ("(no op)", "other", ("stray",)),
    }


def test_a_table_that_is_too_long_keeps_the_largest_and_sums_the_rest_by_stage() -> None:
    ops = [Op(op=f"aten::op{i}", stage="encoder" if i % 2 else "other", device_ms=float(i), launches=1, flops=10)
           for i in range(10)]
    short = limited(ops, most=6)
    assert len(short) == 6
    assert [op.op for op in short[:4]] == ["aten::op9", "aten::op8", "aten::op7", "aten::op6"]
    rest = {op.stage: op for op in short if op.op == REST_OP}
    assert rest["encoder"].device_ms == 1 + 3 + 5
    assert rest["other"].flops == 30
    assert limited(ops) == tuple(ops)


@pytest.mark.parametrize(
    ("shape", "strides", "name"),
    [
        ([2, 3, 4, 5], [60, 20, 5, 1], "contiguous"),
        ([2, 3, 4, 5], [60, 1, 15, 3], "channels_last"),
        ([2, 3], [1, 2], "strides(1,2)"),
        ([1, 3], [77, 1], "contiguous"),  # an axis of length 1 says nothing
        ([8], [0], "strides(0)"),  # expanded
        ([], [], "contiguous"),
    ],
)
def test_a_layout_is_named(shape: list[int], strides: list[int], name: str) -> None:
    assert layout_name(shape, strides) == name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void at::native::k<4, at::F<float> >(int, at::F<float>)", "at::native::k<4, at::F<float> >"),
        ("void at::(anonymous namespace)::pool<float>(float const*)", "at::(anonymous namespace)::pool<float>"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
    ],
)
def test_a_kernel_name_loses_its_argument_list_only(name: str, short: str) -> None:
    assert short_kernel_name(name) == short
    assert len(short_kernel_name("k" * 999)) == 240
