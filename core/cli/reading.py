"""How a command that compares gets its rows: from the database, or from no more files than its sides need."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from core.errors import UserError

if TYPE_CHECKING:
    from core.store import Store

Answer = TypeVar("Answer")


def ask(db: str | None, selections: Sequence[str], question: Callable[[Store], Answer]) -> Answer:
    """The answer to `question` about these selections.

    Two run files need no database. While the app has it, the rows are built in memory from runs of the devices that
    were named; an error is then answered from all runs, since it names what there is.
    """
    from core.answers.selection import is_file, parse_selection, runs_wanted
    from core.store import open_files, open_reading

    parsed = [parse_selection(text) for text in selections]
    if all(is_file(selection) for selection in parsed):
        with open_files([]) as nothing:
            return question(nothing)
    with open_reading(db, run_filter=runs_wanted(parsed)) as store:
        try:
            return question(store)
        except UserError:
            if not store.in_memory:
                raise
    with open_reading(db) as store:
        return question(store)
