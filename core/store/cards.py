"""Cards that people added, kept in the journal: in, out, and into the catalogue of this process."""
from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from core.errors import UserError
from core.gpus import Gpu, set_added_cards
from core.gpus.added import added_card, check_new
from core.records import RunsFolder
from core.store.journal import ADD_CARD, REMOVE_CARD, Entry, Journal

_one_change = threading.Lock()


def add_card(runs: RunsFolder, data: Mapping[str, Any], actor: str = "") -> Gpu:
    """Put a card into the journal; it counts in this process at once. Raises UserError as core.gpus.added does."""
    journal = Journal(runs.journal)
    with _one_change:
        use_cards(journal.entries())
        card = added_card(data)
        check_new(card)
        target = f"card:{card.key}"
        journal.append(ADD_CARD, target, dict(data), actor=actor, base_version=journal.version(target))
        use_cards(journal.entries())
    return card


def remove_card(runs: RunsFolder, key: str, actor: str = "") -> None:
    """Take an added card away again; runs on it stay, their card is unknown then. Raises UserError for another card."""
    journal, target = Journal(runs.journal), f"card:{key}"
    with _one_change:
        if key not in {card.key for card in added_cards(journal.entries())}:
            raise UserError(f"{key} was not added here", "the key of an added card")
        journal.append(REMOVE_CARD, target, actor=actor, base_version=journal.version(target))
        use_cards(journal.entries())


def added_cards(entries: Iterable[Entry]) -> list[Gpu]:
    """The cards that stand after these entries; one that is no card by the rules of this version is left out."""
    found: dict[str, Gpu] = {}
    for entry in entries:
        kind, _, key = entry.target.partition(":")
        if kind != "card":
            continue
        if entry.act == REMOVE_CARD:
            found.pop(key, None)
        elif entry.act == ADD_CARD:
            try:
                card = added_card(entry.data)
            except UserError:
                continue
            found[str(card.key)] = card
    return list(found.values())


def use_cards(entries: Iterable[Entry]) -> bool:
    """Make the catalogue of this process have the cards of this journal; True if that changed it."""
    return set_added_cards(added_cards(entries))


def use_cards_of(runs: RunsFolder) -> None:
    """The same for a runs folder, whose journal need not exist."""
    use_cards(Journal(runs.journal).entries())
