"""The shipped run files: readable, measured, complete enough that every cell of `quick` and `standard` has its twin."""
from __future__ import annotations

import argparse
import re
import statistics
from pathlib import Path

import pytest

from core.measure import plan
from core.records import PRECISIONS, Cell, RunFile, read_run_file
from core.trackers import registry

RUNS = Path(__file__).resolve().parent.parent / "core" / "reference" / "runs"
FILES = sorted(RUNS.glob("*.jsonl.gz"))


def loaded() -> list[RunFile]:
    return [read_run_file(path) for path in FILES]


def ok_cells(device_type: str) -> list[Cell]:
    return [
        line.record for run in loaded() for line in run.lines
        if isinstance(line.record, Cell) and line.record.status == "ok"
        and run.header is not None and run.header.device.type == device_type
    ]


def planned(preset: str) -> set[str]:
    parser = argparse.ArgumentParser()
    plan.add_sweep_options(parser)
    return {cell.workload.key() for cell in plan.expand(plan.request_from(parser.parse_args(["--preset", preset])))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_shipped_file_is_whole_measured_and_small(path: Path) -> None:
    run = read_run_file(path)
    assert run.problems == ()
    assert not run.torn
    assert run.header is not None
    assert run.header.origin == "measured"
    assert path.stat().st_size < 3_000_000


@pytest.mark.parametrize("preset", ["quick", "standard"])
def test_every_cell_of_a_preset_has_its_twin_on_the_h200(preset: str) -> None:
    assert planned(preset) <= {cell.workload.key() for cell in ok_cells("cuda")}


def test_every_cell_of_quick_that_a_cpu_can_run_has_its_twin_there() -> None:
    shipped = {cell.workload.key() for cell in ok_cells("cpu")}
    assert {key for key in planned("quick") if "|tf32/" not in key} <= shipped


@pytest.mark.parametrize("variant", ["base", "small"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_centre_has_five_processes_and_an_op_table(variant: str, precision: str) -> None:
    centre = [
        cell for cell in ok_cells("cuda")
        if (cell.workload.work.variant, cell.workload.setting.precision) == (variant, precision)
        and (cell.workload.work.frames, cell.workload.work.height, cell.workload.work.points) == (47, 256, 256)
    ]
    assert {cell.process for cell in centre} == {0, 1, 2, 3, 4}
    tables = [cell.ops for cell in centre if cell.ops and any(op.device_ms for op in cell.ops)]
    assert tables
    assert all(sum(op.device_ms or 0 for op in ops) > 10 for ops in tables)


@pytest.mark.parametrize("variant", ["base", "small"])
def test_the_star_is_shipped_in_five_precisions(variant: str) -> None:
    sizes = {
        (47, 256, 256), (47, 384, 256), (47, 512, 256), (24, 256, 256), (96, 256, 256), (47, 256, 64), (47, 256, 1024),
    }
    found = {
        (cell.workload.work.frames, cell.workload.work.height, cell.workload.work.points,
         cell.workload.setting.precision)
        for cell in ok_cells("cuda") if cell.workload.work.variant == variant
    }
    assert {(*size, precision) for size in sizes for precision in PRECISIONS} <= found


def test_stages_sum_to_the_total_in_every_shipped_cell() -> None:
    for cell in [*ok_cells("cuda"), *ok_cells("cpu")]:
        total = cell.event_ms if cell.event_ms is not None else cell.wall_ms
        for i, whole in enumerate(total):
            parts = [(stage.event_ms if cell.event_ms is not None else stage.wall_ms)[i] for stage in cell.stages]
            assert sum(parts) == pytest.approx(whole, rel=1e-6)


def test_every_shipped_pass_lies_as_near_its_prediction_as_a_plan_says() -> None:
    for run in loaded():
        assert run.header is not None
        device, cores = run.header.device, run.header.host.cores
        rate = plan.cpu_rate(cores) if device.type == "cpu" else plan.gpu_rate(device.name, device.memory_bytes)
        assert rate is not None
        for line in run.lines:
            if isinstance(line.record, Cell) and line.record.status == "ok":
                workload = line.record.workload
                estimate = registry.estimate(workload.work)
                if estimate is None or workload.setting.handicap:
                    continue  # official models have no formulas, and a plan knows nothing of handicaps
                predicted_s = rate.pass_s(estimate, workload.setting.precision)
                assert predicted_s is not None
                ratio = statistics.median(line.record.wall_ms) / 1e3 / predicted_s
                assert 1 / plan.ROUGH_FACTOR < ratio < plan.ROUGH_FACTOR, workload.key()


def test_the_shipped_official_models_name_the_commit_that_ran_and_are_no_stand_ins() -> None:
    cells = [line.record for run in loaded() for line in run.lines if isinstance(line.record, Cell)]
    official = {cell.workload.work.selector: cell.workload.work for cell in cells
                if cell.workload.work.implementation == "official"}
    assert set(official) >= {"locotrack:base", "cotracker3:offline", "tapir:tapir", "tapnext:clip"}
    for work in official.values():
        assert re.fullmatch(r"[0-9a-f]{12}", work.revision), work.revision  # unchanged code of that commit
        assert work.weights == "random"
        ok = {cell.workload.setting.precision for cell in cells if cell.workload.work == work and cell.status == "ok"}
        assert ok == set(PRECISIONS)


def test_the_ladder_of_handicaps_is_complete_for_the_built_in_and_the_official_tracker() -> None:
    (ladder,) = [run for run in loaded() if run.header is not None and run.header.label == "founding ladder"]
    cells = [line.record for line in ladder.lines if isinstance(line.record, Cell)]
    for selector in ("local4d:base", "locotrack:base"):
        done = {cell.workload.setting.key() for cell in cells
                if cell.workload.work.selector == selector and cell.status == "ok"}
        assert done == {setting.key() for setting in plan.FOUNDING_LADDER}
