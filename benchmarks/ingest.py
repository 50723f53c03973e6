"""Ingest rate and memory, on synthetic run files in a temporary folder.

    python benchmarks/ingest.py [--samples 100000 1000000] [--per-cell 100]

Every cell is complete: event times, five telemetry columns, six stages with a value per repetition. Prints samples/s of
the whole way (file to committed rows), of decoding alone, and the peak memory of the process that did it.
"""
from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.records import (  # noqa: E402
    Cell,
    Device,
    Host,
    Line,
    RunHeader,
    RunsFolder,
    SettingKey,
    Software,
    Stage,
    Telemetry,
    WorkKey,
    Workload,
    decode_line,
    encode_line,
)

RUN = "synthetic-ingest-benchmark"
STAGES = ("encoder", "correlation", "corr_encoder", "transformer", "heads", "other")


def write_synthetic_run(path: Path, samples: int, per_cell: int) -> None:
    """A run of `samples` invented repetitions, `per_cell` in each cell line."""
    dice = random.Random(1)
    header = RunHeader(
        "2026-11-30T10:00:00Z", "measured", "synthetic: no measurement", Device("cuda", "NVIDIA H200", "synthetic"),
        Host(), Software("3.11", "2.13.0"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as stream:
        stream.write(encode_line(Line(RUN, 0, header)))
        for seq in range(1, samples // per_cell + 1):
            times = [tuple(dice.uniform(9, 11) for _ in range(per_cell)) for _ in range(6 + len(STAGES))]
            work = WorkKey("synthetic", None, "none", "1", "none", frames=seq, height=256, width=256, points=256)
            stream.write(encode_line(Line(RUN, seq, Cell(
                process=0, workload=Workload(work, SettingKey("fp32")), status="ok", wall_ms=times[0],
                event_ms=times[1],
                telemetry=Telemetry(times[2], times[3], times[4], times[5], tuple(0 for _ in range(per_cell))),
                stages=tuple(Stage(name, event_ms=times[6 + i], calls=1, flops=1, launches=1)
                             for i, name in enumerate(STAGES)),
            ))))


def ingest(folder: Path) -> None:
    """In a process of its own, so that its peak memory is its own: bring the database up to date and print."""
    from core.store import open_reading

    started = time.perf_counter()
    with open_reading(folder / "results.duckdb", reference=folder / "nothing") as store:
        seconds = time.perf_counter() - started
        count = int(store.frame("select count(*) as n from sample")["n"].iloc[0])
    print(count, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--per-cell", type=int, default=100)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        ingest(options.child)
        return
    for samples in options.samples:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = RunsFolder(folder / "runs").run_file(RUN)
            write_synthetic_run(path, samples, options.per_cell)
            started = time.perf_counter()
            with open(path, "rb") as stream:
                for raw in stream:
                    decode_line(raw)
            decode_s = time.perf_counter() - started
            out = subprocess.run(
                [sys.executable, __file__, "--child", str(folder)], capture_output=True, text=True, check=True, cwd=ROOT
            ).stdout.split()
            count, seconds, peak_bytes = int(out[0]), float(out[1]), float(out[2])
            print(
                f"{count} synthetic samples, {path.stat().st_size / 1e6:.0f} MB: {count / seconds:,.0f} samples/s into "
                f"the database ({seconds:.2f} s), decoding alone {samples / decode_s:,.0f} samples/s, peak "
                f"{peak_bytes / 1e6:.0f} MB, database {(folder / 'results.duckdb').stat().st_size / 1e6:.0f} MB"
            )


if __name__ == "__main__":
    main()
