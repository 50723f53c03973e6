"""`doctor`: this machine, checked; each line with why it matters and what to do."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_json


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor", help="this machine, checked before it measures",
        description="Driver, torch, GPU and host, checked in about twenty lines: what was found, and where something "
                    "is not right, why it matters and what to do. Changes nothing; needs no database. Exit code 0 "
                    "whatever it finds.",
    )
    parser.add_argument("--device", default="auto", metavar="D", help="the device to look at: auto, cuda:N or cpu")
    add_json(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.answers.doctor import checks, headline
    from core.cli.output import print_json, printable, say
    from core.errors import UserError
    from core.measure.plan import ALL_DEVICES, parse_device

    if parse_device(arguments.device) == ALL_DEVICES:
        raise UserError("--device all", "one device", "name one as cuda:N")
    found = checks(device=arguments.device)
    if arguments.json:
        print_json({"checks": found, "headline": headline(found)})
        return 0
    width = max(len(check["name"]) for check in found)
    for check in found:
        print(printable(f"{check['status']:<8}{check['name']:<{width}}  {check['found']}"))
        if check["status"] in ("bad", "warn") or len(found) == 1:
            say(f"{'':<8}why: {check['why']}")
            say(f"{'':<8}fix: {check['fix']}")
    print()
    say(headline(found))
    return 0
