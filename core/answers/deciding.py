"""Which stored runs answer the command that a pin waits for.

The rule. A `run` command is answered when, on one of the pin's devices and for the pin's work, an ok cell exists for
every value of every setting that the command names (and with operations after `--ops all`), and at least one of those
cells is of a run that was not stored when the command was written down. `microscope` and `ceilings` are answered by a
new run on one of these devices that holds such lines. What is stored decides, not a clock: machines disagree about the
time. A command that names no work means the pin's. Any other command is a person's to answer.
"""
from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from core.answers.json_values import json_value

if TYPE_CHECKING:
    from core.store import Store

_SETTINGS = {"precision": "precision", "execution": "execution", "memory-format": "memory_format",
             "sdp-backend": "sdp_backend", "cudnn-benchmark": "cudnn_benchmark", "handicap": "handicap"}
_VERBS = ("run", "microscope", "ceilings")
_SIZES = ("frames", "points", "batch")


def wanted_of(store: Store, command: str, devices: Iterable[str], workload: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a run must hold to answer `command`, and the runs that hold such lines already; {} for another command.

    `devices`: labels of the cards that the pinned view compares. `workload`: its work (`work_key` and named parts).
    """
    verb, options = _parsed(command)
    if verb not in _VERBS:
        return {}
    work = dict(workload or {})
    named = _work_of(options)
    differs = any(work.get(name) not in values for name, values in named.items())
    wanted: dict[str, Any] = {
        "verb": verb, "devices": sorted(set(devices)), "work_key": None if differs else work.get("work_key"),
        "work": named, "settings": {field: [_value(field, text) for text in options[option]]
                                    for option, field in _SETTINGS.items() if options.get(option)},
        "ops": "all" in options.get("ops", ()), "already": [],
    }
    if not wanted["work_key"] and not named and verb == "run":
        return {}  # sides that share no work, and a command that names none
    wanted["already"] = sorted(set(_lines(store, wanted)["run_id"]))
    return wanted


def is_measurement(command: str) -> bool:
    """Whether a stored run can answer this command."""
    return _parsed(command)[0] in _VERBS


def deciding_runs(store: Store, wanted: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Runs that answer it, newest first: run_id, gpu. Empty while none does."""
    if not wanted:
        return []
    lines = _lines(store, wanted)
    found: dict[str, str] = {}
    for device, own in lines.groupby("gpu_label", sort=False):
        fresh = own[~own["run_id"].isin(wanted["already"])]
        complete = all(
            set(values) <= {json_value(value) for value in own[field]} for field, values in wanted["settings"].items()
        )
        if complete:
            found |= dict.fromkeys(map(str, fresh["run_id"]), str(device))
    return [{"run_id": run_id, "gpu": found[run_id]} for run_id in sorted(found, reverse=True)]


def _lines(store: Store, wanted: Mapping[str, Any]) -> pd.DataFrame:
    """Stored lines of the wanted kind, with run_id, gpu_label and the settings."""
    from core.store import queries

    if wanted["verb"] == "ceilings":
        lines = queries.ceilings(store)
        return lines[lines["gpu_label"].isin(wanted["devices"])]
    if wanted["verb"] == "microscope":
        lines = queries.runs_with_trials(store)
        return lines[lines["gpu_label"].isin(wanted["devices"])]
    lines = queries.cells(store)
    keep = (lines["status"] == "ok") & ~lines["superseded"].astype(bool) & lines["gpu_label"].isin(wanted["devices"])
    if wanted["work_key"]:
        keep &= lines["work_key"] == wanted["work_key"]
    else:
        for name, values in wanted["work"].items():
            keep &= lines[name].isin(values)
    if wanted["ops"]:
        keep &= lines["has_ops"].astype(bool)
    lines = lines[keep]
    for field, values in wanted["settings"].items():
        lines = lines[[json_value(value) in values for value in lines[field]]]
    return lines


def _parsed(command: str) -> tuple[str, dict[str, list[str]]]:
    """The subcommand of `python -m core ...` and its options; "" for what is no such command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return "", {}
    place = next((i for i, word in enumerate(words[:-1]) if word == "core"), None)
    if place is None:
        return "", {}
    options: dict[str, list[str]] = {}
    own: list[str] = []
    for word in words[place + 2:]:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            own = options.setdefault(name, [])
            if equals:
                own.append(value)
        else:
            own.append(word)
    return words[place + 1], options


def _work_of(options: Mapping[str, list[str]]) -> dict[str, list[Any]]:
    """Parts of the work that a command names, by column."""
    found: dict[str, list[Any]] = {}
    for text in options.get("tracker", ()):
        tracker, _, variant = text.partition(":")
        found.setdefault("tracker", []).append(tracker)
        if variant:
            found.setdefault("variant", []).append(variant)
    for text in options.get("resolution", ()):
        height, _, width = text.lower().partition("x")
        if height.isdigit() and (width or height).isdigit():
            found.setdefault("height", []).append(int(height))
            found.setdefault("width", []).append(int(width or height))
    for name in _SIZES:
        numbers = [int(text) for text in options.get(name, ()) if text.isdigit()]
        if numbers:
            found[name] = numbers
    return found


def _value(field: str, text: str) -> str | bool | None:
    if field == "handicap":
        return None if text == "none" else text
    return {"on": True, "off": False}.get(text, text) if field == "cudnn_benchmark" else text


def answered_words(found: Iterable[Mapping[str, str]]) -> str:
    """`decided by run X on the T4`, or "" while nothing answers."""
    told = [f"run {item['run_id']} on {item['gpu']}" for item in found]
    return f"decided by {' and '.join(told[:2])}{f' and {len(told) - 2} more' if len(told) > 2 else ''}" if told else ""
