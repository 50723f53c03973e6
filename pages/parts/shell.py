"""What stands around every page: navigation, style, errors in one sentence. `app.py` calls `main`."""

from __future__ import annotations

import contextlib
import html
import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

import streamlit as st

from core.errors import UserError
from pages.parts import access, stored, view
from pages.parts.navigation import PAGES, page_info
from pages.parts.show import mode, plain

HERE = Path(__file__).resolve().parent
_INSIDE, _SHARE = "inside_shell", "share_place"
log = logging.getLogger("gapscope.pages")


def main() -> None:
    """Run the page that the address names; whatever goes wrong becomes one sentence, the log has the rest."""
    st.set_page_config(
        page_title="Gapscope", page_icon=str(HERE / "icon.svg"), layout="wide", initial_sidebar_state="auto"
    )
    st.html(HERE / "style.css")
    st.logo(str(HERE / f"logo_{mode()}.svg"), size="large", icon_image=str(HERE / "icon.svg"))
    sections: dict[str, list[Any]] = {}
    for info in PAGES:
        sections.setdefault(info.section, []).append(page_of(info.name))
    problem = access.problem()
    page = st.navigation(sections, position="hidden" if problem else "sidebar", expanded=True)
    if problem:
        problem()
        return
    held = stored.other_holder()
    if held is not None:
        st.html('<div class="gs-head"><h1>Another app has the database</h1></div>')
        st.warning(plain(held), icon=":material/lock:")
        st.button("Try again", icon=":material/refresh:")
        return
    view.begin(page.title)
    place = st.container()
    access.standing()
    st.session_state[_INSIDE] = True
    try:
        guarded(page.run)()
    finally:
        del st.session_state[_INSIDE]
    view.end(place, st.session_state.pop(_SHARE, None))
    if page_info(page.title).shows_data:
        with contextlib.suppress(UserError):  # the page has said already why there are no data
            watch(stored.version())


@st.fragment(run_every=1.0)
def watch(seen: int) -> None:
    """Draw the page again when the data have changed: a run of the command line shows within two seconds."""
    if stored.version() != seen:
        st.rerun()


def page_of(name: str) -> Any:
    """A page of the list as Streamlit's own object, for navigation and links."""
    info = page_info(name)
    return st.Page(info.file, title=info.name, icon=info.icon, url_path=info.url_path, default=info is PAGES[0])


def start(name: str) -> None:
    """First call of a page: its name and the question it answers.

    A fresh server whose first visitor asks for /gap runs pages/gap.py alone, in Streamlit's older way, until somebody
    has called `st.navigation`: then the whole app is run from here instead.
    """
    if _INSIDE not in st.session_state:
        main()
        st.stop()
    page = page_info(name)
    head, share = st.columns([9, 2.4], vertical_alignment="center")
    head.html(f'<div class="gs-head"><h1>{html.escape(page.name)}</h1><span>{html.escape(page.question)}</span></div>')
    st.session_state[_SHARE] = share.container(horizontal=True, horizontal_alignment="right", gap="xsmall")


def beside_share() -> Any:
    """Where a page may put one more button, left of Share. Only after `start`."""
    return st.session_state[_SHARE]


class _PageDoneError(Exception):
    """Raised by `done`."""


def done() -> NoReturn:
    """The page has no more to say. Unlike after `st.stop`, what stands around it follows: notes on the link, the link
    to share, and the watch for new data."""
    raise _PageDoneError


def guarded(body: Callable[..., None]) -> Callable[..., None]:
    """`body`, whose errors are one sentence on the page; for pages and for each fragment, which runs on its own."""

    @wraps(body)
    def safe(*args: Any, **kwargs: Any) -> None:
        try:
            body(*args, **kwargs)
        except _PageDoneError:
            pass
        except UserError as error:
            st.warning(plain(error), icon=":material/info:")
        except Exception as error:
            log.exception("a page failed")
            st.error(
                f"This part of the page could not be shown ({plain(type(error).__name__)}). The terminal that runs the "
                "app has the details; your data is untouched. Reload the page to try again.",
                icon=":material/error:",
            )

    return safe
