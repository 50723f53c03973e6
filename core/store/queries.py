"""Questions to the stored rows, each `name(store, ...) -> DataFrame`. All reading SQL of the project is here.

Missing numbers are NaN, missing whole numbers `pd.NA` (columns of type Int64), missing text None or NaN (ask
`pd.isna`). Runs that somebody deleted are in no answer but `hidden_runs`.
"""
from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pandas as pd

from core.store import schema
from core.store.plausibility import MEANS

MAX_PROFILED_RATIO = 1.2
"""Host gap is stated only when the profiled pass took at most this many times the wall median (docs/method.md)."""

_WHOLE_NUMBERS = (
    "points", "iterations", "query_chunk", "window", "peak_bytes", "reserved_bytes", "alloc_retries", "calls", "flops",
    "other_flops", "bytes", "launches", "throttle_bits", "frames", "height", "width", "batch", "n_ops", "sm_count",
    "memory_bytes", "line_number", "seq", "l2_bytes", "cores", "ram_bytes", "base_version",
    "size_bytes", "pcie_generation", "pcie_width", "memory_used_bytes", "other_processes", "working_set_bytes",
)

_CELL_COLUMNS = ", ".join(
    [
        "c.run_id", "c.seq", "c.process", "r.origin", "c.method", "r.started_at", "c.at", "r.device_type",
        "r.device_name", "r.gpu_key", "r.gpu_label", "r.uuid_hash", "c.work_key", "c.setting_key",
        *(f"c.{name}" for name in (*schema.WORK_COLUMNS, *schema.SETTING_COLUMNS)),
        "c.status", "c.reason", "c.n", "c.wall_median_ms", "c.wall_min_ms", "c.wall_p5_ms", "c.wall_p25_ms",
        "c.wall_p75_ms", "c.wall_p95_ms", "c.wall_max_ms", "c.event_median_ms", "c.first_call_ms", "c.stop_rule",
        "c.peak_bytes", "c.reserved_bytes", "c.alloc_retries", "c.energy_j", "c.energy_valid", "c.kernel_busy_ms",
        "c.profiled_wall_ms",
        f"case when c.profiled_wall_ms <= {MAX_PROFILED_RATIO} * c.wall_median_ms "
        "then c.wall_median_ms - c.kernel_busy_ms end as host_gap_ms",
        "r.torch", "r.cuda", "r.cudnn", "r.driver", "c.execution_path", "coalesce(c.n_ops, 0) > 0 as has_ops",
        "c.coverage", "c.drift", "c.clip", "r.label", "c.superseded",
    ]
)


class Readable(Protocol):
    """What a query needs: `core.store.Store`."""

    def frame(self, sql: str, params: Sequence[Any] = ()) -> pd.DataFrame: ...


def cells(
    store: Readable,
    origin: str | None = None,
    *,
    run_ids: Sequence[str] | None = None,
    gpu_key: str | None = None,
    older_attempts: bool = False,
) -> pd.DataFrame:
    """One row per cell line: the newest ok attempt of each work and setting in each process, and every failed line.

    `superseded`: a newer ok attempt of the same run, process and workload exists. Older ok attempts come only with
    `older_attempts`. Times are medians and quantiles over repetitions, in ms. `host_gap_ms` = wall median minus
    kernel_busy, null where the profiled pass was disturbed. `execution_path`, `drift` are JSON text.
    """
    where, params = ["true" if older_attempts else "not (c.superseded and c.status = 'ok')"], list[Any]()
    for column, value in (("r.origin", origin), ("r.gpu_key", gpu_key)):
        if value is not None:
            where.append(f"{column} = ?")
            params.append(value)
    if run_ids is not None:
        where.append("c.run_id in (select unnest(?::varchar[]))")
        params.append(list(run_ids))
    return _typed(store.frame(
        f"select {_CELL_COLUMNS} from counted_cell c join counted_run r using (run_id) "
        f"where {' and '.join(where)} order by r.started_at, c.run_id, c.seq", params,
    ))


def samples(store: Readable, run_id: str, seqs: Iterable[int] | None = None) -> pd.DataFrame:
    """Every repetition of these cell lines (all of the run without `seqs`), in order."""
    where, params = "run_id = ?", [run_id]  # type: tuple[str, list[Any]]
    if seqs is not None:
        where, params = f"{where} and seq in (select unnest(?::bigint[]))", [run_id, [int(seq) for seq in seqs]]
    return _typed(store.frame(
        "select run_id, seq, i, wall_ms, event_ms, sm_clock_mhz, memory_clock_mhz, power_w, temperature_c, "
        "throttle_bits, energy_j, utilization_percent, power_limit_w, pcie_generation, pcie_width, memory_used_bytes, "
        f"other_processes from sample where {where} order by seq, i", params,
    ))


def stages(store: Readable, keys: Iterable[tuple[str, int]]) -> pd.DataFrame:
    """Stages of these (run_id, seq) lines in the order of the forward pass.

    `median_ms` is of event time on CUDA and of wall time on a CPU; `samples_ms` holds every repetition.
    """
    pairs = list(keys)
    return _typed(store.frame(
        "select s.run_id, s.seq, c.process, s.position, s.name, s.median_ms, s.samples_ms, s.calls, s.flops, "
        "s.other_flops, s.bytes, s.launches from stage s join cell c using (run_id, seq) "
        "join (select unnest(?::varchar[]) as run_id, unnest(?::bigint[]) as seq) k using (run_id, seq) "
        "order by s.run_id, s.seq, s.position",
        [[run_id for run_id, _ in pairs], [int(seq) for _, seq in pairs]],
    ))


def ops(store: Readable, run_id: str, seq: int) -> pd.DataFrame:
    """The op table of one cell line: totals of one profiled forward pass. shapes, dtypes, scalars are JSON text."""
    return _typed(store.frame(
        "select op, stage, shapes, dtypes, layout, scalars, calls, device_ms, kernels, launches, flops, other_flops, "
        "bytes from op where run_id = ? and seq = ? order by position", [run_id, int(seq)],
    ))


def op_trials(store: Readable, run_id: str) -> pd.DataFrame:
    """Ops taken out of their tracker and tried in other ways; before and after as lists of ms."""
    return _typed(store.frame("select * from op_trial where run_id = ? order by seq", [run_id]))


def runs_with_trials(store: Readable) -> pd.DataFrame:
    """One row per run in which the microscope tried an operation."""
    return _typed(store.frame(
        "select distinct t.run_id, r.gpu_label from op_trial t join counted_run r using (run_id) order by t.run_id"
    ))


def runs(store: Readable) -> pd.DataFrame:
    """One row per run, newest first, with its device, its state and its cells.

    `state`: done, stopped or failed from its last line, else open (running, or ended without a word: see jobs.states).
    `cells` counts the lines that stand (not superseded); `failed` those that ended as failed, oom or timeout.
    `source`: reference, runs or upload (file, in a store of named files); `file` its base name.
    `held`: the whole run is in quarantine; `quarantined`: its cell and ceiling lines that are (see `quarantine`).
    """
    return _typed(store.frame(
        """
        with standing as (
            select run_id, count(*) as cells, count(*) filter (status = 'ok') as ok,
                count(*) filter (status in ('failed', 'oom', 'timeout')) as failed,
                count(*) filter (status in ('unsupported', 'skipped')) as not_run
            from counted_cell where not superseded group by run_id
        ), last as (
            select run_id, max(seq) as seq from line group by run_id
        ), place as (
            select sr.run_id, arg_min(s.place, s.rank) as source, arg_min(s.file, s.rank) as file,
                arg_min(s.source, s.rank) as source_key,
                nullif(arg_min(coalesce(s.upload_id, ''), s.rank), '') as upload_id,
                sum(sr.duplicates)::bigint as duplicates, sum(sr.conflicts)::bigint as conflicts
            from source_run sr join source s using (source) group by sr.run_id
        ), held_run as (
            select run_id from held where seq is null
        ), out as (
            select run_id, count(*) as quarantined from (
                select run_id, seq from held where seq is not null
                union select run_id, seq from cell join held_run using (run_id)
                union select run_id, seq from ceiling join held_run using (run_id)
            ) group by run_id
        )
        select r.run_id, r.label, r.origin, r.started_at, r.device_name as device, r.gpu_key, r.gpu_label,
            r.device_type, r.uuid_hash, r.method, r.torch, r.cuda, r.driver, coalesce(e.state, 'open') as state,
            e.reason as end_reason, coalesce(st.cells, 0) as cells, coalesce(st.ok, 0) as ok,
            coalesce(st.failed, 0) as failed, coalesce(st.not_run, 0) as not_run, p.source,
            case when p.source = 'runs' and p.file = 'run.jsonl' then r.run_id || '/run.jsonl' else p.file end as file,
            p.source_key, p.upload_id, p.duplicates, p.conflicts, coalesce(o.quarantined, 0) as quarantined,
            r.run_id in (select run_id from held_run) as held
        from known_run r left join out o using (run_id)
        left join standing st using (run_id) left join place p using (run_id) left join last l using (run_id)
        left join run_end e on e.run_id = r.run_id and e.seq = l.seq
        order by r.started_at desc, r.run_id desc
        """
    ))


def run_header(store: Readable, run_id: str) -> pd.DataFrame:
    """All recorded facts of one run: device, host, software; `settings` and `request` as JSON text."""
    return _typed(store.frame("select * from known_run where run_id = ?", [run_id]))


def run_load(store: Readable, run_id: str) -> pd.DataFrame:
    """One row: `busy_share`, the lowest share of kernel time in wall time among the run's undisturbed profiles, and
    `clock_mhz`, the median SM clock of its repetitions; null where nothing was recorded."""
    return _typed(store.frame(
        f"""
        select (select min(kernel_busy_ms / wall_median_ms) from cell where run_id = $1 and status = 'ok'
                and profiled_wall_ms <= {MAX_PROFILED_RATIO} * wall_median_ms) as busy_share,
            (select median(sm_clock_mhz) from sample where run_id = $1) as clock_mhz
        """, [run_id],
    ))


def reported(store: Readable) -> pd.DataFrame:
    """Published speeds as their sources state them; `origin` is always reported.

    `gpu_text` and `precision` are the source's words; `points` and `throughput` are null where the source gives no
    plain number (`points_text`, `throughput_text` have its words).
    """
    return _typed(store.frame(
        "select tracker, variant, gpu_text, gpu_key, precision, frames, height, width, points, points_text, batch, "
        "seconds, throughput, throughput_text, throughput_unit, source, source_detail, notes, 'reported' as origin "
        "from reported order by row"
    ))


def ceilings(store: Readable) -> pd.DataFrame:
    """What devices reached at best in small kernels, one row per ceiling line."""
    return _typed(store.frame(
        "select c.run_id, c.seq, r.started_at, r.device_type, r.device_name, r.gpu_key, r.gpu_label, r.uuid_hash, "
        "c.metric, c.precision, c.value, c.unit, c.samples, c.clock_mhz, c.working_set_bytes, c.shape, "
        "c.limited_by, c.power_w, c.throttle_bits from counted_ceiling c join counted_run r "
        "using (run_id) order by r.started_at, c.run_id, c.seq"
    ))


def notes(store: Readable, run_id: str) -> pd.DataFrame:
    """Progress and warnings of one run; `data` is JSON text."""
    return _typed(store.frame(
        'select run_id, seq, "at", event, text, data from note where run_id = ? order by seq', [run_id]
    ))


def imported_runs(store: Readable) -> pd.DataFrame:
    """Runs that came out of files of other programs, newest first; `request` (JSON text) says from which, and how."""
    return store.frame(
        "select run_id, label, started_at, device_name, gpu_key, gpu_label, uuid_hash, max_sm_clock_mhz, "
        "power_limit_w, request from known_run where origin = 'imported' order by started_at desc, run_id"
    )


def telemetry_log(store: Readable, run_id: str) -> pd.DataFrame:
    """Readings of an imported log in order: at_s (since 1970, UTC) and what it holds of utilization_percent, power_w,
    power_limit_w, sm_clock_mhz, memory_clock_mhz, temperature_c, memory_used_bytes, throttle_bits."""
    parts = store.frame("select data from note where run_id = ? and event = 'telemetry' order by seq", [run_id])
    tables = [table for table in map(_readings, parts["data"]) if table is not None]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"at_s": []})


def _readings(text: str) -> pd.DataFrame | None:
    """The readings of one note; None when somebody wrote a note of that name with something else in it."""
    columns = json.loads(text).get("columns")
    if not isinstance(columns, dict) or not isinstance(columns.get("at_s"), list):
        return None
    try:
        return pd.DataFrame(columns).astype(float)
    except (ValueError, TypeError):
        return None


def run_events(store: Readable, run_id: str) -> pd.DataFrame:
    """The run's lines in order, as far as progress needs them: kind, status, keys of cells, and what notes say."""
    return _typed(store.frame(
        """
        select l.seq, l.kind, coalesce(c.status, e.state) as status, e.reason, c.process, c.work_key, c.setting_key,
            n.event, n.text, n.data
        from line l left join cell c using (run_id, seq) left join note n using (run_id, seq)
        left join run_end e using (run_id, seq) where l.run_id = ? order by l.seq
        """, [run_id],
    ))


def problems(store: Readable) -> pd.DataFrame:
    """Everything read that does not count, with line, field, what was found and what was expected.

    `what`: `bad line`, `conflict` (both hashes given), `torn` (a packed file that ends early), `no header` (cells of
    a run whose header is in no file). At most 1,000 rows a source; `sources` has the full counts. What may still
    come in a file of the runs folder is no problem (see `waiting`).
    """
    return _typed(store.frame(
        """
        select * from problem
        union all by name
        select min(source) as source, 'no header' as what, run_id,
            count(*) || ' lines without their run' as found, 'a line of kind run with the same run_id' as expected
        from line where kind = 'cell' and run_id not in (select run_id from run) group by run_id
            having not bool_or(starts_with(source, 'runs/'))
        order by source, line_number, run_id
        """
    ))


def quarantine(store: Readable, *, released: bool = False) -> pd.DataFrame:
    """What is implausible and kept out of `cells` and `ceilings` until a person releases it with a reason.

    One row per `item` (what `core.store.quarantine.release` takes): `rule`, `kind` (run, cell, ceiling, line),
    `run_id`, `seq` (null for a whole run), `gpu_label`, `label`, `found`, `expected`, `sentence`, `means` (the rule in
    a sentence), `cells` (lines of cells that it keeps out), `can_release`. Lines that conflict with stored ones are
    among them; they cannot be released: the one that came from the first source counts until that source goes.
    With `released` those let through come, too, with `released_at`, `released_by` and `reason` (else null).
    """
    frame = _typed(store.frame(
        """
        select s.item, s.rule, case when s.seq is null then 'run' else l.kind end as kind, s.run_id, s.seq,
            r.gpu_label, r.label, s.found, s.expected, m.source, m.line_number,
            case when s.seq is null then (select count(*) from cell c where c.run_id = s.run_id)
                when l.kind = 'cell' then 1 else 0 end as cells,
            true as can_release, x.time as released_at, x.actor as released_by, x.reason
        from suspect s left join known_run r using (run_id) left join line l on l.run_id = s.run_id and l.seq = s.seq
        left join line m on m.run_id = s.run_id and m.seq = coalesce(s.seq, r.seq)
        left join released x using (item)
        where s.run_id not in (select run_id from hidden_run)
        union all by name
        select 'conflict:' || p.run_id || ':' || p.seq || ':' || p.sha as item, 'conflict' as rule, 'line' as kind,
            p.run_id, p.seq, r.gpu_label, r.label, p.found, p.expected, p.source, p.line_number, 0 as cells,
            false as can_release
        from problem p left join known_run r using (run_id)
        where p.what = 'conflict' and p.run_id not in (select run_id from hidden_run)
        order by run_id, seq nulls first, rule, source, line_number
        """
    ))
    frame = frame if released else frame[frame["released_at"].isna()]
    return frame.assign(
        sentence=[f"{found[:1].upper()}{found[1:]}; expected {expected}."
                  for found, expected in zip(frame["found"], frame["expected"], strict=True)],
        means=[MEANS[rule] for rule in frame["rule"]],
    ).reset_index(drop=True)


def waiting(store: Readable) -> pd.DataFrame:
    """Files of the runs folder of which a part is still awaited: `source`, `run_id` (of a missing header), `why`.

    A sweep that is writing, a copy that is on its way: nothing is wrong yet, and what is complete counts already.
    """
    return _typed(store.frame(
        """
        select source, null as run_id, 'the packed file breaks off (' || torn || ')' as why, size_bytes from source
        where place = 'runs' and torn is not null
        union all by name
        select source, null as run_id, 'its last line has no end' as why, size_bytes from source
        where place = 'runs' and torn is null and file not like '%.gz' and size_bytes > offset_bytes
        union all by name
        select min(l.source) as source, run_id, count(*) || ' lines wait for the one that names their device' as why,
            min(s.size_bytes) as size_bytes
        from line l join source s using (source) where l.kind = 'cell' and run_id not in (select run_id from run)
        group by run_id having bool_or(starts_with(l.source, 'runs/'))
        order by source, run_id
        """
    ))


def unknown_lines(store: Readable) -> pd.DataFrame:
    """Lines of kinds, and fields, that this version does not know: kept in the files, counted here."""
    return _typed(store.frame(
        "select source, kind, count(*) as lines, sum(unknown_fields)::bigint as unknown_fields from line "
        "where unknown_fields > 0 or kind not in "
        "('run', 'ceiling', 'cell', 'op_trial', 'note', 'end') group by source, kind order by source, kind"
    ))


def sources(store: Readable) -> pd.DataFrame:
    """Every file that was read: place, lines, bytes, how many problems; `done` is false while a rest waits."""
    return _typed(store.frame(
        "select source, place, file, upload_id, offset_bytes, size_bytes, lines, problems, done from source "
        "order by rank"
    ))


def conflicts_of(store: Readable, source: str) -> int:
    """Lines of a source that were left out, since another content is stored under their run and number."""
    counts = store.frame("select conflicts from source_run where source = ?", [source])
    return int(counts["conflicts"].sum())


def known_lines(store: Readable, keys: Sequence[tuple[str, int, str]]) -> pd.DataFrame:
    """Of (run_id, seq, sha) those whose run_id and seq are stored; `equal`: with the same content."""
    return _typed(store.frame(
        "select run_id, seq, l.sha = k.sha as equal from line l join (select unnest(?::varchar[]) as run_id, "
        "unnest(?::bigint[]) as seq, unnest(?::varchar[]) as sha) k using (run_id, seq)",
        [[key[0] for key in keys], [key[1] for key in keys], [key[2] for key in keys]],
    ))


def hidden_runs(store: Readable) -> list[str]:
    """Runs that somebody deleted; the journal can restore them."""
    return store.frame("select run_id from hidden_run order by run_id")["run_id"].tolist()


def journal(store: Readable, target: str | None = None) -> pd.DataFrame:
    """What people did, oldest first; `data` is JSON text."""
    where, params = ("where target = ?", [target]) if target is not None else ("", [])
    return _typed(store.frame(
        f"select id, time, act, actor, target, base_version, data from journal {where} order by position", params
    ))


def all_rows(store: Readable) -> dict[str, pd.DataFrame]:
    """Every table with all its rows in a fixed order: two databases of the same files are equal in all of them."""
    return {
        table: store.frame(f"select * from {table} order by {', '.join(str(i + 1) for i in range(len(columns)))}")
        for table, columns in schema.TABLES.items()
    }


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Whole numbers keep one type, whether or not some are missing."""
    wanted = {name: "Int64" for name in _WHOLE_NUMBERS if name in frame.columns}
    return frame.astype(wanted)
