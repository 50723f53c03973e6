"""The run file: JSON lines, UTF-8, append-only. A torn last line loses that line only.

`parse_lines` is the one reader: the ingester calls it on the bytes that are new, `read_run_file` on a whole file.
"""
from __future__ import annotations

import gzip
import json
import os
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import UserError
from core.records.convert import Line, RecordError, line_from_json, line_to_json
from core.records.model import RunHeader

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A cell with 2,000 op rows and 10,000 samples stays below 2 MB; a longer line than this is no run file."""


@dataclass(frozen=True)
class Parsed:
    """One complete line of a file: its record or what is wrong with it. `end` = byte offset behind its newline."""

    number: int
    end: int
    line: Line | None
    problem: RecordError | None


@dataclass(frozen=True)
class RunFile:
    lines: tuple[Line, ...]
    problems: tuple[RecordError, ...]
    torn: bool

    @property
    def header(self) -> RunHeader | None:
        return next((line.record for line in self.lines if isinstance(line.record, RunHeader)), None)


def now_utc() -> str:
    """ISO time in UTC with seconds, as every `at` and `started_at` has it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_run_id() -> str:
    """Sorts by time; the random part keeps two machines apart."""
    return datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(4)


def encode_line(line: Line) -> bytes:
    return json.dumps(line_to_json(line), allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def decode_line(raw: bytes, number: int | None = None) -> Line:
    """One line's bytes as a checked `Line`. Raises `RecordError`."""
    try:
        if len(raw) > MAX_LINE_BYTES:
            raise RecordError("(line)", f"{len(raw)} bytes", f"at most {MAX_LINE_BYTES} bytes")
        try:
            data = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
        except UnicodeDecodeError:
            raise RecordError("(line)", "bytes that are not UTF-8", "UTF-8 text") from None
        except RecursionError:
            raise RecordError("(line)", "JSON nested too deeply", "a line of a run file") from None
        except json.JSONDecodeError as error:
            raise RecordError("(line)", f"no JSON ({error.msg} at column {error.colno})", "a JSON object") from None
        except ValueError as error:  # integers of too many digits
            raise RecordError("(line)", str(error)[:120], "a JSON object") from None
        return line_from_json(data)
    except RecordError as error:
        raise (error.at_line(number) if number is not None else error) from None


def _refuse_constant(text: str) -> Any:
    raise RecordError("(line)", text, "a finite number (NaN and Infinity are no JSON)")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key given twice is refused, since readers disagree on which one counts."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RecordError(key[:60], "the same key twice", "each key once")
            seen.add(key)
    return result


def parse_lines(stream: BinaryIO, first_number: int = 1, offset: int = 0) -> Iterator[Parsed]:
    """Complete lines of `stream` from its present position, in order; a torn last line is not yielded.

    `offset` is the byte position at which `stream` stands. Blank lines are skipped but keep their numbers.
    """
    number = first_number
    while True:
        raw = stream.readline(MAX_LINE_BYTES + 2)
        if not raw:
            return
        if not raw.endswith(b"\n"):
            if len(raw) <= MAX_LINE_BYTES:
                return
            error = RecordError("(line)", f"more than {MAX_LINE_BYTES} bytes", "a line of a run file", number)
            while raw and not raw.endswith(b"\n"):  # skip the rest so that later lines still count
                offset += len(raw)
                raw = stream.readline(1 << 20)
            if not raw:
                return
            offset += len(raw)
            yield Parsed(number, offset, None, error)
            number += 1
            continue
        offset += len(raw)
        if raw.strip():
            try:
                yield Parsed(number, offset, decode_line(raw, number), None)
            except RecordError as error:
                yield Parsed(number, offset, None, error)
        number += 1


def open_run_file(path: str | Path) -> BinaryIO:
    """A readable binary stream of a plain or gzip run file, told apart by content."""
    stream = open(path, "rb")  # noqa: SIM115 - handed to the caller
    magic = stream.read(2)
    stream.seek(0)
    if magic == b"\x1f\x8b":
        stream.close()
        # No buffer around it: of a file that ends early, that would swallow the last good lines.
        return gzip.GzipFile(path, mode="rb")  # type: ignore[return-value]
    return stream


def read_run_file(path: str | Path) -> RunFile:
    """All lines of a run file.

    Raises `UserError` when the file cannot be read or holds not one valid line. Bad lines are in `problems`.
    """
    path = Path(path)
    lines: list[Line] = []
    problems: list[RecordError] = []
    end = 0
    torn = False
    try:
        with open_run_file(path) as stream:
            try:
                for parsed in parse_lines(stream):
                    end = parsed.end
                    if parsed.line is not None:
                        lines.append(parsed.line)
                    elif parsed.problem is not None:
                        problems.append(parsed.problem)
                torn = stream.tell() > end
            except (EOFError, zlib.error, gzip.BadGzipFile):
                torn = True
    except FileNotFoundError:
        raise UserError(f"no file {path.name}", "a run file (.jsonl or .jsonl.gz)", "check the path") from None
    except OSError as error:
        raise UserError(f"{path.name} cannot be read ({error.strerror or error})", "a readable run file") from None
    if not lines:
        if problems:
            raise UserError(f"{path.name} is no run file ({problems[0]})", "a run file (.jsonl or .jsonl.gz)",
                            "make one with `python -m core run`") from None
        raise UserError(f"{path.name} holds no complete line", "a run file (.jsonl or .jsonl.gz)",
                        "make one with `python -m core run`")
    return RunFile(tuple(lines), tuple(problems), torn)


class RunWriter:
    """Appends lines to one run file; each durable line is on disk before `write` returns.

    With `resume=True` an existing file is continued: a torn tail is cut first, `seq` goes on behind the last line.
    """

    def __init__(self, path: str | Path, run_id: str, resume: bool = False) -> None:
        self.path, self.run_id = Path(path), run_id
        self.next_seq = 0
        if self.path.exists() and not resume:
            raise UserError(f"{self.path.name} exists already", "a new file name", "use --resume to continue it")
        if resume and self.path.exists():
            cut_torn_tail(self.path)
            found = read_run_file(self.path)
            own = [line.seq for line in found.lines if line.run_id == run_id]
            if not own:
                raise UserError(f"{self.path.name} holds another run", f"lines of run {run_id}")
            self.next_seq = max(own) + 1
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = open(self.path, "ab")  # noqa: SIM115 - closed in close()

    def write(self, record: Any, durable: bool = True) -> int:
        """Append one record; returns its `seq`. Raises OSError (disk full) with nothing half-counted."""
        seq = self.next_seq
        data = encode_line(Line(run_id=self.run_id, seq=seq, record=record))
        decode_line(data)  # what is written can be read back: a bug here must fail loudly, not lose data later
        self._stream.write(data)
        self._stream.flush()
        if durable:
            os.fsync(self._stream.fileno())
        self.next_seq = seq + 1
        return seq

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def cut_torn_tail(path: str | Path) -> int:
    """Truncate a plain run file behind its last newline; returns the number of bytes cut."""
    path = Path(path)
    if path.suffix == ".gz":
        raise UserError(f"{path.name} is compressed", "a plain .jsonl file to resume", "unpack it first")
    with open(path, "rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        position = size
        while position > 0:
            step = min(65536, position)
            stream.seek(position - step)
            newline = stream.read(step).rfind(b"\n")
            if newline >= 0:
                keep = position - step + newline + 1
                break
            position -= step
        else:
            keep = 0
        if keep < size:
            stream.truncate(keep)
            os.fsync(stream.fileno())
        return size - keep
