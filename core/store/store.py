"""Opening the stored rows: for the app, for a command, for single files.

One process at a time has results.duckdb open, the holder of its lock file. While the app has it, a command builds the
same rows in memory from the same files with the same code.
"""
from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import duckdb
import pandas as pd

import core
from core.errors import UserError
from core.records import RunsFolder, read_run_file
from core.store import schema
from core.store.ingest import Ingester, Progress, RunFilter
from core.store.lock import CannotWriteError, DatabaseLock, LockHeldError, holder_of

POLL_SECONDS = 0.25
DEFAULT_DATABASE = "results.duckdb"
INGESTED_NAME = ".ingested.json"
"""In the runs folder, written by the app after each commit: how far each source is in, for commands that wait."""


def database_path(db_path: str | Path | None = None) -> Path:
    """The argument, else GAPSCOPE_DB, else ./results.duckdb."""
    return Path(db_path or os.environ.get("GAPSCOPE_DB") or DEFAULT_DATABASE).resolve()


def reference_root() -> Path:
    """Folder of the shipped data."""
    return Path(core.__file__).resolve().parent / "reference"


class Store:
    """Rows that can be asked. Safe to use from several threads: every question has a cursor of its own."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        runs: RunsFolder | None = None,
        reference: Path | None = None,
        lock: DatabaseLock | None = None,
        notices: Iterable[str] = (),
    ) -> None:
        self._connection, self._lock = connection, lock
        self.runs, self.reference = runs, reference
        self.notices = list(notices)
        self._version = 0
        self._damaged = False

    @property
    def data_version(self) -> int:
        """Goes up with every commit: what was computed under another version may be out of date."""
        return self._version

    @property
    def in_memory(self) -> bool:
        """True when these rows were built for this process alone."""
        return self._lock is None

    def frame(self, sql: str, params: Sequence[Any] = ()) -> pd.DataFrame:
        """The answer to one SQL question as a table."""
        cursor = self._connection.cursor()
        try:
            return cursor.execute(sql, list(params)).df()
        except duckdb.Error as error:
            if self._lock is None or not schema.is_damage(error):
                raise
            self._damaged = True
            raise UserError(f"{self._lock.database.name} is damaged", "a sound file",
                            "try again: it is moved aside and built anew from the run files") from error
        finally:
            cursor.close()

    def close(self) -> None:
        self._connection.close()
        if self._lock is not None:
            if self._damaged:
                schema.move_aside(self._lock.database)
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _bump(self) -> None:
        self._version += 1


@dataclass(frozen=True)
class Status:
    """How the app's ingester is doing. `errors`: files that cannot be read at present, and the last failure."""

    running: bool
    data_version: int
    errors: tuple[str, ...]
    notices: tuple[str, ...]


class AppStore(Store):
    """The app's store: holds the lock, and one thread keeps the rows in step with the files."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, lock: DatabaseLock, runs: RunsFolder, reference: Path | None,
        notices: Iterable[str], progress: Progress | None,
    ) -> None:
        super().__init__(connection, runs=runs, reference=reference, lock=lock, notices=notices)
        self._stop = threading.Event()
        self._failure: str | None = None
        self._ingester = Ingester(connection, runs=runs, reference=reference, on_commit=self._committed)
        self._ingester.refresh_gpu_keys()
        self._ingester.cycle(progress)
        self._write_ingested()
        self._thread = threading.Thread(target=self._run, name="ingester", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        errors = list(self._ingester.errors.values())
        if self._failure is not None:
            errors.append(self._failure)
        return Status(
            self._thread.is_alive(), self._version, tuple(errors),
            (*self.notices, *self._ingester.notices),
        )

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    def close(self) -> None:
        """Stop the ingester behind its running transaction, then let the database go."""
        self._stop.set()
        self._thread.join()
        super().close()

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                if self._ingester.cycle():
                    self._write_ingested()
                self._failure = None
            except Exception as error:
                # A page must not fail for what one file or one full disk does to the ingester: shown as status.
                self._failure = f"new lines could not be taken in ({str(error).splitlines()[0][:300]})"

    def _committed(self) -> None:
        self._bump()

    def _write_ingested(self) -> None:
        """Tell waiting commands how far every source is in. Not durable: a new app writes it anew."""
        if self.runs is None or not self.runs.root.is_dir():
            return
        temporary = self.runs.root / f"{INGESTED_NAME}.{os.getpid()}"
        temporary.write_text(json.dumps({"data_version": self._version, "sources": self._ingester.offsets,
                                         "conflicts": self._ingester.conflicts}))
        os.replace(temporary, self.runs.root / INGESTED_NAME)


def open_app(
    db_path: str | Path | None = None, *, reference: Path | None = None, progress: Progress | None = None
) -> AppStore:
    """Take the lock, bring the database up to date (made anew if need be) and keep it so until `close`.

    `progress(file, share)` is called while it catches up. Raises `UserError` naming the process that holds the
    database.
    """
    path, runs, root = _places(db_path, reference)
    lock = DatabaseLock(path, "app")
    try:
        return _caught_up(
            path, lambda connection, notices: AppStore(connection, lock, runs, root, notices, progress)
        )
    except BaseException:
        lock.release()
        raise


_Opened = TypeVar("_Opened", bound=Store)


def _caught_up(path: Path, make: Callable[[duckdb.DuckDBPyConnection, list[str]], _Opened]) -> _Opened:
    """What `make` returns for the connection; a file whose damage shows meanwhile is built anew, once."""
    connection, notice = schema.connect_file(path)
    try:
        return make(connection, [notice] if notice else [])
    except duckdb.Error as error:
        connection.close()
        refused = schema.cannot_write(path, error)
        if refused is not None:
            raise refused from error
        if not schema.is_damage(error):
            raise
        damage = str(error)
    except BaseException:
        connection.close()
        raise
    # Not inside `except`: the traceback keeps cursors alive, and these the damaged file open.
    connection, notice = schema.rebuilt(path, damage)
    try:
        return make(connection, [notice])
    except BaseException:
        connection.close()
        raise


def open_reading(
    db_path: str | Path | None = None,
    run_filter: RunFilter | None = None,
    *,
    reference: Path | None = None,
    progress: Progress | None = None,
) -> Store:
    """Rows as of now for one command: the database if its lock is free (made and brought up to date), else in memory.

    `run_filter(header, run_id)` spares the in-memory build files of runs that the question does not need.
    """
    path, runs, root = _places(db_path, reference)
    notices = []
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK):
        notices.append(f"{path.name} cannot be kept in a folder that you may not write to: rows were built in memory")
    else:
        try:
            store = _open_if_free(path, runs, root, progress)
            if store is not None:
                return store
        except CannotWriteError as error:
            notices.append(f"{error.found}: rows were built in memory")
    connection = schema.connect_memory()
    store = Store(connection, runs=runs, reference=root, notices=notices)
    ingester = Ingester(connection, runs=runs, reference=root, run_filter=run_filter, on_commit=store._bump)
    ingester.cycle(progress)
    store.notices += ingester.errors.values()
    return store


def open_if_free(
    db_path: str | Path | None = None, *, reference: Path | None = None, progress: Progress | None = None
) -> Store | None:
    """The database, made or brought up to date, if no other process has it; None otherwise."""
    return _open_if_free(*_places(db_path, reference), progress)


def _open_if_free(path: Path, runs: RunsFolder, root: Path, progress: Progress | None) -> Store | None:
    try:
        lock = DatabaseLock(path, "command")
    except LockHeldError:
        return None

    def make(connection: duckdb.DuckDBPyConnection, notices: list[str]) -> Store:
        store = Store(connection, runs=runs, reference=root, lock=lock, notices=notices)
        ingester = Ingester(connection, runs=runs, reference=root, on_commit=store._bump)
        ingester.refresh_gpu_keys()
        ingester.cycle(progress)
        store.notices += [*ingester.notices, *ingester.errors.values()]
        return store

    try:
        return _caught_up(path, make)
    except schema.DatabaseBusyError:
        lock.release()
        return None
    except BaseException:
        lock.release()
        raise


def open_files(paths: Iterable[str | Path]) -> Store:
    """The rows of these run files alone, in memory. Raises `UserError` for a file that is no run file."""
    files = [Path(path) for path in paths]
    for path in files:
        read_run_file(path)
    connection = schema.connect_memory()
    ingester = Ingester(connection, files=files)
    ingester.cycle()
    return Store(connection, notices=ingester.errors.values())


def _places(db_path: str | Path | None, reference: Path | None) -> tuple[Path, RunsFolder, Path]:
    path = database_path(db_path)
    if holder_of(path) is None:
        schema.check_place(path)
    return path, RunsFolder.beside(path), reference or reference_root()


