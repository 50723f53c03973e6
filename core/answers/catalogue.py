"""What is known about a card: data sheet values with their sources, peaks by precision, ceilings others measured."""
from __future__ import annotations

import dataclasses
import re
from typing import Any

from core import units
from core.answers.json_values import json_value
from core.errors import UserError
from core.gpus import PRECISIONS, Gpu, by_human_name, catalogue, measured_ceilings, peak_tflops, value_source

_NO_VALUE = {
    "key", "name", "nvml_name_patterns", "source", "notes", "derived_fields", "nvml_name_examples", "disambiguate",
    "verification", "aliases", "alias_default",
}
_UNITS = (
    ("_gb_s", "GB/s"), ("_tops_dense", "TOPS"), ("_mhz", "MHz"), ("_gb", "GB"), ("_mb", "MB"), ("_w", "W"),
    ("_usd", "USD"), ("_gbps", "Gb/s"), ("_bits", "bit"),
)


def specs(name: str) -> dict[str, Any]:
    """One card: `values` [{field, value, unit, source}], `peaks`, `measured_ceilings`, `headline`, `assumptions`.

    Raises `UserError` with the nearest names for an unknown card, and for `cpu`, which has no catalogue row.
    """
    if name.strip().lower() == "cpu":
        raise UserError("a CPU has no row in the GPU catalogue", "a GPU such as T4 or H200",
                        "its measured cells are in `python -m core runs`")
    match = by_human_name(name)
    gpu = match.gpu
    fields = [f.name for f in dataclasses.fields(Gpu) if f.name not in _NO_VALUE]
    return json_value({
        "key": gpu.key, "name": gpu.name, "headline": headline(gpu),
        "assumptions": [match.assumption] if match.assumption else [],
        "alternatives": [{"key": other.key, "name": other.name} for other in match.alternatives],
        "values": [
            {"field": field, "value": getattr(gpu, field), "unit": _unit(field), "source": value_source(gpu, field)}
            for field in fields
        ],
        "peaks": [_peak(gpu, precision) for precision in PRECISIONS],
        "measured_ceilings": [dataclasses.asdict(ceiling) for ceiling in measured_ceilings(gpu.key)],
        "nvml_names": gpu.nvml_name_examples, "aliases": gpu.aliases, "verification": gpu.verification,
        "notes": gpu.notes or None,
    })


def all_specs() -> dict[str, Any]:
    """The whole catalogue, one short row a card, in the order of the file."""
    rows = [
        {
            "key": gpu.key, "name": gpu.name, "architecture": gpu.architecture, "launch": gpu.launch,
            "compute_capability": gpu.compute_capability, "sm_count": gpu.sm_count, "memory_gb": gpu.memory_gb,
            "memory_bandwidth_gb_s": gpu.memory_bandwidth_gb_s, "l2_cache_mb": gpu.l2_cache_mb, "tdp_w": gpu.tdp_w,
            "fp32_tflops": gpu.fp32_tflops, "tf32_tflops": gpu.tf32_tensor_tflops_dense,
            "fp16_tflops": gpu.fp16_tensor_tflops_dense_fp32acc, "bf16_tflops": gpu.bf16_tensor_tflops_dense,
            "trust": trust(gpu), "measured_ceilings": len(measured_ceilings(gpu.key)),
        }
        for gpu in catalogue().values()
    ]
    with_ceilings = sum(bool(row["measured_ceilings"]) for row in rows)
    return json_value({
        "gpus": rows,
        "headline": f"{len(rows)} cards; {with_ceilings} have public measured ceilings. "
                    "FP32, TF32, FP16 and BF16 in TFLOP/s, dense; GB is nominal.",
    })


def trust(gpu: Gpu) -> str:
    """How the figures of a card were checked, in one word or two: `Gpu.verification` without its details."""
    return re.split(r"[:;(]", gpu.verification)[0].strip() or "not stated"


def headline(gpu: Gpu) -> str:
    """The card in one sentence: what a point tracker meets first."""
    parts = [f"{units.gb_s(gpu.memory_bandwidth_gb_s)} of bandwidth", f"{units.tflops(gpu.fp32_tflops)} in FP32"]
    if gpu.supports_tf32 and gpu.tf32_tensor_tflops_dense is not None:
        parts.append(f"{units.tflops(gpu.tf32_tensor_tflops_dense)} in TF32")
    elif not gpu.supports_tf32:
        parts.append("no TF32")
    memory = f", {units.significant(gpu.memory_gb, 2)} GB" if gpu.memory_gb is not None else ""
    return f"{gpu.name} ({gpu.architecture}, compute capability {gpu.compute_capability}{memory}): {', '.join(parts)}."


def _unit(field: str) -> str | None:
    if "tflops" in field:
        return "TFLOP/s"
    return next((unit for suffix, unit in _UNITS if field.endswith(suffix)), None)


def _peak(gpu: Gpu, precision: str) -> dict[str, Any]:
    peak = peak_tflops(gpu, precision)
    if peak is None:
        return {"precision": precision, "value": None, "field": None, "source": "none, or not published",
                "unit_name": None, "derived": None, "emulated": None}
    return {"precision": precision, **dataclasses.asdict(peak)}
