"""What a file would bring, before it counts; what files of other programs say of a run; where two profiles differ."""
from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import units
from core.answers.json_values import json_value, records
from core.answers.matching import match
from core.answers.selection import select
from core.errors import UserError
from core.gpus import catalogue

if TYPE_CHECKING:
    import pandas as pd

    from core.store import Store
    from core.store.uploads import Preview

MOST_LINES = 20_000
"""A file of more lines is not read ahead: what it brings is said once it is in."""


def facts_by_format(previews: Sequence[Preview]) -> dict[str, dict[str, str]]:
    """Format -> what the one companion file among these says about files of it. Two companions of one: neither."""
    found: dict[str, list[dict[str, str]]] = {}
    for preview in previews:
        about = preview.imported
        if about is not None and about.facts_for is not None:
            found.setdefault(about.facts_for, []).append(dict(about.facts))
    return {key: facts[0] for key, facts in found.items() if len(facts) == 1}


def outlook(store: Store, data: bytes, preview: Preview, baseline: str | None = None) -> dict[str, Any]:
    """What would happen to this file's lines: `held` [{sentence, means, kind, cells}], `held_cells`, `ready_cells`, and
    with a `baseline` (SEL) `matching`: how many of its cells have a partner there, `baseline`: its label; `headline`.

    None of it is stored. `headline` alone for a file of more than `MOST_LINES` lines, and for one with open questions.
    """
    from core.store import open_files, queries

    empty = {"held": [], "held_cells": 0, "ready_cells": 0, "matching": None, "baseline": None}
    if not preview.lines or preview.lines > MOST_LINES:
        what = "What it brings is not known before its questions are answered." if not preview.lines else \
            f"It has {preview.lines} lines: what it brings is said once it is in."
        return {**empty, "headline": what}
    with tempfile.TemporaryDirectory(prefix="gapscope-") as folder:
        lines = preview.lines_text or data
        path = Path(folder) / ("file.jsonl.gz" if lines[:2] == b"\x1f\x8b" else "file.jsonl")
        path.write_bytes(lines)
        with open_files([path]) as own:
            held = queries.quarantine(own)
            ready = queries.cells(own)
            logs = [told["headline"] for run_id in queries.runs(own)["run_id"] if (told := log(own, run_id))]
        ready = ready[ready["status"] == "ok"]
        matching, label = _matching(store, baseline, path) if baseline is not None else (None, None)
    rows = [{name: row[name] for name in ("sentence", "means", "kind", "cells")} for row in records(held)]
    count = int(held["cells"].sum())
    if logs and ready.empty:
        return {**empty, "headline": " ".join(logs)}
    said = [f"{_count(len(ready), 'cell')} would count"]
    if count:
        said.append(f"{_count(count, 'cell')} would be held in quarantine")
    if matching is not None:
        said.append(f"{matching} of them match {label}" if matching else f"none of them matches {label}")
    return json_value({"held": rows, "held_cells": count, "ready_cells": len(ready), "matching": matching,
                       "baseline": label, "headline": "; ".join(said) + "."})


def _matching(store: Store, baseline: str, path: Path) -> tuple[int, str | None]:
    try:
        left = select(store, baseline)
    except UserError:
        return 0, baseline
    try:
        right = select(store, str(path))
    except UserError:
        return 0, left.label  # a log, or nothing that counts
    return len(match(left, right).pairs), left.label


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# --- what else is known of a run -------------------------------------------------------------------------------------


def attached(store: Store, run_id: str) -> dict[str, Any]:
    """Logs and profiles that belong to a run: those that name it, and logs of the same card while it ran.

    `logs` [{run_id, file, readings, phases [...], headline}], `profiles` [{run_id, file, cell, busy_share, headline}].
    """
    from core.store import queries

    logs, profiles = [], []
    span = _span(store, run_id)
    own = queries.run_header(store, run_id)
    if own.empty:
        return {"logs": [], "profiles": []}
    header = records(own)[0]
    for row in records(queries.imported_runs(store)):
        request = json.loads(row["request"]) if isinstance(row["request"], str) else {}
        target, _, line = str(request.get("attach") or "").partition(":")
        if row["run_id"] == run_id or (target and target != run_id):
            continue
        log = queries.telemetry_log(store, row["run_id"])
        if len(log):
            if not target:
                same = row["gpu_key"] == header["gpu_key"] if row["gpu_key"] else row["device_name"] == \
                    header["device_name"]
                log = log[(log["at_s"] >= span[0]) & (log["at_s"] <= span[1])] if span and same else log.iloc[:0]
            if len(log):
                logs.append({"run_id": row["run_id"], "file": row["label"], **log_in_words(log, row)})
        elif target:
            cells = queries.cells(store, run_ids=[row["run_id"]])
            share = _busy_share(cells)
            busy = f", the GPU busy {100 * share:.3g} % of it" if share is not None else ""
            profiles.append({"run_id": row["run_id"], "file": row["label"], "cell": int(line) if line.isdecimal()
                             else None, "busy_share": share, "headline": f"{row['label']}: a profile{busy}."})
    return json_value({"logs": logs, "profiles": profiles})


def _busy_share(cells: pd.DataFrame) -> float | None:
    known = cells.dropna(subset=["kernel_busy_ms", "profiled_wall_ms"])
    return float(known["kernel_busy_ms"].iloc[0] / known["profiled_wall_ms"].iloc[0]) if len(known) else None


def log(store: Store, run_id: str) -> dict[str, Any] | None:
    """What the log that came as this run says: readings, phases, headline; None when the run is no log."""
    from core.store import queries

    found = queries.telemetry_log(store, run_id)
    header = queries.run_header(store, run_id)
    return log_in_words(found, records(header)[0]) if len(found) and len(header) else None


def log_in_words(log: pd.DataFrame, device: dict[str, Any]) -> dict[str, Any]:
    """`readings`, `phases` (core.analysis.telemetry_log), `headline`. Limit and clock of the log, else of the card."""
    from core.analysis.telemetry_log import phases

    card = catalogue().get(device.get("gpu_key") or "")
    clock = json_value(device.get("max_sm_clock_mhz")) or (card.boost_clock_mhz if card else None)
    if "sm_clock_mhz" in log and log["sm_clock_mhz"].notna().any():
        clock = max(clock or 0.0, float(log["sm_clock_mhz"].max()))
    limit = json_value(device.get("power_limit_w")) or (card.tdp_w if card else None)
    found = records(phases(log, clock, limit))
    said = [f"{row['state']} in {row['readings']}"
            + (f" ({units.mhz(row['clock_mhz'])})" if row["clock_mhz"] is not None else "")
            for row in found]
    return {"readings": len(log), "phases": found, "headline": f"{_count(len(log), 'reading')}: {', '.join(said)}."}


def _span(store: Store, run_id: str) -> tuple[float, float] | None:
    """Start and end of a run in seconds since 1970, None when it has no cell with a time."""
    from core.store import queries

    cells = queries.cells(store, run_ids=[run_id], older_attempts=True)
    stamps = [text for text in (*cells["started_at"], *cells["at"]) if isinstance(text, str)]
    seconds = [datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() for text in stamps]
    return (min(seconds), max(seconds)) if seconds else None
