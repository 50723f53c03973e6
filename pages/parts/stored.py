"""The one store of the app, and what pages ask of it, kept until the data change.

Every cached answer has the data version in its key and a bound: a new line of a run file shows on the next rerun.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from core.answers.compare import compare
from core.answers.coverage import coverage as ask_coverage
from core.answers.coverage import twin_of_run
from core.answers.environment import environment_diff as ask_environment_diff
from core.answers.explain import explain
from core.answers.selection import Filters
from core.answers.two import explain_two
from core.charts.tables.cells import by_cell
from core.charts.tables.reported import reported_pairs as pairs_of_reported
from core.charts.tables.values import Answer
from core.errors import UserError
from core.records import RunsFolder
from core.store import AppStore, database_path, holder_of, open_app, queries

T = TypeVar("T")

_opened: dict[Path, AppStore] = {}
_one_opening = threading.Lock()


@st.cache_resource(show_spinner="Reading the stored measurements")
def store() -> AppStore:
    """Raises `UserError` naming the process that has the database.

    Not kept by Streamlit alone: any visitor can have its caches cleared, and the store behind them keeps the lock.
    """
    with _one_opening:
        path = database_path()
        if path not in _opened or _opened[path].closed:
            _opened[path] = open_app()
        return _opened[path]


def runs_folder() -> RunsFolder:
    return RunsFolder.beside(database_path())


def version() -> int:
    return store().data_version


def other_holder() -> UserError | None:
    """Why this app cannot have the database, when another process has it; asks no more than a file where none has."""
    holder = holder_of(database_path())
    if holder is None or holder.pid == os.getpid():
        return None
    try:
        store()
    except UserError as error:
        return error
    return None


def measured() -> pd.DataFrame:
    """Ok cells without a handicap, of origin measured or imported, one row each (tables.cells.by_cell). Shared, too."""
    return _measured(version())


def failed() -> pd.DataFrame:
    """Lines that ended without a time and were not made up for."""
    return _failed(version())


def kept(function: Callable[..., T], *arguments: Any) -> T:
    """`function(measured(), *arguments)`, kept until the data change. For functions of core.charts.tables."""
    return _kept(version(), f"{function.__module__}.{function.__qualname__}", False, arguments, function)


def kept_with_failed(function: Callable[..., T], *arguments: Any) -> T:
    """`function(measured(), failed(), *arguments)`, kept in the same way."""
    return _kept(version(), f"{function.__module__}.{function.__qualname__}", True, arguments, function)


def runs() -> pd.DataFrame:
    return _runs(version())


def reported() -> pd.DataFrame:
    return _reported(version())


def reported_pairs() -> list[Answer]:
    """Reported figures of two cards on the same work, as explanations, largest ratio first."""
    return _reported_pairs(version())


def coverage() -> dict[str, Any]:
    return _coverage(version())


def twin(run_id: str) -> dict[str, Any] | None:
    """The shipped run that did the same work as this one, and how the two stand in a sentence."""
    return _twin(version(), run_id)


def compared(baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return _compared(version(), baseline, target, filters)


def environment_diff(run_a: str, run_b: str) -> dict[str, Any]:
    return _environment_diff(version(), run_a, run_b)


def explained(baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return _explained(version(), baseline, target, filters)


@st.cache_resource(max_entries=3, show_spinner=False)
def _cells(data_version: int) -> pd.DataFrame:
    return queries.cells(store())


@st.cache_resource(max_entries=3, show_spinner=False)
def _measured(data_version: int) -> pd.DataFrame:
    found = _cells(data_version)
    keep = (found["status"] == "ok") & found["handicap"].isna() & found["origin"].isin(["measured", "imported"])
    return by_cell(found[keep & ~found["superseded"].astype(bool)])


@st.cache_resource(max_entries=3, show_spinner=False)
def _failed(data_version: int) -> pd.DataFrame:
    found = _cells(data_version)
    return found[(found["status"] != "ok") & ~found["superseded"].astype(bool)]


@st.cache_data(max_entries=60, show_spinner=False)
def _kept(
    data_version: int, name: str, with_failed: bool, arguments: tuple[Any, ...], _function: Callable[..., T]
) -> T:
    tables = (_measured(data_version), _failed(data_version)) if with_failed else (_measured(data_version),)
    return _function(*tables, *arguments)


@st.cache_data(max_entries=4, show_spinner=False)
def _runs(data_version: int) -> pd.DataFrame:
    return queries.runs(store())


@st.cache_data(max_entries=2, show_spinner=False)
def _reported(data_version: int) -> pd.DataFrame:
    return queries.reported(store())


@st.cache_data(max_entries=2, show_spinner=False)
def _reported_pairs(data_version: int) -> list[Answer]:
    return pairs_of_reported(queries.reported(store()), explain_two)


@st.cache_data(max_entries=2, show_spinner=False)
def _coverage(data_version: int) -> dict[str, Any]:
    return ask_coverage(store())


@st.cache_data(max_entries=20, show_spinner=False)
def _twin(data_version: int, run_id: str) -> dict[str, Any] | None:
    try:
        return twin_of_run(store(), run_id)
    except UserError:
        return None  # no usable cell in it yet


@st.cache_data(max_entries=200, show_spinner=False)
def _compared(data_version: int, baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return compare(store(), baseline, target, filters)


@st.cache_data(max_entries=40, show_spinner=False)
def _environment_diff(data_version: int, run_a: str, run_b: str) -> dict[str, Any]:
    return ask_environment_diff(store(), run_a, run_b)


@st.cache_data(max_entries=40, show_spinner=False)
def _explained(data_version: int, baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return explain(store(), baseline, target, filters)
