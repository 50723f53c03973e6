"""A runs folder in which everything that somebody can change is there to be changed."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builders import build_run, cell, encode_run, header, records_of_run

from core.records import End, RunsFolder, RunWriter
from core.store import cards, pins, quarantine, uploads

STORED, HELD, RUNNING, STOPPED, DELETED, IN, OUT, NEW = (f"20261130-1{n}0000-0000000{n}" for n in range(8))
HELD_ITEM, RELEASED_ITEM = f"equal-samples:{HELD}:3", f"equal-samples:{HELD}:5"
EQUAL = [1.5] * 12
CARD = {"name": "RTX 9090", "nvml_names": ["NVIDIA Prototype 9"], "compute_capability": "12.0",
        "memory_bandwidth_gb_s": 3200, "fp32_tflops": 81, "memory_gb": 8, "source": "a data sheet"}
NEW_FILE = encode_run(NEW, records_of_run("t4", [cell(2)]))
VIEW = pins.View("Gap", (), {"kind": "two", "baseline": "T4=2s", "target": "H200=1s"},
                 ({"headline": "The T4 took 2x as long."},), (), None, "0")


@dataclass(frozen=True)
class Stored:
    """What `fill` made: ids of an upload that is in, of one that was undone, and of a pin."""

    upload_in: str
    upload_out: str
    pin: str


@contextmanager
def filled(runs: RunsFolder) -> Iterator[Stored]:
    """The process that plays the running sweep ends with the block."""
    build_run(runs.root / "stored.jsonl", "t4", [cell()], run_id=STORED)
    build_run(runs.root / "held.jsonl", "t4", [cell(wall_ms=EQUAL), cell(precision="fp16", wall_ms=EQUAL)], run_id=HELD)
    build_run(runs.root / "deleted.jsonl", "t4", [cell(4)], run_id=DELETED)
    quarantine.release(runs, RELEASED_ITEM, "its timer is coarse")
    uploads.delete_run(runs, DELETED)
    kept = uploads.accept(runs, encode_run(IN, records_of_run("t4", [cell(5)])), "in.jsonl")
    undone = uploads.accept(runs, encode_run(OUT, records_of_run("t4", [cell(6)])), "out.jsonl")
    uploads.undo(runs, undone.upload_id)
    cards.add_card(runs, CARD)
    pin = pins.add_pin(runs, VIEW, pins.Words("Why twice?"))
    for run_id in (RUNNING, STOPPED):
        runs.run_dir(run_id).mkdir(parents=True)
        with RunWriter(runs.run_file(run_id), run_id) as writer:
            writer.write(header("cpu"))
            writer.write(cell(cuda=False))
            if run_id == STOPPED:
                writer.write(End("stopped", "asked to"))
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        runs.write_runner(RUNNING, sleeper.pid)
        yield Stored(kept.upload_id, undone.upload_id, pin.id)
    finally:
        sleeper.kill()
        sleeper.wait()


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below with its time and content, but for what the app itself tells about rows."""
    return {
        path.relative_to(root).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for folder, _, names in os.walk(root) for path in (Path(folder) / name for name in names)
        if not path.name.startswith(".ingested.json")
    }
