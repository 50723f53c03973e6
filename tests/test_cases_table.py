"""Real reports of cross-GPU speeds: the verdict class is right, and nothing is asserted that nobody confirmed.

`data/two_cases.json` and `data/cases_a.json`: figures as the named public sources state them.
"""
from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from core.answers.two import explain_two
from core.errors import UserError

DATA = Path(__file__).parent / "data"
CASES = [case for name in ("two_cases.json", "cases_a.json") for case in json.loads((DATA / name).read_text())]


def explained(case: dict[str, Any]) -> dict[str, Any] | None:
    words = case["args"]
    facts: dict[str, Any] = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }
    try:
        return explain_two(*case["two"], **facts)
    except UserError:
        return None


ANSWERS = {case["id"]: explained(case) for case in CASES}


def verdict(case: dict[str, Any]) -> str:
    answer = ANSWERS[case["id"]]
    return "ERROR" if answer is None else str(answer["verdict"])


def test_at_least_95_percent_of_the_reports_get_a_right_verdict_class() -> None:
    wrong = {case["id"]: verdict(case) for case in CASES if verdict(case) not in case["ok"]}
    assert len(wrong) <= 0.05 * len(CASES), wrong
    assert not {case["id"] for case in CASES if case["id"] in ("A01", "A02")} & set(wrong)


def test_no_cause_of_a_reported_gap_is_more_than_possible() -> None:
    grades = {finding["evidence"] for answer in ANSWERS.values() if answer for finding in answer["findings"]}
    assert grades == {"possible"}


def test_what_follows_the_hardware_raises_no_alarm() -> None:
    for answer in ANSWERS.values():
        if answer and answer["verdict"] == "as_expected":
            assert (answer["findings"], answer["decide_next"]) == ([], None)


def test_what_does_not_follow_it_has_candidates_with_a_fix_and_a_command() -> None:
    for name, answer in ANSWERS.items():
        if answer is None or answer["verdict"] in ("as_expected", "not_comparable"):
            continue
        assert answer["findings"], name
        for finding in answer["findings"]:
            assert finding["fix"]
            assert finding["command"].startswith("python -m core ")
            assert finding["command"] in finding["decide_by"]
        assert answer["decide_next"]["command"] in {finding["command"] for finding in answer["findings"]}


@pytest.mark.parametrize("case", [case for case in CASES if "cause" in case], ids=lambda case: str(case["id"]))
def test_the_cause_that_was_found_in_the_end_is_among_the_candidates(case: dict[str, Any]) -> None:
    answer = ANSWERS[case["id"]]
    assert answer is not None
    assert case["cause"] in [finding["cause"] for finding in answer["findings"]]


def test_no_candidate_explains_more_than_its_bound_or_than_the_gap() -> None:
    for name, answer in ANSWERS.items():
        if answer is None or answer["measured_ratio"]["value"] is None:
            continue
        ratio, expected = answer["measured_ratio"]["value"], answer["expected"]
        for finding in answer["findings"]:
            slowed = finding["side"] == "baseline"
            most = finding["effect"]["high"] if slowed else 1 / finding["effect"]["low"]
            gap = ratio / expected["low"] if slowed else expected["high"] / ratio
            assert most <= gap * (1 + 1e-9), (name, finding["cause"])
            assert most >= 1.0
            if "thermal" in finding["cause"]:
                assert most <= 1.1


def test_the_founding_pair_has_its_figures_and_candidates_that_could_be_enough() -> None:
    answer = ANSWERS["A01"]
    assert answer is not None
    assert round(answer["expected"]["bandwidth"], 1) == 4.9
    assert any(reading["name"] == "tf32" and round(reading["ratio"]) == 19 for reading in answer["readings"])
    excess = answer["measured_ratio"]["value"] / answer["expected"]["high"]
    enough = [f["cause"] for f in answer["findings"] if f["effect"]["high"] >= excess - 1e-9]
    assert enough == ["first call inside the figure", "timer without synchronisation", "other work under one name",
                      "too little memory"]
    tf32 = next(f for f in answer["findings"] if f["cause"] == "TF32 on one side only")
    assert tf32["effect"]["high"] == pytest.approx(8)
    assert answer["decide_next"]["on"] == "Tesla T4"


def test_a_stated_fact_removes_a_candidate() -> None:
    def causes(**facts: Any) -> set[str]:
        return {finding["cause"] for finding in explain_two("T4=85s", "A100=0.5s", **facts)["findings"]}

    assert "first call inside the figure" in causes(precision="fp32")
    assert "first call inside the figure" not in causes(precision="fp32", first_call="no")
    assert "BF16 emulated" in causes()
    assert "BF16 emulated" not in causes(precision="fp32")
    assert "Windows driver" in causes(baseline_os="Windows 11", target_os="Linux")
    assert "Windows driver" not in causes(os="Linux")


def test_a_first_call_cannot_explain_hours() -> None:
    answer = explain_two("T4=100 h", "A100=1 h")
    first = [f for f in answer["findings"] if f["cause"] == "first call inside the figure"]
    assert first == [] or math.isclose(first[0]["effect"]["high"], 100 / 99.5)


def test_another_reading_of_an_ambiguous_name_is_listed_with_what_it_would_say() -> None:
    said = explain_two("T4=85s", "A100=0.5s", precision="fp32")["assumptions"]
    assert "With the A100 SXM4 80GB bandwidth would say 6.37x and FP32 2.41x." in said
