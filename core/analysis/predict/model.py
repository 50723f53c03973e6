"""Time of operations on another card, from their time on the card where they were measured.

The model predicts a kernel time on both cards (physics.py, refined by trees). What it gets wrong on the source is
known, and a learned share of that residual is expected on the target too: an operation that wastes bandwidth here
wastes it there. Compute and memory keep their own residual, so that a kernel that computes badly is not taken for one
that loads badly. Bands are the residuals of cards and shapes that were left out of the fit
(benchmarks/make_prediction.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.analysis.predict import physics
from core.analysis.predict.cards import Card, card_of
from core.analysis.predict.coefficients import Coefficients, shipped
from core.analysis.predict.work import ITEM_BYTES, calls_of, work_table
from core.errors import UserError

TIMINGS = ("kernel", "latency")
RESULT_COLUMNS = ("predicted_ms", "low_ms", "high_ms")
_OTHER_PRECISION_LOG = 0.26  # a factor of 1.3 on both sides: no timings of another precision back the band
# No band is narrower: a card is not timed twice alike, and a ceiling is known within some percent at best.
LEAST_LOG = {"measured": 0.02, "left_out": 0.08}
SPREADS = ("measured", "left_out")
_ROOFLINE_SLACK = 0.22  # up to a factor of 1.25 the roofline is trusted
# Fewer SMs keep each of them fuller: on 40, 66 and 108 of the 132 SMs of an H200 such operations of the trackers slow
# down by the SM ratio to the power of 0.5 (reshape) to 0.9 (div), most by 0.7 (h200-sm-limited.jsonl.gz).
_ISSUE_POWER = 0.7
_MODERN = 8.0  # from Ampere on FP32 products use one family of kernels
_RESIDUAL_LIMIT = 2.3  # a residual beyond a factor of 10 is another algorithm, not an efficiency


@dataclass(frozen=True)
class KernelModel:
    """Modelled kernel time of each operation on one card."""

    compute_ms: np.ndarray
    memory_ms: np.ndarray
    chip_log: np.ndarray  # correction of a measured chip
    spreads: Mapping[str, np.ndarray]  # kind -> log of the residual that shapes like these usually have

    def kernel_ms(
        self, compute_log: np.ndarray | float = 0.0, memory_log: np.ndarray | float = 0.0,
        issue_ms: np.ndarray | float = 0.0,
    ) -> np.ndarray:
        total, _ = physics.combined(self.compute_ms * np.exp(compute_log), self.memory_ms * np.exp(memory_log))
        return np.asarray(physics.combined(total * np.exp(self.chip_log), np.asarray(issue_ms))[0])

    def compute_share(self) -> np.ndarray:
        return physics.combined(self.compute_ms, self.memory_ms)[1]


def kernel_model(work: pd.DataFrame, card: Card, precisions: np.ndarray, coefficients: Coefficients) -> KernelModel:
    """The physical times with the learned factors. `precisions`: one name per row."""
    compute_ms, memory_ms = physics.parts_ms(work, card, precisions)
    chip_log = np.zeros(len(work))
    spreads = {kind: np.zeros(len(work)) for kind in SPREADS}
    features = physics.features(work, card)
    for op_class in (*physics.MEMORY_FEATURES, "elementwise"):
        rows = np.flatnonzero((work["op_class"] == op_class).to_numpy())
        if not len(rows):
            continue
        seen = {name: values[rows] for name, values in features.items()}
        for part, target in (("compute", compute_ms), ("memory", memory_ms)):
            trees = coefficients.trees.get(f"{op_class}/{part}")
            if trees is not None:
                target[rows] *= np.exp(trees.predict(seen))
        chip = coefficients.trees.get(f"{op_class}/{card.chip}")
        if chip is not None:
            chip_log[rows] = np.where(precisions[rows] == "fp32", chip.predict(seen), 0.0)
        for kind, spread in spreads.items():
            trees = coefficients.trees.get(f"{op_class}/spread_{kind}")
            if trees is not None:
                spread[rows] = trees.predict(seen)
    return KernelModel(compute_ms, memory_ms, chip_log, spreads)


def relation(source: Card, target: Card) -> str:
    """How much the two cards have in common: same, pair (both in the timing data), modern, other."""
    if (source.key is not None and source.key == target.key) or (source.chip and source.chip == target.chip):
        return "same"
    if source.chip and target.chip:
        return f"{source.chip}>{target.chip}"
    return "modern" if min(source.generation, target.generation) >= _MODERN else "other"


@dataclass(frozen=True)
class Prediction:
    """Per-call arrays in ms, and what decides the width of the band."""

    predicted_ms: np.ndarray
    bucket: np.ndarray
    op_class: np.ndarray
    spreads: Mapping[str, np.ndarray]


def predict_calls(
    work: pd.DataFrame,
    target_work: pd.DataFrame,
    source_ms: np.ndarray,
    latency: np.ndarray,
    source: Card,
    target: Card,
    source_precisions: np.ndarray,
    target_precisions: np.ndarray,
    coefficients: Coefficients,
) -> Prediction:
    """Time of one call of each operation on `target`. `latency`: True where times hold the host's work too.

    `target_work` differs from `work` where the target computes in another precision and moves other bytes.
    """
    sides = (
        kernel_model(work, source, source_precisions, coefficients),
        kernel_model(target_work, target, target_precisions, coefficients),
    )
    learned_less = ~work["op_class"].isin(list(physics.MEMORY_FEATURES)).to_numpy() | (source_precisions != "fp32")
    return predict_modelled(work, sides, source_ms, latency, source, target, coefficients, learned_less)


def predict_modelled(
    work: pd.DataFrame,
    sides: tuple[KernelModel, KernelModel],
    source_ms: np.ndarray,
    latency: np.ndarray,
    source: Card,
    target: Card,
    coefficients: Coefficients,
    learned_less: np.ndarray,
) -> Prediction:
    """`predict_calls` from the modelled kernel times of both cards.

    `learned_less`: rows whose efficiency no timing data show: classes without trees, and precisions other than FP32.
    """
    on_source, on_target = sides
    floors = [physics.floors_ms(work, card, coefficients.floor_ratios) for card in (source, target)]
    with np.errstate(divide="ignore", invalid="ignore"):
        of_latency, of_kernel = (physics.kernel_of_latency(source_ms, floors[0]), physics.above_shortest(source_ms))
        kernel = np.where(latency, of_latency[0], of_kernel[0])
        seen = np.where(latency, of_latency[1], of_kernel[1])
        residual = np.log(kernel / on_source.kernel_ms())
    # Behind the floor the kernel is hidden, yet it cannot be longer than what was measured.
    residual = np.clip(np.where(residual < 0, residual, residual * seen), -_RESIDUAL_LIMIT, _RESIDUAL_LIMIT)
    kind = relation(source, target)
    # An operation far slower than its roofline, without a learned factor of its own: what holds it up is neither
    # bandwidth nor arithmetic but the instructions that the SMs issue, and it scales with SMs and clock. (Kernel times
    # only: a latency holds too much of the host to tell.)
    share = on_source.compute_share()
    issue = learned_less & ~latency & (residual > _ROOFLINE_SLACK) & (share < 0.5)
    trusted = on_source.kernel_ms() * np.exp(_ROOFLINE_SLACK)
    beyond = (kernel**physics.ROOF_POWER - trusted**physics.ROOF_POWER).clip(min=0)
    issue_ms = np.where(issue, beyond ** (1 / physics.ROOF_POWER), 0.0)
    residual = np.where(issue, _ROOFLINE_SLACK, residual)
    carried = residual * np.where(issue, 1.0, _carry(work, kind, coefficients))
    fewer = (source.issue_rate / target.issue_rate) ** _ISSUE_POWER

    def time_on(model: KernelModel, floor_ms: np.ndarray, issue_ms: np.ndarray) -> np.ndarray:
        kernel_ms = model.kernel_ms(carried * share, carried * (1 - share), issue_ms)
        return np.where(latency, physics.latency_ms(kernel_ms, floor_ms), physics.not_below_shortest(kernel_ms))

    predicted = time_on(on_target, floors[1], issue_ms * fewer)
    if kind == "same":  # the same chip: the measured time times the ratio of two modelled times
        predicted = source_ms * (predicted / time_on(on_source, floors[0], issue_ms))
    return Prediction(
        predicted, _buckets(predicted, floors[1], seen, latency), work["op_class"].to_numpy(), on_target.spreads
    )


def _carry(work: pd.DataFrame, kind: str, coefficients: Coefficients) -> np.ndarray:
    """Share of the source's residual that the target has too; all of it where the class has no model of its own."""
    if kind == "same":
        return np.ones(len(work))
    known = {name: share for (name, relation_), share in coefficients.carry.items() if relation_ == kind}
    if not known:
        known = {name: share for (name, relation_), share in coefficients.carry.items() if relation_ == "other"}
    return work["op_class"].map(known).fillna(1.0).to_numpy(dtype=float)


def _buckets(predicted: np.ndarray, floor_ms: np.ndarray, seen: np.ndarray, latency: np.ndarray) -> np.ndarray:
    """Where the prediction lies above its floor, and whether the source showed the kernel."""
    above = np.where(latency, predicted / floor_ms, 1.5 + predicted / physics.SHORTEST_KERNEL_MS / 4)
    height = np.select([above < 1.15, above < 3], ["floor", "near"], "far")
    return np.char.add(height.astype(str), np.where(seen > 0.5, "/seen", "/hidden"))


def band_logs(
    prediction: Prediction,
    situation: str,
    target_chip: str | None,
    other_precision: np.ndarray,
    coefficients: Coefficients,
) -> tuple[np.ndarray, np.ndarray]:
    """Logs of low / predicted and high / predicted: quantiles of what was left out of the fit, in units of the residual
    that shapes like these usually have."""
    count = len(prediction.op_class)
    low, high = np.zeros(count), np.zeros(count)
    kind = band_kind(situation, target_chip)
    spread = np.exp(prediction.spreads["measured" if situation == "measured" else "left_out"])
    for op_class in set(prediction.op_class):
        for bucket in set(prediction.bucket[prediction.op_class == op_class]):
            rows = (prediction.op_class == op_class) & (prediction.bucket == bucket)
            edges = coefficients.bands.get((kind, op_class, bucket), coefficients.bands[kind, op_class, "far/seen"])
            low[rows], high[rows] = edges[0] * spread[rows], edges[1] * spread[rows]
    least = LEAST_LOG["measured" if situation == "measured" else "left_out"]
    low, high = np.minimum(low, -least), np.maximum(high, least)
    return low - _OTHER_PRECISION_LOG * other_precision, high + _OTHER_PRECISION_LOG * other_precision


def band_kind(situation: str, target_chip: str | None) -> str:
    """Whose residuals make the band: those on the measured chip itself, else those of boards left out."""
    return f"measured:{target_chip}" if situation == "measured" else situation


def situation_of(source: Card, target: Card) -> str:
    """measured (both boards in the timing data), ceilings (the target's are given), or spec."""
    if target.situation == "measured":
        return "measured" if source.chip else "ceilings"
    if target.situation == "ceilings" or relation(source, target) == "same":
        return "ceilings"
    return "spec"


def cards_of(
    source: str, target: str, ceilings: Mapping[str, object] | None, coefficients: Coefficients
) -> tuple[Card, Card]:
    """Both cards. Raises UserError for a card that is not known well enough."""
    if "cpu" in (source.lower(), target.lower()):
        raise UserError("a CPU is no GPU", "two GPUs", "time on a CPU is measured, not predicted")
    from_card = card_of(source, coefficients.boards)
    return from_card, card_of(target, coefficients.boards, ceilings, like=from_card)


def predict_between(
    ops: pd.DataFrame, source: Card, target: Card, coefficients: Coefficients, target_dtype: str | None = None
) -> pd.DataFrame:
    """`predict_ops` for two cards already looked up; `target_dtype` asks for another precision on the target."""
    result = ops.copy()
    for column in RESULT_COLUMNS:
        result[column] = np.full(len(ops), np.nan)
    if "device_ms" not in ops:
        raise UserError("the table has no column device_ms", "the time of each operation on the source in ms", "")
    total_ms = pd.to_numeric(ops["device_ms"], errors="coerce").to_numpy(dtype=float)
    known = np.flatnonzero(np.isfinite(total_ms) & (total_ms > 0))
    if not len(known):
        return result
    timings = _timings(ops)[known]
    chosen = ops.iloc[known]
    work, precisions = work_table(chosen)
    source_precisions = precisions.to_numpy()
    target_precisions = source_precisions
    if target_dtype is not None:
        target_precisions = np.where(source_precisions == "fp64", "fp64", target_dtype)
    calls = calls_of(chosen)
    call_ms = total_ms[known] / calls
    if source == target and (source_precisions == target_precisions).all():
        for column in RESULT_COLUMNS:
            result[column] = np.where(np.isfinite(total_ms) & (total_ms > 0), total_ms, np.nan)
        return result
    prediction = predict_calls(
        work,
        _in_precision(work, source_precisions, target_precisions),
        call_ms,
        timings == "latency",
        source,
        target,
        source_precisions,
        target_precisions,
        coefficients,
    )
    other = (target_precisions != "fp32") | (source_precisions != "fp32")
    low, high = band_logs(prediction, situation_of(source, target), target.chip, other.astype(float), coefficients)
    predicted = prediction.predicted_ms * calls
    for column, values in zip(
        RESULT_COLUMNS, (predicted, predicted * np.exp(low), predicted * np.exp(high)), strict=True
    ):
        placed = np.full(len(ops), np.nan)
        placed[known] = values
        result[column] = placed
    return result


def _in_precision(work: pd.DataFrame, source: np.ndarray, target: np.ndarray) -> pd.DataFrame:
    """The work with the bytes that the target's precision moves.

    From FP32 to half precision means autocast: a product reads its FP32 inputs, writes and reads them again in half,
    and writes its output in half; what is no product keeps its bytes.
    """
    product = work["op_class"].isin(["matmul", "conv", "conv_other"]).to_numpy()
    halved = np.array([ITEM_BYTES[new] < ITEM_BYTES[old] for old, new in zip(source, target, strict=True)], dtype=bool)
    moved = np.where(product & halved, work["bytes"] / 2 + 1.5 * work["input_bytes"], work["bytes"])
    return work.assign(bytes=moved)


def _timings(ops: pd.DataFrame) -> np.ndarray:
    if "timing" not in ops:
        return np.full(len(ops), "kernel", dtype=object)
    timings = ops["timing"].fillna("kernel").to_numpy(dtype=object)
    unknown = next((timing for timing in timings if timing not in TIMINGS), None)
    if unknown is not None:
        raise UserError(f'timing "{unknown}" is unknown', " or ".join(TIMINGS), "")
    return timings


def predict_ops(
    ops: pd.DataFrame,
    source: str,
    target: str,
    ceilings: Mapping[str, object] | None = None,
    *,
    coefficients: Coefficients | None = None,
) -> pd.DataFrame:
    """The rows of `ops` in their order with predicted_ms, low_ms, high_ms: their time on `target`, with a 95 % band.

    `ops`: columns op (ATen name or class of the timing data), shapes (list of tensor shapes), device_ms (total over
    calls on `source`), and where they are known dtype, calls, flops, bytes (totals over calls), scalars (as in an op
    table) and `timing`: "kernel" (default; duration of the kernels) or "latency" (between two events, host and launch
    included). `source`, `target`: catalogue keys or drivers' names. `ceilings`: what the target reaches at best, keys
    gemm_fp32_tflops, copy_gb_s, launch_us (of an operation on tiny tensors); None: the shipped catalogue. Further keys:
    gemm_tf32_tflops, gemm_fp16_tflops, gemm_bf16_tflops, sm_count (a card cut to part of its SMs), memory_gb. For a
    card that the catalogue lacks gemm_fp32_tflops and copy_gb_s suffice. The same card without ceilings gives exactly
    the same time. A row without a time stays without one (NaN).

    Raises UserError for an unknown card, precision or timing, for a ceiling that is no positive number, and for an
    operation with a time but without shapes, flops and bytes. Arithmetic that a card does not have gives NaN.
    """
    known = coefficients or shipped()
    from_card, to_card = cards_of(source, target, ceilings, known)
    return predict_between(ops, from_card, to_card, known)
