"""What a card can reach at most, by precision, and the peaks of a card that the catalogue does not know.

Peak = SMs x FMA per clock per SM x 2 x clock. The rates are those of NVIDIA's CUDA Programming Guide
("Throughput of Native Arithmetic Instructions") and of the architecture whitepapers; the newest (8.9 with full
rate, 9.0, 10.x, 11.0) are inferred from printed peaks. All are dense.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from core.gpus.catalogue import Gpu, value_source

PRECISIONS = ("fp32", "default", "tf32", "fp16", "bf16", "fp64", "fp8", "int8")


@dataclass(frozen=True)
class Peak:
    """The most that one card can do in one precision setting."""

    value: float  # TFLOPS, for int8 TOPS; dense
    field: str  # the catalogue field it was read from
    source: str
    unit_name: str  # "cuda" or "tensor": the unit of the chip that reaches it
    derived: bool  # computed from rate and clock, not printed
    emulated: bool = False  # the card has no such arithmetic and does it in FP32


@dataclass(frozen=True)
class _Rates:
    """FMA per clock per SM, dense; None: no such unit, or not published."""

    fp32: int
    fp64: int | None
    fp16: int | None  # packed, without tensor cores
    tf32: int | None = None
    fp16_fp32acc: int | None = None
    fp16_fp16acc: int | None = None
    bf16: int | None = None
    fp8: int | None = None
    int8: int | None = None
    tensor_cores: int | None = 0  # per SM
    fp64_tensor: int | None = None


# (compute capability, rate class) -> rates. The class is a property of the product, not of the capability:
#   full     FP32 accumulate as fast as FP16 accumulate
#   half     GeForce: tensor math with FP32 accumulate at half rate
#   halfint  A10G, L40, L20: as half, INT8 printed at half rate too
#   quarter  H20: every tensor rate of Hopper at a quarter
#   none     no tensor cores (INT8 is then DP4A on the CUDA cores)
FMA_PER_CLOCK_PER_SM: dict[tuple[str, str], _Rates] = {
    ("3.7", "none"): _Rates(192, 64, None),
    ("5.2", "none"): _Rates(128, 4, None),
    ("5.3", "none"): _Rates(128, 4, 256),
    ("6.0", "none"): _Rates(64, 32, 128),
    ("6.1", "none"): _Rates(128, 4, 2, int8=512),
    ("6.2", "none"): _Rates(128, 4, 256),
    ("7.0", "full"): _Rates(64, 32, 128, None, 512, 512, int8=256, tensor_cores=8),
    ("7.2", "full"): _Rates(64, 32, 128, None, 512, 512, int8=1024, tensor_cores=8),
    ("7.5", "full"): _Rates(64, 2, 128, None, 512, 512, int8=1024, tensor_cores=8),
    ("7.5", "half"): _Rates(64, 2, 128, None, 256, 512, int8=1024, tensor_cores=8),
    ("7.5", "none"): _Rates(64, 2, 128, int8=256),
    ("8.0", "full"): _Rates(64, 32, 256, 512, 1024, 1024, 1024, None, 2048, 4, 64),
    ("8.6", "full"): _Rates(128, 2, 128, 256, 512, 512, 512, None, 1024, 4),
    ("8.6", "half"): _Rates(128, 2, 128, 128, 256, 512, 256, None, 1024, 4),
    ("8.6", "halfint"): _Rates(128, 2, 128, 128, 256, None, 256, None, 512, 4),
    ("8.7", "full"): _Rates(128, None, 256, int8=2048, tensor_cores=4),
    ("8.9", "full"): _Rates(128, 2, 128, 256, 512, 512, 512, 1024, 1024, 4),
    ("8.9", "half"): _Rates(128, 2, 128, 128, 256, 512, 256, 512, 1024, 4),
    ("8.9", "halfint"): _Rates(128, 2, 128, 128, 256, None, 256, 512, 512, 4),
    ("9.0", "full"): _Rates(128, 64, 256, 1024, 2048, 2048, 2048, 4096, 4096, 4, 128),
    ("9.0", "quarter"): _Rates(128, None, None, 256, 512, None, 512, 1024, 1024, 4),
    ("10.0", "full"): _Rates(128, 64, 128, 2048, 4096, 4096, 4096, 8192, 8192, 4, 64),
    ("10.3", "full"): _Rates(128, 2, 128, 2048, 4096, 4096, 4096, 8192, None, 4, 2),
    ("11.0", "full"): _Rates(128, None, None, fp8=8192, tensor_cores=None),
    ("12.0", "full"): _Rates(128, 2, 128, 256, 512, 512, 512, 1024, 1024, 4),
    ("12.0", "half"): _Rates(128, 2, 128, 128, 256, 512, 256, 512, 1024, 4),
    ("12.1", "full"): _Rates(128, 2, 128, tensor_cores=None),
}

_RATE_OF_FIELD = {
    "fp64_tflops": "fp64",
    "fp32_tflops": "fp32",
    "tf32_tensor_tflops_dense": "tf32",
    "fp16_tensor_tflops_dense_fp32acc": "fp16_fp32acc",
    "fp16_tensor_tflops_dense_fp16acc": "fp16_fp16acc",
    "bf16_tensor_tflops_dense": "bf16",
    "fp8_tensor_tflops_dense": "fp8",
    "int8_tops_dense": "int8",
    "fp16_cuda_tflops": "fp16",
    "fp64_tensor_tflops_dense": "fp64_tensor",
}


def _capability(gpu: Gpu) -> tuple[int, int]:
    major, _, minor = gpu.compute_capability.partition(".")
    return int(major), int(minor or 0)


def _has_tensor_cores(gpu: Gpu) -> bool:
    """True also where the count is not published (GB10, Thor): from 7.0 on the rate class says it."""
    return gpu.tensor_rate_class != "none" and _capability(gpu) >= (7, 0)


def _peak(gpu: Gpu, field: str, emulated: bool = False) -> Peak | None:
    value = getattr(gpu, field)
    if value is None:
        return None
    # Volta's tensor cores know no INT8: its figure is DP4A on the CUDA cores.
    int8_on_tensor = field == "int8_tops_dense" and _has_tensor_cores(gpu) and _capability(gpu) > (7, 0)
    on_tensor = "tensor" in field or int8_on_tensor
    return Peak(
        value=value,
        field=field,
        source=value_source(gpu, field),
        unit_name="tensor" if on_tensor else "cuda",
        derived=field in gpu.derived_fields,
        emulated=emulated,
    )


def peak_tflops(gpu: Gpu, precision: str) -> Peak | None:
    """The peak that matrix products and convolutions of a PyTorch model can reach in this precision setting.

    fp32: the FP32 units. tf32 and default: the TF32 tensor peak where the card has TF32, else FP32. fp16, bf16: the
    tensor peak with FP32 accumulate, else FP32; never the packed CUDA-core rate, since autocast accumulates in FP32.
    bf16 below compute capability 8.0 is emulated in FP32 and marked so. fp64: the FP64 tensor unit where there is one.
    None: the card has no such arithmetic (fp8, int8), or has the unit but its maker prints no dense figure.
    Raises ValueError for a precision that is not in PRECISIONS.
    """
    if precision == "fp32":
        return _peak(gpu, "fp32_tflops")
    if precision in ("tf32", "default"):
        return _peak(gpu, "tf32_tensor_tflops_dense" if gpu.supports_tf32 else "fp32_tflops")
    if precision == "fp16":
        return _peak(gpu, "fp16_tensor_tflops_dense_fp32acc" if _has_tensor_cores(gpu) else "fp32_tflops")
    if precision == "bf16":
        if gpu.supports_bf16_native:
            return _peak(gpu, "bf16_tensor_tflops_dense")
        return _peak(gpu, "fp32_tflops", emulated=True)
    if precision == "fp64":
        return _peak(gpu, "fp64_tensor_tflops_dense") or _peak(gpu, "fp64_tflops")
    if precision == "fp8":
        return _peak(gpu, "fp8_tensor_tflops_dense")
    if precision == "int8":
        return _peak(gpu, "int8_tops_dense")
    raise ValueError(f"precision {precision!r}, expected one of {', '.join(PRECISIONS)}")


def _rate_class(name: str, compute_capability: str) -> str:
    """The rate class of a product by its name (the capability alone does not tell it)."""
    words = name.replace("-", " ").split()
    if (compute_capability, "none") in FMA_PER_CLOCK_PER_SM and (
        (compute_capability, "full") not in FMA_PER_CLOCK_PER_SM or "GTX" in words
    ):
        return "none"
    if any(word in ("A10G", "L40", "L20") for word in words):
        wanted = "halfint"
    elif "H20" in words:
        wanted = "quarter"
    else:
        wanted = "half" if "GeForce RTX" in name else "full"
    return wanted if (compute_capability, wanted) in FMA_PER_CLOCK_PER_SM else "full"


_ARCHITECTURE_OF_MAJOR = {3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper", 10: "Blackwell", 11: "Blackwell (Thor)"}


def architecture_of(major: int, minor: int) -> str:
    """The family of a compute capability, "unknown" for one that did not exist when this was written."""
    if major == 7:
        return "Turing" if minor == 5 else "Volta"
    if major == 8:
        return "Ada Lovelace" if minor == 9 else "Ampere"
    if major == 12:
        return "Blackwell (GB10)" if minor == 1 else "Blackwell (RTX)"
    return _ARCHITECTURE_OF_MAJOR.get(major, "unknown")


def unknown_card(
    name: str,
    compute_capability: str,
    sm_count: int | None,
    max_sm_clock_mhz: float | None = None,
    memory_clock_mhz: float | None = None,
    bus_bits: int | None = None,
    memory_bytes: int | None = None,
    l2_bytes: int | None = None,
) -> Gpu:
    """A card that is not in the catalogue, from what its driver reports. Every computed value is labelled assumed.

    Peaks: SMs x rate x 2 x maximum SM clock, the rate class guessed from the product name. NVML's maximum clock
    overstates the datasheet on Hopper (+8 % for tensor figures); real boost of a GeForce lies above its rated one.
    Bandwidth: bus width / 8 x 2 x NVML memory clock, within 3 % where tested. What cannot be computed is None.
    """
    numbers = re.fullmatch(r"(\d+)\.(\d+)", compute_capability)
    major, minor = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    rate_class = _rate_class(name, compute_capability)
    rates = FMA_PER_CLOCK_PER_SM.get((compute_capability, rate_class))

    def tflops(rate_name: str) -> float | None:
        rate = getattr(rates, rate_name) if rates else None
        if rate is None or not sm_count or not max_sm_clock_mhz:
            return None
        return sm_count * rate * 2 * max_sm_clock_mhz / 1e6

    peaks = {field: tflops(rate_name) for field, rate_name in _RATE_OF_FIELD.items()}
    bandwidth_gb_s = bus_bits / 8 * 2 * memory_clock_mhz / 1e3 if bus_bits and memory_clock_mhz else None
    known = major >= 3 and rates is not None
    tensor_per_sm = rates.tensor_cores if rates else None
    return Gpu(
        key=None,
        name=name,
        nvml_name_patterns="",
        vendor="NVIDIA",
        architecture=architecture_of(major, minor),
        compute_capability=compute_capability,
        launch=None,
        sm_count=sm_count,
        cuda_cores=sm_count * rates.fp32 if rates and sm_count else None,
        tensor_cores=sm_count * tensor_per_sm if sm_count and tensor_per_sm is not None else None,
        tensor_core_generation=None,
        boost_clock_mhz=max_sm_clock_mhz,
        memory_gb=round(memory_bytes / 2**30, 1) if memory_bytes else None,
        memory_type=None,
        memory_bandwidth_gb_s=bandwidth_gb_s,
        l2_cache_mb=l2_bytes / 2**20 if l2_bytes else None,
        tdp_w=None,
        **peaks,  # type: ignore[arg-type]
        supports_bf16_native=major >= 8,
        supports_tf32=major >= 8,
        flash_attention_2_supported=major >= 8 if known else None,
        pcie_gen=None,
        nvlink_gb_s=None,
        launch_price_usd=None,
        source=f"SM count and maximum clocks of the driver, rate class {rate_class} guessed from the name",
        notes="not in the catalogue",
        memory_bus_bits=bus_bits,
        memory_data_rate_gbps=2 * memory_clock_mhz / 1e3 if memory_clock_mhz else None,
        tensor_boost_clock_mhz=None,
        tensor_clock_basis="",
        tensor_rate_class=rate_class,
        derived_fields=tuple(field for field, value in peaks.items() if value is not None)
        + (("memory_bandwidth_gb_s",) if bandwidth_gb_s is not None else ()),
        nvml_name_examples=(name,),
        disambiguate="",
        verification="assumed",
        aliases=(),
        alias_default=(),
    )
