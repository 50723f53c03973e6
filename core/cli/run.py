"""`run`: plan a sweep, start it as a process of its own, watch it, say what to do with its result."""
from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from core.cli.options import add_db, add_json
from core.errors import UserError

if TYPE_CHECKING:
    from core.cli.follow import Progress, Runner
    from core.records import RunsFolder

_OWN_OPTIONS = ("--json", "--plan")
_OWN_OPTIONS_WITH_VALUE = ("--db", "--out", "--resume")


def add_parser(commands: Any) -> None:
    from core.measure.plan import add_sweep_options

    parser = commands.add_parser(
        "run", help="measure trackers on this machine",
        description="Measure trackers on this machine: every combination of tracker, size and precision, as a process "
                    "of its own. The result is one run file in the runs folder. Ctrl-C stops after the running cell, "
                    "twice at once; closing the terminal leaves the sweep running.",
    )
    add_sweep_options(parser)
    parser.add_argument("--plan", action="store_true", help="show the cells with predicted time and memory, and stop")
    parser.add_argument("--out", metavar="FILE", help="write the run file there instead of into the runs folder")
    parser.add_argument("--resume", metavar="FILE", help="go on with a run file: cells that are done are not repeated")
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.measure import plan

    if arguments.resume:
        given = [name for name in plan.SWEEP_OPTIONS if getattr(arguments, name, None)]
        if given or arguments.out:
            option = f"--{(given or ['out'])[0].replace('_', '-')}"
            raise UserError(f"{option} together with --resume", "the sweep that the file holds", f"leave {option} out")
    else:
        request = plan.request_from(arguments)  # a mistake is told before anything starts
        if arguments.plan:
            return _show_plan(request, arguments.json)
        if request.device == plan.ALL_DEVICES:
            return _measure_each(arguments)
    return _measure(arguments)


def _measure_each(arguments: argparse.Namespace) -> int:
    """One sweep and one run file for each GPU, one after the other, until one is stopped. The worst exit code."""
    from core.cli.follow import measuring_branch

    for name in ("out", "json"):
        if getattr(arguments, name):
            raise UserError(f"--{name} with --device all", "one device, since each has a run of its own",
                            f"leave --{name} out, or name a device")
    devices = measuring_branch("devices").split()
    typed = arguments.typed
    codes = []
    for index, device in enumerate(devices):
        if len(devices) > 1:
            print(f"GPU {index + 1} of {len(devices)}")
        arguments.typed = [*typed, "--device", device]  # the last one counts
        state: list[str] = []
        codes.append(_measure(arguments, state))
        if state != ["done"]:
            break
    return max(codes)


def _show_plan(request: Any, as_json: bool) -> int:
    from core.cli.output import print_json
    from core.measure import plan

    rate = plan.rate_of(request.device)
    cells = plan.expand(request, rate, plan.works_before_a_look(request))
    if as_json:
        print_json(plan.plan_json(request, cells, rate))
    else:
        print(plan.plan_table(request, cells, rate))
    return 0


def _measure(arguments: argparse.Namespace, ended: list[str] | None = None) -> int:
    """Start a sweep and follow it. `ended` gets the state in which it ended, if it got one."""
    from core.cli.follow import Progress, Runner, follow
    from core.records import RunsFolder, new_run_id

    runs = RunsFolder.beside(database_path(arguments.db))
    options = forwarded(arguments.typed)
    progress = Progress()
    if arguments.resume:
        path = Path(arguments.resume)
        run_id = _run_id_of(path)
        options += ["--resume", str(path)]
        progress.read(path)
        progress.cells.clear()  # what is there already is not news
    else:
        run_id = new_run_id()
        options += ["--run-id", run_id]
        path = Path(arguments.out) if arguments.out else runs.run_file(run_id)
        if arguments.out:
            if path.exists():
                raise UserError(f"{path.name} exists already", "a new file name", "use --resume to continue it")
            options += ["--out", str(path)]
    with _LiveView(quiet=arguments.json) as show:
        runner = Runner.start(options, runs)
        with _StopOnInterrupt(runner):
            try:
                for new in follow(runner, path, progress):
                    show.update(progress, new)
            except BaseException:
                runner.ask_to_stop()  # nobody watches it any more
                raise
    code = runner.process.wait()
    if ended is not None and progress.end is not None:
        ended.append(progress.end.state)
    every_cell_failed = code == 1 and progress.end is not None and progress.end.state == "done"
    if code != 0 and not every_cell_failed:
        return _failed(runner, code, path, progress)
    _finish(arguments, runs, run_id, path, progress)
    if every_cell_failed:
        print("error: no cell could be measured; the reasons are in the run file", file=sys.stderr)
    return code


def database_path(given: str | None) -> Path:
    """`--db`, else GAPSCOPE_DB, else results.duckdb here; the runs folder lies beside it."""
    return Path(given or os.environ.get("GAPSCOPE_DB") or "results.duckdb")


def forwarded(arguments: list[str]) -> list[str]:
    """The sweep options as typed, without the command and without what only this command knows."""
    kept: list[str] = []
    rest = iter(arguments[1:])
    for word in rest:
        name = word.split("=", 1)[0]
        if name in _OWN_OPTIONS:
            continue
        if name in _OWN_OPTIONS_WITH_VALUE:
            if "=" not in word:
                next(rest, None)
            continue
        kept.append(word)
    return kept


def _run_id_of(path: Path) -> str:
    from core.records import read_run_file

    return read_run_file(path).lines[0].run_id


def _failed(runner: Runner, code: int, path: Path, progress: Progress) -> int:
    from core.cli.output import hint
    from core.records import last_line

    reason = runner.last_error() or (progress.end.reason if progress.end and progress.end.reason else "")
    if code == 2:
        hint(f"error: {reason or 'the runner refused the sweep'}")
        return 2
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    hint(f"error: the measuring process {how}{': ' + reason if reason else ''}")
    if last_line(path) is not None:
        hint(f"What was measured is kept; go on with:\n  python -m core run --resume {shlex.quote(str(path))}")
    return 1


class _StopOnInterrupt:
    """Ctrl-C once: stop after the running cell. Twice: now. Three times: without a word. SIGTERM counts as Ctrl-C."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.asked = runner, 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> _StopOnInterrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked > 2:
            self.runner.kill()
            return
        self.runner.ask_to_stop()
        text = "Stopping after the running cell; Ctrl-C again ends it now." if self.asked == 1 else "Ending it now."
        print(f"\n{text}", file=sys.stderr)


class _LiveView:
    """A bar with the running cell on a terminal, one line per finished cell elsewhere; nothing when quiet."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None
        self.task: Any = None

    def __enter__(self) -> _LiveView:
        if not self.quiet and sys.stdout.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("{task.description}", markup=False), console=Console(highlight=False), transient=True,
            )
            self.bar.start()
            self.task = self.bar.add_task("starting", total=None)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, progress: Progress, new: list[Any]) -> None:
        from core.cli.follow import describe
        from core.cli.output import printable

        if self.quiet:
            return
        for cell in new:
            line = printable(describe(cell))
            if self.bar is not None:
                self.bar.console.print(line, markup=False, soft_wrap=True)
            else:
                print(line, flush=True)
        if self.bar is not None:
            self.bar.update(self.task, completed=len(progress.cells), total=progress.total,
                            description=_running_in_words(progress))


def _running_in_words(progress: Progress) -> str:
    import statistics

    from core import units

    if progress.running is None:
        return "starting" if not progress.cells else ""
    last = next((cell for cell in reversed(progress.cells) if cell.status == "ok"), None)
    before = f"   last {units.time_ms(statistics.median(last.wall_ms))}" if last else ""
    return f"{progress.running}{before}"


def _finish(arguments: argparse.Namespace, runs: RunsFolder, run_id: str, path: Path, progress: Progress) -> None:
    from core.cli.output import print_json, say, table
    from core.records import read_run_file

    found = [line.record for line in read_run_file(path).lines if type(line.record).__name__ == "Cell"]
    rows = _summary(found)
    state = progress.end.state if progress.end else "done"
    stored = _is_in(path, runs)
    twin = _twin(arguments.db, run_id, path, stored)
    if arguments.json:
        print_json({"run_id": run_id, "file": str(path), "state": state, "device": progress.device,
                    "reason": progress.end.reason if progress.end else None, "cells": rows, "twin": twin,
                    "warnings": progress.warnings})
        return
    from core import units

    print()
    if rows:
        print(table(
            ["tracker", "size", "setting", "median", "n", "processes", "note"],
            [[row["tracker"], row["size"], row["setting"], units.time_ms(row["median_ms"]), units.count(row["n"]),
              units.count(row["processes"]), row["note"] or ""] for row in rows], right=[3, 4, 5],
        ))
        print()
    for text in dict.fromkeys(progress.warnings):
        say(f"Note: {text}")
    if state != "done":
        reason = f" ({progress.end.reason})" if progress.end and progress.end.reason else ""
        print(f"The sweep was {state}{reason}; go on with:\n  python -m core run --resume {shlex.quote(str(path))}")
    print(f"Run {run_id}: {path}")
    if not stored:
        print(f"Take it in with:\n  python -m core ingest {shlex.quote(str(path))}")
    if twin:
        say(twin["headline"])
        print(f"Compare with it:\n  {twin['command']}")


def _summary(cells: list[Any]) -> list[dict[str, Any]]:
    """One row per workload: median of the process medians, and why it has none."""
    import statistics

    from core.measure.plan import setting_in_words, size_in_words

    by_workload: dict[str, list[Any]] = {}
    for cell in cells:
        by_workload.setdefault(cell.workload.key(), []).append(cell)
    rows = []
    for group in by_workload.values():
        newest = {cell.process: cell for cell in group if cell.status == "ok"}
        work = group[0].workload.work
        failed = group[-1] if not newest else None
        rows.append({
            "tracker": work.selector, "size": size_in_words(work),
            "precision": group[0].workload.setting.precision,
            "setting": setting_in_words(group[0].workload.setting),
            "status": "ok" if newest else group[-1].status,
            "median_ms": statistics.median(statistics.median(cell.wall_ms) for cell in newest.values())
            if newest else None,
            "n": sum(len(cell.wall_ms) for cell in newest.values()) if newest else None,
            "processes": len(newest) or None,
            "note": f"{failed.status}: {failed.reason}" if failed else None,
        })
    return sorted(rows, key=lambda row: (row["tracker"], row["size"]))


def _is_in(path: Path, runs: RunsFolder) -> bool:
    return runs.root.resolve() in path.resolve().parents


def _twin(db: str | None, run_id: str, path: Path, stored: bool) -> dict[str, Any] | None:
    """The nearest shipped GPU that did the same work, with the ratio in a sentence. None when there is none."""
    from core.answers.coverage import twin_of_run
    from core.store import open_reading

    if not stored and not database_path(db).exists():
        return None  # a run that is to be carried elsewhere leaves no database behind
    try:
        with open_reading(db) as store:
            return twin_of_run(store, run_id if stored else str(path))
    except (UserError, OSError):
        return None  # the run is safe in its file; a comparison is a courtesy
