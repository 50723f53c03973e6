"""Chrome traces of torch.profiler: operations with their kernels, and how much of the time the GPU was busy."""
from __future__ import annotations

import bisect
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.records import Op
from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Reading, RefusedError, Task
from core.store.importers.ops import as_table, short_name
from core.store.importers.text import iso_utc

KEY, TITLE = "torch-profiler", "torch.profiler trace"

_KERNEL, _COPY = ("kernel",), ("gpu_memcpy", "gpu_memset", "memcpy", "memset")
_OP, _CALL = ("cpu_op", "operator"), ("cuda_runtime", "cuda_driver", "runtime")
_MARK = ("user_annotation", "user_function")
_STEP = re.compile(r"ProfilerStep#\d+")
WHOLE = "the whole trace"
EXPORT = ("write it with: with torch.profiler.profile(record_shapes=True, schedule=...) as p: ...; "
          "p.export_chrome_trace('trace.json.gz')")


@dataclass(frozen=True)
class _Event:
    name: str
    category: str
    start_us: float
    end_us: float
    thread: tuple[Any, Any]
    args: dict[str, Any]

    @property
    def correlation(self) -> Any:
        return self.args.get("correlation", self.args.get("Correlation"))

    @property
    def external_id(self) -> Any:
        return self.args.get("External id", self.args.get("external id"))


def recognises(given: Given) -> bool:
    events = _raw_events(given.json)
    return events is not None and any(isinstance(e, dict) and "ph" in e for e in events[:50])


def _raw_events(value: Any) -> list[Any] | None:
    events = value.get("traceEvents") if isinstance(value, dict) else value
    return events if isinstance(events, list) else None


def read(given: Given, interview: Interview) -> Reading:
    reading = Reading()
    head = given.json if isinstance(given.json, dict) else {}
    events = [event for event in map(_event, _raw_events(given.json) or ()) if event is not None]
    kernels = [event for event in events if event.category in _KERNEL]
    calls = [event for event in events if event.category in _CALL]
    if not kernels:
        raise RefusedError("a trace without any kernel", "a trace of a pass on a GPU", EXPORT)
    device, kernels, copies = _one_device(kernels, [e for e in events if e.category in _COPY], interview, reading)
    windows, how = _windows(events, kernels, interview)
    board = _board(head, device, interview, reading)
    ops = [event for event in events if event.category in _OP]
    precision = ask_precision(interview, _dtype(ops))
    name = re.sub(r"\.(pt\.trace|trace)?\.?json(\.gz)?$", "", given.name)
    task = interview.ask("task", "What was profiled? Traces of the same name are compared.", default=name or "trace",
                         free=True)
    attach = interview.ask("attach", "Which run does it belong to? A run id, or RUN_ID:LINE for one of its cells.",
                           default="none", free=True)
    by_window: list[list[_Event]] = [[] for _ in windows]
    for event in kernels:
        place = _window_of(event, windows)
        if place is not None:
            by_window[place].append(event)
    inside = [event for part in by_window for event in part]
    busy = [_union_us((event.start_us, event.end_us) for event in part) for part in by_window]
    walls_ms = tuple((end - start) / 1e3 for start, end in windows)
    share = sum(busy) / sum(end - start for start, end in windows)
    reading.said.append(f"{len(kernels)} kernels, {len(copies)} copies and {len(calls)} runtime calls on one GPU.")
    reading.said.append(
        f"The GPU was busy {100 * share:.3g} % of {sum(walls_ms):.6g} ms ({how}); the profiler's own cost is in it."
    )
    if share < 0.5:
        reading.said.append("It idled for more than half of it: the host was the limit, or the window holds set-up.")
    if board is not None and precision is not None and task is not None:
        table = _op_table(inside, calls, ops, windows)
        made = Task(
            task, precision, walls_ms, f"spans of a profiled trace: {how}", kernel_busy_ms=sum(busy) / len(busy) / 1e3,
            profiled_wall_ms=_middle(walls_ms), ops=table,
            stated={"profiled": True, "kernels": len(kernels), "runtime_calls": len(calls), "copies": len(copies),
                    "gpu_busy_share": round(share, 6), "window": how},
        )
        start_us = windows[0][0] + _base_us(head)
        reading.runs.append(ForeignRun(board, (made,), started_at=iso_utc(start_us / 1e6) if start_us > 1e15 else None,
                                       attach=None if attach == "none" else attach))
    return reading


def _event(raw: Any) -> _Event | None:
    """A complete event with a duration; anything else is none of ours."""
    if not isinstance(raw, dict) or raw.get("ph") != "X":
        return None
    start, duration, args = raw.get("ts"), raw.get("dur", 0), raw.get("args")
    if not isinstance(start, (int, float)) or not isinstance(duration, (int, float)):
        return None
    if not (0 <= start < 1e19 and 0 <= duration < 1e15):
        return None
    return _Event(str(raw.get("name")), str(raw.get("cat", "")).lower(), float(start), float(start) + float(duration),
                  (str(raw.get("pid")), str(raw.get("tid"))), args if isinstance(args, dict) else {})


def _one_device(
    kernels: list[_Event], copies: list[_Event], interview: Interview, reading: Reading
) -> tuple[str | None, list[_Event], list[_Event]]:
    """The device that was used, and what ran there. Devices that are only listed do not count."""
    used = Counter(str(event.args["device"]) for event in kernels if "device" in event.args)
    if not used:
        return None, kernels, copies
    device: str | None = next(iter(used))
    if len(used) > 1:
        names = [name for name, _ in used.most_common()]
        device = interview.ask("device", f"Kernels ran on the GPUs {', '.join(names)}. Which one is meant?", names,
                               names[0])
        reading.said.append(f"Kernels ran on {len(used)} GPUs; those of GPU {device} are taken.")
    return (device, [e for e in kernels if str(e.args.get("device")) == device],
            [e for e in copies if str(e.args.get("device", device)) == device])


def _board(head: dict[str, Any], device: str | None, interview: Interview, reading: Reading) -> Any:
    listed = head.get("deviceProperties", head.get("computeProperties"))
    found = next((entry for entry in listed if isinstance(entry, dict) and str(entry.get("id")) == str(device)), {}) \
        if isinstance(listed, list) else {}
    if isinstance(listed, list) and len(listed) > 1:
        reading.said.append(f"{len(listed)} devices are listed; GPU {device} was used.")
    capability = ".".join(str(found.get(name)) for name in ("computeMajor", "computeMinor"))
    name = found.get("name")
    return ask_board(
        interview, reading, name if isinstance(name, str) and name.strip() else None,
        memory_bytes=_whole(found.get("totalGlobalMem")), sm_count=_whole(found.get("numSms")),
        compute_capability=capability if "None" not in capability else None,
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53 else None


def _windows(
    events: list[_Event], kernels: list[_Event], interview: Interview
) -> tuple[list[tuple[float, float]], str]:
    """The spans of the passes, in order and disjoint, and what they are in words."""
    marks: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.category in _MARK and event.end_us > event.start_us:
            name = "ProfilerStep" if _STEP.match(event.name) else event.name
            marks.setdefault(name[:120], []).append((event.start_us, event.end_us))
    names = sorted(marks, key=lambda name: -len(marks[name]))[:20]
    default = "ProfilerStep" if "ProfilerStep" in marks else WHOLE
    chosen = interview.ask("window", "Which part of the trace is the pass? A mark that the program set, or all of it.",
                           [WHOLE, *names], default) if names else WHOLE
    if chosen is not None and chosen != WHOLE:
        spans = _disjoint(sorted(marks[chosen]))
        # Work is queued: a kernel may start behind the mark's end on the host. The last one's end closes the window.
        closed = []
        for place, (start, end) in enumerate(spans):
            limit = spans[place + 1][0] if place + 1 < len(spans) else float("inf")
            late = [k.end_us for k in kernels if start <= k.start_us < min(limit, end) and k.end_us <= limit]
            closed.append((start, max([end, *late])))
        if any(_window_of(event, closed) is not None for event in kernels):
            return closed, f"{len(closed)} x {chosen}"
        raise RefusedError(f"no kernel within {chosen[:60]}", "a mark around work on the GPU")
    timed = [event for event in events if event.category in (*_KERNEL, *_COPY, *_OP, *_CALL)]
    start, end = min(event.start_us for event in timed), max(event.end_us for event in timed)
    return [(start, max(end, start + 1e-3))], WHOLE


def _disjoint(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Nested and equal marks (of host and device) once."""
    made: list[tuple[float, float]] = []
    for start, end in spans:
        if not made or start >= made[-1][1]:
            made.append((start, end))
    return made[:10_000]


def _window_of(event: _Event, windows: Sequence[tuple[float, float]]) -> int | None:
    """The number of the window in which an event starts."""
    place = bisect.bisect_right(windows, (event.start_us, float("inf"))) - 1
    return place if place >= 0 and event.start_us <= windows[place][1] else None


def _union_us(spans: Iterable[tuple[float, float]]) -> float:
    """Time that is covered by at least one span: streams overlap, so the sum may exceed the wall."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


def _op_table(
    kernels: list[_Event], calls: list[_Event], ops: list[_Event], windows: Sequence[tuple[float, float]]
) -> tuple[Op, ...]:
    """Kernels under the outermost operation that launched them; totals of one pass."""
    passes = len(windows)
    launched = {event.correlation: event for event in calls if event.correlation is not None}
    by_thread, by_id = _outermost(ops)
    # Summed by what an operation is and which kernel ran, so that records are made once for each and not per launch.
    sums: dict[tuple[_Key, str], list[float]] = {}
    for kernel in kernels:
        call = launched.get(kernel.correlation)
        top = _enclosing(by_thread.get(call.thread, ((), ())), call.start_us) if call is not None else None
        if top is None:
            top = by_id.get(kernel.external_id)
        total = sums.setdefault((_key(top), kernel.name), [0.0, 0])
        total[0] += (kernel.end_us - kernel.start_us) / 1e3
        total[1] += 1
    calls_of: Counter[_Key] = Counter()
    for _, tops in by_thread.values():
        calls_of.update(_key(top) for top in tops if _window_of(top, windows) is not None)
    rows: dict[_Key, Op] = {}
    for (key, name), (time_ms, launches) in sums.items():
        names = (*(rows[key].kernels if key in rows else ()), short_name(name))[:50]
        rows[key] = Op(
            op=key[0], stage="trace", shapes=_shapes(key[1]), dtypes=_words(key[2]), kernels=names,
            calls=max(1, round(calls_of.get(key, 0) / passes)),
            device_ms=time_ms / passes + ((rows[key].device_ms or 0.0) if key in rows else 0.0),
            launches=int(launches) + ((rows[key].launches or 0) if key in rows else 0),
        )
    return as_table(dataclasses.replace(op, launches=max(1, round((op.launches or 0) / passes)))
                    for op in rows.values())


_Key = tuple[str, str, str]
"""Name, input dims and input types of an operation, the last two as the JSON text that the trace has."""


def _key(op: _Event | None) -> _Key:
    if op is None:
        return "(no operation)", "null", "null"
    dims = op.args.get("Input Dims", op.args.get("Input dims"))
    return op.name[:200], json.dumps(dims), json.dumps(op.args.get("Input type"))


_Thread = tuple[Sequence[float], Sequence[_Event]]


def _outermost(ops: list[_Event]) -> tuple[dict[tuple[Any, Any], _Thread], dict[Any, _Event]]:
    """The outermost operations of each thread in order, and the one that holds each external id."""
    threads: dict[tuple[Any, Any], list[_Event]] = {}
    by_id: dict[Any, _Event] = {}
    for event in sorted(ops, key=lambda e: (e.start_us, -e.end_us)):
        tops = threads.setdefault(event.thread, [])
        if not tops or event.start_us >= tops[-1].end_us:
            tops.append(event)
        if event.external_id is not None:
            by_id.setdefault(event.external_id, tops[-1])
    return {thread: ([top.start_us for top in tops], tops) for thread, tops in threads.items()}, by_id


def _enclosing(thread: _Thread, at_us: float) -> _Event | None:
    starts, tops = thread
    place = bisect.bisect_right(starts, at_us) - 1
    return tops[place] if place >= 0 and at_us <= tops[place].end_us else None


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    dims = json.loads(text)
    if not isinstance(dims, list):
        return ()
    return tuple(
        tuple(shape) for shape in dims[:20]
        if isinstance(shape, list) and all(isinstance(dim, int) and 0 <= dim < 2**53 for dim in shape)
    )


def _words(text: str) -> tuple[str, ...]:
    types = json.loads(text)
    return tuple(str(word)[:60] for word in types[:20] if word) if isinstance(types, list) else ()


def _dtype(ops: list[_Event]) -> str | None:
    """What most inputs of matrix work are: half, bfloat16, float; None where shapes were not recorded."""
    kinds: Counter[str] = Counter()
    for op in ops:
        if re.search(r"conv|mm|linear|matmul|attention", op.name):
            kinds.update(word for word in _words(json.dumps(op.args.get("Input type")))[:1])
    word = kinds.most_common(1)[0][0] if kinds else ""
    return {"c10::Half": "float16", "c10::BFloat16": "bfloat16", "float": "float", "double": "double"}.get(word)


def _base_us(head: dict[str, Any]) -> float:
    base = head.get("baseTimeNanoseconds")
    return base / 1e3 if isinstance(base, (int, float)) and 0 <= base < 5e18 else 0.0


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
