"""Sweeps as processes of their own: started, stopped, resumed; they outlive the app, its pages and its sessions.

State is read from the runs folder alone (last line of the run file, and whether that process lives).
"""
from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import core
from core.errors import UserError
from core.records import RunsFolder, last_line, new_run_id
from core.records.runs_folder import State
from core.store.access import require_write

# -P: a folder called core where the app was started must not stand in for ours.
RUNNER = ("-P", "-m", "core.measure")
"""What Python is given to run a sweep."""

OPTIONS = frozenset((
    "--preset", "--tracker", "--precision", "--resolution", "--frames", "--points", "--batch", "--execution",
    "--memory-format", "--cudnn-benchmark", "--sdp-backend", "--handicap", "--device", "--processes", "--budget",
    "--label",
))
"""What a page may ask of the runner: nothing that names a path (--entry, --checkout, --out, --video, --weights)."""

_children: list[subprocess.Popen[bytes]] = []
_children_guard = threading.Lock()
_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Job:
    """One run that has a folder. `message`: the last line its runner printed, when it ended without being done."""

    run_id: str
    state: State
    pid: int | None
    stop_requested: bool
    message: str | None


def start_sweep(argv: Sequence[str], runs: RunsFolder) -> str:
    """Start `python -m core.measure run` with these sweep options; returns the new run's id at once.

    The runner waits its turn (state "queued") while another one measures on the same device. What it prints goes to
    `stdout.log` in the run's folder: `states` shows its last line when the runner refused its options.
    """
    require_write("the sweep")
    check_options(argv)
    run_id = new_run_id()
    _start(["run", *argv, "--runs", str(runs.root.resolve()), "--run-id", run_id], runs, run_id)
    return run_id


def check_options(argv: Sequence[str]) -> None:
    """Raises `UserError` for an option that is not among OPTIONS: one typed into a field of a form, or put in a link.

    Written in full only, since argparse takes a beginning for the whole.
    """
    for word in argv:
        if word.startswith("-") and word.partition("=")[0] not in OPTIONS:
            raise UserError(f"{word[:60]!r} among the values of a sweep", "values alone",
                            "options that name a file work in a terminal: python -m core run")


def resume(run_id: str, runs: RunsFolder) -> None:
    """Go on with a run that has ended: same id, finished cells are not repeated, failed and hung ones are.

    Raises `UserError`.
    """
    require_write("resuming")
    state = runs.state(run_id)
    if state in ("running", "queued"):
        raise UserError(f"run {run_id} is {state}", "a run that has ended", "stop it first")
    if not runs.run_file(run_id).is_file():
        raise UserError(f"run {run_id} has no run file", "a run that was started here", "start a new sweep")
    runs.clear_stop(run_id)
    _start(["run", "--resume", str(runs.run_file(run_id).resolve()), "--runs", str(runs.root.resolve())], runs, run_id)


def stop(run_id: str, runs: RunsFolder) -> None:
    """Ask a run to stop behind the cell it measures now. Raises `UserError` when it is not running."""
    require_write("stopping")
    state = runs.state(run_id)
    if state not in ("running", "queued"):
        raise UserError(f"run {run_id} is {state}", "a running one")
    runs.request_stop(run_id)


def states(runs: RunsFolder) -> list[Job]:
    """Every run with a folder of its own, newest first."""
    _reap()
    return [job(run_id, runs) for run_id in runs.run_ids()]


def job(run_id: str, runs: RunsFolder) -> Job:
    """One run. `lost`: its process is gone and its file does not say how it ended."""
    runner, state = runs.runner(run_id), runs.state(run_id)
    message = None
    if state in ("failed", "lost"):
        line = last_line(runs.run_file(run_id)) or {}
        reason = line.get("reason") if line.get("kind") == "end" else None
        message = str(reason) if reason else _last_printed(runs.run_dir(run_id) / "stdout.log")
    return Job(run_id, state, runner.pid if runner else None, runs.stop_requested(run_id), message)


def _start(arguments: Sequence[str], runs: RunsFolder, run_id: str) -> None:
    folder = runs.run_dir(run_id)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log_file = open(folder / "stdout.log", "ab")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"the runs folder takes no new run ({error.strerror or type(error).__name__})", "a folder with free space",
            "make room, or name another folder in GAPSCOPE_RUNS",
        ) from error
    project = Path(core.__file__).resolve().parent.parent
    path = os.pathsep.join(filter(None, [str(project), os.environ.get("PYTHONPATH")]))
    with log_file as log:
        child = subprocess.Popen(
            [sys.executable, *RUNNER, *arguments], stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, "PYTHONPATH": path},
        )
    runs.write_runner(run_id, child.pid)
    with _children_guard:
        _children.append(child)


def _reap() -> None:
    """Collect ended children, so that they do not stay as zombies of a long-lived app."""
    with _children_guard:
        _children[:] = [child for child in _children if child.poll() is None]


def _last_printed(log: Path) -> str | None:
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((line.strip()[:500].removeprefix("error: ") for line in reversed(lines) if line.strip()), None)
