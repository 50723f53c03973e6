"""What people do, in a real browser: read the headline, bring a run file, sweep the CPU and watch it."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import build_run, cell

from core.records import Cell, read_run_file

from .conftest import ROOT, Server, Watched

pytest.importorskip("playwright.sync_api")


def heading(page: Any, text: str) -> Any:
    return page.get_by_role("heading", name=re.compile(text)).first


def test_the_first_page_says_what_is_normal_about_the_founding_pair(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(visitor.server.url)
    heading(page, r"took 170x as long.*hardware alone does not explain it").wait_for()
    strip = page.get_by_test_id("stVegaLiteChart").first
    strip.locator("svg").wait_for()
    for text in ("this gap 170x", "bandwidth 4.86x", "FP32 2.41x", "never above 15.2x"):
        assert strip.get_by_text(text, exact=True).first.is_visible(), text
    assert page.get_by_text("Beyond hardware").first.is_visible()
    page.get_by_role("textbox", name="Baseline: GPU = figure").fill("RTX 3090=2.75s")
    page.get_by_role("textbox", name="Target: GPU = figure").fill("RTX 4090=1.46s")
    page.get_by_role("textbox", name="Target: GPU = figure").press("Enter")
    heading(page, r"RTX 3090 took 1\.88x as long").wait_for()
    assert "RTX%203090" in page.url or "RTX+3090" in page.url


def test_a_link_opens_the_same_view_and_says_what_of_it_is_gone(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/?baseline=Tesla+T4%3D10s&target=L4%3D5s&precision=fp23&colour=red")
    heading(page, r"Tesla T4 took 2\.00x as long").wait_for()
    page.get_by_text(re.compile(r"Not everything in this link.*fp23.*colour")).wait_for()


def test_a_fresh_server_shows_the_whole_app_on_a_deep_link(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/gpus?gpu=Tesla+T4")
    heading(page, r"Tesla T4 \(Turing").wait_for()
    assert page.get_by_role("link", name="Overview").is_visible()


def test_a_run_file_is_looked_at_added_and_listed(visitor: Watched, tmp_path: Path) -> None:
    path = build_run(tmp_path / "t4.jsonl", "t4", [cell(scale=10), cell(precision="fp16", scale=5)],
                     run_id="20261130-100000-0000beef")
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/data")
    heading(page, "Add run files").wait_for()
    page.locator('input[type="file"]').set_input_files(path)
    page.get_by_text("t4.jsonl: 1 run on Tesla T4, 2 cells (2 ok)").wait_for()
    page.get_by_role("button", name="Add 1 file").click()
    page.get_by_text(re.compile(r"t4\.jsonl, .* UTC, run 20261130-100000-0000beef$")).wait_for()
    page.get_by_role("link", name="Speedup").click()
    heading(page, "Speedup").wait_for()
    page.goto(f"{visitor.server.url}/gap?baseline=Tesla+T4&target=Tesla+T4&target_precision=fp16")
    heading(page, r"Tesla T4 in FP32 took 2\.00x as long as the Tesla T4 in FP16").wait_for()


def test_a_file_that_is_no_run_file_gets_one_sentence(visitor: Watched, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text('{"hello": "**world**"}\n')
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/data")
    heading(page, "Add run files").wait_for()
    page.locator('input[type="file"]').set_input_files(path)
    page.get_by_text("notes.jsonl is no run file").wait_for()
    assert page.get_by_role("button", name=re.compile(r"^Add \d")).count() == 0


def test_a_run_of_the_command_line_shows_on_the_open_page(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/data")
    heading(page, "Add run files").wait_for()
    before = heading(page, r"runs? with").inner_text()
    build_run(visitor.server.runs / "loose.jsonl", "a100-sxm4-40gb", run_id="20261130-110000-0000cafe")
    # Two seconds where the machine is not shared: a quarter for the ingester, one for the page to look.
    page.wait_for_function("before => !document.body.innerText.includes(before)", arg=before, timeout=6000)


def test_a_cpu_sweep_survives_reload_shows_in_a_second_tab_stops_and_resumes(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/sweep?device=CPU&resolution=32&frames=2&points=4")
    heading(page, "Sweep").wait_for()
    page.get_by_text(re.compile(r"5 cells on CPU, \d+ cores?: about")).wait_for()
    page.get_by_role("button", name="Start").click()
    heading(page, r"cells measured; (running|waiting)").wait_for()
    page.reload()  # in the middle: the run goes on, and the page finds it again
    heading(page, r"of 5 cells measured.*; running").wait_for()
    second = visitor.tab()
    second.goto(f"{visitor.server.url}/sweep")
    heading(page, r"[1-4] of 5 cells measured.*; running").wait_for(timeout=40_000)
    page.get_by_text(re.compile("per forward pass|^From ")).first.wait_for()
    page.get_by_role("button", name="Stop after this cell").click()
    heading(page, r"of 5 cells measured.*; stopped").wait_for(timeout=40_000)
    heading(second, r"of 5 cells measured.*; stopped").wait_for(timeout=5_000)
    (path,) = visitor.server.runs.glob("*/run.jsonl")
    before = cells_of(path)
    assert before
    second.get_by_role("button", name="Resume").click()
    heading(second, r"4 of 5 cells measured, 1 not possible on this device; done").wait_for(timeout=60_000)
    after = cells_of(path)
    assert [cell.workload for cell in after[: len(before)]] == [cell.workload for cell in before]
    assert len({cell.workload.key() for cell in after}) == len(after) == 5
    assert all(len(cell.wall_ms) >= 3 for cell in after if cell.status == "ok")
    assert {cell.status for cell in after} == {"ok", "unsupported"}


def cells_of(path: Path) -> list[Cell]:
    return [line.record for line in read_run_file(path).lines if isinstance(line.record, Cell)]


def test_measure_this_machine_starts_the_quick_sweep_and_shows_it(visitor: Watched) -> None:
    page = visitor.tab()
    page.goto(visitor.server.url)
    page.get_by_role("button", name="Measure this machine").click()
    heading(page, r"cells measured; (running|waiting)").wait_for()
    assert "/sweep" in page.url
    heading(page, r"of 5 cells measured.*; running: local4d:small").wait_for(timeout=30_000)
    page.wait_for_timeout(2_000)  # the page looks once a second, and no cell is measured yet
    assert page.get_by_text("could not be shown").count() == 0


def test_a_stored_run_can_be_taken_out_again(visitor: Watched, tmp_path: Path) -> None:
    path = build_run(visitor.server.runs / "t4.jsonl", "t4", run_id="20261130-100000-0000beef")
    page = visitor.tab()
    page.goto(f"{visitor.server.url}/data?run=20261130-100000-0000beef%2C+Tesla+T4")
    page.get_by_role("button", name="Run file", exact=True).wait_for()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Run file", exact=True).click()
    assert Path(waiting.value.path()).read_bytes() == path.read_bytes()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Cells as CSV").click()
    assert "20261130-100000-0000beef" in Path(waiting.value.path()).read_text()


def test_a_second_app_on_the_same_database_names_the_first(visitor: Watched) -> None:
    first = visitor.tab()
    first.goto(visitor.server.url)
    heading(first, "What is measured here").wait_for()
    other = Server(visitor.server.folder)
    try:
        other.start()
        page = visitor.tab()
        page.goto(other.url)
        heading(page, "Another app has the database").wait_for()
        assert visitor.server.process is not None
        page.get_by_text(re.compile(rf"held by the app \(process {visitor.server.process.pid}\)")).wait_for()
        assert page.get_by_test_id("stVegaLiteChart").count() == 0
        page.close()
    finally:
        if other.process is not None:
            other.process.terminate()
            other.process.wait(10)


def test_the_app_process_never_loads_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from streamlit.testing.v1 import AppTest\n"
        "app = AppTest.from_file('app.py', default_timeout=30).run()\n"
        "for name in ('speedup', 'gap', 'sweep', 'data', 'gpus', 'method'): app.switch_page(f'pages/{name}.py').run()\n"
        "assert not app.exception, app.exception\n"
        "assert 'torch' not in sys.modules\n"
    )
    environment = Server(tmp_path).environment
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
