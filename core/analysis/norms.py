"""Where a ratio stands among healthy operations of the same kind on the same pair of cards.

Data: core/reference/norms/op_norms.csv, made by benchmarks/make_norms.py from 256,509 FP32 timings with TF32 off
(sitar-lab/NeuSight, MIT; torch 2.1, a launch floor of about 25 us in every time). Another board of the same chip
serves, its name stated. Any other operation, precision or pair has no norm: none is ever borrowed from a neighbour.
"""
from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from core.gpus import Gpu, catalogue

OP_CLASSES = ("gemm", "bmm", "conv3x3", "softmax", "layer_norm", "elementwise")
NORM_PRECISIONS = ("fp32",)
"""The precisions that the data cover. A question without a stated precision is answered as an assumption."""

_TABLE = Path(__file__).resolve().parent.parent / "reference" / "norms" / "op_norms.csv"
_BINS_PER_DECADE = 20
# A workload norm that speaks for less than this share of the time would be a norm of something else.
_LEAST_COVERED_SHARE = 0.5

# Catalogue keys of one chip; the first one is the board that was measured.
_BOARDS_OF_CHIP = {
    "p4": ("p4",),
    "p100": ("p100-pcie-16gb", "p100-sxm2-16gb", "p100-pcie-12gb"),
    "v100": ("v100-pcie-32gb", "v100-pcie-16gb", "v100-sxm2-16gb", "v100-sxm2-32gb", "v100s-pcie-32gb"),
    "t4": ("t4",),
    "a100": (
        "a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb",
        "a800-pcie-40gb-active", "a800-pcie-80gb", "a800-sxm4-40gb", "a800-sxm4-80gb",
    ),
}  # fmt: skip
_CHIP_OF_KEY = {key: chip for chip, keys in _BOARDS_OF_CHIP.items() for key in keys}
_CONVOLUTION_BOARD = {"a100": "a100-pcie-80gb"}  # the other A100 board timed no convolution

# What a profiler writes in the place of a dtype for an argument that is no tensor.
_NO_TENSOR_TYPE = frozenset({"", "none", "scalar", "scalarlist"})
_SAMPLED_ELEMENTWISE = frozenset({"add", "mul", "div", "pow", "gelu", "relu", "tanh"})
_CLASS_OF_OP = {
    "linear": "gemm", "addmm": "gemm", "mm": "gemm",
    "bmm": "bmm", "baddbmm": "bmm",
    "softmax": "softmax", "_softmax": "softmax",
    "layer_norm": "layer_norm", "native_layer_norm": "layer_norm",
}  # fmt: skip


@dataclass(frozen=True)
class Norm:
    """The distribution of healthy ratios (baseline time / target time) for one pair and op class."""

    min: float
    low: float  # 0.5 % lie below
    median: float
    high: float  # 0.5 % lie above
    max: float
    n: int
    source: str
    op_class: str
    share_above_10: float

    def as_dict(self) -> dict[str, object]:
        """The `norm` object of an explain answer."""
        return asdict(self)


@lru_cache(maxsize=1)
def _table() -> dict[tuple[str, str, str], dict[str, str]]:
    """The rows of the norm table by (baseline chip, target chip, op class)."""
    with _TABLE.open(encoding="utf-8", newline="") as file:
        return {(row["baseline"], row["target"], row["op_class"]): row for row in csv.DictReader(file)}


def _pair(baseline_key: str | None, target_key: str | None) -> tuple[str, str] | None:
    """The chips of two cards, or None where there are no data for them or both carry the same chip."""
    chips = (_CHIP_OF_KEY.get(baseline_key or ""), _CHIP_OF_KEY.get(target_key or ""))
    if chips[0] is None or chips[1] is None or chips[0] == chips[1]:
        return None
    return chips[0], chips[1]


def _board(chip: str, op_class: str) -> str:
    """The name of the board that was measured."""
    cards = catalogue()
    measured = cards[_BOARDS_OF_CHIP[chip][0]].name
    other = _CONVOLUTION_BOARD.get(chip)
    if other and op_class == "conv3x3":
        return cards[other].name
    return f"{measured} (convolution: {cards[other].name})" if other and op_class == "all" else measured


def _other_memory(own: Gpu, measured: Gpu) -> str:
    """Boards of one chip differ in memory: said where the bandwidth moves by over 10 %."""
    ours, theirs = own.memory_bandwidth_gb_s, measured.memory_bandwidth_gb_s
    if not ours or not theirs or abs(ours / theirs - 1) <= 0.1:
        return ""
    return f" with {ours:g} instead of {theirs:g} GB/s"


def _source(what: str, baseline_key: str, target_key: str, op_class: str) -> str:
    """What was measured, on which boards, and for which other board of the chip it stands in."""
    cards = catalogue()
    parts, stand_ins = [], []
    for key in (baseline_key, target_key):
        chip = _CHIP_OF_KEY[key]
        board = _board(chip, op_class)
        parts.append(board)
        measured_key = _CONVOLUTION_BOARD.get(chip) if op_class == "conv3x3" else None
        measured = cards[measured_key or _BOARDS_OF_CHIP[chip][0]]
        own = cards[key]
        if own is not measured:
            stand_ins.append(f"standing in for the {own.name}, the same chip{_other_memory(own, measured)}")
    stood_in = f"; {', '.join(dict.fromkeys(stand_ins))}" if stand_ins else ""
    return f"{what}, {parts[0]} against {parts[1]}{stood_in}; torch 2.1, TF32 off, sitar-lab/NeuSight"


def norm(
    baseline_key: str | None, target_key: str | None, op_class: str | None = None, precision: str | None = "fp32"
) -> Norm | None:
    """The norm of a pair of catalogue keys, for one of OP_CLASSES or (None) for a whole workload.

    A whole workload gets the pair's distribution over all sampled op classes, unweighted. `precision` None, not
    stated, is answered as FP32, and the caller must say so; any other precision has no norm.
    """
    pair = _pair(baseline_key, target_key)
    if pair is None or precision not in (None, *NORM_PRECISIONS):
        return None
    name = op_class or "all"
    if name not in ("all", *OP_CLASSES):
        return None
    row = _table()[*pair, name]
    what = "all FP32 op classes, unweighted" if name == "all" else f"FP32 {name}"
    return Norm(
        min=float(row["min"]),
        low=float(row["p0_5"]),
        median=float(row["p50"]),
        high=float(row["p99_5"]),
        max=float(row["max"]),
        n=int(row["n"]),
        source=_source(what, str(baseline_key), str(target_key), name),
        op_class=name,
        share_above_10=float(row["share_above_10"]),
    )


LEAST_OWN = 5
"""Operations of one class below which a norm of one's own would be an anecdote."""


def own_norms(operations: pd.DataFrame, source: str) -> list[Norm]:
    """Norms from operations that were timed here on both cards: one per op class, and `all`; [] below LEAST_OWN.

    `operations`: columns op_class (None or NaN: no class) and ratio (baseline time / target time). They have a source
    of their own, software named, and are never mixed with the shipped norms.
    """
    known = operations[operations["ratio"] > 0]
    groups = [("all", known), *((str(name), part) for name, part in known.groupby("op_class"))]
    found = []
    for name, part in groups:
        if len(part) < LEAST_OWN:
            continue
        low, median, high = (float(part["ratio"].quantile(q)) for q in (0.005, 0.5, 0.995))
        found.append(Norm(
            min=float(part["ratio"].min()), low=low, median=median, high=high, max=float(part["ratio"].max()),
            n=len(part), source=source, op_class=name, share_above_10=float((part["ratio"] > 10).mean()),
        ))  # fmt: skip
    return found


def histogram(baseline_key: str | None, target_key: str | None, op_class: str | None = None) -> pd.DataFrame:
    """The norm as a histogram: columns low, high (ratio), count, share (of all); empty where there is no norm."""
    pair = _pair(baseline_key, target_key)
    if pair is None:
        return pd.DataFrame({"low": [], "high": [], "count": [], "share": []}, dtype=float)
    row = _table()[*pair, op_class or "all"]
    counts = np.array([int(count) for count in row["counts"].split()])
    edges = 10 ** ((int(row["first_bin"]) + np.arange(len(counts) + 1)) / _BINS_PER_DECADE)
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "count": counts, "share": counts / counts.sum()})


def op_class(op: str, shapes: object = None, dtypes: object = None, scalars: object = None) -> str | None:
    """The op class that covers an operation of an op table, or None.

    `op` is an ATen name ("aten::conv2d"); shapes, dtypes and scalars are lists or their JSON text as the op table
    holds them. Only what was sampled counts: FP32; of convolutions the 3x3 ones of stride 1 and padding 1; of
    element-wise operations add, mul, div, pow, gelu, relu, tanh.
    """
    sizes, types = _parsed(shapes), _parsed(dtypes)
    tensor_types = {str(kind).split(".")[-1].lower() for kind in types} - _NO_TENSOR_TYPE
    if not tensor_types <= {"float", "float32"}:
        return None
    name = op.split("::")[-1].split(".")[0].rstrip("_")
    if name in _SAMPLED_ELEMENTWISE:
        return "elementwise"
    if name == "matmul":
        return _matmul_class(sizes)
    if name == "conv2d":
        weight = sizes[1] if len(sizes) > 1 else None
        three_by_three = isinstance(weight, Sequence) and list(weight[-2:]) == [3, 3] and len(weight) == 4
        return "conv3x3" if three_by_three and _sampled_convolution(scalars) else None
    return _CLASS_OF_OP.get(name)


def _parsed(value: object) -> list[object]:
    """A list, or its JSON text, as a list; anything else is unknown and empty."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    return list(value) if isinstance(value, Sequence) else []


def _matmul_class(sizes: list[object]) -> str | None:
    """torch.matmul: batched when both operands carry a batch, else one product."""
    dimensions = [len(size) for size in sizes[:2] if isinstance(size, Sequence)]
    if len(dimensions) < 2:
        return None
    return "bmm" if min(dimensions) >= 3 else "gemm"


def _sampled_convolution(scalars: object) -> bool:
    """Stride, padding, dilation and groups of one: every number among the scalar arguments is 1."""
    return {number for part in _parsed(scalars) for number in re.findall(r"\d+", str(part))} <= {"1"}


def workload_norm(
    classes_ms: pd.Series, baseline_key: str | None, target_key: str | None, precision: str | None = "fp32"
) -> Norm | None:
    """The norm of a measured workload: the op classes' distributions, weighted by time on the baseline.

    `classes_ms`: time on the baseline in ms by op class, index None or NaN for operations without a class. None where
    there is no norm for the pair, or the covered operations hold less than half of the time.
    """
    pair = _pair(baseline_key, target_key)
    total_ms = float(classes_ms.sum())
    covered = classes_ms[classes_ms.index.isin(OP_CLASSES)]
    covered = covered[covered > 0].groupby(level=0).sum()
    if pair is None or precision not in (None, *NORM_PRECISIONS) or total_ms <= 0:
        return None
    share = float(covered.sum()) / total_ms
    if share < _LEAST_COVERED_SHARE:
        return None
    weights = covered / covered.sum()
    low, median, high = _mixed_quantiles(baseline_key, target_key, weights, (0.005, 0.5, 0.995))
    rows = {name: _table()[*pair, name] for name in map(str, covered.index)}
    least = min(float(row["min"]) for row in rows.values())
    most = max(float(row["max"]) for row in rows.values())
    what = f"FP32 op classes weighted by time ({share:.0%} of it covered)"
    return Norm(
        min=least,
        low=max(low, least),
        median=median,
        high=min(high, most),
        max=most,
        n=sum(int(row["n"]) for row in rows.values()),
        source=_source(what, str(baseline_key), str(target_key), "all"),
        op_class="weighted",
        share_above_10=sum(float(row["share_above_10"]) * float(weights[name]) for name, row in rows.items()),
    )


def _mixed_quantiles(
    baseline_key: str | None, target_key: str | None, weights: pd.Series, quantiles: Sequence[float]
) -> list[float]:
    """Quantiles of the classes' histograms mixed by `weights` (index: op class), linear in the log inside a bin."""
    parts = []
    for name, weight in weights.items():
        part = histogram(baseline_key, target_key, str(name))
        parts.append(part.assign(weight=part["share"] * weight))
    mixed = pd.concat(parts).groupby(["low", "high"])["weight"].sum().sort_index().reset_index()
    edges = np.append(mixed["low"].to_numpy(), mixed["high"].to_numpy()[-1])
    below = np.append(0.0, mixed["weight"].cumsum().to_numpy())
    return [float(np.exp(np.interp(q, below / below[-1], np.log(edges)))) for q in quantiles]
