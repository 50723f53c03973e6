"""Files made to do harm: one sentence, no rows, nothing read that was not given; text stays text."""
from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import build_run, cell, encode_run, header, op, records_of_run

from core.cli import main
from core.errors import UserError
from core.records import Ceiling, Device, End, Host, Line, Note, OpTrial, RunsFolder, Software, encode_line
from core.store import open_reading, queries
from core.store.uploads import accept, preview

RUN = "20261130-100000-00000001"
OTHER = "20261130-100000-00000002"
GOOD = encode_run(RUN, records_of_run("t4", [cell(), cell(precision="fp16")]))
LINES = GOOD.splitlines(keepends=True)
SCRIPT = "<script>alert('x')</script><img src=x onerror=alert(1)>"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsFolder:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    return RunsFolder(tmp_path / "runs")


def refusal(runs: RunsFolder, data: bytes, name: str = "x.jsonl") -> str:
    """The sentence by which it is refused; nothing was kept."""
    with pytest.raises(UserError) as caught:
        accept(runs, data, name)
    assert "\n" not in str(caught.value)
    assert not runs.root.exists()
    return str(caught.value)


def with_field(name: str, value: str) -> bytes:
    """The good file, one field of its cell line replaced by this JSON text."""
    body = json.loads(LINES[3])
    body[name] = "@here@"
    bad = json.dumps(body).replace('"@here@"', value).encode() + b"\n"
    return b"".join([*LINES[:3], bad, *LINES[4:]])


def packed(block: bytes, times: int) -> bytes:
    """A gzip file of `times` members, each this block: large without much work."""
    return gzip.compress(block, 9) * times


MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        # 1 GB in one line, a long last line; 10 GB and 1.3 GB of lines; a bomb in a bomb; 300,000 lines
        (packed(b" " * MEGABYTE, 1024), "line 1 is longer than 4194304 bytes"),
        (GOOD + b"[" * 5 * MEGABYTE, "line 8 is longer than 4194304 bytes"),
        (packed(b" " * 65535 + b"\n", 160_000), "it unpacks to more than 419430400 bytes"),
        (packed(b" " * 65535 + b"\n", 20_000), "it unpacks to more than 100 times its size"),
        (packed(gzip.compress(b" " * 50 * MEGABYTE, 9), 1), "x.jsonl is a binary file"),
        (b"{}\n" * 300_000, "it has more than 200000 lines"),
        # nesting, of a whole file and in a field
        (b"[" * 100_000 + b"]" * 100_000 + b"\n", "JSON nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", "JSON nested too deeply"),
        (with_field("mood", "[" * 20 + "]" * 20), "field cell.mood: nested too deeply"),
        (with_field("drift", '{"a":' * 900 + "1" + "}" * 900), "nested too deeply"),
        # numbers that are none
        (with_field("wall_ms", "[NaN, 1, 2]"), "NaN); expected a finite number (NaN and Infinity are no JSON)"),
        (with_field("wall_ms", "[Infinity, 1, 2]"), "Infinity); expected a finite number"),
        (with_field("first_call_ms", "-Infinity"), "-Infinity); expected a finite number"),
        (with_field("first_call_ms", "1e999"), "field cell.first_call_ms: inf); expected a finite number"),
        (with_field("mood", '{"x": 1e999}'), "inf); expected a finite number"),
        (with_field("peak_bytes", "9" * 400), "an integer beyond 64 bits"),
        (with_field("peak_bytes", "9" * 5000), "line 4, field (line)"),
        # keys given twice, at the top and below
        (with_field("status", '"ok", "status": "oom"'), "line 4, field status: the same key twice"),
        (with_field("drift", '{"a": 1, "a": 2}'), "line 4, field a: the same key twice"),
        # names that lead elsewhere
        (GOOD.replace(RUN.encode(), b"../../etc/passwd"), "field run_id: '../../etc/passwd'"),
        (GOOD.replace(RUN.encode(), b"..\\\\..\\\\boot"), "field run_id"),
        (LINES[0].replace(RUN.encode(), b"uploads/x"), "field run_id"),
        (with_field("seq", "-1"), "field seq: -1"),
        (with_field("seq", "9007199254740993"), "field seq"),
        # text that is none
        (with_field("reason", '"\\ud800"'), "text that is not valid Unicode"),
        (b"".join([*LINES[:3], b"\xff\xfe\n"]), "bytes that are not UTF-8"),
        (with_field("reason", json.dumps("x" * 5000)), "text of 5000 characters"),
    ],
)
def test_it_is_refused_in_one_sentence_and_leaves_no_trace(runs: RunsFolder, data: bytes, sentence: str) -> None:
    said = refusal(runs, data)
    assert sentence in said
    assert len(said) < 500


def test_a_database_with_views_over_files_is_refused_and_reads_none(runs: RunsFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the password")
    path = tmp_path / "results.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create view run as select * from read_text('{secret}')")
        connection.execute(f"create macro cell() as table select * from read_text('{secret}')")
    said = refusal(runs, path.read_bytes(), "results.duckdb")
    assert said.startswith("results.duckdb is a DuckDB database; expected a run file")
    assert "password" not in said


def test_a_table_whose_footer_says_a_thousand_million_rows_is_refused_by_its_first_bytes(runs: RunsFolder) -> None:
    stream = BytesIO()
    block = pa.table({"x": pa.nulls(10_000_000, pa.int8())})
    with pq.ParquetWriter(stream, block.schema) as writer:
        for _ in range(100):
            writer.write_table(block, row_group_size=10_000_000)
    assert pq.read_metadata(BytesIO(stream.getvalue())).num_rows == 10**9
    assert refusal(runs, stream.getvalue()).startswith("x.jsonl is a Parquet table")


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("x.csv", packed(b"model,ms\n" + b"a" * 100 + b",1\n" * 10_000, 2_000), "100 times its size"),
        ("x.json", packed(b'{"traceEvents":[' + b'{"ph":"X"},' * 90_000, 300), "100 times its size"),
        ("x.csv", b"model,ms\na,1\n" + b"9" * 5 * MEGABYTE, "line 3"),
        ("x.json", b'{"forward":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        ("x.csv", b"model,ms\n" + b"a,1\n" * 300_000, "it has more than 200000 lines"),
        ("x.json", b'{"forward": {"latency": {"unit": "s", "values": [1], "values": []}}}', "the key values twice"),
        ("x.json", b'{"forward": {"latency": {"unit": "s", "unit": "s", "values": [1]}}}', "the key unit twice"),
    ],
)
def test_a_hostile_file_of_another_program_is_refused_in_one_sentence(
    runs: RunsFolder, name: str, data: bytes, sentence: str
) -> None:
    said = refusal(runs, data, name)
    assert sentence in said
    assert len(said) < 500


def made(tmp_path: Path, *statements: str) -> bytes:
    path = tmp_path / "made.duckdb"
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path.read_bytes()


KEYS = "(run_id varchar, seq bigint, sha varchar)"


@pytest.mark.parametrize(
    ("statements", "sentence"),
    [
        (("create table line as select 'run-000001' as run_id, i as seq, 'x' as sha from range(200000) t(i)",),
         "a database with 200000 rows in line"),
        ((f"create table line {KEYS}", "create view held as select * from read_text('{secret}')"), "it holds no run"),
        ((f"create table line {KEYS}", "create view seen as select * from read_text('{secret}')"), "views or macros"),
        ((f"create table line {KEYS}", "create macro seen() as (select content from read_text('{secret}'))"),
         "views or macros"),
        (("create table line as select 'run-000001' as run_id, 0::bigint as seq, repeat('x', 300000000) as sha",),
         "it cannot be read"),
    ],
)
def test_a_hostile_database_is_refused_and_reads_no_file(
    runs: RunsFolder, tmp_path: Path, statements: tuple[str, ...], sentence: str
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the password")
    tables = [f"create table {name} {KEYS}" for name in ("run", "cell", "sample")]
    data = made(tmp_path, *tables, *(text.replace("{secret}", str(secret)) for text in statements))
    said = refusal(runs, data, "results.duckdb")
    assert sentence in said
    assert "password" not in said


def test_a_name_of_any_system_becomes_its_last_part(runs: RunsFolder) -> None:
    for name in ("../../etc/passwd", "C:\\Windows\\system32\\x.jsonl", "/dev/null", "a/../b.jsonl", "\x1b[2Jx.jsonl"):
        found = preview(GOOD, name)
        assert not set(found.name) & set("/\\\x1b")
        record = accept(runs, GOOD, name, found=found)
        assert [path.name for path in runs.uploads.iterdir()] == [record.upload_id]


# --- a good file with bad lines --------------------------------------------------------------------------------------


def test_the_good_lines_of_a_mixed_file_come_only_when_asked_for(runs: RunsFolder, tmp_path: Path) -> None:
    data = with_field("wall_ms", "[NaN]") + encode_run(OTHER, records_of_run("cpu", [cell(cuda=False)]))
    found = preview(data, "x.jsonl")
    assert (found.run_ids, found.bad_lines, [p.line for p in found.problems]) == ((RUN, OTHER), 1, [4])
    assert "1 of 12 lines cannot be used (line 4" in refusal(runs, data)
    accept(runs, data, "x.jsonl", good_lines_only=True)
    with open_reading(tmp_path / "results.duckdb", reference=tmp_path / "nothing") as store:
        assert queries.cells(store)[["run_id", "precision"]].to_numpy().tolist() == [[RUN, "fp16"], [OTHER, "fp32"]]
        problem = queries.problems(store).to_dict("records")
        assert [(p["what"], p["line_number"], p["found"]) for p in problem] == [("bad line", 4, "NaN")]


def test_lines_of_a_run_without_its_header_are_named_and_do_not_count(runs: RunsFolder, tmp_path: Path) -> None:
    data = GOOD + encode_run(OTHER, [cell()], 3)
    found = preview(data, "x.jsonl")
    assert [run.device for run in found.runs] == ["Tesla T4", None]
    accept(runs, data, "x.jsonl")
    with open_reading(tmp_path / "results.duckdb", reference=tmp_path / "nothing") as store:
        assert set(queries.cells(store)["run_id"]) == {RUN}
        assert queries.problems(store)["what"].tolist() == ["no header"]


def test_the_command_takes_good_lines_only_when_told(
    runs: RunsFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, db = tmp_path / "x.jsonl", str(tmp_path / "results.duckdb")
    path.write_bytes(with_field("wall_ms", "[NaN]"))
    assert main(["ingest", str(path), "--db", db]) == 2
    assert "take the good lines alone" in capsys.readouterr().err
    assert not runs.root.exists()
    assert main(["ingest", str(path), "--db", db, "--good-lines"]) == 0
    assert "1 bad line left out" in capsys.readouterr().out


# --- text stays text -------------------------------------------------------------------------------------------------


def scripted(record: Any) -> Any:
    """The same record with the script in every text field that takes any text."""
    kept = {"type", "origin", "status", "state", "precision", "started_at", "execution", "memory_format"}
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name in kept or field.name == "extra":
            continue
        if "Mapping" in str(field.type):
            changes[field.name] = {SCRIPT: SCRIPT}
        elif "str" in str(field.type) and "tuple" not in str(field.type):
            changes[field.name] = SCRIPT
        elif dataclasses.is_dataclass(value):
            changes[field.name] = scripted(value)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            changes[field.name] = (scripted(value[0]),)
        elif field.name in ("kernels", "dtypes", "scalars", "arch_list"):
            changes[field.name] = (SCRIPT,)
    return dataclasses.replace(record, extra={SCRIPT: SCRIPT}, **changes)


def test_a_script_in_every_text_field_is_stored_as_the_text_it_is(runs: RunsFolder, tmp_path: Path) -> None:
    records = [
        scripted(header("t4")), scripted(Note("plan", "x")), scripted(Ceiling("copy", 1.0, "GB/s", "fp32")),
        scripted(cell(ops=(op(),))), scripted(OpTrial(op(), "x", (1.0,), (1.0,))), scripted(End("done")),
    ]
    assert scripted(Device("cuda", "x", "y")).name == SCRIPT
    assert scripted(Host()).cpu == scripted(Software("3", "2")).torch == SCRIPT
    data = encode_run(RUN, records)
    assert data.count(b"<script>") > 60
    found = preview(data, f"{SCRIPT}.jsonl")
    assert (found.bad_lines, found.runs[0].label, found.runs[0].gpu_label) == (0, SCRIPT, SCRIPT)
    accept(runs, data, f"{SCRIPT}.jsonl", label=SCRIPT, actor=SCRIPT)
    with open_reading(tmp_path / "results.duckdb", reference=tmp_path / "nothing") as store:
        row = queries.run_header(store, RUN).to_dict("records")[0]
        for name in ("label", "device_name", "gpu_label", "driver", "torch", "cpu", "os", "virtualization"):
            assert row[name] == SCRIPT
        line = queries.cells(store).to_dict("records")[0]
        for name in ("tracker", "variant", "revision", "sdp_backend", "handicap", "stop_rule", "clip"):
            assert line[name] == SCRIPT
        assert queries.ops(store, RUN, 3)["op"].tolist() == [SCRIPT]
        assert queries.stages(store, [(RUN, 3)])["name"].tolist() == [SCRIPT]
        assert queries.notes(store, RUN)["text"].tolist() == [SCRIPT]
        assert queries.runs(store)["end_reason"].tolist() == [SCRIPT]
        assert queries.ceilings(store)["metric"].tolist() == [SCRIPT]
        assert json.loads(row["settings"]) == {SCRIPT: SCRIPT}
        assert SCRIPT in queries.journal(store)["actor"].tolist()


def test_sql_in_text_is_text(runs: RunsFolder, tmp_path: Path) -> None:
    attack = "x'; drop table cell; select * from read_text('/etc/passwd'); --"
    build_run(runs, "t4", label=attack)
    with open_reading(tmp_path / "results.duckdb", reference=tmp_path / "nothing") as store:
        assert queries.runs(store)["label"].tolist() == [attack]
        assert queries.cells(store, gpu_key=attack).empty
        assert queries.notes(store, attack).empty
        assert len(queries.cells(store)) == 1


def _torn(path: Path, data: bytes) -> None:
    path.write_bytes(data[: len(data) // 2])


def _noise(path: Path, data: bytes) -> None:
    path.write_bytes(b"\x00" * 4096 + b"\n" + data)


def _bomb(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data) + packed(b" " * MEGABYTE, 100))


@pytest.mark.parametrize("harm", [_torn, _noise, _bomb])
def test_harm_in_the_runs_folder_costs_no_other_file(
    runs: RunsFolder, tmp_path: Path, harm: Callable[[Path, bytes], None]
) -> None:
    build_run(runs, "t4")
    name = "bad.jsonl.gz" if harm is _bomb else "bad.jsonl"
    harm(runs.root / name, encode_run(OTHER, records_of_run("cpu", [cell(cuda=False)])))
    with open_reading(tmp_path / "results.duckdb", reference=tmp_path / "nothing") as store:
        assert RUN in set(queries.runs(store)["run_id"])
        told = pd.concat([queries.problems(store)["source"], queries.waiting(store)["source"]])
        assert (told == f"runs/{name}").any() or harm is _bomb
    assert encode_line(Line(RUN, 0, header("t4"))) == (runs.run_file(RUN)).read_bytes().splitlines(True)[0]
