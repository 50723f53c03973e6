"""Where the time went: two eager runs, operation by operation and stage by stage.

Rows are joined by the op key: top-level operation, stage, input shapes, dtypes, memory layout, scalar arguments.
Children are folded into the top-level operation when the table is made, so that a convolution meets its twin whatever
backend ran it. Lost time is baseline minus target; the table is sorted by how much of it a row holds.
"""
from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import pandas as pd

from core.analysis.norms import NORM_PRECISIONS, norm, op_class
from core.analysis.roofline import Ceilings, roofline
from core.records import REST_OP

KEY = ("op", "stage", "shapes", "dtypes", "layout", "scalars")
_DTYPES = KEY.index("dtypes")
_SUMS = ("calls", "device_ms", "launches", "flops", "other_flops", "bytes")
Key = tuple[str, ...]
"""The row of an op table that sums what was cut off: its two sides hold different operations."""

COLUMNS = (
    "op", "stage", "key", "calls_baseline", "calls_target", "device_ms_baseline", "device_ms_target", "lost_ms",
    "ratio", "roofline_ratio", "floor_ms_baseline", "floor_ms_target", "bound_by_baseline", "bound_by_target",
    "norm_median", "norm_max", "op_class", "kernels_baseline", "kernels_target", "launches_baseline", "launches_target",
    "flops_baseline", "flops_target", "bytes_baseline", "bytes_target",
    "by_roofline_ms", "by_norm_ms", "unexplained_ms",
    "only_in", "joined_by", "shapes", "dtypes", "layout", "scalars",
)  # fmt: skip


@lru_cache(maxsize=8192)
def _compact(text: str) -> str:
    """JSON text without blanks; any other text as it is. The same texts come back on both sides of a diff."""
    try:
        return json.dumps(json.loads(text), separators=(",", ":"))
    except ValueError:
        return text


def key_text(value: Any) -> str:
    """One part of a key as text, equal for a list and for its JSON."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return _compact(value) if value.startswith(("[", "{")) else value
    return json.dumps(value, separators=(",", ":"), default=list)


def _kernels(value: Any) -> list[str]:
    """The kernel names of a row: a list, an array or JSON text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return []
    return [str(name) for name in (json.loads(value) if isinstance(value, str) else value)]


def _folded(ops: pd.DataFrame) -> dict[Key, dict[str, Any]]:
    """Totals by key, its parts as text. What is unknown in one row of a key is unknown (NaN) in the sum."""
    folded: dict[Key, dict[str, Any]] = {}
    for row in ops.to_dict("records"):
        key = tuple(key_text(row.get(name)) for name in KEY)
        totals = folded.setdefault(key, {**dict.fromkeys(_SUMS, 0.0), "kernels": []})
        for name in _SUMS:
            value = row.get(name)
            totals[name] += math.nan if value is None or pd.isna(value) else float(value)
        totals["kernels"] = list(dict.fromkeys([*totals["kernels"], *_kernels(row.get("kernels"))]))
    return folded


def _without_dtypes(keys: Iterable[Key]) -> dict[Key, Key]:
    """The part of a key beside its dtypes -> the key, where it names one of `keys` alone."""
    by_rest: dict[Key, list[Key]] = {}
    for key in keys:
        by_rest.setdefault((*key[:_DTYPES], *key[_DTYPES + 1 :]), []).append(key)
    return {rest: found[0] for rest, found in by_rest.items() if len(found) == 1}


def _pairs(baseline: Mapping[Key, Any], target: Mapping[Key, Any]) -> list[tuple[Key | None, Key | None]]:
    """Keys of both sides that belong together; None for a side that has no partner.

    What is left after the join by key is joined without the dtypes where that is unambiguous: under autocast later
    operations see half-precision inputs, so that the same operation stands under another key.
    """
    left_over = _without_dtypes(key for key in baseline if key not in target)
    right_over = _without_dtypes(key for key in target if key not in baseline)
    twins = {left: right_over[name] for name, left in left_over.items() if name in right_over}
    taken = set(twins.values())
    pairs: list[tuple[Key | None, Key | None]] = [(key, key if key in target else twins.get(key)) for key in baseline]
    return pairs + [(None, key) for key in target if key not in baseline and key not in taken]


def _joined(baseline_ops: pd.DataFrame, target_ops: pd.DataFrame) -> pd.DataFrame:
    """One row per pair: the parts of the key, the totals of both sides, only_in, joined_by."""
    baseline, target = _folded(baseline_ops), _folded(target_ops)
    unknown: dict[str, Any] = {**dict.fromkeys(_SUMS, math.nan), "kernels": []}
    rows = []
    for left, right in _pairs(baseline, target):
        row: dict[str, Any] = dict(zip(KEY, left or right or (), strict=True))
        if left and right:
            row["only_in"], row["joined_by"] = "both", "key" if left == right else "key without dtypes"
            row["dtypes"] = row["dtypes"] if left == right else f"{left[_DTYPES]} / {right[_DTYPES]}"
        else:
            row["only_in"], row["joined_by"] = "baseline" if left else "target", None
        totals = (baseline[left] if left else unknown), (target[right] if right else unknown)
        row |= {f"{name}_baseline": value for name, value in totals[0].items()}
        row |= {f"{name}_target": value for name, value in totals[1].items()}
        rows.append(row)
    sides = [f"{name}_{side}" for side in ("baseline", "target") for name in (*_SUMS, "kernels")]
    table = pd.DataFrame(rows, columns=[*KEY, "only_in", "joined_by", *sides])
    return table.astype({name: float for name in sides if not name.startswith("kernels")})


def _floors(table: pd.DataFrame, side: str, ceilings: Ceilings | None) -> pd.DataFrame:
    """floor_ms and bound_by of one side's rows; missing without ceilings."""
    if ceilings is None:
        return pd.DataFrame({"floor_ms": float("nan"), "bound_by": None}, index=table.index)
    work = pd.DataFrame({"op": table["op"], **{n: table[f"{n}_{side}"] for n in ("flops", "bytes", "launches")}})
    return roofline(work, ceilings)[["floor_ms", "bound_by"]]


def _ratio(numerator: pd.Series, denominator: pd.Series) -> pd.Series:
    """Elementwise ratio; NaN where either side is missing or not above zero."""
    usable = (numerator > 0) & (denominator > 0)
    return (numerator / denominator).where(usable)


def _explained_shares(table: pd.DataFrame) -> pd.DataFrame:
    """What of each operation's lost time its own roofline explains, what its norm explains beyond that, and the rest.

    The target's time times the hardware ratio is the time that the baseline would have taken: what the roofline ratio
    moves is explained by it, up to the norm's median what the norm adds; the rest is unexplained (negative: better than
    both). An operation of one side, or without a roofline ratio, is unexplained whole.
    """
    lost, target_ms = table["lost_ms"], table["device_ms_target"]
    by_roofline = ((table["roofline_ratio"] - 1) * target_ms).where(table["only_in"] == "both").fillna(0.0)
    by_norm = ((table["norm_median"] - table["roofline_ratio"]) * target_ms).where(table["norm_median"].notna(), 0.0)
    by_norm = by_norm.fillna(0.0)
    unexplained = lost - by_roofline - by_norm
    return pd.DataFrame({
        "by_roofline_ms": by_roofline.where(lost.notna()), "by_norm_ms": by_norm.where(lost.notna()),
        "unexplained_ms": unexplained,
    })


def explained_sums(table: pd.DataFrame) -> dict[str, float | None]:
    """lost_ms of all operations, and how much of it roofline and norm explain, in ms; None where nobody timed them."""
    names = ("lost_ms", "by_roofline_ms", "by_norm_ms", "unexplained_ms")
    if not len(table) or table["lost_ms"].isna().all():
        return dict.fromkeys(names)
    return {name: float(table[name].sum()) for name in names}


def op_diff(
    baseline_ops: pd.DataFrame,
    target_ops: pd.DataFrame,
    baseline_ceilings: Ceilings | None = None,
    target_ceilings: Ceilings | None = None,
    baseline_key: str | None = None,
    target_key: str | None = None,
    precision: str | None = None,
) -> pd.DataFrame:
    """One row per operation of either run, the largest change of time first; columns as in COLUMNS.

    Op tables: columns op, stage, shapes, dtypes, layout, scalars (lists or JSON text), calls, device_ms, kernels,
    launches, flops, other_flops, bytes; totals of one profiled forward pass of one process. `*_ceilings` give each
    side's roofline, `*_key` (catalogue keys) and `precision` (where both sides have the same) the norm of the op class.

    lost_ms = baseline - target in ms; an operation that ran on one side only is lost or gained whole. ratio and
    roofline_ratio are baseline over target, NaN for an operation of one side and for the row `(rest)`. only_in: both,
    baseline, target. joined_by: "key", or "key without dtypes" where only the dtypes differ; None for one side.
    Norms hold launches (about 25 us an operation) that device_ms does not: small operations may exceed them.
    """
    table = _joined(baseline_ops, target_ops)
    for side, ceilings in (("baseline", baseline_ceilings), ("target", target_ceilings)):
        table[[f"floor_ms_{side}", f"bound_by_{side}"]] = _floors(table, side, ceilings)
    left, right = table["device_ms_baseline"], table["device_ms_target"]
    # An operation that the other side did not run took no time there; one that nobody timed stays unknown.
    table["lost_ms"] = left.mask(table["only_in"] == "target", 0.0) - right.mask(table["only_in"] == "baseline", 0.0)
    comparable = table["op"] != REST_OP
    table["ratio"] = _ratio(left, right).where(comparable)
    table["roofline_ratio"] = _ratio(table["floor_ms_baseline"], table["floor_ms_target"]).where(comparable)
    table["op_class"] = [
        op_class(op, shapes, dtypes, scalars)
        for op, shapes, dtypes, scalars in zip(
            table["op"], table["shapes"], table["dtypes"], table["scalars"], strict=True
        )
    ]
    norms = {
        name: norm(baseline_key, target_key, name, precision)
        for name in table["op_class"].dropna().unique()
        if precision in NORM_PRECISIONS
    }
    found = [norms.get(name) for name in table["op_class"]]
    table["norm_median"] = pd.Series([own.median if own else None for own in found], index=table.index, dtype=float)
    table["norm_max"] = pd.Series([own.max if own else None for own in found], index=table.index, dtype=float)
    table["key"] = ["|".join(parts) for parts in zip(*(table[name] for name in KEY), strict=True)]
    table[["by_roofline_ms", "by_norm_ms", "unexplained_ms"]] = _explained_shares(table)
    order = table["lost_ms"].abs().sort_values(ascending=False, na_position="last", kind="stable").index
    return table.loc[order, list(COLUMNS)].reset_index(drop=True)


def stage_diff(baseline_stages: pd.DataFrame, target_stages: pd.DataFrame) -> pd.DataFrame:
    """One row per stage of either run, in the baseline's order.

    Stage tables: columns stage, time_ms (median over repetitions) and, where known, calls, flops, other_flops, bytes,
    launches, floor_ms, bound_by. Result: stage, each of these with _baseline and _target, lost_ms (baseline - target),
    ratio, lost_share (of the summed lost time; NaN where that is zero), roofline_ratio, only_in.
    Raises ValueError where a stage stands twice.
    """
    for table in (baseline_stages, target_stages):
        if table["stage"].duplicated().any():
            raise ValueError(f"stage {table['stage'][table['stage'].duplicated()].iloc[0]!r} stands twice")
    columns = ("time_ms", "calls", "flops", "other_flops", "bytes", "launches", "floor_ms", "bound_by")
    sides = []
    for side, table in (("baseline", baseline_stages), ("target", target_stages)):
        known = table.reindex(columns=["stage", *columns])
        sides.append(known.rename(columns={name: f"{name}_{side}" for name in columns}))
    both = sides[0].merge(sides[1], on="stage", how="outer", indicator="only_in", sort=False)
    both["only_in"] = both["only_in"].astype(str).replace({"left_only": "baseline", "right_only": "target"})
    # An outer merge sorts by the key; the order of the pipeline is the baseline's, then what only the target has.
    order = list(dict.fromkeys([*baseline_stages["stage"], *target_stages["stage"]]))
    both = both.set_index("stage").loc[order].reset_index()
    left, right = (pd.to_numeric(both[f"time_ms_{side}"], errors="coerce") for side in ("baseline", "target"))
    both["lost_ms"] = left.mask(both["only_in"] == "target", 0.0) - right.mask(both["only_in"] == "baseline", 0.0)
    both["ratio"] = _ratio(left, right)
    total_ms = float(both["lost_ms"].sum())
    both["lost_share"] = both["lost_ms"] / total_ms if total_ms else float("nan")
    floors = [pd.to_numeric(both[f"floor_ms_{side}"], errors="coerce") for side in ("baseline", "target")]
    both["roofline_ratio"] = _ratio(floors[0], floors[1])
    return both
