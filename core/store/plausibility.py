"""What cannot be: rules over stored rows. What breaks one is kept and shown, but counts only once a person says so.

Each rule reads stored columns, so that rows judged one by one, in a live sweep, are judged as in a rebuild.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb

from core.gpus import Gpu, catalogue, follows_catalogue, peak_tflops
from core.gpus.lookup import MEMORY_SHARE_RANGE
from core.records import now_utc

PEAK_SHARE = 1.05
"""A ceiling above this share of the peak is no measurement of that card."""

FEWEST_EQUAL_SAMPLES = 5
LONGEST_LEAD = timedelta(days=1)
"""A start later than this after its file came is no clock's drift, and no time zone."""

_MEMORY_METRICS = ("copy", "read")
"""Metrics that DRAM bounds. `gather` may honestly be faster, out of the cache."""

_SLICES = ("vgpu", "host_vgpu", "host_vsga")

Row = Mapping[str, Any]
Finding = tuple[str, str]
"""(what was found, what was expected), each to stand in a sentence."""


@dataclass(frozen=True)
class Rule:
    """`kind`: what is held, a whole `run` or one line (`ceiling`, `cell`). `reads`: its columns, the run's with `r.`.

    `where` is SQL that leaves out what need not be judged. `means`: one sentence for people.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    where: str
    judge: Callable[[Row], Finding | None]
    means: str


# --- judging ---------------------------------------------------------------------------------------------------------


def _beyond_peak(row: Row) -> Finding | None:
    card = catalogue().get(row["gpu_key"] or "")
    peak = _peak_of(card, row) if card is not None else None
    if card is None or peak is None or row["value"] <= PEAK_SHARE * peak[0]:
        return None
    what = row["metric"] + (f" {row['precision']}" if row["precision"] else "")
    return (
        f"{what} reached {row['value']:.4g} {row['unit']} on {card.name}",
        f"at most {PEAK_SHARE * peak[0]:.4g}, {PEAK_SHARE:.0%} of {peak[1]}",
    )


def _peak_of(card: Gpu, row: Row) -> tuple[float, str] | None:
    """(peak in the ceiling's unit, its name); None for what the catalogue has no peak of."""
    metric, unit = row["metric"].lower(), row["unit"]
    if unit == "GB/s" and metric in _MEMORY_METRICS and card.memory_bandwidth_gb_s is not None:
        return card.memory_bandwidth_gb_s, "its memory bandwidth"
    if unit not in ("TFLOPS", "TFLOP/s") or not metric.startswith("gemm"):
        return None
    best = max((value for value in _rates(card, str(row["precision"] or "")) if value is not None), default=None)
    if best is None:
        return None
    rated = card.tensor_boost_clock_mhz or card.boost_clock_mhz
    clock = row["clock_mhz"] or max(row["max_sm_clock_mhz"] or 0.0, card.boost_clock_mhz or 0.0)
    if not rated or not clock:
        return best, "its peak"
    return best * clock / rated, f"its peak at {clock:.0f} MHz"


def _rates(card: Gpu, precision: str) -> list[float | None]:
    """Every peak that arithmetic of this precision may run at, whatever it accumulates in."""
    if precision not in ("fp32", "default", "tf32", "fp16", "bf16", "fp64"):
        return []
    peak = peak_tflops(card, precision)
    more = [card.fp16_tensor_tflops_dense_fp16acc, card.fp16_cuda_tflops] if precision == "fp16" else []
    return [peak.value if peak is not None else None, *more]


def _name_misfit(row: Row) -> Finding | None:
    cards = _cards_called(row["device_name"])
    memory, sms = row["memory_bytes"], row["sm_count"]
    a_slice = bool(row["mig"]) or row["virtualization"] in _SLICES
    if not cards or any(_fits(card, memory, sms, a_slice) for card in cards):
        return None
    found = ", ".join(
        [f"{memory / 2**30:.1f} GiB"] * (memory is not None) + [f"{sms} SMs"] * (sms is not None)
    )
    expected = " or ".join(sorted({
        ", ".join([f"{card.memory_gb:g} GB"] * (card.memory_gb is not None)
                  + [f"{card.sm_count} SMs"] * (card.sm_count is not None)) for card in cards
    }))
    return f"a card called {row['device_name']} with {found}", f"{expected}, as a card of that name has"


def _fits(card: Gpu, memory_bytes: int | None, sm_count: int | None, a_slice: bool) -> bool:
    """Whether a card may report these; of a slice (MIG, vGPU) only what is too much is wrong."""
    if sm_count is not None and card.sm_count is not None and (
        sm_count > card.sm_count or (sm_count < card.sm_count and not a_slice)
    ):
        return False
    if memory_bytes is None or card.memory_gb is None:
        return True
    share = memory_bytes / 2**30 / card.memory_gb
    return share <= MEMORY_SHARE_RANGE[1] and (a_slice or share >= MEMORY_SHARE_RANGE[0])


@follows_catalogue(512)
def _cards_called(name: str) -> tuple[Gpu, ...]:
    return tuple(
        card for card in catalogue().values()
        if card.nvml_name_patterns and re.fullmatch(card.nvml_name_patterns, name)
    )


def _equal_samples(row: Row) -> Finding | None:
    return f"{row['n']} repetitions of {row['wall_min_ms']:.6g} ms each", "times that differ at least a little"


def _future_start(row: Row) -> Finding | None:
    started, came = _time(row["started_at"]), _time(row["came_at"])
    if started is None or came is None or started <= came + LONGEST_LEAD:
        return None
    return f"a start at {row['started_at']}", f"a time before {row['came_at']}, when its file came"


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC)
    except ValueError:  # a journal that was edited by hand
        return None


RULES = (
    Rule(
        "beyond-peak", "ceiling",
        ("metric", "precision", "value", "unit", "clock_mhz", "r.gpu_key", "r.max_sm_clock_mhz"), "r.gpu_key <> 'cpu'",
        _beyond_peak, "Nothing is faster than its hardware: the clock or the name of the card is wrong.",
    ),
    Rule(
        "name-misfit", "run", ("r.device_name", "r.memory_bytes", "r.sm_count", "r.mig", "r.virtualization"),
        "r.device_type = 'cuda' and (r.memory_bytes is not null or r.sm_count is not null)", _name_misfit,
        "A card of this name has other parts: it may be a variant, a slice, or another card under that name.",
    ),
    Rule(
        "equal-samples", "cell", ("n", "wall_min_ms"),
        f"n >= {FEWEST_EQUAL_SAMPLES} and wall_min_ms = wall_max_ms", _equal_samples,
        "Measured times are never all equal: these were typed in, rounded, or one time was copied.",
    ),
    Rule(
        "future-start", "run", ("r.started_at", "r.came_at"), "true", _future_start,
        "The clock of that machine is wrong, so no one can say which of its results is the newest.",
    ),
)
"""The whole table of rules. Lines that conflict with stored ones are set aside by the ingester (`problem`)."""

MEANS = {rule.name: rule.means for rule in RULES} | {
    "conflict": "Two files hold different content for one line of one run; the one that was here first counts.",
}

# A run is its first header. It came when its upload was accepted first; a file of the runs folder comes now.
_RUN = """(
    select run.*, least(?, coalesce((
        select min(j.time) from line l join journal j on j.act = 'upload' and j.target = 'upload:' || l.source[9:]
        where l.run_id = run.run_id and l.seq = run.seq and starts_with(l.source, 'uploads/')), ?)) as came_at
    from run where {wanted} qualify row_number() over (partition by run_id order by seq) = 1
)"""


def judge(
    cursor: duckdb.DuckDBPyConnection, kinds: Iterable[str], run_ids: Iterable[str] | None = None
) -> list[tuple[Any, ...]]:
    """Judge these runs (all without `run_ids`) anew by the rules for these kinds; the rows that `suspect` lacks.

    Rows that do not stand any more are deleted; the caller inserts the new ones in the same transaction.
    """
    rules = [rule for rule in RULES if rule.kind in kinds]
    wanted, params = "true", list[Any]()
    if run_ids is not None:
        wanted, params = "run_id in (select unnest(?::varchar[]))", [sorted(run_ids)]
        if not params[0]:
            return []
    own = f"{wanted} and rule in (select unnest(?::varchar[]))"
    names = [rule.name for rule in rules]
    before = set(cursor.execute(f"select * from suspect where {own}", [*params, names]).fetchall())
    found = [row for rule in rules for row in _broken(cursor, rule, wanted, params)]
    gone = sorted(row[3] for row in before.difference(found))
    if gone:
        cursor.execute("delete from suspect where item in (select unnest(?::varchar[]))", [gone])
    return [row for row in found if row not in before]


def _broken(
    cursor: duckdb.DuckDBPyConnection, rule: Rule, wanted: str, params: list[Any]
) -> Iterable[tuple[Any, ...]]:
    names = [name.removeprefix("r.") for name in rule.reads]
    own = [name if name.startswith("r.") else f"t.{name}" for name in rule.reads]
    if rule.kind == "cell":  # nothing of the run is needed, and a long run is judged after each of its cells
        source, values = f"(select * from cell where {wanted}) t", params
    else:
        now = now_utc()
        source, values = f"{_RUN.format(wanted=wanted)} r", [now, now, *params]
        if rule.kind == "ceiling":
            source = f"{source} join (select * from ceiling where {wanted}) t using (run_id)"
            values = [*values, *params]
    seq = "null" if rule.kind == "run" else "t.seq"
    key = "r.run_id" if rule.kind == "run" else "t.run_id"
    rows = cursor.execute(
        f"select {key}, {seq}, {', '.join(own)} from {source} where {rule.where}", values
    ).fetchall()
    for run_id, line, *read in rows:
        finding = rule.judge(dict(zip(names, read, strict=True)))
        if finding is not None:
            yield (run_id, line, rule.name, item_of(rule.name, run_id, line), *finding)


def item_of(rule: str, run_id: str, seq: int | None) -> str:
    """The name by which something held is released: `rule:run_id`, or `rule:run_id:seq` for one line."""
    return f"{rule}:{run_id}" if seq is None else f"{rule}:{run_id}:{seq}"
