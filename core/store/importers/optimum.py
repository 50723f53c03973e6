"""optimum-benchmark: `benchmark_report.json` holds times, `benchmark_config.json` beside it says of what."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Problem, Reading, Task
from core.store.importers.text import MS_PER_UNIT

KEY, TITLE = "optimum-benchmark", "optimum-benchmark report"
CONFIG_KEY, CONFIG_TITLE = "optimum-benchmark-config", "optimum-benchmark configuration"


def recognises(given: Given) -> bool:
    value = given.json
    return isinstance(value, dict) and any(_latency(phase) is not None for phase in value.values())


def recognises_config(given: Given) -> bool:
    value = given.json
    return isinstance(value, dict) and {"backend", "scenario", "environment"} <= value.keys() and all(
        isinstance(value[name], dict) for name in ("backend", "scenario", "environment"))


def _latency(phase: Any) -> Mapping[str, Any] | None:
    latency = phase.get("latency") if isinstance(phase, dict) else None
    return latency if isinstance(latency, dict) and isinstance(latency.get("values"), list) else None


def read(given: Given, interview: Interview) -> Reading:
    reading = Reading()
    board = ask_board(interview, reading, None)
    precision = ask_precision(interview, None)
    name = interview.ask("task", "What was measured? A model and its task, as the configuration has them.",
                         default=given.stem, free=True)
    batch = interview.number("batch", "How many samples did one step take?", 1)
    tasks = []
    for phase, content in given.json.items():
        latency = _latency(content)
        if latency is None:
            continue
        factor = MS_PER_UNIT.get(str(latency.get("unit", "s")))
        values = [v for v in latency["values"]
                  if isinstance(v, (int, float)) and not isinstance(v, bool) and 0 < v < float("inf")]
        if len(values) < len(latency["values"]):
            reading.problems.append(Problem(0, f"{phase}.latency", f"{len(latency['values']) - len(values)} values",
                                            "numbers above 0"))
        if factor is None or not values:
            reading.problems.append(Problem(0, f"{phase}.latency.unit", str(latency.get("unit"))[:40], "s or ms"))
            continue
        reading.said.append(f"{phase}: {len(values)} times.")
        stated = {}
        throughput = content.get("throughput")
        if isinstance(throughput, dict) and isinstance(throughput.get("value"), (int, float)):
            stated = {"stated_throughput": throughput["value"], "stated_throughput_unit": str(throughput.get("unit"))}
        if precision is not None and name is not None:
            tasks.append(Task(f"{name} {phase}", precision, tuple(v * factor for v in values), "every step",
                              batch=batch if phase != "load" else 1, peak_bytes=_peak(content.get("memory")),
                              stated=stated))
    if board is not None:
        reading.runs.append(ForeignRun(board, tuple(tasks)))
    return reading


def _peak(memory: Any) -> int | None:
    """The report's memory is in MB."""
    value = memory.get("max_allocated") if isinstance(memory, dict) else None
    return int(value * 1e6) if isinstance(value, (int, float)) and 0 < value < 1e9 else None


def read_config(given: Given, interview: Interview) -> Reading:
    """Facts for the report. `backend.device` says what ran: a GPU that is only listed beside a CPU run is not it."""
    backend, scenario, environment = (given.json[name] for name in ("backend", "scenario", "environment"))
    facts: dict[str, str] = {}
    said = []
    gpus = environment.get("gpu")
    cpu = str(environment.get("cpu") or "").strip()
    device = str(backend.get("device") or "")
    if device == "cpu":
        facts["gpu"] = f"cpu: {cpu}" if cpu else "cpu"
        if gpus:
            said.append(f"It ran on the CPU: backend.device is cpu, though {', '.join(map(str, gpus))} is listed.")
    elif isinstance(gpus, list) and gpus:
        count = len(backend["device_ids"].split(",")) if isinstance(backend.get("device_ids"), str) else 1
        facts["gpu"] = f"{count}x {gpus[0]}" if count > 1 else str(gpus[0])
    dtype = backend.get("dtype") or backend.get("torch_dtype")
    if isinstance(dtype, str):
        reading = Reading()
        precision = ask_precision(Interview({}), dtype)
        if precision is not None:
            facts["precision"] = precision
        said += reading.said
    shapes = scenario.get("input_shapes")
    if isinstance(shapes, dict) and isinstance(shapes.get("batch_size"), int):
        facts["batch"] = str(shapes["batch_size"])
    model = str(backend.get("model") or given.json.get("name") or "").strip()
    parts = [model, str(backend.get("task") or "").strip()]
    if isinstance(shapes, dict) and isinstance(shapes.get("sequence_length"), int):
        parts.append(f"{shapes['sequence_length']} tokens")
    if model:
        facts["task"] = " ".join(part for part in parts if part)
    said.append("It says of its report: " + ", ".join(f"{key} {value}" for key, value in facts.items()) + ".")
    return Reading(said=said, facts=facts, facts_for=KEY)
