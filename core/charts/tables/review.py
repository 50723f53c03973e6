"""Pins as tables and in words: for the Review page and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from core.answers.review import Item
from core.store.pins import STATUSES


def status_counts(items: Sequence[Item]) -> dict[str, int]:
    """How many items of each status, and of all."""
    counts = {status: sum(item.pin.words.status == status for item in items) for status in STATUSES}
    return {**counts, "all": len(items)}


def pinned_words(item: Item) -> str:
    """Owner, when and by whom it was pinned and changed, on what data."""
    pin = item.pin
    said = [f"Owner: {pin.words.owner}" if pin.words.owner else "No owner"]
    said.append(f"pinned {pin.time[:10]}{f' by {pin.actor}' if pin.actor else ''} on {pin.view.page}")
    if pin.version > 1:
        said.append(f"changed {pin.changed_at[:10]}{f' by {pin.changed_by}' if pin.changed_by else ''}")
    method = f"method {pin.view.method}" if pin.view.method is not None else "methods that differ"
    said.append(f"{len(pin.view.runs)} run{'' if len(pin.view.runs) == 1 else 's'}, {method}, data "
                f"{pin.view.data_version}")
    return "; ".join(said) + "."


def then_and_now_table(told: Mapping[str, Any]) -> pd.DataFrame:
    """The frozen figures beside the present ones."""
    return pd.DataFrame(
        [{"figure": row["what"], "then": row["then"], "now": row["now"], "changed": "changed" if row["changed"] else ""}
         for row in told["rows"]],
        columns=["figure", "then", "now", "changed"],
    )
