"""Op tables of foreign profiles."""
from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any

from core.records import REST_OP, Op

MAX_OPS = 2_000
_NAME_CHARACTERS = 400


def short_name(name: str) -> str:
    """A kernel's name, which templates make several kB long, cut; two names that differ stay two."""
    if len(name) <= _NAME_CHARACTERS:
        return name
    return f"{name[:_NAME_CHARACTERS]}... {hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def as_table(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Rows of one key added up, the longest first; what is beyond `MAX_OPS` summed in one row."""
    rows: dict[str, Op] = {}
    for op in ops:
        other = rows.get(op.key())
        rows[op.key()] = op if other is None else _sum(other, op)
    ordered = sorted(rows.values(), key=lambda op: (-(op.device_ms or 0.0), op.key()))
    kept, rest = ordered[:MAX_OPS], ordered[MAX_OPS:]
    if rest:
        total = rest[0]
        for op in rest[1:]:
            total = _sum(total, op)
        kept.append(Op(op=REST_OP, stage=rest[0].stage, calls=total.calls, device_ms=total.device_ms,
                       launches=total.launches))
    return tuple(kept)


def _sum(a: Op, b: Op) -> Op:
    def added(name: str) -> Any:
        values = [value for value in (getattr(a, name), getattr(b, name)) if value is not None]
        return sum(values) if values else None

    return dataclasses.replace(
        a, calls=a.calls + b.calls, device_ms=added("device_ms"), launches=added("launches"),
        kernels=tuple(dict.fromkeys((*a.kernels, *b.kernels)))[:50],
    )
