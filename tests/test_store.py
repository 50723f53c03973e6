"""The database is a cache that opens for one owner, mends itself, and answers many readers at once."""
from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from builders import append_records, build_run, cell, rows_of

from core.cli import main
from core.errors import UserError
from core.records import End, Note, RunsFolder
from core.store import AppStore, Store, database_path, open_app, open_reading, queries, schema
from core.store.export import export_csv, export_run
from core.store.progress import ProgressReader, run_progress

RUN = "20261130-100000-00000001"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    return tmp_path / "results.duckdb"


@pytest.fixture
def runs(database: Path) -> RunsFolder:
    return RunsFolder.beside(database)


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    """A reference folder without data."""
    return tmp_path / "reference"


@pytest.fixture
def app(database: Path, nothing: Path) -> Iterator[AppStore]:
    store = open_app(database, reference=nothing)
    yield store
    store.close()


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


# --- the app ---------------------------------------------------------------------------------------------------------


def test_the_app_sees_new_lines_within_a_second_and_bumps_the_version(app: AppStore, runs: RunsFolder) -> None:
    path = build_run(runs, "t4", [cell()], end=None)
    wait_for(lambda: len(queries.cells(app)) == 1)
    version = app.data_version
    started = time.monotonic()
    append_records(path, [cell(2, precision="fp16")], seq=4)
    wait_for(lambda: app.data_version > version)
    assert time.monotonic() - started < 1.0
    assert len(queries.cells(app)) == 2
    assert app.status().running
    assert app.status().errors == ()


def test_trouble_of_the_ingester_is_status_and_passes(
    app: AppStore, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(app._ingester, "cycle", fail)
    wait_for(lambda: bool(app.status().errors))
    assert "No space left on device" in app.status().errors[0]
    assert queries.cells(app).empty
    monkeypatch.undo()
    build_run(runs, "t4")
    wait_for(lambda: len(queries.cells(app)) == 1 and not app.status().errors)


def test_a_second_start_reads_nothing_twice_and_equals_a_rebuild(
    database: Path, runs: RunsFolder, nothing: Path
) -> None:
    build_run(runs, "t4", [cell(), cell(2, precision="fp16")])
    with open_app(database, reference=nothing) as first:
        rows = rows_of(first)
        version = first.data_version
    with open_app(database, reference=nothing) as second:
        assert rows_of(second) == rows
        assert second.data_version < version
    database.unlink()
    with open_reading(database, reference=nothing) as rebuilt:
        assert rows_of(rebuilt) == rows


def test_threads_read_while_lines_come_in(app: AppStore, runs: RunsFolder) -> None:
    path = build_run(runs, "t4", [], end=None)
    errors: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                cells = queries.cells(app)
                assert cells["wall_median_ms"].tolist() == [11.0] * len(cells)
                queries.runs(app)
                queries.stages(app, [(RUN, 2)])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for seq in range(2, 32):
        append_records(path, [cell(process=seq)], seq=seq)
        time.sleep(0.03)
    wait_for(lambda: len(queries.cells(app)) == 30)
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert app.status().errors == ()


# --- the command line ------------------------------------------------------------------------------------------------


def test_a_command_makes_the_database_and_the_next_one_catches_up(
    database: Path, runs: RunsFolder, nothing: Path
) -> None:
    path = build_run(runs, "t4", [cell()], end=None)
    with open_reading(database, reference=nothing) as store:
        assert not store.in_memory
        assert len(queries.cells(store)) == 1
    append_records(path, [cell(2, precision="fp16")], seq=4)
    with open_reading(database, reference=nothing) as store:
        assert len(queries.cells(store)) == 2


def test_while_the_app_is_open_a_command_builds_equal_rows_in_memory(
    app: AppStore, database: Path, runs: RunsFolder, nothing: Path
) -> None:
    build_run(runs, "t4", [cell()])
    build_run(runs, "cpu", run_id="20261130-100000-00000002")
    wait_for(lambda: len(queries.cells(app)) == 2)
    with open_reading(database, reference=nothing) as store:
        assert store.in_memory
        assert rows_of(store) == rows_of(app)
    with open_reading(database, lambda head, _: head.device.name == "Tesla T4", reference=nothing) as store:
        assert queries.runs(store)["gpu_key"].tolist() == ["t4"]


def test_the_database_is_the_argument_else_the_environment_else_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GAPSCOPE_DB", raising=False)
    assert database_path() == tmp_path / "results.duckdb"
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "other.duckdb"))
    assert database_path() == tmp_path / "other.duckdb"
    assert database_path(tmp_path / "mine.duckdb") == tmp_path / "mine.duckdb"


@pytest.mark.parametrize("name", ["nowhere/results.duckdb", "folder"])
def test_a_place_that_cannot_be_a_database_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="choose another --db"):
        open_app(tmp_path / name)


def test_the_shipped_data_is_read_within_its_budget(database: Path) -> None:
    started = time.monotonic()
    shares: list[float] = []
    with open_reading(database, progress=lambda _, share: shares.append(share)) as store:
        assert len(queries.reported(store)) == 93
        assert queries.problems(store).empty
        assert store.notices == []
    assert time.monotonic() - started < 20.0
    assert shares == sorted(shares)


# --- old and broken files --------------------------------------------------------------------------------------------


def test_another_schema_version_is_moved_aside_and_rebuilt(
    database: Path, runs: RunsFolder, nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_run(runs, "t4")
    with open_reading(database, reference=nothing) as store:
        rows = rows_of(store)
    current = schema.SCHEMA_VERSION
    with monkeypatch.context() as older:
        older.setattr(schema, "SCHEMA_VERSION", "0.9")
        with open_reading(database, reference=nothing) as store:
            assert f"has schema {current}, this version needs 0.9" in store.notices[0]
    with open_reading(database, reference=nothing) as store:
        assert "moved to results.duckdb.old-2 and rebuilt" in store.notices[0]
        assert rows_of(store) == rows
    assert duckdb.connect(str(database) + ".old-1", read_only=True).execute(
        "select count(*) from cell"
    ).fetchall() == [(1,)]


def test_an_unreadable_file_and_its_log_are_kept_aside(database: Path, runs: RunsFolder, nothing: Path) -> None:
    build_run(runs, "t4")
    database.write_bytes(b"no database" * 1000)
    log = database.with_name("results.duckdb.wal")
    log.write_bytes(b"log")
    with open_app(database, reference=nothing) as store:
        assert len(queries.cells(store)) == 1
        assert "could not be read" in store.status().notices[0]
    assert database.with_name("results.duckdb.old-1").read_bytes() == b"no database" * 1000
    assert database.with_name("results.duckdb.old-1.wal").read_bytes() == b"log"


@pytest.mark.parametrize("name", ["passwd", "notes.db"])
def test_a_file_of_something_else_is_refused_and_left_where_it_is(
    tmp_path: Path, nothing: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / name
    other.write_bytes(b"root:x:0:0:root:/root:/bin/bash\n")
    for opening in (open_app, open_reading):
        with pytest.raises(UserError, match=rf"{name} is no database of Gapscope"):
            opening(other, reference=nothing)
    assert main(["runs", "--db", str(other)]) == 2
    assert other.read_bytes() == b"root:x:0:0:root:/root:/bin/bash\n"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_database_of_another_program_is_refused_and_left_where_it_is(tmp_path: Path, nothing: Path) -> None:
    other = tmp_path / "sales.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("create table sale (price int)")
        connection.execute("create table meta (something int)")
    before = other.read_bytes()
    with pytest.raises(UserError, match=r"sales.duckdb is a database of something else"):
        open_reading(other, reference=nothing)
    assert other.read_bytes() == before
    assert not other.with_name("sales.duckdb.old-1").exists()


def test_a_database_that_is_no_ordinary_file_is_refused(tmp_path: Path, nothing: Path) -> None:
    pipe = tmp_path / "pipe.duckdb"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match=r"pipe.duckdb is no ordinary file"):
        open_reading(pipe, reference=nothing)


@pytest.mark.parametrize("opening", [open_reading, open_app])
def test_a_damaged_block_costs_a_rebuild_and_no_answer(
    database: Path, runs: RunsFolder, nothing: Path, opening: Callable[..., Store]
) -> None:
    build_run(runs, "t4", [cell(process=process) for process in range(5)])
    with open_reading(database, reference=nothing) as store:
        rows = rows_of(store)
    whole = database.read_bytes()
    block_bytes = 262_144
    rebuilds = 0
    for start in range(3 * 4096, len(whole), block_bytes):
        database.write_bytes(whole[: start + 100] + b"\xde\xad" * 2000 + whole[start + 4100:])
        try:
            with opening(database, reference=nothing) as store:
                assert rows_of(store) == rows
        except UserError as error:  # what shows late is told once, and mended behind it
            assert error.found == "results.duckdb is damaged"  # noqa: PT017
        with opening(database, reference=nothing) as store:
            assert rows_of(store) == rows
            assert not store.in_memory
        rebuilds += database.with_name("results.duckdb.old-1").exists()
        for old in database.parent.glob("results.duckdb.old-*"):
            old.unlink()
    assert rebuilds


def test_a_full_disk_costs_no_answer(database: Path, runs: RunsFolder, nothing: Path) -> None:
    build_run(runs, "t4")
    code = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from core.store import open_app, open_reading, queries\n"
        "from core.errors import UserError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)\n"
        "database, nothing = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "with open_reading(database, reference=nothing) as store:\n"
        "    print(len(queries.cells(store)), store.in_memory, store.notices)\n"
        "try:\n"
        "    open_app(database, reference=nothing)\n"
        "except UserError as error:\n"
        "    print(error)\n"
    )
    for limit in (0, 2_000, 13_000):
        done = subprocess.run(
            [sys.executable, "-c", code, str(database), str(nothing), str(limit)], capture_output=True, text=True,
            check=False, cwd=Path(__file__).parent.parent,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "1 True ['results.duckdb cannot be written (File too large): rows were built in memory']",
            "results.duckdb cannot be written (File too large); expected a writable disk with free space; make room, "
            "or choose another --db.",
        ], limit
    with open_reading(database, reference=nothing) as store:
        assert not store.in_memory
        assert len(queries.cells(store)) == 1


def test_a_log_without_its_database_is_not_replayed_into_a_new_one(database: Path, nothing: Path) -> None:
    database.with_name("results.duckdb.wal").write_bytes(b"log")
    with open_reading(database, reference=nothing) as store:
        assert queries.cells(store).empty
    assert database.with_name("results.duckdb.old-1.wal").read_bytes() == b"log"


def test_the_file_can_be_read_by_older_duckdb_and_reaches_no_other_file(
    database: Path, nothing: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with open_reading(database, reference=nothing) as store:
        tags = store.frame("select tags from duckdb_databases() where not internal")["tags"].astype(str)
        assert "v1.0.0" in tags.iloc[0]
        for sql in (f"select * from read_csv('{secret}')", f"copy cell to '{tmp_path}/x.csv'",
                    f"attach '{tmp_path}/y.duckdb'", "set enable_external_access = true", "set memory_limit = '9GB'"):
            with pytest.raises(duckdb.Error):
                store.frame(sql)


# --- what leaves the store -------------------------------------------------------------------------------------------


def test_a_run_is_exported_byte_for_byte(database: Path, runs: RunsFolder, nothing: Path) -> None:
    path = build_run(runs, "t4")
    other = "20261130-100000-00000002"
    mixed = runs.root / "mixed.jsonl.gz"
    build_run(mixed, "cpu", run_id=other)
    with open_reading(database, reference=nothing) as store:
        assert export_run(store, RUN) == path.read_bytes()
        assert export_run(store, other).count(b"\n") == 5
        with pytest.raises(UserError, match="no run"):
            export_run(store, "20261130-100000-00000009")
    assert export_run(runs, RUN) == path.read_bytes()


def test_csv_keeps_numbers_and_disarms_formulas() -> None:
    frame = pd.DataFrame({
        "=name": ["=1+1", "+2", "-3", "@x", "\tx", "\rx", "plain", "\uff1d1"],
        "ms": [-1.5, 2.0, 3.0, 4.0, 5.0, 6.0, np.nan, 7.0],
        "points": pd.array([1, None, 3, 4, 5, 6, 7, 8], dtype="Int64"), "list": [[1.5, 2.0]] * 8,
    })
    lines = export_csv(frame).decode().split("\n")
    assert lines[0] == "'=name,ms,points,list"
    assert lines[1] == "'=1+1,-1.5,1,\"[1.5, 2.0]\""
    assert lines[2].startswith("'+2,2.0,,")
    assert [line[:2] for line in lines[3:5]] == ["'-", "'@"]
    assert "'\tx" in lines[5]
    assert "plain,,7," in export_csv(frame).decode()
    assert "'\uff1d1,7.0,8," in export_csv(frame).decode(), "a full-width sign is one, too"


# --- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_the_same_from_the_file_and_from_the_rows(
    database: Path, runs: RunsFolder, nothing: Path
) -> None:
    path = build_run(
        runs, "t4", [cell(status="failed"), cell(), cell(status="oom", precision="fp16"),
                     cell(status="unsupported", precision="tf32"), cell(process=1)], end=None,
    )
    data = path.read_bytes()
    path.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    with open_reading(database, reference=nothing) as store:
        stored = run_progress(store, RUN)
        found = run_progress(runs, RUN)
        assert stored == found
    assert (found.cells, found.ok, found.failed, found.not_run, found.done) == (5, 1, 1, 1, 3)
    assert found.running is not None
    assert found.running["index"] == 4
    assert found.state == "open"


def test_progress_tells_the_doubts_of_the_runner(database: Path, runs: RunsFolder, nothing: Path) -> None:
    path = build_run(runs, "t4", [cell()], end=None)
    append_records(path, [Note("warning", "other programs keep the CPU 60% busy"), Note("resumed", "again")], seq=9)
    with open_reading(database, reference=nothing) as store:
        assert run_progress(store, RUN) == run_progress(runs, RUN)
        assert run_progress(runs, RUN).warnings == ("other programs keep the CPU 60% busy",)


def test_progress_follows_a_live_file(runs: RunsFolder) -> None:
    reader = ProgressReader(runs, RUN)
    assert reader.poll().cells is None
    path = build_run(runs, "t4", [cell()], end=None)
    assert (reader.poll().ok, reader.poll().state) == (1, "open")
    append_records(path, [End("stopped", "asked to")], seq=4)
    assert (reader.poll().state, reader.poll().reason) == ("stopped", "asked to")
