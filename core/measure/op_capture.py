"""Ops of a tracker with their real arguments: which call belongs to which row of the op table, and copies of it.

A call is found again by counting. In inference mode every op reaches a dispatch mode whole (conv2d, and not the
convolution under it), so a first pass numbers the calls and lets the profiler, host side alone, write each number into
its trace: the key of a row then comes from the same events as the op table's own keys. A second pass copies the
arguments of the numbers that are wanted, before the op changes them.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from core.measure import inputs, precision, profile
from core.measure.timing import Clock
from core.records import WorkKey
from core.trackers import own, registry
from core.trackers.info import OFFICIAL
from core.trackers.stages import OTHER, PROFILER_PREFIX
from core.trackers.tracker import Tracker

_NUMBERED = "gapscope op:"
_PYTHON_MODE = "PythonDispatchMode"  # the profiler's name for the mode itself, around every op that it sees
_OWN_NAMESPACE = "profiler"


@dataclass(frozen=True)
class Subject:
    """A tracker ready to run: `call` makes one forward pass as the timed ones are made."""

    call: Callable[[], object]
    model: Tracker


def build_subject(
    work: WorkKey, precision_name: str, device: torch.device, seed: int, checkouts: Mapping[str, str] | None = None,
    weights: str | None = None, entry: str | None = None,
) -> Subject:
    """The tracker of a work key on the device with its precision set, as a worker of a sweep builds it.

    checkouts: paths of official repositories by name; weights: a checkpoint for one of them; entry: `FILE.py:build` of
    the user's own model, whose work has no size. Raises UserError for an unknown tracker or size, a checkout that is
    not there, or a file that is no model.
    """
    if entry is not None:
        model: Tracker = own.load_entry(entry, seed=seed, device=str(device)).to(device)
        arguments = model.prepare(torch.empty(0, device=device), torch.empty(0, device=device))  # it has inputs itself
    else:
        info, variant = registry.resolve(work.selector)
        options: dict[str, Any] = dict(registry.build_options(info, work))
        if info.implementation == OFFICIAL:
            copies = checkouts or {}
            options.update(checkout=copies.get(info.checkout.name) if info.checkout else None, weights=weights,
                           frames=work.frames, height=work.height, width=work.width)
        model = registry.load_builder(info)(variant.name, seed=seed, **options).to(device)
        clip = inputs.procedural_clip(*work.size, work.points or 1, seed)
        with torch.no_grad():  # in the model's own layout, outside the forward pass
            arguments = model.prepare(**inputs.to_model_input(clip, device, work.batch))
    precision.apply(precision_name)  # after the model is built, since building may change settings

    def call() -> object:
        with torch.inference_mode(), precision.autocast(precision_name, device.type):
            return model(**arguments)

    return Subject(call, model)


# --- arguments -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Look:
    """A tensor as a look at one of the exemplar's memories."""

    memory: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Exemplar:
    """One call of an op: its arguments with real values, shapes, strides and shared memory, kept on the host."""

    op: str  # "aten::conv2d"
    overload: str  # "default"
    arguments: tuple[Any, ...]  # tensors are `_Look`s
    keywords: dict[str, Any]
    memories: tuple[Tensor, ...]  # 1-D, on the CPU
    dtypes: tuple[str, ...]  # of the tensors as the op table has them; under autocast the op saw others

    def materialise(self, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fresh copies of the arguments on the device."""
        memories = [memory.to(device, copy=True) for memory in self.memories]

        def built(value: Any) -> Any:
            if isinstance(value, _Look):
                return torch.as_strided(memories[value.memory], value.shape, value.strides, value.offset)
            if isinstance(value, (list, tuple)):
                return type(value)(built(item) for item in value)
            return value

        return tuple(built(value) for value in self.arguments), {k: built(v) for k, v in self.keywords.items()}

    def function(self) -> Any:
        """The overload that was called. Raises AttributeError when no loaded library has it."""
        space, name = self.op.split("::")
        return getattr(getattr(getattr(torch.ops, space), name), self.overload)

    def save(self, path: Path) -> None:
        torch.save({name: getattr(self, name) for name in self.__dataclass_fields__}, path)

    @classmethod
    def load(cls, path: Path) -> Exemplar:
        """Reads what `save` wrote in this run's own temporary folder."""
        return cls(**torch.load(path, map_location="cpu", weights_only=False))


def freeze(function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any], dtypes: tuple[str, ...]) -> Exemplar:
    """Copy a call's arguments. Tensors that share memory share it in the copy, too, so the footprint stays.

    Raises TypeError for an argument that cannot be kept (a sparse or quantised tensor, a generator).
    """
    tensors = list(_tensors((arguments, dict(keywords))))
    spans: dict[tuple[int, torch.dtype], tuple[int, int]] = {}
    for tensor in tensors:
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise TypeError(f"a tensor of layout {tensor.layout}")
        key = _memory_key(tensor)
        first = int(tensor.storage_offset())
        last = first + _span(tensor)
        known = spans.get(key, (first, last))
        spans[key] = min(known[0], first), max(known[1], last)
    memories: list[Tensor] = []
    place: dict[tuple[int, torch.dtype], int] = {}
    for tensor in tensors:
        key = _memory_key(tensor)
        if key not in place:
            first, last = spans[key]
            place[key] = len(memories)
            memories.append(torch.as_strided(tensor, (last - first,), (1,), first).detach().to("cpu", copy=True))

    def kept(value: Any) -> Any:
        if isinstance(value, Tensor):
            key = _memory_key(value)
            return _Look(place[key], tuple(value.shape), value.stride(), int(value.storage_offset()) - spans[key][0])
        if isinstance(value, (list, tuple)):
            return type(value)(kept(item) for item in value)
        if isinstance(value, torch.Generator):
            raise TypeError("a random generator")
        return value

    return Exemplar(
        op=str(function._schema.name), overload=str(function._schema.overload_name) or "default",
        arguments=tuple(kept(value) for value in arguments), keywords={k: kept(v) for k, v in keywords.items()},
        memories=tuple(memories), dtypes=dtypes,
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _memory_key(tensor: Tensor) -> tuple[int, torch.dtype]:
    return tensor.untyped_storage().data_ptr(), tensor.dtype


def _span(tensor: Tensor) -> int:
    """Elements from the tensor's first to behind its last one in memory."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))


# --- passes ----------------------------------------------------------------------------------------------------------


class _Numbering(TorchDispatchMode):
    """Writes the number of each call into the profiler's trace."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name)
        if name.startswith(_OWN_NAMESPACE):
            return func(*args, **(kwargs or {}))
        self.names.append(name)
        with torch.profiler.record_function(f"{_NUMBERED}{len(self.names) - 1}"):
            return func(*args, **(kwargs or {}))


class _Copying(TorchDispatchMode):
    """Keeps the arguments of the calls with the wanted numbers, handing each to `keep` before the op runs."""

    def __init__(self, wanted: Mapping[int, str], keep: Callable[[int, Any, Any, Any], None]) -> None:
        super().__init__()
        self.wanted, self.keep = wanted, keep
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func._schema.name)
        if not name.startswith(_OWN_NAMESPACE):
            number, self.count = self.count, self.count + 1
            if self.wanted.get(number) == name:
                self.keep(number, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Numbered:
    """The first call of one row of the op table."""

    number: int
    name: str
    dtypes: tuple[str, ...]


def numbered_calls(subject: Subject, clock: Clock) -> dict[str, Numbered]:
    """Op key -> the first call that the key stands for, from one pass. No device is profiled.

    A call under another op (what autocast casts and then calls) counts for the top-level one if it has its name.
    """
    mode = _Numbering()

    def call() -> object:
        with mode:
            return subject.call()

    events, _ = profile.record(call, subject.model, clock, with_shapes=True, on_cuda=False)
    return first_calls(events, mode.names)


def first_calls(events: Iterable[Mapping[str, Any]], names: list[str]) -> dict[str, Numbered]:
    """`numbered_calls` from the events of a trace; `names`: name of the op with each number."""
    threads: dict[Any, list[Mapping[str, Any]]] = {}
    for event in events:
        kind, name = event.get("cat"), str(event.get("name"))
        if event.get("ph") == "X" and kind in ("cpu_op", "user_annotation") and name != _PYTHON_MODE:
            threads.setdefault(event.get("tid"), []).append(event)
    found: dict[str, Numbered] = {}
    seen: dict[int, list[int]] = {}  # id of a top-level event -> numbers of the calls around or under it
    tops: dict[int, tuple[Mapping[str, Any], str]] = {}
    for thread in threads.values():
        thread.sort(key=lambda event: (event["ts"], -event["dur"], event.get("args", {}).get("Ev Idx", 0)))
        # end, stage, top-level event, number that waits for its op
        opened: list[tuple[float, str, Mapping[str, Any] | None, int | None]] = []
        for event in thread:
            while opened and opened[-1][0] <= event["ts"]:
                opened.pop()
            _, stage, top, number = opened[-1] if opened else (0.0, OTHER, None, None)
            name = str(event["name"])
            if event["cat"] == "user_annotation":
                if name.startswith(PROFILER_PREFIX):
                    stage = name[len(PROFILER_PREFIX):]
                elif name.startswith(_NUMBERED):
                    number = int(name[len(_NUMBERED):])
                    if top is not None:
                        seen[id(top)].append(number)
            elif top is None:
                top = event
                tops[id(top)] = top, stage
                seen[id(top)] = [] if number is None else [number]
            opened.append((event["ts"] + event["dur"], stage, top, number))
    for identity, (top, stage) in tops.items():
        number = next((n for n in seen[identity] if n < len(names) and names[n] == top["name"]), None)
        if number is None:
            continue
        row = profile.read_trace([{**top, "name": PROFILER_PREFIX + stage, "cat": "user_annotation", "args": {}}, top],
                                 on_cuda=False).ops[0]
        known = found.get(row.key())
        if known is None or number < known.number:
            found[row.key()] = Numbered(number, str(top["name"]), row.dtypes)
    return found


def copy_calls(
    subject: Subject, wanted: Mapping[str, Numbered], folder: Path
) -> tuple[dict[str, Path], dict[str, str]]:
    """Files with the arguments of the wanted calls by op key, and why the others have none. One more pass."""
    files: dict[str, Path] = {}
    notes: dict[str, str] = {}
    keys: dict[int, list[str]] = {}
    for key, numbered in wanted.items():
        keys.setdefault(numbered.number, []).append(key)

    def keep(number: int, func: Any, args: Any, kwargs: Any) -> None:
        for key in keys[number]:
            try:
                path = folder / f"op-{number}.pt"
                freeze(func, tuple(args), kwargs, wanted[key].dtypes).save(path)
                files[key] = path
            except (TypeError, RuntimeError, OSError) as error:  # no memory, no disk, a tensor of a strange kind
                notes[key] = f"arguments could not be kept: {error}"

    with contextlib.ExitStack() as stack:
        stack.enter_context(_Copying({numbered.number: numbered.name for numbered in wanted.values()}, keep))
        subject.call()
    for key in wanted:
        if key not in files:
            notes.setdefault(key, "the op was not met again")
    return files, notes
