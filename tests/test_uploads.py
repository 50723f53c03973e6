"""An upload is looked at in a limited child, refused in one sentence or kept; what is kept can be taken back."""
from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from builders import build_run, cell, encode_run, header, records_of_run

from core.errors import UserError
from core.records import RunsFolder
from core.store import child, open_app, open_reading, queries, uploads
from core.store.export import export_run
from core.store.journal import Journal
from core.store.uploads import accept, history, ingest_file, preview, redo, undo

RUN = "20261130-100000-00000001"
PROJECT = Path(__file__).resolve().parent.parent
GOOD = encode_run(RUN, records_of_run("t4", [cell(), cell(status="oom", precision="fp16")]))


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    return tmp_path / "results.duckdb"


@pytest.fixture
def runs(database: Path) -> RunsFolder:
    return RunsFolder.beside(database)


def zipped() -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("run.jsonl", GOOD)
    return stream.getvalue()


def test_lines_that_differ_from_stored_ones_are_told(database: Path, runs: RunsFolder, tmp_path: Path) -> None:
    build_run(runs, "t4", [cell()])
    other = tmp_path / "other.jsonl"
    other.write_bytes(encode_run(RUN, records_of_run("t4", [cell(9)])))
    assert ingest_file(other, database, reference=tmp_path / "nothing").conflicts == 1
    again = tmp_path / "again.jsonl"
    again.write_bytes(encode_run(RUN, records_of_run("t4", [cell(8)])))
    with open_app(database, reference=tmp_path / "nothing"):
        told = ingest_file(again, database, reference=tmp_path / "nothing")
    assert (told.by, told.conflicts) == ("app", 1)


def test_a_file_without_an_end_is_not_read_to_its_end(database: Path) -> None:
    with pytest.raises(UserError, match="zero has more than"):
        ingest_file("/dev/zero", database)


def test_a_first_line_that_is_bad_is_named(runs: RunsFolder) -> None:
    other_device = GOOD.replace(b'"type":"cuda"', b'"type":"tpu"')
    for wrong, words in ((b"\xef\xbb\xbf" + GOOD, "BOM"), (other_device, "device.type")):
        with pytest.raises(UserError, match=f"begins with a line that cannot be used .*{words}"):
            preview(wrong, "run.jsonl")


def test_a_torn_packed_upload_comes_out_again(database: Path, runs: RunsFolder, tmp_path: Path) -> None:
    accept(runs, gzip.compress(GOOD) + b"garbage", "run.jsonl.gz")
    with open_reading(database, reference=tmp_path / "nothing") as store:
        assert export_run(store, RUN) == GOOD


class _Boom:
    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("opened-by-pickle", "w"))


# --- what is in it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [GOOD, gzip.compress(GOOD)])
def test_a_preview_names_runs_cells_and_cards_and_keeps_nothing(data: bytes, runs: RunsFolder) -> None:
    found = preview(data, "some/folder/run.jsonl")
    assert found.name == "run.jsonl"
    assert found.run_ids == (RUN,)
    assert (found.cells, found.ok, found.lines, found.bad_lines) == (2, 1, 7, 0)
    assert found.gpus == (found.runs[0].gpu_label,)
    assert found.runs[0].gpu_key == "t4"
    assert found.upload_id == hashlib.sha256(data).hexdigest()
    assert found.complete_bytes == len(GOOD)
    assert not runs.root.exists()


def test_a_preview_says_what_is_new_known_and_conflicting(database: Path, runs: RunsFolder, tmp_path: Path) -> None:
    build_run(runs, "t4", [cell()])
    with open_reading(database, reference=tmp_path / "nothing") as store:
        same = preview(encode_run(RUN, records_of_run("t4", [cell()])), "a.jsonl", store)
        assert same.already_known
        assert (same.runs[0].new_lines, same.runs[0].known_lines, same.runs[0].conflicting_lines) == (0, 5, 0)
        other = preview(encode_run(RUN, records_of_run("t4", [cell(9), cell(precision="fp16")])), "b.jsonl", store)
        assert not other.already_known
        # Lines 1 (plan of two cells), 3 (its cell), 2 (its note says two) and 4 (a note where the end was) differ.
        assert (other.runs[0].new_lines, other.runs[0].known_lines, other.runs[0].conflicting_lines) == (2, 1, 4)


def test_bad_lines_are_listed_and_the_good_ones_taken_when_asked(
    database: Path, runs: RunsFolder, tmp_path: Path
) -> None:
    lines = GOOD.splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"wall_ms":[10.0', b'"wall_ms":[-10.0')
    found = preview(b"".join(lines), "x.jsonl")
    assert (found.lines, found.bad_lines) == (6, 1)
    problem = found.problems[0]
    assert (problem.line, problem.field, problem.found, problem.expected) == (
        4, "cell.wall_ms[0]", "-10.0", "a number above 0"
    )
    with pytest.raises(UserError) as caught:
        accept(runs, b"".join(lines), "x.jsonl", found=found)
    assert str(caught.value) == (
        "x.jsonl: 1 of 7 lines cannot be used (line 4, field cell.wall_ms[0]: -10.0); expected a number above 0; "
        "mend them, or take the good lines alone (python -m core ingest FILE --good-lines)."
    )
    assert not runs.root.exists()
    accept(runs, b"".join(lines), "x.jsonl", good_lines_only=True)
    with open_reading(database, reference=tmp_path / "nothing") as store:
        assert queries.cells(store)["status"].tolist() == ["oom"]
        assert len(queries.problems(store)) == 1


def test_a_torn_end_is_said() -> None:
    assert preview(GOOD[:-5], "x.jsonl").torn == "the last line is cut off"
    long = encode_run(RUN, records_of_run("t4", [cell(1.5 + i, process=i) for i in range(50)]))
    found = preview(gzip.compress(long)[:-200], "x.jsonl.gz")
    assert "ends early" in str(found.torn)
    assert 0 < found.lines < 103


def test_a_damaged_packed_file_gives_the_lines_that_its_preview_counted(
    database: Path, runs: RunsFolder, tmp_path: Path
) -> None:
    packed = gzip.compress(encode_run(RUN, records_of_run("t4", [cell(1.5 + i, process=i) for i in range(200)])))
    for share in (0.2, 0.5, 0.8):
        at = int(len(packed) * share)
        data = packed[:at] + b"\xff" * 64 + packed[at + 64:]
        found = preview(data, "x.jsonl.gz")
        assert 0 < found.lines < 400
        upload = accept(runs, data, "x.jsonl.gz", good_lines_only=True)
        with open_reading(database, reference=tmp_path / "nothing") as store:
            lines = store.frame("select sum(lines + duplicates + conflicts) as n from source_run where source = ?",
                                [f"uploads/{upload.upload_id}"])
            assert lines["n"].tolist() == [found.lines]
        undo(runs, upload.upload_id)


# --- refused in one sentence -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "x.bin is empty"),
        (pickle.dumps(_Boom()), "x.bin is a Python pickle, which is never loaded here"),
        (gzip.compress(pickle.dumps(_Boom())), "x.bin is a Python pickle"),
        (zipped(), "x.bin is a zip archive"),
        (b"\0" * 8 + b"DUCK" + b"\0" * 4000, "x.bin is a DuckDB database"),
        (b"PAR1" + b"\0" * 100, "x.bin is a Parquet table"),
        (b"<!DOCTYPE html><html></html>", "x.bin is a web page"),
        (b"\x7fELF\x02", "x.bin is a program"),
        (b"a\0b", "x.bin is a binary file"),
        (b"gpu,ms\nT4\nL4,85,9\n", "x.bin is no run file (line 1, field (line): no JSON"),
        (b"hello there\n", "x.bin is no run file (line 1"),
        (b'{"a": 1}\n', "x.bin is no run file (line 1, field kind: null)"),
        (b"{" * 50_000 + b"\n", "x.bin is no run file (line 1"),
        (b"\x1f\x8b garbage", "x.bin holds no complete line"),
        (GOOD.replace(b'"schema":"1.0"', b'"schema":"3.1"'), "x.bin has schema '3.1'; expected 1.0 or older"),
        (encode_run(RUN, [cell()]), f"x.bin has lines of run {RUN}, but not the line that names its device"),
    ],
)
def test_what_is_no_run_file_is_refused_in_one_sentence(data: bytes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        preview(data, "x.bin")
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert not Path("opened-by-pickle").exists()


def test_too_large_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uploads, "MAX_UPLOAD_BYTES", 1000)
    with pytest.raises(UserError, match=r"x.jsonl has \d+ bytes; expected at most 1000"):
        preview(GOOD, "x.jsonl")
    path = tmp_path / "big.jsonl"
    path.write_bytes(GOOD)
    with pytest.raises(UserError, match="or put it into the runs folder"):
        ingest_file(path, tmp_path / "results.duckdb")


@pytest.mark.parametrize(
    ("limits", "data", "sentence"),
    [
        ({"line_bytes": 2000}, GOOD.splitlines(True)[0] + b" " * 3000 + b"\n", "line 2 is longer than 2000 bytes"),
        ({"lines": 3}, GOOD, "it has more than 3 lines"),
        ({"unpacked_bytes": 3000}, gzip.compress(GOOD), "it unpacks to more than 3000 bytes"),
        ({}, gzip.compress(GOOD + b"\n" * 150_000_000, 1), "it has more than 200000 lines"),
        ({"lines": 10**9}, gzip.compress((b" " * 4000 + b"\n") * 4000, 9), "it unpacks to more than 100 times"),
    ],
)
def test_limits_are_kept(
    limits: dict[str, int], data: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "LIMITS", {**uploads.LIMITS, **limits})
    with pytest.raises(UserError, match=sentence):
        preview(data, "x.jsonl")


def test_a_reader_that_takes_too_much_memory_or_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    nasty = b"[" + b"[]," * 1_000_000 + b"[]]\n"
    with monkeypatch.context() as tight:
        tight.setattr(uploads, "LIMITS", {**uploads.LIMITS, "memory_bytes": 100 * 1024 * 1024})
        with pytest.raises(UserError, match="memory"):
            preview(nasty, "x.jsonl")
    with monkeypatch.context() as tight:
        tight.setattr(uploads, "TIMEOUT_S", 0.01)
        with pytest.raises(UserError, match="takes longer than"):
            preview(GOOD, "x.jsonl")


def test_an_answer_that_is_longer_than_an_argument_of_a_process_is_refused_like_any_long_text() -> None:
    answers = {"gpu": "T4", "precision": "fp16", "task": "x" * 300_000}
    with pytest.raises(UserError, match="text of 300000 characters"):
        preview(b"model,time (ms)\na,1\n", "x.csv", answers=answers)


def test_the_reader_imports_nothing_but_records_and_the_standard_library() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('reader', {str(child.SCRIPT)!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "import json; print(json.dumps([n for n in sys.modules if n.split('.')[0] in "
        "('core', 'duckdb', 'pandas', 'numpy', 'pyarrow', 'torch', 'pickle')]))"
    )
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(json.loads(out))
    assert {name.split(".")[0] for name in loaded} == {"core"}
    assert all(name == "core" or name.startswith(("core.records", "core.errors")) for name in loaded)


# --- kept, and taken back --------------------------------------------------------------------------------------------


def test_an_accepted_file_lies_under_its_hash_with_a_journal_line(runs: RunsFolder) -> None:
    record = accept(runs, GOOD, "../../etc/run.jsonl", actor="ann", label="lab T4")
    assert (runs.uploads / record.upload_id).read_bytes() == GOOD
    assert [p.name for p in runs.uploads.iterdir()] == [hashlib.sha256(GOOD).hexdigest()]
    (entry,) = Journal(runs.journal).entries()
    assert (entry.act, entry.actor, entry.target) == ("upload", "ann", f"upload:{record.upload_id}")
    assert (record.name, record.label, record.run_ids) == ("run.jsonl", "lab T4", (RUN,))


def test_the_same_bytes_again_change_nothing(runs: RunsFolder) -> None:
    first = accept(runs, GOOD, "a.jsonl", actor="ann")
    assert accept(runs, GOOD, "b.jsonl", actor="bob") == first
    assert len(Journal(runs.journal).entries()) == 1


def test_undo_keeps_the_original_and_can_be_undone(runs: RunsFolder) -> None:
    record = accept(runs, GOOD, "a.jsonl")
    undo(runs, record.upload_id, actor="bob")
    assert [u.active for u in history(runs)] == [False]
    with pytest.raises(UserError, match="to undo"):
        undo(runs, record.upload_id)
    assert (runs.uploads / record.upload_id).exists()
    redo(runs, record.upload_id)
    assert [(u.active, u.name) for u in history(runs)] == [(True, "a.jsonl")]
    with pytest.raises(UserError, match="bring back"):
        redo(runs, "0" * 64)


def test_a_refused_file_leaves_no_trace(runs: RunsFolder) -> None:
    with pytest.raises(UserError):
        accept(runs, pickle.dumps({"a": 1}), "a.jsonl")
    assert not runs.root.exists()


# --- the command -----------------------------------------------------------------------------------------------------


def test_ingest_without_an_app_makes_the_rows_itself(database: Path, tmp_path: Path) -> None:
    path = build_run(tmp_path / "away" / "q.jsonl.gz", "t4")
    result = ingest_file(path, database, reference=tmp_path / "nothing")
    assert result.by == "command"
    assert result.preview.run_ids == (RUN,)
    with open_reading(database, reference=tmp_path / "nothing") as store:
        assert queries.runs(store)["source"].tolist() == ["upload"]


def test_ingest_with_an_app_open_returns_when_its_rows_are_there(database: Path, tmp_path: Path) -> None:
    path = build_run(tmp_path / "away" / "q.jsonl.gz", "t4")
    with open_app(database, reference=tmp_path / "nothing") as app:
        result = ingest_file(path, database, reference=tmp_path / "nothing")
        assert result.by == "app"
        assert result.waited_s < 5.0
        assert queries.runs(app)["upload_id"].tolist() == [result.upload_id]


def test_ingest_does_not_wait_for_ever(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_app(database, reference=tmp_path / "nothing") as app:
        app._stop.set()
        app._thread.join()
        result = ingest_file(build_run(tmp_path / "q.jsonl", "t4"), database, wait_s=0.3)
        assert (result.by, result.waited_s > 0.3) == ("nobody yet", True)


def test_a_dry_run_keeps_nothing(database: Path, runs: RunsFolder, tmp_path: Path) -> None:
    result = ingest_file(build_run(tmp_path / "q.jsonl", "t4"), database, dry_run=True)
    assert result.preview.cells == 1
    assert not runs.root.exists()
    assert not database.exists()


def test_a_file_of_the_runs_folder_is_not_taken_twice(database: Path, runs: RunsFolder, tmp_path: Path) -> None:
    result = ingest_file(build_run(runs, "t4"), database, reference=tmp_path / "nothing")
    assert (result.by, result.upload_id) == ("command", None)
    assert not runs.uploads.exists()


def test_a_missing_file_is_named_by_its_base_name(database: Path) -> None:
    with pytest.raises(UserError, match=r"^no file gone.jsonl; expected a run file"):
        ingest_file("/somewhere/gone.jsonl", database)


@pytest.fixture(autouse=True)
def _clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_every_header_field_may_hold_markup_without_harm(runs: RunsFolder) -> None:
    head = header("t4", label="<script>alert(1)</script>")
    found = preview(encode_run(RUN, [head, cell()]), "<b>x</b>.jsonl")
    assert found.runs[0].label == "<script>alert(1)</script>"
    assert json.loads(json.dumps(found.name)) == "b>.jsonl"
