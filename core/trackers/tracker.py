"""What every tracker looks like to the measurer: built in, official or the user's own.

    model = build(variant, seed=0, ...)          a Tracker on the CPU, in evaluation mode
    arguments = model.prepare(video, queries)    layout, range and order of its inputs: outside the timed region
    output = model(**arguments)                  the timed call, in the model's own words
    model.predictions(output)                    tracks in pixels, or None: outside the timed region
"""
from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from torch import Tensor, nn

from core.trackers.stages import StageMarker, no_marker


class Predictions(NamedTuple):
    """Where the queries went. B clips, N queries, T frames."""

    tracks: Tensor  # (B, N, T, 2) pixels (x, y), float32 (float64 in a float64 model)
    visibility_logits: Tensor  # (B, N, T), above 0: visible


class Tracker(nn.Module):
    """Base class: inputs as they come, outputs as they are, stages by `with self.stage(name)`."""

    def __init__(self) -> None:
        super().__init__()
        self.stage_marker: StageMarker = no_marker

    def stage(self, name: str) -> AbstractContextManager[Any]:
        return self.stage_marker(name)

    def prepare(self, video: Tensor, queries: Tensor) -> dict[str, Any]:
        """Keyword arguments of `forward`.

        video: (B, T, H, W, 3) float32 in -1..1; queries: (B, N, 3) as (t, x, y), frame number and pixels. Both lie on
        the device. What it makes is kept from call to call, so a forward pass must not change it.
        """
        return {"video": video, "queries": queries}

    def predictions(self, output: Any) -> Predictions | None:
        """The output of `forward` as tracks and visibility; None for a model that does not give them."""
        return output if isinstance(output, Predictions) else None
