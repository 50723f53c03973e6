"""How two sides compare: one ratio per pair of cells that did the same work, with interval and verdict.

Ratios of different works are never averaged: the headline speaks about one pair and names the range of the others.
What has no partner is counted and named, never filled in.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core import units
from core.analysis.findings import handicap_parts
from core.analysis.statistics import Interval, RatioInterval, median_interval, ratio_interval
from core.analysis.theory import Expected, expected_ratios
from core.analysis.verdict import Verdict, verdict
from core.answers import sentences
from core.answers.json_values import json_value, records
from core.answers.matching import (
    Cell,
    Matching,
    main_pair,
    match,
    on_one_board,
    setting_dict,
    wall_ms_by_process,
    work_dict,
    work_differences,
    work_in_words,
)
from core.answers.selection import SETTING_FIELDS, Filters, Selection, Side, select
from core.gpus import PRECISIONS as SPEC_PRECISIONS
from core.gpus import Gpu, catalogue, unknown_card
from core.records import SettingKey

if TYPE_CHECKING:
    from core.store import Store


@dataclass(frozen=True, eq=False)
class Compared:
    """One pair with its statistics and its verdict; `compare` and `explain` share it."""

    baseline: Cell
    target: Cell
    baseline_time: Interval
    target_time: Interval
    ratio: RatioInterval
    expected: Expected
    verdict: Verdict


def compare(
    store: Store, baseline: Selection | str, target: Selection | str, filters: Filters | None = None
) -> dict[str, Any]:
    """Speedup of the target per matching cell: `rows`, what is missing (`failed`, `only_baseline`, `only_target`,
    `other_method`, `left_out`), `assumptions`, `headline`, `n`.

    Raises `UserError` as `core.answers.selection.select`. Nothing in common is no error: `rows` is then empty and the
    headline says what differs.
    """
    left, right = on_one_board(select(store, baseline, filters), select(store, target, filters))
    found = match(left, right)
    kept, left_out = without_emulated(found, left, right, filters)
    pairs = compared(kept)
    return json_value({
        "baseline": side_dict(left), "target": side_dict(right),
        "differing_settings": found.differing_settings,
        "rows": [_row(pair) for pair in pairs],
        "failed": [*_failed(left, "baseline"), *_failed(right, "target")],
        "only_baseline": [_alone(cell, right) for cell in found.only_baseline],
        "only_target": [_alone(cell, left) for cell in found.only_target],
        "other_method": [
            {"work_key": a.work_key, "baseline_method": a.method, "target_method": b.method}
            for a, b in found.other_method
        ],
        "left_out": left_out,
        "assumptions": assumptions(left, right, pairs),
        "n": counts(left, right, pairs),
        "headline": _headline(left, right, found, pairs, left_out),
    })


def compared(pairs: Sequence[tuple[Cell, Cell]]) -> list[Compared]:
    """Medians, ratio with interval, theory and verdict of each pair; samples are read once per run."""
    samples = wall_ms_by_process([cell for pair in pairs for cell in pair])
    cards: dict[tuple[int, str], Gpu | None] = {}
    return [_compared(a, b, samples, cards) for a, b in pairs]


def _compared(
    baseline: Cell, target: Cell, samples: Mapping[int, list[Any]], cards: dict[tuple[int, str], Gpu | None]
) -> Compared:
    left, right = samples[id(baseline)], samples[id(target)]
    ratio = ratio_interval(left, right)
    expected = expected_ratios(
        card_of(baseline, cards), card_of(target, cards), *_spec_precisions(baseline, target),
        sms=(limited_sms(baseline), limited_sms(target)),
    )
    return Compared(
        baseline, target, median_interval(left), median_interval(right), ratio, expected,
        verdict(ratio.value, expected.verdict_ratios, ratio.low, ratio.high),
    )


def limited_sms(cell: Cell) -> int | None:
    """How many SMs a handicap left to a cell; None for all."""
    count = handicap_parts(json_value(cell.first["handicap"])).get("sm_count", "")
    return int(count) if count.isdecimal() else None


def _spec_precisions(baseline: Cell, target: Cell) -> tuple[str | None, str | None]:
    """The precision settings, where data sheets know both."""
    names = str(baseline.first["precision"]), str(target.first["precision"])
    return names if all(name in SPEC_PRECISIONS for name in names) else (None, None)


def card_of(cell: Cell, known: dict[tuple[int, str], Gpu | None] | None = None) -> Gpu | None:
    """The data sheet of a cell's card: catalogue row, or computed from what its driver reported; None for a CPU."""
    key = (id(cell.side.store), cell.run_id)
    if known is not None and key in known:
        return known[key]
    card = _card_of(cell)
    if known is not None:
        known[key] = card
    return card


def _card_of(cell: Cell) -> Gpu | None:
    from core.store import queries

    row = json_value(dict(cell.first))
    if row["device_type"] != "cuda":
        return None
    if row["gpu_key"] in catalogue():
        return catalogue()[row["gpu_key"]]
    header = json_value(records(queries.run_header(cell.side.store, cell.run_id)))[0]
    if not header["compute_capability"]:
        return None
    return unknown_card(
        header["device_name"], header["compute_capability"], header["sm_count"],
        max_sm_clock_mhz=header["max_sm_clock_mhz"], memory_clock_mhz=header["max_memory_clock_mhz"],
        bus_bits=header["memory_bus_bits"], memory_bytes=header["memory_bytes"], l2_bytes=header["l2_bytes"],
    )


def without_emulated(
    found: Matching, baseline: Side, target: Side, filters: Filters | None
) -> tuple[list[tuple[Cell, Cell]], list[dict[str, Any]]]:
    """Pairs without those where a card only emulates BF16, unless BF16 was asked for; and the pairs left out."""
    asked = "bf16" in (filters.precision if filters else ()) or any(
        side.selection.fields.get("precision") == "bf16" for side in (baseline, target)
    )
    kept, left_out = [], []
    for pair in found.pairs:
        emulating = next((cell for cell in pair if _emulated(cell)), None)
        if emulating is None or asked:
            kept.append(pair)
        else:
            reason = f"{emulating.first['gpu_label']} emulates BF16; --precision bf16 shows it"
            left_out.append({**cell_dict(pair[0]), "reason": reason})
    return kept, left_out


def _emulated(cell: Cell) -> bool:
    text = cell.first["execution_path"]
    return isinstance(text, str) and bool(json.loads(text).get("emulated_bf16"))


# --- parts of the answer ---------------------------------------------------------------------------------------------


def side_dict(side: Side) -> dict[str, Any]:
    """One side: what was written, what it was taken for, and how many boards stand behind it."""
    lines = side.lines
    return {
        "text": side.selection.text, "kind": side.kind, "label": side.label, "gpu_key": side.gpu_key,
        "gpu": lines["gpu_label"].iloc[0] if not lines.empty else None, "fields": dict(side.selection.fields),
        "boards": side.boards, "runs": sorted(lines["run_id"].unique()) if not lines.empty else [],
    }


def cell_dict(cell: Cell) -> dict[str, Any]:
    """A cell by its keys and in words, without its times."""
    row = cell.first
    return {
        "work_key": cell.work_key, "setting_key": cell.setting_key, "workload": work_in_words(row),
        "precision": row["precision"], "setting_words": setting_words(setting_dict(row)), "run_id": cell.run_id,
        "gpu": row["gpu_label"],
    }


def _alone(cell: Cell, other: Side) -> dict[str, Any]:
    """A cell of one side; `partner` says how it ended on the other side, None where it was never tried there."""
    same = (other.failed["work_key"] == cell.work_key) & (other.failed["setting_key"] == cell.setting_key)
    partner = records(other.failed.loc[same, ["status", "reason"]].head(1))
    return {**cell_dict(cell), "partner": partner[0] if partner else None}


def time_dict(cell: Cell, time: Interval) -> dict[str, Any]:
    """A cell's time with where it comes from."""
    row = cell.first
    return {
        "run_id": cell.run_id, "started_at": row["started_at"], "gpu": row["gpu_label"], "gpu_key": row["gpu_key"],
        "origin": row["origin"], "median_ms": time.value, "low_ms": time.low, "high_ms": time.high,
        "interval": time.kind, "n": time.n, "processes": time.processes, "setting": setting_dict(row),
        "setting_key": cell.setting_key, "torch": row["torch"], "cuda": row["cuda"], "driver": row["driver"],
        "first_call_ms": row["first_call_ms"], "peak_bytes": row["peak_bytes"],
        "boards": len(cell.boards), "uuid_hash": row["uuid_hash"],
    }


def ratio_dict(ratio: RatioInterval) -> dict[str, Any]:
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high, "interval": ratio.kind}


def _row(pair: Compared) -> dict[str, Any]:
    work = work_dict(pair.baseline.first)
    return {
        "work_key": pair.baseline.work_key, "workload": work_in_words(pair.baseline.first), **work,
        "setting": setting_dict(pair.baseline.first), "target_setting": setting_dict(pair.target.first),
        "precision": precision_in_words(pair), "setting_words": setting_in_words(pair), "method": pair.baseline.method,
        "baseline_ms": pair.baseline_time.value, "target_ms": pair.target_time.value,
        "speedup": ratio_dict(pair.ratio), "verdict": pair.verdict.name, "verdict_reason": pair.verdict.reason,
        "expected": {
            "bandwidth": pair.expected.bandwidth, "fp32": pair.expected.fp32,
            "executed_precision": pair.expected.executed_precision,
            "low": pair.verdict.expected_low, "high": pair.verdict.expected_high,
        },
        "n": {"baseline": pair.ratio.n_baseline, "target": pair.ratio.n_target},
        "processes": {"baseline": pair.ratio.processes_baseline, "target": pair.ratio.processes_target},
        "boards": boards_of(pair),
        "baseline": time_dict(pair.baseline, pair.baseline_time), "target": time_dict(pair.target, pair.target_time),
    }


def boards_of(pair: Compared) -> int:
    """Distinct boards behind one ratio, both sides together."""
    return len(pair.baseline.boards | pair.target.boards)


def setting_in_words(pair: Compared) -> str:
    """`fp32`; with what is not torch's usual beside it: `fp32, cudnn.benchmark on`; both sides where they differ."""
    left, right = (setting_words(setting_dict(cell.first)) for cell in (pair.baseline, pair.target))
    return left if left == right else f"{left} against {right}"


_USUAL = dataclasses.asdict(SettingKey(precision="fp32"))


def setting_words(setting: Mapping[str, Any], names: Sequence[str] = SETTING_FIELDS) -> str:
    """A setting in words: its precision, then what is not as usual. `names`: of which settings only."""
    parts = [str(setting["precision"])] if "precision" in names else []
    for name in names:
        value = setting.get(name)
        if name != "precision" and value != _USUAL[name]:
            parts.append(_SETTING_WORDS.get((name, value)) or
                         (handicaps_in_words(value) if name == "handicap" else f"{name.replace('_', ' ')} {value}"))
    return ", ".join(parts)


_SETTING_WORDS = {
    ("cudnn_benchmark", True): "cudnn.benchmark on", ("memory_format", "channels_last"): "channels_last",
    ("execution", "compile"): "compiled", ("execution", "cudagraph"): "captured as a CUDA graph",
    ("execution", "cast"): "cast beforehand", ("sdp_backend", "math"): "attention without fused kernels",
}
_HANDICAP_WORDS = {
    "sm_count": "{} SMs", "alloc_cap_gb": "at most {} GB", "bandwidth_copies": "{} streams of copies beside",
    "bandwidth_share": "{} of the bandwidth", "host_cores": "{} host core(s)", "launch_delay_us": "every operation "
    "{} us later", "cold_l2": "L2 cache flushed", "tf32": "TF32 {}",
}


def handicaps_in_words(text: Any) -> str:
    """`launch_delay_us=10+sm_count=40` -> "every operation 10 us later, 40 SMs"; an unknown one by its name."""
    return ", ".join(_HANDICAP_WORDS.get(name, f"{name.replace('_', ' ')} {{}}").format(value)
                     for name, value in handicap_parts(text).items())


def precision_in_words(pair: Compared) -> str:
    """`fp32`, or `fp32 against tf32` (baseline against target)."""
    left, right = str(pair.baseline.first["precision"]), str(pair.target.first["precision"])
    return left if left == right else f"{left} against {right}"


def counts(left: Side, right: Side, pairs: Sequence[Compared]) -> dict[str, Any]:
    """Repetitions, processes and boards behind all ratios."""
    boards = {board for pair in pairs for cell in (pair.baseline, pair.target) for board in cell.boards}
    return {
        "cells": len(pairs),
        "baseline": sum(pair.ratio.n_baseline for pair in pairs), "target": sum(pair.ratio.n_target for pair in pairs),
        "boards": len(boards), "baseline_boards": left.boards, "target_boards": right.boards,
    }


def assumptions(left: Side, right: Side, pairs: Sequence[Compared]) -> list[str]:
    """What a reader must take on trust: names read, one board a side, software that differs, thin intervals."""
    said = [*left.assumptions, *right.assumptions]
    if pairs and all(pair.baseline.run_id == pair.target.run_id and pair.baseline.seqs == pair.target.seqs
                     for pair in pairs):
        said.append("Both sides are the same measurement: the ratio says nothing.")
    for side in dict.fromkeys((left.gpu_key or left.label, right.gpu_key or right.label)):
        own = left if side == (left.gpu_key or left.label) else right
        if own.boards == 1:
            what = "machine with" if own.gpu_key == "cpu" else "board of"
            said.append(f"One {what} {sentences.the(_device(own))} was measured: the ratio supports a claim about "
                        f"that {what.split()[0]}.")
    if any(pair.ratio.kind == "within-process" for pair in pairs):
        said.append("Fewer than five processes on a side: the interval is over repetitions within them; another "
                    "process may differ by more.")
    if any(pair.ratio.kind is None for pair in pairs):
        said.append("Fewer than three repetitions on a side: no interval.")
    if any(pair.verdict.reason == "no_theory" for pair in pairs):
        said.append("A side has no data sheet (a CPU, or a card that tells too little): theory has no say, and the "
                    "verdict is undecided.")
    for name in ("torch", "cuda", "driver"):
        found = [sorted({cell.first[name] for cell in cells if isinstance(cell.first[name], str)})  # missing is NaN
                 for cells in ([pair.baseline for pair in pairs], [pair.target for pair in pairs])]
        if found[0] and found[1] and found[0] != found[1]:
            said.append(f"{name} differs: {', '.join(found[0])} against {', '.join(found[1])}.")
    said += [note for pair in pairs for note in pair.expected.notes]
    return list(dict.fromkeys(said))


def _device(side: Side) -> str:
    return str(side.lines["gpu_label"].iloc[0])


def _failed(side: Side, name: str) -> list[dict[str, Any]]:
    return [
        {
            "side": name, "work_key": row["work_key"], "setting_key": row["setting_key"],
            "workload": work_in_words(row), "precision": row["precision"],
            "setting_words": setting_words(setting_dict(row)), "status": row["status"],
            "reason": row["reason"], "run_id": row["run_id"],
        }
        for row in records(side.failed)
    ]


# --- in words --------------------------------------------------------------------------------------------------------


def labels_of(pair: Compared) -> tuple[str, str]:
    """The two sides by name; the setting is added where it differs (and so where the cards are the same)."""
    left, right = (str(cell.first["gpu_label"]) for cell in (pair.baseline, pair.target))
    a, b = setting_dict(pair.baseline.first), setting_dict(pair.target.first)
    differing = [name for name in a if a[name] != b[name]]
    if differing:
        return f"{left} {_settings(a, differing)}", f"{right} {_settings(b, differing)}"
    if left == right:
        return f"{left} of run {pair.baseline.run_id}", f"{right} of run {pair.target.run_id}"
    return left, right


def _settings(setting: Mapping[str, Any], names: Sequence[str]) -> str:
    parts = []
    for name in names:
        value = setting[name]
        if name == "precision":
            parts.append(sentences.READING_WORDS.get(str(value), str(value)).split(" (")[0]
                         if value != "default" else "torch's default FP32")
        else:
            parts.append(setting_words(setting, [name]) or _usual_in_words(name))
    first = f"in {parts.pop(0)}" if names[0] == "precision" else ""
    return f"{first} {f'with {sentences.listed(parts)}' if parts else ''}".strip()


def _usual_in_words(name: str) -> str:
    """What is said of the side that has the usual value of a setting, where the other side has not."""
    return {"handicap": "no handicap", "cudnn_benchmark": "cudnn.benchmark off"}.get(
        name, f"{name.replace('_', ' ')} {_USUAL[name]}")


def sentence_of(pair: Compared) -> str:
    """What was found about one pair, with interval, absolute times and n."""
    left, right = labels_of(pair)
    took = sentences.took(left, right, pair.ratio.value)
    interval = sentences.interval(pair.ratio.value, pair.ratio.low, pair.ratio.high)
    return f"{took}{interval}: {times_in_words(pair)} for {work_in_words(pair.baseline.first)}, {_order(pair)}"


def times_in_words(pair: Compared) -> str:
    """Both times in one unit, the slower side first, as the sentence before tells them."""
    unit = units.time_unit([pair.baseline_time.value, pair.target_time.value])
    slower_first = sorted((pair.baseline_time.value, pair.target_time.value), reverse=True)
    return f"{units.time_ms(slower_first[0], unit)} against {units.time_ms(slower_first[1], unit)}"


def _order(pair: Compared) -> str:
    """Precision and n in the order of the sentence: the slower side first."""
    precisions = [str(cell.first["precision"]) for cell in (pair.baseline, pair.target)]
    n = [pair.ratio.n_baseline, pair.ratio.n_target]
    if pair.ratio.value < 1:
        precisions.reverse()
        n.reverse()
    return f"{' against '.join(dict.fromkeys(precisions))} (n {n[0]} and {n[1]})"


def _headline(
    left: Side, right: Side, found: Matching, pairs: Sequence[Compared], left_out: Sequence[Mapping[str, Any]]
) -> str:
    if not pairs:
        return sentences.not_comparable(left.label, right.label, why_nothing(left, right, found, left_out))
    chosen = main_pair([(pair.baseline, pair.target) for pair in pairs])
    main = next(pair for pair in pairs if (pair.baseline, pair.target) == chosen)
    words = sentences.VERDICT_WORDS[main.verdict.name]
    text = f"{sentence_of(main)}. Verdict: {words}."
    if len(pairs) > 1:
        values = [pair.ratio.value for pair in pairs]
        text += (f" Over {len(pairs)} matching cells the ratio runs from {units.ratio(min(values))} to "
                 f"{units.ratio(max(values))}.")
    return text


def why_nothing(
    left: Side, right: Side, found: Matching, left_out: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """Why two sides have no pair: nothing ok, another method, or the nearest works and what differs between them."""
    reasons = []
    for side, name in ((left, "baseline"), (right, "target")):
        if side.lines.empty:
            first = side.failed.iloc[0] if not side.failed.empty else None
            told = f" ({first['status']}: {first['reason']})" if first is not None else ""
            reasons.append(f"the {name} has no measured cell{told}")
    if reasons:
        return reasons
    if found.other_method:
        a, b = found.other_method[0]
        return [f"measured by different versions of the method ({a.method} and {b.method}): measure one side again"]
    if left_out:
        return [str(left_out[0]["reason"])]
    return nearest_differences(found.only_baseline, found.only_target)


def nearest_differences(left: Sequence[Cell], right: Sequence[Cell]) -> list[str]:
    """What separates the two most similar cells of two sides."""
    best: list[str] = []
    for a in left:
        for b in right:
            differing = work_differences(a.first, b.first)
            if not differing:
                one, other = setting_dict(a.first), setting_dict(b.first)
                differing = [f"{name} {one[name]} against {other[name]}" for name in one if one[name] != other[name]]
            if differing and (not best or len(differing) < len(best)):
                best = differing
    return best or ["no work in common"]
