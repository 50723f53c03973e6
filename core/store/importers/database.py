"""The results.duckdb of another machine: its stored rows as the lines of run files.

Only named tables are read, with all access to other files switched off; a database with views or macros that are not
Gapscope's is refused. A row keeps less than its line did (unknown fields, the order of keys), so every line made here
is compared with the hash that the database keeps of the original. Where all lines of a run come out equal, it comes
in as that run, and what is known already changes nothing. Otherwise it comes in as a copy, `copy-<run id>` of origin
`imported`, which gives way to the run itself once that is there (view `known_run`).
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from core.records import (
    Cell,
    Device,
    Host,
    Line,
    Op,
    RecordError,
    RunHeader,
    SettingKey,
    Software,
    Telemetry,
    WorkKey,
    decode_line,
    encode_line,
    valid_run_id,
)
from core.records.convert import from_json
from core.records.model import LINE_KINDS, METHOD, SCHEMA
from core.store.importers.model import RefusedError

KEY, TITLE = "database", "results.duckdb of another machine"
EXPECTED = "a run file, or the results.duckdb of a Gapscope"
TABLES = ("line", "run", "cell", "sample", "stage", "op", "op_trial", "ceiling", "note", "run_end")
OWN_VIEWS = {"known_run", "held", "counted_run", "counted_ceiling", "counted_cell"}
MAX_LINES, MAX_SAMPLES, MAX_OUTPUT_BYTES = 100_000, 3_000_000, 128 * 1024 * 1024


@dataclass(frozen=True)
class Database:
    """A file that begins as DuckDB's do."""

    path: str
    name: str


def understand_database(given: Database, sha: str, received_at: str) -> dict[str, Any]:
    """As `formats.understand` returns it; there is nothing to ask. Raises `RefusedError`."""
    import duckdb

    try:
        connection = duckdb.connect(given.path, read_only=True, config={
            "enable_external_access": "false", "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false", "memory_limit": "400MB", "threads": "1",
            "lock_configuration": "true",
        })
    except (duckdb.Error, RuntimeError) as error:
        raise RefusedError("a DuckDB database", EXPECTED, f"it cannot be opened ({_first_line(error)})") from None
    try:
        reader = _Reader(connection)
        reader.check()
        lines, said = _all_runs(reader, sha, received_at, given.name)
    except duckdb.Error as error:
        raise RefusedError("a DuckDB database", EXPECTED, f"it cannot be read ({_first_line(error)})") from None
    finally:
        connection.close()
    return {
        "format": KEY, "title": TITLE, "said": said, "questions": [], "assumed": {}, "answers": {}, "problems": [],
        "left_out": 0, "columns": [], "facts": {}, "facts_for": None, "tasks": [], "sample": [],
        "lines": lines.decode(),
    }


class _Reader:
    """Rows of named tables as dicts."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._columns: dict[str, list[str]] = {}

    def check(self) -> None:
        """Raises `RefusedError` for a database that is not Gapscope's, holds views of its own, or too many rows."""
        views = {row[0] for row in self._all("select view_name from duckdb_views() where not internal")}
        macros = self._all("select function_name from duckdb_functions() where not internal limit 1")
        if views - OWN_VIEWS or macros:
            raise RefusedError("a DuckDB database", EXPECTED,
                               "it holds views or macros of its own, which are never run")
        for table, column in self._all(
            "select table_name, column_name from duckdb_columns() where not internal and schema_name = 'main' "
            "and table_name in (select table_name from duckdb_tables() where not internal and schema_name = 'main')"
        ):
            self._columns.setdefault(table, []).append(column)
        missing = [name for name in ("line", "run", "cell", "sample") if name not in self._columns]
        if missing:
            raise RefusedError("a DuckDB database", EXPECTED, f"it has no table {missing[0]}")
        for table, most in (("line", MAX_LINES), ("sample", MAX_SAMPLES)):
            count = self._all(f'select count(*) from main."{table}"')[0][0]
            if count > most:
                raise RefusedError(f"a database with {count} rows in {table}", f"at most {most}",
                                   "export the runs that you need as run files")

    def _all(self, sql: str, params: Iterable[Any] = ()) -> list[Any]:
        return list(self._connection.execute(sql, list(params)).fetchall())

    def rows(self, table: str, run_id: str, order: str = "seq") -> list[dict[str, Any]]:
        columns = self._columns.get(table, [])
        if not {"run_id", "seq"} <= set(columns):
            return []
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        found = self._all(f'select {names} from main."{table}" where run_id = ? order by {order}', [run_id])
        return [dict(zip(columns, row, strict=True)) for row in found]

    def run_ids(self) -> list[str]:
        return [row[0] for row in self._all("select distinct run_id from main.line order by run_id")]


def _all_runs(reader: _Reader, sha: str, received_at: str, name: str) -> tuple[bytes, list[str]]:
    parts: list[bytes] = []
    exact, copies, lost, size = 0, 0, 0, 0
    for run_id in reader.run_ids():
        if not isinstance(run_id, str) or not valid_run_id(run_id):
            lost += 1
            continue
        try:
            encoded, is_exact = _one_run(reader, run_id, name)
        except (RecordError, ValueError, KeyError, TypeError):
            lost += 1
            continue
        if not encoded:
            lost += 1
            continue
        exact, copies = exact + is_exact, copies + (not is_exact)
        size += len(encoded)
        if size > MAX_OUTPUT_BYTES:
            raise RefusedError("a database whose runs are more than an upload may hold",
                               f"at most {MAX_OUTPUT_BYTES} bytes of lines", "export the runs that you need")
        parts.append(encoded)
    said = [f"{exact} runs are stored whole: their lines are equal to those of their files."] if exact else []
    if copies:
        said.append(f"{copies} runs come as copies: what the database keeps is not every byte of their lines. A copy "
                    "gives way to the run itself as soon as its file is here.")
    if lost:
        said.append(f"{lost} runs are left out: their header is missing or a value cannot be.")
    if not parts:
        raise RefusedError("a DuckDB database", EXPECTED, "it holds no run")
    return b"".join(parts), said


def _one_run(reader: _Reader, run_id: str, name: str) -> tuple[bytes, bool]:
    """The run's lines and whether they are byte for byte what the database has hashed."""
    by_seq = {row["seq"]: row for row in reader.rows("line", run_id)}
    found: dict[int, tuple[Any, int]] = {}
    for table, make in (("run", _header), ("ceiling", _ceiling), ("note", _note), ("run_end", _end),
                        ("op_trial", _op_trial)):
        for row in reader.rows(table, run_id):
            found[row["seq"]] = make(row), int(row.get("method") or METHOD)
    for seq, cell, method in _cells(reader, run_id):
        found[seq] = cell, method
    header = next((record for record, _ in found.values() if isinstance(record, RunHeader)), None)
    if header is None:
        return b"", False
    method_of_run = next(method for record, method in found.values() if isinstance(record, RunHeader))
    lines, exact = [], len(found) == len(by_seq)
    for seq in sorted(found):
        record, method = found[seq]
        method = method if isinstance(record, (RunHeader, Cell)) else method_of_run
        raw = encode_line(Line(run_id, seq, record, SCHEMA, method))
        known = by_seq.get(seq, {}).get("sha")
        exact = exact and hashlib.sha256(raw.strip()).hexdigest()[:32] == known
        lines.append((seq, record, method, raw))
    if exact:
        return b"".join(raw for *_, raw in lines), True
    copy_id = f"copy-{run_id}" if len(run_id) <= 59 else f"copy-{hashlib.sha256(run_id.encode()).hexdigest()[:40]}"
    made = []
    for seq, record, method, _ in lines:
        if isinstance(record, RunHeader):
            record = RunHeader(record.started_at, "imported", record.label, record.device, record.host,
                               record.software, record.settings,
                               {**record.request, "copy_of": run_id, "file": name, "origin_there": record.origin})
        raw = encode_line(Line(copy_id, seq, record, SCHEMA, method))
        decode_line(raw)
        made.append(raw)
    return b"".join(made), False


# --- rows as records -------------------------------------------------------------------------------------------------


def _json(text: Any) -> Any:
    return None if text is None else json.loads(text)


def _part(cls: type, row: dict[str, Any], **renamed: Any) -> dict[str, Any]:
    """The fields of a record out of a row; `renamed` are those whose columns are called otherwise."""
    return {f.name: renamed.get(f.name, row.get(f.name)) for f in fields(cls)
            if f.name != "extra" and (f.name in renamed or f.name in row)}


def _header(row: dict[str, Any]) -> Any:
    return from_json(RunHeader, {
        "started_at": row["started_at"], "origin": row["origin"], "label": row["label"],
        "device": _part(Device, row, type=row["device_type"], name=row["device_name"]),
        "host": _part(Host, row), "software": _part(Software, row, arch_list=list(row["arch_list"] or [])),
        "settings": _json(row["settings"]) or {}, "request": _json(row["request"]) or {},
    }, "run")


def _ceiling(row: dict[str, Any]) -> Any:
    return from_json(LINE_KINDS["ceiling"], _part(LINE_KINDS["ceiling"], row, samples=list(row["samples"] or [])),
                     "ceiling")


def _note(row: dict[str, Any]) -> Any:
    return from_json(LINE_KINDS["note"], _part(LINE_KINDS["note"], row, data=_json(row["data"]) or {}), "note")


def _end(row: dict[str, Any]) -> Any:
    return from_json(LINE_KINDS["end"], _part(LINE_KINDS["end"], row), "end")


def _op(row: dict[str, Any]) -> dict[str, Any]:
    return _part(Op, row, shapes=_json(row["shapes"]) or [], dtypes=_json(row["dtypes"]) or [],
                 scalars=_json(row["scalars"]) or [], kernels=list(row["kernels"] or []))


def _op_trial(row: dict[str, Any]) -> Any:
    lists = {name: list(row[name] or []) for name in ("before_ms", "after_ms", "kernels_before", "kernels_after")}
    return from_json(LINE_KINDS["op_trial"], _part(LINE_KINDS["op_trial"], row, op=_op(row), **lists), "op_trial")


def _cells(reader: _Reader, run_id: str) -> Iterable[tuple[int, Any, int]]:
    samples = _grouped(reader.rows("sample", run_id, "seq, i"))
    stages = _grouped(reader.rows("stage", run_id, "seq, position"))
    ops = _grouped(reader.rows("op", run_id, "seq, position"))
    for row in reader.rows("cell", run_id):
        seq = row["seq"]
        own = samples.get(seq, [])

        def column(name: str, own: list[dict[str, Any]] = own) -> list[Any] | None:
            values = [sample.get(name) for sample in own]
            return None if all(value is None for value in values) else values

        telemetry = {f.name: column(f.name) for f in fields(Telemetry) if f.name != "extra"}
        is_cuda = column("event_ms") is not None
        yield seq, from_json(Cell, {
            **_part(Cell, row),
            "workload": {"work": _part(WorkKey, row), "setting": _part(SettingKey, row)},
            "warmup_ms": list(row["warmup_ms"] or []), "wall_ms": [sample["wall_ms"] for sample in own],
            "event_ms": column("event_ms"),
            "telemetry": telemetry if any(values is not None for values in telemetry.values()) else None,
            "execution_path": _json(row["execution_path"]) or {}, "drift": _json(row["drift"]),
            "stages": [_stage(stage, is_cuda) for stage in stages.get(seq, [])],
            "ops": None if row.get("n_ops") is None else [_op(op) for op in ops.get(seq, [])],
        }, "cell"), int(row.get("method") or METHOD)


def _stage(row: dict[str, Any], is_cuda: bool) -> dict[str, Any]:
    times = None if row["samples_ms"] is None else list(row["samples_ms"])
    return {
        "name": row["name"], "wall_ms": None if is_cuda else times, "event_ms": times if is_cuda else None,
        **{name: row[name] for name in ("calls", "flops", "other_flops", "bytes", "launches")},
    }


def _grouped(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    made: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        made.setdefault(row["seq"], []).append(row)
    return made


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].split("/")[0].rstrip(' "')[:100]
