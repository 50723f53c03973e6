"""The estimates of articles, as rows with their source."""
from __future__ import annotations

import pytest

from core.analysis.classic import classic_estimates
from core.gpus import catalogue


def rows(baseline: str, target: str) -> dict[str, float]:
    cards = catalogue()
    return {estimate.name: estimate.value for estimate in classic_estimates(cards[baseline], cards[target])}


def test_the_bandwidth_argument_and_its_corrections_for_v100_and_a100() -> None:
    found = rows("v100-sxm2-16gb", "a100-sxm4-40gb")
    assert found["memory bandwidth"] == pytest.approx(1.73, abs=0.005)
    assert 1.78 <= found["bandwidth with shared memory and L1"] <= 1.87
    assert found["de-biased for batch and GPU count, language"] == 1.70
    assert found['"32-bit" as TF32 on the A100 SXM4 40GB, FP32 on the Tesla V100 SXM2 16GB'] == pytest.approx(
        156 / 15.7, rel=0.01)


def test_the_founding_pair_has_bandwidth_mixed_32_bit_and_a_whole_model() -> None:
    found = rows("t4", "a100-pcie-40gb")
    assert found["memory bandwidth"] == pytest.approx(4.86, abs=0.005)
    assert found['"32-bit" as TF32 on the A100 PCIe 40GB, FP32 on the Tesla T4'] == pytest.approx(19.3, abs=0.05)
    assert found["a whole language model (BERT-large) in FP32"] == pytest.approx(3.56, abs=0.01)


def test_swapping_the_cards_inverts_every_estimate() -> None:
    there, back = rows("v100-sxm2-16gb", "a100-sxm4-40gb"), rows("a100-sxm4-40gb", "v100-sxm2-16gb")
    for name, value in there.items():
        assert back[name] == pytest.approx(1 / value)


def test_one_card_or_none_has_no_estimate() -> None:
    assert rows("t4", "t4") == {}
    assert classic_estimates(None, catalogue()["t4"]) == []
