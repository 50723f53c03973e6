"""Stored runs and uploads as tables and sentences."""

from __future__ import annotations

from typing import Any

import pandas as pd

from core import units


def run_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Stored runs in words, newest first."""
    return pd.DataFrame(
        {
            "run": runs["run_id"],
            "device": runs["gpu_label"],
            "label": runs["label"].fillna(""),
            "state": runs["state"],
            "cells": runs["cells"],
            "ok": runs["ok"],
            "failed": runs["failed"],
            "not possible": runs["not_run"],
            "source": runs["source"],
            "torch": runs["torch"],
            "origin": runs["origin"],
            "started, UTC": runs["started_at"].str.replace("T", " ").str.removesuffix("Z"),
            "file": runs["file"],
        }
    )


def runs_sentence(runs: pd.DataFrame) -> str:
    """How many runs are here and of what."""
    own = int((runs["source"] != "reference").sum())
    cells = int(runs["ok"].sum())
    devices = int(runs["gpu_label"].nunique())
    return (
        f"{len(runs)} run{'' if len(runs) == 1 else 's'} with {units.count(cells)} ok cell lines on {devices} device "
        f"type{'' if devices == 1 else 's'}; {own} of them yours, {len(runs) - own} shipped"
    )


def preview_sentence(found: Any) -> str:
    """What an upload is and what it adds. `found`: core.store.uploads.Preview."""
    runs = f"{len(found.runs)} run{'' if len(found.runs) == 1 else 's'}"
    cells = f"{found.cells} cell{'' if found.cells == 1 else 's'} ({found.ok} ok)"
    said = f"{found.name}: {runs} on {', '.join(found.gpus) or 'a device it does not name'}, {cells}"
    if found.already_known:
        return f"{said}; all of it is stored already"
    new = [run.new_lines for run in found.runs if run.new_lines is not None]
    if new and sum(new) < found.lines:
        said += f"; {sum(new)} of {found.lines} lines are new"
    if found.bad_lines:
        said += f"; {found.bad_lines} line{'' if found.bad_lines == 1 else 's'} cannot be read"
    return said


def preview_table(found: Any) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "run": run.run_id,
                "device": run.gpu_label or run.device or "",
                "label": run.label or "",
                "started": run.started_at or "",
                "origin": run.origin or "",
                "cells": run.cells,
                "ok": run.ok,
                "new lines": run.new_lines,
                "known lines": run.known_lines,
                "conflicting lines": run.conflicting_lines,
            }
            for run in found.runs
        ]
    )


def problem_table(found: Any) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"line": item.line, "field": item.field, "found": item.found, "expected": item.expected}
            for item in found.problems
        ]
    )


def upload_words(record: Any) -> str:
    """One upload in a line. `record`: core.store.uploads.UploadRecord."""
    runs = ", ".join(record.run_ids[:3]) + (" and more" if len(record.run_ids) > 3 else "")
    when = record.time.replace("T", " ").removesuffix("Z")
    return f"{record.name}, {when} UTC, run {runs}{'' if record.active else '; undone'}"


def stored_problem_table(problems: pd.DataFrame) -> pd.DataFrame:
    """Lines that do not count, with what was found and expected."""
    columns = {
        "source": "source",
        "line_number": "line",
        "what": "what",
        "run_id": "run",
        "field": "field",
        "found": "found",
        "expected": "expected",
    }
    return problems[list(columns)].rename(columns=columns).fillna({"run": "", "field": "", "found": "", "expected": ""})


def waiting_table(waiting: pd.DataFrame) -> pd.DataFrame:
    """Files of the runs folder of which a part is still awaited. `waiting`: core.store.queries.waiting."""
    return pd.DataFrame(
        {
            "file": waiting["source"].str.removeprefix("runs/"),
            "what it waits for": waiting["why"],
            "run": waiting["run_id"].fillna(""),
            "bytes so far": waiting["size_bytes"],
        }
    )


def quarantine_table(held: pd.DataFrame) -> pd.DataFrame:
    """What is implausible, newest run first. `held`: core.store.queries.quarantine with the released ones."""
    return pd.DataFrame(
        {
            "counts": held["released_at"].notna().map({True: "yes, released", False: "no"}),
            "what was found": held["sentence"],
            "rule": held["means"],
            "run": held["run_id"],
            "device": held["gpu_label"],
            "what": held["kind"],
            "line": held["line_number"],
            "cells": held["cells"],
            "reason for release": held["reason"],
        }
    )


def quarantine_sentence(held: pd.DataFrame) -> str:
    """How much is kept out of every chart and answer."""
    kept = held[held["released_at"].isna()]
    cells = int(kept["cells"].sum())
    released = len(held) - len(kept)
    said = (
        f"{len(kept)} item{'' if len(kept) == 1 else 's'} with {units.count(cells)} cell lines are kept out of answers"
    )
    return f"{said} until a person says why they may count; {released} released."


def releasable(held: pd.DataFrame) -> dict[str, str]:
    """Items that a person can let through, with their sentence."""
    kept = held[held["released_at"].isna() & held["can_release"].astype(bool)]
    return dict(zip(kept["item"], kept["run_id"] + ": " + kept["sentence"], strict=True))


def released(held: pd.DataFrame) -> list[str]:
    return list(held.loc[held["released_at"].notna(), "item"])


def released_words(held: pd.DataFrame, item: str) -> str:
    row = held[held["item"] == item].iloc[0]
    return f"{row['run_id']}: {row['sentence']} Released: {row['reason']}"
