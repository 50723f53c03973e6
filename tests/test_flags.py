"""Medians with and without flagged samples: nothing is deleted, both are told."""
from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.analysis.flags import flagged_samples
from core.records.clock_events import HW_THERMAL, IDLE, POWER_CAP, THROTTLED

MAX_MHZ = 2000.0


def test_a_throttled_sample_is_kept_in_the_first_median_and_left_out_of_the_second() -> None:
    found = flagged_samples([10.0, 10.0, 20.0, 20.0, 20.0], MAX_MHZ, [0, 0, HW_THERMAL, HW_THERMAL, HW_THERMAL])
    assert (found.median, found.median_without, found.n, found.n_flagged) == (20.0, 10.0, 5, 3)
    assert (found.throttled, found.starved) == (3, 0)
    assert found.told == "3 throttled of 5 samples (thermal 3); without them the median is -50.0%."


def test_starved_samples_are_told_apart_from_throttled_ones() -> None:
    found = flagged_samples(
        [10.0, 12.0, 14.0], MAX_MHZ, [0, IDLE, POWER_CAP], [1990.0, 345.0, 1200.0], utilization_percent=[90, 3, 99],
    )
    assert found.flags == (None, "starved", "power_cap")
    assert (found.throttled, found.starved) == (1, 1)


def test_where_every_sample_is_flagged_there_is_no_second_median() -> None:
    found = flagged_samples([10.0, 11.0], MAX_MHZ, [HW_THERMAL, HW_THERMAL])
    assert (found.median, found.median_without) == (10.5, None)
    assert found.told is not None
    assert "none is left" in found.told


def test_without_telemetry_nothing_is_flagged_and_both_medians_agree() -> None:
    found = flagged_samples([10.0, 11.0, 12.0], None)
    assert (found.flags, found.median, found.median_without, found.told) == ((None,) * 3, 11.0, 11.0, None)
    assert flagged_samples([], None).median is None


def test_nan_of_a_table_is_a_value_that_was_not_read() -> None:
    bits = np.array([np.nan, float(HW_THERMAL)])
    assert flagged_samples([1.0, 2.0], math.nan, bits).flags == (None, "thermal")
    assert flagged_samples([1.0, 2.0], MAX_MHZ, None, [1500.0, 1500.0], [69.0, 30.0], 70.0,
                           [99.0, 99.0]).flags == ("power_cap", "slow_clock")


def test_a_column_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a column of 1 values beside 2 samples"):
        flagged_samples([1.0, 2.0], MAX_MHZ, [0])


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.integers(0, 0x1FF), st.floats(100, 2000)), min_size=1, max_size=30))
def test_every_sample_is_counted_once_and_the_first_median_never_depends_on_flags(
    rows: list[tuple[float, int, float]],
) -> None:
    wall, bits, clocks = zip(*rows, strict=True)
    found = flagged_samples(wall, MAX_MHZ, bits, clocks)
    assert len(found.flags) == found.n == len(rows)
    assert sum(found.counts.values()) == found.n_flagged == found.throttled + found.starved
    assert found.median == pytest.approx(float(np.median(wall)))
    if any(bit & HW_THERMAL for bit in bits):
        assert any(flag in THROTTLED for flag in found.flags)
