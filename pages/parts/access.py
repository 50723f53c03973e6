"""Who is visiting, and how this server is shared: what `core.store.access` asks before every write of the app.

Importing this module governs the process. The answer is made anew in the thread that acts, since callbacks run before
a page does and fragments without one; a thread without a visitor is nobody.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core.errors import UserError
from core.store import access, database_path
from core.store.access import Roles, Sharing, Visitor
from pages.parts.show import note, plain


def sharing() -> Sharing:
    """Raises `UserError`, one line, for settings that contradict each other or cannot be read."""
    if st.get_option("server.trustedUserHeaders"):
        raise UserError("server.trustedUserHeaders is set: a header would say who somebody is", "a login to say so",
                        "leave it out")
    path = access.roles_path(database_path())
    roles, login = _roles(path, _stamp(path)), has_login()
    if roles is not None and not login:
        raise UserError(f"{path.name} names roles, but no login is set up", "[auth] in .streamlit/secrets.toml",
                        "set it up, or take the file away")
    if login and roles is None:
        raise UserError(f"a login is set up, but there is no {path.name}", "a file that says who may edit",
                        "write it (docs/security.md)")
    if login and importlib.util.find_spec("authlib") is None:
        raise UserError("a login is set up, but Authlib is not installed", "Authlib and httpx",
                        'pip install "streamlit[auth]"')
    return Sharing(
        access.reached_by(
            st.get_option("server.address"), list(st.get_option("server.allowedHosts") or []),
            bool(st.get_option("server.enableCORS")),
        ),
        roles, access.is_set(access.READ_ONLY), access.is_set(access.WRITE),
    )


def visitor() -> Visitor | None:
    """Who has logged in, in the session that this thread runs for."""
    if get_script_run_ctx(suppress_warning=True) is None or not has_login():
        return None
    told = st.user.to_dict()
    if told.get("is_logged_in") is not True:
        return None
    email = told.get("email")
    return Visitor(str(email) if email else None, told.get("email_verified") in (True, "true"))


def has_login() -> bool:
    """Whether [auth] is in Streamlit's secrets. Raises `UserError` for a secrets file that cannot be read: a login that
    its owner set up must not be taken for none."""
    if st.secrets.load_if_toml_exists():
        return "auth" in st.secrets
    for name in st.get_option("secrets.files"):
        if Path(name).exists():
            raise UserError(f"{Path(name).name} cannot be read", "TOML", "mend it")
    return False


def _who() -> tuple[Sharing, Visitor | None]:
    return sharing(), visitor()


access.govern(_who)


def locked() -> bool:
    """Whether writing controls are shown disabled; what protects is `core.store.access`, not this."""
    return access.refused() is not None


def problem() -> Callable[[], None] | None:
    """Asked first in every run: what to show instead of any page, None when this visitor may look."""
    try:
        shared, who = sharing(), visitor()
    except UserError as error:
        return functools.partial(_misconfigured, plain(error))
    if access.may_see(shared, who):
        return None
    return _log_in if who is None else functools.partial(_no_role, who)


def _misconfigured(words: str) -> None:
    st.error(words, icon=":material/block:")


def _log_in() -> None:
    st.html('<div class="gs-head"><h1>Gapscope</h1><span>Log in to see the measurements.</span></div>')
    st.button("Log in", type="primary", icon=":material/login:", on_click=st.login, key="login")


def _no_role(who: Visitor) -> None:
    st.text(f"{who.email or 'This login'} has no role here: ask whoever runs this app.")  # Markdown would link it
    st.button("Log out", icon=":material/logout:", on_click=st.logout, key="logout")


def standing() -> None:
    """In the sidebar, who is logged in; over the page, one line when nothing can be changed."""
    shared, who = sharing(), visitor()
    if who is not None:
        with st.sidebar:
            st.text(f"{who.email or 'Logged in'}, {shared.roles.of(who) if shared.roles else ''}")
            st.button("Log out", icon=":material/logout:", on_click=st.logout, key="logout")
    reason = access.refusal(shared, who)
    if reason is not None:
        note(f"{reason[0].upper()}{reason[1:]}. Nothing can be started, added or changed here.")


@functools.lru_cache(maxsize=1)
def _roles(path: Path, stamp: tuple[int, int] | None) -> Roles | None:
    return access.read_roles(path)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes with the file, so that a role taken away is gone at the next act."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
