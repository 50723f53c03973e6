"""NVML readings: old and new names, missing fields, boards told apart by UUID. With a fake NVML, no driver needed."""
from __future__ import annotations

from typing import Any

import pytest

from core.measure.nvml import Nvml, bare_uuid
from core.measure.telemetry import Reading, Sensor, columns


class NVMLError(Exception):
    pass


class FakeNvml:
    """Two boards in another order than CUDA's, the second with a MIG slice. `missing` functions are not there;
    `failing` ones raise, as NVML does for what a board does not support."""

    boards = ("GPU-bbbb", "GPU-aaaa")

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
        }
        if name in self._missing or name not in answers:
            raise AttributeError(name)
        if name in self._failing:
            def fail(*arguments: object) -> None:
                raise NVMLError("Not Supported")
            return fail
        return answers[name]


def reading(uuid: str | None = "GPU-aaaa", **how: tuple[str, ...]) -> Reading:
    return Sensor(Nvml.open(FakeNvml(**how)), uuid).read()


def test_a_reading_has_clocks_power_temperature_and_reasons_in_their_units() -> None:
    assert reading() == Reading(1980.0, 3201.0, 412.345, 61.0, 4)


def test_old_drivers_answer_under_the_old_name() -> None:
    assert reading(missing=("nvmlDeviceGetCurrentClocksEventReasons",)).throttle_bits == 8


@pytest.mark.parametrize(
    ("function", "field"),
    [
        ("nvmlDeviceGetPowerUsage", "power_w"),
        ("nvmlDeviceGetTemperature", "temperature_c"),
        ("nvmlDeviceGetClockInfo", "sm_clock_mhz"),
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
