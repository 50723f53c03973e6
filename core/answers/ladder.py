"""One board, one work, settings taken away: the fastest setting, without each of its advantages, without several.

Nothing is measured on another board and nothing is modelled: every rung is a stored cell.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core import units
from core.analysis.findings import setting_parts
from core.analysis.statistics import median_interval, ratio_interval
from core.answers import sentences
from core.answers.evidence import replace_lines
from core.answers.json_values import json_value, records
from core.answers.matching import Cell, cells_of, setting_dict, wall_ms_by_process
from core.answers.one_side import about, cell_of
from core.answers.selection import Filters, newest_cells

if TYPE_CHECKING:
    from core.store import Store

_SAME = ("torch", "cuda", "cudnn", "driver")


def ladder(store: Store, selection: str, filters: Filters | None = None) -> dict[str, Any]:
    """`rungs`: the fastest cell first, then those that differ from it in one setting, then in more, each with `ratio`
    {value, low, high, interval} of its time over the first one's; `alone`, the product of the single differences that
    the last rung takes together, else None; `headline`.

    The board is that of the selection's cell. Raises `UserError` as `core.answers.one_side.cell_of`.
    """
    from core.store import queries

    start = cell_of(store, selection, filters)
    everything = queries.cells(store)
    row = start.first
    same = (
        (everything["work_key"] == start.work_key) & (everything["method"] == start.method)
        & (everything["status"] == "ok") & (everything["uuid_hash"] == row["uuid_hash"])
        & everything["origin"].isin(("measured", "imported"))
    )
    for name in _SAME:
        same &= everything[name].isna() if json_value(row[name]) is None else everything[name] == row[name]
    cells = cells_of(replace_lines(start.side, newest_cells(everything[same]), store))
    samples = wall_ms_by_process(cells)
    whole = [cell for cell in cells if json_value(cell.first["handicap"]) is None]
    base = min(whole, key=lambda cell: median_interval(samples[id(cell)]).value)
    sms = json_value(records(queries.run_header(base.side.store, base.run_id)))[0]["sm_count"]
    rungs = [_rung(base, cell, samples, sms) for cell in cells]
    rungs.sort(key=lambda rung: (len(rung["parts"]), rung["ratio"]["value"]))
    product = _product(rungs)
    return json_value({  # type: ignore[no-any-return]
        **about(base), "rungs": rungs, "alone": product, "headline": _headline(rungs, product),
    })


def _rung(base: Cell, cell: Cell, samples: Mapping[int, list[Any]], sms: int | None) -> dict[str, Any]:
    left, right = setting_parts(setting_dict(base.first)), setting_parts(setting_dict(cell.first))
    parts = {
        name: right.get(name, "none") for name in {**left, **right} if left.get(name, "none") != right.get(name, "none")
    }
    ratio = ratio_interval(samples[id(cell)], samples[id(base)])
    time = median_interval(samples[id(cell)])
    return {
        "parts": parts, "words": [_words(name, value, sms) for name, value in parts.items()],
        "precision": left["precision"], "run_id": cell.run_id, "time_ms": time.value, "n": time.n,
        "ratio": {"value": ratio.value, "low": ratio.low, "high": ratio.high, "interval": ratio.kind},
    }


def _words(name: str, value: str, sms: int | None) -> str:
    if name == "precision":
        return "torch's default" if value == "default" else str(sentences.reading_word(value))
    kind = name.removeprefix("handicap ")
    if kind == "sm_count":
        return f"{value} of {sms} SMs" if sms else f"{value} SMs"
    if value == "True":
        return kind.replace("_", " ")
    return f"{kind.replace('_', ' ')} {value}"


def _product(rungs: Sequence[Mapping[str, Any]]) -> float | None:
    """The product of the single differences that the last rung has together; None where one was not measured alone."""
    last = rungs[-1]
    single = {next(iter(rung["parts"].items())): rung["ratio"]["value"] for rung in rungs if len(rung["parts"]) == 1}
    if len(last["parts"]) < 2 or any(part not in single for part in last["parts"].items()):
        return None
    return math.prod(single[part] for part in last["parts"].items())


def _headline(rungs: Sequence[Mapping[str, Any]], product: float | None) -> str:
    if len(rungs) == 1:
        return "This board measured this work in one setting only."
    last = max(rungs, key=lambda rung: (len(rung["parts"]), rung["ratio"]["value"]))
    told = f"{sentences.listed(last['words'])} {_takes(last['words'])} {units.ratio(last['ratio']['value'])} as long"
    return f"{told}; its parts alone multiply to {units.ratio(product)}" if product else told


def _takes(words: Sequence[str]) -> str:
    return "together take" if len(words) > 1 else "takes"
