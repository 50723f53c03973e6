"""CoTracker3 (Karaev et al., 2024): offline (all frames at once) and online (windows of 16 frames, 8 apart)."""
from __future__ import annotations

from pathlib import Path

from core.trackers import registry
from core.trackers.official import cotracker
from core.trackers.official.adapter import OfficialTracker
from core.trackers.official.loading import own

OFFLINE_WINDOW = 60  # frames; the length of the learned time embedding, as hubconf.py of the repository sets it


def build(
    variant: str = "offline", seed: int = 0, *, checkout: str | Path | None = None, weights: str | Path | None = None,
    frames: int | None = None, height: int | None = None, width: int | None = None,
    iterations: int | None = None, query_chunk: int | None = None,
) -> OfficialTracker:
    """`offline`, `online`, `offline-predictor` or `online-predictor`; see core.trackers.official.

    One model serves clips of any length and size. A predictor's iterations cannot be chosen.
    """
    info, _ = registry.resolve(f"cotracker3:{variant}")
    offline = variant.startswith("offline")
    options = {"offline": offline, "window_len": OFFLINE_WINDOW if offline else info.window}
    if not variant.endswith("-predictor"):
        model, _ = cotracker.load(checkout, weights, seed, None, **options)
        return cotracker.CoTracker(model, cotracker.hooked_version3(model), own(iterations, info, "iterations"))
    if offline:
        model, _ = cotracker.load(checkout, weights, seed, "CoTrackerPredictor", **options)
        return cotracker.CoTrackerInPredictor(model, cotracker.hooked_version3(model.model))
    model, _ = cotracker.load(checkout, weights, seed, "CoTrackerOnlinePredictor", **options)
    return cotracker.CoTrackerInOnlinePredictor(model, cotracker.hooked_version3(model.model))
