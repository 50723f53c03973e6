"""What a sweep would measure, from the runner itself (`python -m core.measure plan`): the app never loads it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import streamlit as st

from core.errors import UserError
from core.store import jobs
from core.trackers import registry

ROOT = Path(__file__).resolve().parent.parent.parent


@st.cache_data(max_entries=60, ttl=3600, show_spinner=False)
def plan(argv: tuple[str, ...]) -> dict[str, Any]:
    """The plan of a sweep with these options, as the runner prints it; its complaint is a `UserError`."""
    jobs.check_options(argv)
    done = subprocess.run(
        [sys.executable, "-m", "core.measure", "plan", *argv, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if done.returncode != 0:
        raise UserError((done.stderr.strip().splitlines() or ["the plan failed"])[-1].removeprefix("error: "))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@st.cache_data(ttl=3600, max_entries=1, show_spinner=False)
def choices() -> dict[str, Any]:
    """What the options of a sweep may be: executions, memory formats, handicaps with their words, and so on."""
    found: dict[str, Any] = plan(("--device", "cpu"))["choices"]
    return found


TRACKERS_FILE = "trackers.toml"
"""In the project's folder: where the user's copies of official repositories are. A page never takes a path."""


@st.cache_data(ttl=30, max_entries=1, show_spinner=False)
def missing_trackers() -> dict[str, UserError]:
    """Selectors of trackers that cannot run here yet, with what each one needs."""
    file = ROOT / TRACKERS_FILE
    given = registry.checkouts(file=file) if file.is_file() else {}
    found: dict[str, UserError] = {}
    for info in registry.TRACKERS.values():
        problem = registry.missing(info, given)
        if problem is not None:
            found |= {f"{info.name}:{variant}": problem for variant in info.variants}
    return found


@st.cache_data(ttl=60, max_entries=1, show_spinner=False)
def gpus() -> list[str]:
    """Names of the GPUs that the driver of this machine lists, in its order; empty without one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.splitlines() if line.strip()]
