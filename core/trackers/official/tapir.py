"""TAPIR (Doersch et al., ICCV 2023) and BootsTAPIR (2024) from a checkout of google-deepmind/tapnet: `tapnet.torch`.

Coordinates have the frame's edge at 0, as here. The repository's own demos build BootsTAPIR (`pyramid_level=1` with
extra convolutions); plain TAPIR is the same class with neither.
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

ARGUMENTS = {
    "tapir": {"pyramid_level": 0, "extra_convs": False},
    "bootstapir": {"pyramid_level": 1, "extra_convs": True},
}


class Tapir(OfficialTracker):
    def __init__(self, model: Any, utilities: Any, query_chunk: int) -> None:
        super().__init__(model, (
            Hooked("encoder", model.resnet_torch),
            *((Hooked("encoder", model.extra_convs),) if model.extra_convs is not None else ()),
            Hooked("cost_volume", model, "tracks_from_cost_volume"),
            # Samples the neighbourhood of a guess; what follows is the product with the query's features.
            Hooked("correlation", utilities, "map_coordinates_2d", held=True),
            Hooked("mixer", model.torch_pips_mixer),
        ))
        self.query_chunk = query_chunk

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        return {"video": video, "query_points": to_tyx(queries), "query_chunk_size": self.query_chunk}

    def predictions(self, output: Any) -> Predictions:
        return from_occlusion(output)


def build(
    variant: str = "tapir", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> Tapir:
    """`tapir` or `bootstapir`; see core.trackers.official. One model serves clips of any length and size."""
    info, chosen = registry.resolve(f"tapir:{variant}")
    module, utilities = modules_of("tapir", checkout, ("tapnet.torch.tapir_model", "tapnet.torch.utils"))
    with own_random_numbers(seed):
        model = module.TAPIR(num_pips_iter=own(iterations, info, "iterations"), **ARGUMENTS[chosen.name])
    return Tapir(finished(model, weights), utilities, own(query_chunk, info, "query_chunk"))
