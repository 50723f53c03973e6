"""Which cell of one side is the partner of which cell of the other.

Partners did the same work (equal work key) by the same measuring method. Their settings are equal too, except for
those that the two selections fix to different values (`h200,precision=fp32` against `h200,precision=tf32`).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from core.answers.json_values import json_value, records
from core.answers.selection import SETTING_FIELDS, WORK_FIELDS, Selection, Side
from core.trackers.registry import FOUNDING_SIZE

"""frames, height, width, points of the founding case: the work that explain takes where it is common."""


@dataclass(frozen=True, eq=False)
class Cell:
    """All lines of one workload in one run: one line (columns of `queries.cells`) per worker process."""

    side: Side
    lines: tuple[Mapping[str, Any], ...]

    @property
    def first(self) -> Mapping[str, Any]:
        return self.lines[0]

    @property
    def run_id(self) -> str:
        return str(self.first["run_id"])

    @property
    def work_key(self) -> str:
        return str(self.first["work_key"])

    @property
    def setting_key(self) -> str:
        return str(self.first["setting_key"])

    @property
    def method(self) -> int:
        return int(self.first["method"])

    @property
    def seqs(self) -> list[int]:
        return [int(line["seq"]) for line in self.lines]

    @property
    def boards(self) -> set[str]:
        """The boards that measured it, by the hash of their UUID."""
        return {str(line["uuid_hash"]) for line in self.lines}

    def middle(self, column: str) -> float | None:
        """Median over worker processes of a number; None where none of them has one."""
        known = [float(line[column]) for line in self.lines if json_value(line[column]) is not None]
        return median(known) if known else None

    @property
    def size(self) -> tuple[int, int, int, int, int]:
        """frames, height, width, points, batch; points 0 where the tracker takes none."""
        row = self.first
        return tuple(_whole(row[name]) or 0 for name in ("frames", "height", "width", "points", "batch"))  # type: ignore[return-value]


@dataclass(frozen=True)
class Matching:
    pairs: tuple[tuple[Cell, Cell], ...]
    only_baseline: tuple[Cell, ...]
    only_target: tuple[Cell, ...]
    other_method: tuple[tuple[Cell, Cell], ...]  # same work and setting, other version of the measuring method
    differing_settings: tuple[str, ...]  # settings that the selections fix to different values


def cells_of(side: Side) -> list[Cell]:
    """The chosen cells of one side, in a stable order."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for line in records(side.lines):
        groups.setdefault((line["work_key"], line["setting_key"], line["method"], line["run_id"]), []).append(line)
    return [Cell(side, tuple(groups[key])) for key in sorted(groups)]


def on_one_board(baseline: Side, target: Side) -> tuple[Side, Side]:
    """Both sides, their cells on one board wherever a board measured both: two settings of a card are compared there.

    Only where the newest cells lie on different boards; then the board whose older one of the two is newest is taken.
    """
    sides = baseline, target
    if any(side.older is None for side in sides) or baseline.store is not target.store:
        return sides
    boards = set(baseline.older["uuid_hash"]) & set(target.older["uuid_hash"])  # type: ignore[index]
    if not boards:
        return sides
    free = _differing(baseline.selection, target.selection)
    joined = [name for name in SETTING_FIELDS if name not in free]
    chosen = [{_key(cell, joined): cell for cell in sorted(cells_of(side), key=_age)} for side in sides]
    apart = [key for key in chosen[0] if key in chosen[1] and not chosen[0][key].boards & chosen[1][key].boards]
    if not apart:
        return sides
    every = [
        [cell for cell in cells_of(replace(side, lines=side.older[side.older["uuid_hash"].isin(boards)]))  # type: ignore[index]
         if _key(cell, joined) in apart]
        for side in sides
    ]
    moved: tuple[dict[str, Cell], dict[str, Cell]] = ({}, {})
    for key in apart:
        own, other = ([cell for cell in cells if _key(cell, joined) == key] for cells in every)
        pairs = [(a, b) for a in own for b in other if a.boards & b.boards and a.method == b.method]
        if pairs:
            best = max(pairs, key=lambda pair: (min(map(_age, pair)), max(map(_age, pair))))
            for place, cell in enumerate(best):
                moved[place][chosen[place][key].run_id + cell.work_key + cell.setting_key] = cell
    left, right = (_moved(side, cells) for side, cells in zip(sides, moved, strict=True))
    return left, right


def _moved(side: Side, cells: Mapping[str, Cell]) -> Side:
    """The side with some cells taken from other runs. `cells`: by the run, work and setting that they stand for."""
    if not cells:
        return side
    names = side.lines["run_id"] + side.lines["work_key"] + side.lines["setting_key"]
    rows = [line for cell in cells.values() for line in cell.lines]
    taken = pd.DataFrame(rows, columns=side.lines.columns).astype(side.lines.dtypes.to_dict())
    return replace(side, lines=pd.concat([side.lines[~names.isin(list(cells))], taken], ignore_index=True))


def match(baseline: Side, target: Side) -> Matching:
    """Partners of two sides. A cell enters one pair at most; several candidates: the newest method, then the newest."""
    free = _differing(baseline.selection, target.selection)
    joined = [name for name in SETTING_FIELDS if name not in free]
    left, right = cells_of(baseline), cells_of(target)
    by_key: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in right:
        by_key.setdefault(_key(cell, joined), []).append(cell)
    pairs: list[tuple[Cell, Cell]] = []
    other_method: list[tuple[Cell, Cell]] = []
    used: set[int] = set()
    done: set[tuple[Any, ...]] = set()
    for cell in sorted(left, key=_age, reverse=True):
        key = _key(cell, joined)
        candidates = sorted(by_key.get(key, []), key=_age, reverse=True)
        same = next((other for other in candidates if other.method == cell.method), None)
        if same is not None and key not in done:
            pairs.append((cell, same))
            done.add(key)
        elif candidates and key not in done:
            other_method.append((cell, candidates[0]))
        if candidates:
            used.update({id(cell), *map(id, candidates)})
    other_method = [pair for pair in other_method if _key(pair[0], joined) not in done]
    pairs.sort(key=lambda pair: (pair[0].work_key, pair[0].setting_key))
    return Matching(
        tuple(pairs), tuple(cell for cell in left if id(cell) not in used),
        tuple(cell for cell in right if id(cell) not in used), tuple(other_method), free,
    )


def _differing(baseline: Selection, target: Selection) -> tuple[str, ...]:
    """Settings that both selections fix, to different values."""
    free = []
    for name in SETTING_FIELDS:
        fixed_left, left = baseline.fixed_setting(name)
        fixed_right, right = target.fixed_setting(name)
        if fixed_left and fixed_right and left != right:
            free.append(name)
    return tuple(free)


def _key(cell: Cell, settings: Iterable[str]) -> tuple[Any, ...]:
    row = cell.first
    return (cell.work_key, *(_comparable(row[name]) for name in settings))


def _age(cell: Cell) -> tuple[int, str, str]:
    """Sorts older to newer: method first, then the time of the cell."""
    row = cell.first
    return cell.method, str(row["at"] or row["started_at"] or ""), cell.run_id


def main_pair(pairs: Sequence[tuple[Cell, Cell]]) -> tuple[Cell, Cell]:
    """The pair that explain speaks about: the founding size if common, else the largest work; `base` before `small`,
    FP32 before other precisions. `pairs` is not empty."""
    def rank(pair: tuple[Cell, Cell]) -> tuple[Any, ...]:
        row, size = pair[0].first, pair[0].size
        founding = size[:4] == FOUNDING_SIZE and size[4] == 1
        volume = size[0] * size[1] * size[2] * max(size[3], 1) * size[4]
        return founding, volume, row["variant"] == "base", row["precision"] == "fp32", pair[0].work_key

    return max(pairs, key=rank)


def wall_ms_by_process(cells: Iterable[Cell]) -> dict[int, list[np.ndarray]]:
    """`id(cell)` -> wall_ms samples, one array per worker process. One query per run and side."""
    from core.store import queries

    wanted: dict[tuple[int, str], list[Cell]] = {}
    for cell in cells:
        wanted.setdefault((id(cell.side.store), cell.run_id), []).append(cell)
    found: dict[int, list[np.ndarray]] = {}
    for (_, run_id), group in wanted.items():
        seqs = sorted({seq for cell in group for seq in cell.seqs})
        samples = queries.samples(group[0].side.store, run_id, seqs)  # in order of seq
        times_ms, places = samples["wall_ms"].to_numpy(dtype=float), samples["seq"].to_numpy(dtype=np.int64)
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        by_seq = {
            int(places[start]): part for start, part in zip(starts, np.split(times_ms, starts[1:]), strict=True)
        }
        for cell in group:
            found[id(cell)] = [by_seq[seq] for seq in cell.seqs]
    return found


def work_dict(row: Mapping[str, Any]) -> dict[str, Any]:
    """The work key of a line as its named parts."""
    return {name: _comparable(row[name]) for name in WORK_FIELDS}


def setting_dict(row: Mapping[str, Any]) -> dict[str, Any]:
    """The setting key of a line as its named parts."""
    return {name: _comparable(row[name]) for name in SETTING_FIELDS}


def work_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """What keeps two lines from being the same work, in words: `frames 47 against 96`."""
    a, b = work_dict(left), work_dict(right)
    return [f"{name} {_shown(a[name])} against {_shown(b[name])}" for name in WORK_FIELDS if a[name] != b[name]]


def work_in_words(row: Mapping[str, Any]) -> str:
    """`local4d:base, 47 frames of 256x256, 256 points` (batch only where it is not 1)."""
    work = work_dict(row)
    variant = f":{work['variant']}" if work["variant"] else ""
    parts = [f"{work['tracker']}{variant}"]
    if work["frames"] is not None:  # null in a task of somebody else's file
        parts.append(f"{work['frames']} frames of {work['height']}x{work['width']}")
    elif work["height"] is not None:
        parts.append(f"{work['height']}x{work['width']}")
    if work["points"] is not None:
        parts.append(f"{work['points']} point{'' if work['points'] == 1 else 's'}")
    if work["batch"] not in (None, 1):
        parts.append(f"batch {work['batch']}")
    return ", ".join(parts)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _comparable(value: Any) -> Any:
    """One cell of a table with missing as None and whole numbers as int (a column with gaps is float)."""
    value = json_value(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole(value: Any) -> int | None:
    found = _comparable(value)
    return int(found) if isinstance(found, (int, float)) else None
