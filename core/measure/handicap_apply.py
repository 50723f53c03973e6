"""What a handicap does in a worker process: once for the process, around every cell, before every repetition."""
from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.errors import UserError
from core.measure import handicaps

BESIDE = frozenset({"bandwidth_copies", "launch_delay_us"})
"""Handicaps that act by something of their own beside every timed pass."""

_COPY_BYTES = 256 * 2**20  # far beyond any L2, so that every copy goes through memory
_COPIES_AHEAD = 4
_FLUSH_FACTOR = 4  # of the L2: lines are not evicted strictly in order
_DEFAULT_L2_BYTES = 64 * 2**20


class Handicapped:
    """A process under one handicap. Raises UserError when this torch or this GPU cannot do it."""

    def __init__(self, handicap: str | None, device: torch.device, l2_bytes: int | None) -> None:
        self.handicap = handicap
        self._values = handicaps.values(handicap)
        self._device = device
        self._l2_bytes = l2_bytes or _DEFAULT_L2_BYTES
        self._flush: torch.Tensor | None = None
        self._context: Any = None  # kept: a green context lives as long as its object
        self.notes: dict[str, Any] = {}
        if "host_cores" in self._values:
            self._limit_host(int(self._values["host_cores"]))
        if "alloc_cap_gb" in self._values:
            self._cap_memory(self._values["alloc_cap_gb"])
        if "sm_count" in self._values:
            self._limit_sms(int(self._values["sm_count"]))

    def _limit_host(self, cores: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            own = sorted(os.sched_getaffinity(0))
            for thread in _threads():  # threads that a library started before keep their own mask
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(thread, own[:cores])
            self.notes["host_cores"] = min(cores, len(own))
        else:
            raise UserError("this system cannot bind a process to cores", "Linux for host_cores",
                            "leave the handicap out")
        torch.set_num_threads(min(cores, torch.get_num_threads()))

    def _cap_memory(self, gigabytes: float) -> None:
        total = torch.cuda.get_device_properties(self._device).total_memory
        if gigabytes * 1e9 >= total:
            raise UserError(f"a cap of {gigabytes:g} GB on a GPU with {total / 1e9:.0f} GB", "less than it has",
                            "lower alloc_cap_gb")
        torch.cuda.set_per_process_memory_fraction(gigabytes * 1e9 / total, self._device)

    def _limit_sms(self, count: int) -> None:
        maker = getattr(getattr(torch.cuda, "green_contexts", None), "GreenContext", None)
        maker = maker or getattr(torch.cuda, "GreenContext", None)
        if maker is None:
            raise UserError(f"torch {torch.__version__} has no GreenContext", "torch 2.9 or newer for sm_count",
                            "use a newer torch")
        torch.cuda.init()
        torch.ones(1, device=self._device)  # the primary context must exist before it can be divided
        try:
            self._context = maker.create(num_sms=count, device_id=self._device.index or 0)
            self._context.set_context()
        except RuntimeError as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"the driver gives no context with {count} SMs ({first[:120]})",
                            "a driver for CUDA 12.4 or newer and a count that the GPU allows",
                            "try a multiple of 8") from None

    @contextlib.contextmanager
    def around_cell(self) -> Iterator[None]:
        """Whatever must run beside the timed passes."""
        with contextlib.ExitStack() as stack:
            if "bandwidth_copies" in self._values:
                stack.enter_context(_Copies(self._device, int(self._values["bandwidth_copies"])))
            if "launch_delay_us" in self._values:
                stack.enter_context(SlowLaunches(self._values["launch_delay_us"]))
            yield

    @property
    def before_repetition(self) -> Callable[[], None] | None:
        """Called outside the timed region before every repetition; None when there is nothing to do."""
        return self._empty_l2 if "cold_l2" in self._values else None

    def _empty_l2(self) -> None:
        if self._flush is None:
            self._flush = torch.empty(_FLUSH_FACTOR * self._l2_bytes // 4, dtype=torch.int32, device=self._device)
        self._flush.zero_()


def _threads() -> list[int]:
    """Thread ids of this process; 0 (the caller) where the system does not list them."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]
    except (OSError, ValueError):
        return [0]


class SlowLaunches(TorchDispatchMode):
    """Every operation spends at least `delay_us` on the host before it is sent to the device.

    Busy waiting, since sleeping is coarser than a launch. Python's own way through the mode comes on top.
    """

    def __init__(self, delay_us: float) -> None:
        super().__init__()
        self._delay_s = delay_us * 1e-6

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        until = time.perf_counter() + self._delay_s
        while time.perf_counter() < until:
            pass
        return func(*args, **(kwargs or {}))


class _Copies:
    """Copies in memory on streams of their own, kept a few ahead by a thread, until the block ends."""

    def __init__(self, device: torch.device, streams: int) -> None:
        self._device, self._count = device, streams
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> _Copies:
        for _ in range(self._count):
            source = torch.zeros(_COPY_BYTES // 4, dtype=torch.int32, device=self._device)
            thread = threading.Thread(target=self._copy, args=(source, torch.empty_like(source)), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def _copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        stream = torch.cuda.Stream(self._device)
        pending: list[Any] = []
        with torch.inference_mode(), torch.cuda.stream(stream):
            while not self._stop.is_set():
                target.copy_(source)
                event = torch.cuda.Event(blocking=True)
                event.record(stream)
                pending.append(event)
                if len(pending) > _COPIES_AHEAD:
                    pending.pop(0).synchronize()
        stream.synchronize()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
