"""What the model needs to know of a card: SMs, rates, bandwidth, cache, launch floor; from data sheet and ceilings.

A *ceiling* is what the card reaches at best: `gemm_fp32_tflops` in large FP32 products, `copy_gb_s` in copies far
larger than the L2 cache, `launch_us` for an operation on tiny tensors, host and launch included. Without one the
catalogue's public measurements serve, and without those the data sheet times the share that cards of its kind reach.

Power: a product keeps the whole chip busy, and a card with little power for its peak slows down after a millisecond or
two (T4, L4). `JOULE_PER_TFLOP` are watts per sustained TFLOP/s, rounded, from: T4 70 W at 3.0, V100 250 W at 12.2, P4
75 W at 2.2, A100 250 W at 15.2 (sitar-lab/NeuSight timings), A40 300 W at 23.7 and L40 300 W at 50.9 in register loops
(te42kyfo/gpu-benches), L4 72 W at 6.5 over a whole BERT (e2e_latency_fp32.csv).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.errors import UserError
from core.gpus import Gpu, by_human_name, by_nvml_name, catalogue, measured_ceilings, peak_tflops

CEILING_KEYS = ("gemm_fp32_tflops", "copy_gb_s", "launch_us")
OTHER_CEILING_KEYS = ("gemm_tf32_tflops", "gemm_fp16_tflops", "gemm_bf16_tflops", "sm_count", "memory_gb")

# Compute capability -> share of the FP32 peak that the best large product reaches. From 8.6 to 8.9 half of the FP32
# lanes share their issue slot with integer work, so that products stay far below the printed peak.
_GEMM_SHARE = {6: 0.75, 7.0: 0.90, 7.5: 0.75, 8.0: 0.85, 8.6: 0.66, 8.9: 0.66, 9: 0.77, 10: 0.77, 12: 0.66}
JOULE_PER_TFLOP = {6: 34.0, 7.0: 20.0, 7.5: 22.0, 8.0: 15.0, 8.6: 14.0, 8.9: 10.0, 9: 10.0, 10: 10.0, 12: 9.0}
_TENSOR_SHARE = 0.7  # of the printed tensor peak, in large products (mamf-finder: 0.6 to 0.85, see the ceilings file)
# Share of the printed bandwidth that element-wise operations reach: A100 0.88, V100 0.92 (HBM); T4 0.76, P4 0.75
# (GDDR).
_BANDWIDTH_SHARE = {"HBM": 0.88, "GDDR6X": 0.90, "GDDR7": 0.88, "GDDR": 0.76}
# FluidX3D's effective bandwidth lies 5 to 17 % below that of element-wise operations on the five cards with both.
_LBM_TO_COPY = 1.08
_BANDWIDTH_METRICS = (
    ("dram_bandwidth_copy", 1.0),
    ("dram_bandwidth_saxpy", 1.0),
    ("dram_bandwidth_triad", 1.0),
    ("dram_bandwidth_lbm_effective", _LBM_TO_COPY),
)
DEFAULT_LAUNCH_US = 26.5  # median of the five cards of the timing data: hosts of 2023, torch 2.1
_BURST_OVER_SUSTAINED = 1.65  # T4: 5.0 TFLOP/s in products below a millisecond, 3.0 in long ones
_BURST_SHARE = 0.62
# Add and relu of the trackers keep their time on 40 of the 132 SMs of an H200 within 6 % (h200-sm-limited.jsonl.gz).
_SM_SHARE_FOR_BANDWIDTH = 0.3
# A ceiling from elsewhere for a board of the timing data: differences within this are the definition's, not the card's.
_DEAD_ZONE = 0.25


@dataclass(frozen=True)
class Card:
    """One card as the model sees it. `situation`: measured (in the timing data), chip, ceilings, spec."""

    key: str | None
    name: str
    generation: float
    sm_count: float
    gemm_tflops: float  # FP32, best
    spec_tflops: float
    power_tflops: float  # FP32 rate that the power limit sustains; infinite where it is not known
    bandwidth_gb_s: float
    l2_bytes: float
    launch_us: float
    chip: str | None
    situation: str
    tensor_tflops: Mapping[str, float] = field(hash=False)  # precision -> rate in large products
    memory_gb: float | None
    clock_mhz: float = 1500.0
    assumptions: tuple[str, ...] = ()

    @property
    def issue_rate(self) -> float:
        """SMs times clock, what instructions are issued with."""
        return self.sm_count * self.clock_mhz

    @property
    def burst_tflops(self) -> float:
        """FP32 rate of products of up to about a millisecond."""
        sustained = min(self.gemm_tflops, self.power_tflops)
        return max(self.gemm_tflops, min(_BURST_SHARE * self.spec_tflops, _BURST_OVER_SUSTAINED * sustained))

    @property
    def sustained_tflops(self) -> float:
        """FP32 rate of long products. A ceiling above what the power limit sustains counts a quarter (on log scale)."""
        if self.gemm_tflops <= self.power_tflops:
            return self.gemm_tflops
        return float(self.power_tflops**0.75 * self.gemm_tflops**0.25)

    def rate_tflops(self, precision: str, convolution: bool) -> float | None:
        """Rate of large products in a precision other than fp32; None where the card has no such arithmetic."""
        if precision == "default" and not convolution:
            precision = "fp32"
        return self.tensor_tflops.get("tf32" if precision == "default" else precision)


@dataclass(frozen=True)
class MeasuredBoard:
    """What the timing data show of one board: a row of measured_boards.csv."""

    chip: str
    key: str
    gemm_tflops: float
    copy_gb_s: float
    launch_us: float


def _by_capability(table: Mapping[float, float], capability: str) -> float:
    exact = float(capability or 0)
    return table.get(exact) or table.get(int(exact)) or table[10 if exact > 12 else 6]


def find_card(name: str) -> Gpu:
    """The catalogue row of a key, a driver's name or what people write. Raises UserError for an unknown name."""
    if name in catalogue():
        return catalogue()[name]
    exact = by_nvml_name(name)
    if exact is not None:
        return exact
    match = by_human_name(name)
    if match.count != 1:
        raise UserError(f"{name!r} means {match.count} GPUs", "one GPU", "how several scale is not known")
    return match.gpu


def checked_ceilings(ceilings: Mapping[str, object] | None) -> dict[str, float]:
    """The known ceilings as floats; None and unknown keys are left out. Raises UserError for what is no positive
    number."""
    known: dict[str, float] = {}
    for key, value in (ceilings or {}).items():
        if value is None or key not in (*CEILING_KEYS, *OTHER_CEILING_KEYS):
            continue
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number <= 0:
            raise UserError(f"ceiling {key} is {value!r}", "a number above zero", "leave it out where it is not known")
        known[key] = number
    return known


def card_of(
    name: str, boards: tuple[MeasuredBoard, ...], ceilings: Mapping[str, object] | None = None, like: Card | None = None
) -> Card:
    """A card by name. `ceilings` win over what is known of it. `like`: the other card, whose SM size an unknown card
    gets.

    Raises UserError for a card that is unknown, or has no data sheet, and whose ceilings do not say enough.
    """
    given = checked_ceilings(ceilings)
    try:
        gpu = find_card(name)
    except UserError as error:
        if {"gemm_fp32_tflops", "copy_gb_s"} <= given.keys():
            return _unlisted(name, given, like)
        raise UserError(
            error.found,
            "its bandwidth in GB/s, its FP32 TFLOP/s and its memory in GB",
            f"give ceilings gemm_fp32_tflops, copy_gb_s, memory_gb; or {error.expected}",
        ) from error
    board = next((board for board in boards if board.key == gpu.key), None)
    chip = next((one.chip for one in boards if _same_chip(gpu, catalogue()[one.key])), None)
    base = _from_catalogue(gpu, board, chip)
    return _with_ceilings(base, given) if given else base


def _same_chip(gpu: Gpu, measured: Gpu) -> bool:
    """Same SMs and capability, and power within a factor of two: an RTX 2070 Super is no T4."""
    if gpu.key == measured.key:
        return True
    power = (gpu.tdp_w or 0) / (measured.tdp_w or 1)
    return (gpu.compute_capability, gpu.sm_count) == (
        measured.compute_capability,
        measured.sm_count,
    ) and 0.5 < power < 2


def _from_catalogue(gpu: Gpu, board: MeasuredBoard | None, chip: str | None) -> Card:
    capability = gpu.compute_capability
    spec, bandwidth_spec, sms = gpu.fp32_tflops, gpu.memory_bandwidth_gb_s, gpu.sm_count
    if not spec or not bandwidth_spec or not sms:
        missing = [
            word
            for word, value in (("FP32 TFLOP/s", spec), ("bandwidth", bandwidth_spec), ("SM count", sms))
            if not value
        ]
        raise UserError(
            f"{gpu.name} has no {' and no '.join(missing)} in the catalogue",
            "its bandwidth in GB/s, its FP32 TFLOP/s and its memory in GB",
            "give them as ceilings",
        )
    power = (gpu.tdp_w or math.inf) / _by_capability(JOULE_PER_TFLOP, capability)
    gemm_spec = spec * _by_capability(_GEMM_SHARE, capability)
    burst_limit = max(power, min(gemm_spec, _BURST_OVER_SUSTAINED * power))  # paper rate where the power allows it
    bandwidth, source = _catalogue_bandwidth(gpu, bandwidth_spec)
    gemm, launch_us = min(gemm_spec, burst_limit), DEFAULT_LAUNCH_US
    assumptions = [] if board else [source, f"FP32 products at up to {gemm:.3g} of {spec:g} TFLOP/s on the data sheet"]
    if board:
        gemm, bandwidth, launch_us = board.gemm_tflops, board.copy_gb_s, board.launch_us
    tensor = {
        precision: peak.value * (_TENSOR_SHARE if peak.unit_name == "tensor" else gemm / spec)
        for precision in ("tf32", "fp16", "bf16", "fp64")
        if (peak := peak_tflops(gpu, precision)) is not None
    }
    return Card(
        gpu.key,
        gpu.name,
        float(capability or 0),
        float(sms),
        gemm,
        spec,
        power,
        bandwidth,
        (gpu.l2_cache_mb or 4.0) * 2**20,
        launch_us,
        chip,
        "measured" if board else "chip" if chip else "spec",
        tensor,
        gpu.memory_gb, gpu.boost_clock_mhz or 1500.0,
        tuple(assumptions),
    )


def _catalogue_bandwidth(gpu: Gpu, spec_gb_s: float) -> tuple[float, str]:
    ceilings = measured_ceilings(gpu.key)
    known = [
        (row.value * factor, row.tool)
        for metric, factor in _BANDWIDTH_METRICS
        for row in ceilings
        if row.metric == metric
    ]
    if known:
        best, tool = max(known)  # a ceiling is the most that anybody reached
        return best, f"bandwidth {best:.4g} GB/s after {tool}"
    memory = gpu.memory_type or ""
    share = next((share for start, share in _BANDWIDTH_SHARE.items() if memory.startswith(start)), 0.76)
    return (
        share * spec_gb_s,
        f"bandwidth {share:.0%} of {spec_gb_s:g} GB/s, as cards with {memory or 'such memory'} reach",
    )


def _with_ceilings(card: Card, given: Mapping[str, float]) -> Card:
    """The card with its ceilings. On a board of the timing data small differences are taken as ones of definition."""
    anchored = card.situation == "measured"

    def blended(known: float, key: str) -> float:
        if key not in given:
            return known
        if not anchored:
            return given[key]
        log = math.log(given[key] / known)
        return known * math.exp(math.copysign(max(abs(log) - _DEAD_ZONE, 0.0), log))

    # A card that is cut to part of its SMs reaches that part of its products, and the whole bandwidth from half of
    # them on.
    sm_count = min(given.get("sm_count", card.sm_count), card.sm_count)
    share = sm_count / card.sm_count
    if share < 1:
        card = replace(
            card,
            gemm_tflops=card.gemm_tflops * share,
            spec_tflops=card.spec_tflops * share,
            bandwidth_gb_s=card.bandwidth_gb_s * min(1.0, share / _SM_SHARE_FOR_BANDWIDTH),
            tensor_tflops={precision: rate * share for precision, rate in card.tensor_tflops.items()},
        )
    gemm = blended(card.gemm_tflops, "gemm_fp32_tflops")
    tensor = {precision: given.get(f"gemm_{precision}_tflops", rate) for precision, rate in card.tensor_tflops.items()}
    complete = {"gemm_fp32_tflops", "copy_gb_s"} <= given.keys()
    return replace(
        card,
        gemm_tflops=gemm,
        bandwidth_gb_s=blended(card.bandwidth_gb_s, "copy_gb_s"),
        launch_us=blended(card.launch_us, "launch_us"),
        tensor_tflops=tensor,
        sm_count=sm_count,
        situation="ceilings" if card.situation in ("spec", "chip") and complete else card.situation,
        memory_gb=given.get("memory_gb", card.memory_gb),
        assumptions=() if complete else card.assumptions,
    )


def _unlisted(name: str, given: Mapping[str, float], like: Card | None) -> Card:
    """A card that only its ceilings describe; its SMs are assumed to be as large as those of the other card."""
    gemm = given["gemm_fp32_tflops"]
    per_sm = like.gemm_tflops / like.sm_count if like else 0.39
    return Card(
        None,
        name,
        like.generation if like else 9.0,
        given.get("sm_count", max(gemm / per_sm, 1.0)),
        gemm,
        gemm,
        math.inf,
        given["copy_gb_s"],
        like.l2_bytes if like else 40 * 2**20,
        given.get("launch_us", DEFAULT_LAUNCH_US),
        None,
        "ceilings",
        {
            key.split("_")[1]: value
            for key, value in given.items()
            if key.startswith("gemm_") and key != "gemm_fp32_tflops"
        },
        given.get("memory_gb"),
        assumptions=(f"{name} is known by its ceilings alone; SMs and cache as on the other card",),
    )
