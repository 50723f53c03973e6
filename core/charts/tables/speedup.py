"""GPU types on the same work as tables: speedup, precision, size; the finding over each chart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from core import units
from core.answers import sentences
from core.answers.json_values import records
from core.answers.one_side import oddness
from core.charts import theme
from core.charts.tables.cells import by_cell, common_words, device_order, newest, of_work, workload_parts
from core.charts.tables.gap import reading_name
from core.charts.tables.values import Answer, number
from core.gpus import catalogue

COMPARE_BY = ("GPU", "board", "precision", "execution", "software")
"""What the bars of the Speedup page may stand for; all but the first two compare within one GPU type."""

WITHIN_ONE = COMPARE_BY[2:]


def comparable_groups(cells: pd.DataFrame, by: str) -> pd.DataFrame:
    """What there is to compare among these cells of one work: name, gpu_label, gpu_key, selection (as the command line
    takes it), slowest first. Within one GPU type for `WITHIN_ONE`: give the cells of that type alone."""
    columns = {"GPU": ["gpu_label"], "board": ["gpu_label", "uuid_hash"], "software": ["torch"]}.get(by, [by])
    found = by_cell(cells).dropna(subset=columns)
    found = found.assign(fastest_ms=found.groupby(columns)["median_ms"].transform("min"))
    first = found.sort_values("fastest_ms", ascending=False, kind="stable").drop_duplicates(columns)
    rows = []
    for row in records(first):
        key, label = row["gpu_key"], row["gpu_label"]
        head = key if isinstance(key, str) and key in catalogue() else label
        if by == "GPU":
            name, part = label, ""
        elif by == "board":
            name, part = f"{theme.short_name(label)}, board {row['uuid_hash'][:6]}", f",board={row['uuid_hash']}"
        elif by == "software":
            name, part = f"torch {row['torch']}", f",torch={row['torch']}"
        else:
            name, part = str(row[by]), f",{by}={row[by]}"
        rows.append({"name": name, "gpu_label": row["gpu_label"], "gpu_key": key, "selection": f"{head}{part}"})
    return pd.DataFrame(rows, columns=["name", "gpu_label", "gpu_key", "selection"])


def main_row(answer: Answer) -> Answer | None:
    """The row of a compare answer that a bar shows: the plainest settings; None where nothing matched."""
    return min(answer["rows"], key=lambda row: oddness(row["target"]["setting"]), default=None)


def speedup_rows(
    answers: Sequence[Answer], baseline: str, baseline_key: str | None, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """Compare answers of several targets against one baseline as bars, fastest first, the baseline among them.

    `names`: what each answer's bar is called; the target's GPU without it.
    """
    rows = []
    for place, answer in enumerate(answers):
        for row in filter(None, [main_row(answer)]):
            rows.append(
                {
                    "label": names[place] if names else row["target"]["gpu"],
                    "gpu_key": row["target"]["gpu_key"],
                    "ratio": row["speedup"]["value"],
                    "low": row["speedup"]["low"],
                    "high": row["speedup"]["high"],
                    "time": units.time_ms(row["target_ms"]),
                    "origin": row["target"]["origin"],
                    "interval": row["speedup"]["interval"],
                    "n": row["n"]["target"],
                    "boards": row["boards"],
                    "verdict": sentences.VERDICT_WORDS[row["verdict"]],
                    "detail": f"n {row['n']['baseline']} and {row['n']['target']}, {row['boards']} boards, "
                    f"{sentences.VERDICT_WORDS[row['verdict']]}",
                }
            )
            time, repetitions = units.time_ms(row["baseline_ms"]), row["n"]["baseline"]
            origin = row["baseline"]["origin"]
    if not rows:
        return pd.DataFrame(columns=["label", "gpu_key", "ratio", "low", "high", "time", "origin", "detail"])
    frame = pd.DataFrame(rows).sort_values("ratio", ascending=False)
    own = {
        "label": baseline,
        "gpu_key": baseline_key,
        "ratio": 1.0,
        "low": None,
        "high": None,
        "time": time,
        "origin": origin,
        "detail": "the baseline",
        "verdict": "",
        "interval": None,
        "n": repetitions,
    }
    frame = pd.concat([frame, pd.DataFrame([own])]).astype({"low": float, "high": float})
    return frame.sort_values("ratio", ascending=False, kind="stable").reset_index(drop=True)


def speedup_theory(answers: Sequence[Answer], names: Sequence[str] | None = None) -> pd.DataFrame:
    """Bandwidth and arithmetic of each target against the baseline, for lines across its bar.

    Between cells of one card the data sheet has one bandwidth: 1x is then left out.
    """
    rows = []
    for place, answer in enumerate(answers):
        for row in filter(None, [main_row(answer)]):
            one_card = row["target"]["gpu"] == row["baseline"]["gpu"]
            precision = reading_name(row["target"]["setting"]["precision"] if one_card else row["precision"])
            for kind, key, name in (
                ("bandwidth", "bandwidth", "bandwidth"),
                ("compute", "executed_precision", f"{precision} arithmetic"),
            ):
                value = row["expected"][key]
                if value is not None and not (one_card and abs(value - 1) < 1e-9):
                    rows.append(
                        {
                            "label": names[place] if names else row["target"]["gpu"],
                            "kind": kind,
                            "name": f"{name} {units.ratio(value)}",
                            "ratio": value,
                        }
                    )
    return pd.DataFrame(rows, columns=["label", "kind", "name", "ratio"])


def speedup_finding(
    rows: pd.DataFrame, theory: pd.DataFrame, baseline: str, by: str = "GPU", on: str | None = None
) -> str:
    """The bar that lies farthest from the baseline, and what hardware says about it. `on`: the one GPU of all bars."""
    others = records(rows[rows["label"] != baseline])
    far = max(others, key=lambda row: max(row["ratio"], 1 / row["ratio"]))
    name, base = theme.short_name(far["label"]), theme.short_name(baseline)
    slower = far["ratio"] < 1
    said = [
        f"{line['name'].rsplit(' ', 1)[0]} says {_as_told(line['ratio'], slower)}"
        for line in records(theory[theory["label"] == far["label"]])
    ]
    name, base = (word if by not in ("GPU", "board") else f"the {word}" for word in (name, base))
    name = name[:1].upper() + name[1:] if by in ("GPU", "board") else name
    text = (
        f"{name} takes {units.ratio(1 / far['ratio'])} as long as {base}"
        if slower
        else f"{name} is {units.ratio(far['ratio'])} as fast as {base}"
    )
    if on:
        text = f"On the {theme.short_name(on)} {text}"
    return f"{text}; {', '.join(said)}" if said else text


def _as_told(ratio: float, slower: bool) -> str:
    """A ratio of theory the way round that the sentence tells it; the other way round in words."""
    if not slower:
        return units.ratio(ratio)
    return units.ratio(1 / ratio) if ratio < 1.05 else f"{units.ratio(ratio)} as fast"


_PLURALS = {"GPU": "devices", "board": "boards", "precision": "precisions", "execution": "ways to execute",
            "software": "software versions"}  # fmt: skip


def range_finding(rows: pd.DataFrame, baseline: str, by: str = "GPU") -> str:
    """How far the bars lie apart, as the title over them."""
    others = rows[rows["label"] != baseline]
    low, high = others["ratio"].min(), others["ratio"].max()
    base = f"the {theme.short_name(baseline)}" if by in ("GPU", "board") else theme.short_name(baseline)
    if len(others) == 1:
        return f"{theme.short_name(others['label'].iloc[0])}: {units.ratio(high)} against {base}"
    return f"{len(others)} {_PLURALS[by]}, from {units.ratio(low)} to {units.ratio(high)} against {base}"


def speedup_conditions(cells: pd.DataFrame, rows: pd.DataFrame, theory: pd.DataFrame) -> str:
    """Work, precision, kind of interval, how many repetitions and what the lines are."""
    kinds = sorted({str(kind) for kind in rows["interval"].dropna()})
    interval = f"95 % intervals {' or '.join(kinds)}" if kinds else "no interval"
    boards = int(cells["uuid_hash"].nunique())
    low, high = int(rows["n"].min()), int(rows["n"].max())
    origins = "measured" if set(rows["origin"]) <= {"measured"} else "measured, or imported where outlined"
    return (
        f"{common_words(cells)}; {origins}; {interval}; n {low}{'' if low == high else f' to {high}'}, "
        f"{boards} board{'' if boards == 1 else 's'}"
        + ("; long dash bandwidth, short dash arithmetic, both from data sheets" if len(theory) else "")
    )


def speedup_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The bars as numbers."""
    return pd.DataFrame(
        {
            "GPU": rows["label"],
            "times as fast": [units.ratio(value) for value in rows["ratio"]],
            "interval": [
                units.ratio_interval(number(low), number(high))
                for low, high in zip(rows["low"], rows["high"], strict=True)
            ],
            "kind of interval": rows["interval"].fillna(units.MISSING),
            "median time": rows["time"],
            "n": rows["n"],
            "boards": rows["boards"],
            "verdict": rows["verdict"],
            "origin": rows["origin"],
        }
    )


def left_out_words(cells: pd.DataFrame, work: Mapping[str, Any]) -> str:
    """Devices that did this tracker and size, but in another revision or with other weights; "" without one."""
    everything = of_work(cells, {name: value for name, value in work.items() if name != "kin"})
    names = sorted(set(everything["gpu_label"]) - set(of_work(cells, work)["gpu_label"]))
    if not names:
        return ""
    told = sentences.listed([theme.short_name(name) for name in names])
    return f"Not the same work, and so left out: {told} (another revision, other weights or other iterations)."


def failed_words(lines: pd.DataFrame) -> str:
    """Which devices have no time for this work, and why."""
    said = [
        f"{theme.short_name(row['gpu_label'])}: {row['status']}"
        + (f" ({row['reason']})" if isinstance(row["reason"], str) else "")
        for row in records(lines.drop_duplicates("gpu_label", keep="last"))
    ]
    return f"Without a time: {'; '.join(said)}"


def same_execution(cells: pd.DataFrame, execution: str) -> pd.DataFrame:
    """The cells that ran in this way; "" lets all through."""
    return cells[cells["execution"] == execution] if execution else cells


def heat_cells(
    cells: pd.DataFrame,
    failed: pd.DataFrame,
    work: Mapping[str, Any],
    baseline: str,
    baseline_precision: str,
    execution: str = "",
) -> pd.DataFrame:
    """GPU x precision of one work: ratio of medians against one cell. `failed`: lines that are not ok, with reason.

    The newest run of each pair counts; a ratio of medians without an interval, for an overview only.
    """
    cells = by_cell(same_execution(of_work(cells, work), execution))
    failed = same_execution(of_work(failed, work), execution)
    found = newest(cells, ["gpu_label", "precision"])
    base = found[(found["gpu_label"] == baseline) & (found["precision"] == baseline_precision)]["median_ms"]
    one = float(base.iloc[0]) if len(base) else None
    order = list(device_order(cells)["gpu_label"])[::-1]
    rows = [
        {
            "label": row["gpu_label"],
            "precision": row["precision"],
            "ratio": one / row["median_ms"] if one else None,
            "time": units.time_ms(row["median_ms"]),
            "reason": "emulated" if emulated(row) else None,
        }
        for row in records(found)
    ]
    have = {(row["label"], row["precision"]) for row in rows}
    rows += [
        {"label": row["gpu_label"], "precision": row["precision"], "ratio": None, "time": None, "reason": row["status"]}
        for row in records(failed.drop_duplicates(["gpu_label", "precision"], keep="last"))
        if (row["gpu_label"], row["precision"]) not in have
    ]
    frame = pd.DataFrame(rows, columns=["label", "precision", "ratio", "time", "reason"])
    order += [label for label in frame["label"] if label not in order]
    return frame.sort_values("label", key=lambda column: column.map(order.index), kind="stable").reset_index(drop=True)


def emulated(row: Mapping[str, Any]) -> bool:
    """Whether this card only emulates the cell's precision."""
    text = row.get("execution_path")
    return isinstance(text, str) and bool(json.loads(text).get("emulated_bf16"))


def heat_conditions(cells: pd.DataFrame, baseline: str, precision: str) -> str:
    """What the numbers of the heat map are."""
    return (
        f"ratio of median times against {theme.short_name(baseline)} in {precision} (1x), without interval; "
        f"{common_words(cells)}"
    )


def heat_finding(cells: pd.DataFrame) -> str:
    """The fastest pair of GPU and precision; what is only emulated is no candidate."""
    cells = cells[cells["reason"].isna()]
    best = records(cells.dropna(subset=["ratio"]).astype({"ratio": float}).nlargest(1, "ratio"))[0]
    return f"{best['precision']} on the {theme.short_name(best['label'])} is fastest: {units.ratio(best['ratio'])}"


def size_axes(cells: pd.DataFrame, work: Mapping[str, Any]) -> dict[str, int]:
    """Axes along which at least two sizes of this work are measured: resolution, frames, points -> number of sizes."""
    columns = {"resolution": "height", "frames": "frames", "points": "points"}
    found = {axis: int(of_work(cells, work, free=axis)[column].nunique()) for axis, column in columns.items()}
    return {axis: number for axis, number in found.items() if number > 1}


MOST_SERIES = 9


def size_points(
    cells: pd.DataFrame,
    failed: pd.DataFrame,
    work: Mapping[str, Any],
    axis: str,
    precision: str,
    execution: str = "",
) -> pd.DataFrame:
    """Points of `speedup.size_curve` along one axis: a line per device at this precision, or, with one device alone,
    a line per precision."""
    column = {"resolution": "height", "frames": "frames", "points": "points"}[axis]

    def series(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["height"] == frame["width"]] if axis == "resolution" else frame

    ok = series(by_cell(same_execution(of_work(cells, work, free=axis), execution)))
    bad = series(same_execution(of_work(failed, work, free=axis), execution))
    several = ok[ok["precision"] == precision]["gpu_label"].nunique() > 1
    if several:
        ok, bad = ok[ok["precision"] == precision], bad[bad["precision"] == precision]
    ok = newest(ok, ["gpu_label", "precision", column])
    frame = pd.concat([ok, bad.assign(detail=bad["reason"])])
    frame = frame.assign(
        size=frame[column].astype(float),
        series=frame["gpu_label"].map(theme.short_name) if several else frame["precision"],
    )
    counts = frame[frame["status"] == "ok"]["series"].value_counts()
    kept = list(counts[counts > 1].index[:MOST_SERIES])
    frame = frame[frame["series"].isin(kept)].reindex(columns=_POINT_COLUMNS)
    slopes = {name: exponent(part) for name, part in frame[frame["status"] == "ok"].groupby("series")}
    return frame.assign(exponent=frame["series"].map(slopes).astype(float), full=pd.Series(_full(frame), frame.index))


_POINT_COLUMNS = ["series", "gpu_key", "gpu_label", "precision", "size", "median_ms", "low_ms", "high_ms", "status",
                  "detail", "peak_bytes"]  # fmt: skip
_FULL = 0.9
"""From this share of the card's memory on, the allocator may have to give memory back and ask again."""


def exponent(points: pd.DataFrame) -> float | None:
    """Slope of log time over log size (least squares), from three sizes on: time grows as size to this power."""
    if points["size"].nunique() < 3:
        return None
    slope, _ = np.polyfit(np.log(points["size"].astype(float)), np.log(points["median_ms"].astype(float)), 1)
    return float(slope)


def _full(points: pd.DataFrame) -> list[float | None]:
    """Peak share of the card's memory where it is nearly full, by data sheet; else None."""
    found: list[float | None] = []
    for key, peak in zip(points["gpu_key"], points["peak_bytes"], strict=True):
        card = catalogue().get(key) if isinstance(key, str) else None
        share = float(peak) / (card.memory_gb * 1e9) if card and card.memory_gb and not pd.isna(peak) else 0.0
        found.append(share if share >= _FULL else None)
    return found


AXIS_NAMES = {"resolution": "height and width in pixels", "frames": "frames", "points": "query points"}


def size_finding(points: pd.DataFrame, axis: str) -> str:
    """How much the time grows from the smallest to the largest size, for the series that grows most."""
    grown = []
    for name, part in points[points["status"] == "ok"].sort_values("size").groupby("series", sort=False):
        first, last = part.iloc[0], part.iloc[-1]
        if last["size"] > first["size"]:
            grown.append((last["median_ms"] / first["median_ms"], name, first["size"], last["size"]))
    if not grown:
        return f"Time against {axis}"
    factor, name, low, high = max(grown)
    what = {"resolution": "pixels a side", "frames": "frames", "points": "points"}[axis]
    told = f"From {low:g} to {high:g} {what} the time grows {units.ratio(factor)} ({name})"
    knee = steepening(points[(points["series"] == name) & (points["status"] == "ok")])
    return f"{told}, steeper from {knee:g} on" if knee is not None else told


_STEEPER = 1.5
"""A knee: the power between neighbouring sizes rises by more than this."""


def steepening(points: pd.DataFrame) -> float | None:
    """The size from which one series grows by a much higher power than before; None without one."""
    points = points.sort_values("size").drop_duplicates("size")
    sizes, times = np.log(points["size"].astype(float)), np.log(points["median_ms"].astype(float))
    if len(points) < 3:
        return None
    powers = np.diff(times) / np.diff(sizes)
    rises = np.diff(powers)
    place = int(np.argmax(rises))
    return float(points["size"].iloc[place + 1]) if rises[place] > _STEEPER else None


def size_conditions(points: pd.DataFrame, work: Mapping[str, Any], axis: str) -> str:
    """What is held equal along the curve."""
    held = {
        "tracker": str(work["selector"]),
        "resolution": f"{work['height']}x{work['width']}",
        "frames": f"{work['frames']} frames",
        "points": f"{work['points']} points",
    }
    held.pop(axis)
    cards = points["gpu_label"].unique()
    who = theme.short_name(cards[0]) if len(cards) == 1 else str(points["precision"].iloc[0])
    power = "; n^ is the fitted power" if points["exponent"].notna().any() else ""
    return f"median of repetitions, bars p5 to p95; {', '.join(held.values())}; {who}; measured{power}"


def size_table(points: pd.DataFrame, axis: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "GPU": points["gpu_label"],
            "precision": points["precision"],
            axis: points["size"].astype(int),
            "median": [units.time_ms(number(value)) for value in points["median_ms"]],
            "p5 to p95": [
                units.time_interval_ms(number(low), number(high))
                for low, high in zip(points["low_ms"], points["high_ms"], strict=True)
            ],
            "fitted power": [units.significant(number(value), 2) for value in points["exponent"]],
            "status": points["status"],
            "n or reason": points["detail"].fillna(""),
        }
    )


# --- what a precision changes in the result --------------------------------------------------------------------------


def drift_rows(cells: pd.DataFrame, gpu_label: str) -> pd.DataFrame:
    """Speed and drift of each precision on one device against its FP32 for `speedup.speedup_bars`, newest run of each.

    Empty without FP32. `time` holds the drift in words; drift, agreement and accuracy are numbers of their own.
    """
    own = newest(by_cell(cells[cells["gpu_label"] == gpu_label]), ["precision"])
    base = own[own["precision"] == "fp32"]["median_ms"]
    if base.empty or len(own) < 2:
        return pd.DataFrame()
    rows = []
    for row in records(own.sort_values("median_ms")):
        found = json.loads(row["drift"]) if isinstance(row["drift"], str) else {}
        accuracy = found.get("accuracy") or {}
        median, p95 = found.get("median_px"), found.get("p95_px")
        rows.append(
            {
                "label": row["precision"], "gpu_key": row["gpu_key"], "ratio": float(base.iloc[0]) / row["median_ms"],
                "low": None, "high": None, "origin": row["origin"], "median_px": median, "p95_px": p95,
                "visibility_agreement": found.get("visibility_agreement"),
                "average_jaccard": accuracy.get("average_jaccard"), "weights": accuracy.get("weights"),
                "time": "the reference" if row["precision"] == "fp32" else _drift_words(median, p95),
                "detail": row["detail"], "median_time": units.time_ms(row["median_ms"]), "run": row["run_id"],
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _drift_words(median: float | None, p95: float | None) -> str:
    if median is None or p95 is None:
        return "not recorded"
    return f"{units.significant(median, 2)} / {units.significant(p95, 2)} px"


def drift_finding(rows: pd.DataFrame) -> str:
    """The fastest precision, and how far it moves the points."""
    best = records(rows[rows["label"] != "fp32"].nlargest(1, "ratio"))[0]
    told = f"{best['label']} is {units.ratio(best['ratio'])} as fast as fp32"
    if best["median_px"] is None or pd.isna(best["median_px"]):
        return f"{told}; how far its points move was not recorded"
    return f"{told} and moves the median point by {units.significant(best['median_px'], 2)} px"


def drift_table(rows: pd.DataFrame) -> pd.DataFrame:
    def shown(name: str, write: Any) -> list[str]:
        return [write(number(value)) for value in rows[name]]

    return pd.DataFrame(
        {
            "precision": rows["label"],
            "median time": rows["median_time"],
            "times as fast": [units.ratio(value) for value in rows["ratio"]],
            "drift, median px": shown("median_px", units.significant),
            "drift, p95 px": shown("p95_px", units.significant),
            "same visibility": shown("visibility_agreement", units.percent),
            "average Jaccard": shown("average_jaccard", units.percent),
            "weights": rows["weights"].fillna(""),
            "n": rows["detail"],
            "run": rows["run"],
        }
    )


# --- works that differ, side by side ---------------------------------------------------------------------------------


def unequal_rows(cells: pd.DataFrame, selector: str, precision: str) -> pd.DataFrame:
    """The largest work of each device in this tracker and precision for `speedup.time_bars`: times, never a ratio."""
    found = by_cell(cells)
    found = found[(found["selector"] == selector) & (found["precision"] == precision)]
    size = found[["frames", "height", "width", "points", "batch"]].astype("Float64").fillna(1.0).prod(axis=1)
    found = found.assign(volume=size).sort_values(["volume", "started_at"]).drop_duplicates("gpu_label", keep="last")
    parts = workload_parts(found)
    labels = [
        f"{theme.short_name(label)}\n{', '.join(filter(None, words))}"
        for label, words in zip(
            found["gpu_label"], parts[["frames", "size", "points", "batch"]].itertuples(index=False), strict=True
        )
    ]
    columns = ["label", "gpu_label", "gpu_key", "median_ms", "low_ms", "high_ms", "origin", "detail"]
    return found.assign(label=labels).sort_values("median_ms")[columns].reset_index(drop=True)


def unequal_table(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "GPU and work": rows["label"].str.replace("\n", ", "),
            "median": [units.time_ms(value) for value in rows["median_ms"]],
            "n": rows["detail"],
            "origin": rows["origin"],
        }
    )


def heat_table(cells: pd.DataFrame) -> pd.DataFrame:
    """The heat map as text."""
    return pd.DataFrame(
        {
            "GPU": cells["label"],
            "precision": cells["precision"],
            "times as fast": [units.ratio(number(value)) for value in cells["ratio"]],
            "median time": cells["time"].fillna(units.MISSING),
            "note": cells["reason"].fillna(""),
        }
    )
