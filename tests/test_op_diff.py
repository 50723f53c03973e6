"""Op diff, stage diff and the roofline under them."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.op_diff import COLUMNS, op_diff, stage_diff
from core.analysis.roofline import Ceilings, roofline, roofline_ratio, spec_ceilings, stages_from_ops
from core.gpus import catalogue

CARDS = catalogue()


def op(name: str, device_ms: float | None, stage: str = "encoder", **fields: Any) -> dict[str, Any]:
    row = {
        "op": name, "stage": stage, "shapes": "[[1,8]]", "dtypes": '["float32"]', "layout": "contiguous",
        "scalars": "[]", "calls": 1, "device_ms": device_ms, "kernels": [f"{name}_kernel"], "launches": 1,
        "flops": 0, "other_flops": 0, "bytes": 0,
    }  # fmt: skip
    return row | fields


def table(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(op("x", 1.0)))


# --- op diff


def test_the_largest_change_of_time_comes_first() -> None:
    baseline = table(op("aten::linear", 10.0, launches=2), op("aten::relu", 1.0), op("aten::bmm", 3.0))
    target = table(op("aten::relu", 4.0), op("aten::linear", 2.0), op("aten::bmm", 3.0, kernels=["other"]))
    found = op_diff(baseline, target)
    assert list(found.columns) == list(COLUMNS)
    assert found["op"].tolist() == ["aten::linear", "aten::relu", "aten::bmm"]
    assert found["lost_ms"].tolist() == [8.0, -3.0, 0.0]
    assert found["ratio"].tolist() == [5.0, 0.25, 1.0]
    assert found.loc[0, "launches_baseline"] == 2
    assert found.loc[2, "kernels_baseline"] == ["aten::bmm_kernel"]
    assert found.loc[2, "kernels_target"] == ["other"]
    assert set(found["only_in"]) == {"both"}


def test_an_operation_of_one_side_is_lost_or_gained_whole_and_has_no_ratio() -> None:
    found = op_diff(table(op("aten::bmm", 5.0)), table(op("aten::softmax", 2.0))).set_index("op")
    assert found.loc["aten::bmm", "only_in"] == "baseline"
    assert found.loc["aten::bmm", "lost_ms"] == 5.0
    assert found.loc["aten::softmax", "lost_ms"] == -2.0
    assert np.isnan(found.loc["aten::bmm", "ratio"])
    assert np.isnan(found.loc["aten::bmm", "device_ms_target"])
    assert found.loc["aten::bmm", "kernels_target"] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("stage", "transformer"), ("shapes", "[[2,8]]"), ("layout", "channels_last"), ("scalars", '["2"]')],
)
def test_a_different_key_is_another_operation(field: str, value: str) -> None:
    found = op_diff(table(op("aten::relu", 1.0)), table(op("aten::relu", 1.0, **{field: value})))
    assert sorted(found["only_in"]) == ["baseline", "target"]


def test_a_list_and_its_json_are_one_key() -> None:
    found = op_diff(
        table(op("aten::add", 1.0, shapes=[[1, 8], [8]], dtypes=("float32", "float32"), layout=None)),
        table(op("aten::add", 2.0, shapes="[[1, 8], [8]]", dtypes='["float32", "float32"]', layout=float("nan"))),
    )
    assert found["only_in"].tolist() == ["both"]
    assert found["joined_by"].tolist() == ["key"]


def test_equal_keys_of_one_run_are_summed_and_an_unknown_sum_stays_unknown() -> None:
    baseline = table(op("aten::relu", 1.0, flops=None), op("aten::relu", 2.0, flops=None, kernels=["a"]))
    found = op_diff(baseline, table(op("aten::relu", 1.5)), Ceilings(1, 1, 1, None, "test"))
    assert found.loc[0, "device_ms_baseline"] == 3.0
    assert found.loc[0, "calls_baseline"] == 2
    assert found.loc[0, "kernels_baseline"] == ["aten::relu_kernel", "a"]
    assert found.loc[0, "ratio"] == 2.0


def test_under_autocast_the_same_operation_with_other_dtypes_is_joined_and_says_so() -> None:
    baseline = table(op("aten::add", 4.0), op("aten::relu", 1.0))
    target = table(op("aten::add", 2.0, dtypes='["float16"]'), op("aten::relu", 1.0))
    found = op_diff(baseline, target).set_index("op")
    assert found.loc["aten::add", "joined_by"] == "key without dtypes"
    assert found.loc["aten::add", "only_in"] == "both"
    assert (found.loc["aten::add", "lost_ms"], found.loc["aten::add", "ratio"]) == (2.0, 2.0)
    assert found.loc["aten::add", "dtypes"] == '["float32"] / ["float16"]'
    assert found.loc["aten::add", "kernels_target"] == ["aten::add_kernel"]
    assert found.loc["aten::relu", "joined_by"] == "key"


def test_an_ambiguous_twin_without_dtypes_is_not_joined() -> None:
    target = table(op("aten::add", 2.0, dtypes='["float16"]'), op("aten::add", 2.0, dtypes='["bfloat16"]'))
    found = op_diff(table(op("aten::add", 4.0)), target)
    assert sorted(found["only_in"]) == ["baseline", "target", "target"]


def test_what_was_cut_off_has_lost_time_but_no_ratio() -> None:
    found = op_diff(table(op("(rest)", 4.0)), table(op("(rest)", 1.0)))
    assert found.loc[0, "lost_ms"] == 3.0
    assert np.isnan(found.loc[0, "ratio"])


def test_an_untimed_operation_has_no_lost_time_and_comes_last() -> None:
    found = op_diff(table(op("aten::a", None), op("aten::b", 2.0)), table(op("aten::a", 1.0), op("aten::b", 1.0)))
    assert found["op"].tolist() == ["aten::b", "aten::a"]
    assert np.isnan(found.loc[1, "lost_ms"])


def test_each_operation_stands_beside_its_roofline_and_its_norm() -> None:
    work = {"shapes": "[[512,512],[512,512]]", "dtypes": '["float32","float32"]', "flops": 8.1e9, "bytes": 3.2e6}
    found = op_diff(
        table(op("aten::linear", 2.0, **work)),
        table(op("aten::linear", 0.5, **work)),
        spec_ceilings(CARDS["t4"], "fp32"),
        spec_ceilings(CARDS["a100-sxm4-40gb"], "fp32"),
        "t4",
        "a100-sxm4-40gb",
        "fp32",
    )
    assert found.loc[0, "floor_ms_baseline"] == pytest.approx(1.0)  # 8.1 GFLOP at 8.1 TFLOP/s
    assert found.loc[0, "bound_by_baseline"] == "compute"
    assert found.loc[0, "roofline_ratio"] == pytest.approx(19.5 / 8.1)
    assert found.loc[0, "op_class"] == "gemm"
    assert found.loc[0, "norm_median"] == pytest.approx(4.21, abs=0.01)
    assert found.loc[0, "norm_max"] == pytest.approx(15.16, abs=0.01)
    linear = table(op("aten::linear", 2.0))
    other = op_diff(linear, linear, None, None, "t4", "h200-sxm-141gb", "fp32")
    assert np.isnan(other.loc[0, "norm_median"])


def test_empty_op_tables_give_an_empty_diff() -> None:
    assert op_diff(table(), table()).empty
    assert op_diff(table(op("aten::relu", 1.0)), table())["only_in"].tolist() == ["baseline"]


def test_the_tables_that_go_in_stay_as_they_are() -> None:
    baseline = table(op("aten::relu", 1.0))
    before = baseline.copy(deep=True)
    op_diff(baseline, baseline)
    pd.testing.assert_frame_equal(baseline, before)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y"]), st.floats(0, 10)), max_size=12),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y"]), st.floats(0, 10)), max_size=12),
)
def test_lost_times_sum_to_the_difference_of_the_totals(left: list[Any], right: list[Any]) -> None:
    sides = [table(*(op(name, ms, stage) for name, stage, ms in rows)) for rows in (left, right)]
    found = op_diff(*sides)
    difference = sum(ms for *_, ms in left) - sum(ms for *_, ms in right)
    assert found["lost_ms"].sum() == pytest.approx(difference, abs=1e-9)


def test_a_run_against_itself_loses_nothing() -> None:
    run = table(op("aten::relu", 1.0), op("aten::bmm", 3.0, "transformer"))
    found = op_diff(run, run)
    assert found["lost_ms"].tolist() == [0, 0]
    assert found["ratio"].tolist() == [1, 1]


def test_two_thousand_rows_are_quick_and_json_ready() -> None:
    run = table(*(op("aten::relu", 1.0, shapes=json.dumps([[i, 8]])) for i in range(2000)))
    assert len(op_diff(run, run, spec_ceilings(CARDS["t4"], "fp32"), spec_ceilings(CARDS["t4"], "fp32"))) == 2000


# --- stage diff


def test_stages_keep_the_order_of_the_pipeline_and_their_losses_sum() -> None:
    baseline = pd.DataFrame({"stage": ["encoder", "correlation", "other"], "time_ms": [10.0, 30.0, 1.0]})
    target = pd.DataFrame({"stage": ["encoder", "correlation", "decoder"], "time_ms": [5.0, 3.0, 2.0]})
    found = stage_diff(baseline, target)
    assert found["stage"].tolist() == ["encoder", "correlation", "other", "decoder"]
    assert found["lost_ms"].tolist() == [5.0, 27.0, 1.0, -2.0]
    assert found["ratio"].tolist()[:2] == [2.0, 10.0]
    assert found["lost_share"].sum() == pytest.approx(1)
    assert found["only_in"].tolist() == ["both", "both", "baseline", "target"]
    assert found["roofline_ratio"].isna().all()


def test_a_stage_that_stands_twice_is_refused() -> None:
    twice = pd.DataFrame({"stage": ["encoder", "encoder"], "time_ms": [1.0, 2.0]})
    with pytest.raises(ValueError, match="encoder"):
        stage_diff(twice, twice)


# --- roofline


def test_the_floor_is_the_largest_of_compute_bandwidth_and_launches() -> None:
    work = pd.DataFrame(
        {
            "op": ["aten::linear", "aten::add", "aten::relu"],
            "flops": [8.1e9, 0, 0],
            "bytes": [32e6, 640e6, 3.2e3],
            "launches": [1, 1, 2],
        }
    )
    found = roofline(work, spec_ceilings(CARDS["t4"], "fp32", launch_us=5))
    # 8.1 GFLOP / 8.1 TFLOP/s = 1 ms; 640 MB / 320 GB/s = 2 ms; 2 launches x 5 us = 10 us
    assert found["floor_ms"].tolist() == pytest.approx([1.0, 2.0, 0.01])
    assert found["bound_by"].tolist() == ["compute", "bandwidth", "launch"]


def test_in_default_precision_convolutions_may_use_tf32_and_products_may_not() -> None:
    work = pd.DataFrame({"op": ["aten::conv2d", "aten::linear"], "flops": [156e9, 19.5e9], "bytes": [0, 0]})
    found = roofline(work, spec_ceilings(CARDS["a100-sxm4-40gb"], "default"))
    assert found["floor_ms"].tolist() == pytest.approx([1.0, 1.0])
    stages = roofline(work.drop(columns="op"), spec_ceilings(CARDS["a100-sxm4-40gb"], "default"))
    assert stages["floor_ms"].tolist() == pytest.approx([1.0, 0.125])  # a stage may be all convolution: a lower bound


def test_what_is_not_known_is_left_out_of_the_floor() -> None:
    ops = ["aten::linear", "aten::view"]
    work = pd.DataFrame({"op": ops, "flops": [8.1e9, 0], "bytes": [None, 0], "launches": [1, 0]})
    found = roofline(work, spec_ceilings(CARDS["t4"], "fp32"))
    assert found["floor_ms"].iloc[0] == pytest.approx(1.0)
    assert np.isnan(found["launch_ms"].iloc[0])
    assert np.isnan(found["floor_ms"].iloc[1])
    assert found["bound_by"].iloc[1] is None
    nothing = roofline(work, spec_ceilings(None, "fp32"))
    assert nothing["floor_ms"].isna().all()


def test_stage_floors_are_sums_over_their_operations() -> None:
    work = pd.DataFrame(
        {"op": ["aten::linear", "aten::add"], "stage": ["a", "a"], "flops": [8.1e9, 0], "bytes": [0, 640e6]}
    )
    floors = roofline(work, spec_ceilings(CARDS["t4"], "fp32"))
    stages = stages_from_ops(floors)
    assert stages.to_dict("records") == [{"stage": "a", "floor_ms": pytest.approx(3.0), "bound_by": "bandwidth"}]
    faster = roofline(work, spec_ceilings(CARDS["a100-sxm4-40gb"], "fp32"))
    expected = 3.0 / (8.1 / 19.5 + 640 / 1555)
    assert roofline_ratio(floors, faster) == pytest.approx(expected)
    assert roofline_ratio(floors, floors.head(0)) is None
