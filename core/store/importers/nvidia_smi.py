"""Logs of `nvidia-smi --query-gpu=... --format=csv`, and of loggers with the same readings under their own names."""
from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import Any

from core.store.importers.devices import ask_board
from core.store.importers.model import ForeignRun, Given, Interview, Log, Problem, Reading, RefusedError
from core.store.importers.text import Table, epoch_s, is_missing, iso_utc, split_header, with_unit

KEY, TITLE = "nvidia-smi", "nvidia-smi log"

_FIELDS = {
    "at_s": ("timestamp", "ts", "time", "datetime"),
    "name": ("name", "gpu_name", "gpu name"),
    "index": ("index", "gpu", "gpu_index", "gpu_id"),
    "uuid": ("uuid", "gpu_uuid"),
    "bus": ("pci.bus_id", "gpu_bus_id", "bus_id"),
    "utilization_percent": ("utilization.gpu", "util_pct", "gpu_util", "utilization_gpu"),
    "memory_used_bytes": ("memory.used", "mem_used_mib", "memory_used"),
    "memory_total_bytes": ("memory.total", "mem_total_mib", "memory_total"),
    "temperature_c": ("temperature.gpu", "temp_c", "temperature"),
    "power_w": ("power.draw", "power_w", "power.draw.instant", "power.draw.average"),
    "power_limit_w": ("power.limit", "enforced.power.limit", "power_limit_w", "power.default_limit"),
    "sm_clock_mhz": ("clocks.current.sm", "clocks.sm", "clocks.gr", "clocks.current.graphics", "sm_mhz"),
    "memory_clock_mhz": ("clocks.current.memory", "clocks.mem", "mem_mhz"),
    # Renamed at driver 535; both names are read.
    "throttle_bits": ("clocks_event_reasons.active", "clocks_throttle_reasons.active"),
    "driver": ("driver_version",),
}
_READINGS = ("utilization_percent", "memory_used_bytes", "temperature_c", "power_w", "power_limit_w", "sm_clock_mhz",
             "memory_clock_mhz", "throttle_bits")
_BYTES = {"mib": 2**20, "mb": 10**6, "gib": 2**30, "gb": 10**9, "kib": 2**10, "b": 1}
EXPORT = ("export it with: nvidia-smi --query-gpu=timestamp,index,uuid,name,utilization.gpu,memory.used,power.draw,"
          "power.limit,clocks.sm,temperature.gpu --format=csv -lms 500")


def _places(columns: tuple[str, ...]) -> dict[str, tuple[int, str | None]]:
    """Reading -> (column, unit of its header)."""
    found: dict[str, tuple[int, str | None]] = {}
    for place, column in enumerate(columns):
        name = re.sub(r"\s*\[.*?\]", "", column).strip().lower()
        unit = split_header(column)[1]
        for reading, words in _FIELDS.items():
            if name in words and reading not in found:
                found[reading] = place, unit
    return found


def recognises(given: Given) -> bool:
    if re.match(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, ", given.text[:40]) and given.table is None:
        return True  # without its header: refused below, with the words for it
    if given.table is None:
        return False
    found = _places(given.table.columns)
    return "at_s" in found and len(found.keys() & set(_READINGS)) >= 2


def read(given: Given, interview: Interview) -> Reading:
    table = given.table
    if table is None:
        raise RefusedError("an nvidia-smi log without its header line: nothing says what the columns mean",
                           "a log with header", EXPORT)
    places = _places(table.columns)
    reading = Reading(columns=table.columns)
    zone = interview.ask("zone", "Its clock has no zone. How far ahead of UTC was it, as +02:00?", default="+00:00",
                         free=True) if _lacks_zone(table, places) else "+00:00"
    boards = _split(table, places, reading)
    attach = interview.ask("attach", "To which run does it belong? A run id; by time: to what ran on this card then.",
                           default="by time", free=True)
    for rows in boards:
        run = _board(rows, table, places, _offset_s(str(zone)), interview, reading)
        if run is not None:
            reading.runs.append(ForeignRun(
                run.board, log=run.log, started_at=run.started_at, software=run.software,
                attach=None if attach == "by time" else attach,
            ))
    return reading


def _lacks_zone(table: Table, places: dict[str, Any]) -> bool:
    first = next((epoch_s(row[places["at_s"][0]]) for row in table.rows if len(row) > places["at_s"][0]), None)
    return first is not None and not first[1]


def _offset_s(text: str) -> float:
    found = re.fullmatch(r"([+-])(\d{1,2}):?(\d\d)?", text.strip())
    if found is None or int(found[2]) > 14:
        raise RefusedError(f"the answer zone={text[:20]}", "hours ahead of UTC, such as +02:00")
    seconds = int(found[2]) * 3600 + int(found[3] or 0) * 60
    return seconds if found[1] == "+" else -seconds


def _split(table: Table, places: dict[str, Any], reading: Reading) -> list[list[int]]:
    """Row numbers of each board. Raises `RefusedError` when the rows of several are interleaved and nothing tells."""
    width = len(table.columns)
    whole = [place for place, row in enumerate(table.rows) if len(row) == width]
    for place in set(range(len(table.rows))) - set(whole):
        reading.problems.append(Problem(table.lines[place], "(line)", f"{len(table.rows[place])} fields",
                                        f"{width}, as the header has"))
    key = next((name for name in ("uuid", "bus", "index") if name in places), None)
    if key is None:
        stamps = Counter(table.rows[place][places["at_s"][0]] for place in whole)
        if stamps and sum(count > 1 for count in stamps.values()) * 2 > len(stamps):
            raise RefusedError("several rows of one time: the rows of several GPUs are interleaved, and no column "
                               "tells them apart", "a column index or uuid", EXPORT)
        return [whole]
    groups: dict[str, list[int]] = {}
    for place in whole:
        groups.setdefault(table.rows[place][places[key][0]], []).append(place)
    if len(groups) > 1:
        reading.said.append(f"{len(groups)} GPUs, told apart by {key}.")
    return list(groups.values())


def _board(
    rows: list[int], table: Table, places: dict[str, Any], offset_s: float, interview: Interview, reading: Reading
) -> ForeignRun | None:
    def cell(place: int, name: str) -> str | None:
        return table.rows[place][places[name][0]] if name in places else None

    columns: dict[str, list[float | None]] = {"at_s": []}
    columns |= {name: [] for name in _READINGS if name in places}
    for place in rows:
        stamp = epoch_s(cell(place, "at_s") or "", offset_s)
        if stamp is None:
            reading.problems.append(Problem(table.lines[place], "timestamp", str(cell(place, "at_s"))[:40],
                                            "a time such as 2026/09/30 04:09:49.539"))
            continue
        columns["at_s"].append(stamp[0])
        for name in columns.keys() - {"at_s"}:
            columns[name].append(_value(name, cell(place, name) or "", places[name][1], table, place, reading))
    if not columns["at_s"]:
        return None
    first = rows[0]
    total = _value("memory_total_bytes", cell(first, "memory_total_bytes") or "",
                   places.get("memory_total_bytes", (0, None))[1], table, first, Reading())
    board = ask_board(interview, reading, cell(first, "name"), memory_bytes=int(total) if total else None)
    for name in [name for name, values in columns.items() if all(value is None for value in values)]:
        del columns[name]
        reading.said.append(f"{name} is given in no row: unknown, not 0.")
    span_s = max(columns["at_s"]) - min(columns["at_s"])  # type: ignore[type-var, operator]
    limit = next((value for value in columns.get("power_limit_w", []) if value is not None), None)
    if board is None:
        return None
    board = dataclasses.replace(board, uuid=cell(first, "uuid") or None, power_limit_w=limit)
    reading.said.append(f"{len(columns['at_s'])} readings of {board.name} over {span_s:.0f} s: "
                        + ", ".join(name for name in columns if name != "at_s") + ".")
    driver = cell(first, "driver")
    return ForeignRun(board, log=Log(columns), started_at=iso_utc(min(columns["at_s"])),  # type: ignore[type-var, arg-type]
                      software={"driver": driver} if driver else {})


def _value(name: str, text: str, header_unit: str | None, table: Table, place: int, reading: Reading) -> float | None:
    """One reading in the unit of its name; the cell's own unit goes before the header's."""
    if is_missing(text):
        return None
    if name == "throttle_bits":
        try:
            bits = int(text, 0)
        except ValueError:
            bits = -1
        return float(bits) if 0 <= bits < 2**53 else None
    value, unit = with_unit(text)
    if value is None or value < 0:
        reading.problems.append(Problem(table.lines[place], name, text[:40], "a number with its unit"))
        return None
    if name.endswith("_bytes"):
        column = table.columns[_places(table.columns)[name][0]].lower()
        word = (unit or header_unit or ("mib" if "mib" in column else "")).lower()
        return value * _BYTES.get(word, 2**20)
    return value
