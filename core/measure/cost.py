"""Counting the work of a forward pass: flops, bytes, launches, per stage and per op, with or without arithmetic.

`count` watches every aten op of any model on any device. On the meta device nothing is computed, so the founding
case (47 frames, 256x256, 256 points) is counted in seconds without a GPU: `count_tracker`.

What is counted where (formulas in `op_formulas.py`):
- attention counts once as scaled_dot_product_attention, whatever backend or decomposition runs it;
- `bytes` of an op: each distinct input and each distinct output memory once, expanded axes once, views 0;
- `launches`: ops that are not views and not bare allocations. A proxy; real launches come from a profiled pass;
- `peak_bytes`: largest sum of live tensors at an op's end, without the workspace that a kernel takes for itself.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from core.measure.op_formulas import (
    ATTENTION,
    MAYBE_VIEWS,
    NO_KERNEL,
    WRITES_FIRST_ARGUMENT,
    OpWork,
    TensorArgument,
    base_name,
    op_flops,
    op_work,
    sampled_elements,
)
from core.records import WorkKey
from core.trackers import registry
from core.trackers.stages import OTHER, Staged, marked
from core.trackers.tracker import Tracker

__all__ = [
    "MAYBE_VIEWS", "OpCount", "OpWork", "StageWork", "WorkCount", "count", "count_model", "count_tracker", "main",
    "op_work",
]


@dataclass(frozen=True)
class StageWork:
    """Work of one stage in one forward pass. `calls`: how often it was entered (None for `other`)."""

    name: str
    calls: int | None
    flops: int
    other_flops: int
    bytes: int
    launches: int


@dataclass(frozen=True)
class OpCount:
    """Work of all calls of one op on one set of arguments within one stage. `other_flops` None: no formula."""

    op: str
    stage: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    scalars: tuple[str, ...]
    calls: int
    flops: int | None
    other_flops: int | None
    bytes: int


@dataclass(frozen=True)
class WorkCount:
    """Work of one forward pass. Stages are in order of first entry, `other` last, and sum to the totals.

    `coverage`: share of launches whose flops have a formula; below 1 the flops are a lower bound, and
    `unknown_ops` names what is missing.
    """

    flops: int
    other_flops: int
    bytes: int
    launches: int
    stages: tuple[StageWork, ...]
    ops: tuple[OpCount, ...]
    coverage: float
    unknown_ops: tuple[str, ...]
    peak_bytes: int

    def summary(self) -> dict[str, Any]:
        """JSON-ready: everything but the op table."""
        return {
            "flops": self.flops, "other_flops": self.other_flops, "bytes": self.bytes, "launches": self.launches,
            "stages": [asdict(stage) for stage in self.stages], "coverage": self.coverage,
            "unknown_ops": list(self.unknown_ops), "peak_bytes": self.peak_bytes,
        }


def count(run: Callable[[], object], model: Staged | None = None) -> WorkCount:
    """Count the work of `run()`, a forward pass that sets no gradient mode of its own: it runs under no_grad.

    model: the tracker that `run` calls, so that its stages are told apart and its weights are part of the peak;
    without it everything is `other`. The model's stage marker is put back afterwards.
    """
    counter = _Counter()
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            counter.memory.hold(tensor)
    with torch.no_grad(), _FoldAttention(counter), counter:
        if model is None:
            run()
        else:
            with marked(model, counter.stage):
                run()
    return counter.result()


def count_tracker(work: WorkKey) -> WorkCount:
    """Count one forward pass of a built-in tracker in fp32 on the meta device: no arithmetic, no GPU.

    Raises UserError for an unknown tracker or a size that it cannot take.
    """
    info, variant = registry.resolve(work.selector)
    registry.check_workload(
        info, work.frames or 0, work.height or 0, work.width or 0, None if info.dense else work.points, work.batch
    )
    model = registry.load_builder(info)(variant.name, **registry.build_options(info, work)).to("meta")
    return count_model(model, work, "meta")


def count_model(model: Tracker, work: WorkKey, device: str) -> WorkCount:
    """Count one forward pass of a model that lies on `device`, on a black clip of the size in `work`.

    All queries lie in the middle of the first frame; a tracker that follows every pixel gets one.
    """
    video = torch.zeros(work.batch, work.frames or 0, work.height or 0, work.width or 0, 3, device=device)
    queries = torch.zeros(work.batch, work.points or 1, 3, device=device)
    queries[..., 1] = (work.width or 0) / 2
    queries[..., 2] = (work.height or 0) / 2
    with torch.no_grad():
        arguments = model.prepare(video, queries)
    return count(lambda: model(**arguments), model)


def main(argv: Sequence[str]) -> int:
    """`python -m core.measure cost`: see cost_command."""
    from core.measure import cost_command

    return cost_command.main(argv)


@dataclass
class _Tally:
    """Sums that grow while ops come in."""

    calls: int = 0
    flops: int = 0
    other_flops: int = 0
    bytes: int = 0
    launches: int = 0
    unknown: bool = False

    def add(self, flops: tuple[int, int] | None, moved_bytes: int) -> None:
        self.calls += 1
        self.launches += 1
        self.bytes += moved_bytes
        if flops is None:
            self.unknown = True
        else:
            self.flops += flops[0]
            self.other_flops += flops[1]


OpKey = tuple[str, str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[str, ...]]


class _Counter(TorchDispatchMode):
    """Sees every aten op below autograd and adds up its work under the stage that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = _LiveMemory()
        self.suspended = False  # inside an op that is counted as a whole
        self._stage = OTHER
        self._entries: dict[str, int] = {}
        self._ops: dict[OpKey, _Tally] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._entries[name] = self._entries.get(name, 0) + 1
        self._stage = name
        try:
            yield
        finally:
            self._stage = OTHER

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():
            # There ops arrive whole that are parts elsewhere: a reshape that copies would pass for the view it may be.
            raise RuntimeError("work cannot be counted in inference mode")
        out = func(*args, **kwargs)
        if self.suspended:
            return out
        results = _tensors_in(out)
        for tensor in results:
            self.memory.hold(tensor)
        name = str(func._schema.name)
        if base_name(name) not in NO_KERNEL and not _returns_view(func._schema):
            self.record(name, _in_schema_order(func._schema, args, kwargs), results)
        return out

    def record(self, name: str, values: Sequence[Any], results: Sequence[Tensor]) -> None:
        """Add one call of op `name`; `values` are its arguments in the order of its schema."""
        arguments = [_described(value) for value in values]
        described = [_described(result) for result in results]
        tensors = [tensor for value in values for tensor in _tensors_in(value)]
        for tensor in tensors:
            self.memory.hold(tensor)
        reads, picked = tensors, None
        if name.split("::")[-1] in WRITES_FIRST_ARGUMENT:
            reads = tensors[1:]
        elif described and isinstance(arguments[0], TensorArgument):
            picked = sampled_elements(name, arguments[0], arguments, described)
        moved = _memory_touched(reads, picked) + _memory_touched(results, None)
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        dtypes = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)
        scalars = tuple(str(value) for value in values if not _tensors_in(value))
        key = (name, self._stage, shapes, dtypes, scalars)
        self._ops.setdefault(key, _Tally()).add(op_flops(name, arguments, described), moved)

    def result(self) -> WorkCount:
        stages = {name: _Tally(calls=calls) for name, calls in self._entries.items()}
        stages[OTHER] = stages.pop(OTHER, _Tally())  # last, and there even if empty
        total = _Tally()
        unknown_launches = 0
        unknown_ops = set()
        for (op, stage, *_), tally in self._ops.items():
            for into in (stages[stage], total):
                into.flops += tally.flops
                into.other_flops += tally.other_flops
                into.bytes += tally.bytes
                into.launches += tally.launches
            if tally.unknown:
                unknown_launches += tally.launches
                unknown_ops.add(op)
        return WorkCount(
            flops=total.flops, other_flops=total.other_flops, bytes=total.bytes, launches=total.launches,
            stages=tuple(
                StageWork(name, None if name == OTHER else t.calls, t.flops, t.other_flops, t.bytes, t.launches)
                for name, t in stages.items()
            ),
            ops=tuple(
                OpCount(*key, calls=t.calls, flops=None if t.unknown else t.flops,
                        other_flops=None if t.unknown else t.other_flops, bytes=t.bytes)
                for key, t in self._ops.items()
            ),
            coverage=1 - unknown_launches / total.launches if total.launches else 1.0,
            unknown_ops=tuple(sorted(unknown_ops)),
            peak_bytes=self.memory.peak_bytes,
        )


class _FoldAttention(TorchFunctionMode):
    """Lets attention count as one op: on some devices it runs as one kernel, on others as eight ops."""

    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention or self.counter.suspended:
            return func(*args, **kwargs)
        self.counter.suspended = True
        try:
            out = func(*args, **kwargs)
            if out.is_meta and out.dim() == 4:
                # Meta takes the decomposed way; the fused kernels of CPU and CUDA lay (B, heads, L, E) out as
                # (B, L, heads, E), so that joining the heads afterwards costs no copy.
                out = out.transpose(1, 2).contiguous().transpose(1, 2)
        finally:
            self.counter.suspended = False
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
        values = [*args, *(kwargs.get(name) for name in names[len(args):])]
        self.counter.memory.hold(out)
        self.counter.record(f"aten::{ATTENTION}", values, [out])
        return out


class _LiveMemory:
    """Bytes of all storages that some tensor still uses, and their largest sum so far."""

    def __init__(self) -> None:
        self.live_bytes = 0
        self.peak_bytes = 0
        self._users: dict[int, int] = {}  # storage -> living tensors on it
        self._known: dict[int, weakref.ref[Tensor]] = {}  # id of a tensor -> reference that reports its end

    def hold(self, tensor: Tensor) -> None:
        """Count the tensor's storage until the last tensor on it is gone. Telling twice does no harm."""
        identity = id(tensor)
        known = self._known.get(identity)
        if known is not None and known() is tensor:
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()

        def gone(_: object) -> None:
            self._known.pop(identity, None)
            self._users[key] -= 1
            if self._users[key] == 0:
                del self._users[key]
                self.live_bytes -= size

        self._known[identity] = weakref.ref(tensor, gone)
        if key not in self._users:
            self.live_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self._users[key] = self._users.get(key, 0) + 1


def _returns_view(schema: Any) -> bool:
    """Whether the op only gives another look at its input: results share memory and nothing is written."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)


def _in_schema_order(schema: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    names = [argument.name for argument in schema.arguments[len(args):]]
    return [*args, *(kwargs.get(name) for name in names)]


def _tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]
    return []


def _described(value: Any) -> Any:
    """A value as the formulas see it."""
    if isinstance(value, Tensor):
        return TensorArgument(tuple(value.shape), str(value.dtype).removeprefix("torch."))
    if isinstance(value, (list, tuple)):
        return [_described(item) for item in value]
    return value


def _memory_touched(tensors: Sequence[Tensor], first_elements: int | None) -> int:
    """Bytes of the distinct parts of memory that the tensors cover.

    An expanded axis (stride 0) counts once. Two looks at the same part count once, two parts of one storage together
    at most the storage. first_elements: elements read from the first tensor, if fewer.
    """
    parts: dict[int, dict[tuple[Any, ...], int]] = {}
    sizes: dict[int, int] = {}
    for index, tensor in enumerate(tensors):
        elements = 1
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
            elements *= length if stride else min(length, 1)
        if index == 0 and first_elements is not None:
            elements = min(elements, first_elements)
        storage = tensor.untyped_storage()
        sizes[storage._cdata] = storage.nbytes()
        part = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        parts.setdefault(storage._cdata, {})[part] = elements * tensor.element_size()
    return sum(min(sizes[key], sum(found.values())) for key, found in parts.items())
