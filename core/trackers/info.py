"""What is known about a tracker before it is built. Standard library only."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.trackers.plan import Estimate

BUILTIN, OFFICIAL, OWN = "builtin", "official", "own"
IMPLEMENTATIONS = (BUILTIN, OFFICIAL, OWN)


@dataclass(frozen=True)
class VariantInfo:
    name: str
    title: str
    parameters: int | None  # learned numbers in the model; None where only its own repository knows


@dataclass(frozen=True)
class Checkout:
    """A public repository whose code is used from the user's own copy, never shipped."""

    repository: str  # owner/name on GitHub
    package_root: str  # folder within it that goes on the import path, "" for its top
    markers: tuple[str, ...]  # files that must be there, relative to its top: how the repository is recognised


@dataclass(frozen=True)
class TrackerInfo:
    """One tracker: what it is, how it is built, and what it can take."""

    name: str
    title: str
    paper: str
    licence: str
    variants: Mapping[str, VariantInfo]
    default_variant: str
    # Raised by hand when arithmetic or shapes change: results of different revisions are not comparable.
    # Official models: the commit of the checkout, known only when there is one.
    revision: str
    implementation: str  # one of IMPLEMENTATIONS
    weights: str
    stages: tuple[str, ...]  # in order of first entry, without `other`
    module: str  # has build(variant, seed, ...), see core.trackers.tracker
    iterations: int | None
    query_chunk: int | None
    window: int | None
    size_multiple: int  # height and width are multiples of this
    min_side: int  # pixels
    min_frames: int
    plan: Callable[..., Estimate] | None  # closed formulas of the work; None where nobody wrote them down
    checkout: Checkout | None = None
    packages: tuple[str, ...] = ()  # importable names that it needs beside torch and numpy
    dense: bool = False  # follows every pixel of the first frame; query points cost nothing
    frames_multiple: int = 1
    side_is_fixed: bool = field(default=False)  # height and width are built into the model's weights
