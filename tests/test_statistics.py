"""Medians and ratios with intervals."""
from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.statistics import (
    _resampled_medians,
    median_interval,
    median_ms,
    ratio_interval,
)

TIMES = st.lists(st.floats(0.1, 100), min_size=3, max_size=12)


def processes(
    count: int, repetitions: int, centre: float, spread: float, between: float, seed: int
) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    centres = centre * np.exp(between * generator.standard_normal(count))
    return [c * np.exp(spread * generator.standard_normal(repetitions)) for c in centres]


def test_the_time_of_a_cell_is_the_median_of_its_processes_medians() -> None:
    assert median_ms([[1, 2, 3]]) == 2
    assert median_ms([[1, 2, 3], [10, 10, 10, 10, 10], [4]]) == 4  # medians 2, 10, 4: many repetitions weigh no more


def test_the_ratio_is_that_of_the_medians() -> None:
    found = ratio_interval([[10, 10, 11]], [[2, 2, 2]])
    assert found.value == pytest.approx(5)
    assert (found.n_baseline, found.n_target, found.processes_baseline, found.processes_target) == (3, 3, 1, 1)


def test_equal_samples_give_an_interval_of_no_width() -> None:
    found = ratio_interval([[8.0] * 5], [[2.0] * 5])
    assert (found.low, found.high) == pytest.approx((4, 4))


@pytest.mark.parametrize(
    ("baseline", "target", "kind"),
    [(5, 5, "between-process"), (4, 9, "within-process"), (1, 1, "within-process")],
)
def test_the_interval_says_which_level_it_repeats(baseline: int, target: int, kind: str) -> None:
    found = ratio_interval(processes(baseline, 10, 5, 0.01, 0, 1), processes(target, 10, 1, 0.01, 0, 2))
    assert found.kind == kind
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high


def test_too_few_repetitions_have_no_interval() -> None:
    found = ratio_interval([[1.0, 1.1]], [[2.0, 2.0, 2.0]])
    assert (found.low, found.high, found.kind) == (None, None, None)
    assert median_interval([[1.0]]).low is None


def test_processes_that_differ_widen_the_interval_only_when_they_are_resampled() -> None:
    # repetitions agree within 0.1 %, processes differ by 5 %
    noisy, quiet = processes(8, 20, 10, 0.001, 0.05, 3), processes(8, 20, 1, 0.001, 0.05, 4)
    between, within = ratio_interval(noisy, quiet), ratio_interval(noisy[:4], quiet[:4])
    assert (between.high or 0) / (between.low or 1) > 1.02
    assert (within.high or 0) / (within.low or 1) < 1.005


def test_a_seed_makes_the_interval_reproducible() -> None:
    sides = processes(5, 10, 5, 0.1, 0.1, 1), processes(5, 10, 1, 0.1, 0.1, 2)
    assert ratio_interval(*sides) == ratio_interval(*sides)
    assert ratio_interval(*sides, seed=1) != ratio_interval(*sides)


@given(TIMES, TIMES)
@settings(max_examples=50, deadline=None)
def test_swapping_the_sides_inverts_the_ratio(baseline: list[float], target: list[float]) -> None:
    there, back = ratio_interval([baseline], [target], 4000), ratio_interval([target], [baseline], 4000)
    assert there.value == pytest.approx(1 / back.value)
    assert min(baseline) / max(target) * 0.999 <= (there.low or 0) <= there.value <= (there.high or 0)
    assert (there.high or 0) <= max(baseline) / min(target) * 1.001


@given(TIMES)
@settings(max_examples=50, deadline=None)
def test_a_run_against_itself_gives_one_inside_its_interval(samples: list[float]) -> None:
    found = ratio_interval([samples], [samples])
    assert found.value == pytest.approx(1)
    assert (found.low or 0) <= 1 + 1e-12
    assert (found.high or 0) >= 1 - 1e-12


@pytest.mark.parametrize("n", [3, 4, 7, 10])
def test_one_beta_draw_gives_the_distribution_of_a_resampled_median(n: int) -> None:
    ordered = np.arange(1.0, n + 1)
    generator = np.random.default_rng(0)
    fast = _resampled_medians(ordered, 40_000, generator)
    drawn = np.median(ordered[generator.integers(0, n, (40_000, n))], axis=1)
    values = np.unique(np.concatenate([fast, drawn]))
    share = [np.mean(fast[:, None] <= values, axis=0), np.mean(drawn[:, None] <= values, axis=0)]
    assert np.abs(share[0] - share[1]).max() < 0.012  # 40,000 draws: standard error of a difference below 0.0036


def test_the_between_process_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(200):
        sides = processes(10, 10, 3, 0.02, 0.03, 2 * seed + 100), processes(10, 10, 1, 0.02, 0.03, 2 * seed + 101)
        found = ratio_interval(*sides, resamples=400, seed=seed)
        hits += (found.low or 9) <= 3 <= (found.high or 0)
    assert 0.88 <= hits / 200 <= 1


def test_five_processes_of_fifty_repetitions_take_well_under_50_ms() -> None:
    sides = processes(5, 50, 5, 0.1, 0.1, 1), processes(5, 50, 1, 0.1, 0.1, 2)
    ratio_interval(*sides)
    started = time.perf_counter()
    for _ in range(10):
        ratio_interval(*sides)
    assert (time.perf_counter() - started) / 10 < 0.2  # measured: 3 ms; wide, since the machine may be busy


@pytest.mark.parametrize("bad", [[], [[]], [[1.0, 0.0]], [[-1.0, 2.0]], [[float("nan"), 1.0]], [[float("inf")]]])
def test_times_that_are_none_are_refused(bad: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"samples|positive"):
        ratio_interval(bad, [[1.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match=r"samples|positive"):
        median_ms(bad)
