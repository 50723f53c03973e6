"""What is stored: every run with its device, its state and its cells; and the rows that others published."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.answers.json_values import json_value

if TYPE_CHECKING:
    from core.store import Store


def runs(store: Store) -> dict[str, Any]:
    """`runs`: one row a run, newest first (columns of `core.store.queries.runs`); `headline`."""
    from core.store import queries

    table = queries.runs(store).sort_values(["started_at", "run_id"], ascending=False, na_position="last")
    rows = json_value(table.to_dict("records"))
    return {"runs": rows, "headline": _headline(rows)}


def _headline(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "No runs are stored yet."
    devices = sorted({row["device"] for row in rows if row["device"]})
    own = sum(row["source"] != "reference" for row in rows)
    cells = sum(row["ok"] or 0 for row in rows)
    out = sum(row["quarantined"] or 0 for row in rows)
    held = f" {_count(out, 'line')} in quarantine: python -m core quarantine lists them." if out else ""
    return (
        f"{_count(len(rows), 'run')} ({own} of your own) on {_count(len(devices), 'device type')} with "
        f"{_count(cells, 'ok cell line')}: {', '.join(devices)}.{held}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
