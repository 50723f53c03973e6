"""The runs folder: where run files lie, and who is running what.

    runs/<run_id>/run.jsonl      live or finished run         runs/<run_id>/runner.json   pid and its start time
    runs/<run_id>/stop           empty file: stop after cell   runs/<run_id>/stdout.log    what the runner printed
    runs/*.jsonl[.gz]            loose finished runs           runs/uploads/<sha256>       uploaded originals
    runs/journal.jsonl           what people did               runs/.device-<uuid_hash>    lock: one runner per device

A run's state is derived from its last line and from whether that process still lives, never from a session.
"""
from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import UserError
from core.records.convert import valid_run_id

if sys.platform != "win32":
    import fcntl

State = Literal["queued", "running", "done", "stopped", "failed", "lost"]
_TAIL_BYTES = 65536


@dataclass(frozen=True)
class Runner:
    """The process that measures a run; `started` is its start time, so that a reused pid is not taken for it."""

    pid: int
    started: str | None

    def alive(self) -> bool:
        return process_started(self.pid) is not None and (
            self.started is None or process_started(self.pid) == self.started
        )


def process_started(pid: int) -> str | None:
    """Start time of a living process as text, None when there is no such process (or it is a zombie)."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            return None
        return None if fields[0] in ("Z", "X") else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "unknown"
    return "unknown"


class RunsFolder:
    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    @classmethod
    def beside(cls, database: str | Path) -> RunsFolder:
        """`GAPSCOPE_RUNS`, else `runs/` beside the database."""
        return cls(os.environ.get("GAPSCOPE_RUNS") or Path(database).resolve().parent / "runs")

    def run_dir(self, run_id: str) -> Path:
        if not valid_run_id(run_id):
            raise UserError(f"run id {run_id[:70]!r}", "a-z, 0-9 and '-'")
        return self.root / run_id

    def run_file(self, run_id: str) -> Path:
        return self.run_dir(run_id) / "run.jsonl"

    @property
    def uploads(self) -> Path:
        return self.root / "uploads"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    def run_ids(self) -> list[str]:
        """Runs that have a folder of their own, newest first (ids sort by time)."""
        if not self.root.is_dir():
            return []
        return sorted(
            (p.name for p in self.root.iterdir() if p.is_dir() and valid_run_id(p.name) and p.name != "uploads"),
            reverse=True,
        )

    def files(self) -> list[Path]:
        """Every file that may hold run lines, oldest run first: run folders, loose files, uploads."""
        if not self.root.is_dir():
            return []
        own = [self.run_file(run_id) for run_id in reversed(self.run_ids()) if self.run_file(run_id).is_file()]
        loose = sorted(
            p for p in self.root.iterdir()
            if p.is_file() and p.name != self.journal.name and (p.name.endswith((".jsonl", ".jsonl.gz")))
            and not p.name.startswith(".")
        )
        uploads = sorted(p for p in self.uploads.iterdir() if p.is_file() and not p.name.startswith(".")) \
            if self.uploads.is_dir() else []
        return own + loose + uploads

    # --- runner state ---

    def claim(self, run_id: str) -> None:
        """Say that this process measures `run_id`; called by the runner itself."""
        self.write_runner(run_id, os.getpid())

    def write_runner(self, run_id: str, pid: int) -> None:
        folder = self.run_dir(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".runner-{os.getpid()}.json"
        temporary.write_text(json.dumps({"pid": pid, "started": process_started(pid)}))
        os.replace(temporary, folder / "runner.json")

    def runner(self, run_id: str) -> Runner | None:
        try:
            data = json.loads((self.run_dir(run_id) / "runner.json").read_text())
            return Runner(int(data["pid"]), data.get("started"))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def request_stop(self, run_id: str) -> None:
        folder = self.run_dir(run_id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stop").touch()

    def stop_requested(self, run_id: str) -> bool:
        return (self.run_dir(run_id) / "stop").exists()

    def clear_stop(self, run_id: str) -> None:
        (self.run_dir(run_id) / "stop").unlink(missing_ok=True)

    def state(self, run_id: str) -> State:
        """`lost`: the process is gone and the file has no `end` line behind its last work (killed, power cut)."""
        last = last_line(self.run_file(run_id))
        ended = last is not None and last.get("kind") == "end"
        runner = self.runner(run_id)
        if runner is not None and runner.alive() and not ended:
            return "queued" if last is None or last.get("event") == "queued" else "running"
        if ended and last is not None:
            state = last.get("state")
            return state if state in ("done", "stopped", "failed") else "failed"
        return "lost"


def last_line(path: Path) -> dict[str, object] | None:
    """The last complete line of a plain run file as JSON, None when there is none."""
    try:
        with open(path, "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            reach = _TAIL_BYTES
            while True:
                stream.seek(max(0, size - reach))
                tail = stream.read()
                body = tail[: tail.rfind(b"\n")] if b"\n" in tail else b""
                start = body.rfind(b"\n")
                if start >= 0 or reach >= size:
                    break
                reach *= 8
    except OSError:
        return None
    try:
        data = json.loads(body[start + 1:])
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


@contextlib.contextmanager
def device_lock(
    root: str | Path, uuid_hash: str, on_wait: Callable[[], bool] | None = None
) -> Iterator[None]:
    """Hold the one-runner-per-device lock; waits for it, asking `on_wait` twice a second whether to go on.

    Raises `UserError` when `on_wait` returns False or is None while another runner holds the device.
    """
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    stream = open(root / f".device-{uuid_hash[:32]}", "a+b")  # noqa: SIM115
    try:
        if sys.platform != "win32":
            while True:
                try:
                    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if on_wait is None or not on_wait():
                        raise UserError(
                            "another sweep is measuring on this device", "one runner per device",
                            "wait for it or stop it on the Sweep page",
                        ) from None
                    time.sleep(0.5)
        yield
    finally:
        stream.close()
