"""Bytes of strangers as text, tables and numbers, with the readings that go wrong silently made explicit.

UTF-8 with or without a BOM, UTF-16 with one (PowerShell 5.1 writes it); nothing is ever read as Latin-1. Separator and
decimal mark are found together; a comma that may mean either is asked for, not guessed.
"""
from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

MISSING = {"", "-", "--", "n/a", "[n/a]", "na", "nan", "none", "null", "[not supported]", "not supported", "err!",
           "[unknown error]", "[gpu is lost]", "inf", "-inf", "infinity", "[insufficient permissions]"}
"""Words that stand for a missing number, in lower case. Never 0."""

MS_PER_UNIT = {
    "ns": 1e-6, "nsec": 1e-6, "nanoseconds": 1e-6, "us": 1e-3, "µs": 1e-3, "μs": 1e-3, "usec": 1e-3,
    "microseconds": 1e-3, "ms": 1.0, "msec": 1.0, "millisecond": 1.0, "milliseconds": 1.0, "s": 1e3, "sec": 1e3,
    "secs": 1e3, "second": 1e3, "seconds": 1e3, "min": 6e4, "mins": 6e4, "minute": 6e4, "minutes": 6e4, "h": 3.6e6,
    "hours": 3.6e6,
}
TIME_UNITS = ("ns", "us", "ms", "s", "min")
RATE_UNIT = "items/s"
MAX_COLUMNS, MAX_COLUMN_NAME = 2_000, 500

_DELIMITERS = (",", ";", "\t", "|")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_HEADER_UNIT = re.compile(r"[\[(]\s*([^\[\]()]{1,12}?)\s*[\])]")


def decode(data: bytes) -> str:
    """Text of a file. Raises `RefusedError` for bytes that are none, naming the line."""
    from core.store.importers.model import RefusedError

    encoding = "utf-8-sig"
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RefusedError(f"bytes that are not {encoding.removesuffix('-sig').upper()} in line {line}", "UTF-8 text",
                           "save it as UTF-8") from None
    if "\x00" in text:
        raise RefusedError(f"a NUL character in line {text.count(chr(10), 0, text.index(chr(0))) + 1}", "UTF-8 text",
                           "save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True)
class Table:
    """A header and rows of text. `lines`: the line number of each row; `preamble`: lines before the header."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    delimiter: str
    preamble: tuple[str, ...] = ()

    def column(self, name: str) -> list[str]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


def read_table(text: str) -> Table | None:
    """The largest block of equally long rows under a header; None when there is no such block (`why_no_table`)."""
    found = _table(text)
    return found if isinstance(found, Table) else None


def why_no_table(text: str) -> str:
    """Why `read_table` finds none, in words; empty when it does."""
    found = _table(text)
    return found if isinstance(found, str) else ""


def _table(text: str) -> Table | str:
    lines = text.split("\n")
    head = [line for line in lines[:200] if line.strip() and not line.startswith("#")]
    best: tuple[int, str, int] | None = None
    for delimiter in _DELIMITERS:
        lengths = Counter(length for length in map(len, _rows(head, delimiter)) if length > 1)
        if lengths:
            length, count = max(lengths.items(), key=lambda item: (item[1], item[0]))
            if count > 1 and (best is None or (count, length) > (best[0], best[2])):
                best = count, delimiter, length
    if best is None:
        if any(len(line) > csv.field_size_limit() for line in head):
            return f"a line of more than {csv.field_size_limit()} characters"
        return "no two of its first lines have equally many fields"
    if best[2] > MAX_COLUMNS:
        return f"{best[2]} columns; at most {MAX_COLUMNS}"
    _, delimiter, length = best
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    preamble, columns, rows, numbers = list[str](), None, [], []
    try:
        for row in reader:
            if columns is None:
                if row and row[0].startswith("#"):
                    preamble.append(delimiter.join(row)[:200])
                elif len(row) == length and _is_header(row):
                    columns = tuple(_unique(row))
                elif any(cell.strip() for cell in row):
                    if len(row) == length:
                        return f"line {reader.line_num} holds numbers, and no line of words above says of what"
                    preamble.append(delimiter.join(row)[:200])
                continue
            if not any(cell.strip() for cell in row):
                continue
            if len(row) == length + 1 and not row[-1].strip():
                row = row[:-1]
            rows.append(tuple(cell.strip() for cell in row))
            numbers.append(reader.line_num)
    except csv.Error as error:
        return f"line {reader.line_num}: {error}"
    if columns is None or not rows:
        return "no rows under a line of words"
    longest = max(map(len, columns))
    if longest > MAX_COLUMN_NAME:
        return f"the name of a column has {longest} characters; at most {MAX_COLUMN_NAME}"
    return Table(columns, tuple(rows), tuple(numbers), delimiter, tuple(preamble))


def _rows(lines: Sequence[str], delimiter: str) -> Iterable[list[str]]:
    try:
        yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    except csv.Error:
        return


def _is_header(row: Sequence[str]) -> bool:
    """More than half of its cells are words."""
    return 2 * sum(bool(cell.strip()) and with_unit(cell)[0] is None for cell in row) > len(row)


def _unique(names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    made = []
    for place, name in enumerate(names, start=1):
        name = name.strip() or f"column {place}"
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return made


# --- numbers ---------------------------------------------------------------------------------------------------------


def number(text: str, decimal_comma: bool = False) -> float | None:
    """A finite number without unit, None for what is missing or none. Groups of thousands: two or more of them, or
    one with a decimal point behind; a lone `1,234` is read only by `decimal_comma` or by its neighbours (`mark_of`)."""
    text = text.strip()
    if decimal_comma:
        text = text.replace(".", "").replace(",", ".") if "," in text else text
    elif _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def with_unit(text: str, decimal_comma: bool = False) -> tuple[float | None, str | None]:
    """`12.23 W` as (12.23, "W"); a number alone has the unit None."""
    text = text.strip()
    found = re.fullmatch(r"([-+]?[\d.,]+(?:[eE][-+]?\d{1,4})?)\s*([^\d\s][^\d]{0,11})?", text)
    if found is None:
        return None, None
    return number(found[1], decimal_comma), found[2].strip() if found[2] else None


def mark_of(cells: Iterable[str], delimiter: str) -> str | None:
    """What a comma inside numbers means: "decimal", "thousands", or None when nothing tells."""
    decimal = thousands = lone = 0
    for cell in cells:
        found = re.match(r"[-+]?[\d.,]+", cell.strip())
        if found is None or "," not in found[0]:
            continue
        text = found[0].lstrip("-+")
        if re.fullmatch(r"\d+,\d+", text):
            if not re.fullmatch(r"[1-9]\d{0,2},\d{3}", text):
                decimal += 1
            else:
                lone += 1
        elif re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
            thousands += 1
        elif re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+", text):
            decimal += 1
    if decimal and not thousands:
        return "decimal"
    if thousands and not decimal:
        return "thousands"
    return None if lone or decimal else "thousands"


def is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING


def split_header(name: str) -> tuple[str, str | None]:
    """`power.draw [W]` as ("power.draw", "W"); `Time (ms)`, `wall_ms` and `cold_s` likewise."""
    found = _HEADER_UNIT.search(name)
    if found:
        return (name[:found.start()] + name[found.end():]).strip(), found[1]
    if name.strip().lower() in ("ns", "us", "ms", "fps", "seconds", "milliseconds"):
        return name.strip(), name.strip().lower()
    tail = re.fullmatch(r"(.*[A-Za-z0-9])[_ .-](ns|us|ms|s|sec|seconds|milliseconds|fps)", name.strip())
    return (tail[1], tail[2]) if tail else (name.strip(), None)


def time_unit(word: str | None) -> str | None:
    """A time unit in the spelling of `TIME_UNITS`, or `RATE_UNIT`; None for any other word."""
    if word is None:
        return None
    folded = word.strip().lower()
    if folded in ("fps", "items/s", "it/s", "samples/s", "img/s", "images/s", "frames/s", "iter/s", "1/s", "seq/s"):
        return RATE_UNIT
    factor = MS_PER_UNIT.get(folded)
    return next((unit for unit in TIME_UNITS if factor is not None and MS_PER_UNIT[unit] == factor), None)


# --- times of day ----------------------------------------------------------------------------------------------------

_STAMPS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S",
           "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y%m%d_%H%M%S", "%Y-%m-%d %H:%M")


def epoch_s(text: str, offset_s: float = 0.0) -> tuple[float, bool] | None:
    """(seconds since 1970 in UTC, whether the zone was said); `offset_s`: how far a clock without zone is ahead."""
    text = text.strip()
    plain = number(text)
    if plain is not None:
        for factor in (1.0, 1e-3, 1e-6, 1e-9):
            if 9e8 < plain * factor < 4.2e9:
                return plain * factor, True
        return None
    stamp: datetime | None = None
    try:
        stamp = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        for pattern in _STAMPS:
            try:
                stamp = datetime.strptime(text, pattern)
                break
            except ValueError:
                continue
    if stamp is None:
        return None
    try:
        if stamp.tzinfo is not None:
            return stamp.timestamp(), True
        return stamp.replace(tzinfo=UTC).timestamp() - offset_s, False
    except (OverflowError, ValueError):
        return None


def iso_utc(seconds: float) -> str | None:
    """`2026-11-30T10:00:00Z`; None outside the years of run files."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if 0 < seconds < 4.2e9 else None
    except (OverflowError, OSError, ValueError):
        return None
