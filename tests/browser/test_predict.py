"""The Predict page in a real browser: the time with its band, the back-test beside it, and a card that is too small."""
from __future__ import annotations

import re
from typing import Any

import pytest
from builders import GIB, build_run, cell, op

from .conftest import Watched

pytest.importorskip("playwright.sync_api")

LARGE = op("aten::linear", "transformer", 4.0, shapes=((3008, 1536), (1536, 1536), (1536,)), calls=10, launches=10,
           scalars=(), flops=141_900_000_000, bytes=464_000_000)  # fmt: skip


def heading(page: Any, text: str) -> Any:
    return page.get_by_role("heading", name=re.compile(text)).first


def test_the_shipped_h200_is_predicted_on_a_t4_with_its_back_test_in_view(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/predict")
    heading(page, r"^Predicted for the Tesla T4: .* measured on the H200").wait_for(timeout=60_000)
    page.get_by_text("predicted", exact=True).first.wait_for()
    charts = page.get_by_test_id("stVegaLiteChart")
    for words in ("is predicted to take", "Back-test: products off by", "of the predicted kernel"):
        charts.get_by_text(re.compile(words)).first.wait_for()
    assert page.get_by_text("Predicted time").first.is_visible()
    page.get_by_text("What this rests on").click()
    page.get_by_text(re.compile("one launch every|never waited for its host")).wait_for()


def test_a_card_that_is_too_small_is_said_before_any_time(visitor: Watched) -> None:
    build_run(visitor.server.runs / "large.jsonl", "a100-sxm4-40gb", [cell(ops=(LARGE,), peak_bytes=30 * GIB)],
              run_id="20261130-120000-0000cafe")  # fmt: skip
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/predict?source=A100+SXM4+40GB&target=Tesla+T4&price=0.35")
    heading(page, r"would not fit on the Tesla T4").wait_for(timeout=60_000)
    page.get_by_text("Price per clip").first.wait_for()
