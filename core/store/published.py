"""The shipped table of published speeds (core/reference/published_speeds.csv) as rows of `reported`."""
from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from core.errors import UserError


def published_rows(data: bytes) -> Iterator[tuple[Any, ...]]:
    """One row per published figure, in the order of the table's columns."""
    for number, row in enumerate(csv.DictReader(io.StringIO(data.decode("utf-8"), newline=""))):
        yield _published_row(number, row)


def _published_row(number: int, row: dict[str, str]) -> tuple[Any, ...]:
    """One published figure as it stands; a text where a number is expected stays in its text column."""
    text = {name: value.strip() or None for name, value in row.items()}
    return (
        number, text["tracker"], text["variant"], text["gpu"], key_of_text(text["gpu"]), text["precision"],
        _whole(text["frames"]), _whole(text["height"]), _whole(text["width"]), _whole(text["points"]), text["points"],
        _whole(text["batch"]), _number(text["seconds"]), _number(text["throughput"]), text["throughput"],
        text["throughput_unit"], text["source"], text["source_detail"], text["notes"],
    )


def key_of_text(text: str | None) -> str | None:
    """Catalogue key of a card as a person wrote it; None for an unknown or an unstated one."""
    if text is None:
        return None
    if text.split()[0].upper() == "CPU":
        return "cpu"
    from core.gpus.lookup import by_human_name

    for name in (text, text.split("(")[0].strip()):
        try:
            return by_human_name(name).gpu.key
        except UserError:
            continue
    return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
