"""Records to JSON and back, checked against the annotations in `model`.

An error names line, field, what was found and what was expected. Rules that hold for every record:
numbers are finite; a field whose name ends in a unit is not negative; text stays under `MAX_TEXT` characters.
"""
from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Union

from core.errors import UserError
from core.records import model

MAX_TEXT = 4_000
MAX_DEPTH = 8
LEAST_TIME_MS = 1e-9
"""A picosecond: no clock tells less, and ratios of what is shorter leave the range of numbers."""

_UNIT_SUFFIXES = ("_ms", "_s", "_bytes", "_mhz", "_w", "_j", "_gb_s", "_tflops")
_COUNTS = {
    "flops", "other_flops", "bytes", "launches", "calls", "process", "frames", "height", "width", "points", "batch",
    "iterations", "query_chunk", "window", "items_per_run", "sm_count", "cores", "alloc_retries", "value", "samples",
    "pcie_generation", "pcie_width", "memory_bus_bits",
}
_AT_LEAST_ONE = {"frames", "height", "width", "batch", "items_per_run", "sm_count"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)
_STRICTLY_POSITIVE = {"wall_ms", "before_ms", "after_ms"}
_CHOICES = {
    ("Cell", "status"): model.STATUSES, ("RunHeader", "origin"): model.ORIGINS, ("End", "state"): model.END_STATES,
}
_REQUIRED_TEXT = {"tracker", "implementation", "revision", "precision", "execution", "name", "uuid_hash", "op", "stage"}


class RecordError(UserError):
    """One thing wrong with one line: `line` (1-based or None), `field`, `found`, `expected`."""

    def __init__(self, field: str, found: str, expected: str, line: int | None = None) -> None:
        self.line, self.field, self.raw_found = line, field, found
        where = f"line {line}, field {field}" if line is not None else f"field {field}"
        super().__init__(f"{where}: found {found}", expected)

    def at_line(self, line: int) -> RecordError:
        return RecordError(self.field, self.raw_found, self.expected, line)


@dataclass(frozen=True)
class Line:
    """One line of a run file: envelope and record."""

    run_id: str
    seq: int
    record: Any
    schema: str = model.SCHEMA
    method: int = model.METHOD

    @property
    def kind(self) -> str:
        if isinstance(self.record, model.Unknown):
            return self.record.kind
        return next(kind for kind, cls in model.LINE_KINDS.items() if cls is type(self.record))


# --- out -------------------------------------------------------------------------------------------------------------


def to_json(record: Any) -> Any:
    """A record as JSON values: `extra` fields flattened beside the known ones."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        known = {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record) if f.name != "extra"}
        return {**{key: to_json(value) for key, value in record.extra.items()}, **known}  # type: ignore[attr-defined]
    if isinstance(record, Mapping):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [to_json(value) for value in record]
    return record


def line_to_json(line: Line) -> dict[str, Any]:
    envelope = {
        "kind": line.kind, "schema": line.schema, "method": line.method, "run_id": line.run_id, "seq": line.seq,
    }
    body = to_json(line.record)
    body.pop("kind", None)
    return {**envelope, **body}


# --- in --------------------------------------------------------------------------------------------------------------


def line_from_json(data: Any, line: int | None = None) -> Line:
    """A parsed JSON value as a checked `Line`.

    Raises `RecordError` (with `line`) when a field is missing, of another type, or out of range.
    """
    try:
        return _line(data)
    except RecordError as error:
        raise error.at_line(line) if line is not None else error from None


def _line(data: Any) -> Line:
    if not isinstance(data, dict):
        raise RecordError("(line)", _show(data), "a JSON object")
    kind = _typed(data.get("kind"), str, "kind")
    schema = _typed(data.get("schema"), str, "schema")
    major = schema.split(".")[0]
    if not (major.isascii() and major.isdecimal()) or int(major) > int(model.SCHEMA.split(".")[0]):
        raise RecordError("schema", _show(schema), f"{model.SCHEMA} or older (update Gapscope to read this file)")
    method = _typed(data.get("method"), int, "method")
    run_id = _typed(data.get("run_id"), str, "run_id")
    if not valid_run_id(run_id):
        raise RecordError("run_id", _show(run_id), "6 to 64 of a-z, 0-9 and '-', starting with a letter or digit")
    seq = _typed(data.get("seq"), int, "seq")
    if not 0 <= seq < 2**53:
        raise RecordError("seq", _show(seq), "an integer from 0 to 2^53")
    body = {key: value for key, value in data.items() if key not in ("kind", "schema", "method", "run_id", "seq")}
    cls = model.LINE_KINDS.get(kind)
    record = from_json(cls, body, kind) if cls else model.Unknown(kind, _plain(body, kind))
    return Line(run_id=run_id, seq=seq, record=record, schema=schema, method=method)


def valid_run_id(run_id: str) -> bool:
    """True for an id that is also safe as a folder name."""
    return (
        6 <= len(run_id) <= 64 and run_id[0].isalnum()
        and all(char in "abcdefghijklmnopqrstuvwxyz0123456789-" for char in run_id)
    )


def from_json(cls: type, data: Any, where: str) -> Any:
    """JSON object `data` as a record of class `cls`; `where` names it in errors. Raises `RecordError`."""
    if not isinstance(data, dict):
        raise RecordError(where, _show(data), "a JSON object")
    values: dict[str, Any] = {}
    known = _fields(cls)
    for name, (convert, needed) in known.items():
        if name in data:
            values[name] = convert(data[name], f"{where}.{name}")
        elif needed is not None:
            raise RecordError(f"{where}.{name}", "nothing", needed)
    if len(values) == len(data):
        values["extra"] = {}
    else:
        values["extra"] = {key: _plain(value, f"{where}.{key}") for key, value in data.items() if key not in known}
    record = cls(**values)
    _check_whole(record, where)
    return record


_Convert = Callable[[Any, str], Any]
"""(JSON value, where it stands) -> field value; raises `RecordError`."""


@functools.cache
def _fields(cls: type) -> dict[str, tuple[_Convert, str | None]]:
    """Field -> its converter, made once, and what to ask for when a required field is missing (else None)."""
    hints = typing.get_type_hints(cls)
    return {
        f.name: (
            _converter(hints[f.name], cls.__name__, f.name),
            _describe(hints[f.name])
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING else None,
        )
        for f in dataclasses.fields(cls)
        if f.name != "extra"
    }


def _optional(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType) and type(None) in typing.get_args(annotation)


def _converter(annotation: Any, owner: str, name: str) -> _Convert:
    """How a value of this annotation is checked; annotations are looked at here, once, and not for each value."""
    if _optional(annotation):
        inner = _converter(
            next(arg for arg in typing.get_args(annotation) if arg is not type(None)), owner, name
        )
        return lambda value, where: None if value is None else inner(value, where)
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return _list_converter(typing.get_args(annotation)[0], owner, name)
    if origin is typing.Literal:
        choices = typing.get_args(annotation)

        def chosen(value: Any, where: str) -> Any:
            if value not in choices:
                raise RecordError(where, _show(value), " or ".join(choices))
            return value

        return chosen
    if dataclasses.is_dataclass(annotation):
        return lambda value, where: from_json(annotation, value, where)  # type: ignore[arg-type]
    if origin is not None and issubclass(origin, Mapping):

        def free(value: Any, where: str) -> Any:
            if not isinstance(value, dict):
                raise RecordError(where, _show(value), "a JSON object")
            return _plain(value, where)

        return free
    return lambda value, where: _scalar(annotation, value, where, owner, name)


def _list_converter(annotation: Any, owner: str, name: str) -> _Convert:
    item = _converter(annotation, owner, name)
    nullable = _optional(annotation)
    number = typing.get_args(annotation)[0] if nullable else annotation
    allowed = {number, type(None)} if nullable else {number}
    least = _least(name)

    def convert(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise RecordError(where, _show(value), "a list")
        if number in (int, float) and _in_range(value, allowed, least):
            return tuple(value)
        return tuple([item(part, f"{where}[{i}]") for i, part in enumerate(value)])

    return convert


def _in_range(values: list[Any], allowed: set[type], least: float) -> bool:
    """True when all values are of the allowed types, finite and not below `least`: checked without a call for each.

    False decides nothing: the values are then looked at one by one, which names the bad one.
    """
    kinds = set(map(type, values))
    if not kinds <= allowed:
        return False
    numbers = [value for value in values if value is not None] if type(None) in kinds else values
    # The sum is not finite when any of them is not, wherever min and max put a NaN.
    return not numbers or (
        min(numbers) >= max(least, -(2**63) + 1) and max(numbers) < 2**63 and math.isfinite(sum(numbers))
    )


def _least(name: str) -> float:
    """The smallest value that a number of this name may have."""
    if name in _STRICTLY_POSITIVE:
        return LEAST_TIME_MS
    if name in _AT_LEAST_ONE:
        return 1
    return 0 if name in _COUNTS or name.endswith(_UNIT_SUFFIXES) else -math.inf


def _scalar(annotation: Any, value: Any, where: str, owner: str, name: str) -> Any:
    value = _typed(value, annotation, where)
    if annotation is str:
        choices = _CHOICES.get((owner, name))
        if choices and value not in choices:
            raise RecordError(where, _show(value), "one of " + ", ".join(choices))
        if name in _REQUIRED_TEXT and not value.strip():
            raise RecordError(where, "empty text", "a name")
    elif annotation in (int, float) and not isinstance(value, bool):
        if name in _STRICTLY_POSITIVE:
            if value < LEAST_TIME_MS:
                raise RecordError(where, _show(value), "a number above 0")
        elif name in _AT_LEAST_ONE:
            if value < 1:
                raise RecordError(where, _show(value), "an integer from 1")
        elif value < 0 and (name in _COUNTS or name.endswith(_UNIT_SUFFIXES)):
            raise RecordError(where, _show(value), "a number from 0")
    return value


def _typed(value: Any, expected: Any, where: str) -> Any:
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if expected is bool and isinstance(value, bool):
        return value
    if isinstance(value, bool) or not isinstance(value, expected):
        raise RecordError(where, _show(value), _describe(expected))
    if isinstance(value, float) and not math.isfinite(value):
        raise RecordError(where, _show(value), "a finite number")
    if isinstance(value, float) and abs(value) >= 2**63:
        raise RecordError(where, _show(value), "a number below 2^63")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise RecordError(where, "an integer beyond 64 bits", "an integer below 2^63")
    if isinstance(value, str):
        _check_text(value, where)
    return value


def _check_text(value: str, where: str) -> None:
    if len(value) > MAX_TEXT:
        raise RecordError(where, f"text of {len(value)} characters", f"at most {MAX_TEXT}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RecordError(where, "text that is not valid Unicode", "UTF-8 text") from None


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """Free JSON kept as it is, bounded in depth, numbers finite."""
    if depth > MAX_DEPTH:
        raise RecordError(where, "nested too deeply", f"at most {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{where}.{key}"[:200], depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, where, depth + 1) for item in value]
    if value is None or isinstance(value, bool):
        return value
    return _typed(value, type(value) if isinstance(value, (int, float, str)) else str, where)


def _check_whole(record: Any, where: str) -> None:
    """Rules between fields of one record, and of one field of one kind of record."""
    if isinstance(record, model.RunHeader) and not _is_time(record.started_at):
        raise RecordError(f"{where}.started_at", _show(record.started_at), "a time in UTC such as 2026-11-30T10:00:00Z")
    if isinstance(record, model.WorkKey) and record.implementation not in model.SIZELESS:
        for name in ("frames", "height", "width"):
            if getattr(record, name) is None:
                raise RecordError(f"{where}.{name}", "null", "an integer from 1 (null only in a foreign task)")
    if isinstance(record, model.Cell):
        n = len(record.wall_ms)
        if record.status == "ok" and n == 0:
            raise RecordError(f"{where}.wall_ms", "no samples", "at least one sample in an ok cell")
        if record.status != "ok" and not record.reason:
            raise RecordError(f"{where}.reason", "nothing", f"a reason, since the status is {record.status}")
        if record.event_ms is not None:
            _same_length(len(record.event_ms), n, f"{where}.event_ms")
        if record.telemetry is not None:
            for f in dataclasses.fields(record.telemetry):
                column = getattr(record.telemetry, f.name)
                if f.name != "extra" and column is not None:
                    _same_length(len(column), n, f"{where}.telemetry.{f.name}")
        names = [stage.name for stage in record.stages]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise RecordError(f"{where}.stages", f"the stage {_show(twice)} twice", "each stage once")
        for i, stage in enumerate(record.stages):
            for name in ("wall_ms", "event_ms"):
                column = getattr(stage, name)
                if column is not None:
                    _same_length(len(column), n, f"{where}.stages[{i}].{name}")


def _is_time(text: str) -> bool:
    try:
        return bool(_TIME.fullmatch(text)) and datetime.fromisoformat(text[:19]).year >= 1
    except ValueError:
        return False


def _same_length(found: int, expected: int, where: str) -> None:
    if found != expected:
        raise RecordError(where, f"{found} values", f"{expected}, one per wall_ms sample")


def _describe(annotation: Any) -> str:
    names = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
    if annotation in names:
        return names[annotation]
    if typing.get_origin(annotation) is tuple:
        return "a list"
    if _optional(annotation):
        return f"{_describe(typing.get_args(annotation)[0])} or null"
    return "a JSON object"


def _show(value: Any) -> str:
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
