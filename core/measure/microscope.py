"""`python -m core.measure microscope`: which ops lose the most time, and which other way of computing them is faster.

A tracker is profiled once. An op's lost time is calls x (time - max(roofline, launch floor)): one launch for each call
is needed, many are not. The ops with the most lost time are taken out with their real arguments, replayed alone, and
tried in alternatives made from their arguments. Every trial is one line of the run file, on disk before the next.

Processes: one profiles (on CUDA the profiler stays attached to its process and slows it), one times, and for
cudnn.benchmark one of each kind has it on from its start, since cuDNN keeps its first plan for given arguments.
An op that takes its process down costs that op's trial, not the run. Standard library only; the workers load torch.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import units
from core.errors import UserError
from core.measure import reasons
from core.measure.command import Parser, exit_code, unwritten
from core.measure.lost_time import floor_rates, most_lost, reproduced
from core.measure.microscope_table import Looked, clearly_faster, closing_table, op_name, row_text, summary
from core.measure.plan_microscope import MicroscopeRequest, add_options, request_from
from core.measure.run import PROFILER_VARIABLES, Signals
from core.measure.worker_process import (
    START_TIMEOUT_S,
    InterruptedSweepError,
    WorkerDiedError,
    WorkerProcess,
    WorkerSilentError,
)
from core.process import python_command
from core.records import (
    Ceiling,
    Device,
    End,
    Host,
    Note,
    Op,
    OpTrial,
    RunHeader,
    RunsFolder,
    RunWriter,
    Software,
    WorkKey,
    device_lock,
    from_json,
    new_run_id,
    now_utc,
    read_run_file,
    to_json,
)

WORKER_COMMAND = tuple(python_command("core.measure.op_worker"))
_AS_IT_IS, _COLD = "", "cold"
_TRIAL_S, _LEAST_TRIAL_S = 1.5, 0.05
_OWN_ROUNDS = 3
_PASSES_SHARE = 0.03  # of the budget, for unprofiled passes of the whole tracker
_KERNELS_TRIES = 4
_KERNELS_SHARE = 0.3  # of an op's time, to see kernels; the rest times
_SILENCE_S = 180.0
_NO_WORK_MS = 1e-9
_FOLDER = "gapscope-ops-"  # and the process that made it


# --- the run ---------------------------------------------------------------------------------------------------------


class Microscope:
    """One run. `say` gets a short line for a person per event."""

    def __init__(
        self, request: MicroscopeRequest, path: Path, run_id: str, locks: RunsFolder, signals: Signals,
        say: Callable[[str], None], worker_command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self.request, self.path, self.run_id, self.locks = request, path, run_id, locks
        self.signals, self.say, self.command = signals, say, worker_command
        self.began = time.monotonic()
        self.deadline = self.began + request.budget_s
        self.waited = False
        self.workers: dict[tuple[bool, bool], WorkerProcess] = {}  # (profiles, cudnn.benchmark)
        self.opened: dict[tuple[bool, bool], str] = {}
        self.hello: dict[str, Any] = {}
        self.writer: RunWriter | None = None
        self.folder = Path()
        self.pass_ms: list[float] = []
        self.looked: list[Looked] = []

    def run(self) -> str:
        """Look; returns the end state. Raises UserError before anything is written, RuntimeError without a worker."""
        try:
            clear_abandoned(Path(tempfile.gettempdir()))
            with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
                self.folder = Path(folder)
                self._worker(profiles=True)
                self._refuse()
                self._look_at_entry()
                with device_lock(self.locks.root, self.device.uuid_hash, self._wait):
                    self.deadline += time.monotonic() - self.began  # the budget is for looking, not for waiting
                    self._open_file()
                    state, reason = self._look()
                self._end(state, reason)
                return state
        except InterruptedSweepError:
            self._end("stopped", "interrupted")
            return "stopped"
        except (WorkerDiedError, WorkerSilentError) as error:
            self._end("failed", reasons.clean(str(error)))
            raise RuntimeError(str(error)) from None
        except (UserError, RuntimeError) as error:
            self._end("failed", reasons.clean(str(error)))
            raise
        except OSError as error:
            raise unwritten(error, self.path, "look again") from None
        finally:
            for worker in self.workers.values():
                worker.close(at_once=True)
            if self.writer is not None:
                with contextlib.suppress(OSError):  # a full disk was told by the write itself
                    self.writer.close()

    @property
    def device(self) -> Device:
        device: Device = from_json(Device, self.hello["device"], "device")
        return device

    @property
    def on_cuda(self) -> bool:
        return self.device.type == "cuda"

    def _refuse(self) -> None:
        if self.hello.get("unsupported"):
            raise UserError(f"{self.request.precision} is not possible here: {self.hello['unsupported']}",
                            "a precision that this device has", "choose another --precision")
        if self.hello.get("busy") and not self.request.force:
            raise UserError(f"the GPU is in use ({self.hello['busy']})",
                            "an idle GPU, since a shared one gives wrong times", "wait, or use --force")

    def _look_at_entry(self) -> None:
        """The work of the user's own model, which only a worker can tell. Raises UserError for a file that is none."""
        if self.request.entry is None:
            return
        told = self._worker(profiles=True).ask(
            {"do": "entry", "entry": self.request.entry, "seed": self.request.seed}, "entry", START_TIMEOUT_S,
            self._interrupted,
        )
        if "error" in told:
            raise RuntimeError(f"the model could not be loaded: {told['error']}")
        self.request = dataclasses.replace(self.request, work=from_json(WorkKey, told["work"], "work"))

    def _wait(self) -> bool:
        """Asked twice a second while another run holds the device."""
        if not self.waited:
            self.say("queued: another run is measuring on this device")
        self.waited = True
        return self.signals.count == 0

    def _open_file(self) -> None:
        self.writer = RunWriter(self.path, self.run_id)
        host: Host = from_json(Host, self.hello["host"], "host")
        software: Software = from_json(Software, self.hello["software"], "software")
        self.writer.write(RunHeader(
            started_at=now_utc(), origin="measured", label=self.request.label, device=self.device, host=host,
            software=software, settings=self.hello.get("settings", {}), request=self.request.to_json(),
        ))
        for warning in self.hello.get("warnings", []):
            self._note("warning", reasons.clean(str(warning)))
            self.say(f"warning: {warning}")

    def _note(self, event: str, text: str, data: Mapping[str, Any] | None = None) -> None:
        assert self.writer is not None
        self.writer.write(Note(event=event, text=text, at=now_utc(), data=dict(data or {})))

    def _end(self, state: str, reason: str | None) -> None:
        if self.writer is not None:
            self.writer.write(End(state=state, reason=reason, at=now_utc()))
            self.say(f"{state}{f': {reason}' if reason else ''}")

    # --- workers ---

    def _worker(self, profiles: bool, benchmark: bool = False) -> WorkerProcess:
        """The process of a kind, started when first wanted. On a CPU one does everything."""
        kind = (profiles, benchmark) if not self.hello or self.on_cuda else (True, False)
        worker = self.workers.get(kind)
        if worker is None:
            worker = WorkerProcess(self.command, PROFILER_VARIABLES if kind[0] else None)
            self.workers[kind] = worker
            order = {"do": "hello", "device": self.request.device, "precision": self.request.precision,
                     "cudnn_benchmark": benchmark}
            hello = worker.ask(order, "hello", START_TIMEOUT_S, self._interrupted)
            self.hello = self.hello or hello
        return worker

    def _drop(self, profiles: bool, benchmark: bool = False) -> None:
        kind = (profiles, benchmark) if self.on_cuda else (True, False)
        worker = self.workers.pop(kind, None)
        self.opened.pop(kind, None)
        if worker is not None:
            worker.close(at_once=True)

    def _interrupted(self) -> bool:
        return self.signals.count > 1

    def _ask(self, order: dict[str, Any], profiles: bool, benchmark: bool = False) -> dict[str, Any]:
        """An answer, or {"error": reason} when the op failed, died or hung; a broken process is replaced later."""
        try:
            answer = self._worker(profiles, benchmark).ask(order, order["do"], _SILENCE_S, self._interrupted)
        except (WorkerDiedError, WorkerSilentError) as error:
            self._drop(profiles, benchmark)
            return {"error": reasons.clean(str(error))}
        if answer.get("retire"):
            self._drop(profiles, benchmark)
        return answer

    def _with_op(
        self, file: str, order: dict[str, Any], profiles: bool, benchmark: bool = False
    ) -> dict[str, Any]:
        """As `_ask`, with the op of this file opened in that process."""
        kind = (profiles, benchmark) if self.on_cuda else (True, False)
        if self.opened.get(kind) != file:
            opened = self._ask({"do": "open", "file": file}, profiles, benchmark)
            if "error" in opened:
                return opened
            self.opened[kind] = file
            if order["do"] == "open":
                return opened
        return self._ask(order, profiles, benchmark)

    # --- looking ---

    def _look(self) -> tuple[str, str | None]:
        request = self.request
        self.say(f"{request.work.selector} in {request.precision} on {self.device.name}: profiling one pass")
        told = self._ask({"do": "profile", "work": to_json(request.work), "seed": request.seed, "entry": request.entry,
                          "checkouts": dict(request.checkouts or {}), "weights": request.weights,
                          "passes_s": request.budget_s * _PASSES_SHARE}, profiles=True)
        if "error" in told:
            raise RuntimeError(f"the tracker could not be profiled: {told['error']}")
        ops = [from_json(Op, op, "op") for op in told["ops"]]
        self.pass_ms = [float(value) for value in told["pass_ms"]]
        rates = floor_rates(self.device, request.precision, self.hello.get("launch_us"), self._ceilings())
        chosen = most_lost(ops, rates, request.top)
        summed_ms = sum(op.device_ms or 0.0 for op in ops)
        self._note("microscope", f"{len(chosen)} of {len(ops)} ops to look at", {
            "pass_ms": self.pass_ms, "profiled_ms": told["profiled_ms"], "kernel_busy_ms": told["kernel_busy_ms"],
            "ops_ms": summed_ms, "rates": dataclasses.asdict(rates), "workload": request.work.key(),
            "precision": request.precision,
        })
        self.say(f"pass {units.time_ms(statistics.median(self.pass_ms))}, ops {units.time_ms(summed_ms)}; "
                 f"floor from {rates.source}")
        if not chosen:
            return "done", "no op takes longer than its floor"
        captured = self._ask({"do": "capture", "keys": [op.key() for op, _ in chosen], "folder": str(self.folder)},
                             profiles=True)
        if "error" in captured:
            raise RuntimeError(f"the ops could not be taken out: {captured['error']}")
        if self.on_cuda:
            self._drop(profiles=True)  # with the tracker's memory
        for index, (op, lost_ms) in enumerate(chosen):
            left = len(chosen) - index
            if self.signals.count:
                return "stopped", f"stopped on request, {left} ops left"
            if time.monotonic() >= self.deadline:
                return "stopped", f"budget of {request.budget_s:g} s spent, {left} ops left"
            looked = Looked(op, lost_ms)
            self.looked.append(looked)
            file = captured["files"].get(op.key())
            if file is None:
                looked.note = str(captured["notes"].get(op.key(), "not captured"))
            else:
                self._one(looked, file, (self.deadline - time.monotonic()) / left)
            self._note("op_looked_at", row_text(looked), {
                "op": op.key(), "lost_ms": lost_ms, "floor_ms": rates.floor_ms(op), "device_ms": op.device_ms,
                "calls": op.calls, "reproduced": looked.reproduced, "trials": len(looked.trials), "note": looked.note,
                "replay": looked.replay,
            })
            self.say(f"{index + 1}/{len(chosen)} {row_text(looked)}")
        return "done", None

    def _ceilings(self) -> list[Ceiling]:
        if self.request.ceilings is None:
            return []
        return [line.record for line in read_run_file(self.request.ceilings).lines if isinstance(line.record, Ceiling)]

    def _one(self, looked: Looked, file: str, share_s: float) -> None:
        """All trials of one op within its share of the budget, each written as soon as it is made."""
        end = time.monotonic() + share_s
        opened = self._with_op(file, {"do": "open", "file": file}, profiles=False)
        if "error" in opened:
            looked.note = f"it could not be replayed: {opened['error']}"
            return
        found = opened["alternatives"]
        base = self._with_op(file, {"do": "base", "budget_s": min(0.5, share_s / 10), "cold": False}, profiles=False)
        if "error" in base:
            looked.note = f"it could not be replayed: {base['error']}"
            return
        changes = [one["change"] for one in found if not one["own_process"]]
        replay = self._replayed(looked, file, base["samples_ms"], changes, share_s * _KERNELS_SHARE)
        looked.reproduced, looked.replay = replay.reproduced, replay.told(self.on_cuda)
        failed: dict[str, str] = {}
        for index, one in enumerate(found):
            if time.monotonic() >= end or self.signals.count > 0:
                failed[one["change"]] = "no time left"
                continue
            trial_s = max(_LEAST_TRIAL_S, min(_TRIAL_S, (end - time.monotonic()) / (len(found) - index) * 0.6))
            change = str(one["change"])
            told = self._own_process(file, change, trial_s, replay) if one["own_process"] else self._with_op(
                file, {"do": "trial", "change": change, "budget_s": trial_s, "cold": replay.cold}, profiles=False
            )
            if "error" in told:
                failed[change] = str(told["error"])
                continue
            self._write_trial(looked, change, told, replay)
        if failed:
            self._note("not_tried", f"{len(failed)} alternatives of {op_name(looked.op)} did not run",
                       {"op": looked.op.key(), "reasons": failed})

    def _replayed(
        self, looked: Looked, file: str, samples_ms: list[float], changes: list[str], budget_s: float
    ) -> _Replay:
        """Kernels of the op alone and of its alternatives, and whether it behaves as in the tracker."""
        op = looked.op
        in_tracker_ms = (op.device_ms or 0.0) / op.calls
        if not self.on_cuda:
            alone_ms = statistics.median(samples_ms)
            return _Replay(in_tracker_ms, alone_ms, False, {}, reproduced(in_tracker_ms, alone_ms, (), (), op.calls))
        by_change, reason = self._kernels(file, changes, budget_s)
        states = [(name, by_change[name]) for name in (_AS_IT_IS, _COLD)
                  if name in by_change and "error" not in by_change[name]]
        if not states:
            looked.note = f"its kernels could not be seen: {reason}"
            return _Replay(in_tracker_ms, None, False, by_change, None)
        # The state of the cache that comes closer to what the tracker saw.
        name, nearest = min(states, key=lambda state: abs(math.log(
            max(state[1]["device_ms"], _NO_WORK_MS) / max(in_tracker_ms, _NO_WORK_MS))))
        return _Replay(
            in_tracker_ms, nearest["device_ms"], name == _COLD, by_change,
            reproduced(in_tracker_ms, nearest["device_ms"], op.kernels, nearest["kernels"], op.calls),
        )

    def _kernels(self, file: str, changes: list[str], budget_s: float) -> tuple[dict[str, dict[str, Any]], str | None]:
        """What each change launches, and why that is not known; changes that break the process are left out."""
        told: dict[str, Any] = {}
        for _ in range(_KERNELS_TRIES):
            told = self._with_op(file, {"do": "kernels", "changes": changes, "budget_s": budget_s}, profiles=True)
            if "error" not in told:
                return dict(told["by_change"]), None
            # A process that died without a word names nobody.
            changes = [change for change in changes if change != told["culprit"]] if "culprit" in told else []
        return {}, str(told.get("error"))

    def _own_process(self, file: str, change: str, budget_s: float, replay: _Replay) -> dict[str, Any]:
        """A change that must hold from the start of a process: samples of two processes in turn."""
        reference = str(self.folder / "reference.pt")
        kept = self._with_op(file, {"do": "keep", "file": reference}, profiles=False)
        before: list[float] = []
        after: list[float] = []
        agreement: dict[str, Any] | None = None
        for _ in range(_OWN_ROUNDS):
            order = {"do": "base", "budget_s": budget_s / _OWN_ROUNDS / 2, "cold": replay.cold}
            own = self._with_op(file, order, profiles=False)
            other = self._with_op(file, {**order, "reference": reference if agreement is None and "error" not in kept
                                         else None}, profiles=False, benchmark=True)
            for told in (own, other):
                if "error" in told:
                    return told
            before += own["samples_ms"]
            after += other["samples_ms"]
            agreement = agreement or other["agreement"]
        told = self._with_op(file, {"do": "kernels", "changes": [], "budget_s": 1.0}, profiles=True, benchmark=True)
        seen = told.get("by_change", {}).get(_AS_IT_IS)
        if seen is not None:
            replay.by_change[change] = seen
        return {"before_ms": before, "after_ms": after, "agreement": agreement}

    def _write_trial(self, looked: Looked, change: str, told: Mapping[str, Any], replay: _Replay) -> None:
        before, after = replay.by_change.get(_COLD if replay.cold else _AS_IT_IS, {}), replay.by_change.get(change, {})
        agreement = told["agreement"] or {"max_abs_diff": None, "tolerance": None, "agrees": None}
        factor = statistics.median(told["before_ms"]) / statistics.median(told["after_ms"])
        assert self.writer is not None
        self.writer.write(OpTrial(
            op=looked.op, change=change, before_ms=tuple(told["before_ms"]), after_ms=tuple(told["after_ms"]),
            kernels_before=tuple(before.get("kernels", ())), kernels_after=tuple(after.get("kernels", ())),
            max_abs_diff=agreement["max_abs_diff"], reproduced=replay.reproduced,
            agrees=agreement["agrees"], tolerance=agreement["tolerance"], launches_before=before.get("launches"),
            launches_after=after.get("launches"), device_before_ms=before.get("device_ms"),
            device_after_ms=after.get("device_ms"), lost_ms=looked.lost_ms, pass_ms=statistics.median(self.pass_ms),
            **replay.told(self.on_cuda),
        ))
        looked.trials.append({
            "change": change, "factor": factor, "agrees": agreement["agrees"],
            "faster": clearly_faster(told["before_ms"], told["after_ms"]),
            "max_abs_diff": agreement["max_abs_diff"], "before_ms": statistics.median(told["before_ms"]),
            "after_ms": statistics.median(told["after_ms"]), "launches_before": before.get("launches"),
            "launches_after": after.get("launches"),
        })


@dataclasses.dataclass
class _Replay:
    """How an op behaves alone. Times per call."""

    in_tracker_ms: float
    alone_ms: float | None
    cold: bool  # replays with a cold L2 cache come closer
    by_change: dict[str, dict[str, Any]]
    reproduced: bool | None

    def told(self, on_cuda: bool) -> dict[str, Any]:
        return {"in_tracker_ms": self.in_tracker_ms, "replay_ms": self.alone_ms,
                "l2": ("cold" if self.cold else "warm") if on_cuda else None}


def clear_abandoned(parent: Path) -> None:
    """Remove what runs that were killed left there: copies of ops may take gigabytes. Other users' stay."""
    for folder in parent.glob(f"{_FOLDER}*-*"):
        maker = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if maker.isdecimal() and not _lives(int(maker)):
            shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    if sys.platform == "win32":  # os.kill would end it there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


# --- the command -----------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="python -m core.measure microscope",
        description="Take the ops with most lost time out of a tracker, replay each alone, and try other ways to "
                    "compute it.",
    )
    add_options(made)
    made.add_argument("--runs", metavar="DIR", help="the runs folder (GAPSCOPE_RUNS, else ./runs)")
    made.add_argument("--run-id", metavar="ID", help="id of the new run")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done or stopped, 2 a user's mistake, 1 a failure."""
    return exit_code("the microscope", lambda: _look(parser().parse_args(argv)))


def _look(arguments: argparse.Namespace) -> int:
    request = request_from(arguments)
    runs = RunsFolder(arguments.runs) if arguments.runs else RunsFolder.beside("results.duckdb")
    run_id = arguments.run_id or new_run_id()
    path = Path(arguments.out) if arguments.out else runs.run_file(run_id)
    if path.exists():
        raise UserError(f"{path.name} exists already", "a new file name", "choose another --out")
    if arguments.out and not path.parent.exists():
        raise UserError(f"no folder {path.parent.name!r} for {path.name}", "an existing folder", "make it first")

    def say(line: str) -> None:
        print(line, file=sys.stderr if arguments.json else sys.stdout, flush=True)

    if not arguments.out:
        runs.claim(run_id)
    with Signals().listening() as signals:
        microscope = Microscope(request, path, run_id, runs, signals, say)
        try:
            microscope.run()
        finally:
            if not arguments.out and microscope.writer is None:
                _forget_claim(runs, run_id)
    told = summary(microscope.looked, microscope.pass_ms)
    if arguments.json:
        print(json.dumps({"run_id": run_id, "file": os.path.basename(path), **told}, allow_nan=False))
    else:
        say(closing_table(told))
        say(f"run file: {path}")
        if arguments.out:
            say(f"take it in with: python -m core ingest {path.name}")
    return 0


def _forget_claim(runs: RunsFolder, run_id: str) -> None:
    """A run that never began leaves no empty folder behind."""
    folder = runs.run_dir(run_id)
    try:
        (folder / "runner.json").unlink(missing_ok=True)
        folder.rmdir()
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
