"""NVML readings: old and new names, missing fields, boards told apart by UUID. With a fake NVML, no driver needed."""
from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from core.measure import telemetry
from core.measure.nvml import NO_PACKAGE, Nvml, bare_uuid
from core.measure.telemetry import (
    Reading,
    Sensor,
    columns,
    energy_of,
    measured_energy_step_s,
    reading_cost_us,
)
from core.records import Telemetry, clock_events


class NVMLError(Exception):
    pass


class FakeNvml:
    """Two boards in another order than CUDA's, the second with a MIG slice. `missing` functions are not there;
    `failing` ones raise, as NVML does for what a board does not support."""

    boards = ("GPU-bbbb", "GPU-aaaa")
    processes: tuple[Any, ...] = (SimpleNamespace(pid=os.getpid(), usedGpuMemory=2**30),
                                  SimpleNamespace(pid=2**31 - 5, usedGpuMemory=None))

    def __init__(self, missing: tuple[str, ...] = (), failing: tuple[str, ...] = ()) -> None:
        self._missing, self._failing = missing, failing

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: b"550.54",
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda i: f"handle{i}",
            "nvmlDeviceGetUUID": lambda h: "MIG-cccc" if h == "slice" else self.boards[int(h[-1])],
            "nvmlDeviceGetMaxMigDeviceCount": lambda h: 1 if h == "handle1" else 0,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda h, i: "slice",
            "nvmlDeviceGetClockInfo": lambda h, kind: {1: 1980, 2: 3201}[kind],
            "nvmlDeviceGetPowerUsage": lambda h: 412_345,
            "nvmlDeviceGetTemperature": lambda h, kind: 61 if h == "handle1" else 33,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: 4,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: 8,
            "nvmlDeviceGetTotalEnergyConsumption": lambda h: 123_456_789,
            "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetEnforcedPowerLimit": lambda h: 700_000,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 5,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 16,
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=8 * 2**30, used=2**31),
            "nvmlDeviceGetComputeRunningProcesses_v3": lambda h: self.processes,
        }
        if name in self._missing or name not in answers:
            raise AttributeError(name)
        if name in self._failing:
            def fail(*arguments: object) -> None:
                raise NVMLError("Not Supported")
            return fail
        return answers[name]


def reading(uuid: str | None = "GPU-aaaa", **how: tuple[str, ...]) -> Reading:
    return Sensor(Nvml.open(FakeNvml(**how)), uuid, now_s=lambda: 50.0).read()


def test_a_reading_has_every_field_in_its_unit() -> None:
    assert reading() == Reading(
        1980.0, 3201.0, 412.345, 61.0, 4, 123_456_789, 97.0, 700.0, 5, 16, 2**31, other_processes=1, at_s=50.0
    )


def test_old_drivers_answer_under_the_old_name() -> None:
    assert reading(missing=("nvmlDeviceGetCurrentClocksEventReasons",)).throttle_bits == 8


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetClockInfo", "sm_clock_mhz"),
        ("nvmlDeviceGetClockInfo", "memory_clock_mhz"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_mj"),
        ("nvmlDeviceGetUtilizationRates", "utilization_percent"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
        ("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation"),
        ("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width"),
        ("nvmlDeviceGetMemoryInfo", "memory_used_bytes"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "other_processes"),
    ],
)
@pytest.mark.parametrize("how", ["missing", "failing"])
def test_what_a_board_does_not_tell_is_none_and_the_rest_stays(function: str, field: str, how: str) -> None:
    found = reading(**{how: (function,)})
    assert getattr(found, field) is None
    assert found.throttle_bits == 4


def test_the_board_is_found_by_uuid_and_not_by_index() -> None:
    assert reading("aaaa").temperature_c == 61  # torch gives no prefix; index 0 would be the other board
    assert reading("GPU-BBBB").temperature_c == 33


def test_a_mig_slice_is_read_through_its_board() -> None:
    assert reading("MIG-cccc").temperature_c == 61


def test_without_driver_library_or_board_readings_are_empty() -> None:
    assert Nvml.open(FakeNvml(failing=("nvmlInit",))) is None
    assert Sensor(None, "GPU-aaaa").read() == Reading()
    assert reading("GPU-zzzz") == Reading()
    assert reading(None) == Reading()
    assert reading(failing=("nvmlDeviceGetCount",)) == Reading()


def test_columns_have_one_value_per_repetition_and_drop_what_was_never_read() -> None:
    table = columns([Reading(1980, None, 300.5), Reading(None, None, 301.0)])
    assert table is not None
    assert table.sm_clock_mhz == (1980, None)
    assert table.memory_clock_mhz is None
    assert table.power_w == (300.5, 301.0)
    assert columns([Reading(), Reading()]) is None
    assert columns([]) is None


def test_uuids_of_torch_and_nvml_agree() -> None:
    assert bare_uuid("GPU-12AB-34") == bare_uuid("12ab-34") == "12ab-34"


# --- fields that change slowly, other processes, energy ---------------------------------------------------------------


def test_slow_fields_are_read_once_a_second_and_are_none_in_between() -> None:
    times_s = iter([0.0, 0.4, 0.9, 1.0])
    sensor = Sensor(Nvml.open(FakeNvml()), "GPU-aaaa", now_s=lambda: next(times_s))
    assert [sensor.read().pcie_width for _ in range(4)] == [16, None, None, 16]


@pytest.mark.parametrize(
    ("pids", "others"),
    [((), 0), ((os.getpid(),), 0), ((os.getpid(), 2**31 - 5, 2**31 - 6), 2), ((2**31 - 5,), None)],
    ids=["nobody", "only we", "two more", "pids of another namespace"],
)
def test_other_processes_are_counted_only_where_our_own_is_among_those_shown(
    pids: tuple[int, ...], others: int | None
) -> None:
    library = FakeNvml()
    library.processes = tuple(SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in pids)
    assert Sensor(Nvml.open(library), "GPU-aaaa").read().other_processes == others


def at(seconds: float, millijoules: int | None) -> Reading:
    return Reading(energy_mj=millijoules, at_s=seconds)


def test_energy_of_a_repetition_is_what_the_counter_moved_over_the_repetitions_in_between() -> None:
    readings = [at(10.0, 5_000), at(11.0, 305_000), at(12.0, 605_000)]  # 300 J a second
    assert energy_of(readings, [990.0, 990.0, 990.0], 0.1) == (300.0, True)


@pytest.mark.parametrize(
    ("readings", "wall_ms", "told"),
    [
        ([at(0.0, 0), at(0.5, 150_000)], [490.0, 490.0], (150.0, False)),  # five steps of 0.1 s
        ([at(0.0, 0), at(2.0, 600_000)], [1000.0, 1000.0], (600.0, False)),  # half of the time between repetitions
        ([at(0.0, 7), at(2.0, 7)], [1990.0, 1990.0], (None, False)),  # a counter that stands still
        ([at(0.0, 7)], [1990.0], (None, False)),
        ([at(0.0, None), at(2.0, None)], [1990.0, 1990.0], (None, None)),  # no counter: nothing to be valid
        ([], [], (None, None)),
    ],
    ids=["too short", "idle in between", "still", "one reading", "no counter", "no reading"],
)
def test_energy_that_the_counter_cannot_tell_is_not_valid(
    readings: list[Reading], wall_ms: list[float], told: tuple[float | None, bool | None]
) -> None:
    assert energy_of(readings, wall_ms, 0.1) == told


def test_the_energy_column_has_values_only_where_the_time_holds_ten_steps_of_the_counter() -> None:
    table = columns([at(0.0, 0), at(2.0, 600_000), at(2.5, 750_000), at(4.5, 750_000)], 0.1)
    assert table is not None
    assert table.energy_j == (None, 600.0, None, None)  # first, long enough, too short, stood still


def test_the_step_of_the_energy_counter_is_the_time_between_its_changes() -> None:
    clock = {"s": 0.0}

    def sleep(seconds: float) -> None:
        clock["s"] += 0.01

    step_s = measured_energy_step_s(lambda: int(clock["s"] / 0.1 + 1e-9), 0.5, lambda: clock["s"], sleep)
    assert step_s == pytest.approx(0.1)
    assert measured_energy_step_s(lambda: None) is None
    assert measured_energy_step_s(lambda: 7, 0.5, lambda: clock["s"], sleep) is None  # stands still


def test_the_cost_of_a_reading_is_told_in_microseconds() -> None:
    ticks = iter(range(1000))
    sensor = Sensor(Nvml.open(FakeNvml()), "GPU-aaaa", now_s=lambda: 0.0)
    assert reading_cost_us(sensor, readings=3, now_s=lambda: next(ticks) * 25e-6) == 25.0
    assert reading_cost_us(Sensor(None, None)) is None
    assert telemetry.facts(Sensor(None, None)) == {
        "reading_us": None, "reading_with_slow_fields_us": None, "energy_step_s": None,
    }


def test_why_nvml_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mismatch(FakeNvml):
        def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
            raise NVMLError("Driver/library version mismatch")

    assert Nvml.try_open(Mismatch()) == (None, "Driver/library version mismatch")
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert Nvml.try_open() == (None, NO_PACKAGE)


# --- flags -----------------------------------------------------------------------------------------------------------

MAX_MHZ = 2000.0


@pytest.mark.parametrize(
    ("bits", "clock_mhz", "utilization_percent", "flag"),
    [
        (0, 1990.0, 100.0, None),
        (clock_events.SW_THERMAL, 1990.0, 100.0, "thermal"),
        (clock_events.HW_THERMAL | clock_events.HW_SLOWDOWN, 900.0, 100.0, "thermal"),
        (clock_events.POWER_BRAKE | clock_events.HW_SLOWDOWN, 900.0, 100.0, "power_brake"),
        (clock_events.HW_SLOWDOWN, 900.0, 100.0, "slowdown"),
        (clock_events.POWER_CAP, 1500.0, 100.0, "power_cap"),
        (clock_events.POWER_CAP, 1900.0, 100.0, None),  # touches its limit, loses no clock
        (clock_events.POWER_CAP, None, 100.0, "power_cap"),  # clock unknown
        (clock_events.IDLE, 345.0, 5.0, "starved"),
        (clock_events.IDLE, 345.0, None, "starved"),
        (clock_events.IDLE, 1990.0, 5.0, None),  # read between two kernels, the clock is up
        (0, 345.0, 5.0, "starved"),
        (0, 900.0, 100.0, "slow_clock"),
        (clock_events.APPLICATION_CLOCKS, 900.0, 100.0, None),  # somebody set it so: a setting, not a spoiled sample
        (0, 900.0, None, None),  # nobody knows whether it was busy
        (None, 900.0, 100.0, "slow_clock"),
        (None, None, None, None),
    ],
)
def test_a_flag_tells_throttled_from_starved(
    bits: int | None, clock_mhz: float | None, utilization_percent: float | None, flag: str | None
) -> None:
    assert clock_events.flag(bits, clock_mhz, MAX_MHZ, None, None, utilization_percent) == flag


def test_without_reasons_a_board_at_its_limit_is_power_capped() -> None:
    assert clock_events.flag(None, 1500.0, MAX_MHZ, 69.0, 70.0, 100.0) == "power_cap"
    assert clock_events.flag(None, 1500.0, MAX_MHZ, 40.0, 70.0, 100.0) == "slow_clock"


def test_flags_have_one_entry_per_repetition_whatever_columns_there_are() -> None:
    table = Telemetry(sm_clock_mhz=(1990.0, 1500.0), throttle_bits=(0, clock_events.POWER_CAP))
    assert clock_events.flags(table, MAX_MHZ) == [None, "power_cap"]
    assert clock_events.flags(Telemetry(throttle_bits=(None, 0x20)), None) == [None, "thermal"]
    assert clock_events.flags(None, MAX_MHZ) == []


def test_reasons_are_told_in_words_and_unknown_bits_as_numbers() -> None:
    assert clock_events.reasons(0x24) == ("power cap", "thermal slowdown")
    assert clock_events.reasons(0x1000) == ("0x1000",)
    assert clock_events.reasons(None) == clock_events.reasons(0) == ()
