"""Order and clocks of a timed cell: first call, warmup, repetitions, stages. No torch here; the clock is handed in.

One repetition is: synchronise, mark, forward pass, mark, synchronise. `wall_ms` lies between the two synchronisations,
`event_ms` between the two marks on the device's own time line. Stages are marked inside the same repetition, without
any synchronisation, so that they and `other` sum to that repetition's total. Telemetry is read and the stop rule is
asked between repetitions, outside the timed region.
"""
from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from core.measure.plan import Effort
from core.trackers.stages import OTHER

LEAST_REPETITIONS = 3
LEAST_WARMUP_CALLS = 2
# Warmup goes on until the last calls neither rise nor fall: by at most this share of their median from first to last.
FLAT_CALLS, FLAT_SHARE = 6, 0.02
MOST_WARMUP = 3  # times the warmup of the effort; what is not flat by then is measured and said
STOP_MEDIAN, STOP_BUDGET, STOP_COUNT = "median_interval", "time_budget", "max_repetitions"
_CONFIDENCE = 0.95
_DIGITS = 6  # nanoseconds: no clock here is finer, and the digits behind are only bytes in the file
# CUDA events resolve 0.5 us and come as float32 milliseconds; a negative `other` beyond this is a fault of the stages.
_EVENT_RESOLUTION_MS = 0.002
_FLOAT32_STEP = 2.0**-22


class Clock(Protocol):
    """Host time and the device's own time line. `mark` is cheap and does not wait."""

    device_timeline: bool  # True when marks lie on a time line of their own (CUDA events)

    def now_ms(self) -> float: ...
    def synchronize(self) -> None: ...
    def mark(self) -> Any: ...
    def between_ms(self, first: Any, second: Any) -> float: ...
    def reuse(self, marks: list[Any]) -> None: ...


class HostClock:
    """A CPU has one time line: marks are host times."""

    device_timeline = False

    def now_ms(self) -> float:
        return time.perf_counter() * 1e3

    def synchronize(self) -> None:
        return None

    def mark(self) -> float:
        return time.perf_counter() * 1e3

    def between_ms(self, first: float, second: float) -> float:
        return second - first

    def reuse(self, marks: list[float]) -> None:
        return None


class CudaClock:
    """Marks are CUDA events, kept for reuse so that no repetition pays for creating them."""

    device_timeline = True

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self._stream = torch.cuda.current_stream(device)
        self._free: list[Any] = []

    def now_ms(self) -> float:
        return time.perf_counter() * 1e3

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._device)

    def mark(self) -> Any:
        event = self._free.pop() if self._free else self._torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def between_ms(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second))

    def reuse(self, marks: list[Any]) -> None:
        self._free.extend(marks)


class StageTimer:
    """A stage marker that marks entry and exit of every stage on the clock's time line."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.visits: list[tuple[str, Any, Any]] = []

    def __call__(self, name: str) -> _Visit:
        return _Visit(self, name)

    def add(self, name: str, entered: Any, left: Any) -> None:
        self.visits.append((name, entered, left))

    def take(self) -> tuple[dict[str, float], dict[str, int]]:
        """Milliseconds and visits by stage since the last call; only after the clock was synchronised."""
        total_ms: dict[str, float] = {}
        calls: dict[str, int] = {}
        marks = []
        for name, entered, left in self.visits:
            total_ms[name] = total_ms.get(name, 0.0) + self._clock.between_ms(entered, left)
            calls[name] = calls.get(name, 0) + 1
            marks += [entered, left]
        self._clock.reuse(marks)
        self.visits = []
        return total_ms, calls


class _Visit:
    """One pass through a stage. A class, since a generator context costs about a microsecond more per visit."""

    __slots__ = ("_entered", "_name", "_timer")

    def __init__(self, timer: StageTimer, name: str) -> None:
        self._timer, self._name = timer, name

    def __enter__(self) -> None:
        self._entered = self._timer._clock.mark()

    def __exit__(self, *exc: object) -> None:
        self._timer.add(self._name, self._entered, self._timer._clock.mark())


@dataclass(frozen=True)
class Timing:
    """Raw samples of one cell. Every list of the repetitions has one value per repetition."""

    first_call_ms: float
    warmup_ms: tuple[float, ...]
    wall_ms: tuple[float, ...]
    event_ms: tuple[float, ...] | None  # None on a CPU
    stage_ms: dict[str, tuple[float, ...]]  # `other` is the last; on a CPU these are wall times
    stage_calls: dict[str, int | None]
    readings: tuple[Any, ...]
    stop_rule: str
    warmup_flat: bool | None  # None: too few calls to tell


def time_cell(
    call: Callable[[], object],
    clock: Clock,
    effort: Effort,
    stages: StageTimer,
    read_telemetry: Callable[[], Any] = lambda: None,
    before_repetitions: Callable[[], None] = lambda: None,
    progress: Callable[[str, int], None] = lambda phase, count: None,
    before_each: Callable[[], None] | None = None,
) -> Timing:
    """Time one forward pass `call` again and again.

    `stages` must be the marker that the model uses while `call` runs. `before_repetitions` runs between warmup and
    the first repetition (precision is read back, memory counters are reset there), `before_each` before every
    repetition and ahead of the synchronisation that begins it (an L2 flush).
    """
    progress("first call", 0)
    first_call_ms = _one_call_ms(call, clock)
    stages.take()
    warmup_ms = _warm_up(call, clock, effort, stages, progress)
    before_repetitions()

    wall_ms: list[float] = []
    event_ms: list[float] = []
    stage_rows: list[dict[str, float]] = []
    calls: dict[str, int] = {}
    readings: list[Any] = []
    started_ms = clock.now_ms()
    stop_rule = None
    while stop_rule is None:
        progress("repetition", len(wall_ms))
        if before_each is not None:
            before_each()
        clock.synchronize()
        start_ms = clock.now_ms()
        first = clock.mark()
        call()
        last = clock.mark()
        clock.synchronize()
        end_ms = clock.now_ms()
        readings.append(read_telemetry())
        marked_ms = clock.between_ms(first, last)
        # On a CPU the marks are host times: one total for wall and stages.
        wall_ms.append(end_ms - start_ms if clock.device_timeline else marked_ms)
        event_ms.append(marked_ms)
        row, calls = stages.take()
        stage_rows.append({**row, OTHER: _rest_ms(marked_ms, row)})
        clock.reuse([first, last])
        stop_rule = stop_reason(wall_ms, (clock.now_ms() - started_ms) / 1e3, effort)

    names = dict.fromkeys(name for row in stage_rows for name in row if name != OTHER)  # in order of first entry
    unique = [*names, OTHER]
    return Timing(
        first_call_ms=round(first_call_ms, _DIGITS),
        warmup_ms=_rounded(warmup_ms),
        wall_ms=_rounded(wall_ms),
        event_ms=_rounded(event_ms) if clock.device_timeline else None,
        stage_ms={name: _rounded([row.get(name, 0.0) for row in stage_rows]) for name in unique},
        stage_calls={name: calls.get(name) for name in unique},
        readings=tuple(readings),
        stop_rule=stop_rule,
        warmup_flat=is_flat(warmup_ms),
    )


def _rounded(samples_ms: list[float]) -> tuple[float, ...]:
    return tuple(round(sample, _DIGITS) for sample in samples_ms)


def _one_call_ms(call: Callable[[], object], clock: Clock) -> float:
    clock.synchronize()
    start_ms = clock.now_ms()
    call()
    clock.synchronize()
    return clock.now_ms() - start_ms


def _warm_up(
    call: Callable[[], object], clock: Clock, effort: Effort, stages: StageTimer, progress: Callable[[str, int], None]
) -> list[float]:
    """Calls until `warmup_s` have passed, at least two were made and their times are flat.

    One call that alone lasts as long is enough; waiting for flatness ends after `MOST_WARMUP` times the budget.
    """
    least_ms = effort.warmup_s * 1e3
    warmup_ms: list[float] = []
    while sum(warmup_ms) < least_ms or (
        max(warmup_ms) < least_ms
        and (len(warmup_ms) < LEAST_WARMUP_CALLS
             or (is_flat(warmup_ms) is False and sum(warmup_ms) < MOST_WARMUP * least_ms))
    ):
        progress("warmup", len(warmup_ms))
        warmup_ms.append(_one_call_ms(call, clock))
        stages.take()
    return warmup_ms


def is_flat(samples_ms: list[float]) -> bool | None:
    """Whether the last `FLAT_CALLS` samples have no trend; None for fewer.

    The trend is the median of all pairwise slopes (Theil 1950, Sen 1968): one outlier does not make one.
    """
    last = samples_ms[-FLAT_CALLS:]
    if len(last) < FLAT_CALLS:
        return None
    slopes = sorted((last[j] - last[i]) / (j - i) for i in range(len(last)) for j in range(i + 1, len(last)))
    middle = sorted(last)[len(last) // 2]
    return abs(slopes[len(slopes) // 2]) * (len(last) - 1) <= FLAT_SHARE * middle


def _rest_ms(total_ms: float, stages_ms: dict[str, float]) -> float:
    """Time outside every stage. Raises ValueError when the stages exceed the total by more than the clock's step."""
    rest = total_ms - sum(stages_ms.values())
    tolerance = _EVENT_RESOLUTION_MS + total_ms * _FLOAT32_STEP * (len(stages_ms) + 1)
    if rest < -tolerance:
        raise ValueError(f"stages sum to {total_ms - rest:.3f} ms in a pass of {total_ms:.3f} ms: do they nest?")
    return max(rest, 0.0)


def stop_reason(samples_ms: list[float], elapsed_s: float, effort: Effort) -> str | None:
    """Why no further repetition is needed, None to go on. Never stops before three."""
    if len(samples_ms) < LEAST_REPETITIONS:
        return None
    if len(samples_ms) >= effort.min_repetitions:
        half_width = median_half_width(samples_ms)
        if half_width is not None and half_width <= effort.half_width:
            return STOP_MEDIAN
    if elapsed_s >= effort.sample_s:
        return STOP_BUDGET
    return STOP_COUNT if len(samples_ms) >= effort.max_repetitions else None


def median_half_width(samples_ms: list[float]) -> float | None:
    """Half the width of the 95 % interval of the median, over the median. None below six samples.

    The interval lies between two order statistics, by the binomial distribution: no shape is assumed. Six samples
    are the fewest whose range covers the median with 95 %.
    """
    n = len(samples_ms)
    rank = _order_statistic_rank(n)
    if rank is None:
        return None
    ordered = sorted(samples_ms)
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return (ordered[n - rank] - ordered[rank - 1]) / 2 / middle if middle > 0 else None


def _order_statistic_rank(n: int) -> int | None:
    """Largest r such that the r-th smallest and r-th largest of n samples enclose the median with 95 %."""
    if n > 1000:  # normal approximation of the binomial: exact sums of huge integers would take longer than a sample
        return int(n / 2 - 0.98 * math.sqrt(n))
    tail, rank = 0, None
    for r in range(1, n // 2 + 1):
        tail += math.comb(n, r - 1)
        if 1 - 2 * tail / 2**n < _CONFIDENCE:
            break
        rank = r
    return rank
