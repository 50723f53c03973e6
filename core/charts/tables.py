"""Answers to the tables that charts take, and the finding that stands over each chart. Page and report use the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from core import units
from core.analysis import norms
from core.answers import sentences
from core.charts import theme

Answer = Mapping[str, Any]

_KIND = {"bandwidth": "bandwidth"}
_SHORT = {"bandwidth": "bandwidth", "default": "conv TF32", "tf32": "TF32"}


def reading_name(name: str) -> str:
    """A theory reading in a few letters, for a label at its line."""
    baseline, separator, target = name.partition("/")
    if separator:
        return f"{reading_name(target)} / {reading_name(baseline)}"
    return _SHORT.get(name, sentences.READING_WORDS.get(name, name))


def _kind(reading: Mapping[str, Any]) -> str:
    return _KIND.get(reading["name"], "compute")


def theory_lines(answer: Answer, all_readings: bool = False) -> pd.DataFrame:
    """Theory readings of an explanation as lines: name, kind, ratio, judged. Equal ratios are told once."""
    rows = [
        {"name": reading_name(r["name"]), "kind": _kind(r), "ratio": r["ratio"], "judged": bool(r["in_verdict"])}
        for r in answer["expected"]["readings"]
        if r["ratio"] is not None and (all_readings or r["in_verdict"])
    ]
    frame = pd.DataFrame(rows, columns=["name", "kind", "ratio", "judged"])
    if frame.empty:
        return frame
    frame["shown"] = [units.ratio(value) for value in frame["ratio"]]
    joined = frame.groupby(["kind", "judged", "shown"], sort=False, as_index=False).agg(
        name=("name", lambda names: ", ".join(names)), ratio=("ratio", "first")
    )
    return joined[["name", "kind", "ratio", "judged"]]


def theory_rows(answer: Answer) -> pd.DataFrame:
    """Every theory reading and the measured bandwidth beside them, one row each for `gap.theory_chart`."""
    frame = theory_lines(answer, all_readings=True)
    frame["name"] = [
        f"{name}, data sheet" if judged else f"{name}, if it was on"
        for name, judged in zip(frame["name"], frame["judged"], strict=True)
    ]
    ceilings = answer["expected"].get("measured_ceilings") or {}
    if ceilings.get("bandwidth") is not None:
        frame.loc[len(frame)] = ["bandwidth, measured", "measured", ceilings["bandwidth"], False]
    return frame.sort_values("ratio").reset_index(drop=True)


def readings_table(answer: Answer) -> pd.DataFrame:
    """Theory readings with both cards' values and sources, for a reader who wants to check."""
    expected = answer["expected"]
    ceilings = (expected.get("measured_ceilings") or {}).get("readings", [])
    rows = [
        {
            "reading": sentences.capital(r["label"]),
            "ratio": units.ratio(r["ratio"]),
            "baseline": _quantity(r["baseline_value"], r["unit"]),
            "target": _quantity(r["target_value"], r["unit"]),
            "kind": kind,
            "in the verdict": "yes" if r["in_verdict"] else "no",
            "baseline source": r["baseline_source"],
            "target source": r["target_source"],
        }
        for kind, readings in (("data sheet", expected["readings"]), ("measured ceiling", ceilings))
        for r in readings
    ]
    return pd.DataFrame(
        rows,
        columns=[
            "reading",
            "ratio",
            "baseline",
            "target",
            "kind",
            "in the verdict",
            "baseline source",
            "target source",
        ],
    )


def _quantity(value: float | None, unit: str) -> str:
    return units.MISSING if value is None else f"{units.significant(value)} {unit}"


# --- the norm --------------------------------------------------------------------------------------------------------


def norm_bins(answer: Answer) -> pd.DataFrame:
    """The distribution of healthy operations on the pair of an explanation: low, high, share; empty without a norm."""
    if not answer["norm"]:
        return pd.DataFrame(columns=["low", "high", "share"])
    return norms.histogram(answer["baseline"]["gpu_key"], answer["target"]["gpu_key"])[["low", "high", "share"]]


def norm_values(answer: Answer) -> dict[str, float]:
    """low, median, high, max of the norm; empty without one."""
    found = answer["norm"] or {}
    return {key: float(found[key]) for key in ("low", "median", "high", "max") if found.get(key) is not None}


def norm_finding(answer: Answer) -> str:
    """Where this gap stands among healthy operations, as the title of the strip."""
    ratio, found = answer["measured_ratio"]["value"], answer["norm"]
    if not found:
        return f"{units.ratio(ratio)} against theory; no healthy operations are timed on this pair"
    shown = units.ratio(ratio)
    if ratio > found["max"]:
        return f"{shown} lies outside: no healthy operation on this pair exceeds {units.ratio(found['max'])}"
    if ratio > found["high"]:
        return f"{shown} is rare: only one healthy operation in 200 exceeds {units.ratio(found['high'])}"
    if ratio < found["low"]:
        return f"{shown} is rare: only one healthy operation in 200 lies below {units.ratio(found['low'])}"
    return f"{shown} lies where healthy operations on this pair lie"


def norm_conditions(answer: Answer) -> str:
    """What was timed, on what, in which software."""
    found = answer["norm"]
    if not found:
        return "Ratio of times, baseline over target; data-sheet ratios as lines"
    return f"{units.count(found['n'])} operations: {found['source']}"


def norm_alt(answer: Answer) -> str:
    values = norm_values(answer)
    said = "; ".join(f"{name} {units.ratio(value)}" for name, value in values.items())
    return f"Strip of healthy operations on a ratio axis. {norm_finding(answer)}. {said}".strip()


def norm_table(answer: Answer) -> pd.DataFrame:
    """The strip as numbers: this gap, theory, and the norm."""
    rows = [{"what": "this gap", "ratio": units.ratio(answer["measured_ratio"]["value"])}]
    rows += [
        {"what": f"{name} ratio, data sheet", "ratio": units.ratio(ratio)}
        for name, ratio in zip(*(theory_lines(answer)[c] for c in ("name", "ratio")), strict=True)
    ]
    names = {
        "low": "0.5 % of healthy operations lie below",
        "median": "median of healthy operations",
        "high": "99.5 % of healthy operations lie below",
        "max": "largest of healthy operations",
    }
    rows += [{"what": names[key], "ratio": units.ratio(value)} for key, value in norm_values(answer).items()]
    return pd.DataFrame(rows)


# --- headings of a gap -----------------------------------------------------------------------------------------------


def theory_finding(answer: Answer) -> str:
    """The title over measured against theory."""
    ratio = answer["measured_ratio"]["value"]
    low, high = answer["expected"].get("low"), answer["expected"].get("high")
    verdict = sentences.VERDICT_WORDS[answer["verdict"]]
    if low is None:
        return f"Measured {units.ratio(ratio)}; no data sheet covers both sides"
    span = units.ratio(low) if units.ratio(low) == units.ratio(high) else f"{units.ratio(low)} to {units.ratio(high)}"
    return f"Measured {units.ratio(ratio)}, hardware says {span}: {verdict}"


def short_label(side: Mapping[str, Any]) -> str:
    """A side of an explanation by the name its card is known by."""
    return theme.short_name(str(side.get("label") or side.get("gpu") or side.get("text")))


# --- one card --------------------------------------------------------------------------------------------------------

_PRECISION_OF_CEILING = {
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
}


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
            printed, what = peaks.get(_PRECISION_OF_CEILING.get(precision, "")), precision.upper()
        metric = (
            ceiling["metric"].replace("dram_bandwidth_", "").replace("dram_bandwidth", "").replace("_", " ").strip()
        )
        metric = metric.replace("tflops", "").replace("lbm effective", "lattice Boltzmann").replace("  ", " ").strip()
        rows.append(
            {
                "name": f"{what}, {metric}" if metric else what,
                "share": ceiling["value"] / printed if printed else None,
                "value": _quantity(ceiling["value"], ceiling["unit"]),
                "data sheet": _quantity(printed, ceiling["unit"]),
                "precision": ceiling["precision"],
                "tool": ceiling["tool"],
                "source": ceiling["source"],
                "note": ceiling["note"],
            }
        )
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
    "tflops": "TFLOPS",
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
