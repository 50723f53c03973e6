"""What a reader found, as the lines of a run file: origin `imported`, tasks that no tracker's work key can equal."""
from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from core.records import (
    FOREIGN,
    Cell,
    Device,
    End,
    Host,
    Line,
    Note,
    RecordError,
    RunHeader,
    SettingKey,
    Software,
    WorkKey,
    Workload,
    decode_line,
    encode_line,
    uuid_hash,
)
from core.store.importers.model import Board, ForeignRun, Log, Problem, Reading, Task

LOG_EVENT = "telemetry"
"""Event of the notes that hold a log's readings: `data.columns`, equally long lists."""

LOG_ROWS_PER_LINE = 1_000


def encode(
    reading: Reading, *, format_key: str, file_name: str, sha: str, answers: Mapping[str, str],
    assumed: Mapping[str, str], received_at: str,
) -> bytes:
    """Run-file lines of everything that was read. The same file with the same answers gives the same bytes.

    A task with a value that no run file holds (a time of 1e200 ms, a memory below 0) is left out and becomes a problem
    of `reading`. Raises `RecordError` when the device or a log has one.
    """
    stamp = hashlib.sha256(json.dumps([dict(answers), received_at], sort_keys=True).encode()).hexdigest()
    return b"".join(
        _run(run, f"import-{sha[:12]}-{stamp[:6]}-{number:02d}", reading, format_key, file_name, sha, answers, assumed,
             received_at)
        for number, run in enumerate(reading.runs)
    )


def _run(
    run: ForeignRun, run_id: str, reading: Reading, format_key: str, file_name: str, sha: str,
    answers: Mapping[str, str], assumed: Mapping[str, str], received_at: str,
) -> bytes:
    started_at = run.started_at or received_at
    request: dict[str, Any] = {
        "format": format_key, "file": file_name, "sha256": sha, "answers": dict(answers), "assumed": dict(assumed),
        "started_at": "as the file says" if run.started_at else "when the file came",
    }
    if run.attach:
        request["attach"] = run.attach
    header = RunHeader(
        started_at, "imported", file_name, _device(run.board),
        Host(run.host.get("cpu"), run.host.get("cores"), run.host.get("ram_bytes"), run.host.get("os"),
             run.host.get("platform")),
        Software(run.software.get("python"), run.software.get("torch"), run.software.get("cuda"),
                 run.software.get("cudnn"), run.software.get("driver")),
        dict(run.settings), request,
    )
    records: list[Any] = [header]
    records += [Note("import", sentence[:2000], started_at) for sentence in reading.said[:20]]
    if run.log is not None:
        records += _log_notes(run.log, started_at)
    records += [cell for task in run.tasks if (cell := _checked(task, run.board, format_key, reading)) is not None]
    records.append(End("done", "imported", started_at))
    lines = [encode_line(Line(run_id, seq, record)) for seq, record in enumerate(records)]
    for line in lines:
        decode_line(line)
    return b"".join(lines)


def _checked(task: Task, board: Board, format_key: str, reading: Reading) -> Cell | None:
    cell = _cell(task, board, format_key)
    try:
        decode_line(encode_line(Line("import", 0, cell)))
    except RecordError as error:
        reading.problems.append(Problem(0, f"{task.name}, {error.field}"[:200], error.raw_found, error.expected))
        return None
    except ValueError:  # an endless number, or half a character
        reading.problems.append(Problem(0, task.name[:200], "a number or a text that JSON does not hold", "a number"))
        return None
    return cell


def _device(board: Board) -> Device:
    kind = "cpu" if board.is_cpu else "cuda"
    # Without a UUID every file of a card's name counts as one board: nothing says that there were several.
    identity = uuid_hash(board.uuid) if board.uuid else uuid_hash(f"imported {board.name}")
    return Device(
        kind, board.name[:200], identity, board.compute_capability, board.sm_count, board.memory_bytes,  # type: ignore[arg-type]
        power_limit_w=board.power_limit_w,
    )


def _cell(task: Task, board: Board, format_key: str) -> Cell:
    variant = [task.variant] if task.variant else []
    variant += [f"{board.count} GPUs"] if board.count > 1 else []
    work = WorkKey(
        task.name[:500], ", ".join(variant)[:500] or None, FOREIGN, format_key, "not stated", task.frames, task.height,
        task.width, task.points, task.batch, items_per_run=task.items_per_run,
    )
    return Cell(
        process=0, workload=Workload(work, SettingKey(task.precision, task.execution)), status=task.status,
        reason=task.reason, first_call_ms=task.first_call_ms, warmup_ms=task.warmup_ms, wall_ms=task.times_ms,
        stop_rule=task.how or None, peak_bytes=task.peak_bytes, energy_j=task.energy_j,
        execution_path={name: value for name, value in task.stated.items()
                        if not isinstance(value, float) or math.isfinite(value)},
        kernel_busy_ms=task.kernel_busy_ms, profiled_wall_ms=task.profiled_wall_ms,
        ops=task.ops,
    )


def _log_notes(log: Log, at: str) -> Iterable[Note]:
    length = max((len(values) for values in log.columns.values()), default=0)
    for first in range(0, length, LOG_ROWS_PER_LINE):
        part = {name: list(values[first:first + LOG_ROWS_PER_LINE]) for name, values in log.columns.items()}
        last = min(first + LOG_ROWS_PER_LINE, length)
        yield Note(LOG_EVENT, f"readings {first + 1} to {last} of {length}", at, {"columns": part})
