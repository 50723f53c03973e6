"""Lines become rows once, by one way in, whatever happens to the files; nothing disappears silently."""
from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import append_records, build_run, cell, encode_run, header, op, records_of_run, rows_of

from core.records import Ceiling, End, Line, Note, OpTrial, RunsFolder, RunWriter, Unknown, encode_line
from core.store import Store, ingest, open_files, queries, schema, sources
from core.store.ingest import MAX_PROBLEM_ROWS, Ingester
from core.store.journal import Journal
from core.store.store import reference_root
from core.store.uploads import accept, delete_run, history, redo, restore_run, undo

RUN = "20261130-100000-00000001"
OTHER = "20261130-100000-00000002"


class Place:
    """A runs folder and a database in memory that is kept in step with it."""

    def __init__(self, root: Path, reference: Path | None = None) -> None:
        self.runs = RunsFolder(root / "runs")
        self.commits = 0
        self._reference = reference
        self.store, self.ingester = self._fresh()

    def cycle(self) -> bool:
        return self.ingester.cycle()

    def rebuilt(self) -> dict[str, list[str]]:
        """Rows of a database made at once from the files as they are now."""
        store, ingester = self._fresh()
        ingester.cycle()
        rows = rows_of(store)
        store.close()
        return rows

    def _fresh(self) -> tuple[Store, Ingester]:
        connection = schema.connect_memory()
        ingester = Ingester(connection, runs=self.runs, reference=self._reference, on_commit=self._count)
        return Store(connection, runs=self.runs), ingester

    def _count(self) -> None:
        self.commits += 1


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.store.close()


def one(frame: pd.DataFrame) -> dict[str, Any]:
    assert len(frame) == 1
    return dict(frame.to_dict("records")[0])


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_cell_line_becomes_its_row_with_hand_checked_numbers(place: Place) -> None:
    build_run(place.runs, "t4", [cell(wall_ms=[10, 20, 30, 40, 50], kernel_busy_ms=27.0, profiled_wall_ms=36.0)])
    place.cycle()
    row = one(queries.cells(place.store))
    assert (row["n"], row["wall_median_ms"], row["wall_min_ms"], row["wall_max_ms"]) == (5, 30.0, 10.0, 50.0)
    assert (row["wall_p25_ms"], row["wall_p75_ms"]) == (20.0, 40.0)
    assert (row["wall_p5_ms"], row["wall_p95_ms"]) == (pytest.approx(12.0), pytest.approx(48.0))
    assert (row["event_median_ms"], row["first_call_ms"]) == (30.0, 100.0)
    assert (row["gpu_key"], row["device_name"], row["tracker"], row["points"]) == ("t4", "Tesla T4", "local4d", 256)
    assert row["work_key"] == "local4d:base/builtin@1/random/f47/256x256/p256/b1/it4/qc-/w-/n1"
    assert row["host_gap_ms"] == pytest.approx(3.0)
    assert not row["superseded"]


@pytest.mark.parametrize(("profiled_ms", "gap_ms"), [(13.2, 1.0), (13.3, None), (None, None)])
def test_host_gap_is_stated_only_beside_an_undisturbed_profile(
    place: Place, profiled_ms: float | None, gap_ms: float | None
) -> None:
    build_run(place.runs, "t4", [cell(kernel_busy_ms=10.0, profiled_wall_ms=profiled_ms)])
    place.cycle()
    found = one(queries.cells(place.store))["host_gap_ms"]
    assert found == gap_ms if gap_ms is not None else pd.isna(found)


def test_stages_samples_and_ops_carry_what_the_file_has(place: Place) -> None:
    build_run(place.runs, "t4", [cell(ops=(op(), op("aten::bmm", "correlation", 2.5, kernels=("a", "b"))))])
    place.cycle()
    samples = queries.samples(place.store, RUN, [3])
    assert samples["wall_ms"].tolist() == [10.0, 11.0, 12.0]
    assert samples["event_ms"].tolist() == [10.0, 11.0, 12.0]
    assert samples["throttle_bits"].tolist() == [0, 0, 0]
    stages = queries.stages(place.store, [(RUN, 3)])
    assert stages["name"].tolist() == ["encoder", "correlation", "transformer", "other"]
    assert stages["median_ms"].tolist() == pytest.approx([2.2, 3.3, 4.4, 1.1])
    ops = queries.ops(place.store, RUN, 3)
    assert ops["op"].tolist() == ["aten::conv2d", "aten::bmm"]
    assert list(ops["kernels"].iloc[1]) == ["a", "b"]
    assert json.loads(ops["shapes"].iloc[0]) == [[1, 3, 256, 256], [64, 3, 7, 7]]
    assert one(queries.cells(place.store))["has_ops"]


def test_a_cpu_has_key_cpu_its_own_name_and_stages_of_wall_time(place: Place) -> None:
    build_run(place.runs, "cpu")
    place.cycle()
    row = one(queries.cells(place.store))
    assert (row["gpu_key"], row["gpu_label"]) == ("cpu", "Builder CPU 3000")
    assert pd.isna(row["event_median_ms"])
    assert pd.isna(row["host_gap_ms"])
    assert queries.samples(place.store, RUN)["event_ms"].isna().all()
    assert queries.stages(place.store, [(RUN, 3)])["median_ms"].sum() == pytest.approx(11.0)


def test_a_card_outside_the_catalogue_keeps_its_own_name(place: Place) -> None:
    build_run(place.runs, "unknown")
    place.cycle()
    row = one(queries.cells(place.store))
    assert pd.isna(row["gpu_key"])
    assert row["gpu_label"] == "NVIDIA Prototype 9"


def test_every_other_kind_of_line_has_its_table(place: Place) -> None:
    trial = OpTrial(op(), "contiguous input", (3.0, 4.0, 5.0), (1.0, 1.0), reproduced=True)
    build_run(place.runs, "t4", [], ceilings=[Ceiling("copy", 240.5, "GB/s", samples=(240.0, 241.0))],
              extra_records=[trial, Note("warning", "clock is low", data={"mhz": 300})])
    place.cycle()
    assert one(queries.ceilings(place.store))["value"] == 240.5
    assert list(one(queries.op_trials(place.store, RUN))["before_ms"]) == [3.0, 4.0, 5.0]
    assert queries.notes(place.store, RUN)["event"].tolist() == ["plan", "warning"]
    assert one(queries.runs(place.store))["state"] == "done"


def test_missing_values_stay_missing_and_whole_numbers_keep_their_type(place: Place) -> None:
    build_run(place.runs, "t4", [cell(work_changes={"points": None})])
    build_run(place.runs, "t4", run_id=OTHER)
    place.cycle()
    cells = queries.cells(place.store)
    assert str(cells["points"].dtype) == "Int64"
    assert cells["points"].isna().tolist() == [True, False]


# --- which attempt counts --------------------------------------------------------------------------------------------


def test_the_newest_ok_attempt_counts_and_failed_lines_stay_visible(place: Place) -> None:
    build_run(place.runs, "t4", [
        cell(status="failed"), cell(1), cell(2), cell(status="oom", precision="fp16"), cell(3, process=1),
    ])
    place.cycle()
    cells = queries.cells(place.store)
    assert cells[["process", "status", "wall_median_ms", "superseded"]].astype(object).where(
        cells[["process", "status", "wall_median_ms", "superseded"]].notna(), None
    ).to_numpy().tolist() == [
        [0, "failed", None, True], [0, "ok", 22.0, False], [0, "oom", None, False], [1, "ok", 33.0, False],
    ]
    assert len(queries.cells(place.store, older_attempts=True)) == 5
    row = one(queries.runs(place.store))
    assert (row["cells"], row["ok"], row["failed"]) == (3, 2, 1)


def test_a_failure_behind_an_ok_attempt_takes_nothing_away(place: Place) -> None:
    build_run(place.runs, "t4", [cell(1), cell(status="failed")])
    place.cycle()
    assert queries.cells(place.store)["superseded"].tolist() == [False, False]
    assert queries.cells(place.store)["status"].tolist() == ["ok", "failed"]


# --- one way in ------------------------------------------------------------------------------------------------------


def test_reference_live_loose_and_uploaded_files_give_the_same_rows(tmp_path: Path) -> None:
    records = records_of_run("t4", [cell(), cell(precision="fp16")])
    data = encode_run(RUN, records)
    contents = []
    for way in ("reference", "live", "loose", "packed", "upload"):
        root = tmp_path / way
        place = Place(root, root / "reference")
        if way == "reference":
            build_run(root / "reference" / "runs" / "a.jsonl.gz", "t4", [cell(), cell(precision="fp16")])
        elif way == "live":
            with RunWriter(place.runs.run_file(RUN), RUN) as writer:
                for record in records:
                    writer.write(record)
                    place.cycle()
        elif way == "upload":
            accept(place.runs, data, "x.jsonl")
        else:
            place.runs.root.mkdir(parents=True)
            packed = way == "packed"
            (place.runs.root / ("x.jsonl.gz" if packed else "x.jsonl")).write_bytes(
                gzip.compress(data) if packed else data
            )
        place.cycle()
        rows = rows_of(place.store)
        contents.append({table: rows[table] for table in schema.CONTENT_TABLES if table != "line"})
        contents[-1]["sha"] = place.store.frame("select run_id, seq, sha from line order by seq")["sha"].tolist()
        assert len(queries.cells(place.store)) == 2
        place.store.close()
    assert all(content == contents[0] for content in contents)


def test_appended_lines_come_in_and_a_torn_tail_waits(place: Place) -> None:
    path = build_run(place.runs, "t4", [cell()], end=None)
    assert place.cycle()
    assert not place.cycle()
    whole = encode_line(Line(RUN, 4, cell(2, precision="fp16")))
    with open(path, "ab") as stream:
        stream.write(whole[:50])
    assert not place.cycle()
    assert len(queries.cells(place.store)) == 1
    with open(path, "ab") as stream:
        stream.write(whole[50:])
    assert place.cycle()
    assert queries.cells(place.store)["wall_median_ms"].tolist() == [11.0, 22.0]
    assert rows_of(place.store) == place.rebuilt()


def test_a_resumed_run_cuts_its_torn_tail_without_being_read_again(place: Place) -> None:
    path = build_run(place.runs, "t4", [cell()], end=None)
    with open(path, "ab") as stream:
        stream.write(b'{"kind":"cell","torn')
    place.cycle()
    with RunWriter(path, RUN, resume=True) as writer:
        writer.write(cell(2, precision="fp16"))
        writer.write(End("done"))
    place.cycle()
    assert place.ingester.notices == []
    assert len(queries.cells(place.store)) == 2
    assert one(queries.runs(place.store))["state"] == "done"
    assert rows_of(place.store) == place.rebuilt()


def test_small_batches_give_the_same_rows_as_large_ones(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(place.runs, "t4", [cell(i + 1, process=i) for i in range(20)])
    build_run(place.runs.root / "x.jsonl.gz", "cpu", [cell(i + 1, process=i, cuda=False) for i in range(20)],
              run_id=OTHER)
    at_once = place.rebuilt()
    for module in (sources, ingest):
        monkeypatch.setattr(module, "CHUNK_BYTES", 3000)
    place.cycle()
    assert place.commits > 10
    assert rows_of(place.store) == at_once


# --- the same line again ---------------------------------------------------------------------------------------------


def test_equal_lines_are_counted_once(place: Place) -> None:
    build_run(place.runs, "t4", [cell()])
    build_run(place.runs.root / "copy.jsonl", "t4", [cell()])
    place.cycle()
    assert len(queries.cells(place.store)) == 1
    row = one(queries.runs(place.store))
    assert (row["duplicates"], row["conflicts"], row["file"]) == (5, 0, f"{RUN}/run.jsonl")
    assert queries.problems(place.store).empty


def test_other_content_for_the_same_line_is_set_aside_with_both_hashes(place: Place) -> None:
    build_run(place.runs, "t4", [cell(1)])
    build_run(place.runs.root / "other.jsonl", "t4", [cell(9)])
    place.cycle()
    assert queries.cells(place.store)["wall_median_ms"].tolist() == [11.0]
    problem = one(queries.problems(place.store))
    assert (problem["what"], problem["seq"], problem["line_number"]) == ("conflict", 3, 4)
    assert (problem["source"], problem["other_source"]) == ("runs/other.jsonl", f"runs/{RUN}/run.jsonl")
    assert len({problem["sha"], problem["other_sha"]}) == 2


@pytest.mark.parametrize("changed", [1, 9])
def test_the_order_in_which_files_arrive_does_not_matter(place: Place, changed: float) -> None:
    accept(place.runs, encode_run(RUN, records_of_run("t4", [cell(changed)])), "first.jsonl")
    place.cycle()
    assert queries.cells(place.store)["wall_median_ms"].tolist() == [11.0 * changed]
    build_run(place.runs, "t4", [cell(1)])
    place.cycle()
    assert queries.cells(place.store)["wall_median_ms"].tolist() == [11.0]
    assert rows_of(place.store) == place.rebuilt()


def test_the_first_of_two_lines_in_one_file_counts(place: Place) -> None:
    path = build_run(place.runs, "t4", [cell(1)], end=None)
    append_records(path, [cell(9)], seq=3)
    append_records(path, [cell(1)], seq=3)
    place.cycle()
    assert queries.cells(place.store)["wall_median_ms"].tolist() == [11.0]
    row = one(queries.runs(place.store))
    assert (row["duplicates"], row["conflicts"]) == (1, 1)


# --- bad lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "field", "found"),
    [
        (b'{"kind":"cell"', "(line)", "no JSON"),
        (encode_line(Line(RUN, 9, cell(wall_ms=[1.0, 2.0, 3.0]))).replace(b'"wall_ms":[1.0', b'"wall_ms":[-1.0'),
         "cell.wall_ms[0]", "-1.0"),
        (encode_line(Line(RUN, 9, cell(wall_ms=[1.0, 2.0, 3.0]))).replace(b'"wall_ms":[1.0', b'"wall_ms":[NaN'),
         "(line)", "NaN"),
        (encode_line(Line(RUN, 9, cell())).replace(b'"schema":"1.0"', b'"schema":"2.0"'), "schema", "'2.0'"),
    ],
)
def test_a_bad_line_is_named_and_the_others_count(place: Place, line: bytes, field: str, found: str) -> None:
    path = build_run(place.runs, "t4", [cell()], end=None)
    with open(path, "ab") as stream:
        stream.write(line.strip() + b"\n")
    append_records(path, [cell(2, precision="fp16")], seq=4)
    place.cycle()
    problem = one(queries.problems(place.store))
    assert (problem["what"], problem["line_number"], problem["field"]) == ("bad line", 5, field)
    assert found in problem["found"]
    assert problem["expected"]
    assert len(queries.cells(place.store)) == 2


def test_unknown_kinds_and_fields_are_counted_and_do_no_harm(place: Place) -> None:
    path = build_run(place.runs, "t4", [cell(extra={"mood": "calm"})], end=None)
    append_records(path, [Unknown("aura", {"hue": 3}), Unknown("aura", {})], seq=4)
    place.cycle()
    found = queries.unknown_lines(place.store)
    assert found[["kind", "lines", "unknown_fields"]].to_numpy().tolist() == [["aura", 2, 1], ["cell", 1, 1]]
    assert len(queries.cells(place.store)) == 1


def test_problem_rows_are_capped_and_all_counted(place: Place) -> None:
    place.runs.root.mkdir()
    (place.runs.root / "noise.jsonl").write_bytes(b"noise\n" * (MAX_PROBLEM_ROWS + 5))
    place.cycle()
    assert len(queries.problems(place.store)) == MAX_PROBLEM_ROWS
    assert one(queries.sources(place.store))["problems"] == MAX_PROBLEM_ROWS + 5


def test_a_line_beyond_the_limit_is_one_problem_and_the_next_line_counts(place: Place) -> None:
    path = build_run(place.runs, "t4", [cell()], end=None)
    with open(path, "ab") as stream:
        stream.write(b" " * (sources.MAX_LINE_BYTES * 2) + b"\n")
    append_records(path, [cell(2, precision="fp16")], seq=4)
    place.cycle()
    problem = one(queries.problems(place.store))
    assert (problem["line_number"], problem["found"]) == (5, "more than 16777216 bytes")
    assert len(queries.cells(place.store)) == 2
    with open(path, "ab") as stream:
        stream.write(b"x" * (sources.MAX_LINE_BYTES + 10))
    place.cycle()
    assert rows_of(place.store)["problem"] == place.rebuilt()["problem"]


def test_a_packed_file_that_ends_early_keeps_its_complete_lines(place: Place) -> None:
    place.runs.root.mkdir()
    packed = gzip.compress(encode_run(RUN, records_of_run("t4", [cell(i + 1.5, process=i) for i in range(50)])))
    path = place.runs.root / "x.jsonl.gz"
    path.write_bytes(packed[:-200])
    place.cycle()
    assert 0 < len(queries.cells(place.store)) < 50
    assert "breaks off" in one(queries.waiting(place.store))["why"]
    assert queries.problems(place.store).empty
    path.write_bytes(packed)
    place.cycle()
    assert len(queries.cells(place.store)) == 50
    assert queries.waiting(place.store).empty
    assert queries.problems(place.store).empty
    assert rows_of(place.store) == place.rebuilt()


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_a_file_on_its_way_into_a_shared_folder_waits_without_a_problem(place: Place, name: str) -> None:
    data = encode_run(RUN, records_of_run("t4", [cell(i + 1.5, process=i) for i in range(20)]))
    whole = gzip.compress(data, mtime=0) if name.endswith(".gz") else data
    place.runs.root.mkdir()
    path = place.runs.root / name
    awaited = 0
    for eighth in range(9):
        path.write_bytes(whole[: len(whole) * eighth // 8])
        place.cycle()
        assert queries.problems(place.store).empty
        awaited += len(queries.waiting(place.store))
        assert rows_of(place.store) == place.rebuilt()
    assert awaited == 7
    assert queries.waiting(place.store).empty
    assert len(queries.cells(place.store)) == 20


def test_a_file_whose_place_is_made_before_its_content_comes_waits(place: Place) -> None:
    data = encode_run(RUN, records_of_run("t4", [cell(i + 1.5, process=i) for i in range(20)]))
    place.runs.root.mkdir()
    path = place.runs.root / "x.jsonl"
    for eighth in range(8):
        there = len(data) * eighth // 8
        path.write_bytes(data[:there] + b"\0" * (len(data) - there))
        place.cycle()
        assert queries.problems(place.store).empty
        assert one(queries.waiting(place.store))["why"] == "its last line has no end"
    path.write_bytes(data)
    place.cycle()
    assert len(queries.cells(place.store)) == 20
    assert rows_of(place.store) == place.rebuilt()


def test_cells_without_their_header_are_named_and_not_shown(place: Place) -> None:
    place.runs.root.mkdir()
    (place.runs.root / "x.jsonl").write_bytes(encode_run(RUN, [cell(), cell(2)], first_seq=3))
    place.cycle()
    assert queries.cells(place.store).empty
    assert one(queries.waiting(place.store))["why"] == "2 lines wait for the one that names their device"
    assert queries.problems(place.store).empty
    (place.runs.root / "head.jsonl").write_bytes(encode_run(RUN, [header("t4")]))
    place.cycle()
    assert len(queries.cells(place.store)) == 1
    assert queries.waiting(place.store).empty


def test_an_upload_without_its_header_or_its_end_waits_for_nothing(place: Place) -> None:
    build_run(place.runs.root / "head.jsonl", "t4", [], run_id=OTHER)
    data = encode_run(RUN, [cell(), cell(2)], first_seq=3) + encode_run(OTHER, [cell()], first_seq=9)
    place.runs.uploads.mkdir()
    packed = gzip.compress(data + encode_run(OTHER, [cell(i + 1.5, process=i) for i in range(50)], 20))[:-200]
    upload = hashlib.sha256(packed).hexdigest()
    (place.runs.uploads / upload).write_bytes(packed)
    Journal(place.runs.journal).append("upload", f"upload:{upload}")
    place.cycle()
    assert set(queries.problems(place.store)["what"]) == {"no header", "torn"}
    assert queries.waiting(place.store).empty


# --- files that change -----------------------------------------------------------------------------------------------


def _rewrite(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"wall_ms":[10.0', b'"wall_ms":[10.5', 1))


def _shrink(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))


def _replace(path: Path) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(encode_run(RUN, records_of_run("t4", [cell(7), cell(8, precision="fp16")])))
    os.replace(temporary, path)


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [_rewrite, _shrink, _replace, _remove])
def test_a_file_that_changed_where_it_was_read_is_noticed_and_read_again(
    place: Place, change: Callable[[Path], None]
) -> None:
    cells = [cell(process=process) for process in range(8)]
    path = build_run(place.runs, "t4", cells)
    build_run(place.runs.root / "copy.jsonl", "t4", cells)
    build_run(place.runs, "cpu", run_id=OTHER)
    place.cycle()
    change(path)
    assert place.cycle()
    assert any(f"runs/{RUN}/run.jsonl" in notice for notice in place.ingester.notices)
    assert rows_of(place.store) == place.rebuilt()
    assert OTHER in set(queries.runs(place.store)["run_id"])


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@pytest.mark.parametrize("new_process", [False, True])
def test_a_file_that_was_only_copied_or_touched_is_the_same_file(place: Place, name: str, new_process: bool) -> None:
    path = build_run(place.runs.root / name, "t4")
    place.cycle()
    copy = path.read_bytes()
    path.unlink()
    path.write_bytes(copy)
    os.utime(path, ns=(1, 1))
    ingester = Ingester(place.store._connection, runs=place.runs) if new_process else place.ingester
    ingester.cycle()
    assert ingester.notices == []
    assert rows_of(place.store) == place.rebuilt()


def test_a_new_process_notices_a_change_below_the_offset(place: Place) -> None:
    path = build_run(place.runs, "t4", [cell()])
    place.cycle()
    _rewrite(path)
    again = Ingester(place.store._connection, runs=place.runs)
    again.cycle()
    assert one(queries.cells(place.store))["wall_min_ms"] == 10.5
    assert len(again.notices) == 1


def test_an_unreadable_file_is_reported_and_its_rows_stay(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(place.runs, "t4")
    path = build_run(place.runs, "cpu", end=None, run_id=OTHER)
    place.cycle()
    append_records(path, [End("done")], run_id=OTHER, seq=4)
    real = sources.open_run_file

    def refuse(name: Path) -> Any:
        if Path(name) == path:
            raise PermissionError(13, "Permission denied")
        return real(name)

    monkeypatch.setattr(sources, "open_run_file", refuse)
    place.cycle()
    assert place.ingester.errors == {
        f"runs/{OTHER}/run.jsonl": f"runs/{OTHER}/run.jsonl cannot be read (Permission denied)"
    }
    assert len(queries.cells(place.store)) == 2
    monkeypatch.undo()
    place.cycle()
    assert place.ingester.errors == {}
    assert set(queries.runs(place.store)["state"]) == {"done"}


def test_a_failing_transaction_leaves_no_row_and_loses_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_run(place.runs, "t4", [cell()], end=None)
    place.cycle()
    before = rows_of(place.store)
    append_records(path, [cell(2, precision="fp16")], seq=4)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ingest, "_put_positions", fail)
    with pytest.raises(OSError, match="No space left"):
        place.cycle()
    assert rows_of(place.store) == before
    monkeypatch.undo()
    place.cycle()
    assert len(queries.cells(place.store)) == 2
    assert rows_of(place.store) == place.rebuilt()


# --- uploads and the journal decide what counts ----------------------------------------------------------------------


def test_an_undone_upload_leaves_and_comes_back(place: Place) -> None:
    upload = accept(place.runs, encode_run(RUN, records_of_run("t4")), "x.jsonl")
    place.cycle()
    assert one(queries.runs(place.store))["upload_id"] == upload.upload_id
    undo(place.runs, upload.upload_id)
    place.cycle()
    assert queries.runs(place.store).empty
    assert rows_of(place.store) == place.rebuilt()
    redo(place.runs, upload.upload_id)
    place.cycle()
    assert len(queries.runs(place.store)) == 1
    assert rows_of(place.store) == place.rebuilt()


def test_undoing_one_of_two_uploads_of_a_run_keeps_the_other(place: Place) -> None:
    data = encode_run(RUN, records_of_run("t4"))
    first = accept(place.runs, data, "x.jsonl")
    accept(place.runs, gzip.compress(data), "y.jsonl.gz")
    place.cycle()
    undo(place.runs, first.upload_id)
    place.cycle()
    assert one(queries.runs(place.store))["file"] != first.upload_id
    assert len(queries.cells(place.store)) == 1
    assert rows_of(place.store) == place.rebuilt()


def test_a_deleted_run_is_hidden_until_it_is_restored(place: Place) -> None:
    build_run(place.runs, "t4")
    delete_run(place.runs, RUN)
    place.cycle()
    assert queries.runs(place.store).empty
    assert queries.cells(place.store).empty
    assert queries.hidden_runs(place.store) == [RUN]
    assert rows_of(place.store) == place.rebuilt()
    restore_run(place.runs, RUN)
    place.cycle()
    assert len(queries.cells(place.store)) == 1


def test_a_file_in_the_uploads_folder_counts_only_with_its_journal_line(place: Place) -> None:
    place.runs.uploads.mkdir(parents=True)
    (place.runs.uploads / ("a" * 64)).write_bytes(encode_run(RUN, records_of_run("t4")))
    place.cycle()
    assert queries.runs(place.store).empty
    assert "is not in the journal" in next(iter(place.ingester.errors.values()))


def test_an_upload_whose_file_is_gone_is_said(place: Place) -> None:
    upload = accept(place.runs, encode_run(RUN, records_of_run("t4")), "x.jsonl")
    place.cycle()
    assert place.ingester.errors == {}
    (place.runs.uploads / upload.upload_id).unlink()
    place.cycle()
    assert queries.runs(place.store).empty
    assert "its file is gone" in place.ingester.errors[f"uploads/{upload.upload_id}"]
    assert rows_of(place.store) == place.rebuilt()


@pytest.mark.parametrize("seed", range(3))
def test_any_history_ends_in_the_rows_of_a_rebuild(place: Place, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    for module in (sources, ingest):
        monkeypatch.setattr(module, "CHUNK_BYTES", dice.choice([2_000, 8_000_000]))
    place.runs.root.mkdir()
    ids = [RUN, OTHER]
    paths = [place.runs.run_file(RUN), place.runs.root / "a.jsonl", place.runs.root / "b.jsonl",
             place.runs.root / "c.jsonl.gz"]

    def content() -> bytes:
        run_id = dice.choice(ids)
        cells = [cell(dice.choice([1, 2]), precision=p) for p in ("fp32", "fp16")[: dice.randint(0, 2)]]
        return encode_run(run_id, records_of_run(dice.choice(["t4", "cpu"]), cells, end=None))

    def write(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(content()) if path.suffix == ".gz" else content())

    def append(path: Path) -> None:
        if path.suffix != ".gz" and path.exists():
            with open(path, "ab") as stream:
                more = dice.choice([b"noise", encode_run(dice.choice(ids), [cell(3)], dice.randint(2, 6))])
                stream.write(more[: dice.choice([len(more), 60])])
                stream.write(dice.choice([b"", b"\n"]))

    def upload(_: Path) -> None:
        accept(place.runs, content(), "x.jsonl")

    def take_back(_: Path) -> None:
        for record in history(place.runs)[:1]:
            undo(place.runs, record.upload_id) if record.active else redo(place.runs, record.upload_id)

    def hide(_: Path) -> None:
        delete_run(place.runs, dice.choice(ids))

    for _ in range(40):
        act = dice.choice([write, append, append, append, upload, take_back, hide, lambda p: p.unlink(missing_ok=True)])
        act(dice.choice(paths))
        if dice.random() < 0.6:
            place.cycle()
    place.cycle()
    rows, rebuilt = rows_of(place.store), place.rebuilt()
    for table, found in rows.items():
        assert found == rebuilt[table], table
    assert not place.cycle()


# --- reference, filter, files ----------------------------------------------------------------------------------------


def test_published_speeds_are_rows_of_origin_reported(tmp_path: Path) -> None:
    place = Place(tmp_path, reference_root())
    place.cycle()
    found = queries.reported(place.store)
    assert len(found) == 93
    founding = found.iloc[:2]
    assert founding["seconds"].tolist() == [0.5, 85.0]
    assert founding["gpu_key"].tolist() == ["a100-sxm4-40gb", "t4"]
    assert set(found["origin"]) == {"reported"}
    dense = found[found["points_text"] == "dense"]
    assert dense["points"].isna().all()
    assert not place.cycle()
    place.store.close()


def test_a_filter_reads_only_runs_whose_header_matches(tmp_path: Path) -> None:
    runs = RunsFolder(tmp_path / "runs")
    build_run(runs, "t4")
    build_run(runs, "cpu", run_id=OTHER)
    connection = schema.connect_memory()
    Ingester(connection, runs=runs, run_filter=lambda head, run_id: head.device.type == "cpu").cycle()
    store = Store(connection)
    assert queries.runs(store)["run_id"].tolist() == [OTHER]
    assert one(queries.sources(store))["source"] == f"runs/{OTHER}/run.jsonl"
    store.close()


def test_named_files_open_in_a_store_of_their_own(tmp_path: Path) -> None:
    path = build_run(tmp_path / "a.jsonl.gz", "t4", [cell(), cell(2, precision="fp16")])
    with open_files([path]) as store:
        assert len(queries.cells(store)) == 2
        assert one(queries.runs(store))["file"] == "a.jsonl.gz"


def test_a_newer_catalogue_renames_the_cards_of_old_rows(place: Place) -> None:
    build_run(place.runs, "t4")
    place.cycle()
    place.store.frame("update run set gpu_key = null, gpu_label = 'Tesla T4'")
    place.ingester.refresh_gpu_keys()
    assert one(queries.cells(place.store))["gpu_key"] == "t4"


def test_a_key_field_of_the_records_has_its_column() -> None:
    assert {f.name for f in dataclasses.fields(cell().workload.work)} - {"extra"} == set(schema.WORK_COLUMNS)
