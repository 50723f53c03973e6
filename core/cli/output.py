"""How an answer leaves the program: one JSON document, or plain text that also reads well in a log."""
from __future__ import annotations

import json
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from core.answers.json_values import json_value

LINE_WIDTH = 100
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def print_json(answer: Any) -> None:
    """One JSON document on stdout; what is missing is null (NaN cannot occur)."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(json_value(answer), allow_nan=False, ensure_ascii=plain, indent=2) + "\n")


def printable(text: str) -> str:
    """Text from files as one line that a terminal only shows: no escape sequence, no change of writing direction."""
    return "".join(
        " " if char in "\n\t" else "\ufffd" if char in _DIRECTIONS or unicodedata.category(char) in ("Cc", "Zl", "Zp")
        else char for char in text
    )


def say(text: str = "") -> None:
    """One line on stdout, long sentences wrapped."""
    if not text:
        print()
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        line = printable(line)
        print(textwrap.fill(line, LINE_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def hint(text: str) -> None:
    """What to know or do next, on stderr, so that stdout stays the answer."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), indent: str = "") -> str:
    """Aligned columns separated by two blanks; the columns in `right` are set flush right. Nothing is cut."""
    cells = [list(headers), *[[printable(str(cell)) for cell in row] for row in rows]]
    widths = [max(_width(row[i]) for row in cells) for i in range(len(headers))]
    flush_right = set(right)

    def line(row: Sequence[str]) -> str:
        padded = [
            " " * (width - _width(cell)) + cell if i in flush_right else cell + " " * (width - _width(cell))
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return (indent + "  ".join(padded)).rstrip()

    rule = indent + "  ".join("-" * width for width in widths)
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(char) else 1 for char in text)
