"""Meeting mode of the Review page: one pin a screen, large, without the chrome; arrow keys go through the pins."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from core.answers.review import Item
from core.charts import theme
from core.charts.pictures import pictures
from pages.parts import access, agenda, show, view

HERE = Path(__file__).resolve().parent
MEETING, AT = "meeting", "at"
ZOOM, FIGURES = 1.4, 8
"""How much larger everything is than on the page (meeting.css), and how many figures a meeting reads at once."""


def asked() -> bool:
    """Whether the link asks for meeting mode (`?meeting=PIN,PIN...`, `&at=PIN`)."""
    view.use(MEETING, AT)
    return MEETING in st.query_params


def start_button(items: Sequence[Item]) -> None:
    """Show the pins that are listed, in their order."""
    st.button("Meeting", icon=":material/present_to_all:", key="begin_meeting", on_click=_begin,
              args=[[item.pin.id for item in items]], disabled=not items, width="stretch",
              help="One pin a screen. Keys: left and right arrow, Escape ends.")


def _begin(ids: Sequence[str]) -> None:
    st.query_params[MEETING] = ",".join(ids)
    st.query_params[AT] = ids[0]


def _end() -> None:
    for name in (MEETING, AT):
        st.query_params.pop(name, None)


def _go(pin_id: str) -> None:
    st.query_params[AT] = pin_id


def show_pins(items: Sequence[Item]) -> None:
    """The pin that the link names, among those it lists; pins that were removed meanwhile are left out."""
    st.html(HERE / "meeting.css")
    by_id = {item.pin.id: item for item in items}
    listed = [by_id[pin_id] for pin_id in st.query_params[MEETING].split(",") if pin_id in by_id]
    if not listed:
        show.empty("The pins of this link are not here any more.", "End the meeting to see what is.")
        st.button("End", on_click=_end, shortcut="Escape", key="end_meeting")
        return
    place = next((i for i, item in enumerate(listed) if item.pin.id == st.query_params.get(AT)), 0)
    bar = st.container(horizontal=True, vertical_alignment="center")
    item, pin = listed[place], listed[place].pin
    with bar:
        st.html(f'<p class="gs-meeting-title">{place + 1} of {len(listed)} &middot; {html.escape(pin.words.title)}</p>')
        before, after = listed[place - 1].pin.id, listed[(place + 1) % len(listed)].pin.id
        alone = len(listed) == 1
        st.button("Back", on_click=_go, args=[before], shortcut="Left", key="back", disabled=alone or place == 0)
        st.button("Next", on_click=_go, args=[after], shortcut="Right", key="next",
                  disabled=alone or place == len(listed) - 1)
        st.button("End", on_click=_end, shortcut="Escape", key="end_meeting")
    _one(item)


def _one(item: Item) -> None:
    pin = item.pin
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        agenda.badges(item)
        if pin.words.owner:
            show.note(f"Owner: {pin.words.owner}")
    show.sentence(item.headline)
    told = agenda.then_and_now(pin)
    left, right = st.columns([7, 5], gap="medium")
    with left:
        for picture in pictures(told["now"] or told["then"], item.names)[:1]:
            key = f"meeting_{picture.name}_{pin.id}"
            spec = _zoomed(show.spec(picture.draw, *picture.arguments))
            st.vega_lite_chart(spec=spec, theme=None, alt=picture.finding, key=key, width="stretch")
        if pin.words.command and not item.mark:
            show.note("What would decide:")
            st.code(pin.words.command, language="bash", wrap_lines=True)
    with right:
        rows = "".join(
            f"<tr><th scope=row>{html.escape(row['what'])}</th><td>{html.escape(row['then'])}</td>"
            f"<td{' class=gs-changed' if row['changed'] else ''}>{html.escape(row['now'])}</td></tr>"
            for row in told["rows"][:FIGURES]
        )
        head = f"<tr><th></th><th>{html.escape(pin.time[:10])}</th><th>now</th></tr>"
        st.html(f"<table class=gs-figures>{head}{rows}</table>")
        show.note(told["headline"])
        if item.gone:
            show.note(item.gone_words)
        if pin.words.note:
            st.text(pin.words.note)
        if pin.words.status == "open":
            st.button("Decided", key=f"decide_{pin.id}", icon=":material/check:", on_click=agenda.set_status,
                      args=[pin, "decided"], disabled=access.locked(), shortcut="D")


def _zoomed(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart's title breaks by the width of its element, which is told without the zoom that meeting.css gives it."""
    for param in spec.get("params", []):
        if param["name"] == theme.CHART_WIDTH:
            param["expr"] = f"{ZOOM} * {param['expr']}"
    return spec
