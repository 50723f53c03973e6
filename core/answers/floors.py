"""Measured time of every stage or operation of one cell beside the least time that data sheets allow."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from core import units
from core.analysis.roofline import roofline, spec_ceilings
from core.answers.compare import card_of
from core.answers.json_values import json_value, records
from core.answers.matching import Cell, work_in_words
from core.answers.one_side import about, cell_of
from core.answers.selection import Filters
from core.gpus import PRECISIONS

if TYPE_CHECKING:
    from core.store import Store

MOST_POINTS = 300


def floors(store: Store, selection: str, filters: Filters | None = None) -> dict[str, Any]:
    """`rows`: name, stage, measured_ms, floor_ms, bound_by, share (of all measured time), longest first; `what`:
    operations (kernel time of one profiled pass) or stages; `headline`, and what cell it is.

    Rows without a floor or without a time are left out, `left_out` is their share of the time. Raises `UserError` as
    `core.answers.one_side.cell_of`.
    """
    cell = cell_of(store, selection, filters)
    table, what = _timed(cell)
    precision = str(cell.first["precision"])
    card = card_of(cell) if precision in PRECISIONS else None
    if card is None or table.empty:
        why = "no data sheet gives this device's ceilings" if card is None else "neither stages nor operations"
        return {**about(cell), "rows": [], "what": what, "left_out": None, "source": None,
                "headline": f"Theory has nothing to stand beside: {why}."}
    found = roofline(table, spec_ceilings(card, precision))
    total = float(found["measured_ms"].sum())
    kept = found[found["floor_ms"].notna() & (found["measured_ms"] > 0)].copy()
    kept["share"] = kept["measured_ms"] / total
    kept = kept.sort_values("measured_ms", ascending=False).head(MOST_POINTS)
    columns = ["name", "stage", "measured_ms", "floor_ms", "bound_by", "share"]
    return json_value({  # type: ignore[no-any-return]
        **about(cell), "rows": records(kept[columns]), "what": what, "left_out": 1 - float(kept["share"].sum()),
        "source": "data sheet", "workload": work_in_words(cell.first), "headline": _headline(kept, what),
    })


def _timed(cell: Cell) -> tuple[pd.DataFrame, str]:
    """Operations of the first process that has them, else its stages: with columns name, stage, measured_ms."""
    from core.store import queries

    store = cell.side.store
    for line in cell.lines:
        if line["has_ops"]:
            table = queries.ops(store, cell.run_id, int(line["seq"]))
            if table["device_ms"].notna().any():
                names = table["op"].str.removeprefix("aten::")
                return table.assign(name=names, measured_ms=table["device_ms"].astype(float)), "operations"
    table = queries.stages(store, [(cell.run_id, cell.seqs[0])])
    return table.assign(stage=table["name"], measured_ms=table["median_ms"].astype(float)), "stages"


def _headline(rows: pd.DataFrame, what: str) -> str:
    if rows.empty:
        return f"No {what} with a known amount of work."
    measured, least = float(rows["measured_ms"].sum()), float(rows["floor_ms"].sum())
    first = records(rows.head(1))[0]
    return (
        f"The {what} drawn take {units.ratio(measured / least)} their least time; the longest, {first['name']}, "
        f"{units.ratio(first['measured_ms'] / first['floor_ms'])} and {units.percent(first['share'])} of the time"
    )
