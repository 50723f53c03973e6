"""All formats in the order in which they are tried, and one reading of a file with the answers so far."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core.records import RecordError
from core.store.importers import (
    benchmark_json,
    mapped,
    mlperf,
    nsys,
    nvbench,
    nvidia_smi,
    optimum,
    tables,
    torch_profiler,
)
from core.store.importers.lines import encode
from core.store.importers.model import ForeignRun, Given, Interview, Reading, RefusedError, with_article
from core.store.importers.text import why_no_table

MAX_PROBLEMS, MAX_TABLE_ROWS, MAX_SAMPLE_ROWS = 100, 200, 5
MAX_FACT = 500
"""Characters of what a file says of another one, and of a cell that is shown."""


@dataclass(frozen=True)
class Format:
    """`recognises` looks at the content (for per-model tables at the name, too); `read` may raise `RefusedError`."""

    key: str
    title: str
    recognises: Callable[[Given], bool]
    read: Callable[[Given, Interview], Reading]


FORMATS = (
    Format(torch_profiler.KEY, torch_profiler.TITLE, torch_profiler.recognises, torch_profiler.read),
    Format(optimum.KEY, optimum.TITLE, optimum.recognises, optimum.read),
    Format(optimum.CONFIG_KEY, optimum.CONFIG_TITLE, optimum.recognises_config, optimum.read_config),
    Format("pytest-benchmark", "pytest-benchmark result", benchmark_json.is_pytest, benchmark_json.read_pytest),
    Format("pyperf", "pyperf result", benchmark_json.is_pyperf, benchmark_json.read_pyperf),
    Format(nvbench.KEY, nvbench.TITLE, nvbench.recognises, nvbench.read),
    Format("google-benchmark", "google-benchmark result", benchmark_json.is_google, benchmark_json.read_google),
    Format("asv", "asv result", benchmark_json.is_asv, benchmark_json.read_asv),
    Format("asv-machine", "asv machine description", benchmark_json.is_asv_machine, benchmark_json.read_asv_machine),
    Format(mlperf.SYSTEM_KEY, mlperf.SYSTEM_TITLE, mlperf.recognises_system, mlperf.read_system),
    Format(mlperf.KEY, mlperf.TITLE, mlperf.recognises, mlperf.read),
    Format(tables.INFO_KEY, tables.INFO_TITLE, tables.is_permodel_info, tables.read_permodel_info),
    Format(nsys.KEY, nsys.TITLE, nsys.recognises, nsys.read),
    Format(nvidia_smi.KEY, nvidia_smi.TITLE, nvidia_smi.recognises, nvidia_smi.read),
    Format(nvbench.CSV_KEY, nvbench.CSV_TITLE, nvbench.recognises_table, nvbench.read_table),
    Format(tables.PTLFLOW_KEY, tables.PTLFLOW_TITLE, tables.is_ptlflow, tables.read_ptlflow),
    Format(tables.METRIC_KEY, tables.METRIC_TITLE, tables.is_metric, tables.read_metric),
    Format(tables.PERMODEL_KEY, tables.PERMODEL_TITLE, tables.is_permodel, tables.read_permodel),
    Format(tables.TRITON_KEY, tables.TRITON_TITLE, tables.is_triton, tables.read_triton),
    Format(mapped.KEY, mapped.TITLE, mapped.recognises, mapped.read),
)


def recognise(given: Given) -> Format | None:
    """The format of a file, None for one that nothing here knows."""
    return next((known for known in FORMATS if _recognises(known, given)), None)


def why_unknown(given: Given) -> str:
    """What a file is that no format here recognises, as far as it can be told."""
    try:
        start = given.text.lstrip()[:1]
    except RefusedError as error:
        return error.found
    if start in ("{", "["):
        if given.json_trouble is not None:
            return f"no JSON as a whole ({given.json_trouble})"
        keys = ", ".join(str(key)[:40] for key in list(given.json)[:6]) if isinstance(given.json, dict) else ""
        return f"JSON in no shape that is known here{f' (its keys: {keys})' if keys else ''}"
    if given.table is None:
        return f"no table either ({why_no_table(given.text)})"
    return f"a table without a column of numbers ({', '.join(given.table.columns)[:120]})"


def _recognises(known: Format, given: Given) -> bool:
    """A recogniser looks for what it knows and may trip over what else a stranger put there: then it is not its."""
    try:
        return known.recognises(given)
    except (RefusedError, AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError):
        return False


def understand(
    known: Format, given: Given, sha: str, answers: Mapping[str, str], received_at: str
) -> dict[str, Any]:
    """What the file holds as JSON values; `lines` is None while a question without default is open.

    Raises `RefusedError`: what was recognised, what not, and how to export it better.
    """
    interview, titled = Interview(answers), with_article(known.title)
    twice = given.key_given_twice
    if twice is not None and known.key != torch_profiler.KEY:
        raise RefusedError(f"{titled} in which an object has the key {twice} twice", "each key once", "export it again")
    try:
        reading = known.read(given, interview)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError, OverflowError) as error:
        # A reader takes the parts that it knows to be what they are in the format; a file that only looks like it
        # ends here.
        raise RefusedError(f"{titled} with something else in it than the format has ({type(error).__name__})", titled,
                           "export it again") from None
    unknown = interview.unknown()
    if unknown:
        keys = sorted({*interview.questions, *interview.used})
        raise RefusedError(f"an answer to {unknown[0][:40]}, which nobody asked", "one of " + ", ".join(keys))
    lines: bytes | None = None
    if not interview.is_open and reading.facts_for is None:
        try:
            lines = encode(reading, format_key=known.key, file_name=given.name, sha=sha, answers=interview.used,
                           assumed=interview.assumed, received_at=received_at)
        except (ValueError, RecordError) as error:
            raise RefusedError(f"{titled} with a value that no run file holds ({str(error)[:120]})", titled) from None
        if b'"kind":"cell"' not in lines and not any(run.log for run in reading.runs):
            raise RefusedError(f"{titled} without a figure that can be used", "at least one time")
    if twice is not None:
        reading.said.append(f"The key {twice} stands twice in one of its events; the last one counts.")
    table = given.table if known.key == mapped.KEY else None
    result = {
        "format": known.key, "title": known.title, "said": reading.said[:30],
        "questions": [asdict(question) for question in interview.questions.values()],
        "assumed": interview.assumed, "answers": interview.used,
        "problems": [[p.line, p.field[:120], p.found[:200], p.expected[:200]] for p in reading.problems[:MAX_PROBLEMS]],
        "left_out": len(reading.problems), "columns": list(reading.columns),
        "facts": {key: value[:MAX_FACT] for key, value in reading.facts.items()},
        "facts_for": reading.facts_for, "tasks": _task_table(reading.runs),
        "sample": [[cell[:MAX_FACT] for cell in row] for row in (table.columns, *table.rows[:MAX_SAMPLE_ROWS])]
        if table is not None else [],
    }
    return {**_printable(result), "lines": lines.decode() if lines is not None else None}


def _printable(value: Any) -> Any:
    """The same with every text one that can be encoded: JSON may hold half a character."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return value


def _task_table(runs: list[ForeignRun]) -> list[dict[str, Any]]:
    """The first tasks as they were understood."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        for task in run.tasks[:MAX_TABLE_ROWS - len(rows)]:
            ordered = sorted(task.times_ms)
            half = len(ordered) // 2
            middle = (None if not ordered else ordered[half] if len(ordered) % 2
                      else (ordered[half - 1] + ordered[half]) / 2)
            rows.append({
                "task": task.name[:200], "variant": task.variant, "gpu": run.board.name, "gpus": run.board.count,
                "precision": task.precision, "batch": task.batch, "n": len(ordered), "median_ms": middle,
                "status": task.status, "how": task.how,
            })
    return rows
