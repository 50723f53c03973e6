"""One gap as tables: theory, norm, stages, operations, environment of an explanation; the finding over each chart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from core import units
from core.analysis import norms
from core.analysis.verdict import WITHIN
from core.answers import sentences
from core.answers.json_values import records
from core.answers.selection import Filters
from core.charts import theme
from core.charts.tables.cells import by_cell, device_order, of_work, works
from core.charts.tables.values import Answer, quantity

_SHORT = {"bandwidth": "bandwidth", "default": "conv TF32", "tf32": "TF32"}


def reading_name(name: str) -> str:
    """A theory reading in a few letters, for a label at its line."""
    baseline, separator, target = name.partition("/")
    if separator:
        return f"{reading_name(target)} / {reading_name(baseline)}"
    return _SHORT.get(name, sentences.READING_WORDS.get(name, name))


def _kind(reading: Mapping[str, Any]) -> str:
    return "bandwidth" if reading["name"] == "bandwidth" else "compute"


def theory_lines(answer: Answer, all_readings: bool = False) -> pd.DataFrame:
    """Theory readings of an explanation as lines: name, kind, ratio, judged. Equal ratios are told once."""
    rows = [
        {"name": reading_name(r["name"]), "kind": _kind(r), "ratio": r["ratio"], "judged": bool(r["in_verdict"])}
        for r in answer["expected"]["readings"]
        if r["ratio"] is not None and (all_readings or r["in_verdict"])
    ]
    frame = pd.DataFrame(rows, columns=["name", "kind", "ratio", "judged"])
    if frame.empty:
        return frame
    frame["shown"] = [units.ratio(value) for value in frame["ratio"]]
    joined = frame.groupby(["kind", "judged", "shown"], sort=False, as_index=False).agg(
        name=("name", lambda names: ", ".join(names)), ratio=("ratio", "first")
    )
    return joined[["name", "kind", "ratio", "judged"]]


def theory_rows(answer: Answer) -> pd.DataFrame:
    """Every theory reading and the measured bandwidth beside them, one row each for `gap.theory_chart`."""
    frame = theory_lines(answer, all_readings=True)
    frame["name"] = [
        f"{name}, data sheet"
        if judged
        else f"{name}, if it was on"
        if "TF32" in name
        else f"{name} on both, not judged"
        for name, judged in zip(frame["name"], frame["judged"], strict=True)
    ]
    ceilings = answer["expected"].get("measured_ceilings") or {}
    if ceilings.get("bandwidth") is not None:
        frame.loc[len(frame)] = ["bandwidth, measured", "measured", ceilings["bandwidth"], False]
    return frame.sort_values("ratio").reset_index(drop=True)


def readings_table(answer: Answer) -> pd.DataFrame:
    """Theory readings with both cards' values and sources, for a reader who wants to check."""
    expected = answer["expected"]
    ceilings = (expected.get("measured_ceilings") or {}).get("readings", [])
    rows = [
        {
            "reading": sentences.capital(r["label"]),
            "ratio": units.ratio(r["ratio"]),
            "baseline": quantity(r["baseline_value"], r["unit"]),
            "target": quantity(r["target_value"], r["unit"]),
            "kind": kind,
            "in the verdict": "yes" if r["in_verdict"] else "no",
            "baseline source": r["baseline_source"],
            "target source": r["target_source"],
        }
        for kind, readings in (("data sheet", expected["readings"]), ("measured ceiling", ceilings))
        for r in readings
    ]
    rows += _rows_beside(expected)
    return pd.DataFrame(
        rows,
        columns=[
            "reading",
            "ratio",
            "baseline",
            "target",
            "kind",
            "in the verdict",
            "baseline source",
            "target source",
        ],
    )


def _rows_beside(expected: Mapping[str, Any]) -> list[dict[str, str]]:
    """Classic estimates, ceilings of the two boards and the ratio at the recorded clock, as rows of the readings."""
    def row(
        reading: str, ratio: float, kind: str, values: tuple[str, str], sources: tuple[str, str]
    ) -> dict[str, str]:
        return {"reading": sentences.capital(reading), "ratio": units.ratio(ratio), "baseline": values[0],
                "target": values[1], "kind": kind, "in the verdict": "no", "baseline source": sources[0],
                "target source": sources[1]}  # fmt: skip

    rows = [
        row(f"{found['metric'].replace('_', ' ')} {found['precision'] or ''}".strip(), found["ratio"],
            "measured ceiling", (units.significant(found["baseline"]), units.significant(found["target"])),
            (found["baseline_source"], found["target_source"]))
        for found in expected.get("board_ceilings") or ()
    ]  # fmt: skip
    if expected.get("executed_precision_at_clock") is not None:
        shares = expected["clock_share"]
        rows.append(row("arithmetic at the recorded clocks", expected["executed_precision_at_clock"], "recorded clock",
                        (units.percent(shares["baseline"]), units.percent(shares["target"])),
                        ("share of the maximum clock",) * 2))  # fmt: skip
    return rows + [
        row(found["name"], found["value"], "classic estimate", (units.MISSING, units.MISSING), (found["source"],) * 2)
        for found in expected.get("classic") or () if found["name"] != "memory bandwidth"
    ]  # fmt: skip


def norm_bins(answer: Answer) -> pd.DataFrame:
    """The distribution of healthy operations on the pair of an explanation: low, high, share; empty without a norm."""
    if not answer["norm"]:
        return pd.DataFrame(columns=["low", "high", "share"])
    return norms.histogram(answer["baseline"]["gpu_key"], answer["target"]["gpu_key"])[["low", "high", "share"]]


def norm_values(answer: Answer) -> dict[str, float]:
    """low, median, high, max of the norm; empty without one."""
    found = answer["norm"] or {}
    return {key: float(found[key]) for key in ("low", "median", "high", "max") if found.get(key) is not None}


def norm_finding(answer: Answer) -> str:
    """Where this gap stands among healthy operations, as the title of the strip."""
    ratio, found = answer["measured_ratio"]["value"], answer["norm"]
    if not found:
        return f"{units.ratio(ratio)} against theory; no healthy operations are timed on these chips"
    shown = units.ratio(ratio)
    if ratio > found["max"]:
        return f"{shown} lies outside: no healthy operation on these chips exceeds {units.ratio(found['max'])}"
    if ratio > found["high"]:
        return f"{shown} is rare: only one healthy operation in 200 exceeds {units.ratio(found['high'])}"
    if ratio < found["low"]:
        return f"{shown} is rare: only one healthy operation in 200 lies below {units.ratio(found['low'])}"
    return f"{shown} lies where healthy operations on these chips lie"


def norm_conditions(answer: Answer) -> str:
    """What was timed, on what, in which software."""
    found = answer["norm"]
    if not found:
        return "Ratio of times, baseline over target; data-sheet ratios as lines"
    return f"{units.count(found['n'])} operations: {found['source']}"


def norm_alt(answer: Answer) -> str:
    values = norm_values(answer)
    said = "; ".join(f"{name} {units.ratio(value)}" for name, value in values.items())
    return f"Strip of healthy operations on a ratio axis. {norm_finding(answer)}. {said}".strip()


def norm_table(answer: Answer) -> pd.DataFrame:
    """The strip as numbers: this gap, theory, and the norm."""
    rows = [{"what": "this gap", "ratio": units.ratio(answer["measured_ratio"]["value"])}]
    rows += [
        {"what": f"{name} ratio, data sheet", "ratio": units.ratio(ratio)}
        for name, ratio in zip(*(theory_lines(answer)[c] for c in ("name", "ratio")), strict=True)
    ]
    names = {
        "low": "0.5 % of healthy operations lie below",
        "median": "median of healthy operations",
        "high": "99.5 % of healthy operations lie below",
        "max": "largest of healthy operations",
    }
    rows += [{"what": names[key], "ratio": units.ratio(value)} for key, value in norm_values(answer).items()]
    return pd.DataFrame(rows)


def theory_finding(answer: Answer) -> str:
    """The title over measured against theory."""
    ratio = answer["measured_ratio"]["value"]
    low, high = answer["expected"].get("low"), answer["expected"].get("high")
    verdict = sentences.VERDICT_WORDS[answer["verdict"]]
    if low is None:
        return f"Measured {units.ratio(ratio)}; no data sheet covers both sides"
    span = units.ratio(low) if units.ratio(low) == units.ratio(high) else f"{units.ratio(low)} to {units.ratio(high)}"
    return f"Measured {units.ratio(ratio)}, hardware says {span}: {verdict}"


def theory_conditions(answer: Answer) -> str:
    """What the marks of the theory chart are."""
    return (
        f"circle bandwidth, square arithmetic, triangle measured by others; {side_names(answer)[1]} over "
        f"{side_names(answer)[0]}; blue zone: within {WITHIN:g}x of the readings that count"
    )


def reasons_table(answer: Answer) -> pd.DataFrame:
    return pd.DataFrame({"why not comparable": list(answer["not_comparable_because"])})


def short_label(side: Mapping[str, Any]) -> str:
    """A side of an explanation by the name its card is known by."""
    return theme.short_name(str(side.get("label") or side.get("gpu") or side.get("text")))


def side_names(answer: Answer) -> tuple[str, str]:
    """Both sides by name."""
    return short_label(answer["baseline"]), short_label(answer["target"])


_HARDWARE = ("compute", "bandwidth", "cache")
_ORDER = (*_HARDWARE, "clocks", "precision", "library", "host", "memory")
_SHOWN_FACTOR = 0.005
"""A factor nearer to one than this is said in one line, not drawn."""

FACTOR_WORDS = {
    "compute": "arithmetic units", "bandwidth": "memory bandwidth", "cache": "L2 cache", "clocks": "clocks",
    "precision": "precision", "library": "kernels chosen", "host": "host, launches", "memory": "memory stalls",
    "residual": "not explained",
}


def factor_steps(answer: Answer) -> pd.DataFrame:
    """The factors as steps of `gap.factor_waterfall`: hardware first, then what differs by choice, then the rest."""
    by_name = {factor["name"]: factor for factor in answer["factors"]}
    steps = [(name, by_name[name]) for name in _ORDER
             if name in by_name and abs(by_name[name]["ratio"] - 1) > _SHOWN_FACTOR]
    ends = answer["residual_interval"]
    steps.append(("residual", {"ratio": answer["residual"], **ends, "basis": "in none of the factors"}))
    rows, at = [], 1.0
    for name, factor in steps:
        kind = "residual" if name == "residual" else "hardware" if name in _HARDWARE else "software"
        span = f", {units.ratio_interval(factor['low'], factor['high'])}" if factor["low"] is not None else ""
        rows.append({
            "name": FACTOR_WORDS[name], "kind": kind, "ratio": factor["ratio"], "start": at,
            "end": at * factor["ratio"], "text": units.ratio(factor["ratio"]),
            "said": f"{FACTOR_WORDS[name]}: {units.ratio(factor['ratio'])}{span} ({factor['basis']})",
        })  # fmt: skip
        at *= factor["ratio"]
    return pd.DataFrame(rows, columns=["name", "kind", "ratio", "start", "end", "text", "said"])


def factor_finding(answer: Answer) -> str:
    """What the factors say, as the title of the waterfall."""
    steps = factor_steps(answer)
    named = steps[steps["kind"] != "residual"]
    if named.empty:
        return f"No factor differs: {units.ratio(answer['residual'])} is not explained"
    first = max(records(named), key=lambda row: abs(math.log(row["ratio"])))
    rest = units.ratio(answer["residual"])
    return f"Largest factor: {first['name']}, {units.ratio(first['ratio'])}; {rest} is not explained"


def factor_conditions(answer: Answer) -> str:
    """What the steps are, which factors are one, and which nobody could assess."""
    drawn = {"operations": "from operations of both sides", "stages": "from stages of both sides"}
    by = drawn.get(str(answer["modelled_by"]), "nothing could be modelled")
    said = [f"steps multiply to the measured ratio, {by}"]
    equal = [FACTOR_WORDS[factor["name"]] for factor in answer["factors"] if abs(factor["ratio"] - 1) <= _SHOWN_FACTOR]
    if equal:
        said.append(f"1x: {', '.join(equal)}")
    if answer["not_assessed"]:
        said.append(f"not assessed: {', '.join(FACTOR_WORDS[item['name']] for item in answer['not_assessed'])}")
    return "; ".join(said)


def factor_table(answer: Answer) -> pd.DataFrame:
    """The product as numbers: factors, residual, and what was not assessed with its reason."""
    rows = [
        {"factor": FACTOR_WORDS[factor["name"]], "ratio": units.ratio(factor["ratio"]),
         "interval": units.ratio_interval(factor["low"], factor["high"]), "evidence": factor["evidence"],
         "from": factor["basis"]}
        for factor in answer["factors"]
    ]
    ends = answer["residual_interval"]
    rows.append({"factor": FACTOR_WORDS["residual"], "ratio": units.ratio(answer["residual"]),
                 "interval": units.ratio_interval(ends["low"], ends["high"]), "evidence": "",
                 "from": "what the factors leave"})
    rows += [
        {"factor": FACTOR_WORDS[item["name"]], "ratio": "not assessed", "interval": units.MISSING, "evidence": "",
         "from": item["reason"]}
        for item in answer["not_assessed"]
    ]
    return pd.DataFrame(rows)


def top_findings(answer: Answer, most: int = 3) -> list[dict[str, str]]:
    """The first causes in words: grade, cause, size, detail, fix, measurement, command."""
    return [
        {
            "grade": sentences.GRADE_WORDS[finding["evidence"]], "evidence": finding["evidence"],
            "cause": sentences.capital(finding["cause"]),
            "size": f"{sentences.size(finding['effect'], finding['side'])} on the {finding['side']}",
            "detail": finding["detail"], "fix": finding["fix"],
            "measurement": sentences.capital(finding["decide_by"].removesuffix(finding["command"]).rstrip(": ")),
            "command": finding["command"],
        }
        for finding in answer["findings"][:most]
    ]  # fmt: skip


def no_finding(answer: Answer) -> str:
    """What is said where no rule saw anything."""
    if answer["verdict"] == "as_expected":
        return "Nothing else to blame: the gap is what the hardware allows, and no recorded fact speaks against it."
    return ("No recorded fact points at a cause. Operation tables on both sides (--ops all), ceilings and an ablation "
            "of a setting would.")


def finding_table(answer: Answer) -> pd.DataFrame:
    """All causes with grade, effect, bound, fix and the measurement that decides."""
    return pd.DataFrame(
        [
            {
                "evidence": finding["evidence"], "cause": finding["cause"], "side": finding["side"],
                "slows it by": sentences.size(finding["effect"], finding["side"]), "what was seen": finding["detail"],
                "fix": finding["fix"], "decide by": finding["decide_by"], "bounded by": finding["limit"],
            }
            for finding in answer["findings"]
        ],
        columns=["evidence", "cause", "side", "slows it by", "what was seen", "fix", "decide by", "bounded by"],
    )  # fmt: skip


def ladder_table(answer: Answer) -> pd.DataFrame:
    """Ablations of this work: one setting changed on one board."""
    return pd.DataFrame(
        [
            {
                "setting": rung["setting"], "with": rung["with"], "against": rung["without"],
                "takes": units.ratio(rung["ratio"]), "interval": units.ratio_interval(rung["low"], rung["high"]),
                "board": rung["gpu"], "of this gap": "yes" if rung["on_side"] else "no", "outputs": rung["outputs"],
            }
            for rung in answer["ladder"]
        ]
    )  # fmt: skip


def trial_table(answer: Answer) -> pd.DataFrame:
    """Operations that were tried in another way, what they would save first."""
    words = {True: "yes", False: "no", None: "not recorded"}
    return pd.DataFrame(
        [
            {
                "operation": row["op"].removeprefix("aten::"), "stage": row["stage"].replace("_", " "),
                "change": row["change"], "factor": units.ratio(row["factor"]),
                "before": units.time_ms(row["before_ms"]), "after": units.time_ms(row["after_ms"]),
                "saved per pass": units.time_ms(row["saved_ms"]), "calls": row["calls"],
                "largest difference": units.significant(row["max_abs_diff"]), "reproduced": words[row["reproduced"]],
                "kernels before": ", ".join(row["kernels_before"]), "kernels after": ", ".join(row["kernels_after"]),
                "board": row["gpu"],
            }
            for row in answer["microscope"]
        ]
    )  # fmt: skip


def ladder_label(answer: Answer) -> str:
    """The heading of the folded ladder."""
    number = len(answer["ladder"]) + len(answer["microscope"])
    return f"Ladder: one setting or operation changed ({number} trials)" if number else "Ladder: nothing tried yet"


OPS_DRAWN = 10


def op_steps(answer: Answer) -> pd.DataFrame:
    """Operations with most lost or gained kernel time as steps of `gap.lost_time`, the rest as the last one."""
    timed = [row for row in answer["op_diff"] if row["lost_ms"] is not None]
    rest_ms = sum(row["lost_ms"] for row in timed[OPS_DRAWN:])
    steps = [
        (f"{str(row['op']).removeprefix('aten::')} {row['shapes'] or ''}".strip(), str(row["stage"]), row["lost_ms"])
        for row in timed[:OPS_DRAWN]
    ]
    if len(timed) > OPS_DRAWN:
        steps.append((f"{len(timed) - OPS_DRAWN} other rows", "other", rest_ms))
    rows, at = [], 0.0
    for name, stage, lost_ms in steps:
        rows.append({"name": name, "stage": stage, "start_ms": at, "end_ms": at + lost_ms, "lost_ms": lost_ms})
        at += lost_ms
    return pd.DataFrame(rows, columns=["name", "stage", "start_ms", "end_ms", "lost_ms"])


def op_finding(answer: Answer) -> str:
    """Which operation holds most of the difference in kernel time."""
    steps = op_steps(answer)
    first, total_ms = steps.iloc[0], float(steps["lost_ms"].sum())
    verb = "loses" if first["lost_ms"] > 0 else "gains"
    told = f"{first['name']} {verb} {units.time_ms(abs(first['lost_ms']))}"
    share = first["lost_ms"] / total_ms if total_ms else 0.0
    return f"{told}, {units.percent(share)} of the difference" if 0 < share <= 1 else told


def explained_note(answer: Answer) -> str:
    """How much of the operations' lost time roofline and norm explain."""
    sums = answer["explained_ms"]
    if not sums or sums["lost_ms"] is None:
        return ""
    said = [
        f"{units.time_ms(sums['by_roofline_ms'])} by the roofline",
        *([f"{units.time_ms(sums['by_norm_ms'])} more by the norm"] if sums["by_norm_ms"] else []),
        f"{units.time_ms(sums['unexplained_ms'])} by neither",
    ]
    return f"Of {units.time_ms(sums['lost_ms'])} difference in kernel time {sentences.listed(said)}."


def stage_rows(answer: Answer) -> pd.DataFrame:
    """Stages of both sides for `gap.stage_chart`, largest difference first; stages of one side only stay."""
    frame = pd.DataFrame(
        answer["stages"], columns=["name", "baseline_ms", "target_ms", "ratio", "lost_ms", "lost_share"]
    )
    frame = frame.astype({column: float for column in frame.columns if column != "name"})
    return frame.sort_values("lost_ms", key=lambda column: column.abs(), ascending=False).reset_index(drop=True)


def stage_finding(answer: Answer) -> str:
    """Which stage holds most of the difference."""
    rows = stage_rows(answer).dropna(subset=["lost_ms"])
    if rows.empty:
        return "Stages of both sides"
    top = rows.iloc[0]
    name = top["name"].replace("_", " ")
    share = top["lost_share"]
    if pd.isna(share) or share <= 0:
        return f"The {name} differs most, by {units.time_ms(abs(top['lost_ms']))}"
    return f"The {name} makes {units.percent(min(share, 1.0))} of the difference: {units.time_ms(abs(top['lost_ms']))}"


def stage_conditions(answer: Answer) -> str:
    """Which bar is which, and what was timed."""
    baseline, target = side_names(answer)
    cuda = answer["baseline"]["event_median_ms"] is not None and answer["target"]["event_median_ms"] is not None
    kind = "CUDA-event time" if cuda else "wall time on a CPU, CUDA-event time on a GPU"
    return f"pale or hollow {baseline}, full {target}; median {kind} per stage; right: baseline / target"


def stage_table(answer: Answer) -> pd.DataFrame:
    rows = answer["stages"]
    return pd.DataFrame(
        [
            {
                "stage": row["name"].replace("_", " "),
                "baseline": units.time_ms(row["baseline_ms"]),
                "target": units.time_ms(row["target_ms"]),
                "ratio": units.ratio(row["ratio"]),
                "difference": units.time_ms(row["lost_ms"]),
                "share of the difference": units.percent(row["lost_share"]),
                "roofline ratio": units.ratio(row["roofline_ratio"]),
                "bound by, baseline": row["bound_by_baseline"] or "",
                "bound by, target": row["bound_by_target"] or "",
                "work": units.flops(row["flops_baseline"]),
                "data": units.bytes_size(row["bytes_baseline"]),
            }
            for row in rows
        ]
    )


def op_label(answer: Answer) -> str:
    """The heading of the folded op table."""
    number = len(answer["op_diff"])
    return f"Operations, one by one ({number} rows)" if number else "Operations, one by one (no op table)"


OP_NUMBERS = (
    "baseline, ms", "target, ms", "difference, ms", "by roofline, ms", "not explained, ms", "ratio", "roofline ratio",
    "norm, median", "norm, max",
)  # fmt: skip
"""Columns of the op table that hold measured or predicted numbers."""


def op_table(answer: Answer) -> pd.DataFrame:
    """Operations of both sides, most lost time first. Norms only where one of them has any."""
    table = pd.DataFrame(
        [
            {
                "operation": str(row["op"]).removeprefix("aten::"),
                "stage": (row["stage"] or "").replace("_", " "),
                "baseline, ms": row["device_ms_baseline"],
                "target, ms": row["device_ms_target"],
                "difference, ms": row["lost_ms"],
                "by roofline, ms": row["by_roofline_ms"],
                "not explained, ms": row["unexplained_ms"],
                "ratio": row["ratio"],
                "roofline ratio": row["roofline_ratio"],
                "norm, median": row["norm_median"],
                "norm, max": row["norm_max"],
                "bound by": row["bound_by_target"] or "",
                "calls": row["calls_target"],
                "launches, baseline": row["launches_baseline"],
                "launches, target": row["launches_target"],
                "shapes": row["shapes"] or "",
                "only in": "" if row["only_in"] in (None, "both") else row["only_in"],
                "kernels, baseline": ", ".join(row["kernels_baseline"] or []),
                "kernels, target": ", ".join(row["kernels_target"] or []),
            }
            for row in answer["op_diff"]
        ]
    )
    return table.drop(columns=[name for name in ("norm, median", "norm, max") if table[name].isna().all()])


def op_note(answer: Answer) -> str:
    """What the op table is, or why it says little."""
    if not answer["op_diff"]:
        return "A side has no op table: measure it with --ops all, or choose the centre size of a sweep."
    if all(row["lost_ms"] is None for row in answer["op_diff"]):
        return "The profiled pass of a side gave no device times, so operations are listed without a difference."
    return f"Device time of one profiled forward pass, most difference first. {explained_note(answer)}".rstrip()


def environment_table(answer: Answer) -> pd.DataFrame:
    """Recorded facts of both runs, what differs first."""
    rows = sorted(answer["environment"], key=lambda row: {True: 0, None: 2, False: 1}[row["differs"]])
    words = {True: "yes", False: "no", None: "not recorded"}
    return pd.DataFrame(
        [
            {
                "fact": _fact_name(row["name"]),
                "baseline": _fact(row["name"], row["baseline"]),
                "target": _fact(row["name"], row["target"]),
                "differs": words[row["differs"]],
            }
            for row in rows
        ],
        columns=["fact", "baseline", "target", "differs"],
    )


def difference_table(told: Answer) -> pd.DataFrame:
    """What differs between two runs, what can matter first. `told`: core.answers.environment.environment_diff."""
    words = {True: "yes", False: "no", None: "cannot tell"}
    return pd.DataFrame(
        [
            {
                "what differs": _fact_name(row["field"]),
                "baseline": _fact(row["field"], row["a"]),
                "target": _fact(row["field"], row["b"]),
                "can it matter": words[row["matters"]],
                "why": row["why"],
            }
            for row in told["rows"]
        ],
        columns=["what differs", "baseline", "target", "can it matter", "why"],
    )


_FACT_UNITS = {"mhz": "MHz", "w": "W", "c": "°C"}


def _fact_name(name: str) -> str:
    """A fact in words, its unit behind a comma: "power while timed, W"."""
    field, _, when = name.partition(" ")
    words, _, unit = field.rpartition("_")
    if words and unit in _FACT_UNITS:
        return f"{words.replace('_', ' ')}{f' {when}' if when else ''}, {_FACT_UNITS[unit]}"
    return name.replace("_", " ")


def _fact(name: str, value: Any) -> str:
    if value is None:
        return units.MISSING
    if name.endswith("_bytes"):
        return units.bytes_size(value)
    if isinstance(value, float):
        return units.significant(value)
    return "yes" if value is True else "no" if value is False else str(value)


def other_works(answer: Answer) -> dict[str, Mapping[str, Any]]:
    """The works that both sides have in common, in words -> their fields; the one explained first."""
    found: dict[str, Mapping[str, Any]] = {}
    if answer["workload"]:
        found[answer["workload"]["words"]] = answer["workload"]
    for row in answer["other_cells"]:
        found.setdefault(row["workload"], row)
    return found


def work_filters(work: Mapping[str, Any]) -> Filters:
    """One work of an explanation as filters."""
    variant = f":{work['variant']}" if work["variant"] else ""
    return Filters(
        tracker=(f"{work['tracker']}{variant}",),
        resolution=((work["height"], work["width"]),) if work["height"] else (),
        frames=(work["frames"],) if work["frames"] else (),
        points=(work["points"],) if work["points"] else (),
        batch=(work["batch"],),
    )


def opening_sides(cells: pd.DataFrame) -> dict[str, Any]:
    """What the Gap page opens on: the slowest against the fastest GPU of the work that most share, in FP32; with one
    GPU alone the same card in FP32 against TF32 (or its fastest other precision); else what there is.

    baseline, target: (label, catalogue key); baseline_precision, target_precision.
    """
    found = of_work(cells, records(works(cells).head(1))[0])
    cards = found[found["device_type"] == "cuda"]
    if cards.empty:
        cards = found
    precision = "fp32" if "fp32" in set(cards["precision"]) else str(cards["precision"].iloc[0])
    order = records(device_order(cards[cards["precision"] == precision]))
    slow, fast = order[0], order[-1]
    other = precision
    if slow["gpu_label"] == fast["gpu_label"]:
        have = by_cell(cards[cards["precision"] != precision]).sort_values("median_ms")
        other = (
            "tf32" if "tf32" in set(have["precision"]) else str(have["precision"].iloc[0]) if len(have) else precision
        )
    return {
        "baseline": (slow["gpu_label"], slow["gpu_key"]),
        "target": (fast["gpu_label"], fast["gpu_key"]),
        "baseline_precision": precision,
        "target_precision": other,
    }
