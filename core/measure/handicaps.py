"""Taking something away from a GPU or its host, to see what it is worth. Standard library only.

A handicap is part of the setting key: `sm_count=40`, or several joined by `+` in alphabetical order. Each runs in a
worker process of its own. What it does on the device is in `core.measure.handicap_apply`.

A handicapped card is never another card: with 40 of 132 SMs it keeps its clocks, caches and memory, and libraries may
still choose kernels for the whole chip.
"""
from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from core.errors import UserError

JOIN = "+"


@dataclass(frozen=True)
class Kind:
    """One thing that can be taken away."""

    name: str
    title: str  # for people, with {} for the value and {s} for its plural
    least: float
    most: float
    whole: bool  # whether the value is a whole number
    needs_cuda: bool
    flag: bool = False  # stands alone, without a value


KINDS: Mapping[str, Kind] = MappingProxyType({
    kind.name: kind for kind in (
        Kind("alloc_cap_gb", "at most {} GB for PyTorch's allocator", 0.1, 1e4, False, True),
        Kind("bandwidth_copies", "{} stream{s} of copies beside, which take memory bandwidth", 1, 16, True, True),
        Kind("cold_l2", "L2 emptied before every repetition", 1, 1, True, True, flag=True),
        Kind("host_cores", "host limited to {} core{s}", 1, 4096, True, False),
        Kind("launch_delay_us", "every operation waits {} us on the host", 0.1, 1e6, False, False),
        Kind("sm_count", "{} of the GPU's SMs", 1, 10_000, True, True),
    )
})


def parse(text: str) -> str | None:
    """The one spelling of a handicap, None for "none". Raises UserError for an unknown one or a bad value."""
    text = text.strip().lower()
    if text in ("none", "-", ""):
        return None
    parts: dict[str, str] = {}
    for part in text.split(JOIN):
        name, given, value = part.strip().partition("=")
        kind = KINDS.get(name)
        if kind is None:
            near = difflib.get_close_matches(name, KINDS, n=2, cutoff=0.4)
            raise UserError(f"unknown handicap {name[:40]!r}", f"one of {', '.join(KINDS)}",
                            f"did you mean {' or '.join(near)}" if near else "")
        if name in parts:
            raise UserError(f"handicap {name} twice", "each once", "leave one out")
        parts[name] = name if kind.flag and not given else f"{name}={_value(kind, value)}"
        if kind.flag:
            parts[name] = name
    return JOIN.join(parts[name] for name in sorted(parts))


def _value(kind: Kind, text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not kind.least <= value <= kind.most or (kind.whole and value != int(value)):
        wanted = "a whole number" if kind.whole else "a number"
        raise UserError(f"handicap {kind.name}={text[:20]!r}",
                        f"{wanted} from {kind.least:g} to {kind.most:g}", f"such as {kind.name}={kind.least:g}")
    return f"{value:g}"


def values(handicap: str | None) -> dict[str, float]:
    """`sm_count=40+cold_l2` -> {"sm_count": 40, "cold_l2": 1}."""
    found: dict[str, float] = {}
    for part in handicap.split(JOIN) if handicap else ():
        name, _, value = part.partition("=")
        found[name] = float(value) if value else 1.0
    return found


def in_words(handicap: str | None) -> str:
    """For people: "40 of the GPU's SMs, host limited to 1 core"."""
    return ", ".join(
        KINDS[name].title.format(f"{value:g}", s="" if value == 1 else "s") if name in KINDS else f"{name} {value:g}"
        for name, value in values(handicap).items()
    )


def unsupported_reason(handicap: str | None, device_type: str, sm_count: int | None) -> str | None:
    """Why this device cannot be handicapped so, as far as that is known before trying; None when it may."""
    for name, value in values(handicap).items():
        kind = KINDS.get(name)
        if kind is None:
            return f"handicap {name} is not known here"
        if kind.needs_cuda and device_type != "cuda":
            return f"handicap {name} needs a CUDA device"
        if name == "sm_count" and sm_count is not None and value >= sm_count:
            return f"this GPU has {sm_count} SMs: {value:g} take none away"
    return None
