"""Why a GPU's clock is where it is: NVML's event reasons in words, and which samples they spoil.

A flag never deletes a sample. `throttled` ones ran slower than the board can (heat, power); `starved` ones found the
board at an idle clock because too little work reached it: that is the host's doing, not the board's.
Bits: nvml.h, nvmlClocksEventReasons (called "throttle reasons" before driver 535; the values are the same).
"""
from __future__ import annotations

from collections.abc import Sequence

from core.records.model import Telemetry

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
POWER_CAP = 0x4
HW_SLOWDOWN = 0x8
SYNC_BOOST = 0x10
SW_THERMAL = 0x20
HW_THERMAL = 0x40
POWER_BRAKE = 0x80
DISPLAY_CLOCKS = 0x100

NAMES = {
    IDLE: "idle", APPLICATION_CLOCKS: "application clocks", POWER_CAP: "power cap", HW_SLOWDOWN: "hardware slowdown",
    SYNC_BOOST: "sync boost", SW_THERMAL: "thermal slowdown", HW_THERMAL: "hardware thermal slowdown",
    POWER_BRAKE: "power brake", DISPLAY_CLOCKS: "display clocks",
}

HELD_BACK_SHARE = 0.9
"""Below this share of its maximum clock a board was held back. NVBench discards samples below 0.75 of the default
clock; samples are kept here, so the flag may be stricter."""

BUSY_PERCENT = 50.0
"""Utilisation from which a low clock cannot be explained by too little work."""

THROTTLED = ("thermal", "power_cap", "power_brake", "slowdown", "slow_clock")
STARVED = ("starved",)
FLAGS = THROTTLED + STARVED


def reasons(bits: int | None) -> tuple[str, ...]:
    """The set bits in words, unknown ones as hexadecimal numbers; nothing for None."""
    if not bits:
        return ()
    known = [name for bit, name in NAMES.items() if bits & bit]
    rest = bits & ~sum(NAMES)
    return (*known, *([hex(rest)] if rest else []))


def flag(
    throttle_bits: int | None,
    sm_clock_mhz: float | None = None,
    max_sm_clock_mhz: float | None = None,
    power_w: float | None = None,
    power_limit_w: float | None = None,
    utilization_percent: float | None = None,
) -> str | None:
    """What spoiled one sample, one of `FLAGS`; None: nothing that was recorded.

    Heat and a power brake always count. A power cap counts only where the clock was held back: a board that touches
    its limit at full clock lost nothing. A low clock without any reason is `slow_clock` where the board was busy, and
    is not judged where nobody knows whether it was.
    """
    share = sm_clock_mhz / max_sm_clock_mhz if sm_clock_mhz is not None and max_sm_clock_mhz else None
    held_back = share is not None and share < HELD_BACK_SHARE
    bits = throttle_bits or 0
    if bits & (SW_THERMAL | HW_THERMAL):
        return "thermal"
    if bits & POWER_BRAKE:
        return "power_brake"
    if bits & HW_SLOWDOWN:
        return "slowdown"
    if bits & POWER_CAP and (held_back or share is None):
        return "power_cap"
    busy = utilization_percent is not None and utilization_percent >= BUSY_PERCENT
    if bits & IDLE and not busy and (held_back or (share is None and utilization_percent is not None)):
        return "starved"
    if not held_back:
        return None
    if utilization_percent is not None and not busy:
        return "starved"
    if throttle_bits is None and power_w is not None and power_limit_w and power_w >= 0.95 * power_limit_w:
        return "power_cap"
    return "slow_clock" if busy and not bits & APPLICATION_CLOCKS else None


def flags(
    telemetry: Telemetry | None, max_sm_clock_mhz: float | None, power_limit_w: float | None = None
) -> list[str | None]:
    """One flag (or None) per repetition, in the order of `Cell.wall_ms`; empty without telemetry.

    `power_limit_w`: of the device, where the readings do not tell it.
    """
    if telemetry is None:
        return []
    columns: dict[str, Sequence[float | int | None] | None] = {
        name: getattr(telemetry, name)
        for name in ("throttle_bits", "sm_clock_mhz", "power_w", "power_limit_w", "utilization_percent")
    }
    n = max((len(column) for column in columns.values() if column is not None), default=0)
    made = []
    for i in range(n):
        at = {name: column[i] if column is not None else None for name, column in columns.items()}
        bits = at["throttle_bits"]
        made.append(flag(
            int(bits) if bits is not None else None, at["sm_clock_mhz"], max_sm_clock_mhz, at["power_w"],
            at["power_limit_w"] if at["power_limit_w"] is not None else power_limit_w, at["utilization_percent"],
        ))
    return made
