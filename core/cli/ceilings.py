"""`ceilings`: measure what this device reaches at best, as a process of its own, and show it beside the data sheet."""
from __future__ import annotations

import argparse
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from core.cli.options import add_db, add_json
from core.process import python_command


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "ceilings", help="measure what this device reaches at best",
        description="Bandwidth of memory and of the L2, products in each precision in a burst and for 10 s, gathers, "
                    "launches and host copies of this device. The result is one run file per device in the runs "
                    "folder. What is above 105 % of its data sheet's peak is marked.",
    )
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cuda:N, cpu, or all: every visible GPU")
    parser.add_argument("--budget", default="2m", metavar="T", help="time for each device, such as 30s or 2m (2m)")
    parser.add_argument("--out", metavar="FILE", help="write the run file there instead of into the runs folder")
    parser.add_argument("--label", metavar="TEXT", help="a name for this run")
    parser.add_argument("--force", action="store_true", help="measure although another process uses the GPU")
    add_json(parser)
    add_db(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from core.cli.output import hint, print_json
    from core.cli.run import database_path
    from core.measure.plan import parse_ceilings_budget_s, parse_device
    from core.records import RunsFolder

    parse_device(arguments.device)  # a mistake is told before anything starts
    parse_ceilings_budget_s(arguments.budget)
    runs = RunsFolder.beside(database_path(arguments.db))
    options = ["--device", arguments.device, "--budget", arguments.budget, "--runs", str(runs.root), "--json"]
    for name in ("out", "label"):
        value = getattr(arguments, name)
        options += [f"--{name}", value] if value else []
    options += ["--force"] if arguments.force else []
    code, printed, last_line = _measure(options, quiet=arguments.json)
    if code != 0:
        said = last_line.removeprefix("error: ")
        hint(f"error: {said or f'the measuring process ended with code {code}'}")
        return 2 if code == 2 else 1
    answers = [_answer(Path(one["file"]), one) for one in json.loads(printed)]
    if arguments.json:
        print_json({"devices": answers})
        return 0
    for answer in answers:
        _show(answer, runs.root)
    return 0


def _measure(options: list[str], quiet: bool) -> tuple[int, str, str]:
    """(exit code, what it printed, its last line on stderr); its progress is shown as it comes unless `quiet`."""
    from core.cli.output import printable

    process = subprocess.Popen(
        python_command("core.measure", "ceilings", *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace",
    )
    assert process.stderr is not None
    assert process.stdout is not None
    last_line = ""
    while True:
        try:
            for line in process.stderr:
                if last_line and not quiet:
                    print(printable(last_line), flush=True)
                last_line = line.strip() or last_line
            break
        except KeyboardInterrupt:
            continue  # it got the same signal, and ends its file
    printed = process.stdout.read()
    code = process.wait()
    if code == 0 and not quiet and last_line:
        print(printable(last_line), flush=True)
    return code, printed, last_line


def _answer(path: Path, written: dict[str, Any]) -> dict[str, Any]:
    """One device: its ceilings as stored, each with the best sample and whether it is beyond its peak."""
    from core.gpus import by_nvml_name
    from core.records import Ceiling, Note, read_run_file, to_json

    found = read_run_file(path)
    header = found.header
    assert header is not None
    device = header.device
    card = by_nvml_name(device.name, device.memory_bytes, device.sm_count) if device.type == "cuda" else None
    records = [line.record for line in found.lines]
    rows = []
    for record in records:
        if isinstance(record, Ceiling):
            low_is_best = record.unit == "us"
            best = (min if low_is_best else max)(record.samples, default=record.value)
            rows.append({**to_json(record), "n": len(record.samples), "best": best,
                         "beyond_peak": _beyond_peak(record, card.key if card else None, device.max_sm_clock_mhz)})
    return {"run_id": written["run_id"], "file": str(path), "state": written["state"], "device": device.name,
            "gpu_key": card.key if card else None, "ceilings": rows,
            "left_out": [record.text for record in records if isinstance(record, Note) and record.event == "ceilings"]}


def _beyond_peak(ceiling: Any, gpu_key: str | None, max_sm_clock_mhz: float | None) -> str | None:
    """What the quarantine will say about it, by the same rule; None: nothing."""
    from core.store.plausibility import RULES

    rule = next(rule for rule in RULES if rule.name == "beyond-peak")
    finding = rule.judge({
        "metric": ceiling.metric, "precision": ceiling.precision, "value": ceiling.value, "unit": ceiling.unit,
        "clock_mhz": ceiling.clock_mhz, "gpu_key": gpu_key, "max_sm_clock_mhz": max_sm_clock_mhz,
    })
    return f"{finding[0]}; expected {finding[1]}" if finding else None


def _show(answer: dict[str, Any], runs_root: Path) -> None:
    from core import units
    from core.cli.output import say, table

    rows = [[
        row["metric"], row["precision"] or "",
        units.bytes_size(row["working_set_bytes"]) if row["working_set_bytes"] else "",
        units.significant(row["value"]), units.significant(row["best"]), row["unit"].replace("TFLOPS", "TFLOP/s"),
        units.mhz(row["clock_mhz"]), str(row["n"]),
        f"limited by {row['limited_by']}" if row["limited_by"] else "beyond peak" if row["beyond_peak"] else "",
    ] for row in answer["ceilings"]]
    print()
    print(answer["device"])
    print(table(["ceiling", "precision", "working set", "median", "best", "unit", "clock", "n", "note"], rows,
                right=[2, 3, 4, 6, 7]))
    for row in answer["ceilings"]:
        if row["beyond_peak"]:
            say(f"Beyond its peak: {row['beyond_peak']}. It is held back until somebody releases it.")
    for text in answer["left_out"]:
        say(text[:1].upper() + text[1:] + ".")
    path = Path(answer["file"])
    print(f"Run {answer['run_id']}: {path}")
    if runs_root.resolve() not in path.resolve().parents:
        print(f"Take it in with:\n  python -m core ingest {shlex.quote(str(path))}")
