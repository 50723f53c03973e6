"""Where a measured ratio stands against theory."""
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.analysis.verdict import VERDICTS, verdict

RATIOS = st.floats(min_value=1e-3, max_value=1e3)
EXPECTED = st.lists(st.floats(min_value=0.05, max_value=50), min_size=1, max_size=5)
SWAPPED = {"faster_than_expected": "slower_than_expected", "slower_than_expected": "faster_than_expected"}


@pytest.mark.parametrize(
    ("ratio", "expected", "name"),
    [
        (170, [4.86, 2.41], "beyond_hardware"),
        (4.86, [4.86, 2.41], "as_expected"),
        (4.86 * 1.25, [4.86, 2.41], "as_expected"),  # the limit counts as inside
        (4.86 * 1.26, [4.86, 2.41], "faster_than_expected"),
        (4.86 * 3, [4.86, 2.41], "faster_than_expected"),
        (4.86 * 3.01, [4.86, 2.41], "beyond_hardware"),
        (2.41 / 1.25, [4.86, 2.41], "as_expected"),
        (1.9, [4.86, 2.41], "undecided"),  # launches may hide the difference
        (0.8, [4.86, 2.41], "undecided"),
        (0.79, [4.86, 2.41], "slower_than_expected"),  # inversion
        (0.001, [4.86, 2.41], "slower_than_expected"),  # an inversion is never beyond hardware
        (0.1, [0.5, 0.7], "beyond_hardware"),  # the baseline should win, and wins far too much
        (0.9, [0.5, 0.7], "undecided"),
        (1.25, [0.5, 0.7], "undecided"),
        (1.26, [0.5, 0.7], "faster_than_expected"),
        (1.0, [1.0], "as_expected"),
        (3.1, [1.0], "beyond_hardware"),
        (0.32, [1.0], "beyond_hardware"),
        (2.0, [1.0], "faster_than_expected"),
        (0.5, [1.0], "slower_than_expected"),
        (3.1, [0.8, 1.2], "faster_than_expected"),
        (0.1, [0.8, 1.2], "beyond_hardware"),
    ],
)
def test_the_verdict_of_one_value(ratio: float, expected: list[float], name: str) -> None:
    assert verdict(ratio, expected).name == name


def test_an_interval_that_covers_two_classes_is_undecided() -> None:
    found = verdict(6.0, [4.86, 2.41], low=5.5, high=6.5)  # the limit of as_expected is 6.075
    assert (found.name, found.reason) == ("undecided", "interval")
    assert verdict(5.5, [4.86, 2.41], low=5.4, high=5.6).name == "as_expected"


def test_an_interval_that_reaches_over_a_class_and_back_is_undecided() -> None:
    # E = {1.05}: below 0.8 slower, to 0.84 hidden, to 1.31 as expected, above faster
    assert verdict(1.0, [1.05], low=0.4, high=2.9).name == "undecided"
    # both ends are undecided by being hidden, as is the middle: no second class
    assert verdict(1.0, [4.86], low=0.9, high=1.2).reason == "hidden"


def test_an_inversion_is_named() -> None:
    assert verdict(1 / 3, [4.86, 2.41]).reason == "inverted"
    assert verdict(2.0, [0.5, 0.7]).reason == "inverted"


def test_without_theory_there_is_no_verdict() -> None:
    found = verdict(3.0, [])
    assert (found.name, found.reason, found.expected_low) == ("undecided", "no_theory", None)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_ratio_that_is_no_positive_number_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        verdict(bad, [1.0])
    with pytest.raises(ValueError, match="positive"):
        verdict(1.0, [bad])


@given(RATIOS, EXPECTED)
def test_swapping_the_sides_turns_faster_into_slower_and_keeps_the_rest(ratio: float, expected: list[float]) -> None:
    there = verdict(ratio, expected)
    back = verdict(1 / ratio, [1 / value for value in expected])
    assert there.name in VERDICTS
    assert back.name == SWAPPED.get(there.name, there.name)


@given(RATIOS, EXPECTED, st.floats(1, 4), st.floats(1, 4))
def test_swapping_keeps_the_rule_of_the_interval(ratio: float, expected: list[float], down: float, up: float) -> None:
    there = verdict(ratio, expected, ratio / down, ratio * up)
    back = verdict(1 / ratio, [1 / value for value in expected], 1 / (ratio * up), 1 / (ratio / down))
    assert back.name == SWAPPED.get(there.name, there.name)


@given(EXPECTED, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_an_interval_is_undecided_exactly_when_two_classes_lie_in_it(expected: list[float], a: float, b: float) -> None:
    low, high = min(a, b), max(a, b)
    middle = math.sqrt(low * high)
    found = verdict(middle, expected, low, high)
    steps = [low * (high / low) ** (i / 50) for i in range(51)]
    classes = {verdict(step, expected).name for step in steps}
    if len(classes) > 1:
        assert found.name == "undecided"
    elif found.reason != "interval":  # a sliver between two steps may hold another class
        assert found.name in classes


@given(EXPECTED, RATIOS)
def test_an_inversion_is_never_beyond_hardware(expected: list[float], ratio: float) -> None:
    if (min(expected) > 1 and ratio < 1) or (max(expected) < 1 and ratio > 1):
        assert verdict(ratio, expected).name != "beyond_hardware"
