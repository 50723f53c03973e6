"""Two numbers of a forum: which part of the gap is normal, and where does hardware end?

`explain_two("Tesla T4=85s", "NVIDIA A100-SXM4-40GB=0.5s", precision="fp32")` gives the same answer object as an
explanation of measured runs; what two numbers cannot know is None or [].
"""
from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from typing import Any

from core import units
from core.analysis.classic import classic_estimates
from core.analysis.findings import Evidence, Side, findings, next_measurement
from core.analysis.norms import norm
from core.analysis.theory import LABELS, Expected, expected_ratios
from core.analysis.verdict import Verdict, verdict
from core.answers import sentences
from core.errors import UserError
from core.gpus import PRECISIONS, Match, by_human_name

_SECONDS = {
    **dict.fromkeys(("us", "µs", "μs", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
}
_UNITS_IN_WORDS = "us, ms, s, min, h, n X/s, s/X, FPS, TFLOPS or x (times real time)"
_NUMBER = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*")
_PER = re.compile(r"\s+per\s+", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Spellings of one item; any other word stands for itself, without a plural s.
_ITEMS = {
    "img": "image", "imgs": "image", "pic": "image", "it": "iteration", "iter": "iteration", "its": "iteration",
    "tok": "token", "toks": "token", "seq": "sequence", "seqs": "sequence", "infer": "inference",
    "fps": "frame", "batches": "batch",
}  # fmt: skip
_PRECISION_WORDS = {
    "float32": "fp32", "single": "fp32", "fp16": "fp16", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "double": "fp64", "float64": "fp64", "float8": "fp8",
}  # fmt: skip
MOST_VARIANTS = 4
_YES_NO = {
    **dict.fromkeys(("yes", "true", "included", "1"), True),
    **dict.fromkeys(("no", "false", "excluded", "0"), False),
}


@dataclass(frozen=True)
class Claim:
    """One card and one figure, as somebody reported them."""

    text: str
    match: Match
    value: float
    unit: str  # as written
    kind: str  # time, per_item (a rate or a time per item), tflops, realtime
    item: str | None  # what a rate counts: "frame"; None for the other kinds
    seconds: float  # per run, or per item; for tflops and realtime its inverse, in no unit of time

    @property
    def label(self) -> str:
        """The card, with the count where there are several."""
        name = self.match.gpu.name
        return f"{self.match.count}x {name}" if self.match.count > 1 else name


@dataclass(frozen=True)
class Facts:
    """What is said about one side. None: not said."""

    precision: str | None = None
    batch: int | None = None
    points: int | None = None
    os: str | None = None
    first_call: bool | None = None  # True: the figure includes the first call


# --- reading the figure


def parse_two(text: str) -> Claim:
    """GPU=VALUE, for example "Tesla T4=85s", "8x A100=60 min", "RTX 4060=8 FPS", "A100=1.2 s/it".

    Raises UserError for a missing part, an unknown card or unit, and a value that is not a positive number.
    """
    name, separator, figure = text.rpartition("=")
    if not separator or not name.strip() or not figure.strip():
        raise UserError(f'"{text}" is no GPU and figure', 'GPU=VALUE such as "Tesla T4=85s"', "")
    found = _NUMBER.fullmatch(figure)
    if found is None:
        raise UserError(f'"{figure.strip()}" starts with no number', f"a number and a unit: {_UNITS_IN_WORDS}", "")
    value, unit = float(found[1]), found[2] or ""
    if unit.startswith(","):
        raise UserError(f'"{figure.strip()}" has a comma', "a decimal point and no thousands separator", "")
    if not (math.isfinite(value) and value > 0):
        raise UserError(f'"{figure.strip()}" is no time or rate', "a number above zero", "")
    kind, item, seconds = _meaning(value, unit, figure.strip())
    if not (math.isfinite(seconds) and seconds > 0):
        raise UserError(f'"{figure.strip()}" is too large or too small', "a time or rate that a run can have", "")
    return Claim(text, _card(name), value, unit, kind, item, seconds)


def _card(name: str) -> Match:
    """The card that a name means. A card that nobody catalogued needs three numbers before it can be compared."""
    try:
        return by_human_name(name)
    except UserError as error:
        raise UserError(
            error.found, error.expected,
            f"{error.fix or 'check the name'}; a card that is not there needs three numbers (GPUs page: memory "
            "bandwidth, FP32 TFLOP/s, memory)",
        ) from error


def _meaning(value: float, unit: str, figure: str) -> tuple[str, str | None, float]:
    """(kind, item, seconds per run or item) of a value in a unit. Raises UserError for an unknown unit."""
    unit = _PER.sub("/", unit)
    folded = unit.lower()
    if folded in _SECONDS:
        return "time", None, value * _SECONDS[folded]
    if folded == "fps":
        return "per_item", "frame", 1 / value
    if folded in ("tflops", "tflop/s", "tflops/s"):
        return "tflops", None, 1 / value
    if folded in ("x", "×"):
        return "realtime", None, 1 / value
    over, slash, under = (part.strip() for part in unit.partition("/"))
    if slash and over.lower() in _SECONDS and _is_item(under):
        return "per_item", _item(under), value * _SECONDS[over.lower()]
    if slash and under.lower() in _SECONDS and _is_item(over):
        return "per_item", _item(over), _SECONDS[under.lower()] / value
    raise UserError(f'"{figure}" has {f"the unit {unit!r}" if unit else "no unit"}', f"one of {_UNITS_IN_WORDS}", "")


def _is_item(word: str) -> bool:
    return bool(_WORD.fullmatch(word)) and word.lower() not in _SECONDS


def _item(word: str) -> str:
    folded = word.lower()
    if folded in _ITEMS:
        return _ITEMS[folded]
    return folded[:-1] if len(folded) > 3 and folded.endswith("s") and not folded.endswith("ss") else folded


# --- reading the facts


def _precision(word: str | None) -> str | None:
    if word is None:
        return None
    folded = word.strip().lower()
    name = _PRECISION_WORDS.get(folded, folded)
    if name not in PRECISIONS:
        raise UserError(f'unknown precision "{word}"', f"one of {', '.join(PRECISIONS)}", "")
    return name


def _whole_number(name: str, value: int | str | None) -> int | None:
    if value is None:
        return None
    text = str(value).strip()
    if not re.fullmatch(r"\d{1,9}", text) or int(text) < 1:
        raise UserError(f'{name} "{value}"', "a whole number of at least one", "")
    return int(text)


def _yes_no(name: str, value: bool | str | None) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if value.strip().lower() not in _YES_NO:
        raise UserError(f'{name} "{value}"', "yes (the figure includes the first call) or no", "")
    return _YES_NO[value.strip().lower()]


def _differences(baseline: Facts, target: Facts) -> list[str]:
    """Why the two figures are not of the same work, by the facts stated."""
    reasons = []
    for name in ("batch", "points"):
        left, right = getattr(baseline, name), getattr(target, name)
        if left is not None and right is not None and left != right:
            reasons.append(f"{name} {left} on the one side, {right} on the other: not the same work")
    if (baseline.precision is None) != (target.precision is None):
        known, open_side = ("baseline", "target") if baseline.precision else ("target", "baseline")
        reasons.append(f"only the precision of the {known} is stated: add --{open_side}-precision")
    if bool(baseline.first_call) != bool(target.first_call):
        including = "baseline" if baseline.first_call else "target"
        reasons.append(f"only the figure of the {including} includes the first call (compilation, loading)")
    return reasons


def _kind_in_words(claim: Claim) -> str:
    return {
        "time": "a time of a whole run",
        "per_item": f"{'a rate' if '/' not in claim.unit else 'a figure'} per {claim.item}",
        "tflops": "TFLOPS",
        "realtime": "a multiple of real time",
    }[claim.kind]


def _mismatch(baseline: Claim, target: Claim) -> list[str]:
    """Why the two figures cannot form a ratio, by what they are."""
    reasons = []
    if (baseline.kind, baseline.item) != (target.kind, target.item):
        reasons.append(f"the one figure is {_kind_in_words(baseline)}, the other {_kind_in_words(target)}")
    if baseline.match.count != target.match.count:
        counts = f"{baseline.match.count} on the one side, {target.match.count} on the other"
        reasons.append(f"the numbers of GPUs differ ({counts}), and how they scale is not known")
    return reasons


# --- the answer


def _assumptions(baseline: Claim, target: Claim, facts: tuple[Facts, Facts], expected: Expected) -> list[str]:
    said = [claim.match.assumption for claim in (baseline, target) if claim.match.assumption]
    left, right = facts
    said.append("Reported figures: taken to be of the same model, input and settings, without an interval.")
    if left.precision is None:
        said.append("Precision not stated: FP32, torch's default and FP16 may each hold.")
    elif (left.precision, right.precision) == ("fp32", "fp32") and any(r.name == "tf32" for r in expected.readings):
        said.append("FP32 is read as IEEE FP32; whether TF32 was on is not known, its ratio stands beside.")
    if baseline.match.count == target.match.count > 1:
        said.append(f"{baseline.match.count} GPUs on both sides: the ratio includes scaling.")
    for name in ("batch", "points"):
        one_sided = [getattr(side, name) for side in facts if getattr(side, name) is not None]
        if len(one_sided) == 1:
            said.append(f"{name} {one_sided[0]} is stated for one side only and taken to hold for both.")
    if left.os and right.os and left.os.lower() != right.os.lower():
        said.append(f"{left.os} against {right.os}: the driver model differs, launches may cost more on one side.")
    if left.first_call and right.first_call:
        said.append("Both figures include the first call: compilation and loading are in the ratio.")
    said += _other_variants(baseline, target, facts)
    return [*dict.fromkeys(said), *expected.notes]


def _other_variants(baseline: Claim, target: Claim, facts: tuple[Facts, Facts]) -> list[str]:
    """What theory would say if an ambiguous name meant another of its cards; equal ratios are told once."""
    precisions = (facts[0].precision, facts[1].precision)
    stated = (None, None) if None in precisions else precisions
    told: dict[tuple[str, str], str] = {}
    for claim in (baseline, target):
        for other in claim.match.alternatives:
            cards = (other, target.match.gpu) if claim is baseline else (baseline.match.gpu, other)
            ratios = expected_ratios(*cards, *stated)
            if ratios.bandwidth is None or ratios.fp32 is None:
                continue
            words = units.ratio(ratios.bandwidth), units.ratio(ratios.executed_precision or ratios.fp32)
            arithmetic = _short(precisions[1]) if None not in stated and precisions[1] else "FP32"
            told.setdefault(words, f"With the {other.name} bandwidth would say {words[0]} and {arithmetic} {words[1]}.")
    own = expected_ratios(baseline.match.gpu, target.match.gpu, *stated)
    told.pop((units.ratio(own.bandwidth), units.ratio(own.executed_precision or own.fp32)), None)
    return list(told.values())[:MOST_VARIANTS]


def _describe(claim: Claim, facts: Facts) -> dict[str, Any]:
    return {
        "text": claim.text,
        "gpu": claim.match.gpu.name,
        "gpu_key": claim.match.gpu.key,
        "count": claim.match.count,
        "label": claim.label,
        "value": claim.value,
        "unit": claim.unit,
        "item": claim.item,
        "seconds": claim.seconds if claim.kind in ("time", "per_item") else None,
        **dataclasses.asdict(facts),
    }


def _labels(baseline: Claim, target: Claim, facts: tuple[Facts, Facts]) -> tuple[str, str]:
    """The names of the sides; the precision is added where it differs, or where the cards are the same."""
    left, right = facts
    if left.precision == right.precision or left.precision is None or right.precision is None:
        return baseline.label, target.label
    return f"{baseline.label} in {_short(left.precision)}", f"{target.label} in {_short(right.precision)}"


def _short(precision: str) -> str:
    return "torch's default FP32" if precision == "default" else LABELS[precision].split(" (")[0]


def _other_readings(ratio: float, expected: Expected) -> list[dict[str, Any]]:
    """The verdict under each other reading of a reported FP32, beside bandwidth."""
    others = []
    for reading in expected.readings:
        if reading.in_verdict or reading.ratio is None or reading.name not in ("default", "tf32"):
            continue
        ratios = [value for value in (expected.bandwidth, reading.ratio) if value is not None]
        others.append({
            "name": reading.name, "label": reading.label, "ratio": reading.ratio,
            "verdict": verdict(ratio, ratios).name,
        })  # fmt: skip
    return others


def explain_two(
    baseline: str,
    target: str,
    *,
    precision: str | None = None,
    baseline_precision: str | None = None,
    target_precision: str | None = None,
    batch: int | str | None = None,
    baseline_batch: int | str | None = None,
    target_batch: int | str | None = None,
    points: int | str | None = None,
    baseline_points: int | str | None = None,
    target_points: int | str | None = None,
    os: str | None = None,
    baseline_os: str | None = None,
    target_os: str | None = None,
    first_call: bool | str | None = None,
    baseline_first_call: bool | str | None = None,
    target_first_call: bool | str | None = None,
) -> dict[str, Any]:
    """The explanation of two reported figures, "GPU=VALUE" each, and of the facts stated about them.

    A fact without a side holds for both; one with a side wins over it. Raises UserError for what cannot be read.
    Figures that are readable but not of the same work give the verdict not_comparable, its reasons, and no ratio.
    """
    claims = parse_two(baseline), parse_two(target)
    first, second = (
        Facts(
            precision=_precision(own_precision if own_precision is not None else precision),
            batch=_whole_number("batch", own_batch if own_batch is not None else batch),
            points=_whole_number("points", own_points if own_points is not None else points),
            os=own_os if own_os is not None else os,
            first_call=_yes_no("first-call", own_first_call if own_first_call is not None else first_call),
        )
        for own_precision, own_batch, own_points, own_os, own_first_call in (
            (baseline_precision, baseline_batch, baseline_points, baseline_os, baseline_first_call),
            (target_precision, target_batch, target_points, target_os, target_first_call),
        )
    )
    return _explain(*claims, (first, second))


def _evidence(
    baseline: Claim, target: Claim, facts: tuple[Facts, Facts], ratio: float, found: Verdict, expected: Expected
) -> Evidence:
    """What two reported figures let the rules see: cards, stated facts, and where the ratio stands against theory."""
    sides = [
        Side(
            label=claim.label, card=claim.match.gpu, device_type="cuda", precision=stated.precision, reported=True,
            time_ms=claim.seconds * 1e3 if claim.kind == "time" else None, includes_first_call=stated.first_call,
            run={"os": stated.os} if stated.os else {},
        )
        for claim, stated in zip((baseline, target), facts, strict=True)
    ]
    options = "--tracker local4d" + (f" --points {facts[0].points}" if facts[0].points else "")
    return Evidence(sides[0], sides[1], ratio, found.name, found.reason, expected.verdict_ratios, options=options)


def _explain(baseline: Claim, target: Claim, facts: tuple[Facts, Facts]) -> dict[str, Any]:
    labels = _labels(baseline, target, facts)
    reasons = _mismatch(baseline, target) + _differences(*facts)
    one_sided = (facts[0].precision is None) != (facts[1].precision is None)
    precisions = (None, None) if one_sided else (facts[0].precision, facts[1].precision)
    expected = expected_ratios(baseline.match.gpu, target.match.gpu, *precisions, reported=True)
    answer: dict[str, Any] = {
        "origin": "reported",
        "baseline": _describe(baseline, facts[0]),
        "target": _describe(target, facts[1]),
        "measured_ratio": {"value": None, "low": None, "high": None},
        "expected": expected.as_dict() | {
            "classic": [
                dataclasses.asdict(estimate) for estimate in classic_estimates(baseline.match.gpu, target.match.gpu)
            ],
        },
        "norm": None,
        "own_norm": [],
        "verdict": "not_comparable",
        "verdict_reason": None,
        "readings": [],
        "factors": [],
        "residual": None,
        "not_assessed": [],
        "findings": [],
        "decide_next": None,
        "explained_ms": None,
        "ladder": [],
        "microscope": [],
        "not_comparable_because": reasons,
        "assumptions": _assumptions(baseline, target, facts, expected),
        "headline": sentences.not_comparable(*labels, reasons),
        "stages": [],
        "op_diff": [],
        "n": {"baseline": 1, "target": 1, "boards": None},
        "other_cells": [],
    }
    if reasons:
        return answer
    ratio = baseline.seconds / target.seconds
    found = verdict(ratio, expected.verdict_ratios)
    pair_norm = None
    if baseline.match.count == 1 and precisions[0] == precisions[1]:
        pair_norm = norm(baseline.match.gpu.key, target.match.gpu.key, None, precisions[0])
    if pair_norm and precisions[0] is None:
        answer["assumptions"].append("The norm is of FP32 operations, while the precision is not stated.")
    readings = _other_readings(ratio, expected)
    headline = sentences.headline(
        *labels,
        ratio=ratio,
        readings=answer["expected"]["readings"],
        verdict=found.name,
        reason=found.reason,
        found_norm=pair_norm.as_dict() if pair_norm else None,
        per_item=baseline.item,
    )
    changed = next((reading for reading in reversed(readings) if reading["verdict"] != found.name), None)
    if changed:
        headline += " " + sentences.other_reading(changed["name"], changed["ratio"], ratio, changed["verdict"])
    candidates = findings(_evidence(baseline, target, facts, ratio, found, expected))
    best = next_measurement(candidates)
    return answer | {
        "measured_ratio": {"value": ratio, "low": None, "high": None},
        "findings": [candidate.as_dict() for candidate in candidates],
        "decide_next": None if best is None else {
            "on": baseline.label if best.side == "baseline" else target.label, "measurement": best.decide_by,
            "command": best.command,
            "decides": [item.cause for item in candidates if item.command == best.command],
        },
        "norm": pair_norm.as_dict() if pair_norm else None,
        "verdict": found.name,
        "verdict_reason": found.reason,
        "readings": readings,
        "headline": headline,
    }
