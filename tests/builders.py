"""Builders of small run files for every test: numbers that can be checked by hand, a GPU or a CPU.

    build_run(tmp_path / "t4.jsonl", gpu="t4", cells=[cell(scale=10), cell(precision="fp16", scale=5)])

A cell of `scale` 1 took 10, 11 and 12 ms (median 11). Its stages are encoder 20 %, correlation 30 %, transformer 40 %,
other 10 % of every repetition. On CUDA the event times equal the wall times; a CPU cell has wall times only.
"""
from __future__ import annotations

import dataclasses
import gzip
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from core.records import (
    Ceiling,
    Cell,
    Device,
    End,
    Host,
    Line,
    Note,
    Op,
    RunHeader,
    RunsFolder,
    SettingKey,
    Software,
    Stage,
    Telemetry,
    WorkKey,
    Workload,
    encode_line,
    uuid_hash,
)

GIB = 1024**3

WALL_MS = (10.0, 11.0, 12.0)
SHARES = {"encoder": 0.2, "correlation": 0.3, "transformer": 0.4, "other": 0.1}

DEVICES = {
    "h200-sxm-141gb": Device(
        "cuda", "NVIDIA H200", uuid_hash("builder h200"), "9.0", 132, 150_754_820_096, 60 * 2**20, 1980.0, 3201.0, 6144,
        700.0, True, False, 5, 16, True,
    ),
    "a100-sxm4-40gb": Device(
        "cuda", "NVIDIA A100-SXM4-40GB", uuid_hash("builder a100"), "8.0", 108, 42_298_834_944, 40 * 2**20, 1410.0,
        1215.0, 5120, 400.0, True, False, 4, 16, True,
    ),
    "t4": Device(
        "cuda", "Tesla T4", uuid_hash("builder t4"), "7.5", 40, 15_843_721_216, 4 * 2**20, 1590.0, 5001.0, 256,
        70.0, True, False, 3, 16, True,
    ),
    "unknown": Device("cuda", "NVIDIA Prototype 9", uuid_hash("builder prototype"), "12.0", 10, 8 * GIB),
    "cpu": Device("cpu", "Builder CPU 3000", uuid_hash("builder cpu")),
}
"""Devices by catalogue key. `unknown` is in no catalogue."""


def work(**changes: Any) -> WorkKey:
    """The founding size of local4d base: 47 frames, 256 x 256, 256 points, batch 1."""
    base = WorkKey(
        tracker="local4d", variant="base", implementation="builtin", revision="1", weights="random",
        frames=47, height=256, width=256, points=256, iterations=4,
    )
    return dataclasses.replace(base, **changes)


def setting(precision: str = "fp32", **changes: Any) -> SettingKey:
    return dataclasses.replace(SettingKey(precision), **changes)


def op(name: str = "aten::conv2d", stage: str = "encoder", device_ms: float | None = 1.0, **changes: Any) -> Op:
    """One op row: 10 launches, 1e9 flops, 1e6 bytes unless changed."""
    base = Op(
        op=name, stage=stage, shapes=((1, 3, 256, 256), (64, 3, 7, 7)), dtypes=("float32", "float32"),
        layout="contiguous", scalars=("stride=2",), calls=10, device_ms=device_ms, kernels=("kernel_a",), launches=10,
        flops=1_000_000_000, other_flops=1_000, bytes=1_000_000,
    )
    return dataclasses.replace(base, **changes)


def stages_of(wall_ms: Sequence[float], cuda: bool) -> tuple[Stage, ...]:
    """Four stages that sum to every repetition; 100 flops, 10 bytes and 1 launch per percent of the total."""
    made = []
    for name, share in SHARES.items():
        times = tuple(value * share for value in wall_ms)
        percent = round(share * 100)
        made.append(
            Stage(
                name, wall_ms=None if cuda else times, event_ms=times if cuda else None, calls=1,
                flops=100 * percent, other_flops=percent, bytes=10 * percent, launches=percent,
            )
        )
    return tuple(made)


def cell(
    scale: float = 1.0,
    *,
    wall_ms: Iterable[float] | None = None,
    cuda: bool = True,
    precision: str = "fp32",
    process: int = 0,
    status: str = "ok",
    reason: str | None = None,
    work_changes: dict[str, Any] | None = None,
    setting_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> Cell:
    """One cell line. `wall_ms` replaces the three times of `scale`; any other field of `Cell` may be given."""
    workload = Workload(work(**(work_changes or {})), setting(precision, **(setting_changes or {})))
    if status != "ok":
        bare = Cell(process=process, workload=workload, status=status, reason=reason or f"{status} for a test")
        return dataclasses.replace(bare, **changes)
    times = tuple(wall_ms) if wall_ms is not None else tuple(value * scale for value in WALL_MS)
    n = len(times)
    made = Cell(
        process=process, workload=workload, status="ok", reason=reason, at="2026-11-30T10:00:00Z",
        first_call_ms=times[0] * 10, warmup_ms=(times[0] * 2,), wall_ms=times, event_ms=times if cuda else None,
        telemetry=Telemetry((1500.0,) * n, (1200.0,) * n, (60.0,) * n, (50.0,) * n, (0,) * n) if cuda else None,
        stop_rule="builder", peak_bytes=GIB if cuda else None, reserved_bytes=2 * GIB if cuda else None,
        alloc_retries=0 if cuda else None,
        execution_path={"matmul": "ieee", "conv": "ieee"}, stages=stages_of(times, cuda),
        kernel_busy_ms=times[0] * 0.9 if cuda else None, profiled_wall_ms=times[0] * 1.1 if cuda else None,
    )
    return dataclasses.replace(made, **changes)


def header(
    gpu: str = "h200-sxm-141gb",
    *,
    board: str | None = None,
    label: str | None = None,
    origin: str = "measured",
    started_at: str = "2026-11-30T10:00:00Z",
    device: Device | None = None,
    **changes: Any,
) -> RunHeader:
    """A run header for a device of `DEVICES`; another `board` text is another physical card of that type."""
    chosen = device or DEVICES[gpu]
    if board is not None:
        chosen = dataclasses.replace(chosen, uuid_hash=uuid_hash(f"builder {gpu} {board}"))
    cuda = chosen.type == "cuda"
    made = RunHeader(
        started_at=started_at, origin=origin, label=label, device=chosen,
        host=Host("Builder CPU 3000", 8, 32 * GIB, "Linux", "x86_64"),
        software=Software("3.11.7", "2.13.0", "13.0" if cuda else None, "9.1" if cuda else None,
                          "580.1" if cuda else None, ("sm_75", "sm_80", "sm_90") if cuda else ()),
    )
    return dataclasses.replace(made, **changes)


def records_of_run(
    gpu: str = "h200-sxm-141gb",
    cells: Iterable[Cell] | None = None,
    *,
    end: str | None = "done",
    ceilings: Iterable[Ceiling] = (),
    extra_records: Iterable[Any] = (),
    **header_fields: Any,
) -> list[Any]:
    """Header, plan note, ceilings, cells (each behind its `cell_started` note), other records, end."""
    head = header(gpu, **header_fields)
    cuda = head.device.type == "cuda"
    chosen = list(cells) if cells is not None else [cell(cuda=cuda)]
    plan = Note("plan", f"{len(chosen)} cells", head.started_at, {"cells": len(chosen)})
    records: list[Any] = [head, plan, *ceilings]
    for index, item in enumerate(chosen):
        started = {"index": index, "total": len(chosen), "workload": item.workload.key(), "process": item.process}
        records += [Note("cell_started", item.workload.key(), head.started_at, started), item]
    records += list(extra_records)
    if end is not None:
        records.append(End(end, at=head.started_at))
    return records


def encode_run(run_id: str, records: Iterable[Any], first_seq: int = 0) -> bytes:
    return b"".join(encode_line(Line(run_id, first_seq + i, record)) for i, record in enumerate(records))


def build_run(
    to: Path | RunsFolder,
    gpu: str = "h200-sxm-141gb",
    cells: Iterable[Cell] | None = None,
    *,
    run_id: str = "20261130-100000-00000001",
    **fields: Any,
) -> Path:
    """Write a whole run; returns its path. `to` is a file (`.jsonl` or `.jsonl.gz`) or a `RunsFolder`.

    `fields` go to `records_of_run` (end, ceilings, extra_records) and `header` (board, label, origin, ...).
    """
    data = encode_run(run_id, records_of_run(gpu, cells, **fields))
    path = to.run_file(run_id) if isinstance(to, RunsFolder) else Path(to)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def append_records(path: Path, records: Iterable[Any], *, run_id: str = "20261130-100000-00000001", seq: int) -> None:
    """Append lines to a run file, as a live runner does."""
    with open(path, "ab") as stream:
        stream.write(encode_run(run_id, records, seq))


def read_uploads_here(monkeypatch: Any, folder: Path) -> None:
    """Uploads are examined in this process and not in a child for each, which would cost half a second a file."""
    import json

    from core.store.read_upload import examine

    def examined(data: bytes, name: str, *, limits: Any, timeout_s: float, **request: Any) -> dict[str, Any]:
        path = folder / "upload-examined-here"
        path.write_bytes(data)
        found: dict[str, Any] = json.loads(json.dumps(examine(str(path), {"limits": limits, "name": name, **request})))
        return found

    monkeypatch.setattr("core.store.uploads.read_in_child", examined)
    monkeypatch.setattr("core.store.imported.read_in_child", examined)


def rows_of(store: Any) -> dict[str, list[str]]:
    """Every stored row as text, by table, in a fixed order. Left out: what belongs to a file and not to its content."""
    from core.store import queries

    return {
        table: [repr(row) for row in frame.drop(columns=["inode", "mtime_ns"], errors="ignore").map(str).to_numpy()
                .tolist()]
        for table, frame in queries.all_rows(store).items()
    }
