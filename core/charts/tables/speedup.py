"""GPU types on the same work as tables: speedup, precision, size; the finding over each chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from core import units
from core.answers import sentences
from core.answers.json_values import records
from core.charts import theme
from core.charts.tables.cells import by_cell, common_words, device_order, newest, of_work
from core.charts.tables.gap import reading_name
from core.charts.tables.values import Answer, number


def speedup_rows(answers: Sequence[Answer], baseline: str, baseline_key: str | None) -> pd.DataFrame:
    """Compare answers of several targets against one baseline as bars, fastest first, the baseline last."""
    rows = []
    for answer in answers:
        for row in answer["rows"][:1]:
            rows.append(
                {
                    "label": row["target"]["gpu"],
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
        "origin": "measured",
        "detail": "the baseline",
        "verdict": "",
        "interval": None,
        "n": repetitions,
    }
    frame = pd.concat([frame, pd.DataFrame([own])]).astype({"low": float, "high": float})
    return frame.sort_values("ratio", ascending=False, kind="stable").reset_index(drop=True)


def speedup_theory(answers: Sequence[Answer]) -> pd.DataFrame:
    """Bandwidth and arithmetic of each target against the baseline, for lines across its bar."""
    rows = []
    for answer in answers:
        for row in answer["rows"][:1]:
            precision = reading_name(row["precision"].replace(" against ", "/"))
            for kind, key, name in (
                ("bandwidth", "bandwidth", "bandwidth"),
                ("compute", "executed_precision", f"{precision} arithmetic"),
            ):
                value = row["expected"][key]
                if value is not None:
                    rows.append(
                        {
                            "label": row["target"]["gpu"],
                            "kind": kind,
                            "name": f"{name} {units.ratio(value)}",
                            "ratio": value,
                        }
                    )
    return pd.DataFrame(rows, columns=["label", "kind", "name", "ratio"])


def speedup_finding(rows: pd.DataFrame, theory: pd.DataFrame, baseline: str) -> str:
    """The device that lies farthest from the baseline, and what hardware says about it."""
    others = records(rows[rows["label"] != baseline])
    far = max(others, key=lambda row: max(row["ratio"], 1 / row["ratio"]))
    name, base = theme.short_name(far["label"]), theme.short_name(baseline)
    slower = far["ratio"] < 1
    said = [
        f"{line['name'].rsplit(' ', 1)[0]} says {units.ratio(1 / line['ratio'] if slower else line['ratio'])}"
        for line in records(theory[theory["label"] == far["label"]])
    ]
    text = (
        f"The {name} takes {units.ratio(1 / far['ratio'])} as long as the {base}"
        if slower
        else f"The {name} is {units.ratio(far['ratio'])} as fast as the {base}"
    )
    return f"{text}; {', '.join(said)}" if said else text


def range_finding(rows: pd.DataFrame, baseline: str) -> str:
    """How far the devices lie apart, as the title over the bars."""
    others = rows[rows["label"] != baseline]
    low, high, base = others["ratio"].min(), others["ratio"].max(), theme.short_name(baseline)
    if len(others) == 1:
        return f"{theme.short_name(others['label'].iloc[0])}: {units.ratio(high)} against the {base}"
    return f"{len(others)} devices, from {units.ratio(low)} to {units.ratio(high)} against the {base}"


def speedup_conditions(cells: pd.DataFrame, rows: pd.DataFrame, theory: pd.DataFrame) -> str:
    """Work, precision, kind of interval, how many repetitions and what the lines are."""
    kinds = sorted({str(kind) for kind in rows["interval"].dropna()})
    interval = f"95 % intervals {' or '.join(kinds)}" if kinds else "no interval"
    boards = int(cells["uuid_hash"].nunique())
    low, high = int(rows["n"].min()), int(rows["n"].max())
    return (
        f"{common_words(cells)}; measured; {interval}; n {low}{'' if low == high else f' to {high}'}, "
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


def failed_words(lines: pd.DataFrame) -> str:
    """Which devices have no time for this work, and why."""
    said = [
        f"{theme.short_name(row['gpu_label'])}: {row['status']}"
        + (f" ({row['reason']})" if isinstance(row["reason"], str) else "")
        for row in records(lines.drop_duplicates("gpu_label", keep="last"))
    ]
    return f"Without a time: {'; '.join(said)}"


def heat_cells(
    cells: pd.DataFrame, failed: pd.DataFrame, work: Mapping[str, Any], baseline: str, baseline_precision: str
) -> pd.DataFrame:
    """GPU x precision of one work: ratio of medians against one cell. `failed`: lines that are not ok, with reason.

    The newest run of each pair counts; a ratio of medians without an interval, for an overview only.
    """
    cells, failed = by_cell(of_work(cells, work)), of_work(failed, work)
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
            "reason": None,
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


def heat_conditions(cells: pd.DataFrame, baseline: str, precision: str) -> str:
    """What the numbers of the heat map are."""
    return (
        f"ratio of median times against {theme.short_name(baseline)} in {precision} (1x), without interval; "
        f"{common_words(cells)}"
    )


def heat_finding(cells: pd.DataFrame) -> str:
    """The fastest pair of GPU and precision."""
    best = records(cells.dropna(subset=["ratio"]).astype({"ratio": float}).nlargest(1, "ratio"))[0]
    return f"{best['precision']} on the {theme.short_name(best['label'])} is fastest: {units.ratio(best['ratio'])}"


def size_axes(cells: pd.DataFrame, work: Mapping[str, Any]) -> dict[str, int]:
    """Axes along which at least two sizes of this work are measured: resolution, frames, points -> number of sizes."""
    columns = {"resolution": "height", "frames": "frames", "points": "points"}
    found = {axis: int(of_work(cells, work, free=axis)[column].nunique()) for axis, column in columns.items()}
    return {axis: number for axis, number in found.items() if number > 1}


MOST_SERIES = 9


def size_points(
    cells: pd.DataFrame, failed: pd.DataFrame, work: Mapping[str, Any], axis: str, precision: str
) -> pd.DataFrame:
    """Points of `speedup.size_curve` along one axis: a line per device at this precision, or, with one device alone,
    a line per precision."""
    column = {"resolution": "height", "frames": "frames", "points": "points"}[axis]

    def series(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["height"] == frame["width"]] if axis == "resolution" else frame

    ok = series(by_cell(of_work(cells, work, free=axis)))
    bad = series(of_work(failed, work, free=axis))
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
    columns = [
        "series",
        "gpu_key",
        "gpu_label",
        "precision",
        "size",
        "median_ms",
        "low_ms",
        "high_ms",
        "status",
        "detail",
    ]
    return frame[frame["series"].isin(kept)].reindex(columns=columns)


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
    return f"From {low:g} to {high:g} {what} the time grows {units.ratio(factor)} ({name})"


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
    return f"median of repetitions, bars p5 to p95; {', '.join(held.values())}; {who}; measured"


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
            "status": points["status"],
            "n or reason": points["detail"].fillna(""),
        }
    )
