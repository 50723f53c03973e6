"""What the stored runs know about one gap, in the shapes that factors and findings read.

Numbers of the model come from measured ceilings where both boards have them by the same metric, else from data sheets;
never one side of each. Ablations are cells of one board with the same work that differ in exactly one setting.
"""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd

from core import units
from core.analysis.factors import Machine, Value
from core.analysis.findings import LIMIT_OF_SETTING, Ablation, Side, Trial, handicap_parts, lone_difference
from core.analysis.host import host_interval_ms, host_launches
from core.analysis.norms import Norm, own_norms
from core.analysis.op_diff import KEY, key_text, op_diff
from core.analysis.statistics import ratio_interval
from core.answers.compare import Compared, card_of
from core.answers.json_values import json_value, records
from core.answers.matching import Cell, cells_of, setting_dict, wall_ms_by_process
from core.answers.selection import Side as Selected
from core.answers.selection import newest_cells
from core.gpus import PRECISIONS as SPEC_PRECISIONS
from core.gpus import Gpu, peak_tflops
from core.records import SettingKey

if TYPE_CHECKING:
    from core.store import Store

MOST_ABLATIONS = 40
MOST_CLOCK_SAMPLES = 200
_LONGEST_LAUNCH_US = 200.0
"""A pass that would need more than this between two launches waits for something else (slow hosts take 25 to 60 us)."""
_BUSY = 0.9
"""Where kernels fill at least this share of a pass, its time says nothing about its host (docs/method.md)."""
_SAME_SOFTWARE = ("torch", "cuda", "cudnn", "driver")


@dataclass(frozen=True, eq=False)
class Facts:
    """What is stored about one cell, read once."""

    cell: Cell
    card: Gpu | None
    run: Mapping[str, Any]  # the run header as plain values, `settings` taken apart
    samples: pd.DataFrame
    ceilings: tuple[Mapping[str, Any], ...]  # what its board measured, the newest run last
    stand_ins: tuple[Mapping[str, Any], ...] = ()  # what another board of its type measured, without its host's rates

    @property
    def clock_share(self) -> Value | None:
        """Recorded SM clock over the board's maximum; None where no clock was recorded."""
        highest, clocks = self.run["max_sm_clock_mhz"], _numbers(self.samples["sm_clock_mhz"])
        if not highest or not clocks:
            return None
        shares = [clock / highest for clock in clocks]
        return Value(median(shares), "recorded while timed", "observed", tuple(shares[:MOST_CLOCK_SAMPLES]))

    def board_ceilings(self, at_maximum_clock: bool = False) -> dict[tuple[str, str], Value]:
        """(metric, precision or "") -> what the board measured, the newest run of it; by size the largest value.

        What it did not measure, another board of its type may have: then the value is named so, only possible, and
        without samples, since boards differ.
        `at_maximum_clock`: products scaled from the clock they ran at, so that what a lower clock took is the factor
        clocks and nothing else.
        """
        highest = self.run["max_sm_clock_mhz"]
        result: dict[tuple[str, str], Value] = {}
        own = {(str(row["metric"]), str(row["precision"] or "")) for row in self.ceilings}
        others = (row for row in self.stand_ins if (str(row["metric"]), str(row["precision"] or "")) not in own)
        for row in (*self.ceilings, *others):
            scale = 1.0
            if at_maximum_clock and row["metric"] == "gemm" and row["clock_mhz"] and highest:
                scale = highest / row["clock_mhz"]
            name = str(row["metric"]), str(row["precision"] or "")
            if row["metric"].endswith("_by_size") and name in result and result[name].value > row["value"]:
                continue
            result[name] = Value(
                row["value"] * scale, "measured ceiling of this board", "observed",
                tuple(sample * scale for sample in row["samples"] or ()),
            ) if name in own else Value(row["value"] * scale, f"ceiling of another {row['gpu_label']}")
        return result


def read(cell: Cell) -> Facts:
    """Everything that factors and rules ask about a cell."""
    from core.store import queries

    store = cell.side.store
    run = json_value(records(queries.run_header(store, cell.run_id)))[0]
    ceilings = queries.ceilings(store)
    own = ceilings["uuid_hash"].isin(cell.boards)
    return Facts(
        cell, card_of(cell), {**run, "settings": json.loads(run["settings"]) if run["settings"] else {}},
        queries.samples(store, cell.run_id, cell.seqs),
        tuple(json_value(records(ceilings[own]))), _stand_ins(ceilings[~own], cell, run),
    )


_OF_THE_HOST = ("launch", "op_rate", "host_to_device", "device_to_host")
"""Metrics that begin so are as good as the machine around the board: another board's say nothing about this one."""


def _stand_ins(ceilings: pd.DataFrame, cell: Cell, run: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Ceilings of the newest run of another board of this type with as many SMs (a slice is another card)."""
    from core.store import queries

    alike = ceilings[(ceilings["gpu_key"] == json_value(cell.first["gpu_key"]))
                     & ~ceilings["metric"].str.startswith(_OF_THE_HOST)]
    for run_id in dict.fromkeys(reversed(alike["run_id"].tolist())):
        header = json_value(records(queries.run_header(cell.side.store, run_id)))[0]
        if header["sm_count"] == run["sm_count"]:
            return tuple(json_value(records(alike[alike["run_id"] == run_id])))
    return ()


def _numbers(values: pd.Series) -> list[float]:
    return [float(value) for value in pd.to_numeric(values, errors="coerce").dropna()]


# --- the model's numbers ---------------------------------------------------------------------------------------------


def machines(sides: tuple[Facts, Facts], ops: Sequence[pd.DataFrame | None]) -> tuple[Machine, Machine]:
    """What the model knows of both sides. `ops`: their operation tables, for the launches of a host-bound side."""
    ceilings = [facts.board_ceilings(at_maximum_clock=True) for facts in sides]
    both = set(ceilings[0]) & set(ceilings[1])
    left, right = (
        _machine(facts, {key: found[key] for key in both}, table)
        for facts, found, table in zip(sides, ceilings, ops, strict=True)
    )
    if one_host(*sides):
        left, right = _with_one_interval(left, right)
    return left, right


def one_host(left: Facts, right: Facts) -> bool:
    """Whether one machine ran both sides under one software and neither's host was held up on purpose."""
    handicaps = (handicap_parts(setting_dict(facts.cell.first)["handicap"]) for facts in (left, right))
    if any(LIMIT_OF_SETTING.get(f"handicap {name}") == "host" for parts in handicaps for name in parts):
        return False
    return left.run["uuid_hash"] == right.run["uuid_hash"] and all(
        left.run[name] == right.run[name] for name in ("cpu", "cores", "os", *_SAME_SOFTWARE)
    )


def _with_one_interval(left: Machine, right: Machine) -> tuple[Machine, Machine]:
    """Both machines with the shortest launch interval that one of the two shows: their host is one."""
    known = [machine.launch_us for machine in (left, right) if machine.launch_us is not None]
    if not known:
        return left, right
    shortest = min(known, key=lambda interval: interval.value)
    return replace(left, launch_us=shortest), replace(right, launch_us=shortest)


def _machine(facts: Facts, ceilings: Mapping[tuple[str, str], Value], ops: pd.DataFrame | None) -> Machine:
    cell, card, run = facts.cell, facts.card, facts.run
    setting = setting_dict(cell.first)
    handicap = handicap_parts(setting["handicap"])
    gains = _gains(card, str(setting["precision"]), ceilings, json_value(cell.first["execution_path"]))
    return Machine(
        fp32_tflops=_compute(card, run, ceilings, handicap), matmul_gain=gains[0], convolution_gain=gains[1],
        clock_share=facts.clock_share,
        bandwidth_gb_s=ceilings.get(("copy", "")) or _sheet(card.memory_bandwidth_gb_s if card else None),
        cache_bytes=_read(run["l2_bytes"]), cache_gb_s=ceilings.get(("copy_by_size", "")),
        launch_us=_launch(cell, ceilings, handicap, ops), stall_ms=_stall(cell),
    )


def _sheet(value: float | None) -> Value | None:
    return None if value is None else Value(value, "data sheet")


def _read(value: float | None) -> Value | None:
    return None if value is None else Value(float(value), "driver", "observed")


def _compute(
    card: Gpu | None, run: Mapping[str, Any], ceilings: Mapping[tuple[str, str], Value], handicap: Mapping[str, str]
) -> Value | None:
    """FP32 rate of the SMs in use, at the maximum clock."""
    value = ceilings.get(("gemm", "fp32")) or _sheet(card.fp32_tflops if card else None)
    whole, shown = (card.sm_count if card else None), run["sm_count"]
    if value is None:
        return None
    if value.evidence == "possible" and whole and shown and shown < whole:
        value = replace(value, value=value.value * shown / whole, source=f"data sheet, {shown} of {whole} SMs")
    used = handicap.get("sm_count", "")
    if used.isdecimal() and shown:
        share = int(used) / shown
        value = replace(value, value=value.value * share, source=f"{value.source}, {used} of {shown} SMs",
                        evidence="observed", samples=tuple(sample * share for sample in value.samples))
    return value


def _gains(
    card: Gpu | None, precision: str, ceilings: Mapping[tuple[str, str], Value], path: Any
) -> tuple[Value | None, Value | None]:
    """Rate over FP32 of matrix products and of convolutions in one precision setting."""
    grade = "observed" if path and path != "{}" else "possible"
    names = ("fp32", "tf32") if precision == "default" else (precision, precision)
    gains: list[Value | None] = []
    for name in names:
        measured = ceilings.get(("gemm", name)), ceilings.get(("gemm", "fp32"))
        if name == "fp32":
            gains.append(Value(1.0, "FP32 itself", grade))
        elif measured[0] and measured[1]:
            gains.append(Value(measured[0].value / measured[1].value, "measured products", "observed"))
        elif card is None or name not in SPEC_PRECISIONS:
            gains.append(None)
        else:
            peaks = peak_tflops(card, name), peak_tflops(card, "fp32")
            known = peaks[0] is not None and peaks[1] is not None
            gains.append(Value(peaks[0].value / peaks[1].value, "data sheet", grade)  # type: ignore[union-attr]
                         if known else None)
    return gains[0], gains[1]


def _launch(
    cell: Cell, ceilings: Mapping[tuple[str, str], Value], handicap: Mapping[str, str], ops: pd.DataFrame | None
) -> Value | None:
    """Time between two launches: measured on this machine, or the one that explains a pass with idle kernels."""
    delay_us = float(handicap.get("launch_delay_us", 0) or 0)
    rate = ceilings.get(("op_rate", ""))
    if rate is not None:
        return Value(1e3 / rate.value + delay_us, "measured rate of the smallest operation", "observed")
    wall_ms = cell.middle("wall_median_ms")
    if ops is None or not wall_ms:
        return None
    device_ms, launches, calls = (
        pd.to_numeric(ops[name], errors="coerce").fillna(0).to_numpy(dtype=float)
        for name in ("device_ms", "launches", "calls")
    )
    busy_ms = cell.middle("kernel_busy_ms") or float(device_ms.sum())
    if not busy_ms or busy_ms / wall_ms >= _BUSY:
        return None
    # The idle time over the sum of the operations, which a profiled pass may stretch, or not hold whole.
    idle_ms = wall_ms - busy_ms
    interval_ms = host_interval_ms(device_ms, host_launches(launches, calls), float(device_ms.sum()) + idle_ms)
    if interval_ms is None or interval_ms * 1e3 > _LONGEST_LAUNCH_US + delay_us:
        return None
    return Value(
        interval_ms * 1e3, f"from a pass on this machine whose kernels fill {busy_ms / wall_ms:.0%} of the time",
        "observed",
    )


def _stall(cell: Cell) -> Value | None:
    retries = cell.middle("alloc_retries")
    return Value(0.0, "no allocator retry", "observed") if retries == 0 else None


# --- the rules' facts ------------------------------------------------------------------------------------------------


def side(facts: Facts, label: str, ops: pd.DataFrame | None) -> Side:
    """What is recorded about one measured side."""
    cell, run, samples = facts.cell, facts.run, facts.samples
    row, share, settings = json_value(dict(cell.first)), facts.clock_share, run["settings"]
    reserved, peak = cell.middle("reserved_bytes"), cell.middle("peak_bytes")
    retries = cell.middle("alloc_retries")
    return Side(
        label=label, card=facts.card, device_type=row["device_type"], precision=row["precision"],
        time_ms=cell.middle("wall_median_ms"), samples_ms=tuple(_numbers(samples["wall_ms"])),
        first_call_ms=row["first_call_ms"], kernel_busy_ms=cell.middle("kernel_busy_ms"),
        event_ms=cell.middle("event_median_ms"), clock_share=share.value if share else None,
        throttle_bits=tuple(int(value) for value in _numbers(samples["throttle_bits"])),
        alloc_retries=None if retries is None else int(retries),
        reserved_bytes=None if reserved is None else int(reserved), peak_bytes=None if peak is None else int(peak),
        setting=setting_dict(cell.first),
        path=json.loads(row["execution_path"]) if row["execution_path"] else {}, run=run,
        threads=settings.get("threads"), sdp_enabled=settings.get("sdp_enabled"), ops=ops,
    )


def same_machine(left: Side, right: Side) -> bool:
    """One board under one software: what then differs is a setting, and nothing else."""
    return left.run["uuid_hash"] == right.run["uuid_hash"] and all(
        left.run.get(name) == right.run.get(name) for name in _SAME_SOFTWARE
    )


def options_of(row: Mapping[str, Any]) -> str:
    """The options of `run` that repeat the work of a cell."""
    found = json_value(dict(row))
    variant = f":{found['variant']}" if found["variant"] else ""
    parts = [f"--tracker {found['tracker']}{variant}"]
    if found["height"] and found["width"]:
        size = found["height"] if found["height"] == found["width"] else f"{found['height']}x{found['width']}"
        parts.append(f"--resolution {size}")
    parts += [f"--{name} {found[name]}" for name in ("frames", "points") if found[name]]
    if found["batch"] not in (None, 1):
        parts.append(f"--batch {found['batch']}")
    return " ".join(parts)


# --- ablations -------------------------------------------------------------------------------------------------------


def ablations(pair: Compared) -> list[Ablation]:
    """Pairs of cells on one board with this work that differ in one setting; the compared pair itself first."""
    stores = list({id(cell.side.store): cell.side.store for cell in (pair.baseline, pair.target)}.values())
    compared = {(cell.run_id, cell.setting_key) for cell in (pair.baseline, pair.target)}
    sides = {board: name for cell, name in ((pair.target, "target"), (pair.baseline, "baseline"))
             for board in cell.boards}
    found: list[tuple[Cell, Cell, str, str, str]] = []
    for store in stores:
        for group in _boards(store, pair.baseline):
            for i, one in enumerate(group):
                for other in group[i + 1:]:
                    difference = lone_difference(setting_dict(one.first), setting_dict(other.first))
                    if difference and _about(one, other, pair) and _one_software(one, other):
                        found.append((one, other, *difference))
    found.sort(key=lambda item: (
        {(item[0].run_id, item[0].setting_key), (item[1].run_id, item[1].setting_key)} != compared,
        not item[0].boards <= set(sides), item[2],
    ))
    # A run that is in both stores (a file on each side) counts once.
    once: dict[tuple[str, ...], tuple[Cell, Cell, str, str, str]] = {}
    for item in found:
        once.setdefault(tuple(text for cell in item[:2] for text in (cell.run_id, cell.setting_key)), item)
    kept = list(once.values())[:MOST_ABLATIONS]
    samples = wall_ms_by_process({id(cell): cell for item in kept for cell in item[:2]}.values())
    return [_ablation(*item, samples, sides, compared) for item in kept]


def _about(one: Cell, other: Cell, pair: Compared) -> bool:
    """Whether an ablation has a setting of this gap on one of its ends."""
    return bool({one.setting_key, other.setting_key} & {pair.baseline.setting_key, pair.target.setting_key})


def _one_software(one: Cell, other: Cell) -> bool:
    return all(json_value(one.first[name]) == json_value(other.first[name]) for name in _SAME_SOFTWARE)


def _boards(store: Store, like: Cell) -> Iterable[list[Cell]]:
    """The newest cells of this work by board."""
    from core.store import queries

    everything = queries.cells(store)
    same = everything[
        (everything["work_key"] == like.work_key) & (everything["method"] == like.method)
        & (everything["status"] == "ok") & everything["origin"].isin(("measured", "imported"))
    ]
    for _, lines in same.groupby("uuid_hash"):
        lines = newest_cells(lines)
        yield cells_of(replace_lines(like.side, lines, store))


def replace_lines(like: Selected, lines: pd.DataFrame, store: Store) -> Selected:
    """A side of other cells, in their own store."""
    return replace(like, lines=lines, failed=lines.iloc[0:0], store=store)


def _ablation(
    one: Cell, other: Cell, setting: str, left: str, right: str, samples: Mapping[int, list[Any]],
    sides: Mapping[str, str], compared: set[tuple[str, str]],
) -> Ablation:
    ratio = ratio_interval(samples[id(one)], samples[id(other)])
    slower_first = ratio.value >= 1 if not setting.startswith("handicap") else right == "none" or left != "none"
    if not slower_first:
        one, other, left, right = other, one, right, left
        ratio = ratio_interval(samples[id(one)], samples[id(other)])
    board = next(iter(one.boards))
    return Ablation(
        setting=setting, without=right, with_=left, ratio=ratio.value, low=ratio.low, high=ratio.high, board=board,
        gpu=str(one.first["gpu_label"]), on_side=sides.get(board), runs=(one.run_id, other.run_id),
        is_this_pair={(one.run_id, one.setting_key), (other.run_id, other.setting_key)} == compared,
        outputs=_outputs(one, other, (left, right)),
    )


def _outputs(one: Cell, other: Cell, names: tuple[str, str]) -> str:
    """How far the outputs lie from those of eager fp32, of each cell that is not eager fp32 itself.

    `names`: what the two cells have for the setting that differs.
    """
    found = [(name, drift) for cell, name in zip((one, other), names, strict=True)
             if not _is_the_reference(cell) and (drift := _drift_in_words(cell.first["drift"]))]
    if not found:
        return "outputs not compared"
    references = sum(_is_the_reference(cell) for cell in (one, other))
    told = found[0][1] if references else "; ".join(f"{name}: {drift}" for name, drift in found)
    return f"outputs against eager fp32: {told}"


def _is_the_reference(cell: Cell) -> bool:
    """Whether a cell ran as the reference of every drift does: eager fp32 with nothing changed."""
    setting = setting_dict(cell.first)
    plain = dataclasses.asdict(SettingKey(precision="fp32"))
    return all(value == plain[name] for name, value in setting.items() if name != "handicap")


def _drift_in_words(text: Any) -> str | None:
    """The recorded drift (a JSON object of core.measure.agreement) in a phrase; None where it is not known."""
    drift = json.loads(text) if json_value(text) else {}
    if "median_px" not in drift:
        return None
    pixels = [
        f"{name} {'not finite' if drift.get(key) is None else f'{units.significant(drift[key])} px'}"
        for name, key in (("median", "median_px"), ("p95", "p95_px"))
    ]
    agreement = drift.get("visibility_agreement")
    return ", ".join(pixels) + ("" if agreement is None else f", visibility agrees for {units.percent(agreement)}")


# --- norms of one's own ----------------------------------------------------------------------------------------------

MOST_WORKS = 6


def own_norm(pair: Compared) -> list[Norm]:
    """Norms of this pair of cards from the operation tables in the store, in the precision of the pair.

    Works that both cards measured with operation tables in one setting, the newest run of each; every operation counts
    once per work. Empty for one card against itself and where nothing is there.
    """
    from core.store import queries

    keys = [json_value(cell.first["gpu_key"]) for cell in (pair.baseline, pair.target)]
    precisions = {cell.first["precision"] for cell in (pair.baseline, pair.target)}
    if None in keys or keys[0] == keys[1] or len(precisions) != 1:
        return []
    tables = []
    for cell, key in zip((pair.baseline, pair.target), keys, strict=True):
        lines = queries.cells(cell.side.store, gpu_key=key)
        lines = lines[lines["has_ops"] & (lines["status"] == "ok") & (lines["precision"] == next(iter(precisions)))]
        tables.append(newest_cells(lines).drop_duplicates(["work_key", "setting_key"]))
    both = tables[0].merge(tables[1], on=["work_key", "setting_key"], suffixes=("_baseline", "_target"))
    found, software = [], set()
    for row in json_value(records(both.head(MOST_WORKS))):
        left, right = (
            queries.ops(cell.side.store, row[f"run_id_{name}"], int(row[f"seq_{name}"]))
            for cell, name in ((pair.baseline, "baseline"), (pair.target, "target"))
        )
        found.append(op_diff(left, right)[["op_class", "ratio"]].dropna(subset=["ratio"]))
        software.add(f"torch {row['torch_baseline']} against {row['torch_target']}")
    if not found:
        return []
    works = "one work" if len(found) == 1 else f"{len(found)} works"
    return own_norms(pd.concat(found), f"operations measured here, {works}, {', '.join(sorted(software))}")


# --- single operations -----------------------------------------------------------------------------------------------


def trials(pair: Compared, ops: Sequence[pd.DataFrame | None]) -> list[Trial]:
    """Operations that the microscope tried, joined with the operation tables of both sides.

    Those of a board of this gap, and those of other boards where this gap ran the same operation.
    """
    from core.store import queries

    found: list[Trial] = []
    for cell, name, table in ((pair.baseline, "baseline", ops[0]), (pair.target, "target", ops[1])):
        runs = queries.runs(cell.side.store)
        by_key = {} if table is None else {_key_of(row): row for row in json_value(records(table))}
        for run in records(runs[runs["method"] == cell.method]):
            on_board = run["uuid_hash"] in cell.boards
            for row in json_value(records(queries.op_trials(cell.side.store, run["run_id"]))):
                match = _by_the_same_kernels(by_key.get(_key_of(row)), row)
                if on_board or match is not None:
                    found.append(_trial(row, name, run, on_board, match))
    seen: dict[tuple[Any, ...], Trial] = {}
    for trial in found:  # one board on both sides: the side whose table holds the operation keeps it
        key = trial.op, trial.stage, trial.shapes, trial.change, trial.before_ms, trial.after_ms
        if key not in seen or _nearness(trial) > _nearness(seen[key]):
            seen[key] = trial
    return sorted(seen.values(), key=lambda trial: -trial.saved_ms)


def _nearness(trial: Trial) -> tuple[bool, bool]:
    return trial.on_side is not None, trial.on_board


def _trial(
    row: Mapping[str, Any], side_name: str, run: Mapping[str, Any], on_board: bool, match: Mapping[str, Any] | None
) -> Trial:
    calls = int(match["calls"]) if match is not None and match["calls"] else int(row["calls"] or 1)
    before, after = row["before_ms"], row["after_ms"]
    factor = ratio_interval([before], [after])
    return Trial(
        op=row["op"], stage=row["stage"], change=row["change"], before_ms=median(before), after_ms=median(after),
        calls=calls, kernels_before=tuple(row["kernels_before"] or ()), kernels_after=tuple(row["kernels_after"] or ()),
        on_side=side_name if match is not None else None, gpu=str(run["gpu_label"]), reproduced=row["reproduced"],
        max_abs_diff=row["max_abs_diff"], shapes=key_text(row["shapes"]), agrees=row["agrees"], low=factor.low,
        high=factor.high, n=min(len(before), len(after)),
        device_ms=None if match is None else match["device_ms"], on_board=on_board,
    )


def _key_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key_text(row.get(name)) for name in KEY)


def _by_the_same_kernels(row: Mapping[str, Any] | None, trial: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The row of an operation table that a trial took out, unless other kernels ran there."""
    if row is None:
        return None
    ran, tried = set(row["kernels"] or ()), set(trial["kernels_before"] or ())
    return row if not ran or not tried or ran & tried else None
