"""The words of Gapscope, each in one line: read from the tables of docs/method.md, which is also the Method page."""
from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import core

METHOD = Path(core.__file__).resolve().parent.parent / "docs" / "method.md"
_HEADS = ("word", "name", "verdict")
"""First column of the tables that explain words."""


def help_for(*words: str) -> str:
    """What these words mean, one sentence each, for the help beside a field. Raises KeyError for an unknown one."""
    return " ".join(_sentence(terms()[word.lower()]) for word in words)


@lru_cache(maxsize=1)
def terms() -> dict[str, str]:
    """Every explained word in lower case -> its meaning as plain text. `a, b` in a first column are two words."""
    found: dict[str, str] = {}
    inside = False
    for line in METHOD.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 2:
            inside = False
        elif cells[0] in _HEADS:
            inside = True
        elif inside and not set(cells[0]) <= set("-: "):
            for word in re.split(r",| / ", cells[0]):
                found[_plain(word).lower()] = _plain(cells[1])
    return found


def _plain(text: str) -> str:
    return re.sub(r"[*`]", "", text).strip()


def _sentence(text: str) -> str:
    """A symbol at the start (r, E) stays as it is written."""
    return f"{text[:1].upper() if text[1:2].isalpha() else text[:1]}{text[1:]}."
