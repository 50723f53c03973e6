"""CoTracker2 (Karaev et al., ECCV 2024): windows of 8 frames, 4 apart."""
from __future__ import annotations

from pathlib import Path

from core.trackers import registry
from core.trackers.official import cotracker
from core.trackers.official.adapter import OfficialTracker
from core.trackers.official.loading import own


def build(
    variant: str = "inner", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> OfficialTracker:
    """`inner` or `predictor`; see core.trackers.official. One model serves clips of any length and size.

    A predictor's iterations cannot be chosen.
    """
    info, _ = registry.resolve(f"cotracker2:{variant}")
    options = {"v2": True, "window_len": info.window}
    if variant == "inner":
        model, module = cotracker.load(checkout, weights, seed, None, **options)
        hooked = cotracker.hooked_version2(model, module)
        return cotracker.CoTracker(model, hooked, own(iterations, info, "iterations"))
    model, module = cotracker.load(checkout, weights, seed, "CoTrackerPredictor", **options)
    return cotracker.CoTrackerInPredictor(model, cotracker.hooked_version2(model.model, module))
