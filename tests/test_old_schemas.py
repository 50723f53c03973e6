"""Run files of every schema that there ever was stay readable: one sample of each is kept in tests/data/run_files.

A sample is written by the code of its day and never written again. `schema-1.0-first.jsonl` comes from the first commit
of core/records: a header, a ceiling, an ok and a failed cell, an op trial, a note, an end, with the fields of that day.
"""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.records import SCHEMA, read_run_file
from core.store import open_files, queries

SAMPLES = sorted((Path(__file__).resolve().parent / "data" / "run_files").glob("schema-*.jsonl"))


def test_the_present_schema_and_every_older_one_has_its_sample() -> None:
    versions = {match[1] for path in SAMPLES if (match := re.match(r"schema-(\d+\.\d+)", path.name))}
    assert SCHEMA in versions, f"write a sample of schema {SCHEMA} with the code that introduces it"
    assert {f"{major}.0" for major in range(1, int(SCHEMA.split('.')[0]) + 1)} <= versions


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_read_whole(path: Path) -> None:
    run = read_run_file(path)
    assert (run.problems, run.torn) == ((), False)
    assert {line.kind for line in run.lines} == {"run", "ceiling", "cell", "op_trial", "note", "end"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_gives_the_rows_that_its_numbers_say(path: Path) -> None:
    with open_files([path]) as store:
        assert queries.problems(store).empty
        assert queries.unknown_lines(store).empty
        rows = queries.cells(store)
        assert rows[["gpu_key", "precision", "status", "n"]].to_numpy().tolist() == [
            ["t4", "fp32", "ok", 3], ["t4", "fp16", "oom", 0]]
        assert (rows["wall_median_ms"][0], rows["host_gap_ms"][0]) == (110.0, 11.0)
        run_id = str(rows["run_id"][0])
        assert queries.stages(store, [(run_id, int(rows["seq"][0]))])["median_ms"].tolist() == [44.0, 66.0]
        assert queries.ops(store, run_id, int(rows["seq"][0]))["device_ms"].tolist() == [40.0]
        assert queries.ceilings(store)["value"].tolist() == [240.0]
        assert len(queries.op_trials(store, run_id)) == 1
        assert queries.runs(store)["state"].tolist() == ["done"]
