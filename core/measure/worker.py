"""One worker process: measures the cells that its parent names, one after the other. `python -m core.measure.worker`

It talks in JSON lines: orders come in on standard input, answers go out on what was standard output; whatever else
prints goes to standard error. It ends when its input ends, so that it never outlives its parent.

    in   {"do": "hello", "device": "auto"}
    out  {"type": "hello", "device": ..., "host": ..., "software": ..., "settings": ..., "warnings": [], "busy": null}
    in   {"do": "handicap", "handicap": "sm_count=40"}   before the first cell of a worker that runs under one
    out  {"type": "handicap", "notes": {}}
    in   {"do": "entry", "entry": "FILE.py:build", "seed": 0}
    out  {"type": "entry", "work": ...}         the work key of the user's own model
    in   {"do": "devices"}                      instead of hello
    out  {"type": "devices", "devices": [{"device": "board:...", "name": ...}]}
    in   {"do": "ceilings", "sweep_budget_s": null}
    out  {"type": "ceiling", "ceiling": ...}    as each is measured, then {"type": "ceilings"}
    in   {"do": "self_test"}
    out  {"type": "self_test", "result": {"ok": true, "text": ..., "wall_ms": ..., ...}}
    in   {"do": "cell", "workload": ..., "process": 0, "effort": ..., "seed": 0, ...}
    out  {"type": "progress", "phase": "warmup", "count": 3}   at most once a second and at every new phase
    out  {"type": "cell", "cell": ..., "retire": false}        retire: this process should not be used again
    in   {"do": "profile", "workload": ..., "seed": 0, "with_ops": true, ...}
    out  {"type": "profile", "fields": {...}, "launches": {...}, "notes": {...}}
    out  {"type": "user_error", "found": ..., "expected": ..., "fix": ...}    instead of an answer
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
from typing import Any

import torch

from core.errors import UserError
from core.measure import agreement, device, execution, handicaps, inputs, precision, profile, reasons, tapvid, telemetry
from core.measure.ceiling_bench import quick_ceilings
from core.measure.cost import OpWork, WorkCount, count
from core.measure.handicap_apply import BESIDE, Handicapped
from core.measure.nvml import Nvml, bare_uuid
from core.measure.plan import Effort, usable_cores
from core.measure.timing import Clock, CudaClock, HostClock, StageTimer, Timing, time_cell
from core.records import Cell, SettingKey, Stage, WorkKey, Workload, from_json, now_utc, to_json
from core.trackers import own, registry
from core.trackers.info import OFFICIAL
from core.trackers.stages import OTHER
from core.trackers.tracker import Predictions, Tracker

PARENT_GONE = 3  # exit code
_PR_SET_PDEATHSIG = 1
_CALLS_BEFORE_PROFILE = 3
_PROFILE_TRIES = 3
# Of the self-test: three clocks on one product of some tens of milliseconds.
_CLOCK_TOLERANCE, _CLOCK_AGREEMENT = 0.002, 0.05


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
        self.telemetry_facts = telemetry.facts(self.sensor) if self.sensor.found else {}
        self.clock: Clock = CudaClock(torch, self.torch_device) if self.on_cuda else HostClock()
        self.handicapped = Handicapped(None, self.torch_device, None)
        self._model: tuple[tuple[Any, ...], Tracker] | None = None
        self._clips: tuple[tuple[Any, ...], dict[str, torch.Tensor], inputs.Clip] | None = None
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._work: dict[tuple[Any, ...], WorkCount] = {}
        self._references: dict[tuple[Any, ...], Predictions | None] = {}
        self._profiler_warm = False

    def handicap(self, handicap: str) -> dict[str, Any]:
        """Put this process under a handicap, for good. Raises UserError when that cannot be done here."""
        self.handicapped = Handicapped(handicap, self.torch_device, self.found.device.l2_bytes)
        if self.on_cuda:  # its stream may be another one now
            self.clock = CudaClock(torch, self.torch_device)
        return dict(self.handicapped.notes)

    def hello(self) -> dict[str, Any]:
        found = self.found
        return {
            "type": "hello", "device": to_json(found.device), "host": to_json(found.host),
            "software": to_json(found.software), "settings": precision.settings(), "warnings": list(found.warnings),
            "busy": self.busy, "telemetry": self.telemetry_facts,
        }

    # --- one cell ---

    def cell(self, order: dict[str, Any], progress: Any) -> tuple[Cell, bool]:
        """The cell's record, and whether this process should be replaced afterwards.

        Raises UserError for what cannot be measured as asked, such as a checkpoint of another model; nothing else.
        """
        workload: Workload = from_json(Workload, order["workload"], "workload")
        blank = Cell(process=order["process"], workload=workload, status="failed", reason="unknown", at=now_utc())
        name = workload.setting.precision
        reason = precision.unsupported_reason(name, self.found.device.type, self.found.capability)
        if reason is not None:
            return dataclasses.replace(blank, status="unsupported", reason=reason), False
        try:
            return self._measured(blank, order, progress), False
        except execution.Unsupported as error:
            return dataclasses.replace(blank, status="unsupported", reason=reasons.clean(str(error))), error.retire
        except UserError:
            raise
        except Exception as error:
            no_memory = reasons.out_of_memory(error, self.found.device.type)
            failed = dataclasses.replace(
                blank, status="oom" if no_memory else "failed", reason=no_memory or reasons.of_error(error)
            )
            poisoned = no_memory is None and self.on_cuda and reasons.poisons_process(error)
            poisoned = poisoned or getattr(error, "retire", False)
        # Outside the handler: the exception's frames hold the tensors that should go now.
        return failed, poisoned or not self._cleaned()

    def _cleaned(self) -> bool:
        """Give all memory back; False when much of it stays taken, so that the next cell would start with less."""
        self._model = self._clips = self._arguments = None
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
        setting = workload.setting
        progress("prepare", 0)
        model = self._build(workload.work, order)
        arguments, clip = self._inputs(model, workload.work, order)
        if self.on_cuda:
            torch.cuda.empty_cache()  # so that `reserved` is this cell's own
        retries = self._memory_stat("num_alloc_retries")
        stages = StageTimer(self.clock)
        asked = precision.apply(setting.precision, setting.cudnn_benchmark)  # after building, which may change settings

        def before_repetitions() -> None:
            refuse_change(asked)
            if self.on_cuda:
                torch.cuda.reset_peak_memory_stats(self.torch_device)

        gc.collect()
        gc.freeze()  # a full collection of torch's own objects takes tens of milliseconds; none of them will go
        with contextlib.ExitStack() as stack:
            stack.callback(gc.unfreeze)
            run = stack.enter_context(self._arranged(model, arguments, setting))
            with self.handicapped.around_cell():
                with run.listening(stages):
                    timing = time_cell(run.call, self.clock, effort, stages, self.sensor.read, before_repetitions,
                                       progress, self.handicapped.before_repetition)
                refuse_change(asked)
                memory = self._memory(retries)
                output = run.call()
            finite = _finite(output)
            seen = _kept(model.predictions(output))
            del output
            counted: WorkCount | None = None
            not_counted: dict[str, str] = {}
            if order.get("count") and run.has_stages:
                counted, not_counted = self._count(workload, model, run.eager, progress)
            # On CUDA the profiler stays attached to the process and slows every later launch: another worker does it.
            profiled = _Profile() if self.on_cuda else self._profile(order, model, run, counted, progress)
        drift = self._drift(workload, order, model, arguments, seen, clip, progress) if order.get("drift") else None
        if self.on_cuda:
            torch.cuda.empty_cache()  # the profiling worker needs the same memory
        energy_j, energy_valid = telemetry.energy_of(
            timing.readings, timing.wall_ms, self.telemetry_facts.get("energy_step_s")
        )
        path = {
            **precision.path_of(setting.precision, self.found.device.type, self.found.capability),
            "cudnn_benchmark": setting.cudnn_benchmark, "warmup_flat": timing.warmup_flat,
            "finite_output": finite, **run.notes, **self.handicapped.notes, **not_counted, **profiled.notes,
        }
        return dataclasses.replace(
            blank, status="ok", reason=None, at=now_utc(), first_call_ms=timing.first_call_ms,
            warmup_ms=timing.warmup_ms, wall_ms=timing.wall_ms, event_ms=timing.event_ms,
            telemetry=telemetry.columns(timing.readings, self.telemetry_facts.get("energy_step_s")),
            stop_rule=timing.stop_rule, execution_path=path, energy_j=energy_j, energy_valid=energy_valid, drift=drift,
            stages=_stages(timing, counted, profiled.launches), clip=clip.source, **memory, **profiled.fields,
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
        setting = workload.setting
        beside = sorted(set(handicaps.values(setting.handicap)) & BESIDE)
        if beside:  # copies would be counted as the tracker's kernels, and a slowed launch hides its op
            return _Profile(notes={"profile": f"not profiled: {beside[0]} would show in the table"})
        progress("prepare", 0)
        model = self._build(workload.work, order)
        arguments, _ = self._inputs(model, workload.work, order)
        precision.apply(setting.precision, setting.cudnn_benchmark)
        with self._arranged(model, arguments, setting) as run:
            for done in range(_CALLS_BEFORE_PROFILE):
                progress("warmup", done)
                run.call()
            wanted = order.get("with_ops") and run.has_stages
            counted = self._count(workload, model, run.eager, progress)[0] if wanted else None
            return self._profile(order, model, run, counted, progress)

    def ceilings(self, sweep_budget_s: float | None, pipe: Pipe) -> None:
        """Measure what the device does at best, sending each figure as it comes."""
        quick_ceilings(
            self.found, self.nvml, sweep_budget_s, say=lambda line: pipe.progress("ceilings", 0),
            on_ceiling=lambda ceiling: pipe.send({"type": "ceiling", "ceiling": to_json(ceiling)}),
            limited="sm_count" in handicaps.values(self.handicapped.handicap),
        )

    def self_test(self) -> dict[str, Any]:
        """One long product, timed by the host, by events and by the profiler: event <= wall, kernel_busy <= event."""
        size = 8192
        precision.apply("fp32")
        with torch.inference_mode():
            square = torch.randn(size, size, device=self.torch_device)
            events: list[float] = []

            def timed() -> Any:
                self.clock.synchronize()
                first = self.clock.mark()
                result = torch.matmul(square, square)
                last = self.clock.mark()
                self.clock.synchronize()
                events.append(self.clock.between_ms(first, last))
                return result

            timed()
            profile.record(timed, None, self.clock, with_shapes=False, on_cuda=True)
            self._profiler_warm = True
            trace, wall_ms = self._recorded(timed, None, with_shapes=False)
        busy_ms = profile.read_trace(trace, on_cuda=True).kernel_busy_ms
        torch.cuda.empty_cache()
        return agreement_of_clocks(wall_ms, events[-1], busy_ms)

    # --- parts ---

    def entry(self, order: dict[str, Any]) -> WorkKey:
        """The work key of the user's own model. Raises UserError when its file cannot be used."""
        self._model = None
        model = own.load_entry(order["entry"], seed=order["seed"], device=str(self.torch_device))
        self._model = ("entry", order["entry"]), model.to(self.torch_device)
        return model.work_key()

    def _build(self, work: WorkKey, order: dict[str, Any]) -> Tracker:
        """The model of a work key on the device. One is kept: two would count in each other's memory."""
        if order.get("entry"):
            if self._model is None or self._model[0] != ("entry", order["entry"]):
                self.entry(order)
            assert self._model is not None
            return self._model[1]
        key: tuple[Any, ...] = (
            work.selector, work.revision, work.weights, work.iterations, work.query_chunk, order["seed"]
        )
        info, variant = registry.resolve(work.selector)
        if info.implementation == OFFICIAL:  # some are built for one size
            key = (*key, *work.size)
        if self._model is None or self._model[0] != key:
            self._model = self._arguments = None
            options: dict[str, Any] = registry.build_options(info, work)
            if info.implementation == OFFICIAL:
                copies = order.get("checkouts") or {}
                options.update(checkout=copies.get(info.checkout.name) if info.checkout else None,
                               weights=order.get("weights"), frames=work.frames, height=work.height, width=work.width)
            model = registry.load_builder(info)(variant.name, seed=order["seed"], **options)
            self._model = key, model.to(self.torch_device)
        return self._model[1]

    def _inputs(self, model: Tracker, work: WorkKey, order: dict[str, Any]) -> tuple[dict[str, Any], inputs.Clip]:
        """Arguments of the model's call on the device, as the model wants them, and the clip that they come from."""
        size = (work.frames or 2, work.height or 32, work.width or 32, work.points or 1)  # own models bring their own
        key = (*size, work.batch, order["seed"], order.get("video"))
        if self._clips is None or self._clips[0] != key:
            self._clips = self._arguments = None
            video = order.get("video")
            if video and video.endswith(tapvid.SUFFIX):
                clip = tapvid.clip_of_size(video, *size)
            elif video:
                clip = inputs.video_clip(video, *size, order["seed"])
            else:
                clip = inputs.procedural_clip(*size, order["seed"])
            self._clips = key, inputs.to_model_input(clip, self.torch_device, work.batch), clip
        if self._arguments is None or self._arguments[0] != (id(model), key):
            with torch.no_grad():
                self._arguments = (id(model), key), model.prepare(**self._clips[1])
        return self._arguments[1], self._clips[2]

    def _arranged(
        self, model: Tracker, arguments: dict[str, Any], setting: SettingKey
    ) -> contextlib.AbstractContextManager[execution.Arranged]:
        """How the setting runs the model. Raises execution.Unsupported where it cannot."""
        return execution.arrange(
            model, arguments, setting, self.torch_device,
            lambda: precision.autocast(setting.precision, self.found.device.type),
        )

    def _drift(
        self, workload: Workload, order: dict[str, Any], model: Tracker, arguments: dict[str, Any],
        seen: Predictions | None, clip: inputs.Clip, progress: Any,
    ) -> dict[str, Any] | None:
        """How far the tracks lie from those of eager fp32 on the same weights and clip, on this device."""
        if seen is None:
            return None
        try:
            key = (workload.work.key(), order["seed"], order.get("video"))
            if key not in self._references:
                progress("reference", 0)
                plain = SettingKey(precision="fp32")
                if dataclasses.replace(workload.setting, handicap=None) == plain:
                    reference: Predictions | None = seen
                else:
                    precision.apply("fp32")
                    with self._arranged(model, arguments, plain) as run:
                        reference = _kept(model.predictions(run.call()))
                self._references = {key: reference}
            reference = self._references[key]
            if reference is None:
                return None
            mode = agreement.FIRST if (order.get("video") or "").endswith(tapvid.SUFFIX) else agreement.STRIDED
            return {**agreement.drift(reference, seen),
                    "accuracy": agreement.accuracy(seen, clip, workload.work.weights, mode)}
        except Exception as error:  # worth less than the times: such as no memory for the fp32 pass
            return {"unknown": reasons.of_error(error)}

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
        self, workload: Workload, model: Tracker, forward: Any, progress: Any
    ) -> tuple[WorkCount | None, dict[str, str]]:
        """Work of one pass, counted while it runs once more, or the remark why it is not.

        fp32, default and tf32 run the same ops on the same bytes, so they are counted once. Cast weights need no
        conversions, an attention backend and a layout have ops of their own: each such setting is counted apart.
        """
        setting = workload.setting
        dtype = precision.AUTOCAST.get(setting.precision, torch.float32)
        key = (workload.work.key(), torch.finfo(dtype).bits, setting.execution, setting.memory_format,
               setting.sdp_backend)
        if key not in self._work:
            progress("count", 0)
            try:
                self._work = {**{k: v for k, v in self._work.items() if k[0] == key[0]},
                              key: count(forward, model)}
            except Exception as error:  # a count is worth less than the times that were just measured
                return None, {"work": f"not counted: {reasons.of_error(error)}"}
        return self._work[key], {}

    def _profile(
        self, order: dict[str, Any], model: Tracker, run: execution.Arranged, counted: WorkCount | None, progress: Any
    ) -> _Profile:
        """What profiled passes tell; nothing where none is asked for or possible."""
        if not order.get("with_ops") and not (order.get("profile") and self.on_cuda):
            return _Profile()
        progress("profile", 0)
        call, staged = run.call, model if run.has_stages else None
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


def agreement_of_clocks(wall_ms: float, event_ms: float, busy_ms: float | None) -> dict[str, Any]:
    """Whether kernel_busy <= event <= wall on one long product, and all three within 5 % of each other."""
    found = {"wall_ms": wall_ms, "event_ms": event_ms, "kernel_busy_ms": busy_ms}
    if busy_ms is None:
        return {**found, "ok": False, "text": "the clocks could not be checked: the profiler saw no kernel"}
    ordered = busy_ms <= event_ms * (1 + _CLOCK_TOLERANCE) and event_ms <= wall_ms * (1 + _CLOCK_TOLERANCE)
    close = wall_ms <= busy_ms * (1 + _CLOCK_AGREEMENT)
    told = f"kernel {busy_ms:.2f} ms, event {event_ms:.2f} ms, wall {wall_ms:.2f} ms on one product of 8192"
    if ordered and close:
        return {**found, "ok": True, "text": f"clocks agree: {told}"}
    what = "lie more than 5 % apart" if ordered else "are out of order"
    return {**found, "ok": False, "text": f"clocks {what}: {told}; short times of this run are in doubt"}


def _kept(predictions: Predictions | None) -> Predictions | None:
    """Predictions on the host, free of the device's memory."""
    if predictions is None:
        return None
    tracks, logits = predictions
    return Predictions(tracks.detach().double().cpu(), logits.detach().double().cpu())


def _finite(output: Any) -> bool | None:
    """Whether every number in the output is finite; None for an output without tensors."""
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
    tensors = [item for item in parts if torch.is_tensor(item)]
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
            elif order["do"] == "devices":
                pipe.send({"type": "devices", "devices": device.visible_devices(Nvml.open())})
            elif order["do"] == "ceilings" and worker is not None:
                worker.ceilings(order.get("sweep_budget_s"), pipe)
                pipe.send({"type": "ceilings"})
            elif order["do"] == "handicap" and worker is not None:
                pipe.send({"type": "handicap", "notes": worker.handicap(order["handicap"])})
            elif order["do"] == "entry" and worker is not None:
                pipe.send({"type": "entry", "work": to_json(worker.entry(order))})
            elif order["do"] == "self_test" and worker is not None:
                pipe.send({"type": "self_test", "result": worker.self_test()})
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
