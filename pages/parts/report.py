"""Reports as downloads: of the view at hand, and of the pins that are listed. Made when the button is pressed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from core.answers.review import Answer, Item, Question
from core.reports.html import html_report
from core.reports.markdown import markdown_report
from core.reports.sections import Report, of_answers, of_item, report_of
from pages.parts import agenda, show


def view_buttons(question: Question, answers: Sequence[Answer]) -> None:
    """The report of one view, as HTML and as Markdown."""
    st.divider()
    st.caption("Or take it along: one file with this view's figures, charts and causes.")
    _buttons("view", partial(_of_view, tuple(answers), question.names))


def pins_button(items: Sequence[Item]) -> None:
    """The report of the pins that are listed, or of some of them."""
    with st.popover("Report", icon=":material/description:", key="report", on_change="rerun", width="stretch") as box:
        if not box.open:
            return
        titles = {item.pin.id: item.pin.words.title for item in items}
        chosen = st.multiselect("Pins", list(titles), default=list(titles), format_func=titles.__getitem__,
                                key="report_pins")
        show.note("One file with these pins, each then and now; opens without a network, prints well.")
        _buttons("pins", partial(_of_pins, tuple(item for item in items if item.pin.id in chosen)), not chosen)


def _buttons(key: str, make: Callable[[], Report], disabled: bool = False) -> None:
    with st.container(horizontal=True):
        st.download_button("HTML", lambda: html_report(make()), "gapscope-report.html", "text/html",
                           key=f"report_html_{key}", on_click="ignore", icon=":material/download:", disabled=disabled)
        st.download_button("Markdown", lambda: markdown_report(make()), "gapscope-report.md", "text/markdown",
                           key=f"report_md_{key}", on_click="ignore", icon=":material/download:", disabled=disabled)


def _of_view(answers: Sequence[Answer], names: Sequence[str]) -> Report:
    return report_of([of_answers(answers, names)])


def _of_pins(items: Sequence[Item]) -> Report:
    return report_of([of_item(item, agenda.then_and_now(item.pin)) for item in items])
