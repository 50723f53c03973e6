"""The state of a page lives in its URL: keyed widgets bound to query parameters, and what to do with a bad link."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import streamlit as st

from pages.parts.show import plain

_NOTES = "view_notes"
_USED = "view_used"


def begin(page: str) -> None:
    """Called once a run before the page: forgets the notes of another page."""
    if st.session_state.get(_NOTES, (None, []))[0] != page:
        st.session_state[_NOTES] = (page, [])
    st.session_state[_USED] = set()


def end(place: Any) -> None:
    """Called once a run after the page: says in `place` what of the link could not be used."""
    unknown = [key for key in st.query_params if key not in st.session_state[_USED]]
    for key in unknown:
        _remember(f"this page has no part named {key!r}")
        del st.query_params[key]
    notes = st.session_state[_NOTES][1]
    if notes:
        place.info(f"Not everything in this link could be used: {plain('; '.join(notes))}.", icon=":material/link_off:")


def _remember(text: str) -> None:
    notes = st.session_state[_NOTES][1]
    if text not in notes:
        notes.append(text)


def use(*keys: str) -> None:
    """These query parameters belong to the page (for widgets that are not made by this module)."""
    st.session_state.setdefault(_USED, set()).update(keys)


def choice(
    label: str,
    options: Sequence[str],
    key: str,
    default: str | None = None,
    show: Callable[[str], str] = str,
    kind: Literal["select", "segments"] = "select",
    help: str | None = None,
    disabled: bool = False,
) -> str:
    """One of `options`, kept in the URL as `?key=shown`. A value that is not among them gives way to the nearest one.

    `options` is not empty; `show` is the text of an option on the page and in the URL.
    """
    use(key)
    start = default if default is not None and default in options else options[0]
    shown = {show(option): option for option in options}
    asked = st.query_params.get(key)
    if asked is not None and asked in options and asked not in shown:
        st.session_state[key] = asked  # a link made by hand, with the id alone
    elif asked is not None and asked not in shown:
        near = _nearest(asked, list(shown))
        st.session_state[key] = shown[near] if near else start
        _remember(f"{label.lower()} {asked[:60]!r} does not exist here, {show(st.session_state[key])!r} is shown")
    elif key in st.session_state and st.session_state[key] not in options:
        st.session_state[key] = start
    if kind == "segments":
        picked = st.segmented_control(
            label,
            options,
            default=start if key not in st.session_state else None,
            key=key,
            format_func=show,
            help=help,
            required=True,
            bind="query-params",
            disabled=disabled,
        )
    else:
        picked = st.selectbox(
            label,
            options,
            index=list(options).index(start),
            key=key,
            format_func=show,
            help=help,
            bind="query-params",
            disabled=disabled,
        )
    return picked if picked is not None and picked in options else start


def _nearest(asked: str, shown: Sequence[str]) -> str | None:
    """The option most like `asked`: the closest number among numbers, else the closest spelling."""
    try:
        wanted = float(asked)
        return min(shown, key=lambda text: abs(float(text) - wanted))
    except ValueError:
        folded = {text.lower(): text for text in reversed(shown)}
        found = difflib.get_close_matches(asked.lower(), list(folded), n=1, cutoff=0.4)
        return folded[found[0]] if found else None


def choices(label: str, options: Sequence[str], key: str, placeholder: str, help: str | None = None) -> list[str]:
    """Any of `options`, kept in the URL as repeated `?key=option`; values that are not among them are dropped."""
    use(key)
    for asked in st.query_params.get_all(key):
        if asked and asked not in options:
            _remember(f"{label.lower()} {asked[:60]!r} does not exist here")
    return st.multiselect(label, options, key=key, placeholder=placeholder, help=help, bind="query-params")


def text(label: str, default: str, key: str, help: str | None = None, placeholder: str | None = None) -> str:
    """A line of text, kept in the URL."""
    use(key)
    return (
        st.text_input(label, default, key=key, help=help, placeholder=placeholder, max_chars=120, bind="query-params")
        or ""
    )
