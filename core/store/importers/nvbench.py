"""nvbench: JSON with numbers as text, or CSV with the units in its header. Seconds."""
from __future__ import annotations

import math
import re
from typing import Any

from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Problem, Reading, RefusedError, Task
from core.store.importers.text import MS_PER_UNIT, Table, is_missing, number

KEY, TITLE = "nvbench", "nvbench result"
CSV_KEY, CSV_TITLE = "nvbench-csv", "nvbench table"

_TAGS = ("nv/cold/time/gpu/mean", "nv/batch/time/gpu/mean")


def recognises(given: Given) -> bool:
    value = given.json
    return isinstance(value, dict) and isinstance(value.get("devices"), list) and any(
        isinstance(row, dict) and isinstance(row.get("states"), list) for row in value.get("benchmarks") or [])


def recognises_table(given: Given) -> bool:
    table = given.table
    return table is not None and {"Benchmark", "Device", "Device Name"} <= set(table.columns) and any(
        name.startswith("GPU Time") for name in table.columns)


def read(given: Given, interview: Interview) -> Reading:
    reading = Reading()
    names = {str(device.get("id")): str(device.get("name") or "") for device in given.json["devices"]
             if isinstance(device, dict)}
    precision = ask_precision(interview, None)
    by_device: dict[str, list[Task]] = {}
    for benchmark in given.json["benchmarks"]:
        for state in benchmark.get("states") or [] if isinstance(benchmark, dict) else []:
            if not isinstance(state, dict):
                continue
            label = str(state.get("name") or "")
            task = _task(str(benchmark.get("name") or "benchmark"), label, state, precision, reading)
            if task is not None:
                by_device.setdefault(str(state.get("device")), []).append(task)
    return _with_boards(by_device, names, interview, reading)


def _task(
    name: str, label: str, state: dict[str, Any], precision: str | None, reading: Reading
) -> Task | None:
    if state.get("is_skipped"):
        return Task(name, precision or "", variant=label or None, status="skipped",
                    reason=str(state.get("skip_reason") or "nvbench skipped it")[:500])
    found = {str(summary.get("tag")): _value(summary) for summary in state.get("summaries") or []
             if isinstance(summary, dict)}
    tag = next((tag for tag in _TAGS if found.get(tag)), None)
    if tag is None:
        reading.problems.append(Problem(0, f"{name} {label}"[:200], "no mean GPU time", f"a summary {_TAGS[0]}"))
        return None
    share = found.get("nv/cold/bw/global/utilization")
    if share is not None and share > 1:
        reading.said.append(f"{name}: it states {share:.0%} of the memory bandwidth; its data stay in a cache.")
    return Task(name, precision or "", ((found[tag] or 0.0) * 1e3,), f"mean as the file states it ({tag})",
                variant=label or None, stated={"stated_bandwidth_share": share})


def _value(summary: dict[str, Any]) -> float | None:
    """The number of a summary: `data[].value`, written as text."""
    for item in summary.get("data") or []:
        if isinstance(item, dict) and item.get("name") == "value":
            try:
                value = float(str(item.get("value")))
            except ValueError:
                return None
            return value if math.isfinite(value) and 0 < value < 1e9 else None
    return None


def read_table(given: Given, interview: Interview) -> Reading:
    table = given.table
    assert table is not None
    reading = Reading(columns=table.columns)
    precision = ask_precision(interview, None)
    time = next(name for name in table.columns if name.startswith("GPU Time"))
    unit = re.search(r"\(([^)]+)\)", time)
    factor = MS_PER_UNIT.get(unit[1].lower()) if unit else None
    if factor is None:
        raise RefusedError(f"the column {time[:60]}", "GPU Time (sec)")
    noise = table.columns.index("Noise") if "Noise" in table.columns else None
    names: dict[str, str] = {}
    by_device: dict[str, list[Task]] = {}
    for row, line in zip(table.rows, table.lines, strict=True):
        task = _row(row, line, table, time, factor, noise, precision, reading)
        if task is not None:
            device = row[table.columns.index("Device")]
            names[device] = row[table.columns.index("Device Name")]
            by_device.setdefault(device, []).append(task)
    return _with_boards(by_device, names, interview, reading)


_FIXED = ("Benchmark", "Device", "Device Name", "Skipped", "Samples", "Noise", "CPU Time", "GPU Time", "Elem/s",
          "GlobalMem", "BWUtil", "Batch", "BW", "Cold")


def _row(
    row: tuple[str, ...], line: int, table: Table, time: str, factor: float, noise: int | None, precision: str | None,
    reading: Reading,
) -> Task | None:
    if len(row) != len(table.columns):
        reading.problems.append(Problem(line, "(line)", f"{len(row)} fields", f"{len(table.columns)}"))
        return None
    cells = dict(zip(table.columns, row, strict=True))
    axes = [f"{name}={cells[name]}" for name in table.columns
            if not name.startswith(_FIXED) and cells[name] and "(" not in name]
    label = " ".join(axes)[:300] or None
    if cells.get("Skipped", "No").lower() not in ("no", "", "0", "false"):
        return Task(cells["Benchmark"], precision or "", variant=label, status="skipped",
                    reason=cells["Skipped"][:300])
    value = None if is_missing(cells[time]) else number(cells[time])
    if value is None or value <= 0:
        reading.problems.append(Problem(line, time, cells[time][:40], "a number above 0"))
        return None
    return Task(cells["Benchmark"], precision or "", (value * factor,), "mean as the file states it", variant=label,
                stated={"stated_noise": row[noise]} if noise is not None else {})


def _with_boards(
    by_device: dict[str, list[Task]], names: dict[str, str], interview: Interview, reading: Reading
) -> Reading:
    if not by_device:
        raise RefusedError("an nvbench file without a GPU time", "states with a mean GPU time")
    if len(by_device) < len(names):
        reading.said.append(f"{len(names)} devices are listed, {len(by_device)} were used.")
    for device, tasks in by_device.items():
        board = ask_board(interview, reading, names.get(device) or None)
        reading.said.append(f"{len(tasks)} states on {names.get(device) or 'a device without name'}.")
        if board is not None and all(task.precision for task in tasks):
            reading.runs.append(ForeignRun(board, tuple(tasks)))
    return reading
