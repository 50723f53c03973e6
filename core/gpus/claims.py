"""What is often said about cards and does not hold, or only of some boards; each with what holds and its source."""
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from core.gpus.catalogue import read_rows


@dataclass(frozen=True)
class Claim:
    """`verdict`: "wrong", or "depends" for what is true of one board or for a moment."""

    gpu_key: str
    said: str
    verdict: str
    holds: str
    source: str


@lru_cache(maxsize=1)
def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the file `data/claims.csv`."""
    return tuple(Claim(**{name: text.strip() for name, text in row.items()}) for row in read_rows("claims.csv"))
