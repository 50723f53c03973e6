"""The state of a page lives in its URL: keyed widgets bound to query parameters, and what to do with a bad link."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit, urlunsplit

import streamlit as st

from pages.parts.show import plain

_NOTES = "view_notes"
_USED = "view_used"
_SHOWN = "view_shown"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def begin(page: str) -> None:
    """Called once a run before the page: forgets the notes of another page."""
    if st.session_state.get(_NOTES, (None, []))[0] != page:
        st.session_state[_NOTES] = (page, [])
    st.session_state[_USED] = set()
    st.session_state[_SHOWN] = {}


def end(place: Any, share_in: Any = None) -> None:
    """Called once a run after the page: says in `place` what of the link could not be used, and puts the link to this
    view into `share_in`."""
    unknown = [key for key in st.query_params if key not in st.session_state[_USED]]
    for key in unknown:
        _remember(f"this page has no part named {key!r}")
        del st.query_params[key]
    if share_in is not None:
        with share_in.popover("Share", icon=":material/link:", type="tertiary", key="share", on_change="rerun") as box:
            if box.open:
                share()
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


def _show(key: str, *texts: str) -> None:
    """What the link to this view says of this key."""
    st.session_state.setdefault(_SHOWN, {})[key] = list(texts)


def link() -> str:
    """The address of this view with every choice spelled out, so that other defaults do not change it."""
    here = urlsplit(st.context.url or "")
    shown: dict[str, list[str]] = {key: st.query_params.get_all(key) for key in st.query_params}
    shown |= st.session_state.get(_SHOWN, {})
    return urlunsplit((here.scheme, here.netloc, here.path, urlencode(shown, doseq=True), ""))


def share() -> None:
    """The link with a button that copies it, and for whom it works."""
    address = link()
    st.caption("This view, every choice spelled out. Copy it with the button at its right.")
    st.code(address, language=None, wrap_lines=True)
    if urlsplit(address).hostname in _LOOPBACK:
        st.warning(
            "This app answers on this machine only: nobody else can open the link. Started so, others can look at "
            "everything and change nothing:",
            icon=":material/lock:",
        )
        st.code("streamlit run app.py --server.address 0.0.0.0 --server.allowedHosts MACHINE-NAME", language="bash")
        st.caption("Or send a run, which a colleague drops on the Data page (`python -m core runs` lists them):")
        st.code("python -m core export RUN_ID --out run.jsonl.gz", language="bash")


def switch(label: str, key: str, default: bool, help: str | None = None) -> bool:
    """Yes or no, kept in the URL."""
    use(key)
    asked = st.query_params.get(key)
    if asked is not None and asked.lower() not in ("true", "false"):
        _remember(f"{label.lower()} is true or false, not {asked[:60]!r}")
        st.session_state[key] = default
    start = default if key not in st.session_state else False  # a value beside the state's own is refused
    on = st.toggle(label, start, key=key, help=help, bind="query-params")
    _show(key, str(on).lower())
    return on


def optional(label: str, options: Sequence[str], key: str, show: Callable[[str], str] = str) -> str | None:
    """At most one of `options` as segments, kept in the URL as `?key=shown`; None: none is chosen, as at first."""
    use(key)
    shown = {show(option): option for option in options}
    asked = st.query_params.get(key)
    if asked is not None and asked not in shown:
        near = shown.get(_nearest(asked, list(shown)) or "") if asked not in options else asked
        st.session_state[key] = near
        if asked not in options:
            _remember(f"{label.lower()} {asked[:60]!r} does not exist here")
    picked = st.segmented_control(label, list(options), key=key, format_func=show, bind="query-params")
    if picked is not None:
        _show(key, show(picked))
    return picked


def fold(label: str, key: str) -> Any:
    """A part that is made when opened: `with fold(...) as box: if box.open: ...`. The URL has the open ones."""
    use(key)
    asked = st.query_params.get(key)
    if asked is not None and asked.lower() not in ("true", "false"):
        _remember(f"{label.lower()} is true or false, not {asked[:60]!r}")
        del st.query_params[key]
    return st.expander(label, key=key, on_change="rerun", bind="query-params")


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
    found = picked if picked is not None and picked in options else start
    _show(key, show(found))
    return found


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
    picked = st.multiselect(label, options, key=key, placeholder=placeholder, help=help, bind="query-params")
    _show(key, *picked)
    return picked


def text(label: str, default: str, key: str, help: str | None = None, placeholder: str | None = None) -> str:
    """A line of text, kept in the URL."""
    use(key)
    typed = st.text_input(
        label, default, key=key, help=help, placeholder=placeholder, max_chars=120, bind="query-params"
    )
    _show(key, typed or "")
    return typed or ""
