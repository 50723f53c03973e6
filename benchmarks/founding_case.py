"""The tables of docs/founding-case.md, from the shipped run files alone. Needs no GPU.

    python benchmarks/founding_case.py            prints them as Markdown
    python benchmarks/founding_case.py --check    fails unless docs/founding-case.md holds exactly these tables
"""
from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.measure.handicaps import in_words  # noqa: E402
from core.records import Cell, OpTrial, SettingKey, read_run_file  # noqa: E402

RUNS = ROOT / "core" / "reference" / "runs"
DOCUMENT = ROOT / "docs" / "founding-case.md"
TRACKERS = ("local4d:base", "locotrack:base")
CONVOLUTION = ((47, 256, 34, 34), (256, 256, 3, 3))


def cells(name: str) -> Iterator[Cell]:
    for line in read_run_file(RUNS / f"{name}.jsonl.gz").lines:
        if isinstance(line.record, Cell) and line.record.status == "ok":
            yield line.record


def median_ms(cell: Cell) -> float:
    return statistics.median(cell.wall_ms)


def rung(setting: SettingKey) -> str:
    """What is taken away, in words."""
    parts = []
    if setting.precision == "fp32":
        parts.append("TF32 off")
    if setting.cudnn_benchmark:
        parts.append("cudnn.benchmark on")
    if setting.sdp_backend == "math":
        parts.append("attention without fused kernels")
    if setting.handicap:
        parts.append(in_words(setting.handicap))
    return ", ".join(parts) or "nothing: TF32, all SMs, fused attention"


def ladder() -> str:
    found = {(cell.workload.work.selector, cell.workload.setting.key()): cell for cell in cells("h200-founding")}
    settings = {cell.workload.setting.key(): cell.workload.setting for cell in found.values()}
    full = {name: median_ms(found[name, SettingKey("tf32").key()]) for name in TRACKERS}
    rows = ["| taken away | local4d base | against all | LocoTrack base | against all |", "|---|---|---|---|---|"]
    order = sorted(settings, key=lambda key: median_ms(found[TRACKERS[0], key]))
    for key in order:
        row = [rung(settings[key])]
        for name in TRACKERS:
            time_ms = median_ms(found[name, key])
            row += [f"{time_ms:.1f} ms", f"{time_ms / full[name]:.2f}x"]
        rows.append("| " + " | ".join(row) + " |")
    return "\n".join(rows)


def stages() -> str:
    chosen = {}
    for cell in cells("h200-founding"):
        setting = cell.workload.setting
        if cell.workload.work.selector == TRACKERS[1] and setting.handicap is None and setting.sdp_backend != "math":
            name = f"{setting.precision}, search" if setting.cudnn_benchmark else setting.precision
            chosen[name] = {stage.name: statistics.median(stage.event_ms or ()) for stage in cell.stages}
    names = ("fp32", "fp32, search", "tf32")
    rows = ["| stage | fp32 | fp32, cudnn.benchmark | tf32 | fp32 / tf32 |", "|---|---|---|---|---|"]
    for stage in chosen["fp32"]:
        times = [chosen[name][stage] for name in names]
        rows.append(f"| {stage} | " + " | ".join(f"{time:.1f} ms" for time in times)
                    + f" | {times[0] / times[2]:.2f}x |")
    return "\n".join(rows)


def trials() -> str:
    found = []
    for line in read_run_file(RUNS / "h200-microscope-locotrack.jsonl.gz").lines:
        trial = line.record
        if isinstance(trial, OpTrial) and trial.op.op == "aten::conv2d" and trial.op.shapes[:2] == CONVOLUTION:
            found.append(trial)
    rows = ["| change | before | after | factor | launches before | after | largest difference |",
            "|---|---|---|---|---|---|---|"]
    for trial in sorted(found, key=lambda trial: statistics.median(trial.after_ms)):
        before, after = statistics.median(trial.before_ms), statistics.median(trial.after_ms)
        rows.append(
            f"| {trial.change} | {before:.1f} ms | {after:.2f} ms | {before / after:.1f}x | "
            f"{_count(trial.launches_before)} | {_count(trial.launches_after)} | {trial.max_abs_diff:.1g} |"
        )
    return "\n".join(rows)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}".replace(",", " ")


def precisions() -> str:
    found = {(cell.workload.work.selector, cell.workload.setting.precision): cell for cell in cells("h200-official")}
    rows = ["| tracker | fp32 | default | tf32 | fp16 | bf16 | launches in fp32 | TFLOP |",
            "|---|---|---|---|---|---|---|---|"]
    for tracker in dict.fromkeys(name for name, _ in sorted(found)):
        plain = found[tracker, "fp32"]
        times = [f"{median_ms(found[tracker, name]):.0f} ms" for name in ("fp32", "default", "tf32", "fp16", "bf16")]
        launches = sum(stage.launches or 0 for stage in plain.stages)
        flops = sum(stage.flops or 0 for stage in plain.stages) / 1e12
        rows.append(f"| {tracker} | " + " | ".join(times) + f" | {_count(launches)} | {flops:.2f} |")
    return "\n".join(rows)


TABLES = {"ladder": ladder, "stages": stages, "trials": trials, "precisions": precisions}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    text = DOCUMENT.read_text(encoding="utf-8") if asked.check else ""
    wrong = []
    for name, table in TABLES.items():
        made = table()
        if not asked.check:
            print(f"## {name}\n\n{made}\n")
        elif made not in text:
            wrong.append(name)
    if wrong:
        print(f"docs/founding-case.md does not hold the present table of {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
