"""The doctor's lines for machines that are not here: facts made by hand, a fake NVML, no GPU."""
from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.answers import doctor as answer
from core.measure import doctor, host
from core.measure.doctor import Check, Facts, gather, judge
from core.records import clock_events

GIB = 2**30

WELL = Facts(
    driver="580.65", driver_cuda=(13, 0), boards=("NVIDIA H200",), torch="2.13.0", torch_cuda="13.0",
    cuda_available=True, arch_list=("sm_75", "sm_80", "sm_90"), tf32={"matmul_fp32": "none", "conv_fp32": "tf32"},
    gpu="NVIDIA H200", capability=(9, 0), sm_clock_mhz=1980.0, max_sm_clock_mhz=1980.0, application_clock_mhz=1980.0,
    memory_clock_mhz=3201.0, power_w=120.0, power_limit_w=700.0, default_power_limit_w=700.0, temperature_c=33.0,
    throttle_bits=0, users_known=True, memory_used_bytes=GIB, memory_bytes=140 * GIB, pcie=(5, 16), pcie_max=(5, 16),
    mig=False, ecc=True, persistence=True, virtualization="none", python="3.11.7", system="Linux 6.1", cpu="A CPU",
    cores_total=32, cores_usable=32, governors=("performance",), busy_share=0.01, ram_bytes=64 * GIB,
    ram_free_bytes=60 * GIB, disk_free_bytes=100 * GIB, runs_writable=True,
)
"""A machine with nothing to complain about."""

WITHOUT_GPU = Facts(
    nvml_failure="the package nvidia-ml-py is not installed", torch="2.13.0+cpu", cuda_available=False, tf32={},
    python="3.11.7", system="Linux 6.1", cores_total=2, cores_usable=2, ram_free_bytes=8 * GIB, ram_bytes=8 * GIB,
    disk_free_bytes=9 * GIB, runs_writable=True,
)


def line(name: str, facts: Facts = WELL, **changes: Any) -> Check:
    return next(check for check in judge(dataclasses.replace(facts, **changes)) if check.name == name)


def test_a_healthy_machine_has_about_twenty_lines_and_none_to_worry_about() -> None:
    checks = judge(WELL)
    assert 18 <= len(checks) <= 24
    assert {check.status for check in checks} == {"ok"}
    assert len({check.name for check in checks}) == len(checks)


@pytest.mark.parametrize("facts", [WELL, WITHOUT_GPU, Facts(), Facts(driver="580.1", gpu="NVIDIA T4")],
                         ids=["well", "without GPU", "nothing is known", "nothing but a name"])
def test_every_line_of_every_machine_says_why_and_what_to_do(facts: Facts) -> None:
    for check in judge(facts):
        assert check.status in doctor.STATUSES, check
        assert all((check.name, check.found, check.why, check.fix)), check
        assert "None" not in check.found, check


@pytest.mark.parametrize(
    ("name", "changes", "status", "told"),
    [
        ("driver", {"driver": None, "kernel_driver": "550.54", "nvml_failure": "Driver/library version mismatch"},
         "bad", "550.54"),
        ("torch", {"torch": "2.13.0+cpu", "torch_cuda": None}, "bad", "CPU build beside NVIDIA driver 580.65"),
        ("torch", {"torch": None, "torch_failure": "torch cannot be loaded (OSError: libcudart)"}, "bad", "libcudart"),
        ("cuda", {"driver": "535.54", "driver_cuda": (12, 2)}, "bad",
         "driver 535.54 serves CUDA 12.2 at most, torch is built for CUDA 13.0"),
        ("cuda", {"torch_cuda": "12.8", "driver_cuda": (12, 4)}, "warn", "CUDA 12.8, the driver serves CUDA 12.4"),
        ("cuda", {"torch_cuda": "12.8"}, "ok", "the driver serves CUDA 13.0"),
        ("cuda", {"cuda_available": False, "cuda_failure": "no device"}, "bad", "no usable GPU (no device)"),
        ("architecture", {"capability": (7, 0)}, "bad", "this card is 7.0, this torch has code for sm_75"),
        ("architecture", {"capability": (12, 0), "arch_list": ("sm_90", "compute_90")}, "warn", "at the first call"),
        ("architecture", {"capability": (8, 9)}, "ok", "8.9"),  # code for sm_80 runs on it
        ("architecture", {"capability": (12, 0), "arch_list": ("sm_120",)}, "ok", "12.0"),
        ("tf32", {"environment": {"NVIDIA_TF32_OVERRIDE": "0"}}, "warn", "NVIDIA_TF32_OVERRIDE=0"),
        ("environment", {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}, "warn", "CUDA_LAUNCH_BLOCKING"),
        ("environment", {"environment": {"CUDA_LAUNCH_BLOCKING": "0"}}, "ok", "nothing that slows"),
        ("bf16", {"capability": (7, 5)}, "warn", "emulated on compute capability 7.5"),
        ("clocks", {"application_clock_mhz": 900.0}, "warn", "application clock 900 MHz of 1\u2009980 MHz"),
        ("clocks", {"max_sm_clock_mhz": None}, "unknown", "does not tell"),
        ("power", {"power_limit_w": 400.0}, "warn", "400 W, below the default of 700 W"),
        ("power", {"power_limit_w": None}, "unknown", "does not tell"),
        ("throttling", {"throttle_bits": clock_events.HW_THERMAL, "temperature_c": 95.0}, "bad", "95 °C"),
        ("throttling", {"throttle_bits": clock_events.POWER_CAP, "sm_clock_mhz": 1200.0}, "warn", "power cap"),
        ("throttling", {"throttle_bits": clock_events.IDLE, "sm_clock_mhz": 345.0}, "ok", "idle"),
        ("throttling", {"throttle_bits": None}, "unknown", "does not tell"),
        ("other processes", {"users": "pid 7 with 3.0 GiB"}, "bad", "pid 7 with 3.0 GiB; 1.00 GiB of 140 GiB"),
        ("other processes", {"users_known": False}, "unknown", "does not show"),
        ("pcie", {"pcie": (4, 4)}, "warn", "generation 4 x4 of generation 5 x16"),
        ("pcie", {"pcie": (1, 16)}, "ok", "generation 1 x16"),  # an idle card saves power
        ("pcie", {"pcie": (None, None)}, "unknown", "does not tell"),
        ("mig", {"mig": True}, "warn", "a slice of the card"),
        ("mig", {"mig": None}, "unknown", "does not tell"),
        ("ecc", {"ecc": False}, "ok", "off"),
        ("ecc", {"ecc": None}, "unknown", "does not tell"),
        ("virtualization", {"virtualization": "vgpu"}, "warn", "vgpu"),
        ("cpu", {"cores_usable": 1}, "warn", "1 usable core, of 32"),
        ("cpu governor", {"governors": ("powersave",)}, "warn", "powersave"),
        ("cpu governor", {"governors": ("powersave", "intel_pstate")}, "ok", "powersave"),
        ("cpu governor", {"governors": ()}, "unknown", "not told"),
        ("cpu load", {"busy_share": 0.6}, "warn", "60%"),
        ("memory", {"ram_free_bytes": GIB}, "warn", "1.00 GiB free"),
        ("disk", {"disk_free_bytes": 1000}, "warn", "1\u2009000 B free"),
        ("disk", {"runs_writable": False}, "bad", "may not be written"),
        ("nvidia-ml-py", {"nvml_failure": doctor.NO_PACKAGE}, "warn", "not installed"),
        ("nvidia-ml-py", {"nvml_failure": "Insufficient Permissions"}, "warn", "Insufficient Permissions"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_and_named(name: str, changes: dict[str, Any], status: str, told: str) -> None:
    check = line(name, **changes)
    assert (check.status, told in check.found) == (status, True), check


def test_a_machine_without_driver_has_no_lines_about_a_board() -> None:
    names = [check.name for check in judge(WITHOUT_GPU)]
    assert "clocks" not in names
    assert line("driver", WITHOUT_GPU).status == "warn"
    assert line("nvidia-ml-py", WITHOUT_GPU).status == "ok"  # there is nothing that it could read


# --- asking ----------------------------------------------------------------------------------------------------------


class FakeNvml:
    """One T4 at work; `missing` functions are not there."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlSystemGetDriverVersion": lambda: "550.54.15",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040, "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda i: "t4", "nvmlDeviceGetUUID": lambda h: "GPU-aaaa",
            "nvmlDeviceGetName": lambda h: b"Tesla T4",
            "nvmlDeviceGetClockInfo": lambda h, kind: {1: 585, 2: 5000}[kind],
            "nvmlDeviceGetMaxClockInfo": lambda h, kind: {1: 1590, 2: 5001}[kind],
            "nvmlDeviceGetApplicationsClock": lambda h, kind: 585,
            "nvmlDeviceGetPowerUsage": lambda h: 68_000, "nvmlDeviceGetEnforcedPowerLimit": lambda h: 70_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda h: 70_000,
            "nvmlDeviceGetTemperature": lambda h, kind: 84,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: clock_events.SW_THERMAL,
            "nvmlDeviceGetComputeRunningProcesses_v3": lambda h: [SimpleNamespace(pid=2**31 - 3, usedGpuMemory=GIB)],
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(used=2 * GIB, total=15 * GIB),
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda h: 3, "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 8,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda h: 3, "nvmlDeviceGetMaxPcieLinkWidth": lambda h: 16,
            "nvmlDeviceGetEccMode": lambda h: [1, 1], "nvmlDeviceGetPersistenceMode": lambda h: 1,
            "nvmlDeviceGetVirtualizationMode": lambda h: 1,
        }
        if name in self._missing or name not in answers:
            raise AttributeError(name)
        return answers[name]


def test_a_board_that_torch_cannot_use_is_still_read_through_nvml() -> None:
    facts = gather(nvml_library=FakeNvml())
    found = {check.name: check for check in judge(facts)}
    assert facts.boards == ("Tesla T4",)
    assert found["torch"].status == "bad"  # this torch is a CPU build
    assert found["clocks"].found.startswith("application clock 585 MHz")
    assert (found["throttling"].status, found["pcie"].status) == ("bad", "warn")
    assert found["other processes"].found.startswith(f"pid {2**31 - 3} with 1.0 GiB")
    assert found["mig"].status == "unknown"  # a T4 knows no MIG
    assert found["virtualization"].found == "the whole card, passed through"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("nvmlDeviceGetMaxClockInfo", "clocks"), ("nvmlDeviceGetEnforcedPowerLimit", "power"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "throttling"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "other processes"), ("nvmlDeviceGetCurrPcieLinkWidth", "pcie"),
        ("nvmlDeviceGetEccMode", "ecc"), ("nvmlDeviceGetPersistenceMode", "persistence"),
        ("nvmlDeviceGetVirtualizationMode", "virtualization"),
    ],
)
def test_what_a_board_does_not_tell_is_unknown_and_the_rest_stays(function: str, name: str) -> None:
    found = {check.name: check.status for check in judge(gather(nvml_library=FakeNvml((function,))))}
    assert found.pop(name) == "unknown"
    assert list(found.values()).count("unknown") <= 3  # MIG, governor, architecture


def test_governors_are_read_once_each(tmp_path: Path) -> None:
    for core, governor in enumerate(("powersave", "powersave", "performance")):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(governor + "\n")
        (folder / "scaling_driver").write_text("intel_pstate\n")
    assert host.governors(tmp_path) == ("powersave", "performance", "intel_pstate")
    assert host.governors(tmp_path / "missing") == ()


# --- as a process ----------------------------------------------------------------------------------------------------


def test_the_app_gets_the_lines_from_a_process_of_its_own(tmp_path: Path) -> None:
    found = answer.checks(runs=str(tmp_path))
    assert {"driver", "torch", "cpu", "disk"} <= {check["name"] for check in found}
    assert set(found[0]) == {"name", "status", "found", "why", "fix"}
    assert answer.headline(found)


def test_a_process_that_hangs_or_breaks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*arguments: Any, **options: Any) -> None:
        raise subprocess.TimeoutExpired("doctor", 1.0)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert [(one["status"], one["found"]) for one in answer.checks(1.0)] == [("unknown", "no answer within 1 s")]
    broken = SimpleNamespace(stdout="", stderr="Traceback\nImportError: no numpy\n", returncode=1)
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: broken)
    assert answer.checks()[0]["found"] == "ImportError: no numpy"
    assert all(answer.checks()[0].values())


def test_the_headline_names_what_needs_attention() -> None:
    given = (("driver", "ok"), ("torch", "bad"), ("pcie", "warn"), ("mig", "unknown"))
    checks = [{"name": name, "status": status} for name, status in given]
    assert answer.headline(checks) == (
        "This machine has something to look at: bad: torch; warn: pcie; 1 could not be told."
    )
    assert answer.headline(checks[:1]) == "1 of 1 checks are ok."


def test_the_command_exits_0_with_one_json_document() -> None:
    command = [sys.executable, "-m", "core", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert all(check["fix"] and check["why"] for check in told["checks"])


def test_a_device_that_cannot_be_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--device", "gpu7"]) == 2
    assert "device 'gpu7'" in capsys.readouterr().err
    assert doctor.main(["--device", "all"]) == 2
    assert "one device" in capsys.readouterr().err
