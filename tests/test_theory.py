"""The ratios that two data sheets allow."""
from __future__ import annotations

import pytest

from core.analysis.theory import expected_ratios
from core.gpus import catalogue, unknown_card

CARDS = catalogue()
T4, A100 = CARDS["t4"], CARDS["a100-sxm4-40gb"]


def test_the_founding_pair_in_stated_fp32() -> None:
    expected = expected_ratios(T4, A100, "fp32", "fp32", reported=True)
    assert expected.bandwidth == pytest.approx(1555 / 320)  # 4.86
    assert expected.fp32 == pytest.approx(19.5 / 8.1)  # 2.41
    assert expected.executed_precision == expected.fp32
    assert sorted(expected.verdict_ratios) == pytest.approx([19.5 / 8.1, 1555 / 320])
    shown = {reading.name: reading for reading in expected.readings}
    assert shown["tf32"].ratio == pytest.approx(156 / 8.1)  # 19.3: the path of a reported "FP32" is not known
    assert shown["default"].ratio == pytest.approx(156 / 8.1)
    assert not shown["tf32"].in_verdict


def test_a_measured_fp32_needs_no_other_reading() -> None:
    names = [reading.name for reading in expected_ratios(T4, A100, "fp32", "fp32").readings]
    assert names == ["bandwidth", "fp32"]


def test_cards_without_tf32_leave_a_reported_fp32_no_other_path() -> None:
    names = [r.name for r in expected_ratios(T4, CARDS["v100-sxm2-16gb"], "fp32", "fp32", reported=True).readings]
    assert names == ["bandwidth", "fp32"]


def test_an_unknown_setting_allows_fp32_default_and_fp16() -> None:
    expected = expected_ratios(T4, A100)
    assert {r.name for r in expected.readings if r.in_verdict} == {"bandwidth", "fp32", "default", "fp16"}
    assert sorted(expected.verdict_ratios) == pytest.approx([19.5 / 8.1, 312 / 65, 1555 / 320, 156 / 8.1])
    assert expected.executed_precision is None


def test_settings_that_differ_give_the_ratio_of_their_own_peaks() -> None:
    expected = expected_ratios(A100, A100, "fp32", "tf32")
    assert expected.bandwidth == 1
    assert expected.executed_precision == pytest.approx(156 / 19.5)  # 8
    assert expected.fp32 == 1
    # measured on the same card with one tool: 155.55 against 19.1 TFLOP/s
    assert [r.ratio for r in expected.measured_ceilings] == pytest.approx([155.55 / 19.1])


def test_one_stated_precision_alone_gives_no_ratio() -> None:
    with pytest.raises(ValueError, match="not"):
        expected_ratios(T4, A100, "fp32", None)


def test_emulated_bf16_is_noted() -> None:
    expected = expected_ratios(T4, A100, "bf16", "bf16")
    assert expected.executed_precision == pytest.approx(312 / 8.1)
    assert any("emulated" in note for note in expected.notes)


def test_a_figure_that_nobody_prints_is_left_out_and_noted() -> None:
    expected = expected_ratios(CARDS["gb10"], CARDS["rtx-4090"], "fp16", "fp16")
    assert expected.executed_precision is None
    assert expected.verdict_ratios == pytest.approx((1008 / 273,))
    assert any("GB10" in note for note in expected.notes)


def test_measured_ceilings_compare_the_same_metric_by_the_same_tool() -> None:
    expected = expected_ratios(T4, A100)
    assert expected.measured_bandwidth == pytest.approx(1303.9 / 207.5)  # 6.28
    for reading in expected.measured_ceilings:
        assert reading.ratio == pytest.approx((reading.target_value or 0) / (reading.baseline_value or 1))
    assert not {"dram_bandwidth_copy"} & {r.name for r in expected.measured_ceilings}  # two different tools


def test_ratios_turn_over_when_the_sides_are_swapped() -> None:
    there, back = expected_ratios(T4, A100, "fp16", "fp16"), expected_ratios(A100, T4, "fp16", "fp16")
    assert there.bandwidth == pytest.approx(1 / (back.bandwidth or 0))
    assert there.executed_precision == pytest.approx(1 / (back.executed_precision or 0))


def test_each_value_names_its_source() -> None:
    for reading in expected_ratios(T4, A100).readings:
        assert reading.baseline_source
        assert reading.target_source


def test_a_side_without_a_data_sheet_has_no_theory() -> None:
    expected = expected_ratios(None, A100, "fp32", "fp32")
    assert expected.verdict_ratios == ()
    assert expected.as_dict()["bandwidth"] is None
    assert expected.as_dict()["measured_ceilings"] is None


def test_an_unknown_card_is_compared_by_what_its_driver_reports() -> None:
    card = unknown_card("NVIDIA H299", "9.0", 132, 1980, 3201, 6144)
    reading = expected_ratios(A100, card, "fp32", "fp32").readings[0]
    assert reading.ratio == pytest.approx(4916.7 / 1555, rel=1e-4)
    assert reading.target_source.startswith("assumed")
