"""`collector`: write collect.pyz, the one file that measures on another machine, and say what to type there."""
from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import Any

from core.cli.options import add_json
from core.errors import UserError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "collector", help="write collect.pyz, the one file to carry to another machine",
        description="Write collect.pyz: one file that measures on a machine with nothing but Python, torch and numpy "
                    "and writes one run file there. Prints the commands for a shell, Colab, Slurm and a container. "
                    "An older collect.pyz is replaced, any other file is not.",
    )
    parser.add_argument("--out", metavar="FILE", default="collect.pyz", help="where to write it (./collect.pyz)")
    add_json(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.answers.collector import build_collector, collector
    from core.cli.output import print_json, say

    data = build_collector()
    path = Path(arguments.out)
    _write(path, data)
    answer = {**collector(data), "file": str(path)}
    if arguments.json:
        print_json(answer)
        return 0
    say(answer["headline"])
    print(f"written: {path}\nsha256:  {answer['sha256']}")
    for command in answer["commands"]:
        print(f"\n{command['where']}\n")
        print("\n".join(f"    {line}" for line in command["text"].splitlines()))
    print()
    say("Bring the run file back and drop it on the Data page, or: python -m core ingest FILE")
    return 0


def _write(path: Path, data: bytes) -> None:
    """Put the file there whole or not at all. Raises UserError when another kind of file lies there."""
    from core.answers.collector import is_collector

    try:
        if path.exists() and (path.is_dir() or not is_collector(path.read_bytes())):
            raise UserError(f"{path.name} exists already and is no collector", "a new name", "give another --out")
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            temporary.write_bytes(data)
            temporary.chmod(0o755)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path.name} cannot be written ({error.strerror or error})", "a folder that you may write to",
                        "give another --out") from None
