"""Which trackers there are, what they can take, and what a workload will roughly cost. Standard library only.

The app, the command line and the sweep planner read this; torch is loaded by `load_builder` alone.
To add a tracker: a module in core/trackers/entries, its line in TRACKERS, a module with `build(variant, ...)`, and its
plan arithmetic.
"""
from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.errors import UserError
from core.records.model import WorkKey
from core.trackers import checkout
from core.trackers.entries import dense_pair, joint4d, local4d, official
from core.trackers.info import OFFICIAL, Checkout, TrackerInfo, VariantInfo
from core.trackers.plan import Estimate

__all__ = [
    "TRACKERS", "Estimate", "TrackerInfo", "VariantInfo", "build_options", "check_workload", "checkouts", "estimate",
    "load_builder", "missing", "resolve", "revision", "selectors", "table", "work_key",
]


TRACKERS: Mapping[str, TrackerInfo] = MappingProxyType({
    info.name: info for info in (
        local4d.ENTRY,
        joint4d.ENTRY,
        dense_pair.ENTRY,
        *official.ENTRIES,
    )
})

RANDOM_WEIGHTS = "random"
INDEX_NAMES = {"tree": "dm-tree"}
"""Packages whose name on the package index is not the one that they are imported by."""


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
    """`local4d:small`, or `local4d` for its default variant; the facts are those of the variant.

    Raises UserError with the nearest names.
    """
    name, _, variant = selector.strip().partition(":")
    info = TRACKERS.get(name)
    if info is None:
        raise UserError(f"unknown tracker {name!r}", _nearest(name, TRACKERS), "choose one of them")
    chosen = info.variants.get(variant or info.default_variant)
    if chosen is None:
        raise UserError(f"{name} has no variant {variant!r}", _nearest(variant, info.variants), "choose one of them")
    return info.of_variant(chosen), chosen


def check_workload(
    info: TrackerInfo, frames: int, height: int, width: int, points: int | None, batch: int = 1
) -> None:
    """Raise UserError, with the nearest size that the tracker can take, unless it can take this one.

    points: None is for trackers that follow every pixel.
    """
    for name, value, least in (
        ("frames", frames, info.min_frames),
        ("points", 1 if info.dense else points or 0, 1),
        ("batch", batch, 1),
    ):
        if value < least:
            window = name == "frames" and info.window is not None and least == info.window
            reason = f"{info.name}, whose window is that long" if window else info.name
            raise UserError(f"{name} is {value}", f"at least {least} for {reason}", f"use --{name} {least}")
    nearest_height, nearest_width = (_nearest_side(info, side) for side in (height, width))
    if (nearest_height, nearest_width) != (height, width):
        raise UserError(
            f"{info.name} cannot take {height}x{width} pixels",
            f"height and width that are multiples of {info.size_multiple} and at least {info.min_side}",
            f"use {nearest_height}x{nearest_width}",
        )


def work_key(
    selector: str, frames: int, height: int, width: int, points: int | None, batch: int = 1, *,
    revision: str | None = None, weights: str | None = None,
) -> WorkKey:
    """The work key of a tracker with its registered defaults. Raises UserError as `resolve` and `check_workload`.

    revision: which code of an official tracker (function `revision`); weights: `random` or `checkout.weights_name`.
    Both are the registered ones where not given. A tracker that follows every pixel gets no number of points.
    """
    info, variant = resolve(selector)
    check_workload(info, frames, height, width, points, batch)
    return WorkKey(
        tracker=info.name, variant=variant.name, implementation=info.implementation,
        revision=info.revision if revision is None else revision, weights=info.weights if weights is None else weights,
        frames=frames, height=height, width=width, points=None if info.dense else points, batch=batch,
        iterations=info.iterations, query_chunk=info.query_chunk, window=info.window,
    )


def checkouts(options: Iterable[str] = (), file: Path | None = None) -> dict[str, str]:
    """Paths by checkout name, from `--checkout NAME=PATH` texts and a trackers.toml; the options win.

    NAME is a checkout's or a tracker's that uses it. Raises UserError for an unknown name and as
    `checkout.parse_option` and `checkout.read_file` do.
    """
    known: dict[str, str] = {}
    for info in TRACKERS.values():
        if info.checkout is not None:
            known |= {info.name: info.checkout.name, info.checkout.name: info.checkout.name}
    found = {}
    for given in (checkout.read_file(file) if file is not None else {}, checkout.parse_option(options)):
        for name, path in given.items():
            if name not in known:
                raise UserError(f"no tracker uses a checkout {name!r}", _nearest(name, known), "choose one of them")
            found[known[name]] = path
    return found


def missing(info: TrackerInfo, checkouts: Mapping[str, str] = MappingProxyType({})) -> UserError | None:
    """What keeps the tracker from being built here, with the command that gets it; None if nothing does.

    Looks at files and package names only: nothing is imported.
    """
    try:
        _located(info, checkouts)
    except UserError as error:
        return error
    for package in info.packages:
        if importlib.util.find_spec(package) is None:
            name = INDEX_NAMES.get(package, package)
            return UserError(f"{info.name} needs the package {name}, which is not installed", "",
                             f"run `pip install {name}`")
    return None


def revision(info: TrackerInfo, checkouts: Mapping[str, str] = MappingProxyType({})) -> str:
    """Which code would run: the registered revision, the checkout's commit, or the version of the package.

    Raises UserError where an official tracker's checkout is not given or is none.
    """
    if info.implementation != OFFICIAL:
        return info.revision
    top = _located(info, checkouts)
    if top is not None:
        assert info.checkout is not None
        return checkout.revision(top, info.checkout)
    try:
        return f"{info.packages[0]}-{importlib.metadata.version(info.packages[0])}"
    except importlib.metadata.PackageNotFoundError:
        return info.revision


def table() -> list[dict[str, Any]]:
    """One row per tracker and variant, for documents, choice lists and `--json`. Plain values only."""
    rows = []
    for base in TRACKERS.values():
        for variant in base.variants.values():
            info = base.of_variant(variant)
            rows.append({
                "tracker": info.name, "variant": variant.name, "selector": f"{info.name}:{variant.name}",
                "default": variant.name == info.default_variant,
                "title": f"{info.title}, {variant.title}" if variant.title != info.title else info.title,
                "paper": info.paper, "licence": info.licence, "implementation": info.implementation,
                "stages": list(info.stages), "min_frames": info.min_frames, "frames_multiple": info.frames_multiple,
                "window": info.window, "min_side": info.min_side, "size_multiple": info.size_multiple,
                "side_is_fixed": info.side_is_fixed, "dense": info.dense, "iterations": info.iterations,
                "query_chunk": info.query_chunk, "parameters": variant.parameters,
                "repository": info.checkout.repository if info.checkout else None,
                "checkout": info.checkout.name if info.checkout else None,
                "packages": [INDEX_NAMES.get(name, name) for name in info.packages], "notes": list(info.notes),
            })
    return rows


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
    """The function that builds the model, `build(variant, seed=0, **build_options)` -> Tracker. Loads torch.

    That of an official tracker also takes `checkout`, `weights`, `frames`, `height` and `width`
    (core.trackers.official).
    """
    builder: Callable[..., Any] = importlib.import_module(info.module).build
    return builder


def _located(info: TrackerInfo, given: Mapping[str, str]) -> Path | None:
    """Where the tracker's checkout lies; None for one that needs none. Raises UserError when it is not there."""
    needed: Checkout | None = info.checkout
    if needed is None:
        return None
    if needed.name not in given:
        raise UserError(
            f"{info.name} runs from your own copy of {needed.repository}", f"--checkout {needed.name}=PATH",
            f"get one with `{needed.clone_command}`",
        )
    return checkout.locate(needed, given[needed.name])


def _nearest_side(info: TrackerInfo, side: int) -> int:
    """The allowed side closest to `side`."""
    multiple = info.size_multiple
    least = -(-info.min_side // multiple) * multiple
    return max(least, (side + multiple // 2) // multiple * multiple)


def _nearest(name: str, known: Mapping[str, object]) -> str:
    """The names most like `name`, all of them if none is."""
    return " or ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known)
