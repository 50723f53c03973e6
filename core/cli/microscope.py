"""`microscope`: the ops of a tracker that lose the most time, tried in other ways, in a process of its own."""
from __future__ import annotations

import argparse
import signal
import subprocess
from typing import Any

from core.cli.options import add_db
from core.process import python_command


def add_parser(commands: Any) -> None:
    from core.measure.plan_microscope import add_options

    parser = commands.add_parser(
        "microscope", help="why single ops of a tracker are slow",
        description="Take the ops with the most lost time out of a tracker, replay each alone with its real arguments, "
                    "and try other ways to compute it: flags, layout, backend, equal rewritings, other precision. The "
                    "result is one run file in the runs folder. Ctrl-C stops after the running op, twice at once.",
    )
    add_options(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Exit code of the measuring process; what it prints is the answer."""
    from core.cli.run import database_path, forwarded
    from core.measure.plan_microscope import request_from
    from core.records import RunsFolder

    request_from(arguments)  # a mistake is told before torch is loaded
    runs = RunsFolder.beside(database_path(arguments.db))
    command = python_command("core.measure", "microscope", "--runs", str(runs.root),
                             *_own(forwarded(arguments.typed), arguments))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the measuring process, which says what it does
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _own(kept: list[str], arguments: argparse.Namespace) -> list[str]:
    """What `run` keeps to itself, the measuring process of the microscope does know."""
    return [*kept, *(["--json"] if arguments.json else []), *(["--out", arguments.out] if arguments.out else [])]
