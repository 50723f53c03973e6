"""What CoTracker2 and CoTracker3 have in common, from a checkout of facebookresearch/co-tracker (CC-BY-NC-4.0).

Videos go in as (B, T, 3, H, W) in 0..255, queries as (t, x, y) with the centre of the first pixel at 0; tracks come
out as (B, T, N, 2). The model itself and the predictor around it are different work: the predictor resizes every
clip to 384x512, adds 36 support points, and takes 6 iterations.
"""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from core.trackers.official.adapter import (
    OfficialTracker,
    above_threshold,
    at_least_single,
    from_signs,
    to_bytes_range,
    to_pixel_centres,
)
from core.trackers.official.hooks import Hooked
from core.trackers.official.loading import finished, modules_of, own_random_numbers
from core.trackers.tracker import Predictions

VISIBLE_ABOVE = 0.6
"""The threshold on visibility times confidence of CoTrackerOnlinePredictor and EvaluationPredictor."""


class CoTracker(OfficialTracker):
    """The model itself: one call for the whole clip, in windows inside it where it has windows."""

    def __init__(self, model: Any, hooked: Sequence[Hooked], iterations: int) -> None:
        super().__init__(model, hooked)
        self.iterations = iterations

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"video": to_bytes_range(video), "queries": to_pixel_centres(queries), "iters": self.iterations}

    def predictions(self, output: Any) -> Predictions:
        """output: tracks, visibility and, in CoTracker3, confidence, both as probabilities."""
        tracks, visibility = output[0], output[1]
        confidence = output[2] if len(output) == 4 else 1.0  # the last item is of training
        return Predictions(_to_edges(tracks), above_threshold(visibility * confidence, VISIBLE_ABOVE).transpose(1, 2))


class CoTrackerInPredictor(OfficialTracker):
    """Through CoTrackerPredictor, whose number of iterations (6) is fixed in its code."""

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"video": to_bytes_range(video), "queries": to_pixel_centres(queries)}

    def predictions(self, output: Any) -> Predictions:
        tracks, visible = output
        return Predictions(_to_edges(tracks), from_signs(visible).transpose(1, 2))


class CoTrackerInOnlinePredictor(CoTrackerInPredictor):
    """Through CoTrackerOnlinePredictor as its demo does it: half a window of new frames per call."""

    def run(self, **arguments: Any) -> Any:
        video, queries = arguments["video"], arguments["queries"]
        self.model(video_chunk=video, is_first_step=True, queries=queries)
        step = self.model.step
        output = None
        for start in range(0, video.shape[1] - step, step):
            output = self.model(video_chunk=video[:, start : start + 2 * step])
        return output


def load(
    checkout: str | Path | None, weights: str | Path | None, seed: int, predictor: str | None, **options: Any
) -> tuple[Any, ModuleType]:
    """The model, or the named predictor around it, and the module that holds CoTracker2.

    options: of build_cotracker, which the predictors hand on.
    """
    builders, predictors, version2 = modules_of("cotracker3", checkout, (
        "cotracker.models.build_cotracker", "cotracker.predictor", "cotracker.models.core.cotracker.cotracker",
    ))
    with own_random_numbers(seed):
        if predictor is None:
            return finished(builders.build_cotracker(checkpoint=None, **options), weights), version2
        outer = getattr(predictors, predictor)(checkpoint=None, **options)
    finished(outer.model, weights)
    return outer.eval(), version2


def hooked_version3(model: Any) -> tuple[Hooked, ...]:
    return (
        Hooked("encoder", model.fnet),
        # Features around the query in its own frame.
        Hooked("correlation", model, "get_track_feat"),
        # Samples the neighbourhood of a guess; what follows is the product with the query's neighbourhood.
        Hooked("correlation", model, "get_correlation_feat", held=True),
        Hooked("correlation_encoder", model.corr_mlp),
        Hooked("transformer", model.updateformer),
    )


def hooked_version2(model: Any, module: ModuleType) -> tuple[Hooked, ...]:
    """module: the one that holds CoTracker2; its CorrBlock is made anew for each window."""
    return (
        Hooked("encoder", model.fnet),
        Hooked("correlation", module.CorrBlock, "__init__"),
        Hooked("correlation", module.CorrBlock, "corr"),
        Hooked("correlation", module.CorrBlock, "sample"),
        Hooked("transformer", model.updateformer),
    )


def _to_edges(tracks: Tensor) -> Tensor:
    """(B, T, N, 2) with the first pixel's centre at 0 -> (B, N, T, 2) with the frame's edge at 0."""
    return at_least_single(torch.transpose(tracks, 1, 2)) + 0.5
