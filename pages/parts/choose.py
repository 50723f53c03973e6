"""Choosing devices and works: what the pages with results have in their filter bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from core.answers.json_values import records
from core.answers.selection import Filters
from core.charts.tables import cells as cells_tables
from core.charts.theme import short_name
from core.gpus import catalogue
from core.records import PRECISIONS
from pages.parts import stored, view

SAME = "as measured"
"""The precision of a side of the Gap page: none is asked for."""


def selector(label: str, gpu_key: Any) -> str:
    """How a device is named in a question: by its catalogue key, else by its label."""
    return str(gpu_key) if isinstance(gpu_key, str) and gpu_key in catalogue() else label


def work(shared_by: str) -> tuple[dict[str, Any], str]:
    """One work (tracker, resolution, frames, points) and a precision; opens on the work that most devices share."""
    works = stored.kept(cells_tables.works, shared_by)
    best = works.iloc[0]
    bar = st.columns([3, 2, 2, 2, 2])
    with bar[0]:
        picked = view.choice("Tracker", list(dict.fromkeys(works["selector"])), key="tracker", default=best["selector"])
    works = works[works["selector"] == picked]
    with bar[1]:
        sizes = works["height"].astype(str) + "x" + works["width"].astype(str)
        size = view.choice("Resolution", list(dict.fromkeys(sizes)), key="resolution")
    works = works[sizes == size]
    with bar[2]:
        frames = view.choice("Frames", [str(n) for n in dict.fromkeys(works["frames"])], key="frames")
    works = works[works["frames"] == int(frames)]
    with bar[3]:
        points = view.choice("Query points", [str(n) for n in dict.fromkeys(works["points"])], key="points")
    chosen = works[works["points"] == int(points)].iloc[0]
    found = {name: chosen[name] for name in cells_tables.WORK_FIELDS}
    with bar[4]:
        have = set(stored.kept(cells_tables.of_work, found)["precision"])
        precision = view.choice("Precision", [name for name in PRECISIONS if name in have], key="precision")
    return found, precision


def work_filters(work: Mapping[str, Any], precision: str = "") -> Filters:
    """The same work as filters of a question."""
    return Filters(
        tracker=(str(work["selector"]),),
        precision=(precision,) if precision else (),
        resolution=((int(work["height"]), int(work["width"])),),
        frames=(int(work["frames"]),),
        points=(int(work["points"]),) if work["points"] else (),
        batch=(1,),
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
