"""The Data page's part for taking cells out: a selection as run-file lines, CSV or Parquet."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from core.answers import export as answers
from core.errors import UserError
from core.records import PRECISIONS
from pages.parts import choose, show, stored

ALL = "all"
MOST_REPETITIONS = 300_000
"""Beyond it a file takes the app more memory than it has: the command line writes it."""

_MIME = {"jsonl": "application/jsonl", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_LABELS = {"jsonl": "Run-file lines", "csv": "CSV", "parquet": "Parquet"}


@st.cache_data(max_entries=20, show_spinner=False)
def _extent(data_version: int, selection: str) -> dict[str, Any]:
    return answers.extent(stored.store(), selection)


def _written(selection: str, file_format: str) -> bytes:
    """The file, made when its button is pressed; a sentence in it where the cells went meanwhile."""
    try:
        return answers.export(stored.store(), selection, file_format)
    except UserError as error:
        return str(error).encode()


def offer() -> None:
    """Choose a device, a precision and any other field; see how much that is; take it in one of three formats."""
    names = {choose.selector(gpu["label"], gpu["gpu_key"]): gpu["label"] for gpu in stored.coverage()["gpus"]}
    left, middle, right = st.columns([4, 2, 5], vertical_alignment="bottom")
    gpu = left.selectbox("Device", list(names), format_func=names.__getitem__, key="export_gpu")
    precision = middle.selectbox("Precision", [ALL, *PRECISIONS], key="export_precision")
    more = right.text_input(
        "Other fields",
        key="export_fields",
        max_chars=200,
        placeholder="tracker=local4d,frames=47",
        help="As in a selection of the command line: field=value, with commas between.",
    )
    parts = [str(gpu), *([f"precision={precision}"] if precision != ALL else []), *([more] if more.strip() else [])]
    selection = ",".join(parts)
    found = show.asked(_extent, stored.version(), selection)
    if found is None:
        return
    show.note(found["headline"])
    if found["repetitions"] > MOST_REPETITIONS:
        show.note("That is more than the app writes at once; in a shell:")
        st.code(f'python -m core export "{selection}" --out cells.parquet', language="bash")
        return
    for place, (file_format, label) in zip(st.columns(3), _LABELS.items(), strict=True):
        place.download_button(
            label,
            data=partial(_written, selection, file_format),
            file_name=f"cells.{file_format}",
            mime=_MIME[file_format],
            icon=":material/download:",
            on_click="ignore",
            key=f"export_{file_format}",
            width="stretch",
        )
