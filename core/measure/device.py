"""Which device is measured, and what it, its host and its software are. Runs in a worker: torch is loaded here.

A board is named by a hash of its UUID. NVML adds what torch does not say; without NVML those fields are None.
"""
from __future__ import annotations

import ctypes
import importlib
import os
import platform
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.errors import UserError
from core.measure.host import cpu_name, ram_bytes
from core.measure.nvml import Nvml, bare_uuid
from core.measure.plan import usable_cores
from core.records import Device, Host, Software, uuid_hash

# NVML_CLOCK_SM, NVML_CLOCK_MEM
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
_BUSY_UTILIZATION_PERCENT = 10
BUSY_CPU_SHARE = 0.25  # of all cores; half a core of two
_BUSY_WINDOW_S = 0.3


@dataclass(frozen=True)
class Found:
    """The device that a sweep measures."""

    torch_name: str  # "cpu" or "cuda:0"
    device: Device
    host: Host
    software: Software
    uuid: str | None  # of the board, for NVML; never written down
    warnings: tuple[str, ...] = ()

    @property
    def capability(self) -> tuple[int, int] | None:
        if self.device.compute_capability is None:
            return None
        major, minor = self.device.compute_capability.split(".")
        return int(major), int(minor)


BOARD = "board:"
"""`board:<uuid_hash>` names one physical card: its place among the visible ones may change, this does not."""


def visible_devices(nvml: Nvml | None) -> list[dict[str, str]]:
    """What `--device all` measures: [{device, name, uuid_hash}] of every visible GPU in CUDA's order, else the CPU.

    `device` is `board:<uuid_hash>`, so that each run finds its own card again; two cards of one type stay two.
    """
    if not torch.cuda.is_available():
        found = cpu_device()
        return [{"device": "cpu", "name": found.name, "uuid_hash": found.uuid_hash}]
    boards = (cuda_device(index, cuda_uuid(index), nvml) for index in range(torch.cuda.device_count()))
    return [{"device": f"{BOARD}{board.uuid_hash}", "name": board.name, "uuid_hash": board.uuid_hash}
            for board in boards]


def index_of(asked: str, nvml: Nvml | None) -> int:
    """CUDA index of `cuda:N` (or of the first GPU) or of `board:<uuid_hash>`. Raises UserError when it is not there."""
    count = torch.cuda.device_count()
    if asked.startswith(BOARD):
        hashes = [board["uuid_hash"] for board in visible_devices(nvml)]
        wanted = asked.removeprefix(BOARD)
        if wanted not in hashes:
            raise UserError(f"no visible GPU has the id {wanted[:12]}", f"one of {', '.join(h[:12] for h in hashes)}",
                            "see CUDA_VISIBLE_DEVICES, or start a new run")
        return hashes.index(wanted)
    index = int(asked[5:]) if asked.startswith("cuda:") else 0
    if index >= count:
        raise UserError(f"device cuda:{index}", f"cuda:0 to cuda:{count - 1}", "try --device auto")
    return index


def find(asked: str, nvml: Nvml | None) -> Found:
    """The device for "auto", "cpu", "cuda:N" or "board:<uuid_hash>". Raises UserError when there is no such device."""
    warnings: list[str] = []
    driver = nvml.driver() if nvml is not None else None
    cuda = torch.cuda.is_available()
    if asked.startswith(("cuda", BOARD)) and not cuda:
        raise no_cuda(torch.__version__, torch.version.cuda, driver or _driver_without_nvml(), cuda_failure())
    if asked == "cpu" or not cuda:
        if asked == "auto" and (driver or _driver_without_nvml()):
            warnings.append(str(no_cuda(torch.__version__, torch.version.cuda, driver or "", cuda_failure())))
        busy = busy_share()
        if busy is not None and busy > BUSY_CPU_SHARE:
            warnings.append(f"other programs keep the CPU {busy:.0%} busy: times can be several times too long; "
                            "measure again when it is idle")
        return Found("cpu", cpu_device(), host(), software(driver), None, tuple(warnings))
    index = index_of(asked, nvml)
    board_uuid = cuda_uuid(index)
    return Found(f"cuda:{index}", cuda_device(index, board_uuid, nvml), host(), software(driver), board_uuid)


def busy_share(window_s: float = _BUSY_WINDOW_S, stat: Path = Path("/proc/stat")) -> float | None:
    """Share of all cores that is in use during `window_s`, in which this process sleeps; None where it is not told.

    Not the load average: that still counts the sweep that ended half a minute ago.
    """
    def ticks() -> tuple[int, int]:
        fields = [int(text) for text in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # all, and idle with waiting for a disk

    try:
        total, idle = ticks()
        time.sleep(window_s)
        total_after, idle_after = ticks()
    except (OSError, ValueError, IndexError):
        return None
    passed = total_after - total
    return None if passed <= 0 else 1 - (idle_after - idle) / passed


def no_cuda(torch_version: str, built_for: str | None, driver: str | None, failure: str | None) -> UserError:
    """Why there is no CUDA: a CPU build beside a driver, a driver that is too old or broken, or no driver at all."""
    if built_for is None and driver:
        return UserError(
            f"this torch ({torch_version}) is a CPU build, beside an NVIDIA driver ({driver})", "a CUDA build of torch",
            "install one as pytorch.org/get-started says, or use --device cpu",
        )
    if built_for is None:
        return UserError(f"no NVIDIA driver, and this torch ({torch_version}) is a CPU build", "a CUDA device",
                         "use --device cpu")
    if driver:
        return UserError(
            f"torch {torch_version} is built for CUDA {built_for} but finds no usable device with driver {driver}"
            + (f" ({failure})" if failure else ""),
            "a driver that serves this CUDA version", "update the driver, or use --device cpu",
        )
    return UserError("no NVIDIA driver was found", "a CUDA device", "install the driver, or use --device cpu")


def cuda_failure() -> str | None:
    """First line of what torch says when CUDA does not start."""
    try:
        torch.cuda.init()
    except Exception as error:
        return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return None


def _driver_without_nvml() -> str | None:
    """Signs of a driver where NVML cannot be asked: its kernel module, or its tool."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next((word for word in words if word[0].isdigit() and word.count(".") >= 1), "version unknown")
    except OSError:
        return "version unknown" if shutil.which("nvidia-smi") else None


def board_users(nvml: Nvml) -> dict[str, str]:
    """Who computes on each board in use, in words, by bare UUID. An idle board is not in it.

    Sees what NVML shows; in a container that may be only the utilisation.
    """
    users: dict[str, str] = {}
    for board in nvml.handles():
        told = _users_of(nvml, board)
        identity = nvml.uuid(board)
        if told and identity:
            users[bare_uuid(identity)] = told
    return users


def _users_of(nvml: Nvml, board: Any) -> str | None:
    others = [(pid, used) for pid, used in nvml.processes(board) if pid != os.getpid()]
    if others:
        told = ", ".join(
            f"pid {pid}" + (f" with {used / 2**30:.1f} GiB" if used is not None else "") for pid, used in others[:3]
        )
        return told + (" and others" if len(others) > 3 else "")
    busy_percent = getattr(nvml.ask("nvmlDeviceGetUtilizationRates", board), "gpu", None)
    if isinstance(busy_percent, int) and busy_percent > _BUSY_UTILIZATION_PERCENT:
        return f"{busy_percent} % utilisation by processes not visible here"
    return None


# --- CUDA ------------------------------------------------------------------------------------------------------------


def cuda_uuid(index: int) -> str | None:
    """UUID of a visible board without making a context on it: from the driver, else from torch."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        # _v2 (driver 470) names the MIG slice where there is one; the older call names the whole board.
        read = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
        if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), index) == 0 and read(raw, device) == 0:
            return str(uuid.UUID(bytes=bytes(raw)))
    except (OSError, AttributeError):
        pass
    found = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return bare_uuid(str(found)) if found is not None else None


def cuda_device(index: int, board_uuid: str | None, nvml: Nvml | None) -> Device:
    properties = torch.cuda.get_device_properties(index)
    board = nvml.board(board_uuid) if nvml is not None else None

    def ask(name: str, *arguments: Any) -> Any:
        return nvml.ask(name, board, *arguments) if nvml is not None and board is not None else None

    milliwatts = ask("nvmlDeviceGetEnforcedPowerLimit")
    ecc, mig = ask("nvmlDeviceGetEccMode"), ask("nvmlDeviceGetMigMode")
    persistence = ask("nvmlDeviceGetPersistenceMode")
    sm_clock = ask("nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
    memory_clock = ask("nvmlDeviceGetMaxClockInfo", _CLOCK_MEMORY)
    name = str(properties.name)
    return Device(
        type="cuda",
        name=name,
        # Without a UUID two equal cards of one host cannot be told apart; the place on the host then stands in.
        uuid_hash=uuid_hash(board_uuid or f"{_machine_id()}:{name}:{index}"),
        compute_capability=f"{properties.major}.{properties.minor}",
        sm_count=int(properties.multi_processor_count),
        memory_bytes=int(properties.total_memory),
        l2_bytes=_positive(getattr(properties, "L2_cache_size", None)),
        max_sm_clock_mhz=float(sm_clock) if sm_clock else None,
        max_memory_clock_mhz=float(memory_clock) if memory_clock else None,
        memory_bus_bits=_positive(ask("nvmlDeviceGetMemoryBusWidth") or getattr(properties, "memory_bus_width", None)),
        power_limit_w=milliwatts / 1e3 if milliwatts else None,
        ecc=bool(ecc[0]) if ecc is not None else None,
        mig=bool(mig[0]) if mig is not None else None,
        # The most that board and slot agree on: an idle board drops to generation 1 to save power.
        pcie_generation=_positive(ask("nvmlDeviceGetMaxPcieLinkGeneration")),
        pcie_width=_positive(ask("nvmlDeviceGetCurrPcieLinkWidth")),
        persistence=bool(persistence) if persistence is not None else None,
        virtualization=_VIRTUALIZATION.get(ask("nvmlDeviceGetVirtualizationMode") or 0) if board is not None else None,
    )


def _positive(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


# --- CPU and host ----------------------------------------------------------------------------------------------------


def cpu_device() -> Device:
    name = cpu_name() or "CPU"
    return Device(type="cpu", name=name, uuid_hash=uuid_hash(f"cpu:{_machine_id()}:{name}:{usable_cores()}"),
                  memory_bytes=ram_bytes())


def host() -> Host:
    release = platform.release()
    return Host(
        cpu=cpu_name(), cores=usable_cores(), ram_bytes=ram_bytes(), os=f"{platform.system()} {release}".strip(),
        platform=platform.machine() + (" WSL" if "microsoft" in release.lower() else ""),
    )


def software(driver: str | None) -> Software:
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return Software(
        python=platform.python_version(), torch=str(torch.__version__), cuda=torch.version.cuda,
        cudnn=str(cudnn) if cudnn else None, driver=driver,
        arch_list=tuple(torch.cuda.get_arch_list()) if torch.version.cuda else (),
        extra={"numpy": str(importlib.import_module("numpy").__version__)},
    )


def _machine_id() -> str:
    """Something that stays for this machine and says nothing by itself; only its salted hash is ever written."""
    try:
        found = Path("/etc/machine-id").read_text().strip()
    except OSError:
        found = ""
    if found:
        return found
    node = uuid.getnode()
    # A random node number (multicast bit set) would make a new device at every start.
    return "" if node >> 40 & 1 else f"{node:012x}"
