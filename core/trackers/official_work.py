"""Counted work of official models whose shape a built-in tracker has, to stand beside the built-in's own count.

Counted on the official code with random weights by torch's counter (matrix products and convolutions, one multiply-add
= 2), 47 frames of 256x256, batch 1: CoTracker3 offline (facebookresearch/co-tracker, commit 82e02e8) on fake tensors,
LocoTrack (cvlab-kaist/locotrack, commit 3385a23) on a CPU; RAFT of torchvision 0.28.0, 46 calls of one pair with 12
updates each, on the meta device by core.measure.cost. Stages carry the built-in's names; one that is missing was not
counted apart. RAFT encodes most frames twice and enlarges the flow at every update, which `dense_pair` does once.
Standard library only.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.records.model import WorkKey

FRAMES, SIDE = 47, 256


@dataclass(frozen=True)
class OfficialWork:
    """`tflop`: of one forward pass, and of its stages."""

    title: str
    tflop: float
    stage_tflop: Mapping[str, float]


_COTRACKER3, _LOCOTRACK = "CoTracker3 offline", "LocoTrack"
# by selector and number of points (0: follows every pixel)
_COUNTED = {
    ("joint4d:base", 64): OfficialWork(_COTRACKER3, 1.60, {
        "encoder": 0.81, "transformer": 0.67, "correlation_encoder": 0.10}),
    ("joint4d:base", 256): OfficialWork(_COTRACKER3, 2.81, {
        "encoder": 0.81, "transformer": 1.49, "correlation_encoder": 0.39}),
    ("joint4d:base", 1024): OfficialWork(_COTRACKER3, 7.65, {
        "encoder": 0.81, "transformer": 4.80, "correlation_encoder": 1.57}),
    ("joint4d:base", 2500): OfficialWork(_COTRACKER3, 16.95, {
        "encoder": 0.81, "transformer": 11.2, "correlation_encoder": 3.84}),
    ("local4d:base", 64): OfficialWork(f"{_LOCOTRACK} base", 1.18, {"encoder": 0.89, "transformer": 0.14}),
    ("local4d:base", 256): OfficialWork(f"{_LOCOTRACK} base", 2.05, {"encoder": 0.89, "transformer": 0.57}),
    ("dense_pair:base", 0): OfficialWork("RAFT large, pair by pair", 4.779, {
        "encoder": 1.229, "correlation": 0.0247, "update": 3.025, "upsample": 0.500}),
    ("dense_pair:small", 0): OfficialWork("RAFT small, pair by pair", 1.059, {
        "encoder": 0.0565, "correlation": 0.0123, "update": 0.990}),
    ("local4d:small", 256): OfficialWork(f"{_LOCOTRACK} small", 1.47, {}),
}


def official_work(work: WorkKey) -> OfficialWork | None:
    """What the official model of this shape takes for the same size; None where nobody counted it."""
    if (work.frames, work.height, work.width, work.batch) != (FRAMES, SIDE, SIDE, 1):
        return None
    return _COUNTED.get((work.selector, work.points or 0))
