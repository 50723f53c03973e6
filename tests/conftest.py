"""Shared builders: small records with numbers that can be checked by hand."""
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


@pytest.fixture(autouse=True)
def owner_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as the owner's shell: a page that an earlier test imported governs only the tests of pages."""
    monkeypatch.setattr("core.store.access._who", None)
