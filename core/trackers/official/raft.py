"""RAFT (Teed and Deng, ECCV 2020) of the installed torchvision: optical flow from each frame to the next.

Frames go in as pairs (B, 3, H, W) in -1..1, one pair per call, as a video is read. A model of flow has no visibility:
a point counts as visible from its own frame on while it is inside the picture.
"""
from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.errors import UserError
from core.trackers import registry
from core.trackers.official import flow
from core.trackers.official.adapter import OfficialTracker, from_signs
from core.trackers.official.hooks import Hooked
from core.trackers.official.loading import finished, own, own_random_numbers
from core.trackers.tracker import Predictions

PACKAGE = "torchvision.models.optical_flow"


class Raft(OfficialTracker):
    def __init__(self, model: Any, module: Any, iterations: int) -> None:
        super().__init__(model, (
            Hooked("encoder", model.feature_encoder),
            Hooked("encoder", model.context_encoder),
            Hooked("correlation", model.corr_block, "build_pyramid"),
            Hooked("correlation", model.corr_block, "index_pyramid"),
            Hooked("update", model.update_block),
            *((Hooked("upsample", model.mask_predictor),) if model.mask_predictor is not None else ()),
            Hooked("upsample", module, "upsample_flow"),
        ))
        self.iterations = iterations

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"frames": video.permute(0, 1, 4, 2, 3).contiguous(), "queries": queries}

    def run(self, **arguments: Any) -> Any:
        """(flows (B, 2, H, W) of each pair, queries as they came)."""
        frames = arguments["frames"]
        flows = tuple(
            self.model(frames[:, i], frames[:, i + 1], num_flow_updates=self.iterations)[-1]
            for i in range(frames.shape[1] - 1)
        )
        return *flows, arguments["queries"]

    def predictions(self, output: Any) -> Predictions:
        *flows, queries = output
        tracks = flow.chained(torch.stack(flows, dim=1), queries)
        height, width = flows[0].shape[-2:]
        inside = ((tracks >= 0) & (tracks < tracks.new_tensor([width, height]))).all(dim=-1)
        begun = torch.arange(tracks.shape[2], device=tracks.device) >= torch.round(queries[..., :1])
        return Predictions(tracks, from_signs(inside & begun))


def build(
    variant: str = "large", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> Raft:
    """`large` or `small`; see core.trackers.official. There is no checkout: the code is torchvision's."""
    info, chosen = registry.resolve(f"raft:{variant}")
    problem = registry.missing(info)
    if problem is not None:
        raise problem
    try:
        module = importlib.import_module(f"{PACKAGE}.raft")
    except (ImportError, RuntimeError, AttributeError) as error:  # one built for another torch fails in many ways
        raise UserError(f"torchvision cannot be imported ({error})", "one made for this version of torch",
                        "install torch and torchvision together") from error
    with own_random_numbers(seed):
        model = getattr(module, f"raft_{chosen.name}")(weights=None)
    return Raft(finished(model, weights), module, own(iterations, info, "iterations"))
