"""Records as rows: lists of column values per table, handed to DuckDB as Arrow tables."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa

from core.gpus import follows_catalogue
from core.records import (
    Ceiling,
    Cell,
    Device,
    End,
    Line,
    Note,
    Op,
    OpTrial,
    RunHeader,
    Stage,
    Telemetry,
)
from core.store import schema

_TELEMETRY = tuple(f.name for f in fields(Telemetry) if f.name != "extra")
_SAMPLE_TABLE = "sample"
_work_values = attrgetter(*schema.WORK_COLUMNS)
_setting_values = attrgetter(*schema.SETTING_COLUMNS)


class Rows:
    """Rows of one transaction, by table."""

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._samples: dict[str, list[Any]] = {name: [] for name in schema.TABLES[_SAMPLE_TABLE]}

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """One row in the order of the table's columns."""
        self._rows.setdefault(table, []).append(row)

    def run_ids(self, *tables: str) -> set[str]:
        """Runs that these tables, whose first column is `run_id`, have rows of."""
        return {row[0] for table in tables for row in self._rows.get(table, ())}

    def add_line(self, line: Line) -> None:
        """The rows of one line's content, `sample`, `stage` and `op` rows of a cell included."""
        key = (line.run_id, line.seq)
        record = line.record
        if isinstance(record, Cell):
            self._add_cell(line, record)
        elif isinstance(record, RunHeader):
            self.add("run", (*key, line.method, *_header_values(record)))
        elif isinstance(record, Note):
            self.add("note", (*key, record.at, record.event, record.text, json_text(record.data)))
        elif isinstance(record, End):
            self.add("run_end", (*key, record.at, record.state, record.reason))
        elif isinstance(record, Ceiling):
            self.add("ceiling", (*key, record.metric, record.precision, record.value, record.unit,
                                 list(record.samples), record.clock_mhz, record.working_set_bytes, record.shape,
                                 record.limited_by, record.power_w, record.throttle_bits))
        elif isinstance(record, OpTrial):
            self.add("op_trial", (*key, *_op_values(record.op), record.change, list(record.before_ms),
                                  list(record.after_ms), list(record.kernels_before), list(record.kernels_after),
                                  record.max_abs_diff, record.reproduced, record.agrees, record.tolerance,
                                  record.launches_before, record.launches_after, record.device_before_ms,
                                  record.device_after_ms, record.in_tracker_ms, record.replay_ms, record.l2,
                                  record.lost_ms, record.pass_ms))

    def tables(self) -> dict[str, pa.Table]:
        """Arrow tables of everything added, those without rows left out."""
        made = {
            name: pa.table(
                [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True),
                                                                schema.arrow_schema(name).types, strict=True)],
                schema=schema.arrow_schema(name),
            )
            for name, rows in self._rows.items()
        }
        if self._samples["i"]:
            columns = schema.arrow_schema(_SAMPLE_TABLE)
            made[_SAMPLE_TABLE] = pa.table(
                [pa.array(self._samples[f.name], f.type) for f in columns], schema=columns
            )
        return made

    def _add_cell(self, line: Line, cell: Cell) -> None:
        key = (line.run_id, line.seq)
        work, setting = cell.workload.work, cell.workload.setting
        self.add("cell", (
            *key, line.method, cell.process, cell.at, cell.status, cell.reason, work.key(), setting.key(),
            *_work_values(work), *_setting_values(setting), len(cell.wall_ms), *_summary(cell.wall_ms),
            _median(cell.event_ms), cell.first_call_ms, list(cell.warmup_ms), cell.stop_rule, cell.peak_bytes,
            cell.reserved_bytes, cell.alloc_retries, cell.energy_j, cell.energy_valid, cell.kernel_busy_ms,
            cell.profiled_wall_ms, json_text(cell.execution_path), None if cell.ops is None else len(cell.ops),
            cell.coverage, json_text(cell.drift), cell.clip,
        ))
        self._add_samples(key, cell)
        for position, stage in enumerate(cell.stages):
            times = _stage_times(stage)
            self.add("stage", (*key, position, stage.name, _median(times), None if times is None else list(times),
                               stage.calls, stage.flops, stage.other_flops, stage.bytes, stage.launches))
        for position, op in enumerate(cell.ops or ()):
            self.add("op", (*key, position, *_op_values(op)))

    def _add_samples(self, key: tuple[str, int], cell: Cell) -> None:
        n = len(cell.wall_ms)
        if not n:
            return
        columns = self._samples
        columns["run_id"].extend(repeat(key[0], n))
        columns["seq"].extend(repeat(key[1], n))
        columns["i"].extend(range(n))
        columns["wall_ms"].extend(cell.wall_ms)
        columns["event_ms"].extend(cell.event_ms if cell.event_ms is not None else repeat(None, n))
        for name in _TELEMETRY:
            values = getattr(cell.telemetry, name) if cell.telemetry is not None else None
            columns[name].extend(values if values is not None else repeat(None, n))


def unknown_fields(line: Line) -> int:
    """How many fields of this line are unknown to this version: kept in the file, counted here, otherwise ignored."""
    record = line.record
    parts: list[Any] = [record]
    if isinstance(record, Cell):
        parts += [record.workload, record.workload.work, record.workload.setting, *record.stages, *(record.ops or ())]
        parts += [record.telemetry] if record.telemetry is not None else []
    elif isinstance(record, RunHeader):
        parts += [record.device, record.host, record.software]
    elif isinstance(record, OpTrial):
        parts.append(record.op)
    return sum(len(part.extra) for part in parts)


def gpu_identity(device_type: str, name: str, memory_bytes: int | None, sm_count: int | None) -> tuple[str | None, str]:
    """(catalogue key, label): `cpu` and its own name for a CPU; None and the driver's name for an unknown card."""
    if device_type == "cpu":
        return "cpu", name
    return _catalogued(name, memory_bytes, sm_count)


@follows_catalogue(512)
def _catalogued(name: str, memory_bytes: int | None, sm_count: int | None) -> tuple[str | None, str]:
    from core.gpus.lookup import by_catalogue_name, by_nvml_name

    gpu = by_nvml_name(name, memory_bytes, sm_count) or by_catalogue_name(name)
    return (gpu.key, gpu.name) if gpu is not None else (None, name)


def json_text(value: Mapping[str, Any] | Sequence[Any] | None) -> str | None:
    """Compact JSON with sorted keys, so that equal content is equal text; None stays None."""
    if value is None:
        return None
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _header_values(header: RunHeader) -> tuple[Any, ...]:
    device, host, software = header.device, header.host, header.software
    return (
        header.started_at, header.origin, header.label, device.type, device.name, *_identity(device),
        device.uuid_hash, device.compute_capability, device.sm_count, device.memory_bytes, device.l2_bytes,
        device.max_sm_clock_mhz, device.max_memory_clock_mhz, device.memory_bus_bits, device.power_limit_w, device.ecc,
        device.mig, device.pcie_generation, device.pcie_width, device.persistence, device.virtualization, host.cpu,
        host.cores, host.ram_bytes, host.os, host.platform, software.python, software.torch, software.cuda,
        software.cudnn, software.driver, list(software.arch_list), json_text(header.settings),
        json_text(header.request),
    )


def _identity(device: Device) -> tuple[str | None, str]:
    return gpu_identity(device.type, device.name, device.memory_bytes, device.sm_count)


def _op_values(op: Op) -> tuple[Any, ...]:
    return (
        op.op, op.stage, json_text(op.shapes), json_text(op.dtypes), op.layout, json_text(op.scalars), op.calls,
        op.device_ms, list(op.kernels), op.launches, op.flops, op.other_flops, op.bytes,
    )


def _stage_times(stage: Stage) -> tuple[float, ...] | None:
    """Event times on CUDA, wall times on a CPU."""
    return stage.event_ms if stage.event_ms is not None else stage.wall_ms


def _summary(values: Sequence[float]) -> tuple[float | None, ...]:
    """(median, min, p5, p25, p75, p95, max); quantiles by linear interpolation, as numpy and DuckDB do."""
    if not values:
        return (None,) * 7
    ordered = sorted(values)
    return (
        _quantile(ordered, 0.5), ordered[0], _quantile(ordered, 0.05), _quantile(ordered, 0.25),
        _quantile(ordered, 0.75), _quantile(ordered, 0.95), ordered[-1],
    )


def _median(values: Sequence[float] | None) -> float | None:
    return _quantile(sorted(values), 0.5) if values else None


def _quantile(ordered: Sequence[float], q: float) -> float:
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
