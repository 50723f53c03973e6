"""Every sentence that an explanation says, as templates in one place: page, command line and report say the same.

The templates take plain values. A measured run and two numbers of a forum use the same ones; `baseline` and `target`
name what was compared ("Tesla T4", or "H200 SXM 141GB in FP32" where the settings differ).
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from core import units

VERDICT_WORDS: dict[str, str] = {
    "as_expected": "as expected",
    "faster_than_expected": "faster than expected",
    "slower_than_expected": "slower than expected",
    "beyond_hardware": "beyond hardware",
    "undecided": "undecided",
    "not_comparable": "not comparable",
}

VERDICT_MEANINGS: dict[str, str] = {
    "as_expected": "The ratio lies within a factor of 1.25 of what bandwidth and arithmetic allow.",
    "faster_than_expected": "The target gains up to three times what the hardware allows, or is faster where it should "
                            "be slower.",
    "slower_than_expected": "The target gains less than the hardware allows, or is slower where it should be faster.",
    "beyond_hardware": "The ratio lies more than three times beyond what the hardware allows: something else differs.",
    "undecided": "Cannot tell: kernel launches or the host may hide the difference, or the interval covers two "
                 "verdicts.",
    "not_comparable": "The two sides did not do the same work under the same facts: no ratio is given.",
}


def meaning(verdict: str, reason: str | None) -> str:
    """What a verdict means; an undecided one has a reason of its own where no data sheet covers both sides."""
    if reason == "no_theory":
        return f"{conclusion(verdict, reason, '')}."
    return VERDICT_MEANINGS[verdict]


# What a theory ratio is called inside a sentence.
READING_WORDS: dict[str, str] = {
    "bandwidth": "bandwidth",
    "fp32": "FP32",
    "default": "TF32 (torch's default in convolutions)",
    "tf32": "TF32",
    "fp16": "FP16",
    "bf16": "BF16",
    "fp64": "FP64",
    "fp8": "FP8",
    "int8": "INT8",
}

# Measured ratios nearer to one than this are called equal.
_EQUAL = 0.005


def listed(parts: Sequence[str], last: str = "and") -> str:
    """a; a and b; a, b and c."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def capital(sentence: str) -> str:
    """The first letter in upper case, the rest untouched."""
    return sentence[:1].upper() + sentence[1:]


def reading_word(name: str) -> str:
    """A theory reading inside a sentence; "fp32/tf32" is TF32 on the target against FP32 on the baseline."""
    baseline, separator, target = name.partition("/")
    if separator:
        return f"{READING_WORDS.get(target, target)} against {READING_WORDS.get(baseline, baseline)}"
    return READING_WORDS.get(name, name)


def the(label: str) -> str:
    """A card inside a sentence: "the Tesla T4", but "8x A100" without an article."""
    return label if re.match(r"\d+x ", label) else f"the {label}"


def _turned(ratio: float) -> bool:
    """True where the target is the slower side: a headline then tells every ratio the other way round."""
    return ratio < 1 - _EQUAL


def took(baseline: str, target: str, ratio: float, per_item: str | None = None) -> str:
    """What was found: the slower side took so many times as long. Without the full stop."""
    per = f" per {per_item}" if per_item else ""
    if abs(ratio - 1) <= _EQUAL:
        if baseline == target:
            return f"Both figures of {the(target)} are equal{per}"
        return capital(f"{the(baseline)} and {the(target)} took equally long{per}")
    times = units.ratio(max(ratio, 1 / ratio))
    if baseline == target:
        slower, faster = ("first", "second") if ratio > 1 else ("second", "first")
        return f"The {slower} figure of {the(target)} is {times} as long{per} as the {faster}"
    slower, faster = (target, baseline) if _turned(ratio) else (baseline, target)
    return capital(f"{the(slower)} took {times} as long{per} as {the(faster)}")


def interval(ratio: float, low: float | None, high: float | None) -> str:
    """The interval of a measured ratio in brackets, the way round that `took` tells it; empty without one."""
    if low is None or high is None:
        return ""
    return f" ({units.ratio_interval(*((1 / high, 1 / low) if _turned(ratio) else (low, high)))})"


def theory(baseline: str, target: str, ratio: float, readings: Sequence[Mapping[str, Any]]) -> str:
    """What the data sheets say, the way round that `took` tells it, without the full stop; empty without data sheets.

    `readings`: those of the `expected` object. TF32 outside the verdict follows in brackets, unless it says the same.
    """
    power = -1 if _turned(ratio) else 1
    slower, faster = (target, baseline) if _turned(ratio) else (baseline, target)
    counted = [(r["name"], r["ratio"] ** power) for r in readings if r["in_verdict"] and r["ratio"] is not None]
    if not counted:
        return ""
    values = [value for _, value in counted]
    if all(abs(value - 1) <= _EQUAL for value in values):
        return "The data sheets say the same for both"
    if max(values) < 1 - _EQUAL:
        # The slower side should be the faster one.
        on_paper = sorted({units.ratio(1 / value): 1 / value for value in values}.items(), key=lambda item: item[1])
        span = on_paper[0][0] if len(on_paper) == 1 else f"{on_paper[0][0]} to {on_paper[-1][0]}"
        return f"On paper {the(slower)} is {span} as fast as {the(faster)}"
    bandwidth = [f"bandwidth says {units.ratio(value)}" for name, value in counted if name == "bandwidth"]
    peaks = [(name, value) for name, value in counted if name != "bandwidth"]
    text = listed([*bandwidth, *_peaks_in_words(peaks, said=bool(bandwidth))])
    tf32 = next((r for r in readings if r["name"] == "tf32" and not r["in_verdict"] and r["ratio"] is not None), None)
    if tf32 is None:
        return capital(text)
    with_tf32 = units.ratio(tf32["ratio"] ** power)
    if [units.ratio(value) for _, value in peaks] == [with_tf32]:
        return capital(f"{text} with TF32 on or off")
    return capital(f"{text} ({with_tf32} if TF32 was on)")


def _peaks_in_words(peaks: Sequence[tuple[str, float]], said: bool) -> list[str]:
    """One peak by its name; several, while the precision is not known, as a span."""
    if not peaks:
        return []
    verb = "" if said else " says"
    if len(peaks) == 1:
        return [f"{reading_word(peaks[0][0])}{verb} {units.ratio(peaks[0][1])}"]
    low, high = (units.ratio(pick(value for _, value in peaks)) for pick in (min, max))
    return [f"arithmetic{verb} {low}" if low == high else f"arithmetic{verb} {low} to {high} depending on precision"]


def norm(target: str, ratio: float, found: Mapping[str, Any] | None) -> str:
    """Where the ratio stands among healthy operations of the pair, without the full stop; empty without a norm."""
    if found is None:
        return ""
    what = f"of {units.count(found['n'])} healthy FP32 operations timed on these two chips"
    if ratio > found["max"]:
        return f"{what} none exceeded {units.ratio(found['max'])}"
    if ratio > found["high"]:
        return f"{what} only one in 200 exceeded {units.ratio(found['high'])}"
    if ratio < found["min"]:
        return f"{what} none took over {units.ratio(1 / found['min'])} as long on {the(target)}"
    if ratio < found["low"]:
        return f"{what} only one in 200 took over {units.ratio(1 / found['low'])} as long on {the(target)}"
    ends = (1 / found["high"], 1 / found["low"]) if _turned(ratio) else (found["low"], found["high"])
    return f"{what} 99 % lie between {units.ratio(ends[0])} and {units.ratio(ends[1])}"


def conclusion(verdict: str, reason: str, target: str, ratio: float | None = None) -> str:
    """What follows from a verdict, as the end of a sentence without its full stop. A slower target loses, not gains."""
    if verdict == "as_expected":
        return "so this is what the hardware allows"
    if verdict == "beyond_hardware":
        return "so hardware alone does not explain it"
    if verdict == "undecided":
        return {
            "interval": "and the interval covers two verdicts, so this cannot be decided",
            "no_theory": "No data sheet covers both sides, so theory has no say",
        }.get(reason, "so kernel launches or the host may hide the difference: this cannot be decided")
    if verdict not in ("faster_than_expected", "slower_than_expected"):
        raise ValueError(f"verdict {verdict!r} has no conclusion")
    if reason == "inverted":
        return "so the side that is stronger on paper is the slower one: the data sheets do not explain it"
    loses = ratio is not None and _turned(ratio)
    amount = "more" if (verdict == "faster_than_expected") != loses else "less"
    return f"so {the(target)} {'loses' if loses else 'gains'} {amount} than the hardware explains"


def other_reading(name: str, ratio: float, measured: float, verdict: str) -> str:
    """One more sentence where another reading of a reported precision would change the verdict."""
    allowed = 1 / ratio if _turned(measured) else ratio
    return (
        f"If {reading_word(name)} was on, {units.ratio(allowed)} would be hardware and the verdict"
        f" {VERDICT_WORDS[verdict]}: read the flags back first."
    )


def headline(
    baseline: str,
    target: str,
    ratio: float,
    readings: Sequence[Mapping[str, Any]],
    verdict: str,
    reason: str,
    low: float | None = None,
    high: float | None = None,
    found_norm: Mapping[str, Any] | None = None,
    per_item: str | None = None,
) -> str:
    """The two sentences of an explanation: what was measured; then theory, norm and what follows.

    `baseline`, `target`: the sides by name. `ratio`, `low`, `high`: baseline time / target time and its interval.
    `readings`: of the `expected` object. `verdict`, `reason`: of `core.analysis.verdict`. `found_norm`: `norm` object.
    """
    said = [part for part in (theory(baseline, target, ratio, readings), norm(target, ratio, found_norm)) if part]
    end = conclusion(verdict, reason, target, ratio)
    second = capital(f"{'; '.join(said)}, {end}" if said else end)
    return f"{took(baseline, target, ratio, per_item)}{interval(ratio, low, high)}. {second}."


def not_comparable(baseline: str, target: str, reasons: Sequence[str]) -> str:
    """The one sentence of an answer without a ratio."""
    sides = f"Two figures of {the(target)}" if baseline == target else capital(f"{the(baseline)} and {the(target)}")
    return f"{sides} cannot be compared: {'; '.join(reasons)}."


def size(effect: Mapping[str, Any], side: str) -> str:
    """The effect of a finding as what it does to the side that it slows: "3.20x", "1.00x to 2.70x", "an unknown part".

    `effect`: of a finding, a part of baseline time / target time with value, low, high.
    """
    ends = [effect["low"], effect["high"]]
    value = effect["value"]
    if side == "target":
        ends = [None if end is None else (1 / end if end else None) for end in reversed(ends)]
        value = None if value is None else 1 / value
    if value is not None:
        return units.ratio(value)
    if ends[1] is None:
        return "a part of unknown size"
    low = 1.0 if ends[0] is None else ends[0]
    return f"up to {units.ratio(ends[1])}" if low <= 1 + _EQUAL else units.ratio_interval(low, ends[1])


GRADE_WORDS: dict[str, str] = {"proved": "Proved", "observed": "Observed", "possible": "Possible"}
"""The evidence of a finding at the beginning of a sentence."""


def cause(name: str, evidence: str, side: str, finding: Mapping[str, Any]) -> str:
    """One cause in a sentence, with its grade and its size."""
    return f"{GRADE_WORDS[evidence]}: {name}, worth {size(finding['effect'], side)} on the {side}."
