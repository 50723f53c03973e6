"""Samples that heat, a power cap or an idle board spoiled: counted, and left out of a second median beside the first.

Nothing is deleted. The rule for one sample is in `core.records.clock_events`.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from core.records import clock_events

Column = Sequence[float | int | None] | np.ndarray


@dataclass(frozen=True)
class FlaggedSamples:
    """`flags`: one of `clock_events.FLAGS` or None per sample. Both medians are in the unit of the samples.

    `median_without`: of the samples without a flag; None where none is left. `told`: one sentence, None without flags.
    """

    flags: tuple[str | None, ...]
    counts: dict[str, int]
    n: int
    n_flagged: int
    median: float | None
    median_without: float | None
    told: str | None

    @property
    def throttled(self) -> int:
        return sum(self.counts.get(name, 0) for name in clock_events.THROTTLED)

    @property
    def starved(self) -> int:
        return sum(self.counts.get(name, 0) for name in clock_events.STARVED)


def flagged_samples(
    wall_ms: ArrayLike,
    max_sm_clock_mhz: float | None,
    throttle_bits: Column | None = None,
    sm_clock_mhz: Column | None = None,
    power_w: Column | None = None,
    power_limit_w: Column | float | None = None,
    utilization_percent: Column | None = None,
) -> FlaggedSamples:
    """Flags of the samples `wall_ms`, shape (n,), and their median with and without the flagged ones.

    Every column has shape (n,); None or NaN is a value that was not read, a column that is None was never read.
    `power_limit_w` may be one number for all. Raises ValueError for a column of another length.
    """
    samples = np.asarray(wall_ms, dtype=float).ravel()
    n = samples.size
    limits: Column | None = power_limit_w if not isinstance(power_limit_w, (int, float)) else [power_limit_w] * n
    columns = [_values(column, n) for column in (throttle_bits, sm_clock_mhz, power_w, limits, utilization_percent)]
    ceiling = None if max_sm_clock_mhz is None or np.isnan(max_sm_clock_mhz) else float(max_sm_clock_mhz)
    flags = tuple(
        clock_events.flag(int(bits) if bits is not None else None, clock, ceiling, power, limit, load)
        for bits, clock, power, limit, load in zip(*columns, strict=True)
    )
    clean = np.array([name is None for name in flags], dtype=bool)
    counts = dict(Counter(name for name in flags if name is not None))
    result = FlaggedSamples(
        flags=flags, counts=counts, n=n, n_flagged=int(n - clean.sum()),
        median=float(np.median(samples)) if n else None,
        median_without=float(np.median(samples[clean])) if clean.any() else None, told=None,
    )
    return FlaggedSamples(**{**vars(result), "told": _told(result)})


def _values(column: Column | None, n: int) -> list[float | None]:
    if column is None:
        return [None] * n
    if len(column) != n:
        raise ValueError(f"a column of {len(column)} values beside {n} samples")
    return [None if value is None or np.isnan(value) else float(value) for value in column]


def _told(found: FlaggedSamples) -> str | None:
    if not found.n_flagged:
        return None
    parts = [f"{count} {what}" for count, what in ((found.throttled, "throttled"), (found.starved, "starved")) if count]
    names = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(found.counts.items()))
    if found.median_without is None or found.median is None:
        effect = "none is left without them"
    else:
        effect = f"without them the median is {found.median_without / found.median - 1:+.1%}"
    return f"{' and '.join(parts)} of {found.n} samples ({names}); {effect}."
