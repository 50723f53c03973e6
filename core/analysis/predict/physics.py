"""Time of one call from first principles: host floor, compute and memory time, and the features that refine them.

    latency = max(floor, HOST_SHARE x floor + kernel)
    kernel  = (compute^p + memory^p)^(1/p), each times a learned factor, and not below the shortest kernel

`floor` is the time of that operation on tiny tensors: the host's work between two events. Just over half of it passes
before the kernel starts: on five cards, add is max(floor, 0.53 floor + bytes / bandwidth) within 0.5 %.
The learned factors see shapes, tiles per SM, bytes per L2 and the generation, never the ceilings: so that more
bandwidth or a higher rate can never make a prediction slower.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from core.analysis.predict.cards import Card

HOST_SHARE = 0.53
SHARPNESS = 24.0  # of max(floor, ...): nearly a true maximum
ROOF_POWER = 3.0  # how far compute and memory overlap
# The best copies still hold half a floor, 2 % of their time: the bandwidth behind them is that much higher.
_COPY_SHORTFALL = 1.02
_BURST_MS = 3.0  # where a power-limited card is halfway from its burst rate to its sustained one
SHORTEST_KERNEL_MS = 0.0017  # an empty element-wise kernel takes 1.2 to 2 us on every card since Pascal
# Element-wise operations of the timing data in an order that puts like beside like, so that a tree can tell them apart.
_NUMBERED_OPS = ("add", "mul", "div", "pow", "addu", "mulu", "divu", "powu", "relu", "gelu", "tanh")
_TILES = ((128, 128), (128, 64), (64, 64), (128, 32), (32, 128), (32, 32))


def floors_ms(work: pd.DataFrame, card: Card, floor_ratios: Mapping[tuple[str, str], float]) -> np.ndarray:
    """Time of each operation on tiny tensors: the card's launch floor times the operation's ratio to add.

    The ratio of its own host where the board is in the timing data, else the median of all.
    """
    own = card.chip if card.situation == "measured" else "any"
    known = {op: floor_ratios.get((str(own), op), ratio) for (chip, op), ratio in floor_ratios.items() if chip == "any"}
    ratios = work["floor_op"].map(known).fillna(1.0).to_numpy(dtype=float)
    return ratios * card.launch_us / 1e3


def latency_ms(kernel_ms: np.ndarray, floor_ms: np.ndarray) -> np.ndarray:
    """Kernel time to latency."""
    late = kernel_ms + HOST_SHARE * floor_ms
    larger = np.maximum(late, floor_ms)
    return larger * ((late / larger) ** SHARPNESS + (floor_ms / larger) ** SHARPNESS) ** (1 / SHARPNESS)


def kernel_of_latency(latency: np.ndarray, floor_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernel time behind a latency, and how far it can be seen (0 at the floor, 1 from 17 % above it)."""
    seen = np.clip((latency / floor_ms - 1.02) / 0.15, 0.0, 1.0)
    return np.maximum(latency - HOST_SHARE * floor_ms, 0.2 * latency), seen


def not_below_shortest(kernel_ms: np.ndarray) -> np.ndarray:
    """No kernel is shorter than an empty one; smooth, so that a small operation does not jump."""
    return np.sqrt(kernel_ms**2 + SHORTEST_KERNEL_MS**2)


def above_shortest(kernel_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of `not_below_shortest`, and how far the work can be seen behind the shortest kernel."""
    seen = np.clip((kernel_ms / SHORTEST_KERNEL_MS - 1.2) / 1.5, 0.0, 1.0)
    return np.sqrt(np.maximum(kernel_ms**2 - SHORTEST_KERNEL_MS**2, (0.05 * kernel_ms) ** 2)), seen


def _rates_tflops(work: pd.DataFrame, card: Card, precisions: np.ndarray) -> np.ndarray:
    """Rate of each product on this card; NaN where the card has no such arithmetic."""
    flops = work["flops"].to_numpy(dtype=float)
    burst, sustained = card.burst_tflops, card.sustained_tflops
    # The same expression for every card keeps the rate monotone in the ceiling.
    burst_weight = 1 / (1 + (flops / (burst * 1e9) / _BURST_MS) ** 1.2)
    rates = sustained * (burst / sustained) ** burst_weight
    convolution = work["op_class"].isin(["conv", "conv_other"]).to_numpy()
    for precision in set(precisions) - {"fp32"}:
        for kind in (False, True):
            chosen = (precisions == precision) & (convolution == kind)
            if precision == "default" and not kind:
                continue  # matrix products stay in FP32
            rate = card.rate_tflops(precision, kind)
            rates = np.where(chosen, np.nan if rate is None else rate, rates)
    return rates


def parts_ms(work: pd.DataFrame, card: Card, precisions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute and memory time of one call before any learned factor."""
    compute = work["flops"].to_numpy(dtype=float) / (_rates_tflops(work, card, precisions) * 1e9)
    moved = work["bytes"].to_numpy(dtype=float)
    in_cache = 1 / (1 + (moved / (0.78 * card.l2_bytes)) ** 8)
    memory = moved / (_COPY_SHORTFALL * card.bandwidth_gb_s * 1e6) / (1 + 1.5 * in_cache)
    return np.maximum(compute, 1e-9), np.maximum(memory, 1e-9)


def combined(compute_ms: np.ndarray, memory_ms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kernel time of both parts, and the share of compute in it."""
    a, b = compute_ms**ROOF_POWER, memory_ms**ROOF_POWER
    return (a + b) ** (1 / ROOF_POWER), a / (a + b)


def features(work: pd.DataFrame, card: Card) -> dict[str, np.ndarray]:
    """What the learned factors see of each operation on this card; names as in the table of trees.

    Logarithms are natural. `waves_AxB` are output tiles of that size per SM, `fill_AxB` the used share of their area,
    `last_wave_AxB` the used share of the waves, `left_N` a remainder by N (alignment decides between kernels).
    """
    log = np.log
    column = {name: work[name].to_numpy(dtype=float) for name in work.columns if name not in ("op_class", "floor_op")}
    batch, m, n, k, sms = column["batch"], column["m"], column["n"], column["k"], card.sm_count
    read, written = np.maximum(column["input_bytes"], 1.0), np.maximum(column["output_bytes"], 1.0)
    moved = np.maximum(column["bytes"], 1.0)
    work_per_sm = np.maximum(2 * batch * m * n * k, 1.0) / sms
    found = {
        "log_work_per_sm": log(work_per_sm), "log_m": log(m), "log_n": log(n), "log_k": log(k), "log_batch": log(batch),
        "log_bytes_per_sm": log(moved / sms), "log_m_over_n": log(m / n), "log_smaller_side": log(np.minimum(m, n)),
        "log_outputs_per_sm": log(batch * m * n / sms), "left_m_4": m % 4, "left_n_4": n % 4, "left_k_4": k % 4,
        "left_k_8": k % 8, "is_linear": (work["floor_op"] == "linear").to_numpy(dtype=float),
        "generation": np.full(len(work), min(np.floor(card.generation), 8.0)), "log_bytes_per_l2": log(moved /
        card.l2_bytes), "log_slab_per_l2": log(4 * k * (m + n) / card.l2_bytes), "log_depth": log(k / np.sqrt(m * n)),
        "log_read_over_written": log(read / written),
    }  # fmt: skip
    for high, wide in _TILES:
        tiles = batch * np.ceil(m / high) * np.ceil(n / wide)
        waves = np.minimum(tiles / sms, 30)
        name = f"{high}x{wide}"
        found[f"waves_{name}"] = log(tiles / sms)
        found[f"fill_{name}"] = m * n / (np.ceil(m / high) * high * np.ceil(n / wide) * wide)
        found[f"last_wave_{name}"] = waves / np.ceil(waves)
    side, images, cin = column["side"], column["images"], column["rows"]
    tile2, tile4 = np.ceil(side / 2), np.ceil(side / 4)
    found |= {
        "log_cin": log(cin), "log_side": log(side), "log_images": log(images), "side": side,
        "log_channels": log(np.maximum(cin * m, 1)), "log_cin_over_cout": log(cin / m), "left_cin_4": cin % 4,
        "left_cout_4": m % 4, "left_cin_8": cin % 8, "left_cout_8": m % 8, "left_cin_32": cin % 32,
        "left_cout_32": m % 32, "left_cout_64": m % 64, "left_side_2": side % 2, "left_side_4": side % 4,
        "fill_winograd_2": side**2 / (2 * tile2) ** 2, "fill_winograd_4": side**2 / (4 * tile4) ** 2,
        "log_read_per_l2": log(read / card.l2_bytes), "log_weights_per_l2": log(np.maximum(4 * m * k, 1) /
        card.l2_bytes), "waves_winograd": log(np.ceil(m / 64) * np.ceil(images * tile2**2 / 32) / sms),
    }  # fmt: skip
    numbers = {op: float(number) for number, op in enumerate(_NUMBERED_OPS)}
    found["op_number"] = work["floor_op"].map(numbers).fillna(-1.0).to_numpy(dtype=float)
    width, rows = column["width"], column["rows"]
    power_of_two = 2 ** np.ceil(np.log2(np.maximum(width, 1)))
    found |= {
        "log_width": log(np.maximum(width, 1)), "log_rows_per_sm": log(np.maximum(rows, 1) / sms),
        "left_width_2": width % 2, "left_width_4": width % 4, "wide": (width > 1024).astype(float),
        "log_padded_width": log(power_of_two), "fill_width": width / power_of_two,
        "log_bytes_per_l2_above": np.clip(log(moved / card.l2_bytes), 0.0, 3.0),
    }  # fmt: skip
    return found


COMPUTE_FEATURES = {
    "matmul": tuple(
        ["log_work_per_sm", "log_m", "log_n", "log_k", "log_batch", "log_bytes_per_sm", "log_m_over_n",
         "log_smaller_side", "log_outputs_per_sm", "left_m_4", "left_n_4", "left_k_4", "left_k_8", "is_linear",
         "generation", "log_bytes_per_l2", "log_slab_per_l2", "log_depth"]
        + [f"{kind}_{a}x{b}" for kind in ("waves", "fill", "last_wave") for a, b in _TILES]
    ),
    "conv": ("log_work_per_sm", "log_cin", "log_m", "log_side", "log_images", "log_n", "log_channels",
    "log_cin_over_cout",
         "left_cin_4", "left_cout_4", "left_cin_8", "left_cout_8", "left_cin_32", "left_cout_32", "left_cout_64",
         "log_bytes_per_l2", "log_read_per_l2", "log_weights_per_l2", "left_side_2", "left_side_4", "fill_winograd_2",
         "fill_winograd_4", "side", "generation", "waves_winograd", "waves_128x128", "last_wave_128x128",
         "waves_64x64", "last_wave_64x64", "waves_32x128", "last_wave_32x128"),
}  # fmt: skip
_ROW_FEATURES = (
    "log_bytes_per_l2_above",
    "log_width",
    "log_rows_per_sm",
    "left_width_2",
    "left_width_4",
    "wide",
    "log_padded_width",
    "fill_width",
)
MEMORY_FEATURES = {
    "matmul": (
        "log_bytes_per_l2",
        "log_bytes_per_sm",
        "log_m",
        "log_n",
        "log_k",
        "log_batch",
        "left_m_4",
        "left_n_4",
        "left_k_4",
        "is_linear",
        "generation",
        "log_read_over_written",
    ),
    "conv": (
        "log_bytes_per_l2",
        "log_bytes_per_sm",
        "log_cin",
        "log_m",
        "log_side",
        "log_images",
        "generation",
        "log_read_over_written",
    ),
    "softmax": _ROW_FEATURES,
    "layer_norm": _ROW_FEATURES,
}
# What the trees of one chip see of element-wise operations, which need no factor of the shared model.
ELEMENTWISE_FEATURES = ("log_bytes_per_l2", "log_width", "left_width_4", "log_rows_per_sm", "op_number")  # fmt: skip
