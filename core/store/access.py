"""Who may write: one rule, asked at the bottom of every path that writes.

    require_write("start a sweep")   in front of each write; raises `UserError` with the reason, else says who acts
    govern(who)                      called once by the app: `who()` says how the server is shared and who is visiting

A process without `govern` is its owner's shell (the command line) and may write. The app is governed from its first
page on. What it is shared as comes from its settings alone; of a request only the login that Streamlit verified
counts, never an address or a header.
"""
from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import UserError

READ_ONLY, WRITE, ROLES_FILE = "GAPSCOPE_READ_ONLY", "GAPSCOPE_WRITE", "GAPSCOPE_ROLES"
"""Environment variables: nobody may write; everybody who reaches a shared app may; where the roles are."""

ROLES_NAME = "gapscope_roles.toml"
VIEWER, EDITOR = "viewer", "editor"
ROLES = (VIEWER, EDITOR)


@dataclass(frozen=True)
class Roles:
    """Who may do what after a login. `default`: role of those who are not listed; None: they are not let in.

    `unverified_email`: an address counts although the provider does not say that it verified it.
    """

    listed: Mapping[str, str] = field(default_factory=dict)
    default: str | None = None
    unverified_email: bool = False

    def of(self, visitor: Visitor) -> str | None:
        """The role of somebody who has logged in; None: not let in."""
        if visitor.email is None or not (visitor.verified or self.unverified_email):
            return self.default
        return self.listed.get(_folded(visitor.email), self.default)


@dataclass(frozen=True)
class Visitor:
    """What a verified login says of its person; `email` None: the provider gives no address."""

    email: str | None
    verified: bool = False


@dataclass(frozen=True)
class Sharing:
    """How this server is shared: from its settings and environment, nothing from a request.

    `reached_by`: why others than this machine's users can reach it, None when they cannot. `roles` None: no login.
    """

    reached_by: str | None = None
    roles: Roles | None = None
    read_only: bool = False
    write: bool = False


def may_see(sharing: Sharing, visitor: Visitor | None) -> bool:
    """Whether this visitor sees any page. Without a login everybody does who reaches the server."""
    return sharing.roles is None or (visitor is not None and sharing.roles.of(visitor) is not None)


def refusal(sharing: Sharing, visitor: Visitor | None) -> str | None:
    """Why this visitor may not write, in one clause; None: they may. Only READ_ONLY binds editors, too."""
    if sharing.read_only:
        return f"this app is read-only ({READ_ONLY})"
    if sharing.roles is not None:
        if visitor is None:
            return "nobody is logged in"
        role = sharing.roles.of(visitor)
        return None if role == EDITOR else f"you are logged in as a {role}" if role else "you have no role here"
    if sharing.reached_by is not None and not sharing.write:
        return f"this app is read-only: {sharing.reached_by}, and there is no login"
    return None


def may_write(sharing: Sharing, visitor: Visitor | None) -> bool:
    return refusal(sharing, visitor) is None


_who: Callable[[], tuple[Sharing, Visitor | None]] | None = None


def govern(who: Callable[[], tuple[Sharing, Visitor | None]]) -> None:
    """From now on every write of this process asks `who`. It is called in the thread that writes.

    When `who` raises `UserError` (settings that cannot be read), nobody may write.
    """
    global _who
    _who = who


def refused() -> str | None:
    """Why whoever acts now may not write; None: they may."""
    if _who is None:
        return None
    try:
        return refusal(*_who())
    except UserError as error:
        return error.found


def require_write(what: str) -> str:
    """Raises `UserError` unless whoever acts now may do this; returns their address after a login, else ""."""
    reason = refused()
    if reason is not None:
        raise UserError(f"{what} was refused: {reason}", "somebody who may write",
                        "ask whoever runs this app (docs/security.md)")
    visitor = _who()[1] if _who is not None else None
    return visitor.email or "" if visitor is not None else ""


# --- settings --------------------------------------------------------------------------------------------------------


def is_set(name: str) -> bool:
    """An environment variable that is there and not empty or 0."""
    return os.environ.get(name, "").strip() not in ("", "0")


def reached_by(address: str | None, allowed_hosts: list[str], cors: bool) -> str | None:
    """Why others can reach a server with these settings of Streamlit, None when only this machine's users can.

    Without a list of hosts, or with CORS protection off, any web page that a user of this machine has open can talk
    to it (by DNS rebinding, or at once).
    """
    if not address or not _is_loopback(address):
        return f"it listens on {address or 'every address'}"
    if not allowed_hosts or "*" in [host.strip() for host in allowed_hosts]:
        return "server.allowedHosts admits any host"
    if not cors:
        return "server.enableCORS is off"
    return None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def roles_path(database: Path) -> Path:
    """GAPSCOPE_ROLES, else beside the database."""
    named = os.environ.get(ROLES_FILE)
    return Path(named) if named else database.parent / ROLES_NAME


def read_roles(path: Path) -> Roles | None:
    """The roles of this file; None when there is no file and none was named. Raises `UserError`, one line."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if os.environ.get(ROLES_FILE):
            raise UserError(f"{ROLES_FILE} names {path.name}, which is not there", "a file with roles") from None
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(f"{path.name} cannot be read ({what})", "TOML with a table [roles]") from None
    unknown = sorted(set(data) - {"roles", "default", "unverified_email"})
    if unknown:
        raise UserError(f"{path.name} has {unknown[0]!r}", "default, unverified_email and a table [roles]")
    listed, unverified = data.get("roles", {}), data.get("unverified_email", False)
    if not isinstance(listed, dict) or not isinstance(unverified, bool):
        raise UserError(f"{path.name} has no table [roles]" if not isinstance(listed, dict) else
                        f"{path.name} has unverified_email = {unverified!r}", "[roles] and true or false")
    for who, role in [*listed.items(), *([("default", data["default"])] if "default" in data else [])]:
        if role not in ROLES:
            raise UserError(f"{path.name} gives {who} the role {role!r}", " or ".join(ROLES), "mend the file")
    return Roles({_folded(who): role for who, role in listed.items()}, data.get("default"), unverified)


def _folded(email: str) -> str:
    return email.strip().casefold()
