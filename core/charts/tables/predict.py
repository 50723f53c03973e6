"""A prediction as tables: options, stages, operations, back-test; the finding over each chart."""

from __future__ import annotations

import pandas as pd

from core import units
from core.answers import sentences
from core.answers.json_values import records
from core.answers.predict import back_test_points
from core.charts.tables.values import Answer
from core.charts.theme import short_name

SITUATION_WORDS = {
    "measured": "both cards are in the timing data",
    "ceilings": "the card was left out, its measured ceilings known",
    "spec": "the card was left out, its data sheet alone known",
}
CLASS_WORDS = {
    "all": "all operations", "matmul": "matrix products", "conv": "3x3 convolutions", "softmax": "softmax",
    "layer_norm": "layer norm", "elementwise": "element-wise",
}  # fmt: skip


def option_rows(answer: Answer) -> pd.DataFrame:
    """The work itself and what would change it, for `predict.options_chart`; what does not fit is left out."""
    asked = {
        "name": f"as measured, {answer['workload']['precision']}", "asked": True,
        **{name: answer[name] for name in ("predicted_ms", "low_ms", "high_ms")},
    }  # fmt: skip
    others = [
        {"name": row["change"], "asked": False, **{name: row[name] for name in ("predicted_ms", "low_ms", "high_ms")}}
        for row in answer["alternatives"]
        if row["fits"] is not False
    ]
    rows = pd.DataFrame([asked, *others])
    unit = units.time_unit(list(rows["predicted_ms"]))
    rows["text"] = [units.time_ms(value, unit) for value in rows["predicted_ms"]]
    return rows


def option_finding(answer: Answer) -> str:
    """The change that saves most, as a title."""
    faster = [row for row in answer["alternatives"] if row["ratio"] < 0.95 and row["fits"] is not False]
    if not faster:
        return "No stored alternative is predicted to be faster"
    best = min(faster, key=lambda row: row["ratio"])
    change = best["change"][:1].upper() + best["change"][1:]
    return f"{change} is predicted to take {units.ratio(best['ratio'])} the time"


def option_table(answer: Answer) -> pd.DataFrame:
    rows = option_rows(answer)
    unit = units.time_unit(list(rows["predicted_ms"]))
    itself = {
        "change": rows["name"][0], **{name: answer[name] for name in ("predicted_ms", "low_ms", "high_ms")},
        "ratio": 1.0, "fits": answer["memory"]["fits"], "how": "model",
    }  # fmt: skip
    return pd.DataFrame(
        [
            {
                "change": row["change"], "predicted": units.time_ms(row["predicted_ms"], unit),
                "95 % band": units.time_interval_ms(row["low_ms"], row["high_ms"], unit),
                "against the work itself": units.ratio(row["ratio"]),
                "fits": "unknown" if row["fits"] is None else "yes" if row["fits"] else "no",
                "from": "its operations" if row["how"] == "model" else "the measured ratio of the sizes",
            }
            for row in [itself, *answer["alternatives"]]
        ]
    )  # fmt: skip


def stage_rows(answer: Answer) -> pd.DataFrame:
    """Kernel time per stage on both cards, for `gap.stage_chart`; ratio above 1 where the target takes longer."""
    return pd.DataFrame(
        [
            {
                "name": row["name"], "baseline_ms": row["source_ms"], "target_ms": row["predicted_ms"],
                "ratio": row["predicted_ms"] / row["source_ms"] if row["source_ms"] else None,
            }
            for row in answer["totals"]["by_stage"]
        ],
        columns=["name", "baseline_ms", "target_ms", "ratio"],
    )  # fmt: skip


def stage_finding(answer: Answer) -> str:
    stages = answer["totals"]["by_stage"]
    if not stages:
        return "No stage has operations with times"
    first, total = stages[0], sum(row["predicted_ms"] for row in stages)
    name, share = first["name"].replace("_", " "), units.percent(first["predicted_ms"] / total)
    return f"{sentences.capital(name)} takes {share} of the predicted kernel time"


def side_names(answer: Answer) -> tuple[str, str]:
    return short_name(answer["source"]["label"]), f"{short_name(answer['target']['label'])} (predicted)"


def op_table(answer: Answer) -> pd.DataFrame:
    """The operations, longest first: time on the source, predicted, band."""
    columns = ["op", "stage", "shapes", "dtype", "calls", "source_ms", "predicted_ms", "low_ms", "high_ms"]
    rows = pd.DataFrame(answer["ops"], columns=columns)
    return rows.assign(shapes=rows["shapes"].astype(str)).rename(columns={
        "source_ms": "measured, ms", "predicted_ms": "predicted, ms", "low_ms": "low, ms", "high_ms": "high, ms",
    })  # fmt: skip


def back_test_rows(situation: str) -> pd.DataFrame:
    """The sampled points of one situation, for `predict.back_test_scatter`."""
    points = back_test_points()
    points = points[points["situation"] == situation].reset_index(drop=True)
    points["inside"] = (points["true_ms"] >= points["low_ms"]) & (points["true_ms"] <= points["high_ms"])
    points["said"] = [
        f"{CLASS_WORDS.get(row['op_class'], row['op_class'])}, {row['source']} to {row['target']}: predicted "
        f"{units.time_ms(row['predicted_ms'])}, true {units.time_ms(row['true_ms'])}"
        for row in records(points)
    ]
    return points


def back_test_finding(answer: Answer) -> str:
    """The error of the hardest class in the title; the headline tells every class."""
    back = answer["backtest"]
    products = units.percent(back["by_class"]["matmul"]["median_error"])
    return (f"Back-test: products off by {products} (median), {units.percent(back['inside_band'])} of all times in "
            "their band")


def back_test_conditions(answer: Answer) -> str:
    back = answer["backtest"]
    words = SITUATION_WORDS[answer["target"]["situation"]]
    return (
        f"{words}; {units.count(back['n'])} FP32 operations, a sample drawn; crosses lie outside their band; "
        f"median high / low {back['band_width']:.2f}; sitar-lab/NeuSight timings"
    )


def back_test_table(answer: Answer) -> pd.DataFrame:
    """Error, band and count of every situation and class."""
    return pd.DataFrame(
        [
            {
                "situation": SITUATION_WORDS[row["situation"]],
                "operations": CLASS_WORDS.get(row["op_class"], row["op_class"]),
                "n": row["n"], "median error": units.percent(row["median_error"]),
                "90 % are below": units.percent(row["p90_error"]), "inside the band": units.percent(row["inside_band"]),
                "median high / low": f"{row['band_width']:.2f}",
            }
            for row in answer["backtest"]["rows"]
        ]
    )  # fmt: skip
