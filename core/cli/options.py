"""Options that several commands share, so that they are spelt and explained once."""
from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.answers.selection import Filters

FILTERS = ("tracker", "precision", "resolution", "frames", "points", "batch", "execution", "origin")
SEL_HELP = (
    "GPU name or key ('h200', 'cpu'), run id or run file; then ,field=value to fix a field: "
    "'h200,precision=fp32', 'a.jsonl,frames=47'"
)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout and nothing else")


def add_db(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--db", metavar="PATH", help="the database (default: GAPSCOPE_DB, else ./results.duckdb)")


def add_sides(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--baseline", metavar="SEL", required=required,
                        help=f"what the ratio is taken from. {SEL_HELP}")
    parser.add_argument("--target", metavar="SEL", required=required,
                        help="what is judged: speedup = baseline time / target time")


def add_filters(parser: argparse.ArgumentParser, leave_out: tuple[str, ...] = ()) -> None:
    group = parser.add_argument_group("filters (several values may follow each)")
    texts = {
        "tracker": "NAME or NAME:VARIANT", "precision": "fp32, default, tf32, fp16, bf16",
        "resolution": "N or HxW (height x width)", "frames": "number of frames", "points": "number of query points",
        "batch": "batch size", "execution": "eager, compile, ...",
        "origin": "measured, imported, reported, predicted (default: measured and imported)",
    }
    for name in FILTERS:
        if name not in leave_out:
            group.add_argument(f"--{name}", nargs="+", metavar="VALUE", help=texts[name])


def filters_of(arguments: argparse.Namespace) -> Filters:
    """The filters as given; raises UserError for a value that cannot be."""
    from core.answers.selection import parse_filters

    given: dict[str, Any] = {}
    for name in FILTERS:
        value = getattr(arguments, name, None)
        given[name] = [value] if isinstance(value, str) else value
    return parse_filters(**given)
