"""A file of another program in a real browser: understood, asked about, added, set against a baseline; then unasked."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from builders import build_run, cell

from .conftest import Server, Watched

pytest.importorskip("playwright.sync_api")

TABLE = "model,wall time (ms),batch size,notes\nencoder,12.0,1,first\nencoder,14.0,1,second\ndecoder,30.0,1,first\n"


def heading(page: Any, text: str) -> Any:
    return page.get_by_role("heading", name=re.compile(text)).first


def give(page: Any, server: Server, path: Path) -> None:
    page.goto(f"{server.url}/data")
    heading(page, "Add run files").wait_for()
    page.locator('input[type="file"]').set_input_files(path)


def choose(page: Any, label: str, value: str) -> None:
    field = page.get_by_role("combobox", name=re.compile(label)).first
    field.click()
    field.fill(value)
    page.wait_for_timeout(300)
    field.press("Enter")


def test_an_unknown_csv_becomes_rows_and_the_next_one_needs_no_answer(visitor: Watched, tmp_path: Path) -> None:
    path = tmp_path / "spreadsheet.csv"
    path.write_text(TABLE)
    page = visitor.tab()
    give(page, visitor.server, path)
    page.get_by_text("spreadsheet.csv: table; 3 questions to answer before anything comes in").wait_for()
    assert page.get_by_role("button", name=re.compile(r"^Add \d")).count() == 0
    choose(page, "Which device", "RTX 3090")
    choose(page, "In which precision", "fp16")
    choose(page, "Which other columns", "none")
    page.keyboard.press("Escape")  # its list stays open for more
    page.get_by_role("button", name="Read it with these answers").click()
    page.get_by_text("spreadsheet.csv: table; 1 run on RTX 3090, 2 cells").wait_for()
    page.get_by_text(re.compile(r"2 cells would count; none of them matches")).wait_for()
    page.get_by_role("button", name="Add 1 file").click()
    page.get_by_text(re.compile(r"spreadsheet\.csv, .* UTC, run import-")).wait_for()
    page.get_by_role("link", name=re.compile(r"See spreadsheet\.csv \(GeForce RTX 3090\) against")).first.wait_for()
    other = tmp_path / "next.csv"
    other.write_text(TABLE.replace("12.0", "13.0"))
    page.locator('input[type="file"]').set_input_files(other)
    page.get_by_text("next.csv: table; 1 run on RTX 3090, 2 cells").wait_for()
    page.get_by_text(re.compile("As for the last table with these columns: .*gpu RTX 3090")).wait_for()
    page.get_by_role("button", name="Add 1 file").click()
    page.get_by_text(re.compile(r"next\.csv, .* UTC, run import-")).wait_for()


def test_the_preview_of_a_run_file_says_what_is_held_and_what_matches(visitor: Watched, tmp_path: Path) -> None:
    path = build_run(tmp_path / "t4.jsonl", "t4", [cell(scale=10), cell(wall_ms=[5.0] * 6, precision="fp16")],
                     run_id="20261130-100000-0000beef")
    page = visitor.tab()
    give(page, visitor.server, path)
    page.get_by_text(re.compile(r"1 cell would count; 1 cell would be held in quarantine")).wait_for()
    page.get_by_text(re.compile(r"Would be held: 6 repetitions of 5 ms each")).wait_for()


BAD = "![x](https://example.invalid/a.png) <img src=x onerror=alert(1)><script>alert(2)</script>"


def test_text_of_a_foreign_file_is_shown_as_the_text_it_is_on_every_page(visitor: Watched, tmp_path: Path) -> None:
    build_run(visitor.server.runs / "t4.jsonl", "t4", [cell()], run_id="20261130-100000-0000000a")
    path = tmp_path / "**b** <img src=x onerror=alert(1)>.csv"
    path.write_text(f"{BAD},gpu,time (ms),precision\n{BAD},{BAD},5,fp16\n{BAD},{BAD},nothing {BAD},fp16\n")
    page = visitor.tab()
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    give(page, visitor.server, path)
    page.get_by_text(re.compile(r"onerror=alert\(1\)>\.csv: table")).first.wait_for()
    choose(page, "Which other columns", "none")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Read it with these answers").click()
    page.get_by_role("button", name="Add 1 file").click()
    page.get_by_text(re.compile(r"\.csv, .* UTC, run import-")).first.wait_for()
    page.get_by_role("link", name=re.compile(r"^See \*\*b\*\* <img src=x")).first.wait_for()
    for name in ("data", "", "speedup", "gap", "gpus", "method"):
        page.goto(f"{visitor.server.url}/{name}")
        page.locator("h2, h1").first.wait_for()
        page.wait_for_timeout(1500)
        assert page.locator('img[src="x"], img[src*="example.invalid"], a[href^="javascript"]').count() == 0, name
    assert said == []
