"""Do the outputs agree? Drift between two outputs of one model, and accuracy where the truth is known.

Drift compares an output with a reference of the same weights on the same clip (fp32, eager): it needs no truth, and
says something with random weights, too. Accuracy is defined as in TAP-Vid (Doersch et al., "TAP-Vid: A Benchmark for
Tracking Any Point in a Video", 2022, arXiv 2211.03726), in own code.

Shape letters: B clips, N queries, T frames. Coordinates are pixels `(x, y)`.
"""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.measure.inputs import Clip
from core.trackers.tracker import Predictions

THRESHOLDS_PX = (1, 2, 4, 8, 16)
"""Distances of TAP-Vid, on frames scaled to 256x256."""

BENCHMARK_SIDE_PX = 256
FIRST, STRIDED = "first", "strided"
"""Which frames are judged: those after the query's (a query lies at its point's first appearance), or all others."""

FloatArray = NDArray[np.float64]


def drift(reference: Predictions, other: Predictions) -> dict[str, Any]:
    """How far `other` lies from `reference`, over every query and frame; JSON-ready.

    `median_px`, `p95_px`, `max_px`: distance of the positions, `visible_*` the same over the points that the reference
    calls visible. A quantile is the smallest distance that no less than this share of the points stays within, never
    interpolated. A position that is not finite counts as infinitely far: a quantile that falls on one is None, as it
    is where no point is visible. `visibility_agreement`: share of points with the same visibility (0 to 1).
    `finite`: whether every number of `other` is finite. `positions`: how many were compared.
    Raises ValueError when the shapes differ.
    """
    if reference.tracks.shape != other.tracks.shape:
        raise ValueError(f"tracks have shapes {tuple(reference.tracks.shape)} and {tuple(other.tracks.shape)}")
    reference_tracks, tracks = _array(reference.tracks), _array(other.tracks)
    reference_logits, logits = _array(reference.visibility_logits), _array(other.visibility_logits)
    distance_px = _distance_px(reference_tracks, tracks)
    visible = reference_logits > 0
    same = ((logits > 0) == visible) & ~np.isnan(logits) & ~np.isnan(reference_logits)
    return {
        **_quantiles(distance_px, ""),
        **_quantiles(distance_px[visible], "visible_"),
        "visibility_agreement": float(same.mean()) if same.size else None,
        "finite": bool(np.isfinite(tracks).all() and np.isfinite(logits).all()),
        "positions": int(distance_px.size),
    }


def accuracy(predictions: Predictions, clip: Clip, weights: str, query_mode: str = STRIDED) -> dict[str, Any] | None:
    """TAP-Vid metrics of one clip, None where its truth is unknown; JSON-ready.

    predictions: of this clip, repeated in each item of the batch; items are judged apart and averaged.
    weights: kind of the weights, repeated in the answer: with "random" the figures say nothing about a tracker.
    query_mode: FIRST or STRIDED. A query's own frame is never judged.

    `position_accuracy`: share of visible points within a threshold, averaged over THRESHOLDS_PX, and for each in
    `within_px`. `occlusion_accuracy`: share of points whose visibility is right. `average_jaccard`: true positives
    over true positives, false positives and false negatives, averaged over the thresholds, each in `jaccard_px`; a
    point is a true positive when it is visible, called visible and within the threshold, a false positive when it is
    called visible and is hidden or too far. None where nothing can be judged.
    """
    if clip.tracks is None or clip.visible is None:
        return None
    if query_mode not in (FIRST, STRIDED):
        raise ValueError(f"query mode {query_mode!r} is not {FIRST} or {STRIDED}")
    frames, height, width = clip.video.shape[:3]
    tracks, called_visible = _array(predictions.tracks), _array(predictions.visibility_logits) > 0
    if tracks.shape[1:] != clip.tracks.shape:
        raise ValueError(f"tracks have shape {tracks.shape[1:]}, the clip's {clip.tracks.shape}")
    scale = np.array([BENCHMARK_SIDE_PX / width, BENCHMARK_SIDE_PX / height])
    distance_px = _distance_px(clip.tracks.astype(np.float64)[None] * scale, tracks * scale)  # (B, N, T)
    query_frame = np.rint(clip.queries[:, :1])  # (N, 1)
    time = np.arange(frames)
    judged = time > query_frame if query_mode == FIRST else time != query_frame  # (N, T)

    visible = clip.visible & judged
    hidden = ~clip.visible & judged
    items = range(len(tracks))
    within, jaccard = {}, {}
    for threshold in THRESHOLDS_PX:
        near = distance_px < threshold
        within[str(threshold)] = _mean([_share((near[b] & visible).sum(), visible.sum()) for b in items])
        jaccard[str(threshold)] = _mean([
            _share(
                (near[b] & visible & called_visible[b]).sum(),
                # every visible point is a true positive or a false negative
                visible.sum() + (called_visible[b] & (hidden | (visible & ~near[b]))).sum(),
            )
            for b in items
        ])
    return {
        "position_accuracy": _mean(list(within.values())), "within_px": within,
        "occlusion_accuracy": _mean([
            _share(((called_visible[b] == clip.visible) & judged).sum(), judged.sum()) for b in items
        ]),
        "average_jaccard": _mean(list(jaccard.values())), "jaccard_px": jaccard,
        "query_mode": query_mode, "points": int(clip.tracks.shape[0]), "weights": weights,
    }


def _array(tensor: Any) -> FloatArray:
    return np.asarray(tensor.detach().double().cpu().numpy())


def _distance_px(one: FloatArray, two: FloatArray) -> FloatArray:
    """Distances (...) of positions (..., 2); infinite where a position is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.hypot(one[..., 0] - two[..., 0], one[..., 1] - two[..., 1])
    return np.where(np.isfinite(distance), distance, np.inf)


def _quantiles(distance_px: FloatArray, prefix: str) -> dict[str, float | None]:
    names = (("median_px", 0.5), ("p95_px", 0.95), ("max_px", 1.0))
    if not distance_px.size:
        return {prefix + name: None for name, _ in names}
    values = np.quantile(distance_px.ravel(), [share for _, share in names], method="inverted_cdf")
    return {prefix + name: float(value) if np.isfinite(value) else None
            for (name, _), value in zip(names, values, strict=True)}


def _share(part: Any, whole: Any) -> float | None:
    return float(part) / float(whole) if whole else None


def _mean(values: list[float | None]) -> float | None:
    """None as soon as one is: a mean over fewer items would be of another subset."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
