"""Precision is set through one API, read back, and never called something that the arithmetic is not."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from core.errors import UserError
from core.measure import device, precision, worker
from core.measure.nvml import Nvml


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    precision.apply("default")


def test_fp32_is_ieee_and_tf32_is_tf32_in_products_and_convolutions() -> None:
    fp32 = precision.apply("fp32")
    assert (fp32["matmul_fp32"], fp32["conv_fp32"]) == ("ieee", "ieee")
    tf32 = precision.apply("tf32")
    assert (tf32["matmul_fp32"], tf32["conv_fp32"]) == ("tf32", "tf32")


@pytest.mark.parametrize("name", ["default", "fp16", "bf16"])
def test_default_and_autocast_leave_torch_as_it_was_found(name: str) -> None:
    untouched = precision.settings()["untouched"]
    precision.apply("tf32")
    assert precision.apply(name) == untouched
    assert untouched["conv_fp32"] == "tf32"  # torch's own default: TF32 in convolutions, not in products
    assert untouched["matmul_fp32"] != "tf32"


@pytest.mark.skipif(precision.API != "fp32_precision", reason="torch before 2.9 has the older flags only")
def test_the_old_flags_are_never_touched_where_the_new_ones_are() -> None:
    for name in ("fp32", "tf32", "default"):
        precision.apply(name)
        # torch raises here when both APIs were used and disagree
        assert torch.backends.cuda.matmul.fp32_precision in ("ieee", "tf32", "none")


def test_a_model_that_changes_the_setting_fails_its_cell_with_that_reason() -> None:
    asked = precision.apply("fp32")
    worker.refuse_change(asked)
    precision.apply("tf32")  # what a model does that prefers speed
    with pytest.raises(RuntimeError, match=r"the model changed .*conv_fp32 ieee to tf32"):
        worker.refuse_change(asked)


def test_cudnn_benchmark_left_on_by_a_model_is_off_in_the_next_cell() -> None:
    torch.backends.cudnn.benchmark = True
    precision.apply("fp32")
    assert precision.path_of("fp32", "cuda", (9, 0))["cudnn_benchmark"] is False


@pytest.mark.parametrize(
    ("name", "device_type", "capability", "environment", "told"),
    [
        ("tf32", "cpu", None, {}, "a CPU has no TF32"),
        ("tf32", "cuda", (7, 5), {}, "needs compute capability 8.0, this GPU has 7.5"),
        ("tf32", "cuda", (8, 0), {}, None),
        ("tf32", "cuda", (8, 0), {"NVIDIA_TF32_OVERRIDE": "0"}, "switches TF32 off"),
        ("fp32", "cuda", (8, 0), {"NVIDIA_TF32_OVERRIDE": "1"}, "forces TF32"),
        ("fp32", "cuda", (7, 5), {"NVIDIA_TF32_OVERRIDE": "1"}, None),  # a T4 has none to force
        ("bf16", "cuda", (7, 5), {}, None),  # emulated, run and marked
        ("default", "cuda", (7, 5), {}, None),
    ],
)
def test_what_a_device_cannot_honestly_run_has_a_reason(
    name: str, device_type: str, capability: tuple[int, int] | None, environment: dict[str, str], told: str | None
) -> None:
    reason = precision.unsupported_reason(name, device_type, capability, environment)
    assert reason is None if told is None else told in str(reason)


def test_bf16_below_8_0_is_marked_as_emulated() -> None:
    assert precision.path_of("bf16", "cuda", (7, 5))["emulated_bf16"] is True
    assert precision.path_of("bf16", "cuda", (8, 0))["emulated_bf16"] is False
    assert precision.path_of("bf16", "cpu", None)["emulated_bf16"] is False


def test_a_cpu_reports_its_own_flags_and_not_those_of_cudnn() -> None:
    precision.apply("default")
    assert precision.path_of("default", "cpu", None).get("conv_fp32") != "tf32"
    assert precision.path_of("default", "cuda", (9, 0))["conv_fp32"] == "tf32"


def test_overrides_from_outside_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert precision.settings()["environment"]["NVIDIA_TF32_OVERRIDE"] == "0"


# --- which device ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("built_for", "driver", "told"),
    [
        (None, "550.54", "is a CPU build, beside an NVIDIA driver (550.54)"),
        (None, None, "no NVIDIA driver, and this torch (2.13.0) is a CPU build"),
        ("13.0", "470.1", "built for CUDA 13.0 but finds no usable device with driver 470.1"),
        ("13.0", None, "no NVIDIA driver was found"),
    ],
)
def test_no_cuda_says_which_part_is_missing(built_for: str | None, driver: str | None, told: str) -> None:
    message = str(device.no_cuda("2.13.0", built_for, driver, None))
    assert told in message
    assert "--device cpu" in message
    assert "\n" not in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_asking_for_a_gpu_that_is_not_there_is_a_users_mistake_and_auto_takes_the_cpu() -> None:
    with pytest.raises(UserError, match="CUDA"):
        device.find("cuda:0", None)
    found = device.find("auto", None)
    assert found.torch_name == "cpu"
    assert len(found.device.uuid_hash) == 32
    assert found.device.uuid_hash == device.find("cpu", None).device.uuid_hash


class BusyBoard:
    """NVML of one board with the given processes and utilisation."""

    def __init__(self, processes: list[Any], percent: int) -> None:
        self.processes, self.percent = processes, percent

    def nvmlInit(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        return "board"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return "GPU-AA"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802
        return self.processes

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        return type("Rates", (), {"gpu": self.percent})()


def test_a_board_that_another_process_uses_is_told_with_who_and_how_much() -> None:
    other = type("Process", (), {"pid": 4242, "usedGpuMemory": 3 * 2**30})()

    def users(processes: list[Any], percent: int) -> dict[str, str]:
        nvml = Nvml.open(BusyBoard(processes, percent))
        assert nvml is not None
        return device.board_users(nvml)

    assert users([other], 0) == {"aa": "pid 4242 with 3.0 GiB"}
    assert users([], 97) == {"aa": "97 % utilisation by processes not visible here"}
    assert users([], 3) == {}


# --- a CPU that others use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "busy"),
    [
        ("cpu 180 0 170 240 60 0 0 0", 0.75),  # of 200 ticks that passed, 40 idle and 10 waiting for a disk
        ("cpu 100 0 100 200 200 0 0 0", 0.0),
        ("cpu 100 0 100 200 50 0 0 0", None),  # no tick passed
        ("gibberish", None),
    ],
)
def test_the_share_of_a_cpu_in_use_comes_from_the_ticks_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str, busy: float | None
) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 100 200 50 0 0 0\ncpu0 1 2 3 4\n")
    monkeypatch.setattr(device.time, "sleep", lambda _: stat.write_text(after + "\n"))
    assert device.busy_share(0.3, stat) == (None if busy is None else pytest.approx(busy))
    assert device.busy_share(0.3, tmp_path / "missing") is None


def test_a_cpu_that_others_use_is_said_with_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "busy_share", lambda: 0.6)
    assert any("60% busy" in warning for warning in device.find("cpu", None).warnings)
    monkeypatch.setattr(device, "busy_share", lambda: 0.1)
    assert device.find("cpu", None).warnings == ()
