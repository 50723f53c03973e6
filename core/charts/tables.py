"""Answers to the tables that charts take, and the finding that stands over each chart. Page and report use the same."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from core import units
from core.analysis import norms
from core.answers import sentences
from core.answers.selection import Filters
from core.charts import theme
from core.gpus import catalogue

Answer = Mapping[str, Any]

_KIND = {"bandwidth": "bandwidth"}
_SHORT = {"bandwidth": "bandwidth", "default": "conv TF32", "tf32": "TF32"}


def reading_name(name: str) -> str:
    """A theory reading in a few letters, for a label at its line."""
    baseline, separator, target = name.partition("/")
    if separator:
        return f"{reading_name(target)} / {reading_name(baseline)}"
    return _SHORT.get(name, sentences.READING_WORDS.get(name, name))


def _kind(reading: Mapping[str, Any]) -> str:
    return _KIND.get(reading["name"], "compute")


def theory_lines(answer: Answer, all_readings: bool = False) -> pd.DataFrame:
    """Theory readings of an explanation as lines: name, kind, ratio, judged. Equal ratios are told once."""
    rows = [
        {"name": reading_name(r["name"]), "kind": _kind(r), "ratio": r["ratio"], "judged": bool(r["in_verdict"])}
        for r in answer["expected"]["readings"]
        if r["ratio"] is not None and (all_readings or r["in_verdict"])
    ]
    frame = pd.DataFrame(rows, columns=["name", "kind", "ratio", "judged"])
    if frame.empty:
        return frame
    frame["shown"] = [units.ratio(value) for value in frame["ratio"]]
    joined = frame.groupby(["kind", "judged", "shown"], sort=False, as_index=False).agg(
        name=("name", lambda names: ", ".join(names)), ratio=("ratio", "first")
    )
    return joined[["name", "kind", "ratio", "judged"]]


def theory_rows(answer: Answer) -> pd.DataFrame:
    """Every theory reading and the measured bandwidth beside them, one row each for `gap.theory_chart`."""
    frame = theory_lines(answer, all_readings=True)
    frame["name"] = [
        f"{name}, data sheet" if judged else f"{name}, if it was on" if "TF32" in name else f"{name}, beside"
        for name, judged in zip(frame["name"], frame["judged"], strict=True)
    ]
    ceilings = answer["expected"].get("measured_ceilings") or {}
    if ceilings.get("bandwidth") is not None:
        frame.loc[len(frame)] = ["bandwidth, measured", "measured", ceilings["bandwidth"], False]
    return frame.sort_values("ratio").reset_index(drop=True)


def readings_table(answer: Answer) -> pd.DataFrame:
    """Theory readings with both cards' values and sources, for a reader who wants to check."""
    expected = answer["expected"]
    ceilings = (expected.get("measured_ceilings") or {}).get("readings", [])
    rows = [
        {
            "reading": sentences.capital(r["label"]),
            "ratio": units.ratio(r["ratio"]),
            "baseline": _quantity(r["baseline_value"], r["unit"]),
            "target": _quantity(r["target_value"], r["unit"]),
            "kind": kind,
            "in the verdict": "yes" if r["in_verdict"] else "no",
            "baseline source": r["baseline_source"],
            "target source": r["target_source"],
        }
        for kind, readings in (("data sheet", expected["readings"]), ("measured ceiling", ceilings))
        for r in readings
    ]
    return pd.DataFrame(
        rows,
        columns=[
            "reading",
            "ratio",
            "baseline",
            "target",
            "kind",
            "in the verdict",
            "baseline source",
            "target source",
        ],
    )


def _quantity(value: float | None, unit: str) -> str:
    return units.MISSING if value is None else f"{units.significant(value)} {unit}"


# --- the norm --------------------------------------------------------------------------------------------------------


def norm_bins(answer: Answer) -> pd.DataFrame:
    """The distribution of healthy operations on the pair of an explanation: low, high, share; empty without a norm."""
    if not answer["norm"]:
        return pd.DataFrame(columns=["low", "high", "share"])
    return norms.histogram(answer["baseline"]["gpu_key"], answer["target"]["gpu_key"])[["low", "high", "share"]]


def norm_values(answer: Answer) -> dict[str, float]:
    """low, median, high, max of the norm; empty without one."""
    found = answer["norm"] or {}
    return {key: float(found[key]) for key in ("low", "median", "high", "max") if found.get(key) is not None}


def norm_finding(answer: Answer) -> str:
    """Where this gap stands among healthy operations, as the title of the strip."""
    ratio, found = answer["measured_ratio"]["value"], answer["norm"]
    if not found:
        return f"{units.ratio(ratio)} against theory; no healthy operations are timed on this pair"
    shown = units.ratio(ratio)
    if ratio > found["max"]:
        return f"{shown} lies outside: no healthy operation on this pair exceeds {units.ratio(found['max'])}"
    if ratio > found["high"]:
        return f"{shown} is rare: only one healthy operation in 200 exceeds {units.ratio(found['high'])}"
    if ratio < found["low"]:
        return f"{shown} is rare: only one healthy operation in 200 lies below {units.ratio(found['low'])}"
    return f"{shown} lies where healthy operations on this pair lie"


def norm_conditions(answer: Answer) -> str:
    """What was timed, on what, in which software."""
    found = answer["norm"]
    if not found:
        return "Ratio of times, baseline over target; data-sheet ratios as lines"
    return f"{units.count(found['n'])} operations: {found['source']}"


def norm_alt(answer: Answer) -> str:
    values = norm_values(answer)
    said = "; ".join(f"{name} {units.ratio(value)}" for name, value in values.items())
    return f"Strip of healthy operations on a ratio axis. {norm_finding(answer)}. {said}".strip()


def norm_table(answer: Answer) -> pd.DataFrame:
    """The strip as numbers: this gap, theory, and the norm."""
    rows = [{"what": "this gap", "ratio": units.ratio(answer["measured_ratio"]["value"])}]
    rows += [
        {"what": f"{name} ratio, data sheet", "ratio": units.ratio(ratio)}
        for name, ratio in zip(*(theory_lines(answer)[c] for c in ("name", "ratio")), strict=True)
    ]
    names = {
        "low": "0.5 % of healthy operations lie below",
        "median": "median of healthy operations",
        "high": "99.5 % of healthy operations lie below",
        "max": "largest of healthy operations",
    }
    rows += [{"what": names[key], "ratio": units.ratio(value)} for key, value in norm_values(answer).items()]
    return pd.DataFrame(rows)


# --- headings of a gap -----------------------------------------------------------------------------------------------


def theory_finding(answer: Answer) -> str:
    """The title over measured against theory."""
    ratio = answer["measured_ratio"]["value"]
    low, high = answer["expected"].get("low"), answer["expected"].get("high")
    verdict = sentences.VERDICT_WORDS[answer["verdict"]]
    if low is None:
        return f"Measured {units.ratio(ratio)}; no data sheet covers both sides"
    span = units.ratio(low) if units.ratio(low) == units.ratio(high) else f"{units.ratio(low)} to {units.ratio(high)}"
    return f"Measured {units.ratio(ratio)}, hardware says {span}: {verdict}"


def short_label(side: Mapping[str, Any]) -> str:
    """A side of an explanation by the name its card is known by."""
    return theme.short_name(str(side.get("label") or side.get("gpu") or side.get("text")))


# --- one card --------------------------------------------------------------------------------------------------------

_PRECISION_OF_CEILING = {
    "fp64": "fp64",
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
}


def ceiling_rows(specs: Answer) -> pd.DataFrame:
    """Public measurements of a card as shares of its data sheet: name, share, value, printed, tool, source, note.

    A measurement whose printed figure is not published has no share and is left to the table.
    """
    values = {row["field"]: row["value"] for row in specs["values"]}
    peaks = {row["precision"]: row["value"] for row in specs["peaks"]}
    rows = []
    for ceiling in specs["measured_ceilings"]:
        if ceiling["unit"] == "GB/s":
            printed, what = values.get("memory_bandwidth_gb_s"), "bandwidth"
        else:
            precision = ceiling["precision"].split(" ")[0]
            printed, what = peaks.get(_PRECISION_OF_CEILING.get(precision, "")), precision.upper()
        metric = (
            ceiling["metric"].replace("dram_bandwidth_", "").replace("dram_bandwidth", "").replace("_", " ").strip()
        )
        metric = metric.replace("tflops", "").replace("lbm effective", "lattice Boltzmann").replace("  ", " ").strip()
        rows.append(
            {
                "name": f"{what}, {metric}" if metric else what,
                "share": ceiling["value"] / printed if printed else None,
                "value": _quantity(ceiling["value"], ceiling["unit"]),
                "data sheet": _quantity(printed, ceiling["unit"]),
                "precision": ceiling["precision"],
                "tool": ceiling["tool"],
                "source": ceiling["source"],
                "note": ceiling["note"],
            }
        )
    columns = ["name", "share", "value", "data sheet", "precision", "tool", "source", "note"]
    return pd.DataFrame(rows, columns=columns)


def ceiling_finding(specs: Answer, rows: pd.DataFrame) -> str:
    """How much of its data sheet a card reached at best, bandwidth and arithmetic apart."""
    known = rows.dropna(subset=["share"])
    memory, arithmetic = (known[known["name"].str.startswith("bandwidth") == flag] for flag in (True, False))
    said = [
        f"{units.percent(part['share'].max())} of its {what}"
        for part, what in ((memory, "printed bandwidth"), (arithmetic, "printed arithmetic peak"))
        if len(part)
    ]
    if not said:
        return f"Nobody's measurement of the {specs['name']} has a printed figure to stand beside"
    return f"The {specs['name']} reached {' and '.join(said)} at best"


_FIELD_NAMES = {
    "gb_s": "GB/s",
    "tflops": "TFLOPS",
    "tops": "TOPS",
    "mhz": "MHz",
    "gb": "GB",
    "mb": "MB",
    "usd": "USD",
    "w": "W",
    "fp64": "FP64",
    "fp32": "FP32",
    "tf32": "TF32",
    "fp16": "FP16",
    "bf16": "BF16",
    "fp8": "FP8",
    "int8": "INT8",
    "sm": "SM",
    "l2": "L2",
    "tdp": "TDP",
    "cuda": "CUDA",
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "gpu": "GPU",
    "fp32acc": "(FP32 accumulate)",
    "fp16acc": "(FP16 accumulate)",
    "gbps": "Gb/s",
}


def spec_values(specs: Answer) -> pd.DataFrame:
    """Every data-sheet value of a card with its unit and source."""
    rows = [
        {
            "value of": _field_name(row["field"]),
            "value": _spec_value(row["value"]),
            "unit": row["unit"] or "",
            "source": row["source"],
        }
        for row in specs["values"]
    ]
    return pd.DataFrame(rows, columns=["value of", "value", "unit", "source"])


def _field_name(field: str) -> str:
    words = [_FIELD_NAMES.get(word, word) for word in field.replace("_gb_s", "").replace("_mhz", "").split("_")]
    if words[-1] in ("GB", "MB", "W", "USD", "Gb/s", "bits"):
        words = words[:-1]
    return sentences.capital(" ".join(words))


def _spec_value(value: object) -> str:
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return units.significant(value, 4) if abs(value) < 1000 else units.count(value)
    return str(value)


# --- stored cells ----------------------------------------------------------------------------------------------------


def workload_parts(cells: pd.DataFrame) -> pd.DataFrame:
    """The words of each cell's work and setting, one column per part, "" where a part is not set."""

    def words(column: str, text: str) -> pd.Series:
        return cells[column].map(lambda value: "" if pd.isna(value) else text.format(value))

    variant = cells["variant"].map(lambda value: "" if pd.isna(value) else f":{value}")
    return pd.DataFrame(
        {
            "tracker": cells["tracker"].astype(str) + variant,
            "frames": words("frames", "{} frames"),
            "size": cells["height"].astype(str) + "x" + cells["width"].astype(str),
            "points": words("points", "{} points"),
            "batch": cells["batch"].map(lambda value: "" if pd.isna(value) or value == 1 else f"batch {value}"),
            "precision": cells["precision"].astype(str),
        },
        index=cells.index,
    )


def cell_names(cells: pd.DataFrame) -> pd.Series:
    """Each cell by what differs among these cells; the whole of it when nothing does."""
    parts = workload_parts(cells)
    varying = [name for name in parts if parts[name].nunique() > 1] or ["precision"]
    order = [name for name in ("precision", "tracker", "size", "frames", "points", "batch") if name in varying]
    return parts[order].apply(lambda row: ", ".join(word for word in row if word), axis=1)


def common_words(cells: pd.DataFrame) -> str:
    """What all of these cells have in common."""
    parts = workload_parts(cells)
    return ", ".join(str(parts[name].iloc[0]) for name in parts if parts[name].nunique() == 1 and parts[name].iloc[0])


def by_cell(cells: pd.DataFrame) -> pd.DataFrame:
    """Lines of ok cells as cells: one row per run, work and setting; median of the processes' medians, spread p5 to p95.

    Adds processes, repetitions, median_ms, low_ms, high_ms, detail (n in words) to the first line's columns.
    """
    ok = cells[cells["status"] == "ok"]
    if ok.empty:
        return ok.assign(processes=0, repetitions=0, median_ms=0.0, low_ms=0.0, high_ms=0.0, detail="")
    keys = ["run_id", "work_key", "setting_key"]
    grouped = ok.groupby(keys, sort=False)
    first = grouped.head(1).set_index(keys)
    first["processes"], first["repetitions"] = grouped["process"].nunique(), grouped["n"].sum()
    first["median_ms"] = grouped["wall_median_ms"].median()
    first["low_ms"], first["high_ms"] = grouped["wall_p5_ms"].min(), grouped["wall_p95_ms"].max()
    first["detail"] = [
        f"n {int(n)} in {int(p)} process{'' if p == 1 else 'es'}"
        for n, p in zip(first["repetitions"], first["processes"], strict=True)
    ]
    return first.reset_index()


def live_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Every cell line of a run in words, newest first: for the table of a live sweep."""
    newest = cells.sort_values("seq", ascending=False)
    parts = workload_parts(newest)
    return pd.DataFrame(
        {
            "workload": parts[["tracker", "frames", "size", "points", "batch"]].apply(
                lambda row: ", ".join(word for word in row if word), axis=1
            ),
            "precision": parts["precision"],
            "process": newest["process"],
            "status": newest["status"],
            "median": [units.time_ms(_number(value)) for value in newest["wall_median_ms"]],
            "p5 to p95": [
                units.time_interval_ms(_number(low), _number(high))
                for low, high in zip(newest["wall_p5_ms"], newest["wall_p95_ms"], strict=True)
            ],
            "n": newest["n"],
            "peak memory": [units.bytes_size(_number(value)) for value in newest["peak_bytes"]],
            "reason": newest["reason"].map(lambda value: "" if pd.isna(value) else str(value)),
        }
    )


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def live_finding(done: pd.DataFrame) -> str:
    """What the finished cells of a sweep say so far."""
    if len(done) == 1:
        return f"The first cell takes {units.time_ms(done['median_ms'].iloc[0])} per forward pass"
    fastest, slowest = done.loc[done["median_ms"].idxmin()], done.loc[done["median_ms"].idxmax()]
    names = cell_names(done)
    return (
        f"From {units.time_ms(fastest['median_ms'])} ({names[fastest.name]}) to "
        f"{units.time_ms(slowest['median_ms'])} ({names[slowest.name]})"
    )


def live_conditions(done: pd.DataFrame) -> str:
    """What the bars of a live sweep are."""
    return (
        f"median of repetitions, whiskers p5 to p95; {common_words(done)}; "
        f"{theme.short_name(str(done['gpu_label'].iloc[0]))}; newest first"
    )


def plan_table(plan: Answer) -> pd.DataFrame:
    """Planned cells with predicted time and memory."""
    return pd.DataFrame(
        [
            {
                "tracker": cell["tracker"],
                "size": f"{cell['frames']} frames, {cell['height']}x{cell['width']}, {cell['points']} points"
                + (f", batch {cell['batch']}" if cell["batch"] != 1 else ""),
                "precision": cell["precision"],
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
    time = f"about {rough_time(plan['predicted_s'])}" if plan["predicted_s"] else "time not predicted"
    return f"{number} cell{'' if number == 1 else 's'} on {device}: {time} (rough)"


def rough_time(seconds: float) -> str:
    """A predicted duration in the unit that people plan with."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{units.significant(seconds / 3600, 2)} h"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _about(milliseconds: float | None) -> str:
    """A rough time with two digits."""
    if milliseconds is None:
        return units.MISSING
    unit = units.time_unit([milliseconds])
    return f"{units.significant(units.time_value(milliseconds, unit), 2)} {unit}"


def progress_sentence(progress: Any, job: Any, state: str) -> str:
    """Where a sweep stands. `progress`: core.store.progress.RunProgress, `job`: core.store.jobs.Job."""
    planned = f" of {progress.cells}" if progress.cells else ""
    said = f"{progress.done}{planned} cells, {state}"
    if progress.failed:
        said += f", {progress.failed} failed"
    if progress.not_run:
        said += f", {progress.not_run} not possible on this device"
    if job.stop_requested and job.state in ("running", "queued"):
        return f"{said}; stops after the running cell"
    if job.state == "running" and progress.running:
        return f"{said}: now {workload_words(progress.running.get('workload', ''))}"
    if job.state == "running":
        return f"{said}: the runner is getting ready"
    return said


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


def command(argv: list[str]) -> str:
    """The same sweep for a shell."""
    return shlex.join(["python", "-m", "core", "run", *argv])


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


# --- what is measured ------------------------------------------------------------------------------------------------


def coverage_cells(answer: Answer) -> pd.DataFrame:
    """Measured and imported rows of a coverage answer for `overview.coverage_map`: cards by cells, works by cards."""
    rows = [row for row in answer["table"] if row["origin"] != "reported" and row["cells"]]
    frame = pd.DataFrame(rows, columns=["label", "gpu_key", "workload", "cells", "precisions", "origin"])
    frame["workload"] = frame["workload"].str.replace(", ", " · ").str.replace(" of ", " · ")
    order = {gpu["label"]: place for place, gpu in enumerate(answer["gpus"])}
    works = {name: place for place, name in enumerate(dict.fromkeys(frame["workload"]))}
    return (
        frame.sort_values("label", key=lambda column: column.map(order), kind="stable")
        .sort_values("workload", key=lambda column: column.map(works), kind="stable")
        .pipe(lambda table: pd.concat([table[table["label"] == gpu["label"]] for gpu in answer["gpus"]] or [table]))
    )


def coverage_finding(answer: Answer) -> str:
    """What is measured, as the title of the map."""
    gpus = answer["gpus"]
    works = len(answer["workloads"])
    cards = sum(gpu["device_type"] == "cuda" for gpu in gpus)
    cpus = len(gpus) - cards
    said = [f"{cards} GPU type{'' if cards == 1 else 's'}"] if cards else []
    said += [f"{cpus} CPU{'' if cpus == 1 else 's'}"] if cpus else []
    return f"{' and '.join(said)} measured on {works} workload{'' if works == 1 else 's'}"


def measured_table(cells: pd.DataFrame) -> pd.DataFrame:
    """Stored cells in words, one row each, newest run first: who measured what, with spread and n."""
    found = by_cell(cells).sort_values(["started_at", "run_id", "seq"], ascending=[False, False, True])
    parts = workload_parts(found)
    return pd.DataFrame(
        {
            "GPU": found["gpu_label"],
            "tracker": parts["tracker"],
            "frames": found["frames"],
            "size": parts["size"],
            "points": found["points"],
            "precision": parts["precision"],
            "median, ms": found["median_ms"],
            "p5, ms": found["low_ms"],
            "p95, ms": found["high_ms"],
            "n": found["repetitions"],
            "processes": found["processes"],
            "origin": found["origin"],
            "torch": found["torch"],
            "date": found["started_at"].str[:10],
            "run": found["run_id"],
        }
    )


def reported_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Published figures in words, with their source."""
    return pd.DataFrame(
        {
            "GPU": rows["gpu_text"].fillna("not stated"),
            "tracker": [
                f"{t}, {v}" if isinstance(v, str) else str(t)
                for t, v in zip(rows["tracker"], rows["variant"], strict=True)
            ],
            "precision as stated": rows["precision"].fillna("not stated"),
            "frames": rows["frames"],
            "size": [
                units.MISSING if pd.isna(h) or pd.isna(w) else f"{h}x{w}"
                for h, w in zip(rows["height"], rows["width"], strict=True)
            ],
            "points": rows["points_text"].fillna(units.MISSING),
            "time": [units.time_ms(None if pd.isna(s) else float(s) * 1e3) for s in rows["seconds"]],
            "figure": [
                f"{text} {unit}" if isinstance(text, str) and isinstance(unit, str) else ""
                for text, unit in zip(rows["throughput_text"], rows["throughput_unit"], strict=True)
            ],
            "origin": rows["origin"],
            "source": rows["source"],
            "notes": rows["notes"].fillna(""),
        }
    )


def quick_words(cards: list[str], answer: Answer) -> str:
    """What the quick sweep does on this machine, and whom its result will stand beside."""
    device = cards[0] if cards else "the CPU (no GPU driver is found here)"
    partners = [gpu["label"] for gpu in answer["gpus"] if gpu["device_type"] == "cuda"]
    beside = f", and sets it beside the {theme.short_name(partners[0])}" if partners else ""
    return f"Runs local4d:small in five precisions on {device}{beside}. It goes on when you close the tab."


# --- speedup ---------------------------------------------------------------------------------------------------------

WORK_FIELDS = ("selector", "frames", "height", "width", "points")
_FOUNDING = ("local4d:base", 47, 256, 256, 256)


def works(cells: pd.DataFrame) -> pd.DataFrame:
    """The works of these ok cells: WORK_FIELDS, number of `cards` (GPU types) and `devices`, the shared ones first.

    Among equally shared works the founding size comes first, then the largest.
    """
    frame = cells.assign(selector=workload_parts(cells)["tracker"], points=cells["points"].astype("Int64").fillna(0))
    frame["card"] = frame["gpu_label"].where(frame["device_type"] == "cuda")
    found = frame.groupby(list(WORK_FIELDS), as_index=False).agg(
        cards=("card", "nunique"), devices=("gpu_label", "nunique")
    )
    found["founding"] = [tuple(row) == _FOUNDING for row in found[list(WORK_FIELDS)].itertuples(index=False)]
    found["volume"] = found["frames"] * found["height"] * found["width"] * found["points"].clip(lower=1)
    return found.sort_values(["cards", "founding", "volume"], ascending=False).reset_index(drop=True)


def of_work(cells: pd.DataFrame, work: Mapping[str, Any], free: str = "") -> pd.DataFrame:
    """The cells of one work (WORK_FIELDS); the field `free` (or height and width as "resolution") may differ."""
    keep = workload_parts(cells)["tracker"] == work["selector"]
    for name in ("frames", "height", "width", "points"):
        if name != free and not (free == "resolution" and name in ("height", "width")):
            keep &= cells[name].fillna(0) == work[name]
    return cells[keep & (cells["batch"] == 1)]


def device_order(cells: pd.DataFrame) -> pd.DataFrame:
    """Devices of these cells, slowest first: gpu_label, gpu_key, device_type, median_ms of its fastest cell."""
    found = by_cell(cells)
    found = found.groupby("gpu_label", as_index=False).agg(
        gpu_key=("gpu_key", "first"), device_type=("device_type", "first"), median_ms=("median_ms", "min")
    )
    return found.sort_values("median_ms", ascending=False).reset_index(drop=True)


def speedup_rows(answers: list[Answer], baseline: str, baseline_key: str | None) -> pd.DataFrame:
    """Compare answers of several targets against one baseline as bars, fastest first, the baseline last."""
    rows = []
    for answer in answers:
        for row in answer["rows"][:1]:
            rows.append(
                {
                    "label": row["target"]["gpu"],
                    "gpu_key": row["target"]["gpu_key"],
                    "ratio": row["speedup"]["value"],
                    "low": row["speedup"]["low"],
                    "high": row["speedup"]["high"],
                    "time": units.time_ms(row["target_ms"]),
                    "origin": row["target"]["origin"],
                    "interval": row["speedup"]["interval"],
                    "n": row["n"]["target"],
                    "boards": row["boards"],
                    "verdict": sentences.VERDICT_WORDS[row["verdict"]],
                    "detail": f"n {row['n']['baseline']} and {row['n']['target']}, {row['boards']} boards, "
                    f"{sentences.VERDICT_WORDS[row['verdict']]}",
                }
            )
            time = units.time_ms(row["baseline_ms"])
    if not rows:
        return pd.DataFrame(columns=["label", "gpu_key", "ratio", "low", "high", "time", "origin", "detail"])
    frame = pd.DataFrame(rows).sort_values("ratio", ascending=False)
    own = {
        "label": baseline,
        "gpu_key": baseline_key,
        "ratio": 1.0,
        "low": None,
        "high": None,
        "time": time,
        "origin": "measured",
        "detail": "the baseline",
        "verdict": "",
        "interval": None,
    }
    frame = pd.concat([frame, pd.DataFrame([own])]).astype({"low": float, "high": float})
    return frame.sort_values("ratio", ascending=False, kind="stable").reset_index(drop=True)


def speedup_theory(answers: list[Answer]) -> pd.DataFrame:
    """Bandwidth and arithmetic of each target against the baseline, for lines across its bar."""
    rows = []
    for answer in answers:
        for row in answer["rows"][:1]:
            precision = reading_name(row["precision"].replace(" against ", "/"))
            for kind, key, name in (
                ("bandwidth", "bandwidth", "bandwidth"),
                ("compute", "executed_precision", f"{precision} arithmetic"),
            ):
                value = row["expected"][key]
                if value is not None:
                    rows.append(
                        {
                            "label": row["target"]["gpu"],
                            "kind": kind,
                            "name": f"{name} {units.ratio(value)}",
                            "ratio": value,
                        }
                    )
    return pd.DataFrame(rows, columns=["label", "kind", "name", "ratio"])


def speedup_finding(rows: pd.DataFrame, theory: pd.DataFrame, baseline: str) -> str:
    """The fastest device against the baseline, and what hardware says about it."""
    top = rows.iloc[0]
    lines = theory[theory["label"] == top["label"]]
    said = [f"{line['name'].rsplit(' ', 1)[0]} says {units.ratio(line['ratio'])}" for _, line in lines.iterrows()]
    fast = f"The {theme.short_name(top['label'])} is {units.ratio(top['ratio'])} as fast as the {theme.short_name(baseline)}"
    return f"{fast}; {', '.join(said)}" if said else fast


def speedup_table(rows: pd.DataFrame) -> pd.DataFrame:
    """The bars as numbers."""
    return pd.DataFrame(
        {
            "GPU": rows["label"],
            "times as fast": [units.ratio(value) for value in rows["ratio"]],
            "interval": [
                units.ratio_interval(_number(low), _number(high))
                for low, high in zip(rows["low"], rows["high"], strict=True)
            ],
            "kind of interval": rows["interval"].fillna(units.MISSING),
            "median time": rows["time"],
            "n": rows["n"],
            "boards": rows["boards"],
            "verdict": rows["verdict"],
            "origin": rows["origin"],
        }
    )


def reported_pairs(reported: pd.DataFrame, answer_of: Callable[..., Answer]) -> list[Answer]:
    """Reported figures of one source and work on several cards, each against the slowest, as explanations of two numbers.

    `answer_of(baseline, target, precision=...)` is `core.answers.two.explain_two`. A precision is stated only when
    both sides say fp32. Each answer gets `work`, `source`.
    """
    known = reported[reported["gpu_key"].isin(catalogue())].dropna(subset=["seconds"])
    keys = ["tracker", "variant", "frames", "height", "width", "points_text", "batch", "source", "throughput_unit"]
    pairs = []
    for _, group in known.groupby(keys, dropna=False, sort=False):
        cards = group.drop_duplicates("gpu_key").sort_values("seconds", ascending=False)
        slowest = cards.iloc[0]
        for _, row in cards.iloc[1:].iterrows():
            fp32 = all(
                isinstance(text, str) and text.startswith("fp32") for text in (row["precision"], slowest["precision"])
            )
            pair = answer_of(
                f"{slowest['gpu_key']}={slowest['seconds']}s",
                f"{row['gpu_key']}={row['seconds']}s",
                precision="fp32" if fp32 else None,
            )
            pairs.append({**pair, "work": _reported_work(row), "source": str(row["source"])})
    return sorted(pairs, key=lambda pair: pair["measured_ratio"]["value"] or 0, reverse=True)


def _reported_work(row: pd.Series) -> str:
    parts = [
        str(row["tracker"]).removeprefix("unknown (").removesuffix(")"),
        f"{row['frames']} frames" if pd.notna(row["frames"]) and row["frames"] > 1 else "",
        f"{row['points_text']} points" if isinstance(row["points_text"], str) else "",
    ]
    return ", ".join(part for part in parts if part)


def reported_rows(pairs: list[Answer]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Reported pairs as bars and theory lines for `speedup.speedup_bars`; a bar is named by its pair and work."""
    rows, lines = [], []
    for pair in pairs:
        label = f"{short_label(pair['target'])} / {short_label(pair['baseline'])}\n{pair['work']}"
        rows.append(
            {
                "label": label,
                "gpu_key": pair["target"]["gpu_key"],
                "ratio": pair["measured_ratio"]["value"],
                "low": None,
                "high": None,
                "origin": "reported",
                "time": f"{units.time_ms(pair['target']['seconds'] * 1e3)} / {units.time_ms(pair['baseline']['seconds'] * 1e3)}",
                "detail": f"reported, {sentences.VERDICT_WORDS[pair['verdict']]}",
                "interval": None,
                "n": 1,
                "boards": None,
                "verdict": sentences.VERDICT_WORDS[pair["verdict"]],
                "source": pair["source"],
            }
        )
        for line in theory_lines(pair).itertuples():
            lines.append(
                {
                    "label": label,
                    "kind": line.kind,
                    "name": f"{line.name} {units.ratio(line.ratio)}",
                    "ratio": line.ratio,
                }
            )
    frame = pd.DataFrame(rows).astype({"low": float, "high": float})
    return frame, pd.DataFrame(lines, columns=["label", "kind", "name", "ratio"])


def heat_cells(cells: pd.DataFrame, failed: pd.DataFrame, baseline: str, baseline_precision: str) -> pd.DataFrame:
    """GPU x precision of one work: ratio of medians against one cell. `failed`: lines that are not ok, with reason.

    The newest run of each pair counts; a ratio of medians without an interval, for an overview only.
    """
    found = by_cell(cells).sort_values("started_at").drop_duplicates(["gpu_label", "precision"], keep="last")
    base = found[(found["gpu_label"] == baseline) & (found["precision"] == baseline_precision)]["median_ms"]
    one = float(base.iloc[0]) if len(base) else None
    order = list(device_order(cells)["gpu_label"])[::-1]
    rows = [
        {
            "label": row.gpu_label,
            "precision": row.precision,
            "ratio": one / row.median_ms if one else None,
            "time": units.time_ms(row.median_ms),
            "reason": None,
        }
        for row in found.itertuples()
    ]
    have = {(row["label"], row["precision"]) for row in rows}
    rows += [
        {"label": row.gpu_label, "precision": row.precision, "ratio": None, "time": None, "reason": row.status}
        for row in failed.drop_duplicates(["gpu_label", "precision"], keep="last").itertuples()
        if (row.gpu_label, row.precision) not in have
    ]
    frame = pd.DataFrame(rows, columns=["label", "precision", "ratio", "time", "reason"])
    order += [label for label in frame["label"] if label not in order]
    return frame.sort_values("label", key=lambda column: column.map(order.index), kind="stable").reset_index(drop=True)


def heat_finding(cells: pd.DataFrame) -> str:
    """The fastest pair of GPU and precision."""
    best = cells.loc[cells["ratio"].astype(float).idxmax()]
    return f"{best['precision']} on the {theme.short_name(best['label'])} is fastest: {units.ratio(best['ratio'])}"


def size_axes(cells: pd.DataFrame, work: Mapping[str, Any]) -> dict[str, int]:
    """Axes along which at least two sizes of this work are measured: resolution, frames, points -> number of sizes."""
    columns = {"resolution": "height", "frames": "frames", "points": "points"}
    found = {axis: int(of_work(cells, work, free=axis)[column].nunique()) for axis, column in columns.items()}
    return {axis: number for axis, number in found.items() if number > 1}


MOST_SERIES = 7


def size_points(
    cells: pd.DataFrame, failed: pd.DataFrame, work: Mapping[str, Any], axis: str, precision: str
) -> pd.DataFrame:
    """Points of `speedup.size_curve` along one axis: a line per device at this precision, or, with one device alone,
    a line per precision."""
    column = {"resolution": "height", "frames": "frames", "points": "points"}[axis]

    def series(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[frame["height"] == frame["width"]] if axis == "resolution" else frame

    ok = series(by_cell(of_work(cells, work, free=axis)))
    bad = series(of_work(failed, work, free=axis))
    several = ok[ok["precision"] == precision]["gpu_label"].nunique() > 1
    if several:
        ok, bad = ok[ok["precision"] == precision], bad[bad["precision"] == precision]
    ok = ok.sort_values("started_at").drop_duplicates(["gpu_label", "precision", column], keep="last")
    frame = pd.concat([ok, bad.assign(detail=bad["reason"])])
    frame = frame.assign(
        size=frame[column].astype(float),
        series=frame["gpu_label"].map(theme.short_name) if several else frame["precision"],
    )
    counts = frame[frame["status"] == "ok"]["series"].value_counts()
    kept = counts[counts > 1].index[:MOST_SERIES] if len(counts) else []
    columns = [
        "series",
        "gpu_key",
        "gpu_label",
        "precision",
        "size",
        "median_ms",
        "low_ms",
        "high_ms",
        "status",
        "detail",
    ]
    return frame[frame["series"].isin(kept)].reindex(columns=columns)


AXIS_NAMES = {"resolution": "height and width in pixels", "frames": "frames", "points": "query points"}


def size_finding(points: pd.DataFrame, axis: str) -> str:
    """How much the time grows from the smallest to the largest size, for the series that grows most."""
    grown = []
    for name, part in points[points["status"] == "ok"].sort_values("size").groupby("series", sort=False):
        first, last = part.iloc[0], part.iloc[-1]
        if last["size"] > first["size"]:
            grown.append((last["median_ms"] / first["median_ms"], name, first["size"], last["size"]))
    if not grown:
        return f"Time against {axis}"
    factor, name, low, high = max(grown)
    what = {"resolution": "pixels a side", "frames": "frames", "points": "points"}[axis]
    return f"From {low:g} to {high:g} {what} the time grows {units.ratio(factor)} ({name})"


def size_table(points: pd.DataFrame, axis: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "GPU": points["gpu_label"],
            "precision": points["precision"],
            axis: points["size"].astype(int),
            "median": [units.time_ms(_number(value)) for value in points["median_ms"]],
            "p5 to p95": [
                units.time_interval_ms(_number(low), _number(high))
                for low, high in zip(points["low_ms"], points["high_ms"], strict=True)
            ],
            "status": points["status"],
            "n or reason": points["detail"].fillna(""),
        }
    )


# --- one gap ---------------------------------------------------------------------------------------------------------


def stage_rows(answer: Answer) -> pd.DataFrame:
    """Stages of both sides for `gap.stage_chart`, largest difference first; stages of one side only stay."""
    frame = pd.DataFrame(
        answer["stages"], columns=["name", "baseline_ms", "target_ms", "ratio", "lost_ms", "lost_share"]
    )
    frame = frame.astype({column: float for column in frame.columns if column != "name"})
    return frame.sort_values("lost_ms", key=lambda column: column.abs(), ascending=False).reset_index(drop=True)


def stage_finding(answer: Answer) -> str:
    """Which stage holds most of the difference."""
    rows = stage_rows(answer).dropna(subset=["lost_ms"])
    if rows.empty:
        return "Stages of both sides"
    top = rows.iloc[0]
    name = top["name"].replace("_", " ")
    share = top["lost_share"]
    if pd.isna(share) or share <= 0:
        return f"The {name} differs most, by {units.time_ms(abs(top['lost_ms']))}"
    return f"The {name} makes {units.percent(min(share, 1.0))} of the difference: {units.time_ms(abs(top['lost_ms']))}"


def stage_table(answer: Answer) -> pd.DataFrame:
    rows = answer["stages"]
    return pd.DataFrame(
        [
            {
                "stage": row["name"].replace("_", " "),
                "baseline": units.time_ms(row["baseline_ms"]),
                "target": units.time_ms(row["target_ms"]),
                "ratio": units.ratio(row["ratio"]),
                "difference": units.time_ms(row["lost_ms"]),
                "share of the difference": units.percent(row["lost_share"]),
                "roofline ratio": units.ratio(row["roofline_ratio"]),
                "bound by, baseline": row["bound_by_baseline"] or "",
                "bound by, target": row["bound_by_target"] or "",
                "work": units.flops(row["flops_baseline"]),
                "data": units.bytes_size(row["bytes_baseline"]),
            }
            for row in rows
        ]
    )


def op_table(answer: Answer) -> pd.DataFrame:
    """Operations of both sides, most lost time first."""
    return pd.DataFrame(
        [
            {
                "operation": str(row["op"]).removeprefix("aten::"),
                "stage": (row["stage"] or "").replace("_", " "),
                "shapes": row["shapes"] or "",
                "baseline, ms": row["device_ms_baseline"],
                "target, ms": row["device_ms_target"],
                "difference, ms": row["lost_ms"],
                "ratio": row["ratio"],
                "roofline ratio": row["roofline_ratio"],
                "norm, median": row["norm_median"],
                "norm, max": row["norm_max"],
                "bound by": row["bound_by_target"] or "",
                "calls": row["calls_target"],
                "only in": row["only_in"] or "",
                "kernels, baseline": ", ".join(row["kernels_baseline"] or []),
                "kernels, target": ", ".join(row["kernels_target"] or []),
            }
            for row in answer["op_diff"]
        ]
    )


def environment_table(answer: Answer) -> pd.DataFrame:
    """Recorded facts of both runs, what differs first."""
    rows = sorted(answer["environment"], key=lambda row: {True: 0, None: 2, False: 1}[row["differs"]])
    words = {True: "yes", False: "no", None: "not recorded"}
    return pd.DataFrame(
        [
            {
                "fact": row["name"].replace("_", " "),
                "baseline": _fact(row["name"], row["baseline"]),
                "target": _fact(row["name"], row["target"]),
                "differs": words[row["differs"]],
            }
            for row in rows
        ],
        columns=["fact", "baseline", "target", "differs"],
    )


def _fact(name: str, value: Any) -> str:
    if value is None:
        return units.MISSING
    if name.endswith("_bytes"):
        return units.bytes_size(value)
    return "yes" if value is True else "no" if value is False else str(value)


def other_works(answer: Answer) -> dict[str, Mapping[str, Any]]:
    """The works that both sides have in common, in words -> their fields; the one explained first."""
    found: dict[str, Mapping[str, Any]] = {}
    if answer["workload"]:
        found[answer["workload"]["words"]] = answer["workload"]
    for row in answer["other_cells"]:
        found.setdefault(row["workload"], row)
    return found


# --- stored runs -----------------------------------------------------------------------------------------------------


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
            "origin": runs["origin"],
            "source": runs["source"],
            "file": runs["file"],
            "started": runs["started_at"].str.replace("T", " ").str.removesuffix("Z"),
            "torch": runs["torch"],
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
        said += f"; {found.bad_lines} lines cannot be read and are left out"
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


def reported_finding(rows: pd.DataFrame) -> str:
    """The spread of the reported ratios."""
    return (
        f"Reported: from {units.ratio(rows['ratio'].min())} to {units.ratio(rows['ratio'].max())} between two cards on "
        "the same work"
    )


def reported_pair_table(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "pair and work": rows["label"].str.replace("\n", ": "),
            "ratio": [units.ratio(value) for value in rows["ratio"]],
            "times": rows["time"],
            "verdict": rows["verdict"],
            "origin": rows["origin"],
            "source": rows["source"],
        }
    )


def range_finding(rows: pd.DataFrame, baseline: str) -> str:
    """How far the devices lie apart, as the title over the bars."""
    faster = rows[rows["label"] != baseline]
    low, high = faster["ratio"].min(), faster["ratio"].max()
    if len(faster) == 1:
        return (
            f"{theme.short_name(faster['label'].iloc[0])}: {units.ratio(high)} against the {theme.short_name(baseline)}"
        )
    return f"{len(faster)} devices, from {units.ratio(low)} to {units.ratio(high)} against the {theme.short_name(baseline)}"


def speedup_conditions(cells: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Work, precision, kind of interval and what the lines are."""
    kinds = sorted({str(kind) for kind in rows["interval"].dropna()})
    interval = f"95 % intervals {' or '.join(kinds)}" if kinds else "no interval"
    boards = int(cells["uuid_hash"].nunique())
    return (
        f"{common_words(cells)}; measured; {interval}; {boards} board{'' if boards == 1 else 's'}; long dash bandwidth, "
        "short dash arithmetic, both from data sheets"
    )


def failed_words(lines: pd.DataFrame) -> str:
    """Which devices have no time for this work, and why."""
    said = [
        f"{theme.short_name(row.gpu_label)}: {row.status}" + (f" ({row.reason})" if isinstance(row.reason, str) else "")
        for row in lines.drop_duplicates("gpu_label", keep="last").itertuples()
    ]
    return f"Without a time: {'; '.join(said)}"


def size_conditions(points: pd.DataFrame, work: Mapping[str, Any], axis: str) -> str:
    """What is held equal along the curve."""
    held = {
        "tracker": str(work["selector"]),
        "resolution": f"{work['height']}x{work['width']}",
        "frames": f"{work['frames']} frames",
        "points": f"{work['points']} points",
    }
    held.pop(axis)
    cards = points["gpu_label"].unique()
    who = theme.short_name(cards[0]) if len(cards) == 1 else str(points["precision"].iloc[0])
    return f"median of repetitions, bars p5 to p95; {', '.join(held.values())}; {who}; measured"


def opening_sides(cells: pd.DataFrame) -> dict[str, Any]:
    """What the Gap page opens on: the slowest against the fastest GPU of the work that most share, in FP32; with one
    GPU alone the same card in FP32 against TF32 (or its fastest other precision); else what there is.

    baseline, target: (label, catalogue key); baseline_precision, target_precision.
    """
    best = works(cells).iloc[0]
    found = of_work(cells, best)
    cards = found[found["device_type"] == "cuda"]
    if cards.empty:
        cards = found
    precision = "fp32" if "fp32" in set(cards["precision"]) else str(cards["precision"].iloc[0])
    order = device_order(cards[cards["precision"] == precision])
    slow, fast = order.iloc[0], order.iloc[-1]
    other = precision
    if slow["gpu_label"] == fast["gpu_label"]:
        have = by_cell(cards[cards["precision"] != precision]).sort_values("median_ms")
        other = (
            "tf32" if "tf32" in set(have["precision"]) else str(have["precision"].iloc[0]) if len(have) else precision
        )
    return {
        "baseline": (slow["gpu_label"], slow["gpu_key"]),
        "target": (fast["gpu_label"], fast["gpu_key"]),
        "baseline_precision": precision,
        "target_precision": other,
    }


def work_filters(work: Mapping[str, Any]) -> Filters:
    """One work of an explanation as filters."""
    variant = f":{work['variant']}" if work["variant"] else ""
    return Filters(
        tracker=(f"{work['tracker']}{variant}",),
        resolution=((work["height"], work["width"]),),
        frames=(work["frames"],),
        points=(work["points"],) if work["points"] else (),
        batch=(work["batch"],),
    )


def reasons_table(answer: Answer) -> pd.DataFrame:
    return pd.DataFrame({"why not comparable": list(answer["not_comparable_because"])})


def theory_conditions(answer: Answer) -> str:
    """What the marks of the theory chart are."""
    return (
        f"circle bandwidth, square arithmetic, triangle measured by others; {side_names(answer)[1]} over "
        f"{side_names(answer)[0]}; blue zone: within 25 % of the readings that count"
    )


def side_names(answer: Answer) -> tuple[str, str]:
    """Both sides by name."""
    return short_label(answer["baseline"]), short_label(answer["target"])


def stage_conditions(answer: Answer) -> str:
    """Which bar is which, and what was timed."""
    baseline, target = side_names(answer)
    cuda = answer["baseline"]["event_median_ms"] is not None and answer["target"]["event_median_ms"] is not None
    kind = "CUDA-event time" if cuda else "wall time on a CPU, CUDA-event time on a GPU"
    return f"pale or hollow {baseline}, full {target}; median {kind} per stage; right: baseline / target"


def op_label(answer: Answer) -> str:
    """The heading of the folded op table."""
    number = len(answer["op_diff"])
    return f"Operations, one by one ({number} rows)" if number else "Operations, one by one (no op table)"
