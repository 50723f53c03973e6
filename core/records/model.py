"""The lines of a run file as frozen records: what was asked (keys) and what was seen (samples).

A run file holds raw samples and facts, never statistics. One class per line kind; `LINE_KINDS` lists them.
Units live in field names. A missing value is None, never 0. Fields this version does not know are kept in `extra`.
"""
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "1.0"
"""Major.minor of the line format. A newer major version is refused, a newer minor one is read."""

METHOD = 1
"""Version of the measuring method. Raise it when timing changes meaning: different methods never enter one ratio."""

PRECISIONS = ("fp32", "default", "tf32", "fp16", "bf16")
STATUSES = ("ok", "oom", "unsupported", "failed", "timeout", "skipped")
ORIGINS = ("measured", "reported", "imported", "predicted")
FOREIGN = "foreign"
"""`WorkKey.implementation` of a task of somebody else's file: free text as its name, never comparable to a tracker."""

OWN = "own"
"""`WorkKey.implementation` of a user's own model, which brings inputs of any shape; they are in its revision."""

SIZELESS = (FOREIGN, OWN)
"""Implementations whose work may have no frames, height and width."""

END_STATES = ("done", "stopped", "failed")

Floats = tuple[float, ...]
OptionalFloats = tuple[float | None, ...]


def _extra() -> Any:
    return field(default_factory=dict, compare=True, metadata={"extra": True})


@dataclass(frozen=True)
class WorkKey:
    """What was computed. Two cells are comparable exactly when their work keys are equal.

    `frames`, `height` and `width` are None only in work whose implementation is in `SIZELESS`.
    """

    tracker: str
    variant: str | None
    implementation: str
    revision: str
    weights: str
    frames: int | None
    height: int | None
    width: int | None
    points: int | None
    batch: int = 1
    iterations: int | None = None
    query_chunk: int | None = None
    window: int | None = None
    items_per_run: int = 1
    extra: Mapping[str, Any] = _extra()

    @property
    def selector(self) -> str:
        """`tracker:variant` as the command line takes it."""
        return f"{self.tracker}:{self.variant}" if self.variant else self.tracker

    @property
    def size(self) -> tuple[int, int, int]:
        """(frames, height, width) of a tracker's work. Raises `ValueError` for a foreign task that has none."""
        if self.frames is None or self.height is None or self.width is None:
            raise ValueError(f"{self.selector} has no frames or no size")
        return self.frames, self.height, self.width

    def key(self) -> str:
        """One readable line that is equal exactly when the work is equal."""
        def part(letter: str, value: object) -> str:
            return f"{letter}-" if value is None else f"{letter}{value}"

        size = "-" if self.height is None and self.width is None else f"{part('', self.height)}x{part('', self.width)}"

        return "/".join(
            [
                self.selector, f"{self.implementation}@{self.revision}", self.weights,
                part("f", self.frames), size, part("p", self.points), f"b{self.batch}",
                part("it", self.iterations), part("qc", self.query_chunk), part("w", self.window),
                f"n{self.items_per_run}",
            ]
        )


@dataclass(frozen=True)
class SettingKey:
    """How it was computed. A differing setting is a factor of the gap, not a different work."""

    precision: str
    execution: str = "eager"
    memory_format: str = "contiguous"
    cudnn_benchmark: bool = False
    sdp_backend: str = "default"
    handicap: str | None = None
    extra: Mapping[str, Any] = _extra()

    def key(self) -> str:
        """One readable line that is equal exactly when the setting is equal."""
        return "/".join(
            [
                self.precision, self.execution, self.memory_format, f"bench{int(self.cudnn_benchmark)}",
                f"sdp-{self.sdp_backend}", f"h-{self.handicap or ''}",
            ]
        )


@dataclass(frozen=True)
class Workload:
    work: WorkKey
    setting: SettingKey
    extra: Mapping[str, Any] = _extra()

    def key(self) -> str:
        return f"{self.work.key()}|{self.setting.key()}"


@dataclass(frozen=True)
class Device:
    """One board (or the CPU). `uuid_hash` tells boards apart without naming them."""

    type: Literal["cuda", "cpu"]
    name: str
    uuid_hash: str
    compute_capability: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    max_sm_clock_mhz: float | None = None
    max_memory_clock_mhz: float | None = None
    memory_bus_bits: int | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    mig: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    persistence: bool | None = None
    virtualization: str | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Host:
    cpu: str | None = None
    cores: int | None = None
    ram_bytes: int | None = None
    os: str | None = None
    platform: str | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Software:
    python: str | None
    torch: str | None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    arch_list: tuple[str, ...] = ()
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Telemetry:
    """One NVML reading per repetition, in the order of `Cell.wall_ms`; a field the board does not give is None.

    `energy_j`: what the board drew since the reading before, with the gap between them; None where the counter did not
    move or the time was too short for its steps. The last five are read at most once a second: None in between.
    """

    sm_clock_mhz: OptionalFloats | None = None
    memory_clock_mhz: OptionalFloats | None = None
    power_w: OptionalFloats | None = None
    temperature_c: OptionalFloats | None = None
    throttle_bits: tuple[int | None, ...] | None = None
    energy_j: OptionalFloats | None = None
    utilization_percent: OptionalFloats | None = None
    power_limit_w: OptionalFloats | None = None
    pcie_generation: tuple[int | None, ...] | None = None
    pcie_width: tuple[int | None, ...] | None = None
    memory_used_bytes: tuple[int | None, ...] | None = None
    other_processes: tuple[int | None, ...] | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Stage:
    """One part of the forward pass; all stages with `other` sum to the total.

    On CUDA `event_ms` holds one value per repetition, on a CPU `wall_ms` does; the other one is None.
    """

    name: str
    wall_ms: Floats | None = None
    event_ms: Floats | None = None
    calls: int | None = None
    flops: int | None = None
    other_flops: int | None = None
    bytes: int | None = None
    launches: int | None = None
    extra: Mapping[str, Any] = _extra()


REST_OP = "(rest)"
"""Name of the row that sums the operations beyond the limit of a table; it is no operation and has no ratio."""


@dataclass(frozen=True)
class Op:
    """Totals of one distinct op key over one profiled forward pass; children fold into the top-level op."""

    op: str
    stage: str
    shapes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    layout: str | None = None
    scalars: tuple[str, ...] = ()
    calls: int = 1
    device_ms: float | None = None
    kernels: tuple[str, ...] = ()
    launches: int | None = None
    flops: int | None = None
    other_flops: int | None = None
    bytes: int | None = None
    extra: Mapping[str, Any] = _extra()

    def key(self) -> str:
        """Equal for the same op on the same inputs, whatever kernel ran it."""
        return f"{self.op}|{self.shapes}|{self.dtypes}|{self.layout}|{self.scalars}|{self.stage}"


# --- lines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunHeader:
    """Line kind `run`: where and with what a run was made. First line of its file."""

    started_at: str
    origin: str
    label: str | None
    device: Device
    host: Host
    software: Software
    settings: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Ceiling:
    """Line kind `ceiling`: what this device reached at best in a small kernel. core/measure/ceilings.py lists metrics.

    `value` is the median of `samples`, both in `unit`. Clock, power and event reasons are of the time while it ran
    (medians; the reasons of all readings together). `limited_by`: "launch" where a point was over before the next
    launch came, "emulation" where the board has no such arithmetic: no ceiling of the hardware then.
    """

    metric: str
    value: float
    unit: str
    precision: str | None = None
    samples: Floats = ()
    clock_mhz: float | None = None
    working_set_bytes: int | None = None
    shape: str | None = None
    limited_by: str | None = None
    power_w: float | None = None
    throttle_bits: int | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Cell:
    """Line kind `cell`: one workload in one worker process. A cell of a sweep is all its lines."""

    process: int
    workload: Workload
    status: str
    reason: str | None = None
    at: str | None = None
    first_call_ms: float | None = None
    warmup_ms: Floats = ()
    wall_ms: Floats = ()
    event_ms: Floats | None = None
    telemetry: Telemetry | None = None
    stop_rule: str | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    alloc_retries: int | None = None
    energy_j: float | None = None
    energy_valid: bool | None = None
    execution_path: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    kernel_busy_ms: float | None = None
    profiled_wall_ms: float | None = None
    ops: tuple[Op, ...] | None = None
    coverage: float | None = None
    drift: Mapping[str, Any] | None = None
    clip: str | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class OpTrial:
    """Line kind `op_trial`: one op taken out of its tracker and tried in another way.

    `change` begins with its kind: flag, backend, layout, contiguity, rewriting or precision (other arithmetic).
    """

    op: Op
    change: str
    before_ms: Floats
    after_ms: Floats
    kernels_before: tuple[str, ...] = ()
    kernels_after: tuple[str, ...] = ()
    max_abs_diff: float | None = None
    reproduced: bool | None = None  # the op alone takes the time that it takes in the tracker, by the same kernels
    agrees: bool | None = None  # the results are equal within `tolerance`, an absolute difference
    tolerance: float | None = None
    launches_before: float | None = None  # these and the times below: of one call
    launches_after: float | None = None
    device_before_ms: float | None = None
    device_after_ms: float | None = None
    in_tracker_ms: float | None = None
    replay_ms: float | None = None
    l2: str | None = None  # warm or cold: the state of the cache in which the replay comes closer
    lost_ms: float | None = None  # of all calls in one pass
    pass_ms: float | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Note:
    """Line kind `note`: progress (`event` plan, cell_started, resumed, queued) or a warning."""

    event: str
    text: str
    at: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class End:
    """Line kind `end`: why the run ended. A resumed run has several; the last line of all counts."""

    state: str
    reason: str | None = None
    at: str | None = None
    extra: Mapping[str, Any] = _extra()


@dataclass(frozen=True)
class Unknown:
    """A line of a kind that this version does not know: kept as it is, counted, ignored."""

    kind: str
    extra: Mapping[str, Any] = _extra()


LINE_KINDS: dict[str, type] = {
    "run": RunHeader, "ceiling": Ceiling, "cell": Cell, "op_trial": OpTrial, "note": Note, "end": End,
}

_UUID_SALT = "gapscope-device-1:"


def uuid_hash(uuid: str) -> str:
    """SHA-256 of a fixed salt and a board's UUID, 32 hex digits: equal for one board, says nothing else."""
    return hashlib.sha256((_UUID_SALT + uuid).encode()).hexdigest()[:32]
