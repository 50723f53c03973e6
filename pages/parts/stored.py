"""The one store of the app, and what pages ask of it, kept until the data change.

Every cached answer has the data version in its key and a bound: a new line of a run file shows on the next rerun.
"""

from __future__ import annotations

import os
from typing import Any

import pandas as pd
import streamlit as st

from core.answers.compare import compare
from core.answers.coverage import coverage as ask_coverage
from core.answers.explain import explain
from core.answers.json_values import records
from core.answers.selection import Filters
from core.errors import UserError
from core.records import RunsFolder
from core.store import AppStore, database_path, holder_of, open_app, queries


@st.cache_resource(show_spinner="Reading the stored measurements")
def store() -> AppStore:
    """Raises `UserError` naming the process that has the database."""
    return open_app()


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


def cells() -> pd.DataFrame:
    """`queries.cells` of everything."""
    return _cells(version())


def ok_cells() -> pd.DataFrame:
    """Standing ok cells without a handicap, of origin measured or imported."""
    return _ok_cells(version())


def runs() -> pd.DataFrame:
    return _runs(version())


def reported() -> pd.DataFrame:
    return _reported(version())


def coverage() -> dict[str, Any]:
    return _coverage(version())


def compared(baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return _compared(version(), baseline, target, filters)


def explained(baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return _explained(version(), baseline, target, filters)


def header(run_id: str) -> dict[str, Any]:
    """Recorded facts of one run."""
    return _header(version(), run_id)


@st.cache_data(max_entries=4, show_spinner=False)
def _cells(data_version: int) -> pd.DataFrame:
    return queries.cells(store())


@st.cache_data(max_entries=4, show_spinner=False)
def _ok_cells(data_version: int) -> pd.DataFrame:
    found = _cells(data_version)
    keep = (found["status"] == "ok") & found["handicap"].isna() & found["origin"].isin(["measured", "imported"])
    return found[keep & ~found["superseded"].astype(bool)]


@st.cache_data(max_entries=4, show_spinner=False)
def _runs(data_version: int) -> pd.DataFrame:
    return queries.runs(store())


@st.cache_data(max_entries=2, show_spinner=False)
def _reported(data_version: int) -> pd.DataFrame:
    return queries.reported(store())


@st.cache_data(max_entries=2, show_spinner=False)
def _coverage(data_version: int) -> dict[str, Any]:
    return ask_coverage(store())


@st.cache_data(max_entries=200, show_spinner=False)
def _compared(data_version: int, baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return compare(store(), baseline, target, filters)


@st.cache_data(max_entries=40, show_spinner=False)
def _explained(data_version: int, baseline: str, target: str, filters: Filters) -> dict[str, Any]:
    return explain(store(), baseline, target, filters)


@st.cache_data(max_entries=40, show_spinner=False)
def _header(data_version: int, run_id: str) -> dict[str, Any]:
    found = queries.run_header(store(), run_id)
    return records(found)[0] if len(found) else {}
