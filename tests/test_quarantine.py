"""What cannot be is stored and shown, but counts only once a person says why; a rebuild remembers."""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import DEVICES, GIB, append_records, build_run, cell, encode_run, header, records_of_run, rows_of

from core.cli import main
from core.errors import UserError
from core.records import Ceiling, Device, End, RunsFolder, read_run_file
from core.store import Store, open_app, open_reading, queries, schema
from core.store.ingest import Ingester
from core.store.journal import Journal
from core.store.plausibility import MEANS, RULES
from core.store.quarantine import hold, release
from core.store.store import reference_root
from core.store.uploads import accept, delete_run, restore_run, undo

RUN = "20261130-100000-00000001"
OTHER = "20261130-100000-00000002"
EQUAL = [10.0] * 5


class Place:
    def __init__(self, root: Path) -> None:
        self.runs = RunsFolder(root / "runs")
        self.store, self.ingester = self._fresh()

    def _fresh(self) -> tuple[Store, Ingester]:
        connection = schema.connect_memory()
        return Store(connection, runs=self.runs), Ingester(connection, runs=self.runs)

    def cycle(self) -> None:
        self.ingester.cycle()

    def assert_rebuilt_equal(self) -> None:
        store, ingester = self._fresh()
        ingester.cycle()
        rows, again = rows_of(self.store), rows_of(store)
        store.close()
        for table, kept in rows.items():
            assert kept == again[table], table


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.store.close()


def one(frame: pd.DataFrame) -> dict[str, Any]:
    assert len(frame) == 1
    return dict(frame.to_dict("records")[0])


# --- the rules -------------------------------------------------------------------------------------------------------


# T4: 320 GB/s; FP32 8.1 and FP16 65 TFLOPS at 1590 MHz. H200: 4,800 GB/s.
@pytest.mark.parametrize(
    ("gpu", "ceiling", "held"),
    [
        ("t4", Ceiling("copy", 335.9, "GB/s"), False),
        ("t4", Ceiling("copy", 336.1, "GB/s"), True),
        ("t4", Ceiling("read", 900.0, "GB/s"), True),
        ("t4", Ceiling("gather", 900.0, "GB/s"), False),
        ("t4", Ceiling("host_device", 900.0, "GB/s"), False),
        ("t4", Ceiling("gemm", 8.4, "TFLOPS", "fp32"), False),
        ("t4", Ceiling("gemm", 8.7, "TFLOPS", "fp32"), True),
        ("t4", Ceiling("gemm", 8.0, "TFLOPS", "fp32", clock_mhz=1590.0), False),
        ("t4", Ceiling("gemm", 8.0, "TFLOPS", "fp32", clock_mhz=795.0), True),
        ("t4", Ceiling("gemm", 60.0, "TFLOPS", "fp16"), False),
        ("t4", Ceiling("gemm", 70.0, "TFLOPS", "fp16"), True),
        ("h200-sxm-141gb", Ceiling("read", 4300.0, "GB/s"), False),
        ("h200-sxm-141gb", Ceiling("read", 5100.0, "GB/s"), True),
        ("cpu", Ceiling("copy", 9000.0, "GB/s"), False),
        ("unknown", Ceiling("copy", 9000.0, "GB/s"), False),
    ],
)
def test_a_ceiling_beyond_its_peak_is_held(place: Place, gpu: str, ceiling: Ceiling, held: bool) -> None:
    build_run(place.runs, gpu, ceilings=[ceiling, Ceiling("launch", 5.0, "us")])
    place.cycle()
    assert queries.ceilings(place.store)["metric"].tolist() == [ceiling.metric, "launch"][held:]
    assert len(queries.cells(place.store)) == 1, "the cells of such a run count"
    assert queries.quarantine(place.store)["rule"].tolist() == ["beyond-peak"] * held
    assert one(queries.runs(place.store))["quarantined"] == held


def test_the_sentence_names_what_was_found_and_what_can_be(place: Place) -> None:
    build_run(place.runs, "t4", ceilings=[Ceiling("copy", 400.0, "GB/s")])
    place.cycle()
    row = one(queries.quarantine(place.store))
    assert row["sentence"] == (
        "Copy reached 400 GB/s on Tesla T4; expected at most 336, 105% of its memory bandwidth."
    )
    assert (row["item"], row["kind"], row["source"]) == (
        f"beyond-peak:{RUN}:2", "ceiling", f"runs/{RUN}/run.jsonl"
    )
    assert row["means"] == MEANS["beyond-peak"]


def named(name: str, memory_bytes: int | None, sm_count: int | None, **changes: Any) -> Device:
    return dataclasses.replace(DEVICES["t4"], name=name, memory_bytes=memory_bytes, sm_count=sm_count, **changes)


@pytest.mark.parametrize(
    ("device", "held"),
    [
        (DEVICES["t4"], False),
        (DEVICES["h200-sxm-141gb"], False),
        (DEVICES["a100-sxm4-40gb"], False),
        (named("Tesla T4", None, 40), False),
        (named("Tesla T4", None, None), False),
        (named("Tesla T4", 80 * GIB, 40), True),
        (named("Tesla T4", 15 * GIB, 108), True),
        (named("Tesla T4", 8 * GIB, 20), True),
        (named("Tesla T4", 8 * GIB, 40, virtualization="vgpu"), False),
        (named("Tesla T4", 8 * GIB, 20, mig=True), False),
        (named("Tesla T4", 80 * GIB, 20, mig=True), True),
        (named("NVIDIA Prototype 9", 8 * GIB, 10), False),
    ],
)
def test_a_name_that_does_not_fit_its_parts_is_held_with_its_whole_run(
    place: Place, device: Device, held: bool
) -> None:
    build_run(place.runs, device=device, ceilings=[Ceiling("launch", 5.0, "us")])
    place.cycle()
    assert queries.quarantine(place.store)["rule"].tolist() == ["name-misfit"] * held
    assert queries.cells(place.store).empty == held
    assert queries.ceilings(place.store).empty == held
    row = one(queries.runs(place.store))
    assert (row["held"], row["quarantined"]) == (held, 2 * held)


@pytest.mark.parametrize(
    ("wall_ms", "held"), [([10.0] * 4, False), (EQUAL, True), ([10.0] * 99 + [10.1], False)]
)
def test_samples_that_are_all_equal_are_held(place: Place, wall_ms: list[float], held: bool) -> None:
    build_run(place.runs, "t4", [cell(wall_ms=wall_ms), cell(precision="fp16")])
    place.cycle()
    assert queries.cells(place.store)["precision"].tolist() == ["fp32", "fp16"][held:]
    assert queries.quarantine(place.store)["kind"].tolist() == ["cell"] * held
    row = one(queries.runs(place.store))
    assert (row["cells"], row["quarantined"], row["held"]) == (2 - held, int(held), False)


def test_a_held_attempt_replaces_none_that_counts(place: Place) -> None:
    build_run(place.runs, "t4", [cell(1), cell(wall_ms=EQUAL)])
    place.cycle()
    assert queries.cells(place.store)["wall_median_ms"].tolist() == [11.0]


def stamp(**ahead: float) -> str:
    return (datetime.now(UTC) + timedelta(**ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(("hours", "held"), [(-1, False), (23, False), (25, True), (24 * 3000, True)])
def test_a_start_in_the_future_is_held(place: Place, hours: float, held: bool) -> None:
    build_run(place.runs, "t4", started_at=stamp(hours=hours))
    place.cycle()
    assert queries.quarantine(place.store)["rule"].tolist() == ["future-start"] * held
    assert queries.cells(place.store).empty == held


def test_an_upload_is_judged_by_the_time_it_came(place: Place) -> None:
    accept(place.runs, encode_run(RUN, records_of_run("t4", started_at=stamp(days=-1))), "a.jsonl")
    text = place.runs.journal.read_text()
    place.runs.journal.write_text(text.replace(f'"time":"{stamp()[:4]}', '"time":"2001', 1))
    place.cycle()
    assert "2001-" in one(queries.quarantine(place.store))["expected"]


def test_time_that_catches_up_ends_a_hold_in_the_runs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "results.duckdb"
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    build_run(RunsFolder(tmp_path / "runs"), "t4", started_at=stamp(days=9))
    with open_reading(database, reference=tmp_path / "nothing") as store:
        assert queries.cells(store).empty
    monkeypatch.setattr("core.store.plausibility.now_utc", lambda: stamp(days=9))
    with open_reading(database, reference=tmp_path / "nothing") as store:
        assert len(queries.cells(store)) == 1


def test_lines_that_conflict_are_in_the_quarantine_and_cannot_be_released(place: Place) -> None:
    build_run(place.runs, "t4", [cell(1)])
    build_run(place.runs.root / "other.jsonl", "t4", [cell(9)])
    place.cycle()
    row = one(queries.quarantine(place.store))
    assert (row["rule"], row["can_release"], row["source"], row["line_number"]) == (
        "conflict", False, "runs/other.jsonl", 4
    )
    with pytest.raises(UserError, match="a conflicting line cannot be released"):
        release(place.runs, row["item"], "mine is better")


def test_nothing_that_is_shipped_is_implausible() -> None:
    connection = schema.connect_memory()
    Ingester(connection, reference=reference_root()).cycle()
    with Store(connection) as store:
        assert queries.quarantine(store).empty
        assert queries.runs(store)["quarantined"].sum() == 0


def test_every_rule_says_what_it_means_in_a_sentence() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.means.endswith(".")
        assert rule.reads


# --- a person's word -------------------------------------------------------------------------------------------------


def test_a_release_with_a_reason_lets_through_and_hold_puts_back(place: Place) -> None:
    build_run(place.runs, "t4", [cell(wall_ms=EQUAL)])
    place.cycle()
    item = one(queries.quarantine(place.store))["item"]
    release(place.runs, item, "  the timer of this board has steps of 1 ms ", actor="ann")
    place.cycle()
    assert len(queries.cells(place.store)) == 1
    assert queries.quarantine(place.store).empty
    row = one(queries.quarantine(place.store, released=True))
    assert (row["reason"], row["released_by"]) == ("the timer of this board has steps of 1 ms", "ann")
    assert one(queries.runs(place.store))["quarantined"] == 0
    place.assert_rebuilt_equal()
    hold(place.runs, item, actor="bob")
    place.cycle()
    assert queries.cells(place.store).empty
    place.assert_rebuilt_equal()
    assert [entry.act for entry in Journal(place.runs.journal).entries()] == ["release", "hold"]


@pytest.mark.parametrize("reason", ["", "   ", "x" * 501])
def test_a_release_needs_a_reason(place: Place, reason: str) -> None:
    with pytest.raises(UserError, match="reason"):
        release(place.runs, f"equal-samples:{RUN}:3", reason)
    assert not place.runs.journal.exists()


@pytest.mark.parametrize("item", ["", "equal-samples", "other-rule:20261130-100000-00000001", "name-misfit:../../x",
                                  "name-misfit:ab", f"equal-samples:{RUN}:x"])
def test_only_an_item_can_be_released(place: Place, item: str) -> None:
    with pytest.raises(UserError, match="cannot be released"):
        release(place.runs, item, "because")


def test_only_what_is_released_can_be_held(place: Place) -> None:
    with pytest.raises(UserError, match="is not released"):
        hold(place.runs, f"equal-samples:{RUN}:3")


# --- however the lines come ------------------------------------------------------------------------------------------


def test_lines_that_come_one_by_one_are_judged_as_in_a_rebuild(place: Place) -> None:
    path = build_run(place.runs, device=named("Tesla T4", 80 * GIB, 40), cells=[], end=None,
                     ceilings=[Ceiling("copy", 400.0, "GB/s")])
    seq = len(read_run_file(path).lines)
    for record in (cell(wall_ms=EQUAL), cell(2, precision="fp16"), Ceiling("read", 400.0, "GB/s"), End("done")):
        append_records(path, [record], seq=seq)
        seq += 1
        place.cycle()
        place.assert_rebuilt_equal()
    # That card is none of the catalogue, so its ceilings have no peak.
    assert queries.quarantine(place.store)["rule"].tolist() == ["name-misfit", "equal-samples"]


def test_a_header_that_comes_last_judges_what_was_there(place: Place) -> None:
    place.runs.root.mkdir()
    (place.runs.root / "b.jsonl").write_bytes(encode_run(RUN, [Ceiling("copy", 400.0, "GB/s"), cell()], 3))
    place.cycle()
    assert queries.quarantine(place.store).empty
    (place.runs.root / "a.jsonl").write_bytes(encode_run(RUN, [header("t4")]))
    place.cycle()
    assert queries.quarantine(place.store)["rule"].tolist() == ["beyond-peak"]
    place.assert_rebuilt_equal()


def test_a_run_that_goes_takes_its_holds_along(place: Place) -> None:
    upload = accept(place.runs, encode_run(RUN, records_of_run("t4", [cell(wall_ms=EQUAL)])), "a.jsonl")
    place.cycle()
    undo(place.runs, upload.upload_id)
    place.cycle()
    assert queries.quarantine(place.store).empty
    place.assert_rebuilt_equal()


def test_delete_undo_release_then_rebuild_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    database, nothing = tmp_path / "results.duckdb", tmp_path / "nothing"
    runs = RunsFolder.beside(database)
    build_run(runs, "t4", [cell(wall_ms=EQUAL), cell(2, precision="fp16")])
    ids = [f"20261130-10000{n}-00000009" for n in range(5)]
    uploads = [
        accept(runs, encode_run(run_id, records_of_run("t4", [cell(n + 1.0), cell(wall_ms=EQUAL, precision="fp16")])),
               f"{n}.jsonl").upload_id for n, run_id in enumerate(ids)
    ]
    acts = [
        lambda: delete_run(runs, ids[0]), lambda: undo(runs, uploads[1]), lambda: delete_run(runs, ids[2]),
        lambda: release(runs, f"equal-samples:{RUN}:3", "checked"), lambda: restore_run(runs, ids[2]),
        lambda: release(runs, f"equal-samples:{ids[3]}:5", "checked"), lambda: hold(runs, f"equal-samples:{RUN}:3"),
        lambda: release(runs, f"equal-samples:{ids[4]}:5", "checked"),
    ]
    with open_app(database, reference=nothing) as store:
        for act in acts:
            act()
    with open_reading(database, reference=nothing) as store:
        before = rows_of(store)
        counted = queries.cells(store)[["run_id", "precision"]].to_numpy().tolist()
    database.unlink()
    with open_reading(database, reference=nothing) as store:
        assert rows_of(store) == before
    assert counted == [[RUN, "fp16"], [ids[2], "fp32"], [ids[3], "fp32"], [ids[3], "fp16"], [ids[4], "fp32"],
                       [ids[4], "fp16"]]


# --- in the shell ----------------------------------------------------------------------------------------------------


def test_the_shell_lists_releases_and_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    db, item = ["--db", str(tmp_path / "results.duckdb")], f"equal-samples:{RUN}:3"
    build_run(RunsFolder(tmp_path / "runs"), "t4", [cell(wall_ms=EQUAL)])
    assert main(["quarantine", *db]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{item}  (Tesla T4, runs/{RUN}/run.jsonl line 4)\n  5 repetitions of 10 ms each; expected ")
    assert "1 item is in quarantine, with 1 cell line" in out
    assert main(["runs", *db]) == 0
    assert "1 line in quarantine: python -m core quarantine lists them." in capsys.readouterr().out
    assert main(["compare", "--baseline", RUN, "--target", RUN, *db]) == 2
    assert f"{RUN} is in quarantine (5 repetitions of 10 ms each; equal-samples)" in capsys.readouterr().err
    assert main(["quarantine", "--release", item, *db]) == 2
    assert "no reason; expected why" in capsys.readouterr().err
    assert main(["quarantine", "--release", "equal-samples:other", "--reason", "x", *db]) == 2
    assert f"is not in quarantine; expected {item}" in capsys.readouterr().err
    assert main(["quarantine", "--release", item, "--reason", "a coarse timer", "--json", *db]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["items"], answer["released"][0]["reason"]) == ([], "a coarse timer")
    assert main(["quarantine", "--hold", item, *db]) == 0
    assert "1 item is in quarantine" in capsys.readouterr().out


def test_a_named_file_whose_cells_are_all_held_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build_run(tmp_path / "a.jsonl", "t4", [cell(wall_ms=EQUAL)])
    assert main(["compare", "--baseline", str(path), "--target", str(path), "--db", str(tmp_path / "r.duckdb")]) == 2
    assert "a.jsonl is in quarantine (5 repetitions of 10 ms each" in capsys.readouterr().err
