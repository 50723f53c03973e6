"""The one error that a user can cause: what was found, what was expected, what to do."""
from __future__ import annotations


class UserError(Exception):
    """A mistake in input, told in one line: what was found, what was expected, what to do.

    `found` names what the program saw, `expected` what it can take (choices, nearest matches),
    `fix` the next act. The command line prints `str(error)` and exits with 2; a page shows the same text.
    """

    def __init__(self, found: str, expected: str = "", fix: str = "") -> None:
        self.found, self.expected, self.fix = found, expected, fix
        parts = [found, f"expected {expected}" if expected else "", fix]
        super().__init__("; ".join(part.rstrip(".; ") for part in parts if part) + ".")
