"""Review: the open items as an agenda, each with the answer of the day it was pinned beside the one of today."""

import streamlit as st

from core.answers import review
from core.charts.tables import review as review_tables
from core.store.pins import STATUSES
from pages.parts import access, agenda, meeting, report, shell, show, view

SHOWN = 20

shell.start("Review")
items = agenda.items()
if meeting.asked():
    meeting.show_pins(items)
    shell.done()
if not items:
    show.empty(
        "Nothing is pinned yet.",
        "Open a comparison and choose Pin: the view, its answer of today and the measurement that would decide are "
        "kept here, for the next meeting.",
        "Gap",
        "Explain a gap",
    )
    shell.done()
locked = access.locked()
said = st.session_state.pop("review_said", None)
if said:
    st.warning(show.plain(said), icon=":material/info:")

# Choose: status and words; then what to do with what is listed.
bar = st.columns([4, 4, 2, 2], vertical_alignment="bottom")
with bar[0]:
    counts = review_tables.status_counts(items)
    start = "open" if counts["open"] else "all"
    status = view.choice("Status", [*STATUSES, "all"], key="status", default=start, kind="segments")
with bar[1]:
    text = view.text("Search", "", key="find", placeholder="title, note, owner, GPU, tracker, run")
found = review.search(items, text, status)
with bar[2]:
    meeting.start_button(found)
with bar[3]:
    report.pins_button(found)
show.sentence(review.agenda_words(items))
if not found:
    show.note(f"No {'' if status == 'all' else f'{status} '}item holds these words: {counts['all']} in all.")
    shell.done()


def show_item(item: review.Item) -> None:
    """One pin: words and frozen headline; present answer and form are made when opened."""
    pin = item.pin
    with st.container(border=True, gap="xsmall", key=f"pin_{pin.id}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.subheader(show.plain(pin.words.title), anchor=False, width="content")
            agenda.badges(item)
        st.text(item.headline)
        if pin.words.note:
            st.text(pin.words.note)
        if item.gone:
            st.warning(show.plain(item.gone_words), icon=":material/delete:")
        show.note(review_tables.pinned_words(item))
        if pin.words.command and not item.mark:
            show.note("What would decide:")
            st.code(pin.words.command, language="bash", wrap_lines=True)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            agenda.view_link(pin)
            if pin.words.status == "open":
                st.button("Decided", key=f"decide_{pin.id}", icon=":material/check:", on_click=agenda.set_status,
                          args=[pin, "decided"], disabled=locked)
            else:
                st.button("Reopen", key=f"open_{pin.id}", icon=":material/undo:", on_click=agenda.set_status,
                          args=[pin, "open"], disabled=locked)
            st.button("Remove", key=f"remove_{pin.id}", icon=":material/delete:", on_click=agenda.remove, args=[pin],
                      type="tertiary", disabled=locked)
        with view.fold("Then and now", key=f"now_{pin.id}") as box:
            if box.open:
                told = agenda.then_and_now(pin)
                st.text(told["headline"])
                show.dataframe(review_tables.then_and_now_table(told), alt=f"Then and now: {told['headline']}")
        with view.fold("Note, decide, edit", key=f"edit_{pin.id}") as box:
            if box.open:
                agenda.edit(pin, locked)
            else:
                agenda.end(pin)


for item in found[:SHOWN]:
    show_item(item)
if len(found) > SHOWN:
    show.note(f"{len(found) - SHOWN} more: search, or choose another status.")
