"""What a clip costs: energy as the board's own counter measured it, and money at a price that a person typed.

Power limits and data sheets have no say: without a valid reading there is no figure. No price is shipped.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from core import units
from core.answers import sentences
from core.answers.json_values import json_value
from core.answers.matching import Cell
from core.answers.one_side import about, cell_of, median_ms_of
from core.answers.selection import Filters
from core.errors import UserError

if TYPE_CHECKING:
    from core.records import RunsFolder
    from core.store import Store

PRICE = "price"
MOST_PER_HOUR = 10_000.0
_TARGET = f"{PRICE}:"


def prices(runs: RunsFolder) -> dict[str, float]:
    """Price per hour by GPU (catalogue key or label), as people typed them; the newest entry counts, an empty one
    takes the price back."""
    from core.store.journal import Journal

    found: dict[str, float] = {}
    for entry in Journal(runs.journal).entries():
        if entry.act != PRICE or not entry.target.startswith(_TARGET):
            continue
        gpu, price = entry.target.removeprefix(_TARGET), entry.data.get("per_hour")
        found.pop(gpu, None)
        if isinstance(price, (int, float)) and not isinstance(price, bool) and 0 < price <= MOST_PER_HOUR:
            found[gpu] = float(price)
    return found


def set_price(runs: RunsFolder, gpu: str, per_hour: float | None, *, actor: str = "") -> None:
    """Write down what an hour of this GPU costs; None takes it back. Raises `UserError` for what is no price."""
    from core.store.journal import Journal

    if per_hour is not None and not 0 < per_hour <= MOST_PER_HOUR:
        raise UserError(f"a price of {per_hour:g} per hour", f"more than 0, at most {MOST_PER_HOUR:g}", "check it")
    Journal(runs.journal).append(PRICE, f"{_TARGET}{gpu}", {"per_hour": per_hour}, actor=actor)


def value(store: Store, sides: Sequence[str], filters: Filters, prices: Mapping[str, float]) -> dict[str, Any]:
    """Energy and money per clip (one forward pass) of each side's cell of this work: `rows`, `headline`.

    `prices`: price per hour by catalogue key or label. Per row: median_ms, n, energy_j with `energy_missing` (why there
    is none), power_w = energy over time, clips_per_joule (a rate per watt), cost_per_1000, clips_per_unit (of money).
    """
    found = [row for row in (_row(store, text, filters, prices) for text in sides) if row is not None]
    return json_value({"rows": found, "headline": _headline(found)})  # type: ignore[no-any-return]


def _row(store: Store, text: str, filters: Filters, prices: Mapping[str, float]) -> dict[str, Any] | None:
    try:
        cell = cell_of(store, text, filters)
    except UserError:
        return None  # this device has no time for this work
    median_ms, n = median_ms_of(cell)
    energy_j, missing = energy_of(cell)
    said = about(cell)
    price = prices.get(said["gpu_key"] or "", prices.get(said["gpu"]))
    cost = price * median_ms / 3.6e6 if price is not None else None
    return {
        **said, "selector": text, "median_ms": median_ms, "n": n, "energy_j": energy_j,
        "energy_missing": missing, "power_w": energy_j / (median_ms / 1e3) if energy_j is not None else None,
        "clips_per_joule": 1 / energy_j if energy_j else None, "price_per_hour": price,
        "cost_per_1000": cost * 1000 if cost is not None else None, "clips_per_unit": 1 / cost if cost else None,
    }


def energy_of(cell: Cell) -> tuple[float | None, str | None]:
    """Joules of one repetition, median over worker processes with a valid reading; else None and the reason."""
    read = [json_value(line["energy_j"]) for line in cell.lines]
    valid = [joule for joule, line in zip(read, cell.lines, strict=True)
             if joule is not None and json_value(line["energy_valid"]) is True]
    if valid:
        return median(valid), None
    if any(joule is not None for joule in read):
        return None, "timed too shortly for the board's energy counter"
    return None, "no reading of an energy counter"


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Who does most per joule and per unit of money, where at least one figure is known."""
    parts = [
        _best(rows, "energy_j", "takes the least energy", lambda best: f"{units.joule(best)} per clip"),
        _best(rows, "cost_per_1000", "is the cheapest", lambda best: f"{units.significant(best)} for 1000 clips"),
    ]
    said = [part for part in parts if part]
    if said:
        return "; ".join(said) + "."
    if not rows:
        return "No device has this work."
    return f"No energy was read validly and no price is typed in: {sentences.listed(sorted(_reasons(rows)))}."


def _reasons(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(row["energy_missing"]) for row in rows if row["energy_missing"]}


def _best(rows: Sequence[Mapping[str, Any]], name: str, what: str, told: Any) -> str:
    known = sorted((row for row in rows if row[name] is not None), key=lambda row: row[name])
    if not known:
        return ""
    first = sentences.capital(sentences.the(str(known[0]["gpu"])))
    beside = f", the {known[-1]['gpu']} {units.ratio(known[-1][name] / known[0][name])} as much" if known[1:] else ""
    return f"{first} {what}: {told(known[0][name])}{beside}"
