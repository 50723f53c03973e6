"""Why a cell has no times, in words that may be written into a run file: one line, no path, no host, no user."""
from __future__ import annotations

import re

_MAX_REASON = 300
# a folder part, then the base name that stays
_PATH = re.compile(r"(?:[A-Za-z]:)?(?<![\w.])[\\/](?:[^\s\\/:'\",;()]+[\\/])+([^\s\\/:'\",;()]*)")
_HOME = re.compile(r"~[\w-]*[\\/](?:[^\s\\/:'\",;()]+[\\/])*([^\s\\/:'\",;()]*)")


def clean(text: str) -> str:
    """`text` on one line, paths cut to their base names, at most 300 characters."""
    line = " ".join(text.split())
    for pattern in (_HOME, _PATH):
        line = pattern.sub(lambda found: found.group(1) or "(folder)", line)
    return line if len(line) <= _MAX_REASON else line[: _MAX_REASON - 3] + "..."


def of_error(error: BaseException) -> str:
    """Kind and first line of an exception."""
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return clean(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def out_of_memory(error: BaseException, device_type: str) -> str | None:
    """A reason when `error` means that memory ran out, None for any other error."""
    text = str(error)
    is_oom = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    is_oom = is_oom or "out of memory" in text.lower() or "can't allocate memory" in text.lower()
    if not is_oom:
        return None
    wanted = re.search(r"[Tt]ried to allocate ([\d.]+ [KMGT]i?B|\d+ bytes)", text)
    where = "GPU" if device_type == "cuda" else "host"
    return f"out of {where} memory" + (f": tried to allocate {wanted.group(1)}" if wanted else "")


def poisons_process(error: BaseException) -> bool:
    """Whether CUDA stays broken in this process after `error` (an illegal access, a failed assertion)."""
    text = str(error)
    return "CUDA error" in text or "cuDNN error" in text or "CUBLAS_STATUS" in text or "device-side assert" in text
