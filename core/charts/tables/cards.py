"""One card of the catalogue as tables: measured ceilings against its data sheet, values with their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from core import units
from core.answers import sentences
from core.charts.tables.cells import WORK_FIELDS, newest, workload_parts, works
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


METRIC_WORDS = {
    "copy": "copy", "read": "read", "gemm": "products, short burst", "gemm_sustained": "products for 10 s",
    "gather_index_select": "gather of rows", "gather_grid_sample_4d": "gather from images",
    "gather_grid_sample_5d": "gather from volumes", "launch_floor": "one launch", "launch_rate": "launches one by one",
    "op_rate": "smallest operations one by one", "host_to_device_pageable": "host to device, ordinary memory",
    "host_to_device_pinned": "host to device, pinned memory",
    "device_to_host_pageable": "device to host, ordinary memory",
    "device_to_host_pinned": "device to host, pinned memory",
}  # fmt: skip
"""Metrics of core/measure/ceiling_bench.py, for people."""


def both_ceilings(own: Answer, public: pd.DataFrame) -> pd.DataFrame:
    """Shares of the data sheet, by quantity: what runs stored here measured (filled), then what others did (hollow).

    Of several boards the best one; `own_table` has all.
    """
    best: dict[tuple[str, str], Answer] = {}
    for row in own["rows"]:
        name = str(row["metric"]), str(row["precision"] or "")
        if row["share"] is not None and row["metric"] in METRIC_WORDS:
            best[name] = max(best.get(name, row), row, key=lambda one: one["share"])
    rows = [
        {
            "name": f"{_quantity(row)}, {METRIC_WORDS[row['metric']]}",
            "share": row["share"],
            "value": quantity(row["value"], row["unit"].replace("TFLOPS", "TFLOP/s")),
            "origin": "measured",
        }
        for row in best.values()
    ]
    shown = public.dropna(subset=["share"])[["name", "share", "value"]].assign(origin="reported")
    both = pd.concat([pd.DataFrame(rows, columns=list(shown.columns)), shown], ignore_index=True)
    order = ["bandwidth", "FP32", "TF32", "FP16", "BF16"]
    kind = both["name"].str.split(",").str[0].map(lambda name: order.index(name) if name in order else len(order))
    return both.assign(kind=kind).sort_values("kind", kind="stable").drop(columns="kind").reset_index(drop=True)


def _quantity(row: Answer) -> str:
    return str(row["precision"]).upper() if row["precision"] else "bandwidth"


def ceiling_conditions(own: Answer) -> str:
    """How the bars of both origins look, and of how many boards ours are."""
    boards = f", the best of {own['boards']} boards" if own["boards"] > 1 else ""
    return f"filled: measured by runs stored here{boards}; hollow: reported by others; each against its printed figure"


def own_table(own: Answer) -> pd.DataFrame:
    """Every ceiling measured by runs stored here, with the clock and power at which it was reached."""
    return pd.DataFrame(
        [
            {
                "what": METRIC_WORDS.get(row["metric"], row["metric"]),
                "precision": row["precision"] or "",
                "value": quantity(row["value"], row["unit"].replace("TFLOPS", "TFLOP/s")),
                "data sheet": quantity(row["printed"], row["unit"].replace("TFLOPS", "TFLOP/s")),
                "share": units.percent(row["share"]),
                "SM clock": units.mhz(row["clock_mhz"]),
                "power": units.watt(row["power_w"]),
                "limited by": row["limited_by"] or "",
                "board": row["board"],
                "run": row["run_id"],
            }
            for row in own["rows"]
        ]
    )


def working_set_rows(own: Answer) -> pd.DataFrame:
    return pd.DataFrame(own["by_size"], columns=["metric", "board", "working_set_bytes", "value"])


def working_set_finding(name: str, rows: pd.DataFrame, l2_bytes: float | None) -> str:
    """How much faster a small working set is than memory, for copies (else reads)."""
    metric = "copy_by_size" if (rows["metric"] == "copy_by_size").any() else str(rows["metric"].iloc[0])
    own = rows[rows["metric"] == metric].sort_values("working_set_bytes")
    memory, best = float(own["value"].iloc[-1]), float(own["value"].max())
    verb = "copies" if metric == "copy_by_size" else "reads"
    if best < 1.1 * memory:
        return f"The {name} {verb} {units.gb_s(memory)} from memory; no working set is much faster"
    where = f"while the data fit into its L2 cache ({units.bytes_size(l2_bytes)})" if l2_bytes else "at best"
    return f"The {name} {verb} up to {units.gb_s(best)} {where}, and {units.gb_s(memory)} from memory"


def cells_of_card(cells: pd.DataFrame, gpu_key: str) -> pd.DataFrame:
    """Measured cells of one card, the newest of each work and setting, with a `name`; the work that most share first.

    Of one work fp32 comes first, and a cell with an operation table stands before a newer one without.
    """
    own = cells[(cells["gpu_key"] == gpu_key) & (cells["origin"] == "measured")]
    if own.empty:
        return own.assign(name="")
    places = {tuple(row): place for place, row in enumerate(works(own)[list(WORK_FIELDS)].itertuples(index=False))}
    with_ops, keys = own["has_ops"].astype(bool), ["work_key", "setting_key"]
    found = pd.concat([newest(own[with_ops], keys), newest(own[~with_ops], keys)]).drop_duplicates(keys)
    work = found.assign(points=found["points"].fillna(0))[list(WORK_FIELDS)]
    parts = workload_parts(found)
    named = [", ".join(word for word in row if word) for row in parts.itertuples(index=False)]
    execution = found["execution"].map(lambda value: "" if value == "eager" else f", {value}")
    ordered = found.assign(
        name=pd.Series(named, index=found.index) + execution,
        place=[places.get(tuple(row), len(places)) for row in work.itertuples(index=False)],
        odd=(found["execution"] != "eager") | (found["precision"] != "fp32"),
        bare=~found["has_ops"].astype(bool),
    ).sort_values(["place", "odd", "bare"], kind="stable")
    return ordered.drop_duplicates("name")


def roofline_rows(answer: Answer) -> pd.DataFrame:
    """Points of a roofline answer for `gpus.roofline_chart`, each with its sentence; tiny operations are left out."""
    shown = _shown_points(answer)
    frame = pd.DataFrame(shown, columns=["kind", "name", "stage", "intensity", "tflops", "share", "roof_share"])
    frame["said"] = [
        f"{row['name']} ({row['stage']}): {units.percent(row['share'])} of the time, {units.tflops(row['tflops'])} at "
        f"{units.flop_per_byte(row['intensity'])}, {units.percent(row['roof_share'])} of the roof"
        for row in shown
    ]
    return frame


SMALLEST_SHARE = 0.001
"""Operations with less of the time than this are left to the table."""


def _shown_points(answer: Answer) -> list[Any]:
    return [point for point in answer["points"] if point["kind"] == "stage" or point["share"] >= SMALLEST_SHARE]


def roofline_conditions(answer: Answer, cell: str) -> str:
    operations = sum(point["kind"] == "operation" for point in _shown_points(answer))
    said = [cell, "diamonds are stages"]
    said += [f"dots are {operations} operations, as large as their share of the time"] if operations else []
    said += ["what computes no products has no place here"] if answer["left_out"] else []
    return "; ".join(said)


def roofline_table(answer: Answer) -> pd.DataFrame:
    """The points as a table, longest first."""
    return pd.DataFrame(
        [
            {
                "what": point["kind"],
                "name": point["name"],
                "stage": point["stage"],
                "share of the time": units.percent(point["share"]),
                "FLOP per byte": point["intensity"],
                "TFLOP/s": point["tflops"],
                "share of the roof": units.percent(point["roof_share"]),
            }
            for point in answer["points"]
        ]
    )


def claim_table(claims: Sequence[Any]) -> pd.DataFrame:
    """What is often said, and what holds. `claims`: core.gpus.claims.Claim."""
    words = {"wrong": "wrong", "depends": "only sometimes"}
    return pd.DataFrame(
        [
            {"often said": claim.said, "is": words[claim.verdict], "what holds": claim.holds, "source": claim.source}
            for claim in claims
        ]
    )


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
