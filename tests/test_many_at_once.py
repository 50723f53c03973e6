"""Eight uploads at once, tables of other programs among them, a sweep that writes, three readers, and the app killed -9
in the middle, ten times."""
from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from builders import build_run, cell
from test_crash import COMMON, LIVE, RUNNER, assert_rebuilt_equal, kill, start

from core.records import RunsFolder
from core.store import open_app, queries
from core.store.journal import Journal, active_uploads

UPLOADERS, READERS, KILLS = 8, 3, 10
ORPHAN = "is not in the journal and does not count"
"""Said of a file whose upload was killed before anybody was told that it is kept."""

# Eight threads as eight people: each uploads a file of its own, one that all of them have, and a table of another
# program. Three as three tabs.
APP = COMMON + f"""
import os, threading
from core.store import ingest, open_app, queries, sources
from core.store.uploads import accept, history
sources.CHUNK_BYTES = ingest.CHUNK_BYTES = 60_000
runs, life = RunsFolder(Path(sys.argv[1]).parent / "runs"), sys.argv[2]
def say(text):
    os.write(1, (text + "\\n").encode())
say("started")
app = open_app(sys.argv[1], reference=Path(sys.argv[1] + ".nothing"))
say("open")
def safely(act):
    def forever():
        try:
            while True:
                act()
        except BaseException as error:
            say(f"error {{error!r}}")
    return forever
def uploader(number):
    made = iter(range(10**6))
    def upload():
        n = next(made)
        table = f"task,time (ms)\\nencoder {{life}} {{number}} {{n}},{{n + 1}}\\ndecoder,{{n + 2}}\\n".encode()
        own, shared = f"own-{{life}}-{{number}}-{{n:04d}}", f"shared-{{life}}-{{n:04d}}"
        files = [(encode_run(run_id, records_of_run("cpu", [cell(what, cuda=False)])), "x.jsonl", None)
                 for run_id, what in ((own, n + 1.0), (shared, 0.5))]
        files.insert(0 if number % 2 else 2, (table, "x.csv", {{"gpu": "T4", "precision": "fp16"}}))
        for data, name, answers in files:
            say("kept " + accept(runs, data, name, actor=f"person {{number}}", answers=answers).run_ids[0])
    return upload
def read():
    cells, listed = queries.cells(app), queries.runs(app)
    assert not cells.duplicated(["run_id", "seq"]).any(), "a line is there twice"
    assert len(queries.samples(app, {LIVE!r})) % 50 == 0, "a cell is there in part"
    queries.problems(app), queries.quarantine(app), queries.waiting(app), history(runs)
    status = app.status()
    assert all({ORPHAN!r} in error for error in status.errors) and status.running, status
acts = [uploader(n) for n in range({UPLOADERS})] + [read] * {READERS}
threads = [threading.Thread(target=safely(act)) for act in acts]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_nothing_is_lost_or_doubled_by_eight_uploads_three_readers_and_ten_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    dice = random.Random(20261202)
    database, nothing = tmp_path / "results.duckdb", tmp_path / "nothing"
    runs = RunsFolder(tmp_path / "runs")
    build_run(runs, "t4", [cell(process=p) for p in range(100)])
    runner = start(RUNNER, runs.root, LIVE)
    told: list[str] = []
    for life in range(KILLS):
        app = start(APP, database, life)
        assert app.stdout is not None
        assert app.stdout.readline() == "started\n"
        if life % 3:
            assert app.stdout.readline() == "open\n"
        time.sleep(dice.uniform(0.0, 2.0))
        if life == KILLS - 1:
            while not any(line.startswith("kept import-") for line in told):  # however slow the machine, one is kept
                told.append(app.stdout.readline().strip())
        told += kill(app)
    written = [int(seq) for seq in kill(runner)]
    assert [line for line in told if line.startswith("error")] == []
    kept = {line.removeprefix("kept ") for line in told if line.startswith("kept ")}
    assert len(kept) > UPLOADERS
    with open_app(database, reference=nothing) as store:
        assert all(ORPHAN in error for error in store.status().errors)
        assert store.status().notices == ()
        lines = store.frame("select run_id, seq, count(*) as n from line group by all")
        assert set(lines["n"]) == {1}
        listed = queries.runs(store)
        assert kept <= set(listed["run_id"])
        assert set(written) <= set(lines[lines["run_id"] == LIVE]["seq"])
        cells = queries.cells(store)
        assert not cells.duplicated(["run_id", "seq"]).any()
        assert store.frame("select count(*) as n from cell c where n <> (select count(*) from sample s "
                           "where s.run_id = c.run_id and s.seq = c.seq)")["n"].tolist() == [0]
        assert queries.problems(store).to_dict("records") == []
        assert (listed["conflicts"] == 0).all()
        uploads = active_uploads(Journal(runs.journal).entries())
        assert len(listed) == len(uploads) + 2, "an upload that was told twice is one run"
        assert_rebuilt_equal(database, store, tmp_path)
