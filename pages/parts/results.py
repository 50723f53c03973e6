"""Answers that the folds of a result page ask for, kept until the data change (as pages.parts.stored does)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from core.answers import value as value_answers
from core.answers.compare import compare
from core.answers.floors import floors as ask_floors
from core.answers.ladder import ladder as ask_ladder
from core.answers.samples import samples as ask_samples
from core.answers.selection import Filters
from pages.parts import stored


class ReadOnce:
    """The store for one series of questions: what they all read is read once."""

    def __init__(self) -> None:
        self._store = stored.store()
        self._frames: dict[tuple[str, str], pd.DataFrame] = {}

    def frame(self, sql: str, params: Sequence[Any] = ()) -> pd.DataFrame:
        key = sql, repr(params)
        if key not in self._frames:
            self._frames[key] = self._store.frame(sql, params)
        return self._frames[key].copy(deep=False)


def _once() -> Any:
    return ReadOnce()


def compared(baseline: str, targets: Sequence[str], filters: Filters) -> list[dict[str, Any]]:
    """Each target against one baseline, as `core.answers.compare` answers it."""
    return _compared(stored.version(), baseline, tuple(targets), filters)


def samples(selection: str, filters: Filters) -> dict[str, Any]:
    return _samples(stored.version(), selection, filters)


def ladder(selection: str, filters: Filters) -> dict[str, Any]:
    return _ladder(stored.version(), selection, filters)


def floors(selection: str, filters: Filters) -> dict[str, Any]:
    return _floors(stored.version(), selection, filters)


def prices() -> dict[str, float]:
    """Price per hour by GPU, as people typed them; read anew each time, the journal is short."""
    return value_answers.prices(stored.runs_folder())


def value(selections: tuple[str, ...], filters: Filters) -> dict[str, Any]:
    return _value(stored.version(), selections, filters, tuple(sorted(prices().items())))


def set_price(gpu: str, key: str) -> None:
    """Write the price of the number field `key` into the journal; an empty field takes the price back."""
    value_answers.set_price(stored.runs_folder(), gpu, st.session_state[key] or None)


@st.cache_data(max_entries=60, show_spinner=False)
def _compared(data_version: int, baseline: str, targets: tuple[str, ...], filters: Filters) -> list[dict[str, Any]]:
    store = _once()
    return [compare(store, baseline, target, filters) for target in targets]


@st.cache_data(max_entries=20, show_spinner=False)
def _samples(data_version: int, selection: str, filters: Filters) -> dict[str, Any]:
    return ask_samples(stored.store(), selection, filters)


@st.cache_data(max_entries=40, show_spinner=False)
def _ladder(data_version: int, selection: str, filters: Filters) -> dict[str, Any]:
    return ask_ladder(_once(), selection, filters)


@st.cache_data(max_entries=40, show_spinner=False)
def _floors(data_version: int, selection: str, filters: Filters) -> dict[str, Any]:
    return ask_floors(stored.store(), selection, filters)


@st.cache_data(max_entries=40, show_spinner=False)
def _value(
    data_version: int, selections: tuple[str, ...], filters: Filters, priced: tuple[tuple[str, float], ...]
) -> dict[str, Any]:
    return value_answers.value(_once(), selections, filters, dict(priced))
