"""What this device reaches at best: bandwidth, products, gathers, launches, copies to and from the host.

`core/measure/ceilings.py` writes them as a run file; a standard sweep measures them at its start
(`quick_ceilings`). Each ceiling keeps its samples; its value is their median. Everything runs on the current stream of
the current context, so that it also measures a limited part of a GPU (then with `limited=True`: no CUDA graphs, whose
capture leaves that context).

| metric | unit | what runs |
|---|---|---|
| copy, read | GB/s | device memory: the best working set that no cache holds. copy counts bytes read + written |
| copy_by_size, read_by_size | GB/s | the same over working sets from 256 KiB on: the L2 knee |
| gemm | TFLOPS | product of two square random matrices in one `precision`, a short burst; the best of its sizes |
| gemm_sustained | TFLOPS | the same for 10 s without a pause, one sample per 0.1 s: what heat and power leave of it |
| gather_index_select, gather_grid_sample_4d, _5d | GB/s | random places; bytes counted as for any op |
| launch_floor | us | an empty kernel, from its launch to the end of a synchronisation |
| launch_rate, op_rate | 1/ms | empty kernels, and the smallest torch operation, started one after the other |
| host_to_device, device_to_host, each _pageable or _pinned | GB/s | one large copy, wall time |

The working set of a copy is both of its buffers. A product counts 2 n^3 operations. Data are random: a chip draws less
power and clocks higher on zeros. Bandwidth of a CPU is that of all its threads; it has no launches and no host copies.
"""
from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from core import units
from core.measure import device, precision, reasons
from core.measure.nvml import Nvml
from core.measure.telemetry import Reading, Sensor
from core.records import Ceiling

KIB, MIB, GIB = 2**10, 2**20, 2**30
BUDGET_S = 120.0
SWEEP_SHARE = 0.1
"""Of a sweep's budget at most this much goes to ceilings."""

SUSTAINED_S, CHUNK_S = 10.0, 0.1
SAMPLES = 10
CALLS_IN_A_GRAPH = 50
_SAMPLE_MS = {"cuda": 3.0, "cpu": 5.0}  # a sample is long against the resolution of an event and a launch
_BURST_S = 0.3  # all samples of one size together: short against what a power cap needs to act
_LONGEST_CALL_S = 1.0
_OVER_THE_CACHE = 8  # a working set this many times the L2 leaves it no say
_SIZES = {"cuda": (256 * KIB, 4 * GIB), "cpu": (256 * KIB, 512 * MIB)}
_GRAPH_BELOW = 64 * MIB  # above, a call takes longer than its launch
_CURVE_SHARE = 0.2  # of the budget, for all working sets of one metric
_MEMORY_SHARE = 0.25  # of what is free, for one working set
_GEMM_SIZES = {"cuda": (4096, 6144, 8192), "cpu": (512, 1024, 2048)}
_GEMM_PRECISIONS = {"cuda": ("fp32", "tf32", "fp16", "bf16", "fp64"), "cpu": ("fp32", "bf16")}
_SUSTAINED = {"cuda": ("fp32", "bf16", "fp16", "tf32"), "cpu": ("fp32",)}  # what the budget cuts first is last
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}
_HOST_COPY_BYTES = 256 * MIB
_DRAWN_ONCE = 2**20
_LAUNCHES = 500
_TFLOPS, _GB_S = "TFLOPS", "GB/s"

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class _Timed:
    """Milliseconds per call, one for each sample, and what NVML said while they ran."""

    ms: list[float]
    readings: list[Reading]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.ms)


def measure_ceilings(
    found: device.Found, nvml: Nvml | None, budget_s: float = BUDGET_S, say: Say = lambda line: None,
    on_ceiling: Callable[[Ceiling], None] = lambda ceiling: None, limited: bool = False,
) -> list[Ceiling]:
    """All ceilings that fit into `budget_s`, the most telling ones first; `say` names what was left out and why.

    Precision settings of torch are as it was loaded with afterwards. `on_ceiling` gets each one when it is measured;
    what it raises ends the measurement.
    """
    bench = _Bench(found, nvml, limited, budget_s, say)
    kind = found.device.type
    jobs: list[tuple[str, float, Callable[[_Bench], Iterator[Ceiling]]]] = [
        ("copy and read bandwidth", 1.0, _bandwidths), ("products in a burst", 1.0, _bursts),
        ("gathers", 0.5, _gathers),
    ]
    if kind == "cuda":
        jobs.insert(0, ("launches", 0.2, _launches))
        jobs.append(("host copies", 0.5, _host_copies))
    jobs += [
        (f"sustained product {name}", SUSTAINED_S, lambda bench, name=name: _sustained(bench, name))  # type: ignore[misc]
        for name in _SUSTAINED[kind]
    ]
    made: list[Ceiling] = []
    try:
        for name, least_s, job in jobs:
            if bench.left_s() < least_s:
                say(f"left out: {name}, since {units.duration(max(bench.left_s(), 0.0))} of the budget are left")
                continue
            try:
                for ceiling in job(bench):
                    made.append(ceiling)
                    on_ceiling(ceiling)
            except RuntimeError as error:
                say(f"left out: {name} ({reasons.out_of_memory(error, kind) or reasons.of_error(error)})")
                if reasons.poisons_process(error):
                    break
            bench.forget()
    finally:
        precision.apply("default")
    return made


def quick_ceilings(
    found: device.Found, nvml: Nvml | None, sweep_budget_s: float | None = None, say: Say = lambda line: None,
    on_ceiling: Callable[[Ceiling], None] = lambda ceiling: None, limited: bool = False,
) -> list[Ceiling]:
    """Ceilings for the start of a sweep: two minutes at most, and at most a tenth of the sweep's budget."""
    budget_s = BUDGET_S if sweep_budget_s is None else min(BUDGET_S, SWEEP_SHARE * sweep_budget_s)
    return measure_ceilings(found, nvml, budget_s, say, on_ceiling, limited)


# --- timing ----------------------------------------------------------------------------------------------------------


class _Bench:
    """A device with its clock, sensor and deadline; times calls and keeps the best product sizes for later."""

    def __init__(self, found: device.Found, nvml: Nvml | None, limited: bool, budget_s: float, say: Say) -> None:
        self.found, self.say, self.budget_s = found, say, budget_s
        self._deadline_s = time.monotonic() + budget_s
        self.kind = found.device.type
        self.on_cuda = self.kind == "cuda"
        self.torch_device = torch.device(found.torch_name)
        self.sensor = Sensor(nvml, found.uuid)
        self.graphs = self.on_cuda and not limited
        self.best_size: dict[str, int] = {}
        self.generator = torch.Generator(device=self.torch_device).manual_seed(0)

    def left_s(self) -> float:
        return self._deadline_s - time.monotonic()

    def forget(self) -> None:
        if self.on_cuda:
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        if self.on_cuda:
            torch.cuda.current_stream(self.torch_device).synchronize()

    def wall_ms(self, call: Callable[[], object]) -> float:
        """One call from an idle to an idle device, on the host's clock."""
        self.synchronize()
        start_s = time.perf_counter()
        call()
        self.synchronize()
        return (time.perf_counter() - start_s) * 1e3

    def random(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        values = torch.randn(*shape, device=self.torch_device, generator=self.generator)
        return values.to(dtype) if dtype != torch.float32 else values

    def random_row(self, count: int) -> torch.Tensor:
        """`count` random numbers, the first million repeated: a CPU would take seconds to draw a large buffer."""
        drawn = self.random(min(count, _DRAWN_ONCE))
        return drawn.repeat(math.ceil(count / len(drawn)))[:count]

    def time(
        self, call: Callable[[], object], samples: int = SAMPLES, limit_s: float = 2.0, graph: bool = False
    ) -> _Timed:
        """`call` timed in samples long enough for the clock, after two calls that are not; at least three samples."""
        for _ in range(2):
            call()
        once_ms = min(self.wall_ms(call) for _ in range(2))
        if graph and self.graphs:
            replay = _captured(call, CALLS_IN_A_GRAPH)
            if replay is not None:
                timed = self.time(replay, samples, limit_s)
                return _Timed([ms / CALLS_IN_A_GRAPH for ms in timed.ms], timed.readings)
        calls = max(1, math.ceil(_SAMPLE_MS[self.kind] / max(once_ms, 1e-3)))
        wanted = min(samples, max(3, int(limit_s * 1e3 / (once_ms * calls))))
        ms, readings = [], []
        for _ in range(wanted):
            sample_ms, reading = self._sample(call, calls)
            ms.append(sample_ms / calls)
            readings.append(reading)
        return _Timed(ms, readings)

    def _sample(self, call: Callable[[], object], calls: int) -> tuple[float, Reading]:
        """Milliseconds of `calls` calls, and a reading that is taken while a GPU works on them."""
        if not self.on_cuda:
            start_s = time.perf_counter()
            for _ in range(calls):
                call()
            return (time.perf_counter() - start_s) * 1e3, Reading()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(calls):
            call()
        last.record()
        reading = self.sensor.read()
        last.synchronize()
        return float(first.elapsed_time(last)), reading

    def ceiling(
        self, metric: str, unit: str, samples: Sequence[float], readings: Sequence[Reading] = (), **fields: Any
    ) -> Ceiling:
        bits = [reading.throttle_bits for reading in readings if reading.throttle_bits is not None]
        return Ceiling(
            metric, _digits(statistics.median(samples)), unit, samples=tuple(_digits(value) for value in samples),
            clock_mhz=_median([reading.sm_clock_mhz for reading in readings]),
            power_w=_median([reading.power_w for reading in readings]),
            throttle_bits=_all_bits(bits) if bits else None, **fields,
        )


def _captured(call: Callable[[], object], calls: int) -> Callable[[], object] | None:
    """A CUDA graph of `calls` calls: launches then cost about a microsecond. None where capture does not work."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        graph.replay()
        torch.cuda.current_stream().synchronize()
    except RuntimeError:
        return None
    replay: Callable[[], object] = graph.replay
    return replay


def _digits(value: float) -> float:
    return float(f"{value:.6g}")


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _all_bits(bits: Sequence[int]) -> int:
    found = 0
    for value in bits:
        found |= value
    return found


# --- memory ----------------------------------------------------------------------------------------------------------


def working_sets(smallest: int, largest: int, available_bytes: int | None) -> list[int]:
    """Powers of two from `smallest` to `largest` bytes, as far as a quarter of the free memory holds them."""
    limit = largest if available_bytes is None else min(largest, int(available_bytes * _MEMORY_SHARE))
    sizes = []
    size = smallest
    while size <= limit:
        sizes.append(size)
        size *= 2
    return sizes


def beyond_cache(sizes: Sequence[int], l2_bytes: int | None) -> list[int]:
    """The working sets that say what device memory does: eight times the L2 and more, else the largest one."""
    far = [size for size in sizes if l2_bytes is not None and size >= _OVER_THE_CACHE * l2_bytes]
    return far or list(sizes[-1:])


def _available_bytes(bench: _Bench) -> int | None:
    if bench.on_cuda:
        return int(torch.cuda.mem_get_info(bench.torch_device)[0])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _bandwidths(bench: _Bench) -> Iterator[Ceiling]:
    sizes = working_sets(*_SIZES[bench.kind], _available_bytes(bench))
    if not sizes:
        raise RuntimeError("too little memory is free")
    for metric, prepare in (("copy", _copy), ("read", _read)):
        empty_ms = bench.time(prepare(bench, 8), samples=3, graph=True).median_ms
        points: list[Ceiling] = []
        least_left_s = bench.left_s() - _CURVE_SHARE * bench.budget_s
        for size in reversed(sizes):  # device memory first: the budget may end
            if points and bench.left_s() <= max(0.0, least_left_s):
                bench.say(f"left out: {metric} up to {units.bytes_size(size)}, its part of the budget is spent")
                break
            timed = bench.time(prepare(bench, size), limit_s=0.5, graph=size < _GRAPH_BELOW)
            points.append(bench.ceiling(
                f"{metric}_by_size", _GB_S, [size / ms / 1e6 for ms in timed.ms], timed.readings,
                working_set_bytes=size,
                limited_by="launch" if bench.on_cuda and timed.median_ms < 2 * empty_ms else None,
            ))
            yield points[-1]
        far = set(beyond_cache(sizes, bench.found.device.l2_bytes))
        counted = [point for point in points if point.working_set_bytes in far]
        if counted:
            yield dataclasses.replace(max(counted, key=lambda point: point.value), metric=metric)


def _copy(bench: _Bench, working_set_bytes: int) -> Callable[[], object]:
    """A copy whose two buffers together are the working set."""
    source = bench.random_row(max(1, working_set_bytes // 8))
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _read(bench: _Bench, working_set_bytes: int) -> Callable[[], object]:
    """A sum over the working set: the least that torch can do with data that it only reads."""
    source = bench.random_row(max(1, working_set_bytes // 4))
    total = torch.empty((), device=bench.torch_device)
    return lambda: torch.sum(source, dim=0, out=total)


# --- products --------------------------------------------------------------------------------------------------------


def _product(bench: _Bench, name: str, size: int) -> Callable[[], object]:
    dtype = _DTYPES.get(name, torch.float32)
    left, right = bench.random(size, size, dtype=dtype), bench.random(size, size, dtype=dtype)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, right, out=out)


def _rates(size: int, ms: Sequence[float]) -> list[float]:
    """TFLOP/s of products of two size x size matrices."""
    return [2 * size**3 / each / 1e9 for each in ms]


def _unsupported(bench: _Bench, name: str) -> str | None:
    return precision.unsupported_reason(name, bench.kind, bench.found.capability) if name != "fp64" else None


def _emulated(bench: _Bench, name: str) -> bool:
    capability = bench.found.capability
    return name == "bf16" and capability is not None and capability < precision.NATIVE_BF16_CAPABILITY


def _bursts(bench: _Bench) -> Iterator[Ceiling]:
    for name in _GEMM_PRECISIONS[bench.kind]:
        reason = _unsupported(bench, name)
        if reason is not None:
            bench.say(f"left out: product {name} ({reason})")
            continue
        precision.apply(name if name in ("fp32", "tf32") else "default")
        best: Ceiling | None = None
        before, call_s = 0, 0.0
        for size in _GEMM_SIZES[bench.kind]:
            if before and (call_s * (size / before) ** 3 > _LONGEST_CALL_S or bench.left_s() <= 0):
                break
            timed = bench.time(_product(bench, name, size), limit_s=_BURST_S)
            before, call_s = size, timed.median_ms / 1e3
            ceiling = bench.ceiling(
                "gemm", _TFLOPS, _rates(size, timed.ms), timed.readings, precision=name, shape=f"{size}x{size}x{size}",
                limited_by="emulation" if _emulated(bench, name) else None,
            )
            if best is None or ceiling.value > best.value:
                best, bench.best_size[name] = ceiling, size
        if best is not None:
            yield best


def _sustained(bench: _Bench, name: str) -> Iterator[Ceiling]:
    """The product of the best burst, without a pause: the next chunk is queued while one runs."""
    size = bench.best_size.get(name)
    if size is None or _emulated(bench, name):
        return
    precision.apply(name if name in ("fp32", "tf32") else "default")
    call = _product(bench, name, size)
    calls = max(1, round(CHUNK_S * 1e3 / bench.time(call, samples=3, limit_s=0.1).median_ms))
    ms: list[float] = []
    readings: list[Reading] = []
    end_s = time.monotonic() + SUSTAINED_S
    if not bench.on_cuda:
        while time.monotonic() < end_s:
            ms.append(bench._sample(call, calls)[0] / calls)
    else:
        ms, readings = _queued(bench, call, calls, end_s)
    yield bench.ceiling("gemm_sustained", _TFLOPS, _rates(size, ms), readings, precision=name,
                        shape=f"{size}x{size}x{size}")


def _queued(
    bench: _Bench, call: Callable[[], object], calls: int, end_s: float
) -> tuple[list[float], list[Reading]]:
    """(milliseconds per call, readings) of chunks of `calls` calls, at most two of them queued."""
    ms: list[float] = []
    readings: list[Reading] = []
    before = torch.cuda.Event(enable_timing=True)
    before.record()
    waiting: list[Any] = []
    while waiting or time.monotonic() < end_s:
        while len(waiting) < 2 and time.monotonic() < end_s:
            for _ in range(calls):
                call()
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            waiting.append(event)
        if not waiting:
            break
        readings.append(bench.sensor.read())
        event = waiting.pop(0)
        event.synchronize()
        ms.append(float(before.elapsed_time(event)) / calls)
        before = event
    return ms, readings


# --- gathers ---------------------------------------------------------------------------------------------------------


def _gathers(bench: _Bench) -> Iterator[Ceiling]:
    """Random places out of a table, and the two samplers of a point tracker at its shapes."""
    for metric, prepare in (
        ("gather_index_select", _index_select), ("gather_grid_sample_4d", _grid_sample_4d),
        ("gather_grid_sample_5d", _grid_sample_5d),
    ):
        if bench.left_s() <= 0:
            bench.say(f"left out: {metric}, the budget is spent")
            return
        call, moved_bytes, shape = prepare(bench)
        timed = bench.time(call, limit_s=0.5)
        yield bench.ceiling(metric, _GB_S, [moved_bytes / ms / 1e6 for ms in timed.ms], timed.readings, shape=shape)


def _index_select(bench: _Bench) -> tuple[Callable[[], object], int, str]:
    rows, width = (2**21, 64) if bench.on_cuda else (2**18, 64)
    picks = rows // 2
    table = bench.random(rows, width)
    index = torch.randint(rows, (picks,), device=bench.torch_device, generator=bench.generator)
    out = torch.empty(picks, width, device=bench.torch_device)
    return (lambda: torch.index_select(table, 0, index, out=out), picks * (2 * width * 4 + 8),
            f"{picks} of {rows} rows of {width} float32")


def _grid_sample_4d(bench: _Bench) -> tuple[Callable[[], object], int, str]:
    """7 x 7 windows around random points in every frame, as the local correlation samples them."""
    frames, channels, side, points = (47, 128, 64, 256) if bench.on_cuda else (4, 64, 32, 32)
    source = bench.random(frames, channels, side, side)
    offsets = torch.arange(-3.0, 4.0, device=bench.torch_device) * (2 / side)
    window = torch.cartesian_prod(offsets, offsets)
    grid = _centres(bench, frames, points, 1, 2) + window
    return _sampler(source, grid)


def _grid_sample_5d(bench: _Bench) -> tuple[Callable[[], object], int, str]:
    """7 x 7 windows around random points in one frame of a volume, as templates are cut."""
    frames, channels, side, points = (47, 128, 64, 256) if bench.on_cuda else (4, 64, 32, 32)
    source = bench.random(1, channels, frames, side, side)
    offsets = torch.arange(-3.0, 4.0, device=bench.torch_device) * (2 / side)
    window = F.pad(torch.cartesian_prod(offsets, offsets), (0, 1))
    grid = (_centres(bench, 1, points, 1, 3) + window)[:, None]
    return _sampler(source, grid)


def _centres(bench: _Bench, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, device=bench.torch_device, generator=bench.generator) * 2 - 1


def _sampler(source: torch.Tensor, grid: torch.Tensor) -> tuple[Callable[[], object], int, str]:
    """Bytes as in core/measure/op_formulas.py: sampled elements (the whole source at most), grid and result once."""
    results = grid[..., 0].numel() * source.shape[1]
    sampled = min(source.numel(), 2 ** grid.shape[-1] * results)
    return (
        lambda: F.grid_sample(source, grid, mode="bilinear", padding_mode="border", align_corners=False),
        (sampled + results + grid.numel()) * 4,
        f"{'x'.join(map(str, source.shape))} at {'x'.join(map(str, grid.shape))}",
    )


# --- launches and host copies ----------------------------------------------------------------------------------------


def _launches(bench: _Bench) -> Iterator[Ceiling]:
    one = torch.zeros(1, device=bench.torch_device)

    def smallest_op() -> object:
        return one.add_(1)

    spin = getattr(torch.cuda, "_sleep", None)  # a kernel that waits for so many cycles: none
    empty: Callable[[], object] = (lambda: spin(0)) if spin is not None else smallest_op
    for _ in range(20):
        empty()
        smallest_op()
    floors_us = [bench.wall_ms(empty) * 1e3 for _ in range(100)]
    yield bench.ceiling("launch_floor", "us", floors_us)

    def in_a_row(call: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            for _ in range(_LAUNCHES):
                call()

        return run

    for metric, call in (("launch_rate", empty), ("op_rate", smallest_op)):
        rates = [_LAUNCHES / bench.wall_ms(in_a_row(call)) for _ in range(SAMPLES)]
        yield bench.ceiling(metric, "1/ms", rates)


def _host_copies(bench: _Bench) -> Iterator[Ceiling]:
    on_device = bench.random_row(_HOST_COPY_BYTES // 4)
    for pinned in (False, True):
        kind = "pinned" if pinned else "pageable"
        try:
            on_host = on_device.cpu().pin_memory() if pinned else on_device.cpu()
        except RuntimeError as error:
            bench.say(f"left out: {kind} copies ({reasons.of_error(error)})")
            continue
        for metric, target, source in (
            (f"host_to_device_{kind}", on_device, on_host), (f"device_to_host_{kind}", on_host, on_device),
        ):
            def copy(target: torch.Tensor = target, source: torch.Tensor = source, pinned: bool = pinned) -> object:
                return target.copy_(source, non_blocking=pinned)

            bench.wall_ms(copy)
            samples, readings = [], []
            for _ in range(5):
                samples.append(_HOST_COPY_BYTES / bench.wall_ms(copy) / 1e6)
                readings.append(bench.sensor.read())
            yield bench.ceiling(metric, _GB_S, samples, readings, working_set_bytes=_HOST_COPY_BYTES)
