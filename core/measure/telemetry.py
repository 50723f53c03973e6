"""One NVML reading after each repetition: clocks, power, energy, temperature, load, reasons for a lower clock.

Read outside the timed region. Each field that the board does not give is None, and no failure of NVML reaches a cell.
What hardly changes (limit, link, memory, other processes) is read at most once a second; `reading_cost_us` tells what
either reading costs here.
"""
from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.measure.nvml import Nvml
from core.records import Telemetry

# The same bits under the names before and after driver 535.
REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
CLOCK_SM, CLOCK_MEMORY, TEMPERATURE_GPU = 1, 2, 0  # NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU
SLOW_FIELDS_EVERY_S = 1.0

ENERGY_STEPS = 10
"""An energy is stated from this many steps of its counter on: then one step more or less is a tenth at most."""
DEFAULT_ENERGY_STEP_S = 0.1
"""Assumed where the step could not be measured."""
_BUSY_SHARE_OF_ENERGY = 0.9  # of the time between first and last reading; the rest was spent between repetitions

_SLOW = ("power_limit_w", "pcie_generation", "pcie_width", "memory_used_bytes", "other_processes")
_COLUMNS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "throttle_bits", "utilization_percent",
            *_SLOW)


@dataclass(frozen=True)
class Reading:
    """`energy_mj`: counter since the driver was loaded. `at_s`: host time of this reading, for energy alone."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_bits: int | None = None
    energy_mj: int | None = None
    utilization_percent: float | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    memory_used_bytes: int | None = None
    other_processes: int | None = None
    at_s: float | None = None


class Sensor:
    """Reads one board. Without NVML or without the board it gives empty readings."""

    def __init__(self, nvml: Nvml | None, uuid: str | None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._board = nvml.board(uuid) if nvml is not None else None
        self._now_s = now_s
        self._slow_read_s: float | None = None

    @property
    def found(self) -> bool:
        """Whether there is a board to read."""
        return self._board is not None

    def read(self) -> Reading:
        nvml, board = self._nvml, self._board
        if nvml is None or board is None:
            return Reading()
        at_s = self._now_s()
        milliwatts = number(nvml.ask("nvmlDeviceGetPowerUsage", board))
        slow: dict[str, Any] = {}
        if self._slow_read_s is None or at_s - self._slow_read_s >= SLOW_FIELDS_EVERY_S:
            self._slow_read_s = at_s
            slow = self._slow(nvml, board)
        return Reading(
            sm_clock_mhz=number(nvml.ask("nvmlDeviceGetClockInfo", board, CLOCK_SM)),
            memory_clock_mhz=number(nvml.ask("nvmlDeviceGetClockInfo", board, CLOCK_MEMORY)),
            power_w=round(milliwatts / 1e3, 3) if milliwatts is not None else None,
            temperature_c=number(nvml.ask("nvmlDeviceGetTemperature", board, TEMPERATURE_GPU)),
            throttle_bits=event_reasons(nvml, board), energy_mj=self.energy_mj(),
            utilization_percent=number(getattr(nvml.ask("nvmlDeviceGetUtilizationRates", board), "gpu", None)),
            at_s=at_s, **slow,
        )

    def forget_slow_fields(self) -> None:
        """The next reading has all fields."""
        self._slow_read_s = None

    def energy_mj(self) -> int | None:
        """Millijoules since the driver was loaded; None on boards without the counter (before Volta, most laptops)."""
        if self._nvml is None or self._board is None:
            return None
        return whole(self._nvml.ask("nvmlDeviceGetTotalEnergyConsumption", self._board), 2**63)

    def _slow(self, nvml: Nvml, board: Any) -> dict[str, Any]:
        milliwatts = number(nvml.ask("nvmlDeviceGetEnforcedPowerLimit", board))
        return {
            "power_limit_w": milliwatts / 1e3 if milliwatts is not None else None,
            "pcie_generation": whole(nvml.ask("nvmlDeviceGetCurrPcieLinkGeneration", board)),
            "pcie_width": whole(nvml.ask("nvmlDeviceGetCurrPcieLinkWidth", board)),
            "memory_used_bytes": whole(getattr(nvml.ask("nvmlDeviceGetMemoryInfo", board), "used", None), 2**63),
            "other_processes": others(nvml, board),
        }


def event_reasons(nvml: Nvml, board: Any) -> int | None:
    """Bits why the clock is where it is (`core.records.clock_events` has their names)."""
    return whole(nvml.ask(REASONS, board), 2**63)


def others(nvml: Nvml, board: Any) -> int | None:
    """How many processes outside this run compute on the board.

    None where NVML does not tell, or shows pids of another namespace, among which our own cannot be found.
    """
    known = nvml.known_processes(board)
    if not known:
        return None if known is None else 0
    strangers = [pid for pid, _ in known if not _of_this_run(pid)]
    return len(strangers) if len(strangers) < len(known) else None


def _of_this_run(pid: int) -> bool:
    """This process, or another worker of the same parent (the one that profiles)."""
    if pid == os.getpid():
        return True
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) == os.getppid()
    except (OSError, ValueError, IndexError):
        return False


def columns(readings: Sequence[Reading], energy_step_s: float | None = None) -> Telemetry | None:
    """The readings as columns; a column without a single value is None, and so is a table without columns."""
    table: dict[str, Any] = {name: [getattr(reading, name) for reading in readings] for name in _COLUMNS}
    table["energy_j"] = _energies_j(readings, energy_step_s or DEFAULT_ENERGY_STEP_S)
    kept: dict[str, Any] = {
        name: tuple(values) if any(value is not None for value in values) else None for name, values in table.items()
    }
    return Telemetry(**kept) if any(values is not None for values in kept.values()) else None


# --- energy ----------------------------------------------------------------------------------------------------------


def _energies_j(readings: Sequence[Reading], step_s: float) -> list[float | None]:
    """Joules between each reading and the one before it; None for the first and wherever the counter cannot tell."""
    found: list[float | None] = [None] * min(1, len(readings))
    for before, after in itertools.pairwise(readings):
        found.append(_between_j(before, after, step_s))
    return found


def _between_j(before: Reading, after: Reading, step_s: float) -> float | None:
    if before.energy_mj is None or after.energy_mj is None or before.at_s is None or after.at_s is None:
        return None
    moved = after.energy_mj - before.energy_mj
    if moved <= 0 or after.at_s - before.at_s < ENERGY_STEPS * step_s:
        return None
    return moved / 1e3


def energy_of(
    readings: Sequence[Reading], wall_ms: Sequence[float], energy_step_s: float | None = None
) -> tuple[float | None, bool | None]:
    """(joules of one repetition, whether that is valid) of a cell; (None, None) on a board without the counter.

    From the counter between the first and the last reading, over the repetitions in between. Valid: the counter moved,
    that time holds `ENERGY_STEPS` of its steps, and repetitions filled at least nine tenths of it.
    """
    known = [reading for reading in readings if reading.energy_mj is not None and reading.at_s is not None]
    if not known:
        return None, None
    first, last = readings[0], readings[-1]
    if len(readings) < 2 or first.energy_mj is None or last.energy_mj is None or None in (first.at_s, last.at_s):
        return None, False
    moved_mj = last.energy_mj - first.energy_mj
    if moved_mj <= 0:
        return None, False
    assert first.at_s is not None
    assert last.at_s is not None
    passed_s = last.at_s - first.at_s
    long_enough = passed_s >= ENERGY_STEPS * (energy_step_s or DEFAULT_ENERGY_STEP_S)
    filled = sum(wall_ms[1:]) / 1e3 >= _BUSY_SHARE_OF_ENERGY * passed_s
    return moved_mj / 1e3 / (len(readings) - 1), long_enough and filled


def measured_energy_step_s(
    counter_mj: Callable[[], int | None], limit_s: float = 0.5, now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float | None:
    """Time between two steps of the energy counter (median of up to three); None: no counter, or it stood still.

    Costs at most `limit_s`. An idle board draws power too, so that its counter moves.
    """
    started_s = now_s()
    value = counter_mj()
    changes: list[float] = []
    while value is not None and now_s() - started_s < limit_s and len(changes) < 4:
        sleep(0.001)
        new = counter_mj()
        if new is not None and new != value:
            changes.append(now_s())
        value = new
    steps = [after - before for before, after in itertools.pairwise(changes)]
    return statistics.median(steps) if steps else None


# --- cost ------------------------------------------------------------------------------------------------------------


def reading_cost_us(
    sensor: Sensor, readings: int = 20, with_slow_fields: bool = False,
    now_s: Callable[[], float] = time.perf_counter,
) -> float | None:
    """What one reading takes (median of `readings`, us): that of most repetitions, or that of one each second.

    None where there is no board to read.
    """
    if not sensor.found:
        return None
    costs = []
    sensor.read()
    for _ in range(readings):
        if with_slow_fields:
            sensor.forget_slow_fields()
        start_s = now_s()
        sensor.read()
        costs.append((now_s() - start_s) * 1e6)
    return round(statistics.median(costs), 1)


def facts(sensor: Sensor) -> dict[str, Any]:
    """What a run notes once about its telemetry. Takes about half a second, most of it to watch the energy counter."""
    return {
        "reading_us": reading_cost_us(sensor),
        "reading_with_slow_fields_us": reading_cost_us(sensor, with_slow_fields=True),
        "energy_step_s": measured_energy_step_s(sensor.energy_mj),
    }


# --- answers ---------------------------------------------------------------------------------------------------------


def number(answer: Any) -> float | None:
    """An answer of NVML as a number; its "not available" (the largest 32-bit number) is None."""
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return None
    return float(answer) if 0 <= answer < 2**32 - 1 else None


def whole(answer: Any, below: int = 2**32 - 1) -> int | None:
    """An answer of NVML as a whole number from 0; None for anything else, and from `below` on."""
    return answer if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < below else None
