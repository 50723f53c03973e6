"""What is known about a tracker before it is built. Standard library only."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.records.model import OWN
from core.trackers.plan import Estimate

BUILTIN, OFFICIAL = "builtin", "official"
IMPLEMENTATIONS = (BUILTIN, OFFICIAL, OWN)


@dataclass(frozen=True)
class VariantInfo:
    name: str
    title: str
    parameters: int | None  # learned numbers in the model; None where only its own repository knows
    # Fields of TrackerInfo that are other for this variant, such as a window that only one of them has.
    differs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkout:
    """A public repository whose code is used from the user's own copy, never shipped."""

    name: str  # as in --checkout NAME=PATH
    repository: str  # owner/name on GitHub
    package_root: str  # folder within it that goes on the import path, "" for its top
    packages: tuple[str, ...]  # top-level names that its code imports itself by
    markers: tuple[str, ...]  # files that must be there, relative to its top: how the repository is recognised
    torch_hub: bool = False  # torch.hub can fetch it

    @property
    def clone_command(self) -> str:
        return f"git clone https://github.com/{self.repository}"


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
    packages: tuple[str, ...] = ()  # names on the package index that it needs beside torch and numpy
    dense: bool = False  # follows every pixel of the first frame; query points cost nothing
    frames_multiple: int = 1
    side_is_fixed: bool = False  # height and width are built into the model's weights
    notes: tuple[str, ...] = ()  # what a reader of its times should know, one sentence each

    def of_variant(self, variant: VariantInfo) -> TrackerInfo:
        """The facts of one variant."""
        return replace(self, **variant.differs) if variant.differs else self
