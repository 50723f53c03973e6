"""The button "Pin": the view at hand and its answer, kept for the review meeting."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlsplit

import streamlit as st

from core.answers import review
from core.answers.review import Answer, Question
from core.errors import UserError
from core.store.pins import Words
from pages.parts import access, report, shell, show, stored, view

_DONE, _SAID = "pin_done", "pin_said"


def this_view(page: str, question: Question, answers: Sequence[Answer]) -> None:
    """Beside Share: what to write when this view is pinned, and its report. `answers` are those that it shows."""
    place = shell.beside_share()
    with place.popover("Pin", icon=":material/keep:", type="tertiary", key="pin", on_change="rerun") as box:
        if box.open:
            _form(page, question, answers)
            report.view_buttons(question, answers)


def _form(page: str, question: Question, answers: Sequence[Answer]) -> None:
    st.caption("Keeps this view, its answer of today and the measurement that would decide, for the next meeting.")
    with st.form("pin_form", border=False, clear_on_submit=False):
        st.text_input("Title", review.title_of(answers, question.names), key="pin_title", max_chars=200)
        st.text_area("Note", key="pin_note", max_chars=4000, height=80)
        st.text_input("Owner", key="pin_owner", max_chars=100)
        st.text_input("Command that would decide", review.deciding_command(answers), key="pin_command", max_chars=500)
        st.form_submit_button("Pin this view", type="primary", on_click=_pin, args=[page, question],
                              disabled=access.locked())
    if said := st.session_state.pop(_SAID, None):
        st.warning(show.plain(said), icon=":material/info:")
    if st.session_state.pop(_DONE, None):
        st.success("Pinned.", icon=":material/keep:")
    show.page_link("Review", "The agenda")


def _pin(page: str, question: Question) -> None:
    title, note, owner, command = (
        str(st.session_state[f"pin_{name}"]) for name in ("title", "note", "owner", "command")
    )
    words = Words(title, note, owner, command=command)
    try:
        query = parse_qsl(urlsplit(view.link()).query, keep_blank_values=True)
        review.pin_view(stored.store(), stored.runs_folder(), page, query, question, words)
    except UserError as error:
        st.session_state[_SAID] = str(error)
        return
    st.session_state[_DONE] = True
