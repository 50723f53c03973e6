"""This machine, checked: the lines of `python -m core.measure doctor`, a process of its own with torch in it."""
from __future__ import annotations

import json
import subprocess
from typing import Any

from core.process import python_command

TIMEOUT_S = 60.0  # a cold file system takes most of a minute to load torch
STATUSES = ("bad", "warn", "unknown", "ok")
"""In the order of their weight."""


def checks(timeout_s: float = TIMEOUT_S, device: str = "auto", runs: str | None = None) -> list[dict[str, Any]]:
    """[{name, status, found, why, fix}], in the order of the doctor. Never raises.

    Where the process cannot be started, is too slow or prints nothing to read, that is the one line.
    """
    command = python_command("core.measure", "doctor", "--json", "--device", device)
    command += ["--runs", runs] if runs else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace",
                              timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return [_no_answer(f"no answer within {timeout_s:g} s")]
    except OSError as error:
        return [_no_answer(f"its process cannot be started ({error.strerror or type(error).__name__})")]
    try:
        found = json.loads(done.stdout)["checks"]
        return [{name: str(check[name]) for name in ("name", "status", "found", "why", "fix")} for check in found]
    except (ValueError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines() or [f"its process ended with code {done.returncode}"]
        return [_no_answer(lines[-1].removeprefix("error: ")[:300])]


def headline(found: list[dict[str, Any]]) -> str:
    """One sentence: how many lines need attention, the worst ones named."""
    by_status = {status: [check["name"] for check in found if check["status"] == status] for status in STATUSES}
    said = [f"{status}: {', '.join(by_status[status])}" for status in ("bad", "warn") if by_status[status]]
    unknown = len(by_status["unknown"])
    tail = f"; {unknown} could not be told" if unknown else ""
    if not said:
        return f"{len(by_status['ok'])} of {len(found)} checks are ok{tail}."
    return f"This machine has something to look at: {'; '.join(said)}{tail}."


def _no_answer(reason: str) -> dict[str, Any]:
    return {
        "name": "doctor", "status": "unknown", "found": reason,
        "why": "Without this check nobody knows whether driver, torch and GPU fit together.",
        "fix": "Run `python -m core.measure doctor` in a shell and read what it says.",
    }
