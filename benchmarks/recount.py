"""Counts the work of a run file's cells again, with the counter of this version; samples stay as they were measured.

    python benchmarks/recount.py IN.jsonl[.gz] OUT.jsonl.gz [--device cuda:0 | --from OTHER.jsonl.gz]

flops, other_flops and bytes of a stage follow from the workload alone, so a better counter can be applied later. Made
for the files whose bytes missed the copies that a reshape makes. Counts run on the device, since autocast there
decides which operations are converted; or they are taken from another run file whose cells did the same work in the
same precision. The file gets a `note` line that says so.
"""
from __future__ import annotations

import argparse
import dataclasses
import gzip
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from core.measure import precision
from core.measure.cost import WorkCount, count
from core.measure.inputs import procedural_clip, to_model_input
from core.records import Cell, Line, Note, Workload, encode_line, now_utc, read_run_file
from core.trackers import registry


def counted(workload: Workload, device: torch.device) -> WorkCount:
    work = workload.work
    info, variant = registry.resolve(work.selector)
    model = registry.load_builder(info)(variant.name, seed=0, **registry.build_options(info, work)).to(device)
    clip = procedural_clip(work.frames, work.height, work.width, work.points or 1)
    arguments = to_model_input(clip, device, work.batch)
    precision.apply(workload.setting.precision)

    def forward() -> object:
        with precision.autocast(workload.setting.precision, device.type):
            return model(**arguments)

    return count(forward, model)


Key = tuple[str, str, str]
Work = dict[str, tuple[int | None, int | None, int | None]]  # stage -> flops, other_flops, bytes


def key_of(workload: Workload) -> Key:
    """fp32, default and tf32 move the same bytes; each autocast precision and attention backend has its own."""
    name = workload.setting.precision
    return workload.work.key(), name if name in precision.AUTOCAST else "fp32", workload.setting.sdp_backend


def counts_in(path: Path) -> dict[Key, Work]:
    cells = [line.record for line in read_run_file(path).lines
             if isinstance(line.record, Cell) and any(stage.flops is not None for stage in line.record.stages)]
    # Cells under a handicap were counted in processes of their own, so theirs is the last word: until b34b7e7 cells of
    # one process that differed in the attention backend alone shared one count.
    cells.sort(key=lambda cell: cell.workload.setting.handicap is not None)
    return {key_of(cell.workload): {s.name: (s.flops, s.other_flops, s.bytes) for s in cell.stages} for cell in cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--from", dest="other", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    known = counts_in(options.other) if options.other else {}
    used: set[Key] = set()
    lines: list[Line] = []
    changed = 0
    found = read_run_file(options.source)
    for line in found.lines:
        cell = line.record
        if isinstance(cell, Cell) and any(stage.flops is not None for stage in cell.stages):
            key = key_of(cell.workload)
            if key not in known:
                if options.other:
                    raise SystemExit(f"{options.other.name} has no {cell.workload.key()}")
                known[key] = {s.name: (s.flops, s.other_flops, s.bytes) for s in counted(cell.workload, device).stages}
            used.add(key)
            stages = tuple(
                dataclasses.replace(stage, flops=work[0], other_flops=work[1], bytes=work[2])
                for stage, work in ((stage, known[key][stage.name]) for stage in cell.stages)
            )
            changed += stages != cell.stages
            line = dataclasses.replace(line, record=dataclasses.replace(cell, stages=stages))
        lines.append(line)
    text = "flops, other_flops and bytes of the stages counted again by benchmarks/recount.py; samples as measured"
    note = Note(event="recounted", text=text, at=now_utc())
    end = lines.pop()  # the end line stays last: a run's state is read from it
    lines.append(Line(end.run_id, end.seq, note))
    lines.append(dataclasses.replace(end, seq=end.seq + 1))
    with open(options.target, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
        packed.write(b"".join(encode_line(line) for line in lines))
    print(f"{options.target.name}: {len(used)} workloads counted, {changed} cells changed")


if __name__ == "__main__":
    main()
