"""One worker process: measures the cells that its parent names, one after the other. `python -m core.measure.worker`

It talks in JSON lines: orders come in on standard input, answers go out on what was standard output; whatever else
prints goes to standard error. It ends when its input ends, so that it never outlives its parent.

    in   {"do": "hello", "device": "auto"}
    out  {"type": "hello", "device": ..., "host": ..., "software": ..., "settings": ..., "warnings": [], "busy": null}
    in   {"do": "cell", "workload": ..., "process": 0, "effort": ..., "seed": 0, ...}
    out  {"type": "progress", "phase": "warmup", "count": 3}   at most once a second and at every new phase
    out  {"type": "cell", "cell": ..., "retire": false}        retire: this process should not be used again
    in   {"do": "profile", "workload": ..., "seed": 0, "with_ops": true, ...}
    out  {"type": "profile", "fields": {...}, "launches": {...}, "notes": {...}}
    out  {"type": "user_error", "found": ..., "expected": ..., "fix": ...}    instead of hello
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch

from core.errors import UserError
from core.measure import device, inputs, precision, profile, reasons, telemetry
from core.measure.cost import OpWork, WorkCount, count
from core.measure.nvml import Nvml, bare_uuid
from core.measure.plan import Effort, usable_cores
from core.measure.timing import Clock, CudaClock, HostClock, StageTimer, Timing, time_cell
from core.records import Cell, Stage, WorkKey, Workload, from_json, now_utc, to_json
from core.trackers import registry
from core.trackers.stages import OTHER, marked

PARENT_GONE = 3  # exit code
_PR_SET_PDEATHSIG = 1
_CALLS_BEFORE_PROFILE = 3
_PROFILE_TRIES = 3


@dataclasses.dataclass(frozen=True)
class _Profile:
    """What profiled passes add to a cell: fields of its record, launches by stage, remarks on the execution path."""

    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    launches: dict[str, int] | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)


class Worker:
    """A device, and what is kept from cell to cell: one model, one clip, the work counts of the present workload."""

    def __init__(self, asked: str) -> None:
        self.nvml = Nvml.open()
        # Before this process makes a context of its own, which would show up as a user of the board.
        users = device.board_users(self.nvml) if self.nvml is not None else {}
        self.found = device.find(asked, self.nvml)
        self.busy = users.get(bare_uuid(self.found.uuid or ""))
        self.on_cuda = self.found.device.type == "cuda"
        self.torch_device = torch.device(self.found.torch_name)
        if self.on_cuda:
            torch.cuda.set_device(self.torch_device)
        elif "OMP_NUM_THREADS" not in os.environ and usable_cores() < torch.get_num_threads():
            torch.set_num_threads(usable_cores())  # torch does not see a container's quota and would fight itself
        self.sensor = telemetry.Sensor(self.nvml, self.found.uuid)
        self.clock: Clock = CudaClock(torch, self.torch_device) if self.on_cuda else HostClock()
        self._model: tuple[tuple[Any, ...], Any] | None = None
        self._inputs: tuple[tuple[Any, ...], dict[str, Any], str] | None = None
        self._work: dict[tuple[str, int], WorkCount] = {}
        self._profiler_warm = False

    def hello(self) -> dict[str, Any]:
        found = self.found
        return {
            "type": "hello", "device": to_json(found.device), "host": to_json(found.host),
            "software": to_json(found.software), "settings": precision.settings(), "warnings": list(found.warnings),
            "busy": self.busy,
        }

    # --- one cell ---

    def cell(self, order: dict[str, Any], progress: Any) -> tuple[Cell, bool]:
        """The cell's record, and whether this process should be replaced afterwards. Never raises."""
        workload: Workload = from_json(Workload, order["workload"], "workload")
        blank = Cell(process=order["process"], workload=workload, status="failed", reason="unknown", at=now_utc())
        name = workload.setting.precision
        reason = precision.unsupported_reason(name, self.found.device.type, self.found.capability)
        if reason is not None:
            return dataclasses.replace(blank, status="unsupported", reason=reason), False
        try:
            return self._measured(blank, order, progress), False
        except UserError as error:  # such as a video that is shorter than this cell wants
            return dataclasses.replace(blank, reason=reasons.clean(str(error))), False
        except Exception as error:
            no_memory = reasons.out_of_memory(error, self.found.device.type)
            failed = dataclasses.replace(
                blank, status="oom" if no_memory else "failed", reason=no_memory or reasons.of_error(error)
            )
            poisoned = no_memory is None and self.on_cuda and reasons.poisons_process(error)
        # Outside the handler: the exception's frames hold the tensors that should go now.
        return failed, poisoned or not self._cleaned()

    def _cleaned(self) -> bool:
        """Give all memory back; False when much of it stays taken, so that the next cell would start with less."""
        self._model = self._inputs = None
        gc.unfreeze()
        gc.collect()
        if not self.on_cuda:
            return True
        try:
            torch.cuda.synchronize(self.torch_device)
            torch.cuda.empty_cache()
            return int(torch.cuda.memory_allocated(self.torch_device)) < 64 * 2**20
        except RuntimeError:
            return False

    def _measured(self, blank: Cell, order: dict[str, Any], progress: Any) -> Cell:
        workload, effort = blank.workload, Effort(**order["effort"])
        name = workload.setting.precision
        progress("prepare", 0)
        model = self._build(workload.work, order["seed"])
        arguments, clip = self._clip(workload.work, order["seed"], order.get("video"))
        asked = precision.apply(name)  # after the model is built, since building may change settings

        def forward() -> Any:
            with precision.autocast(name, self.found.device.type):
                return model(**arguments)

        def call() -> Any:
            with torch.inference_mode():
                return forward()

        def before_repetitions() -> None:
            refuse_change(asked)
            if self.on_cuda:
                torch.cuda.reset_peak_memory_stats(self.torch_device)

        if self.on_cuda:
            torch.cuda.empty_cache()  # so that `reserved` is this cell's own
        retries = self._memory_stat("num_alloc_retries")
        stages = StageTimer(self.clock)
        gc.collect()
        gc.freeze()  # a full collection of torch's own objects takes tens of milliseconds; none of them will go
        try:
            with self._listening(model, stages):
                timing = time_cell(call, self.clock, effort, stages, self.sensor.read, before_repetitions, progress)
            refuse_change(asked)
            memory = self._memory(retries)
            finite = _finite(call())
            counted, not_counted = (
                self._count(workload, model, forward, progress) if order.get("count") else (None, {})
            )
            # On CUDA the profiler stays attached to the process and slows every later launch: another worker does it.
            profiled = _Profile() if self.on_cuda else self._profile(order, model, call, counted, progress)
        finally:
            gc.unfreeze()
        if self.on_cuda:
            torch.cuda.empty_cache()  # the profiling worker needs the same memory
        path = {
            **precision.path_of(name, self.found.device.type, self.found.capability),
            "finite_output": finite, **not_counted, **profiled.notes,
        }
        return dataclasses.replace(
            blank, status="ok", reason=None, at=now_utc(), first_call_ms=timing.first_call_ms,
            warmup_ms=timing.warmup_ms, wall_ms=timing.wall_ms, event_ms=timing.event_ms,
            telemetry=telemetry.columns(timing.readings), stop_rule=timing.stop_rule, execution_path=path,
            stages=_stages(timing, counted, profiled.launches), clip=clip, **memory, **profiled.fields,
        )

    def profile(self, order: dict[str, Any], progress: Any) -> _Profile:
        """The profiled passes of a workload that another worker timed. Never raises: its times stay valid."""
        try:
            told = self._profiled_apart(order, progress)
            if self.on_cuda:
                torch.cuda.empty_cache()  # the timing worker wants the memory; model and clip stay, they are small
            return told
        except Exception as error:
            reason = reasons.of_error(error)
        self._cleaned()
        return _Profile(notes={"profile": reason})

    def _profiled_apart(self, order: dict[str, Any], progress: Any) -> _Profile:
        workload: Workload = from_json(Workload, order["workload"], "workload")
        name = workload.setting.precision
        progress("prepare", 0)
        model = self._build(workload.work, order["seed"])
        arguments, _ = self._clip(workload.work, order["seed"], order.get("video"))
        precision.apply(name)

        def forward() -> Any:
            with precision.autocast(name, self.found.device.type):
                return model(**arguments)

        def call() -> Any:
            with torch.inference_mode():
                return forward()

        for done in range(_CALLS_BEFORE_PROFILE):
            progress("warmup", done)
            call()
        counted = self._count(workload, model, forward, progress)[0] if order.get("with_ops") else None
        return self._profile(order, model, call, counted, progress)

    # --- parts ---

    def _build(self, work: WorkKey, seed: int) -> Any:
        """The model of a work key on the device. One is kept: two would count in each other's memory."""
        info, variant = registry.resolve(work.selector)
        options = registry.build_options(info, work)
        key = (work.selector, seed, tuple(sorted(options.items())))
        if self._model is None or self._model[0] != key:
            self._model = None
            self._model = key, registry.load_builder(info)(variant.name, seed=seed, **options).to(self.torch_device)
        return self._model[1]

    def _clip(self, work: WorkKey, seed: int, video: str | None) -> tuple[dict[str, Any], str]:
        """Inputs on the device, and what they are."""
        key = (work.frames, work.height, work.width, work.points, work.batch, seed, video)
        if self._inputs is None or self._inputs[0] != key:
            self._inputs = None
            size = (*work.size, work.points or 1, seed)
            clip = inputs.video_clip(video, *size) if video else inputs.procedural_clip(*size)
            self._inputs = key, inputs.to_model_input(clip, self.torch_device, work.batch), clip.source
        return self._inputs[1], self._inputs[2]

    @contextlib.contextmanager
    def _listening(self, model: Any, stages: StageTimer) -> Iterator[None]:
        """`stages` as the model's marker; a model without stages has only `other`."""
        with marked(model, stages) if hasattr(model, "stage_marker") else contextlib.nullcontext():
            yield

    def _memory_stat(self, name: str) -> int:
        return int(torch.cuda.memory_stats(self.torch_device).get(name, 0)) if self.on_cuda else 0

    def _memory(self, retries_before: int) -> dict[str, Any]:
        """Peak of the repetitions. A CPU keeps no such account (its high-water mark never falls), so it has none."""
        if not self.on_cuda:
            return {"peak_bytes": None, "reserved_bytes": None, "alloc_retries": None}
        return {
            "peak_bytes": int(torch.cuda.max_memory_allocated(self.torch_device)),
            "reserved_bytes": int(torch.cuda.max_memory_reserved(self.torch_device)),
            "alloc_retries": self._memory_stat("num_alloc_retries") - retries_before,
        }

    def _count(
        self, workload: Workload, model: Any, forward: Any, progress: Any
    ) -> tuple[WorkCount | None, dict[str, str]]:
        """Work of one pass, counted while it runs once more, or the remark why it is not.

        fp32, default and tf32 move the same bytes, so they are counted once.
        """
        dtype = precision.AUTOCAST.get(workload.setting.precision, torch.float32)
        key = (workload.work.key(), dtype.itemsize if hasattr(dtype, "itemsize") else torch.finfo(dtype).bits // 8)
        if key not in self._work:
            progress("count", 0)
            try:
                self._work = {**{k: v for k, v in self._work.items() if k[0] == key[0]},
                              key: count(forward, model if hasattr(model, "stage_marker") else None)}
            except Exception as error:  # a count is worth less than the times that were just measured
                return None, {"work": f"not counted: {reasons.of_error(error)}"}
        return self._work[key], {}

    def _profile(
        self, order: dict[str, Any], model: Any, call: Any, counted: WorkCount | None, progress: Any
    ) -> _Profile:
        """What profiled passes tell; nothing where none is asked for or possible."""
        if not order.get("with_ops") and not (order.get("profile") and self.on_cuda):
            return _Profile()
        progress("profile", 0)
        staged = model if hasattr(model, "stage_marker") else None
        try:
            if not self.on_cuda:
                events, wall_ms = profile.record(call, staged, self.clock, with_shapes=True, on_cuda=False)
                table = profile.read_trace(events, False, _per_call(counted))
                return _Profile(fields={"kernel_busy_ms": None, "profiled_wall_ms": wall_ms, "coverage": table.coverage,
                                        "ops": profile.limited(table.ops)})
            if not self._profiler_warm:  # the first pass pays for loading CUPTI and for patching every kernel
                profile.record(call, staged, self.clock, with_shapes=True, on_cuda=True)
                self._profiler_warm = True
            events, wall_ms = self._recorded(call, staged, with_shapes=False)
            light = {"kernel_busy_ms": profile.read_trace(events, on_cuda=True).kernel_busy_ms,
                     "profiled_wall_ms": wall_ms}
            if not order.get("with_ops"):  # the heavy pass takes seconds: only where its table is wanted
                return _Profile(fields=light)
            events, _ = self._recorded(call, staged, with_shapes=True)
            table = profile.read_trace(events, True, _per_call(counted))
        except Exception as error:  # no CUPTI, no permission: the times stay valid
            return _Profile(notes={"profile": reasons.of_error(error)})
        return _Profile(
            fields={**light, "ops": profile.limited(table.ops), "coverage": table.coverage},
            launches=table.launches_by_stage,
        )

    def _recorded(self, call: Any, staged: Any, with_shapes: bool) -> tuple[list[Any], float]:
        """A profiled pass that did see the device: behind a teardown of CUPTI, every other one does not.

        Raises RuntimeError after `_PROFILE_TRIES` blind ones.
        """
        for _ in range(_PROFILE_TRIES):
            events, wall_ms = profile.record(call, staged, self.clock, with_shapes=with_shapes, on_cuda=True)
            if profile.saw_device(events):
                return events, wall_ms
        raise RuntimeError("the profiler recorded no work of the device")


def refuse_change(asked: dict[str, str]) -> None:
    """Raises RuntimeError when the model left other precision settings than those that its cell is named after."""
    told = precision.changed(asked, precision.read_back())
    if told is not None:
        raise RuntimeError(told)


def _finite(output: Any) -> bool | None:
    """Whether every number in the output is finite; None for an output without tensors."""
    tensors = [item for item in (output if isinstance(output, (tuple, list)) else [output]) if torch.is_tensor(item)]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors) if tensors else None


def _per_call(counted: WorkCount | None) -> dict[Any, OpWork]:
    """Work of one call by op, stage and shapes: fills in where a trace does not tell an op's dtypes."""
    if counted is None:
        return {}
    return {
        (op.op, op.stage, op.shapes): OpWork(
            None if op.flops is None else op.flops // op.calls,
            None if op.other_flops is None else op.other_flops // op.calls, op.bytes // op.calls,
        )
        for op in counted.ops
    }


def _stages(timing: Timing, counted: WorkCount | None, launches: dict[str, int] | None) -> tuple[Stage, ...]:
    work = {stage.name: stage for stage in counted.stages} if counted is not None else {}
    on_cuda = timing.event_ms is not None
    rows = []
    for name, samples in timing.stage_ms.items():
        known = work.get(name)
        rows.append(Stage(
            name=name, wall_ms=None if on_cuda else samples, event_ms=samples if on_cuda else None,
            calls=timing.stage_calls[name] if name != OTHER else None,
            flops=known.flops if known else None, other_flops=known.other_flops if known else None,
            bytes=known.bytes if known else None,
            launches=launches.get(name, 0) if launches is not None else None,
        ))
    return tuple(rows)


# --- talking to the parent -------------------------------------------------------------------------------------------


class Pipe:
    """Answers as JSON lines; progress is thinned so that no repetition waits for the parent."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._last = ("", 0.0)

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._stream.write(json.dumps(message, allow_nan=False) + "\n")
            self._stream.flush()
        except (BrokenPipeError, ValueError) as error:
            if isinstance(error, BrokenPipeError):
                os._exit(PARENT_GONE)
            raise

    def progress(self, phase: str, done: int) -> None:
        before, at = self._last
        now = time.monotonic()
        if phase != before or now - at >= 1.0:
            self._last = (phase, now)
            self.send({"type": "progress", "phase": phase, "count": done})


def _orders() -> queue.Queue[dict[str, Any]]:
    """Orders in a queue, filled by a thread: the end of the input must be noticed while a cell runs, too."""
    orders: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            if line.strip():
                orders.put(json.loads(line))
        os._exit(PARENT_GONE)

    threading.Thread(target=read, daemon=True).start()
    return orders


def _die_with_parent() -> None:
    """Linux: be killed with the parent, also while a kernel runs. Elsewhere the end of the input does it."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get("GAPSCOPE_PARENT", str(os.getppid())) != str(os.getppid()):
        os._exit(PARENT_GONE)  # the parent went before the line above


def main() -> None:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    pipe = Pipe(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # prints of models and libraries must not mix with the answers
    orders = _orders()
    worker: Worker | None = None
    while True:
        order = orders.get()
        try:
            if order["do"] == "quit":
                return
            if order["do"] == "hello":
                worker = Worker(order["device"])
                pipe.send(worker.hello())
            elif order["do"] == "cell" and worker is not None:
                cell, retire = worker.cell(order, pipe.progress)
                pipe.send({"type": "cell", "cell": to_json(cell), "retire": retire})
            elif order["do"] == "profile" and worker is not None:
                told = worker.profile(order, pipe.progress)
                pipe.send({"type": "profile", "fields": to_json(told.fields), "launches": told.launches,
                           "notes": told.notes})
        except UserError as error:
            pipe.send({"type": "user_error", "found": error.found, "expected": error.expected, "fix": error.fix})


if __name__ == "__main__":
    main()
