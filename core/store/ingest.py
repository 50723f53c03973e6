"""The one way in: new complete lines of every source become rows, in one transaction with the position behind them.

Reference files, live runs, loose files and uploads all come through here. A line is told apart by (run_id, seq):
equal content is counted and left out, different content is set aside as a `conflict` in `problem` with both hashes.
What two sources hold both is kept from the one of lower rank (core.store.sources), so any order of arrival, and any
crash in between, ends in the same rows as a database built at once.
"""
from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from core.errors import UserError
from core.records import RecordError, RunHeader, RunsFolder, decode_line, open_run_file
from core.records.run_file import MAX_LINE_BYTES
from core.store import schema
from core.store.cards import use_cards
from core.store.imported import lines_of
from core.store.journal import Journal, active_uploads, hidden_runs, released_items
from core.store.plausibility import judge
from core.store.published import key_of_text, published_rows
from core.store.rows import Rows, gpu_identity, json_text, unknown_fields
from core.store.sources import (
    CHUNK_BYTES,
    ChangedBelowError,
    Piece,
    Position,
    ReadLine,
    SourceFile,
    SourceReader,
    folder_files,
    loose_files,
    reference_files,
)

MAX_PROBLEM_ROWS = 1_000
"""Problem rows kept per source; all are counted in `source.problems`."""

MAX_NOTICES = 50
JOURNAL_SOURCE = "runs/journal.jsonl"
_MAX_RESTARTS = 100

RunFilter = Callable[[RunHeader, str], bool]
"""(header, run_id) -> whether this run is wanted."""

Progress = Callable[[str, float], None]
"""(what is read now, share done 0..1)."""


@dataclass(frozen=True)
class _Kept:
    """A line that counts: who has it."""

    sha: str
    source: str


class _OutOfOrderError(Exception):
    """A source of lower rank brought a line that one of higher rank had brought before: both are read again."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = tuple(keys)


class Ingester:
    """Keeps one database in step with its files. Used by one thread at a time."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        runs: RunsFolder | None = None,
        reference: Path | None = None,
        files: Iterable[Path] = (),
        run_filter: RunFilter | None = None,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._runs, self._reference, self._files = runs, reference, tuple(files)
        self._run_filter, self._on_commit = run_filter, on_commit
        self._reader = SourceReader()
        self._wanted_runs: dict[str, bool] = {}
        self._uploads: dict[str, int] = {}
        self._imports: dict[str, Mapping[str, Any]] = {}
        self._failed_imports: dict[str, str] = {}
        self._journaled: set[str] = set()
        self._journal_stat: tuple[int, int, int] | None = None
        self.notices: list[str] = []
        """What was noticed and mended: files that changed or went; the newest ones."""
        self._unreadable: dict[str, str] = {}
        self._stray: dict[str, str] = {}
        self._load()

    @property
    def errors(self) -> dict[str, str]:
        """Source -> what is wrong with its file at present. Rows of one that cannot be read stay as they are."""
        return {**self._unreadable, **self._stray}

    @property
    def offsets(self) -> dict[str, int]:
        """Source -> bytes whose rows are in the database."""
        return {key: position.offset_bytes for key, (_, position) in self._known.items()}

    @property
    def conflicts(self) -> dict[str, int]:
        """Source -> lines of it that were left out, since another content stands under their run and number."""
        counts = {key: sum(run[2] for run in runs.values()) for key, runs in self._counts.items()}
        return {key: count for key, count in counts.items() if count}

    def cycle(self, progress: Progress | None = None) -> bool:
        """Take in everything new; True when rows changed."""
        try:
            changed = self._replay_journal()
            for _ in range(_MAX_RESTARTS):
                wanted = self._sources()
                changed |= self._drop_gone(wanted)
                try:
                    return self._catch_up(wanted, progress) or changed
                except _OutOfOrderError as error:
                    self._reset(error.keys)
                    changed = True
            return changed
        except duckdb.Error:
            self._load()  # the transaction is gone, so is what we believed of it
            raise

    def refresh_gpu_keys(self) -> None:
        """Look up the cards again: a newer catalogue may know more names than when the rows were made."""
        with self._transaction() as cursor:
            for row in cursor.execute(
                "select distinct device_type, device_name, memory_bytes, sm_count, gpu_key, gpu_label from run"
            ).fetchall():
                key, label = gpu_identity(row[0], row[1], row[2], row[3])
                if (key, label) != (row[4], row[5]):
                    cursor.execute(
                        "update run set gpu_key = ?, gpu_label = ? where device_type = ? and device_name = ? "
                        "and memory_bytes is not distinct from ? and sm_count is not distinct from ?",
                        [key, label, *row[:4]],
                    )
            for text, key in cursor.execute("select distinct gpu_text, gpu_key from reported").fetchall():
                if key_of_text(text) != key:
                    cursor.execute(
                        "update reported set gpu_key = ? where gpu_text is not distinct from ?",
                        [key_of_text(text), text],
                    )
            # What is implausible follows the catalogue, and the time: a start that lay ahead may lie behind by now.
            _insert_suspects(cursor, judge(cursor, ("run", "ceiling", "cell")))

    # --- state ---

    def _load(self) -> None:
        """What the database says has been read."""
        cursor = self._connection.cursor()
        self._known: dict[str, tuple[str, Position]] = {
            row[0]: (row[1], Position(*row[2:]))
            for row in cursor.execute(
                "select source, rank, offset_bytes, lines, problems, prefix_sha, size_bytes, mtime_ns, inode, done, "
                "torn from source"
            ).fetchall()
        }
        self._counts: dict[str, dict[str, list[int]]] = {}
        for source, run_id, *counts in cursor.execute(
            "select source, run_id, lines, duplicates, conflicts from source_run"
        ).fetchall():
            self._counts.setdefault(source, {})[run_id] = counts
        cursor.close()
        self._journal_stat = None

    def _transaction(self) -> _Transaction:
        return _Transaction(self._connection)

    def _committed(self) -> None:
        if self._on_commit is not None:
            self._on_commit()

    # --- which sources ---

    def _sources(self) -> list[SourceFile]:
        found = reference_files(self._reference) if self._reference is not None else []
        if self._runs is not None:
            self._stray = self._stray_uploads(self._runs)
            lines = self._import_lines(self._runs)
            found += folder_files(self._runs, {k: v for k, v in self._uploads.items() if k not in self._failed_imports},
                                  lines)
        found += loose_files(self._files)
        if self._run_filter is not None:
            found = [source for source in found if self._is_wanted(source, self._run_filter)]
        return sorted(found, key=lambda source: source.rank)

    def _import_lines(self, runs: RunsFolder) -> dict[str, Path]:
        """Of uploads of other programs the file with their lines. One that has none any more is tried once."""
        found = {}
        for upload_id, about in self._imports.items():
            if upload_id in self._failed_imports or not (runs.uploads / upload_id).is_file():
                continue
            try:
                found[upload_id] = lines_of(runs, upload_id, about)
            except (UserError, OSError) as error:
                self._failed_imports[upload_id] = str(error)
        self._stray |= {f"uploads/{upload_id}": why for upload_id, why in self._failed_imports.items()}
        return found

    def _stray_uploads(self, runs: RunsFolder) -> dict[str, str]:
        """Uploads without their file, and files that nobody uploaded."""
        files = {p.name for p in runs.uploads.iterdir() if p.name[0] != "."} if runs.uploads.is_dir() else set()
        found = {f"uploads/{name}": f"upload {name[:12]}: its file is gone from the runs folder, so its rows are out"
                 for name in sorted(self._uploads.keys() - files)}
        found |= {f"uploads/{name}": f"uploads/{name[:12]} is not in the journal and does not count; "
                                     "put a run file into the runs folder itself, or upload it"
                  for name in sorted(files - self._journaled)}
        return found

    def _is_wanted(self, source: SourceFile, run_filter: RunFilter) -> bool:
        """Files that hold one run are judged by their first line; all others are read."""
        one_run = source.rank.startswith(("0:", "1:")) and not source.is_published_table
        if not one_run:
            return True
        if source.key not in self._wanted_runs:
            try:
                with open_run_file(source.path) as stream:
                    line = decode_line(stream.readline(MAX_LINE_BYTES))
                self._wanted_runs[source.key] = not isinstance(line.record, RunHeader) or run_filter(
                    line.record, line.run_id
                )
            except (OSError, EOFError, RecordError):
                return True
        return self._wanted_runs[source.key]

    def _drop_gone(self, wanted: Sequence[SourceFile]) -> bool:
        """Take out the rows of sources that are no longer there, or that have another rank now."""
        ranks = {source.key: source.rank for source in wanted}
        gone = [key for key, (rank, _) in self._known.items() if key != JOURNAL_SOURCE and ranks.get(key) != rank]
        if not gone:
            return False
        self._reset(gone)
        names = ", ".join(sorted(key for key in gone if not key.startswith("uploads/")))
        if names:
            self._notice(f"{names}: no longer there, so its rows were taken out")
        return True

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        del self.notices[:-MAX_NOTICES]

    def _reset(self, keys: Iterable[str]) -> None:
        """Forget these sources, and every other source that shares a run with them: they are read from the start."""
        sources, runs = set(keys), set[str]()
        while True:
            runs |= {run_id for key in sources for run_id in self._counts.get(key, ())}
            sharing = {key for key, counts in self._counts.items() if runs.intersection(counts)}
            if sharing <= sources:
                break
            sources |= sharing
        with self._transaction() as cursor:
            for table in schema.CONTENT_TABLES:
                cursor.execute(f"delete from {table} where run_id in (select unnest(?::varchar[]))", [sorted(runs)])
            for table in ("problem", "source_run", "source"):
                cursor.execute(f"delete from {table} where source in (select unnest(?::varchar[]))", [sorted(sources)])
            if any(key.endswith(".csv") for key in sources):
                cursor.execute("delete from reported")
        for key in sources:
            self._known.pop(key, None)
            self._counts.pop(key, None)
            self._reader.forget(key)
        self._committed()

    # --- lines ---

    def _catch_up(self, wanted: Sequence[SourceFile], progress: Progress | None) -> bool:
        meter = _Meter(wanted, self._known, progress)
        changed = False
        pending: list[Piece] = []
        for source in wanted:
            try:
                if source.is_published_table:
                    changed |= self._store_published(source)
                    continue
                for piece in self._reader.pieces(source, self._known.get(source.key, ("", Position()))[1]):
                    pending.append(piece)
                    meter.read(source, piece.size_bytes)
                    if sum(item.size_bytes for item in pending) >= CHUNK_BYTES:
                        ready, pending = pending, []
                        changed |= self._store(ready)
                self._unreadable.pop(source.key, None)
            except ChangedBelowError:
                self._notice(f"{source.key}: changed where it was read already, so it was read again")
                raise _OutOfOrderError([source.key]) from None
            except FileNotFoundError:
                continue  # gone between the listing and now: the next cycle sees to it
            except OSError as error:
                self._unreadable[source.key] = f"{source.key} cannot be read ({error.strerror or error})"
        return self._store(pending) or changed

    def _store(self, pieces: Sequence[Piece]) -> bool:
        """Rows and positions of these pieces in one transaction; True when rows came in, not only positions."""
        if not pieces:
            return False
        rows = Rows()
        counts = {
            piece.source.key: {run: list(n) for run, n in self._counts.get(piece.source.key, {}).items()}
            for piece in pieces
        }
        positions: dict[str, tuple[SourceFile, Position]] = {}
        with self._transaction() as cursor:
            kept = self._kept_lines(cursor, pieces)
            for piece in pieces:
                known = positions[piece.source.key][1] if piece.source.key in positions else \
                    self._known.get(piece.source.key, ("", Position()))[1]
                problems = _Problems(rows, piece.source.key, known.problems)
                for read in piece.lines:
                    self._sort_in(read, piece.source, kept, counts[piece.source.key], rows, problems)
                if piece.torn is not None and piece.source.place != "runs":  # in the runs folder the rest is awaited
                    problems.add(None, "torn", found=f"the packed file ends early ({piece.torn})",
                                 expected="a whole file")
                positions[piece.source.key] = (piece.source, replace(piece.position, problems=problems.count))
            _insert(cursor, rows)
            _put_positions(cursor, positions.values(), counts)
            _insert_suspects(cursor, [
                *judge(cursor, ("run", "ceiling"), rows.run_ids("run", "ceiling")),
                *judge(cursor, ("cell",), rows.run_ids("cell")),
            ])
        for key, (source, position) in positions.items():
            self._known[key] = (source.rank, position)
            self._counts[key] = counts[key]
        changed = any(piece.lines or piece.torn for piece in pieces)
        if changed:
            self._committed()
        return changed

    def _kept_lines(self, cursor: duckdb.DuckDBPyConnection, pieces: Sequence[Piece]) -> dict[tuple[str, int], _Kept]:
        """Lines in the database with a (run_id, seq) that these pieces may bring again."""
        stored_runs = {run_id for counts in self._counts.values() for run_id in counts}
        reach: dict[str, tuple[int, int]] = {}
        for piece in pieces:
            for read in piece.lines:
                if read.line is not None and read.line.run_id in stored_runs:
                    low, high = reach.get(read.line.run_id, (read.line.seq, read.line.seq))
                    reach[read.line.run_id] = min(low, read.line.seq), max(high, read.line.seq)
        kept = {}
        for run_id, (low, high) in reach.items():
            for seq, sha, source in cursor.execute(
                "select seq, sha, source from line where run_id = ? and seq between ? and ?", [run_id, low, high]
            ).fetchall():
                kept[run_id, seq] = _Kept(sha, source)
        return kept

    def _sort_in(
        self,
        read: ReadLine,
        source: SourceFile,
        kept: dict[tuple[str, int], _Kept],
        counts: dict[str, list[int]],
        rows: Rows,
        problems: _Problems,
    ) -> None:
        """One line: its rows, or a duplicate counted, or a problem."""
        line = read.line
        if line is None:
            if read.problem is not None:
                problems.add(read, "bad line", field=read.problem.field, found=read.problem.raw_found,
                             expected=read.problem.expected)
            return
        key = (line.run_id, line.seq)
        count = counts.setdefault(line.run_id, [0, 0, 0])
        other = kept.get(key)
        if other is None:
            kept[key] = _Kept(read.sha, source.key)
            count[0] += 1
            rows.add("line", (*key, line.kind, read.sha, source.key, read.number, unknown_fields(line)))
            rows.add_line(line)
            return
        if other.source in self._known and self._known[other.source][0] > source.rank:
            raise _OutOfOrderError([source.key, other.source])
        if other.sha == read.sha:
            count[1] += 1
            return
        count[2] += 1
        problems.add(read, "conflict", field="seq", found=f"other content for line {line.seq} of run {line.run_id}",
                     expected="equal content for the same run and seq", other=other)

    # --- the table of published speeds ---

    def _store_published(self, source: SourceFile) -> bool:
        stat = os.stat(source.path)
        known = self._known.get(source.key, ("", Position()))[1]
        if known.same_file_state(stat):
            return False
        data = source.path.read_bytes()
        sha = hashlib.sha256(data).hexdigest()
        position = Position(len(data), data.count(b"\n"), 0, sha, stat.st_size, stat.st_mtime_ns, stat.st_ino, True)
        rows = Rows()
        for row in published_rows(data):
            rows.add("reported", row)
        with self._transaction() as cursor:
            if sha != known.prefix_sha:
                cursor.execute("delete from reported")
                _insert(cursor, rows)
            _put_positions(cursor, [(source, position)], {source.key: {}})
        self._known[source.key] = (source.rank, position)
        if sha != known.prefix_sha:
            self._committed()
        return sha != known.prefix_sha

    # --- journal ---

    def _replay_journal(self) -> bool:
        """The journal is short: any change reads it anew. Sets which uploads count and which runs are hidden."""
        if self._runs is None:
            return False
        try:
            stat: os.stat_result | None = os.stat(self._runs.journal)
        except FileNotFoundError:
            stat = None
        state = (stat.st_size, stat.st_mtime_ns, stat.st_ino) if stat is not None else (-1, -1, -1)
        if state == self._journal_stat:
            return False
        entries, errors = Journal(self._runs.journal).read()
        self._uploads = active_uploads(entries)
        self._imports = {
            upload_id: entries[position].data["import"] for upload_id, position in self._uploads.items()
            if isinstance(entries[position].data.get("import"), Mapping)
        }
        self._failed_imports = {}
        self._journaled = {entry.target.partition(":")[2] for entry in entries if entry.target.startswith("upload:")}
        rows = Rows()
        for position, entry in enumerate(entries):
            rows.add("journal", (position, entry.id, entry.time, entry.act, entry.actor, entry.target,
                                 entry.base_version, json_text(entry.data)))
        problems = _Problems(rows, JOURNAL_SOURCE, 0)
        for error in errors:
            problems.add(None, "bad line", field=error.field, found=error.raw_found, expected=error.expected,
                         number=error.line)
        for run_id in hidden_runs(entries):
            rows.add("hidden_run", (run_id,))
        for item, entry in sorted(released_items(entries).items()):
            rows.add("released", (item, entry.time, entry.actor, str(entry.data.get("reason") or "")))
        with self._transaction() as cursor:
            for table in ("journal", "hidden_run", "released"):
                cursor.execute(f"delete from {table}")
            cursor.execute("delete from problem where source = ?", [JOURNAL_SOURCE])
            _insert(cursor, rows)
        if use_cards(entries):
            self.refresh_gpu_keys()
        self._journal_stat = state
        self._committed()
        return True


class _Transaction:
    """`with` a cursor of its own: committed at the end, rolled back on any exception."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        self._cursor = self._connection.cursor()
        self._cursor.begin()
        return self._cursor

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None:
                self._cursor.commit()
            else:
                self._cursor.rollback()
        finally:
            self._cursor.close()


class _Problems:
    """Problem rows of one source, the first `MAX_PROBLEM_ROWS` of them; all are counted."""

    def __init__(self, rows: Rows, source: str, count: int) -> None:
        self._rows, self._source, self.count = rows, source, count

    def add(
        self,
        read: ReadLine | None,
        what: str,
        *,
        field: str | None = None,
        found: str,
        expected: str,
        other: _Kept | None = None,
        number: int | None = None,
    ) -> None:
        self.count += 1
        if self.count > MAX_PROBLEM_ROWS:
            return
        line = read.line if read is not None else None
        self._rows.add("problem", (
            self._source, read.number if read is not None else number, what,
            line.run_id if line is not None else None, line.seq if line is not None else None, field, found, expected,
            read.sha if read is not None else None, other.sha if other else None, other.source if other else None,
        ))


class _Meter:
    """Share of the bytes read so far."""

    def __init__(
        self, wanted: Sequence[SourceFile], known: dict[str, tuple[str, Position]], progress: Progress | None
    ) -> None:
        self._progress, self._left, self._total = progress, {}, 0
        if progress is None:
            return
        for source in wanted:
            position = known.get(source.key, ("", Position()))[1]
            if not position.done and source.path.is_file():
                self._left[source.key] = source.path.stat().st_size
        self._total = sum(self._left.values())
        self._done = 0

    def read(self, source: SourceFile, size_bytes: int) -> None:
        """`size_bytes` more of this source are read; 0 at its end."""
        if self._progress is None or source.key not in self._left:
            return
        left = self._left[source.key]
        step = min(left, size_bytes) if size_bytes else left
        self._left[source.key] = left - step
        self._done += step
        self._progress(source.path.name, self._done / self._total if self._total else 1.0)


def _insert(cursor: duckdb.DuckDBPyConnection, rows: Rows) -> None:
    for table, arrow in rows.tables().items():
        cursor.register("incoming", arrow)
        cursor.execute(f"insert into {table} by name select * from incoming")
        cursor.unregister("incoming")


def _insert_suspects(cursor: duckdb.DuckDBPyConnection, found: Iterable[tuple[Any, ...]]) -> None:
    rows = Rows()
    for row in found:
        rows.add("suspect", row)
    _insert(cursor, rows)


def _put_positions(
    cursor: duckdb.DuckDBPyConnection,
    positions: Iterable[tuple[SourceFile, Position]],
    counts: dict[str, dict[str, list[int]]],
) -> None:
    rows, keys = Rows(), []
    for source, position in positions:
        keys.append(source.key)
        rows.add("source", (
            source.key, source.place, source.rank, source.path.name, source.upload_id, position.offset_bytes,
            position.lines, position.problems, position.prefix_sha, position.size_bytes, position.mtime_ns,
            position.inode, position.done, position.torn,
        ))
        for run_id, (lines, duplicates, conflicts) in counts[source.key].items():
            rows.add("source_run", (source.key, run_id, lines, duplicates, conflicts))
    for table in ("source", "source_run"):
        cursor.execute(f"delete from {table} where source in (select unnest(?::varchar[]))", [keys])
    _insert(cursor, rows)
