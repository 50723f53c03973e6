"""The base class of all official trackers: their module inside a `Tracker`, with stages from `StageHooks`."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from core.trackers.official.hooks import Hooked, StageHooks
from core.trackers.stages import StageMarker, no_marker
from core.trackers.tracker import Predictions, Tracker


class OfficialTracker(Tracker):
    """An official model. Subclasses say how it is called (`run`), what it takes and what it gives."""

    hooks: StageHooks | None = None
    model: Any  # a torch module of a class that only its checkout knows

    def __init__(self, model: nn.Module, hooked: Sequence[Hooked]) -> None:
        super().__init__()
        self.model = model
        self.hooks = StageHooks(hooked)
        self.eval()

    @property
    def stage_marker(self) -> StageMarker:
        return self._marker

    @stage_marker.setter
    def stage_marker(self, marker: StageMarker) -> None:  # type: ignore[override]
        self._marker = marker
        if self.hooks is not None:
            self.hooks.listen(marker)

    def forward(self, **arguments: Any) -> Any:
        """The official call with what `prepare` made; its output as it is."""
        if self.stage_marker is no_marker:
            return self.run(**arguments)
        assert self.hooks is not None
        try:
            return self.run(**arguments)
        finally:
            self.hooks.close()

    def run(self, **arguments: Any) -> Any:
        return self.model(**arguments)


def to_bytes_range(video: Tensor) -> Tensor:
    """(B, T, H, W, 3) in -1..1 -> (B, T, 3, H, W) in 0..255, as models that normalise by themselves want it."""
    return video.permute(0, 1, 4, 2, 3).add(1).mul(127.5).contiguous()


def to_tyx(queries: Tensor) -> Tensor:
    """(B, N, 3) as (t, x, y) -> (t, y, x)."""
    return queries[..., [0, 2, 1]].contiguous()


def to_pixel_centres(queries: Tensor) -> Tensor:
    """(B, N, 3) as (t, x, y) for models whose first pixel has its centre at 0, not at 0.5."""
    return queries - queries.new_tensor([0.0, 0.5, 0.5])


def at_least_single(tensor: Tensor) -> Tensor:
    """float32, or float64 where it was that."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def above_threshold(probability: Tensor, threshold: float) -> Tensor:
    """Logits that are above 0 exactly where `probability` is above `threshold`."""
    odds = torch.logit(at_least_single(probability), eps=1e-6)
    return odds - math.log(threshold / (1 - threshold))


def from_signs(visible: Tensor) -> Tensor:
    """1 for visible and -1 for not: a model that only says yes or no has no logits."""
    return torch.where(visible, 1.0, -1.0)


def from_occlusion(output: Mapping[str, Tensor]) -> Predictions:
    """Tracks and visibility from `tracks` (B, N, T, 2), `occlusion` and `expected_dist` logits (B, N, T).

    Visible where neither is likely, as LocoTrack and TAPIR judge it: (1 - p_occluded) (1 - p_far) > 0.5.
    """
    occluded, far = at_least_single(output["occlusion"]), at_least_single(output["expected_dist"])
    return Predictions(
        at_least_single(output["tracks"]), above_threshold(torch.sigmoid(-occluded) * torch.sigmoid(-far), 0.5)
    )
