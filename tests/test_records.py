"""Records survive the round trip; a bad line names line, field, found, expected; a torn tail loses one line."""
from __future__ import annotations

import dataclasses
import gzip
import json
import typing
from pathlib import Path
from typing import Any

import pytest
from builders import cell, header
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import UserError
from core.records import (
    FOREIGN,
    Cell,
    End,
    Line,
    Note,
    Op,
    RecordError,
    RunWriter,
    SettingKey,
    Stage,
    Telemetry,
    Unknown,
    WorkKey,
    Workload,
    cut_torn_tail,
    decode_line,
    encode_line,
    line_to_json,
    model,
    read_run_file,
)

WORK = WorkKey("local4d", "base", "builtin", "1", "random", frames=47, height=256, width=256, points=256)
CELL = Cell(process=0, workload=Workload(WORK, SettingKey("fp32")), status="ok", wall_ms=(10.0, 11.0))


def line(record: Any, seq: int = 0) -> Line:
    return Line("20261130-101010-abcdef01", seq, record)


def cell_json(**changes: Any) -> bytes:
    data = line_to_json(line(CELL))
    data.update(changes)
    return json.dumps(data).encode() + b"\n"


# --- any record survives --------------------------------------------------------------------------------------------

_text = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(lambda t: t.strip() != "")
_number = st.floats(min_value=0.001, max_value=1e9)
_free = st.dictionaries(
    st.sampled_from(["zeta", "eta", "theta"]),
    st.none() | st.booleans() | st.integers(-5, 5) | _number | _text,
    max_size=2,
)


def records_of(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    fields = {
        f.name: _free if f.name == "extra" else _of(hints[f.name], cls.__name__, f.name)
        for f in dataclasses.fields(cls)
    }
    if cls is WorkKey:  # only a foreign task may lack a size
        fields["implementation"] = st.just(FOREIGN)
    return st.fixed_dictionaries(fields).map(lambda values: _make(cls, values))


def _of(annotation: Any, owner: str, name: str) -> st.SearchStrategy[Any]:
    choices = {("Cell", "status"): ["ok"], ("RunHeader", "origin"): list(model.ORIGINS),
               ("End", "state"): list(model.END_STATES)}.get((owner, name))
    if choices:
        return st.sampled_from(choices)
    if (owner, name) == ("RunHeader", "started_at"):
        return st.datetimes().map(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0"))
    if (owner, name) == ("Cell", "stages"):  # each stage once
        return st.lists(records_of(Stage), max_size=2, unique_by=lambda stage: stage.name).map(tuple)
    args = typing.get_args(annotation)
    if type(None) in args:
        return st.none() | _of(args[0], owner, name)
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(_of(args[0], owner, name), min_size=2, max_size=2).map(tuple)
    if dataclasses.is_dataclass(annotation):
        return records_of(annotation)
    if origin is not None:
        return _free
    return {str: _text, int: st.integers(1, 2**40), float: _number, bool: st.booleans()}[annotation]


def _make(cls: type, values: dict[str, Any]) -> Any:
    return cls(**values)


@pytest.mark.parametrize("kind", sorted(model.LINE_KINDS))
def test_any_record_survives_the_round_trip(kind: str) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(records_of(model.LINE_KINDS[kind]), st.integers(0, 10**6))
    def check(record: Any, seq: int) -> None:
        original = line(record, seq)
        assert decode_line(encode_line(original)) == original

    check()


def test_an_unknown_kind_and_an_unknown_field_are_kept() -> None:
    raw = json.dumps({"kind": "aura", "schema": "1.7", "method": 1, "run_id": "run-000001", "seq": 3, "hue": [1, 2]})
    decoded = decode_line(raw.encode())
    assert decoded.record == Unknown("aura", {"hue": [1, 2]})
    assert json.loads(encode_line(decoded)) == json.loads(raw)
    assert decode_line(cell_json(mood="calm")).record.extra == {"mood": "calm"}


# --- torn tails -------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cut=st.integers(1, 400), count=st.integers(2, 5))
def test_any_torn_tail_loses_one_line(tmp_path_factory: pytest.TempPathFactory, cut: int, count: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "run.jsonl"
    encoded = [encode_line(line(dataclasses.replace(CELL, process=i), i)) for i in range(count)]
    cut = min(cut, len(encoded[-1]))
    path.write_bytes(b"".join(encoded)[:-cut])
    found = read_run_file(path)
    assert [item.seq for item in found.lines] == list(range(count - 1))
    assert found.problems == ()
    assert found.torn == (cut < len(encoded[-1]))
    assert cut_torn_tail(path) == len(encoded[-1]) - cut
    with RunWriter(path, "20261130-101010-abcdef01", resume=True) as writer:
        assert writer.write(End("done")) == count - 1
    assert [item.seq for item in read_run_file(path).lines] == list(range(count))


def test_a_torn_gzip_keeps_its_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    lines = b"".join(encode_line(line(Note("warning", f"text {i * 7919}"), i)) for i in range(500))
    path.write_bytes(gzip.compress(lines)[:-400])
    found = read_run_file(path)
    assert found.torn
    assert 0 < len(found.lines) < 500


@pytest.mark.parametrize("behind", [b"garbage", b""])
def test_a_packed_file_keeps_every_line_before_the_place_where_it_breaks(tmp_path: Path, behind: bytes) -> None:
    # Lines that together are far below one buffer of the unpacker.
    whole = b"".join(encode_line(Line("20261130-100000-00000001", seq, Note("info", "x"))) for seq in range(20))
    packed = gzip.compress(whole)
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(packed + behind if behind else packed[:-8])  # without its check sum
    found = read_run_file(path)
    assert [line.seq for line in found.lines] == list(range(20))
    assert found.torn


@pytest.mark.parametrize("schema", ["\u00b2", "\u0661.0", "", ".1", "-1", "x.0"])
def test_a_schema_that_is_no_number_is_refused(schema: str) -> None:
    raw = json.dumps({**line_to_json(Line("20261130-100000-00000001", 0, Note("info", "x"))), "schema": schema})
    with pytest.raises(RecordError) as caught:
        decode_line(raw.encode())
    assert caught.value.field == "schema"


@pytest.mark.parametrize("times", [[5e-324], [1e308], [1e19, 1.0], [1e-10, 10**18]])
def test_times_that_no_clock_can_tell_are_refused(times: list[float]) -> None:
    body = line_to_json(Line("20261130-100000-00000001", 0, CELL)) | {"wall_ms": times}
    with pytest.raises(RecordError) as caught:
        decode_line(json.dumps(body).encode())
    assert caught.value.field.startswith("cell.wall_ms[")


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-30T10:00:00Z", "2026-11-30", "2026-11-30T10:00:00+02:00"])
def test_the_start_of_a_run_is_a_time_in_utc(text: str) -> None:
    body = line_to_json(Line("20261130-100000-00000001", 0, header("cpu"))) | {"started_at": text}
    with pytest.raises(RecordError) as caught:
        decode_line(json.dumps(body).encode())
    assert caught.value.field == "run.started_at"


def test_a_stage_stands_once_in_a_cell() -> None:
    twice = dataclasses.replace(CELL, stages=(Stage("encoder", (1.0, 1.0)), Stage("encoder", (2.0, 2.0))))
    with pytest.raises(RecordError, match="the stage 'encoder' twice"):
        decode_line(encode_line(Line("20261130-100000-00000001", 0, twice)))


def test_a_writer_refuses_an_existing_file_unless_it_resumes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunWriter(path, "run-000001") as writer:
        writer.write(CELL)
    with pytest.raises(UserError, match="--resume"):
        RunWriter(path, "run-000001")
    with pytest.raises(UserError, match="another run"):
        RunWriter(path, "run-000002", resume=True)


def test_a_writer_refuses_nan_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunWriter(path, "run-000001") as writer, pytest.raises(ValueError, match="JSON compliant"):
        writer.write(dataclasses.replace(CELL, wall_ms=(float("nan"),)))
    assert path.read_bytes() == b""


# --- what is wrong is named -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"wall_ms": [1.0, -2.0]}, "cell.wall_ms[1]", "a number above 0"),
        ({"wall_ms": [0]}, "cell.wall_ms[0]", "a number above 0"),
        ({"wall_ms": "fast"}, "cell.wall_ms", "a list"),
        ({"wall_ms": []}, "cell.wall_ms", "at least one sample"),
        ({"wall_ms": [True]}, "cell.wall_ms[0]", "a number"),
        ({"event_ms": [1.0]}, "cell.event_ms", "2, one per wall_ms sample"),
        ({"status": "fine"}, "cell.status", "one of ok, oom"),
        ({"status": "oom", "wall_ms": []}, "cell.reason", "a reason"),
        ({"peak_bytes": -1}, "cell.peak_bytes", "a number from 0"),
        ({"peak_bytes": 2**70}, "cell.peak_bytes", "below 2"),
        ({"workload": {}}, "cell.workload.work", "a JSON object"),
        ({"run_id": "../../etc"}, "run_id", "a-z"),
        ({"schema": "2.0"}, "schema", "1.0 or older"),
        ({"seq": -1}, "seq", "from 0"),
        ({"telemetry": {"throttle_bits": [2**70, -(2**70)]}}, "cell.telemetry.throttle_bits[0]", "below 2"),
        ({"telemetry": {"power_w": [1.0]}}, "cell.telemetry.power_w", "2, one per"),
    ],
)
def test_a_bad_line_names_line_field_found_and_expected(changes: dict[str, Any], field: str, expected: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode_line(cell_json(**changes), 7)
    assert caught.value.line == 7
    assert caught.value.field == field
    assert expected in caught.value.expected
    assert str(caught.value).startswith(f"line 7, field {field}: found ")


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"not json\n", "no JSON"),
        (b"[1]\n", "[1]"),
        (b'{"kind":"cell","kind":"run"}\n', "the same key twice"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b"\xff\xfe\n", "not UTF-8"),
        (b'{"a":NaN}\n', "NaN"),
        (cell_json().replace(b"[10.0, 11.0]", b"[1.0, 1e999]"), "inf"),
        (b'{"kind":"note","schema":"1.0","method":1,"run_id":"run-000001","seq":' + b"9" * 5000 + b"}\n", "integer"),
    ],
)
def test_what_is_no_record_is_refused_in_one_sentence(raw: bytes, found: str) -> None:
    with pytest.raises(RecordError) as caught:
        decode_line(raw)
    assert found in str(caught.value)


def test_a_file_that_is_no_run_file_is_refused(tmp_path: Path) -> None:
    for name, content in {"a.jsonl": b"hello\nworld\n", "b.jsonl": b"", "c.jsonl": b"\x00\x01\x02\n"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            read_run_file(tmp_path / name)
    with pytest.raises(UserError, match="no file"):
        read_run_file(tmp_path / "missing.jsonl")


def test_a_bad_line_in_the_middle_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode_line(line(CELL, 0)) + b"rubbish\n\n" + encode_line(line(CELL, 1)))
    found = read_run_file(path)
    assert [item.seq for item in found.lines] == [0, 1]
    assert [problem.line for problem in found.problems] == [2]


# --- keys -----------------------------------------------------------------------------------------------------------


def test_work_keys_are_equal_exactly_when_the_work_is() -> None:
    assert WORK.key() == "local4d:base/builtin@1/random/f47/256x256/p256/b1/it-/qc-/w-/n1"
    assert WORK.key() == dataclasses.replace(WORK).key()
    assert WORK.key() != dataclasses.replace(WORK, query_chunk=64).key()
    assert SettingKey("fp32").key() != SettingKey("tf32").key()
    shapes = ((2, 3), (3, 4))
    assert Op("aten::mm", "encoder", shapes=shapes).key() != Op("aten::mm", "other", shapes=shapes).key()


def test_stages_and_telemetry_keep_one_value_per_sample() -> None:
    good = dataclasses.replace(
        CELL, stages=(Stage("encoder", wall_ms=(4.0, 5.0)),), telemetry=Telemetry(power_w=(None, 300.0))
    )
    assert decode_line(encode_line(line(good))).record == good
    with pytest.raises(RecordError, match=r"stages\[0\].wall_ms"):
        decode_line(encode_line(line(dataclasses.replace(CELL, stages=(Stage("encoder", wall_ms=(4.0,)),)))))


def test_a_foreign_task_may_have_no_size_and_a_tracker_may_not() -> None:
    task = WorkKey("resnet50 inference", None, FOREIGN, "permodel-csv", "none", None, None, None, None, batch=12)
    assert task.key() == "resnet50 inference/foreign@permodel-csv/none/f-/-/p-/b12/it-/qc-/w-/n1"
    with pytest.raises(ValueError, match="has no frames"):
        _ = task.size
    line = Line("20261130-100000-00000001", 3, cell(work_changes={
        "implementation": FOREIGN, "frames": None, "height": None, "width": None, "points": None}))
    assert decode_line(encode_line(line)) == line
    for name in ("frames", "height", "width"):
        body = json.loads(encode_line(Line("20261130-100000-00000001", 3, cell())))
        body["workload"]["work"][name] = None
        with pytest.raises(RecordError, match=f"work.{name}: found null"):
            decode_line(json.dumps(body).encode())
