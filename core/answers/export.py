"""Stored cells on their way out: run-file lines as they came in, or one flat table of repetitions."""
from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from core import units
from core.answers.selection import SETTING_FIELDS, WORK_FIELDS, Side, select
from core.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from core.store import Store

FORMATS = ("jsonl", "csv", "parquet")
_KINDS_OF_THE_RUN = ("run", "ceiling")  # lines that every cell of a run needs beside it
_TABLE_COLUMNS = (
    "run_id", "seq", "process", "origin", "method", "started_at", "device_type", "device_name", "gpu_key", "gpu_label",
    "uuid_hash", *WORK_FIELDS, *SETTING_FIELDS, "status", "reason", "torch", "cuda", "cudnn", "driver",
    "first_call_ms", "peak_bytes", "reserved_bytes",
)


def export(store: Store, selection: str, file_format: str) -> bytes:
    """The cells of a selection as the bytes of a file.

    jsonl: a run id gives its whole run, line by line as it was read; any other selection the header and the ceilings
    of its runs with the chosen cell lines. csv and parquet: one row per repetition, raw values; a cell that failed has
    one row without a time. Raises `UserError` as `select`, for another format, and where a run's file is gone.
    """
    from core.store import queries
    from core.store.export import export_csv, export_run

    if file_format not in FORMATS:
        raise UserError(f"format {file_format!r}", f"one of {', '.join(FORMATS)}")
    if file_format == "jsonl" and selection.strip() in set(queries.runs(store)["run_id"]):
        return export_run(store, selection.strip())  # a run of ceilings, of trials or of a log has no cell to select
    side = select(store, selection)
    if file_format == "jsonl":
        return run_lines(side)
    table = repetitions(side)
    if file_format == "csv":
        return export_csv(table)
    stream = io.BytesIO()
    table.to_parquet(stream, index=False)
    return stream.getvalue()


def extent(store: Store, selection: str) -> dict[str, Any]:
    """What `export` of this selection would hold: `cells`, `failed`, `runs`, `repetitions`, `headline`."""
    side = select(store, selection)
    runs = {*side.lines["run_id"], *side.failed["run_id"]}
    found = {"cells": len(side.lines), "failed": len(side.failed), "runs": len(runs),
             "repetitions": int(side.lines["n"].sum())}
    said = f"{units.count(found['cells'])} cell lines of {units.count(found['runs'])} runs on {side.label}"
    failed = f"; {units.count(found['failed'])} that failed have a row without a time" if found["failed"] else ""
    return {**found, "headline": f"{said}, {units.count(found['repetitions'])} repetitions{failed}."}


def repetitions(side: Side) -> pd.DataFrame:
    """One row per repetition: keys, settings, software and the raw sample (columns of `queries.samples`)."""
    import pandas as pd

    from core.store import queries

    lines = pd.concat([part for part in (side.lines, side.failed) if not part.empty])[list(_TABLE_COLUMNS)]
    samples = [
        queries.samples(side.store, str(run_id), [int(seq) for seq in group["seq"]])
        for run_id, group in side.lines.groupby("run_id")
    ]
    if not samples:
        return lines
    return lines.merge(pd.concat(samples), on=["run_id", "seq"], how="left").sort_values(["run_id", "seq", "i"])


def run_lines(side: Side) -> bytes:
    """Lines of the run files behind a side, byte for byte."""
    from core.records import RecordError, decode_line
    from core.store.export import export_run

    chosen = {(str(row["run_id"]), int(row["seq"])) for row in side.lines[["run_id", "seq"]].to_dict("records")}
    parts: list[bytes] = []
    for run_id in sorted({*side.lines["run_id"], *side.failed["run_id"]}):
        data = export_run(side.store, str(run_id))
        if side.kind == "run" and not side.selection.fields:
            parts.append(data)
            continue
        for raw in data.splitlines(keepends=True):
            try:
                line = decode_line(raw)
            except RecordError:
                continue
            if line.kind in _KINDS_OF_THE_RUN or (line.run_id, line.seq) in chosen:
                parts.append(raw)
    return b"".join(parts)
