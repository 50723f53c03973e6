"""An op alone: called with its captured arguments, timed beside an alternative, its results compared.

Times are per call. On CUDA a sample is a batch of calls between two events, behind a wait on the device that lets the
host fill the queue first: what counts is the device, as in an op's time in the tracker, unless an op launches more than
the queue holds. On a CPU it is host time. Samples of both sides alternate, so that clocks and caches drift for both
alike. `cold` clears the L2 cache before each call, outside the timed region.
"""
from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.measure import precision
from core.measure.op_capture import Exemplar

LEAST_ROUNDS, MOST_ROUNDS = 3, 25
_SAMPLE_MS = {"cuda": 3.0, "cpu": 10.0}
_MOST_CALLS = {"cuda": 50, "cpu": 500}
_WAIT_CYCLES = 6_000_000  # about 3 ms: so long the host may take to start a batch of small calls
_PAGE_COLD_BYTES = 256 * 2**20  # where the size of the L2 cache is not known

TOLERANCE = {
    "float64": 1e-10, "float32": 1e-4, "tf32": 5e-3, "float16": 1e-2, "bfloat16": 5e-2,
}
"""Largest difference that still counts as equal, as a share of the largest result, by the coarser arithmetic of both.

Ten times the steps of that arithmetic or more: sums of some thousand products in another order stay below."""


@dataclass(frozen=True)
class Call:
    """An op and its arguments on the device, by the names of its schema."""

    op: str
    function: Any
    named: dict[str, Any]
    precision: str
    device: torch.device

    @property
    def autocasts(self) -> bool:
        return self.precision in precision.AUTOCAST

    def run(self, /, **changes: Any) -> Any:  # an argument of an op may be called self
        """One call, some arguments replaced. Raises whatever the op raises."""
        values = {**self.named, **changes}
        schema = self.function._schema.arguments
        positional = [values[argument.name] for argument in schema if not argument.kwarg_only]
        keywords = {argument.name: values[argument.name] for argument in schema if argument.kwarg_only}
        return self.function(*positional, **keywords)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Arguments that are tensors, by name; those in lists are not among them."""
        return {name: value for name, value in self.named.items() if isinstance(value, Tensor)}

    @property
    def writes(self) -> frozenset[str]:
        """Names of the arguments that the op changes."""
        return frozenset(
            argument.name for argument in self.function._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        )


def open_call(exemplar: Exemplar, precision_name: str, device: torch.device) -> Call:
    """The captured call with fresh arguments. Raises AttributeError for an op that no loaded library has."""
    function = exemplar.function()
    positional, keywords = exemplar.materialise(device)
    if precision_name in precision.AUTOCAST:
        # Autocast had cast them already when they were captured; the op table counts the casts to the op.
        positional, keywords = _with_dtypes(positional, keywords, exemplar.dtypes)
    named: dict[str, Any] = {}
    for index, argument in enumerate(function._schema.arguments):
        if argument.name in keywords:
            named[argument.name] = keywords[argument.name]
        elif index < len(positional) and not argument.kwarg_only:
            named[argument.name] = positional[index]
        else:
            named[argument.name] = argument.default_value
    return Call(exemplar.op, function, named, precision_name, device)


def _with_dtypes(
    positional: tuple[Any, ...], keywords: dict[str, Any], dtypes: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    wanted = iter(dtypes)

    def cast(value: Any) -> Any:
        if isinstance(value, Tensor):
            name = next(wanted, "")
            dtype = getattr(torch, name, None) if name else None
            return value.to(dtype) if isinstance(dtype, torch.dtype) and value.is_floating_point() else value
        return type(value)(cast(item) for item in value) if isinstance(value, (list, tuple)) else value

    return tuple(cast(value) for value in positional), {name: cast(value) for name, value in keywords.items()}


# --- time ------------------------------------------------------------------------------------------------------------


class Meter:
    """Milliseconds per call of a function on one device."""

    def __init__(self, device: torch.device, l2_bytes: int | None = None) -> None:
        self.device, self.on_cuda = device, device.type == "cuda"
        self._l2_bytes = l2_bytes
        self._flush: Tensor | None = None

    def synchronize(self) -> None:
        if self.on_cuda:
            torch.cuda.synchronize(self.device)

    def clear_cache(self) -> None:
        """Overwrite twice the L2 cache (a CPU's caches stay as they are)."""
        if not self.on_cuda:
            return
        if self._flush is None:
            size = 2 * self._l2_bytes if self._l2_bytes else _PAGE_COLD_BYTES
            self._flush = torch.empty(size, dtype=torch.int8, device=self.device)
        self._flush.zero_()

    def sample_ms(self, call: Callable[[], object], calls: int, cold: bool = False, wait: bool = False) -> float:
        """`wait`: the device begins late, so that the host is ahead of it."""
        if not self.on_cuda:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start) * 1e3 / calls
        total_ms = 0.0
        for part in [1] * calls if cold else [calls]:
            if cold:
                self.clear_cache()
            elif wait and hasattr(torch.cuda, "_sleep"):
                torch.cuda._sleep(_WAIT_CYCLES)
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(part):
                call()
            last.record()
            last.synchronize()
            total_ms += float(first.elapsed_time(last))
        return total_ms / calls

    def calls_per_sample(self, call: Callable[[], object]) -> int:
        """So many that a sample is far longer than the clock's step; two calls warm up."""
        call()
        self.synchronize()
        once_ms = max(self.sample_ms(call, 1), 1e-4)
        kind = "cuda" if self.on_cuda else "cpu"
        return min(_MOST_CALLS[kind], max(1, math.ceil(_SAMPLE_MS[kind] / once_ms)))

    def alternate(
        self, first: tuple[Callable[[], object], int], second: tuple[Callable[[], object], int], budget_s: float,
        cold: bool = False, setting: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Samples of two (function, calls per sample) in turn: at least three rounds each, until the budget ends.

        `setting` holds while the second one runs.
        """
        sides = ((*first, nullcontext), (*second, setting))
        rows: tuple[list[float], list[float]] = ([], [])
        end = time.monotonic() + budget_s
        while len(rows[0]) < LEAST_ROUNDS or (time.monotonic() < end and len(rows[0]) < MOST_ROUNDS):
            # Who begins changes from round to round: the second one finds the caches of the first.
            for side in (0, 1) if len(rows[0]) % 2 == 0 else (1, 0):
                call, calls, around = sides[side]
                with around():
                    rows[side].append(self.sample_ms(call, calls, cold, wait=calls > 1))
        return tuple(rows[0]), tuple(rows[1])

    def samples(self, call: Callable[[], object], calls: int, budget_s: float, cold: bool = False
                ) -> tuple[float, ...]:
        """Samples of one function: at least three, until the budget ends."""
        row: list[float] = []
        end = time.monotonic() + budget_s
        while len(row) < LEAST_ROUNDS or (time.monotonic() < end and len(row) < MOST_ROUNDS):
            row.append(self.sample_ms(call, calls, cold, wait=calls > 1))
        return tuple(row)


def launch_us(meter: Meter, repeats: int = 5, calls: int = 200) -> float:
    """The least time between two small kernels of this host and device (on a CPU: the least time of an op)."""
    one = torch.zeros(1, device=meter.device)
    with torch.inference_mode():
        for _ in range(20):
            one.relu()
        meter.synchronize()
        return statistics.median(meter.sample_ms(one.relu, calls) for _ in range(repeats)) * 1e3


# --- results ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """How far two results lie apart. None: they could not be compared."""

    max_abs_diff: float | None
    tolerance: float | None  # absolute
    agrees: bool | None


def compare(expected: Any, found: Any, arithmetic: str) -> Agreement:
    """Whether two results of an op are equal within the tolerance of `arithmetic` (a key of TOLERANCE).

    Infinities must stand at the same places; NaN counts as different unless both have it.
    """
    left, right = list(flat_tensors(expected)), list(flat_tensors(found))
    if len(left) != len(right) or any(a.shape != b.shape for a, b in zip(left, right, strict=True)):
        return Agreement(None, None, False)
    largest, worst, same = 0.0, 0.0, True
    for a, b in zip(left, right, strict=True):
        if a.numel() == 0:
            continue
        if a.is_complex() or b.is_complex():
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        b = b.to(a.device)
        exact = a == b
        a, b = a.double(), b.double()
        exact |= a.isnan() & b.isnan()
        apart = torch.where(exact, 0.0, (a - b).abs())
        worst = max(worst, float(apart.nan_to_num(nan=math.inf).max()))
        finite = a.masked_fill(~a.isfinite(), 0.0).abs().max()
        largest = max(largest, float(finite))
    tolerance = TOLERANCE[arithmetic] * largest
    same = worst <= tolerance
    return Agreement(worst if math.isfinite(worst) else None, tolerance, same)


def flat_tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in flat_tensors(item)]
    return []


def copied(value: Any) -> Any:
    """A result on its own memory: an op in place gives back its argument, which the next call changes."""
    if isinstance(value, Tensor):
        return value.clone()
    return type(value)(copied(item) for item in value) if isinstance(value, (list, tuple)) else value
