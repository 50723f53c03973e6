"""`compare`: the speedup of every pair of cells that did the same work."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_db, add_filters, add_json, add_sides, filters_of

ROWS_SHOWN = 60


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare", help="speedup of a target against a baseline, per matching cell",
        description="Speedup = baseline time / target time, for every pair of cells that did the same work in the same "
                    "setting, with its 95 % interval, the theory ratios and a verdict.",
    )
    add_sides(parser, required=True)
    add_filters(parser)
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.answers.compare import compare
    from core.cli.output import print_json
    from core.cli.reading import ask

    filters = filters_of(arguments)
    answer = ask(arguments.db, (arguments.baseline, arguments.target),
                 lambda store: compare(store, arguments.baseline, arguments.target, filters))
    if arguments.json:
        print_json(answer)
    else:
        show(answer)
    return 0


def show(answer: dict[str, Any]) -> None:
    from core import units
    from core.answers.sentences import VERDICT_WORDS
    from core.cli.output import printable, say, table

    say(answer["headline"])
    rows = answer["rows"]
    if rows:
        print()
        unit = units.time_unit([row[side] for row in rows for side in ("baseline_ms", "target_ms")])
        shown = [
            [
                row["workload"], row["setting_words"], units.time_ms(row["baseline_ms"], unit),
                units.time_ms(row["target_ms"], unit), units.ratio(row["speedup"]["value"]),
                units.ratio_interval(row["speedup"]["low"], row["speedup"]["high"]), _theory(row["expected"]),
                VERDICT_WORDS[row["verdict"]], f"{row['n']['baseline']}/{row['n']['target']}",
                f"{row['processes']['baseline']}/{row['processes']['target']}",
            ]
            for row in rows[:ROWS_SHOWN]
        ]
        headers = ["workload", "setting", "baseline", "target", "speedup", "95 % interval", "theory", "verdict",
                   "n", "processes"]
        print(table(headers, shown, right=[2, 3, 4, 5, 6, 8, 9]))
        if len(rows) > ROWS_SHOWN:
            print(f"and {len(rows) - ROWS_SHOWN} more (--json shows all)")
        print()
        print(printable(
            f"baseline: {answer['baseline']['label']}; target: {answer['target']['label']}; speedup = baseline "
            f"time / target time; boards: {answer['n']['boards']}"
        ))
    show_missing(answer)
    for text in answer["assumptions"]:
        say(f"- {text}")


def show_missing(answer: dict[str, Any]) -> None:
    """Cells without a ratio: failed, of one side only, of another method, left out."""
    from core.cli.output import say

    for cell in answer["failed"]:
        say(f"No time on the {cell['side']}: {cell['workload']}, {cell['setting_words']}: {cell['status']} "
            f"({cell['reason']})")
    for side in ("baseline", "target"):
        cells = answer[f"only_{side}"]
        if cells:
            names = "; ".join(f"{cell['workload']}, {cell['setting_words']}" for cell in cells[:3])
            more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
            say(f"{len(cells)} cell{'s' if len(cells) > 1 else ''} only on the {side}: {names}{more}")
    for cell in answer["other_method"]:
        say(f"Different method versions ({cell['baseline_method']} and {cell['target_method']}), no ratio: "
            f"{cell['work_key']}")
    for cell in answer["left_out"]:
        say(f"Left out: {cell['workload']}, {cell['setting_words']}: {cell['reason']}")


def _theory(expected: dict[str, Any]) -> str:
    from core import units

    low, high = units.ratio(expected["low"]), units.ratio(expected["high"])
    return low if low == high else f"{low} to {high}"
