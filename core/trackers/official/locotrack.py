"""LocoTrack (Cho et al., ECCV 2024) from a checkout of cvlab-kaist/locotrack: `models.locotrack_model.LocoTrack`.

The folder `locotrack_pytorch` is no package: its modules import each other as `models`. Its `load_model` downloads
weights, so the class is used directly. Coordinates have the frame's edge at 0, as here.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from core.trackers import registry
from core.trackers.official.adapter import OfficialTracker, from_occlusion, to_tyx
from core.trackers.official.hooks import Hooked
from core.trackers.official.loading import finished, modules_of, own, own_random_numbers
from core.trackers.tracker import Predictions


class LocoTrack(OfficialTracker):
    def __init__(self, model: Any, utilities: Any, query_chunk: int) -> None:
        super().__init__(model, (
            Hooked("encoder", model.resnet_torch),
            Hooked("cost_volume", model, "tracks_from_cost_volume"),
            # Samples the neighbourhood of a guess; what follows is the product with the query's neighbourhood.
            Hooked("correlation", utilities, "map_coordinates_2d", held=True),
            *(Hooked("correlation_encoder", encoder) for encoder in model.cmdtop),
            Hooked("transformer", model.torch_pips_mixer),
        ))
        self.query_chunk = query_chunk

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"video": video, "query_points": to_tyx(queries), "query_chunk_size": self.query_chunk}

    def predictions(self, output: Any) -> Predictions:
        return from_occlusion(output)


def build(
    variant: str = "base", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> LocoTrack:
    """`small` or `base`; see core.trackers.official. One model serves clips of any length and size."""
    info, chosen = registry.resolve(f"locotrack:{variant}")
    module, utilities = modules_of("locotrack", checkout, ("models.locotrack_model", "models.utils"))
    with own_random_numbers(seed):
        model = module.LocoTrack(model_size=chosen.name, num_pips_iter=own(iterations, info, "iterations"))
    return LocoTrack(finished(model, weights), utilities, own(query_chunk, info, "query_chunk"))
