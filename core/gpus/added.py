"""Cards that people add to the catalogue: what they must say, and the same as a `Gpu`.

An added card is used wherever a shipped one is. Everything but its name comes from whoever added it, and says so.
"""
from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import UserError
from core.gpus.catalogue import Gpu, catalogue, shipped_catalogue
from core.gpus.lookup import aliases_of, cards_of_nvml_name
from core.gpus.peaks import architecture_of

ADDED = "added here"
"""`Gpu.verification` of an added card."""

MOST_NAMES, LONGEST_TEXT = 10, 300

# field of a form -> (field of Gpu, name for people, least, most, needed)
NUMBERS: Mapping[str, tuple[str, str, float, float, bool]] = {
    "memory_bandwidth_gb_s": ("memory_bandwidth_gb_s", "memory bandwidth in GB/s", 1, 100_000, True),
    "fp32_tflops": ("fp32_tflops", "FP32 TFLOP/s", 0.01, 10_000, True),
    "memory_gb": ("memory_gb", "memory in GB", 0.25, 10_000, True),
    "tf32_tflops": ("tf32_tensor_tflops_dense", "TF32 TFLOP/s", 0.01, 100_000, False),
    "fp16_tflops": ("fp16_tensor_tflops_dense_fp32acc", "FP16 TFLOP/s", 0.01, 100_000, False),
    "bf16_tflops": ("bf16_tensor_tflops_dense", "BF16 TFLOP/s", 0.01, 100_000, False),
    "sm_count": ("sm_count", "number of SMs", 1, 10_000, False),
    "l2_cache_mb": ("l2_cache_mb", "L2 cache in MB", 0.01, 10_000, False),
    "tdp_w": ("tdp_w", "power limit in W", 1, 10_000, False),
}


def is_added(gpu: Gpu) -> bool:
    return gpu.verification == ADDED


def key_of(name: str) -> str:
    """The catalogue key of a card with this name: `RTX 9090 Ti` -> `rtx-9090-ti`."""
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def added_card(data: Mapping[str, Any]) -> Gpu:
    """The card that somebody described: name, nvml_names, compute_capability, source and the numbers of NUMBERS.

    Tensor figures are dense. Raises UserError for a value that is missing, no number or cannot be.
    """
    name = _text(data, "name", "a name such as RTX 9090")
    key = key_of(name)
    if not key or not re.search(r"\d", key):
        raise UserError(f"a card called {name[:40]!r}", "a name with a number in it, such as RTX 9090")
    source = _text(data, "source", "where the figures come from, such as the name of a data sheet")
    numbers = re.fullmatch(r"(\d{1,2})\.(\d)", str(data.get("compute_capability") or "").strip())
    if numbers is None:
        raise UserError(
            f"compute capability {str(data.get('compute_capability') or '')[:20]!r}", "two numbers such as 8.9",
            "`nvidia-smi --query-gpu=compute_cap --format=csv` tells it",
        )
    major, minor = int(numbers[1]), int(numbers[2])
    values = {field: _number(data, name) for name, (field, *_) in NUMBERS.items()}
    sm_count = values.pop("sm_count")
    if sm_count is not None and sm_count != int(sm_count):
        raise UserError(f"{sm_count:g} SMs", "a whole number")
    if values["tf32_tensor_tflops_dense"] is not None and major < 8:
        raise UserError(f"a TF32 figure at compute capability {major}.{minor}", "8.0 or newer for TF32",
                        "leave the TF32 figure out")
    if values["bf16_tensor_tflops_dense"] is not None and major < 8:
        raise UserError(f"a BF16 figure at compute capability {major}.{minor}", "8.0 or newer for BF16",
                        "leave the BF16 figure out")
    names = nvml_names(data.get("nvml_names") or ())
    has_tensor_cores = values["fp16_tensor_tflops_dense_fp32acc"] is not None or major >= 8
    return Gpu(
        key=key, name=name, nvml_name_patterns="|".join(map(re.escape, names)), vendor="not stated",
        architecture=architecture_of(major, minor), compute_capability=f"{major}.{minor}", launch=None,
        sm_count=int(sm_count) if sm_count is not None else None, cuda_cores=None, tensor_cores=None,
        tensor_core_generation=None, boost_clock_mhz=None, memory_type=None, fp64_tflops=None,
        fp16_tensor_tflops_dense_fp16acc=None, fp8_tensor_tflops_dense=None, int8_tops_dense=None,
        supports_bf16_native=major >= 8, supports_tf32=major >= 8, flash_attention_2_supported=None, pcie_gen=None,
        nvlink_gb_s=None, launch_price_usd=None, source=source, notes="Added on this machine, not shipped.",
        memory_bus_bits=None, memory_data_rate_gbps=None, tensor_boost_clock_mhz=None, tensor_clock_basis="",
        tensor_rate_class="full" if has_tensor_cores else "none", derived_fields=(), nvml_name_examples=names,
        disambiguate="", verification=ADDED, fp16_cuda_tflops=None, fp64_tensor_tflops_dense=None,
        aliases=(name,), alias_default=(), **values,  # type: ignore[arg-type]
    )


def check_new(card: Gpu) -> None:
    """Raise UserError when the catalogue has a card of this key or name, or one that a driver calls the same."""
    same = shipped_catalogue().get(str(card.key)) or catalogue().get(str(card.key))
    same = same or next(iter(aliases_of(card.name)), None)
    if same is not None:
        how = "take it away first" if is_added(same) else "choose another name"
        raise UserError(f"{card.name} is in the catalogue already, as {same.name}", "a card that is not there", how)
    for name in card.nvml_name_examples:
        known = next(iter(cards_of_nvml_name(name)), None)
        if known is not None:
            raise UserError(f'a driver\'s name "{name}" that means {known.name} already', "one that is not known",
                            f"runs under this name are counted as {known.name}; leave it out")


def nvml_names(names: Sequence[str] | str) -> tuple[str, ...]:
    """Names as a driver gives them; text is split at line breaks and semicolons."""
    parts = re.split(r"[;\n]", names) if isinstance(names, str) else [str(name) for name in names]
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if len(found) > MOST_NAMES or any(len(part) > LONGEST_TEXT for part in found):
        raise UserError(f"{len(found)} driver's names", f"at most {MOST_NAMES}, each at most {LONGEST_TEXT} characters")
    return found


def _text(data: Mapping[str, Any], field: str, expected: str) -> str:
    value = " ".join(str(data.get(field) or "").split())
    if not value:
        raise UserError(f"{field} is empty", expected)
    if len(value) > LONGEST_TEXT:
        raise UserError(f"{field} has {len(value)} characters", f"at most {LONGEST_TEXT}")
    return value


def _number(data: Mapping[str, Any], name: str) -> float | None:
    _, words, least, most, needed = NUMBERS[name]
    value = data.get(name)
    if value is None or value == "":
        if needed:
            raise UserError(f"{words} is missing", f"a number from {least:g} to {most:g}")
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        raise UserError(f"{words}: {str(value)[:20]}", f"a number from {least:g} to {most:g}")
    return number
