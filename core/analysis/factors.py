"""A measured ratio as a product of factors: exact Shapley values on the log time of a small model, and a residual.

    T = sum over operations of max(launches x launch interval, time of the kernels) + recorded stall time
    time of the kernels = max(flops / (FP32 rate x gain of the precision x clock share), bytes / bandwidth) / efficiency

The players swap their part of the model from the baseline's side to the target's: precision (gain over FP32, bytes of
the dtypes), compute (SMs x FP32 rate at the maximum clock), clocks (recorded / maximum), bandwidth, cache (operations
that fit into the L2 cache work at its rate), host (launch interval), library (efficiency and launches: which kernels
ran; only with operations timed on both sides), memory (measured stall time of the allocator). The Shapley value of a
player is its change of log T averaged over all orders, so that no order is privileged and the product is exact:

    product of factors x residual = measured ratio

A player that one side does not know is "not assessed": it stays in the residual and is never 1.0.
Source of the averaging: Shapley, "A value for n-person games", 1953; of the model: core.analysis.roofline.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import factorial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from core.analysis.host import host_launches

PLAYERS = ("precision", "compute", "clocks", "bandwidth", "cache", "host", "library", "memory")
DRAWS = 200
_SAME = 1e-12
_LEAST_MS = 1e-12  # a mixed coalition may hold no work at all; its log stays finite and cancels in the product

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Value:
    """One number of the model on one side. `samples`: repeated readings of it, for the interval; empty: none."""

    value: float
    source: str  # "data sheet", "measured ceiling of this board", ...
    evidence: str = "possible"  # "observed" where it was read or measured on this board, "possible" from a data sheet
    samples: tuple[float, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What the model knows of one side. None: not known."""

    fp32_tflops: Value | None = None  # of the SMs in use, at the maximum clock
    matmul_gain: Value | None = None  # rate of the executed precision over FP32, for matrix products
    convolution_gain: Value | None = None  # the same for convolutions
    clock_share: Value | None = None  # recorded clock / maximum clock
    bandwidth_gb_s: Value | None = None  # of device memory
    cache_bytes: Value | None = None
    cache_gb_s: Value | None = None
    launch_us: Value | None = None  # time between two launches of this host
    stall_ms: Value | None = None  # of one forward pass


_PARTS: dict[str, tuple[str, ...]] = {
    "precision": ("matmul_gain", "convolution_gain"),
    "compute": ("fp32_tflops",),
    "clocks": ("clock_share",),
    "bandwidth": ("bandwidth_gb_s",),
    "cache": ("cache_bytes", "cache_gb_s"),
    "host": ("launch_us",),
    "memory": ("stall_ms",),
}
"""The fields of `Machine` that a player swaps; `library` swaps measured times instead."""

_MISSING = {
    "precision": "the rate of the executed precision is not known",
    "compute": "no data sheet and no measured product gives its FP32 rate",
    "clocks": "no clock was recorded while it was timed, or its maximum is not known",
    "bandwidth": "neither data sheet nor measurement gives its bandwidth",
    "cache": "no measured bandwidth of a working set that fits into the L2 cache",
    "host": "its machine measured no launch rate, and its kernels fill the time or were not timed",
    "library": "no operation table with device times",
    "memory": "allocator retries are not recorded, or their time is not measured",
}


@dataclass(frozen=True)
class Factor:
    """One player's part of the ratio, baseline time / target time. No interval where nothing under it repeats."""

    name: str
    ratio: float
    low: float | None
    high: float | None
    evidence: str  # observed, possible; the answers raise it to proved where an ablation confirms it
    basis: str  # what the two sides' numbers are and where they come from


@dataclass(frozen=True)
class NotAssessed:
    name: str
    reason: str


@dataclass(frozen=True)
class Factors:
    """The product of `factors` and `residual` is the measured ratio."""

    factors: tuple[Factor, ...]
    not_assessed: tuple[NotAssessed, ...]
    residual: float
    residual_low: float | None
    residual_high: float | None
    modelled_by: str | None  # "operations", "stages", or None where nothing was modelled

    def ratio(self, *names: str) -> float:
        """Product of the factors with these names; one that is not assessed counts nothing."""
        return math.prod(factor.ratio for factor in self.factors if factor.name in names)

    def as_dicts(self) -> list[dict[str, object]]:
        """The `factors` of an explain answer."""
        return [asdict(factor) for factor in self.factors]


# --- the work --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """The rows of the work as arrays of shape (rows,), a pair (baseline, target) where the sides may differ."""

    convolution: NDArray[np.bool_]
    flops: tuple[Floats, Floats]
    bytes: tuple[Floats, Floats]
    launches: tuple[Floats, Floats]
    calls: Floats
    times_ms: tuple[Floats, Floats]  # measured kernel time; 0: did not run, or not timed
    charged: NDArray[np.intp]  # which player owns the efficiency of the row: index into PLAYERS


def _column(table: pd.DataFrame, name: str) -> Floats:
    if name not in table:
        return np.full(len(table), np.nan)
    return pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=np.float64)


def _both(table: pd.DataFrame, name: str) -> tuple[Floats, Floats]:
    return _column(table, f"{name}_baseline"), _column(table, f"{name}_target")


def _work(table: pd.DataFrame, charge: str) -> _Work:
    """`charge`: the player that owns the efficiency of rows whose kernels are the same on both sides."""
    only = table["only_in"].to_numpy() if "only_in" in table else np.full(len(table), "both", dtype=object)
    times = list(_both(table, "device_ms"))
    # An operation that a side did not run took no time there: its row vanishes with that side's library.
    times[0], times[1] = np.where(only == "target", 0.0, times[0]), np.where(only == "baseline", 0.0, times[1])
    same = np.zeros(len(table), dtype=bool)
    if {"kernels_baseline", "kernels_target"} <= set(table.columns):
        pairs = zip(table["kernels_baseline"], table["kernels_target"], strict=True)
        same = np.array([set(a or []) == set(b or []) for a, b in pairs], dtype=bool)
    elif "op" not in table:
        same[:] = True  # stages name no kernels: a lone limit owns all of their efficiency
    filled = [
        tuple(np.nan_to_num(np.where(np.isnan(own), other, own)) for own, other in ((a, b), (b, a)))
        for a, b in (_both(table, name) for name in ("flops", "bytes", "launches"))
    ]
    calls = np.fmax(*_both(table, "calls"))
    calls = np.where(np.isfinite(calls) & (calls > 0), calls, 1.0)
    launches = filled[2] if "op" not in table else tuple(host_launches(side, calls) for side in filled[2])
    return _Work(
        # A stage may hold both kinds: it takes the gain of convolutions, which is never the smaller one.
        convolution=table["op"].astype(str).str.contains("conv").to_numpy(dtype=bool) if "op" in table
        else np.ones(len(table), dtype=bool),
        flops=filled[0], bytes=filled[1], launches=launches,  # type: ignore[arg-type]
        calls=calls,
        times_ms=(np.nan_to_num(times[0]), np.nan_to_num(times[1])),
        charged=np.where(same, PLAYERS.index(charge), PLAYERS.index("library")),
    )


# --- the model -------------------------------------------------------------------------------------------------------


def _chosen(values: tuple[float | None, float | None], take_target: NDArray[np.bool_]) -> Floats | None:
    """The value of the side that each coalition takes, shape (coalitions, 1); None where a side does not know it."""
    left, right = values
    if left is None or right is None:
        return None
    return np.where(take_target, right, left)[:, None].astype(np.float64)


def _roof_ms(work: _Work, machines: tuple[Machine, Machine], take: Callable[[str], NDArray[np.bool_]]) -> Floats:
    """max(compute, memory) of each row in ms, before its efficiency, shape (coalitions, rows)."""
    def number(field: str, player: str) -> Floats | None:
        values = tuple(found.value if found else None for found in (getattr(m, field) for m in machines))
        return _chosen(values, take(player))  # type: ignore[arg-type]

    of_precision = take("precision")[:, None]
    moved = np.where(of_precision, work.bytes[1], work.bytes[0])
    flops = np.where(of_precision, work.flops[1], work.flops[0])
    parts = []
    rate, clock = number("fp32_tflops", "compute"), number("clock_share", "clocks")
    if rate is not None:
        matmul, convolution = number("matmul_gain", "precision"), number("convolution_gain", "precision")
        one = np.ones((len(of_precision), 1))
        gains = [one if gain is None else gain for gain in (matmul, convolution)]
        gain = np.where(work.convolution, gains[1], gains[0])
        parts.append(flops / (rate * gain * (one if clock is None else clock)) / 1e9)
    bandwidth = number("bandwidth_gb_s", "bandwidth")
    if bandwidth is not None:
        size, cache = number("cache_bytes", "cache"), number("cache_gb_s", "cache")
        if size is not None and cache is not None:
            bandwidth = np.where(moved / work.calls <= size, np.fmax(cache, bandwidth), bandwidth)
        parts.append(moved / bandwidth / 1e6)
    if not parts:
        return np.zeros((len(of_precision), len(work.calls)))
    return np.fmax.reduce(parts)


def _own_roof_ms(work: _Work, machines: tuple[Machine, Machine], target: bool) -> Floats:
    """The roof of each row where one side has all players, shape (1, rows)."""
    return _roof_ms(work, machines, lambda _: np.array([target]))


def _times_ms(
    work: _Work, machines: tuple[Machine, Machine], coalitions: NDArray[np.bool_], timed: bool
) -> Floats:
    """T of each coalition in ms, shape (coalitions,). `coalitions`: (coalitions, players), True takes the target.

    `timed`: rows carry measured times, and their efficiency on a side is what turns that side's roof into them.
    """
    def take(name: str) -> NDArray[np.bool_]:
        return coalitions[:, PLAYERS.index(name)]

    roof = _roof_ms(work, machines, take)
    if timed:
        owner_is_target = coalitions[:, work.charged]
        own_times = np.where(owner_is_target, work.times_ms[1], work.times_ms[0])
        own_roof = np.where(owner_is_target, _own_roof_ms(work, machines, True), _own_roof_ms(work, machines, False))
        # Without work on a side (a view there, a copy here) nothing scales the measured time.
        scales = (own_roof > 0) & (roof > 0)
        kernels = own_times * np.divide(roof, own_roof, out=np.ones_like(own_times), where=scales)
        launches = np.where(owner_is_target, work.launches[1], work.launches[0])
        launches = np.where(own_times > 0, launches, 0.0)
    else:
        kernels = roof
        launches = np.where(take("host")[:, None], work.launches[1], work.launches[0])
    interval = _chosen(_values(machines, "launch_us"), take("host"))
    if interval is not None:
        kernels = np.fmax(kernels, launches * interval / 1e3)
    total = kernels.sum(axis=1)
    stall = _chosen(_values(machines, "stall_ms"), take("memory"))
    return total if stall is None else total + stall[:, 0]


def _values(machines: tuple[Machine, Machine], field: str) -> tuple[float | None, float | None]:
    left, right = (getattr(machine, field) for machine in machines)
    return left.value if left else None, right.value if right else None


def shapley_logs(log_times: Callable[[NDArray[np.bool_]], Floats], players: Sequence[int], width: int) -> Floats:
    """Exact Shapley values of `players` (indices below `width`) on a log time, shape (len(players),).

    `log_times`: coalitions (n, width) -> log T (n,). Positive: swapping this player to the target shortens the time,
    so that exp of it is its factor of baseline time / target time. All 2^n coalitions are evaluated once.
    """
    n = len(players)
    codes = np.arange(2**n)
    inside = (codes[:, None] >> np.arange(n)) & 1 == 1
    coalitions = np.zeros((2**n, width), dtype=bool)
    coalitions[:, list(players)] = inside
    logs = log_times(coalitions)
    weights = np.array([factorial(size) * factorial(n - size - 1) / factorial(n) for size in range(n)])
    sizes = inside.sum(axis=1)
    result = np.empty(n)
    for k in range(n):
        without = codes[~inside[:, k]]
        result[k] = float((weights[sizes[without]] * (logs[without] - logs[without | (1 << k)])).sum())
    return result


# --- the answer ------------------------------------------------------------------------------------------------------


def _differs(name: str, work: _Work, machines: tuple[Machine, Machine], timed: bool) -> bool:
    """False where a player has the same part on both sides, so that its factor is exactly 1."""
    if any(left != right for left, right in (_values(machines, field) for field in _PARTS.get(name, ()))):
        return True
    if name == "precision" and _unlike(work.bytes, work.flops):
        return True
    if timed and (work.charged == PLAYERS.index(name)).any():
        return _unlike(work.times_ms, work.launches)
    return name == "host" and not timed and _unlike(work.launches)


def _unlike(*pairs: tuple[Floats, Floats]) -> bool:
    return any(not np.array_equal(left, right) for left, right in pairs)


def _lacking(machines: tuple[Machine, Machine], name: str) -> str | None:
    """Which side does not know its part of a player, and why; None where both do."""
    sides = [
        side for side, machine in zip(("baseline", "target"), machines, strict=True)
        if any(getattr(machine, field) is None for field in _PARTS[name])
    ]
    return f"{' and '.join(sides)}: {_MISSING[name]}" if sides else None


def _no_library(reasons: Mapping[str, str | None], timed: bool) -> str | None:
    """Why the library is not assessed: an efficiency needs times, and rates to be efficient against."""
    if not timed:
        return _MISSING["library"]
    return None if reasons["compute"] is None or reasons["bandwidth"] is None else (
        "no rate of both sides is known, so that times are not told apart into hardware and kernels"
    )


def _known_to_both(baseline: Machine, target: Machine) -> tuple[Machine, Machine]:
    """Both machines without what one of them does not know: half a comparison would move the other factors."""
    unknown = {
        field: None for parts in _PARTS.values() for field in parts
        if any(getattr(machine, name) is None for machine in (baseline, target) for name in parts)
    }
    return replace(baseline, **unknown), replace(target, **unknown)


def _resampled(machine: Machine, generator: np.random.Generator) -> Machine:
    """The machine with every repeated reading drawn anew and its median taken."""
    changes = {}
    for field in (name for parts in _PARTS.values() for name in parts):
        found = getattr(machine, field)
        if found is not None and len(found.samples) > 1:
            drawn = generator.choice(found.samples, len(found.samples))
            changes[field] = replace(found, value=float(np.median(drawn)))
    return replace(machine, **changes)


def _basis(name: str, machines: tuple[Machine, Machine], charged_to_limit: bool) -> tuple[str, str]:
    """(evidence, what the numbers are) of a player that is assessed."""
    if name == "library":
        return "observed", "operations timed on both sides: their share of the roofline, kernels and launches"
    if charged_to_limit:
        return "observed", "the one setting that differs on the same card; the kernels are the same"
    fields = _PARTS[name]
    found = [getattr(machine, field) for machine in machines for field in fields]
    said = [_against(field, *(getattr(machine, field) for machine in machines)) for field in fields]
    observed = all(value.evidence == "observed" for value in found)
    return ("observed" if observed else "possible"), "; ".join(dict.fromkeys(said))


_WORDS = {
    "fp32_tflops": "FP32 TFLOP/s", "matmul_gain": "products over FP32", "convolution_gain": "convolutions over FP32",
    "clock_share": "clock over maximum", "bandwidth_gb_s": "GB/s", "cache_bytes": "bytes of L2",
    "cache_gb_s": "GB/s in L2", "launch_us": "us a launch", "stall_ms": "ms of stalls",
}


def _against(field: str, left: Value, right: Value) -> str:
    """Both sides' number in words, its source once where it is the same."""
    words = f"{_WORDS[field]} {left.value:.4g}"
    if left.source == right.source:
        return f"{words} against {right.value:.4g} ({left.source})"
    return f"{words} ({left.source}) against {right.value:.4g} ({right.source})"


def factors(
    table: pd.DataFrame,
    baseline: Machine,
    target: Machine,
    ratio: float,
    log_ratio_draws: Floats | None = None,
    limit: str | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Factors:
    """The factors of a measured `ratio` (baseline time / target time).

    `table`: rows of operations (column `op`, from `core.analysis.op_diff`) or of stages, with columns flops, bytes,
    launches, calls, device_ms, each ending in _baseline and _target. `log_ratio_draws`: bootstrap draws of the log
    ratio, for the residual's interval. `limit`: the player that the only differing setting belongs to, on one card
    with one software (SMs cut off: compute): rows that ran the same kernels owe their change of efficiency to it.
    Raises ValueError for a ratio that is not a positive number and for an unknown limit.
    """
    if not (math.isfinite(ratio) and ratio > 0):
        raise ValueError(f"ratio {ratio!r}, expected a positive number")
    if limit is not None and limit not in PLAYERS:
        raise ValueError(f"limit {limit!r}, expected one of {', '.join(PLAYERS)}")
    machines = _known_to_both(baseline, target)
    of_operations = "op" in table
    work = _work(table, limit or "library")
    totals_ms = [float(np.nansum(side)) for side in work.times_ms]
    timed = min(totals_ms, default=0.0) > 0 and (of_operations or limit is not None)
    reasons = {name: _lacking((baseline, target), name) for name in _PARTS}
    reasons["library"] = _no_library(reasons, timed and of_operations)
    if limit is not None and timed:
        reasons[limit] = None
    if not _modelled(work, machines, timed):
        reasons = {name: reason or "no work with known operations is there to model" for name, reason in
                   reasons.items()}
    assessed = [name for name in PLAYERS if reasons[name] is None]
    missing = tuple(NotAssessed(name, str(reasons[name])) for name in PLAYERS if reasons[name] is not None)
    if not assessed:
        return Factors((), missing, ratio, *_ends(log_ratio_draws, math.log(ratio)), None)

    playing = [name for name in assessed if _differs(name, work, machines, timed)]
    places = [PLAYERS.index(name) for name in playing]

    def logs(pair: tuple[Machine, Machine]) -> Floats:
        return shapley_logs(
            lambda sets: np.log(np.fmax(_times_ms(work, pair, sets, timed), _LEAST_MS)), places, len(PLAYERS)
        )

    centre = logs(machines)
    drawn = np.tile(centre, (draws, 1))
    repeats = any(len(value.samples) > 1 for machine in machines for value in _known(machine))
    if repeats:
        generator = np.random.default_rng(seed)
        for i in range(draws):
            drawn[i] = logs((_resampled(machines[0], generator), _resampled(machines[1], generator)))
    found = []
    for name in assessed:
        k = playing.index(name) if name in playing else None
        value = float(centre[k]) if k is not None else 0.0
        low, high = _ends(drawn[:, k] if k is not None and repeats else None, value)
        evidence, basis = _basis(name, machines, charged_to_limit=timed and name == limit)
        found.append(Factor(name, math.exp(value), low, high, evidence, basis))
    residual = math.log(ratio) - float(centre.sum())
    spread = None
    if log_ratio_draws is not None:
        spread = np.resize(log_ratio_draws, max(draws, len(log_ratio_draws)))
        spread = spread - np.resize(drawn.sum(axis=1), len(spread))
    return Factors(
        tuple(found), missing, math.exp(residual), *_ends(spread, residual), "operations" if of_operations else "stages"
    )


def _known(machine: Machine) -> list[Value]:
    return [value for parts in _PARTS.values() for name in parts if (value := getattr(machine, name)) is not None]


def _modelled(work: _Work, machines: tuple[Machine, Machine], timed: bool) -> bool:
    """Whether the model gives a time above zero for every coalition that it will be asked for."""
    if not len(work.calls):
        return False
    ends = np.array([[False] * len(PLAYERS), [True] * len(PLAYERS)])
    return bool((_times_ms(work, machines, ends, timed) > 0).all())


def _ends(drawn: Floats | None, centre: float) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of a factor from draws of its logarithm; it never excludes the factor itself."""
    if drawn is None or not len(drawn) or np.ptp(drawn) < _SAME:
        return None, None  # nothing repeats, or every repetition says the same
    low, high = np.quantile(drawn, [0.025, 0.975])
    return math.exp(min(float(low), centre)), math.exp(max(float(high), centre))
