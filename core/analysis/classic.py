"""The estimates that articles about GPUs make, each as a row with its value and its source.

They stand beside the verdict, so that a reader finds the number that he knows: bandwidth as the best single predictor,
its corrections for caches, the ratio de-biased for batch, averages of a field over a baseline, and "32-bit" read as
FP32 on one side and TF32 on the other. A ratio is baseline time / target time.
"""
from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import geometric_mean

from core.gpus import Gpu, peak_tflops

_MODELS = Path(__file__).resolve().parent.parent / "reference" / "norms" / "model_latency_fp32.csv"


@dataclass(frozen=True)
class Estimate:
    """One classic estimate. low, high: the span that its source gives; None where it gives one number."""

    name: str
    value: float
    low: float | None
    high: float | None
    source: str


@dataclass(frozen=True)
class _Published:
    name: str
    value: float
    low: float | None
    high: float | None
    source: str


_V100 = frozenset({"v100-pcie-16gb", "v100-pcie-32gb", "v100-sxm2-16gb", "v100-sxm2-32gb"})
_A100_40GB = frozenset({"a100-pcie-40gb", "a100-sxm4-40gb"})
_DETTMERS = "Dettmers, Which GPU for deep learning (V100 to A100 40GB)"
_LAMBDA = "lambdal/deeplearning-benchmark, A100 40GB PCIe over V100 16GB, geometric mean of its task list"
_V100_TO_A100 = (
    _Published("bandwidth with shared memory and L1", 1.825, 1.78, 1.87, _DETTMERS),
    _Published("de-biased for batch and GPU count, language", 1.70, None, None, _DETTMERS),
    _Published("de-biased for batch and GPU count, vision", 1.45, None, None, _DETTMERS),
    _Published("93 % of FP32 peak, then a TF32 gain of 1.16", 1.4, None, None, "Lambda, launch-day estimate"),
    _Published("average of a field, FP16", 2.20, 1.58, 4.13, _LAMBDA),
    _Published('average of a field, "FP32" (TF32 on the A100, other batch sizes)', 3.45, 2.39, 4.99, _LAMBDA),
)


@lru_cache(maxsize=1)
def _models() -> dict[str, dict[tuple[str, str, str], float]]:
    """Catalogue key -> (model, sequence length, batch) -> latency in ms."""
    found: dict[str, dict[tuple[str, str, str], float]] = {}
    with _MODELS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            work = row["model"], row["sequence_length"], row["batch"]
            found.setdefault(row["gpu_key"], {})[work] = float(row["latency_ms"])
    return found


def _ratio(baseline: float | None, target: float | None) -> float | None:
    return target / baseline if baseline and target else None


def classic_estimates(baseline: Gpu | None, target: Gpu | None) -> list[Estimate]:
    """The estimates that exist for a pair of cards, the simplest first; empty without two data sheets."""
    if baseline is None or target is None or baseline.key == target.key:
        return []
    found = []
    bandwidth = _ratio(baseline.memory_bandwidth_gb_s, target.memory_bandwidth_gb_s)
    if bandwidth is not None:
        found.append(Estimate("memory bandwidth", bandwidth, None, None, "data sheets; Dettmers: 1555 / 900 = 1.73"))
    if baseline.key in _V100 and target.key in _A100_40GB:
        found += [Estimate(row.name, row.value, row.low, row.high, row.source) for row in _V100_TO_A100]
    elif baseline.key in _A100_40GB and target.key in _V100:
        found += [Estimate(row.name, 1 / row.value, row.high and 1 / row.high, row.low and 1 / row.low, row.source)
                  for row in _V100_TO_A100]
    return [*found, *_mixed_32_bit(baseline, target), *_whole_models(baseline, target)]


def _mixed_32_bit(baseline: Gpu, target: Gpu) -> list[Estimate]:
    """"32-bit" that was FP32 on the one card and TF32 on the other."""
    rows = []
    for card, other, power in ((target, baseline, 1), (baseline, target, -1)):
        fast, slow = peak_tflops(card, "tf32"), peak_tflops(other, "fp32")
        if card.supports_tf32 and fast and slow:
            name = f'"32-bit" as TF32 on the {card.name}, FP32 on the {other.name}'
            rows.append(Estimate(name, (fast.value / slow.value) ** power, None, None, "data sheets"))
    return rows


def _whole_models(baseline: Gpu, target: Gpu) -> list[Estimate]:
    """A whole model timed on both cards in FP32."""
    left, right = (_models().get(card.key or "", {}) for card in (baseline, target))
    ratios = [left[work] / right[work] for work in left if work in right]
    if not ratios:
        return []
    return [Estimate("a whole language model (BERT-large) in FP32", geometric_mean(ratios), min(ratios), max(ratios),
                     f"sitar-lab/NeuSight, torch 2.1, TF32 off, {len(ratios)} batch sizes")]
