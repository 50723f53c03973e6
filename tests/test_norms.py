"""Healthy ratios of the same operations on the same pair of cards."""
from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.make_norms import CLASS_OF_OP, norm_table
from core.analysis.norms import OP_CLASSES, _table, histogram, norm, op_class, workload_norm


def test_the_norm_of_the_founding_pair() -> None:
    found = norm("t4", "a100-sxm4-40gb")
    assert found is not None
    assert found.n == 50282
    assert found.median == pytest.approx(2.48, abs=0.01)
    assert found.max == pytest.approx(15.16, abs=0.01)
    assert found.share_above_10 == pytest.approx(0.00066, abs=1e-5)  # 99.9 % lie below 10
    assert found.low < found.median < found.high < 10 < found.max


def test_a_whole_workload_gets_all_op_classes_unweighted_and_the_boards_by_name() -> None:
    found = norm("t4", "a100-sxm4-40gb")
    assert found is not None
    assert found.source == (
        "all FP32 op classes, unweighted, Tesla T4 against A100 PCIe 40GB (convolution: A100 PCIe 80GB); "
        "standing in for the A100 SXM4 40GB, the same chip; torch 2.1, TF32 off, sitar-lab/NeuSight"
    )
    own = norm("t4", "a100-pcie-40gb", "gemm")
    assert own is not None
    assert own.source == "FP32 gemm, Tesla T4 against A100 PCIe 40GB; torch 2.1, TF32 off, sitar-lab/NeuSight"


def test_a_board_with_other_memory_says_so() -> None:
    found = norm("t4", "a100-sxm4-80gb")
    assert found is not None
    assert "standing in for the A100 SXM4 80GB, the same chip with 2039 instead of 1555 GB/s" in found.source


def test_convolution_on_an_a100_was_measured_on_the_80_gb_pcie_board() -> None:
    own = norm("t4", "a100-pcie-80gb", "conv3x3")
    assert own is not None
    assert "standing in" not in own.source
    other = norm("t4", "a100-pcie-40gb", "conv3x3")
    assert other is not None
    assert "standing in for the A100 PCIe 40GB" in other.source


@pytest.mark.parametrize("precision", ["tf32", "default", "fp16", "bf16", "fp64", "int8", "fp8"])
def test_another_precision_has_no_norm(precision: str) -> None:
    assert norm("t4", "a100-sxm4-40gb", precision=precision) is None


def test_an_unstated_precision_is_answered() -> None:
    assert norm("t4", "a100-sxm4-40gb", precision=None) == norm("t4", "a100-sxm4-40gb")


@pytest.mark.parametrize(
    ("baseline", "target", "name"),
    [
        ("t4", "h200-sxm-141gb", None),  # no data
        ("rtx-2080", "a100-sxm4-40gb", None),  # the T4's chip, another product
        (None, "t4", None),
        ("cpu", "t4", None),
        ("t4", "t4", None),
        ("a100-pcie-40gb", "a100-sxm4-40gb", None),  # one chip
        ("t4", "a100-sxm4-40gb", "grid_sample"),
    ],
)
def test_a_norm_is_never_borrowed(baseline: str | None, target: str | None, name: str | None) -> None:
    assert norm(baseline, target, name) is None


def test_both_directions_are_there_and_mirror_each_other() -> None:
    for name in (None, *OP_CLASSES):
        there, back = norm("t4", "v100-sxm2-16gb", name), norm("v100-sxm2-16gb", "t4", name)
        assert there is not None
        assert back is not None
        assert there.n == back.n
        assert there.median == pytest.approx(1 / back.median, rel=1e-3)
        assert there.low == pytest.approx(1 / back.high, rel=0.02)
        assert there.min == pytest.approx(1 / back.max, rel=1e-3)


def test_the_table_is_complete_and_ordered() -> None:
    table = _table()
    assert len(table) == 5 * 4 * (1 + len(OP_CLASSES))
    columns = ["min", "p0_5", "p5", "p25", "p50", "p75", "p95", "p99_5", "max"]
    values = [[float(row[column]) for column in columns] for row in table.values()]
    assert (np.diff(values, axis=1) >= 0).all()


def test_the_histogram_counts_every_operation_and_holds_the_extremes() -> None:
    found = norm("t4", "a100-sxm4-40gb")
    bins = histogram("t4", "a100-sxm4-40gb")
    assert found is not None
    assert bins["count"].sum() == found.n
    assert bins["low"].iloc[-1] <= found.max <= bins["high"].iloc[-1]
    assert bins["high"].iloc[0] / bins["low"].iloc[0] == pytest.approx(10 ** (1 / 20))
    assert histogram("t4", "h200-sxm-141gb").empty


def test_the_table_is_made_by_joining_equal_shapes() -> None:
    def row(gpu: str, size: int, latency_ms: float) -> dict[str, object]:
        empty = dict.fromkeys(("m", "n", "k", "cin", "cout", "kernel", "size", "stride", "padding"), float("nan"))
        return {"op": "add", "gpu": gpu, "batch": 1, **empty, "h": size, "latency_ms": latency_ms}

    timings = []
    for gpu in ("Tesla P4", "Tesla P100-PCIE-16GB", "Tesla V100-PCIE-32GB", "NVIDIA A100-PCIE-40GB"):
        timings += [row(gpu, 1, 1.0), row(gpu, 2, 1.0)]
    # shape 1: twice, 3 and 5 ms, median 4; shape 2: 12 ms; shape 3: on the T4 only
    timings += [row("Tesla T4", 1, 3.0), row("Tesla T4", 1, 5.0), row("Tesla T4", 2, 12.0), row("Tesla T4", 3, 9.0)]
    for name in CLASS_OF_OP:  # every class needs one shape on every chip
        for gpu in ("Tesla P4", "Tesla P100-PCIE-16GB", "Tesla V100-PCIE-32GB", "NVIDIA A100-PCIE-40GB", "Tesla T4"):
            timings.append(row(gpu, 9, 1.0) | {"op": name})
    table = norm_table(pd.DataFrame(timings)).set_index(["baseline", "target", "op_class"])
    elementwise = table.loc[("t4", "a100", "elementwise")]
    assert elementwise["n"] == 2 + 11
    assert elementwise["max"] == 12
    assert table.loc[("a100", "t4", "elementwise"), "p0_5"] < 1 / 4
    assert table.loc[("t4", "a100", "gemm"), "n"] == 1


# --- which class covers an operation


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "scalars", "name"),
    [
        ("aten::linear", "[[8,16],[32,16],[32]]", '["float","float","float"]', None, "gemm"),
        ("aten::addmm", None, None, None, "gemm"),
        ("aten::matmul", [[4, 8, 16], [4, 16, 8]], ["float32", "float32"], None, "bmm"),
        ("aten::matmul", [[4, 8, 16], [16, 8]], None, None, "gemm"),
        ("aten::matmul", None, None, None, None),
        ("aten::bmm", None, ["torch.float32"], None, "bmm"),
        ("aten::conv2d", [[1, 64, 64, 64], [128, 64, 3, 3]], ["float", "float"], None, "conv3x3"),
        ("aten::conv2d", [[1, 64, 64, 64], [128, 64, 3, 3]], None, ["[1, 1]", "[1, 1]", "[1, 1]", "1"], "conv3x3"),
        ("aten::conv2d", [[1, 64, 64, 64], [128, 64, 3, 3]], None, '["None", "[2, 2]", "[1, 1]", "[1, 1]", "1"]', None),
        ("aten::conv2d", [[1, 64, 64, 64], [128, 64, 1, 1]], None, None, None),
        ("aten::softmax", None, ["float", "Scalar", ""], None, "softmax"),
        ("aten::layer_norm", None, None, None, "layer_norm"),
        ("aten::add_", None, ["float", "float"], None, "elementwise"),
        ("aten::add", None, ["c10::Half", "float"], None, None),
        ("aten::sigmoid", None, None, None, None),
        ("aten::grid_sampler_2d", None, None, None, None),
        ("aten::scaled_dot_product_attention", None, None, None, None),
    ],
)
def test_only_what_was_sampled_has_a_class(
    op: str, shapes: object, dtypes: object, scalars: object, name: str | None
) -> None:
    assert op_class(op, shapes, dtypes, scalars) == name


# --- a measured workload


def test_a_workload_of_one_class_has_that_class_norm() -> None:
    found = workload_norm(pd.Series({"gemm": 12.0}), "t4", "a100-pcie-40gb")
    own = norm("t4", "a100-pcie-40gb", "gemm")
    assert found is not None
    assert own is not None
    assert found.median == pytest.approx(own.median, rel=0.05)  # from bins of a twentieth of a decade
    assert (found.max, found.n) == (own.max, own.n)


def test_a_workload_norm_is_weighted_by_time_and_says_what_it_covers() -> None:
    times = pd.Series({"gemm": 60.0, "conv3x3": 20.0, None: 20.0})
    found = workload_norm(times, "t4", "a100-pcie-40gb")
    assert found is not None
    assert found.source.startswith("FP32 op classes weighted by time (80% of it covered)")
    gemm, conv = norm("t4", "a100-pcie-40gb", "gemm"), norm("t4", "a100-pcie-40gb", "conv3x3")
    assert gemm is not None
    assert conv is not None
    assert conv.median < found.median < gemm.median
    assert found.low < found.median < found.high <= found.max


def test_a_workload_mostly_of_unsampled_operations_has_no_norm() -> None:
    assert workload_norm(pd.Series({"gemm": 40.0, None: 60.0}), "t4", "a100-pcie-40gb") is None
    assert workload_norm(pd.Series({"gemm": 40.0}), "t4", "a100-pcie-40gb", "tf32") is None
    assert workload_norm(pd.Series(dtype=float), "t4", "a100-pcie-40gb") is None
