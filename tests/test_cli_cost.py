"""`cost` counts one workload without a GPU, in a process of its own, and says how it counted."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from core.errors import UserError
from core.measure.cost import StageWork, WorkCount
from core.measure.cost_command import (
    Counted,
    answer,
    count_workload,
    frame_counts,
    main,
    point_counts,
    weighted_sum,
)
from core.trackers import registry
from core.trackers.info import OFFICIAL
from core.trackers.local4d import build
from core.trackers.tracker import Predictions, Tracker

ROOT = Path(__file__).resolve().parent.parent
LOCAL4D = registry.TRACKERS["local4d"]
ANOTHER = replace(LOCAL4D, implementation=OFFICIAL)
torch.set_num_threads(2)


def command(*options: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "core", "cost", *options], cwd=cwd, capture_output=True, text=True,
                          check=False)


def test_json_is_one_document_with_the_work_of_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tracker", "local4d:small", "--frames", "3", "--resolution", "32x40", "--points", "5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"flops", "other_flops", "bytes", "launches", "stages", "coverage", "peak_bytes", "how"} <= set(told)
    assert sum(stage["flops"] for stage in told["stages"]) == told["flops"] > 0
    assert sum(stage["share"] for stage in told["stages"]) == pytest.approx(1)
    assert (told["coverage"], told["how"], told["official"]) == (1, "meta", None)
    assert (told["work"]["variant"], told["work"]["height"], told["work"]["points"]) == ("small", 32, 5)


def test_a_stage_stands_beside_the_official_one_at_the_size_that_was_counted() -> None:
    work = registry.work_key("joint4d", 47, 256, 256, 256)
    stages = (StageWork("encoder", 1, 3, 0, 0, 1), StageWork("correlation", 1, 1, 0, 0, 1),
              StageWork("other", None, 0, 0, 0, 0))
    counted = WorkCount(4, 0, 0, 2, stages, (), 1.0, (), 0)
    told = answer(work, "fp32", Counted(counted, "meta"))
    encoder, correlation, _ = told["stages"]
    assert encoder["share"] == 0.75
    assert encoder["official_share"] == pytest.approx(0.81 / 2.81)
    assert correlation["official_share"] is None  # not counted apart, which is not 0
    assert told["official"]["flops"] == 2_810_000_000_000
    elsewhere = answer(registry.work_key("joint4d", 47, 256, 256, 255), "fp32", Counted(counted, "meta"))
    assert elsewhere["official"] is None
    assert elsewhere["stages"][0]["official_share"] is None


def test_half_precision_is_counted_on_fake_tensors_and_moves_fewer_bytes() -> None:
    work = registry.work_key("local4d:small", 3, 32, 40, 5)
    full, half = (count_workload(work, name, lambda key: build("small"), LOCAL4D) for name in ("fp32", "bf16"))
    assert (full.how, half.how) == ("meta", "fake")
    assert half.work.flops == full.work.flops
    assert half.work.coverage == 1
    convolutions = [sum(op.bytes for op in one.work.ops if op.op == "aten::convolution") for one in (full, half)]
    assert convolutions[1] < 0.55 * convolutions[0]


class LooksAtValues(Tracker):
    """Product of all frames with all points in chunks of 4 points; asks for a value, so it cannot be faked."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 8), requires_grad=False)

    def forward(self, video: Tensor, queries: Tensor) -> Predictions:
        if video.sum().item() > 1e9:
            raise ValueError("white")
        with self.stage("product"):
            pixels = video.flatten(2, 3).mean(dim=2) @ self.weight  # (B, T, 8)
            parts = [pixels @ (chunk @ self.weight).transpose(1, 2) for chunk in queries.split(4, dim=1)]
        tracks = torch.cat(parts, dim=2)
        return Predictions(tracks, tracks)


def test_a_model_that_looks_at_values_is_counted_small_and_scaled() -> None:
    work = replace(registry.work_key("local4d:small", 40, 32, 40, 20), query_chunk=4)
    scaled = count_workload(work, "fp32", lambda key: LooksAtValues(), ANOTHER)
    assert scaled.how == "scaled from real tensors of 4 and 8 frames, 4 and 8 points"
    exact = count_workload(replace(work, frames=8, points=8), "fp32", lambda key: LooksAtValues(), ANOTHER)
    assert exact.how == "real"
    # frames: 3 -> 8 channels; points: the same; frames x points over 8 channels
    assert scaled.work.flops == 2 * (40 * 3 * 8 + 20 * 3 * 8 + 40 * 20 * 8)
    assert exact.work.flops == 2 * (8 * 3 * 8 + 8 * 3 * 8 + 8 * 8 * 8)
    assert scaled.work.launches == exact.work.launches + 3 * 2  # three chunks more, of two products
    assert scaled.work.stages[0].calls == 1


def test_a_fault_of_a_built_in_model_is_not_hidden_by_scaling() -> None:
    work = registry.work_key("local4d:small", 40, 32, 40, 20)
    with pytest.raises(RuntimeError):
        count_workload(work, "fp32", lambda key: LooksAtValues(), LOCAL4D)


def test_small_counts_are_whole_windows_and_chunks_and_never_larger_than_the_work() -> None:
    work = registry.work_key("local4d:small", 47, 256, 256, 256)
    assert (frame_counts(work, LOCAL4D), point_counts(work)) == ((4, 8), (64, 128))
    assert frame_counts(work, replace(LOCAL4D, window=16)) == (16, 32)
    small = replace(work, frames=8, points=128)
    assert (frame_counts(small, LOCAL4D), point_counts(small)) == ((8,), (128,))


def test_a_weighted_sum_draws_the_line_on_and_stays_above_zero() -> None:
    def counted(flops: int, peak: int) -> WorkCount:
        stage = StageWork("a", 2, flops, 0, 10, 3)
        return WorkCount(flops, 0, 10, 3, (stage, StageWork("other", None, 0, 0, 0, 0)), (), 1.0, (), peak)

    told = weighted_sum([counted(10, 50), counted(20, 40)], [-1, 2])
    assert (told.flops, told.bytes, told.launches, told.peak_bytes) == (30, 10, 3, 30)
    assert weighted_sum([counted(10, 50), counted(2, 10)], [-1, 2]).peak_bytes == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tracker", "locald"], "unknown tracker 'locald'; expected local4d"),
        (["--tracker", "joint4d", "--resolution", "254"], "joint4d cannot take 254x254"),
        (["--tracker", "joint4d", "--frames", "many"], "invalid int value: 'many'"),
        (["--frames", "4"], "required: --tracker"),
        (["--tracker", "joint4d", "--precision", "fp8"], "invalid choice: 'fp8'"),
        (["--tracker", "locotrack"], "runs from your own copy of cvlab-kaist/locotrack"),
    ],
)
def test_a_mistake_is_one_sentence(options: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(options)


# --- through the shell


def test_the_shell_prints_a_table_and_opens_no_database(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "core", "cost", "--tracker", "joint4d"], cwd=tmp_path, capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "2.81 TFLOP" in done.stdout
    assert "share in CoTracker3 offline" in done.stdout
    assert "Counted: meta" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_shell_passes_json_and_mistakes_on() -> None:
    options = ["--tracker", "local4d:small", "--frames", "2", "--resolution", "32", "--points", "1", "--json"]
    told: dict[str, Any] = json.loads(command(*options).stdout)
    assert told["work"]["frames"] == 2
    wrong = command("--tracker", "local4d:small", "--resolution", "33")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: local4d cannot take 33x33 pixels")
    assert wrong.stderr.count("\n") == 1
