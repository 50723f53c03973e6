"""Drift between outputs, and TAP-Vid accuracy, on cases small enough to work out by hand."""
from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.measure import inputs
from core.measure.agreement import FIRST, STRIDED, accuracy, drift
from core.measure.inputs import Clip
from core.trackers.tracker import Predictions


def predictions(tracks: Any, logits: Any) -> Predictions:
    """One clip: tracks (N, T, 2), logits (N, T)."""
    return Predictions(torch.tensor([tracks], dtype=torch.float32), torch.tensor([logits], dtype=torch.float32))


def clip(tracks: Any, visible: Any, query_frames: list[int], side: int = 256) -> Clip:
    truth = np.array(tracks, dtype=np.float32)
    queries = np.array([[t, *truth[n, t]] for n, t in enumerate(query_frames)], dtype=np.float32)
    video = np.zeros((truth.shape[1], side, side, 3), dtype=np.uint8)
    return Clip(video, queries, truth, np.array(visible, dtype=bool), "by hand")


# --- drift ---


def test_drift_is_the_distance_of_the_tracks() -> None:
    zero = [[[0, 0], [0, 0], [0, 0], [0, 0]]]
    moved = [[[3, 4], [0, 0], [0, 1], [0, 2]]]  # 5, 0, 1, 2 px
    told = drift(predictions(zero, [[1, 1, -1, -1]]), predictions(moved, [[1, -1, -1, -1]]))
    assert told == {
        "median_px": 1, "p95_px": 5, "max_px": 5,
        "visible_median_px": 0, "visible_p95_px": 5, "visible_max_px": 5,  # 5 and 0: half of them stays within 0
        "visibility_agreement": 0.75, "finite": True, "positions": 4,
    }


def test_p95_leaves_one_of_twenty_out() -> None:
    zero = [[[0, 0]] * 20]
    moved = [[[i, 0] for i in range(1, 21)]]
    told = drift(predictions(zero, [[1] * 20]), predictions(moved, [[1] * 20]))
    assert (told["median_px"], told["p95_px"], told["max_px"]) == (10, 19, 20)


def test_what_is_not_finite_is_infinitely_far_and_never_written() -> None:
    zero = [[[0, 0]] * 4]
    moved = [[[1, 0], [1, 0], [1, 0], [math.nan, 0]]]
    told = drift(predictions(zero, [[-1] * 4]), predictions(moved, [[-1, -1, -1, math.nan]]))
    assert (told["median_px"], told["p95_px"], told["max_px"]) == (1, None, None)
    assert told["visible_median_px"] is None  # no point is visible
    assert told["visibility_agreement"] == 0.75
    assert told["finite"] is False
    json.dumps(told, allow_nan=False)


def test_outputs_of_other_shapes_are_not_compared() -> None:
    with pytest.raises(ValueError, match="shapes"):
        drift(predictions([[[0, 0]]], [[1]]), predictions([[[0, 0], [0, 0]]], [[1, 1]]))


@given(st.integers(0, 2**32 - 1), st.floats(0, 100))
def test_a_shift_of_every_point_is_the_drift(seed: int, shift_px: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    tracks = torch.rand(1, 3, 4, 2, generator=generator, dtype=torch.float64) * 256
    logits = torch.randn(1, 3, 4, generator=generator)
    told = drift(Predictions(tracks, logits), Predictions(tracks + torch.tensor([shift_px, 0.0]), logits))
    assert told["median_px"] == pytest.approx(shift_px, abs=1e-4)
    assert told["median_px"] <= told["p95_px"] <= told["max_px"]
    assert told["visibility_agreement"] == 1


# --- accuracy ---

STILL = [[[100, 100]] * 4]


def test_an_exact_answer_is_perfect() -> None:
    truth = clip(STILL, [[True, True, False, True]], [0])
    told = accuracy(predictions(STILL, [[9, 9, -9, 9]]), truth, "checkpoint")
    assert told is not None
    assert (told["position_accuracy"], told["occlusion_accuracy"], told["average_jaccard"]) == (1, 1, 1)
    assert told["weights"] == "checkpoint"


def test_each_threshold_is_counted_by_hand() -> None:
    # Judged: frames 1, 2, 3. Visible: 1 and 2. Off by 3 px, 0 px; frame 3 is hidden, but called visible.
    truth = clip(STILL, [[True, True, True, False]], [0])
    told = accuracy(predictions([[[100, 100], [103, 100], [100, 100], [0, 0]]], [[1, 1, 1, 1]]), truth, "random")
    assert told is not None
    assert told["within_px"] == {"1": 0.5, "2": 0.5, "4": 1, "8": 1, "16": 1}
    assert told["position_accuracy"] == pytest.approx(4 / 5)
    assert told["occlusion_accuracy"] == pytest.approx(2 / 3)
    # Near: 2 true positives, 1 false positive. Too far: 1 true positive, 1 false negative, 2 false positives.
    assert told["jaccard_px"] == {
        "1": 1 / 4, "2": 1 / 4, "4": pytest.approx(2 / 3), "8": pytest.approx(2 / 3), "16": pytest.approx(2 / 3)}
    assert told["average_jaccard"] == pytest.approx((2 * 0.25 + 3 * 2 / 3) / 5)


def test_a_visible_point_called_hidden_is_a_false_negative_only() -> None:
    truth = clip(STILL, [[True] * 4], [0])
    told = accuracy(predictions(STILL, [[1, 1, 1, -1]]), truth, "random")
    assert told is not None
    assert told["position_accuracy"] == 1
    assert told["average_jaccard"] == pytest.approx(2 / 3)


def test_a_threshold_itself_is_too_far() -> None:
    truth = clip([[[100, 100]] * 2], [[1, 1]], [0])
    told = accuracy(predictions([[[100, 100], [101, 100]]], [[1, 1]]), truth, "random")
    assert told is not None
    assert told["within_px"]["1"] == 0
    assert told["within_px"]["2"] == 1


def test_distances_are_those_of_frames_of_256_pixels() -> None:
    truth = clip([[[100, 100]] * 2], [[1, 1]], [0], side=1024)
    told = accuracy(predictions([[[100, 100], [107, 100]]], [[1, 1]]), truth, "random")  # 7 / 4 = 1.75 px
    assert told is not None
    assert told["within_px"]["1"] == 0
    assert told["within_px"]["2"] == 1


@pytest.mark.parametrize(("mode", "right"), [(FIRST, 1.0), (STRIDED, 0.5)])
def test_query_mode_decides_whether_frames_before_the_query_count(mode: str, right: float) -> None:
    truth = clip([[[100, 100]] * 3], [[1, 1, 1]], [1])
    told = accuracy(predictions([[[0, 0], [0, 0], [100, 100]]], [[1, 1, 1]]), truth, "random", mode)
    assert told is not None
    assert told["position_accuracy"] == right


def test_items_of_a_batch_are_averaged() -> None:
    truth = clip([[[100, 100]] * 2], [[1, 1]], [0])
    both = Predictions(torch.tensor([[[[100.0, 100], [100, 100]]], [[[100.0, 100], [0, 0]]]]), torch.ones(2, 1, 2))
    told = accuracy(both, truth, "random")
    assert told is not None
    assert told["position_accuracy"] == 0.5


def test_nothing_to_judge_is_missing_and_not_zero() -> None:
    truth = clip([[[100, 100]]], [[1]], [0])
    told = accuracy(predictions([[[100, 100]]], [[1]]), truth, "random")
    assert told is not None
    assert told["position_accuracy"] is told["occlusion_accuracy"] is told["average_jaccard"] is None


def test_a_clip_without_truth_has_no_accuracy() -> None:
    unknown = Clip(np.zeros((1, 8, 8, 3), np.uint8), np.zeros((1, 3), np.float32), None, None, "film.mp4")
    assert accuracy(predictions([[[0, 0]]], [[1]]), unknown, "random") is None


def test_the_procedural_clip_judges_its_own_truth_as_perfect() -> None:
    made = inputs.procedural_clip(8, 64, 96, 16, seed=3)
    assert made.tracks is not None
    assert made.visible is not None
    exact = Predictions(torch.from_numpy(made.tracks)[None], torch.from_numpy(made.visible)[None].float() - 0.5)
    told = accuracy(exact, made, "random")
    assert told is not None
    assert told["average_jaccard"] == 1
    json.dumps(told, allow_nan=False)
