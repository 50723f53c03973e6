"""The closing table of the op microscope: per op the lost time, the best alternative, and what it would save."""
from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core import units
from core.records import Op

COPY_NOT_TIMED, PRECISION = "(copy not timed)", "precision: "
"""What marks a change that is no gain by itself: see op_alternatives."""


def clearly_faster(before_ms: Sequence[float], after_ms: Sequence[float]) -> bool:
    """Whether three quarters of the samples after a change lie below three quarters of those before it."""
    before, after = sorted(before_ms), sorted(after_ms)
    return before[len(before) - math.ceil(0.75 * len(before))] > after[math.ceil(0.75 * len(after)) - 1]


@dataclass
class Looked:
    """One op of the closing table."""

    op: Op
    lost_ms: float
    reproduced: bool | None = None
    note: str | None = None
    replay: dict[str, Any] = field(default_factory=dict)  # how it behaved alone
    trials: list[dict[str, Any]] = field(default_factory=list)  # plain values, one per op_trial line

    def best(self, other_precision: bool = False) -> dict[str, Any] | None:
        """The fastest trial that is faster beyond its spread, whose results agree and whose copies are timed.

        In the same precision unless asked for another.
        """
        fitting = [
            trial for trial in self.trials
            if trial["agrees"] and trial["faster"] and not trial["change"].endswith(COPY_NOT_TIMED)
            and bool(trial["change"].startswith(PRECISION)) == other_precision
        ]
        return max(fitting, key=lambda trial: float(trial["factor"]), default=None)

    def saving_ms(self) -> float | None:
        """Milliseconds of a pass that the best trial would save. None where the replay did not stand for the op.

        Of the op's kernels summed or of its calls timed alone, whichever is less: kernels that overlap, or that a
        profiler stretches, sum to more than the time they take (core.analysis.trials has the case).
        """
        best = self.best()
        if not self.reproduced or self.op.device_ms is None:
            return None
        if best is None:
            return 0.0
        return min(self.op.device_ms, self.op.calls * best["before_ms"]) * (1 - 1 / best["factor"])


def summary(looked: Sequence[Looked], pass_ms: Sequence[float]) -> dict[str, Any]:
    """The closing table as plain values. Savings are of ops that were reproduced; they add up, each op once."""
    whole_ms = statistics.median(pass_ms) if pass_ms else None
    rows: list[dict[str, Any]] = []
    for one in looked:
        best, other = one.best(), one.best(other_precision=True)
        saving = one.saving_ms()
        rows.append({
            "op": one.op.op, "stage": one.op.stage, "shapes": [list(shape) for shape in one.op.shapes],
            "calls": one.op.calls, "device_ms": one.op.device_ms, "launches": one.op.launches,
            "lost_ms": one.lost_ms, "reproduced": one.reproduced, "note": one.note, "trials": len(one.trials),
            "best": best, "best_other_precision": other, "saving_ms": saving,
            "disagree": [trial["change"] for trial in one.trials if trial["agrees"] is False],
        })
    saving_ms = sum(float(row["saving_ms"] or 0.0) for row in rows)
    return {
        "pass_ms": whole_ms, "ops": rows, "saving_ms": saving_ms,
        "saving_share": min(1.0, saving_ms / whole_ms) if whole_ms else None,
    }


def closing_table(told: Mapping[str, Any]) -> str:
    """`summary` as text: one line per op, then what all best alternatives would save together."""
    lines = [f"{'lost':>9} {'of op':>9} {'calls':>5} {'same':>5}  {'factor':>7} {'saves':>9}  op, best alternative"]
    for row in told["ops"]:
        best, other = row["best"], row["best_other_precision"]
        same = {True: "yes", False: "no", None: units.MISSING}[row["reproduced"]]
        text = f"{row['op']} {_shapes(row['shapes'])} in {row['stage']}"
        lines.append(
            f"{units.time_ms(row['lost_ms']):>9} {units.time_ms(row['device_ms']):>9} {row['calls']:>5} {same:>5}  "
            f"{units.ratio(best['factor']) if best else units.MISSING:>7} {units.time_ms(row['saving_ms']):>9}  {text}"
        )
        if best:
            lines.append(f"{'':>50}  {best['change']}{_launches(best)}")
        elif not row["note"]:
            lines.append(f"{'':>50}  no alternative was faster with equal results")
        if other:
            lines.append(f"{'':>50}  {units.ratio(other['factor'])} by {other['change']}{_launches(other)}")
        if row["note"]:
            lines.append(f"{'':>50}  {row['note']}")
        for change in row["disagree"]:
            lines.append(f"{'':>50}  other results: {change}")
    lines.append("lost: time above roofline and launch floor, per pass; same: the op alone behaves as in the tracker")
    if told["pass_ms"]:
        lines.append(
            f"The best alternatives of the same precision would save about {units.time_ms(told['saving_ms'])} of "
            f"{units.time_ms(told['pass_ms'])} per pass ({units.percent(told['saving_share'])}), an estimate from "
            "ops alone."
        )
    return "\n".join(lines)


def _launches(trial: Mapping[str, Any]) -> str:
    before, after = trial["launches_before"], trial["launches_after"]
    if before is None or after is None:
        return ""
    return f" ({units.count(before)} launches, then {units.count(after)})"


def _shapes(shapes: Sequence[Sequence[int]]) -> str:
    return " ".join("x".join(map(str, shape)) or "()" for shape in shapes[:2])


def op_name(op: Op) -> str:
    return f"{op.op} {_shapes(op.shapes)}"


def row_text(looked: Looked) -> str:
    best = looked.best()
    found = f"{units.ratio(best['factor'])} by {best['change']}" if best else looked.note or "nothing faster"
    return f"{op_name(looked.op)}: lost {units.time_ms(looked.lost_ms)}, {len(looked.trials)} trials, {found}"
