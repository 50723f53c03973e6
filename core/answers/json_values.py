"""Values of a table or of numpy as plain JSON values: what is missing, or no finite number, is None."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def json_value(value: Any) -> Any:
    """`value` with every part a str, bool, int, finite float, list, dict or None.

    NaN, infinities and the missing markers of pandas become None. Raises TypeError for anything else.
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [json_value(item) for item in value]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return json_value(value.tolist())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    raise TypeError(f"no JSON value for {type(value).__name__}")


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dicts, values as they are. Column by column: a row of an Arrow table is slow to pick."""
    names = [str(name) for name in table.columns]
    columns = [table[name].tolist() for name in table.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
