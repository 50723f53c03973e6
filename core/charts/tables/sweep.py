"""A sweep as tables and sentences: its plan, its progress, its cells so far."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from core import units
from core.analysis.flags import flagged_samples
from core.answers.json_values import records
from core.charts import theme
from core.charts.tables.cells import cell_names, common_words, workload_parts
from core.charts.tables.values import Answer, number


def quick_words(cards: list[str], answer: Answer) -> str:
    """What the quick sweep does on this machine, and whom its result will stand beside."""
    device = cards[0] if cards else "the CPU (no GPU driver is found here)"
    partners = [gpu["label"] for gpu in answer["gpus"] if gpu["device_type"] == "cuda"]
    beside = f", and sets it beside the {theme.short_name(partners[0])}" if partners else ""
    return f"Runs local4d:small in five precisions on {device}{beside}. It goes on when you close the tab."


def plan_table(plan: Answer) -> pd.DataFrame:
    """Planned cells with predicted time and memory."""
    return pd.DataFrame(
        [
            {
                "tracker": cell["tracker"],
                "size": f"{cell['frames']} frames, {cell['height']}x{cell['width']}, {cell['points']} points"
                + (f", batch {cell['batch']}" if cell["batch"] != 1 else ""),
                "setting": cell["setting"],
                "process": cell["process"],
                "one pass": _about(cell["predicted_pass_ms"]),
                "cell": _about(_ms(cell["predicted_s"])),
                "memory": units.bytes_size(cell["predicted_bytes"]),
            }
            for cell in plan["cells"]
        ]
    )


def plan_sentence(plan: Answer) -> str:
    """How many cells, on what, and how long that takes."""
    number = len(plan["cells"])
    device = plan["predicted_for"] or "a device of unknown speed"
    time = f"about {units.duration(plan['predicted_s'])}" if plan["predicted_s"] else "time not predicted"
    return f"{number} cell{'' if number == 1 else 's'} on {device}: {time} (rough)"


def tracker_table(rows: Sequence[Mapping[str, Any]], missing: Mapping[str, Any]) -> pd.DataFrame:
    """Trackers that cannot run here yet: `rows` of the registry, `missing` (selector -> UserError) says why."""
    return pd.DataFrame(
        [
            {
                "tracker": row["selector"],
                "model": row["title"],
                "licence": row["licence"],
                "what is missing": missing[row["selector"]].found,
                "how to get it": missing[row["selector"]].fix,
            }
            for row in rows
            if row["selector"] in missing
        ],
        columns=["tracker", "model", "licence", "what is missing", "how to get it"],
    )


_STEADY = 0.97
"""A clock that stays above this share of its highest reading is called steady."""


def flagged(samples: pd.DataFrame, process: int, max_sm_clock_mhz: float | None) -> pd.DataFrame:
    """The repetitions of one cell line for `samples.sample_strip`: its process, and what to doubt of each (or None)."""
    read = {
        name: pd.to_numeric(samples[name], errors="coerce").astype(float).to_numpy()
        for name in ("throttle_bits", "sm_clock_mhz", "power_w", "power_limit_w", "utilization_percent")
    }
    found = flagged_samples(samples["wall_ms"], max_sm_clock_mhz, *read.values())
    return samples.assign(process=process, flag=pd.Series(found.flags, index=samples.index, dtype=object))


def repetition_finding(samples: pd.DataFrame, name: str) -> str:
    """How even the repetitions of the newest cell are, and what its clock did."""
    times = samples["wall_ms"].astype(float)
    low, high = float(times.quantile(0.05)), float(times.quantile(0.95))
    middle = units.time_ms(float(times.median()))
    text = f"{name}: {middle}, nine of ten repetitions from {units.time_interval_ms(low, high)}"
    flagged = int(samples["flag"].notna().sum())
    if flagged:
        return f"{text}; {flagged} of {len(samples)} were slowed by the board or starved by the host"
    clock = samples["sm_clock_mhz"].dropna().astype(float)
    if clock.empty:
        return text
    if clock.min() >= _STEADY * clock.max():
        return f"{text}; the clock stayed at {units.significant(float(clock.median()), 4)} MHz"
    return f"{text}; the clock moved between {clock.min():.0f} and {clock.max():.0f} MHz"


def repetition_conditions(samples: pd.DataFrame) -> str:
    """What the points are, and what the device does not report."""
    text = f"newest cell of this run, {len(samples)} repetition{'' if len(samples) == 1 else 's'}"
    silent = samples[["sm_clock_mhz", "power_w", "temperature_c"]].isna().all().all()
    return f"{text}; this device reports no clock, power or temperature" if silent else text


def repetition_table(samples: pd.DataFrame) -> pd.DataFrame:
    """The readings of every repetition, in order."""
    return pd.DataFrame(
        {
            "repetition": samples["i"] + 1,
            "time, ms": samples["wall_ms"],
            "SM clock, MHz": samples["sm_clock_mhz"],
            "power, W": samples["power_w"],
            "temperature, °C": samples["temperature_c"],
        }
    )


def cell_words(line: pd.DataFrame) -> str:
    """One cell line by tracker and setting."""
    parts = workload_parts(line).iloc[0]
    more = [str(line[name].iloc[0]) for name in ("execution", "handicap") if line[name].iloc[0] not in (None, "eager")]
    more = [word for word in more if word != "nan"]
    return ", ".join([str(parts["tracker"]), str(parts["precision"]), *more])


def ended_words(progress: Any, job: Any, state: str) -> str:
    """A sweep that has just ended, in a few words."""
    planned = f" of {progress.cells}" if progress.cells else ""
    return f"Sweep {job.run_id}: {state}, {progress.ok}{planned} cells measured"


def queue_words(jobs: list[Any], run_id: str) -> str:
    """Whom a waiting sweep waits for. `jobs`: store.jobs.Job, newest first."""
    running = [job.run_id for job in jobs if job.state == "running"]
    before = [job.run_id for job in jobs if job.state == "queued" and job.run_id < run_id]
    text = "One sweep at a time measures on a device. "
    text += f"Running: {', '.join(running)}" if running else "Another program of this machine holds the device"
    return text + (f"; waiting before this one: {', '.join(before)}." if before else ".")


def failed_words(failed: pd.DataFrame) -> str:
    """How many cell lines have no time, and why, in a heading."""
    counts = failed["status"].value_counts()
    said = ", ".join(f"{number} {STATUS_WORDS.get(str(status), status)}" for status, number in counts.items())
    return f"Without a time: {said}"


STATUS_WORDS = {
    "oom": "out of memory",
    "unsupported": "not possible on this device",
    "skipped": "left out",
    "timeout": "hung",
}


def failed_table(lines: pd.DataFrame) -> pd.DataFrame:
    """Cells of a run that have no time, with the reason: one row a cell."""
    failed = lines[(lines["status"] != "ok") & ~lines["superseded"].astype(bool)]
    table = live_table(failed)
    return table[["workload", "precision", "process", "status", "reason"]]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _about(milliseconds: float | None) -> str:
    """A rough time with two digits."""
    if milliseconds is None:
        return units.MISSING
    unit = units.time_unit([milliseconds])
    return f"{units.significant(units.time_value(milliseconds, unit), 2)} {unit}"


def command(argv: list[str]) -> str:
    """The same sweep for a shell."""
    return shlex.join(["python", "-m", "core", "run", *argv])


def progress_sentence(progress: Any, job: Any, state: str) -> str:
    """Where a sweep stands. `progress`: store.progress.RunProgress, `job`: store.jobs.Job, `state` in words."""
    planned = f" of {progress.cells}" if progress.cells else ""
    said = f"{progress.ok}{planned} cells measured"
    if progress.failed:
        said += f", {progress.failed} failed"
    if progress.not_run:
        said += f", {progress.not_run} not possible on this device"
    if job.state in ("running", "queued") and job.stop_requested:
        return f"{said}; stops after the running cell"
    if job.state == "running":
        now = workload_words(progress.running.get("workload", "")) if progress.running else "getting ready"
        return f"{said}; running: {now}"
    return f"{said}; {state}"


def workload_words(workload: Any) -> str:
    """The workload of a `cell_started` note in a few words: local4d:small, 8 frames, 128x128, 32 points, fp32.

    The runner writes it as an object of work and setting; a key of core.records stays as it is.
    """
    if not isinstance(workload, Mapping):
        return str(workload)
    work, setting = workload.get("work") or {}, workload.get("setting") or {}
    variant = f":{work['variant']}" if work.get("variant") else ""
    words = [
        f"{work.get('tracker', '')}{variant}",
        f"{work['frames']} frames" if work.get("frames") else "",
        f"{work['height']}x{work['width']}" if work.get("height") and work.get("width") else "",
        f"{work['points']} points" if work.get("points") else "",
        str(setting.get("precision") or ""),
    ]
    return ", ".join(word for word in words if word)


def job_table(jobs: list[Any], progresses: list[Any], words: Mapping[str, str]) -> pd.DataFrame:
    """Every sweep of this machine with its state and its cells."""
    return pd.DataFrame(
        [
            {
                "run": job.run_id,
                "state": words[job.state],
                "done": progress.done,
                "planned": progress.cells,
                "failed": progress.failed,
                "message": job.message or "",
            }
            for job, progress in zip(jobs, progresses, strict=True)
        ]
    ).astype({"planned": "Int64"})


def live_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Every cell line of a run in words, newest first: for the table of a live sweep."""
    newest = cells.sort_values("seq", ascending=False)
    parts = workload_parts(newest)
    return pd.DataFrame(
        {
            "workload": [
                ", ".join(word for word in row if word)
                for row in parts[["tracker", "frames", "size", "points", "batch"]].itertuples(index=False)
            ],
            "precision": parts["precision"],
            "process": newest["process"],
            "status": newest["status"],
            "median": [units.time_ms(number(value)) for value in newest["wall_median_ms"]],
            "p5 to p95": [
                units.time_interval_ms(number(low), number(high))
                for low, high in zip(newest["wall_p5_ms"], newest["wall_p95_ms"], strict=True)
            ],
            "n": newest["n"],
            "peak memory": [units.bytes_size(number(value)) for value in newest["peak_bytes"]],
            "reason": newest["reason"].map(lambda value: "" if pd.isna(value) else str(value)),
        }
    )


def live_finding(done: pd.DataFrame) -> str:
    """What the finished cells of a sweep say so far."""
    if len(done) == 1:
        return f"The first cell takes {units.time_ms(done['median_ms'].iloc[0])} per forward pass"
    named = records(done.assign(name=cell_names(done)).sort_values("median_ms"))
    ends = [f"{units.time_ms(row['median_ms'])} ({row['name']})" for row in (named[0], named[-1])]
    return f"From {ends[0]} to {ends[1]}"


def live_conditions(done: pd.DataFrame) -> str:
    """What the bars of a live sweep are."""
    return (
        f"median of repetitions, whiskers p5 to p95; {common_words(done)}; "
        f"{theme.short_name(str(done['gpu_label'].iloc[0]))}; newest first"
    )
