"""kill -9 at random points, 20 times: nothing acknowledged is lost, nothing is doubled, a rebuild is equal.

Ten times the app, while a runner writes and people upload; ten times the runner, while the app reads.
"""
from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders import build_run, cell, rows_of

from core.records import RunsFolder
from core.store import open_app, open_reading, queries
from core.store.store import Store

TESTS = Path(__file__).resolve().parent
PROJECT = TESTS.parent
LIVE = "20261130-120000-0000000f"

COMMON = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(PROJECT)!r}, {str(TESTS)!r}]
from builders import cell, encode_run, header, records_of_run
from core.records import RunsFolder, RunWriter
import time
"""

# Writes one cell line after the other, each on disk before its seq is told; goes on where a killed one stopped.
RUNNER = COMMON + """
runs, run_id = RunsFolder(sys.argv[1]), sys.argv[2]
path = runs.run_file(run_id)
try:
    writer = RunWriter(path, run_id, resume=path.exists())
except Exception:  # killed before the first line was complete
    path.unlink()
    writer = RunWriter(path, run_id)
if writer.next_seq == 0:
    print(writer.write(header("t4")), flush=True)
while True:
    seq = writer.next_seq
    print(writer.write(cell(wall_ms=[seq - 0.5, seq + 0.5] * 25, process=seq)), flush=True)
    time.sleep(0.005)
"""

# The app with small batches, so that a kill finds it between any two of many transactions; uploads go on meanwhile.
APP = COMMON + """
from core.store import ingest, open_app, sources
sources.CHUNK_BYTES = ingest.CHUNK_BYTES = 60_000
from core.store.uploads import accept
runs = RunsFolder(Path(sys.argv[1]).parent / "runs")
print("started", flush=True)
app = open_app(sys.argv[1], reference=Path(sys.argv[1] + ".nothing"))
while True:
    number = len(list(runs.uploads.iterdir())) if runs.uploads.is_dir() else 0
    run_id = f"upload-{number:06d}-{sys.argv[2]}"
    data = encode_run(run_id, records_of_run("cpu", [cell(1.0 + number, cuda=False)]))
    print(accept(runs, data, "x.jsonl").run_ids[0], flush=True)
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, cwd=TESTS
    )


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Killed at once; the complete lines that it had acknowledged."""
    process.kill()
    out, _ = process.communicate()
    return [line for line in out.split("\n")[:-1] if line]


def assert_rebuilt_equal(database: Path, store: Store, tmp_path: Path) -> None:
    rows = rows_of(store)
    fresh = tmp_path / "fresh.duckdb"
    with open_reading(fresh, reference=tmp_path / "nothing") as rebuilt:
        assert rebuilt.runs is not None
        assert database.parent == rebuilt.runs.root.parent
        again = rows_of(rebuilt)
    for table, kept in rows.items():
        assert kept == again[table], f"table {table} differs from its rebuild"


@pytest.fixture(autouse=True)
def _no_runs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)


def test_an_app_killed_at_random_points_loses_and_doubles_nothing(tmp_path: Path) -> None:
    dice = random.Random(20261130)
    database = tmp_path / "results.duckdb"
    runs = RunsFolder(tmp_path / "runs")
    for number in range(1, 4):
        build_run(runs, "t4", [cell(process=p) for p in range(100)], run_id=f"20261130-10000{number}-00000001")
    runner = start(RUNNER, runs.root, LIVE)
    acknowledged: list[str] = []
    for attempt in range(10):
        app = start(APP, database, attempt)
        assert app.stdout is not None
        assert app.stdout.readline() == "started\n"
        time.sleep(dice.uniform(0.02, 1.6))
        if attempt == 9:
            acknowledged.append(app.stdout.readline().strip())  # however slow the machine, one upload is told as kept
        acknowledged += kill(app)
    written = [int(seq) for seq in kill(runner)]
    with open_app(database, reference=tmp_path / "nothing") as store:
        assert store.status().notices == ()
        lines = store.frame("select run_id, seq, count(*) as n from line group by all")
        assert set(lines["n"]) == {1}
        assert set(acknowledged) <= set(queries.runs(store)["run_id"])
        live = set(lines[lines["run_id"] == LIVE]["seq"])
        assert set(written) <= live
        cells = queries.cells(store)
        old = cells[cells["run_id"].str.endswith("-00000001")]
        assert len(old) == 300
        samples = store.frame("select count(*) as n, count(distinct (run_id, seq, i)) as d from sample")
        assert samples["n"].tolist() == samples["d"].tolist()
        assert samples["n"][0] == 3 * (len(cells) - len(cells[cells["run_id"] == LIVE])) + 50 * (len(live) - 1)
        assert_rebuilt_equal(database, store, tmp_path)


def test_a_runner_killed_at_random_points_loses_and_doubles_nothing(tmp_path: Path) -> None:
    dice = random.Random(20261201)
    database = tmp_path / "results.duckdb"
    runs = RunsFolder(tmp_path / "runs")
    written: list[int] = []
    with open_app(database, reference=tmp_path / "nothing") as store:
        for _ in range(10):
            runner = start(RUNNER, runs.root, LIVE)
            assert runner.stdout is not None
            first = runner.stdout.readline()
            time.sleep(dice.uniform(0.0, 0.3))
            written += [int(first), *map(int, kill(runner))]
        assert len(written) == len(set(written)), "a resumed runner told a seq twice"
        deadline = time.monotonic() + 20
        while set(written) - set(store.frame("select seq from line")["seq"]):
            assert time.monotonic() < deadline, "acknowledged lines are not in the store"
            time.sleep(0.1)
        assert store.status().errors == ()
        assert store.status().notices == ()
        seqs = sorted(store.frame("select seq from line")["seq"])
        assert seqs == list(range(len(seqs)))
        cells = queries.cells(store)
        assert (cells["wall_median_ms"] == cells["seq"]).all()
        assert queries.problems(store).empty
    with open_app(database, reference=tmp_path / "nothing") as store:
        assert_rebuilt_equal(database, store, tmp_path)
