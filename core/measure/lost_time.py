"""Which ops of a pass lose the most time, and whether an op taken out of its tracker stands for it. Stdlib only.

lost = calls x (time - max(roofline, launch floor)): what flops, bytes and one launch for each call do not explain.
A part whose rate is not known is left out of the floor, so that lost time is then an upper bound.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.gpus import by_nvml_name, peak_tflops
from core.records import REST_OP, Ceiling, Device, Op

REPRODUCED_WITHIN = 0.2
"""A replay of this much more or less than the time in the tracker, by the same kernels, stands for it."""

_NO_OP = "(no op)"


@dataclass(frozen=True)
class FloorRates:
    """What the device reaches at best. None: not known, and left out of the floor."""

    matmul_tflops: float | None
    convolution_tflops: float | None
    bandwidth_gb_s: float | None
    launch_us: float | None
    source: str

    def floor_ms(self, op: Op) -> float:
        """The least time of all calls of an op: its roofline, and one launch for each call."""
        peak = self.convolution_tflops if "conv" in op.op else self.matmul_tflops
        parts = [0.0]
        if peak and op.flops:
            parts.append(op.flops / peak / 1e9)
        if self.bandwidth_gb_s and op.bytes:
            parts.append(op.bytes / self.bandwidth_gb_s / 1e6)
        if self.launch_us:
            parts.append(op.calls * self.launch_us / 1e3)
        return max(parts)


def floor_rates(
    device: Device, precision: str, launch_us: float | None, ceilings: Sequence[Ceiling] = ()
) -> FloorRates:
    """Measured ceilings where they are given, else the data sheet; the launch floor is the one of this host."""
    gpu = by_nvml_name(device.name, device.memory_bytes) if device.type == "cuda" else None
    convolution = peak_tflops(gpu, precision) if gpu else None
    matmul = peak_tflops(gpu, "fp32") if gpu and precision == "default" else convolution
    best: dict[tuple[str, str | None], float] = {}
    for line in ceilings:
        key = line.metric, line.precision
        best[key] = max(best.get(key, 0.0), line.value)
    copy = best.get(("copy", None))
    gemm = {name: best.get(("gemm", name)) for name in ("fp32", "tf32", "fp16", "bf16")}
    by_setting = {"default": gemm["tf32"] or gemm["fp32"], **gemm}.get(precision)
    measured = [name for name, value in (("copy", copy), ("gemm", by_setting)) if value]
    source = "measured " + " and ".join(measured) if measured else ""
    if gpu:
        source += (", else " if source else "") + f"data sheet of {gpu.name}"
    return FloorRates(
        matmul_tflops=(gemm["fp32"] if precision == "default" else by_setting) or (matmul.value if matmul else None),
        convolution_tflops=by_setting or (convolution.value if convolution else None),
        bandwidth_gb_s=copy or (gpu.memory_bandwidth_gb_s if gpu else None),
        launch_us=launch_us,
        source=source or "launch floor alone: no data sheet and no ceilings of this device",
    )


def most_lost(ops: Sequence[Op], rates: FloorRates, top: int) -> list[tuple[Op, float]]:
    """The ops with the most lost time in ms per pass, largest first; rows that are no op are left out."""
    lost = [
        (op, op.device_ms - rates.floor_ms(op)) for op in ops
        if op.device_ms is not None and op.op not in (_NO_OP, REST_OP)
    ]
    return sorted((pair for pair in lost if pair[1] > 0), key=lambda pair: -pair[1])[:top]


def reproduced(
    in_tracker_ms: float, replay_ms: float, tracker_kernels: Sequence[str], replay_kernels: Sequence[str], calls: int
) -> bool:
    """Whether a replay stands for the op in its tracker. Times per call.

    Calls with equal keys may use several kernels (alignment differs), so that one of many need not use them all.
    """
    if in_tracker_ms <= 0 or abs(replay_ms / in_tracker_ms - 1) > REPRODUCED_WITHIN:
        return False
    inside, alone = set(tracker_kernels), set(replay_kernels)
    return alone == inside if calls == 1 else alone <= inside
