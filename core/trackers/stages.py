"""How a tracker tells which stage it is in, and how a measurer listens.

A model calls `with self.stage("encoder"): ...` around each part of its forward pass. What the call does
is up to the *marker* in `model.stage_marker`: nothing (the default), a timer that records CUDA events or
wall times at entry and exit, a work counter, or `torch.profiler.record_function("stage:" + name)`.

Rules that markers may rely on: stages never nest, a stage may be entered many times in one forward pass,
and time outside every stage belongs to `OTHER` (the total minus the stages; the measurer does that sum).
Standard library only.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

OTHER = "other"
PROFILER_PREFIX = "stage:"  # the name of a profiler range is this prefix and the stage name

StageMarker = Callable[[str], AbstractContextManager[Any]]

_NOTHING: AbstractContextManager[Any] = nullcontext()


def no_marker(name: str) -> AbstractContextManager[Any]:
    """The default marker: one shared null context, so an unmeasured forward pass pays almost nothing."""
    return _NOTHING


class Staged(Protocol):
    """Anything with a settable stage marker, in practice a tracker model."""

    stage_marker: StageMarker


@contextmanager
def marked(model: Staged, marker: StageMarker) -> Iterator[None]:
    """Use `marker` in `model` inside the block and put the former marker back afterwards, also on an error."""
    before = model.stage_marker
    model.stage_marker = marker
    try:
        yield
    finally:
        model.stage_marker = before


class StageLog:
    """A marker that writes down the order of stages and refuses nesting. Used by tests and as an example.

    `visits` is the list of stage names in the order in which they were entered.
    """

    def __init__(self) -> None:
        self.visits: list[str] = []
        self._open: str | None = None

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if self._open is not None:
            raise RuntimeError(f"stage {name!r} was entered inside stage {self._open!r}; stages must not nest")
        self._open = name
        self.visits.append(name)
        try:
            yield
        finally:
            self._open = None
