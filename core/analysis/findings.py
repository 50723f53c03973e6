"""Causes of a gap: one table of small rules (`RULES`), each reading recorded evidence and silent without it.

A rule is asked twice, once for each side as the slowed one. It returns what it saw and by how much that can slow this
side. What it may claim is then cut by its physical limit, and by the factor it belongs to times the residual: no
finding explains more than is there to explain. Grades:

    proved    an ablation on one of the two boards compared, same work
    observed  a flag, a counter or a kernel name of this run
    possible  a capability, a stated fact, or an ablation on another board ("reproduced on X, factor f")

Sizes and causes: public issues and measurements, named in `source`. Only `possible` is ever said about two reported
numbers, since nobody read anything back there.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from core import units
from core.analysis.factors import PLAYERS, Factors
from core.analysis.trials import COPY_NOT_TIMED, PRECISION, time_in_pass_ms
from core.gpus import Gpu, peak_tflops
from core.records import clock_events

GRADES = ("proved", "observed", "possible")
LEAST_EFFECT = 1.02
"""A cause that can explain less than this is not worth a sentence."""

HOST_BOUND = 0.7
"""Below this share of kernel time in wall time the host holds the GPU up (PEERS.md 5: kernel time / wall < 0.7)."""

_TF32_SETTINGS = ("tf32", "default")
_MUCH_MORE_MEMORY = 1.25
_LONGEST_FIRST_CALL_MS = 30 * 60e3
"""About half an hour of compiling for an architecture that is not in the build (conda-forge/pytorch-cpu-feedstock#114).
"""
_MOST_OF = 0.5  # a reason that holds in at least this share of the samples


@dataclass(frozen=True)
class Side:
    """What is recorded, or stated, about one side. None or empty: not known."""

    label: str
    card: Gpu | None = None
    device_type: str | None = None
    precision: str | None = None
    reported: bool = False  # a person's figure: nothing was read back
    time_ms: float | None = None
    samples_ms: Sequence[float] = ()
    first_call_ms: float | None = None  # timed apart; None: nobody took it out of the samples
    includes_first_call: bool | None = None  # stated with a reported figure
    kernel_busy_ms: float | None = None
    event_ms: float | None = None
    clock_share: float | None = None
    throttle_bits: Sequence[int] = ()
    alloc_retries: int | None = None
    reserved_bytes: int | None = None
    peak_bytes: int | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    path: Mapping[str, Any] = field(default_factory=dict)  # execution path: what was read back
    run: Mapping[str, Any] = field(default_factory=dict)  # run header: device, host, software
    threads: int | None = None
    sdp_enabled: Mapping[str, bool] | None = None
    ops: pd.DataFrame | None = None

    @property
    def busy_share(self) -> float | None:
        """Share of kernel time in wall time."""
        return self.kernel_busy_ms / self.time_ms if self.kernel_busy_ms and self.time_ms else None

    @property
    def capability(self) -> float | None:
        text = self.run.get("compute_capability") or (self.card.compute_capability if self.card else None)
        return float(text) if text else None

    def cuda(self) -> bool:
        return self.device_type == "cuda"


@dataclass(frozen=True)
class Ablation:
    """Two cells of one board with the same work, which differ in one setting. `ratio`: time with over time without."""

    setting: str  # "precision", "handicap sm_count", ...
    without: str
    with_: str
    ratio: float
    low: float | None
    high: float | None
    board: str  # hash of the board
    gpu: str
    on_side: str | None  # "baseline" or "target" where that board is compared, else None
    runs: tuple[str, str]
    is_this_pair: bool = False
    outputs: str = "outputs not compared"


@dataclass(frozen=True)
class Trial:
    """One op of a tracker tried in another way (a line `op_trial`)."""

    op: str
    stage: str
    change: str
    before_ms: float
    after_ms: float
    calls: int
    kernels_before: tuple[str, ...]
    kernels_after: tuple[str, ...]
    on_side: str | None  # side whose board it ran on and whose op table holds this op
    gpu: str
    reproduced: bool | None
    max_abs_diff: float | None
    shapes: str = ""
    agrees: bool | None = None  # the results are equal within their tolerance; None: nobody judged it
    low: float | None = None  # ends of the interval of `factor`
    high: float | None = None
    n: int = 1
    device_ms: float | None = None  # of all its calls in the pass of the side; None: not known
    on_board: bool = True  # it ran on the board of the side, not on another one

    @property
    def factor(self) -> float:
        return self.before_ms / self.after_ms

    @property
    def other_arithmetic(self) -> bool:
        return self.change.startswith(PRECISION)

    @property
    def saved_ms(self) -> float:
        """Over one forward pass."""
        return self.saved_by_ms(self.factor)

    def saved_by_ms(self, factor: float) -> float:
        """What the pass would save, were the op this much faster."""
        in_pass_ms = time_in_pass_ms(self.device_ms, self.calls, self.before_ms)
        return (self.calls * self.before_ms if in_pass_ms is None else in_pass_ms) * (1 - 1 / factor)

    @property
    def counts(self) -> bool:
        """Whether it is faster beyond its interval, does the same work as far as known, and times all it does."""
        told = self.low is None or self.low > 1
        return told and self.saved_ms > 0 and self.agrees is not False and self.reproduced is not False and (
            not self.change.endswith(COPY_NOT_TIMED)
        )


@dataclass(frozen=True)
class Evidence:
    """All that the rules may read about one gap. `ratio`: baseline time / target time."""

    baseline: Side
    target: Side
    ratio: float
    verdict: str
    verdict_reason: str | None = None
    expected: tuple[float, ...] = ()
    factors: Factors | None = None
    op_diff: pd.DataFrame | None = None
    ablations: tuple[Ablation, ...] = ()
    trials: tuple[Trial, ...] = ()
    lone_setting: str | None = None  # the only setting that differs, on one card with one software
    options: str = ""  # options of `run` that repeat this work
    one_host: bool = False  # one machine ran both sides, and nothing held its host up on one of them


@dataclass(frozen=True)
class Seen:
    """What a rule saw: by how much its side is slowed at least and at most (1 = not at all)."""

    grade: str
    low: float
    high: float | None  # None: only the limits of the rule and of the gap bound it
    detail: str
    value: float | None = None  # the best single number, where one was measured or follows from records
    about: str | None = None  # added to the cause: which kernel it was


Look = Callable[[Side, Side, Evidence], Seen | None]


@dataclass(frozen=True)
class Rule:
    """One cause. `factors`: the factors it is part of; `limit`: the most that physics or reports allow, and why."""

    cause: str
    reads: str
    factors: tuple[str, ...]
    look: Look
    limit: float | None
    limit_source: str
    fix: str
    measurement: str
    command: str  # with {options} and, for each side, nothing that does not exist in the command line


@dataclass(frozen=True)
class Finding:
    """One cause of this gap. `effect`: its part of baseline time / target time, as a factor."""

    cause: str
    evidence: str
    side: str  # the side that it slows
    value: float | None
    low: float
    high: float | None
    detail: str
    fix: str
    decide_by: str
    command: str
    limit: str
    factors: tuple[str, ...] = ()  # the factors that it is part of
    most: float | None = None  # their product times the residual, as the side is slowed; None: no bound
    is_the_pair: bool = False  # the ablation is the compared pair itself: it says that, not how

    def as_dict(self) -> dict[str, Any]:
        """An entry of `findings` in an explain answer."""
        return {
            "cause": self.cause, "evidence": self.evidence, "side": self.side,
            "effect": {"value": self.value, "low": self.low, "high": self.high}, "detail": self.detail,
            "fix": self.fix, "decide_by": self.decide_by, "command": self.command, "limit": self.limit,
            "factors": list(self.factors), "most": self.most,
        }


def _possible(detail: str) -> Seen:
    """A capability or a stated fact, bounded by its rule and by the gap alone."""
    return Seen("possible", 1.0, None, detail)


def _observed(detail: str) -> Seen:
    """Something recorded whose size nobody measured: bounded by its rule and by the gap alone."""
    return Seen("observed", 1.0, None, detail)


# --- what the rules see ----------------------------------------------------------------------------------------------


def _tf32(side: Side) -> bool | None:
    """Whether TF32 may round its products; None where the precision is not known."""
    if side.precision is None:
        return None
    return side.precision in _TF32_SETTINGS and bool(side.card and side.card.supports_tf32)


def _tf32_on_one_side(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    card = other.card
    if card is None or not card.supports_tf32:
        return None
    fast, slow = peak_tflops(card, "tf32"), peak_tflops(card, "fp32")
    if fast is None or slow is None or fast.value <= slow.value:
        return None
    most = fast.value / slow.value
    if own.reported or other.reported:
        own_without = not (own.card and own.card.supports_tf32) or own.precision == "fp32"
        if not own_without or own.precision not in ("fp32", None) or other.precision not in ("fp32", "tf32", None):
            return None
        stated = other.precision == "tf32"
        what = "TF32 ran" if stated else "TF32 may have been on"
        return Seen("possible", 1.0, most, f"{what} on {_the(other)}, and {_the(own)} ran without it.")
    if _tf32(own) is not False or _tf32(other) is not True or own.precision not in ("fp32", *_TF32_SETTINGS):
        return None
    read = _read_back(own), _read_back(other)
    grade = "observed" if all(read) else "possible"
    return Seen(grade, 1.0, most, f"Read back: {read[0] or own.precision} on {_the(own)}, "
                                  f"{read[1] or other.precision} on {_the(other)}.")


def _read_back(side: Side) -> str | None:
    names = [name for name in ("conv_fp32", "matmul_fp32", "conv", "matmul") if side.path.get(name)]
    return ", ".join(f"{name.removesuffix('_fp32')} {side.path[name]}" for name in names) or None


_EMULATION = 1.85
"""Emulated BF16 against FP32 on one card (kubeedge/ianvs#888, a GTX 1080)."""


def _emulated_bf16(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if own.card is None or own.card.supports_bf16_native:
        return None
    what = f"{_the(own)} has no BF16 units and computes it in FP32 with conversions."
    if own.precision == "bf16":
        grade = "observed" if own.path.get("emulated_bf16") else "possible"
        return Seen(grade, 1.0, 4.3, _upper(what))
    card = other.card
    if own.precision is not None or not own.reported or card is None or not card.supports_bf16_native:
        return None
    peaks = peak_tflops(card, "bf16"), peak_tflops(card, "fp32")
    if peaks[0] is None or peaks[1] is None:
        return None
    return Seen("possible", 1.0, _EMULATION * peaks[0].value / peaks[1].value, f"If both ran BF16: {what}")


_KERNEL_WORDS = (
    ("fft", "an FFT convolution"), ("winograd", "a Winograd convolution"), ("nchwtonhwc", "layout transposes"),
    ("generictranspose", "layout transposes"), ("flash", "flash attention"), ("fmha", "fused attention"),
    ("tf32", "TF32 tensor cores"), ("s1688", "tensor cores"), ("h884", "tensor cores"), ("64x64", "a 64x64 tile"),
    ("32x32", "a 32x32 tile"), ("sgemm", "an FP32 product"), ("ffma", "an FP32 kernel"),
)


def kernels_in_words(names: Sequence[str] | None) -> str:
    """What a list of kernel names is, as far as the names tell; else the first name, cut short."""
    if not names:
        return "unnamed kernels"
    joined = " ".join(names).lower()
    known = list(dict.fromkeys(words for part, words in _KERNEL_WORDS if part in joined))
    return " with ".join(known[:2]) if known else str(names[0])[:60]


def _poorer_kernel(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    """The operation that lost most beyond its own roofline, if it explains a good part of the gap."""
    table = evidence.op_diff
    if table is None or not own.time_ms or not (own.cuda() and other.cuda()):
        return None  # a CPU names no kernels
    mine, theirs = ("baseline", "target") if own is evidence.baseline else ("target", "baseline")
    both = table[(table["only_in"] == "both") & (table[f"device_ms_{mine}"] > 0) & (table[f"device_ms_{theirs}"] > 0)]
    if both.empty:
        return None
    both = both.assign(profiled_ms=both[f"device_ms_{mine}"])
    for name in (mine, theirs):  # a profiled pass may be slower than the timed ones, which the ratio is of
        both = both.assign(**{f"device_ms_{name}": both.get(f"in_pass_ms_{name}", both[f"device_ms_{name}"])})
    hardware = both["roofline_ratio"].fillna(1.0)
    hardware = hardware if mine == "baseline" else 1 / hardware
    allowed_ms = both[f"device_ms_{theirs}"] * hardware.clip(lower=1.0)
    excess_ms = both[f"device_ms_{mine}"] - allowed_ms
    ratio = both[f"device_ms_{mine}"] / both[f"device_ms_{theirs}"]
    kernels_differ = [set(a or []) != set(b or []) for a, b in
                      zip(both["kernels_baseline"], both["kernels_target"], strict=True)]
    worst = both.assign(excess_ms=excess_ms, over=ratio / hardware)[pd.Series(kernels_differ, index=both.index)]
    worst = worst[(worst["over"] > 2) & (worst["excess_ms"] > 0.02 * own.time_ms)]
    if worst.empty:
        return None
    worst = worst.sort_values("excess_ms", ascending=False)
    total_ms = max(own.time_ms, float(both[f"device_ms_{mine}"].sum()))
    lost_ms = min(float(worst["excess_ms"].sum()), total_ms * 0.999)
    row = worst.iloc[0]
    launches = row[f"launches_{mine}"], row[f"launches_{theirs}"]
    counted = ""
    if all(value == value for value in launches):
        counted = f" in {units.count(launches[0])} launches against {units.count(launches[1])}"
    more = f"; {len(worst) - 1} more like it" if len(worst) > 1 else ""
    stretched = row["profiled_ms"] > 1.1 * row[f"device_ms_{mine}"]
    while_profiled = f" ({units.time_ms(row['profiled_ms'])} while profiled)" if stretched else ""
    name = str(row["op"]).removeprefix("aten::")
    if row["shapes"]:
        name += f" on {row['shapes']}"
    return Seen(
        "observed", 1.0, total_ms / (total_ms - lost_ms),
        f"{name} ({row['stage']}) took {units.time_ms(row[f'device_ms_{mine}'])}{while_profiled} on {_the(own)} by "
        f"{kernels_in_words(row[f'kernels_{mine}'])}{counted}, {units.time_ms(row[f'device_ms_{theirs}'])} on "
        f"{_the(other)} by {kernels_in_words(row[f'kernels_{theirs}'])}: {units.ratio(row['over'])} what its "
        f"roofline allows{more}.",
        total_ms / (total_ms - lost_ms), kernels_in_words(row[f"kernels_{mine}"]),
    )


def _sync_points(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    mine, theirs = _sync_calls(own), _sync_calls(other)
    if not mine or theirs is None or mine <= theirs:
        return None
    share = own.busy_share
    most = 1 / share if share and share < 1 else None
    return Seen("observed", 1.0, most, f"{units.count(mine)} calls wait for the device in one pass of {_the(own)}, "
                                       f"{units.count(theirs)} on {_the(other)}.")


_WAITING = frozenset({"item", "_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "unique", "equal"})


def _sync_calls(side: Side) -> int | None:
    if side.ops is None:
        return None
    names = side.ops["op"].astype(str).str.split("::").str[-1]
    kernels = side.ops["kernels"].map(lambda found: "Memcpy DtoH" in str(found)) if "kernels" in side.ops else False
    return int(side.ops.loc[names.isin(_WAITING) | kernels, "calls"].sum())


def _host_copies(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    counts = [
        None if side.ops is None else int(side.ops["kernels"].map(lambda found: "Memcpy HtoD" in str(found)).sum())
        for side in (own, other)
    ]
    if None in counts or not counts[0] or counts[0] <= (counts[1] or 0):
        return None
    return _observed(f"{counts[0]} operations copy from the host inside the pass of {_the(own)}.")


def _host_bound(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if own.reported:
        hidden = evidence.verdict_reason in ("hidden", "inverted", "below")
        if not hidden or own.card is None or other.card is None or not _stronger(own, evidence):
            return None
        return _possible(f"{_begin(own)} should be the faster card and is not: what starts its kernels "
                         "may hold it up, and then the card does not matter.")
    share, theirs = own.busy_share, other.busy_share
    if share is None or share >= HOST_BOUND or not own.cuda():
        return None
    if theirs is not None and theirs <= share:
        return None
    detail = f"Kernels fill {share:.0%} of the time on {_the(own)}: the rest is the host."
    return Seen("observed", 1.0, 1 / share, detail, 1 / share)


def _stronger(own: Side, evidence: Evidence) -> bool:
    """Whether theory says that this side should be faster."""
    if not evidence.expected:
        return False
    return min(evidence.expected) > 1 if own is evidence.target else max(evidence.expected) < 1


def _fewer_threads(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    mine, theirs = (side.threads or side.run.get("cores") for side in (own, other))
    if not mine or not theirs or mine >= theirs or own.reported or own.device_type != other.device_type:
        return None
    if own.cuda() and (own.busy_share is None or own.busy_share >= HOST_BOUND):
        return None  # kernels fill the time: the host has no say
    grade = "possible" if own.cuda() else "observed"
    return Seen(grade, 1.0, theirs / mine, f"{mine} threads on {_the(own)} against {theirs} on {_the(other)}.")


def _share_with(side: Side, bits: int) -> float:
    known = [value for value in side.throttle_bits if value is not None]
    return sum(bool(value & bits) for value in known) / len(known) if known else 0.0


def _held_back(bits: int, words: str) -> Look:
    def look(own: Side, other: Side, evidence: Evidence) -> Seen | None:
        share = _share_with(own, bits)
        if share < _MOST_OF or own.clock_share is None or own.clock_share >= 0.99:
            return None
        if other.clock_share is not None and other.clock_share <= own.clock_share:
            return None
        most = (other.clock_share or 1.0) / own.clock_share
        return Seen("observed", 1.0, most, f"{words} in {share:.0%} of the repetitions of {_the(own)}; its clock was "
                                           f"{own.clock_share:.0%} of the maximum.", most)
    return look


def _small_power_limit(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    card = own.card
    if card is None or own.throttle_bits or own.clock_share is not None or not card.tdp_w or card.tdp_w > 75:
        return None
    if other.card is not None and other.card.tdp_w and other.card.tdp_w <= 75:
        return None
    return _possible(f"{_begin(own)} is a {card.tdp_w:.0f} W card: long kernels pin it to its power "
                     "limit, far below the boost clock of its data sheet.")


def _allocator_retries(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if not own.alloc_retries or own.alloc_retries <= (other.alloc_retries or 0):
        return None
    return _observed(f"The allocator of {_the(own)} emptied its cache and tried again "
                     f"{own.alloc_retries} times.")


def _near_full(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    total, used = own.run.get("memory_bytes"), own.reserved_bytes
    if not total or not used or used < 0.9 * total or own.alloc_retries:
        return None
    return _possible(f"{_begin(own)} had {used / total:.0%} of its memory reserved.")


def _memory_spill(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    """Reported figures: the smaller memory, more likely where the driver can spill (Windows, WSL)."""
    if not own.reported or own.card is None or other.card is None:
        return None
    mine, theirs = own.card.memory_gb, other.card.memory_gb
    if not mine or not theirs or theirs < _MUCH_MORE_MEMORY * mine:
        return None
    return _possible(f"{_begin(own)} has {mine:g} GB against {theirs:g} GB: the work may not fit, and "
                     "then it retries, or moves to host memory.")


def _windows(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    texts = [str(side.run.get("os") or "").lower() for side in (own, other)]
    if not any(word in texts[0] for word in ("windows", "wsl", "microsoft")) or texts[0] == texts[1]:
        return None
    full = own.peak_bytes and own.run.get("memory_bytes") and own.peak_bytes > 0.9 * own.run["memory_bytes"]
    peak = " Its peak is near its whole memory." if full else ""
    return _possible(f"{_begin(own)} ran under {own.run.get('os')}: its driver gathers launches and may move memory to "
                     f"the host.{peak}")


def _first_call_inside(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if own.reported:
        if own.includes_first_call is False or (own.includes_first_call and other.includes_first_call):
            return None
        if not _loses(own, evidence) or own.time_ms is None:
            return None  # a rate is taken over many items: a first call hardly moves it
        rest_ms = own.time_ms - _LONGEST_FIRST_CALL_MS
        return Seen("possible", 1.0, own.time_ms / rest_ms if rest_ms > 0 else None,
                    f"Nobody says whether the figure of {_the(own)} includes its first call: loading, choosing and "
                    "compiling kernels.")
    times = list(own.samples_ms)
    if own.first_call_ms is not None or not times:
        return None
    if len(times) == 1:
        return _possible(f"{_begin(own)} was timed once, no first call apart: that call may be the figure.")
    rest = float(pd.Series(times[1:]).median())
    if times[0] < 3 * rest:
        return None
    whole = float(pd.Series(times).median())
    return Seen("observed", 1.0, max(whole / rest, 1.0) if len(times) > 2 else times[0] / rest,
                f"The first of {len(times)} samples of {_the(own)} took {units.ratio(times[0] / rest)} as long as the "
                "others, and no first call was timed apart.", whole / rest)


def _loses(own: Side, evidence: Evidence) -> bool:
    """Whether this side is slower than theory allows."""
    if not evidence.expected:
        return False
    if own is evidence.baseline:
        return evidence.ratio > max(evidence.expected)
    return evidence.ratio < min(evidence.expected)


def _timer_stops_early(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    """The other side's timer stopped before its GPU: this side only looks slow."""
    if other.reported:
        if evidence.verdict != "beyond_hardware" or not _loses(own, evidence):
            return None
        detail = f"A timer without a synchronisation on {_the(other)} stops before its GPU does."
        return _possible(detail)
    worked_ms = max(other.event_ms or 0.0, other.kernel_busy_ms or 0.0)
    # A profiled pass may take other kernels than a timed one; what only launches is over in a small part of its time.
    if not other.time_ms or worked_ms < 2 * other.time_ms:
        return None
    most = worked_ms / other.time_ms
    return Seen("observed", 1.0, most, f"{_begin(other)} worked {units.time_ms(worked_ms)}, its timer says "
                                       f"{units.time_ms(other.time_ms)}.", most)


def _other_work(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if not own.reported or evidence.verdict != "beyond_hardware" or not _loses(own, evidence):
        return None
    return _possible("The two figures may not time the same work: other counts of frames or points, "
                     "decoding and saving inside one of them, another unit.")


def _swapped_labels(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if evidence.verdict_reason != "inverted" or not evidence.expected or not _stronger(own, evidence):
        return None
    turned = 1 / evidence.ratio
    if not min(evidence.expected) / 1.25 <= turned <= 1.25 * max(evidence.expected):
        return None
    detail = (f"Turned round, the two times would fit the data sheets ({units.ratio(turned)}): each may carry the "
              "other's name.")
    return _possible(detail)


def _no_code_for_card(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    codes = [str(code).removeprefix("sm_") for code in own.run.get("arch_list") or () if str(code).startswith("sm_")]
    capability = str(own.run.get("compute_capability") or "").split(".")
    if not codes or len(capability) != 2:
        return None
    fits = any(code[:-1] == capability[0] and code[-1:].isdecimal() and int(code[-1]) <= int(capability[1])
               for code in codes)
    if fits:
        return None
    return _observed(f"The torch of {_the(own)} has no code for capability {'.'.join(capability)} "
                     f"(it has {', '.join(codes)}).")


def _setting_differs(name: str, slow: Any, words: str) -> Look:
    """A setting that one side has and the other has not."""
    def look(own: Side, other: Side, evidence: Evidence) -> Seen | None:
        mine, theirs = own.setting.get(name), other.setting.get(name)
        if mine is None or theirs is None or mine == theirs or mine != slow:
            return None
        return _observed(f"{words}: {mine} on {_the(own)}, {theirs} on {_the(other)}.")
    return look


def _deterministic(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    names = ("cudnn_deterministic", "deterministic_algorithms")
    if not any(own.path.get(name) and other.path.get(name) is False for name in names):
        return None
    return _observed(f"Deterministic kernels only on {_the(own)}.")


def _attention_backend(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if own.sdp_enabled and other.sdp_enabled:
        lacking = [name for name, on in other.sdp_enabled.items() if on and own.sdp_enabled.get(name) is False]
        if lacking:
            return _observed(f"Attention backend {', '.join(lacking)} is off on {_the(own)} alone.")
    lacks = own.card is not None and own.card.flash_attention_2_supported is False
    has = other.card is not None and other.card.flash_attention_2_supported is True
    if not (lacks and has):
        return None
    half = own.precision in ("fp16", "bf16", None)
    if own.ops is not None:
        names = own.ops["op"].astype(str)
        half = half and bool(names.str.contains("scaled_dot_product_attention").any())
    if not half:
        return None
    return _possible(f"Flash attention runs on {_the(other)} and not on {_the(own)}.")


def _slice_of_a_card(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    card, count = own.card, own.run.get("sm_count")
    whole = card.sm_count if card else None
    if own.run.get("mig"):
        return Seen("observed", 1.0, whole / count if whole and count and whole > count else None,
                    f"{_begin(own)} is a MIG slice.")
    if not whole or not count or count >= whole:
        return None
    return Seen("observed", 1.0, whole / count, f"{_begin(own)} shows {count} SMs; the card has {whole}.")


def _ecc_on_gddr(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    gddr = own.card is not None and "gddr" in (own.card.memory_type or "").lower()
    if not gddr or not own.run.get("ecc") or other.run.get("ecc") is None:
        return None
    if other.card is not None and "gddr" in (other.card.memory_type or "").lower() and other.run.get("ecc"):
        return None
    return _possible(f"Error correction is on, and the memory of {_the(own)} is GDDR.")


def _other_stack(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if own.reported or not _loses(own, evidence) or evidence.lone_setting is not None:
        return None
    names = ("torch", "cuda", "cudnn")
    differing = [f"{name} {own.run.get(name)} against {other.run.get(name)}" for name in names
                 if own.run.get(name) and other.run.get(name) and own.run.get(name) != other.run.get(name)]
    if not differing:
        return None
    return _possible(f"{', '.join(differing)}: other releases choose other kernels.")


def _library_of_reports(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if not own.reported or not _loses(own, evidence):
        return None
    return _possible(f"The libraries may choose a poorer kernel on {_the(own)}, or be other versions.")


def _compile_refuses(own: Side, other: Side, evidence: Evidence) -> Seen | None:
    if own.setting.get("execution") != "compile" or own.card is None or other.card is None:
        return None
    least = 80  # torch's own threshold in the version that was read (PEERS.md 5)
    if (own.card.sm_count or least) >= least or (other.card.sm_count or 0) < least:
        return None
    return _possible(f"torch.compile searches no products on a card of {own.card.sm_count} SMs.")


def _the(side: Side) -> str:
    return side.label if side.label[:1].isdigit() else f"the {side.label}"


def _begin(side: Side) -> str:
    """The side at the beginning of a sentence."""
    return _upper(_the(side))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


_RUN = "python -m core run {options}"
HOST_CAUSE = "host holds the GPU up"

RULES: tuple[Rule, ...] = (
    Rule("first call inside the figure", "samples, first call timed apart; stated facts", (), _first_call_inside, 300.0,
         "first against later calls: 14 to 300 (openxla/xla#44517, pytorch/torchdynamo#2008)",
         "Warm up, and time later calls only.", "the first call is timed apart from the rest", _RUN),
    Rule("timer without synchronisation", "kernel time against wall time; reported figures", (), _timer_stops_early,
         None, "no bound: a launch takes microseconds (TristanBilot/mlx-benchmark#21)",
         "Synchronise before both readings of the clock.", "the same work, timed synchronised", _RUN),
    Rule("other work under one name", "reported figures", (), _other_work, None,
         "no bound (facebookresearch/vggt#21, NVlabs/LongLive#26)",
         "Time the same script on both: same input, same counts, nothing else inside the timer.",
         "one run file of each card has the work in its key", _RUN),
    Rule("swapped labels", "an inverted ratio that would fit when turned round", (), _swapped_labels, None,
         "no bound", "Check which card each figure is of; a run file has the name that the driver gave.",
         "one run file of each card", _RUN),
    Rule("TF32 on one side only", "precision read back, capability", ("precision", "library"), _tf32_on_one_side, None,
         "the ratio of the card's own peaks (7x to 8x; pytorch/pytorch#61890)",
         "Compare IEEE FP32 with IEEE FP32, or allow TF32 where its error is acceptable.",
         "the faster card once with TF32 and once without", "python -m core run --precision fp32 tf32 {options}"),
    Rule("BF16 emulated", "execution path, capability", ("precision", "library"), _emulated_bf16, None,
         "1.85x slower than FP32 (kubeedge/ianvs#888), 4.3x slower than FP16 on a T4 (earino.github.io)",
         "Use FP16 on cards before Ampere.", "the same work in FP16 and FP32 on that card",
         "python -m core run --precision fp16 bf16 fp32 {options}"),
    Rule("poorer kernel from the library", "operation tables of both sides: kernel names, launches, roofline",
         ("library", "precision"), _poorer_kernel, None, "what the operation lost beyond its roofline",
         "Try cudnn.benchmark, another precision or layout, or split the operation; the microscope tries them.",
         "the operation alone, in alternatives", "python -m core microscope {options}"),
    Rule("poorer kernel or older libraries", "reported figures", ("library",), _library_of_reports, 2.6,
         "2.2x small GEMM tile on a T4, 2.3x an old cuDNN (AUTOMATIC1111/stable-diffusion-webui#2449), 2.6x an old "
         "cuBLAS (pytorch/pytorch#150725)",
         "Use the same releases on both, and cudnn.benchmark for fixed shapes.", "an operation table of each card",
         "python -m core run --ops all {options}"),
    Rule("other software releases", "torch, CUDA and cuDNN of both runs", ("library",), _other_stack, 2.6,
         "2.3x a cuDNN swap (AUTOMATIC1111/stable-diffusion-webui#2449), 2.6x an old cuBLAS (pytorch/pytorch#150725)",
         "Run the same releases on both.", "the same releases on both, operations compared",
         "python -m core run --ops all {options}"),
    Rule("cuDNN picks by heuristic", "setting cudnn_benchmark", ("library",),
         _setting_differs("cudnn_benchmark", False, "cudnn.benchmark"), 2.4,
         "1.4x V100, 2.4x 1080 Ti (speechbrain/speechbrain#294)", "cudnn.benchmark = True for fixed shapes.",
         "the flag on and off", "python -m core run --cudnn-benchmark off on {options}"),
    Rule("deterministic kernels", "execution path", ("library",), _deterministic, None, "varies by operation",
         "Leave deterministic mode for tests.", "the same work without it", _RUN),
    Rule("attention backend", "enabled backends, capability, operations", ("library",), _attention_backend, 2.19,
         "1.95 to 2.19x on a T4 (Dao-AILab/flash-attention#2379)",
         "Force one backend on both for a comparison.", "the backends one by one",
         "python -m core run --sdp-backend flash mem_efficient math {options}"),
    Rule("channels_last where it does not pay", "setting memory_format", ("library",),
         _setting_differs("memory_format", "channels_last", "memory format"), 1.6,
         "1.6x on a V100 in FP32 (pytorch/pytorch#44943)", "Choose the layout per card.", "both layouts",
         "python -m core run --memory-format contiguous channels_last {options}"),
    Rule(HOST_CAUSE, "kernel time / wall time below 0.7; or an unexpected tie", ("host",), _host_bound,
         None, "wall time / kernel time", "CUDA graphs, torch.compile, or more work per call.",
         "the same work without launches", "python -m core run --execution eager cudagraph {options}"),
    Rule("eager against captured", "setting execution", ("host", "library"),
         _setting_differs("execution", "eager", "execution"), 6.0, "4.2x forward, 6x step (stas00/ml-engineering)",
         "Compare the same execution on both.", "both executions",
         "python -m core run --execution eager cudagraph {options}"),
    Rule("torch.compile searches less", "execution, SM count", ("library",), _compile_refuses, None,
         "loses tuned products (pytorch/TensorRT#4398)", "Do not compare compiled runs of small and large cards alone.",
         "eager on both", "python -m core run --execution eager compile {options}"),
    Rule("fewer threads or cores", "threads and cores of both runs", ("host",), _fewer_threads, None,
         "the ratio of the threads", "Set the same number of threads.", "the same work on one core and on all",
         "python -m core run --handicap none host_cores=1 {options}"),
    Rule("calls that wait for the device", "operations such as item and nonzero, copies to the host",
         ("host", "library"),
         _sync_points, None, "wall time / kernel time", "Take .item(), .cpu() and prints out of the loop.",
         "operations of both sides", "python -m core run --ops all {options}"),
    Rule("copies from the host inside the pass", "kernel names of copies", ("host", "library"), _host_copies, None,
         "bytes / link rate", "Bring inputs to the device before the loop, from pinned memory.",
         "the link's rate on this machine", "python -m core ceilings"),
    Rule("power cap", "event reasons and clock while timed", ("clocks", "compute"),
         _held_back(clock_events.POWER_CAP, "Power cap"), 2.7,
         "T4 products at 37 % of the data sheet (sitar-lab/NeuSight timings)",
         "Compare at the clock that is sustained; raise the limit if it was lowered.",
         "products in a burst and for 10 s", "python -m core ceilings"),
    Rule("low power limit", "data sheet", ("clocks", "compute"), _small_power_limit, 2.7,
         "T4 products at 37 % of the data sheet (sitar-lab/NeuSight timings)",
         "Compare at the clock that is sustained.", "products in a burst and for 10 s", "python -m core ceilings"),
    Rule("thermal slowdown", "event reasons and clock while timed", ("clocks",),
         _held_back(clock_events.SW_THERMAL | clock_events.HW_THERMAL, "Thermal slowdown"), 1.10,
         "ordinary throttling is 5 to 10 %", "Better airflow; mark the run.", "clock and temperature now",
         "python -m core doctor"),
    Rule("power brake", "event reasons and clock while timed", ("clocks",),
         _held_back(clock_events.POWER_BRAKE, "Power brake"), None, "maximum clock / recorded clock",
         "Check supply and firmware.", "clock and reasons now", "python -m core doctor"),
    Rule("clocks set below default", "event reasons and clock while timed", ("clocks",),
         _held_back(clock_events.APPLICATION_CLOCKS, "Application clocks"), None, "maximum clock / recorded clock",
         "Reset application clocks.", "clock and reasons now", "python -m core doctor"),
    Rule("allocator retries", "allocator counters", ("memory",), _allocator_retries, None,
         "not bounded by reports (pytorch/pytorch#193391); the factor memory and the residual are its bound",
         "Smaller chunks, or expandable segments.", "the same work under a memory cap on the larger card",
         "python -m core run --handicap none alloc_cap_gb=14 {options}"),
    Rule("memory nearly full", "reserved bytes against the card's", ("memory",), _near_full, None,
         "as allocator retries", "Smaller chunks.", "the same work, smaller", _RUN),
    Rule("too little memory", "data sheets; reported figures", ("memory",), _memory_spill, 100.0,
         "2 to 6x when a driver spills (syv-ai/qwen38-27b-rtx3090#83), up to 100x oversubscribed (NVIDIA)",
         "Shrink the work until it fits.", "peak memory of this work", "python -m core cost {options}"),
    Rule("Windows driver", "operating system", ("host", "memory"), _windows, 6.0,
         "2 to 6x when it spills (syv-ai/qwen38-27b-rtx3090#83)",
         "Turn the fallback to system memory off; compare under one system.", "this machine, checked",
         "python -m core doctor"),
    Rule("torch without code for the card", "arch list against capability", (), _no_code_for_card, None,
         "minutes at the first call (pytorch/pytorch#12283); later calls differ less",
         "Install a build of torch for this card.", "this machine, checked", "python -m core doctor"),
    Rule("slice of a card", "MIG, SM count against the data sheet", ("compute",), _slice_of_a_card, None,
         "SMs of the card / SMs it shows", "Use the whole card, or label the slice.", "this machine, checked",
         "python -m core doctor"),
    Rule("error correction on GDDR memory", "ECC, memory type", ("bandwidth",), _ecc_on_gddr, 1.35,
         "a T4 reaches 74 % of its bandwidth, part of it ECC", "Note it; do not change shared machines.",
         "bandwidth that this card reaches", "python -m core ceilings"),
)
"""Every cause that can be seen: what makes a figure wrong, then precision, libraries, host, clocks, memory."""


# --- ablations and trials --------------------------------------------------------------------------------------------

_FACTORS_OF_SETTING: Mapping[str, tuple[str, ...]] = {
    "precision": ("precision", "library"),
    "execution": ("host", "library"),
    "memory_format": ("library",),
    "cudnn_benchmark": ("library",),
    "sdp_backend": ("library",),
    "handicap sm_count": ("compute", "bandwidth", "library"),
    "handicap bandwidth_copies": ("bandwidth",),
    "handicap bandwidth_share": ("bandwidth",),
    "handicap cold_l2": ("cache", "bandwidth"),
    "handicap host_cores": ("host",),
    "handicap launch_delay_us": ("host",),
    "handicap alloc_cap_gb": ("memory",),
    "handicap tf32": ("precision", "library"),
}
LIMIT_OF_SETTING: Mapping[str, str] = {
    "handicap sm_count": "compute", "handicap bandwidth_copies": "bandwidth", "handicap bandwidth_share": "bandwidth",
    "handicap cold_l2": "cache", "handicap host_cores": "host", "handicap launch_delay_us": "host",
    "handicap alloc_cap_gb": "memory",
}
"""The player that a lone limit of the hardware belongs to."""

_FIXES = {
    "precision": "Use the faster precision where its error is acceptable, or compare equal ones.",
    "execution": "Use the faster execution on both sides.",
}


def _value_of(side: Side, setting: str) -> str:
    """The value that a side has for the setting of an ablation, as text."""
    if setting.startswith("handicap "):
        return handicap_parts(side.setting.get("handicap")).get(setting.removeprefix("handicap "), "none")
    value = side.setting.get(setting)
    return "none" if value is None else str(value)


def handicap_parts(text: Any) -> dict[str, str]:
    """`sm_count=40+cold_l2` -> {"sm_count": "40", "cold_l2": "on"}; empty for none."""
    parts = (part.partition("=") for part in str(text).split("+")) if text else ()
    return {name.strip(): value.strip() or "on" for name, _, value in parts if name.strip()}


def setting_parts(setting: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a cell by name, every part of its handicap one of its own."""
    parts = {name: "none" if value is None else str(value) for name, value in setting.items() if name != "handicap"}
    return parts | {f"handicap {name}": value for name, value in handicap_parts(setting.get("handicap")).items()}


def lone_difference(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """(setting, left value, right value) where two settings differ in exactly one thing; None otherwise."""
    a, b = setting_parts(left), setting_parts(right)
    differing = [name for name in {**a, **b} if a.get(name, "none") != b.get(name, "none")]
    if len(differing) != 1:
        return None
    return differing[0], a.get(differing[0], "none"), b.get(differing[0], "none")


def _slowed_side(ablation: Ablation, evidence: Evidence) -> Side | None:
    """The side that has the slower value while the other one has the faster; None: this ablation is about neither."""
    for own, other in ((evidence.baseline, evidence.target), (evidence.target, evidence.baseline)):
        values = _value_of(own, ablation.setting), _value_of(other, ablation.setting)
        if values == (ablation.with_, ablation.without):
            return own
    if ablation.setting == "precision":
        return _slowed_by_precision(ablation, evidence)
    if ablation.setting == "handicap sm_count":
        return _with_fewer_sms(ablation, evidence)
    return None


def _slowed_by_precision(ablation: Ablation, evidence: Evidence) -> Side | None:
    """One name on both sides, carried out in TF32 on one alone: FP32 against that name on the card that has TF32."""
    if ablation.with_ != "fp32" or ablation.without not in _TF32_SETTINGS:
        return None
    for own, other in ((evidence.baseline, evidence.target), (evidence.target, evidence.baseline)):
        if other.precision == ablation.without and _tf32(own) is False and _tf32(other) is True:
            return own
    return None


def _with_fewer_sms(ablation: Ablation, evidence: Evidence) -> Side | None:
    """A whole card that has about as many SMs as the ablation left to the other one."""
    for own, other in ((evidence.baseline, evidence.target), (evidence.target, evidence.baseline)):
        left = float(ablation.with_) if ablation.with_.isdecimal() else math.nan
        mine, theirs = own.run.get("sm_count"), other.run.get("sm_count")
        if mine and theirs and mine < theirs and abs(mine / left - 1) <= 0.1:
            return own
    return None


def _of_ablation(ablation: Ablation, evidence: Evidence) -> Finding | None:
    own = _slowed_side(ablation, evidence)
    if own is None or ablation.ratio < LEAST_EFFECT:
        return None
    names = _FACTORS_OF_SETTING.get(ablation.setting, ())
    proved = ablation.on_side is not None
    span = f" ({units.ratio_interval(ablation.low, ablation.high)})" if ablation.low and ablation.high else ""
    where = "On this board" if proved else f"Reproduced on {ablation.gpu}, factor {units.ratio(ablation.ratio)}: there"
    what = f"{ablation.setting} {ablation.with_} took {units.ratio(ablation.ratio)}{span} as long as {ablation.without}"
    low, high = ablation.low or ablation.ratio, ablation.high or ablation.ratio
    # An unknown limit may belong to any factor; the pair itself is its own measure.
    bound = math.inf if ablation.is_this_pair else explainable(own, names or PLAYERS, evidence)
    made = _made(
        _name_of(ablation), "proved" if proved else "possible", own, evidence,
        Seen("", low, high, f"{where} {what}; same work, nothing else differs; {ablation.outputs}.", ablation.ratio),
        names, bound,
        _FIXES.get(ablation.setting, f"Take the {ablation.setting.removeprefix('handicap ')} limit away."),
        "measured" if proved else "the same ablation on a board of this gap",
        f"python -m core compare --baseline {_selection(ablation, 0)} --target {_selection(ablation, 1)}" if proved
        else f"{_RUN} {_options_of(ablation)}", "measured ablation",
    )
    return made and replace(made, is_the_pair=ablation.is_this_pair)


def _name_of(ablation: Ablation) -> str:
    if ablation.setting.startswith("handicap "):
        return f"handicap {ablation.setting.removeprefix('handicap ')}={ablation.with_}"
    values = ({"True": "on", "False": "off"}.get(value, value) for value in (ablation.with_, ablation.without))
    return f"{ablation.setting.replace('_', ' ')} {' instead of '.join(values)}"


def _selection(ablation: Ablation, place: int) -> str:
    """The slower (0) or the faster cell of an ablation as the command line selects it."""
    value, run = (ablation.with_, ablation.without)[place], ablation.runs[place]
    if ablation.setting.startswith("handicap "):
        return run if value == "none" else f"{run},handicap.{ablation.setting.removeprefix('handicap ')}={value}"
    return f"{run},{ablation.setting}={value}"


def _options_of(ablation: Ablation) -> str:
    if ablation.setting.startswith("handicap "):
        return f"--handicap none {ablation.setting.removeprefix('handicap ')}={ablation.with_}"
    return f"--{ablation.setting.replace('_', '-')} {ablation.without} {ablation.with_}"


def _of_trials(evidence: Evidence) -> list[Finding | None]:
    """One finding per operation and side: the way that saves most. Other arithmetic stands apart, as no equal work."""
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in evidence.trials:
        if trial.on_side is not None and trial.counts:
            key = (trial.on_side, trial.op, trial.stage, trial.shapes, trial.other_arithmetic, trial.on_board,
                   trial.gpu)
            groups.setdefault(key, []).append(trial)
    ranked = (sorted(ways, key=lambda trial: -trial.factor) for ways in groups.values())
    return [_of_trial(ways[0], ways[1:], evidence) for ways in ranked]


def _of_trial(trial: Trial, others: Sequence[Trial], evidence: Evidence) -> Finding | None:
    """`others`: further ways to compute the same operation, told beside the best one. Their savings do not add up."""
    own = evidence.baseline if trial.on_side == "baseline" else evidence.target
    if not own.time_ms:
        return None
    value, low, high = (
        own.time_ms / max(own.time_ms - trial.saved_by_ms(factor), 0.001 * own.time_ms)
        for factor in (trial.factor, trial.low or trial.factor, trial.high or trial.factor)
    )
    kind, _, way = trial.change.partition(": ")
    way = way or trial.change
    op = trial.op.removeprefix("aten::")
    proved = trial.on_board and trial.agrees is True and trial.reproduced is True and not trial.other_arithmetic
    where = "" if trial.on_board else f"Reproduced on {trial.gpu}, another board, factor {units.ratio(trial.factor)}: "
    span = units.ratio_interval(trial.low, trial.high)
    detail = (
        f"{where}{op}{f' on {trial.shapes}' if trial.shapes else ''} ({trial.stage}) alone: "
        f"{units.time_ms(trial.before_ms)} by {kernels_in_words(trial.kernels_before)}, "
        f"{units.time_ms(trial.after_ms)} by {kernels_in_words(trial.kernels_after)} with {way}: "
        f"{units.ratio(trial.factor)}{'' if span == units.MISSING else f' ({span})'}, n = {trial.n}; "
        f"{trial.calls} calls in a pass; {_results(trial)}."
    )
    if others:
        told = "; ".join(f"{other.change.partition(': ')[2] or other.change} {units.ratio(other.factor)}"
                         for other in others[:2])
        more = f"; {len(others) - 2} more" if len(others) > 2 else ""
        ways = "other way was" if len(others) == 1 else "other ways were"
        detail += f" {len(others)} {ways} faster too: {told}{more}."
    names = ("library", "precision")
    return _made(
        f"{op} in other arithmetic: {way}" if trial.other_arithmetic else f"{op} computed another way: {way}",
        "proved" if proved else "possible", own, evidence, Seen("", low, high, detail, value), names,
        explainable(own, names, evidence),
        "Set it where this operation runs." if kind in ("flag", "backend")
        else "Use it where its error is acceptable." if trial.other_arithmetic else f"Write it so: {way}.",
        "measured by the microscope" if proved else "the operation on this board, in alternatives",
        "python -m core microscope {options}", "measured trial of one operation",
    )


def _results(trial: Trial) -> str:
    """Whether the results of a trial agree, in words."""
    largest = "" if trial.max_abs_diff is None else f" by at most {trial.max_abs_diff:.2g}"
    if trial.other_arithmetic:
        return f"other arithmetic, results differ{largest}"
    if trial.agrees is None:
        return f"nobody judged its results{largest and f', which differ{largest}'}"
    return f"results agree{largest and f' (differ{largest})'}"


# --- putting it together ---------------------------------------------------------------------------------------------

def explainable(side: Side, names: Sequence[str], evidence: Evidence) -> float:
    """The most by which a cause can slow `side`: the factors it is part of times the residual, at least 1.

    Without factors (two reported numbers) it is what lies between the figure and the theory nearest to equal times.
    """
    sign = 1.0 if side is evidence.baseline else -1.0
    if evidence.factors is not None:
        log = sign * math.log(evidence.factors.ratio(*names) * evidence.factors.residual)
    else:
        log = sign * math.log(evidence.ratio) - min((sign * math.log(e) for e in evidence.expected), default=0.0)
    return math.exp(max(log, 0.0))


def _made(
    cause: str, grade: str, side: Side, evidence: Evidence, seen: Seen, names: Sequence[str], bound: float, fix: str,
    measurement: str, command: str, limit_source: str,
) -> Finding | None:
    """The finding within its bounds, told as a part of baseline time / target time; None if it explains too little.

    `names`: the factors that it is part of; `bound`: the most that it may explain.
    """
    high = min(bound, seen.high if seen.high is not None else math.inf)
    if high < LEAST_EFFECT:
        return None
    low, value = min(seen.low, high), None if seen.value is None else min(seen.value, high)
    ends = (low, None if math.isinf(high) else high)
    if side is not evidence.baseline:
        value = None if value is None else 1 / value
        ends = (0.0 if ends[1] is None else 1 / ends[1], 1 / low)
    told = command.format(options=evidence.options).rstrip()
    name = "baseline" if side is evidence.baseline else "target"
    return Finding(cause, grade, name, value, ends[0], ends[1], seen.detail, fix, f"{measurement}: {told}", told,
                   limit_source, tuple(names), None if math.isinf(bound) else bound)


def _of_rule(rule: Rule, own: Side, other: Side, evidence: Evidence) -> Finding | None:
    seen = rule.look(own, other, evidence)
    if seen is None:
        return None
    most = explainable(own, rule.factors, evidence)
    if rule.cause == HOST_CAUSE and evidence.one_host:
        most = math.inf  # no part of the ratio: the side's own wall time over kernel time is the bound
        detail = f"{seen.detail} It starts the kernels of both sides, and cuts short what the other factors could give."
        seen = replace(seen, detail=detail)
    bound = min(most, rule.limit or math.inf)
    cause = f"{rule.cause} ({seen.about})" if seen.about else rule.cause
    made = _made(cause, seen.grade, own, evidence, seen, rule.factors, bound, rule.fix, rule.measurement, rule.command,
                 rule.limit_source)
    return made and replace(made, most=None if math.isinf(most) else most)


def findings(evidence: Evidence) -> list[Finding]:
    """All findings about a gap, best evidence first and among equal grades the largest effect first.

    A gap that is as the hardware says gets no merely possible causes: they would explain nothing.
    """
    found = [_of_ablation(ablation, evidence) for ablation in evidence.ablations]
    found += _of_trials(evidence)
    for rule in RULES:
        for own, other in ((evidence.baseline, evidence.target), (evidence.target, evidence.baseline)):
            found.append(_of_rule(rule, own, other, evidence))
    kept = [finding for finding in found if finding is not None]
    if evidence.verdict == "as_expected":
        kept = [finding for finding in kept if finding.evidence != "possible"]
    if evidence.baseline.reported:
        return _ranked_reports(kept, evidence)
    return sorted(
        kept, key=lambda finding: (GRADES.index(finding.evidence), finding.value is None, -_size(finding))
    )


def _size(finding: Finding) -> float:
    """How much a finding may explain, whichever side it slows."""
    if finding.value is not None:
        return abs(math.log(finding.value))
    ends = (finding.low, finding.high)
    return max((abs(math.log(end)) if end else math.inf) for end in ends)


def _ranked_reports(found: Sequence[Finding], evidence: Evidence) -> list[Finding]:
    """Candidates about two reported numbers, by a written rule.

    First those that can explain the whole excess over the most generous theory, then the others. Inside both: where
    cards that should differ do not, the host first; else the order of `RULES`, which begins with what makes a figure
    wrong. A stated fact removes a candidate or brings it in.
    """
    tie = evidence.verdict_reason in ("hidden", "inverted")

    def excess(finding: Finding) -> float:
        if not evidence.expected:
            return 0.0
        if finding.side == "baseline":
            return math.log(evidence.ratio) - math.log(max(evidence.expected))
        return math.log(min(evidence.expected)) - math.log(evidence.ratio)

    return sorted(found, key=lambda finding: (
        _size(finding) < excess(finding) - 1e-9, not (tie and finding.cause == HOST_CAUSE)
    ))


def next_measurement(found: Sequence[Finding]) -> Finding | None:
    """The candidate whose measurement decides most candidates at once; of equals the one ranked first."""
    if not found:
        return None
    commands = [finding.command for finding in found]
    return max(found, key=lambda finding: (commands.count(finding.command), -commands.index(finding.command)))
