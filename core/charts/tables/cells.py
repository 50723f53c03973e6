"""Stored cells as tables: their names in words, lines joined to cells, what is measured where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from core import units
from core.charts.tables.values import Answer
from core.charts.theme import short_name
from core.records import FOREIGN
from core.trackers.registry import FOUNDING_SIZE


def workload_parts(cells: pd.DataFrame) -> pd.DataFrame:
    """The words of each cell's work and setting, one column per part, "" where a part is not set."""

    def words(column: str, text: str) -> pd.Series:
        return cells[column].map(lambda value: "" if pd.isna(value) else text.format(value))

    variant = cells["variant"].map(lambda value: "" if pd.isna(value) else f":{value}")
    return pd.DataFrame(
        {
            "tracker": cells["tracker"].astype(str) + variant,
            "frames": words("frames", "{} frames"),
            "size": [
                "" if pd.isna(h) or pd.isna(w) else f"{h}x{w}"
                for h, w in zip(cells["height"], cells["width"], strict=True)
            ],
            "points": words("points", "{} points"),
            "batch": cells["batch"].map(lambda value: "" if pd.isna(value) or value == 1 else f"batch {value}"),
            "precision": cells["precision"].astype(str),
        },
        index=cells.index,
    )


def cell_names(cells: pd.DataFrame) -> pd.Series:
    """Each cell by what differs among these cells; the whole of it when nothing does."""
    parts = workload_parts(cells)
    varying = [name for name in parts if parts[name].nunique() > 1] or ["precision"]
    order = [name for name in ("precision", "tracker", "size", "frames", "points", "batch") if name in varying]
    words = [", ".join(word for word in row if word) for row in parts[order].itertuples(index=False)]
    return pd.Series(words, index=parts.index, dtype="str")


def common_words(cells: pd.DataFrame) -> str:
    """What all of these cells have in common."""
    parts = workload_parts(cells)
    return ", ".join(str(parts[name].iloc[0]) for name in parts if parts[name].nunique() == 1 and parts[name].iloc[0])


def selectors(cells: pd.DataFrame) -> pd.Series:
    """`tracker:variant` of each cell, as the command line takes it."""
    return cells["tracker"].astype(object).str.cat(":" + cells["variant"].astype("string").astype(object), na_rep="")


def by_cell(lines: pd.DataFrame) -> pd.DataFrame:
    """Lines of ok cells as cells: one row per run, work and setting; median of processes' medians, spread p5 to p95.

    Adds selector, processes, repetitions, median_ms, low_ms, high_ms, detail (n in words) to the first line's columns.
    Cells stay as they are.
    """
    if "median_ms" in lines:
        return lines
    ok = lines[lines["status"] == "ok"]
    if ok.empty:
        return ok.assign(selector="", processes=0, repetitions=0, median_ms=0.0, low_ms=0.0, high_ms=0.0, detail="")
    keys = ["run_id", "work_key", "setting_key"]
    grouped = ok.groupby(keys, sort=False)
    first = grouped.head(1).set_index(keys)
    first["processes"], first["repetitions"] = grouped["process"].nunique(), grouped["n"].sum()
    first["median_ms"] = grouped["wall_median_ms"].median()
    first["low_ms"], first["high_ms"] = grouped["wall_p5_ms"].min(), grouped["wall_p95_ms"].max()
    first["selector"] = selectors(first)
    first["detail"] = [
        f"n {int(n)} in {int(p)} process{'' if p == 1 else 'es'}"
        for n, p in zip(first["repetitions"], first["processes"], strict=True)
    ]
    return first.reset_index()


def newest(cells: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The newest cell of each combination of `keys`, by the rule of core.answers.selection."""
    return cells.sort_values(["at", "started_at", "run_id"], na_position="first").drop_duplicates(keys, keep="last")


WORK_FIELDS = ("selector", "frames", "height", "width", "points", "batch")
_FOUNDING = ("local4d:base", *FOUNDING_SIZE, 1)


def works(cells: pd.DataFrame, shared_by: str = "cards") -> pd.DataFrame:
    """The works of these ok cells: WORK_FIELDS, number of `cards` (GPU types) and `devices`, the shared ones first.

    `shared_by`: what counts as shared, "cards" or "devices" (a CPU is one, too). Among equally shared works the
    founding size comes first, then the largest. Tasks of other people's files have no size and stand
    apart: they are listed only where nothing else is.
    """
    own = cells[(cells["implementation"] != FOREIGN) & cells["frames"].notna() & cells["height"].notna()]
    cells = own if len(own) else cells
    frame = cells[["frames", "height", "width"]].astype("Int64").fillna(0).assign(
        gpu_label=cells["gpu_label"],
        selector=selectors(cells),
        points=cells["points"].astype("Int64").fillna(0),
        batch=cells["batch"].astype("Int64").fillna(1),
        card=cells["gpu_label"].where(cells["device_type"] == "cuda"),
    )
    found = frame.groupby(list(WORK_FIELDS), as_index=False).agg(
        cards=("card", "nunique"), devices=("gpu_label", "nunique")
    )
    found["founding"] = [tuple(row) == _FOUNDING for row in found[list(WORK_FIELDS)].itertuples(index=False)]
    size = found["frames"] * found["height"] * found["width"] * found["points"].clip(lower=1)
    found["volume"] = size * found["batch"]
    return found.sort_values([shared_by, "founding", "volume"], ascending=False).reset_index(drop=True)


_KIN = ("implementation", "revision", "weights", "iterations", "query_chunk", "window", "items_per_run")


def kin(cells: pd.DataFrame) -> pd.Series:
    """What else must be equal before cells of one tracker and size did the same work, as one text per cell."""
    text = pd.Series("", index=cells.index, dtype="string")
    for name in _KIN:
        text = text + " " + cells[name].astype("string").fillna("-")
    return text


def main_kin(cells: pd.DataFrame, work: Mapping[str, Any]) -> str:
    """Of a tracker and size that was measured in several revisions: the one that most devices did, then the newest."""
    found = of_work(cells, work)
    found = found.assign(kin=kin(found))
    ranked = found.groupby("kin").agg(devices=("gpu_label", "nunique"), newest=("started_at", "max"))
    return str(ranked.sort_values(["devices", "newest"]).index[-1])


def of_work(cells: pd.DataFrame, work: Mapping[str, Any], free: str = "") -> pd.DataFrame:
    """The cells of one work (WORK_FIELDS); the field `free` (or height and width as "resolution") may differ.

    With `kin` in `work` (see `main_kin`), revision, weights and the like are those, too.
    """
    keep = selectors(cells) == work["selector"]
    for name in ("frames", "height", "width", "points"):
        if name != free and not (free == "resolution" and name in ("height", "width")):
            keep &= cells[name].fillna(0) == work[name]
    found = cells[keep & (cells["batch"].fillna(1) == work.get("batch", 1))]
    return found[kin(found) == work["kin"]] if "kin" in work else found


def device_order(cells: pd.DataFrame) -> pd.DataFrame:
    """Devices of these cells, slowest first: gpu_label, gpu_key, device_type, median_ms of its fastest cell."""
    found = by_cell(cells)
    found = found.groupby("gpu_label", as_index=False).agg(
        gpu_key=("gpu_key", "first"), device_type=("device_type", "first"), median_ms=("median_ms", "min")
    )
    return found.sort_values("median_ms", ascending=False).reset_index(drop=True)


MOST_WORKLOADS, MOST_REPORTED = 7, 5
PUBLISHED = "published · figures"
"""The column of the coverage map for what others reported."""


def coverage_cells(answer: Answer) -> pd.DataFrame:
    """Dots of a coverage answer for `overview.coverage_map`: cards by cells, works by cards, published figures last.

    The works that most cards share, and of the cards that only others measured those with most figures.
    Tasks of other programs' files only where there is nothing else. Columns: label, gpu_key, workload, cells,
    precisions, origin.
    """
    columns = ["label", "gpu_key", "workload", "cells", "precisions", "origin"]
    rows = [row for row in answer["table"] if row["cells"]]
    if any(row["origin"] != "reported" and row.get("implementation") != FOREIGN for row in rows):
        rows = [row for row in rows if row.get("implementation") != FOREIGN]
    frame = pd.DataFrame(rows, columns=columns)
    if frame.empty:
        return frame
    frame["workload"] = frame["workload"].str.replace(", ", " · ").str.replace(" of ", " · ")
    reported = frame["origin"] == "reported"
    works = list(dict.fromkeys(frame.loc[~reported, "workload"]))[:MOST_WORKLOADS]
    frame = frame[reported | frame["workload"].isin(works)].copy()
    frame.loc[frame["origin"] == "reported", "workload"] = PUBLISHED
    frame = frame[frame["gpu_key"].notna() | (frame["origin"] != "reported")]  # "not stated" is no card
    found = frame.groupby(["label", "workload", "origin"], as_index=False, sort=False).agg(
        gpu_key=("gpu_key", "first"), cells=("cells", "sum"), precisions=("precisions", "max")
    )
    own = [gpu["label"] for gpu in answer["gpus"]]
    others = found[~found["label"].isin(own)].groupby("label")["cells"].sum()
    most = others.sort_values(ascending=False, kind="stable").index[:MOST_REPORTED]
    order = {label: place for place, label in enumerate([*own, *most])}
    places = {name: place for place, name in enumerate([*works, PUBLISHED])}
    found = found[found["label"].isin(order)]
    return found.assign(row=found["label"].map(order), column=found["workload"].map(places)).sort_values(
        ["row", "column"], kind="stable"
    )[columns].reset_index(drop=True)


ORIGIN_LOOKS = {
    "measured": "filled: measured",
    "imported": "filled with a ring: imported",
    "reported": "hollow: figures that others published",
    "predicted": "dashed: predicted",
}


def coverage_conditions(answer: Answer, cells: pd.DataFrame) -> str:
    """What the dots count and how origins look; what is left to the table, and what is in quarantine."""
    present = set(cells["origin"])
    said = ["numbers count cells, one per precision and setting"]
    said += [look for origin, look in ORIGIN_LOOKS.items() if origin in present]
    works = len(answer["workloads"]) - cells.loc[cells["workload"] != PUBLISHED, "workload"].nunique()
    said += [f"{works} more workload{'' if works == 1 else 's'} in the table"] if works > 0 else []
    kept_out = answer["quarantined"]
    said += [f"{kept_out} cell line{'' if kept_out == 1 else 's'} in quarantine not drawn"] if kept_out else []
    return "; ".join(said)


def coverage_table(answer: Answer) -> pd.DataFrame:
    """Every device and workload with what is stored of it, in words."""
    rows = answer["table"]
    return pd.DataFrame(
        {
            "device": [row["label"] for row in rows],
            "workload": [row["workload"] for row in rows],
            "origin": [row["origin"] for row in rows],
            "cells": [row["cells"] for row in rows],
            "without a time": [row["failed"] for row in rows],
            "precisions": [", ".join(row["precision_names"]) for row in rows],
            "runs": pd.Series([row["runs"] for row in rows], dtype="Int64"),
            "boards": pd.Series([row["boards"] for row in rows], dtype="Int64"),
        }
    )


def coverage_finding(answer: Answer) -> str:
    """What is measured, as the title of the map."""
    gpus = [gpu for gpu in answer["gpus"] if gpu.get("own_cells", 1)] or answer["gpus"]
    foreign = {row["work_key"] for row in answer["table"] if row.get("implementation") == FOREIGN}
    works = len({work["work_key"] for work in answer["workloads"]} - foreign) or len(foreign)
    cards = sum(gpu["device_type"] == "cuda" for gpu in gpus)
    cpus = len(gpus) - cards
    said = [f"{cards} GPU type{'' if cards == 1 else 's'}"] if cards else []
    said += [f"{cpus} CPU{'' if cpus == 1 else 's'}"] if cpus else []
    return f"{' and '.join(said)} measured on {works} workload{'' if works == 1 else 's'}"


def measured_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Stored cells in words, one row each, newest run first: who measured what, with spread and n."""
    found = by_cell(cells).sort_values(["started_at", "run_id", "seq"], ascending=[False, False, True])
    parts = workload_parts(found)
    return pd.DataFrame(
        {
            "device": found["gpu_label"].map(short_name),
            "tracker": parts["tracker"],
            "frames": found["frames"],
            "size": parts["size"],
            "points": found["points"],
            "precision": parts["precision"],
            "median, ms": found["median_ms"],
            "p5, ms": found["low_ms"],
            "p95, ms": found["high_ms"],
            "n": found["repetitions"],
            "processes": found["processes"],
            "run": found["run_id"],
            "torch": found["torch"],
            "origin": found["origin"],
        }
    )


def reported_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Published figures in words, with their source."""
    return pd.DataFrame(
        {
            "GPU": rows["gpu_text"].fillna("not stated"),
            "tracker": [
                f"{t}, {v}" if isinstance(v, str) else str(t)
                for t, v in zip(rows["tracker"], rows["variant"], strict=True)
            ],
            "precision as stated": rows["precision"].fillna("not stated"),
            "frames": rows["frames"],
            "size": [
                units.MISSING if pd.isna(h) or pd.isna(w) else f"{h}x{w}"
                for h, w in zip(rows["height"], rows["width"], strict=True)
            ],
            "points": rows["points_text"].fillna(units.MISSING),
            "time": [units.time_ms(None if pd.isna(s) else float(s) * 1e3) for s in rows["seconds"]],
            "figure": [
                f"{text} {unit}" if isinstance(text, str) and isinstance(unit, str) else ""
                for text, unit in zip(rows["throughput_text"], rows["throughput_unit"], strict=True)
            ],
            "origin": rows["origin"],
            "source": rows["source"],
            "notes": rows["notes"].fillna(""),
        }
    )
