"""Choosing devices and works: what the pages with results have in their filter bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from core.answers.json_values import records
from core.answers.selection import Filters
from core.charts.tables import cells as cells_tables
from core.charts.theme import short_name
from core.gpus import catalogue
from pages.parts import stored, view

SAME = "as measured"
"""The precision of a side of the Gap page: none is asked for."""


def selector(label: str, gpu_key: Any) -> str:
    """How a device is named in a question: by its catalogue key, else by its label."""
    return str(gpu_key) if isinstance(gpu_key, str) and gpu_key in catalogue() else label


def work(shared_by: str, bar: Sequence[Any], more: Any) -> dict[str, Any]:
    """One work (tracker, resolution, frames, points, batch); opens on the work that most devices share.

    The first four go into the places of `bar`, batch and the button for the largest common size into `more`.
    """
    works = stored.kept(cells_tables.works, shared_by)
    best = works.iloc[0]
    with bar[0]:
        picked = view.choice("Tracker", list(dict.fromkeys(works["selector"])), key="tracker", default=best["selector"])
    works = works[works["selector"] == picked]
    with more:
        largest = works[works[shared_by] == works[shared_by].max()].nlargest(1, "volume").iloc[0]
        st.button(
            "Largest common size",
            key="largest",
            icon=":material/open_in_full:",
            help="The largest work of this tracker that most devices share.",
            on_click=_take_size,
            args=(largest,),
        )
    with bar[1]:
        sizes = works["height"].astype(str) + "x" + works["width"].astype(str)
        size = view.choice("Resolution", list(dict.fromkeys(sizes)), key="resolution")
    works = works[sizes == size]
    with bar[2]:
        frames = view.choice("Frames", [str(n) for n in dict.fromkeys(works["frames"])], key="frames")
    works = works[works["frames"] == int(frames)]
    with bar[3]:
        points = view.choice("Query points", [str(n) for n in dict.fromkeys(works["points"])], key="points")
    works = works[works["points"] == int(points)]
    with more:
        batch = view.choice("Batch", [str(n) for n in dict.fromkeys(works["batch"])], key="batch")
    chosen = works[works["batch"] == int(batch)].iloc[0]
    found = {name: chosen[name] for name in cells_tables.WORK_FIELDS}
    return {**found, "kin": stored.kept(cells_tables.main_kin, found)}


def _take_size(row: Any) -> None:
    st.session_state["resolution"] = f"{row['height']}x{row['width']}"
    for name in ("frames", "points", "batch"):
        st.session_state[name] = str(row[name])


def work_filters(work: Mapping[str, Any], precision: str = "", execution: str = "") -> Filters:
    """The same work as filters of a question."""
    return Filters(
        tracker=(str(work["selector"]),),
        precision=(precision,) if precision else (),
        resolution=((int(work["height"]), int(work["width"])),) if work["height"] else (),
        frames=(int(work["frames"]),) if work["frames"] else (),
        points=(int(work["points"]),) if work["points"] else (),
        batch=(int(work.get("batch", 1)),),
        execution=(execution,) if execution else (),
    )


def run_name(run_id: str, gpu_label: str) -> str:
    """A run as an option of `side`, on the page and in its link."""
    return f"run {run_id} ({short_name(gpu_label)})"


def side(label: str, runs: pd.DataFrame, cells: pd.DataFrame, key: str, default: str) -> str:
    """A GPU type (its newest cells) or one run, as the head of a selection."""
    devices = cells.drop_duplicates("gpu_label")
    names = {selector(row["gpu_label"], row["gpu_key"]): short_name(row["gpu_label"]) for row in records(devices)}
    with_cells = runs[runs["run_id"].isin(set(cells["run_id"]))]
    for row in records(with_cells):
        names[row["run_id"]] = run_name(row["run_id"], row["gpu_label"])
    return view.choice(label, list(names), key=key, default=default, show=lambda option: names[option])
