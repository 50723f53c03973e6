"""Parse, call the command, turn what went wrong into one line and an exit code.

Exit codes: 0 done, 1 failure, 2 a mistake in what was typed or given, 130 interrupted.
"""
from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from core.cli import (
    ceilings,
    collector,
    compare,
    cost,
    doctor,
    explain,
    export,
    ingest,
    microscope,
    predict,
    quarantine,
    report,
    run,
    runs,
    specs,
)
from core.errors import UserError

COMMANDS = (
    run, ceilings, doctor, cost, microscope, collector, ingest, quarantine, export, runs, specs, compare, explain,
    predict, report,
)
FAILURE, USER_MISTAKE, INTERRUPTED = 1, 2, 130


class Parser(argparse.ArgumentParser):
    """An argument parser whose mistakes are one line, like every other mistake."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message, "", f"see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m core",
        description="Gapscope: why is this GPU N times slower at point tracking, and how much of that is hardware?",
        epilog="`python -m core COMMAND --help` explains each command. The dashboard: `streamlit run app.py`.",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. `GAPSCOPE_DEBUG=1` shows where an unexpected error came from."""
    # Started with a closed output (`>&-`) Python has none at all; whoever closed it wants to read nothing.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without thin spaces must not end a command
    try:
        typed = list(sys.argv[1:] if arguments is None else arguments)
        parsed = build_parser().parse_args(typed)
        parsed.typed = typed
        _use_added_cards(getattr(parsed, "db", None))
        code = int(parsed.execute(parsed))
        sys.stdout.flush()
        return code
    except UserError as error:
        return _fail(str(error), USER_MISTAKE)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader (`| head`) is gone: nobody is left to tell, and Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except OSError as error:
        # The disk or the system refused, which is nobody's mistake and no fault of the program.
        if os.environ.get("GAPSCOPE_DEBUG"):
            traceback.print_exc()
        name = os.path.basename(str(error.filename)) if error.filename else "a file"
        return _fail(f"{name} cannot be read or written ({error.strerror or type(error).__name__})", FAILURE)
    except Exception as error:
        if os.environ.get("GAPSCOPE_DEBUG"):
            traceback.print_exc()
        text = " ".join(str(error).split())[:300]
        return _fail(
            f"{type(error).__name__}{': ' if text else ''}{text} (this is a fault of Gapscope; "
            "GAPSCOPE_DEBUG=1 shows where)", FAILURE,
        )


def _use_added_cards(db_path: str | None) -> None:
    """Cards that people added count in every command, also in those that open no database."""
    from core.records import RunsFolder

    runs = RunsFolder.beside(Path(db_path or os.environ.get("GAPSCOPE_DB") or "results.duckdb").resolve())
    if runs.journal.is_file():
        from core.store.cards import use_cards_of  # loads DuckDB: not where there is nothing to read

        use_cards_of(runs)


def _fail(text: str, code: int) -> int:
    sys.stdout.flush()
    from core.cli.output import hint

    hint(f"error: {' '.join(text.splitlines())}")
    return code
