"""`python collect.pyz`: a sweep on a machine with nothing of Gapscope but that file. Standard library only.

`core/answers/collector.py` packs this branch of the package into the file. What differs from
`python -m core.measure run`: the run file lies in the current folder, named after its device and run id; what is
missing here is told before torch is loaded; the end says what to do with the file.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.util
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType

import core
from core.errors import UserError
from core.gpus import by_nvml_name
from core.measure import plan, run
from core.measure.command import FAILURE, Parser, exit_code, failed
from core.measure.worker_process import WORKER_COMMAND
from core.records import METHOD, SCHEMA, Device, RunsFolder, new_run_id

OTHER_COMMANDS = ("cost", "ceilings", "doctor", "microscope")

OLDEST_TORCH = (2, 1)
OLDEST_TORCH_FOR_NUMPY_2 = (2, 3)  # older ones are compiled against numpy 1 and cannot read arrays of numpy 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run what was typed. Exit codes: 0 done or stopped, 2 a user's mistake, 1 a failure, 130 interrupted."""
    typed = list(sys.argv[1:] if argv is None else argv)
    if typed[:1] and typed[0] in OTHER_COMMANDS:
        return exit_code(typed[0], lambda: _other_command(typed[0], typed[1:]))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a batch job's log is often ASCII
    return exit_code("the sweep", lambda: _act(typed))


def _act(typed: list[str]) -> int:
    arguments = parser().parse_args(typed)
    if arguments.command == "plan" or arguments.plan:
        print(plan.told(arguments))
        return 0
    if arguments.json:
        raise UserError("--json without a plan", "`plan --json`", "the run file is JSON lines already")
    return _measure(arguments)


def parser() -> argparse.ArgumentParser:
    """Every option of a sweep, and where its file goes."""
    call = _call()
    top = Parser(
        prog=call, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure point trackers on this machine and write one run file into the current folder.\n"
                    "Needs torch 2.1 or newer and numpy; nvidia-ml-py, if it is there, adds clocks, power and "
                    "temperature.",
        epilog="examples:\n"
               f"  {call}                                    a minute: preset quick\n"
               f"  {call} --preset standard --budget 30m     what comparisons between GPUs need\n"
               f"  {call} plan --preset standard             what that would take, nothing is measured\n"
               f"  {call} --entry MODEL.py:build              your own model\n"
               f"  {call} doctor                             this machine, checked\n"
               f"  {call} ceilings                           what it does at best\n"
               f"  {call} --resume FILE                      go on with an unfinished file\n"
               "Ctrl-C stops after the running cell, twice at once. Over ssh, start it in tmux or screen.",
    )
    top.add_argument("command", nargs="?", choices=("run", "plan"), default="run", metavar="run|plan",
                     help="measure (run), or only show the cells with predicted time and memory (plan)")
    plan.add_sweep_options(top)
    top.add_argument("--plan", action="store_true", help="the same as the word plan")
    top.add_argument("--json", action="store_true", help="the plan as JSON")
    top.add_argument("--out", metavar="FILE", help="name of the run file (else from device, date and run id)")
    top.add_argument("--resume", metavar="FILE", help="continue this run file; what was measured is not repeated")
    top.add_argument("--version", action="version", version=_version())
    return top


def _other_command(name: str, typed: list[str]) -> int:
    """cost, ceilings, doctor, microscope: modules of their own, the same as in a checkout."""
    if name != "doctor":  # which tells itself what is missing
        check_packages()
    code: int = importlib.import_module(f"core.measure.{name}").main(typed)
    return code


def _say(line: str) -> None:
    """For people only; a closed terminal is no reason to stop measuring."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)


# --- this file -------------------------------------------------------------------------------------------------------


def _archive() -> Path | None:
    """The collect.pyz that this code runs from; None in a checkout."""
    root = Path(core.__file__).resolve().parent.parent
    return root if root.is_file() else None


def _call() -> str:
    """How this was started, for hints that can be typed."""
    started = sys.argv[0] if _archive() is not None else None
    return f"python3 {shlex.quote(started)}" if started else "python3 -m core.measure.collect"


def _version() -> str:
    archive = _archive()
    digest = hashlib.sha256(archive.read_bytes()).hexdigest() if archive is not None else None
    return f"Gapscope collector, run file schema {SCHEMA}, method {METHOD}" + (f", sha256 {digest}" if digest else "")


# --- what must be there ----------------------------------------------------------------------------------------------


def check_packages(
    has: Callable[[str], bool] | None = None, version_of: Callable[[str], str | None] | None = None
) -> None:
    """Raises UserError when torch or numpy is missing or too old, without loading either.

    A version that its installation does not tell passes: the worker then finds out. The arguments stand in for this
    Python's packages in tests.
    """
    has, version_of = has or _has, version_of or _version_of
    for name, fix in (
        ("torch", "start it with the python that has torch, or install it as pytorch.org/get-started says"),
        ("numpy", "run `python3 -m pip install numpy` in the environment of torch"),
    ):
        if not has(name):
            raise UserError(f"this Python ({sys.executable or sys.version.split()[0]}) has no {name}",
                            "torch and numpy", fix)
    torch, numpy = version_of("torch"), version_of("numpy")
    if torch is not None and _numbers(torch) < OLDEST_TORCH:
        raise UserError(f"torch {torch}", f"torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer",
                        "use an environment with a newer torch")
    if torch is not None and numpy is not None and _numbers(torch) < OLDEST_TORCH_FOR_NUMPY_2 and (
        _numbers(numpy) >= (2, 0)
    ):
        raise UserError(f"torch {torch} beside numpy {numpy}", "numpy 1 with a torch before 2.3",
                        "run `python3 -m pip install 'numpy<2'` in the environment of torch")


def _has(name: str) -> bool:
    found = importlib.util.find_spec(name)
    return found is not None and found.origin is not None  # a bare folder of that name is no package


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """(2, 1) of "2.1.0+cu121"; a version that does not begin with two numbers counts as the newest."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (10**6,)


def check_folder(folder: Path) -> None:
    """Raises UserError unless a file can be made in `folder`: tried, since permissions do not tell it all."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".gapscope-"):
            pass
    except OSError as error:
        raise UserError(f"no file can be made in {folder.resolve()} ({error.strerror or error})",
                        "a folder that you may write to",
                        "cd to one, such as your home folder, or name one with --out FOLDER/NAME.jsonl") from None


# --- measuring -------------------------------------------------------------------------------------------------------


def file_name(device: Device, run_id: str) -> str:
    """`gapscope-t4-20260714-153012-1a2b3c4d.jsonl`: the card and, since a run id begins so, the date and time (UTC)."""
    gpu = by_nvml_name(device.name, device.memory_bytes) if device.type != "cpu" else None
    told = "cpu" if device.type == "cpu" else (gpu.key if gpu is not None else None) or device.name
    words = re.sub(r"[^a-z0-9]+", "-", told.lower()).strip("-")[:40].strip("-")
    return f"gapscope-{words or 'gpu'}-{run_id}.jsonl"


class _Signals(run.Signals):
    """Tells the person who pressed Ctrl-C what happens now."""

    def _handle(self, number: int, frame: FrameType | None) -> None:
        super()._handle(number, frame)
        text = "stopping after the running cell; once more stops at once" if self.count == 1 else "stopping at once"
        with contextlib.suppress(OSError):
            os.write(2, f"\n{text}\n".encode())  # print may not be called within a print


class _Sweep(run.Sweep):
    """A sweep whose file takes its name from the device, which is known only when a worker has started."""

    folder: Path | None = None  # where the file gets that name; None: the target has its name already

    def _open(self) -> None:
        if self.writer is None and self.folder is not None:
            path = self.folder / file_name(self.device, self.target.run_id)
            self.target, self.folder = dataclasses.replace(self.target, path=path), None
        begins = self.writer is None
        super()._open()
        if begins and self.device.type == "cuda" and not _has("pynvml"):
            self.say("no clocks, power and temperature: nvidia-ml-py is not installed (pip install nvidia-ml-py)")


def _measure(arguments: argparse.Namespace) -> int:
    locks = _locks_folder()
    folder = None
    if arguments.resume:
        given = [name for name in (*plan.SWEEP_OPTIONS, "out") if getattr(arguments, name) is not None]
        if given:
            raise UserError(f"--resume with --{given[0].replace('_', '-')}", "--resume alone: the file says what to do",
                            "leave it out, or start a new sweep")
        check_packages()
        budget_s = plan.parse_duration_s(arguments.budget, "budget") if arguments.budget else None
        target = run.resumed_target(
            Path(arguments.resume), locks, budget_s, bool(arguments.force), arguments.video, arguments.entry,
            plan.checkouts(arguments.checkout), arguments.weights,
        )
    else:
        request = plan.request_from(arguments)
        check_packages()
        if request.device == plan.ALL_DEVICES:
            return _measure_each(request, arguments, locks)
        if arguments.out:
            target = run.new_target(request, locks, None, Path(arguments.out))
            check_folder(target.path.parent)
        else:
            folder, run_id = Path.cwd(), new_run_id()
            check_folder(folder)
            target = run.Target(folder / f"gapscope-{run_id}.jsonl", run_id, locks, request)
    return _one(target, folder, arguments)[0]


def _one(target: run.Target, folder: Path | None, arguments: argparse.Namespace) -> tuple[int, str]:
    """Measure a target: exit code and end state. `folder`: where its file gets its name from the device."""
    with _Signals().listening() as signals:
        sweep = _Sweep(target, signals, _say, WORKER_COMMAND)
        sweep.folder = folder
        try:
            state = sweep.run()
        except (RuntimeError, OSError) as error:
            return failed(_failure(error, sweep), FAILURE), "failed"
    return _finish(sweep, state, arguments), state


def _measure_each(request: plan.SweepRequest, arguments: argparse.Namespace, locks: RunsFolder) -> int:
    """Every GPU in turn, one file each, until one is stopped. The worst exit code."""
    if arguments.out:
        raise UserError("--out with --device all", "one device, since each has a file of its own", "leave --out out")
    check_folder(Path.cwd())
    codes = []
    for device in run.visible_devices(WORKER_COMMAND):
        run_id = new_run_id()
        target = run.Target(Path.cwd() / f"gapscope-{run_id}.jsonl", run_id, locks,
                            dataclasses.replace(request, device=device))
        code, state = _one(target, Path.cwd(), arguments)
        codes.append(code)
        if state != "done":
            break
    return max(codes)


def _locks_folder() -> RunsFolder:
    """Where sweeps of this machine wait for each other: the runs folder if one is named, else a temporary one."""
    named = os.environ.get("GAPSCOPE_RUNS")
    user = os.getuid() if hasattr(os, "getuid") else "locks"
    return RunsFolder(named or Path(tempfile.gettempdir()) / f"gapscope-{user}")


def _failure(error: Exception, sweep: _Sweep) -> str:
    """Why a sweep broke off, and what to do, in one line."""
    if not sweep.hello:
        return (f"no measuring process could be started: {error}; see whether `python3 -c \"import torch, numpy\"` "
                "works in this environment")
    kept = sweep.writer is not None
    hint = f"; what was measured is kept, go on with {_resume(sweep.target.path)}" if kept else ""
    return f"the sweep failed: {error}{hint}"


def _resume(path: Path) -> str:
    return f"{_call()} --resume {shlex.quote(_as_typed(path))}"


def _as_typed(path: Path) -> str:
    """The path as it can be typed here: relative within the current folder."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _finish(sweep: _Sweep, state: str, arguments: argparse.Namespace) -> int:
    """Say where the file is and what to do with it; the exit code of the sweep."""
    if sweep.writer is None:
        _say("stopped before anything was measured; no file was written")
        return 0
    path = sweep.target.path
    cells = ", ".join(f"{number} {status}" for status, number in sweep.statuses.items()) or "no cell"
    _say("")
    _say(f"run file: {path.resolve()}")
    _say(f"holds: {cells} on {sweep.device.name}. No host name, user name or path is in it.")
    if state != "done":
        _say(f"unfinished; go on with:\n  {_resume(path)}")
    if sweep.statuses:
        _say("Carry it to where Gapscope is, then drop it on the Data page, or type there:\n"
             f"  python -m core ingest {shlex.quote(path.name)}")
    if state == "done" and sweep.request.preset == "quick" and not arguments.resume and arguments.tracker is None:
        _say("That was the preset quick: small and short. What comparisons between GPUs need:\n"
             f"  {_call()} --preset standard --budget 30m\n"
             f"What else can be asked: {_call()} --help")
    if state == "done" and "ok" not in sweep.statuses and {"failed", "timeout"} & set(sweep.statuses):
        if sweep.mistake is not None:
            raise sweep.mistake
        return failed("no cell could be measured; the reasons are in the lines above and in the file", FAILURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
