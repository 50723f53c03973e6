"""What a measured workload would take on a GPU that nobody measured it on: time with a band, memory, what would change
it.

    total = sum over operations of max(host interval x launches, device time on the target)

The device times come from `core.analysis.predict`. The host interval, the time between two launches, is the one that
makes the same sum on the source equal to its measured wall time; that the target's host is as fast is an assumption.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from core import units
from core.analysis.host import host_interval_ms
from core.analysis.predict.cards import Card, card_of
from core.analysis.predict.coefficients import FOLDER, Coefficients, shipped
from core.analysis.predict.model import cards_of, predict_between, situation_of
from core.analysis.predict.work import CONVOLUTION, MATMUL, plain_name, read_work
from core.answers import sentences
from core.answers.json_values import json_value, records
from core.answers.matching import Cell, cells_of, main_pair, setting_dict, work_dict, work_in_words
from core.answers.selection import Filters, Selection, Side, handicap_parts, newest_cells, select
from core.errors import UserError
from core.gpus import Gpu, peak_tflops

if TYPE_CHECKING:
    from core.store import Store

OP_ROWS = 200
# A driver and a CUDA context keep this much of a card's nominal memory from a tracker (0.5 GB and 4 % ECC and tables).
CONTEXT_BYTES, USABLE_SHARE = 0.5e9, 0.96
# Errors of operations of one class go together in part: half of their variance is taken as common.
_COMMON_SHARE = 0.5
_PRODUCTS = {*MATMUL, *CONVOLUTION, "scaled_dot_product_attention"}
_TIME_DIGITS = 3


def predict(
    store: Store,
    source: Selection | str,
    target: str,
    filters: Filters | None = None,
    *,
    ceilings: Mapping[str, float] | None = None,
    price_per_hour: float | None = None,
) -> dict[str, Any]:
    """The predicted time of one measured cell on `target` (card name or key), its band, and what would change it.

    The founding size is taken if the source has it with operation times, else the largest such work; FP32 first.
    `price_per_hour` in the reader's own currency. Raises UserError as `select` and `predict_ops`, and where no chosen
    cell has operations with device times.
    """
    if price_per_hour is not None and not (math.isfinite(price_per_hour) and price_per_hour >= 0):
        raise UserError(f"price per hour {price_per_hour}", "a number of at least 0", "")
    side = select(store, source, filters)
    cell, ops = _chosen(side)
    known = shipped()
    source_name = str(cell.first["gpu_key"] or cell.first["device_name"])
    from_card, to_card = cards_of(source_name, target, ceilings, known)
    handicap = cell.first["handicap"]
    limit = handicap_parts(handicap).get("sm_count")
    if limit is not None:  # the source itself ran on part of its SMs
        from_card = card_of(source_name, known.boards, {"sm_count": limit})
    precision = str(cell.first["precision"])
    wall_ms = _required(cell.middle("wall_median_ms"), "wall time", cell)
    now = _Question(ops, precision, wall_ms, from_card, to_card, known)
    result = now.on_target()
    gpu = _gpu(to_card)
    memory = _memory(cell.middle("peak_bytes"), to_card)
    assumptions = [*side.assumptions, *_reading_of(target), *_assumptions(now, precision, gpu, handicap)]
    backtest = back_test(situation_of(from_card, to_card))
    answer = {
        "origin": "predicted",
        "source": {
            "label": side.label, "gpu_key": cell.first["gpu_key"], "run_id": cell.run_id, "measured_ms": wall_ms,
            "device_ms": now.device_ms_source, "boards": len(cell.boards),
        },
        "target": {"label": to_card.name, "gpu_key": to_card.key, "situation": situation_of(from_card, to_card)},
        "workload": {
            "work_key": cell.work_key, "words": work_in_words(cell.first), **work_dict(cell.first),
            **setting_dict(cell.first),
        },
        "predicted_ms": result.total_ms, "low_ms": result.low_ms, "high_ms": result.high_ms,
        "ratio": result.total_ms / wall_ms,
        "totals": {
            "device_ms": result.device_ms, "source_device_ms": now.device_ms_source, "host_interval_us":
            now.interval_us, "host_bound_share": result.host_share, "bound_by": result.bound_by,
            "by_stage": _sums(result.rows, "stage"), "by_op": _sums(result.rows, "op")[:20],
            "card": {
                "gemm_fp32_tflops": to_card.gemm_tflops, "copy_gb_s": to_card.bandwidth_gb_s,
                "launch_us": to_card.launch_us, "sm_count": to_card.sm_count,
            },
        },
        "ops": _op_rows(result.rows),
        "memory": memory,
        "price": None if price_per_hour is None else {
            "per_hour": price_per_hour, "per_clip": price_per_hour * result.total_ms / 3.6e6,
        },
        "assumptions": assumptions,
        "backtest": backtest,
        "alternatives": _alternatives(side, cell, now, result, to_card, gpu),
    }  # fmt: skip
    answer["headline"] = _headline(answer)
    return json_value(answer)


# --- the cell --------------------------------------------------------------------------------------------------------


def _chosen(side: Side) -> tuple[Cell, pd.DataFrame]:
    """The cell that is predicted, and its operations. Raises UserError where no cell has operations with times.

    A newer run of the same work and setting without an operation table does not hide an older one that has it.
    """
    key = ["work_key", "setting_key", "method", "run_id"]
    cells = cells_of(side)
    if side.older is not None:
        profiled = side.older.loc[side.older["has_ops"].astype(bool), key].drop_duplicates()
        cells = cells_of(replace(side, lines=newest_cells(side.older.merge(profiled, on=key)))) or cells
    with_ops = [cell for cell in cells if any(line["has_ops"] for line in cell.lines)]
    while with_ops:
        cell = main_pair([(one, one) for one in with_ops])[0]
        ops = timed_ops(cell)
        if ops is not None:
            return cell, ops
        with_ops = [other for other in with_ops if other is not cell]
    raise UserError(
        f"{side.label} has {len(cells)} chosen cells, but none with the times of its operations",
        "a profiled run",
        "measure it with `python -m core run --ops all`",
    )


def timed_ops(cell: Cell) -> pd.DataFrame | None:
    """The first op table of a cell with device times; None without one."""
    from core.store import queries

    for line in cell.lines:
        if line["has_ops"]:
            ops = queries.ops(cell.side.store, cell.run_id, int(line["seq"]))
            if len(ops) and pd.to_numeric(ops["device_ms"], errors="coerce").fillna(0).sum() > 0:
                return ops
    return None


def _required(value: float | None, what: str, cell: Cell) -> float:
    if value is None:
        raise UserError(f"{work_in_words(cell.first)} has no {what}", "a measured cell", "")
    return value


# --- one prediction --------------------------------------------------------------------------------------------------


class _Result:
    """A whole workload on the target. `rows`: the op table with predicted_ms, low_ms, high_ms, bound_ms."""

    def __init__(self, rows: pd.DataFrame, interval_ms: float, rest_ms: float) -> None:
        self.rows = rows
        host_ms = rows["launches"].fillna(rows["calls"]).fillna(0).to_numpy(dtype=float) * interval_ms
        device_ms = rows["predicted_ms"].fillna(0).to_numpy(dtype=float)
        spent = np.maximum(host_ms, device_ms)
        self.rows["total_ms"] = spent
        self.device_ms = float(device_ms.sum())
        self.total_ms = float(spent.sum()) + rest_ms
        host_bound = host_ms > device_ms
        self.host_share = float(spent[host_bound].sum() / self.total_ms)
        self.bound_by = "host" if self.host_share > 0.5 else "device"
        # The host's part has no band of its own: another host is a stated assumption.
        self.low_ms = self.total_ms - self._spread(host_ms, device_ms, "low_ms")
        self.high_ms = self.total_ms + self._spread(host_ms, device_ms, "high_ms")

    def _spread(self, host_ms: np.ndarray, device_ms: np.ndarray, column: str) -> float:
        """How far the total moves to one side: operations of one name go together in part, others not."""
        edge = self.rows[column].fillna(0).to_numpy(dtype=float)
        moved = np.abs(np.maximum(host_ms, edge) - np.maximum(host_ms, device_ms))
        groups = pd.Series(moved).groupby(self.rows["op"].to_numpy())
        together, alone = groups.sum() ** 2, (pd.Series(moved) ** 2).groupby(self.rows["op"].to_numpy()).sum()
        return float(np.sqrt((_COMMON_SHARE * together + (1 - _COMMON_SHARE) * alone).sum()))


class _Question:
    """One op table between two cards: what is asked of the model, and the host interval of the source."""

    def __init__(
        self, ops: pd.DataFrame, precision: str, wall_ms: float, source: Card, target: Card, known: Coefficients
    ) -> None:
        self.source, self.target, self.known, self.precision = source, target, known, precision
        self.ops, self.unread_ms = _readable(ops, precision)
        self.device_ms_source = float(self.ops["device_ms"].fillna(0).sum()) + self.unread_ms
        self.wall_ms = wall_ms
        launches = self.ops["launches"].fillna(self.ops["calls"]).fillna(0).to_numpy(dtype=float)
        self.interval_ms = host_interval_ms(
            self.ops["device_ms"].fillna(0).to_numpy(dtype=float), launches, wall_ms - self.unread_ms
        )
        self.interval_us = None if self.interval_ms is None else self.interval_ms * 1e3
        # Without a host interval the kernels overlap a little: the measured sum of both is kept as it is.
        self.overlap = 1.0 if self.interval_ms is not None else wall_ms / self.device_ms_source

    def on_target(self, precision: str | None = None) -> _Result:
        target_dtype = None if precision is None else precision
        rows = predict_between(self.ops, self.source, self.target, self.known, target_dtype=target_dtype)
        timed = rows["predicted_ms"].notna()
        if self.ops["device_ms"].gt(0).any() and not timed.any():
            raise UserError(
                f"{self.target.name} has no arithmetic in {precision or self.precision}",
                "another precision",
                "see `python -m core specs`",
            )
        spent, before = rows.loc[timed, "predicted_ms"].sum(), self.ops.loc[timed, "device_ms"].sum()
        rest_ms = self.unread_ms * spent / before if before else 0.0
        for column in ("predicted_ms", "low_ms", "high_ms"):
            rows[column] *= self.overlap
        return _Result(rows, self.interval_ms or 0.0, rest_ms * self.overlap)


def _readable(ops: pd.DataFrame, precision: str) -> tuple[pd.DataFrame, float]:
    """The operations that say what they do, with a dtype each; and the device time of the others in ms."""
    ops = ops.reset_index(drop=True).copy()
    ops["dtype"] = [_dtype(str(op), dtypes, precision) for op, dtypes in zip(ops["op"], ops["dtypes"], strict=True)]
    timed = pd.to_numeric(ops["device_ms"], errors="coerce").fillna(0) > 0
    unread = pd.Series(False, index=ops.index)
    for place in ops.index[timed]:
        row = ops.loc[place]
        found = read_work(str(row["op"]), row["shapes"], "fp32", _number(row["flops"]), _number(row["bytes"]))
        unread[place] = found is None
    return ops[~unread].reset_index(drop=True), float(ops.loc[unread, "device_ms"].sum())


def _dtype(op: str, dtypes: Any, precision: str) -> str:
    """Products follow the cell's precision setting, whatever they are handed; others the tensors they are handed."""
    if plain_name(op) in _PRODUCTS:
        return precision
    names = json.loads(dtypes) if isinstance(dtypes, str) and dtypes.startswith("[") else list(dtypes or [])
    halves = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float64": "fp64"}
    return next((halves[str(name).split(".")[-1]] for name in names if str(name).split(".")[-1] in halves), "fp32")


def _number(value: Any) -> float | None:
    value = json_value(value)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


# --- parts of the answer ---------------------------------------------------------------------------------------------


def _gpu(card: Card) -> Gpu | None:
    from core.gpus import catalogue

    return catalogue().get(card.key or "")


def _reading_of(target: str) -> list[str]:
    """How a name of several cards was read; empty for a key or a card known by its ceilings alone."""
    from core.gpus import by_human_name, by_nvml_name, catalogue

    if target in catalogue() or by_nvml_name(target):
        return []
    try:
        assumption = by_human_name(target).assumption
    except UserError:
        return []
    return [assumption] if assumption else []


def _memory(peak_bytes: float | None, card: Card) -> dict[str, Any]:
    """Whether the peak of the source fits into the target; None where one of the two is not known."""
    card_bytes = None if card.memory_gb is None else card.memory_gb * 2**30
    fits = None
    if peak_bytes is not None and card_bytes is not None:
        fits = peak_bytes + CONTEXT_BYTES <= USABLE_SHARE * card_bytes
    return {"peak_bytes": peak_bytes, "card_bytes": card_bytes, "fits": fits}


def _assumptions(now: _Question, precision: str, gpu: Gpu | None, handicap: Any) -> list[str]:
    target = now.target
    said = [*target.assumptions]
    if now.interval_us is not None:
        said.append(f"Host as fast as the source's: one launch every {now.interval_us:.3g} us.")
    else:
        said.append("The source never waited for its host; the target's host is assumed to keep up too.")
    said.append(
        "Same software and same choice of kernels per operation as the model's data (torch 2.1 timings, TF32 off)."
    )
    if target.sustained_tflops < 0.95 * target.burst_tflops:
        power = f" at {gpu.tdp_w:g} W" if gpu and gpu.tdp_w else ""
        said.append(
            f"{target.name} lowers its clock in long products{power}: {target.burst_tflops:.3g} TFLOP/s for a "
            f"millisecond, {target.sustained_tflops:.3g} sustained. A lower power limit or a hot card is slower."
        )
    else:
        said.append("Clocks as high as the card sustains under its stock power limit.")
    if gpu and precision in ("tf32", "default") and not gpu.supports_tf32:
        said.append(f"{target.name} has no TF32: these products are predicted in FP32.")
    if gpu and precision == "bf16" and not gpu.supports_bf16_native:
        said.append(f"{target.name} emulates bf16 in FP32: expect it to be slower than predicted.")
    if isinstance(handicap, str) and handicap:
        said.append(f"The source ran with a handicap ({handicap}).")
    if now.unread_ms:
        said.append(f"{units.time_ms(now.unread_ms)} of operations without shapes scale like the rest.")
    return said


def _sums(rows: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    """Time before and after by stage or operation, largest first."""
    grouped = rows.groupby(column, sort=False)[["device_ms", "predicted_ms", "low_ms", "high_ms"]].sum(min_count=1)
    grouped = grouped.dropna(subset=["predicted_ms"]).sort_values("predicted_ms", ascending=False).reset_index()
    grouped = grouped.rename(columns={column: "name", "device_ms": "source_ms"})
    return records(grouped)


def _op_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    columns = [
        "op",
        "stage",
        "shapes",
        "dtype",
        "calls",
        "launches",
        "flops",
        "bytes",
        "device_ms",
        "predicted_ms",
        "low_ms",
        "high_ms",
    ]
    timed = rows[rows["predicted_ms"].notna()].sort_values("predicted_ms", ascending=False)
    found = records(timed[columns].head(OP_ROWS).rename(columns={"device_ms": "source_ms"}))
    for row in found:
        row["shapes"] = json.loads(row["shapes"]) if isinstance(row["shapes"], str) else row["shapes"]
    return found


def _alternatives(
    side: Side, cell: Cell, now: _Question, result: _Result, target: Card, gpu: Gpu | None
) -> list[dict[str, Any]]:
    """Other precisions of the same work, and other sizes that the source has measured, each on the target."""
    found = []
    for precision in ("fp32", "tf32", "fp16", "bf16"):
        if precision == now.precision or (gpu is not None and not _native(gpu, precision)):
            continue
        try:
            other = now.on_target(precision)
        except UserError:
            continue
        found.append(
            _alternative(
                "precision",
                f"{precision} instead of {now.precision}",
                other.total_ms,
                other.low_ms,
                other.high_ms,
                result.total_ms,
                cell.middle("peak_bytes"),
                target,
                "model",
            )
        )
    wanted = ("tracker", "variant", "precision", "execution", "memory_format", "handicap", "batch", "implementation")
    first = cell.first
    sizes: set[str] = {cell.work_key}
    for other_cell in sorted(cells_of(side), key=lambda one: one.size):
        row = other_cell.first
        if other_cell.work_key in sizes or any(json_value(row[name]) != json_value(first[name]) for name in wanted):
            continue
        wall_ms = other_cell.middle("wall_median_ms")
        if wall_ms is None:
            continue
        sizes.add(other_cell.work_key)
        ops = timed_ops(other_cell)
        if ops is not None:
            other = _Question(ops, now.precision, wall_ms, now.source, target, now.known).on_target()
            times, how = (other.total_ms, other.low_ms, other.high_ms), "model"
        else:
            ratio = wall_ms / now.wall_ms
            times, how = (result.total_ms * ratio, result.low_ms * ratio, result.high_ms * ratio), "scaled"
        found.append(
            _alternative(
                "size", _size_words(row), *times, result.total_ms, other_cell.middle("peak_bytes"), target, how
            )
        )
    return found


def _native(gpu: Gpu, precision: str) -> bool:
    if precision == "tf32":
        return gpu.supports_tf32
    if precision == "bf16":
        return gpu.supports_bf16_native
    return peak_tflops(gpu, precision) is not None


def _alternative(
    kind: str,
    words: str,
    predicted_ms: float,
    low_ms: float,
    high_ms: float,
    base_ms: float,
    peak_bytes: float | None,
    target: Card,
    how: str,
) -> dict[str, Any]:
    """`how`: model (from the operations) or scaled (source time of that size times this prediction's ratio)."""
    return {
        "kind": kind, "change": words, "predicted_ms": predicted_ms, "low_ms": low_ms, "high_ms": high_ms,
        "ratio": predicted_ms / base_ms, "fits": _memory(peak_bytes, target)["fits"], "how": how,
    }  # fmt: skip


def _size_words(row: Mapping[str, Any]) -> str:
    size = {name: json_value(row[name]) for name in ("frames", "height", "width", "points")}
    points = f", {size['points']:.0f} points" if size["points"] else ""
    return f"{size['frames']:.0f} frames of {size['height']:.0f}x{size['width']:.0f}{points}"


def _headline(answer: Mapping[str, Any]) -> str:
    source, target = answer["source"], answer["target"]
    work = answer["workload"]
    if answer["memory"]["fits"] is False:
        memory = answer["memory"]
        return (
            f"{work['words']} would not fit on the {target['label']}: it needed "
            f"{units.bytes_size(memory['peak_bytes'])} on the {source['label']}, the card has "
            f"{units.bytes_size(memory['card_bytes'])}."
        )
    times = [answer[name] for name in ("predicted_ms", "low_ms", "high_ms")]
    unit = units.time_unit(times)
    band = units.time_interval_ms(times[1], times[2], unit)
    ratio = answer["ratio"]
    compared = f"{units.ratio(ratio)} as long as" if ratio >= 1 else f"{units.ratio(1 / ratio)} faster than"
    text = (
        f"Predicted for the {target['label']}: {units.time_ms(times[0], unit)} ({band}), {compared} the "
        f"{units.time_ms(source['measured_ms'])} measured on the {source['label']} "
        f"({work['words']}, {work['precision']})."
    )
    errors = errors_in_words(answer["backtest"])
    return f"{text} {errors}" if errors else text


def errors_in_words(backtest: Mapping[str, Any]) -> str:
    """How far single operations were off in the back-test, by class: element-wise ones would hide the products."""
    classes = backtest.get("by_class") or {}
    told = [f"{words} by {units.percent(classes[name]['median_error'])}" for name, words in _CLASSES if name in classes]
    return f"In the back-test such predictions were off (medians): {sentences.listed(told)}." if told else ""


_CLASSES = (("matmul", "matrix products"), ("conv", "convolutions"), ("elementwise", "element-wise operations"))


# --- the back-test ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _back_test_rows() -> tuple[dict[str, str], ...]:
    with (FOLDER / "backtest.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def back_test(situation: str) -> dict[str, Any]:
    """How wrong such predictions were on timings that the fit had not seen.

    `median_error`, `p90_error`: absolute, relative; `inside_band`: share of true times in their band; `band_width`:
    median high / low. `by_class`: the same for each class in this situation; `rows`: for every situation and class.
    """
    rows = [
        {"situation": row["situation"], "op_class": row["op_class"], "n": int(row["n"]),
         **{name: float(row[name]) for name in ("median_error", "p90_error", "inside_band", "band_width")}}
        for row in _back_test_rows()
    ]  # fmt: skip
    own = next((row for row in rows if row["situation"] == situation and row["op_class"] == "all"), None)
    return {
        **(own or {}),
        "by_class": {row["op_class"]: row for row in rows if row["situation"] == situation},
        "rows": rows,
        "source": "sitar-lab/NeuSight timings, FP32, boards or shapes left out of the fit",
    }


def back_test_points() -> pd.DataFrame:
    """A sample of the back-test: situation, source, target, op_class, true_ms, predicted_ms, low_ms, high_ms."""
    return pd.read_csv(FOLDER / "backtest_points.csv")


def card_facts(name: str) -> Card:
    """A card as the model sees it. Raises UserError for one that is not known well enough."""
    return card_of(name, shipped().boards)


def source_keys(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of the GPUs among these cells whose operations carry device times, most cells first."""
    counted: dict[str, int] = {}
    for row in cells:
        if row.get("device_type") == "cuda" and row.get("has_ops"):
            key = str(row["gpu_key"])
            counted[key] = counted.get(key, 0) + 1
    return sorted(counted, key=lambda key: -counted[key])
