"""One source of words: the tables of the Method page."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.answers.terms import help_for, terms

PAGES = Path(__file__).resolve().parent.parent / "pages"


def test_a_word_is_explained_by_the_text_of_the_method_page() -> None:
    assert help_for("baseline") == help_for("target")
    assert help_for("target").startswith("The two sides of a gap; every ratio is baseline time / target time")
    assert help_for("board") == "One physical card; other boards of the same type may differ."
    assert help_for("fp32") == "IEEE single precision; TF32 off for products and convolutions."
    assert help_for("beyond hardware").startswith("r > 3 max E")
    assert help_for("Board", "frames") == f"{help_for('board')} Length of the clip."
    with pytest.raises(KeyError):
        help_for("flux")


def test_no_meaning_is_empty_or_markdown() -> None:
    assert len(terms()) > 40
    for word, text in terms().items():
        assert word == word.strip().lower()
        assert word
        assert text
        assert not re.search(r"[*`|]", text), word


def test_every_word_that_a_page_asks_for_is_explained() -> None:
    asked = [
        word
        for path in PAGES.rglob("*.py")
        for call in re.findall(r"help_for\(([^)]*)\)", path.read_text())
        for word in re.findall(r'"([^"]+)"', call)
    ]
    assert not [word for word in asked if word.lower() not in terms()]
