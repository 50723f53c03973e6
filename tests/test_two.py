"""Two numbers of a forum: reading them, and the explanation."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.analysis.verdict import VERDICTS
from core.answers import sentences
from core.answers.two import explain_two, parse_two
from core.errors import UserError

CASES = json.loads((Path(__file__).parent / "data" / "two_cases.json").read_text())
EXPLAIN_KEYS = {
    "measured_ratio", "expected", "norm", "verdict", "factors", "residual", "findings", "not_comparable_because",
    "assumptions", "headline", "stages", "op_diff", "n", "other_cells",
}  # fmt: skip


def answer(two: list[str], args: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(args[::2], args[1::2], strict=True)
    }
    return explain_two(*two, **facts)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_reported_case_gets_an_accepted_verdict(case: dict[str, Any]) -> None:
    try:
        found = answer(case["two"], case["args"])["verdict"]
    except UserError:
        found = "ERROR"
    assert found in case["ok"]


# --- the founding pair


def test_the_founding_pair() -> None:
    found = explain_two("Tesla T4=85s", "NVIDIA A100-SXM4-40GB=0.5s", precision="fp32")
    assert found["measured_ratio"] == {"value": 170.0, "low": None, "high": None}
    assert round(found["expected"]["bandwidth"], 2) == 4.86
    assert round(found["expected"]["fp32"], 2) == 2.41
    assert found["expected"]["executed_precision"] == found["expected"]["fp32"]
    assert round(found["expected"]["measured_ceilings"]["bandwidth"], 2) == 6.28
    assert found["expected"]["roofline"] is None
    assert found["verdict"] == "beyond_hardware"
    assert found["norm"]["max"] == pytest.approx(15.2, abs=0.05)
    assert "all FP32 op classes, unweighted" in found["norm"]["source"]
    assert found["headline"] == (
        "The Tesla T4 took 170x as long as the A100 SXM4 40GB. "
        "Bandwidth says 4.86x and FP32 2.41x (19.3x if TF32 was on); "
        "of 50\u2009282 healthy FP32 operations timed on these two chips none exceeded 15.2x, "
        "so hardware alone does not explain it."
    )
    assert [(r["name"], round(r["ratio"], 1), r["verdict"]) for r in found["readings"]] == [
        ("default", 19.3, "beyond_hardware"),
        ("tf32", 19.3, "beyond_hardware"),
    ]


def test_the_answer_has_every_key_of_an_explanation_and_is_json() -> None:
    for two in (["T4=85s", "A100=0.5s"], ["T4=85s", "A100=1 FPS"]):
        found = explain_two(*two)
        assert found.keys() >= EXPLAIN_KEYS
        assert found["measured_ratio"].keys() == {"value", "low", "high"}
        assert found["expected"].keys() >= {"bandwidth", "fp32", "executed_precision", "measured_ceilings", "roofline"}
        json.dumps(found, allow_nan=False)


def test_another_reading_of_fp32_that_changes_the_verdict_is_told() -> None:
    found = explain_two("T4=18s", "A100=1s", precision="fp32")
    assert found["verdict"] == "beyond_hardware"
    assert found["headline"].endswith(
        "If TF32 was on, 19.3x would be hardware and the verdict as expected: read the flags back first."
    )


def test_swapping_the_sides_inverts_the_ratio_and_keeps_the_sentence() -> None:
    there = explain_two("T4=85s", "A100=0.5s", precision="fp32")
    back = explain_two("A100=0.5s", "T4=85s", precision="fp32")
    assert back["measured_ratio"]["value"] == pytest.approx(1 / 170)
    assert back["verdict"] == there["verdict"]
    assert back["headline"].split(";")[0] == there["headline"].split(";")[0]
    assert "none took over 15.2x as long on the Tesla T4" in back["headline"]


# --- figures


@pytest.mark.parametrize(
    ("text", "kind", "item", "seconds"),
    [
        ("T4=85s", "time", None, 85),
        ("T4= 85 s ", "time", None, 85),
        ("T4=500ms", "time", None, 0.5),
        ("T4=250 us", "time", None, 250e-6),
        ("T4=250 µs", "time", None, 250e-6),
        ("T4=3min", "time", None, 180),
        ("T4=1.5 h", "time", None, 5400),
        ("T4=1e-3 s", "time", None, 1e-3),
        ("T4=.5s", "time", None, 0.5),
        ("T4=8 FPS", "per_item", "frame", 1 / 8),
        ("T4=8 frames/s", "per_item", "frame", 1 / 8),
        ("T4=8 frames per second", "per_item", "frame", 1 / 8),
        ("T4=15.43 infer/s", "per_item", "inference", 1 / 15.43),
        ("T4=265 img/s", "per_item", "image", 1 / 265),
        ("T4=20 s/epoch", "per_item", "epoch", 20),
        ("T4=20 ms/step", "per_item", "step", 0.02),
        ("T4=71 tok/s", "per_item", "token", 1 / 71),
        ("T4=4 it/min", "per_item", "iteration", 15),
        ("T4=2x", "realtime", None, 1 / 2),
        ("T4=50 TFLOPS", "tflops", None, 1 / 50),
    ],
)
def test_a_figure_is_read_in_any_usual_unit(text: str, kind: str, item: str | None, seconds: float) -> None:
    claim = parse_two(text)
    assert (claim.kind, claim.item) == (kind, item)
    assert claim.seconds == pytest.approx(seconds)
    assert claim.match.gpu.key == "t4"


def test_a_slower_target_loses_and_a_faster_one_gains() -> None:
    assert explain_two("TITAN RTX=30 FPS", "AGX Orin 64GB=4 FPS", precision="fp32")["headline"].endswith(
        "so the Jetson AGX Orin 64GB loses more than the hardware explains."
    )
    faster = explain_two("8x V100=15min", "8x A100=6min", precision="fp32")["headline"]
    assert "so 8x A100 SXM4 40GB gains more than the hardware explains" in faster


def test_tf32_is_not_told_twice_where_it_changes_nothing() -> None:
    said = explain_two("RTX 3090=2.75s", "RTX 4090=1.46s", precision="fp32")["headline"]
    assert "Bandwidth says 1.08x and FP32 2.32x with TF32 on or off, so this is what the hardware allows." in said


@pytest.mark.parametrize(
    "text",
    [
        "T4=-1s", "T4=0s", "T4=nan s", "T4=inf s", "T4=1e999 s", "T4=1e-330 s", "T4=1 banana", "T4=85", "T4=", "T4", "",
        "=85s", "T4=1,234 s", "T4=1,5s", "T4=s", "T4=5 s/s", "T4=5 m", "T4=5 /s", "T4=1e308 h", "RTX 9999=1s", "cpu=1s",
        "RTX 3050 Laptop=1s", "0x T4=1s", "T4=0x", "T4=5 s/3",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_two(text)
    assert "\n" not in str(caught.value)


def test_a_card_without_a_data_sheet_asks_for_three_numbers() -> None:
    with pytest.raises(UserError, match="needs three numbers"):
        parse_two("RTX 9999=1s")


def test_rates_count_the_other_way_round() -> None:
    assert explain_two("T4=10 FPS", "A100=50 FPS")["measured_ratio"]["value"] == pytest.approx(5)
    assert explain_two("T4=10 TFLOPS", "A100=50 TFLOPS")["measured_ratio"]["value"] == pytest.approx(5)
    assert explain_two("T4=0.5x", "A100=2x")["measured_ratio"]["value"] == pytest.approx(4)
    assert explain_two("T4=2 s/it", "A100=2 it/s")["measured_ratio"]["value"] == pytest.approx(4)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_any_two_times_get_a_verdict_and_a_sentence(a: float, b: float) -> None:
    found = explain_two(f"T4={a!r}s", f"L4={b!r}s")
    assert found["verdict"] in VERDICTS
    assert found["measured_ratio"]["value"] == pytest.approx(a / b)
    assert found["headline"].endswith(".")
    assert "nan" not in found["headline"]


# --- facts and comparability


@pytest.mark.parametrize(
    ("two", "facts", "because"),
    [
        (("T4=3s", "A100=1 FPS"), {}, "a time of a whole run, the other a rate per frame"),
        (("T4=3 s/epoch", "A100=1 s/step"), {}, "per epoch"),
        (("2x T4=3s", "T4=1s"), {}, "the numbers of GPUs differ (2 on the one side, 1 on the other)"),
        (("T4=3s", "A100=1s"), {"baseline_precision": "fp32"}, "add --target-precision"),
        (("T4=3s", "A100=1s"), {"baseline_batch": 1, "target_batch": 8}, "batch 1 on the one side, 8 on the other"),
        (("T4=3s", "A100=1s"), {"baseline_points": "64", "target_points": "256"}, "points 64"),
        (("T4=3s", "A100=1s"), {"baseline_first_call": "yes"}, "figure of the baseline includes the first call"),
    ],
)
def test_figures_of_other_work_are_not_compared(two: tuple[str, str], facts: dict[str, Any], because: str) -> None:
    found = explain_two(*two, **facts)
    assert found["verdict"] == "not_comparable"
    assert found["measured_ratio"]["value"] is None
    assert any(because in reason for reason in found["not_comparable_because"])
    assert because in found["headline"]


@pytest.mark.parametrize(
    ("two", "facts", "assumed"),
    [
        (("8x V100=15min", "8x A100=60min"), {}, "8 GPUs on both sides: the ratio includes scaling."),
        (("T4=3s", "A100-SXM4-40GB=1s"), {}, "Precision not stated"),
        (("T4=3s", "A100=1s"), {}, '"A100" is read as A100 SXM4 40GB'),
        (("T4=3s", "A100=1s"), {"baseline_batch": 4}, "batch 4 is stated for one side only"),
        (("T4=3s", "A100=1s"), {"baseline_os": "Windows", "target_os": "Linux"}, "Windows against Linux"),
        (("T4=3s", "A100=1s"), {"first_call": True}, "Both figures include the first call"),
        (("T4=3s", "A100=1s"), {"precision": "bf16"}, "emulated"),
        (("T4=3s", "A100=1s"), {"precision": "tf32"}, "The Tesla T4 has no TF32"),
        (("T4=3s", "A100=1s"), {"precision": "fp32"}, "whether TF32 was on is not known"),
        (("T4=3s", "A100=1s"), {}, "The norm is of FP32 operations"),
    ],
)
def test_what_is_assumed_is_said(two: tuple[str, str], facts: dict[str, Any], assumed: str) -> None:
    found = explain_two(*two, **facts)
    assert found["verdict"] != "not_comparable"
    assert any(assumed in sentence for sentence in found["assumptions"])


def test_a_fact_of_one_side_wins_over_the_fact_of_both() -> None:
    found = explain_two("A100=0.11s", "A100=0.016s", precision="fp32", target_precision="tf32")
    assert (found["baseline"]["precision"], found["target"]["precision"]) == ("fp32", "tf32")
    assert found["expected"]["executed_precision"] == 8
    assert "in FP32 took 6.88x as long as the A100 SXM4 40GB in TF32" in found["headline"]


@pytest.mark.parametrize("precision", ["fp64", "fp8", "int8", "half", "BF16", "float32"])
def test_more_precisions_and_their_usual_names_are_known(precision: str) -> None:
    assert explain_two("H100=3s", "H200=1s", precision=precision)["verdict"] in VERDICTS


@pytest.mark.parametrize(
    "facts", [{"precision": "fp12"}, {"batch": 0}, {"batch": "many"}, {"points": -3}, {"first_call": "maybe"}]
)
def test_a_fact_that_cannot_be_read_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        explain_two("T4=3s", "A100=1s", **facts)


def test_a_norm_needs_one_gpu_and_fp32_on_both_sides() -> None:
    assert explain_two("T4=3s", "A100=1s")["norm"] is not None
    assert explain_two("T4=3s", "A100=1s", precision="fp16")["norm"] is None
    assert explain_two("2x T4=3s", "2x A100=1s")["norm"] is None
    assert explain_two("T4=3s", "H200=1s")["norm"] is None
    assert explain_two("T4=3s", "A100=1s", baseline_precision="fp32", target_precision="tf32")["norm"] is None


# --- sentences


def test_every_verdict_has_a_word_and_a_meaning() -> None:
    assert set(sentences.VERDICT_WORDS) == set(sentences.VERDICT_MEANINGS) == set(VERDICTS)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (170, "The T4 took 170x as long as the A100"),
        (1 / 3, "The A100 took 3.00x as long as the T4"),
        (1.001, "The T4 and the A100 took equally long"),
    ],
)
def test_the_slower_side_is_the_subject(ratio: float, text: str) -> None:
    assert sentences.took("T4", "A100", ratio) == text


def test_an_interval_is_told_the_way_round_of_the_sentence() -> None:
    assert sentences.interval(4.0, 3.9, 4.1) == " (3.90x to 4.10x)"
    assert sentences.interval(0.25, 0.2, 0.5) == " (2.00x to 5.00x)"
    assert sentences.interval(4.0, None, None) == ""


def test_a_measured_run_uses_the_same_sentences() -> None:
    readings = [
        {"name": "bandwidth", "ratio": 1.0, "in_verdict": True},
        {"name": "fp32/tf32", "ratio": 7.38, "in_verdict": True},
    ]
    text = sentences.headline(
        "H200 SXM 141GB in FP32", "H200 SXM 141GB in TF32", 2.5, readings, "as_expected", "within", 2.45, 2.55
    )
    assert text == (
        "The H200 SXM 141GB in FP32 took 2.50x as long as the H200 SXM 141GB in TF32 (2.45x to 2.55x). "
        "Bandwidth says 1.00x and TF32 against FP32 7.38x, so this is what the hardware allows."
    )
    silent = sentences.headline("Xeon", "H200 SXM 141GB", 90.0, [], "undecided", "no_theory")
    assert silent.endswith("as the H200 SXM 141GB. No data sheet covers both sides, so theory has no say.")
