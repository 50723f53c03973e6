"""Which trackers there are, what they can take, and what a workload will roughly cost. Standard library only.

The app, the command line and the sweep planner read this; torch is loaded by `load_builder` alone.
To add a tracker: a module in core/trackers/entries, its line in TRACKERS, a module with `build(variant, ...)`, and its
plan arithmetic.
"""
from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from core.errors import UserError
from core.records.model import WorkKey
from core.trackers.entries import local4d
from core.trackers.info import TrackerInfo, VariantInfo
from core.trackers.plan import Estimate

__all__ = [
    "TRACKERS", "Estimate", "TrackerInfo", "VariantInfo", "build_options", "check_workload", "estimate",
    "load_builder", "resolve", "selectors", "work_key",
]


TRACKERS: Mapping[str, TrackerInfo] = MappingProxyType({
    info.name: info for info in (local4d.ENTRY,)
})


FOUNDING_SIZE = (47, 256, 256, 256)
"""frames, height, width, points of the founding case: the centre of sweeps, and what comparisons take first."""


def parse_resolution(text: str) -> tuple[int, int]:
    """`256` or `256x384` (height x width) -> (height, width). Raises UserError for anything else."""
    match = re.fullmatch(r"(\d{1,6})(?:\s*[x×]\s*(\d{1,6}))?", text.strip().lower())
    if not match or int(match[1]) < 1 or int(match[2] or 1) < 1:
        raise UserError(f"resolution {text[:40]!r}", "a whole number such as 256, or 256x384 (height x width)")
    return int(match[1]), int(match[2] or match[1])


def selectors() -> tuple[str, ...]:
    """Every `tracker:variant` in registry order."""
    return tuple(f"{info.name}:{variant}" for info in TRACKERS.values() for variant in info.variants)


def resolve(selector: str) -> tuple[TrackerInfo, VariantInfo]:
    """`local4d:small`, or `local4d` for its default variant. Raises UserError with the nearest names."""
    name, _, variant = selector.strip().partition(":")
    info = TRACKERS.get(name)
    if info is None:
        raise UserError(f"unknown tracker {name!r}", _nearest(name, TRACKERS), "choose one of them")
    chosen = info.variants.get(variant or info.default_variant)
    if chosen is None:
        raise UserError(f"{name} has no variant {variant!r}", _nearest(variant, info.variants), "choose one of them")
    return info, chosen


def check_workload(info: TrackerInfo, frames: int, height: int, width: int, points: int, batch: int = 1) -> None:
    """Raise UserError, with the nearest size that the tracker can take, unless it can take this one."""
    for name, value, least in (
        ("frames", frames, info.min_frames), ("points", points, 1), ("batch", batch, 1),
    ):
        if value < least:
            raise UserError(f"{name} is {value}", f"at least {least} for {info.name}", f"use --{name} {least}")
    nearest_height, nearest_width = (_nearest_side(info, side) for side in (height, width))
    if (nearest_height, nearest_width) != (height, width):
        raise UserError(
            f"{info.name} cannot take {height}x{width} pixels",
            f"height and width that are multiples of {info.size_multiple} and at least {info.min_side}",
            f"use {nearest_height}x{nearest_width}",
        )


def work_key(selector: str, frames: int, height: int, width: int, points: int, batch: int = 1) -> WorkKey:
    """The work key of a tracker with its registered defaults. Raises UserError as `resolve` and `check_workload`."""
    info, variant = resolve(selector)
    check_workload(info, frames, height, width, points, batch)
    return WorkKey(
        tracker=info.name, variant=variant.name, implementation=info.implementation, revision=info.revision,
        weights=info.weights, frames=frames, height=height, width=width, points=points, batch=batch,
        iterations=info.iterations, query_chunk=info.query_chunk, window=info.window,
    )


def build_options(info: TrackerInfo, work: WorkKey) -> dict[str, int]:
    """Keyword arguments of the tracker's `build` that a work key holds; the registered default where it says None.

    A tracker that has no such choice gets no such argument.
    """
    options = {
        "iterations": info.iterations if work.iterations is None else work.iterations,
        "query_chunk": info.query_chunk if work.query_chunk is None else work.query_chunk,
    }
    return {name: value for name, value in options.items() if value is not None}


def estimate(work: WorkKey) -> Estimate | None:
    """What one forward pass will take, from closed formulas: for planning, without torch, within microseconds.

    None for a tracker without formulas. Raises UserError for an unknown tracker. Flops are within 10 % of the counted
    ones (a test asserts it).
    """
    info, variant = resolve(work.tracker if work.variant is None else f"{work.tracker}:{work.variant}")
    if info.plan is None or variant.parameters is None or work.height is None or work.width is None:
        return None
    return info.plan(
        variant.name, batch=work.batch, frames=work.frames, height=work.height, width=work.width,
        points=work.points or 0, parameters=variant.parameters, **build_options(info, work),
    )


def load_builder(info: TrackerInfo) -> Callable[..., Any]:
    """The function that builds the model, `build(variant, seed=0, **build_options)` -> Tracker. Loads torch."""
    builder: Callable[..., Any] = importlib.import_module(info.module).build
    return builder


def _nearest_side(info: TrackerInfo, side: int) -> int:
    """The allowed side closest to `side`."""
    multiple = info.size_multiple
    least = -(-info.min_side // multiple) * multiple
    return max(least, (side + multiple // 2) // multiple * multiple)


def _nearest(name: str, known: Mapping[str, object]) -> str:
    """The names most like `name`, all of them if none is."""
    return " or ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known)
