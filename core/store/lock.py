"""The lock of results.duckdb: a file beside it, held by one process and gone with it.

DuckDB's own lock is lost when the process closes any other descriptor of the database file (measured: another process
then wrote to it unnoticed). So a `flock` on `results.duckdb.lock` is taken before connecting and kept until the end.
Reading the lock file releases nothing: a flock belongs to the descriptor that took it.
"""
from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from core.errors import UserError
from core.records import process_started

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True)
class Holder:
    """Who has the database: `role` is "app" or "command"."""

    pid: int
    role: str

    def __str__(self) -> str:
        return f"the app (process {self.pid})" if self.role == "app" else f"a command (process {self.pid})"


class CannotWriteError(UserError):
    """The disk does not take the database: full, read-only, broken. The run files are not touched by that."""


class LockHeldError(UserError):
    """Another process has the database; `holder` is None when its note could not be read."""

    def __init__(self, database: Path, holder: Holder | None) -> None:
        self.holder = holder
        fix = f"open the other one in the browser, or end process {holder.pid} first" if holder else \
            "end that process first"
        super().__init__(
            f"{database.name} is held by {holder or 'another process'}", "one app per database", fix
        )


class DatabaseLock:
    """Held from construction to `release`; raises `LockHeldError` at once when somebody else has it."""

    def __init__(self, database: Path, role: str) -> None:
        self.database, self.path = database, lock_path(database)
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CannotWriteError(
                f"{self.path.name} cannot be made ({error.strerror})", "a writable folder", "choose another --db"
            ) from error
        try:
            if sys.platform != "win32":
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise LockHeldError(database, _wait_for_note(database)) from None
        self._descriptor: int | None = descriptor
        note = json.dumps({"pid": os.getpid(), "started": process_started(os.getpid()), "role": role}).encode()
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, note, 0)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> DatabaseLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def _wait_for_note(database: Path) -> Holder | None:
    """The holder writes its note right behind taking the lock."""
    for _ in range(20):
        holder = holder_of(database)
        if holder is not None:
            return holder
        time.sleep(0.01)
    return None


def lock_path(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


def holder_of(database: Path) -> Holder | None:
    """What the lock file says, if that process still lives. Tells nothing about a lock that nobody holds."""
    try:
        note = json.loads(lock_path(database).read_text())
        holder, started = Holder(int(note["pid"]), str(note["role"])), note["started"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return holder if process_started(holder.pid) == started else None
