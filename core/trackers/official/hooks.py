"""Stages of code that knows nothing of stages: its modules and methods are wrapped while somebody listens.

A `Hooked` names something callable, such as the `forward` of a module inside the model, a method or a function that a
repository's module holds, and the stage that it is. Wrappers are put in when a marker starts to listen and taken out
when it stops, so an unmeasured, exported or compiled forward pass runs the official code and nothing else.

Stages never nest: what is entered inside an open stage belongs to that stage. What no wrapper covers is `other`.
Some work has no callable of its own, such as the einsum between sampling features and encoding them. A stage with
`held` therefore stays open after its call, until the next wrapped call starts or the forward pass ends.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from core.trackers.stages import StageMarker, no_marker


@dataclass(frozen=True)
class Hooked:
    """One callable of the official code and the stage that it is."""

    stage: str
    owner: Any  # a module of the model, an object, a class, or an imported Python module
    name: str = "forward"  # its attribute
    held: bool = False


class StageHooks:
    """Wraps `hooked` for one marker at a time. Not for use from several threads."""

    def __init__(self, hooked: Sequence[Hooked]) -> None:
        self._hooked = tuple(hooked)
        self._marker: StageMarker = no_marker
        self._undo: list[Callable[[], None]] = []
        self._open: AbstractContextManager[Any] | None = None
        self._is_held = False

    def listen(self, marker: StageMarker) -> None:
        """Tell `marker` about stages from now on; `no_marker` takes every wrapper out."""
        self._marker = marker
        if (marker is no_marker) == (not self._undo):
            return
        if marker is no_marker:
            while self._undo:
                self._undo.pop()()
        else:
            for hooked in self._hooked:
                self._wrap(hooked)

    def close(self) -> None:
        """End the open stage, if there is one: the forward pass is over."""
        stage, self._open, self._is_held = self._open, None, False
        if stage is not None:
            stage.__exit__(None, None, None)

    def _wrap(self, hooked: Hooked) -> None:
        owner, name = hooked.owner, hooked.name
        original = getattr(owner, name)
        was_own = name in vars(owner)  # else it is inherited, and the wrapper only shadows it

        @functools.wraps(original)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._open is not None and not self._is_held:
                return original(*args, **kwargs)
            self.close()
            self._open = self._marker(hooked.stage)
            self._open.__enter__()
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self.close()
                raise
            if hooked.held:
                self._is_held = True
            else:
                self.close()
            return result

        def undo() -> None:
            if was_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        setattr(owner, name, wrapped)
        self._undo.append(undo)
