"""The one place that touches NVML. No driver, no library, no permission are states, not errors: they give None.

A board is found by its UUID, never by its index: NVML counts all boards by bus, CUDA counts the visible ones by speed.
"""
from __future__ import annotations

import contextlib
import importlib
import warnings
from typing import Any

NO_PACKAGE = "the package nvidia-ml-py is not installed"


def bare_uuid(uuid: str) -> str:
    """A UUID without NVML's "GPU-" or "MIG-" in front, lower case: torch and NVML then agree."""
    text = uuid.strip().lower()
    for prefix in ("gpu-", "mig-"):
        text = text.removeprefix(prefix)
    return text


class Nvml:
    """An initialised NVML. `ask` answers None for whatever this board or driver does not tell."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls, library: Any = None) -> Nvml | None:
        """NVML ready to ask, None without package or driver. `library` stands in for pynvml in tests."""
        return cls.try_open(library)[0]

    @classmethod
    def try_open(cls, library: Any = None) -> tuple[Nvml | None, str | None]:
        """(NVML, None), or (None, why not): `NO_PACKAGE`, or what NVML said, such as a mismatch of its two halves."""
        if library is None:
            try:
                with warnings.catch_warnings():
                    # The PyPI package "pynvml" is a shim that warns on import; the module is the same.
                    warnings.simplefilter("ignore", FutureWarning)
                    library = importlib.import_module("pynvml")
            except ImportError:
                return None, NO_PACKAGE
            except Exception as error:  # a broken installation is no reason to stop a measurement
                return None, f"{type(error).__name__}: {error}"[:200]
        try:
            library.nvmlInit()
        except Exception as error:
            return None, (str(error) or type(error).__name__)[:200]
        return cls(library), None

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._library.nvmlShutdown()

    def ask(self, names: str | tuple[str, ...], *arguments: Any) -> Any:
        """The answer of the first function in `names` that exists and succeeds, else None."""
        for name in (names,) if isinstance(names, str) else names:
            function = getattr(self._library, name, None)
            if function is None:
                continue
            try:
                answer = function(*arguments)
            except Exception:  # NVMLError of every kind, and ctypes errors of half-installed drivers
                continue
            return answer.decode(errors="replace") if isinstance(answer, bytes) else answer
        return None

    def driver(self) -> str | None:
        answer = self.ask("nvmlSystemGetDriverVersion")
        return str(answer) if answer else None

    def handles(self) -> list[Any]:
        """Handles of all boards (not of MIG slices)."""
        found = (self.ask("nvmlDeviceGetHandleByIndex", index) for index in range(self.ask("nvmlDeviceGetCount") or 0))
        return [handle for handle in found if handle is not None]

    def uuid(self, handle: Any) -> str | None:
        answer = self.ask("nvmlDeviceGetUUID", handle)
        return str(answer) if answer else None

    def board(self, uuid: str | None) -> Any:
        """Handle of the board with this UUID; of the whole board when the UUID names one of its MIG slices."""
        if not uuid:
            return None
        wanted = bare_uuid(uuid)
        for handle in self.handles():
            if bare_uuid(self.uuid(handle) or "") == wanted:
                return handle
            for index in range(self.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
                slice_handle = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
                if slice_handle is not None and bare_uuid(self.uuid(slice_handle) or "") == wanted:
                    return handle
        return None

    def processes(self, handle: Any) -> list[tuple[int, int | None]]:
        """(pid, bytes or None) of the processes that compute on this board, as far as NVML shows them."""
        return self.known_processes(handle) or []

    def known_processes(self, handle: Any) -> list[tuple[int, int | None]] | None:
        """As `processes`; None where NVML does not tell, which is not the same as nobody."""
        names = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
                 "nvmlDeviceGetComputeRunningProcesses")
        found = self.ask(names, handle)
        if found is None:
            return None
        return [
            (int(process.pid), int(process.usedGpuMemory) if process.usedGpuMemory is not None else None)
            for process in found
        ]
