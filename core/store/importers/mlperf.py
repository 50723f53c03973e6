"""MLPerf inference: `mlperf_log_summary.txt` holds the result, a system JSON in another folder the hardware."""
from __future__ import annotations

import re

from core.store.importers.devices import ask_board, ask_precision
from core.store.importers.model import ForeignRun, Given, Interview, Reading, RefusedError, Task
from core.store.importers.text import number

KEY, TITLE = "mlperf", "MLPerf inference summary"
SYSTEM_KEY, SYSTEM_TITLE = "mlperf-system", "MLPerf system description"

_LINE = re.compile(r"^\s*([A-Za-z0-9 .()_]+?)\s*:\s*(.+?)\s*$", re.MULTILINE)


def recognises(given: Given) -> bool:
    head = given.text[:4000]
    return "MLPerf Results Summary" in head or ("SUT name" in head and "Scenario" in head)


def recognises_system(given: Given) -> bool:
    return isinstance(given.json, dict) and {"accelerator_model_name", "accelerators_per_node"} <= given.json.keys()


def read(given: Given, interview: Interview) -> Reading:
    """One time per sample out of the stated rate. Latencies of the Offline scenario are waits in a queue, no times."""
    reading = Reading()
    lines = {key.strip(): value for key, value in _LINE.findall(given.text[:200_000])}
    rate_key = next((key for key in ("Samples per second", "Completed samples per second",
                                     "Scheduled samples per second") if key in lines), None)
    rate = number(lines[rate_key]) if rate_key else None
    latency = number(lines.get("90th percentile latency (ns)", lines.get("90.00 percentile latency (ns)", "")))
    scenario = lines.get("Scenario", "not stated")
    single = scenario in ("SingleStream", "MultiStream") and latency is not None
    if not single and (rate is None or rate <= 0):
        raise RefusedError("an MLPerf summary without figures, as accuracy runs write it",
                           "a summary with samples per second", "give the one of the performance run")
    valid = lines.get("Result is", "not stated")
    reading.said.append(f"Scenario {scenario}, result {valid}.")
    if valid != "VALID":
        reading.said.append("The run does not count by MLPerf's own rules.")
    if scenario == "Offline":
        reading.said.append("Its latencies are waits in a queue and are left out; the time of a sample is 1 / rate.")
    board = ask_board(interview, reading, None)
    precision = ask_precision(interview, None)
    name = interview.ask("task", "Which model and data set? The summary does not say.", default=given.stem, free=True)
    if board is not None and precision is not None and name is not None:
        time_ms = latency / 1e6 if single and latency is not None else 1e3 / (rate or 1.0)
        how = "90th percentile latency as stated" if single else "1 / stated samples per second"
        reading.runs.append(ForeignRun(board, (
            Task(f"{name} {scenario}", precision, (time_ms,), how, stated={
                "stated_samples_per_second": rate, "stated_result": valid,
                "stated_tokens_per_second": number(lines.get("Tokens per second", ""))}),
        )))
    return reading


def read_system(given: Given, interview: Interview) -> Reading:
    name = str(given.json.get("accelerator_model_name") or "").strip()
    counts = [given.json.get("accelerators_per_node"), given.json.get("number_of_nodes") or 1]
    total = 1
    for count in counts:
        text = str(count).strip()
        total *= int(text) if text.isascii() and text.isdecimal() and 0 < int(text) < 10**5 else 1
    facts = {"gpu": f"{total}x {name}" if total > 1 else name} if name else {}
    framework = given.json.get("framework") or "not stated"
    return Reading(said=[f"{total} x {name or 'no accelerator'}, framework {framework}."], facts=facts, facts_for=KEY)
