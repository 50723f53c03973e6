"""What the Review page shows of pins: kept until data or journal change; edits with the version they are based on."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Literal

import streamlit as st

from core.answers import review
from core.answers.review import Answer, Item, Question
from core.charts.theme import verdict_style
from core.errors import UserError
from core.store.journal import StaleVersionError
from core.store.pins import STATUSES, Pin, Words, remove_pin
from pages.parts import show, stored
from pages.parts.navigation import PAGES
from pages.parts.results import ReadOnce

_STATUS_COLOURS: dict[str, Literal["orange", "blue", "gray"]] = {"open": "orange", "decided": "blue", "done": "gray"}
FIELDS = ("title", "note", "owner", "status", "command")


def items() -> list[Item]:
    """All pins as the agenda orders them."""
    try:
        found = os.stat(stored.runs_folder().journal)
        state = found.st_size, found.st_mtime_ns
    except FileNotFoundError:
        state = 0, 0
    return _items(stored.version(), state)


@st.cache_data(max_entries=3, show_spinner=False)
def _items(data_version: int, journal_state: tuple[int, int]) -> list[Item]:
    return review.agenda(ReadOnce(), stored.runs_folder())  # type: ignore[arg-type]


def asked(question: Question) -> list[Answer]:
    """The present answers to a pinned question."""
    return _asked(stored.version(), question)


@st.cache_data(max_entries=40, show_spinner="Asking again")
def _asked(data_version: int, question: Question) -> list[Answer]:
    return review.ask(ReadOnce(), question)  # type: ignore[arg-type]


def then_and_now(pin: Pin) -> dict[str, Any]:
    return review.then_and_now(stored.store(), pin, asked)


def badges(item: Item) -> None:
    """Status, verdict of the frozen answer, and the run that decides."""
    status = item.pin.words.status
    st.badge(status, color=_STATUS_COLOURS[status])
    if item.verdict:
        style = verdict_style(item.verdict)
        st.badge(style.word, icon=style.icon, color=style.badge)
    if item.mark:
        st.badge(show.plain(item.mark), icon=":material/science:", color="green")


def view_link(pin: Pin) -> None:
    """A link to the view as it was pinned, with the data of today."""
    page = next((info for info in PAGES if info.name == pin.view.page), None)
    if page is not None:
        st.page_link(page.file, label="Open the view", icon=page.icon, query_params=list(pin.view.query))


# --- changing a pin --------------------------------------------------------------------------------------------------


def field(pin: Pin, name: str) -> str:
    """The key of an edit field, in session state."""
    return f"{name}_{pin.id}"


def begin(pin: Pin) -> int:
    """The version that an edit is based on: the one that was shown when it was opened, until it is saved or ended."""
    base: int = st.session_state.setdefault(field(pin, "base"), pin.version)
    return base


def end(pin: Pin) -> None:
    for name in (*FIELDS, "base", "stale"):
        st.session_state.pop(field(pin, name), None)


def save(pin: Pin, base_version: int | None = None) -> None:
    """Write what stands in the fields. A stale edit is kept beside the newer text until somebody chooses."""
    base = base_version if base_version is not None else begin(pin)
    title, note, owner, status, command = (
        str(st.session_state.get(field(pin, name), getattr(pin.words, name))) for name in FIELDS
    )
    words = Words(title, note, owner, status, command)
    try:
        review.change_words(stored.store(), stored.runs_folder(), pin, words, base_version=base)
    except StaleVersionError as error:
        by = error.theirs.actor or "somebody"
        theirs = {"head": f"{by}, {error.theirs.time}", "text": error.theirs.shown(), "version": error.version}
        st.session_state[field(pin, "stale")] = {"theirs": theirs, "yours": error.yours.shown()}
        return
    except UserError as error:
        st.session_state["review_said"] = str(error)
        return
    end(pin)


def set_status(pin: Pin, status: str) -> None:
    """Decide or reopen at once, on the version that is shown."""
    try:
        review.change_words(stored.store(), stored.runs_folder(), pin, replace(pin.words, status=status),
                            base_version=pin.version)
    except UserError as error:
        st.session_state["review_said"] = str(error)


def remove(pin: Pin) -> None:
    show.asked(remove_pin, stored.runs_folder(), pin.id, base_version=pin.version)


def edit(pin: Pin, locked: bool) -> None:
    """The words of a pin as a form; after a stale edit both texts with a choice."""
    base = begin(pin)
    stale = st.session_state.get(field(pin, "stale"))
    if stale is not None:
        st.warning("This pin was changed while you wrote. Nothing of yours is lost: choose.", icon=":material/merge:")
        theirs, yours = st.columns(2)
        with theirs.container(border=True):
            show.note(f"Theirs ({stale['theirs']['head']})")
            st.text(stale["theirs"]["text"])
            st.button("Keep theirs", key=field(pin, "theirs"), on_click=end, args=[pin])
        with yours.container(border=True):
            show.note("Yours, not saved")
            st.text(stale["yours"])
            st.button("Save mine instead", key=field(pin, "mine"), on_click=save,
                      args=[pin, stale["theirs"]["version"]], disabled=locked)
    with st.form(f"edit_form_{pin.id}", border=False):
        left, right = st.columns([8, 4])
        left.text_input("Title", pin.words.title, key=field(pin, "title"), max_chars=200)
        with right:
            st.segmented_control("Status", STATUSES, default=pin.words.status, key=field(pin, "status"),
                                 required=True)
        left.text_area("Note, decision", pin.words.note, key=field(pin, "note"), max_chars=4000, height=100)
        right.text_input("Owner", pin.words.owner, key=field(pin, "owner"), max_chars=100)
        st.text_input("Command that would decide", pin.words.command, key=field(pin, "command"), max_chars=500,
                      help="A run with new cells that answer it marks this item.")
        st.form_submit_button("Save", type="primary", on_click=save, args=[pin], disabled=locked)
    if base != pin.version and stale is None:
        show.note("Somebody changed this pin since you opened the form; saving will show you both texts.")
