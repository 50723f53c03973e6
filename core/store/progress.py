"""How far a run is: planned, done, failed, what is measured now. Read from its run file, or from the stored rows."""
from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from core.records import RunsFolder
from core.store import queries
from core.store.queries import Readable


@dataclass(frozen=True)
class RunProgress:
    """`cells` is None until the plan is written. A cell counts once, by its newest ok attempt, else by its last line.

    `repeatable`: of the failed ones those that a resumed run measures again (failed, timeout; not oom).
    `running`: data of the newest `cell_started` note that no cell line has followed; None between cells and at the
    end. `state`: of the last `end` line behind all work, else "open".
    """

    run_id: str
    cells: int | None
    ok: int
    failed: int
    not_run: int
    running: dict[str, Any] | None
    state: str
    reason: str | None
    lines: int
    repeatable: int = 0
    warnings: tuple[str, ...] = ()  # what the runner doubts about the whole run, such as a CPU that others use

    @property
    def done(self) -> int:
        return self.ok + self.failed + self.not_run


@dataclass(frozen=True)
class _Event:
    """The part of a line that progress is made of."""

    kind: str
    status: str | None = None
    cell: tuple[Any, ...] | None = None
    event: str | None = None
    data: dict[str, Any] | None = None
    reason: str | None = None
    text: str | None = None


def run_progress(place: RunsFolder | Readable, run_id: str) -> RunProgress:
    """Progress of one run; of a run that nothing is known of: no cells, state "open"."""
    if isinstance(place, RunsFolder):
        return ProgressReader(place, run_id).poll()
    return _sum_up(run_id, _stored_events(place, run_id))


class ProgressReader:
    """Follows one live run file; each `poll` reads only what is new."""

    def __init__(self, runs: RunsFolder, run_id: str) -> None:
        self._path, self._run_id = runs.run_file(run_id), run_id
        self._offset = 0
        self._events: list[_Event] = []

    def poll(self) -> RunProgress:
        try:
            with open(self._path, "rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except OSError:
            data = b""
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        for raw in complete.splitlines():
            event = _event_of(raw)
            if event is not None:
                self._events.append(event)
        return _sum_up(self._run_id, self._events)


def _event_of(raw: bytes) -> _Event | None:
    """Tolerant on purpose: the ingester names what is wrong with a line, a progress bar does not."""
    try:
        line = json.loads(raw)
        kind = line["kind"]
        if kind == "cell":
            cell = (line["process"], json.dumps(line["workload"], sort_keys=True))
            return _Event(kind, status=line["status"], cell=cell)
        if kind == "note":
            return _Event(kind, event=line["event"], data=line.get("data") or {}, text=str(line.get("text", "")))
        if kind == "end":
            return _Event(kind, status=line["state"], reason=line.get("reason"))
        return _Event(str(kind))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _stored_events(store: Readable, run_id: str) -> list[_Event]:
    frames = queries.run_events(store, run_id)
    events = []
    for row in frames.to_dict("records"):
        kind = str(row["kind"])
        if kind == "cell":
            cell = (row["process"], row["work_key"], row["setting_key"])
            events.append(_Event(kind, status=str(row["status"]), cell=cell))
        elif kind == "note":
            data = json.loads(row["data"]) if isinstance(row["data"], str) else {}
            events.append(_Event(kind, event=str(row["event"]), data=data, text=str(row["text"])))
        elif kind == "end":
            reason = None if pd.isna(row["reason"]) else str(row["reason"])
            events.append(_Event(kind, status=str(row["status"]), reason=reason))
        else:
            events.append(_Event(kind))
    return events


def _sum_up(run_id: str, events: Iterable[_Event]) -> RunProgress:
    planned: int | None = None
    running: dict[str, Any] | None = None
    state, reason, lines = "open", None, 0
    status: dict[tuple[Any, ...], str] = {}
    warnings: list[str] = []
    for event in events:
        lines += 1
        if event.kind == "end":
            state, reason, running = event.status or "failed", event.reason, None
            continue
        if event.kind == "cell" and event.cell is not None:
            running = None
            if status.get(event.cell) != "ok":
                status[event.cell] = event.status or "failed"
        elif event.kind == "note" and event.event == "plan" and isinstance((event.data or {}).get("cells"), int):
            planned = (event.data or {})["cells"]
        elif event.kind == "note" and event.event == "warning" and event.text:
            warnings.append(event.text)
        elif event.kind == "note" and event.event == "cell_started":
            running = event.data
        state, reason = "open", None
    counts = list(status.values())
    ok = counts.count("ok")
    not_run = counts.count("unsupported") + counts.count("skipped")
    return RunProgress(
        run_id, planned, ok, len(counts) - ok - not_run, not_run, running, state, reason, lines,
        counts.count("failed") + counts.count("timeout"), tuple(warnings),
    )
