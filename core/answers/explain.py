"""Why two measured sides differ: ratio with interval, theory, norm, verdict, and where the time went.

Same answer object as `two.explain_two`. Factors, findings and residual are empty: nothing is
attributed before evidence for it is measured.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from core import units
from core.analysis.norms import NORM_PRECISIONS, Norm, workload_norm
from core.analysis.op_diff import op_diff, stage_diff
from core.analysis.roofline import Ceilings, roofline, roofline_ratio, spec_ceilings, stages_from_ops
from core.analysis.theory import expected_ratios
from core.answers import sentences
from core.answers.compare import (
    Compared,
    assumptions,
    boards_of,
    card_of,
    compared,
    labels_of,
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
    setting_dict,
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
    left, right = select(store, baseline, filters), select(store, target, filters)
    found = match(left, right)
    pairs, left_out = without_emulated(found, left, right, filters)
    if not pairs:
        return json_value(_not_comparable(left, right, found, left_out))
    chosen = main_pair(pairs)
    others = [pair for pair in pairs if pair is not chosen]
    return json_value(_explained(left, right, compared([chosen])[0], others))


def _explained(
    left: Side, right: Side, pair: Compared, others: Sequence[tuple[Cell, Cell]]
) -> dict[str, Any]:
    cards = card_of(pair.baseline), card_of(pair.target)
    ceilings = _ceilings(cards[0], pair.baseline), _ceilings(cards[1], pair.target)
    ops = _ops(pair.baseline), _ops(pair.target)
    differing = _op_table(ops, ceilings, pair)
    stages, floors = _stages(pair, ops, ceilings)
    found_norm = _norm(differing, pair)
    expected = pair.expected.as_dict()
    expected["roofline"] = roofline_ratio(*floors)
    expected["roofline_of"] = ("operations" if _both(ops) else "stages") if expected["roofline"] else None
    labels = labels_of(pair)
    said = assumptions(left, right, [pair])
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
        "verdict": pair.verdict.name,
        "verdict_reason": pair.verdict.reason,
        "readings": [],
        "factors": [],
        "residual": None,
        "findings": [],
        "not_comparable_because": [],
        "assumptions": said,
        "headline": sentences.headline(
            *labels, ratio=pair.ratio.value, readings=expected["readings"], verdict=pair.verdict.name,  # type: ignore[arg-type]
            reason=pair.verdict.reason, low=pair.ratio.low, high=pair.ratio.high,
            found_norm=found_norm.as_dict() if found_norm else None,
        ),
        "conditions": _conditions(pair),
        "stages": stages,
        "op_diff": _op_rows(differing),
        "environment": _environment(pair),
        "n": {
            "baseline": pair.ratio.n_baseline, "target": pair.ratio.n_target, "boards": boards_of(pair),
            "baseline_processes": pair.ratio.processes_baseline, "target_processes": pair.ratio.processes_target,
        },
        "other_cells": [_other(a, b) for a, b in others],
    }


def _not_comparable(
    left: Side, right: Side, found: Matching, left_out: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    reasons = why_nothing(left, right, found, left_out)
    cells = [next(iter(cells_of(side)), None) for side in (left, right)]
    cards = [card_of(cell) if cell else None for cell in cells]
    return {
        "origin": "measured", "baseline": side_dict(left), "target": side_dict(right), "workload": None,
        "precision": None, "measured_ratio": {"value": None, "low": None, "high": None, "interval": None},
        "expected": expected_ratios(cards[0], cards[1]).as_dict(), "norm": None, "verdict": "not_comparable",
        "verdict_reason": None, "readings": [], "factors": [], "residual": None, "findings": [],
        "not_comparable_because": reasons, "assumptions": [*left.assumptions, *right.assumptions],
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


def _ceilings(card: Gpu | None, cell: Cell) -> Ceilings:
    precision = str(cell.first["precision"])
    return spec_ceilings(card if precision in SPEC_PRECISIONS else None, precision)


def _ops(cell: Cell) -> pd.DataFrame | None:
    """The op table of the first worker process that has one."""
    from core.store import queries

    seq = next((int(line["seq"]) for line in cell.lines if line["has_ops"]), None)
    return None if seq is None else queries.ops(cell.side.store, cell.run_id, seq)


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


def _environment(pair: Compared) -> list[dict[str, Any]]:
    """Recorded facts of both runs side by side; `differs` is None where a side does not know its own."""
    from core.store import queries

    headers = [
        json_value(records(queries.run_header(cell.side.store, cell.run_id)))[0]
        for cell in (pair.baseline, pair.target)
    ]
    rows = [(name, headers[0].get(name), headers[1].get(name)) for name in _ENVIRONMENT]
    one, other = setting_dict(pair.baseline.first), setting_dict(pair.target.first)
    rows += [(name, one[name], other[name]) for name in one]
    for name, first, second in _telemetry(pair):
        rows.append((name, first, second))
    return [
        {"name": name, "baseline": first, "target": second,
         "differs": None if first is None and second is None else first != second}
        for name, first, second in rows
    ]


def _telemetry(pair: Compared) -> list[tuple[str, float | None, float | None]]:
    """Medians of the clock, power and temperature seen during the timed repetitions."""
    from core.store import queries

    sides = [
        queries.samples(cell.side.store, cell.run_id, cell.seqs) for cell in (pair.baseline, pair.target)
    ]
    return [
        (f"{name} while timed", _middle(sides[0][name]), _middle(sides[1][name]))
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
