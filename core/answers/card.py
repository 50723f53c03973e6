"""What the runs stored here say about one card: its ceilings, and where its work stands under the roofline."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from core import units
from core.answers.json_values import json_value, records
from core.gpus import PRECISIONS, Gpu, catalogue, peak_tflops

if TYPE_CHECKING:
    from core.store import Store

BY_SIZE = ("copy_by_size", "read_by_size")
MOST_OPS = 300


def own_ceilings(store: Store, gpu_key: str) -> dict[str, Any]:
    """`rows`: the newest reading of each metric and precision per board [{metric, precision, value, unit, clock_mhz,
    power_w, limited_by, board, run_id, started_at, printed, share}]; `by_size`: the newest curve of each metric [{
    metric, board, working_set_bytes, value}]; `boards`, `l2_bytes`, `headline`.

    `printed` is the data-sheet figure in the same unit and `share` the part of it that was reached; None where no
    sheet prints it. A reading that only launches or emulation limited is no ceiling of the hardware: no share.
    """
    from core.store import queries

    found = queries.ceilings(store)
    own = found[found["gpu_key"] == gpu_key].sort_values(["started_at", "run_id", "seq"])
    gpu = catalogue().get(gpu_key)
    boards = {uuid: f"board {place}" for place, uuid in enumerate(dict.fromkeys(own["uuid_hash"]), start=1)}
    curves = own[own["metric"].isin(BY_SIZE)]
    newest = curves.drop_duplicates(["metric"], keep="last")[["metric", "run_id"]]
    curves = curves.merge(newest, on=["metric", "run_id"]).drop_duplicates(["metric", "working_set_bytes"], keep="last")
    single = own[~own["metric"].isin(BY_SIZE)].drop_duplicates(["uuid_hash", "metric", "precision"], keep="last")
    rows = []
    for row in json_value(records(single)):
        printed = _printed(gpu, row)
        counts = printed and not row["limited_by"]
        rows.append({
            **{name: row[name] for name in ("metric", "precision", "value", "unit", "clock_mhz", "power_w",
                                            "limited_by", "run_id", "started_at")},
            "board": boards[row["uuid_hash"]], "printed": printed, "share": row["value"] / printed if counts else None,
        })
    l2_bytes = gpu.l2_cache_mb * 2**20 if gpu is not None and gpu.l2_cache_mb else None
    return json_value({  # type: ignore[no-any-return]
        "rows": rows, "boards": len(boards), "l2_bytes": l2_bytes,
        "by_size": [
            {"metric": row["metric"], "board": boards[row["uuid_hash"]], "working_set_bytes": row["working_set_bytes"],
             "value": row["value"]}
            for row in records(curves.sort_values(["metric", "working_set_bytes"]))
        ],
        "headline": _headline(gpu.name if gpu else gpu_key, rows),
    })


def _printed(gpu: Gpu | None, row: dict[str, Any]) -> float | None:
    """The data-sheet figure that a ceiling is a part of."""
    if gpu is None:
        return None
    if row["metric"] in ("copy", "read"):
        return gpu.memory_bandwidth_gb_s
    if row["metric"] in ("gemm", "gemm_sustained") and row["precision"] in PRECISIONS:
        peak = peak_tflops(gpu, row["precision"])
        return peak.value if peak is not None and not peak.emulated else None
    return None


def _headline(name: str, rows: list[dict[str, Any]]) -> str:
    """The best share of the bandwidth, and of the FP32 peak (the one precision that every card has)."""
    parts = (
        ("bandwidth on its data sheet", lambda row: row["metric"] in ("copy", "read")),
        ("FP32 peak", lambda row: row["metric"] == "gemm" and row["precision"] == "fp32"),
    )
    best = [(part, max((row["share"] for row in rows if row["share"] and fits(row)), default=None))
            for part, fits in parts]
    said = [f"{units.percent(share)} of the {part}" for part, share in best if share]
    if not said:
        return f"No run stored here has measured what the {name} reaches."
    return f"Measured here, the {name} reached {' and '.join(said)}."


def roofline_points(store: Store, run_id: str, seq: int) -> dict[str, Any]:
    """One cell under the roofline of its card: `points` [{kind, name, stage, intensity, tflops, share, roof_share}].

    kind "stage" or "operation"; `intensity` in FLOP per byte, `tflops` achieved, `share` of all measured time,
    `roof_share` the part of what bandwidth and peak allow at this intensity (None without a data sheet). `roofs`
    [{source, bandwidth_gb_s, peak_tflops}] from the data sheet and from what this board measured (else another one
    of its type, named so);
    `left_out`: stages and operations without products or bytes, which have no place here; `headline`.
    """
    from core.store import queries

    lines = queries.cells(store, run_ids=[run_id])
    line = json_value(records(lines[lines["seq"] == seq]))[0]
    gpu, precision = catalogue().get(line["gpu_key"] or ""), str(line["precision"])
    stages = queries.stages(store, [(run_id, seq)]).assign(kind="stage", ms=lambda t: t["median_ms"])
    stages["stage"] = stages["name"]
    ops = queries.ops(store, run_id, seq) if line["has_ops"] else None
    tables = [stages]
    if ops is not None and ops["device_ms"].notna().any():
        tables.append(ops.assign(kind="operation", name=ops["op"].str.removeprefix("aten::"), ms=ops["device_ms"]))
    roofs = _roofs(store, line, gpu, precision)
    points, left_out = [], 0
    for table in tables:
        work = {name: pd.to_numeric(table[name], errors="coerce").astype(float) for name in ("flops", "bytes", "ms")}
        total = work["ms"].sum()
        placed = (work["flops"] > 0) & (work["bytes"] > 0) & (work["ms"] > 0)
        left_out += int((~placed).sum())
        own = [
            {"kind": kind, "name": name, "stage": stage, "intensity": flops / size, "tflops": flops / ms / 1e9,
             "share": ms / total}
            for kind, name, stage, flops, size, ms in zip(
                *(table.loc[placed, name] for name in ("kind", "name", "stage")),
                *(work[name][placed] for name in ("flops", "bytes", "ms")), strict=True)
        ]  # fmt: skip
        points += sorted(own, key=lambda point: -point["share"])[:MOST_OPS]
    sheet = next((roof for roof in roofs if roof["source"] == "data sheet"), None)
    for point in points:
        point["roof_share"] = point["tflops"] / roof_tflops(sheet, point["intensity"]) if sheet else None
    return json_value({  # type: ignore[no-any-return]
        "points": points, "roofs": roofs, "left_out": left_out, "gpu": line["gpu_label"], "gpu_key": line["gpu_key"],
        "precision": precision, "headline": _roofline_headline(points, sheet),
    })


def roof_tflops(roof: dict[str, Any], intensity: float) -> float:
    """What bandwidth and peak allow at an intensity (FLOP per byte), in TFLOP/s."""
    return min(float(roof["bandwidth_gb_s"]) * intensity / 1e3, float(roof["peak_tflops"]))


def _roofs(store: Store, line: dict[str, Any], gpu: Gpu | None, precision: str) -> list[dict[str, Any]]:
    from core.store import queries

    found = []
    peak = peak_tflops(gpu, precision) if gpu is not None and precision in PRECISIONS else None
    if gpu is not None and peak is not None and gpu.memory_bandwidth_gb_s:
        found.append({"source": "data sheet", "bandwidth_gb_s": gpu.memory_bandwidth_gb_s, "peak_tflops": peak.value})
    known = queries.ceilings(store)
    known = known[(known["gpu_key"] == line["gpu_key"]) & known["limited_by"].isna()]
    own, source = known[known["uuid_hash"] == line["uuid_hash"]], "measured"
    if own.empty and len(known):
        own, source = known[known["uuid_hash"] == known["uuid_hash"].iloc[-1]], "measured on another board"
    copy = own.loc[own["metric"] == "copy", "value"]
    products = "tf32" if precision == "default" and gpu is not None and gpu.supports_tf32 else precision
    products = "fp32" if products == "default" else products
    gemm = own.loc[(own["metric"] == "gemm") & (own["precision"] == products), "value"]
    if len(copy) and len(gemm):
        reached = {"bandwidth_gb_s": float(copy.iloc[-1]), "peak_tflops": float(gemm.iloc[-1])}
        found.append({"source": source, **reached})
    return found


def _roofline_headline(points: list[dict[str, Any]], sheet: dict[str, Any] | None) -> str:
    stages = [point for point in points if point["kind"] == "stage"]
    if not stages:
        return "No stage of this cell has both a count of products and bytes: it has no place under a roofline."
    longest = stages[0]
    text = f"The {longest['name'].replace('_', ' ')} takes {units.percent(longest['share'])} of the time"
    if sheet is None:
        return f"{text} at {units.tflops(longest['tflops'])}; no data sheet gives this device's roofline"
    knee = sheet["peak_tflops"] * 1e3 / sheet["bandwidth_gb_s"]
    limit = "memory bandwidth" if longest["intensity"] < knee else "arithmetic"
    return f"{text} and reaches {units.percent(longest['roof_share'])} of what {limit} allows"
