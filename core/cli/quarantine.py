"""`quarantine`: what is stored but does not count, since it cannot be; let through with a reason, or held again."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_db, add_json
from core.errors import UserError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "quarantine", help="list what is implausible and does not count, release it with a reason",
        description="Results that cannot be: beyond the peak of their card, under a name that does not fit it, all "
                    "samples equal, from the future, or in conflict with stored lines. They count once released.",
    )
    acts = parser.add_mutually_exclusive_group()
    acts.add_argument("--release", metavar="ITEM", help="let this item count; needs --reason")
    acts.add_argument("--hold", metavar="ITEM", help="put a released item back")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, in a sentence; it is kept and shown")
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.answers.quarantine import quarantine
    from core.cli.output import print_json, say
    from core.store import database_path, open_reading
    from core.store.quarantine import hold, release

    with open_reading(arguments.db) as store:
        runs = store.runs
        answer = quarantine(store)
    assert runs is not None  # open_reading always has its folder
    if arguments.release is not None:
        known = [row["item"] for row in answer["items"]]
        if arguments.release not in known:
            raise UserError(f"{arguments.release[:100]} is not in quarantine",
                            ", ".join(known[:5]) or "an item that is (now there is none)")
        release(runs, arguments.release, arguments.reason)
    elif arguments.hold is not None:
        hold(runs, arguments.hold, reason=arguments.reason)
    if arguments.release is not None or arguments.hold is not None:
        with open_reading(arguments.db) as store:
            answer = quarantine(store)
    if arguments.json:
        print_json({"database": database_path(arguments.db).name, **answer})
        return 0
    for row in answer["items"]:
        say(f"{row['item']}  ({row['gpu_label'] or 'unknown device'}, {row['source']} line {row['line_number']})")
        say(f"  {row['sentence']} {row['means']}")
    for row in answer["released"]:
        say(f"{row['item']}  released: {row['reason']}")
    say(answer["headline"])
    return 0
