"""One formatter per unit: what a number looks like."""
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.8594, "4.86"),
        (15.2, "15.2"),
        (170.0, "170"),
        (1555.0, "1\u2009555"),
        (43286.4, "43\u2009286"),
        (0.0123, "0.0123"),
        (9.996, "10.0"),
        (99.96, "100"),
        (0, "0"),
        (-4.8594, "-4.86"),
    ],
)
def test_three_significant_digits_and_no_lost_integer_digit(value: float, text: str) -> None:
    assert units.significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.859375, "4.86x"), (170.0, "170x"), (1 / 3, "0.33x"), (0.012, "0.012x"), (1.0, "1.00x"), (0.997, "1.00x")],
)
def test_ratios(value: float, text: str) -> None:
    assert units.ratio(value) == text


def test_intervals() -> None:
    assert units.ratio_interval(4.6, 5.1) == "4.60x to 5.10x"
    assert units.ratio_interval(None, 5.1) == units.MISSING
    assert units.time_interval_ms(4.9, 5.1) == "4.90 ms to 5.10 ms"
    assert units.time_interval_ms(900, 1100) == "0.900 s to 1.10 s"


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [
        (0.025, "25.0 µs"),
        (0.5, "500 µs"),
        (1.0, "1.00 ms"),
        (500.0, "500 ms"),
        (85_000.0, "85.0 s"),
        (5.4e6, "5\u2009400 s"),
    ],
)
def test_a_time_chooses_its_unit(value_ms: float, text: str) -> None:
    assert units.time_ms(value_ms) == text


def test_a_chart_has_one_time_unit_for_all_marks() -> None:
    assert units.time_unit([0.02, 900.0, 85_000.0]) == "ms"
    assert units.time_unit([None, float("nan")]) == "ms"
    assert units.time_ms(85_000.0, "ms") == "85\u2009000 ms"
    assert units.time_value(1500.0, "s") == 1.5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.percent(0.0731), "7.3 %"),
        (units.percent(0.999), "99.9 %"),
        (units.percent(1.0), "100 %"),
        (units.percent(0.0008), "0.080 %"),
        (units.bytes_size(16_106_127_360), "15.0 GiB"),
        (units.bytes_size(512), "512 B"),
        (units.flops(1.234e12), "1.23 TFLOP"),
        (units.flops(12), "12 FLOP"),
        (units.gb_s(320), "320 GB/s"),
        (units.tflops(8.1), "8.10 TFLOP/s"),
        (units.mhz(1590), "1\u2009590 MHz"),
        (units.watt(70), "70.0 W"),
        (units.joule(12.34), "12.3 J"),
        (units.celsius(66), "66 °C"),
        (units.flop_per_byte(2.5), "2.50 FLOP/B"),
        (units.count(43286), "43\u2009286"),
        (units.duration(0.2), "1 s"),
        (units.duration(12.4), "12 s"),
        (units.duration(600), "10 min"),
        (units.duration(14692), "4.1 h"),
    ],
)
def test_units(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    "formatter",
    [
        units.significant, units.count, units.ratio, units.time_ms, units.percent, units.bytes_size, units.flops,
        units.gb_s, units.tflops, units.mhz, units.watt, units.joule, units.celsius, units.flop_per_byte,
        units.duration,
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_missing_value_is_a_dash_never_a_zero(formatter, value) -> None:
    assert formatter(value) == units.MISSING


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_what_is_shown_is_within_half_a_percent_of_the_value(value: float) -> None:
    assert float(units.significant(value).replace(units.THIN_SPACE, "")) == pytest.approx(value, rel=0.00501)
