"""Figures that others published as pairs of cards on the same work. Nothing here is measured."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from core import units
from core.answers import sentences
from core.answers.json_values import records
from core.charts.tables.gap import short_label, theory_lines
from core.charts.tables.values import Answer
from core.gpus import catalogue

CONDITIONS = (
    "reported by others, hollow; target / baseline; no interval, n 1 each; long dash bandwidth, short dash arithmetic, "
    "both from data sheets"
)
"""What the reported bars are."""


def reported_pairs(reported: pd.DataFrame, answer_of: Callable[..., Answer]) -> list[Answer]:
    """Figures of one source and work on several cards, each against the slowest, as explanations of two numbers.

    `answer_of(baseline, target, precision=...)` is `core.answers.two.explain_two`. A precision is stated only when
    both sides say fp32. Each answer gets `work`, `source`.
    """
    known = reported[reported["gpu_key"].isin(catalogue())].dropna(subset=["seconds"])
    keys = ["tracker", "variant", "frames", "height", "width", "points_text", "batch", "source", "throughput_unit"]
    pairs = []
    for _, group in known.groupby(keys, dropna=False, sort=False):
        cards = group.drop_duplicates("gpu_key").sort_values("seconds", ascending=False)
        slowest = cards.iloc[0]
        for _, row in cards.iloc[1:].iterrows():
            fp32 = all(
                isinstance(text, str) and text.startswith("fp32") for text in (row["precision"], slowest["precision"])
            )
            pair = answer_of(
                f"{slowest['gpu_key']}={slowest['seconds']}s",
                f"{row['gpu_key']}={row['seconds']}s",
                precision="fp32" if fp32 else None,
            )
            pairs.append({**pair, "work": _reported_work(row), "source": str(row["source"])})
    return sorted(pairs, key=lambda pair: pair["measured_ratio"]["value"] or 0, reverse=True)


def _reported_work(row: pd.Series) -> str:
    parts = [
        str(row["tracker"]).removeprefix("unknown (").removesuffix(")"),
        f"{row['frames']} frames" if pd.notna(row["frames"]) and row["frames"] > 1 else "",
        f"{row['points_text']} points" if isinstance(row["points_text"], str) else "",
    ]
    return ", ".join(part for part in parts if part)


def reported_rows(pairs: list[Answer]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Reported pairs as bars and theory lines for `speedup.speedup_bars`; a bar is named by its pair and work."""
    rows, lines = [], []
    for pair in pairs:
        label = f"{short_label(pair['target'])} / {short_label(pair['baseline'])}\n{pair['work']}"
        rows.append(
            {
                "label": label,
                "gpu_key": pair["target"]["gpu_key"],
                "ratio": pair["measured_ratio"]["value"],
                "low": None,
                "high": None,
                "origin": "reported",
                "time": " / ".join(units.time_ms(pair[side]["seconds"] * 1e3) for side in ("target", "baseline")),
                "detail": f"reported, {sentences.VERDICT_WORDS[pair['verdict']]}",
                "interval": None,
                "n": 1,
                "boards": None,
                "verdict": sentences.VERDICT_WORDS[pair["verdict"]],
                "source": pair["source"],
            }
        )
        for line in records(theory_lines(pair)):
            shown = f"{line['name']} {units.ratio(line['ratio'])}"
            lines.append({"label": label, "kind": line["kind"], "name": shown, "ratio": line["ratio"]})
    frame = pd.DataFrame(rows).astype({"low": float, "high": float})
    return frame, pd.DataFrame(lines, columns=["label", "kind", "name", "ratio"])


def reported_finding(rows: pd.DataFrame) -> str:
    """The spread of the reported ratios."""
    return (
        f"Reported: from {units.ratio(rows['ratio'].min())} to {units.ratio(rows['ratio'].max())} between two cards on "
        "the same work"
    )


def reported_pair_table(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "pair and work": rows["label"].str.replace("\n", ": "),
            "ratio": [units.ratio(value) for value in rows["ratio"]],
            "times": rows["time"],
            "verdict": rows["verdict"],
            "origin": rows["origin"],
            "source": rows["source"],
        }
    )
