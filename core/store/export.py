"""What leaves the store: a run's lines as they came in, and tables as CSV that no spreadsheet takes for formulas."""
from __future__ import annotations

import contextlib
import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from core.errors import UserError
from core.records import RecordError, RunsFolder, decode_line, open_run_file
from core.records.run_file import MAX_LINE_BYTES
from core.store import queries
from core.store.imported import lines_of
from core.store.journal import Journal, active_uploads
from core.store.store import Store

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""With them, and with their full-width forms, a cell begins that spreadsheets take for a formula."""



def export_run(place: Store | RunsFolder, run_id: str) -> bytes:
    """The lines of one run, byte for byte, unpacked. Raises `UserError` when the run or its file is not there."""
    if isinstance(place, RunsFolder):
        path = place.run_file(run_id)
    else:
        table = queries.runs(place)
        row = table[table["run_id"] == run_id]
        if row.empty:
            raise UserError(f"no run {run_id[:70]} is stored", "a run id", "python -m core runs lists them")
        path = _path_of(place, str(row["source_key"].iloc[0]))
    if not path.is_file():
        raise UserError(f"the file of run {run_id[:70]} is not there", "a run with its file")
    lines = []
    # The lines before the end of a packed file that is torn are whole, and stored.
    with open_run_file(path) as stream, contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
        while raw := stream.readline(MAX_LINE_BYTES + 1):
            if raw.endswith(b"\n") and _belongs(raw, run_id):
                lines.append(raw)
    if not lines:
        raise UserError(f"the file of run {run_id[:70]} holds no line of it any more", "a run with its lines")
    return b"".join(lines)


def export_csv(frame: pd.DataFrame) -> bytes:
    """UTF-8 CSV. Text that a spreadsheet would run as a formula gets a leading apostrophe; numbers stay as they are."""
    safe = pd.DataFrame({name: frame[name].map(_safe) if frame[name].dtype.kind not in "iufb" else frame[name]
                         for name in frame.columns}, columns=frame.columns)
    safe.columns = pd.Index([_safe(str(name)) for name in frame.columns])
    return safe.to_csv(index=False).encode()


def _safe(value: object) -> object:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple, dict)):
        value = json.dumps(value)
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return "'" + value
    return value


def _belongs(raw: bytes, run_id: str) -> bool:
    """Quick for the lines that Gapscope writes; any other spelling is parsed."""
    if run_id.encode() not in raw:
        return False
    if f'"run_id":"{run_id}"'.encode() in raw[:400]:
        return True
    try:
        return decode_line(raw).run_id == run_id
    except RecordError:
        return False


def _path_of(store: Store, source: str) -> Path:
    """The file with the lines behind a source key (core.store.sources). Raises `UserError` where there is none."""
    place, _, name = source.partition("/")
    if place == "reference" and store.reference is not None:
        return store.reference / "runs" / name
    if place == "uploads" and store.runs is not None:
        entries = Journal(store.runs.journal).entries()
        position = active_uploads(entries).get(name)
        about = entries[position].data.get("import") if position is not None else None
        # What another program wrote lies there as it came; its lines are made of it and of its answers.
        return lines_of(store.runs, name, about) if isinstance(about, Mapping) else store.runs.uploads / name
    if place == "runs" and store.runs is not None:
        return store.runs.root / name
    raise UserError("this run came from a file named on the command line", "a stored run", "copy that file")
