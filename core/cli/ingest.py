"""`ingest`: take run files in, or bring the database up to date."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_db, add_json
from core.errors import UserError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "ingest", help="take run files in; without a file, bring the database up to date",
        description="Take run files in: they are checked, kept in the runs folder and stored. Works while the app is "
                    "open. Without a file: create the database, or bring it up to date.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="run files (.jsonl or .jsonl.gz)")
    parser.add_argument("--dry-run", action="store_true",
                        help="only say what would come in; exit 2 when the format is not recognised")
    parser.add_argument("--good-lines", action="store_true",
                        help="take the good lines of a file that has bad ones, too; without it such a file is refused")
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.cli.output import print_json, say

    if not arguments.files:
        if arguments.dry_run:
            raise UserError("--dry-run without a file", "a file to look at")
        answer = _catch_up(arguments.db)
        if arguments.json:
            print_json(answer)
        else:
            say(answer["headline"])
        return 0
    taken, refused = [], []
    for name in arguments.files:
        try:
            taken.append(_take(name, arguments.db, arguments.dry_run, arguments.good_lines))
        except UserError as error:
            if len(arguments.files) == 1:
                raise
            refused.append(str(error))  # one bad file does not keep the others out
    if arguments.json:
        print_json({"files": taken, "refused": refused})
    else:
        for file in taken:
            say(file["headline"])
            for problem in file["problems"][:5]:
                say(f"  left out: line {problem['line']}, field {problem['field']}: {problem['found']}, expected "
                    f"{problem['expected']}")
    if refused:
        raise UserError("; ".join(refused))
    return 0


def _catch_up(db: str | None) -> dict[str, Any]:
    from core.answers.runs import runs
    from core.store import database_path, open_reading

    with open_reading(db, progress=_progress()) as store:
        answer = runs(store)
        held = store.in_memory
        notices = list(store.notices)
    name = database_path(db).name
    how = f"{name} is held by the app, which keeps it up to date" if held else f"{name} is up to date"
    return {"database": name, "held_by_another": held, "runs": len(answer["runs"]), "notices": notices,
            "headline": "\n".join([f"{how}. {answer['headline']}", *notices])}


def _progress() -> Any:
    """A bar on a terminal, since the first build takes seconds; nothing elsewhere."""
    import sys

    if not sys.stderr.isatty():
        return None

    def show(file: str, share: float) -> None:
        end = "\r" if share < 1 else "\n"
        print(f"\rreading {file[:60]:<60} {share:4.0%}", end=end, file=sys.stderr, flush=True)

    return show


def _take(name: str, db: str | None, dry_run: bool, good_lines: bool) -> dict[str, Any]:
    from core.store.uploads import ingest_file

    result = ingest_file(name, db, dry_run=dry_run, good_lines_only=good_lines)
    found = result.preview
    runs = [
        {"run_id": run.run_id, "label": run.label, "device": run.device, "gpu_key": run.gpu_key,
         "gpu_label": run.gpu_label, "origin": run.origin, "started_at": run.started_at, "lines": run.lines,
         "cells": run.cells, "ok": run.ok}
        for run in found.runs
    ]
    devices = ", ".join(dict.fromkeys(run.gpu_label or "unknown device" for run in found.runs))
    what = (f"{found.name}: {_count(len(runs), 'run')} on {devices}, {_count(found.cells, 'cell line')} "
            f"({found.ok} ok)")
    if found.bad_lines:
        what += f", {_count(found.bad_lines, 'bad line')} left out"
    if result.conflicts:
        verb = "differs" if result.conflicts == 1 else "differ"
        what += (f", {_count(result.conflicts, 'line')} left out that {verb} from what is stored under the same run "
                 "and number")
    if found.torn:
        what += ", its end is torn"
    end = {
        "command": "is stored", "app": f"was taken in by the app after {result.waited_s:.1f} s",
        "nobody yet": "would come in" if dry_run else
        "is kept in the runs folder; the app that holds the database has not read it yet",
    }[result.by]
    return {
        "file": found.name, "format": "gapscope run file", "dry_run": dry_run, "stored_by": result.by,
        "upload_id": result.upload_id, "runs": runs, "cells": found.cells, "ok": found.ok, "lines": found.lines,
        "problems": [{"line": p.line, "field": p.field, "found": p.found, "expected": p.expected}
                     for p in found.problems],
        "bad_lines": found.bad_lines, "conflicts": result.conflicts, "questions": [], "headline": f"{what}: {end}.",
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
