"""The Speedup page in a browser: the same numbers as the shell, the same view from a link, files out of a chart."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import build_run, cell

from .conftest import ROOT, Watched

pytest.importorskip("playwright.sync_api")


def two_cards(visitor: Watched) -> None:
    """A T4 at 110 ms and an A100 at 22 ms in FP32, both also in FP16, on a work of their own."""
    for place, (gpu, scale) in enumerate((("t4", 10.0), ("a100-sxm4-40gb", 2.0))):
        cells = [cell(scale=scale), cell(scale=scale / 2, precision="fp16")]
        build_run(visitor.server.runs / f"{gpu}.jsonl", gpu, cells, run_id=f"20261130-1{place}0000-0000000a")


def heading(page: Any, text: str) -> Any:
    """Waited for up to a minute: the first visit also builds the database."""
    page.set_default_timeout(60_000)
    return page.get_by_role("heading", name=re.compile(text)).first


def test_the_page_and_the_shell_say_the_same(visitor: Watched) -> None:
    two_cards(visitor)
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/speedup")
    told = heading(page, r"A100 SXM4 40GB is .* as fast as the Tesla T4").inner_text()
    command = [sys.executable, "-m", "core", "compare", "--baseline", "t4", "--target", "a100-sxm4-40gb",
               "--precision", "fp32", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=visitor.server.environment, capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["rows"][0]
    assert f"is {row['speedup']['value']:.2f}x as fast" in told
    assert f"bandwidth says {row['expected']['bandwidth']:.2f}x" in told
    page.locator('[data-testid="stVegaLiteChart"] svg').first.wait_for()
    low, high = row["speedup"]["low"], row["speedup"]["high"]
    assert page.get_by_text(f"5.00x  ({low:.2f}x to {high:.2f}x)").count() >= 1


def test_a_shared_link_opens_the_same_view_in_a_fresh_browser(visitor: Watched, browser: Any) -> None:
    two_cards(visitor)
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/speedup?precision=fp16&detail=Samples")
    heading(page, r"A100 SXM4 40GB is 5\.00x as fast").wait_for()
    page.get_by_role("combobox", name="Baseline").click()
    page.get_by_role("option", name="A100 SXM4 40GB").click()
    told = heading(page, r"Tesla T4 takes 5\.00x as long as the A100")
    told.wait_for()
    page.get_by_role("button", name="Share").click()
    page.get_by_text("nobody else can open the link").wait_for()
    link = page.locator("code").filter(has_text="/speedup?").first.inner_text().strip()
    for part in ("precision=fp16", "baseline=A100", "detail=Samples", "equal=true", "frames=47", "by=by+GPU"):
        assert part in link, part
    fresh = Watched(browser, visitor.server)
    other = fresh.tab()
    other.goto(link)
    heading(other, r"Tesla T4 takes 5\.00x as long as the A100").wait_for()
    other.get_by_text(re.compile("samples is flagged")).first.wait_for()
    assert other.get_by_text("Not everything in this link").count() == 0
    fresh.context.close()
    fresh.check()


def test_a_chart_goes_out_as_csv_svg_and_png(visitor: Watched) -> None:
    two_cards(visitor)
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/speedup")
    heading(page, r"A100 SXM4 40GB is").wait_for()
    page.get_by_text("Table, CSV, SVG").first.click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV", exact=True).click()
    assert "A100 SXM4 40GB,5.00x" in Path(waiting.value.path()).read_text()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Chart as SVG").click()
    assert waiting.value.suggested_filename == "gapscope-bars.svg"
    drawn = Path(waiting.value.path()).read_text()
    assert drawn.startswith("<svg")
    assert "A100 SXM4 40GB" in drawn
    page.get_by_test_id("stVegaLiteChart").first.hover()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=re.compile("^Download as PNG")).first.click()
    assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")


def test_no_chart_of_any_detail_breaks(visitor: Watched) -> None:
    two_cards(visitor)
    page = visitor.tab()
    for detail in ("Samples", "Against+theory", "Handicap+ladder", "Drift", "Energy+and+price"):
        page.goto(f"{visitor.server.url}/speedup?detail={detail}")
        heading(page, "In detail").wait_for()
        page.wait_for_function(
            "() => document.querySelectorAll('[data-testid=stVegaLiteChart] svg.marks').length > 2", timeout=20_000
        )
        assert page.get_by_text("SyntaxError").count() == 0
        assert page.get_by_text("could not be shown").count() == 0
