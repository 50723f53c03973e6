"""Medians and ratios of repeated timings, with intervals that claim no more than the design of the run allows.

Repetitions inside one process are not independent of each other (clocks, memory layout, caches stay), so the highest
level that repeats is resampled first: processes, then repetitions (Kalibera & Jones, "Rigorous benchmarking in
reasonable time", ISMM 2013; Hoefler & Belli, SC 2015, rules 5 to 7). Times are skewed: medians, no normality assumed.

The time of a cell is the median of its processes' medians, so that a process with more repetitions weighs no more.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Kind = Literal["within-process", "between-process"]

CONFIDENCE = 0.95
RESAMPLES = 2000
LEAST_PROCESSES = 5
"""From this many processes on both sides an interval speaks for another process, too; else for these ones only."""
LEAST_REPETITIONS = 3
"""Below this no interval is given. Under six repetitions the bootstrap covers less than 95 %: n stands beside it."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A median with its interval. `low`, `high` and `kind` are None where there are too few samples."""

    value: float
    low: float | None
    high: float | None
    kind: Kind | None
    n: int  # repetitions over all processes
    processes: int


@dataclass(frozen=True)
class RatioInterval:
    """baseline time / target time with its interval; None where a side has too few samples."""

    value: float
    low: float | None
    high: float | None
    kind: Kind | None
    n_baseline: int
    n_target: int
    processes_baseline: int
    processes_target: int


def _processes(samples_by_process: Sequence[ArrayLike]) -> list[Floats]:
    """One sorted array per process. Raises ValueError for an empty side and for times that are not above zero."""
    arrays = [np.sort(np.asarray(samples, dtype=np.float64).ravel()) for samples in samples_by_process]
    arrays = [samples for samples in arrays if samples.size]
    if not arrays:
        raise ValueError("no samples")
    if not all(np.isfinite(samples).all() and samples[0] > 0 for samples in arrays):
        raise ValueError("a time that is not a positive number")
    return arrays


def median_ms(samples_by_process: Sequence[ArrayLike]) -> float:
    """The time of a cell: the median of its processes' medians, in the unit of the samples.

    Raises ValueError where there is no sample, or a time that is not a positive number.
    """
    return float(np.median([np.median(samples) for samples in _processes(samples_by_process)]))


def _resampled_medians(ordered: Floats, size: int, generator: np.random.Generator) -> Floats:
    """`size` medians of bootstrap resamples of one sorted sample, shape (size,).

    A resample of n values is n uniform draws of ranks, so its middle order statistic is the value at the middle order
    statistic of n uniform numbers, which follows Beta(k, n + 1 - k): one draw instead of n (exact; Efron 1979 gives the
    same distribution of the bootstrap median in closed form). For even n the next order statistic follows, given
    the first one u, as 1 - (1 - u) W^(1 / (n - k)) with W uniform.
    """
    n = ordered.size
    middle = (n + 1) // 2
    first = generator.beta(middle, n + 1 - middle, size)
    lower = ordered[np.minimum((first * n).astype(np.intp), n - 1)]
    if n % 2:
        return lower
    second = 1 - (1 - first) * generator.random(size) ** (1 / (n - middle))
    return (lower + ordered[np.minimum((second * n).astype(np.intp), n - 1)]) / 2


def _bootstrap(processes: Sequence[Floats], resamples: int, between: bool, generator: np.random.Generator) -> Floats:
    """Medians of process medians of `resamples` resamples, shape (resamples,).

    `between`: processes are drawn with replacement first; else they stay, and only their repetitions are drawn.
    """
    count = len(processes)
    chosen = (
        generator.integers(0, count, (resamples, count)) if between else np.tile(np.arange(count), (resamples, 1))
    )
    medians = np.empty(chosen.shape)
    for index, ordered in enumerate(processes):
        places = chosen == index
        medians[places] = _resampled_medians(ordered, int(places.sum()), generator)
    return np.median(medians, axis=1)


def _kind(sides: Sequence[Sequence[Floats]]) -> Kind | None:
    """What an interval over these sides may claim; None: too few repetitions for any."""
    if all(len(side) >= LEAST_PROCESSES for side in sides):
        return "between-process"
    enough = all(sum(samples.size for samples in side) >= LEAST_REPETITIONS for side in sides)
    return "within-process" if enough else None


def _percentiles(values: Floats, centre: float) -> tuple[float, float]:
    """The percentile interval; it never excludes the value itself, which a skewed bootstrap can do."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return min(float(low), centre), max(float(high), centre)


def median_interval(
    samples_by_process: Sequence[ArrayLike], resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The time of a cell with its 95 % bootstrap interval, in the unit of the samples.

    Raises ValueError where there is no sample, or a time that is not a positive number.
    """
    processes = _processes(samples_by_process)
    value = median_ms(processes)
    kind = _kind([processes])
    low = high = None
    if kind:
        drawn = _bootstrap(processes, resamples, kind == "between-process", np.random.default_rng(seed))
        low, high = _percentiles(drawn, value)
    return Interval(value, low, high, kind, sum(samples.size for samples in processes), len(processes))


def log_ratio_draws(
    baseline_by_process: Sequence[ArrayLike],
    target_by_process: Sequence[ArrayLike],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Floats | None:
    """Bootstrap draws of log(baseline time / target time), shape (resamples,); None where there is no interval.

    Raises ValueError where a side has no sample, or a time that is not a positive number.
    """
    sides = _processes(baseline_by_process), _processes(target_by_process)
    kind = _kind(sides)
    if kind is None:
        return None
    generator = np.random.default_rng(seed)
    drawn = [np.log(_bootstrap(side, resamples, kind == "between-process", generator)) for side in sides]
    return drawn[0] - drawn[1]


def ratio_interval(
    baseline_by_process: Sequence[ArrayLike],
    target_by_process: Sequence[ArrayLike],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> RatioInterval:
    """Baseline time over target time, from medians, with the 95 % percentile interval of its bootstrapped logarithm.

    From LEAST_PROCESSES processes on both sides on, processes are resampled and repetitions inside them
    ("between-process"); with fewer on either side the repetitions alone ("within-process": another process may differ
    by more). Fewer than LEAST_REPETITIONS repetitions on a side: no interval.
    Raises ValueError where a side has no sample, or a time that is not a positive number.
    """
    sides = _processes(baseline_by_process), _processes(target_by_process)
    log_ratio = math.log(median_ms(sides[0])) - math.log(median_ms(sides[1]))
    kind = _kind(sides)
    low = high = None
    drawn = log_ratio_draws(baseline_by_process, target_by_process, resamples, seed)
    if drawn is not None:
        ends = _percentiles(drawn, log_ratio)
        low, high = math.exp(ends[0]), math.exp(ends[1])
    repetitions = [sum(samples.size for samples in side) for side in sides]
    return RatioInterval(
        value=math.exp(log_ratio),
        low=low,
        high=high,
        kind=kind,
        n_baseline=repetitions[0],
        n_target=repetitions[1],
        processes_baseline=len(sides[0]),
        processes_target=len(sides[1]),
    )
