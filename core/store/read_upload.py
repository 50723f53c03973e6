"""Reads one uploaded file in a process of its own, under limits, and prints what is in it as one JSON document.

Started by core.store.uploads as a plain script (`python -I -S read_upload.py FILE LIMITS`), standard library and
core.records only. Nothing in the file is executed or unpickled; whatever it does to a parser, it does here.
"""
from __future__ import annotations

import gzip
import hashlib
import json
import sys
import zlib
from pathlib import Path
from typing import Any, BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.records import Cell, Line, RunHeader, open_run_file, parse_lines

_MAX_PROBLEMS = 100


class _RefusedError(Exception):
    """The file goes beyond a limit: (found, expected)."""


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
    file, allowed = sys.argv[1], json.loads(sys.argv[2])
    limit_process(allowed)
    print(json.dumps(look(file, allowed)))
