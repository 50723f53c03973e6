"""One card of the catalogue as tables: measured ceilings against its data sheet, values with their sources."""

from __future__ import annotations

import pandas as pd

from core import units
from core.answers import sentences
from core.charts.tables.values import Answer, quantity


def ceiling_rows(specs: Answer) -> pd.DataFrame:
    """Public measurements of a card as shares of its data sheet: name, share, value, printed, tool, source, note.

    A measurement whose printed figure is not published has no share and is left to the table.
    """
    values = {row["field"]: row["value"] for row in specs["values"]}
    peaks = {row["precision"]: row["value"] for row in specs["peaks"]}
    rows = []
    for ceiling in specs["measured_ceilings"]:
        if ceiling["unit"] == "GB/s":
            printed, what = values.get("memory_bandwidth_gb_s"), "bandwidth"
        else:
            precision = ceiling["precision"].split(" ")[0]
            printed, what = peaks.get(precision), precision.upper()
        metric = (
            ceiling["metric"].replace("dram_bandwidth_", "").replace("dram_bandwidth", "").replace("_", " ").strip()
        )
        metric = metric.replace("tflops", "").replace("lbm effective", "lattice Boltzmann").replace("  ", " ").strip()
        unit = ceiling["unit"].replace("TFLOPS", "TFLOP/s")
        rows.append(
            {
                "name": f"{what}, {metric}" if metric else what,
                "share": ceiling["value"] / printed if printed else None,
                "value": quantity(ceiling["value"], unit),
                "data sheet": quantity(printed, unit),
                "precision": ceiling["precision"],
                "tool": ceiling["tool"],
                "source": ceiling["source"],
                "note": ceiling["note"],
            }
        )
    named = pd.Series([row["name"] for row in rows], dtype=object)
    for row, twice in zip(rows, named.duplicated(keep=False), strict=True):
        if twice:  # two tools measured the same thing
            row["name"] = f"{row['name']}, {row['tool'].split(',')[0].split('(')[0].strip()}"
    columns = ["name", "share", "value", "data sheet", "precision", "tool", "source", "note"]
    return pd.DataFrame(rows, columns=columns)


def ceiling_finding(specs: Answer, rows: pd.DataFrame) -> str:
    """How much of its data sheet a card reached at best, bandwidth and arithmetic apart."""
    known = rows.dropna(subset=["share"])
    memory, arithmetic = (known[known["name"].str.startswith("bandwidth") == flag] for flag in (True, False))
    said = [
        f"{units.percent(part['share'].max())} of its {what}"
        for part, what in ((memory, "printed bandwidth"), (arithmetic, "printed arithmetic peak"))
        if len(part)
    ]
    if not said:
        return f"Nobody's measurement of the {specs['name']} has a printed figure to stand beside"
    return f"The {specs['name']} reached {' and '.join(said)} at best"


_FIELD_NAMES = {
    "gb_s": "GB/s",
    "tflops": "TFLOP/s",
    "tops": "TOPS",
    "mhz": "MHz",
    "gb": "GB",
    "mb": "MB",
    "usd": "USD",
    "w": "W",
    "fp64": "FP64",
    "fp32": "FP32",
    "tf32": "TF32",
    "fp16": "FP16",
    "bf16": "BF16",
    "fp8": "FP8",
    "int8": "INT8",
    "sm": "SM",
    "l2": "L2",
    "tdp": "TDP",
    "cuda": "CUDA",
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "gpu": "GPU",
    "fp32acc": "(FP32 accumulate)",
    "fp16acc": "(FP16 accumulate)",
    "gbps": "Gb/s",
}


def spec_values(specs: Answer) -> pd.DataFrame:
    """Every data-sheet value of a card with its unit and source."""
    rows = [
        {
            "value of": _field_name(row["field"]),
            "value": _spec_value(row["value"]),
            "unit": row["unit"] or "",
            "source": row["source"],
        }
        for row in specs["values"]
    ]
    return pd.DataFrame(rows, columns=["value of", "value", "unit", "source"])


def _field_name(field: str) -> str:
    words = [_FIELD_NAMES.get(word, word) for word in field.replace("_gb_s", "").replace("_mhz", "").split("_")]
    if words[-1] in ("GB", "MB", "W", "USD", "Gb/s", "bits"):
        words = words[:-1]
    return sentences.capital(" ".join(words))


def _spec_value(value: object) -> str:
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return units.significant(value, 4) if abs(value) < 1000 else units.count(value)
    return str(value)
