"""Who cannot see or cannot use a mouse: axe-core on every page in both modes, and one question by keyboard alone."""
from __future__ import annotations

import re
from typing import Any

import pytest
from builders import build_run, cell

from pages.parts.navigation import PAGES

from .conftest import Watched

pytest.importorskip("playwright.sync_api")
Axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe

SERIOUS = ("serious", "critical")

OF_STREAMLIT = {
    "list": 'data-testid="stSidebarNavItems"',  # the sections of the navigation lie in a div between ul and li
    "listitem": '<li class="st-emotion-cache',
}
"""Faults of Streamlit's own elements that a page cannot mend: rule -> part of the HTML of such an element."""


def serious(page: Any) -> list[str]:
    """Serious faults that axe-core finds, one line each: rule, element, why."""
    found = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {node['html'][:160]} ({' '.join(node['failureSummary'].split())[:160]})"
        for fault in found
        if fault["impact"] in SERIOUS
        for node in fault["nodes"]
        if OF_STREAMLIT.get(fault["id"], "\0") not in node["html"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_serious_fault(browser: Any, server: Any, scheme: str) -> None:
    for place, (gpu, scale) in enumerate((("t4", 10.0), ("a100-sxm4-40gb", 2.0))):
        build_run(server.runs / f"{gpu}.jsonl", gpu, [cell(scale=scale), cell(scale=scale / 2, precision="fp16")],
                  run_id=f"20261130-1{place}0000-0000000a")
    visitor = Watched(browser, server, color_scheme=scheme, reduced_motion="reduce")
    page = visitor.tab()
    page.set_default_timeout(60_000)
    faults: dict[str, list[str]] = {}
    for info in PAGES:
        page.goto(f"{server.url}/{'' if info is PAGES[0] else info.url_path}")
        page.get_by_role("heading", name=info.name, exact=True).first.wait_for()
        page.wait_for_function("() => !document.querySelector('[data-testid=stStatusWidget]')")
        page.wait_for_timeout(700)
        if found := serious(page):
            faults[info.name] = found
    visitor.context.close()
    assert not faults, "\n".join(f"{name}: {fault}" for name, found in faults.items() for fault in found)


def test_two_cards_are_compared_by_keyboard_alone(visitor: Watched) -> None:
    for place, (gpu, scale) in enumerate((("t4", 10.0), ("a100-sxm4-40gb", 2.0))):
        build_run(visitor.server.runs / f"{gpu}.jsonl", gpu, [cell(scale=scale)],
                  run_id=f"20261130-1{place}0000-0000000a")
    page = visitor.tab()
    page.set_default_timeout(60_000)
    page.goto(visitor.server.url)
    page.get_by_role("heading", name="Overview", exact=True).wait_for()

    def focus(name: str, most: int = 60) -> None:
        """Tab on until the focused element carries this name."""
        for _ in range(most):
            page.keyboard.press("Tab")
            told = page.evaluate(
                "() => { const e = document.activeElement; const own = ['A', 'BUTTON', 'SUMMARY'].includes(e.tagName);"
                "return (e.getAttribute('aria-label') || '') + ' ' + (e.labels && e.labels.length ? "
                "e.labels[0].innerText : '') + ' ' + (own ? e.innerText : ''); }"
            )
            if name in told:
                return
        raise AssertionError(f"{name} is not reached by the Tab key")

    focus("Speedup")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile(r"A100 SXM4 40GB is 5\.00x as fast as the Tesla T4")).wait_for()
    focus("Baseline")
    page.keyboard.type("A100")
    page.get_by_role("option", name="A100 SXM4 40GB").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=re.compile(r"Tesla T4 takes 5\.00x as long as the A100 SXM4 40GB")).wait_for()
    focus("Table, CSV, SVG")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="CSV", exact=True).wait_for()
