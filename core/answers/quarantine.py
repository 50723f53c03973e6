"""What is stored but does not count, since it cannot be; and what a person let through with a reason."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.answers.json_values import json_value, records

if TYPE_CHECKING:
    from core.store import Store


def quarantine(store: Store) -> dict[str, Any]:
    """`items`: what is held; `released`: what was let through, with its reason (columns of
    `core.store.queries.quarantine`); `headline`."""
    from core.store import queries

    rows = json_value(records(queries.quarantine(store, released=True)))
    held = [row for row in rows if row["released_at"] is None]
    released = [row for row in rows if row["released_at"] is not None]
    return {"items": held, "released": released, "headline": _headline(held, released)}


def _headline(held: list[dict[str, Any]], released: list[dict[str, Any]]) -> str:
    passed = f" {len(released)} released with a reason." if released else ""
    if not held:
        return f"Nothing is in quarantine.{passed}"
    cells = sum(row["cells"] for row in held)
    noun = "item is" if len(held) == 1 else "items are"
    return (f"{len(held)} {noun} in quarantine, with {cells} cell line{'' if cells == 1 else 's'}; "
            f"they are in no answer.{passed}")
