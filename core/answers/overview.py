"""What the first page opens on: the founding pair explained, its norm strip, and what is measured and reported."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.analysis.norms import histogram
from core.answers.coverage import coverage
from core.answers.json_values import json_value
from core.answers.two import explain_two

if TYPE_CHECKING:
    from core.store import Store

FOUNDING_PAIR = ("Tesla T4=85s", "NVIDIA A100-SXM4-40GB=0.5s")
"""The two numbers that Gapscope was made for: 47 frames of 256x256, stated as FP32."""
FOUNDING_PRECISION = "fp32"


def founding() -> dict[str, Any]:
    """The founding pair explained. Needs no database."""
    return explain_two(*FOUNDING_PAIR, precision=FOUNDING_PRECISION)


def norm_strip(baseline_key: str | None, target_key: str | None) -> list[dict[str, Any]]:
    """The norm of a pair as a histogram: `ratio_low`, `ratio_high`, `count`; empty where there is none."""
    return json_value(histogram(baseline_key, target_key).to_dict("records"))


def overview(store: Store) -> dict[str, Any]:
    """`founding` (an explanation), `norm_strip`, `measured` (GPUs and CPUs with cells), `coverage`, `reported` rows."""
    from core.store import queries

    pair = founding()
    covered = coverage(store)
    return json_value({
        "founding": pair,
        "norm_strip": norm_strip(pair["baseline"]["gpu_key"], pair["target"]["gpu_key"]),
        "measured": covered["gpus"],
        "coverage": covered,
        "reported": queries.reported(store).to_dict("records"),
        "headline": pair["headline"],
    })
