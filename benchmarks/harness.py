"""How much of a sweep's wall time is work of the trackers: kept workers against a fresh process for every cell.

    python benchmarks/harness.py [--device cuda:0] [--tracker local4d:base] [--frames 47] [--resolution 256]
                                 [--points 256] [--processes 3] [--json]
    python benchmarks/harness.py --from core/reference/runs/h200-centre.jsonl.gz [FILE ...]   what a run file tells

Both ways measure the same cells (five precisions) with the same runner, effort and number of processes:

    kept      one sweep: a worker per tracker and process repeat, reused for all its cells
    fresh     one sweep per cell: a process that loads torch, builds the model, measures one cell and ends, as the
              process launcher of optimum-benchmark isolates each benchmark

Tracker work is the first call, the warmup and the timed repetitions of every ok cell (from the run files). Profiled
passes, counting, starting processes, checks and everything else is overhead. Ceilings are not measured here.

With --from, wall time is from the header to the last line of a file, without the pauses before it was resumed. The
header is written once the first worker has started, so that start alone is not in it; ceilings, where a file has them,
count as overhead.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.records import PRECISIONS, Cell, Note, RunHeader, read_run_file  # noqa: E402


def work_s(path: Path) -> tuple[float, int]:
    """Seconds of tracker work in a run file, and its ok cells."""
    cells = [line.record for line in read_run_file(path).lines if isinstance(line.record, Cell)]
    ok = [cell for cell in cells if cell.status == "ok"]
    total_ms = sum((cell.first_call_ms or 0.0) + sum(cell.warmup_ms) + sum(cell.wall_ms) for cell in ok)
    return total_ms / 1e3, len(ok)


def file_wall_s(path: Path) -> float:
    """Seconds that were spent measuring a run file, by the times on its lines (whole seconds)."""
    stretches: list[list[datetime]] = [[]]
    for line in read_run_file(path).lines:
        record = line.record
        text = record.started_at if isinstance(record, RunHeader) else getattr(record, "at", None)
        if isinstance(record, Note) and record.event == "resumed":
            stretches.append([])
        if text is not None:
            stretches[-1].append(datetime.fromisoformat(text))
    return sum((times[-1] - times[0]).total_seconds() for times in stretches if times)


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
    parser.add_argument("--from", dest="files", nargs="+", type=Path, metavar="FILE", help="existing run files instead")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    show(of_files(asked.files) if asked.files else both_ways(asked), asked.json)


def of_files(paths: list[Path]) -> list[dict[str, Any]]:
    rows = []
    for path in paths:
        work, cells = work_s(path)
        rows.append({"way": path.name, "wall_s": file_wall_s(path), "work_s": work, "cells": cells})
    return rows


def both_ways(asked: argparse.Namespace) -> list[dict[str, Any]]:
    common = ["--preset", asked.preset, "--tracker", asked.tracker, "--frames", asked.frames, "--resolution",
              asked.resolution, "--points", asked.points, "--device", asked.device, "--no-ceilings"]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.jsonl"
        wall = sweep([*common, "--processes", str(asked.processes), "--precision", *asked.precision], kept)
        work, cells = work_s(kept)
        rows.append({"way": "kept", "wall_s": wall, "work_s": work, "cells": cells})
        total: dict[str, Any] = {"way": "fresh", "wall_s": 0.0, "work_s": 0.0, "cells": 0}
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
    return rows


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    for row in rows:
        row["share"] = row["work_s"] / row["wall_s"] if row["wall_s"] else None
    if as_json:
        print(json.dumps(rows))
        return
    width = max(8, *(len(row["way"]) + 2 for row in rows))
    print(f"{'way':<{width}}{'cells':>6}{'wall s':>10}{'tracker work s':>16}{'share':>8}{'s per cell':>12}")
    for row in rows:
        share = f"{row['share']:.0%}" if row["share"] is not None else "-"
        print(f"{row['way']:<{width}}{row['cells']:>6}{row['wall_s']:>10.1f}{row['work_s']:>16.1f}{share:>8}"
              f"{row['wall_s'] / max(row['cells'], 1):>12.1f}")


if __name__ == "__main__":
    main()
