"""`predict`: the time of a measured workload on a GPU that you don't have, with its band and its back-test."""

from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import SEL_HELP, add_db, add_filters, add_json, filters_of
from core.errors import UserError

ROWS_SHOWN = 12


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="time on a GPU that you don't have, with its error band",
        description="Predicts a measured workload on another GPU from its operation table: time, 95 % band, memory, "
        "what "
        "would change it, and how wrong such predictions were on timings that the model had not seen.",
    )
    parser.add_argument("--from", dest="source", metavar="SEL", required=True, help=f"what was measured. {SEL_HELP}")
    parser.add_argument(
        "--to", dest="target", metavar="GPU", required=True, help="a card of the catalogue: 'T4', 'RTX 4090'"
    )
    parser.add_argument(
        "--ceiling",
        nargs="+",
        metavar="NAME=VALUE",
        default=[],
        help="what the target reaches at best: gemm_fp32_tflops, copy_gb_s, launch_us (also "
        "gemm_tf32_tflops, gemm_fp16_tflops, gemm_bf16_tflops, sm_count, memory_gb); the first two "
        "describe a card that the catalogue lacks",
    )
    parser.add_argument(
        "--price-per-hour", type=float, metavar="X", help="price of the target, for the price of one clip"
    )
    add_filters(parser)
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def ceilings_of(words: list[str]) -> dict[str, float] | None:
    """`gemm_fp32_tflops=13` ... as numbers; None without any. Raises UserError naming the word that is no such pair."""
    from core.analysis.predict.cards import CEILING_KEYS, OTHER_CEILING_KEYS

    found: dict[str, float] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in (*CEILING_KEYS, *OTHER_CEILING_KEYS):
            raise UserError(
                f"ceiling {word!r}", f"NAME=VALUE with one of {', '.join(CEILING_KEYS + OTHER_CEILING_KEYS)}"
            )
        try:
            found[name] = float(text)
        except ValueError:
            raise UserError(f"ceiling {word!r}", "a number after the =") from None
    return found or None


def execute(arguments: argparse.Namespace) -> int:
    from core.answers.predict import predict
    from core.cli.output import print_json
    from core.cli.reading import ask

    filters, ceilings = filters_of(arguments), ceilings_of(arguments.ceiling)
    answer = ask(
        arguments.db,
        (arguments.source,),
        lambda store: predict(
            store,
            arguments.source,
            arguments.target,
            filters,
            ceilings=ceilings,
            price_per_hour=arguments.price_per_hour,
        ),
    )
    if arguments.json:
        print_json(answer)
    else:
        show(answer)
    return 0


def show(answer: dict[str, Any]) -> None:
    from core import units
    from core.cli.output import say, table

    say(answer["headline"])
    print()
    rows = answer["totals"]["by_stage"]
    unit = units.time_unit([row["predicted_ms"] for row in rows])
    print(table(
        ["stage", f"on the {answer['source']['label']}", f"predicted on the {answer['target']['label']}", "95 % band"],
        [
            [row["name"], units.time_ms(row["source_ms"], unit), units.time_ms(row["predicted_ms"], unit),
             units.time_interval_ms(row["low_ms"], row["high_ms"], unit)]
            for row in rows[:ROWS_SHOWN]
        ], right=[1, 2, 3],
    ))  # fmt: skip
    memory = answer["memory"]
    if memory["fits"] is not None:
        print()
        say(
            f"Memory: {units.bytes_size(memory['peak_bytes'])} of {units.bytes_size(memory['card_bytes'])}, "
            f"{'fits' if memory['fits'] else 'does not fit'}."
        )
    if answer["price"]:
        say(
            f"Price per clip: {units.significant(answer['price']['per_clip'])} "
            f"(at {answer['price']['per_hour']:g} per hour)."
        )
    if answer["alternatives"]:
        print()
        unit = units.time_unit([row["predicted_ms"] for row in answer["alternatives"]])
        print(table(
            ["what would change it", "predicted", "95 % band", "against the above"],
            [
                [row["change"], units.time_ms(row["predicted_ms"], unit),
                 units.time_interval_ms(row["low_ms"], row["high_ms"], unit), units.ratio(row["ratio"])]
                for row in answer["alternatives"]
            ], right=[1, 2, 3],
        ))  # fmt: skip
    back = answer["backtest"]
    if back.get("median_error") is not None:
        print()
        print(table(
            [f"back-test: {back['situation']}", "operations", "median error", "nine of ten within", "inside band",
             "high / low"],
            [
                [name.replace("_", " "), units.count(row["n"]), units.percent(row["median_error"]),
                 units.percent(row["p90_error"]), units.percent(row["inside_band"]), f"{row['band_width']:.2f}"]
                for name, row in back["by_class"].items()
            ], right=[1, 2, 3, 4, 5],
        ))  # fmt: skip
        print()
    for text in answer["assumptions"]:
        say(f"- {text}")
