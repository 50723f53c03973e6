"""Why two measured sides differ: ratio with interval, theory, norm, verdict, factors, findings, and where time went.

Same answer object as `two.explain_two`.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from core import units
from core.analysis.classic import classic_estimates
from core.analysis.factors import Factors, factors
from core.analysis.findings import LIMIT_OF_SETTING, Ablation, Evidence, Finding, Trial, findings, lone_difference
from core.analysis.norms import NORM_PRECISIONS, Norm, workload_norm
from core.analysis.op_diff import explained_sums, op_diff, stage_diff
from core.analysis.roofline import (
    Ceilings,
    measured_ceilings,
    roofline,
    roofline_ratio,
    spec_ceilings,
    stages_from_ops,
)
from core.analysis.statistics import log_ratio_draws
from core.analysis.theory import expected_ratios
from core.answers import evidence, sentences
from core.answers.compare import (
    Compared,
    assumptions,
    boards_of,
    card_of,
    compared,
    labels_of,
    limited_sms,
    precision_in_words,
    ratio_dict,
    side_dict,
    time_dict,
    why_nothing,
    without_emulated,
)
from core.answers.json_values import json_value, records
from core.answers.matching import (
    Cell,
    Matching,
    cells_of,
    main_pair,
    match,
    on_one_board,
    setting_dict,
    wall_ms_by_process,
    work_dict,
    work_in_words,
)
from core.answers.selection import Filters, Selection, Side, select
from core.gpus import PRECISIONS as SPEC_PRECISIONS
from core.gpus import Gpu

if TYPE_CHECKING:
    from core.store import Store

OP_ROWS = 200
OTHER_OPS = "(other operations)"
SAME_WORK = 0.01
"""Counted work follows from the workload alone: from this relative difference on, two sides did not do the same."""
_ENVIRONMENT = (
    "torch", "cuda", "cudnn", "driver", "python", "os", "platform", "cpu", "cores", "ram_bytes", "sm_count",
    "memory_bytes", "max_sm_clock_mhz", "max_memory_clock_mhz", "power_limit_w", "ecc", "mig", "pcie_generation",
    "pcie_width", "persistence", "virtualization",
)


def explain(
    store: Store, baseline: Selection | str, target: Selection | str, filters: Filters | None = None
) -> dict[str, Any]:
    """The explanation of one common cell of two sides; the other ones are listed in `other_cells`.

    The founding size is taken if it is common, else the largest work; FP32 first. Raises `UserError` as `select`.
    Sides that share no work give the verdict not_comparable with its reasons, and no ratio.
    """
    left, right = on_one_board(select(store, baseline, filters), select(store, target, filters))
    found = match(left, right)
    pairs, left_out = without_emulated(found, left, right, filters)
    if not pairs:
        return json_value(_not_comparable(left, right, found, left_out))
    chosen = _main_pair(pairs)
    others = [pair for pair in pairs if pair is not chosen]
    unlike = _other_work(*chosen)
    if unlike is not None:
        return json_value(_not_comparable(left, right, found, left_out, [unlike]))
    return json_value(_explained(left, right, compared([chosen])[0], others))


def _main_pair(pairs: Sequence[tuple[Cell, Cell]]) -> tuple[Cell, Cell]:
    """The main pair; at its size and in its precisions one with operation tables on both sides goes before it."""
    chosen = main_pair(pairs)
    alike = [
        pair for pair in pairs
        if pair[0].size == chosen[0].size
        and all(a.first["precision"] == b.first["precision"] for a, b in zip(pair, chosen, strict=True))
        and all(any(line["has_ops"] for line in cell.lines) for cell in pair)
    ]
    return main_pair(alike) if alike else chosen


def _other_work(baseline: Cell, target: Cell) -> str | None:
    """Why two cells of one work key did not do the same work after all, by what was counted; None where they did."""
    counted = [_stage_table(cell)["flops"] for cell in (baseline, target)]
    if any(column.isna().any() or not len(column) for column in counted):
        return None
    left, right = (float(column.sum()) for column in counted)
    if not left or not right or abs(left / right - 1) <= SAME_WORK:
        return None
    return (f"{units.flops(left)} were counted on the baseline and {units.flops(right)} on the target under one work "
            "key: the two sides did not do the same work")


def _explained(
    left: Side, right: Side, pair: Compared, others: Sequence[tuple[Cell, Cell]]
) -> dict[str, Any]:
    facts = evidence.read(pair.baseline), evidence.read(pair.target)
    cards = facts[0].card, facts[1].card
    own = facts[0].board_ceilings(), facts[1].board_ceilings()
    ceilings = _ceilings(cards, own, pair)
    found_ops = _ops(pair.baseline), _ops(pair.target)
    ops = found_ops[0][0], found_ops[1][0]
    differing = _op_table(ops, ceilings, pair)
    stages, floors = _stages(pair, ops, ceilings)
    found_norm = _norm(differing, pair)
    expected = pair.expected.as_dict()
    expected["roofline"] = roofline_ratio(*floors)
    expected["roofline_of"] = ("operations" if _both(ops) else "stages") if expected["roofline"] else None
    expected |= _beside_theory(pair, facts, own, ops)
    labels = labels_of(pair)
    read = _evidence(pair, facts, labels, ops, differing, stages)
    causes = findings(read)
    said = assumptions(left, right, [pair])
    said += [note for _, note in found_ops if note]
    said += [f"No op table on the {name}: measure it with `run --ops all` to see operations."
             for name, table in (("baseline", ops[0]), ("target", ops[1])) if table is None]
    if found_norm:
        said.append("Norm from another stack (torch 2.1), its classes weighted by this workload's time.")
    return {
        "origin": "measured",
        "baseline": _described(left, pair.baseline, pair, labels[0]),
        "target": _described(right, pair.target, pair, labels[1]),
        "workload": {"work_key": pair.baseline.work_key, "words": work_in_words(pair.baseline.first),
                     **work_dict(pair.baseline.first)},
        "precision": precision_in_words(pair),
        "measured_ratio": ratio_dict(pair.ratio),
        "expected": expected,
        "norm": found_norm.as_dict() if found_norm else None,
        "own_norm": [own_class.as_dict() for own_class in evidence.own_norm(pair)],
        "verdict": pair.verdict.name,
        "verdict_reason": pair.verdict.reason,
        "readings": [],
        **_factor_parts(read.factors),
        "findings": [cause.as_dict() for cause in causes],
        "explained_ms": explained_sums(differing) if differing is not None else None,
        "ladder": [_rung(ablation) for ablation in read.ablations],
        "microscope": [_trial_row(trial) for trial in read.trials],
        "not_comparable_because": [],
        "assumptions": said,
        "headline": sentences.headline(
            *labels, ratio=pair.ratio.value, readings=expected["readings"], verdict=pair.verdict.name,  # type: ignore[arg-type]
            reason=pair.verdict.reason, low=pair.ratio.low, high=pair.ratio.high,
            found_norm=found_norm.as_dict() if found_norm else None,
        ) + _cause_sentence(causes),
        "conditions": _conditions(pair),
        "stages": stages,
        "op_diff": _op_rows(differing),
        "environment": _environment(pair, facts),
        "n": {
            "baseline": pair.ratio.n_baseline, "target": pair.ratio.n_target, "boards": boards_of(pair),
            "baseline_processes": pair.ratio.processes_baseline, "target_processes": pair.ratio.processes_target,
        },
        "other_cells": [_other(a, b) for a, b in others],
    }


def _evidence(
    pair: Compared, facts: tuple[evidence.Facts, evidence.Facts], labels: tuple[str, str],
    ops: tuple[pd.DataFrame | None, pd.DataFrame | None],
    differing: pd.DataFrame | None, stages: Sequence[Mapping[str, Any]],
) -> Evidence:
    """Everything that the rules read, the factors among it."""
    sides = [
        evidence.side(found, label, table) for found, label, table in zip(facts, labels, ops, strict=True)
    ]
    lone = None
    if evidence.same_machine(*sides):
        lone = lone_difference(setting_dict(pair.baseline.first), setting_dict(pair.target.first))
    limit = LIMIT_OF_SETTING.get(lone[0]) if lone else None
    if differing is not None:
        scaled = _not_beyond_stages(differing, stages)
        differing = differing.assign(**{f"in_pass_ms_{name}": scaled[f"device_ms_{name}"]
                                        for name in ("baseline", "target")})
    samples = wall_ms_by_process([pair.baseline, pair.target])
    by_process = samples[id(pair.baseline)], samples[id(pair.target)]
    return Evidence(
        sides[0], sides[1], pair.ratio.value, pair.verdict.name, pair.verdict.reason, pair.expected.verdict_ratios,
        factors(
            _work_rows(differing, stages, limit), *evidence.machines(facts, ops), pair.ratio.value,
            log_ratio_draws(*by_process), limit,
        ),
        differing, tuple(evidence.ablations(pair)), tuple(evidence.trials(pair, ops)), lone[0] if lone else None,
        evidence.options_of(pair.baseline.first), evidence.one_host(*facts),
    )


def _work_rows(
    differing: pd.DataFrame | None, stages: Sequence[Mapping[str, Any]], limit: str | None
) -> pd.DataFrame:
    """The work as operations where both sides timed them, else as stages.

    What the host or the allocator loses lies between the kernels: under a limit of those the stages show it.
    """
    if differing is not None and limit not in ("host", "memory"):
        times = differing[["device_ms_baseline", "device_ms_target"]].sum()
        if (times > 0).all():
            return _not_beyond_stages(differing, stages)
    names = ("flops", "bytes", "launches", "calls")
    return pd.DataFrame(
        [
            {"stage": row["name"], "only_in": row["only_in"],
             **{f"{name}_{side}": row[f"{name}_{side}"] for side in ("baseline", "target") for name in names},
             **{f"device_ms_{side}": row[f"{side}_ms"] for side in ("baseline", "target")}}
            for row in stages
        ],
        columns=["stage", "only_in", *(f"{name}_{side}" for side in ("baseline", "target")
                                       for name in (*names, "device_ms"))],
    )


def _not_beyond_stages(differing: pd.DataFrame, stages: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Operations whose times sum to no more than their stage took while it was timed.

    A profiled pass may be slower than the timed ones (other kernels, kernels side by side); the ratio is of those.
    """
    scaled = differing.copy()
    for side in ("baseline", "target"):
        column = f"device_ms_{side}"
        timed = {row["name"]: row[f"{side}_ms"] for row in stages}
        summed = differing.groupby("stage")[column].sum()
        share = {name: min(1.0, timed[name] / total) for name, total in summed.items()
                 if timed.get(name) and total > 0}
        scaled[column] = differing[column] * differing["stage"].map(share).fillna(1.0)
    return scaled


def _factor_parts(found: Factors | None) -> dict[str, Any]:
    if found is None:
        return {
            "factors": [], "not_assessed": [], "residual": None, "residual_interval": None, "modelled_by": None,
        }
    return {
        "factors": found.as_dicts(),
        "not_assessed": [{"name": item.name, "reason": item.reason} for item in found.not_assessed],
        "residual": found.residual,
        "residual_interval": {"low": found.residual_low, "high": found.residual_high},
        "modelled_by": found.modelled_by,
    }


def _rung(ablation: Ablation) -> dict[str, Any]:
    """One ablation of the ladder: the slower value of a setting against the other one, on one board."""
    return {
        "setting": ablation.setting, "with": ablation.with_, "without": ablation.without, "ratio": ablation.ratio,
        "low": ablation.low, "high": ablation.high, "gpu": ablation.gpu, "on_side": ablation.on_side,
        "runs": list(ablation.runs), "outputs": ablation.outputs,
    }


def _trial_row(trial: Trial) -> dict[str, Any]:
    return {
        "op": trial.op, "stage": trial.stage, "change": trial.change, "factor": trial.factor,
        "before_ms": trial.before_ms, "after_ms": trial.after_ms, "calls": trial.calls, "saved_ms": trial.saved_ms,
        "kernels_before": list(trial.kernels_before), "kernels_after": list(trial.kernels_after), "gpu": trial.gpu,
        "low": trial.low, "high": trial.high, "n": trial.n, "shapes": trial.shapes, "on_board": trial.on_board,
        "on_side": trial.on_side, "reproduced": trial.reproduced, "agrees": trial.agrees,
        "max_abs_diff": trial.max_abs_diff,
    }


def _cause_sentence(causes: Sequence[Finding]) -> str:
    """One more sentence of the headline: the first cause for which there is evidence of this gap."""
    shown = [cause for cause in causes if cause.evidence != "possible"]
    first = next((cause for cause in shown if not cause.is_the_pair), next(iter(shown), None))
    return "" if first is None else f" {sentences.cause(first.cause, first.evidence, first.side, first.as_dict())}"


def _not_comparable(
    left: Side, right: Side, found: Matching, left_out: Sequence[Mapping[str, Any]],
    reasons: Sequence[str] | None = None,
) -> dict[str, Any]:
    reasons = list(reasons or why_nothing(left, right, found, left_out))
    cells = [next(iter(cells_of(side)), None) for side in (left, right)]
    cards = [card_of(cell) if cell else None for cell in cells]
    return {
        "origin": "measured", "baseline": side_dict(left), "target": side_dict(right), "workload": None,
        "precision": None, "measured_ratio": {"value": None, "low": None, "high": None, "interval": None},
        "expected": expected_ratios(cards[0], cards[1]).as_dict(), "norm": None, "own_norm": [],
        "verdict": "not_comparable",
        "verdict_reason": None, "readings": [], **_factor_parts(None), "findings": [], "explained_ms": None,
        "ladder": [], "microscope": [], "not_comparable_because": reasons,
        "assumptions": [*left.assumptions, *right.assumptions],
        "headline": sentences.not_comparable(left.label, right.label, reasons), "conditions": None, "stages": [],
        "op_diff": [], "environment": [], "n": {"baseline": 0, "target": 0, "boards": 0}, "other_cells": [],
    }


def _described(side: Side, cell: Cell, pair: Compared, label: str) -> dict[str, Any]:
    """One side: what was chosen, its time, and the facts recorded beside the time."""
    time = pair.baseline_time if cell is pair.baseline else pair.target_time
    row = cell.first
    return {
        **side_dict(side), **time_dict(cell, time), "label": label, "precision": row["precision"],
        "value": time.value, "unit": "ms", "seconds": time.value / 1e3,
        "kernel_busy_ms": cell.middle("kernel_busy_ms"), "host_gap_ms": cell.middle("host_gap_ms"),
        "event_median_ms": cell.middle("event_median_ms"), "execution_path": row["execution_path"],
    }


def _middle(values: pd.Series) -> float | None:
    """Median over worker processes; None where none of them has a value."""
    known = pd.to_numeric(values, errors="coerce").dropna()
    return float(known.median()) if len(known) else None


def _conditions(pair: Compared) -> str:
    """What was measured and on how much: the line under the headline."""
    unit = units.time_unit([pair.baseline_time.value, pair.target_time.value])
    ratio = pair.ratio
    boards = boards_of(pair)
    day = max(str(cell.first["started_at"] or "")[:10] for cell in (pair.baseline, pair.target))
    return (
        f"{work_in_words(pair.baseline.first)}, {precision_in_words(pair)}: "
        f"baseline {units.time_ms(pair.baseline_time.value, unit)}, "
        f"target {units.time_ms(pair.target_time.value, unit)}; "
        f"n {ratio.n_baseline} and {ratio.n_target}, {_processes(ratio.processes_baseline, ratio.processes_target)}, "
        f"{boards} board{'s' if boards > 1 else ''}, {day}"
    )


def _processes(baseline: int, target: int) -> str:
    if baseline != target:
        return f"{baseline} and {target} processes"
    return f"{baseline} process{'es' if baseline > 1 else ''} a side"


# --- stages and operations -------------------------------------------------------------------------------------------


def _gpu_key(cell: Cell) -> str | None:
    key = cell.first["gpu_key"]
    return key if isinstance(key, str) else None


Measured = Mapping[tuple[str, str], evidence.Value]


def _ceilings(
    cards: tuple[Gpu | None, Gpu | None], own: tuple[Measured, Measured], pair: Compared
) -> tuple[Ceilings, Ceilings]:
    """Data-sheet ceilings of both sides; with a launch floor where both boards measured one."""
    rates = [measured.get(("op_rate", "")) for measured in own]
    launches = [1e3 / rate.value if rate and all(rates) else None for rate in rates]
    precisions = [str(cell.first["precision"]) for cell in (pair.baseline, pair.target)]
    left, right = (
        _of_limited(spec_ceilings(card if precision in SPEC_PRECISIONS else None, precision, launch), card, cell)
        for card, precision, launch, cell in zip(
            cards, precisions, launches, (pair.baseline, pair.target), strict=True)
    )
    return left, right


def _of_limited(ceilings: Ceilings, card: Gpu | None, cell: Cell) -> Ceilings:
    """The ceilings with the rates of the SMs that a handicap left."""
    count, whole = limited_sms(cell), card.sm_count if card else None
    if count is None or whole is None:
        return ceilings
    rates = (ceilings.matmul_tflops, ceilings.convolution_tflops)
    matmul, convolution = (None if rate is None else rate * count / whole for rate in rates)
    return dataclasses.replace(ceilings, matmul_tflops=matmul, convolution_tflops=convolution)


def _beside_theory(
    pair: Compared, facts: tuple[evidence.Facts, evidence.Facts], own: tuple[Measured, Measured],
    ops: tuple[pd.DataFrame | None, pd.DataFrame | None],
) -> dict[str, Any]:
    """What stands beside the data sheets: the recorded clock, ceilings of these two boards, classic estimates."""
    cells = pair.baseline, pair.target
    shares = [share.value if share else None for share in (side.clock_share for side in facts)]
    at_clock = None
    if pair.expected.executed_precision and shares[0] and shares[1]:
        at_clock = pair.expected.executed_precision * shares[1] / shares[0]
    measured = [
        measured_ceilings({key: found.value for key, found in values.items()}, str(cell.first["precision"]))
        for values, cell in zip(own, cells, strict=True)
    ]
    tables = [table if table is not None and _both(ops) else _stage_table(cell)
              for table, cell in zip(ops, cells, strict=True)]
    floors = [
        roofline(table, _of_limited(found, side.card, cell))
        for table, found, side, cell in zip(tables, measured, facts, cells, strict=True) if found is not None
    ]
    shared = [key for key in sorted(set(own[0]) & set(own[1]))
              if any(values[key].evidence == "observed" for values in own) or own[0][key].value != own[1][key].value]
    sources = [values["gemm", "fp32"].source if ("gemm", "fp32") in values else None for values in own]
    return {
        "clock_share": {"baseline": shares[0], "target": shares[1]},
        "executed_precision_at_clock": at_clock,
        "roofline_measured": roofline_ratio(*floors) if len(floors) == 2 else None,
        "roofline_measured_of": " and ".join(dict.fromkeys(filter(None, sources))) if len(floors) == 2 else None,
        "board_ceilings": [
            {"metric": metric, "precision": precision or None, "baseline": own[0][metric, precision].value,
             "target": own[1][metric, precision].value,
             "ratio": own[1][metric, precision].value / own[0][metric, precision].value,
             "baseline_source": own[0][metric, precision].source, "target_source": own[1][metric, precision].source}
            for metric, precision in shared
        ],
        "classic": [
            dataclasses.asdict(estimate) for estimate in classic_estimates(facts[0].card, facts[1].card)
        ],
    }


def _ops(cell: Cell) -> tuple[pd.DataFrame | None, str | None]:
    """The op table of a cell, and what must be said about it.

    A profiled pass can stay blind (operations without device times). Then an older table of the same work and setting
    on the same card type serves, and its run is named: kernels follow from these, the timed samples stay the cell's.
    """
    from core.store import queries

    seq = next((int(line["seq"]) for line in cell.lines if line["has_ops"]), None)
    own = None if seq is None else queries.ops(cell.side.store, cell.run_id, seq)
    if own is not None and own["device_ms"].notna().any():
        return own, None
    every = queries.cells(cell.side.store, gpu_key=_gpu_key(cell)) if _gpu_key(cell) else None
    if every is None or cell.side.kind == "file":
        return own, None
    other = every[
        (every["work_key"] == cell.work_key) & (every["setting_key"] == cell.setting_key) & every["has_ops"]
        & (every["method"] == cell.method) & (every["run_id"] != cell.run_id) & (every["status"] == "ok")
    ].sort_values("started_at", ascending=False)
    for line in records(other.head(4)):
        table = queries.ops(cell.side.store, line["run_id"], int(line["seq"]))
        if table["device_ms"].notna().any():
            return table, (f"Operations in {cell.first['precision']} are those of run {line['run_id']}, the same work, "
                           f"setting and card: the profile of {cell.run_id} gave no device times.")
    return own, None


def _both(ops: tuple[pd.DataFrame | None, pd.DataFrame | None]) -> bool:
    return ops[0] is not None and ops[1] is not None


def _op_table(
    ops: tuple[pd.DataFrame | None, pd.DataFrame | None], ceilings: tuple[Ceilings, Ceilings], pair: Compared
) -> pd.DataFrame | None:
    if ops[0] is None or ops[1] is None:
        return None
    precisions = {str(pair.baseline.first["precision"]), str(pair.target.first["precision"])}
    return op_diff(
        ops[0], ops[1], *ceilings, _gpu_key(pair.baseline), _gpu_key(pair.target),
        precisions.pop() if len(precisions) == 1 else None,
    )


def _op_rows(table: pd.DataFrame | None) -> list[dict[str, Any]]:
    """The rows with most lost or gained time; the rest as one row of sums, so that the total stays whole."""
    if table is None:
        return []
    shown, rest = table.head(OP_ROWS), table.iloc[OP_ROWS:]
    rows = records(shown)
    if len(rest):
        summed: dict[str, Any] = dict.fromkeys(map(str, table.columns))
        for name in ("calls", "device_ms", "launches"):
            for side in ("baseline", "target"):
                summed[f"{name}_{side}"] = rest[f"{name}_{side}"].sum(min_count=1)
        rows.append({**summed, "op": OTHER_OPS, "lost_ms": rest["lost_ms"].sum(min_count=1), "rows": len(rest)})
    return rows


def _stages(
    pair: Compared, ops: tuple[pd.DataFrame | None, pd.DataFrame | None], ceilings: tuple[Ceilings, Ceilings]
) -> tuple[list[dict[str, Any]], tuple[pd.DataFrame, pd.DataFrame]]:
    """Rows of `stages`, and the floors of both sides (of operations where both have them, else of stages)."""
    tables = [_stage_table(pair.baseline), _stage_table(pair.target)]
    floors: list[pd.DataFrame] = []
    for place, (table, ceiling) in enumerate(zip(tables, ceilings, strict=True)):
        own = ops[place]
        if _both(ops) and own is not None:
            of_ops = roofline(own, ceiling)
            floors.append(of_ops)
            tables[place] = table.merge(stages_from_ops(of_ops), on="stage", how="left")
        else:
            of_stages = roofline(table, ceiling)
            floors.append(of_stages)
            tables[place] = of_stages
    both = stage_diff(*tables)
    totals = [float(both[f"time_ms_{side}"].sum()) for side in ("baseline", "target")]
    rows = [
        {
            "name": row["stage"], "baseline_ms": row["time_ms_baseline"], "target_ms": row["time_ms_target"],
            "ratio": row["ratio"], "lost_ms": row["lost_ms"], "lost_share": row["lost_share"],
            "baseline_share": _share(row["time_ms_baseline"], totals[0]),
            "target_share": _share(row["time_ms_target"], totals[1]),
            "roofline_ratio": row["roofline_ratio"],
            **{f"{name}_{side}": row[f"{name}_{side}"] for side in ("baseline", "target")
               for name in ("floor_ms", "bound_by", "flops", "bytes", "launches", "calls")},
            "only_in": row["only_in"],
        }
        for row in records(both)
    ]
    return rows, (floors[0], floors[1])


def _share(part: float, total: float) -> float | None:
    return part / total if total > 0 and not np.isnan(part) else None


def _stage_table(cell: Cell) -> pd.DataFrame:
    """Stages of a cell in pipeline order; the time of a stage is the median of its processes' medians."""
    from core.store import queries

    stages = queries.stages(cell.side.store, [(cell.run_id, seq) for seq in cell.seqs])
    work = ("calls", "flops", "other_flops", "bytes", "launches")
    if stages.empty:
        return pd.DataFrame(columns=["stage", "time_ms", *work])
    grouped = stages.sort_values("position").groupby("name", sort=False)
    table = grouped[list(work)].first().assign(time_ms=grouped["median_ms"].median())
    return table.rename_axis("stage").reset_index()


def _norm(table: pd.DataFrame | None, pair: Compared) -> Norm | None:
    """The norm of the whole workload, its op classes weighted by their time on the baseline."""
    precisions = {str(cell.first["precision"]) for cell in (pair.baseline, pair.target)}
    if table is None or len(precisions) != 1 or not precisions <= set(NORM_PRECISIONS):
        return None
    by_class = table.groupby("op_class", dropna=False)["device_ms_baseline"].sum()
    return workload_norm(by_class, _gpu_key(pair.baseline), _gpu_key(pair.target), precisions.pop())


# --- beside the ratio ------------------------------------------------------------------------------------------------


def _environment(pair: Compared, facts: tuple[evidence.Facts, evidence.Facts]) -> list[dict[str, Any]]:
    """Recorded facts of both runs side by side; `differs` is None where a side does not know its own."""
    headers = facts[0].run, facts[1].run
    rows = [(name, headers[0].get(name), headers[1].get(name)) for name in _ENVIRONMENT]
    one, other = setting_dict(pair.baseline.first), setting_dict(pair.target.first)
    rows += [(name, one[name], other[name]) for name in one]
    for name, first, second in _telemetry(facts):
        rows.append((name, first, second))
    return [
        {"name": name, "baseline": first, "target": second,
         "differs": None if first is None and second is None else first != second}
        for name, first, second in rows
    ]


def _telemetry(facts: tuple[evidence.Facts, evidence.Facts]) -> list[tuple[str, float | None, float | None]]:
    """Medians of the clock, power and temperature seen during the timed repetitions."""
    first, second = (side.samples for side in facts)
    return [
        (f"{name} while timed", _middle(first[name]), _middle(second[name]))
        for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
    ]


def _other(baseline: Cell, target: Cell) -> dict[str, Any]:
    """Another common cell with its ratio (no interval: ask for it with the filters)."""
    left, right = baseline.middle("wall_median_ms"), target.middle("wall_median_ms")
    return {
        "work_key": baseline.work_key, "workload": work_in_words(baseline.first), **work_dict(baseline.first),
        "setting": setting_dict(baseline.first), "target_setting": setting_dict(target.first),
        "baseline_ms": left, "target_ms": right, "ratio": left / right if left and right else None,
    }
