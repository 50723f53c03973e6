"""Precision settings: set through one torch API, read back, and what this device cannot do.

`fp32` is IEEE arithmetic for products and convolutions, `tf32` TF32 in both, `default` torch untouched, `fp16` and
`bf16` autocast over untouched settings. torch 2.9 brought `fp32_precision` for each backend; mixing it with the older
`allow_tf32` flags raises or misreports, so exactly one of the two is used, also for reading back.
"""
from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

AUTOCAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
NATIVE_BF16_CAPABILITY = (8, 0)
TF32_CAPABILITY = (8, 0)

# Settings from outside the program that change arithmetic or timing; recorded with the run.
ENVIRONMENT = (
    "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUBLAS_WORKSPACE_CONFIG", "CUDNN_LOGINFO_DBG", "TORCH_CUDNN_V8_API_DISABLED",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_BLAS_PREFER_CUBLASLT",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE",
)

# (key in the record, object under torch.backends, attribute), newest API first.
_NEW_API = (
    ("matmul_fp32", "cuda.matmul", "fp32_precision"),
    ("conv_fp32", "cudnn.conv", "fp32_precision"),
    ("rnn_fp32", "cudnn.rnn", "fp32_precision"),
    ("cpu_matmul_fp32", "mkldnn.matmul", "fp32_precision"),
    ("cpu_conv_fp32", "mkldnn.conv", "fp32_precision"),
)
_OLD_API = (
    ("matmul_fp32", "cuda.matmul", "allow_tf32"),
    ("conv_fp32", "cudnn", "allow_tf32"),
)
_UNREADABLE = "unreadable"


def _backend(path: str) -> Any:
    found: Any = torch.backends
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _has(path: str, attribute: str) -> bool:
    try:
        return hasattr(_backend(path), attribute)
    except Exception:  # a getter that raises is a setting that cannot be used
        return False


_HAS_NEW_API = _has("cuda.matmul", "fp32_precision") and _has("cudnn.conv", "fp32_precision")
API = "fp32_precision" if _HAS_NEW_API else "allow_tf32"
_SETTINGS = tuple(
    entry for entry in (_NEW_API if _HAS_NEW_API else _OLD_API) if _has(entry[1], entry[2])
)


def read_back() -> dict[str, str]:
    """What torch says now, by the API in use: "ieee", "tf32", "bf16", or "none" for an inherited setting."""
    found = {}
    for key, path, attribute in _SETTINGS:
        try:
            value = getattr(_backend(path), attribute)
        except Exception:  # torch raises when a model mixed the two APIs
            value = _UNREADABLE
        found[key] = ("tf32" if value else "ieee") if isinstance(value, bool) else str(value)
    return found


_UNTOUCHED = read_back()
"""Taken when this module is loaded, before any model: what `default` means here."""


def apply(precision: str, cudnn_benchmark: bool = False) -> dict[str, str]:
    """Set what `precision` asks for and return what torch says afterwards. Call it after the model is built."""
    for key, path, attribute in _SETTINGS:
        wanted = {"fp32": "ieee", "tf32": "tf32"}.get(precision, _UNTOUCHED[key])
        if precision == "tf32" and key.startswith("cpu_"):
            wanted = _UNTOUCHED[key]
        setattr(_backend(path), attribute, wanted == "tf32" if API == "allow_tf32" else wanted)
    torch.backends.cudnn.benchmark = cudnn_benchmark  # part of the setting key; a model may have switched it on
    return read_back()


def changed(before: dict[str, str], after: dict[str, str]) -> str | None:
    """Which settings differ, in words; None when none does."""
    parts = [f"{key} {before[key]} to {after.get(key)}" for key in before if after.get(key) != before[key]]
    return "the model changed " + ", ".join(parts) if parts else None


def autocast(precision: str, device_type: str) -> AbstractContextManager[Any]:
    if precision not in AUTOCAST:
        return nullcontext()
    return torch.autocast(device_type, dtype=AUTOCAST[precision])


def unsupported_reason(
    precision: str, device_type: str, capability: tuple[int, int] | None, environment: dict[str, str] | None = None
) -> str | None:
    """Why this device cannot honestly run `precision`; None when it can.

    The name of a precision says what the arithmetic does, so an override that takes TF32 away or forces it makes
    the cells that would then carry a wrong name unsupported.
    """
    override = (os.environ if environment is None else environment).get("NVIDIA_TF32_OVERRIDE")
    if precision == "tf32":
        if device_type != "cuda":
            return "a CPU has no TF32"
        if capability is not None and capability < TF32_CAPABILITY:
            return f"TF32 needs compute capability 8.0, this GPU has {capability[0]}.{capability[1]}"
        if override == "0":
            return "NVIDIA_TF32_OVERRIDE=0 switches TF32 off"
    if precision == "fp32" and device_type == "cuda" and override == "1" and (capability or (8, 0)) >= TF32_CAPABILITY:
        return "NVIDIA_TF32_OVERRIDE=1 forces TF32"
    if precision == "fp16" and device_type == "cpu" and not _cpu_autocast_works(torch.float16):
        return f"this torch ({torch.__version__}) has no fp16 autocast on a CPU"
    return None


def _cpu_autocast_works(dtype: torch.dtype) -> bool:
    """Tried, since old versions only warn and go on in fp32."""
    try:
        with torch.autocast("cpu", dtype=dtype):
            product = torch.ones(2, 2) @ torch.ones(2, 2)
        return bool(product.dtype == dtype)
    except RuntimeError:
        return False


def path_of(precision: str, device_type: str, capability: tuple[int, int] | None) -> dict[str, Any]:
    """What the arithmetic of this device is set to, read back, for the record's execution path.

    A CPU has flags of its own (oneDNN); those of cuBLAS and cuDNN say nothing about it.
    """
    dtype = AUTOCAST.get(precision)
    flags = read_back()
    if device_type == "cpu":
        flags = {key.removeprefix("cpu_"): value for key, value in flags.items() if key.startswith("cpu_")}
    else:
        flags = {key: value for key, value in flags.items() if not key.startswith("cpu_")}
    return {
        **flags,
        "autocast": str(dtype).removeprefix("torch.") if dtype is not None else None,
        "emulated_bf16": precision == "bf16" and device_type == "cuda" and capability is not None
        and capability < NATIVE_BF16_CAPABILITY,
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "deterministic_algorithms": bool(torch.are_deterministic_algorithms_enabled()),
    }


def settings() -> dict[str, Any]:
    """For the header of a run: flags as this process found them, and the environment that touches them."""
    sdp = {
        name: bool(ask())
        for name, ask in (
            ("flash", getattr(torch.backends.cuda, "flash_sdp_enabled", None)),
            ("mem_efficient", getattr(torch.backends.cuda, "mem_efficient_sdp_enabled", None)),
            ("math", getattr(torch.backends.cuda, "math_sdp_enabled", None)),
            ("cudnn", getattr(torch.backends.cuda, "cudnn_sdp_enabled", None)),
        )
        if ask is not None
    }
    reduced = {
        name: bool(getattr(torch.backends.cuda.matmul, name))
        for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
        if _has("cuda.matmul", name)
    }
    return {
        **reduced,  # where they hold, split sums of a product are added in half precision
        "precision_api": API,
        "untouched": dict(_UNTOUCHED),
        "sdp_enabled": sdp,
        "threads": torch.get_num_threads(),
        "environment": {name: os.environ[name][:200] for name in ENVIRONMENT if name in os.environ},
    }
