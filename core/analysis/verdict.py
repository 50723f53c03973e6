"""Where a measured ratio stands against the ratios that hardware allows.

r = baseline time / target time, E = the hardware ratios (target over baseline) that the stated facts allow:

    as_expected             min E / 1.25 <= r <= 1.25 max E
    beyond_hardware         else, r > 3 max E with max E >= 1, or r < min E / 3 with min E <= 1: the card that should be
                            faster is, far too much
    undecided               else, min E > 1 and 0.8 <= r < min E, or max E < 1 and max E < r <= 1.25: the host or the
                            launches may hide the difference; also an interval of r that covers two classes
    faster_than_expected,   else; an inversion (the faster card is slower) lands here, never in beyond_hardware
    slower_than_expected

Swapping the sides (r -> 1/r, E -> 1/E) turns faster into slower and keeps the rest. In words: docs/method.md.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

VERDICTS = (
    "as_expected",
    "faster_than_expected",
    "slower_than_expected",
    "beyond_hardware",
    "undecided",
    "not_comparable",
)

WITHIN = 1.25
"""A ratio this factor around theory is as expected, since no workload reaches a peak exactly."""
_WITHIN = math.log(WITHIN)
_BEYOND = math.log(3)
_HIDDEN = math.log(1.25)  # how far beyond "equal" a host-bound pair may still lie
# Boundaries count as inside; this absorbs the rounding of a division, so that swapping the sides stays exact.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """A verdict about the target, and why."""

    name: str  # one of VERDICTS
    reason: str  # within, beyond, hidden, interval, inverted, above, below, no_theory
    expected_low: float | None  # min E
    expected_high: float | None  # max E


def _classify(log_r: float, log_low: float, log_high: float) -> tuple[str, str]:
    """The verdict of one value of log r, without an interval."""
    if log_low - _WITHIN - _ROUNDING <= log_r <= log_high + _WITHIN + _ROUNDING:
        return "as_expected", "within"
    above = log_r > log_high
    if above and log_high >= -_ROUNDING and log_r > log_high + _BEYOND + _ROUNDING:
        return "beyond_hardware", "beyond"
    if not above and log_low <= _ROUNDING and log_r < log_low - _BEYOND - _ROUNDING:
        return "beyond_hardware", "beyond"
    if log_low > _ROUNDING and not above and log_r >= -_HIDDEN - _ROUNDING:
        return "undecided", "hidden"
    if log_high < -_ROUNDING and above and log_r <= _HIDDEN + _ROUNDING:
        return "undecided", "hidden"
    if above:
        return "faster_than_expected", "inverted" if log_high < 0 < log_r else "above"
    return "slower_than_expected", "inverted" if log_low > 0 > log_r else "below"


def _classes_between(low: float, high: float, log_low: float, log_high: float) -> set[str]:
    """The verdicts of all values of log r from `low` to `high`: the class changes only at these limits."""
    limits = (
        log_low - _WITHIN, log_high + _WITHIN, log_high + _BEYOND, log_low - _BEYOND,
        -_HIDDEN, _HIDDEN, log_low, log_high,
    )  # fmt: skip
    cuts = [low, *sorted(limit for limit in limits if low < limit < high), high]
    points = [low, high, *((a + b) / 2 for a, b in itertools.pairwise(cuts))]
    return {_classify(point, log_low, log_high)[0] for point in points}


def verdict(
    ratio: float, expected: Iterable[float], low: float | None = None, high: float | None = None
) -> Verdict:
    """The verdict on r = `ratio` with theory ratios `expected`, and the interval of r if it was measured.

    Without a theory ratio (a card or a CPU without a data sheet) the verdict is undecided, reason no_theory.
    Raises ValueError for a ratio, an interval end or a theory ratio that is not a positive number.
    """
    ratios = list(expected)
    for value in (ratio, *ratios, *(end for end in (low, high) if end is not None)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"ratio {value!r}, expected a positive number")
    if not ratios:
        return Verdict("undecided", "no_theory", None, None)
    least, most = min(ratios), max(ratios)
    log_low, log_high = math.log(least), math.log(most)
    name, reason = _classify(math.log(ratio), log_low, log_high)
    if low is not None and high is not None:
        ends = sorted((math.log(low), math.log(high)))
        if len(_classes_between(ends[0], ends[1], log_low, log_high) | {name}) > 1:
            return Verdict("undecided", "interval", least, most)
    return Verdict(name, reason, least, most)
