"""Reads one uploaded file in a process of its own, under limits, and prints what is in it as one JSON document.

Started by core.store.child as a plain script (`python -I -S read_upload.py FILE`, the request as JSON on stdin): the
standard library, core.records, and for files of other programs core.store.importers with core.gpus. Only for a
Parquet table or another database are installed packages let in. Nothing in the file is executed or unpickled; whatever
it does to a parser, it does here.
"""
from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import sys
import types
import zlib
from pathlib import Path
from typing import Any, BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.records import Cell, Line, RunHeader, decode_line, open_run_file, parse_lines

_MAX_PROBLEMS = 100


class _RefusedError(Exception):
    """The file goes beyond a limit, or cannot be used: (found, expected[, what to do])."""


class _Limited:
    """The lines of a stream; remembers the last one; refuses too many bytes, too long lines, too high a ratio."""

    def __init__(self, stream: BinaryIO, limits: dict[str, int], packed_bytes: int) -> None:
        self._stream, self._limits, self._packed_bytes = stream, limits, packed_bytes
        self._bytes = self._lines = 0
        self.last = b""

    def readline(self, size: int) -> bytes:
        longest = self._limits["line_bytes"]
        self.last = self._stream.readline(min(size, longest + 1))
        self._bytes += len(self.last)
        self._lines += 1
        if len(self.last) > longest:
            raise _RefusedError(f"line {self._lines} is longer than {longest} bytes", "lines of a run file")
        if self._lines > self._limits["lines"]:
            raise _RefusedError(f"it has more than {self._limits['lines']} lines", "one run, or a few")
        if self._bytes > self._limits["unpacked_bytes"]:
            raise _RefusedError(f"it unpacks to more than {self._limits['unpacked_bytes']} bytes", "a run file")
        if self._bytes > 10_000_000 and self._bytes > self._limits["ratio"] * self._packed_bytes:
            raise _RefusedError(f"it unpacks to more than {self._limits['ratio']} times its size", "a run file")
        return self.last


def look(path: str, limits: dict[str, int]) -> dict[str, Any]:
    """What the file holds: runs, lines, problems, and (run_id, seq, hash) of each line; or `refused`."""
    found: dict[str, Any] = {
        "runs": {}, "lines": 0, "bad_lines": 0, "problems": [], "keys": [], "complete_bytes": 0, "torn": None,
    }
    try:
        with open_run_file(path) as stream:
            limited = _Limited(stream, limits, Path(path).stat().st_size)
            for parsed in parse_lines(limited):  # type: ignore[arg-type]
                found["complete_bytes"] = parsed.end
                if parsed.line is not None:
                    found["lines"] += 1
                    _count(found, parsed.line, limited.last)
                elif parsed.problem is not None:
                    found["bad_lines"] += 1
                    if len(found["problems"]) < _MAX_PROBLEMS:
                        found["problems"].append(
                            [parsed.number, parsed.problem.field, parsed.problem.raw_found, parsed.problem.expected]
                        )
            if limited.last and not limited.last.endswith(b"\n"):
                found["torn"] = "the last line is cut off"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found["torn"] = f"the packed file ends early ({error})"
    except _RefusedError as error:
        return {"refused": list(error.args)}
    except MemoryError:
        return {"refused": ["reading it takes too much memory", "a run file"]}
    return found


def _count(found: dict[str, Any], line: Line, raw: bytes) -> None:
    run = found["runs"].setdefault(
        line.run_id, {"header": None, "lines": 0, "cells": 0, "ok": 0, "methods": []}
    )
    run["lines"] += 1
    if line.method not in run["methods"]:
        run["methods"].append(line.method)
    record = line.record
    if isinstance(record, Cell):
        run["cells"] += 1
        run["ok"] += record.status == "ok"
    elif isinstance(record, RunHeader) and run["header"] is None:
        device = record.device
        run["header"] = {
            "label": record.label, "origin": record.origin, "started_at": record.started_at, "type": device.type,
            "name": device.name, "memory_bytes": device.memory_bytes, "sm_count": device.sm_count,
        }
    found["keys"].append([line.run_id, line.seq, hashlib.sha256(raw.strip()).hexdigest()[:32]])


# --- files of other programs -----------------------------------------------------------------------------------------

_HEAD_BYTES = 65_536
_RUN_LINE = re.compile(rb'"run_id"|"kind"\s*:\s*"(?:run|cell|note|ceiling|op_trial|end)"')
PARQUET, DATABASE = b"PAR1", b"DUCK"


def examine(path: str, request: dict[str, Any]) -> dict[str, Any]:
    """What the file holds, whoever wrote it. `request`: limits, name, sha, answers, received_at.

    A file of another program comes back with `import`: what was understood, `questions`, and, once none of them is
    open, the `lines` of the run file that it becomes, counted as `look` counts those of a run file. One that nothing
    here knows comes back as `look` sees it, with `unknown`: what it is as a file of another program.
    """
    limits = request["limits"]
    try:
        given = _given(path, request)
        if given is None:
            return look(path, limits)
        found = _understood(given, request)
        if found is None:
            return {**look(path, limits), "unknown": _importers()["why_unknown"](given)}
    except _RefusedError as error:
        return {"refused": list(error.args)}
    except MemoryError:
        return {"refused": ["reading it takes too much memory", "a smaller file",
                            "split it; of a trace, profile fewer steps"]}
    return found


def _given(path: str, request: dict[str, Any]) -> Any:
    """The unpacked file for the importers, None for one that only a reader of run files can say something about."""
    limits = request["limits"]
    with open(path, "rb") as raw:
        start = raw.read(12)
    if start[:4] == PARQUET or start[8:12] == DATABASE:
        return _binary(path, start, request)
    try:
        with open_run_file(path) as stream:
            head = stream.read(_HEAD_BYTES)
            first = head.lstrip(b"\xef\xbb\xbf \t\r\n")
            if not first or _RUN_LINE.search(first.partition(b"\n")[0]):
                return None
            parts, size, packed = [head], len(head), os.path.getsize(path)
            while block := stream.read(1 << 20):
                size += len(block)
                if size > limits["foreign_bytes"]:
                    raise _RefusedError(f"it unpacks to more than {limits['foreign_bytes']} bytes", "a smaller file")
                if size > 10_000_000 and size > limits["ratio"] * packed:
                    raise _RefusedError(f"it unpacks to more than {limits['ratio']} times its size", "a smaller file")
                parts.append(block)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None
    data = b"".join(parts)
    if data.count(b"\n") > limits["lines"] and not first.startswith((b"{", b"[")):
        raise _RefusedError(f"it has more than {limits['lines']} lines", "one run, or a few")
    importers = _importers()
    return importers["Given"](request["name"], data)


def _binary(path: str, start: bytes, request: dict[str, Any]) -> Any:
    importers = _importers()
    try:
        if start[:4] == PARQUET:
            return importers["read_parquet"](Path(path).read_bytes(), request["name"])
        return importers["Database"](path, request["name"])
    except importers["RefusedError"] as error:
        raise _RefusedError(error.found, error.expected, error.fix) from None


def _understood(given: Any, request: dict[str, Any]) -> dict[str, Any] | None:
    importers = _importers()
    try:
        if isinstance(given, importers["Database"]):
            found = importers["understand_database"](given, request["sha"], request["received_at"])
        else:
            known = importers["recognise"](given)
            if known is None:
                return None
            found = importers["understand"](known, given, request["sha"], request["answers"], request["received_at"])
    except importers["RefusedError"] as error:
        raise _RefusedError(error.found, error.expected, error.fix) from None
    lines = found.pop("lines")
    counted: dict[str, Any] = {
        "runs": {}, "lines": 0, "bad_lines": 0, "problems": [], "keys": [], "complete_bytes": 0, "torn": None,
        "import": found, "import_lines": lines,
    }
    for raw in io.BytesIO((lines or "").encode()):
        counted["lines"] += 1
        counted["complete_bytes"] += len(raw)
        _count(counted, decode_line(raw), raw)
    return counted


def _importers() -> dict[str, Any]:
    """The importers, without the store around them: its package would import DuckDB and pandas."""
    if "core.store" not in sys.modules:
        package = types.ModuleType("core.store")
        package.__path__ = [str(Path(__file__).resolve().parent)]
        sys.modules["core.store"] = package
    from core.store.importers import database, formats, mapped, model

    return {
        "Given": model.Given, "RefusedError": model.RefusedError, "recognise": formats.recognise,
        "understand": formats.understand, "why_unknown": formats.why_unknown, "read_parquet": mapped.read_parquet,
        "Database": database.Database,
        "understand_database": database.understand_database,
    }


def limit_process(limits: dict[str, int]) -> None:
    try:
        import resource
    except ImportError:  # Windows: the parent's timeout is the only limit
        return
    for name, value in (("RLIMIT_AS", limits["memory_bytes"]), ("RLIMIT_CPU", limits["cpu_s"]), ("RLIMIT_FSIZE", 0),
                        ("RLIMIT_CORE", 0), ("RLIMIT_NOFILE", 16)):
        if hasattr(resource, name):
            resource.setrlimit(getattr(resource, name), (value, value))


if __name__ == "__main__":
    file, asked = sys.argv[1], json.load(sys.stdin)
    limit_process(asked["limits"])
    print(json.dumps(examine(file, asked)))
