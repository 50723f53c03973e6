"""`specs [GPU]`: what a card's maker prints, where each value comes from, and what others measured on it."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_json


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "specs", help="a card's data sheet values with their sources, and its measured ceilings",
        description="Data sheet values of one card with their sources, peaks by precision and measured ceilings; "
                    "without a name, all cards. Needs no database.",
    )
    parser.add_argument("gpu", nargs="?", metavar="GPU", help="as people write it: T4, 'RTX 3090', 'A100 80GB', a key")
    add_json(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.answers.catalogue import all_specs, specs
    from core.cli.output import print_json

    answer = specs(arguments.gpu) if arguments.gpu else all_specs()
    if arguments.json:
        print_json(answer)
    elif arguments.gpu:
        _show_one(answer)
    else:
        _show_all(answer)
    return 0


def _show_all(answer: dict[str, Any]) -> None:
    from core import units
    from core.cli.output import table

    rows = [
        [
            row["key"], row["name"], row["architecture"], row["compute_capability"],
            units.significant(row["memory_gb"]), units.significant(row["memory_bandwidth_gb_s"]),
            units.significant(row["fp32_tflops"]), units.significant(row["tf32_tflops"]),
            units.significant(row["fp16_tflops"]), str(row["measured_ceilings"] or units.MISSING),
        ]
        for row in answer["gpus"]
    ]
    headers = ["key", "name", "architecture", "cc", "GB", "GB/s", "FP32", "TF32", "FP16", "ceilings"]
    print(table(headers, rows, right=range(4, 10)))
    print(f"\n{answer['headline']}")


def _show_one(answer: dict[str, Any]) -> None:
    from collections import Counter

    from core import units
    from core.cli.output import say, table

    say(answer["headline"])
    for text in answer["assumptions"]:
        say(f"Assumed: {text}")
    print()
    usual = Counter(value["source"] for value in answer["values"] if value["value"] is not None).most_common(1)[0][0]
    values = [
        [value["field"], "yes" if value["value"] is True else "no" if value["value"] is False else
         units.significant(value["value"]) if isinstance(value["value"], float) else str(value["value"]),
         value["unit"] or "", "" if value["source"] == usual else value["source"]]
        for value in answer["values"] if value["value"] not in (None, "")
    ]
    print(table(["field", "value", "unit", "another source"], values, right=[1]))
    say(f"source: {usual}")
    missing = [value["field"] for value in answer["values"] if value["value"] is None]
    if missing:
        say(f"not published: {', '.join(missing)}")
    print("\nPeaks that a PyTorch model can reach, by precision setting")
    print(table(["precision", "TFLOP/s (int8: TOPS)", "unit of the chip", "read from"],
                [[p["precision"], units.significant(p["value"]), (p["unit_name"] or "") +
                  (", emulated" if p["emulated"] else ""), p["field"] or p["source"]]
                 for p in answer["peaks"]], right=[1]))
    if answer["measured_ceilings"]:
        print("\nMeasured by others")
        print(table(["metric", "precision", "value", "unit", "tool", "source"],
                    [[c["metric"], c["precision"], units.significant(c["value"]), c["unit"], c["tool"], c["source"]]
                     for c in answer["measured_ceilings"]], right=[2]))
    else:
        print("\nNo public measurement of this card is known here.")
    if answer["notes"]:
        say(f"\nNotes: {answer['notes']}")
