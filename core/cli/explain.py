"""`explain`: how much of a gap is hardware, from stored runs or from two numbers."""
from __future__ import annotations

import argparse
from typing import Any

from core.cli.options import add_db, add_filters, add_json, add_sides, filters_of
from core.errors import UserError

_FACTS = ("precision", "batch", "points", "os", "first_call")
STAGES_SHOWN, OPS_SHOWN, OTHERS_SHOWN, FINDINGS_SHOWN, LADDER_SHOWN = 12, 15, 8, 5, 10


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain", help="how much of a gap is hardware: two stored sides, or two numbers from anywhere",
        description="How much of a gap the hardware explains: measured ratio, theory, norm of the pair, verdict, "
                    "factors with a residual, causes with their evidence, stages and operations. Either two stored "
                    "sides, or two reported figures (--two), which need no database.",
    )
    add_sides(parser, required=False)
    parser.add_argument("--two", nargs=2, metavar="GPU=VALUE",
                        help="'Tesla T4=85s' 'NVIDIA A100-SXM4-40GB=0.5s'; the baseline first. VALUE: a number and us, "
                             "ms, s, min, h, n X/s, s/X, FPS, TFLOPS or x (times real time)")
    add_filters(parser, leave_out=("precision", "points", "batch"))
    both = parser.add_argument_group("filters of stored sides, and facts about two numbers")
    both.add_argument("--precision", nargs="+", metavar="VALUE",
                      help="fp32, default, tf32, fp16, bf16 (with --two also fp64, fp8, int8)")
    both.add_argument("--batch", nargs="+", metavar="N")
    both.add_argument("--points", nargs="+", metavar="N", help="query points")
    facts = parser.add_argument_group("facts about two numbers (each also for one side)")
    facts.add_argument("--os", metavar="NAME")
    facts.add_argument("--first-call", nargs="?", const="yes", metavar="yes|no",
                       help="the figure includes the first call")
    for side in ("baseline", "target"):
        for name in _FACTS:
            option = name.replace("_", "-")
            extra: dict[str, Any] = {"nargs": "?", "const": "yes"} if name == "first_call" else {}
            facts.add_argument(f"--{side}-{option}", metavar="VALUE", **extra)
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.cli.output import print_json

    answer = _of_two(arguments) if arguments.two else _of_stored(arguments)
    if arguments.json:
        print_json(answer)
    else:
        show(answer)
    return 0


def _of_two(arguments: argparse.Namespace) -> dict[str, Any]:
    from core.answers.two import explain_two

    if arguments.baseline or arguments.target:
        raise UserError("--two together with --baseline or --target", "one of the two forms")
    for name in ("tracker", "resolution", "frames", "execution", "origin"):
        if getattr(arguments, name):
            raise UserError(f"--{name} together with --two", "facts about two numbers: --precision, --batch, --points, "
                                                            "--os, --first-call")
    facts: dict[str, Any] = {}
    for name in _FACTS:
        facts[name] = _single(getattr(arguments, name), name)
        for side in ("baseline", "target"):
            facts[f"{side}_{name}"] = getattr(arguments, f"{side}_{name}")
    return explain_two(*arguments.two, **facts)


def _single(value: Any, name: str) -> Any:
    """A filter takes several values, a fact one."""
    if isinstance(value, list):
        if len(value) > 1:
            raise UserError(f"--{name} {' '.join(value)}", "one value with --two",
                            f"use --baseline-{name} and --target-{name} where the sides differ")
        return value[0]
    return value


def _of_stored(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.baseline or not arguments.target:
        raise UserError("explain needs two sides", "--baseline SEL and --target SEL, or --two",
                        'for example explain --two "T4=85s" "A100=0.5s"')
    for name in ("os", "first_call", *(f"{side}_{fact}" for side in ("baseline", "target") for fact in _FACTS)):
        if getattr(arguments, name):
            raise UserError(f"--{name.replace('_', '-')} with stored sides", "a fact about two numbers, with --two",
                            "fix a field in the selection instead: h200,precision=fp32")
    from core.answers.explain import explain
    from core.cli.reading import ask

    filters = filters_of(arguments)
    return ask(arguments.db, (arguments.baseline, arguments.target),
               lambda store: explain(store, arguments.baseline, arguments.target, filters))


# --- as text ---------------------------------------------------------------------------------------------------------


def show(answer: dict[str, Any]) -> None:
    from core import units
    from core.answers.sentences import VERDICT_WORDS, meaning
    from core.cli.output import printable, say

    say(answer["headline"])
    if answer.get("conditions"):
        say(answer["conditions"])
    print()
    said = meaning(answer["verdict"], answer["verdict_reason"])
    say(f"verdict   {VERDICT_WORDS[answer['verdict']]}: {said}")
    ratio = answer["measured_ratio"]
    if ratio["value"] is not None:
        what = "reported" if answer["origin"] == "reported" else "measured"
        interval = "no interval"
        if ratio["low"] is not None:
            interval = f"95 % interval {units.ratio_interval(ratio['low'], ratio['high'])} ({ratio['interval']})"
        say(f"{what}  {units.ratio(ratio['value'])}, {interval}; baseline time / target time")
    _show_theory(answer["expected"])
    for norm in (answer["norm"], *(found for found in answer["own_norm"] if found["op_class"] == "all")):
        _show_norm(norm)
    _show_factors(answer)
    _show_findings(answer)
    _show_ladder(answer["ladder"])
    _show_stages(answer["stages"])
    _show_ops(answer["op_diff"])
    if answer["assumptions"]:
        print("\nassumed")
        for text in answer["assumptions"]:
            say(f"- {text}")
    others = answer["other_cells"]
    if others:
        print(f"\n{len(others)} more matching cell{'s' if len(others) > 1 else ''} (choose with the filters)")
        for cell in others[:OTHERS_SHOWN]:
            print(printable(f"- {cell['workload']}, {cell['setting']['precision']}: {units.ratio(cell['ratio'])}"))


def _show_theory(expected: dict[str, Any]) -> None:
    from core import units
    from core.cli.output import say

    for reading in expected["readings"]:
        if reading["ratio"] is not None:
            beside = "" if reading["in_verdict"] else " (beside the verdict)"
            say(f"theory    {units.ratio(reading['ratio'])}  {reading['label']}: "
                f"{units.significant(reading['baseline_value'])} against "
                f"{units.significant(reading['target_value'])} {reading['unit']}{beside}")
    measured = expected["measured_ceilings"]
    if measured and measured["bandwidth"] is not None:
        say(f"ceilings  {units.ratio(measured['bandwidth'])}  bandwidth that others measured on these cards")
    clocked = expected.get("executed_precision_at_clock")
    if clocked is not None and abs(clocked / expected["executed_precision"] - 1) > 0.005:
        say(f"at clock  {units.ratio(clocked)}  arithmetic at the clocks recorded while timed")
    for row in expected.get("board_ceilings") or ():
        if row["metric"] in ("copy", "gemm"):
            what = " ".join(filter(None, (row["metric"], row["precision"])))
            sources = " and ".join(dict.fromkeys((row["baseline_source"], row["target_source"])))
            say(f"board     {units.ratio(row['ratio'])}  {what}: {sources}")
    for row in expected.get("classic") or ():
        if row["name"] != "memory bandwidth":
            span = f", {units.ratio_interval(row['low'], row['high'])}" if row["low"] is not None else ""
            say(f"classic   {units.ratio(row['value'])}  {row['name']}{span} ({row['source']})")
    if expected["roofline"] is not None:
        say(f"roofline  {units.ratio(expected['roofline'])}  summed floors (least times) of {expected['roofline_of']}")
    if expected.get("roofline_measured") is not None:
        say(f"roofline  {units.ratio(expected['roofline_measured'])}  the same with measured rates: "
            f"{expected['roofline_measured_of']}")

def _show_norm(norm: dict[str, Any] | None) -> None:
    from core import units
    from core.cli.output import say

    if norm is None:
        return
    say(f"norm      {units.ratio(norm['median'])}  median of {units.count(norm['n'])} healthy operations, 99 % between "
        f"{units.ratio(norm['low'])} and {units.ratio(norm['high'])}, largest {units.ratio(norm['max'])} "
        f"({norm['source']})")


def _show_factors(answer: dict[str, Any]) -> None:
    """The product: factors, what is left, and what was not assessed."""
    from core import units
    from core.cli.output import say, table

    if answer["residual"] is None:
        return
    rows = [
        [factor["name"], units.ratio(factor["ratio"]), units.ratio_interval(factor["low"], factor["high"]),
         factor["evidence"], factor["basis"]]
        for factor in answer["factors"]
    ]
    ends = answer["residual_interval"]
    rows.append(["residual", units.ratio(answer["residual"]), units.ratio_interval(ends["low"], ends["high"]), "",
                 "not explained by the factors above"])
    print("\nfactors: their product is the ratio")
    print(table(["factor", "", "interval", "evidence", "from"], rows, right=(1,)))
    if answer["not_assessed"]:
        say("not assessed, so in the residual: "
            + "; ".join(f"{item['name']} ({item['reason']})" for item in answer["not_assessed"]))


def _show_findings(answer: dict[str, Any]) -> None:
    """Causes, best evidence first, each with its size, its fix and the measurement that decides."""
    from core import units
    from core.answers.sentences import size
    from core.cli.output import printable, say

    found = answer["findings"]
    if not found:
        return
    several = len(found) > 1 and answer["residual"] is not None
    print("\ncauses" + (" (those of one factor overlap: their sizes do not multiply)" if several else ""))
    for number, finding in enumerate(found[:FINDINGS_SHOWN], 1):
        side = finding["side"]
        say(f"{number}. {finding['evidence']}: {finding['cause']}, {size(finding['effect'], side)} on the {side}. "
            f"{finding['detail']}")
        if finding["most"] is not None and answer["residual"] is not None:
            parts = " x ".join([*finding["factors"], "residual"])
            say(f"   within: {parts} = {units.ratio(finding['most'])} on the {side}")
        say(f"   fix: {finding['fix']}")
        print(printable(f"   decide: {finding['decide_by']}"))
    if len(found) > FINDINGS_SHOWN:
        print(f"{len(found) - FINDINGS_SHOWN} more with --json")
    following = answer.get("decide_next")
    if following:
        say(f"next, on the {following['on']}: {following['measurement']} (decides "
            f"{len(following['decides'])} of {len(found)})")


def _show_ladder(rungs: list[dict[str, Any]]) -> None:
    from core import units
    from core.cli.output import table

    if not rungs:
        return
    rows = [
        [rung["setting"], rung["with"], rung["without"], units.ratio(rung["ratio"]),
         units.ratio_interval(rung["low"], rung["high"]), rung["gpu"]]
        for rung in rungs[:LADDER_SHOWN]
    ]
    print("\nablations of this work: one setting changed on one board")
    print(table(["setting", "with", "against", "takes", "interval", "board"], rows, right=(3,)))


def _show_stages(stages: list[dict[str, Any]]) -> None:
    from core import units
    from core.cli.output import table

    if not stages:
        return
    unit = units.time_unit([row[side] for row in stages for side in ("baseline_ms", "target_ms")])
    headers = ["stage", "baseline", "target", "ratio", "of baseline", "of target"]
    rows = [
        [row["name"], units.time_ms(row["baseline_ms"], unit), units.time_ms(row["target_ms"], unit),
         units.ratio(row["ratio"]), units.percent(row["baseline_share"]), units.percent(row["target_share"])]
        for row in stages[:STAGES_SHOWN]
    ]
    if any(row[f"floor_ms_{side}"] is not None for row in stages for side in ("baseline", "target")):
        headers += ["baseline floor", "target floor", "floor ratio", "bound by"]
        for shown, row in zip(rows, stages, strict=False):
            bounds = " / ".join(row[f"bound_by_{side}"] or units.MISSING for side in ("baseline", "target"))
            shown += [units.time_ms(row["floor_ms_baseline"], unit), units.time_ms(row["floor_ms_target"], unit),
                      units.ratio(row["roofline_ratio"]), bounds]
    print()
    print(table(headers, rows, right=range(1, min(len(headers), 9))))


def _show_ops(ops: list[dict[str, Any]]) -> None:
    from core import units
    from core.cli.output import table

    if not ops:
        return
    rows = [
        [row["op"], row["stage"] or "", units.time_ms(row["device_ms_baseline"]),
         units.time_ms(row["device_ms_target"]), units.ratio(row["ratio"]), units.ratio(row["roofline_ratio"]),
         units.time_ms(row["lost_ms"]), units.count(row["calls_baseline"]),
         f"{units.count(row['launches_baseline'])} / {units.count(row['launches_target'])}", _only(row["only_in"]),
         row["shapes"] or ""]
        for row in ops[:OPS_SHOWN]
    ]
    print(f"\noperations with the largest difference, in one profiled pass ({len(ops)} rows; --json has all)")
    print(table(["op", "stage", "baseline", "target", "ratio", "floor ratio", "difference", "calls", "launches", "",
                 "shapes"], rows, right=range(2, 9)))


def _only(side: str | None) -> str:
    return f"only on the {side}" if side in ("baseline", "target") else ""
