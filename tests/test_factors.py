"""Factors: Shapley values known by hand, the exact product, and what is not assessed."""
from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.factors import PLAYERS, Factors, Machine, Value, factors, shapley_logs
from core.analysis.host import host_interval_ms


def machine(**numbers: float) -> Machine:
    """1 TFLOP/s, 1000 GB/s, full clock, no gain, no stall; nothing known of cache and host."""
    base = {"fp32_tflops": 1.0, "matmul_gain": 1.0, "convolution_gain": 1.0, "clock_share": 1.0,
            "bandwidth_gb_s": 1000.0, "stall_ms": 0.0}
    return Machine(**{name: Value(value, "test", "observed") for name, value in {**base, **numbers}.items()})


def ops(*rows: dict[str, Any]) -> pd.DataFrame:
    """Operations: `flops`, `bytes`, `launches`, `ms` are one number for both sides or a pair; 0 where not given."""
    table = []
    for row in rows:
        made: dict[str, Any] = {"op": row.get("op", "aten::mm"), "only_in": row.get("only_in", "both")}
        for name, column in (("flops", "flops"), ("bytes", "bytes"), ("launches", "launches"), ("ms", "device_ms"),
                             ("calls", "calls")):
            value = row.get(name, math.nan if name == "ms" else 1 if name == "calls" else 0)
            made[f"{column}_baseline"], made[f"{column}_target"] = value if isinstance(value, tuple) else (value, value)
        kernels = row.get("kernels", (["k"], ["k"]))
        made["kernels_baseline"], made["kernels_target"] = kernels
        table.append(made)
    return pd.DataFrame(table)


def by_name(found: Factors) -> dict[str, float]:
    return {factor.name: factor.ratio for factor in found.factors}


COMPUTE, MEMORY = {"flops": 1e9}, {"bytes": 1e9}  # 1 ms of arithmetic, 1 ms of traffic on `machine()`


def test_what_only_computes_owes_its_gap_to_compute_alone() -> None:
    found = factors(ops(COMPUTE), machine(), machine(fp32_tflops=4.0, bandwidth_gb_s=9000.0), 4.0)
    assert by_name(found)["compute"] == pytest.approx(4)
    assert by_name(found)["bandwidth"] == pytest.approx(1)
    assert found.residual == pytest.approx(1)


def test_two_factors_of_one_rate_multiply() -> None:
    found = factors(ops(COMPUTE), machine(clock_share=0.5), machine(fp32_tflops=3.0, matmul_gain=8.0), 48.0)
    assert by_name(found) == pytest.approx(
        {"precision": 8, "compute": 3, "clocks": 2, "bandwidth": 1, "memory": 1})


def test_a_convolution_and_a_product_have_gains_of_their_own() -> None:
    table = ops({"flops": 1e9, "op": "aten::conv2d"}, {"flops": 1e9})
    found = factors(table, machine(), machine(convolution_gain=2.0), 2.0)
    assert by_name(found)["precision"] == pytest.approx(2 / 1.5)  # 2 ms -> 1 + 0.5 ms


def test_the_shapley_value_of_a_mixed_work_is_the_mean_over_both_orders() -> None:
    # 1 ms of arithmetic and 1 ms of traffic; compute x2 and bandwidth x4: 2.0 -> 1.5 -> 0.75, or 2.0 -> 1.25 -> 0.75
    found = factors(ops(COMPUTE, MEMORY), machine(), machine(fp32_tflops=2.0, bandwidth_gb_s=4000.0), 2 / 0.75)
    compute = (math.log(2 / 1.5) + math.log(1.25 / 0.75)) / 2
    bandwidth = (math.log(2 / 1.25) + math.log(1.5 / 0.75)) / 2
    assert by_name(found)["compute"] == pytest.approx(math.exp(compute))
    assert by_name(found)["bandwidth"] == pytest.approx(math.exp(bandwidth))
    assert found.residual == pytest.approx(1)


def test_a_bound_that_does_not_bind_moves_nothing() -> None:
    both = {"flops": 1e9, "bytes": 1e8}  # 1 ms of arithmetic hides 0.1 ms of traffic
    found = factors(ops(both), machine(), machine(bandwidth_gb_s=500.0), 1.0)
    assert by_name(found)["bandwidth"] == 1


def test_the_host_holds_up_small_operations() -> None:
    # 1000 launches of 5 us against 2.5 us; the kernels take 1 ms
    table = ops({**COMPUTE, "launches": 1000, "calls": 1000})
    found = factors(table, machine(launch_us=5.0), machine(launch_us=2.5), 2.0)
    assert by_name(found)["host"] == pytest.approx(2)
    assert by_name(found)["compute"] == 1


def test_many_kernels_of_one_call_cost_the_host_one_call() -> None:
    # a library that launches 1000 kernels in its one call does so without an operator's cost
    found = factors(ops({**COMPUTE, "launches": 1000, "calls": 1}), machine(launch_us=5.0), machine(launch_us=2.5), 1.0)
    assert by_name(found)["host"] == 1


def test_the_host_interval_explains_what_the_kernels_leave() -> None:
    # 2 ms and 1 ms of kernels in 30 launches, 5 ms of wall time: 10 launches hide behind 2 ms, 20 of 0.15 ms do not
    interval_ms = host_interval_ms(np.array([2.0, 1.0]), np.array([10.0, 20.0]), 5.0)
    assert interval_ms == pytest.approx(0.15)
    assert host_interval_ms(np.array([2.0, 1.0]), np.array([10.0, 20.0]), 3.0) is None


def test_what_fits_into_the_cache_works_at_its_rate() -> None:
    small, large = {"bytes": 1e6}, {"bytes": 1e9}
    base, target = machine(cache_bytes=1e5, cache_gb_s=4000.0), machine(cache_bytes=1e7, cache_gb_s=4000.0)
    assert by_name(factors(ops(small), base, target, 4.0))["cache"] == pytest.approx(4)
    assert by_name(factors(ops(large), base, target, 4.0))["cache"] == pytest.approx(1)


def test_stalls_of_the_allocator_are_the_memory_factor() -> None:
    found = factors(ops(COMPUTE), machine(stall_ms=3.0), machine(), 4.0)
    assert by_name(found)["memory"] == pytest.approx(4)


def test_another_kernel_is_the_library_and_not_the_hardware() -> None:
    table = ops({"flops": 1e9, "ms": (10.0, 2.0), "kernels": (["fft"], ["gemm"])})
    found = factors(table, machine(), machine(), 5.0)
    assert by_name(found)["library"] == pytest.approx(5)
    assert by_name(found)["compute"] == 1
    assert found.residual == pytest.approx(1)


def test_precision_and_library_share_a_gap_by_what_each_explains() -> None:
    # the rate allows 4x; the kernel reaches a quarter of it in FP32 and all of it in TF32
    table = ops({"flops": 1e9, "ms": (4.0, 0.25), "kernels": (["fft"], ["tf32"])})
    found = factors(table, machine(), machine(matmul_gain=4.0), 16.0)
    assert by_name(found)["precision"] == pytest.approx(4)
    assert by_name(found)["library"] == pytest.approx(4)


def test_an_operation_of_one_side_belongs_to_the_library() -> None:
    table = ops({**COMPUTE, "ms": 1.0}, {"bytes": 1e6, "ms": (math.nan, 1.0), "only_in": "target"})
    assert by_name(factors(table, machine(), machine(), 0.5))["library"] == pytest.approx(0.5)


def test_a_lone_limit_owns_what_the_same_kernels_lose() -> None:
    # 33 of 132 SMs: arithmetic takes 4 times as long, and the same copy kernel reaches half of the bandwidth
    limited = machine(fp32_tflops=0.25)
    table = ops({"flops": 1e9, "ms": (4.0, 1.0)}, {"bytes": 1e9, "ms": (2.0, 1.0)})
    charged = by_name(factors(table, limited, machine(), 3.0, limit="compute"))
    assert charged["compute"] == pytest.approx(3)
    assert charged["library"] == 1
    uncharged = by_name(factors(table, limited, machine(), 3.0))
    assert uncharged["library"] > 1.1


def test_stages_without_operations_give_no_library_factor() -> None:
    stages = ops(COMPUTE).drop(columns="op")
    found = factors(stages, machine(), machine(fp32_tflops=2.0), 3.0)
    assert by_name(found)["compute"] == pytest.approx(2)
    assert found.residual == pytest.approx(1.5)
    assert {item.name for item in found.not_assessed} == {"cache", "host", "library"}
    assert found.modelled_by == "stages"


def test_a_player_that_one_side_does_not_know_is_not_assessed_and_never_one() -> None:
    blind = replace(machine(), clock_share=None)
    found = factors(ops(COMPUTE), blind, machine(clock_share=0.5), 1.0)
    assert "clocks" not in by_name(found)
    reasons = {item.name: item.reason for item in found.not_assessed}
    assert reasons["clocks"].startswith("baseline: no clock was recorded")
    assert found.residual == pytest.approx(1)


def test_nothing_known_leaves_everything_in_the_residual() -> None:
    found = factors(ops(COMPUTE), Machine(), Machine(), 7.0, np.log([6.0, 7.0, 8.0]))
    assert (found.factors, found.residual, found.modelled_by) == ((), 7.0, None)
    assert {item.name for item in found.not_assessed} == set(PLAYERS)
    assert (found.residual_low or 9) < 7 < (found.residual_high or 0)


def test_repeated_readings_give_an_interval_that_holds_the_factor() -> None:
    shaky = replace(machine(), clock_share=Value(0.5, "test", "observed", (0.4, 0.5, 0.6, 0.5)))
    found = {f.name: f for f in factors(ops(COMPUTE), shaky, machine(), 2.0).factors}["clocks"]
    assert found.ratio == pytest.approx(2)
    assert (found.low or 9) < 2 < (found.high or 0)
    steady = {f.name: f for f in factors(ops(COMPUTE), machine(), machine(fp32_tflops=2.0), 2.0).factors}["compute"]
    assert (steady.low, steady.high) == (None, None)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_that_is_none_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        factors(ops(COMPUTE), machine(), machine(), ratio)


def test_shapley_of_an_additive_game_is_each_players_own_part() -> None:
    parts = np.array([0.5, -0.25, 1.0])
    assert shapley_logs(lambda sets: -(sets @ parts), [0, 1, 2], 3) == pytest.approx(parts)


# --- laws

positive = st.floats(0.05, 50.0)
machines = st.builds(
    machine, fp32_tflops=positive, matmul_gain=positive, convolution_gain=positive, clock_share=st.floats(0.1, 1.0),
    bandwidth_gb_s=st.floats(50.0, 5000.0), stall_ms=st.floats(0.0, 5.0), launch_us=st.floats(1.0, 30.0),
)
pairs = st.tuples(positive, positive)
works = st.lists(
    st.fixed_dictionaries({
        "flops": st.integers(0, 10**9), "bytes": st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)),
        "launches": st.tuples(st.integers(0, 100), st.integers(0, 100)), "ms": pairs,
        "op": st.sampled_from(["aten::conv2d", "aten::mm"]),
    }),
    min_size=1, max_size=4,
).map(lambda rows: ops(*rows))


@settings(max_examples=60, deadline=None)
@given(works, machines, machines, positive)
def test_factors_times_residual_is_the_measured_ratio(
    table: pd.DataFrame, base: Machine, target: Machine, ratio: float
) -> None:
    found = factors(table, base, target, ratio)
    assert math.prod(by_name(found).values()) * found.residual == pytest.approx(ratio, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(works, machines, machines, positive)
def test_swapping_the_sides_inverts_every_factor(
    table: pd.DataFrame, base: Machine, target: Machine, ratio: float
) -> None:
    def other(name: str) -> str:
        for end, swapped in (("_baseline", "_target"), ("_target", "_baseline")):
            if name.endswith(end):
                return name.removesuffix(end) + swapped
        return name

    there, back = factors(table, base, target, ratio), factors(table.rename(columns=other), target, base, 1 / ratio)
    for name, value in by_name(there).items():
        assert by_name(back)[name] == pytest.approx(1 / value, rel=1e-9)
    assert back.residual == pytest.approx(1 / there.residual, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(works, machines)
def test_a_side_against_itself_has_factors_of_one(table: pd.DataFrame, own: Machine) -> None:
    for name in ("bytes", "launches", "device_ms"):
        table[f"{name}_target"] = table[f"{name}_baseline"]
    found = factors(table, own, own, 1.0)
    assert set(by_name(found).values()) == {1.0}
    assert found.residual == 1.0
