"""One NVML reading after each repetition: clocks, power, temperature, reasons for a lower clock.

Read outside the timed region. Each field that the board does not give is None, and no failure of NVML reaches a cell.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.measure.nvml import Nvml
from core.records import Telemetry

# The same bits under the names before and after driver 535.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU


@dataclass(frozen=True)
class Reading:
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_bits: int | None = None


class Sensor:
    """Reads one board. Without NVML or without the board it gives empty readings."""

    def __init__(self, nvml: Nvml | None, uuid: str | None) -> None:
        self._nvml = nvml
        self._board = nvml.board(uuid) if nvml is not None else None

    def read(self) -> Reading:
        nvml, board = self._nvml, self._board
        if nvml is None or board is None:
            return Reading()
        milliwatts = _number(nvml.ask("nvmlDeviceGetPowerUsage", board))
        bits = nvml.ask(_REASONS, board)
        return Reading(
            sm_clock_mhz=_number(nvml.ask("nvmlDeviceGetClockInfo", board, _CLOCK_SM)),
            memory_clock_mhz=_number(nvml.ask("nvmlDeviceGetClockInfo", board, _CLOCK_MEMORY)),
            power_w=round(milliwatts / 1e3, 3) if milliwatts is not None else None,
            temperature_c=_number(nvml.ask("nvmlDeviceGetTemperature", board, _TEMPERATURE_GPU)),
            throttle_bits=bits if isinstance(bits, int) and not isinstance(bits, bool) and 0 <= bits < 2**63 else None,
        )


def columns(readings: Sequence[Reading]) -> Telemetry | None:
    """The readings as columns; a column without a single value is None, and so is a table without columns."""
    table: dict[str, Any] = {}
    for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "throttle_bits"):
        values = tuple(getattr(reading, name) for reading in readings)
        table[name] = values if any(value is not None for value in values) else None
    return Telemetry(**table) if any(value is not None for value in table.values()) else None


def _number(answer: Any) -> float | None:
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return None
    # NVML's "not available" is the largest 32-bit number in some fields.
    return float(answer) if 0 <= answer < 2**32 - 1 else None
