"""One formatter per unit, so that a number looks the same on a page, in a shell and in a report.

Three significant digits, but the digits of an integer part are never rounded away (1 555 GB/s, not 1 560). Decimal
point, thin space between thousands, a dash for a missing value. NaN and infinity count as missing.
"""
from __future__ import annotations

import math
from collections.abc import Iterable

MISSING = "\u2013"  # en dash
THIN_SPACE = "\u2009"
MICRO = "\u00b5"

# Time unit -> milliseconds. Charts take their axis label from the key.
TIME_UNITS_MS = {f"{MICRO}s": 1e-3, "ms": 1.0, "s": 1e3}


def is_missing(value: float | None) -> bool:
    """True for None, NaN and infinity: none of them is a measurement."""
    return value is None or not math.isfinite(value)


def significant(value: float | None, digits: int = 3) -> str:
    """A number with that many significant digits, trailing zeros kept: 4.86, 15.2, 170, 1 555, 0.0123."""
    if value is None or is_missing(value):
        return MISSING
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")  # 9.996 has one decimal less once rounded
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{value:,.{decimals}f}".replace(",", THIN_SPACE)


def count(value: float | None) -> str:
    """A whole number with thin spaces: 43 286."""
    return MISSING if value is None or is_missing(value) else f"{value:,.0f}".replace(",", THIN_SPACE)


def ratio(value: float | None) -> str:
    """A ratio: 4.86x, 170x; below one with two decimals or two significant digits: 0.33x, 0.012x."""
    if value is None or is_missing(value):
        return MISSING
    if 0 < value < 0.995:
        return f"{significant(value, 2)}x"
    return f"{significant(max(value, 1.0) if value > 0 else value)}x"


def ratio_interval(low: float | None, high: float | None) -> str:
    """An interval of a ratio: 4.6x to 5.1x; a dash when there is none."""
    if low is None or high is None or is_missing(low) or is_missing(high):
        return MISSING
    return f"{ratio(low)} to {ratio(high)}"


def time_unit(values_ms: Iterable[float | None]) -> str:
    """The one unit for all marks of a chart: that in which the median of the given times is at least one."""
    known = sorted(abs(value) for value in values_ms if value is not None and not is_missing(value) and value != 0)
    if not known:
        return "ms"
    middle = known[len(known) // 2]
    fitting = [unit for unit, in_ms in TIME_UNITS_MS.items() if middle >= in_ms * 0.9995]
    return fitting[-1] if fitting else f"{MICRO}s"


def time_value(value_ms: float | None, unit: str) -> float | None:
    """A time in the given unit, as a number for an axis. Raises KeyError for a unit not in TIME_UNITS_MS."""
    return None if value_ms is None or is_missing(value_ms) else value_ms / TIME_UNITS_MS[unit]


def time_ms(value_ms: float | None, unit: str | None = None) -> str:
    """A time given in milliseconds, in the unit given or the one that suits it: 25.0 µs, 500 ms, 85.0 s."""
    if value_ms is None or is_missing(value_ms):
        return MISSING
    chosen = unit or time_unit([value_ms])
    return f"{significant(value_ms / TIME_UNITS_MS[chosen])} {chosen}"


def duration(value_s: float | None) -> str:
    """How long somebody waits, in two digits at most: "8 s", "3 min", "4.1 h". No measurement is told this way."""
    if is_missing(value_s):
        return MISSING
    assert value_s is not None
    if value_s < 99.5:
        return f"{max(1, round(value_s))} s"
    if value_s < 99.5 * 60:
        return f"{round(value_s / 60)} min"
    return f"{value_s / 3600:.1f} h"


def time_interval_ms(low_ms: float | None, high_ms: float | None, unit: str | None = None) -> str:
    """An interval of a time, both ends in one unit: 4.90 ms to 5.10 ms."""
    if low_ms is None or high_ms is None or is_missing(low_ms) or is_missing(high_ms):
        return MISSING
    chosen = unit or time_unit([high_ms])
    return f"{time_ms(low_ms, chosen)} to {time_ms(high_ms, chosen)}"


def percent(share: float | None) -> str:
    """A share of one as a percentage: 0.0731 -> 7.3 %, 0.999 -> 99.9 %."""
    if share is None or is_missing(share):
        return MISSING
    value = share * 100
    if 0 < abs(value) < 0.1:
        return f"{significant(value, 2)} %"
    return f"{value:,.1f} %".replace(",", THIN_SPACE).replace(".0 %", " %")


def bytes_size(value: float | None) -> str:
    """A size in bytes, in binary units: 15.0 GiB."""
    if value is None or is_missing(value):
        return MISSING
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            return f"{significant(value / size)} {unit}"
    return f"{count(value)} B"


def flops(value: float | None) -> str:
    """Work in floating-point operations, one FMA is two: 1.23 TFLOP."""
    if value is None or is_missing(value):
        return MISSING
    for unit, size in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if abs(value) >= size:
            return f"{significant(value / size)} {unit}"
    return f"{count(value)} FLOP"


def _with_unit(value: float | None, unit: str) -> str:
    return MISSING if value is None or is_missing(value) else f"{significant(value)} {unit}"


def gb_s(value: float | None) -> str:
    """A bandwidth in GB/s (10^9 bytes per second)."""
    return _with_unit(value, "GB/s")


def tflops(value: float | None) -> str:
    """A rate in TFLOP/s."""
    return _with_unit(value, "TFLOP/s")


def flop_per_byte(value: float | None) -> str:
    """Arithmetic intensity."""
    return _with_unit(value, "FLOP/B")


def mhz(value: float | None) -> str:
    """A clock, as whole MHz."""
    return MISSING if value is None or is_missing(value) else f"{count(value)} MHz"


def watt(value: float | None) -> str:
    """Power."""
    return _with_unit(value, "W")


def joule(value: float | None) -> str:
    """Energy."""
    return _with_unit(value, "J")


def celsius(value: float | None) -> str:
    """A temperature, as whole degrees."""
    return MISSING if value is None or is_missing(value) else f"{count(value)} °C"
