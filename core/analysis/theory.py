"""The ratios that two data sheets allow, and what public measurements of the same two cards say beside them.

Theory E of a comparison: memory bandwidth, and for each precision setting that may hold the ratio of the peaks that
this setting reaches on each card. Unknown setting: fp32, default and fp16 each give one. The verdict uses data-sheet
ratios; measured ceilings stand beside them. A ratio is always target over baseline, so that it compares directly with
baseline time over target time. In words: docs/method.md. The
bandwidth argument is Dettmers': V100 to A100 is 1555/900 = 1.73.
"""
from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median

from core.gpus import Ceiling, Gpu, Peak, measured_ceilings, peak_tflops, value_source

UNKNOWN_SETTING = ("fp32", "default", "fp16")
"""The settings that may hold when nobody says which one did."""

LABELS = {
    "bandwidth": "memory bandwidth",
    "fp32": "FP32",
    "default": "FP32 as torch runs it untouched (TF32 in convolutions where the card has it)",
    "tf32": "TF32",
    "fp16": "FP16 (FP32 accumulate)",
    "bf16": "BF16",
    "fp64": "FP64",
    "fp8": "FP8",
    "int8": "INT8",
}

# One method on 65 cards makes this the best source of a bandwidth ratio (T4: 0.65 of the printed figure, A100: 0.84).
_BANDWIDTH_METRICS = (
    "dram_bandwidth_lbm_effective",
    "dram_bandwidth_triad",
    "dram_bandwidth_read",
    "dram_bandwidth_copy",
)
_CEILING_PRECISIONS = {
    "fp32": ("fp32",),
    "tf32": ("tf32 tensor",),
    "fp16": ("fp16 tensor", "fp16", "fp16 (fp32 accumulate)"),
    "bf16": ("bf16", "bf16 tensor"),
    "fp64": ("fp64",),
    "fp8": ("fp8 e4m3",),
    "int8": ("int8 tensor",),
}


@dataclass(frozen=True)
class Reading:
    """One hardware ratio, target over baseline. `ratio` is None where a value is not published."""

    name: str
    label: str
    ratio: float | None
    baseline_value: float | None
    target_value: float | None
    unit: str
    baseline_source: str
    target_source: str
    in_verdict: bool


@dataclass(frozen=True)
class Expected:
    """What hardware allows for one pair of cards and settings."""

    bandwidth: float | None
    fp32: float | None
    executed_precision: float | None  # of the stated settings; None while they are not known
    readings: tuple[Reading, ...]
    measured_ceilings: tuple[Reading, ...]  # same metric, precision and tool on both cards
    notes: tuple[str, ...]  # what a reader must know: emulation, figures that nobody prints

    @property
    def verdict_ratios(self) -> tuple[float, ...]:
        """E: the ratios that the verdict uses. Empty where a side has no data sheet."""
        return tuple(r.ratio for r in self.readings if r.in_verdict and r.ratio is not None)

    @property
    def measured_bandwidth(self) -> float | None:
        """The measured bandwidth ratio of the best method that covers both cards."""
        ratios = {reading.name: reading.ratio for reading in reversed(self.measured_ceilings)}
        return next((ratios[metric] for metric in _BANDWIDTH_METRICS if metric in ratios), None)

    def as_dict(self) -> dict[str, object]:
        """The `expected` object of an explain answer; `roofline` is filled by an answer that has op tables."""
        ceilings: dict[str, object] | None = None
        if self.measured_ceilings:
            ceilings = {
                "bandwidth": self.measured_bandwidth,
                "readings": [asdict(reading) for reading in self.measured_ceilings],
            }
        return {
            "bandwidth": self.bandwidth,
            "fp32": self.fp32,
            "executed_precision": self.executed_precision,
            "measured_ceilings": ceilings,
            "roofline": None,
            "low": min(self.verdict_ratios, default=None),
            "high": max(self.verdict_ratios, default=None),
            "readings": [asdict(reading) for reading in self.readings],
        }


def _bandwidth(baseline: Gpu | None, target: Gpu | None) -> Reading:
    values = [gpu.memory_bandwidth_gb_s if gpu else None for gpu in (baseline, target)]
    sources = [value_source(gpu, "memory_bandwidth_gb_s") if gpu else "no data sheet" for gpu in (baseline, target)]
    return Reading(
        name="bandwidth",
        label=LABELS["bandwidth"],
        ratio=_ratio(values[0], values[1]),
        baseline_value=values[0],
        target_value=values[1],
        unit="GB/s",
        baseline_source=sources[0],
        target_source=sources[1],
        in_verdict=True,
    )


def _ratio(baseline: float | None, target: float | None) -> float | None:
    return target / baseline if baseline and target else None


def _label(baseline_precision: str, target_precision: str) -> str:
    if baseline_precision == target_precision:
        return LABELS[baseline_precision]
    return f"{LABELS[target_precision]} against {LABELS[baseline_precision]}"


def _peak_reading(
    baseline: Gpu | None, target: Gpu | None, baseline_precision: str, target_precision: str, in_verdict: bool,
    sms: Sms,
) -> Reading:
    peaks: list[Peak | None] = [
        peak_tflops(gpu, precision) if gpu else None
        for gpu, precision in ((baseline, baseline_precision), (target, target_precision))
    ]
    sources, values = [], []
    for peak, gpu, count in zip(peaks, (baseline, target), sms, strict=True):
        share = _share_of_sms(gpu, count)
        values.append(peak.value * share if peak else None)
        source = peak.source if peak else ("not published" if gpu else "no data sheet")
        sources.append(source if share == 1 or gpu is None else f"{source}, {count} of {gpu.sm_count} SMs")
    same = baseline_precision == target_precision
    return Reading(
        name=baseline_precision if same else f"{baseline_precision}/{target_precision}",
        label=_label(baseline_precision, target_precision),
        ratio=_ratio(values[0], values[1]),
        baseline_value=values[0],
        target_value=values[1],
        unit="TOPS" if {baseline_precision, target_precision} == {"int8"} else "TFLOP/s",
        baseline_source=sources[0],
        target_source=sources[1],
        in_verdict=in_verdict,
    )


Sms = tuple[int | None, int | None]
"""SMs that baseline and target were limited to; None: all of them."""


def _share_of_sms(gpu: Gpu | None, count: int | None) -> float:
    return count / gpu.sm_count if gpu and gpu.sm_count and count and count < gpu.sm_count else 1.0


def _notes(
    baseline: Gpu | None, target: Gpu | None, precisions: tuple[str | None, str | None], sms: Sms
) -> tuple[str, ...]:
    notes: list[str] = []
    for gpu, count in ((baseline, sms[0]), (target, sms[1])):
        if gpu is not None and _share_of_sms(gpu, count) < 1:
            notes.append(f"The {gpu.name} was limited to {count} of its {gpu.sm_count} SMs: theory takes that share of "
                         "its arithmetic peaks, and its whole bandwidth.")
    for gpu, precision in ((baseline, precisions[0]), (target, precisions[1])):
        if gpu is None or precision is None:
            continue
        peak = peak_tflops(gpu, precision)
        if peak is None:
            notes.append(f"The {gpu.name} has no {LABELS[precision]} unit, or no dense figure of it is published.")
        elif precision == "tf32" and not gpu.supports_tf32:
            notes.append(f"The {gpu.name} has no TF32: FP32 is what it runs.")
        elif peak.emulated:
            notes.append(f"The {gpu.name} has no BF16 arithmetic: it is emulated, and FP32 is the most it can reach.")
    return tuple(dict.fromkeys(notes))


def _ceiling_name(gpu: Gpu, precision: str) -> str:
    return ("tf32" if gpu.supports_tf32 else "fp32") if precision == "default" else precision


def _median_by_method(rows: tuple[Ceiling, ...]) -> dict[tuple[str, str, str], tuple[float, str, str]]:
    """(metric, precision, tool) -> (median value, unit, sources). A tool that was run twice on a card counts once."""
    grouped: dict[tuple[str, str, str], list[Ceiling]] = {}
    for row in rows:
        grouped.setdefault((row.metric, row.precision, row.tool), []).append(row)
    return {
        method: (median(row.value for row in found), found[0].unit, "; ".join(dict.fromkeys(r.source for r in found)))
        for method, found in grouped.items()
    }


def _measured(
    baseline: Gpu | None, target: Gpu | None, baseline_precision: str | None, target_precision: str | None
) -> tuple[Reading, ...]:
    """Measured ratios by one metric and tool; arithmetic also across precisions where the settings differ."""
    if baseline is None or target is None:
        return ()
    left = _median_by_method(measured_ceilings(baseline.key))
    right = _median_by_method(measured_ceilings(target.key))
    pairs: list[tuple[tuple[str, str, str], tuple[str, str, str]]] = []
    if baseline.key != target.key:
        pairs += [(method, method) for method in left if method in right]
    if baseline_precision and target_precision:
        wanted_left = _CEILING_PRECISIONS.get(_ceiling_name(baseline, baseline_precision), ())
        wanted_right = _CEILING_PRECISIONS.get(_ceiling_name(target, target_precision), ())
        pairs += [
            (a, b)
            for a in left
            for b in right
            if a[0] == b[0] and a[2] == b[2] and "bandwidth" not in a[0] and a[1] != b[1]
            if a[1] in wanted_left and b[1] in wanted_right
        ]
    readings = []
    for a, b in pairs:
        (value_a, unit, source_a), (value_b, _, source_b) = left[a], right[b]
        precision = a[1] if a[1] == b[1] else f"{b[1]} against {a[1]}"
        readings.append(
            Reading(
                name=a[0],
                label=f"{a[0].replace('_', ' ')}, {precision}, {a[2]}",
                ratio=value_b / value_a,
                baseline_value=value_a,
                target_value=value_b,
                unit=unit,
                baseline_source=source_a,
                target_source=source_b,
                in_verdict=False,
            )
        )
    return tuple(readings)


def expected_ratios(
    baseline: Gpu | None,
    target: Gpu | None,
    baseline_precision: str | None = None,
    target_precision: str | None = None,
    reported: bool = False,
    sms: Sms = (None, None),
) -> Expected:
    """The hardware ratios that the stated facts allow.

    `baseline_precision`, `target_precision`: one of `core.gpus.PRECISIONS`, both or neither (ValueError otherwise).
    `reported`: a person stated the precision, nobody read it back. A reported "FP32" leaves the path open, so that
    TF32 in convolutions (default) and in everything (tf32) are given as further readings, outside the verdict.
    `sms`: how many SMs a side was limited to; its arithmetic peaks count in that share.
    A side without a data sheet (a CPU, None) leaves every ratio None.
    """
    if (baseline_precision is None) != (target_precision is None):
        raise ValueError("one precision is stated, the other is not: no ratio of peaks follows")
    bandwidth = _bandwidth(baseline, target)
    readings = [bandwidth]
    executed: Reading | None = None
    if baseline_precision is None or target_precision is None:
        readings += [_peak_reading(baseline, target, name, name, True, sms) for name in UNKNOWN_SETTING]
    else:
        executed = _peak_reading(baseline, target, baseline_precision, target_precision, True, sms)
        readings.append(executed)
        if (baseline_precision, target_precision) != ("fp32", "fp32"):
            readings.append(_peak_reading(baseline, target, "fp32", "fp32", False, sms))
        elif reported and any(gpu is not None and gpu.supports_tf32 for gpu in (baseline, target)):
            readings += [_peak_reading(baseline, target, name, name, False, sms) for name in ("default", "tf32")]
    fp32 = next(reading for reading in readings if reading.name == "fp32")
    return Expected(
        bandwidth=bandwidth.ratio,
        fp32=fp32.ratio,
        executed_precision=executed.ratio if executed else None,
        readings=tuple(readings),
        measured_ceilings=_measured(baseline, target, baseline_precision, target_precision),
        notes=_notes(baseline, target, (baseline_precision, target_precision), sms),
    )
