"""Tables whose columns mean something known: per-model times, ptlflow, Triton's perf_report, metric-value-unit."""
from __future__ import annotations

import re

from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Problem, Reading, RefusedError, Task
from core.store.importers.text import (
    MS_PER_UNIT,
    RATE_UNIT,
    TIME_UNITS,
    Table,
    epoch_s,
    is_missing,
    iso_utc,
    number,
    time_unit,
)


def _times(table: Table, place: int, factor: float, reading: Reading) -> list[float]:
    found = []
    for row, line in zip(table.rows, table.lines, strict=True):
        if len(row) != len(table.columns):
            continue  # named once, by `_check_lengths`
        value = number(row[place])
        if value is not None and value > 0:
            found.append(value * factor)
        elif row[place].strip():
            reading.problems.append(Problem(line, table.columns[place], row[place][:40], "a number above 0"))
    return found


def _check_lengths(table: Table, reading: Reading) -> None:
    for row, line in zip(table.rows, table.lines, strict=True):
        if len(row) != len(table.columns):
            reading.problems.append(Problem(line, "(line)", f"{len(row)} fields",
                                            f"{len(table.columns)}, as the header has"))


# --- per-model times, the GPU in the file name -----------------------------------------------------------------------

PERMODEL_KEY, PERMODEL_TITLE = "per-model", "times per model, the GPU in the file name"
INFO_KEY, INFO_TITLE = "per-model-info", "system information of per-model times"

_FILE_NAME = re.compile(
    r"(?:permodel_ms_)?(?P<gpu>.+?)(?:_(?P<count>\d+)_gpus_)?_+(?P<precision>float|half|double|single)"
    r"(?:_model)?_(?P<what>inference|train|training)(?:_benchmark)?(?:[ _(].*)?\.csv", re.IGNORECASE)
STEP_ITEMS = 12
"""Images in one step on one GPU in pytorch-gpu-benchmark, by its own default."""


def is_permodel(given: Given) -> bool:
    table = given.table
    if table is None or _FILE_NAME.fullmatch(given.name) is None:
        return False
    return all(number(cell) is not None for row in table.rows[:3] for cell in row)


def read_permodel(given: Given, interview: Interview) -> Reading:
    """Columns are models, rows are steps in ms. The first rows are warm-up only if a person says so."""
    table, name = given.table, _FILE_NAME.fullmatch(given.name)
    assert table is not None
    assert name is not None
    reading = Reading(columns=table.columns)
    _check_lengths(table, reading)
    count = int(name["count"] or 1)
    word = name["precision"].lower()
    stated = name["gpu"].replace("_", " ").strip()
    board = ask_board(interview, reading, f"{count}x {stated}" if count > 1 else stated)
    precision = ask_precision(interview, "float" if word == "single" else word)
    unit = interview.ask("unit", "In which unit are the times?", TIME_UNITS, "ms")
    batch = interview.number("batch", "How many images does one step take, on all GPUs?", STEP_ITEMS * count)
    warm = interview.number("warmup", "How many of the first rows are warm-up?", 0)
    tasks = []
    for place, model in enumerate(table.columns):
        times = _times(table, place, MS_PER_UNIT[unit or "ms"], reading)
        if len(times) <= warm:
            reading.problems.append(Problem(1, model, f"{len(times)} times", f"more than {warm}"))
        elif precision is not None:
            tasks.append(Task(f"{model} {name['what'].lower()}", precision, tuple(times[warm:]), "every step",
                              batch=batch, warmup_ms=tuple(times[:warm])))
    reading.said.append(f"{len(table.columns)} models, {len(table.rows)} steps each, {stated} by the file's name.")
    if board is not None:
        reading.runs.append(ForeignRun(board, tuple(tasks), software=_software(interview)))
    return reading


def _software(interview: Interview) -> dict[str, str]:
    found = {key: interview.said(key) for key in ("cuda", "cudnn")}
    return {key: value for key, value in found.items() if value}


def is_permodel_info(given: Given) -> bool:
    return "gpu_configs" in given.text[:4000] and "Device Name" in given.text[:20_000]


def read_permodel_info(given: Given, interview: Interview) -> Reading:
    """Facts for the tables beside it. The GPU and how many of them a run used are in the name of its table."""
    lines = dict(re.findall(r"^\s*([A-Za-z ]+?)\s*:\s*(.+?)\s*$", given.text[:200_000], re.MULTILINE))
    words = (("cuda", "CUDA Version"), ("cudnn", "Cudnn Version"))
    facts = {key: lines[word] for key, word in words if lines.get(word)}
    said = [f"Device {lines.get('Device Name', 'not named')}, CUDA {facts.get('cuda', 'not named')}."]
    if lines.get("Number of GPUs on current device", "1") != "1":
        said.append(f"The machine has {lines['Number of GPUs on current device']} GPUs; how many a run used is in the "
                    "name of its table.")
    return Reading(said=said, facts=facts, facts_for=PERMODEL_KEY)


# --- ptlflow ---------------------------------------------------------------------------------------------------------

PTLFLOW_KEY, PTLFLOW_TITLE = "ptlflow", "ptlflow table of models"

_TIME_COLUMN = re.compile(r"Time\((\w+)\)(?:-(\w+))?")
_MEMORY_COLUMN = re.compile(r"Memory\(GB\)(?:-(\w+))?")


def is_ptlflow(given: Given) -> bool:
    table = given.table
    return table is not None and {"Model", "InputH", "InputW"} <= set(table.columns) and any(
        _TIME_COLUMN.fullmatch(name) for name in table.columns)


def read_ptlflow(given: Given, interview: Interview) -> Reading:
    """One pair of frames a pass; unit and precision stand in the column names."""
    table = given.table
    assert table is not None
    reading = Reading(columns=table.columns)
    _check_lengths(table, reading)
    board = ask_board(interview, reading, None)
    tasks = []
    for place, column in enumerate(table.columns):
        named = _TIME_COLUMN.fullmatch(column)
        if named is None:
            continue
        factor = MS_PER_UNIT.get(named[1].lower())
        precision = ask_precision(interview, named[2])
        memory = next((p for p, name in enumerate(table.columns)
                       if (m := _MEMORY_COLUMN.fullmatch(name)) and m[1] == named[2]), None)
        for row, line in zip(table.rows, table.lines, strict=True):
            if len(row) != len(table.columns) or factor is None:
                continue
            cells = dict(zip(table.columns, row, strict=True))
            time, height, width = number(row[place]), number(cells["InputH"]), number(cells["InputW"])
            if time is None or time <= 0 or not height or not width:
                if not is_missing(row[place]):
                    reading.problems.append(Problem(line, column, row[place][:40], "a number above 0"))
                continue
            gb = number(row[memory]) if memory is not None else None
            if precision is not None:
                tasks.append(Task(cells["Model"], precision, (time * factor,), "one number as the file states it",
                                  frames=2, height=int(height), width=int(width),
                                  peak_bytes=int(gb * 1e9) if gb else None))
    reading.said.append(f"{len(table.rows)} models, " + ", ".join(
        name for name in table.columns if _TIME_COLUMN.fullmatch(name)) + "; one pair of frames a pass.")
    if board is not None:
        reading.runs.append(ForeignRun(board, tuple(tasks)))
    return reading


# --- Triton perf_report ----------------------------------------------------------------------------------------------

TRITON_KEY, TRITON_TITLE = "triton", "Triton perf_report table"
_PROVIDERS = ("triton", "cublas", "cudnn", "torch", "rocblas", "flash", "naive", "inductor")


def is_triton(given: Given) -> bool:
    """Columns of sizes, then columns named after libraries, and numbers alone below."""
    table = given.table
    if table is None or not any(name.lower().startswith(_PROVIDERS) for name in table.columns):
        return False
    return all(is_missing(cell) or number(cell) is not None for row in table.rows[:5] for cell in row)


def read_triton(given: Given, interview: Interview) -> Reading:
    """The unit stands only in the program that wrote it, so it is asked: TFLOPS need M, N and K to become times."""
    table = given.table
    assert table is not None
    reading = Reading(columns=table.columns)
    _check_lengths(table, reading)
    first = next(p for p, name in enumerate(table.columns) if name.lower().startswith(_PROVIDERS))
    sizes = [name for name in table.columns[:first] if name]
    lines = [name for name in table.columns[first:] if not name.endswith(("-min", "-max"))]
    matmul = {"M", "N", "K"} <= set(sizes)
    unit = interview.ask("unit", "In which unit are the figures? The axis label of the program has it (ylabel); "
                         "higher is better for TFLOPS, lower for times.",
                         ("ms", "us", "s", *(("TFLOPS",) if matmul else ())))
    board = ask_board(interview, reading, None)
    precision = ask_precision(interview, None)
    name = interview.ask("task", "What was measured?", default=given.stem, free=True)
    groups: dict[tuple[str, str], list[float]] = {}
    for row, line in zip(table.rows, table.lines, strict=True):
        if len(row) != len(table.columns):
            continue
        cells = dict(zip(table.columns, row, strict=True))
        label = ", ".join(f"{size}={number(cells[size]) or 0:g}" for size in sizes)
        for library in lines:
            value = number(cells[library])
            if value is None or value <= 0:
                if not is_missing(cells[library]):
                    reading.problems.append(Problem(line, library, cells[library][:40], "a number above 0"))
                continue
            if unit == "TFLOPS":
                flops = 2.0
                for size in ("M", "N", "K"):
                    flops *= number(cells[size]) or 0.0
                value = flops / (value * 1e12) * 1e3
                if value <= 0:
                    continue
            else:
                value *= MS_PER_UNIT[unit or "ms"]
            groups.setdefault((label, library), []).append(value)
    repeated = sum(len(times) > 1 for times in groups.values())
    reading.said.append(f"{len(groups)} points: {', '.join(lines)} over {', '.join(sizes) or 'nothing'}"
                        + (f"; {repeated} of them stand in several rows, taken as repetitions." if repeated else "."))
    how = "out of TFLOPS: 2 M N K / rate" if unit == "TFLOPS" else "one number a row"
    # The library is the setting: it does the same work, so that libraries and cards can be compared.
    tasks = tuple(
        Task(name, precision, tuple(times), how, variant=label or None, execution=library[:60])
        for (label, library), times in groups.items() if precision is not None and name is not None
    )
    if board is not None:
        reading.runs.append(ForeignRun(board, tasks))
    return reading


# --- metric, value, unit ---------------------------------------------------------------------------------------------

METRIC_KEY, METRIC_TITLE = "metric-value-unit", "metric, value, unit table"


def is_metric(given: Given) -> bool:
    return given.table is not None and [name.lower() for name in given.table.columns] == ["metric", "value", "unit"]


def read_metric(given: Given, interview: Interview) -> Reading:
    """Numbers and words share a column. Times are rows with a unit of time; a rate of few digits is not made one."""
    table = given.table
    assert table is not None
    reading = Reading()
    _check_lengths(table, reading)
    rows: dict[str, tuple[str, str, int]] = {}
    for row, line in zip(table.rows, table.lines, strict=True):
        if len(row) == 3 and rows.setdefault(row[0], (row[1], row[2], line))[2] != line:
            reading.problems.append(Problem(line, row[0], "the same metric again", "each metric once"))
    # Every such table has the same three columns; what it is about is in its metrics.
    reading.columns = tuple(rows)
    device = rows.get("device", ("", "", 0))[0]
    stated = re.sub(r"^(?:CUDA|cuda|GPU)\s*-\s*", "", device).strip() or None
    board = ask_board(interview, reading, stated)
    half = rows.get("fp16", ("", "", 0))[0].lower() == "true"
    precision = ask_precision(interview, "fp16" if half else "float" if "fp16" in rows else None)
    kind = rows.get("test_type", (given.stem, "", 0))[0]
    model = rows.get("model_name", ("", "", 0))[0]
    tasks: list[Task] = []
    seen_ms: dict[str, float] = {}
    for metric, (text, unit, line) in rows.items():
        unit_of_time = time_unit(unit)
        if unit_of_time is None or unit_of_time == RATE_UNIT:
            if unit.lower().endswith("/s") and len(re.sub(r"\D", "", text).lstrip("0")) < 2:
                reading.said.append(f"{metric} is {text} {unit}: a rate of so few digits makes no time, left out.")
            continue
        value = number(text)
        if value is None or value <= 0:
            reading.problems.append(Problem(line, metric, text[:40], "a number above 0"))
            continue
        time_ms = value * MS_PER_UNIT[unit_of_time]
        other_ms = seen_ms.get(re.sub(r"_(?:minutes|hours|seconds|ms)$", "", metric))
        if other_ms is not None and abs(time_ms / other_ms - 1) < 0.01:
            continue  # the same time in minutes
        seen_ms[metric] = time_ms
        batch = number(rows.get("inference_batch_size" if metric.startswith("inference") else "batch_size",
                                ("", "", 0))[0])
        if precision is not None:
            tasks.append(Task(f"{model} {kind} {metric}".strip(), precision, (time_ms,),
                              "one number as the file states it", batch=int(batch) if batch and batch >= 1 else 1))
    if not seen_ms:
        raise RefusedError("a metric table without a time", "a row with a unit of time, such as seconds")
    reading.said.append(f"{len(rows)} metrics, {len(seen_ms)} of them times.")
    stamp = epoch_s(rows.get("timestamp", ("", "", 0))[0])
    if board is not None:
        reading.runs.append(ForeignRun(board, tuple(tasks), started_at=iso_utc(stamp[0]) if stamp else None))
    return reading


