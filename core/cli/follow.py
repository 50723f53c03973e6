"""A sweep seen from outside: start its process, read its run file as it grows, show how far it is.

The runner writes every line to the run file before it goes on, so the file is the progress; nothing is parsed from
what the process prints.
"""
from __future__ import annotations

import contextlib
import io
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import units
from core.errors import UserError
from core.process import python_command
from core.records import Cell, End, Note, RunHeader, RunsFolder, parse_lines

POLL_S = 0.2


@dataclass
class Progress:
    """What the run file says so far. `total` counts the cells of this start; None until the plan is written."""

    total: int | None = None
    cells: list[Cell] = field(default_factory=list)
    running: str | None = None
    device: str | None = None
    warnings: list[str] = field(default_factory=list)
    end: End | None = None
    offset: int = 0
    lines: int = 0

    def read(self, path: Path) -> list[Cell]:
        """Take in what `path` gained; returns its new cells. A file that is not there yet has none."""
        try:
            with open(path, "rb") as stream:
                stream.seek(self.offset)
                data = stream.read()
        except FileNotFoundError:
            return []
        new: list[Cell] = []
        for parsed in parse_lines(io.BytesIO(data), self.lines + 1, self.offset):
            self.offset, self.lines = parsed.end, parsed.number
            if parsed.line is not None:
                record = parsed.line.record
                if isinstance(record, Cell):
                    new.append(record)
                self._take(record)
        return new

    def _take(self, record: Any) -> None:
        if isinstance(record, RunHeader):
            self.device = record.device.name
        elif isinstance(record, Cell):
            self.cells.append(record)
            self.running = None
        elif isinstance(record, End):
            self.end = record
        elif isinstance(record, Note):
            self.end = None  # whatever follows an end belongs to a resumed run
            if record.event in ("plan", "resumed"):
                self.total = _whole(record.data.get("remaining", record.data.get("cells")))
                self.running = None
            elif record.event in ("queued", "cell_started"):
                self.running = record.text
            elif record.event == "warning":
                self.warnings.append(record.text)


def describe(cell: Cell) -> str:
    """One finished cell in one line: what, in which precision, how long, over how many repetitions."""
    from core.measure.plan import setting_in_words

    work = cell.workload.work
    what = work.selector
    if work.frames is not None:
        what += f", {work.frames} frames of {work.height}x{work.width}"
    if work.points is not None:
        what += f", {work.points} point{'' if work.points == 1 else 's'}"
    if work.batch != 1:
        what += f", batch {work.batch}"
    what += f", {setting_in_words(cell.workload.setting)}"
    if cell.status != "ok":
        return f"{what}: {cell.status} ({cell.reason})"
    return f"{what}: {units.time_ms(statistics.median(cell.wall_ms))} (n {len(cell.wall_ms)})"


def measuring_branch(*words: str, timeout_s: float = 300.0) -> str:
    """What `python -m core.measure WORDS` prints. Raises UserError or RuntimeError with what it says instead."""
    try:
        done = subprocess.run(
            python_command("core.measure", *words), capture_output=True, text=True, timeout=timeout_s, check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"`core.measure {words[0]}` gave no answer for {timeout_s:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1].removeprefix("error: ")
        raise UserError(said) if done.returncode == 2 else RuntimeError(said)
    return done.stdout


@dataclass
class Runner:
    """The measuring process, in a session of its own: Ctrl-C in this terminal reaches it only through `ask_to_stop`."""

    process: subprocess.Popen[bytes]
    _stderr: list[str] = field(default_factory=list)

    @classmethod
    def start(cls, arguments: list[str], runs: RunsFolder) -> Runner:
        """Start `python -m core.measure run` with these sweep options and this runs folder."""
        runs.root.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(
            python_command("core.measure", "run", *arguments, "--runs", str(runs.root)),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )
        runner = cls(process)
        threading.Thread(target=runner._drain, daemon=True).start()
        return runner

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode(errors="replace").strip()
            if text:
                self._stderr = [*self._stderr[-19:], text]

    def last_error(self) -> str:
        """The last line that the process wrote to stderr, without its `error:`."""
        time.sleep(0.05)  # lets the draining thread take the last line
        return self._stderr[-1].removeprefix("error: ") if self._stderr else ""

    def ask_to_stop(self) -> None:
        """Once: the runner stops behind the running cell. Twice: at once, and its file says so."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process and its workers, whatever they do; the run can still be resumed."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def follow(runner: Runner, path: Path, progress: Progress) -> Iterator[list[Cell]]:
    """New cells of the run file, again and again, until the process has ended and everything is read."""
    while True:
        ended = runner.process.poll() is not None
        yield progress.read(path)
        if ended:
            return
        time.sleep(POLL_S)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
