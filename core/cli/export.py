"""`export`: stored cells as a file for other people and other programs."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from core.cli.options import add_db
from core.errors import UserError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "export", help="write stored runs to a file",
        description="A run, or the cells of a selection, as run-file lines (jsonl: what `ingest` takes) or as a table "
                    "with one row per repetition (csv, parquet).",
    )
    parser.add_argument("selection", metavar="RUN_ID|SEL", help="a run id, or a selection as in compare")
    parser.add_argument("--format", choices=("jsonl", "csv", "parquet"), metavar="jsonl|csv|parquet",
                        help="default: by the ending of --out, else jsonl")
    parser.add_argument("--out", metavar="FILE", help="write there instead of to stdout; .gz packs it")
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import gzip

    from core.answers.export import export
    from core.cli.output import hint
    from core.store import open_reading

    path = Path(arguments.out) if arguments.out else None
    chosen = arguments.format or _by_ending(path)
    if path is None and chosen == "parquet" and sys.stdout.isatty():
        raise UserError("parquet is binary", "a file to write it to", "add --out FILE")
    if path is not None and path.exists():
        raise UserError(f"{path.name} exists already", "a new file name")
    with open_reading(arguments.db) as store:
        data = export(store, arguments.selection, chosen)
    if path is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return 0
    try:
        with open(path, "xb") as stream:
            stream.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    except OSError as error:
        raise UserError(f"{path.name} cannot be written ({error.strerror})", "a writable folder") from None
    hint(f"Wrote {path.name} ({len(data.splitlines())} lines)." if chosen != "parquet" else f"Wrote {path.name}.")
    return 0


def _by_ending(path: Path | None) -> str:
    name = path.name.removesuffix(".gz") if path is not None else ""
    return next((ending for ending in ("csv", "parquet") if name.endswith(f".{ending}")), "jsonl")
