"""The one cell that stands for a selection where a question is about one device, not about a pair."""
from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from core.answers.json_values import json_value
from core.answers.matching import Cell, cells_of, main_pair, setting_dict, wall_ms_by_process
from core.answers.selection import Filters, select
from core.records import SettingKey

if TYPE_CHECKING:
    from core.store import Store

_PLAIN = SettingKey("fp32")


def oddness(setting: dict[str, Any]) -> int:
    """How many settings besides precision differ from the plain ones (eager, contiguous, flags as they come)."""
    plain = setting_dict({**vars(_PLAIN), "precision": setting["precision"]})
    return sum(setting[name] != plain[name] for name in plain)


def cell_of(store: Store, selection: str, filters: Filters | None = None) -> Cell:
    """The cell of a selection with the plainest settings, and of those the one that explain would speak about.

    Raises `UserError` as `core.answers.selection.select`, also where nothing was measured to the end.
    """
    side = select(store, selection, filters)
    cells = cells_of(side)
    if not cells:
        from core.errors import UserError

        raise UserError(f"{side.label} has no finished cell there", "a cell with times", "choose another size")
    least = min(oddness(setting_dict(cell.first)) for cell in cells)
    plain = [cell for cell in cells if oddness(setting_dict(cell.first)) == least]
    newest = max(cell.method for cell in plain)
    return main_pair([(cell, cell) for cell in plain if cell.method == newest])[0]


def median_ms_of(cell: Cell) -> tuple[float, int]:
    """Median over worker processes of their medians, in ms, and the number of repetitions."""
    times = wall_ms_by_process([cell])[id(cell)]
    return median(median(part.tolist()) for part in times), sum(len(part) for part in times)


def about(cell: Cell) -> dict[str, Any]:
    """What an answer about one cell says of it."""
    row = json_value(dict(cell.first))
    return {
        "gpu": row["gpu_label"], "gpu_key": row["gpu_key"], "precision": row["precision"], "run_id": cell.run_id,
        "origin": row["origin"], "boards": len(cell.boards), "started_at": row["started_at"],
    }
