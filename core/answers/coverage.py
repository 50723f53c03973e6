"""What is measured where, and which shipped run did the same work as the one at hand."""
from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.answers.compare import compared, sentence_of, without_emulated
from core.answers.json_values import json_value, records
from core.answers.matching import main_pair, match, work_dict, work_in_words
from core.answers.selection import Selection, select
from core.errors import UserError
from core.gpus import catalogue
from core.records import FOREIGN

if TYPE_CHECKING:
    import pandas as pd

    from core.store import Store

_SIZE_FIELDS = ("frames", "height", "width", "points", "batch")


def coverage(store: Store) -> dict[str, Any]:
    """`table`: one row per GPU, workload and origin with the number of `cells` (settings with an ok cell), `failed`
    (settings without one), `precisions`, `runs`; `gpus`, `workloads` in display order; `quarantined`: cell lines that
    are kept but do not count; `headline`.

    Reported figures have rows of their own (origin reported), their `workload` being what the source states. Tasks of
    other programs' files come behind the trackers' work and are counted apart.
    """
    from core.store import queries

    cells = queries.cells(store)
    rows = _measured_rows(cells)
    measured = list(rows)
    rows += _reported_rows(queries.reported(store))
    gpus = _gpus(cells)
    workloads = {row["work_key"]: row["workload"] for row in measured}
    return json_value({
        "table": rows, "gpus": gpus,
        "workloads": [{"work_key": key, "workload": text} for key, text in workloads.items()],
        "quarantined": int(queries.quarantine(store)["cells"].sum()), "headline": _headline(gpus, measured, rows),
    })


def _measured_rows(cells: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    device = cells["gpu_key"].fillna("").astype(str) + "|" + cells["gpu_label"].astype(str)
    for _, group in cells.groupby([device, "work_key", "origin"], sort=False):
        first = records(group.head(1))[0]
        ok = group[group["status"] == "ok"]
        failed = set(group["setting_key"]) - set(ok["setting_key"])
        rows.append({
            "gpu_key": first["gpu_key"], "label": first["gpu_label"], "origin": first["origin"],
            "work_key": first["work_key"], "workload": work_in_words(first), **work_dict(first),
            "cells": ok["setting_key"].nunique(), "lines": len(ok), "failed": len(failed),
            "precisions": ok["precision"].nunique(), "precision_names": sorted(ok["precision"].unique()),
            "runs": group["run_id"].nunique(), "boards": group["uuid_hash"].nunique(),
        })
    order = {key: place for place, key in enumerate(_by_popularity(rows))}
    rows.sort(key=lambda row: (order[row["work_key"]], str(row["label"])))
    return json_value(rows)


def _by_popularity(rows: list[dict[str, Any]]) -> list[str]:
    """Work keys: trackers first, then those that most cards have measured, then those with most cells."""
    cards: dict[str, set[str]] = {}
    cells: dict[str, int] = {}
    foreign = {row["work_key"] for row in rows if row["implementation"] == FOREIGN}
    for row in rows:
        cards.setdefault(row["work_key"], set()).add(str(row["label"]))
        cells[row["work_key"]] = cells.get(row["work_key"], 0) + row["cells"]
    return sorted(cards, key=lambda key: (key in foreign, -len(cards[key]), -cells[key], key))


def _reported_rows(reported: pd.DataFrame) -> list[dict[str, Any]]:
    """Published figures by card, tracker and size; what a source leaves out stays out of the text."""
    grouped: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in json_value(records(reported)):
        workload = reported_in_words(row)
        label = _card_name(row)
        entry = grouped.setdefault((row["gpu_key"], label, workload), {
            "gpu_key": row["gpu_key"], "label": label, "origin": "reported", "work_key": None, "workload": workload,
            "tracker": row["tracker"], "variant": row["variant"], **{name: row[name] for name in _SIZE_FIELDS},
            "cells": 0, "lines": 0, "failed": 0, "precisions": 0, "precision_names": [], "runs": None, "boards": None,
        })
        entry["cells"] += 1
        if row["precision"] and row["precision"] not in entry["precision_names"]:
            entry["precision_names"].append(row["precision"])
        entry["precisions"] = len(entry["precision_names"])
    return list(grouped.values())


def reported_in_words(row: Mapping[str, Any]) -> str:
    """`TAPIR, 47 frames of 256x256, 1 024 points`: what the source states, nothing more."""
    parts = [f"{row['tracker']} {row['variant']}" if row["variant"] else str(row["tracker"])]
    size = f"{row['height']}x{row['width']}" if row["height"] and row["width"] else None
    if row["frames"]:
        frames = f"{row['frames']} frame{'' if row['frames'] == 1 else 's'}"
        parts.append(f"{frames} of {size}" if size else frames)
    elif size:
        parts.append(size)
    if row["points"]:
        parts.append(f"{row['points']} points")
    return ", ".join(parts)


def _card_name(row: Mapping[str, Any]) -> str:
    gpu = catalogue().get(row["gpu_key"] or "")
    return gpu.name if gpu else str(row["gpu_text"] or "GPU not stated")


def _gpus(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Cards and CPUs with stored cells, those with most ok cells of trackers first."""
    rows = []
    for label, group in cells.groupby("gpu_label", sort=False):
        ok = group[group["status"] == "ok"]
        own = ok[ok["implementation"] != FOREIGN]
        rows.append({
            "own_cells": len(own.drop_duplicates(["work_key", "setting_key"])),
            "gpu_key": group["gpu_key"].iloc[0], "label": label, "device_type": group["device_type"].iloc[0],
            "boards": group["uuid_hash"].nunique(), "runs": group["run_id"].nunique(),
            "workloads": ok["work_key"].nunique(), "cells": len(ok.drop_duplicates(["work_key", "setting_key"])),
            "newest": group["started_at"].max(),
        })
    return json_value(sorted(rows, key=lambda row: (-row["own_cells"], -row["cells"], str(row["label"]))))


def _headline(gpus: list[dict[str, Any]], measured: list[dict[str, Any]], rows: list[dict[str, Any]]) -> str:
    reported = [row for row in rows if row["origin"] == "reported"]
    cards = len({row["gpu_key"] for row in reported} & set(catalogue()))  # "not stated" is no card
    said = f"others report figures of {cards} card{'' if cards == 1 else 's'}"
    if not gpus:
        return f"Nothing is measured yet; {said}." if reported else "Nothing is measured yet."
    names = ", ".join(str(gpu["label"]) for gpu in gpus[:4]) + (" and more" if len(gpus) > 4 else "")
    foreign = {row["work_key"] for row in measured if row["implementation"] == FOREIGN}
    workloads = len({row["work_key"] for row in measured} - foreign)
    text = (f"{len(gpus)} device type{'' if len(gpus) == 1 else 's'} measured on {workloads} "
            f"workload{'' if workloads == 1 else 's'}: {names}")
    if foreign:
        text += f"; {len(foreign)} task{'' if len(foreign) == 1 else 's'} of other programs' files beside them"
    return f"{text}; {said}." if reported else f"{text}."


def twin_of_run(store: Store, selection: str) -> dict[str, Any] | None:
    """The shipped run that did the same work, and how this one stands against it, in a sentence.

    `selection`: a run id or the path of a run file. The same card type comes first, then the run with most cells in
    common. {run_id, gpu, gpu_key, cells, headline, command}; None when no shipped run did any of its work.
    """
    from core.store import queries

    own = select(store, selection)
    if own.lines.empty:
        return None
    shipped = queries.runs(store)
    shipped = shipped[(shipped["source"] == "reference") & ~shipped["run_id"].isin(own.lines["run_id"])]
    best: tuple[bool, int, Any, list[Any]] | None = None
    for row in records(shipped):
        try:
            twin = select(store, Selection(row["run_id"], row["run_id"]))
        except UserError:
            continue  # a run without a usable cell
        found = match(twin, own)
        pairs, _ = without_emulated(found, twin, own, None)
        rank = (row["gpu_label"] == own.lines["gpu_label"].iloc[0], len(pairs))
        if pairs and (best is None or rank > best[:2]):
            best = (*rank, row, pairs)
    if best is None:
        return None
    _, number, row, pairs = best
    pair = compared([main_pair(pairs)])[0]
    return json_value({
        "run_id": row["run_id"], "gpu": row["gpu_label"], "gpu_key": row["gpu_key"], "cells": number,
        "headline": f"Shipped twin: {sentence_of(pair)}.",
        "command": f"python -m core compare --baseline {row['run_id']} --target {shlex.quote(selection)}",
    })
