"""`python -m core.measure COMMAND`: the measuring branch as a process of its own. Its mistakes take one line on stderr.

run and plan are here; cost, ceilings, doctor and microscope are modules of their own with a `main(argv)`.
"""
from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from pathlib import Path

from core.errors import UserError
from core.measure import plan, run
from core.measure.command import Parser, exit_code
from core.records import RunsFolder, last_line, new_run_id

DEVICES = "devices"
OTHER_COMMANDS = ("cost", "ceilings", "doctor", "microscope")


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="python -m core.measure", description="Benchmark point trackers, write a run file.")
    commands = top.add_subparsers(dest="command", required=True, parser_class=Parser)
    measure = commands.add_parser("run", help="measure a sweep")
    plan.add_sweep_options(measure)
    measure.add_argument("--plan", action="store_true", help="print the plan and stop")
    measure.add_argument("--json", action="store_true", help="with --plan: as JSON")
    measure.add_argument("--runs", metavar="DIR", help="the runs folder (GAPSCOPE_RUNS, else ./runs)")
    measure.add_argument("--run-id", metavar="ID", help="id of the new run")
    measure.add_argument("--out", metavar="FILE", help="write the run file there instead of into the runs folder")
    measure.add_argument("--resume", metavar="FILE", help="continue this run file; what was measured is not repeated")
    show = commands.add_parser("plan", help="print the cells of a sweep with predicted time and memory")
    plan.add_sweep_options(show)
    show.add_argument("--json", action="store_true")
    return top


def main(argv: list[str] | None = None) -> int:
    typed = sys.argv[1:] if argv is None else argv
    if typed[:1] and typed[0] in OTHER_COMMANDS:
        return exit_code(typed[0], lambda: importlib.import_module(f"core.measure.{typed[0]}").main(typed[1:]))
    return exit_code("the sweep", lambda: _act(typed))


def _act(typed: list[str]) -> int:
    if typed == [DEVICES]:  # for the shell, which never loads torch
        print("\n".join(run.visible_devices()))
        return 0
    arguments = parser().parse_args(typed)
    if arguments.command == "plan" or arguments.plan:
        print(plan.told(arguments))
        return 0
    return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    runs = RunsFolder(arguments.runs) if arguments.runs else RunsFolder.beside("results.duckdb")
    if arguments.resume:
        given = [name for name in (*plan.SWEEP_OPTIONS, "out", "run_id") if getattr(arguments, name) is not None]
        if given:
            raise UserError(f"--resume with --{given[0].replace('_', '-')}", "--resume alone: the file says what to do",
                            "leave it out, or start a new sweep")
        budget_s = plan.parse_duration_s(arguments.budget, "budget") if arguments.budget else None
        target = run.resumed_target(
            Path(arguments.resume), runs, budget_s, bool(arguments.force), arguments.video, arguments.entry,
            plan.checkouts(arguments.checkout), arguments.weights,
        )
        return _measured(target)
    request = plan.request_from(arguments)
    devices = run.visible_devices() if request.device == plan.ALL_DEVICES else [request.device]
    if len(devices) == 1:
        request = dataclasses.replace(request, device=devices[0])
        out = Path(arguments.out) if arguments.out else None
        return _measured(run.new_target(request, runs, arguments.run_id, out))
    if arguments.out:
        raise UserError("--out with several devices", "the runs folder, which takes one run file for each",
                        "leave --out out, or name one device")
    codes = []
    for index, device in enumerate(devices):  # one after the other: two sweeps would share the host
        run_id = arguments.run_id if index == 0 and arguments.run_id else new_run_id()
        codes.append(_measured(run.new_target(dataclasses.replace(request, device=device), runs, run_id)))
        if last_state(runs.run_file(run_id)) == "stopped":
            break  # whoever stopped one meant all
    return max(codes)


def last_state(path: Path) -> str | None:
    """How a run ended: the state of its last line, None when it is no end."""
    line = last_line(path)
    return str(line["state"]) if line is not None and line.get("kind") == "end" else None


def _measured(target: run.Target) -> int:
    code = run.run_sweep(target, _say)
    if not target.in_folder:
        _say(f"wrote {target.path.name}; take it in with: python -m core ingest {target.path.name}")
    return code


def _say(line: str) -> None:
    """A short log for people; the run file is what counts, so a closed output is no reason to stop."""
    try:
        print(line, flush=True)
    except (BrokenPipeError, ValueError):
        sys.stdout = None  # type: ignore[assignment]


if __name__ == "__main__":
    sys.exit(main())
