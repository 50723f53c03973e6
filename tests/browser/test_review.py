"""The review meeting in a real browser: pin, decide, the deciding run, two writers, meeting mode, report offline."""
from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from builders import build_run, cell

from core.records import RunsFolder

from .conftest import Server, Watched

pytest.importorskip("playwright.sync_api")

SLOW = "20261130-100000-00000001"
PINNED = "/gap?baseline=Tesla+T4&target=Tesla+T4&baseline_precision=fp32&target_precision=fp16"
COMMAND = "python -m core run --precision bf16 --tracker local4d:base --resolution 256 --frames 47 --points 256"


def heading(page: Any, text: str) -> Any:
    return page.get_by_role("heading", name=re.compile(text)).first


def pin(page: Any, server: Server, title: str, note: str = "", path: str = PINNED) -> None:
    page.goto(f"{server.url}{path}")
    page.get_by_role("button", name="Pin").click()
    page.get_by_role("textbox", name="Title").fill(title)
    page.get_by_role("textbox", name="Note").fill(note)
    page.get_by_role("textbox", name="Command that would decide").fill(COMMAND)
    page.get_by_role("button", name="Pin this view").click()
    page.get_by_text("Pinned.").wait_for()


def measured(server: Server) -> None:
    """A T4 whose FP16 is twice as fast as its FP32."""
    build_run(RunsFolder(server.runs), "t4", [cell(10), cell(5, precision="fp16")], run_id=SLOW)


def test_a_pin_is_decided_marked_by_its_run_and_keeps_its_old_answer(visitor: Watched) -> None:
    server = visitor.server
    measured(server)
    page = visitor.tab()
    pin(page, server, "Is FP16 worth it?", "<script>alert(1)</script> **not bold**")
    page.goto(f"{server.url}/review")
    heading(page, "1 open item").wait_for()
    page.get_by_text("<script>alert(1)</script> **not bold**", exact=True).wait_for()
    assert page.locator("strong", has_text="not bold").count() == 0

    build_run(RunsFolder(server.runs), "t4", [cell(20), cell(4, precision="bf16"), cell(5, precision="fp16")],
              run_id="20261201-100000-00000002", started_at="2026-12-01T10:00:00Z")
    page.get_by_text(re.compile(r"decided by run 20261201-100000-00000002 on Tesla T4")).wait_for()
    heading(page, "one has the measurement that decides").wait_for()
    page.get_by_text("Then and now").click()
    page.get_by_text("Since it was pinned: measured ratio 2.00x, now 4.00x.").wait_for()
    page.get_by_role("button", name="Decided").click()
    heading(page, "No open item").wait_for()
    page.goto(f"{server.url}/review?status=decided&find=fp16+t4")
    page.get_by_text(re.compile(r"took 2\.00x as long")).first.wait_for()

    page.get_by_role("button", name="Reopen").click()
    page.goto(f"{server.url}/data")
    heading(page, "Add run files").wait_for()
    (server.runs / SLOW / "run.jsonl").unlink()
    page.goto(f"{server.url}/review")
    page.get_by_text(re.compile(rf"Run {SLOW} of this pin was deleted")).wait_for()
    page.get_by_text(re.compile(r"took 2\.00x as long")).first.wait_for()


def test_two_people_who_edit_at_once_are_shown_both_texts(visitor: Watched) -> None:
    server = visitor.server
    measured(server)
    first, second = visitor.tab(), visitor.tab()
    pin(first, server, "Whose note?")
    for page in (first, second):
        page.goto(f"{server.url}/review")
        page.get_by_text("Note, decide, edit").click()
        page.get_by_role("textbox", name="Note, decision").wait_for()
    first.get_by_role("textbox", name="Note, decision").fill("from the first")
    first.get_by_role("button", name="Save", exact=True).click()
    second.get_by_text("from the first", exact=True).wait_for()  # drawn again, which must not move what it is based on
    second.get_by_role("textbox", name="Note, decision").fill("from the second")
    second.get_by_role("button", name="Save", exact=True).click()
    second.get_by_text("This pin was changed while you wrote").wait_for()
    assert second.get_by_text(re.compile("from the first")).count()
    assert second.get_by_text(re.compile("from the second")).count()
    second.get_by_role("button", name="Save mine instead").click()
    first.get_by_text("from the second", exact=True).wait_for()


def test_arrow_keys_go_through_the_pins_and_nothing_else_is_on_screen(visitor: Watched) -> None:
    server = visitor.server
    measured(server)
    page = visitor.tab()
    page.set_viewport_size({"width": 1920, "height": 1080})
    for title in ("First question", "Second question"):
        pin(page, server, title)
    page.goto(f"{server.url}/review")
    page.get_by_role("button", name="Meeting").click()
    page.get_by_text("1 of 2 · Second question").wait_for()
    assert not page.get_by_test_id("stSidebar").is_visible()
    assert not page.get_by_test_id("stHeader").is_visible()
    chart = page.get_by_test_id("stVegaLiteChart").first
    chart.locator("svg").wait_for()
    box, table = chart.bounding_box(), page.locator("table.gs-figures").bounding_box()
    assert box["x"] + box["width"] <= table["x"], "the picture covers the figures"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.keyboard.press("ArrowRight")
    page.get_by_text("2 of 2 · First question").wait_for()
    page.locator("table.gs-figures", has_text="2.00x").wait_for()
    page.keyboard.press("ArrowLeft")
    page.get_by_text("1 of 2").wait_for()
    page.keyboard.press("Escape")
    heading(page, "2 open items").wait_for()
    assert "meeting" not in page.url


def test_the_report_opens_from_disk_without_a_network_and_says_what_the_page_says(
    visitor: Watched, browser: Any, tmp_path: Path
) -> None:
    server = visitor.server
    measured(server)
    page = visitor.tab()
    pin(page, server, "Is FP16 worth it?")
    page.goto(f"{server.url}{PINNED}")
    said = page.locator(".gs-sentence")
    said.wait_for()
    headline = said.inner_text()
    page.goto(f"{server.url}/review")
    page.get_by_role("button", name="Report").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="HTML").click()
    saved = tmp_path / "report.html"
    waiting.value.save_as(saved)
    assert saved.stat().st_size < 3_000_000
    offline = browser.new_context(offline=True)
    try:
        opened, complaints, started = offline.new_page(), list[str](), time.monotonic()
        opened.on("console", lambda message: complaints.append(message.text))
        opened.goto(saved.as_uri())
        opened.locator("figure svg").first.wait_for()
        assert time.monotonic() - started < 5  # 2 s is the budget, on a machine that does nothing else
        assert headline in opened.locator("body").inner_text()
        assert "2.00x" in opened.locator("table", has_text="measured ratio").inner_text()
        assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert not complaints
    finally:
        offline.close()
