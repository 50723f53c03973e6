"""Tables of results.duckdb, and how the file is opened.

The database is a cache: reference data, run files and journal replayed. A file of another schema version, or one that
cannot be read, is moved aside and made anew; it is never deleted. No table has a primary key: one writer checks
(run_id, seq) itself (core.store.ingest), which is faster and lets a row be replaced within one transaction.
"""
from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path

import duckdb
import pyarrow as pa

from core.errors import UserError
from core.records import SettingKey, WorkKey
from core.store.lock import CannotWriteError

SCHEMA_VERSION = "4"
"""Raise it with any change to `TABLES` or to the meaning of a column: older files are then rebuilt."""

MEMORY_LIMIT = "1GB"

_TYPES = {
    "text": ("VARCHAR", pa.string()),
    "int": ("BIGINT", pa.int64()),
    "real": ("DOUBLE", pa.float64()),
    "bool": ("BOOLEAN", pa.bool_()),
    "reals": ("DOUBLE[]", pa.list_(pa.float64())),
    "texts": ("VARCHAR[]", pa.list_(pa.string())),
}

_WORK = {
    "tracker": "text", "variant": "text", "implementation": "text", "revision": "text", "weights": "text",
    "frames": "int", "height": "int", "width": "int", "points": "int", "batch": "int", "iterations": "int",
    "query_chunk": "int", "window": "int", "items_per_run": "int",
}
_SETTING = {
    "precision": "text", "execution": "text", "memory_format": "text", "cudnn_benchmark": "bool",
    "sdp_backend": "text", "handicap": "text",
}
_LINE_KEY = {"run_id": "text", "seq": "int"}
_OP = {
    "op": "text", "stage": "text", "shapes": "text", "dtypes": "text", "layout": "text", "scalars": "text",
    "calls": "int", "device_ms": "real", "kernels": "texts", "launches": "int", "flops": "int", "other_flops": "int",
    "bytes": "int",
}

TABLES: dict[str, dict[str, str]] = {
    "meta": {"key": "text", "value": "text"},
    # What has been read: `offset_bytes` behind the last complete line (of the unpacked text), `prefix_sha` up to there.
    "source": {
        "source": "text", "place": "text", "rank": "text", "file": "text", "upload_id": "text", "offset_bytes": "int",
        "lines": "int", "problems": "int", "prefix_sha": "text", "size_bytes": "int", "mtime_ns": "int",
        "inode": "int", "done": "bool", "torn": "text",
    },
    "source_run": {"source": "text", "run_id": "text", "lines": "int", "duplicates": "int", "conflicts": "int"},
    # Every line that counts, once. `sha` is of its bytes.
    "line": {**_LINE_KEY, "kind": "text", "sha": "text", "source": "text", "line_number": "int",
             "unknown_fields": "int"},
    # Everything that does not count, with its reason. `sha` and `other_sha` of a conflict: the line left out, the kept.
    "problem": {
        "source": "text", "line_number": "int", "what": "text", "run_id": "text", "seq": "int", "field": "text",
        "found": "text", "expected": "text", "sha": "text", "other_sha": "text", "other_source": "text",
    },
    "run": {
        **_LINE_KEY, "method": "int", "started_at": "text", "origin": "text", "label": "text", "device_type": "text",
        "device_name": "text", "gpu_key": "text", "gpu_label": "text", "uuid_hash": "text",
        "compute_capability": "text", "sm_count": "int", "memory_bytes": "int", "l2_bytes": "int",
        "max_sm_clock_mhz": "real", "max_memory_clock_mhz": "real", "memory_bus_bits": "int", "power_limit_w": "real",
        "ecc": "bool", "mig": "bool", "pcie_generation": "int", "pcie_width": "int", "persistence": "bool",
        "virtualization": "text", "cpu": "text", "cores": "int", "ram_bytes": "int", "os": "text", "platform": "text",
        "python": "text", "torch": "text", "cuda": "text", "cudnn": "text", "driver": "text", "arch_list": "texts",
        "settings": "text", "request": "text",
    },
    # One line of a cell with its summary; quantiles by linear interpolation over its samples.
    "cell": {
        **_LINE_KEY, "method": "int", "process": "int", "at": "text", "status": "text", "reason": "text",
        "work_key": "text", "setting_key": "text", **_WORK, **_SETTING, "n": "int", "wall_median_ms": "real",
        "wall_min_ms": "real", "wall_p5_ms": "real", "wall_p25_ms": "real", "wall_p75_ms": "real",
        "wall_p95_ms": "real", "wall_max_ms": "real", "event_median_ms": "real", "first_call_ms": "real",
        "warmup_ms": "reals", "stop_rule": "text", "peak_bytes": "int", "reserved_bytes": "int",
        "alloc_retries": "int", "energy_j": "real", "energy_valid": "bool", "kernel_busy_ms": "real",
        "profiled_wall_ms": "real", "execution_path": "text", "n_ops": "int", "coverage": "real", "drift": "text",
        "clip": "text",
    },
    "sample": {
        **_LINE_KEY, "i": "int", "wall_ms": "real", "event_ms": "real", "sm_clock_mhz": "real",
        "memory_clock_mhz": "real", "power_w": "real", "temperature_c": "real", "throttle_bits": "int",
        "energy_j": "real", "utilization_percent": "real", "power_limit_w": "real", "pcie_generation": "int",
        "pcie_width": "int", "memory_used_bytes": "int", "other_processes": "int",
    },
    "stage": {
        **_LINE_KEY, "position": "int", "name": "text", "median_ms": "real", "samples_ms": "reals", "calls": "int",
        "flops": "int", "other_flops": "int", "bytes": "int", "launches": "int",
    },
    "op": {**_LINE_KEY, "position": "int", **_OP},
    "op_trial": {
        **_LINE_KEY, **_OP, "change": "text", "before_ms": "reals", "after_ms": "reals", "kernels_before": "texts",
        "kernels_after": "texts", "max_abs_diff": "real", "reproduced": "bool", "agrees": "bool", "tolerance": "real",
        "launches_before": "real", "launches_after": "real", "device_before_ms": "real", "device_after_ms": "real",
        "in_tracker_ms": "real", "replay_ms": "real", "l2": "text", "lost_ms": "real", "pass_ms": "real",
    },
    "ceiling": {
        **_LINE_KEY, "metric": "text", "precision": "text", "value": "real", "unit": "text", "samples": "reals",
        "clock_mhz": "real", "working_set_bytes": "int", "shape": "text", "limited_by": "text", "power_w": "real",
        "throttle_bits": "int",
    },
    "note": {**_LINE_KEY, "at": "text", "event": "text", "text": "text", "data": "text"},
    "run_end": {**_LINE_KEY, "at": "text", "state": "text", "reason": "text"},
    "reported": {
        "row": "int", "tracker": "text", "variant": "text", "gpu_text": "text", "gpu_key": "text", "precision": "text",
        "frames": "int", "height": "int", "width": "int", "points": "int", "points_text": "text", "batch": "int",
        "seconds": "real", "throughput": "real", "throughput_text": "text", "throughput_unit": "text",
        "source": "text", "source_detail": "text", "notes": "text",
    },
    "journal": {
        "position": "int", "id": "text", "time": "text", "act": "text", "actor": "text", "target": "text",
        "base_version": "int", "data": "text",
    },
    "hidden_run": {"run_id": "text"},
    # What breaks a rule of core.store.plausibility: a whole run (`seq` null) or one line; and what people let through.
    "suspect": {**_LINE_KEY, "rule": "text", "item": "text", "found": "text", "expected": "text"},
    "released": {"item": "text", "time": "text", "actor": "text", "reason": "text"},
}
"""Table -> column -> kind of value. JSON is text, so that equal content is equal rows."""

CONTENT_TABLES = ("line", "run", "cell", "sample", "stage", "op", "op_trial", "ceiling", "note", "run_end",
                  "suspect")
"""Tables whose rows belong to a line of a run: deleted and read again together."""

WORK_COLUMNS, SETTING_COLUMNS = tuple(_WORK), tuple(_SETTING)

_VIEWS = (
    # A run is its first header, unless somebody deleted it. A resumed run may hold several. A copy out of another
    # database (core.store.importers.database) gives way to the run itself, whenever that comes.
    """
    create view known_run as
    select * from run where run_id not in (select run_id from hidden_run)
        and run_id not in (select 'copy-' || run_id from run)
    qualify row_number() over (partition by run_id order by seq) = 1
    """,
    # In quarantine: implausible, and nobody has released it.
    "create view held as select * from suspect where item not in (select item from released)",
    """
    create view counted_run as
    select * from known_run where run_id not in (select run_id from held where seq is null)
    """,
    """
    create view counted_ceiling as
    select c.* from ceiling c anti join held h on h.run_id = c.run_id and h.seq = c.seq
    """,
    # A line is superseded when a newer ok attempt of the same work in the same process of its run exists.
    """
    create view counted_cell as
    select cell.*, coalesce(
        max(case when status = 'ok' then cell.seq end)
            over (partition by run_id, process, work_key, setting_key) > cell.seq, false) as superseded
    from cell anti join held h on h.run_id = cell.run_id and h.seq = cell.seq
    where run_id not in (select run_id from hidden_run) and run_id not in (select run_id from held where seq is null)
    """,
)


class DatabaseBusyError(UserError):
    """Another program, not Gapscope, has the database file open."""


def _check_keys() -> None:
    """The tables follow the records: a key field added there must get its column here."""
    for record, columns in ((WorkKey, WORK_COLUMNS), (SettingKey, SETTING_COLUMNS)):
        known = {f.name for f in fields(record) if f.name != "extra"}
        if known != set(columns):
            raise AssertionError(f"{record.__name__} and its columns differ: {sorted(known ^ set(columns))}")


_check_keys()


def arrow_schema(table: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind][1]) for name, kind in TABLES[table].items()])


def connect_memory() -> duckdb.DuckDBPyConnection:
    """A fresh database in memory with all tables."""
    connection = duckdb.connect(":memory:", config=_config())
    _create(connection)
    return connection


def check_place(path: Path) -> None:
    """Refuse a place where something else than results.duckdb lies: what is not ours is never moved aside.

    Looked at before anything is made there, and only while nobody has it open: closing a descriptor of a file that
    DuckDB has open in this process would release its lock. A file called *.duckdb may be a torn one of ours.
    """
    if path.is_dir():
        raise UserError(f"{path.name} is a folder", "a database file", "choose another --db")
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent.name} for {path.name}", "an existing folder", "choose another --db")
    if not path.exists():
        return
    if not path.is_file():
        raise UserError(f"{path.name} is no ordinary file", "a database file", "choose another --db")
    if path.suffix == ".duckdb":
        return
    try:
        with open(path, "rb") as stream:
            head = stream.read(12)
    except OSError:
        return  # connect_file says what is wrong
    if head and head[8:] != b"DUCK":
        raise UserError(f"{path.name} is no database of Gapscope", "results.duckdb, or a name that is free",
                        "choose another --db")


def connect_file(path: Path) -> tuple[duckdb.DuckDBPyConnection, str | None]:
    """Open or make the database file; the caller holds its lock (core.store.lock).

    Returns the connection and, when an old file had to give way, a sentence about it. Raises `UserError` when another
    program has the file open, when it is a database of something else, or when no file can be made there.
    """
    existed = path.exists()
    if not existed and _wal(path).exists():
        move_aside(path)  # a log without its database would be replayed into the new one
    if existed and not os.access(path, os.R_OK | os.W_OK):
        raise UserError(f"{path.name} may not be read and written by you", "a file of your own", "choose another --db")
    try:
        connection = duckdb.connect(str(path), config=_file_config())
    except duckdb.Error as error:
        _raise_if_held(path, error)
        refused = cannot_write(path, error)
        if refused is not None:
            raise refused from error
        if not existed:
            raise UserError(f"{path.name} cannot be made ({_first_line(error)})", "a writable folder",
                            "choose another --db") from error
        return _anew(path, f"could not be read ({_first_line(error)})")
    try:
        if not existed or _is_empty(connection):
            _create(connection)
            return connection, None
        found = _version(connection)
    except duckdb.Error as error:
        connection.close()
        refused = cannot_write(path, error)
        if refused is not None:
            raise refused from error
        return _anew(path, f"could not be read ({_first_line(error)})")
    if found == SCHEMA_VERSION:
        return connection, None
    connection.close()
    if found is None:
        raise UserError(f"{path.name} is a database of something else", "results.duckdb, or a name that is free",
                        "choose another --db")
    return _anew(path, f"has schema {found}, this version needs {SCHEMA_VERSION}")


def is_damage(error: Exception) -> bool:
    """Whether DuckDB says that the file itself is broken: nothing but building it anew helps."""
    return isinstance(error, (duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException)) or (
        isinstance(error, duckdb.Error) and any(word in str(error).lower() for word in ("corrupt", "checksum"))
    )


_CANNOT_WRITE = ("No space left on device", "File too large", "Disk quota exceeded", "Read-only file system",
                 "Permission denied", "Input/output error")


def cannot_write(path: Path, error: Exception) -> CannotWriteError | None:
    """The same trouble in one sentence when `error` says that the disk refused a write."""
    reason = next((words for words in _CANNOT_WRITE if words in str(error)), None)
    return CannotWriteError(f"{path.name} cannot be written ({reason})", "a writable disk with free space",
                            "make room, or choose another --db") if reason else None


def rebuilt(path: Path, damage: str) -> tuple[duckdb.DuckDBPyConnection, str]:
    """An empty database in place of one whose damage showed while it was read; the caller has closed that one."""
    return _anew(path, f"is damaged ({_first_line(damage)})")


def _anew(path: Path, reason: str) -> tuple[duckdb.DuckDBPyConnection, str]:
    aside = move_aside(path)
    try:
        connection = duckdb.connect(str(path), config=_file_config())
        _create(connection)
    except duckdb.Error as error:
        raise cannot_write(path, error) or UserError(
            f"{path.name} cannot be made ({_first_line(error)})", "a writable folder", "choose another --db"
        ) from error
    return connection, f"{path.name} {reason}; it was moved to {aside.name} and rebuilt from the run files"


def move_aside(path: Path) -> Path:
    """Rename the database, and its write-ahead log, which is data, to the next free `<name>.old-<n>`."""
    number = 1
    while True:
        aside = path.with_name(f"{path.name}.old-{number}")
        if not aside.exists() and not _wal(aside).exists():
            break
        number += 1
    # The log first: after a crash between the two, no new database can meet the old log and replay it.
    if _wal(path).exists():
        os.rename(_wal(path), _wal(aside))
    if path.exists():
        os.rename(path, aside)
    return aside


def _wal(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _config() -> dict[str, str | bool | int | float | list[str]]:
    """No file but the database itself can be reached by SQL, and nothing can change that afterwards."""
    return {
        "enable_external_access": "false", "autoload_known_extensions": "false",
        "autoinstall_known_extensions": "false", "memory_limit": MEMORY_LIMIT,
        "threads": str(min(4, os.cpu_count() or 1)), "lock_configuration": "true",
    }


def _file_config() -> dict[str, str | bool | int | float | list[str]]:
    """Files that DuckDB 1.5 can read, too."""
    return {**_config(), "storage_compatibility_version": "v1.0.0"}


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    cursor = connection.cursor()
    cursor.begin()
    for table, columns in TABLES.items():
        body = ", ".join(f'"{name}" {_TYPES[kind][0]}' for name, kind in columns.items())
        cursor.execute(f'create table "{table}" ({body})')
    for view in _VIEWS:
        cursor.execute(view)
    cursor.execute("insert into meta values ('schema_version', ?)", [SCHEMA_VERSION])
    cursor.commit()
    cursor.close()


def _version(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The schema version, None in a database that is not ours."""
    try:
        rows = connection.cursor().execute("select value from meta where key = 'schema_version'").fetchall()
    except (duckdb.CatalogException, duckdb.BinderException):
        return None
    return str(rows[0][0]) if rows else None


def _is_empty(connection: duckdb.DuckDBPyConnection) -> bool:
    return connection.cursor().execute("select count(*) from information_schema.tables").fetchall()[0][0] == 0


def _raise_if_held(path: Path, error: duckdb.Error) -> None:
    text = str(error)
    if is_damage(error) or not re.search(r"\block\b", text.lower()):
        return
    pid = re.search(r"PID (\d+)", text)
    holder = f"process {pid[1]}" if pid else "another process"
    raise DatabaseBusyError(
        f"{path.name} is open in {holder}", "one process at a time", "close it there first"
    ) from error


def _first_line(error: Exception | str) -> str:
    """DuckDB's reason without the folder names."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r'"[^"]*/([^"/]*)"', r'"\1"', line)[:160]
