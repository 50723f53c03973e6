"""Answers about one device as tables: its samples, its ladder, its floors; energy and money of several."""

from __future__ import annotations

from typing import Any

import pandas as pd

from core import units
from core.charts import theme
from core.charts.tables.values import Answer, number, quantity

# --- samples ---------------------------------------------------------------------------------------------------------


def sample_finding(answer: Answer) -> str:
    return f"{theme.short_name(answer['gpu'])}: {answer['headline'].rstrip('.')}"


def sample_conditions(answer: Answer, work: str) -> str:
    """What one point is, and what is not there."""
    count = answer["processes"]
    said = f"every repetition; {work}; {answer['precision']}; n {answer['n']} in {count} process{'es' * (count > 1)}"
    marks = "; dashes the median, crosses flagged samples" if answer["flagged"] else "; dashes the median"
    missing = "" if answer["telemetry"] else "; clock, power and temperature were not read"
    return said + marks + missing


def sample_table(answer: Answer) -> pd.DataFrame:
    table: pd.DataFrame = answer["samples"]
    return table.rename(
        columns={
            "i": "repetition",
            "wall_ms": "time, ms",
            "sm_clock_mhz": "SM clock, MHz",
            "power_w": "power, W",
            "temperature_c": "temperature, °C",
        }
    )


# --- ladder ----------------------------------------------------------------------------------------------------------


def ladder_rungs(answer: Answer) -> pd.DataFrame:
    """Rungs for `ladder.ladder_bars`; the first one is the fastest setting."""
    rows = [
        {
            "label": " + ".join(rung["words"]) if rung["words"] else ladder_base(answer),
            "ratio": rung["ratio"]["value"],
            "low": rung["ratio"]["low"] if rung["words"] else None,
            "high": rung["ratio"]["high"] if rung["words"] else None,
            "interval": rung["ratio"]["interval"],
            "time": units.time_ms(rung["time_ms"]),
            "n": rung["n"],
            "parts": len(rung["parts"]),
        }
        for rung in answer["rungs"]
    ]
    return pd.DataFrame(rows).astype({"ratio": float, "low": float, "high": float})


def ladder_base(answer: Answer) -> str:
    return f"{answer['precision'].upper() if answer['precision'] != 'default' else 'default'}, nothing taken away"


def ladder_conditions(answer: Answer, work: str) -> str:
    kinds = sorted({rung["ratio"]["interval"] for rung in answer["rungs"][1:] if rung["ratio"]["interval"]})
    interval = f"95 % intervals {' or '.join(kinds)}" if kinds else "no interval"
    line = "; dashed line: the single rungs multiplied" if answer["alone"] else ""
    return f"one board, {theme.short_name(answer['gpu'])}; {work}; measured; {interval}{line}"


def ladder_table(answer: Answer) -> pd.DataFrame:
    rungs = ladder_rungs(answer)
    return pd.DataFrame(
        {
            "taken away": rungs["label"],
            "times as long": [units.ratio(value) for value in rungs["ratio"]],
            "interval": [
                units.ratio_interval(number(low), number(high))
                for low, high in zip(rungs["low"], rungs["high"], strict=True)
            ],
            "median time": rungs["time"],
            "n": rungs["n"],
            "run": [rung["run_id"] for rung in answer["rungs"]],
        }
    )


# --- floors ----------------------------------------------------------------------------------------------------------


def floor_rows(answer: Answer) -> pd.DataFrame:
    return pd.DataFrame(answer["rows"], columns=["name", "stage", "measured_ms", "floor_ms", "bound_by", "share"])


def floor_conditions(answer: Answer) -> str:
    pass_ = "kernel time of one profiled pass" if answer["what"] == "operations" else "median of repetitions"
    left = answer["left_out"]
    rest = f"; {units.percent(left)} of the time has no known work and is left out" if left and left > 0.005 else ""
    return (
        f"{theme.short_name(answer['gpu'])}, {answer['workload']}, {answer['precision']}; {pass_}; area is the share "
        f"of the time; launches have no ceiling on a data sheet{rest}"
    )


def floor_table(answer: Answer) -> pd.DataFrame:
    rows = floor_rows(answer)
    return pd.DataFrame(
        {
            "name": rows["name"],
            "stage": rows["stage"].fillna("").str.replace("_", " "),
            "measured": [units.time_ms(value) for value in rows["measured_ms"]],
            "least": [units.time_ms(value) for value in rows["floor_ms"]],
            "ratio": [units.ratio(a / b) for a, b in zip(rows["measured_ms"], rows["floor_ms"], strict=True)],
            "bound by": rows["bound_by"],
            "share": [units.percent(value) for value in rows["share"]],
        }
    )


# --- energy and money ------------------------------------------------------------------------------------------------


def energy_rows(answer: Answer) -> pd.DataFrame:
    """Joules per clip for `value.amount_bars`, least first, devices without a valid reading last."""
    return _amounts(
        answer,
        "energy_j",
        lambda row: units.joule(row["energy_j"]) if row["energy_j"] is not None else str(row["energy_missing"]),
        lambda row: f"{units.watt(row['power_w'])} while timed" if row["power_w"] is not None else "",
    )


def money_rows(answer: Answer) -> pd.DataFrame:
    """Money for 1000 clips, least first; a device without a price says so."""
    return _amounts(
        answer,
        "cost_per_1000",
        lambda row: "no price typed in" if row["cost_per_1000"] is None else units.significant(row["cost_per_1000"]),
        lambda row: f"{units.significant(row['price_per_hour'])} per hour" if row["price_per_hour"] else "",
    )


def _amounts(answer: Answer, name: str, text: Any, detail: Any) -> pd.DataFrame:
    rows = [
        {
            "label": row["gpu"], "gpu_key": row["gpu_key"], "amount": row[name], "text": text(row),
            "detail": f"{detail(row)}; {units.time_ms(row['median_ms'])} per clip, n {row['n']}".removeprefix("; "),
        }
        for row in answer["rows"]
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["label", "gpu_key", "amount", "text", "detail"]).astype({"amount": float})
    return frame.sort_values("amount", na_position="last", kind="stable").reset_index(drop=True)


def amount_finding(rows: pd.DataFrame, what: str) -> str:
    """Who needs least, and how much more the one that needs most does."""
    known = rows.dropna(subset=["amount"])
    if known.empty:
        return f"No {what} is known"
    first, last = known.iloc[0], known.iloc[-1]
    name = theme.short_name(first["label"])
    if len(known) == 1:
        return f"{name}: {first['text']}"
    ratio = units.ratio(last["amount"] / first["amount"])
    return f"{name} needs least, {first['text']}; {theme.short_name(last['label'])} {ratio} as much"


def value_table(answer: Answer) -> pd.DataFrame:
    """All of it as numbers."""
    return pd.DataFrame(
        [
            {
                "GPU": row["gpu"],
                "median time": units.time_ms(row["median_ms"]),
                "energy per clip": units.joule(row["energy_j"]) if row["energy_j"] is not None else units.MISSING,
                "why none": row["energy_missing"] or "",
                "clips per second per watt": quantity(row["clips_per_joule"], "").strip(),
                "power while timed": units.watt(row["power_w"]),
                "price per hour": units.significant(row["price_per_hour"]),
                "cost of 1000 clips": units.significant(row["cost_per_1000"]),
                "clips per unit of money": units.significant(row["clips_per_unit"]),
                "n": row["n"],
                "boards": row["boards"],
                "run": row["run_id"],
            }
            for row in answer["rows"]
        ]
    )
