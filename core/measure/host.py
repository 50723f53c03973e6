"""The host as it tells itself, without torch: processor, memory, governor. What is not told is None or empty."""
from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def cpu_name() -> str | None:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "hardware", "cpu model") and value.strip():
                return " ".join(value.split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or None


def ram_bytes() -> int | None:
    return _pages_bytes("SC_PHYS_PAGES")


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """The most memory that this container may have, by its control group (version 2, then 1); None: no limit."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (root / name).read_text().strip()
        except OSError:
            continue
        # Version 1 says "no limit" by a number near 2^63.
        return int(text) if text.isdecimal() and int(text) < 2**60 else None
    return None


def free_ram_bytes() -> int | None:
    """What programs can still have, file caches included (MemAvailable); else the free pages."""
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else _pages_bytes("SC_AVPHYS_PAGES")


def _pages_bytes(name: str) -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf(name)
    except (AttributeError, ValueError, OSError):
        return None


def governors(root: Path = Path("/sys/devices/system/cpu")) -> tuple[str, ...]:
    """The distinct frequency governors of all cores, and the driver `intel_pstate` where that one sets them."""
    found: dict[str, None] = {}
    for name in ("scaling_governor", "scaling_driver"):
        for path in sorted(root.glob(f"cpu[0-9]*/cpufreq/{name}")):
            try:
                text = path.read_text().strip()
            except OSError:
                continue
            if name == "scaling_governor" or text == "intel_pstate":
                found[text] = None
    return tuple(found)
