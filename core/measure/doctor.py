"""`python -m core.measure doctor`: is this machine fit to measure? About twenty lines, each with reason and fix.

`gather` asks driver, torch and system once: what cannot be asked is None. `judge` turns these facts
into lines without asking anything, so that every case can be tested without a GPU. torch is loaded only here, in a
process of its own; where it cannot be loaded, that is one of the lines.
"""
from __future__ import annotations

import dataclasses
import importlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import units
from core.errors import UserError
from core.measure import host, reasons
from core.measure.command import Parser, exit_code
from core.measure.nvml import NO_PACKAGE, Nvml, bare_uuid
from core.measure.plan import ALL_DEVICES, parse_device, usable_cores
from core.measure.telemetry import CLOCK_MEMORY, CLOCK_SM, TEMPERATURE_GPU, event_reasons, number, whole
from core.records import RunsFolder, clock_events

STATUSES = ("ok", "warn", "bad", "unknown")
ARITHMETIC_OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE",
                        "DNNL_DEFAULT_FPMATH_MODE")
SLOWING = {"CUDA_LAUNCH_BLOCKING": "1", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "TORCH_CUDNN_V8_API_DISABLED": "1"}

LEAST_DISK_BYTES = 2**30
LEAST_RAM_BYTES = 4 * 2**30
_CLOCK_SHARE = 0.97  # application clocks from this share of the maximum on are the maximum
_BUSY_CPU_SHARE = 0.25
_VIRTUAL = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_APPLICATION_CLOCK = "nvmlDeviceGetApplicationsClock"


@dataclasses.dataclass(frozen=True)
class Check:
    """One line. `why` and `fix` stand in every line, also in one that is ok."""

    name: str
    status: str
    found: str
    why: str
    fix: str


@dataclasses.dataclass(frozen=True)
class Facts:
    """What this machine told; None: nobody could be asked, or it did not answer."""

    asked: str = "auto"
    # driver and NVML
    driver: str | None = None  # of NVML
    kernel_driver: str | None = None  # of the kernel module
    driver_cuda: tuple[int, int] | None = None  # the newest CUDA that the driver serves
    nvml_failure: str | None = None
    boards: tuple[str, ...] = ()
    # torch
    torch: str | None = None
    torch_failure: str | None = None
    torch_cuda: str | None = None
    cuda_available: bool | None = None
    cuda_failure: str | None = None
    arch_list: tuple[str, ...] = ()
    tf32: Mapping[str, str] | None = None
    # the board
    gpu: str | None = None
    capability: tuple[int, int] | None = None
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    application_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    temperature_c: float | None = None
    throttle_bits: int | None = None
    users: str | None = None
    users_known: bool = False
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    pcie: tuple[int | None, int | None] = (None, None)  # generation, width now
    pcie_max: tuple[int | None, int | None] = (None, None)
    mig: bool | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    virtualization: str | None = None
    # the host
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    python: str = ""
    system: str = ""
    cpu: str | None = None
    cores_total: int | None = None
    cores_usable: int | None = None
    governors: tuple[str, ...] = ()
    busy_share: float | None = None
    ram_bytes: int | None = None
    ram_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    runs_writable: bool | None = None

    @property
    def has_gpu(self) -> bool:
        return self.gpu is not None

    @property
    def has_driver(self) -> bool:
        return self.driver is not None or self.kernel_driver is not None


# --- judging ---------------------------------------------------------------------------------------------------------


def judge(facts: Facts) -> list[Check]:
    """All lines, in the order in which one would look for a fault."""
    return [check(facts) for check in (*_SOFTWARE, *(_BOARD if facts.has_gpu or facts.has_driver else ()), *_HOST)]


def _driver(facts: Facts) -> Check:
    why = "Without a working driver nothing runs on the GPU, and measurements are those of the CPU."
    fix = "Install the driver that NVIDIA names for this card; after an update reboot, or reload the kernel module."
    mismatch = facts.nvml_failure is not None and "mismatch" in facts.nvml_failure.lower()
    if mismatch:
        module = facts.kernel_driver or "of unknown version"
        return Check("driver", "bad", f"the kernel module ({module}) and its library differ: {facts.nvml_failure}",
                     why, "Reboot, so that the kernel loads the module that belongs to the installed library.")
    version = facts.driver or facts.kernel_driver
    if version is None:
        return Check("driver", "warn", "no NVIDIA driver was found", why, fix)
    boards = f", {len(facts.boards)} board{'s' * (len(facts.boards) != 1)}: {', '.join(facts.boards)}" \
        if facts.boards else ""
    return Check("driver", "ok", f"NVIDIA driver {version}{boards}", why, fix)


def _nvml(facts: Facts) -> Check:
    why = "It gives clocks, power and throttling: without them a slow sample cannot be told from a slow card."
    fix = "Run `pip install nvidia-ml-py` in this environment."
    if facts.nvml_failure is None:
        return Check("nvidia-ml-py", "ok", "NVML answers", why, fix)
    if facts.nvml_failure == NO_PACKAGE:
        return Check("nvidia-ml-py", "warn" if facts.has_driver else "ok", NO_PACKAGE, why, fix)
    if not facts.has_driver:
        return Check("nvidia-ml-py", "ok", "installed; without a driver there is nothing to read", why, fix)
    return Check("nvidia-ml-py", "warn", f"NVML does not answer: {facts.nvml_failure}", why,
                 "Make driver and its library agree (see the line driver), or ask for access to the device files.")


def _torch(facts: Facts) -> Check:
    why = "Trackers run in torch; a CPU build of it leaves the GPU idle without a word."
    fix = "Install the build for your CUDA as pytorch.org/get-started says."
    if facts.torch is None:
        return Check("torch", "bad", facts.torch_failure or "torch is not installed", why, fix)
    if facts.torch_cuda is None and facts.has_driver:
        version = facts.driver or facts.kernel_driver
        return Check("torch", "bad", f"torch {facts.torch} is a CPU build beside NVIDIA driver {version}", why, fix)
    built = f"built for CUDA {facts.torch_cuda}" if facts.torch_cuda else "a CPU build, as fits no driver"
    return Check("torch", "ok", f"torch {facts.torch}, {built}; Python {facts.python}", why, fix)


def _cuda(facts: Facts) -> Check:
    why = "A driver serves the CUDA version that it came with and older ones; a newer torch then finds no GPU."
    serves = f"CUDA {facts.driver_cuda[0]}.{facts.driver_cuda[1]}" if facts.driver_cuda else "an unknown CUDA version"
    fix = "Update the driver, or install a torch built for an older CUDA."
    if facts.torch_cuda is None:
        if facts.has_driver:
            return Check("cuda", "warn", f"the driver serves {serves}; this torch uses none", why,
                         "Install a CUDA build of torch.")
        return Check("cuda", "ok", "neither driver nor CUDA build", why, "Nothing, unless this machine has a GPU.")
    built = f"torch is built for CUDA {facts.torch_cuda}"
    wanted = _numbers(facts.torch_cuda)
    if facts.driver_cuda is not None and wanted is not None and facts.driver_cuda[0] < wanted[0]:
        return Check("cuda", "bad", f"driver {facts.driver or facts.kernel_driver} serves {serves} at most, {built}",
                     why, fix)
    if facts.cuda_available is False:
        reason = f" ({facts.cuda_failure})" if facts.cuda_failure else ""
        return Check("cuda", "bad" if facts.has_driver else "warn", f"{built} but finds no usable GPU{reason}", why,
                     fix if facts.has_driver else "Install the driver, or use --device cpu.")
    newer = facts.driver_cuda is not None and wanted is not None and facts.driver_cuda < wanted
    return Check("cuda", "warn" if newer else "ok", f"{built}, the driver serves {serves}", why,
                 "Code compiled at run time may be refused by this driver; update it to be safe." if newer else fix)


def _arch(facts: Facts) -> Check:
    why = "Without code for this card torch refuses it, or compiles for minutes at the first call."
    fix = "Install a torch build that lists this capability."
    if facts.capability is None or not facts.arch_list:
        status = "unknown" if facts.has_gpu else "ok"
        return Check("architecture", status, "no GPU to compare with" if not facts.has_gpu else "not told", why, fix)
    major, minor = facts.capability
    own = [code for code in map(_code, facts.arch_list) if code and code[0] == major and code[1] <= minor]
    listed = ", ".join(facts.arch_list)
    if own:
        return Check("architecture", "ok", f"code for {major}.{minor} is in this build ({listed})", why, fix)
    ptx = any(name.startswith("compute_") for name in facts.arch_list)
    return Check("architecture", "warn" if ptx else "bad",
                 f"this card is {major}.{minor}, this torch has code for {listed}"
                 + ("; it is compiled at the first call" if ptx else ""), why, fix)


def _tf32(facts: Facts) -> Check:
    why = ('"FP32" may mean TF32, several times faster from compute capability 8.0 on: an override changes '
           "what a precision's name says.")
    fix = "Unset the variable, unless the override is what you want to measure."
    set_ones = [f"{name}={facts.environment[name]}" for name in ARITHMETIC_OVERRIDES if name in facts.environment]
    flags = ", ".join(f"{key} {value}" for key, value in (facts.tf32 or {}).items() if not key.startswith("cpu_"))
    if set_ones:
        return Check("tf32", "warn", f"overridden from outside: {', '.join(set_ones)}", why, fix)
    if facts.tf32 is None:
        return Check("tf32", "unknown", "torch was not asked", why, fix)
    return Check("tf32", "ok", f"no override; torch as loaded: {flags or 'no flag to read'}", why, fix)


def _environment(facts: Facts) -> Check:
    why = "Some variables make every launch or allocation slow: the times are then not those of the tracker."
    slow = [name for name, value in SLOWING.items() if facts.environment.get(name) == value]
    fix = f"Run `unset {' '.join(slow or SLOWING)}` before measuring."
    if slow:
        return Check("environment", "warn", f"set: {', '.join(slow)}", why, fix)
    threads = facts.environment.get("OMP_NUM_THREADS")
    return Check("environment", "ok", "nothing that slows launches" + (f"; OMP_NUM_THREADS={threads}" * bool(threads)),
                 why, fix)


def _bf16(facts: Facts) -> Check:
    why = "Below compute capability 8.0 bf16 is emulated, slower than fp32: such cells stay out of comparisons."
    fix = "Use fp16 on this card."
    if facts.capability is None:
        return Check("bf16", "ok" if not facts.has_gpu else "unknown", "no GPU to ask", why, fix)
    version = f"{facts.capability[0]}.{facts.capability[1]}"
    native = facts.capability >= (8, 0)
    return Check("bf16", "ok" if native else "warn",
                 f"{'native' if native else 'emulated'} on compute capability {version}", why, fix)


def _clocks(facts: Facts) -> Check:
    why = "A card whose clock is set below its maximum is slower by that share, whatever its data sheet says."
    fix = "Ask whoever runs this machine to reset application clocks (nvidia-smi -rac) and locked clocks (-rgc)."
    top = facts.max_sm_clock_mhz
    if top is None:
        return Check("clocks", "unknown", "NVML does not tell them here", why, fix)
    now = f"now {units.mhz(facts.sm_clock_mhz)}, " if facts.sm_clock_mhz is not None else ""
    memory = f", memory {units.mhz(facts.memory_clock_mhz)}" if facts.memory_clock_mhz is not None else ""
    held = facts.application_clock_mhz
    if held is not None and held < _CLOCK_SHARE * top:
        return Check("clocks", "warn", f"application clock {units.mhz(held)} of {units.mhz(top)}{memory}", why, fix)
    return Check("clocks", "ok", f"{now}at most {units.mhz(top)}{memory}", why, fix)


def _power(facts: Facts) -> Check:
    why = "A lower power limit means lower clocks under load."
    fix = "Ask whoever runs this machine to restore the default limit (nvidia-smi -pl)."
    limit, usual = facts.power_limit_w, facts.default_power_limit_w
    if limit is None:
        return Check("power", "unknown", "this board does not tell its limit", why, fix)
    now = f"{facts.power_w:.0f} W of " if facts.power_w is not None else ""
    if usual is not None and limit < 0.97 * usual:
        return Check("power", "warn", f"{now}{limit:.0f} W, below the default of {usual:.0f} W", why, fix)
    return Check("power", "ok", f"{now}{limit:.0f} W", why, fix)


def _throttling(facts: Facts) -> Check:
    why = "A hot card, or one at its power limit, clocks down: its samples would be flagged as throttled."
    fix = "Let it cool, improve the airflow or the power supply, and measure again."
    if facts.throttle_bits is None:
        return Check("throttling", "unknown", "NVML does not tell the reasons for its clock", why, fix)
    flag = clock_events.flag(facts.throttle_bits, facts.sm_clock_mhz, facts.max_sm_clock_mhz)
    named = ", ".join(clock_events.reasons(facts.throttle_bits)) or "none"
    at = f" at {facts.temperature_c:.0f} °C" if facts.temperature_c is not None else ""
    status = "bad" if flag in ("thermal", "power_brake", "slowdown") else "warn" if flag == "power_cap" else "ok"
    return Check("throttling", status, f"reasons for the present clock: {named}{at}", why, fix)


def _others(facts: Facts) -> Check:
    why = "Another program takes compute time, bandwidth and memory: every time is then wrong."
    fix = "Wait for it or stop it; `--force` measures anyway."
    used = f"; {units.bytes_size(facts.memory_used_bytes)} of {units.bytes_size(facts.memory_bytes)} in use" \
        if facts.memory_used_bytes is not None else ""
    if facts.users:
        return Check("other processes", "bad", f"{facts.users}{used}", why, fix)
    if not facts.users_known:
        return Check("other processes", "unknown", f"NVML does not show who uses this GPU{used}", why, fix)
    return Check("other processes", "ok", f"nobody computes on this GPU{used}", why, fix)


def _pcie(facts: Facts) -> Check:
    why = "A narrow or slow link makes copies from and to the host slow; timed passes hold none, loading data does."
    fix = "Reseat the card or use another slot; an idle card may drop its generation to save power, which is harmless."
    (generation, width), (top, widest) = facts.pcie, facts.pcie_max
    if width is None or widest is None:
        return Check("pcie", "unknown", "this board does not tell its link", why, fix)
    best = f" of generation {top} x{widest}" if top is not None else f" of x{widest}"
    told = (f"generation {generation} " if generation is not None else "") + f"x{width}{best}"
    return Check("pcie", "warn" if width < widest else "ok", told, why, fix)


def _flag_line(
    name: str, value: bool | None, words: tuple[str, str], warn_if: bool | None, why: str, fix: str
) -> Check:
    if value is None:
        return Check(name, "unknown", "this board does not tell it", why, fix)
    return Check(name, "warn" if value is warn_if else "ok", words[0] if value else words[1], why, fix)


def _mig(facts: Facts) -> Check:
    return _flag_line(
        "mig", facts.mig, ("on: this is a slice of the card", "off: the whole card"), True,
        "A slice has part of the SMs, memory and bandwidth: never compare it with a whole card unlabelled.",
        "Ask for a whole GPU, or keep the label that the run file carries.",
    )


def _ecc(facts: Facts) -> Check:
    return _flag_line(
        "ecc", facts.ecc, ("on", "off"), None,
        "Error correction costs bandwidth on cards with GDDR memory, and next to nothing with HBM.",
        "Leave it as it is; it is recorded with every run.",
    )


def _persistence(facts: Facts) -> Check:
    return _flag_line(
        "persistence", facts.persistence, ("on", "off: the first call of a process pays for waking the card"), None,
        "It matters for first calls only, which are timed apart.", "Nothing; or ask for nvidia-persistenced.",
    )


def _virtualization(facts: Facts) -> Check:
    why = "A virtual GPU shares its board with other machines that nobody here can see."
    fix = "Use passthrough or a bare machine for figures that are to be compared."
    kind = facts.virtualization
    if kind is None:
        return Check("virtualization", "unknown", "not told", why, fix)
    return Check("virtualization", "warn" if kind in ("vgpu", "host_vgpu", "host_vsga") else "ok",
                 {"none": "the bare card", "passthrough": "the whole card, passed through"}.get(kind, kind), why, fix)


def _cpu(facts: Facts) -> Check:
    why = "The host starts every kernel: with few cores or a quota it can be what the GPU waits for."
    fix = "Ask for more cores (docker --cpus, slurm --cpus-per-task)."
    usable, total = facts.cores_usable, facts.cores_total
    name = f"{facts.cpu}: " if facts.cpu else ""
    if usable is None:
        return Check("cpu", "unknown", f"{name}number of cores not told", why, fix)
    quota = f", of {total} in this machine (affinity or container quota)" if total and total > usable else ""
    cores = f"{usable} usable core{'s' * (usable != 1)}{quota}"
    return Check("cpu", "warn" if usable < 2 else "ok", f"{name}{cores}; {facts.system}", why, fix)


def _governor(facts: Facts) -> Check:
    why = "A governor that saves power makes launches slow and uneven."
    fix = "Set it to performance (cpupower frequency-set -g performance), where you may."
    if not facts.governors:
        return Check("cpu governor", "unknown", "not told here (usual in containers and virtual machines)", why, fix)
    saving = "powersave" in facts.governors and not _intel_pstate(facts)
    return Check("cpu governor", "warn" if saving else "ok", ", ".join(facts.governors), why, fix)


def _intel_pstate(facts: Facts) -> bool:
    """Under intel_pstate in active mode `powersave` is the ordinary, dynamic governor; `performance` its only other."""
    return "intel_pstate" in facts.governors


def _load(facts: Facts) -> Check:
    why = "Programs that compete for the CPU make launches wait, and every CPU time wrong."
    fix = "Stop them or wait."
    if facts.busy_share is None:
        return Check("cpu load", "unknown", "not told by this system", why, fix)
    status = "warn" if facts.busy_share > _BUSY_CPU_SHARE else "ok"
    return Check("cpu load", status, f"{facts.busy_share:.0%} of all cores in use by other programs", why, fix)


def _ram(facts: Facts) -> Check:
    why = "A worker needs some gigabytes; without them the system ends it in the middle of a sweep."
    fix = "Free memory, or ask for more (docker --memory, slurm --mem)."
    if facts.ram_free_bytes is None:
        return Check("memory", "unknown", "not told by this system", why, fix)
    low = facts.ram_free_bytes < LEAST_RAM_BYTES
    return Check("memory", "warn" if low else "ok",
                 f"{units.bytes_size(facts.ram_free_bytes)} free of {units.bytes_size(facts.ram_bytes)}", why, fix)


def _disk(facts: Facts) -> Check:
    why = "Run files grow line by line on this disk; a full one ends a sweep."
    fix = "Free space, or point GAPSCOPE_RUNS to another folder."
    if facts.runs_writable is False:
        return Check("disk", "bad", "the runs folder may not be written", why,
                     "Set GAPSCOPE_RUNS to a folder of yours, or change its permissions.")
    if facts.disk_free_bytes is None:
        return Check("disk", "unknown", "not told", why, fix)
    low = facts.disk_free_bytes < LEAST_DISK_BYTES
    return Check("disk", "warn" if low else "ok",
                 f"{units.bytes_size(facts.disk_free_bytes)} free where the runs folder lies", why, fix)


_Judge = Callable[[Facts], Check]
_SOFTWARE: tuple[_Judge, ...] = (_driver, _nvml, _torch, _cuda, _arch, _tf32, _environment, _bf16)
_BOARD: tuple[_Judge, ...] = (_others, _clocks, _power, _throttling, _pcie, _mig, _ecc, _persistence, _virtualization)
_HOST: tuple[_Judge, ...] = (_cpu, _governor, _load, _ram, _disk)


def _numbers(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def _code(name: str) -> tuple[int, int] | None:
    """(8, 6) of sm_86, (12, 0) of sm_120, sm_90a as 9.0; None for compute_ codes, which are no machine code."""
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", name)
    return (int(found[1]), int(found[2])) if found else None


# --- asking ----------------------------------------------------------------------------------------------------------


def gather(asked: str = "auto", runs: Path | None = None, nvml_library: Any = None) -> Facts:
    """The facts of this machine; `nvml_library` stands in for pynvml in tests.

    Raises UserError for a device that is not there, and nothing else.
    """
    nvml, failure = Nvml.try_open(nvml_library)
    found: dict[str, Any] = {"asked": asked, "nvml_failure": failure, "kernel_driver": _kernel_driver()}
    users: dict[str, str] = {}
    if nvml is not None:
        found |= {"driver": nvml.driver(), "driver_cuda": _driver_cuda(nvml), "boards": tuple(
            str(nvml.ask("nvmlDeviceGetName", board) or "unnamed") for board in nvml.handles())}
    uuid = None
    try:
        uuid, users, told = _ask_torch(asked, nvml)
        found |= told
    except UserError:  # such as cuda:7 of two
        raise
    except Exception as error:  # a library that torch needs, a broken wheel
        missing = isinstance(error, ImportError) and error.name == "torch"
        found["torch_failure"] = None if missing else f"torch cannot be loaded ({reasons.of_error(error)})"
    if nvml is not None:
        board = nvml.board(uuid) or (nvml.handles()[:1] or [None])[0] if asked != "cpu" else None
        if board is not None:
            found |= _ask_board(nvml, board, users)
        nvml.close()
    return Facts(**{**found, **_ask_host(runs)})


def _ask_torch(asked: str, nvml: Nvml | None) -> tuple[str | None, dict[str, str], dict[str, Any]]:
    """(UUID of the board, users by board, facts). Raises whatever loading torch raises."""
    torch = importlib.import_module("torch")
    device = importlib.import_module("core.measure.device")
    precision = importlib.import_module("core.measure.precision")
    users = device.board_users(nvml) if nvml is not None else {}  # before this process makes a context
    available = bool(torch.cuda.is_available())
    told: dict[str, Any] = {
        "torch": str(torch.__version__), "torch_cuda": torch.version.cuda, "cuda_available": available,
        "tf32": precision.read_back(), "busy_share": device.busy_share(),
        "cuda_failure": device.cuda_failure() if torch.version.cuda and not available else None,
    }
    if not available or asked == "cpu":
        return None, users, told
    index = device.index_of(asked, nvml)
    properties = torch.cuda.get_device_properties(index)
    told |= {"gpu": str(properties.name), "capability": (int(properties.major), int(properties.minor)),
             "arch_list": tuple(torch.cuda.get_arch_list())}
    return device.cuda_uuid(index), users, told


def _driver_cuda(nvml: Nvml) -> tuple[int, int] | None:
    """(12, 4) of 12040, as NVML numbers CUDA versions."""
    version = whole(nvml.ask(("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion")))
    return (version // 1000, version % 1000 // 10) if version else None


def _kernel_driver() -> str | None:
    """Version of the loaded kernel module."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    return next((word for word in words if re.fullmatch(r"\d+\.\d+(\.\d+)?", word)), None)


def _ask_board(nvml: Nvml, board: Any, users: Mapping[str, str]) -> dict[str, Any]:
    def ask(name: str, *arguments: Any) -> Any:
        return nvml.ask(name, board, *arguments)

    def watts(name: str) -> float | None:
        milliwatts = number(ask(name))
        return milliwatts / 1e3 if milliwatts else None

    memory, mig, ecc = ask("nvmlDeviceGetMemoryInfo"), ask("nvmlDeviceGetMigMode"), ask("nvmlDeviceGetEccMode")
    persistence = ask("nvmlDeviceGetPersistenceMode")
    virtual = ask("nvmlDeviceGetVirtualizationMode")
    return {
        "sm_clock_mhz": number(ask("nvmlDeviceGetClockInfo", CLOCK_SM)),
        "memory_clock_mhz": number(ask("nvmlDeviceGetClockInfo", CLOCK_MEMORY)),
        "max_sm_clock_mhz": number(ask("nvmlDeviceGetMaxClockInfo", CLOCK_SM)) or None,
        "application_clock_mhz": number(ask(_APPLICATION_CLOCK, CLOCK_SM)) or None,
        "power_w": watts("nvmlDeviceGetPowerUsage"),
        "power_limit_w": watts("nvmlDeviceGetEnforcedPowerLimit"),
        "default_power_limit_w": watts("nvmlDeviceGetPowerManagementDefaultLimit"),
        "temperature_c": number(ask("nvmlDeviceGetTemperature", TEMPERATURE_GPU)),
        "throttle_bits": event_reasons(nvml, board),
        "users": users.get(bare_uuid(nvml.uuid(board) or "")),
        "users_known": nvml.known_processes(board) is not None,
        "memory_used_bytes": whole(getattr(memory, "used", None), 2**63),
        "memory_bytes": whole(getattr(memory, "total", None), 2**63),
        "pcie": (whole(ask("nvmlDeviceGetCurrPcieLinkGeneration")), whole(ask("nvmlDeviceGetCurrPcieLinkWidth"))),
        "pcie_max": (whole(ask("nvmlDeviceGetMaxPcieLinkGeneration")), whole(ask("nvmlDeviceGetMaxPcieLinkWidth"))),
        "mig": bool(mig[0]) if mig is not None else None,
        "ecc": bool(ecc[0]) if ecc is not None else None,
        "persistence": bool(persistence) if persistence is not None else None,
        "virtualization": _VIRTUAL.get(virtual) if isinstance(virtual, int) else None,
    }


def _ask_host(runs: Path | None) -> dict[str, Any]:
    folder = runs if runs is not None else RunsFolder.beside("results.duckdb").root
    there = next((place for place in (folder, *folder.parents) if place.is_dir()), None)
    return {
        "environment": {name: value[:60] for name, value in os.environ.items()
                        if name in (*ARITHMETIC_OVERRIDES, *SLOWING, "OMP_NUM_THREADS")},
        "python": platform.python_version(), "system": f"{platform.system()} {platform.release()}",
        "cpu": host.cpu_name(), "cores_total": os.cpu_count(), "cores_usable": usable_cores(),
        "governors": host.governors(), "ram_bytes": host.ram_bytes(), "ram_free_bytes": host.free_ram_bytes(),
        "disk_free_bytes": shutil.disk_usage(there).free if there is not None else None,
        "runs_writable": os.access(there, os.W_OK) if there is not None else None,
    }


# --- as a command ----------------------------------------------------------------------------------------------------


def told(checks: Sequence[Check]) -> str:
    """The lines for a person: status, name, what was found; reason and fix where something is not right."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.status:<8}{check.name:<{width}}  {check.found}")
        if check.status in ("warn", "bad"):
            lines += [f"{'':<{8 + width}}  why: {check.why}", f"{'':<{8 + width}}  fix: {check.fix}"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the lines. Exit code 0 whatever they say; 2 for a mistake in what was typed."""
    return exit_code("doctor", lambda: _command(argv))


def _command(argv: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m core.measure doctor", description="Is this machine fit to measure?")
    parser.add_argument("--device", default="auto", metavar="D", help="the device to look at: auto, cuda:N or cpu")
    parser.add_argument("--runs", metavar="DIR", help="the runs folder (GAPSCOPE_RUNS, else ./runs)")
    parser.add_argument("--json", action="store_true", help="one JSON document: {checks: [...]}")
    arguments = parser.parse_args(argv)
    if arguments.device == ALL_DEVICES:
        raise UserError("--device all", "one device", "the line driver lists all boards; name one as cuda:N")
    checks = judge(gather(parse_device(arguments.device), Path(arguments.runs) if arguments.runs else None))
    if arguments.json:
        print(json.dumps({"checks": [dataclasses.asdict(check) for check in checks]}))
    else:
        print(told(checks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
