"""How much of a sweep's wall time is work of the trackers: kept workers against a fresh process for every cell.

    python benchmarks/harness.py [--device cuda:0] [--tracker local4d:base] [--frames 47] [--resolution 256]
                                 [--points 256] [--processes 3] [--json]

Both ways measure the same cells (five precisions) with the same runner, effort and number of processes:

    kept      one sweep: a worker per tracker and process repeat, reused for all its cells
    fresh     one sweep per cell: a process that loads torch, builds the model, measures one cell and ends, as the
              process launcher of optimum-benchmark isolates each benchmark

Tracker work is the first call, the warmup and the timed repetitions of every ok cell (from the run files). Profiled
passes, counting, starting processes, checks and everything else is overhead. Ceilings are not measured here.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.records import PRECISIONS, Cell, read_run_file  # noqa: E402


def work_s(path: Path) -> tuple[float, int]:
    """Seconds of tracker work in a run file, and its ok cells."""
    cells = [line.record for line in read_run_file(path).lines if isinstance(line.record, Cell)]
    ok = [cell for cell in cells if cell.status == "ok"]
    total_ms = sum((cell.first_call_ms or 0.0) + sum(cell.warmup_ms) + sum(cell.wall_ms) for cell in ok)
    return total_ms / 1e3, len(ok)


def sweep(options: list[str], out: Path) -> float:
    """Wall seconds of one run of the runner, from its start to its end as a process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "core.measure", "run", *options, "--out", str(out)], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tracker", default="local4d:base")
    parser.add_argument("--frames", default="47")
    parser.add_argument("--resolution", default="256")
    parser.add_argument("--points", default="256")
    parser.add_argument("--preset", default="standard", help="whose effort per cell is used")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--precision", nargs="+", default=list(PRECISIONS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    common = ["--preset", asked.preset, "--tracker", asked.tracker, "--frames", asked.frames, "--resolution",
              asked.resolution, "--points", asked.points, "--device", asked.device, "--no-ceilings"]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.jsonl"
        wall = sweep([*common, "--processes", str(asked.processes), "--precision", *asked.precision], kept)
        work, cells = work_s(kept)
        rows.append({"way": "kept", "wall_s": wall, "work_s": work, "cells": cells})
        total = {"way": "fresh", "wall_s": 0.0, "work_s": 0.0, "cells": 0}
        for repeat in range(asked.processes):
            for name in asked.precision:
                out = Path(folder) / f"fresh-{repeat}-{name}.jsonl"
                # As in the kept sweep, only the first repeat is profiled.
                ops = ["--ops", "centre" if repeat == 0 else "none"]
                total["wall_s"] += sweep([*common, "--processes", "1", "--precision", name, *ops], out)
                work, cells = work_s(out)
                total["work_s"] += work
                total["cells"] += cells
        rows.append(total)
    for row in rows:
        row["share"] = row["work_s"] / row["wall_s"]
    if asked.json:
        print(json.dumps(rows))
        return
    print(f"{'way':<8}{'cells':>6}{'wall s':>10}{'tracker work s':>16}{'share':>8}{'s per cell':>12}")
    for row in rows:
        print(f"{row['way']:<8}{row['cells']:>6}{row['wall_s']:>10.1f}{row['work_s']:>16.1f}{row['share']:>8.0%}"
              f"{row['wall_s'] / max(row['cells'], 1):>12.1f}")


if __name__ == "__main__":
    main()
