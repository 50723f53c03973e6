"""The spec catalogue and the measured ceilings, read from the CSV files in `data/`.

All tensor figures are dense (no structured sparsity). A blank cell, a unit that is absent or a figure that
its maker never printed, is None. Add a card by adding its row to `data/gpu_specs.csv`; nothing else changes.
"""
from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Gpu:
    """One card as its maker describes it. `key` is None for a card that is not in the catalogue."""

    key: str | None
    name: str
    nvml_name_patterns: str  # case-sensitive regular expression, for fullmatch
    vendor: str
    architecture: str
    compute_capability: str  # "7.5"
    launch: str | None  # year-month
    sm_count: int | None
    cuda_cores: int | None
    tensor_cores: int | None  # 0: none; None: not published
    tensor_core_generation: int | None
    boost_clock_mhz: float | None
    memory_gb: float | None  # nominal, as sold; what a driver reports in GiB lies 0 to 10 % below
    memory_type: str | None
    memory_bandwidth_gb_s: float | None
    l2_cache_mb: float | None
    tdp_w: float | None
    fp64_tflops: float | None
    fp32_tflops: float | None
    tf32_tensor_tflops_dense: float | None
    fp16_tensor_tflops_dense_fp32acc: float | None
    fp16_tensor_tflops_dense_fp16acc: float | None
    bf16_tensor_tflops_dense: float | None
    fp8_tensor_tflops_dense: float | None
    int8_tops_dense: float | None
    supports_bf16_native: bool
    supports_tf32: bool
    flash_attention_2_supported: bool | None  # None: FlashAttention's own list does not name it
    pcie_gen: int | None
    nvlink_gb_s: float | None
    launch_price_usd: float | None
    source: str
    notes: str
    memory_bus_bits: int | None
    memory_data_rate_gbps: float | None
    tensor_boost_clock_mhz: float | None  # None: tensor figures use boost_clock_mhz
    tensor_clock_basis: str  # "published", "implied" (back-computed from a printed figure) or ""
    tensor_rate_class: str  # full, half, halfint, quarter, none: see peaks.FMA_PER_CLOCK_PER_SM
    derived_fields: tuple[str, ...]  # computed as SMs x rate x 2 x clock, since nobody prints them
    nvml_name_examples: tuple[str, ...]
    disambiguate: str  # what tells this card from others of the same NVML name
    verification: str  # "seen: ...", "seen in part: ...", "recalled ...", "assumed"
    fp16_cuda_tflops: float | None
    fp64_tensor_tflops_dense: float | None
    aliases: tuple[str, ...]
    alias_default: tuple[str, ...]  # the spellings that mean this card where several carry them

    @property
    def is_laptop(self) -> bool:
        """A laptop part shares its name with a desktop card and is much slower."""
        return "laptop" in self.name.lower() or (self.key or "").endswith("-laptop")


@dataclass(frozen=True)
class Ceiling:
    """One public measurement of what a card reaches. Compare two cards only by the same metric, precision and tool."""

    gpu_key: str
    metric: str
    precision: str
    value: float
    unit: str  # GB/s, TFLOPS, TOPS
    tool: str
    source: str
    note: str


_LIST_SEPARATOR = {"aliases": ";", "alias_default": ";", "nvml_name_examples": ";", "derived_fields": None}
_INTEGERS = frozenset(
    {"sm_count", "cuda_cores", "tensor_cores", "tensor_core_generation", "pcie_gen", "memory_bus_bits"}
)
_YES_NO = {"yes": True, "no": False}


def read_rows(file_name: str) -> list[dict[str, str]]:
    """The rows of one table in `data/`, as text."""
    text = (files("core.gpus") / "data" / file_name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def _cell(column: str, annotation: str, text: str) -> object:
    """One CSV cell as the type its `Gpu` field is declared with."""
    text = text.strip()
    if column in _LIST_SEPARATOR:
        return tuple(part.strip() for part in text.split(_LIST_SEPARATOR[column]) if part.strip())
    if annotation.startswith("bool"):
        return _YES_NO.get(text) if "None" in annotation else _YES_NO[text]
    if column in _INTEGERS:
        return int(text) if text else None
    if annotation.startswith("float"):
        return float(text) if text else None
    return text or (None if "None" in annotation else "")


_added: tuple[Gpu, ...] = ()
_caches: list[Any] = []


def follows_catalogue(maxsize: int) -> Callable[[Function], Function]:
    """`lru_cache` for what is computed from the catalogue: forgotten when a card is added or taken away."""

    def keep(function: Function) -> Function:
        cached = lru_cache(maxsize=maxsize)(function)
        _caches.append(cached)
        return cached  # type: ignore[return-value]

    return keep


def set_added_cards(cards: Iterable[Gpu]) -> bool:
    """The cards that people added beside the shipped ones (core.gpus.added), instead of those before; True if changed.

    A shipped card keeps its key: an added one under the same key does not count.
    """
    global _added
    wanted = tuple(cards)
    if wanted == _added:
        return False
    _added = wanted
    for cached in _caches:
        cached.cache_clear()
    return True


@follows_catalogue(1)
def catalogue() -> dict[str, Gpu]:
    """Every card by key, shipped ones in the order of the file, then added ones. Treat it as read-only."""
    shipped = shipped_catalogue()
    return {**shipped, **{str(card.key): card for card in _added if card.key not in shipped}}


@lru_cache(maxsize=1)
def shipped_catalogue() -> dict[str, Gpu]:
    """The cards that come with Gapscope, by key."""
    declared = {field.name: str(field.type) for field in fields(Gpu)}
    cards = [
        Gpu(**{name: _cell(name, annotation, row[name]) for name, annotation in declared.items()})  # type: ignore[arg-type]
        for row in read_rows("gpu_specs.csv")
    ]
    return {str(card.key): card for card in cards}


@lru_cache(maxsize=1)
def _ceilings_by_key() -> dict[str, tuple[Ceiling, ...]]:
    by_key: dict[str, list[Ceiling]] = {}
    for row in read_rows("gpu_measured_ceilings.csv"):
        text = {name: row[name].strip() for name in row}
        by_key.setdefault(text["gpu_key"], []).append(
            Ceiling(
                gpu_key=text["gpu_key"],
                metric=text["metric"],
                precision=text["precision"],
                value=float(text["value"]),
                unit=text["unit"],
                tool=text["tool"],
                source=text["source"],
                note=text["note"],
            )
        )
    return {key: tuple(rows) for key, rows in by_key.items()}


def measured_ceilings(key: str | None) -> tuple[Ceiling, ...]:
    """Public measurements of the card with this catalogue key; empty where there is none."""
    return _ceilings_by_key().get(key or "", ())


def value_source(gpu: Gpu, field: str) -> str:
    """Where the value of one field of a card comes from, in words.

    Raises KeyError for a field that `Gpu` does not have.
    """
    if field not in {declared.name for declared in fields(Gpu)}:
        raise KeyError(field)
    if getattr(gpu, field) is None:
        return "not published"
    if gpu.verification == "assumed":
        return f"assumed: {gpu.source}"
    if field in gpu.derived_fields:
        return "computed: SMs x rate x 2 x clock, no printed figure"
    how = re.split(r"[:;(]", gpu.verification)[0].strip() or "not stated"
    return f"{gpu.source} ({how})"
