"""One process has the database; it is named to everybody else, and its lock dies with it."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from builders import build_run

from core.errors import UserError
from core.records import RunsFolder
from core.store import LockHeldError, holder_of, open_app, open_reading, queries
from core.store.export import export_csv, export_run
from core.store.lock import DatabaseLock

PROJECT = Path(__file__).resolve().parent.parent

OPEN_APP = """
import sys
from pathlib import Path
from core.store import open_app
store = open_app(sys.argv[1], reference=Path(sys.argv[1] + ".nothing"))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _no_runs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)


def second_app(database: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN_APP, str(database)], cwd=PROJECT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def refusal(database: Path) -> str:
    """What a second app process is told."""
    process = second_app(database)
    out, err = process.communicate(timeout=30)
    assert "open" not in out
    return err.strip().splitlines()[-1]


def test_a_second_app_is_refused_by_name_also_behind_every_export(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    build_run(RunsFolder(tmp_path / "runs"), "t4")
    with open_app(database, reference=tmp_path / "nothing") as app:
        assert f"results.duckdb is held by the app (process {os.getpid()})" in refusal(database)
        run_id = queries.runs(app)["run_id"].iloc[0]
        export_csv(queries.cells(app))
        export_csv(queries.samples(app, run_id))
        export_run(app, run_id)
        with open_reading(database, reference=tmp_path / "nothing"):
            pass
        holder_of(database)
        assert f"(process {os.getpid()})" in refusal(database)
        # And DuckDB's own lock still stands: no descriptor of the file was closed in this process.
        foreign = subprocess.run(
            [sys.executable, "-c", "import sys, duckdb; duckdb.connect(sys.argv[1])", str(database)],
            capture_output=True, text=True, check=False,
        )
        assert "Could not set lock" in foreign.stderr


def test_a_second_app_in_the_same_process_is_refused(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    with open_app(database, reference=tmp_path / "nothing"), pytest.raises(LockHeldError) as caught:
        open_app(database, reference=tmp_path / "nothing")
    assert caught.value.holder is not None
    assert caught.value.holder.pid == os.getpid()


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    process = second_app(database)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    with pytest.raises(UserError, match=rf"\(process {process.pid}\)"):
        open_app(database, reference=tmp_path / "nothing")
    process.kill()
    process.communicate()
    assert holder_of(database) is None
    with open_app(database, reference=tmp_path / "nothing") as app:
        assert queries.cells(app).empty


def test_a_lock_is_free_when_its_store_is_closed(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    for _ in range(2):
        with open_app(database, reference=tmp_path / "nothing"):
            pass
    DatabaseLock(database, "command").release()


def test_a_failed_start_lets_the_lock_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.store import store

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no ingester")

    database = tmp_path / "results.duckdb"
    with monkeypatch.context() as broken:
        broken.setattr(store, "Ingester", fail)
        for opener in (open_app, open_reading):
            with pytest.raises(RuntimeError):
                opener(database, reference=tmp_path / "nothing")
    with open_app(database, reference=tmp_path / "nothing"):
        pass


def test_a_file_open_in_another_program_is_named_and_can_still_be_asked(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    build_run(RunsFolder(tmp_path / "runs"), "t4")
    with open_reading(database, reference=tmp_path / "nothing"):
        pass
    code = "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(database)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(UserError, match=rf"open in process {process.pid}"):
            open_app(database, reference=tmp_path / "nothing")
        with open_reading(database, reference=tmp_path / "nothing") as store:
            assert store.in_memory
            assert len(queries.cells(store)) == 1
        process.kill()
    assert duckdb.connect(str(database), read_only=True).execute("select count(*) from cell").fetchall() == [(1,)]
