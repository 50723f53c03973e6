"""Tables of `nsys stats --format csv`: kernels of a profiled pass; several reports in one file, notices between."""
from __future__ import annotations

import csv
import re

from core.records import Op
from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Problem, Reading, RefusedError, Task
from core.store.importers.ops import as_table, short_name
from core.store.importers.text import MS_PER_UNIT, number

KEY, TITLE = "nsys-stats", "Nsight Systems statistics"

_HEADER = re.compile(r'^"?Time ?\(%\)"?,', re.MULTILINE)
EXPORT = "export it with: nsys stats --report cuda_gpu_kern_sum --format csv report.nsys-rep"


def recognises(given: Given) -> bool:
    return bool(_HEADER.search(given.text[:200_000])) and "Total Time" in given.text[:200_000]


def read(given: Given, interview: Interview) -> Reading:
    reading = Reading()
    ops: list[Op] = []
    others: dict[str, int] = {}
    for name, header, rows in _reports(given.text, reading):
        if "Instances" in header and "Name" in header:
            ops += _kernels(header, rows, reading)
        else:
            others[name] = others.get(name, 0) + len(rows)
    for name, count in others.items():
        reading.said.append(f"{name}, {count} rows: recognised, not taken in; it holds no time of a kernel.")
    if not ops:
        raise RefusedError("no kernel summary (cuda_gpu_kern_sum) in it", "a table with Instances and Name", EXPORT)
    launches = sum(op.launches or 0 for op in ops)
    busy_ms = sum(op.device_ms or 0.0 for op in ops)
    reading.said.append(f"{len(ops)} kernels, launched {launches} times, {busy_ms:.6g} ms in total.")
    board = ask_board(interview, reading, None)
    precision = ask_precision(interview, None)
    task = interview.ask("task", "What was profiled? Files of the same name are compared.", default=given.stem,
                         free=True)
    wall = interview.ask("time", "How long did the profiled pass take, as 120 ms? Its kernels alone do not say.",
                         default="unknown", free=True)
    wall_ms = _duration_ms(str(wall))
    if board is not None and precision is not None and task is not None:
        known = wall_ms is not None
        made = Task(
            task, precision, (wall_ms,) if wall_ms is not None else (),
            "wall time as a person gave it" if known else "",
            status="ok" if known else "skipped",
            reason=None if known else "the file holds times of kernels, not the time of the pass",
            # Kernels of several streams may overlap: their sum is no time that the GPU was busy.
            ops=as_table(ops), profiled_wall_ms=wall_ms,
        )
        reading.runs.append(ForeignRun(board, (made,)))
    return reading


def _duration_ms(text: str) -> float | None:
    if text == "unknown":
        return None
    found = re.fullmatch(r"([\d.]+)\s*([a-zµμ]+)", text.strip())
    factor = MS_PER_UNIT.get(found[2]) if found else None
    value = number(found[1]) if found else None
    if factor is None or value is None or value <= 0:
        raise RefusedError(f"the answer time={text[:40]}", "a number with its unit, such as 120 ms")
    return value * factor


def _reports(text: str, reading: Reading) -> list[tuple[str, list[str], list[tuple[int, list[str]]]]]:
    """(name of the report, its header, its rows with their line numbers)."""
    found: list[tuple[str, list[str], list[tuple[int, list[str]]]]] = []
    name, inside = "a report", False
    for line_number, line in enumerate(text.split("\n"), start=1):
        titled = re.search(r"\[.*?([a-z]\w*(?:sum|trace|kern\w*))(?:\.py)?\b.*\]|^ \*\* (.+?) \(", line)
        if _HEADER.match(line):
            header = next(csv.reader([line]))
            named = name if name != "a report" else f"a report by {header[-1]}"
            found.append((named, [cell.strip() for cell in header], []))
            inside, name = True, "a report"
        elif not line.strip():
            inside = False
        elif inside:
            row = next(csv.reader([line]), [])
            if len(row) != len(found[-1][1]):
                reading.problems.append(Problem(line_number, "(line)", f"{len(row)} fields",
                                                f"{len(found[-1][1])}, as the header has"))
                continue
            found[-1][2].append((line_number, row))
        elif titled:
            name = titled[1] or titled[2] or name
    return found


def _kernels(header: list[str], rows: list[tuple[int, list[str]]], reading: Reading) -> list[Op]:
    total = next((place for place, name in enumerate(header) if name.startswith("Total Time")), None)
    unit = re.search(r"\((\w+)\)", header[total]) if total is not None else None
    factor = MS_PER_UNIT.get(unit[1]) if unit else None
    if total is None or factor is None:
        raise RefusedError(f"a kernel summary with the columns {', '.join(header)[:120]}", "Total Time (ns)", EXPORT)
    instances, kernel = header.index("Instances"), header.index("Name")
    shape = [header.index(name) for name in ("GridXYZ", "BlockXYZ") if name in header]
    made = []
    for line_number, row in rows:
        time, count = number(row[total]), number(row[instances])
        if time is None or count is None or time < 0 or count < 1:
            reading.problems.append(Problem(line_number, header[total], row[total][:40], "a number above 0"))
            continue
        name = short_name(row[kernel])
        made.append(Op(op=name, stage="kernels", scalars=tuple(row[place][:80] for place in shape), calls=int(count),
                       device_ms=time * factor, kernels=(name,), launches=int(count)))
    return made
