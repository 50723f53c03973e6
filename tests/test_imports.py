"""A foreign file's whole way: asked, kept with its answers, in the rows, offered again, taken back, rebuilt."""
from __future__ import annotations

import json
import random
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import build_run, cell, encode_run, op, read_uploads_here, records_of_run, rows_of
from foreign import mutated

from core.answers.compare import compare
from core.answers.coverage import coverage
from core.answers.explain import explain
from core.answers.export import export
from core.answers.imports import attached, facts_by_format, log, outlook
from core.charts.tables import cells as cells_tables
from core.cli import main
from core.errors import UserError
from core.records import Ceiling, Note, RunsFolder, decode_line
from core.store import child, imported, open_reading, queries
from core.store.export import export_run
from core.store.journal import Journal
from core.store.read_upload import examine
from core.store.uploads import LIMITS, accept, history, ingest_file, preview, redo, undo

RUN = "20261130-100000-00000001"
TABLE = b"model,time (ms)\nencoder,12\nencoder,14\n"
ANSWERS = {"gpu": "Tesla T4", "precision": "fp16"}
PERMODEL = "{}_1_gpus__float_model_inference_benchmark.csv"
SMI = ("timestamp, name, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz]\n"
       "2026/11/30 09:59:59.000, Tesla T4, 0 %, 12.00 W, 300 MHz\n"
       "2026/11/30 10:00:01.000, Tesla T4, 36 %, 35.00 W, 585 MHz\n"
       "2026/11/30 10:00:02.000, Tesla T4, 34 %, 36.00 W, 585 MHz\n"
       "2026/11/30 10:00:03.000, Tesla T4, 98 %, 69.00 W, 1005 MHz\n"
       "2026/11/30 10:09:00.000, Tesla T4, 0 %, 12.00 W, 300 MHz\n").encode("ascii")


@pytest.fixture(autouse=True)
def _child(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The limited child itself only where it is what is tested."""
    if "child" not in request.node.name:
        read_uploads_here(monkeypatch, tmp_path)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    return tmp_path / "results.duckdb"


@pytest.fixture
def runs(database: Path) -> RunsFolder:
    return RunsFolder.beside(database)


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    return tmp_path / "nothing"


def kernels(scale: float) -> bytes:
    """A trace of two operations, 100 us and 50 us of kernels times `scale`."""
    def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}

    return json.dumps({"deviceProperties": [{"id": 0, "name": "Tesla T4"}], "traceEvents": [
        event("cpu_op", "aten::conv2d", 0, 10), event("cuda_runtime", "cudaLaunchKernel", 1, 1, correlation=1),
        event("cpu_op", "aten::relu", 20, 10), event("cuda_runtime", "cudaLaunchKernel", 21, 1, correlation=2),
        event("kernel", "k1", 30, 100 * scale, correlation=1, device=0),
        event("kernel", "k2", 600, 50 * scale, correlation=2, device=0),
    ]}).encode()


# --- in, out, and made anew ------------------------------------------------------------------------------------------


def test_a_table_becomes_rows_and_a_rebuild_makes_the_same_ones(
    database: Path, runs: RunsFolder, reference: Path
) -> None:
    upload = accept(runs, TABLE, "a.csv", answers=ANSWERS)
    assert (runs.uploads / upload.upload_id).read_bytes() == TABLE
    entry = Journal(runs.journal).entries(f"upload:{upload.upload_id}")[0]
    assert entry.data["import"]["answers"] == ANSWERS
    with open_reading(database, reference=reference) as store:
        rows = queries.cells(store)
        assert rows[["tracker", "implementation", "origin", "n", "wall_median_ms", "gpu_key"]].to_numpy().tolist() == [
            ["encoder", "foreign", "imported", 2, 13.0, "t4"]]
        before = rows_of(store)
    database.unlink()
    shutil.rmtree(runs.uploads / ".lines")
    with open_reading(database, reference=reference) as store:
        assert rows_of(store) == before
    undo(runs, upload.upload_id)
    with open_reading(database, reference=reference) as store:
        assert queries.cells(store).empty
    redo(runs, upload.upload_id)
    with open_reading(database, reference=reference) as store:
        assert len(queries.cells(store)) == 1


def test_an_original_that_gives_no_lines_any_more_is_said_once(
    database: Path, runs: RunsFolder, reference: Path
) -> None:
    upload = accept(runs, TABLE, "a.csv", answers=ANSWERS)
    shutil.rmtree(runs.uploads / ".lines")
    (runs.uploads / upload.upload_id).write_bytes(b"\x00" * 100)
    build_run(runs, "t4")
    with open_reading(database, reference=reference) as store:
        assert [notice for notice in store.notices if "a.csv cannot be read as before" in notice]
        assert queries.cells(store)["run_id"].tolist() == [RUN]


def test_an_imported_run_leaves_as_lines_that_another_machine_takes(
    database: Path, runs: RunsFolder, reference: Path, tmp_path: Path
) -> None:
    accept(runs, TABLE, "a.csv", answers=ANSWERS)
    with open_reading(database, reference=reference) as store:
        run_id = str(queries.runs(store)["run_id"][0])
        lines = export_run(store, run_id)
        assert export(store, "t4", "jsonl").count(b'"kind":"cell"') == 1
        before = queries.cells(store).drop(columns=["label"])
    other = RunsFolder(tmp_path / "other" / "runs")
    accept(other, lines, "exported.jsonl")
    with open_reading(tmp_path / "other" / "results.duckdb", reference=reference) as store:
        assert queries.cells(store).drop(columns=["label"]).equals(before)


def test_a_run_without_cells_leaves_whole(database: Path, runs: RunsFolder, reference: Path) -> None:
    named = accept(runs, SMI, "smi.csv").run_ids[0]
    ceilings = build_run(runs, "t4", [], ceilings=[Ceiling("copy", 240.0, "GB/s")])
    with open_reading(database, reference=reference) as store:
        assert b'"telemetry"' in export(store, named, "jsonl")
        assert export(store, RUN, "jsonl") == ceilings.read_bytes()


def test_open_questions_keep_a_file_out_and_are_named(runs: RunsFolder) -> None:
    with pytest.raises(UserError, match=r"a\.csv is a table that does not say everything.*--answer gpu=\.\.\."):
        accept(runs, TABLE, "a.csv")
    assert not runs.root.exists()


def test_what_was_answered_is_offered_for_the_next_table_with_these_columns(runs: RunsFolder) -> None:
    accept(runs, TABLE, "a.csv", answers=ANSWERS)
    again = preview(TABLE.replace(b"12", b"13"), "b.csv", runs=runs)
    assert again.imported is not None
    assert (again.imported.from_saved, dict(again.imported.answers), again.open_questions) == (True, ANSWERS, ())
    assert preview(TABLE.replace(b"12", b"13"), "b.csv", runs=runs, use_saved=False).open_questions
    assert preview(b"model,other (ms)\nx,1\ny,2\n", "c.csv", runs=runs).open_questions
    accept(runs, TABLE.replace(b"12", b"13"), "b.csv", found=again)
    assert len([e for e in Journal(runs.journal).entries() if e.act == "mapping"]) == 1, "the same answers once"


def test_a_file_that_is_here_keeps_its_answers_until_it_is_undone(runs: RunsFolder) -> None:
    data = json.dumps({"forward": {"latency": {"unit": "s", "values": [0.5]}}}).encode()
    accept(runs, data, "a.json", answers=ANSWERS)
    again = preview(data, "a.json", runs=runs)
    assert again.imported is not None
    assert (dict(again.imported.answers), again.open_questions) == (ANSWERS, ())
    accept(runs, data, "a.json", found=again)
    assert len(history(runs)) == 1
    with pytest.raises(UserError, match=r"a\.json is here already, read with other answers \(gpu Tesla T4, .*undo it"):
        accept(runs, data, "a.json", answers={**ANSWERS, "precision": "bf16"})
    assert len(Journal(runs.journal).entries()) == 1


def test_other_answers_after_an_undo_give_other_rows(database: Path, runs: RunsFolder, reference: Path) -> None:
    first = accept(runs, TABLE, "a.csv", answers=ANSWERS)
    undo(runs, first.upload_id)
    accept(runs, TABLE, "a.csv", answers={**ANSWERS, "precision": "bf16"})
    with open_reading(database, reference=reference) as store:
        assert queries.cells(store)["precision"].tolist() == ["bf16"]


def test_the_lines_of_an_import_are_a_cache_that_a_new_reader_makes_anew(
    database: Path, runs: RunsFolder, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(runs, TABLE, "a.csv", answers=ANSWERS)
    before = {path.name for path in (runs.uploads / ".lines").iterdir()}
    monkeypatch.setattr(imported, "IMPORT_VERSION", 99)
    with open_reading(database, reference=reference) as store:
        assert len(queries.cells(store)) == 1
    assert {path.name for path in (runs.uploads / ".lines").iterdir()} > before


# --- compared and explained ------------------------------------------------------------------------------------------


def test_two_cards_of_one_task_are_compared_and_explained_per_model(
    database: Path, runs: RunsFolder, reference: Path
) -> None:
    accept(runs, b"resnet18,vgg16\n20,60\n20,61\n", PERMODEL.format("GeForce RTX 2080 Ti"))
    accept(runs, b"resnet18,vgg16\n10,20\n11,20\n", PERMODEL.format("A100-SXM4-40GB"))
    with open_reading(database, reference=reference) as store:
        answer = compare(store, "RTX 2080 Ti", "a100-sxm4-40gb")
        ratios = {row["tracker"]: row["speedup"]["value"] for row in answer["rows"]}
        assert ratios == {"resnet18 inference": pytest.approx(20 / 10.5), "vgg16 inference": pytest.approx(60.5 / 20)}
        told = explain(store, "RTX 2080 Ti", "a100-sxm4-40gb")
        assert "vgg16 inference, batch 12" in json.dumps([told["workload"], told["other_cells"]])


def test_a_trace_against_itself_loses_nothing_and_against_another_names_the_operation(
    database: Path, runs: RunsFolder, reference: Path
) -> None:
    answers = {"precision": "fp16", "task": "model"}
    found = [accept(runs, kernels(scale), f"{scale}.json", answers=answers).run_ids[0] for scale in (1, 3)]
    with open_reading(database, reference=reference) as store:
        same = explain(store, found[0], found[0])
        assert all(row["lost_ms"] == 0 for row in same["op_diff"])
        diff = {row["op"]: row["lost_ms"] for row in explain(store, found[1], found[0])["op_diff"]}
        assert diff == {"aten::conv2d": pytest.approx(0.2), "aten::relu": pytest.approx(0.1)}


def test_a_log_belongs_to_what_ran_on_that_card_then(database: Path, runs: RunsFolder, reference: Path) -> None:
    build_run(runs, "t4", [cell(at="2026-11-30T10:00:05Z")])
    build_run(runs, "h200-sxm-141gb", [cell(at="2026-11-30T10:00:05Z")], run_id="20261130-100000-00000002")
    upload = accept(runs, SMI, "smi.csv")
    named = accept(runs, kernels(1), "t.json", answers={"precision": "fp16", "attach": f"{RUN}:3"})
    with open_reading(database, reference=reference) as store:
        told = attached(store, RUN)
        assert [(row["file"], row["readings"]) for row in told["logs"]] == [("smi.csv", 3)]
        assert told["logs"][0]["headline"] == "3 readings: starved in 2 (585 MHz), capped in 1 (1\u2009005 MHz)."
        assert [(row["run_id"], row["cell"]) for row in told["profiles"]] == [(named.run_ids[0], 3)]
        assert attached(store, "20261130-100000-00000002") == {"logs": [], "profiles": []}
        whole = log(store, upload.run_ids[0])
        assert whole is not None
        assert whole["readings"] == 5
        assert log(store, RUN) is None


@pytest.mark.parametrize(
    ("attach", "said"),
    [
        ("20261130-100000-0000000f", "no such run is stored"), (f"{RUN}:99", r"line 99 of that run is no cell.*\(3\)"),
        (f"{RUN}:x", "line x of that run is no cell"), (f"{RUN}:0", "line 0 of that run is no cell"),
    ],
)
def test_what_belongs_to_no_stored_run_is_refused(
    database: Path, runs: RunsFolder, reference: Path, tmp_path: Path, attach: str, said: str
) -> None:
    build_run(runs, "t4", [cell()])
    answers = {"precision": "fp16", "attach": attach}
    with open_reading(database, reference=reference) as store, pytest.raises(UserError, match=said):
        preview(kernels(1), "t.json", store, answers=answers)
    path = tmp_path / "t.json"
    path.write_bytes(kernels(1))
    for dry_run in (True, False):
        with pytest.raises(UserError, match=said):
            ingest_file(path, database, reference=reference, answers=answers, dry_run=dry_run)
    assert not runs.uploads.exists()
    assert ingest_file(path, database, reference=reference, answers={**answers, "attach": f"{RUN}:3"}).upload_id


def test_the_run_of_one_log_is_not_offered_for_the_next(runs: RunsFolder) -> None:
    accept(runs, SMI, "smi.csv", answers={"attach": RUN, "zone": "+02:00"})
    again = preview(SMI.replace(b"36 %", b"37 %"), "next.csv", runs=runs).imported
    assert again is not None
    assert (dict(again.answers), again.assumed["attach"]) == ({"zone": "+02:00"}, "by time")


def test_a_note_that_only_looks_like_readings_is_none(database: Path, runs: RunsFolder, reference: Path) -> None:
    strange = [Note("telemetry", "x", data=data) for data in (
        {}, {"columns": 3}, {"columns": {"at_s": [1, 2], "power_w": [1]}}, {"columns": {"at_s": [{}]}})]
    build_run(runs, "t4", extra_records=strange)
    with open_reading(database, reference=reference) as store:
        assert log(store, RUN) is None


# --- before it counts ------------------------------------------------------------------------------------------------


def test_a_preview_says_what_is_held_and_what_matches(database: Path, runs: RunsFolder, reference: Path) -> None:
    build_run(runs, "h200-sxm-141gb", [cell(), cell(precision="fp16")], run_id="20261130-100000-00000002")
    data = encode_run(RUN, records_of_run(
        "t4", [cell(), cell(precision="bf16"), cell(wall_ms=[5.0] * 6, precision="fp16")],
        ceilings=[Ceiling("copy", 900.0, "GB/s")]))
    with open_reading(database, reference=reference) as store:
        told = outlook(store, data, preview(data, "x.jsonl", store), "h200-sxm-141gb")
        assert (told["ready_cells"], told["held_cells"], told["matching"]) == (2, 1, 1)
        assert sorted(item["kind"] for item in told["held"]) == ["ceiling", "cell"]
        assert told["headline"] == ("2 cells would count; 1 cell would be held in quarantine; 1 of them match "
                                    "H200 SXM 141GB.")
        assert outlook(store, SMI, preview(SMI, "smi.csv"), "h200-sxm-141gb")["headline"].startswith("5 readings")
        open_file = preview(TABLE, "a.csv")
        assert "before its questions are answered" in outlook(store, TABLE, open_file)["headline"]
        assert queries.runs(store)["run_id"].tolist() == ["20261130-100000-00000002"], "nothing of it is stored"


# --- from a shell ----------------------------------------------------------------------------------------------------


def shell(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any, str]:
    code = main(["ingest", *words, "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else None, out.err


def test_a_dry_run_lists_the_questions_and_answers_take_the_file_in(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, db = tmp_path / "a.csv", str(database)
    path.write_bytes(TABLE)
    code, answer, _ = shell(capsys, str(path), "--dry-run", "--db", db)
    assert code == 0
    file = answer["files"][0]
    assert (file["format"], file["lines"]) == ("table", 0)
    assert [(q["key"], q["default"]) for q in file["questions"]] == [
        ("time", "time (ms)"), ("task", "column: model"), ("gpu", None), ("precision", None), ("batch", "1")]
    code, _, error = shell(capsys, str(path), "--db", db)
    assert (code, "--answer gpu=..." in error) == (2, True)
    code, answer, _ = shell(capsys, str(path), "--db", db, "--answer", "gpu=RTX 3090", "--answer", "precision=fp32")
    assert (code, answer["files"][0]["stored_by"], answer["files"][0]["cells"]) == (0, "command", 1)
    for words, said in ((["--answer", "gpu"], "a key and its value"), (["--answer", "colour=red"], "colour")):
        code, _, error = shell(capsys, str(path), "--db", db, *words)
        assert (code, said in error) == (2, True)


def test_what_is_not_recognised_ends_with_code_2(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("nothing that anybody knows\n")
    assert shell(capsys, str(path), "--dry-run", "--db", str(database))[0] == 2


def test_a_report_and_its_configuration_are_read_together(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, config = tmp_path / "report.json", tmp_path / "config.json"
    report.write_text(json.dumps({"forward": {"latency": {"unit": "s", "values": [0.5]}}}))
    config.write_text(json.dumps({
        "backend": {"model": "bert", "device": "cuda", "dtype": "float16"}, "environment": {"gpu": ["Tesla T4"]},
        "scenario": {"input_shapes": {"batch_size": 8}}}))
    code, answer, _ = shell(capsys, str(report), str(config), "--db", str(database))
    assert code == 0
    first, second = answer["files"]
    assert (first["answers"], first["cells"]) == (
        {"gpu": "Tesla T4", "precision": "fp16", "batch": "8", "task": "bert"}, 1)
    assert "read together with" in second["headline"]
    code, _, error = shell(capsys, str(config), "--db", str(database))
    assert (code, "give both together" in error) == (2, True)
    looked = [preview(path.read_bytes(), path.name) for path in (report, config)]
    assert set(facts_by_format(looked)) == {"optimum-benchmark"}
    assert facts_by_format([*looked, looked[1]]) == {}, "two configurations: neither is taken"


# --- another machine's results.duckdb --------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path, reference: Path) -> Path:
    """A results.duckdb of another machine with one run of two cells, an op table and a ceiling."""
    folder = tmp_path / "other"
    folder.mkdir()
    measured = [cell(ops=(op(), op("aten::bmm"))), cell(status="oom", precision="fp16")]
    build_run(RunsFolder(folder / "runs"), "t4", measured,
              ceilings=[Ceiling("copy", 240.0, "GB/s", samples=(239.0, 240.0))])
    path = folder / "results.duckdb"
    with open_reading(path, reference=reference):
        pass
    return path


def test_a_database_gives_its_runs_and_what_is_known_changes_nothing(
    database: Path, runs: RunsFolder, reference: Path, other: Path
) -> None:
    data = other.read_bytes()
    found = preview(data, "results.duckdb")
    assert found.imported is not None
    upload = accept(runs, data, "results.duckdb", found=found)
    with open_reading(database, reference=reference) as store:
        rows = queries.cells(store)
        assert rows["status"].tolist() == ["ok", "oom"]
        assert rows["wall_median_ms"].tolist()[0] == 11.0
        assert len(queries.ops(store, rows["run_id"].iloc[0], int(rows["seq"].iloc[0]))) == 2
        assert queries.ceilings(store)["value"].tolist() == [240.0]
        copies = [run_id for run_id in queries.runs(store)["run_id"] if run_id != RUN]
    assert copies in ([], [f"copy-{RUN}"])
    # The run itself comes: a copy of it gives way, equal lines are no news.
    shutil.copytree(other.parent / "runs" / RUN, runs.run_dir(RUN))
    with open_reading(database, reference=reference) as store:
        assert queries.runs(store)["run_id"].tolist() == [RUN]
        assert len(queries.cells(store)) == 2
        assert len(queries.ceilings(store)) == 1
        assert queries.problems(store).empty
        again = preview(data, "results.duckdb", store)
        assert again.already_known
        assert again.imported is not None
        assert again.imported.said[-1] == "1 of 1 runs are here already."
    undo(runs, upload.upload_id)
    with open_reading(database, reference=reference) as store:
        assert queries.runs(store)["run_id"].tolist() == [RUN]


def test_a_run_that_is_stored_whole_keeps_its_id_and_its_bytes(
    database: Path, runs: RunsFolder, reference: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "whole"
    folder.mkdir()
    plain = cell(execution_path={"conv": "ieee", "matmul": "ieee"})
    records = records_of_run("t4", [plain])
    ordered = [Note(r.event, r.text, r.at, dict(sorted(r.data.items()))) if isinstance(r, Note) else r for r in records]
    lines = encode_run(RUN, ordered)
    RunsFolder(folder / "runs").root.mkdir()
    (folder / "runs" / "a.jsonl").write_bytes(lines)
    with open_reading(folder / "results.duckdb", reference=reference):
        pass
    data = (folder / "results.duckdb").read_bytes()
    found = preview(data, "results.duckdb")
    assert (found.run_ids, found.lines_text) == ((RUN,), lines)
    accept(runs, lines, "a.jsonl")
    with open_reading(database, reference=reference) as store:
        assert preview(data, "results.duckdb", store).already_known


def test_a_database_of_views_macros_or_strange_tables_is_refused_and_reads_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the password")

    def refused(*statements: str) -> str:
        path = tmp_path / "x.duckdb"
        path.unlink(missing_ok=True)
        with duckdb.connect(str(path)) as connection:
            for statement in statements:
                connection.execute(statement)
        with pytest.raises(UserError) as caught:
            preview(path.read_bytes(), "x.duckdb")
        assert "password" not in str(caught.value)
        return str(caught.value)

    assert "views or macros" in refused(f"create view run as select * from read_text('{secret}')")
    assert "views or macros" in refused(f"create macro cell() as table select * from read_text('{secret}')")
    assert "no table line" in refused("create table t (x int)")
    assert "cannot be read" in refused(*(f"create table {name} (y int)" for name in ("line", "run", "cell", "sample")))


def test_a_database_is_read_in_the_child(other: Path) -> None:
    found = preview(other.read_bytes(), "results.duckdb")
    assert (found.cells, found.ok) == (2, 1)


def test_the_child_refuses_a_parquet_footer_of_ten_million_rows() -> None:
    stream = BytesIO()
    pq.write_table(pa.table({"x": pa.nulls(10_000_000, pa.int8())}), stream)
    with pytest.raises(UserError, match=r"x\.parquet is a Parquet table of 10000000 rows"):
        preview(stream.getvalue(), "x.parquet")


def test_a_damaged_database_is_refused_in_one_sentence(other: Path) -> None:
    data = bytearray(other.read_bytes())
    data[4096:8192] = b"\xff" * 4096
    with pytest.raises(UserError, match=r"results\.duckdb is a DuckDB database"):
        preview(bytes(data), "results.duckdb")


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_child_lets_no_package_in_for_text(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    original = child.subprocess.run

    def watched(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return original(command, **options)

    monkeypatch.setattr(child.subprocess, "run", watched)
    preview(TABLE, "a.csv", answers=ANSWERS)
    assert "-S" in commands[0]
    assert "-I" in commands[0]


def test_a_foreign_file_that_unpacks_too_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.store.uploads.LIMITS", {**__import__("core.store.uploads", fromlist=["x"]).LIMITS,
                                                      "foreign_bytes": 100_000})
    with pytest.raises(UserError, match="unpacks to more than 100000 bytes"):
        preview(b"model,time (ms)\n" + b"x,5\n" * 50_000, "a.csv")


def test_ingest_file_waits_for_the_rows_of_an_import(database: Path, reference: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(TABLE)
    result = ingest_file(path, database, reference=reference, answers=ANSWERS)
    assert (result.by, result.conflicts) == ("command", 0)
    assert history(RunsFolder.beside(database))[0].name == "a.csv"


def test_mutated_files_of_other_programs_are_refused_or_become_good_lines(tmp_path: Path) -> None:
    """benchmarks/fuzz.py does many more, in the child."""
    dice = random.Random(3)
    path = tmp_path / "upload"
    for _ in range(150):
        name, data, answers = mutated(dice)
        path.write_bytes(data)
        found = examine(str(path), {"limits": LIMITS, "name": name, "sha": "0" * 64, "answers": answers,
                                    "received_at": "2026-11-30T10:00:00Z"})
        for raw in (found.get("import_lines") or "").encode().splitlines():
            decode_line(raw)


def test_markup_in_a_foreign_file_is_text(database: Path, runs: RunsFolder, reference: Path) -> None:
    script = "<script>alert('x')</script>"
    accept(runs, f"model,time (ms),gpu\n{script},5,{script}\n".encode(), f"{script}.csv", answers={"precision": "fp16"})
    with open_reading(database, reference=reference) as store:
        row = queries.cells(store).iloc[0]
        assert (row["tracker"], row["gpu_label"], row["gpu_key"]) == (script, script, None)


def test_tasks_of_other_programs_stand_behind_the_trackers(database: Path, runs: RunsFolder, reference: Path) -> None:
    build_run(runs, "t4")
    table = "model,time (ms)\n" + "".join(f"m{n},{n}\n" for n in range(1, 9))
    accept(runs, table.encode(), "a.csv", answers={"gpu": "RTX 3090", "precision": "fp16"})
    with open_reading(database, reference=reference) as store:
        answer = coverage(store)
        assert [gpu["label"] for gpu in answer["gpus"]] == ["Tesla T4", "GeForce RTX 3090"]
        assert answer["workloads"][0]["workload"].startswith("local4d:base")
        assert "measured on 1 workload" in answer["headline"]
        assert "8 tasks of other programs' files beside them" in answer["headline"]
        assert cells_tables.coverage_finding(answer) == "1 GPU type measured on 1 workload"
        assert set(cells_tables.coverage_cells(answer)["label"]) == {"Tesla T4"}
        works = cells_tables.works(queries.cells(store))
        assert works["selector"].tolist() == ["local4d:base"]
