"""Results of benchmark programs in JSON: pytest-benchmark, google-benchmark, pyperf, asv."""
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Problem, Reading, RefusedError, Task
from core.store.importers.text import MS_PER_UNIT, epoch_s, iso_utc

NO_RAW = "{} of {} rounds, as the file states it"


def _number(value: Any) -> float | None:
    """A finite number above 0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and 0 < value < 1e15:
        return float(value)
    return None


def _numbers(values: Any, factor: float) -> tuple[float, ...]:
    found = [_number(value) for value in values] if isinstance(values, list) else []
    return tuple(value * factor for value in found if value is not None)


def _started(text: Any) -> str | None:
    found = epoch_s(text) if isinstance(text, str) else None
    return iso_utc(found[0]) if found else None


def _rows(given: Given) -> list[Any] | None:
    value = given.json
    rows = value.get("benchmarks") if isinstance(value, dict) else None
    return rows if isinstance(rows, list) else None


# --- pytest-benchmark ------------------------------------------------------------------------------------------------


def is_pytest(given: Given) -> bool:
    rows = _rows(given)
    return rows is not None and "machine_info" in given.json and all(
        isinstance(row, dict) and isinstance(row.get("stats"), dict) for row in rows)


def read_pytest(given: Given, interview: Interview) -> Reading:
    """Seconds; rounds one by one only where they were saved (--benchmark-save-data), else the median as stated."""
    reading = Reading()
    machine = given.json["machine_info"] if isinstance(given.json["machine_info"], dict) else {}
    rows = _rows(given) or []
    cpu = machine.get("cpu")
    cpu_name = str(cpu.get("brand_raw") or cpu.get("brand") or "") if isinstance(cpu, dict) else ""
    extra = [row["extra_info"] for row in rows if isinstance(row.get("extra_info"), dict)]
    stated = next((str(info[key]) for info in extra for key in ("gpu", "gpu_name", "device", "device_name")
                   if isinstance(info.get(key), str)), None)
    board = ask_board(interview, reading, stated, cpu_name=cpu_name or None)
    precision = ask_precision(interview, next((str(info[key]) for info in extra for key in ("precision", "dtype")
                                               if isinstance(info.get(key), str)), None))
    tasks, cold = [], 0
    for row in rows:
        stats = row["stats"]
        name = str(row.get("fullname") or row.get("name") or "benchmark")
        times, how = _numbers(stats.get("data"), 1e3), "every round"
        median = _number(stats.get("median"))
        if not times and median is not None:
            times, how = (median * 1e3,), NO_RAW.format("median", stats.get("rounds"))
        if not times:
            reading.problems.append(Problem(0, f"{name}.stats", "no time above 0", "a median in seconds"))
            continue
        cold += not (row.get("options") or {}).get("warmup")
        if precision is not None:
            known = {f"stated_{key}_ms": value * 1e3 for key in ("min", "max", "mean", "stddev")
                     if (value := _number(stats.get(key))) is not None}
            tasks.append(Task(name, precision, times, how, stated=known | {"stated_rounds": stats.get("rounds")}))
    if not rows:
        raise RefusedError("a pytest-benchmark file without a benchmark", "at least one")
    reading.said.append(f"{len(rows)} benchmarks, seconds.")
    if cold:
        reading.said.append(f"{cold} of them ran without warm-up: on a GPU the first round is in their maximum.")
    if board is not None:
        reading.runs.append(ForeignRun(
            board, tuple(tasks), started_at=_started(given.json.get("datetime")),
            software={"python": str(machine["python_version"])} if "python_version" in machine else {},
            host={"cpu": cpu_name or None, "os": str(machine.get("system") or "") or None},
        ))
    return reading


# --- google-benchmark ------------------------------------------------------------------------------------------------


def is_google(given: Given) -> bool:
    rows = _rows(given)
    return rows is not None and isinstance(given.json.get("context"), dict) and any(
        isinstance(row, dict) and ("real_time" in row or "run_type" in row) for row in rows)


def read_google(given: Given, interview: Interview) -> Reading:
    """Unit per row. Aggregate rows stand in for iterations only where there are none; `cv` is a ratio, no time."""
    reading = Reading()
    context = given.json["context"]
    if context.get("library_build_type") == "debug":
        reading.said.append("The library was built for debugging: its times mean little.")
    board = ask_board(interview, reading, None)
    precision = ask_precision(interview, None)
    single: dict[str, list[float]] = {}
    aggregate: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    left_out = 0
    for row in _rows(given) or []:
        if not isinstance(row, dict):
            continue
        name = str(row.get("run_name") or row.get("name") or "benchmark")
        if row.get("error_occurred"):
            failed[name] = str(row.get("error_message") or "it says only that an error occurred")[:500]
            continue
        time, factor = _number(row.get("real_time")), MS_PER_UNIT.get(str(row.get("time_unit", "ns")))
        kind = row.get("aggregate_name") if row.get("run_type") == "aggregate" else None
        if time is None or factor is None or kind not in (None, "mean", "median"):
            left_out += 1
        elif kind is None:
            single.setdefault(name, []).append(time * factor)
        else:
            aggregate.setdefault(name, {})[str(kind)] = time * factor
    tasks = []
    for name in dict.fromkeys((*single, *aggregate, *failed)):
        if name in single:
            times, how = tuple(single[name]), "every repetition; each is a mean over its iterations"
        elif name in aggregate:
            kind = "median" if "median" in aggregate[name] else "mean"
            times, how = (aggregate[name][kind],), f"{kind} as the file states it"
        else:
            times, how = (), ""
        if precision is not None:
            bad = failed.get(name) if not times else None
            tasks.append(Task(name, precision, times, how, status="failed" if bad else "ok", reason=bad))
    if not tasks and precision is not None:
        raise RefusedError("a google-benchmark file without a time", "rows with real_time above 0")
    reading.said.append(f"{len(single)} benchmarks with times of their own, {len(aggregate.keys() - single.keys())} "
                        f"only as aggregates; {left_out} rows are no times (spreads, fits).")
    if board is not None:
        reading.runs.append(ForeignRun(board, tuple(tasks), started_at=_started(context.get("date")),
                                       host={"cores": context.get("num_cpus")
                                             if isinstance(context.get("num_cpus"), int) else None}))
    return reading


# --- pyperf ----------------------------------------------------------------------------------------------------------


def is_pyperf(given: Given) -> bool:
    rows = _rows(given)
    return bool(rows) and all(isinstance(row, dict) and isinstance(row.get("runs"), list) for row in rows or ())


def read_pyperf(given: Given, interview: Interview) -> Reading:
    """Seconds unless the metadata say otherwise; warm-up values stay apart."""
    reading = Reading()
    common = given.json.get("metadata") if isinstance(given.json.get("metadata"), dict) else {}
    cpu = common.get("cpu_model_name")
    board = ask_board(interview, reading, "cpu", cpu_name=str(cpu) if cpu else None)
    precision = interview.ask("precision", "In which precision did it run? default: as Python computes.",
                              ("default", "fp32", "fp64"), "default")
    tasks, first = [], None
    for row in _rows(given) or []:
        own = {**common, **(row.get("metadata") if isinstance(row.get("metadata"), dict) else {})}
        unit = str(own.get("unit", "second"))
        name = str(own.get("name") or given.stem)
        if unit != "second":
            reading.problems.append(Problem(0, f"{name}.unit", unit[:40], "second"))
            continue
        values: list[float] = []
        warm: list[float] = []
        for run in row["runs"]:
            if isinstance(run, dict):
                values += _numbers(run.get("values"), 1e3)
                warm += _numbers([pair[1] for pair in run.get("warmups") or [] if isinstance(pair, list)
                                  and len(pair) == 2], 1e3)
                meta = run.get("metadata")
                first = first or _started(meta.get("date") if isinstance(meta, dict) else None)
        if values and precision is not None:
            tasks.append(Task(name, precision, tuple(values), "every value", warmup_ms=tuple(warm)))
    if not tasks:
        raise RefusedError("a pyperf file without a value in seconds", "benchmarks[].runs[].values")
    reading.said.append(f"{len(tasks)} benchmarks, {sum(len(task.times_ms) for task in tasks)} values, "
                        f"{sum(len(task.warmup_ms) for task in tasks)} warm-up values apart.")
    if board is not None:
        software = {"python": str(common["python_version"])} if "python_version" in common else {}
        reading.runs.append(ForeignRun(board, tuple(tasks), started_at=first, software=software))
    return reading


# --- asv -------------------------------------------------------------------------------------------------------------


def is_asv(given: Given) -> bool:
    value = given.json
    return isinstance(value, dict) and isinstance(value.get("results"), dict) and "commit_hash" in value


def is_asv_machine(given: Given) -> bool:
    value = given.json
    machines = [item for item in value.values() if isinstance(item, dict)] if isinstance(value, dict) else []
    return bool(machines) and all({"arch", "cpu", "machine"} <= item.keys() for item in machines)


def read_asv_machine(given: Given, interview: Interview) -> Reading:
    machine = next(item for item in given.json.values() if isinstance(item, dict))
    cpu = str(machine.get("cpu") or "").strip()
    return Reading(said=[f"asv's description of a machine: CPU {cpu or 'not named'}."],
                   facts={"gpu": f"cpu: {cpu}"} if cpu else {}, facts_for="asv")


def read_asv(given: Given, interview: Interview) -> Reading:
    """Times are the results called `time_*`, in seconds; `mem_*` are bytes. null: failed, NaN: skipped."""
    reading = Reading()
    params = given.json.get("params") if isinstance(given.json.get("params"), dict) else {}
    cpu = str(params.get("cpu") or "").strip()
    board = ask_board(interview, reading, None, cpu_name=cpu or None)
    precision = interview.ask("precision", "In which precision did it run? default: as the code comes.",
                              ("default", "fp32", "fp64"), "default")
    tasks: list[Task] = []
    others: list[str] = []
    columns = given.json.get("result_columns")
    for name, value in given.json["results"].items():
        if isinstance(value, list) and isinstance(columns, list):  # since version 2 a row of columns
            value = dict(zip(columns, value, strict=False))
        if not str(name).rpartition(".")[2].startswith("time_"):
            others.append(str(name))
            continue
        for label, seconds in _asv_values(value):
            tasks += _asv_task(str(name), label, seconds, precision)
    missing = sum(task.status != "ok" for task in tasks)
    reading.said.append(f"{len(tasks) - missing} times in seconds; {missing} failed or were skipped.")
    if others:
        reading.said.append(f"{len(others)} results are no times (memory, counts): left out, {others[0]} first.")
    if not tasks and precision is not None:
        raise RefusedError("an asv file without a time_ benchmark", "results of time_ benchmarks, which are seconds")
    if board is not None:
        date = given.json.get("date")
        stamp = date / 1e3 if isinstance(date, (int, float)) and not isinstance(date, bool) else 0.0
        reading.runs.append(ForeignRun(
            board, tuple(tasks), started_at=iso_utc(stamp) if math.isfinite(stamp) else None,
            software={"python": str(given.json["python"])} if given.json.get("python") else {},
            host={"cpu": cpu or None, "os": str(params.get("os") or "") or None},
        ))
    return reading


def _asv_values(value: Any) -> list[tuple[str | None, Any]]:
    """(parameters in words, result) of one benchmark."""
    if not isinstance(value, Mapping):
        return [(None, value)]
    result, params = value.get("result"), value.get("params") or []
    if not isinstance(result, list):
        return [(None, result)]
    combinations: list[tuple[Any, ...]] = [()]
    for choices in params if isinstance(params, list) else []:
        if isinstance(choices, list) and len(combinations) * len(choices) <= 10_000:
            combinations = [(*head, choice) for head in combinations for choice in choices]
    if len(combinations) != len(result):
        combinations = [(number,) for number in range(1, len(result) + 1)]
    labels = [", ".join(map(str, combination)) or None for combination in combinations]
    return list(zip(labels, result, strict=True))


def _asv_task(name: str, label: str | None, seconds: Any, precision: str | None) -> list[Task]:
    if precision is None:
        return []
    value = _number(seconds)
    if value is not None:
        return [Task(name, precision, (value * 1e3,), "the result as asv states it", variant=label)]
    skipped = isinstance(seconds, float) and math.isnan(seconds)
    return [Task(name, precision, variant=label, status="skipped" if skipped else "failed",
                 reason="asv skipped it" if skipped else "asv has no result of it")]


