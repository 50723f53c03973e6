"""`runs`: what is stored."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_db, add_json


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "runs", help="list the stored runs",
        description="Every stored run, newest first: shipped reference runs, your own and uploaded ones.",
    )
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core import units
    from core.answers.runs import runs
    from core.cli.output import print_json, say, table
    from core.store import open_reading

    with open_reading(arguments.db) as store:
        answer = runs(store)
    if arguments.json:
        print_json(answer)
        return 0
    if answer["runs"]:
        rows = [
            [
                row["run_id"], (row["started_at"] or units.MISSING)[:16].replace("T", " "),
                row["device"] or units.MISSING, row["state"] or units.MISSING, row["source"] or units.MISSING,
                units.count(row["ok"]), units.count(row["failed"]), row["label"] or "",
            ]
            for row in answer["runs"]
        ]
        headers = ["run", "started (UTC)", "device", "state", "from", "ok", "failed", "label"]
        print(table(headers, rows, right=[5, 6]))
        print()
    say(answer["headline"])
    if not answer["runs"]:
        say("Measure this machine with: python -m core run --preset quick")
    return 0
