"""Showing things: sentences, charts with their table twin. Text of other people is never Markdown or HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

from core import units
from core.charts import theme
from core.charts.theme import Mode
from core.errors import UserError
from core.store.export import export_csv
from pages.parts.navigation import page_info

T = TypeVar("T")

_MARKDOWN = "\\`*_{}[]()#+-.!|~:$<>&^=\"'"


def mode() -> Mode:
    """Light or dark, as the browser shows the page."""
    return "dark" if st.context.theme.type == "dark" else "light"


def plain(text: object) -> str:
    """Any text as Markdown that shows it letter by letter."""
    return "".join(f"\\{c}" if c in _MARKDOWN else " " if c in "\r\n" else c for c in str(text))


def sentence(text: str, verdict: str | None = None) -> None:
    """The answer of a page in its own words; the verdict stands before it with its word and icon."""
    if verdict is not None:
        style = theme.verdict_style(verdict)
        st.badge(style.word, icon=style.icon, color=style.badge)
    st.html(f'<h2 class="gs-sentence">{html.escape(text)}</h2>')


def note(text: str) -> None:
    """A remark in small type."""
    st.caption(plain(text))


def chart(
    draw: Callable[..., Any],
    *arguments: Any,
    table: Callable[[], pd.DataFrame],
    alt: str,
    key: str,
    table_label: str = "Table",
    **options: Any,
) -> None:
    """A chart of core.charts and, folded in, the same as a table, which is only made when opened.

    `draw(*arguments, mode=..., **options)` makes the chart; what was drawn from equal arguments is not drawn again.
    Below the table are its CSV and the chart as SVG; PNG is in the toolbar that Streamlit puts over a chart.
    """
    drawn = spec(draw, *arguments, **options)
    st.vega_lite_chart(spec=drawn, theme=None, alt=alt, key=f"{key}_chart", width="stretch")
    with st.expander(f"{table_label}, CSV, SVG", key=f"{key}_table", on_change="rerun", type="compact") as box:
        if box.open:
            rows = table()
            dataframe(rows, alt=f"Table of the chart: {alt}")
            save(rows, key)


_SAVE_SVG = (Path(__file__).resolve().parent / "save_svg.js").read_text(encoding="utf-8")


def save(rows: pd.DataFrame, key: str) -> None:
    """Buttons for the table as CSV and for the chart above it as SVG, both without a request to anywhere."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            "CSV",
            export_csv(rows),
            f"gapscope-{key}.csv",
            "text/csv",
            key=f"{key}_csv",
            on_click="ignore",
            icon=":material/download:",
        )
        button = f'<button class="gs-save" type="button" data-name="{html.escape(key)}">Chart as SVG</button>'
        st.html(f"{button}<script>{_SAVE_SVG}</script>", width="content", unsafe_allow_javascript=True)
        st.caption("PNG: the arrow in the toolbar over the chart.")


def spec(draw: Callable[..., Any], *arguments: Any, **options: Any) -> dict[str, Any]:
    """The finished chart as Vega-Lite, in the present mode."""
    return _spec(f"{draw.__module__}.{draw.__qualname__}", arguments, {**options, "mode": mode()}, draw)


@st.cache_data(max_entries=100, show_spinner=False)
def _spec(name: str, arguments: tuple[Any, ...], options: dict[str, Any], _draw: Callable[..., Any]) -> dict[str, Any]:
    return theme.spec(_draw(*arguments, **options))


ROW_PIXELS, MOST_ROWS = 35, 12


def dataframe(table: pd.DataFrame, alt: str, **options: Any) -> Any:
    """A table as high as its rows, up to MOST_ROWS of them; then it scrolls."""
    height = ROW_PIXELS * (min(len(table), MOST_ROWS) + 1) + 3
    return st.dataframe(
        table, hide_index=True, width="stretch", height=height, alt=alt, placeholder=units.MISSING, **options
    )


def empty(what: str, next_step: str, page: str | None = None, link: str = "") -> None:
    """Nothing to show yet: says so and what to do next."""
    with st.container(border=True):
        st.html(f'<p class="gs-empty"><strong>{html.escape(what)}</strong><br>{html.escape(next_step)}</p>')
        if page is not None:
            page_link(page, link or page)


def page_link(page: str, label: str, view: Mapping[str, str] | None = None) -> None:
    """A link to a page, in a view of it: the values of its query parameters."""
    st.page_link(page_info(page).file, label=label, icon=page_info(page).icon, query_params=dict(view or {}))


def asked(question: Callable[..., T], *arguments: Any, **options: Any) -> T | None:
    """The answer to `question`; a user's mistake is shown as its one sentence, and the result is None."""
    try:
        return question(*arguments, **options)
    except UserError as error:
        st.warning(plain(error), icon=":material/info:")
        return None
