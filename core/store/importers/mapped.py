"""Any other table, CSV or Parquet: a person says once what its columns mean."""
from __future__ import annotations

import io
import re
from collections.abc import Sequence

from core.store.importers.devices import FLOAT_WORDS, PRECISION_CHOICES, PRECISION_WORDS, ask_board
from core.store.importers.model import ForeignRun, Given, Interview, Problem, Reading, RefusedError, Task
from core.store.importers.text import (
    MAX_COLUMN_NAME,
    MS_PER_UNIT,
    RATE_UNIT,
    TIME_UNITS,
    Table,
    is_missing,
    mark_of,
    split_header,
    time_unit,
    with_unit,
)

KEY, TITLE = "table", "table"
PARQUET_MAGIC = b"PAR1"
MAX_PARQUET_ROWS, MAX_PARQUET_BYTES, MAX_PARQUET_COLUMNS = 200_000, 100_000_000, 500

COLUMN = "column: "
"""An answer that starts with this names a column; any other one holds for all rows."""

NONE = "none"
_TASK_COLUMNS = ("task", "model", "workload", "benchmark", "name", "label", "test", "op", "kernel")
_GPU_COLUMNS = ("gpu", "gpu_name", "device", "device_name", "card", "name_gpu", "accelerator", "hardware")
_PRECISION_COLUMNS = ("precision", "dtype", "data_type")
_BATCH_COLUMNS = ("batch", "batch_size", "bs", "batchsize")
_FAILED_COLUMNS = ("aborted", "failed", "error", "oom")


def recognises(given: Given) -> bool:
    return given.table is not None and bool(_numeric(given.table, False))


def read(given: Given, interview: Interview) -> Reading:
    table = given.table
    assert table is not None
    reading = Reading(columns=table.columns)
    for line in table.preamble[:5]:
        reading.said.append(f"A line above the header was left out: {line}")
    comma = _decimal_comma(table, interview, reading)
    numeric = _numeric(table, comma)
    words = [COLUMN + name for name in table.columns if name not in numeric]
    time = interview.ask("time", "Which column holds the time of one pass (or the rate)?", numeric,
                         _only(numeric, _is_time))
    unit = _unit(table, time, interview, comma)
    task = interview.ask("task", "What was measured: a column that names it, or a name for all rows?", words,
                         _column(words, _TASK_COLUMNS) or given.stem, free=True)
    gpu = _ask_gpu(words, interview)
    all_columns = [COLUMN + name for name in table.columns]
    precision = interview.ask("precision", "In which precision did it run: a column, or one for all rows?",
                              [*PRECISION_CHOICES, *words], _column(words, _PRECISION_COLUMNS))
    batch = interview.ask("batch", "How many items are in one pass: a column, or a number for all rows?", all_columns,
                          _column(all_columns, _BATCH_COLUMNS) or "1", free=True)
    chosen = [answer.removeprefix(COLUMN) for answer in (time, task, gpu, precision, batch)
              if answer is not None and (answer.startswith(COLUMN) or answer == time)]
    others = [name for name in table.columns if name not in chosen]
    same = len({_key(row, table, [c for c in chosen if c != time]) for row in table.rows}) < len(table.rows)
    apart = interview.ask(
        "apart", "Several rows say the same of task, GPU, precision and batch. Which other columns tell works apart? "
        "none: the rows are repetitions.", [NONE, *others], None if same else NONE, many=True,
    ) if others else NONE
    separator = {",": ", separated by commas", ";": ", separated by semicolons", "\t": ", separated by tabs",
                 "|": ", separated by bars"}.get(table.delimiter, "")
    reading.said.append(f"{len(table.rows)} rows of {len(table.columns)} columns{separator}"
                        f"{', with a decimal comma' if comma else ''}.")
    if None in (time, unit, task, gpu, precision, batch, apart):
        return reading
    _collect(table, reading, interview, comma, str(time), str(unit), str(task), str(gpu), str(precision), str(batch),
             [name.strip() for name in str(apart).split(";") if name.strip() != NONE])
    return reading


def _collect(
    table: Table, reading: Reading, interview: Interview, comma: bool, time: str, unit: str, task: str, gpu: str,
    precision: str, batch: str, apart: list[str],
) -> None:
    """Rows as tasks, one run per device; rows that agree in all of it are repetitions of one another."""
    named = [answer.removeprefix(COLUMN) for answer in (task, gpu, precision, batch) if answer.startswith(COLUMN)]
    for name in (time, *apart, *named):
        if name not in table.columns:
            raise RefusedError(f"no column {name[:60]}", "one of " + ", ".join(table.columns[:20]))
    failed = [name for name in table.columns if name.lower() in _FAILED_COLUMNS]
    groups: dict[tuple[str, str, str, int, str], list[float]] = {}
    broken: dict[tuple[str, str, str, int, str], str] = {}
    for row, line in zip(table.rows, table.lines, strict=True):
        if len(row) != len(table.columns):
            reading.problems.append(Problem(line, "(line)", f"{len(row)} fields",
                                            f"{len(table.columns)}, as the header has"))
            continue
        cells = dict(zip(table.columns, row, strict=True))
        count = _batch(_of(batch, cells), comma)
        kind = _precision(_of(precision, cells))
        device = _of(gpu, cells)
        if count is None or kind is None or is_missing(device) or is_missing(_of(task, cells)):
            field, found = (("batch", _of(batch, cells)) if count is None else ("precision", _of(precision, cells))
                            if kind is None else ("gpu or task", f"{device} {_of(task, cells)}"))
            reading.problems.append(Problem(line, field, found[:40] or "nothing", "a value"))
            continue
        label = ", ".join(f"{name} {cells[name]}" for name in apart)[:300]
        key = (device, _of(task, cells)[:300], kind, count, label)
        stopped = next((name for name in failed if cells[name].lower() in ("1", "true", "yes")), None)
        value, own_unit = with_unit(cells[time], comma)
        time_ms = _ms(value, time_unit(own_unit) or unit)
        if stopped is not None:
            broken.setdefault(key, f"the row says {stopped}")
        elif time_ms is None:
            found = cells[time][:40] or "nothing"
            reading.problems.append(Problem(line, time, found, "a number above 0 (a rate of 0 means: not run)"))
        else:
            groups.setdefault(key, []).append(time_ms)
    by_device: dict[str, list[Task]] = {}
    how = f"1 / {time}" if unit == RATE_UNIT else f"every row's {time}"
    for key in dict.fromkeys((*groups, *broken)):
        device, name, kind, count, label = key
        times = tuple(groups.get(key, ()))
        # A rate counts items, a time counts passes: of the rate, the time of one pass is batch / rate.
        scaled = tuple(t * count for t in times) if unit == RATE_UNIT else times
        by_device.setdefault(device, []).append(Task(
            name, kind, scaled, how, variant=label or None, batch=count, status="ok" if times else "failed",
            reason=None if times else broken[key],
        ))
    if not by_device:
        raise RefusedError(f"not one row with a time in {time[:60]}", "numbers above 0 in that column")
    for device, tasks in by_device.items():
        own = Interview({"gpu": device})
        board = ask_board(own, reading, None)
        if board is not None:
            reading.runs.append(ForeignRun(board, tuple(tasks)))


def _of(answer: str, cells: dict[str, str]) -> str:
    return cells[answer.removeprefix(COLUMN)] if answer.startswith(COLUMN) else answer


def _key(row: tuple[str, ...], table: Table, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(row[table.columns.index(name)] if name in table.columns and len(row) == len(table.columns) else ""
                 for name in names)


def _batch(text: str, comma: bool) -> int | None:
    value = with_unit(text, comma)[0]
    return int(value) if value is not None and 1 <= value < 1e9 and value == int(value) else None


def _precision(text: str) -> str | None:
    word = text.strip().lower()
    if word in PRECISION_CHOICES:
        return word
    return PRECISION_WORDS.get(word) or ("default" if word in FLOAT_WORDS else None)


def _ms(value: float | None, unit: str | None) -> float | None:
    """Milliseconds; of a rate the time of one item. What is 0 or less is no measurement."""
    if value is None or value <= 0 or unit is None:
        return None
    made = 1e3 / value if unit == RATE_UNIT else value * MS_PER_UNIT[unit]
    return made if 1e-9 <= made < 1e15 else None


def _ask_gpu(words: list[str], interview: Interview) -> str | None:
    return interview.ask("gpu", "Which device: a column that names it, or one for all rows? A GPU by its name, or cpu.",
                         words, _column(words, _GPU_COLUMNS), free=True)


def _decimal_comma(table: Table, interview: Interview, reading: Reading) -> bool:
    cells = [cell for row in table.rows[:2000] for cell in row if "," in cell and with_unit(cell.replace(",", ""))[0]
             is not None]
    if not cells:
        return False
    mark = mark_of(cells, table.delimiter)
    if mark is None:
        answer = interview.ask("decimal", f"What does the comma in {cells[0][:20]} mean?",
                               ("decimal mark", "groups thousands"))
        return answer == "decimal mark"
    return mark == "decimal"


def _numeric(table: Table, comma: bool) -> list[str]:
    """Columns of which at least half of what is there are numbers, with or without a unit."""
    found = []
    for place, name in enumerate(table.columns):
        cells = [row[place] for row in table.rows[:500] if len(row) == len(table.columns)]
        there = [cell for cell in cells if not is_missing(cell)]
        numbers = [cell for cell in there if with_unit(cell.replace(",", "") if not comma else cell, comma)[0]
                   is not None]
        if there and 2 * len(numbers) >= len(there):
            found.append(name)
    return found


def _is_time(name: str) -> bool:
    word, unit = split_header(name)
    if time_unit(unit) is not None:
        return True
    return re.search(r"\b(time|latency|duration|wall|elapsed|runtime|fps|throughput)\b",
                     word.lower().replace("_", " ")) is not None


def _only(names: Sequence[str], fits: object) -> str | None:
    found = [name for name in names if callable(fits) and fits(name)]
    return found[0] if len(found) == 1 else None


def _column(words: Sequence[str], names: Sequence[str]) -> str | None:
    """The column with one of these names, the earlier name first."""
    by_name = {word.removeprefix(COLUMN).strip().lower().replace(" ", "_"): word for word in words}
    return next((by_name[name] for name in names if name in by_name), None)


def _unit(table: Table, time: str | None, interview: Interview, comma: bool) -> str | None:
    """Said by the header or by every cell, else asked."""
    stated = None
    if time is not None and time in table.columns:
        stated = time_unit(split_header(time)[1])
        place = table.columns.index(time)
        units = {time_unit(with_unit(row[place], comma)[1]) for row in table.rows[:500]
                 if len(row) == len(table.columns) and not is_missing(row[place])}
        if stated is None and None not in units and units:
            stated = next(iter(units))
    answer = interview.said("unit")
    if stated is not None and answer is None:
        return stated
    if answer is not None and answer not in (*TIME_UNITS, RATE_UNIT):
        raise RefusedError(f"the answer unit={answer[:40]}", "one of " + ", ".join((*TIME_UNITS, RATE_UNIT)))
    return answer or interview.ask("unit", "In which unit is it? Items per second is a rate; TFLOPS say no time.",
                                   (*TIME_UNITS, RATE_UNIT))


# --- Parquet ---------------------------------------------------------------------------------------------------------


def read_parquet(data: bytes, name: str) -> Given:
    """A Parquet file as the table of words that a CSV would be. Its footer is looked at before any row.

    Raises `RefusedError`: too many rows or bytes, columns that are no plain values, a damaged file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = "a run file, or a table with plain columns and at most 200000 rows"
    try:
        footer = pq.read_metadata(io.BytesIO(data))
        size = sum(footer.row_group(i).total_byte_size for i in range(min(footer.num_row_groups, 10_000)))
        if footer.num_rows > MAX_PARQUET_ROWS or footer.num_row_groups > 10_000:
            raise RefusedError(f"a Parquet table of {footer.num_rows} rows", expected, "aggregate it first")
        if size > MAX_PARQUET_BYTES or footer.num_columns > MAX_PARQUET_COLUMNS:
            raise RefusedError(f"a Parquet table of {size} bytes unpacked, {footer.num_columns} columns", expected,
                               "keep the columns that say what took how long")
        table = pq.ParquetFile(io.BytesIO(data)).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise RefusedError(f"a Parquet table that cannot be read ({str(error).splitlines()[0][:120]})", expected,
                           "write it again") from None
    plain = [f.name for f in table.schema if not pa.types.is_nested(f.type) and not pa.types.is_binary(f.type)
             and not pa.types.is_large_binary(f.type)]
    table = table.select([name for name in dict.fromkeys(plain) if plain.count(name) == 1
                          and len(name) <= MAX_COLUMN_NAME])
    if not table.num_columns or not table.num_rows:
        raise RefusedError("a Parquet table without rows of plain columns", expected)
    columns = [["" if value is None else str(value)[:1000] for value in column.to_pylist()]
               for column in table.columns]
    rows = tuple(zip(*columns, strict=True))
    return _Parquet(name, b"", Table(tuple(table.column_names), rows, tuple(range(1, len(rows) + 1)), ""))


class _Parquet(Given):
    """A file whose table is known; it has no text."""

    def __init__(self, name: str, data: bytes, table: Table) -> None:
        super().__init__(name, data)
        object.__setattr__(self, "_table", table)

    @property
    def table(self) -> Table | None:  # type: ignore[override]
        return self._table  # type: ignore[attr-defined, no-any-return]
