"""`cost`: the work of one workload without a GPU. Counted in a process of its own, since that needs torch."""
from __future__ import annotations

import argparse
import json
import subprocess
from typing import Any

from core.cli.options import add_json
from core.process import python_command


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "cost", help="work and memory of a tracker at one size, without a GPU",
        description="Flops, bytes, launches and peak memory of one forward pass, stage by stage. Nothing is timed and "
                    "no GPU is needed. Needs torch, and no database.",
    )
    parser.add_argument("--tracker", required=True, metavar="NAME[:VARIANT]",
                        help="without a variant: its default one")
    parser.add_argument("--frames", metavar="N", help="number of frames (default: 47)")
    parser.add_argument("--resolution", metavar="N|HxW", help="N or HxW (height x width; default: 256)")
    parser.add_argument("--points", metavar="N", help="query points (default: 256)")
    parser.add_argument("--batch", metavar="N", help="batch size (default: 1)")
    parser.add_argument("--precision", metavar="NAME", help="fp32 (default), default, tf32, fp16 or bf16")
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=PATH",
                        help="your copy of an official tracker's repository")
    add_json(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.cli.output import hint, print_json

    done = _counted(arguments)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        last = lines[-1].removeprefix("error: ") if lines else f"the counting process ended with {done.returncode}"
        hint(f"error: {last}")
        return 2 if done.returncode == 2 else 1
    answer = json.loads(done.stdout)
    if arguments.json:
        print_json(answer)
    else:
        _show(answer)
    return 0


def _counted(arguments: argparse.Namespace) -> subprocess.CompletedProcess[str]:
    words = [f"--tracker={arguments.tracker}"]
    for name in ("frames", "resolution", "points", "batch", "precision"):
        value = getattr(arguments, name)
        if value is not None:
            words.append(f"--{name}={value}")
    words += [f"--checkout={text}" for text in arguments.checkout]
    return subprocess.run(python_command("core.measure", "cost", *words), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)


def _show(answer: dict[str, Any]) -> None:
    from core import units
    from core.cli.output import say, table

    say(answer["headline"])
    print()
    official = answer["official"]
    headers = ["stage", "calls", "flops", "share", "moved", "launches"]
    if official:
        headers.insert(4, f"share in {official['title']}")
    rows = []
    for stage in answer["stages"]:
        row = [stage["name"], units.count(stage["calls"]), units.flops(stage["flops"]), units.percent(stage["share"]),
               units.bytes_size(stage["bytes"]), units.count(stage["launches"])]
        if official:
            row.insert(4, units.percent(stage["official_share"]))
        rows.append(row)
    print(table(headers, rows, right=range(1, len(headers))))
    print()
    if official:
        say(f"{official['title']}: {units.flops(official['flops'])} at this size.")
    say(f"Beside matrix products and convolutions: {units.flops(answer['other_flops'])}. Ops with a formula: "
        f"{units.percent(answer['coverage'])} of the launches. Counted: {answer['how']}.")
    for text in answer["assumptions"]:
        say(f"Assumed: {text}")
