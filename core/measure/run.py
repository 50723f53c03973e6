"""The sweep: plans cells, keeps workers, writes the run file. Standard library only; workers alone load torch.

A run file grows line by line: `run` header, `note` plan, then per cell a `note` cell_started and a `cell` line, last
`end`. What is written is on disk before the next cell starts. A worker that dies or hangs costs its cell.
"""
from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from core import units
from core.errors import UserError
from core.measure import handicaps, host, reasons
from core.measure.command import unwritten
from core.measure.plan import (
    PlannedCell,
    RoughRate,
    SweepRequest,
    base_name_of_entry,
    check,
    cpu_rate,
    expand,
    gpu_rate,
)
from core.measure.worker_process import (
    START_TIMEOUT_S,
    WORKER_COMMAND,
    InterruptedSweepError,
    WorkerDiedError,
    WorkerProcess,
    WorkerSilentError,
)
from core.records import (
    Ceiling,
    Cell,
    Device,
    End,
    Host,
    Note,
    Op,
    RecordError,
    RunFile,
    RunHeader,
    RunsFolder,
    RunWriter,
    Software,
    Stage,
    WorkKey,
    cut_torn_tail,
    device_lock,
    from_json,
    new_run_id,
    now_utc,
    read_run_file,
    to_json,
)

if sys.platform != "win32":
    import fcntl

SETTLED = ("ok", "oom", "unsupported", "skipped")
"""A cell with such a line is not measured again when the run is resumed; failed and timeout are."""

MAX_FAILED_STARTS = 3
MAX_ATTEMPTS = 2  # a cell whose worker died is tried once more, in a fresh one
# A prediction of memory is good to a few per cent (tests/test_registry.py); what misses by less is tried.
MEMORY_MARGIN = 1.1
_Group = tuple[str, int, "str | None", bool]
"""(tracker, process, handicap, cudnn.benchmark): torch keeps cuDNN's first plan for given arguments, whatever the flag
says later, so a search needs a process that has not chosen before."""
_Served = tuple["str | None", bool]
"""(handicap, cudnn.benchmark) of a worker."""
# Kineto then detaches CUPTI after each pass; otherwise a light pass still pays for the heavy one before it.
PROFILER_VARIABLES = {"TEARDOWN_CUPTI": "1"}
# Of a cell's share of the budget; the rest is for the first call, the profiled pass and the start of workers.
_WARMUP_SHARE, _SAMPLE_SHARE = 0.25, 0.5


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a run is written, and what is known about it from before."""

    path: Path
    run_id: str
    runs: RunsFolder
    request: SweepRequest
    before: RunFile | None = None  # the file as it was, when a run is resumed

    @property
    def in_folder(self) -> bool:
        """Whether the runs folder knows this run (its state, its stop file)."""
        return self.path.resolve() == self.runs.run_file(self.run_id).resolve()


def new_target(request: SweepRequest, runs: RunsFolder, run_id: str | None = None, out: Path | None = None) -> Target:
    """A new run in the runs folder, or in the file `out`. Raises UserError when the file is there already."""
    run_id = run_id or new_run_id()
    path = out or runs.run_file(run_id)
    if path.exists() and _never_began(path):
        path.unlink()
    if path.exists():
        raise UserError(f"{path.name} exists already", "a new file name", f"use --resume {path.name} to continue it")
    if not path.parent.exists() and out is not None:
        raise UserError(f"no folder {path.parent.name!r} for {path.name}", "an existing folder", "make it first")
    return Target(path, run_id, runs, request)


def _never_began(path: Path) -> bool:
    """Whether a runner was killed before its first line was whole: an empty file, or the start of a header alone."""
    with open(path, "rb") as stream:
        start = stream.read(1 << 16)
    return start == b"" or (start.startswith(b'{"kind":"run",') and b"\n" not in start and len(start) < 1 << 16)


def resumed_target(
    path: Path, runs: RunsFolder, budget_s: float | None = None, force: bool = False, video: str | None = None,
    entry: str | None = None, checkouts: Sequence[tuple[str, str]] = (), weights: str | None = None,
) -> Target:
    """A run to continue: its torn tail is cut, its request read. Raises UserError when that cannot be done."""
    if not path.is_file():
        raise UserError(f"no file {path.name}", "the run file of an unfinished sweep", "check the path")
    with open(path, "rb") as stream:  # what another runner is just writing is no torn tail
        _refuse_if_locked(path, stream)
        cut_torn_tail(path)
    found = read_run_file(path)
    header = next((line for line in found.lines if isinstance(line.record, RunHeader)), None)
    if header is None:
        raise UserError(f"{path.name} has no header", "a run file that begins with one", "start a new sweep")
    if path.name == "run.jsonl" and path.parent.name == header.run_id:
        runs = RunsFolder(path.parent.parent)  # its own runs folder, whatever the caller's is
    runner = runs.runner(header.run_id)
    if runner is not None and runner.pid != os.getpid() and runner.alive():
        raise UserError(f"run {header.run_id} is being measured (pid {runner.pid})", "a run that has stopped",
                        "stop it first")
    request = SweepRequest.from_json(header.record.request)
    if request.video is not None:
        if video is None or Path(video).name != request.video:
            raise UserError(f"this sweep used the video {request.video!r}", "the same file", "give it with --video")
        request = dataclasses.replace(request, video=video)
    if request.entry is not None and base_name_of_entry(entry) != request.entry:
        raise UserError(f"this sweep used the model {request.entry!r}", "the same file", "give it with --entry")
    if request.weights is not None and (weights is None or Path(weights).name != request.weights):
        raise UserError(f"this sweep used the weights {request.weights!r}", "the same file", "give it with --weights")
    missing = {name for name, _ in request.checkouts} - {name for name, _ in checkouts}
    if missing:
        raise UserError(f"this sweep used a checkout of {min(missing)}", "the same checkout",
                        f"give it with --checkout {min(missing)}=PATH")
    request = dataclasses.replace(request, budget_s=budget_s, force=force, entry=entry if request.entry else None,
                                  weights=weights if request.weights else None, checkouts=tuple(checkouts))
    check(request)
    return Target(path, header.run_id, runs, request, found)


def _refuse_if_locked(path: Path, stream: BinaryIO) -> None:
    """Lock the file for as long as `stream` is open. Raises UserError when another process writes it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{path.name} is being written by another process", "a run that has stopped",
                            "stop it first") from None


class Signals:
    """First SIGINT or SIGTERM: stop after the running cell. Second: at once."""

    def __init__(self) -> None:
        self.count = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    @contextlib.contextmanager
    def listening(self) -> Iterator[Signals]:
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Sweep:
    """One run of the runner over one target. `say` gets one short line for a person per event."""

    def __init__(
        self, target: Target, signals: Signals, say: Callable[[str], None],
        worker_command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self.target, self.request = target, target.request
        self.signals, self.say, self.command = signals, say, worker_command
        self.worker: WorkerProcess | None = None
        self.profiler: WorkerProcess | None = None  # on CUDA: profiles what `worker` times
        self.lost_profilers: dict[_Served, int] = {}
        self.group: _Group | None = None  # what the worker serves; None: it is fresh
        self.profiler_serves: _Served = (None, False)
        self.impossible: dict[str, str] = {}  # handicaps that this device or torch cannot do, and why
        self.hello: dict[str, Any] = {}
        self.writer: RunWriter | None = None
        self.known_work: dict[str, tuple[Stage, ...]] = {}
        self.compared: set[str] = set()  # workloads whose outputs were compared with fp32
        self.statuses: dict[str, int] = {}
        self.mistake: UserError | None = None  # the first that a worker met in a cell

    # --- whole sweep ---

    def run(self) -> str:
        """Measure; returns the end state, "done" or "stopped".

        Raises UserError before anything is measured, RuntimeError when no worker can be started.
        """
        target = self.target
        try:
            if target.in_folder:
                target.runs.claim(target.run_id)
                target.runs.clear_stop(target.run_id)
            self._start_worker()
            with device_lock(target.runs.root, self.device.uuid_hash, self._wait_for_device):
                if self.worker is None:  # it waited: the board's users have changed
                    self._start_worker()
                if self.hello.get("busy") and not self.request.force:
                    raise UserError(f"the GPU is in use ({self.hello['busy']})",
                                    "an idle GPU, since a shared one gives wrong times",
                                    "wait, or use --force to measure anyway")
                self._open()
                state, reason = self._measure()
                self._end(state, reason)
                return state
        except (UserError, RuntimeError, WorkerDiedError, WorkerSilentError) as error:
            if self.stop_requested():
                self._end("stopped", "stopped before the first cell")
                return "stopped"
            self._end("failed", reasons.clean(str(error)))
            if isinstance(error, (WorkerDiedError, WorkerSilentError)):
                raise RuntimeError(str(error)) from None
            raise
        except InterruptedSweepError:
            self._end("stopped", "interrupted")
            return "stopped"
        except OSError as error:
            path = self.target.path
            raise unwritten(error, path, f"go on with --resume {path.name}") from None
        finally:
            self._drop_worker(at_once=True)
            self._drop_profiler(at_once=True)
            if self.writer is not None:
                with contextlib.suppress(OSError):  # a full disk was told by the write itself
                    self.writer.close()
                self._lock.close()
            elif target.in_folder and target.before is None:
                self._forget_claim()

    def _end(self, state: str, reason: str | None) -> None:
        if self.writer is None:
            return  # nothing began; the error alone says why
        self.writer.write(End(state=state, reason=reason, at=now_utc()))
        self.say(f"{state}{f': {reason}' if reason else ''}")

    def _forget_claim(self) -> None:
        """A run that never began leaves no empty folder behind (a log that somebody keeps there stays)."""
        folder = self.target.runs.run_dir(self.target.run_id)
        with contextlib.suppress(OSError):
            (folder / "runner.json").unlink(missing_ok=True)
            folder.rmdir()

    @property
    def device(self) -> Device:
        device: Device = from_json(Device, self.hello["device"], "device")
        return device

    def stop_requested(self) -> bool:
        return self.signals.count > 0 or (
            self.target.in_folder and self.target.runs.stop_requested(self.target.run_id)
        )

    def _wait_for_device(self) -> bool:
        """Asked twice a second while another sweep holds the device; the first time says so in the run file."""
        if self.worker is not None:
            self._open()
            self._note("queued", "waiting for another sweep on this device")
            self.say("queued: another sweep is measuring on this device")
            self._drop_worker()  # it holds memory on the board
        return not self.stop_requested()

    # --- file ---

    def _open(self) -> None:
        """The run file with its header; a resumed one is checked to be of this device and software."""
        if self.writer is not None:
            return
        before = self.target.before
        if before is not None:
            self._refuse_other_device(before)
        self.writer = RunWriter(self.target.path, self.target.run_id, resume=before is not None)
        self._lock = open(self.target.path, "rb")  # noqa: SIM115 - held until this process ends
        _refuse_if_locked(self.target.path, self._lock)
        if before is None:
            software: Software = from_json(Software, self.hello["software"], "software")
            host: Host = from_json(Host, self.hello["host"], "host")
            self.writer.write(RunHeader(
                started_at=now_utc(), origin="measured", label=self.request.label, device=self.device, host=host,
                software=software, settings=self.hello.get("settings", {}), request=self.request.to_json(),
            ))
            told = self.hello.get("telemetry") or {}
            if told.get("reading_us") is not None:
                self._note("telemetry", f"one reading of clocks and power takes {told['reading_us']:.0f} us, "
                                        "outside the timed region", told)
            for warning in self.hello.get("warnings", []):
                self._note("warning", reasons.clean(str(warning)))
                self.say(f"warning: {warning}")

    def _refuse_other_device(self, before: RunFile) -> None:
        header = before.header
        assert header is not None
        if header.device.uuid_hash != self.device.uuid_hash:
            raise UserError(
                f"this run was made on another device ({header.device.name})", f"that board, not {self.device.name}",
                "start a new sweep here",
            )
        torch_now = str(self.hello["software"].get("torch"))
        if header.software.torch != torch_now:
            raise UserError(f"this run was made with torch {header.software.torch}, here is {torch_now}",
                            "the same torch in one run", "start a new sweep")

    def _note(self, event: str, text: str, data: dict[str, Any] | None = None) -> None:
        assert self.writer is not None
        self.writer.write(Note(event=event, text=text, at=now_utc(), data=data or {}), durable=event != "cell_started")

    # --- cells ---

    def _measure(self) -> tuple[str, str | None]:
        self._self_test()
        cells = expand(self.request, self._rate(), self._works())
        settled = self._settled()
        remaining = [cell for cell in cells if cell.key not in settled]
        predicted = [cell.predicted_s for cell in remaining]
        predicted_s = sum(s for s in predicted if s is not None) if any(s is not None for s in predicted) else None
        data = {"cells": len(cells), "remaining": len(remaining), "processes": self.request.processes,
                "predicted_s": predicted_s, "budget_s": self.request.budget_s}
        again = self.target.before is not None
        self._note("resumed" if again else "plan", f"{len(remaining)} of {len(cells)} cells to measure", data)
        rough = f", about {units.duration(predicted_s)} (rough)" if predicted_s is not None else ""
        self.say(f"run {self.target.run_id} on {self.device.name}: {len(remaining)} of {len(cells)} cells{rough}")
        deadline = time.monotonic() + self.request.budget_s if self.request.budget_s is not None else None
        if remaining:
            self._ceilings()
        index_of = {cell.key: index for index, cell in enumerate(cells)}
        for done, planned in enumerate(remaining):
            left = len(remaining) - done
            if self.stop_requested():
                return "stopped", f"stopped on request, {left} cells left"
            share_s = None
            if deadline is not None:
                share_s = (deadline - time.monotonic()) / left
                if share_s <= 0:
                    return "stopped", f"budget of {self.request.budget_s:g} s spent, {left} cells left"
            index = index_of[planned.key]
            self._note("cell_started", str(planned), {
                "index": index, "total": len(cells), "done": done, "remaining": left, "process": planned.process,
                "workload": to_json(planned.workload), "predicted_s": planned.predicted_s,
            })
            cell = self._skipped(planned) or self._one(planned, share_s)
            self._write_cell(cell)
            self.say(f"{index + 1}/{len(cells)} {planned} process {planned.process}: {_told(cell)}")
        return "done", None

    def _rate(self) -> RoughRate | None:
        device = self.device
        if device.type == "cpu":
            return cpu_rate(self.hello["host"].get("cores"))
        return gpu_rate(device.name, device.memory_bytes)

    def _settled(self) -> set[tuple[int, str]]:
        settled: set[tuple[int, str]] = set()
        for line in self.target.before.lines if self.target.before is not None else ():
            cell = line.record
            if isinstance(cell, Cell) and cell.status in SETTLED:
                settled.add((cell.process, cell.workload.key()))
                self.statuses[cell.status] = self.statuses.get(cell.status, 0) + 1
                self._remember_work(cell)
        return settled

    def _works(self) -> list[WorkKey] | None:
        """The work of the user's own model, which only a worker can look at; None for a registered tracker."""
        if self.request.entry is None:
            return None
        assert self.worker is not None
        told = self.worker.ask({"do": "entry", **self._model_order()}, "entry", START_TIMEOUT_S,
                               lambda: self.signals.count > 1)
        work: WorkKey = from_json(WorkKey, told["work"], "work")
        return [work]

    def _model_order(self) -> dict[str, Any]:
        """Where a worker finds models that are not built in. Paths: for workers alone, never for the file."""
        request = self.request
        return {"entry": request.entry, "checkouts": dict(request.checkouts), "weights": request.weights,
                "seed": request.seed}

    def _self_test(self) -> None:
        """One long product, timed by three clocks that must agree; written down with the run."""
        if self.device.type != "cuda" or self.request.ops == "none":
            return
        try:
            told = self._profiler_for(None).ask({"do": "self_test"}, "self_test", START_TIMEOUT_S,
                                                lambda: self.signals.count > 1)
        except (WorkerSilentError, WorkerDiedError, UserError) as error:
            self._drop_profiler(at_once=True)
            self._note("warning", f"the clocks could not be checked: {reasons.clean(str(error))}")
            return
        result = dict(told["result"])
        self._note("self_test" if result["ok"] else "warning", str(result["text"]), result)
        self.say(str(result["text"]))

    def _ceilings(self) -> None:
        """What the GPU does at best, measured before the cells; once in a run, also when it is resumed."""
        before = self.target.before
        known = before is not None and any(isinstance(line.record, Ceiling) for line in before.lines)
        if not self.request.ceilings or self.device.type != "cuda" or known or self.stop_requested():
            return
        assert self.worker is not None
        assert self.writer is not None
        writer = self.writer

        def written(message: dict[str, Any]) -> None:
            if message.get("type") == "ceiling":
                writer.write(from_json(Ceiling, message["ceiling"], "ceiling"))

        self.say("measuring what this GPU does at best")
        try:
            self.worker.ask({"do": "ceilings", "sweep_budget_s": self.request.budget_s}, "ceilings",
                            self.request.cell_timeout_s, lambda: self.signals.count > 1, written)
        except (WorkerSilentError, WorkerDiedError, UserError, RecordError) as error:
            self._note("warning", f"ceilings: {reasons.clean(str(error))}")
        self._drop_worker()  # the cells begin in fresh processes

    def _skipped(self, planned: PlannedCell) -> Cell | None:
        """A record for a cell that cannot fit into memory, by prediction; None when it may be tried."""
        setting = planned.workload.setting
        blank = Cell(process=planned.process, workload=planned.workload, status="skipped", at=now_utc())
        why = handicaps.unsupported_reason(setting.handicap, self.device.type, self.device.sm_count)
        why = why or (self.impossible.get(setting.handicap) if setting.handicap else None)
        if why is not None:
            return dataclasses.replace(blank, status="unsupported", reason=why)
        room = self.device.memory_bytes if self.device.type == "cuda" else self._host_room_bytes()
        needed = planned.predicted_bytes
        if self.request.force or room is None or needed is None or needed <= MEMORY_MARGIN * room:
            return None
        return dataclasses.replace(
            blank, reason=f"predicted to need {units.bytes_size(needed)}, this device has {units.bytes_size(room)}; "
                          "--force tries it",
        )

    def _host_room_bytes(self) -> int | None:
        """Memory that processes here can have: the host's, or what its container allows."""
        known = (self.hello["host"].get("ram_bytes"), host.memory_limit_bytes())
        return min((value for value in known if value is not None), default=None)

    def _one(self, planned: PlannedCell, share_s: float | None) -> Cell:
        """Measure one cell; whatever happens to the worker, there is a record. Raises only when all must stop."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            cell, lost = self._attempt(planned, share_s)
            if not lost or attempt == MAX_ATTEMPTS or self.stop_requested():
                break
            self._note("warning", f"{planned}: {cell.reason}; tried once more in a fresh process")
        return cell

    def _attempt(self, planned: PlannedCell, share_s: float | None) -> tuple[Cell, bool]:
        """One try: its record, and whether the worker was lost with it."""
        lost = Cell(process=planned.process, workload=planned.workload, status="failed", reason="unknown")
        effort = self.request.effort
        if share_s is not None:
            effort = dataclasses.replace(
                effort, warmup_s=min(effort.warmup_s, share_s * _WARMUP_SHARE),
                sample_s=min(effort.sample_s, share_s * _SAMPLE_SHARE),
            )
        order = {
            "do": "cell", "workload": to_json(planned.workload), "process": planned.process,
            "effort": dataclasses.asdict(effort), "seed": self.request.seed, "video": self.request.video,
            "with_ops": planned.with_ops,
            "profile": planned.process == 0 and self.request.ops != "none",
            "count": planned.workload.key() not in self.known_work,
            "drift": planned.workload.key() not in self.compared, **self._model_order(),
        }
        try:
            worker = self._worker_for(planned)
            if worker is None:
                return self._skipped(planned) or lost, False
            answer = worker.ask(order, "cell", self.request.cell_timeout_s, lambda: self.signals.count > 1)
            cell: Cell = from_json(Cell, answer["cell"], "cell")
            if answer.get("retire"):
                self._drop_worker()
            wants_profile = order["with_ops"] or order["profile"]
            if cell.status == "ok" and self.device.type == "cuda" and wants_profile and not self._hopeless(cell):
                cell = self._profiled(cell, order)
            return cell, False
        except WorkerSilentError as silent:  # not tried again: it would be as silent for as long
            self._drop_worker(at_once=True)
            return dataclasses.replace(lost, status="timeout", reason=str(silent), at=now_utc()), False
        except UserError as mistake:  # the worker is as good as before
            self.mistake = self.mistake or mistake
            return dataclasses.replace(lost, reason=reasons.clean(str(mistake)), at=now_utc()), False
        except (WorkerDiedError, RecordError, KeyError) as died:
            self._drop_worker(at_once=True)
            failed = dataclasses.replace(lost, reason=reasons.clean(str(died)), at=now_utc())
            return failed, isinstance(died, WorkerDiedError)

    def _profiled(self, cell: Cell, order: dict[str, Any]) -> Cell:
        """`cell` with what the profiling worker tells about its workload, or with the reason why it tells nothing.

        A process of its own, since CUPTI stays attached after the first profile and slows every later launch
        (docs/decisions.md has the figures).
        """
        try:
            profiler = self._profiler_for(*_served(cell))
            told = profiler.ask({**order, "do": "profile"}, "profile", self.request.cell_timeout_s,
                                lambda: self.signals.count > 1)
            fields = dict(told["fields"])
            if fields.get("ops") is not None:
                fields["ops"] = tuple(from_json(Op, op, "ops") for op in fields["ops"])
            launches = told["launches"]
            stages = cell.stages if launches is None else tuple(
                dataclasses.replace(stage, launches=launches.get(stage.name, 0)) for stage in cell.stages
            )
            path = {**cell.execution_path, **told["notes"]}
            return dataclasses.replace(cell, stages=stages, execution_path=path, **fields)
        except (WorkerSilentError, WorkerDiedError, UserError, RecordError, KeyError, TypeError) as error:
            self._drop_profiler(at_once=True)
            self.lost_profilers[_served(cell)] = self.lost_profilers.get(_served(cell), 0) + 1
            reason = f"not profiled: {reasons.clean(str(error))}"
            return dataclasses.replace(cell, execution_path={**cell.execution_path, "profile": reason})

    def _profiler_for(self, handicap: str | None, cudnn_benchmark: bool = False) -> WorkerProcess:
        """The profiling worker under a handicap and a cuDNN search; a fresh one when the last had others."""
        if self.profiler is not None and self.profiler_serves != (handicap, cudnn_benchmark):
            self._drop_profiler()
        if self.profiler is None:
            self.profiler = WorkerProcess(self.command, PROFILER_VARIABLES)
            self.profiler_serves = handicap, cudnn_benchmark
            interrupted = lambda: self.signals.count > 1  # noqa: E731
            self.profiler.ask({"do": "hello", "device": self.request.device}, "hello", START_TIMEOUT_S, interrupted)
            if handicap:
                self.profiler.ask({"do": "handicap", "handicap": handicap}, "handicap", START_TIMEOUT_S, interrupted)
        return self.profiler

    def _hopeless(self, cell: Cell) -> bool:
        """After three lost profilers of a handicap and cuDNN search no further cell of these waits for one."""
        return self.lost_profilers.get(_served(cell), 0) >= MAX_FAILED_STARTS

    def _write_cell(self, cell: Cell) -> None:
        assert self.writer is not None
        known = self.known_work.get(cell.workload.key())
        if known is not None:
            cell = dataclasses.replace(cell, stages=_with_work(cell.stages, known))
        self._remember_work(cell)
        self.statuses[cell.status] = self.statuses.get(cell.status, 0) + 1
        try:
            self.writer.write(cell)
        except RecordError as error:  # a fault of ours; the sweep is worth more than this cell
            self.writer.write(dataclasses.replace(
                Cell(process=cell.process, workload=cell.workload, status="failed"), at=now_utc(),
                reason=reasons.clean(f"its record was not valid: {error}"),
            ))

    def _remember_work(self, cell: Cell) -> None:
        """Flops, bytes and launches are counted in one process and hold for all that do the same; so is drift."""
        if cell.status == "ok":
            self.compared.add(cell.workload.key())
        if any(stage.flops is not None for stage in cell.stages):
            self.known_work.setdefault(cell.workload.key(), cell.stages)

    # --- workers ---

    def _worker_for(self, planned: PlannedCell) -> WorkerProcess | None:
        """One worker per tracker, process repeat, handicap and cuDNN search, for all their cells; replaced when lost.

        None when this device or torch cannot do the handicap; why is then in `impossible`.
        """
        setting = planned.workload.setting
        handicap = setting.handicap
        group = (planned.workload.work.tracker, planned.process, handicap, setting.cudnn_benchmark)
        if self.worker is not None and self.group not in (group, None):
            self._drop_worker()
            if self.group is not None and self.group[1] != planned.process:
                self._drop_profiler(at_once=True)  # later processes are not profiled: no idle context beside them
        for attempt in range(MAX_FAILED_STARTS):
            if self.worker is not None:
                break
            try:
                self._start_worker()
            except (WorkerDiedError, WorkerSilentError) as error:
                if attempt + 1 == MAX_FAILED_STARTS:
                    raise RuntimeError(f"no worker can be started: {error}") from None
        assert self.worker is not None
        if self.group is None and handicap:
            try:
                self.worker.ask({"do": "handicap", "handicap": handicap}, "handicap", START_TIMEOUT_S,
                                lambda: self.signals.count > 1)
            except UserError as error:
                self.impossible[handicap] = reasons.clean(str(error))
                self._drop_worker()
                return None
        self.group = group
        return self.worker

    def _start_worker(self) -> None:
        worker = WorkerProcess(self.command)
        try:
            hello = worker.ask({"do": "hello", "device": self.request.device}, "hello", START_TIMEOUT_S,
                               lambda: self.signals.count > 1)
        except BaseException:
            worker.close(at_once=True)
            raise
        if self.hello and hello["device"]["uuid_hash"] != self.hello["device"]["uuid_hash"]:
            worker.close(at_once=True)
            raise RuntimeError("the device changed during the sweep")
        self.worker, self.hello, self.group = worker, hello, None

    def _drop_worker(self, at_once: bool = False) -> None:
        if self.worker is not None:
            self.worker.close(at_once)
            self.worker = None

    def _drop_profiler(self, at_once: bool = False) -> None:
        if self.profiler is not None:
            self.profiler.close(at_once)
            self.profiler = None


def _served(cell: Cell) -> _Served:
    """What a worker is that can serve this cell."""
    return cell.workload.setting.handicap, cell.workload.setting.cudnn_benchmark


def _with_work(stages: tuple[Stage, ...], known: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """`stages` with the counted work of `known` where they have none."""
    by_name = {stage.name: stage for stage in known}
    filled = []
    for stage in stages:
        other = by_name.get(stage.name)
        names = ("flops", "other_flops", "bytes", "launches")
        missing = {n: getattr(other, n) for n in names if getattr(stage, n) is None} if other is not None else {}
        filled.append(dataclasses.replace(stage, **missing))
    return tuple(filled)


def _told(cell: Cell) -> str:
    """One cell for a person."""
    if cell.status != "ok":
        return f"{cell.status} ({cell.reason})"
    ordered = sorted(cell.wall_ms)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return f"{units.time_ms(middle)} (n {len(ordered)}, {cell.stop_rule})"


def visible_devices(worker_command: Sequence[str] = WORKER_COMMAND) -> list[str]:
    """The devices that `all` stands for, told by a worker: each GPU that torch sees by the id of its board, else cpu.

    Raises RuntimeError when no worker can be started.
    """
    worker = WorkerProcess(worker_command)
    try:
        told = worker.ask({"do": "devices"}, "devices", START_TIMEOUT_S)
        return [str(device["device"]) for device in told["devices"]]
    except (WorkerDiedError, WorkerSilentError) as error:
        raise RuntimeError(f"no worker can be started: {error}") from None
    finally:
        worker.close()


def run_sweep(
    target: Target, say: Callable[[str], None] = print, worker_command: Sequence[str] = WORKER_COMMAND
) -> int:
    """Measure a target in this process (its main thread: it listens to signals). Returns the exit code.

    Raises UserError where nothing could be measured because of a mistake in what was asked; its cells say so, too.
    """
    with Signals().listening() as signals:
        sweep = Sweep(target, signals, say, worker_command)
        state = sweep.run()
    if state == "done" and "ok" not in sweep.statuses and {"failed", "timeout"} & set(sweep.statuses):
        if sweep.mistake is not None:
            raise sweep.mistake
        return 1
    return 0
