"""A person's word about what is held as implausible (`core.store.queries.quarantine` lists it): journal lines."""
from __future__ import annotations

import re

from core.errors import UserError
from core.records import RunsFolder
from core.records.convert import valid_run_id
from core.store.journal import HOLD, RELEASE, Entry, Journal, released_items
from core.store.plausibility import RULES

MAX_REASON = 500
_ITEM = re.compile(r"([a-z-]+):([a-z0-9-]+)(?::(\d{1,16}))?", re.ASCII)


def release(runs: RunsFolder, item: str, reason: str, *, actor: str = "") -> Entry:
    """Let one item count although it is implausible; survives every rebuild. `reason` is shown beside it.

    Raises `UserError` for what is no item, and without a reason.
    """
    _check(item)
    text = reason.strip()
    if not text:
        raise UserError("no reason", "why this may count although it is implausible", "write one sentence")
    if len(text) > MAX_REASON:
        raise UserError(f"a reason of {len(text)} characters", f"at most {MAX_REASON}", "shorten it")
    return Journal(runs.journal).append(RELEASE, f"quarantine:{item}", {"reason": text}, actor=actor)


def hold(runs: RunsFolder, item: str, *, actor: str = "", reason: str = "") -> Entry:
    """Put a released item back. Raises `UserError` when it is not released."""
    _check(item)
    if item not in released_items(Journal(runs.journal).entries()):
        raise UserError(f"{item} is not released", "an item that was released", "")
    return Journal(runs.journal).append(HOLD, f"quarantine:{item}", {"reason": reason.strip()[:MAX_REASON]},
                                        actor=actor)


def _check(item: str) -> None:
    match = _ITEM.fullmatch(item)
    rules = {rule.name for rule in RULES}
    if match is None or match[1] not in rules or not valid_run_id(match[2]):
        what = "a conflicting line" if item.startswith("conflict:") else repr(item[:100])
        raise UserError(f"{what} cannot be released", "an item of the quarantine",
                        "take out the file whose content shall not count" if item.startswith("conflict:") else "")
