"""Make the compact norm table of core/reference/norms from the op timings of sitar-lab/NeuSight.

    python benchmarks/make_norms.py kernel_latency_fp32.parquet [--out core/reference/norms/op_norms.csv]

Input: one row per timed operation (`op`, `gpu`, its shape columns, `latency_ms`), FP32 with TF32 off, torch 2.1.
Per pair of GPUs the operations of equal kind and shape are joined (a shape timed twice on one GPU counts by its
median) and the ratios baseline time / target time summarised per op class: quantiles, maximum, share above 10, and a
histogram of bins that are 1/20 of a decade wide. The two A100 boards count as one chip: the 40 GB PCIe one timed
everything but convolution, the 80 GB PCIe one convolution alone.
"""
from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import pandas as pd

# NVML name in the data -> chip, as core/analysis/norms.py knows it.
CHIP_OF_BOARD = {
    "Tesla P4": "p4",
    "Tesla P100-PCIE-16GB": "p100",
    "Tesla V100-PCIE-32GB": "v100",
    "Tesla T4": "t4",
    "NVIDIA A100-PCIE-40GB": "a100",
    "NVIDIA A100 80GB PCIe": "a100",
}
# A trailing u marks the variant with a scalar operand.
CLASS_OF_OP = {
    "linear": "gemm",
    "bmm": "bmm",
    "conv": "conv3x3",
    "softmax": "softmax",
    "ln": "layer_norm",
    **dict.fromkeys(
        ["add", "addu", "mul", "mulu", "div", "divu", "pow", "powu", "gelu", "relu", "tanh"], "elementwise"
    ),
}
SHAPE_COLUMNS = ["op", "batch", "m", "n", "k", "cin", "cout", "kernel", "size", "stride", "padding", "h"]
QUANTILES = {"p0_5": 0.005, "p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99_5": 0.995}
BINS_PER_DECADE = 20


def latency_by_chip(timings: pd.DataFrame) -> pd.DataFrame:
    """One row per operation and shape (index: SHAPE_COLUMNS), one column per chip, median latency in ms."""
    timings = timings.assign(chip=timings["gpu"].map(CHIP_OF_BOARD))
    unknown = timings.loc[timings["chip"].isna(), "gpu"].unique()
    if len(unknown):
        raise SystemExit(f"boards without a chip: {', '.join(unknown)}; add them to CHIP_OF_BOARD")
    # Absent shape parameters are part of the key, and groupby would drop NaN.
    timings = timings.fillna(dict.fromkeys(SHAPE_COLUMNS[1:], -1))
    return timings.groupby([*SHAPE_COLUMNS, "chip"])["latency_ms"].median().unstack("chip")


def summary(ratios: np.ndarray) -> dict[str, object]:
    """Quantiles, extremes and histogram of a set of ratios."""
    bins = np.floor(np.log10(ratios) * BINS_PER_DECADE).astype(int)
    counts = np.bincount(bins - bins.min())
    return {
        "n": len(ratios),
        "min": ratios.min(),
        **{name: np.quantile(ratios, q) for name, q in QUANTILES.items()},
        "max": ratios.max(),
        "share_above_10": (ratios > 10).mean(),
        "first_bin": bins.min(),
        "counts": " ".join(map(str, counts)),
    }


def norm_table(timings: pd.DataFrame) -> pd.DataFrame:
    """One row per (baseline, target, op class), both directions; class `all` is unweighted over operations."""
    latency = latency_by_chip(timings)
    op_class = latency.index.get_level_values("op").map(CLASS_OF_OP)
    rows = []
    for baseline, target in itertools.permutations(dict.fromkeys(CHIP_OF_BOARD.values()), 2):
        ratio = latency[baseline] / latency[target]
        present = ratio.notna()
        for name in ("all", *dict.fromkeys(CLASS_OF_OP.values())):
            chosen = ratio[present & ((op_class == name) | (name == "all"))]
            rows.append({"baseline": baseline, "target": target, "op_class": name, **summary(chosen.to_numpy())})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("timings", type=Path, help="kernel_latency_fp32.parquet")
    default = Path(__file__).resolve().parent.parent / "core/reference/norms/op_norms.csv"
    parser.add_argument("--out", type=Path, default=default)
    arguments = parser.parse_args()
    table = norm_table(pd.read_parquet(arguments.timings))
    table.to_csv(arguments.out, index=False, float_format="%.5g")
    print(f"{len(table)} rows, {arguments.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
