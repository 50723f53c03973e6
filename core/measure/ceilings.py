"""`python -m core.measure ceilings`: a device's ceilings as a run file of their own, line by line as they are measured.

One run file per device; `--device all` measures every visible GPU in turn. The device's lock is held meanwhile, so that
no sweep runs beside it. Ctrl-C, SIGTERM and the run's stop file end it behind the present ceiling.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from core import units
from core.errors import UserError
from core.measure import device, precision, reasons
from core.measure.ceiling_bench import BUDGET_S, measure_ceilings, quick_ceilings
from core.measure.command import Parser, exit_code, unwritten
from core.measure.nvml import Nvml, bare_uuid
from core.measure.plan import ALL_DEVICES, parse_ceilings_budget_s, parse_device
from core.records import Ceiling, End, Note, RunHeader, RunsFolder, RunWriter, device_lock, new_run_id, now_utc, to_json

__all__ = ["main", "measure_ceilings", "measure_to_files", "quick_ceilings"]

Say = Callable[[str], None]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cuda:N, cpu, or all: every visible GPU")
    parser.add_argument("--budget", metavar="T", default=f"{BUDGET_S:g}s", help="time for each device, such as 2m (2m)")
    parser.add_argument("--out", metavar="FILE", help="write the run file there instead of into the runs folder")
    parser.add_argument("--runs", metavar="DIR", help="the runs folder (GAPSCOPE_RUNS, else ./runs)")
    parser.add_argument("--label", metavar="TEXT", help="a name for this run")
    parser.add_argument("--force", action="store_true", help="measure although another process uses the GPU")
    parser.add_argument("--json", action="store_true",
                        help="print the list of run files as JSON at the end; progress goes to stderr")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write one run file per device. Exit codes: 0 done or stopped, 2 a user's mistake, 1 a failure."""
    return exit_code("ceilings", lambda: _command(argv))


def _command(argv: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m core.measure ceilings", description="Measure what this device reaches at best.")
    add_options(parser)
    arguments = parser.parse_args(argv)
    stream = sys.stderr if arguments.json else sys.stdout

    def say(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            print(line, file=stream, flush=True)

    written = measure_to_files(
        arguments.device, parse_ceilings_budget_s(arguments.budget),
        RunsFolder(arguments.runs) if arguments.runs else RunsFolder.beside("results.duckdb"),
        Path(arguments.out) if arguments.out else None, arguments.label, arguments.force, say,
    )
    if arguments.json:
        print(json.dumps(written))
    return 0


def measure_to_files(
    asked: str, budget_s: float, runs: RunsFolder, out: Path | None = None, label: str | None = None,
    force: bool = False, say: Say = print,
) -> list[dict[str, Any]]:
    """One run file of ceilings per device: [{run_id, file, device, state, ceilings}]. `asked` as --device has it.

    Raises UserError for a device that is not there or in use, and for a file that is.
    """
    nvml = Nvml.open()
    try:
        if asked == ALL_DEVICES:
            names = [board["device"] for board in device.visible_devices(nvml)]
            if out is not None and len(names) > 1:
                raise UserError(f"--out with {len(names)} devices", "one file for each device", "leave --out out")
        else:
            names = [asked if asked.startswith(device.BOARD) else parse_device(asked)]
        users = device.board_users(nvml) if nvml is not None else {}  # before this process makes a context of its own
        return [_one_file(name, nvml, users, budget_s, runs, out, label, force, say) for name in names]
    finally:
        if nvml is not None:
            nvml.close()


def _one_file(
    asked: str, nvml: Nvml | None, users: dict[str, str], budget_s: float, runs: RunsFolder, out: Path | None,
    label: str | None, force: bool, say: Say,
) -> dict[str, Any]:
    found = device.find(asked, nvml)
    busy = users.get(bare_uuid(found.uuid or ""))
    if busy and not force:
        raise UserError(f"the GPU is in use ({busy})", "an idle GPU, since a shared one gives wrong ceilings",
                        "wait, or use --force to measure anyway")
    if found.device.type == "cuda":
        torch.cuda.set_device(found.torch_name)
    run_id = new_run_id()
    path = out or runs.run_file(run_id)
    if path.exists():
        raise UserError(f"{path.name} exists already", "a new file name")
    if out is not None and not path.parent.exists():
        raise UserError(f"no folder {path.parent.name!r} for {path.name}", "an existing folder", "make it first")

    def waiting() -> bool:
        if not told:
            say("another run measures on this device; waiting for it")
            told.append(True)
        return True

    told: list[bool] = []
    with device_lock(runs.root, found.device.uuid_hash, waiting):
        if out is None:
            runs.claim(run_id)
        say(f"ceilings of {found.device.name}: at most {units.duration(budget_s)}")
        try:
            with RunWriter(path, run_id) as writer:
                state, count = _write(writer, found, nvml, budget_s, label, runs if out is None else None, say)
        except OSError as error:
            raise unwritten(error, path, "measure again") from None
    say(f"{state}: {count} ceilings in {path.name}")
    return {"run_id": run_id, "file": str(path), "device": to_json(found.device), "state": state, "ceilings": count}


def _write(
    writer: RunWriter, found: device.Found, nvml: Nvml | None, budget_s: float, label: str | None,
    runs: RunsFolder | None, say: Say,
) -> tuple[str, int]:
    """Header, ceilings as they come, end. Returns the end state and how many ceilings there are."""
    writer.write(RunHeader(
        started_at=now_utc(), origin="measured", label=label, device=found.device, host=found.host,
        software=found.software, settings=precision.settings(), request={"command": "ceilings", "budget_s": budget_s},
    ))
    for warning in found.warnings:
        writer.write(Note("warning", reasons.clean(warning), at=now_utc()))
        say(f"warning: {warning}")
    count = 0

    def told(line: str) -> None:
        writer.write(Note("ceilings", reasons.clean(line), at=now_utc()))
        say(line)

    def keep(ceiling: Ceiling) -> None:
        nonlocal count
        writer.write(ceiling)
        count += 1
        say(_line(ceiling))
        if runs is not None and runs.stop_requested(writer.run_id):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure_ceilings(found, nvml, budget_s, told, keep)
        state, reason = "done", None
    except KeyboardInterrupt:
        state, reason = "stopped", "stopped on request"
    except BaseException as error:
        if not isinstance(error, OSError):  # such as a full disk: it takes no end either
            writer.write(End("failed", reasons.of_error(error), at=now_utc()))
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    writer.write(End(state, reason, at=now_utc()))
    return state, count


def _line(ceiling: Ceiling) -> str:
    """One ceiling for a person who watches."""
    parts = [ceiling.metric, ceiling.precision,
             units.bytes_size(ceiling.working_set_bytes) if ceiling.working_set_bytes else None]
    clock = f" at {units.mhz(ceiling.clock_mhz)}" if ceiling.clock_mhz else ""
    limit = f" (limited by {ceiling.limited_by})" if ceiling.limited_by else ""
    what = " ".join(part for part in parts if part)
    return f"{what}: {units.significant(ceiling.value)} {ceiling.unit}{clock}{limit}"


if __name__ == "__main__":
    sys.exit(main())
