"""The op table and the kernel-busy time of one profiled forward pass, apart from the timed ones.

torch.profiler's exported trace (Chrome JSON) is read, since its fields are the same from torch 2.1 on while the event
objects changed with every version. What a version or driver does not record is None. An op that another op called is
folded into the top-level one, so that `aten::conv2d` is one row whatever backend ran it. Kernels find their op
through the launch call that has the same correlation number and lies inside the op on the host's time line.
"""
from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.measure.op_formulas import MAYBE_VIEWS, NOTHING, UNKNOWN, OpWork, base_name, op_work
from core.measure.timing import Clock
from core.records import REST_OP, Op
from core.trackers.stages import OTHER, PROFILER_PREFIX, Staged, marked

MAX_OPS = 2_000
_MAX_KERNEL_NAME, _MAX_SCALAR, _MAX_KERNELS = 240, 160, 40
_HOST_CALLS = ("cuda_runtime", "cuda_driver")
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_COPIES = ("aten::copy_", "aten::clone")

# The profiler's names of dtypes; whatever is not here is no tensor.
_DTYPES = {
    "float": "float32", "double": "float64", "c10::half": "float16", "c10::bfloat16": "bfloat16", "long": "int64",
    "long int": "int64", "int": "int32", "short": "int16", "short int": "int16", "signed char": "int8",
    "char": "int8", "unsigned char": "uint8", "bool": "bool", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "c10::float8_e4m3fn": "float8_e4m3fn", "c10::float8_e5m2": "float8_e5m2",
}

Event = Mapping[str, Any]
WorkLookup = Mapping[tuple[str, str, tuple[tuple[int, ...], ...]], OpWork]
"""(op, stage, shapes) -> work of one call, as counted op by op: for ops whose arguments the trace tells in part."""


@dataclass(frozen=True)
class Profiled:
    """What one profiled pass tells. `ops` is the whole table, largest device time first."""

    ops: tuple[Op, ...]
    launches_by_stage: dict[str, int] | None  # None where no device work was recorded
    kernel_busy_ms: float | None
    coverage: float | None  # share of device time in ops whose work is known


@dataclass
class _Call:
    """One call of a top-level op."""

    op: str
    stage: str
    arguments: Event
    host_ms: float
    copies: bool = False  # some op under it moved data
    kernels: dict[str, int] = field(default_factory=dict)
    device_ms: float = 0.0


def read_trace(events: Iterable[Event], on_cuda: bool, counted: WorkLookup | None = None) -> Profiled:
    """The op table out of the events of a Chrome trace.

    On CUDA the device time of an op is the sum of its kernels' durations (with copies and fills). On a CPU it is the
    op's own time with its children; there are no kernels, and `kernel_busy_ms` is None.
    """
    complete = [event for event in events if event.get("ph") == "X" and "dur" in event]
    calls, launched_by, by_external_id = _host_side(complete)
    device_work = [event for event in complete if event.get("cat") in _DEVICE_WORK] if on_cuda else []
    for event in device_work:
        arguments = event.get("args", {})
        call = launched_by.get(arguments.get("correlation")) or by_external_id.get(arguments.get("External id"))
        if call is None:
            call = _Call("(no op)", OTHER, {}, 0.0)
            calls.append(call)
        name = short_kernel_name(str(event.get("name", "")))
        call.kernels[name] = call.kernels.get(name, 0) + 1
        call.device_ms += event["dur"] / 1e3
    saw_device = on_cuda and bool(device_work)
    ops = _table(calls, on_cuda, saw_device, counted or {})
    timed_ms = sum(op.device_ms for op in ops if op.device_ms is not None)
    known_ms = sum(op.device_ms for op in ops if op.device_ms is not None and op.flops is not None)
    launches: dict[str, int] | None = None
    if saw_device:
        launches = {}
        for op in ops:
            launches[op.stage] = launches.get(op.stage, 0) + (op.launches or 0)
    return Profiled(
        ops=ops,
        launches_by_stage=launches,
        kernel_busy_ms=busy_ms(device_work) if saw_device else None,
        coverage=known_ms / timed_ms if timed_ms > 0 else None,
    )


def saw_device(events: Iterable[Event]) -> bool:
    """Whether a trace holds any work of the device."""
    return any(event.get("cat") in _DEVICE_WORK and "dur" in event for event in events)


def busy_ms(device_work: Iterable[Event]) -> float:
    """Length of the union of the intervals in which the device worked; streams that overlap count once."""
    busy_us, reached = 0.0, float("-inf")
    for start, end in sorted((event["ts"], event["ts"] + event["dur"]) for event in device_work):
        busy_us += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy_us / 1e3


def limited(ops: Sequence[Op], most: int = MAX_OPS) -> tuple[Op, ...]:
    """At most `most` rows: the largest by device time, the rest summed into one row `(rest)` per stage."""
    if len(ops) <= most:
        return tuple(ops)
    ordered = sorted(ops, key=lambda op: -(op.device_ms or 0.0))
    keep = most - len({op.stage for op in ops})
    rest: dict[str, Op] = {}
    for op in ordered[keep:]:
        known = rest.get(op.stage)
        rest[op.stage] = _joined(known, op) if known else Op(
            op=REST_OP, stage=op.stage, calls=op.calls, device_ms=op.device_ms, launches=op.launches,
            flops=op.flops, other_flops=op.other_flops, bytes=op.bytes,
        )
    return (*ordered[:keep], *rest.values())


def short_kernel_name(name: str) -> str:
    """A kernel's name without its argument list, which repeats what the template arguments say, and not too long."""
    name = " ".join(name.split())
    depth = 0
    for i, letter in enumerate(name):
        if letter == "<":
            depth += 1
        elif letter == ">" and not name[:i].endswith("-"):
            depth -= 1
        elif letter == "(" and depth == 0 and i and not name.startswith(("(anonymous", "(lambda"), i):
            if name.startswith(("Memcpy", "Memset")):
                break
            name = name[:i]
            break
    name = re.sub(r"^void ", "", name.strip())
    return name if len(name) <= _MAX_KERNEL_NAME else name[: _MAX_KERNEL_NAME - 3] + "..."


# --- host side of the trace ------------------------------------------------------------------------------------------


def _host_side(events: list[Event]) -> tuple[list[_Call], dict[Any, _Call], dict[Any, _Call]]:
    """Top-level calls; the call that made each launch, by correlation number; and by the profiler's external id."""
    calls: list[_Call] = []
    launched_by: dict[Any, _Call] = {}
    by_external_id: dict[Any, _Call] = {}
    threads: dict[Any, list[Event]] = {}
    for event in events:
        if event.get("cat") in ("cpu_op", "user_annotation", *_HOST_CALLS):
            threads.setdefault(event.get("tid"), []).append(event)
    for thread in threads.values():
        # Events of a thread nest or follow each other; older versions round to whole microseconds, so only the
        # start decides, with the longer one and then the profiler's own number first.
        thread.sort(key=lambda event: (event["ts"], -event["dur"], event.get("args", {}).get("Ev Idx", 0)))
        open_events: list[tuple[float, Event, _Call | None, str]] = []  # end, event, its top-level call, stage
        for event in thread:
            while open_events and open_events[-1][0] <= event["ts"]:
                open_events.pop()
            _, _, call, stage = open_events[-1] if open_events else (0.0, {}, None, OTHER)
            arguments = event.get("args", {})
            category, name = event["cat"], str(event.get("name", ""))
            if category in _HOST_CALLS:
                if "correlation" in arguments:
                    if call is None:  # a launch outside every op, such as a kernel of a custom extension
                        call = _Call("(no op)", stage, {}, 0.0)
                        calls.append(call)
                    launched_by[arguments["correlation"]] = call
                continue
            if category == "user_annotation":
                if name.startswith(PROFILER_PREFIX):
                    stage = name[len(PROFILER_PREFIX):]
            else:
                if call is None:
                    call = _Call(name, stage, arguments, event["dur"] / 1e3)
                    calls.append(call)
                elif name in _COPIES:
                    call.copies = True
                by_external_id[arguments.get("External id")] = call
            open_events.append((event["ts"] + event["dur"], event, call, stage))
    # A launch call outside every op that started no device work (a synchronisation) is no op.
    return calls, launched_by, by_external_id


# --- table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arguments:
    """Arguments of one call: tensors flat (lists opened), the others as text; and one entry per argument as traced."""

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    layout: str | None
    scalars: tuple[str, ...]
    raw: tuple[list[Any], list[str], list[str]]


def _arguments(traced: Event) -> _Arguments:
    dims = list(traced.get("Input Dims", ()))
    types = [str(name) for name in traced.get("Input type", ())]
    strides = traced.get("Input Strides")
    concrete = [str(value) for value in traced.get("Concrete Inputs", ())]
    shapes: list[tuple[int, ...]] = []
    dtypes: list[str] = []
    layouts: list[str] = []
    scalars: list[str] = []
    for i, shape in enumerate(dims):
        kind = types[i] if i < len(types) else ""
        stride = strides[i] if strides is not None and i < len(strides) else None
        if kind.lower() in _DTYPES:
            tensors = [(shape, stride, _DTYPES[kind.lower()])]
        elif kind == "TensorList" or (shape and isinstance(shape[0], list)):
            # The trace does not name the dtypes inside a list.
            tensors = [(one, stride[k] if stride and k < len(stride) else None, "") for k, one in enumerate(shape)]
        else:
            if i < len(concrete):
                scalars.append(concrete[i][:_MAX_SCALAR] or "None")
            continue
        for one_shape, one_stride, dtype in tensors:
            shapes.append(tuple(int(n) for n in one_shape))
            dtypes.append(dtype)
            layouts.append(layout_name(one_shape, one_stride) if one_stride is not None else "")
    layout: str | None = None
    if strides is not None and shapes:
        layout = layouts[0] if len(set(layouts)) == 1 else ";".join(layouts)
    return _Arguments(tuple(shapes), tuple(dtypes), layout, tuple(scalars), (dims, types, concrete))


def layout_name(shape: Sequence[int], strides: Sequence[int]) -> str:
    """"contiguous", "channels_last", or the strides; axes of length 1 say nothing and do not count."""
    def dense(order: Sequence[int]) -> bool:
        expected = 1
        for axis in order:
            if shape[axis] != 1 and strides[axis] != expected:
                return False
            expected *= shape[axis]
        return True

    axes = len(shape)
    if len(strides) != axes:
        return "unknown"
    if 0 in shape or dense(range(axes - 1, -1, -1)):
        return "contiguous"
    if axes in (4, 5) and dense([1, *range(axes - 1, 1, -1), 0]):
        return "channels_last"
    return "strides(" + ",".join(str(stride) for stride in strides) + ")"


def _table(calls: list[_Call], on_cuda: bool, saw_device: bool, counted: WorkLookup) -> tuple[Op, ...]:
    rows: dict[str, Op] = {}
    for call in calls:
        if call.op == "(no op)" and not call.kernels:
            continue
        arguments = _arguments(call.arguments)
        work = _work(call, arguments, on_cuda, saw_device, counted)
        op = Op(
            op=call.op[:200] or "(unnamed)", stage=call.stage, shapes=arguments.shapes, dtypes=arguments.dtypes,
            layout=arguments.layout, scalars=arguments.scalars, calls=1,
            device_ms=call.host_ms if not on_cuda else call.device_ms if saw_device else None,
            kernels=tuple(call.kernels), launches=sum(call.kernels.values()) if saw_device else None,
            flops=work.flops, other_flops=work.other_flops, bytes=work.bytes,
        )
        key = op.key()
        rows[key] = _joined(rows[key], op) if key in rows else op
    return tuple(sorted(rows.values(), key=lambda op: -(op.device_ms or 0.0)))


def _work(call: _Call, arguments: _Arguments, on_cuda: bool, saw_device: bool, counted: WorkLookup) -> OpWork:
    """Work of one call: a view that might have been a copy moved nothing when no kernel ran (on a CPU: no copy)."""
    if base_name(call.op) in MAYBE_VIEWS:
        moved = bool(call.kernels) if saw_device else call.copies
        if not moved and (saw_device or not on_cuda):
            return NOTHING
    work = op_work(call.op, *arguments.raw)
    if work == UNKNOWN:
        return counted.get((call.op, call.stage, arguments.shapes), UNKNOWN)
    return work


def _joined(first: Op, second: Op) -> Op:
    """Totals of two rows; a part that is unknown in one of them is unknown in the sum."""
    def total(a: Any, b: Any) -> Any:
        return None if a is None or b is None else a + b

    kernels = tuple(dict.fromkeys((*first.kernels, *second.kernels))) if first.op != REST_OP else ()
    return replace(
        first, calls=first.calls + second.calls, device_ms=total(first.device_ms, second.device_ms),
        kernels=kernels[:_MAX_KERNELS], launches=total(first.launches, second.launches),
        flops=total(first.flops, second.flops), other_flops=total(first.other_flops, second.other_flops),
        bytes=total(first.bytes, second.bytes),
    )


# --- recording -------------------------------------------------------------------------------------------------------


def record(
    call: Callable[[], object], model: Staged | None, clock: Clock, with_shapes: bool, on_cuda: bool
) -> tuple[list[Event], float]:
    """Events of one profiled call and its wall time. Raises whatever the profiler raises.

    with_shapes: host ops with their arguments too (for the op table); else device work alone, which disturbs less.
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CUDA] if on_cuda else []
    if with_shapes or not on_cuda:
        activities.append(ProfilerActivity.CPU)
    with profile(activities=activities, record_shapes=with_shapes) as profiler:
        clock.synchronize()
        start_ms = clock.now_ms()
        if model is None or not with_shapes:
            call()
        else:
            with marked(model, lambda name: record_function(PROFILER_PREFIX + name)):
                call()
        clock.synchronize()
        wall_ms = clock.now_ms() - start_ms
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    return (data["traceEvents"] if isinstance(data, dict) else data), wall_ms
