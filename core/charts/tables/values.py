"""Single values of answers and tables, as these modules write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from core import units

Answer = Mapping[str, Any]
"""What core.answers gives: JSON values by name."""


def quantity(value: float | None, unit: str) -> str:
    return units.MISSING if value is None else f"{units.significant(value)} {unit}"


def number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
