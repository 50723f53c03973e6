"""The least time that a stage or an operation takes on a card when it works from device memory: the roofline.

    floor = max(flops / peak, bytes / bandwidth, launches x launch floor)

`flops` are matrix products and convolutions (one FMA = 2), `bytes` the distinct inputs and outputs once (compulsory,
unfused), so that the floor is no prediction. It is a lower bound for data that come from device memory: an operation
whose inputs still lie in the L2 cache can be faster. A part without its number (a launch floor that nobody measured,
bytes of a compiled run) is left out, not taken as zero.
Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.gpus import Gpu, peak_tflops

PARTS = {"compute_ms": "compute", "bandwidth_ms": "bandwidth", "launch_ms": "launch"}


@dataclass(frozen=True)
class Ceilings:
    """What one card reaches at most in one precision setting. None: not known, and left out of the floor."""

    matmul_tflops: float | None
    convolution_tflops: float | None
    bandwidth_gb_s: float | None
    launch_us: float | None
    source: str  # "spec" or "measured ..."


def spec_ceilings(
    gpu: Gpu | None, precision: str, launch_us: float | None = None, clock_share: float | None = None
) -> Ceilings:
    """Data-sheet ceilings. In `default` convolutions may use TF32, matrix products stay in FP32.

    No data sheet prints a launch floor: give a measured one in `launch_us`, or launches are left out. `clock_share`:
    recorded clock over the maximum, for the peaks at the clock that ran. Raises ValueError for an unknown precision.
    """
    if gpu is None:
        return Ceilings(None, None, None, launch_us, "no data sheet")
    convolution = peak_tflops(gpu, precision)
    matmul = peak_tflops(gpu, "fp32") if precision == "default" else convolution
    share = 1.0 if clock_share is None else clock_share
    return Ceilings(
        matmul_tflops=matmul.value * share if matmul else None,
        convolution_tflops=convolution.value * share if convolution else None,
        bandwidth_gb_s=gpu.memory_bandwidth_gb_s,
        launch_us=launch_us,
        source="spec" if clock_share is None else "spec at the recorded clock",
    )


def measured_ceilings(values: Mapping[tuple[str, str], float], precision: str) -> Ceilings | None:
    """Ceilings that a board measured itself; None where it did not measure products in this precision.

    `values`: (metric, precision or "") -> value, metrics as core/measure/ceilings.py lists them: gemm in TFLOPS, copy
    in GB/s, op_rate in 1/ms. A product stands for convolutions, too.
    """
    matmul = values.get(("gemm", "fp32" if precision == "default" else precision))
    convolution = values.get(("gemm", "tf32" if precision == "default" else precision))
    if matmul is None or convolution is None:
        return None
    rate = values.get(("op_rate", ""))
    return Ceilings(matmul, convolution, values.get(("copy", "")), 1e3 / rate if rate else None, "measured")


def _numbers(table: pd.DataFrame, column: str) -> pd.Series:
    """A column as floats; NaN where it is missing."""
    if column not in table:
        return pd.Series(np.nan, index=table.index)
    return pd.to_numeric(table[column], errors="coerce").astype(float)


def _peaks_tflops(table: pd.DataFrame, ceilings: Ceilings) -> pd.Series:
    """The peak of each row: by the kind of operation; a stage, which may hold both kinds, by the higher one."""
    peaks = (ceilings.matmul_tflops, ceilings.convolution_tflops)
    known = [peak for peak in peaks if peak is not None]
    if "op" not in table:
        return pd.Series(max(known) if known else np.nan, index=table.index, dtype=float)
    is_convolution = table["op"].str.contains("conv")
    values = [np.nan if peak is None else peak for peak in peaks]
    return pd.Series(np.where(is_convolution, values[1], values[0]), index=table.index)


def roofline(table: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """The table with columns compute_ms, bandwidth_ms, launch_ms, floor_ms and bound_by added.

    `table`: rows of operations (with a column `op`) or of stages; columns flops, bytes, launches are totals of the
    row over one forward pass. A part whose number is missing is NaN; floor_ms and bound_by ("compute", "bandwidth",
    "launch") are NaN and None where no part is known or nothing is to do.
    """
    result = table.copy()
    result["compute_ms"] = _numbers(table, "flops") / (_peaks_tflops(table, ceilings) * 1e9)
    result["bandwidth_ms"] = _numbers(table, "bytes") / _or_nan(ceilings.bandwidth_gb_s) / 1e6
    result["launch_ms"] = _numbers(table, "launches") * _or_nan(ceilings.launch_us) / 1e3
    parts = result[list(PARTS)].to_numpy(dtype=float)
    known = np.where(np.isnan(parts), -np.inf, parts)
    floor = known.max(axis=1, initial=-np.inf)
    works = floor > 0  # a view neither computes nor moves anything
    result["floor_ms"] = np.where(works, floor, np.nan)
    names = np.array(list(PARTS.values()), dtype=object)
    result["bound_by"] = pd.Series(
        [names[place] if ok else None for place, ok in zip(known.argmax(axis=1), works, strict=True)],
        index=table.index, dtype=object,
    )  # fmt: skip
    return result


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def stages_from_ops(op_floors: pd.DataFrame) -> pd.DataFrame:
    """Floor of each stage as the sum over its operations, which run one after the other.

    `op_floors`: what `roofline` returned for an op table (columns stage, floor_ms, bound_by). Result: columns stage,
    floor_ms, bound_by (the part that holds most of the floor), in the order of first appearance.
    """
    known = op_floors[op_floors["floor_ms"].notna()]
    rows = []
    for stage, part in known.groupby("stage", sort=False):
        by_part = part.groupby("bound_by")["floor_ms"].sum()
        rows.append({"stage": stage, "floor_ms": float(part["floor_ms"].sum()), "bound_by": str(by_part.idxmax())})
    return pd.DataFrame(rows, columns=["stage", "floor_ms", "bound_by"])


def roofline_ratio(baseline_floors: pd.DataFrame, target_floors: pd.DataFrame) -> float | None:
    """Sum of floors on the baseline over that on the target: the gap that the roofline allows; None without floors."""
    sums = [float(table["floor_ms"].sum()) for table in (baseline_floors, target_floors)]
    return sums[0] / sums[1] if min(sums) > 0 else None
