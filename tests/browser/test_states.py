"""A newcomer's first five minutes, and states of the pages that only a browser shows."""
from __future__ import annotations

import re
from typing import Any

import pytest
from builders import build_run, cell

from core.records import RunsFolder

from .conftest import Watched

pytest.importorskip("playwright.sync_api")


def heading(page: Any, text: str) -> Any:
    return page.get_by_role("heading", name=re.compile(text)).first


def test_the_five_minutes_of_the_readme(visitor: Watched) -> None:
    # 1. Overview: the founding pair, then two numbers of one's own.
    page = visitor.tab()
    page.goto(visitor.server.url)
    heading(page, r"took 170x as long").wait_for()
    page.get_by_role("textbox", name="Baseline: GPU = figure").fill("RTX 3090=2.75s")
    page.get_by_role("textbox", name="Target: GPU = figure").fill("RTX 4090=1.46s")
    page.get_by_role("textbox", name="Target: GPU = figure").press("Enter")
    heading(page, r"RTX 3090 took 1\.88x as long").wait_for()
    # 2. Sweep: Start, close the tab; another one finds the sweep, and then its end with the next two steps. One of the
    # five precisions of the quick preset is enough here.
    page.get_by_role("link", name="Sweep").click()
    page.get_by_text(re.compile(r"5 cells on CPU, \d+ cores?: about")).wait_for()
    page.goto(f"{visitor.server.url}/sweep?precisions=fp32")
    page.get_by_text(re.compile(r"1 cell on CPU, \d+ cores?: about")).wait_for()
    page.get_by_role("button", name="Start", exact=True).click()
    heading(page, r"cells measured; (running|waiting)").wait_for()
    page.close()
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/sweep")
    heading(page, r"1 of 1 cells measured; done").wait_for(timeout=150_000)
    page.get_by_text("Shipped twin: ").wait_for()
    # 4. Gap: this run against the run of the same work that came with Gapscope.
    page.get_by_role("link", name="Explain it against its shipped twin").click()
    heading(page, "Gap").wait_for()
    said = r"took .* as long as|took equally long|Both figures of .* are equal|figure of .* is .* as long"
    heading(page, said).wait_for()
    page.get_by_text("Measured ratio").first.wait_for()
    # 3. Speedup: this machine beside the shipped ones.
    page.go_back()
    page.get_by_role("link", name="See it beside the other devices").click()
    heading(page, "Speedup").wait_for()
    chart = page.get_by_test_id("stVegaLiteChart").first
    chart.locator("svg").wait_for()
    assert "origin=measured" in page.url


def test_a_sweep_that_ends_tells_so_while_the_page_is_open(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/sweep?device=CPU&resolution=32&frames=2&points=4&precisions=fp32")
    page.get_by_text(re.compile(r"1 cell on CPU, \d+ cores?: about")).wait_for()
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text(re.compile(r"Sweep \S+: done, 1 of 1 cells measured")).wait_for(timeout=60_000)
    heading(page, r"1 of 1 cells measured; done").wait_for()
    page.get_by_text(re.compile("nine of ten repetitions")).first.wait_for()


def test_a_failed_cell_is_shown_with_its_reason_and_offered_again(visitor: Watched) -> None:
    build_run(RunsFolder(visitor.server.runs), "t4", [cell(), cell(precision="fp16", status="failed", reason="hm")])
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/sweep")
    heading(page, r"1 of 2 cells measured, 1 failed; done").wait_for()
    page.get_by_text("Without a time: 1 failed").wait_for()
    assert page.get_by_role("button", name="Measure 1 failed cell again").is_visible()


def test_a_card_is_added_in_the_form_and_answers_two_numbers(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/gpus")
    page.get_by_text("Add a card").click(timeout=60_000)
    for label, value in (("Name", "RTX 9090"), ("Compute capability", "12.0"), ("Bandwidth, GB/s", "3200"),
                         ("FP32, TFLOP/s", "81"), ("Memory, GB", "48"), ("Source", "a data sheet")):
        page.get_by_role("textbox", name=label, exact=True).fill(value)
    page.get_by_role("button", name="Add this card").click()
    heading(page, r"RTX 9090 \(Blackwell.*3.200 GB.s of bandwidth").wait_for()
    page.goto(f"{visitor.server.url}/?baseline=Tesla+T4%3D10s&target=RTX+9090%3D1s")
    heading(page, r"took 10\.0x as long as the RTX 9090\. Bandwidth says 10\.0x").wait_for()


def test_the_two_numbers_can_be_asked_with_the_keyboard_alone(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(visitor.server.url)
    heading(page, r"took 170x as long").wait_for()
    for _ in range(40):  # tabs from the top of the page until the field has the focus
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == "Baseline: GPU = figure":
            break
    page.keyboard.press("Control+A")
    page.keyboard.type("Tesla T4=20s")
    page.keyboard.press("Enter")
    heading(page, r"took 40\.0x as long").wait_for()
