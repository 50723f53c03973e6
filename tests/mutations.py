"""Run files made wrong in many ways, for the fuzz test and benchmarks/fuzz.py; and what no row may look like."""
from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any

from builders import cell, encode_run, op, records_of_run

from core.records import Ceiling, Note, OpTrial
from core.store import Store

_TRIAL = OpTrial(op(), "contiguous input", (3.0, 4.0), (1.0, 1.5), reproduced=True)
SEEDS = (
    encode_run("20261130-100000-00000001", records_of_run(
        "t4", [cell(ops=(op(), op("aten::bmm", "correlation", 2.5))), cell(status="oom", precision="fp16")],
        ceilings=[Ceiling("copy", 240.5, "GB/s", samples=(240.0, 241.0))],
        extra_records=[_TRIAL, Note("warning", "clock", data={"mhz": 300})],
    )),
    encode_run("20261130-100000-00000002", records_of_run("cpu", [cell(wall_ms=[1.0] * 9, cuda=False)], label="a")),
    encode_run("20261130-100000-00000003", records_of_run("h200-sxm-141gb", [cell(0.1), cell(0.2, process=1)])),
)

_TOKENS = (
    b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"1e-320", b"1e18", b"9" * 30, b"9" * 5000, b"null", b"true", b'""',
    b"{}", b"[]", b'"\\ud800"', b'"' + b"x" * 5000 + b'"', b"[" * 2000, b'{"a":' * 2000, b"\xff\xfe", b"\x00" * 64,
    b"\r\n", b"\n", b"\xef\xbb\xbf", b'"../../x"', b"<script>", b"\xe2\x80\xa8",
)
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 0.5, 1e300, -1e300, 5e-324, 2**53, 2**63, 2**63 - 1, -(2**70), "", " ", "x", "\x00", "é" * 40,
    "2026-13-40T99:99:99Z", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", [], {}, [[]], [None], [1, "a"], [1e308] * 3,
    [0.0] * 3, {"a": {"b": {"c": 1}}}, "measured", "ok", "cuda", "3.0", [1.0] * 5000, ["k"] * 50,
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutated(dice: random.Random) -> bytes:
    """One of `SEEDS` after one to four changes, sometimes packed, and then sometimes damaged again."""
    data = dice.choice(SEEDS)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 4))):
        data = dice.choice(_CHANGES)(data, dice)
    if dice.random() < 0.2:
        data = gzip.compress(data, 1, mtime=0)
        if dice.random() < 0.6:
            data = dice.choice((_flip, _cut, _insert, _double))(data, dice)
    return data


def _at(data: bytes, dice: random.Random) -> int:
    return dice.randint(0, len(data))


def _flip(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        if changed:
            changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: _at(data, dice)]


def _insert(data: bytes, dice: random.Random) -> bytes:
    at = _at(data, dice)
    return data[:at] + dice.choice(_TOKENS) + data[at:]


def _double(data: bytes, dice: random.Random) -> bytes:
    first, last = sorted((_at(data, dice), _at(data, dice)))
    return data[:last] + data[first:]


def _remove(data: bytes, dice: random.Random) -> bytes:
    first, last = sorted((_at(data, dice), _at(data, dice)))
    return data[:first] + data[last:]


def _splice(data: bytes, dice: random.Random) -> bytes:
    other = dice.choice(SEEDS)
    return data[: _at(data, dice)] + other[_at(other, dice):]


def _lines(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    act = dice.choice(("shuffle", "drop", "repeat", "foreign"))
    if act == "shuffle":
        dice.shuffle(lines)
    elif act == "drop":
        del lines[dice.randrange(len(lines))]
    elif act == "repeat":
        lines.insert(dice.randrange(len(lines)), dice.choice(lines))
    else:
        lines.insert(dice.randrange(len(lines)), dice.choice(dice.choice(SEEDS).splitlines(keepends=True)))
    return b"".join(lines)


def _number(data: bytes, dice: random.Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    match = dice.choice(found)
    return data[: match.start()] + dice.choice(_TOKENS[:9]) + data[match.end():]


def _value(data: bytes, dice: random.Random) -> bytes:
    """One value of one line's JSON replaced, removed, or given a key that is already there."""
    lines = data.splitlines(keepends=True)
    try:
        at = dice.randrange(len(lines))
        body = json.loads(lines[at])
    except (ValueError, RecursionError):
        return data
    place: Any = body
    while isinstance(place, (dict, list)) and place:
        key = dice.choice(list(place)) if isinstance(place, dict) else dice.randrange(len(place))
        if not isinstance(place[key], (dict, list)) or not place[key] or dice.random() < 0.4:
            if dice.random() < 0.2:
                del place[key]
            elif dice.random() < 0.1 and isinstance(place, dict):
                place[dice.choice(("extra", "kind", "seq", "<b>", ""))] = place[key]
            else:
                place[key] = dice.choice(_VALUES)
            break
        place = place[key]
    lines[at] = json.dumps(body).encode() + b"\n"
    return b"".join(lines)


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip, _cut, _insert, _double, _remove, _splice, _lines, _number, _number, _value, _value, _value, _value,
)


def change(data: bytes, dice: random.Random) -> bytes:
    """One change of any kind."""
    return dice.choice(_CHANGES)(data, dice)


# A line is stored with all that it holds, or not at all.
_PARTIAL = {
    "cells without all their samples": "select count(*) from cell c where n <> (select count(*) from sample s "
                                       "where s.run_id = c.run_id and s.seq = c.seq)",
    "cells without all their ops": "select count(*) from cell c where coalesce(n_ops, 0) <> (select count(*) from op o "
                                   "where o.run_id = c.run_id and o.seq = c.seq)",
    "lines without their rows": "select count(*) from line l where kind in ('run', 'cell', 'ceiling', 'note', 'end', "
                                "'op_trial') and not exists (select 1 from (select run_id, seq from run union all "
                                "select run_id, seq from cell union all select run_id, seq from ceiling union all "
                                "select run_id, seq from note union all select run_id, seq from run_end union all "
                                "select run_id, seq from op_trial) r where r.run_id = l.run_id and r.seq = l.seq)",
    "lines that count twice": "select count(*) - count(distinct (run_id, seq)) from line",
    "rows without their line": "select count(*) from (select run_id, seq from cell union select run_id, seq from run "
                               "union select run_id, seq from sample union select run_id, seq from stage union "
                               "select run_id, seq from op) r anti join line l on l.run_id = r.run_id "
                               "and l.seq = r.seq",
    "times that are none": "select count(*) from sample where not isfinite(wall_ms) or wall_ms <= 0",
}


def partial_rows(store: Store) -> dict[str, int]:
    """What is wrong with the stored rows, by kind; empty when every line is whole."""
    counts = {what: int(store.frame(sql).iloc[0, 0]) for what, sql in _PARTIAL.items()}
    return {what: count for what, count in counts.items() if count}
