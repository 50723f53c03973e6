"""The GPU catalogue, look-up by name, peaks by precision."""
from __future__ import annotations

import contextlib

import pytest

from core.errors import UserError
from core.gpus import (
    PRECISIONS,
    by_human_name,
    by_nvml_name,
    catalogue,
    measured_ceilings,
    peak_tflops,
    unknown_card,
    value_source,
)
from core.gpus.peaks import _RATE_OF_FIELD, FMA_PER_CLOCK_PER_SM

GIB = 2**30

LAPTOPS_WITH_A_DESKTOP_TWIN = [key for key, gpu in catalogue().items() if gpu.is_laptop and key != "rtx-a3000-laptop"]

# Printed figures that differ from SMs x rate x 2 x clock, with the reason.
EXPLAINED = {
    ("titan-v", "fp16_tensor_tflops_dense_fp32acc"),  # printed below the boost clock
    ("titan-v", "fp16_tensor_tflops_dense_fp16acc"),
    ("rtx-4000-ada", "fp8_tensor_tflops_dense"),  # the sheet contradicts its own FP32 figure
    ("b300", "fp64_tflops"),  # HGX table rounds to 10 for eight
    ("b300", "fp64_tensor_tflops_dense"),
    ("h800-sxm5-80gb", "fp64_tflops"),  # export cut
    ("h800-sxm5-80gb", "fp64_tensor_tflops_dense"),
    ("h800-pcie-80gb", "fp64_tflops"),
    ("h800-pcie-80gb", "fp64_tensor_tflops_dense"),
    ("h20", "fp32_tflops"),  # 44 needs 2.2 GHz, NVML's maximum is 1.98
    ("gb10", "fp32_tflops"),  # round figure of a talk
}


def test_every_row_is_read_with_its_types() -> None:
    cards = catalogue()
    assert len(cards) >= 149  # a new card is one more row
    t4 = cards["t4"]
    assert (t4.name, t4.sm_count, t4.memory_bandwidth_gb_s, t4.fp32_tflops) == ("Tesla T4", 40, 320.0, 8.1)
    assert t4.tf32_tensor_tflops_dense is None
    assert t4.supports_tf32 is False
    assert t4.derived_fields == ("fp64_tflops", "fp16_cuda_tflops")
    assert t4.launch_price_usd is None
    assert cards["b100"].sm_count is None


@pytest.mark.parametrize("key", list(catalogue()))
def test_printed_peaks_agree_with_rate_times_clock(key: str) -> None:
    gpu = catalogue()[key]
    rates = FMA_PER_CLOCK_PER_SM[gpu.compute_capability, gpu.tensor_rate_class]
    for field, rate_name in _RATE_OF_FIELD.items():
        printed, rate = getattr(gpu, field), getattr(rates, rate_name)
        if printed is None or rate is None or gpu.sm_count is None or (key, field) in EXPLAINED:
            continue
        at_boost_clock = _RATE_OF_FIELD[field] in ("fp32", "fp64", "fp16", "fp64_tensor") or rates.tensor_cores == 0
        clock_mhz = (None if at_boost_clock else gpu.tensor_boost_clock_mhz) or gpu.boost_clock_mhz
        if clock_mhz is None:
            continue  # boost clock unpublished
        assert gpu.sm_count * rate * 2 * clock_mhz / 1e6 == pytest.approx(printed, rel=0.031), field


def test_each_value_knows_its_source() -> None:
    t4 = catalogue()["t4"]
    assert value_source(t4, "memory_bandwidth_gb_s") == (
        "NVIDIA T4 product brief (5001 MHz, 256-bit, up to 320 GB/s); T4 datasheet (seen)"
    )
    assert value_source(t4, "fp64_tflops").startswith("computed")
    assert value_source(t4, "tf32_tensor_tflops_dense") == "not published"
    assert "recalled" in value_source(catalogue()["p4"], "memory_bandwidth_gb_s")
    with pytest.raises(KeyError):
        value_source(t4, "colour")


def test_measured_ceilings_of_a_card_and_of_none() -> None:
    lbm = [row for row in measured_ceilings("t4") if row.metric == "dram_bandwidth_lbm_effective"]
    assert [row.value for row in lbm] == [207.5]
    assert measured_ceilings("jetson-nano") == ()
    assert measured_ceilings(None) == ()


# --- a driver's name


@pytest.mark.parametrize("key", list(catalogue()))
def test_every_card_is_found_by_its_own_driver_name(key: str) -> None:
    gpu = catalogue()[key]
    memory_bytes = int((gpu.memory_gb or 0) * 0.95 * GIB)
    for name in gpu.nvml_name_examples:
        assert by_nvml_name(name, memory_bytes, gpu.sm_count) is gpu


@pytest.mark.parametrize(
    ("name", "memory_gib", "sm_count", "key"),
    [
        ("NVIDIA GeForce RTX 3080", 10, 68, "rtx-3080-10gb"),
        ("NVIDIA GeForce RTX 3080", 12, None, "rtx-3080-12gb"),
        ("Orin", None, 14, "jetson-agx-orin-32gb"),
        ("NVIDIA H200", 139.7, 132, "h200-sxm-141gb"),
        ("Tesla T4", 14.6, 40, "t4"),
        ("NVIDIA GeForce RTX 3080", None, None, None),  # two cards, nothing to tell them apart
        ("NVIDIA GeForce RTX 3060", 8, 28, None),  # the 8 GB card has no row and is not the 12 GB one
        ("NVIDIA GeForce GTX 1070", 8, 16, None),  # the laptop part has 16 SMs
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5, 14, None),
        ("nvidia h200", None, None, None),  # patterns are case-sensitive
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, 76, "rtx-4090-laptop"),
    ],
)
def test_memory_and_sm_count_tell_cards_of_one_name_apart(
    name: str, memory_gib: float | None, sm_count: int | None, key: str | None
) -> None:
    gpu = by_nvml_name(name, None if memory_gib is None else int(memory_gib * GIB), sm_count)
    assert (gpu.key if gpu else None) == key


# --- a person's name


@pytest.mark.parametrize(
    ("text", "key", "count"),
    [
        ("T4", "t4", 1),
        ("Tesla T4", "t4", 1),
        ("colab t4", "t4", 1),
        ("RTX 3090", "rtx-3090", 1),
        ("rtx3090", "rtx-3090", 1),
        ("3090", "rtx-3090", 1),
        ("2080 Ti", "rtx-2080-ti", 1),
        ("RTX2080Ti", "rtx-2080-ti", 1),
        ("A100 80GB", "a100-sxm4-80gb", 1),
        ("A100 80 GB SXM", "a100-sxm4-80gb", 1),
        ("A100 PCIe", "a100-pcie-80gb", 1),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb", 1),
        ("a100-sxm4-40gb", "a100-sxm4-40gb", 1),
        ("8x A100", "a100-sxm4-40gb", 8),
        ("8 x A100", "a100-sxm4-40gb", 8),
        ("A100 x8", "a100-sxm4-40gb", 8),
        ("2x RTX 2080 Ti", "rtx-2080-ti", 2),
        ("H100", "h100-sxm5-80gb", 1),
        ("GH200 480GB", "gh200-96gb", 1),
        ("RTX 3060 laptop", "rtx-3060-laptop", 1),
        ("RTX 4060 Ti 16GB", "rtx-4060-ti-16gb", 1),
        ("rtx pro 6000 max-q", "rtx-pro-6000-blackwell-maxq", 1),
        ("V100 32GB SXM2", "v100-sxm2-32gb", 1),
        ("Tegra X1", "jetson-nano", 1),  # not one "Tegra"
        ("T400", "t400-4gb", 1),
        ("NVIDIA T400", "t400-2gb", 1),  # what its driver says
    ],
)
def test_names_as_people_write_them(text: str, key: str, count: int) -> None:
    match = by_human_name(text)
    assert (match.gpu.key, match.count) == (key, count)


def test_an_ambiguous_name_says_what_was_assumed_and_names_variants_of_other_bandwidth() -> None:
    match = by_human_name("A100")
    assert match.assumption == (
        '"A100" is read as A100 SXM4 40GB (1555 GB/s); it could also be A100 PCIe 80GB (1935 GB/s), '
        "A100 SXM4 80GB (2039 GB/s)."
    )
    assert {gpu.key for gpu in match.alternatives} == {"a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-80gb"}


def test_an_ambiguous_name_of_equal_bandwidth_is_stated_briefly() -> None:
    assert by_human_name("A100 80GB").assumption == '"A100 80GB" is read as A100 SXM4 80GB.'
    assert by_human_name("T4").assumption is None


@pytest.mark.parametrize("key", list(catalogue()))
def test_every_default_alias_finds_its_card(key: str) -> None:
    for alias in catalogue()[key].alias_default:
        assert by_human_name(alias).gpu.key == key, alias
    assert by_human_name(key).gpu.key == key


@pytest.mark.parametrize("key", LAPTOPS_WITH_A_DESKTOP_TWIN)
def test_a_laptop_part_is_never_found_without_a_laptop_word(key: str) -> None:
    name = catalogue()[key].name.replace(" Laptop GPU", "")
    with contextlib.suppress(UserError):  # RTX 4050: no desktop card of that name
        assert not by_human_name(name).gpu.is_laptop


def test_a_name_that_only_a_laptop_part_has_says_so() -> None:
    assert by_human_name("RTX A3000").assumption == '"RTX A3000" is read as RTX A3000 Laptop GPU, a laptop part.'


@pytest.mark.parametrize("text", ["RTX 3050 Laptop", "RTX 2080 Max-Q", "GTX 1070 mobile"])
def test_a_laptop_word_never_finds_the_desktop_card(text: str) -> None:
    with pytest.raises(UserError):
        by_human_name(text)


@pytest.mark.parametrize("text", ["RTX 9999", "bananas", "80GB", "SXM4", "laptop", "x", "", "MI300X", "cpu", "0x T4"])
def test_an_unknown_name_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        by_human_name(text)


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(UserError, match="GeForce RTX 3090"):
        by_human_name("RTX 3099")


# --- peaks


@pytest.mark.parametrize(
    ("key", "precision", "value", "unit_name"),
    [
        ("t4", "fp32", 8.1, "cuda"),
        ("t4", "tf32", 8.1, "cuda"),
        ("t4", "default", 8.1, "cuda"),
        ("t4", "fp16", 65.0, "tensor"),
        ("t4", "bf16", 8.1, "cuda"),
        ("a100-sxm4-40gb", "fp32", 19.5, "cuda"),
        ("a100-sxm4-40gb", "tf32", 156.0, "tensor"),
        ("a100-sxm4-40gb", "default", 156.0, "tensor"),
        ("a100-sxm4-40gb", "bf16", 312.0, "tensor"),
        ("a100-sxm4-40gb", "fp64", 19.5, "tensor"),
        ("p100-pcie-16gb", "fp16", 9.3, "cuda"),  # FP32, never the packed 18.7
        ("rtx-3090", "fp16", 71.0, "tensor"),  # FP32 accumulate, never 142
        ("gtx-1080-ti", "int8", None, "cuda"),
        ("h200-sxm-141gb", "fp8", 1979.0, "tensor"),
    ],
)
def test_the_peak_is_the_one_that_the_setting_reaches(
    key: str, precision: str, value: float | None, unit_name: str
) -> None:
    peak = peak_tflops(catalogue()[key], precision)
    assert peak is not None
    assert peak.unit_name == unit_name
    if value is not None:
        assert peak.value == value


def test_emulated_bf16_is_marked_and_missing_arithmetic_is_none() -> None:
    t4, a100 = catalogue()["t4"], catalogue()["a100-sxm4-40gb"]
    bf16 = peak_tflops(t4, "bf16")
    assert bf16 is not None
    assert bf16.emulated
    assert peak_tflops(a100, "fp8") is None
    # tensor cores whose dense figure nobody prints are unknown, not FP32
    assert peak_tflops(catalogue()["gb10"], "fp16") is None
    with pytest.raises(ValueError, match="fp12"):
        peak_tflops(t4, "fp12")


def test_every_card_answers_every_precision_without_an_error() -> None:
    for gpu in catalogue().values():
        for precision in PRECISIONS:
            peak = peak_tflops(gpu, precision)
            assert peak is None or (peak.value > 0 and peak.source)


def test_an_unknown_card_gets_peaks_from_sm_count_and_clock_labelled_assumed() -> None:
    # 132 SMs x 128 FMA x 2 x 1.98 GHz = 66.9 TFLOPS; 6144 bit / 8 x 2 x 3201 MHz = 4917 GB/s (4800 printed)
    card = unknown_card("NVIDIA H299", "9.0", 132, 1980, 3201, 6144, 141 * GIB, 50 * 2**20)
    assert card.key is None
    assert card.fp32_tflops == pytest.approx(66.9, abs=0.05)
    assert card.memory_bandwidth_gb_s == pytest.approx(4917, abs=1)
    assert card.l2_cache_mb == 50
    assert value_source(card, "fp32_tflops").startswith("assumed")
    peak = peak_tflops(card, "bf16")
    assert peak is not None
    assert peak.derived


@pytest.mark.parametrize(
    ("name", "capability", "rate_class"),
    [
        ("NVIDIA GeForce RTX 3095", "8.6", "half"),
        ("NVIDIA RTX A7000", "8.6", "full"),
        ("NVIDIA GeForce GTX 1630", "7.5", "none"),
        ("NVIDIA A10G", "8.6", "halfint"),
        ("NVIDIA H20-3e", "9.0", "quarter"),
        ("Tesla M4", "5.2", "none"),
    ],
)
def test_the_rate_class_of_an_unknown_card_follows_its_name(name: str, capability: str, rate_class: str) -> None:
    assert unknown_card(name, capability, 10, 1000.0).tensor_rate_class == rate_class


def test_an_unknown_architecture_has_no_peak_rather_than_a_wrong_one() -> None:
    card = unknown_card("NVIDIA X1", "15.0", 100, 2000.0)
    assert card.fp32_tflops is None
    assert peak_tflops(card, "fp32") is None
    assert unknown_card("Radeon", "gfx90a", 100, 2000.0).fp32_tflops is None
