"""Where rows come from: reference files, the runs folder, uploads. Which files there are, and what is new in one.

Each source has a rank; where two hold the same (run_id, seq) with different content, the lower rank counts:
shipped reference, own runs, loose files, uploads in the order of the journal. So the rows do not depend on
the order in which files appeared, and a rebuilt database equals the old one.
"""
from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from core.records import Line, RecordError, RunsFolder, open_run_file, parse_lines
from core.records.run_file import MAX_LINE_BYTES

Place = Literal["reference", "runs", "upload", "file"]

CHUNK_BYTES = 8 * 1024 * 1024
"""Lines are read and stored in pieces of about this size, so memory stays flat whatever a file's size."""

PUBLISHED = "published_speeds.csv"
_TAIL_BYTES = 4096
_GZIP_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)


@dataclass(frozen=True)
class SourceFile:
    """One file that rows may come from. `key` names it without any folder of this machine."""

    key: str
    place: Place
    rank: str
    path: Path
    upload_id: str | None = None

    @property
    def is_published_table(self) -> bool:
        return self.place == "reference" and self.path.name == PUBLISHED


@dataclass(frozen=True)
class Position:
    """How far a source has been read. `done`: nothing complete was left at this size, time and inode.

    `torn`: why a packed file ends early, at that size.
    """

    offset_bytes: int = 0
    lines: int = 0
    problems: int = 0
    prefix_sha: str = ""
    size_bytes: int = -1
    mtime_ns: int = -1
    inode: int = -1
    done: bool = False
    torn: str | None = None

    def same_file_state(self, stat: os.stat_result) -> bool:
        return (self.size_bytes, self.mtime_ns, self.inode) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)


@dataclass(frozen=True)
class ReadLine:
    """One complete line: its record or its problem, and the hash of its bytes."""

    number: int
    sha: str
    line: Line | None
    problem: RecordError | None


@dataclass(frozen=True)
class Piece:
    """Consecutive new lines of one source and the position behind them; `torn` tells a packed file that ends early."""

    source: SourceFile
    lines: tuple[ReadLine, ...]
    position: Position
    size_bytes: int
    torn: str | None = None


class _Stream(Protocol):
    """What the reader needs of a plain or packed file."""

    def read(self, size: int, /) -> bytes: ...

    def read1(self, size: int, /) -> bytes: ...

    def seek(self, offset: int, /) -> int: ...


class ChangedBelowError(Exception):
    """What was read already is not there any more: the file shrank, was rewritten or replaced."""


# --- which files -----------------------------------------------------------------------------------------------------


def reference_files(root: Path) -> list[SourceFile]:
    """Shipped run files and the table of published speeds."""
    runs = root / "runs"
    found = sorted(p for p in runs.iterdir() if p.name.endswith((".jsonl", ".jsonl.gz"))) if runs.is_dir() else []
    published = [root / PUBLISHED] if (root / PUBLISHED).is_file() else []
    return [SourceFile(f"reference/{p.name}", "reference", f"0:{p.name}", p) for p in [*published, *found]]


def folder_files(
    runs: RunsFolder, uploads: Mapping[str, int], lines: Mapping[str, Path] | None = None
) -> list[SourceFile]:
    """Files of the runs folder. Of the uploads those that the journal has; `uploads` maps each to its place there.

    `lines`: of files of other programs the file with their lines, None for one that has none.
    """
    found = []
    for path in runs.files():
        relative = path.relative_to(runs.root).as_posix()
        if path.parent == runs.root:
            found.append(SourceFile(f"runs/{relative}", "runs", f"2:{relative}", path))
        elif path.parent != runs.uploads:
            found.append(SourceFile(f"runs/{relative}", "runs", f"1:{relative}", path))
    for upload_id, number in uploads.items():
        path = runs.uploads / upload_id
        if path.is_file():
            own = lines.get(upload_id, path) if lines is not None else path
            found.append(SourceFile(f"uploads/{upload_id}", "upload", f"3:{number:08d}", own, upload_id))
    return found


def loose_files(paths: Iterable[Path]) -> list[SourceFile]:
    """Files named by a person, for a store of their own."""
    return [SourceFile(f"file/{number}/{p.name}", "file", f"4:{number:08d}", p) for number, p in enumerate(paths)]


# --- what is new in a file -------------------------------------------------------------------------------------------


@dataclass
class _Memory:
    """What this process knows of a source besides the database: running hash and last bytes before the offset."""

    inode: int
    offset_bytes: int
    sha: hashlib._Hash
    tail: bytes


class SourceReader:
    """Reads new complete lines and notices when old ones changed.

    A file that grew is trusted while its last 4 kB before the offset are the same. One that changed without growing,
    or that this process has not seen yet, is hashed from its start to the offset.
    """

    def __init__(self) -> None:
        self._memory: dict[str, _Memory] = {}

    def forget(self, key: str) -> None:
        self._memory.pop(key, None)

    def pieces(self, source: SourceFile, position: Position) -> Iterator[Piece]:
        """New lines in pieces of about `CHUNK_BYTES`; the last piece is `done`.

        Yields nothing when the file is as it was. Raises `ChangedBelowError`, and `OSError` when it cannot be read.
        """
        stat = os.stat(source.path)
        if position.done and position.same_file_state(stat):
            return
        state = replace(position, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, inode=stat.st_ino, done=False,
                        torn=None)
        with open_run_file(source.path) as opened:
            packed = isinstance(opened, gzip.GzipFile)
            if packed and position.done and position.problems:
                raise ChangedBelowError  # it may have been torn, and be whole now
            stream: _Stream = opened  # type: ignore[assignment]
            memory = self._at_offset(
                source, state, stream, packed, appended=stat.st_size > position.size_bytes
            )
            self._memory[source.key] = memory
            torn: str | None = None
            for block in _whole_lines(stream, memory.sha):
                if not block.length:
                    torn = block.torn
                    continue
                memory.sha, memory.offset_bytes = block.sha, memory.offset_bytes + block.length
                memory.tail = (memory.tail + block.tail)[-_TAIL_BYTES:]
                lines = tuple(_read_lines(block.text, state.lines + 1))
                state = replace(
                    state, offset_bytes=memory.offset_bytes, lines=state.lines + block.lines,
                    prefix_sha=block.sha.hexdigest(),
                )
                yield Piece(source, lines, state, block.length)
            yield Piece(source, (), replace(state, done=True, torn=torn), 0, torn)

    def _at_offset(
        self, source: SourceFile, state: Position, stream: _Stream, packed: bool, appended: bool
    ) -> _Memory:
        """Move `stream` to the offset, with proof that what lies before it is what was read."""
        if not packed and state.size_bytes < state.offset_bytes:
            raise ChangedBelowError
        known = self._memory.get(source.key)
        if (
            known is not None and appended and not packed
            and (known.inode, known.offset_bytes) == (state.inode, state.offset_bytes)
        ):
            stream.seek(known.offset_bytes - len(known.tail))
            if stream.read(len(known.tail)) != known.tail:
                raise ChangedBelowError
            return known
        memory = _Memory(state.inode, state.offset_bytes, hashlib.sha256(), b"")
        left = state.offset_bytes
        while left > 0:
            try:
                block = stream.read1(min(left, 1 << 20))
            except _GZIP_ERRORS:
                raise ChangedBelowError from None
            if not block:
                raise ChangedBelowError
            memory.sha.update(block)
            memory.tail = (memory.tail + block[-_TAIL_BYTES:])[-_TAIL_BYTES:]
            left -= len(block)
        if state.offset_bytes and memory.sha.hexdigest() != state.prefix_sha:
            raise ChangedBelowError
        return memory


@dataclass(frozen=True)
class _Block:
    """Whole lines: `text` to parse, `length` bytes of the file that it stands for, `sha` of the file up to there."""

    text: bytes
    lines: int
    length: int
    sha: hashlib._Hash
    tail: bytes
    torn: str | None = None


def _whole_lines(stream: _Stream, sha: hashlib._Hash) -> Iterator[_Block]:
    """Blocks of about `CHUNK_BYTES` that end behind a newline; a torn tail is left for the next time.

    Of a line beyond `MAX_LINE_BYTES` only the beginning is kept, long enough to be refused by its length. A packed
    file that ends early gives its complete lines, then an empty block that says so.
    """
    rest, torn = b"", None
    while True:
        end = rest.rfind(b"\n") + 1
        if end:
            text, rest = rest[:end], rest[end:]
            sha.update(text)
            yield _Block(text, text.count(b"\n"), end, sha, text[-_TAIL_BYTES:])
        elif len(rest) > MAX_LINE_BYTES + 1:
            long_line, rest, torn = _skip_long_line(rest, stream, sha)
            if long_line is None:
                break
            sha = long_line.sha
            yield long_line
            continue
        if torn is not None:
            break
        block, torn = _read_block(stream)
        if not block:
            break
        rest += block
    if torn is not None:
        yield _Block(b"", 0, 0, sha, b"", torn)


def _read_block(stream: _Stream) -> tuple[bytes, str | None]:
    """About `CHUNK_BYTES`, less at the end; and why a packed stream broke off, if it did.

    A damaged packed stream gives what it held up to the failing step. Steps of the size that `readline` takes give the
    same lines here as in the preview of an upload.
    """
    parts: list[bytes] = []
    size = 0
    step = min(CHUNK_BYTES, io.DEFAULT_BUFFER_SIZE if isinstance(stream, gzip.GzipFile) else 1 << 20)
    while size < CHUNK_BYTES:
        try:
            part = stream.read1(step)
        except _GZIP_ERRORS as error:
            return b"".join(parts), str(error) or type(error).__name__
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts), None


def _skip_long_line(
    start: bytes, stream: _Stream, sha: hashlib._Hash
) -> tuple[_Block | None, bytes, str | None]:
    """(the long line as a block, what follows it, why the stream broke off); no block while the line has no end."""
    running = sha.copy()  # counts only once the newline is there
    running.update(start)
    length = len(start)
    while True:
        block, torn = _read_block(stream)
        if not block:
            return None, b"", torn
        end = block.find(b"\n") + 1
        running.update(block[:end] if end else block)
        length += end or len(block)
        if end:
            shown = start[: MAX_LINE_BYTES + 2] + b"\n"
            return _Block(shown, 1, length, running, block[:end][-_TAIL_BYTES:]), block[end:], torn
        if torn is not None:
            return None, b"", torn


def _read_lines(chunk: bytes, first_number: int) -> Iterator[ReadLine]:
    start = 0
    for parsed in parse_lines(io.BytesIO(chunk), first_number):
        raw = chunk[start:parsed.end].strip()
        start = parsed.end
        yield ReadLine(parsed.number, hashlib.sha256(raw).hexdigest()[:32], parsed.line, parsed.problem)
