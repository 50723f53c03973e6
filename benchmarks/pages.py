"""What the pages cost: rerun on the server, first chart in a browser, idle memory; on synthetic rows, in a temp folder.

    python benchmarks/pages.py [--samples 1000000] [--per-cell 1000] [--queries-only]

The rows are eight card types x five precisions x five resolutions x five frame counts with invented times.

Queries: what the pages ask of the store, each three times in a process of its own, and its peak memory;
`--queries-only` leaves the pages out.

Server: each page in-process (AppTest), first run and the median of five reruns. Browser: from the request to the first
drawn chart of Overview and Speedup, in a fresh browser right after the server started (cold) and in new tabs of the
same browser (warm); the database is built before. Memory: resident set of the server before any visit and after every
page was opened.
"""
from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.records import (  # noqa: E402
    PRECISIONS,
    Cell,
    Device,
    Host,
    Line,
    RunHeader,
    RunsFolder,
    SettingKey,
    Software,
    Stage,
    WorkKey,
    Workload,
    encode_line,
)

CARDS = {
    "Tesla T4": 1000.0, "Tesla V100-SXM2-16GB": 300.0, "NVIDIA A100-SXM4-40GB": 110.0, "NVIDIA H200": 40.0,
    "NVIDIA L4": 400.0, "NVIDIA GeForce RTX 4090": 60.0, "NVIDIA A10G": 250.0, "NVIDIA GeForce RTX 3090": 120.0,
}
RESOLUTIONS, FRAMES = (128, 192, 256, 384, 512), (8, 24, 47, 72, 96)
PAGES = ("overview", "speedup", "gap", "sweep", "data", "gpus", "method")


def write_runs(runs: RunsFolder, samples: int, per_cell: int) -> int:
    """One run per card; returns the number of samples written."""
    dice = random.Random(1)
    grid = list(itertools.product(PRECISIONS, RESOLUTIONS, FRAMES))
    repeats = max(samples // (len(CARDS) * len(grid) * per_cell), 1)
    for place, (name, scale) in enumerate(CARDS.items()):
        run_id = f"20261130-100000-0000000{place}"
        path = runs.run_file(run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        header = RunHeader("2026-11-30T10:00:00Z", "measured", "synthetic: no measurement",
                           Device("cuda", name, f"synthetic {place}"), Host(), Software("3.11", "2.13.0"))
        with open(path, "wb") as stream:
            stream.write(encode_line(Line(run_id, 0, header)))
            cells = itertools.product(range(repeats), grid)
            for seq, (process, (precision, side, frames)) in enumerate(cells, start=1):
                middle = scale * (side / 256) ** 2 * frames / 47 * (0.6 if precision != "fp32" else 1.0)
                times = tuple(dice.gauss(middle, middle / 100) for _ in range(per_cell))
                work = WorkKey("local4d", "base", "builtin", "1", "random", frames, side, side, 256, iterations=4)
                halves = tuple(value / 2 for value in times)
                stages = tuple(Stage(stage, event_ms=halves) for stage in ("encoder", "transformer"))
                stream.write(encode_line(Line(run_id, seq, Cell(
                    process, Workload(work, SettingKey(precision)), "ok", wall_ms=times, event_ms=times,
                    stages=stages))))
    return len(CARDS) * len(grid) * repeats * per_cell


def server_side() -> None:
    """In a process of its own: seconds of the first run and of reruns of each page."""
    from streamlit.testing.v1 import AppTest

    for name in PAGES:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
        if name != "overview":
            app.switch_page(f"pages/{name}.py")
        started = time.perf_counter()
        app.run()
        first = time.perf_counter() - started
        reruns = []
        for _ in range(5):
            started = time.perf_counter()
            app.run()
            reruns.append(time.perf_counter() - started)
        if app.exception or app.error:
            raise SystemExit(f"{name} failed: {app.exception or app.error}")
        print(f"  {name:<9} first run {first * 1e3:7.0f} ms   rerun {median(reruns) * 1e3:6.0f} ms")


def queries_side() -> None:
    """In a process of its own: milliseconds of each question that pages ask of the store, and the peak memory."""
    from core.store import open_reading, queries

    with open_reading() as store:
        runs = queries.runs(store)
        run_id = str(runs.sort_values("cells")["run_id"].iloc[-1])
        lines = queries.cells(store)
        keys = list(zip(lines["run_id"][:200], lines["seq"][:200], strict=True))
        asked: dict[str, Any] = {
            "runs": lambda: queries.runs(store), "cells": lambda: queries.cells(store),
            "cells of a card": lambda: queries.cells(store, gpu_key="t4"),
            "cells of a run": lambda: queries.cells(store, run_ids=[run_id]),
            "samples of 5 cells": lambda: queries.samples(store, run_id, range(1, 6)),
            "stages of 200 cells": lambda: queries.stages(store, keys),
            "load of a run": lambda: queries.run_load(store, run_id),
            "events of a run": lambda: queries.run_events(store, run_id),
            "ceilings": lambda: queries.ceilings(store), "problems": lambda: queries.problems(store),
            "quarantine": lambda: queries.quarantine(store, released=True), "waiting": lambda: queries.waiting(store),
            "sources": lambda: queries.sources(store), "reported": lambda: queries.reported(store),
        }
        for name, ask in asked.items():
            times = []
            for _ in range(3):
                started = time.perf_counter()
                rows = len(ask())
                times.append(time.perf_counter() - started)
            print(f"  {name:<20} first {times[0] * 1e3:6.0f} ms   median {median(times) * 1e3:6.0f} ms   {rows} rows")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"  peak memory of all of them {peak_mb:.0f} MB; load of the machine {os.getloadavg()[0]:.1f}")


class Server:
    def __init__(self, environment: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(self.port), "--server.headless",
             "true", "--server.fileWatcherType", "none"],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=2)
                return
            except OSError:
                time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"

    def resident_mb(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1e3

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def browser_side(environment: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])

        def first_chart(context: Any, url: str) -> float:
            page = context.new_page()
            started = time.perf_counter()
            page.goto(url)
            page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for(timeout=60_000)
            seconds = time.perf_counter() - started
            page.wait_for_timeout(1500)
            page.close()
            return seconds

        for path in ("", "speedup"):
            server = Server(environment)
            before = server.resident_mb()
            visitor = browser.new_context(viewport={"width": 1440, "height": 900})
            cold = first_chart(visitor, f"{server.url}/{path}")
            warm = median(first_chart(visitor, f"{server.url}/{path}") for _ in range(3))
            print(f"  {path or 'overview':<9} first chart cold {cold:.2f} s   warm {warm:.2f} s")
            visitor.close()
            if path == "":
                for name in PAGES[1:]:
                    context = browser.new_context()
                    context.new_page().goto(f"{server.url}/{name}")
                    context.pages[0].wait_for_timeout(3000)
                    context.close()
                after = server.resident_mb()
                print(f"  memory    idle, before any visit {before:.0f} MB   after all pages {after:.0f} MB")
            server.stop()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--per-cell", type=int, default=1000)
    parser.add_argument("--queries-only", action="store_true")
    parser.add_argument("--child", choices=("pages", "queries"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        {"pages": server_side, "queries": queries_side}[options.child]()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = {"GAPSCOPE_DB": str(folder / "results.duckdb"), "GAPSCOPE_RUNS": str(folder / "runs")}
        environment = {**os.environ, **places}
        written = write_runs(RunsFolder(folder / "runs"), options.samples, options.per_cell)
        build = [sys.executable, "-c", "from core.store import open_reading; open_reading().close()"]
        started = time.perf_counter()
        subprocess.run(build, cwd=ROOT, env=environment, check=True)
        print(f"{written:,} synthetic samples, {written // options.per_cell:,} cells; database built in "
              f"{time.perf_counter() - started:.1f} s", flush=True)
        subprocess.run([sys.executable, __file__, "--child", "queries"], cwd=ROOT, env=environment, check=True)
        if options.queries_only:
            return
        subprocess.run([sys.executable, __file__, "--child", "pages"], cwd=ROOT, env=environment, check=True,
                       stderr=subprocess.DEVNULL)
        if shutil.which("chromium"):
            browser_side(environment)
        else:
            print("no chromium: the browser part is left out")


if __name__ == "__main__":
    main()
