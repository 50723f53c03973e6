"""What the op microscope found: each trial's factor with its interval, what it would save in a pass, in a sentence.

A trial times one op alone, as the tracker runs it and changed. factor = before / after, above 1: the change is faster.
The saving of a pass is the op's time in it (`time_in_pass_ms`) x (1 - 1 / factor). It counts only where the op alone
behaved as in the tracker, the results agree, the interval lies above 1, the arithmetic is the same and every copy was
timed. Savings of several changes of one op do not add up; those of different ops do, as far as ops do not overlap.
The text of a change begins with its kind: flag, backend, layout, contiguity, rewriting or precision (other
arithmetic).
"""
from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from core import units
from core.analysis.statistics import ratio_interval

COPY_NOT_TIMED = "(copy not timed)"
PRECISION = "precision"
COLUMNS = (
    "op", "stage", "shapes", "dtypes", "layout", "scalars", "calls", "device_ms", "change", "kind", "before_ms",
    "after_ms", "n", "factor", "low", "high", "verdict", "agrees", "max_abs_diff", "reproduced", "launches_before",
    "launches_after", "kernels_before", "kernels_after", "counts", "saving_ms", "saving_low_ms", "saving_high_ms",
    "saving_share", "sentence",
)  # fmt: skip
_FLOATS = ("saving_ms", "saving_low_ms", "saving_high_ms", "saving_share", "factor", "low", "high")
_KEY = ["op", "stage", "shapes", "dtypes", "layout", "scalars"]


def op_trials(table: pd.DataFrame, pass_ms: float | None = None) -> pd.DataFrame:
    """One row per trial with COLUMNS, the largest saving first, then the largest factor.

    `table`: rows of `op_trial` lines: the parts of the op key, calls, device_ms (of all calls in one pass), change,
    before_ms and after_ms (lists of samples per call, ms), max_abs_diff, reproduced; and where they are known agrees,
    launches_before, launches_after (per call), kernels_before, kernels_after, pass_ms. `pass_ms` stands in for the
    column. An answer that is missing is None and never counts as yes. before_ms and after_ms of the result are medians.
    verdict: faster, slower, or "cannot tell" where the interval holds 1 or there is none.
    """
    rows = [_row({str(name): value for name, value in trial.items()}, pass_ms) for trial in table.to_dict("records")]
    made = pd.DataFrame(rows, columns=list(COLUMNS))
    made = made.astype(dict.fromkeys(_FLOATS, float))
    return made.sort_values(
        ["saving_ms", "factor"], ascending=False, na_position="last", kind="stable"
    ).reset_index(drop=True)


def best_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Of what `op_trials` returned: the one trial per op that saves most, among those that count."""
    counted = trials[trials["counts"].astype(bool)]
    keys = pd.Series(["|".join(_text(row[name]) for name in _KEY) for row in counted.to_dict("records")],
                     index=counted.index, dtype=object)  # fmt: skip
    return counted[~keys.duplicated()].reset_index(drop=True)


def total_saving_ms(trials: pd.DataFrame) -> float:
    """What the best trials of all ops would save together in one pass; an estimate from ops alone."""
    return float(best_trials(trials)["saving_ms"].sum())


def _row(trial: dict[str, Any], pass_ms: float | None) -> dict[str, Any]:
    before, after = _samples(trial.get("before_ms")), _samples(trial.get("after_ms"))
    change = str(trial.get("change") or "")
    kind = change.split(":", 1)[0] if ":" in change else ""
    ratio = ratio_interval([before], [after]) if before and after else None
    factor, low, high = (ratio.value, ratio.low, ratio.high) if ratio else (None, None, None)
    verdict = "cannot tell"
    if low is not None and high is not None:
        verdict = "faster" if low > 1 else "slower" if high < 1 else verdict
    row: dict[str, Any] = {
        **{name: trial.get(name) for name in _KEY}, "calls": _number(trial.get("calls")),
        "device_ms": _number(trial.get("device_ms")), "change": change, "kind": kind,
        "before_ms": _median(before), "after_ms": _median(after), "n": min(len(before), len(after)),
        "factor": factor, "low": low, "high": high, "verdict": verdict,
        "agrees": _answer(trial.get("agrees")), "max_abs_diff": _number(trial.get("max_abs_diff")),
        "reproduced": _answer(trial.get("reproduced")), "launches_before": _number(trial.get("launches_before")),
        "launches_after": _number(trial.get("launches_after")),
        "kernels_before": _names(trial.get("kernels_before")), "kernels_after": _names(trial.get("kernels_after")),
    }
    row["counts"] = (
        verdict == "faster" and row["agrees"] is True and row["reproduced"] is True and kind != PRECISION
        and not change.endswith(COPY_NOT_TIMED)
    )
    op_ms = time_in_pass_ms(row["device_ms"], row["calls"], row["before_ms"])
    for name, value in (("saving_ms", factor), ("saving_low_ms", low), ("saving_high_ms", high)):
        row[name] = op_ms * (1 - 1 / value) if row["counts"] and op_ms is not None and value else None
    own_pass_ms = _number(trial.get("pass_ms")) or pass_ms
    row["saving_share"] = row["saving_ms"] / own_pass_ms if row["saving_ms"] is not None and own_pass_ms else None
    row["sentence"] = _sentence(row)
    return row


def time_in_pass_ms(device_ms: float | None, calls: float | None, alone_ms: float | None) -> float | None:
    """What all calls of an op take in one pass, at most: the smaller of its kernels' sum and its calls, timed alone.

    Kernels that overlap, or that a profiler stretches, sum to more than the time they take: an FFT convolution of 2,119
    launches summed to 217 ms in a pass whose whole stage took 116 ms, and takes 15.1 ms a call alone (7 calls, H200).
    """
    if device_ms is None:
        return None
    return device_ms if calls is None or alone_ms is None else min(device_ms, calls * alone_ms)


def _sentence(row: dict[str, Any]) -> str:
    """What the trial says, in one sentence that stands alone."""
    what = row["change"].split(":", 1)[-1].strip() or "the change"
    where = f"{row['op']} {_shapes(row['shapes'])} in {row['stage']}"
    if row["factor"] is None:
        return f"{where}: {what} was not timed."
    interval = units.ratio_interval(row["low"], row["high"])
    spread = f"{interval}, n = {row['n']}" if interval != units.MISSING else f"n = {row['n']}"
    if row["verdict"] == "faster":
        text = f"{where}: {what} is {units.ratio(row['factor'])} as fast ({spread})"
    elif row["verdict"] == "slower":
        text = f"{where}: {what} takes {units.ratio(1 / row['factor'])} the time (n = {row['n']})"
    else:
        text = f"{where}: no difference can be told with {what} ({units.ratio(row['factor'])}, {spread})"
    if row["launches_before"] is not None and row["launches_after"] is not None:
        text += f", with {units.count(row['launches_after'])} instead of {units.count(row['launches_before'])} launches"
    if row["counts"]:
        share = f" ({units.percent(row['saving_share'])})" if row["saving_share"] is not None else ""
        return f"{text}; in one pass that would save about {units.time_ms(row['saving_ms'])}{share}."
    if row["verdict"] == "faster":
        text += f"; {_why_not(row)}"
    return text + "."


def _why_not(row: dict[str, Any]) -> str:
    """Why a faster trial saves nothing by itself."""
    if row["agrees"] is False:
        difference = f" by up to {row['max_abs_diff']:.3g}" if row["max_abs_diff"] is not None else ""
        return f"its results differ{difference}, so it is not the same work"
    if row["agrees"] is None:
        return "nobody compared its results"
    if row["kind"] == PRECISION:
        return "its arithmetic is another one"
    if row["change"].endswith(COPY_NOT_TIMED):
        return "only if what comes before writes its input that way"
    if row["reproduced"] is False:
        return "but alone the op does not behave as in the tracker"
    return "whether the op alone behaves as in the tracker is not known"


def _shapes(value: Any) -> str:
    shapes = json.loads(value) if isinstance(value, str) and value else value
    if shapes is None or isinstance(shapes, float):
        return "(shapes unknown)"
    return " ".join("x".join(str(int(n)) for n in shape) or "()" for shape in list(shapes)[:2])


def _samples(value: Any) -> list[float]:
    if value is None or isinstance(value, float):
        return []
    return [float(sample) for sample in (json.loads(value) if isinstance(value, str) else value)]


def _median(samples: Sequence[float]) -> float | None:
    return float(pd.Series(samples).median()) if samples else None


def _number(value: Any) -> float | None:
    return None if value is None or pd.isna(value) or not math.isfinite(float(value)) else float(value)


def _answer(value: Any) -> bool | None:
    return None if value is None or pd.isna(value) else bool(value)


def _names(value: Any) -> list[str]:
    if value is None or isinstance(value, float):
        return []
    return [str(name) for name in (json.loads(value) if isinstance(value, str) else value)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=list)
