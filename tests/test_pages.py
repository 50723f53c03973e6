"""Every page in every state: the right sentence, and never a traceback. In-process, with a database of its own."""

from __future__ import annotations

import html
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import streamlit as st
from builders import build_run, cell
from streamlit.testing.v1 import AppTest

from core.errors import UserError
from core.gpus import set_added_cards
from core.records import RunsFolder
from core.store import open_app, queries, uploads
from core.store.lock import CannotWriteError
from pages.parts import machine, stored
from pages.parts.navigation import FOLDER, PAGES, page_info
from pages.parts.show import plain

ROOT = Path(__file__).resolve().parent.parent
OPEN = Callable[..., AppTest]
DOCTOR = [
    {"name": "torch", "status": "ok", "found": "torch 2.13", "why": "Trackers run in it.", "fix": "Nothing."},
    {"name": "driver", "status": "warn", "found": "no driver", "why": "No GPU without it.", "fix": "Install one."},
]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunsFolder]:
    """A runs folder without shipped data; the app's store is opened by the first page and closed after the test."""
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "results.duckdb"))
    monkeypatch.setenv("GAPSCOPE_RUNS", str(tmp_path / "runs"))
    reference = tmp_path / "reference"
    reference.mkdir()
    monkeypatch.setattr("core.store.store.reference_root", lambda: reference)
    monkeypatch.setattr("pages.parts.planned.gpus", list)
    monkeypatch.setattr("pages.parts.machine.doctor.checks", lambda **options: DOCTOR)
    monkeypatch.setattr("pages.parts.machine.START_AFTER_S", 0.0)
    st.cache_data.clear()
    st.cache_resource.clear()
    opened: list[Any] = []

    def remember(*arguments: Any, **options: Any) -> Any:
        opened.append(open_app(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(stored, "open_app", remember)
    yield RunsFolder(tmp_path / "runs")
    for store in opened:
        store.close()
    st.cache_data.clear()
    st.cache_resource.clear()
    set_added_cards(())


@pytest.fixture
def visit(runs: RunsFolder) -> OPEN:
    """Open a page by its name, with the query parameters of a link."""

    def open_page(name: str = "Overview", **query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
        if name != "Overview":
            app.switch_page(f"pages/{page_info(name).file.name}")
        app.run()
        if query:  # a page switch drops the parameters, so they come behind it
            app.query_params.update(query)
            app.run()
        assert not app.exception, app.exception
        assert not app.error, [error.value for error in app.error]
        return app

    return open_page


def said(app: AppTest) -> str:
    """All text of a page, as a visitor reads it."""
    parts = [element.proto.body for element in app.get("html")]
    for kind in ("markdown", "caption", "text", "info", "warning", "subheader", "metric", "button"):
        for element in getattr(app, kind, None) or app.get(kind):
            parts.append(f"{getattr(element, 'label', '')} {getattr(element, 'value', '')}")
    text = html.unescape(re.sub(r"<[^>]+>", " ", "\n".join(map(str, parts))))
    return re.sub(r"\\(?=[^\w\s])", "", text).replace("\u2009", " ")


def charts(app: AppTest) -> list[str]:
    return [element.proto.spec for element in app.get("vega_lite_chart")]


def wait_until(true: Callable[[], bool]) -> None:
    """The ingester takes a change in within a quarter of a second."""
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def two_gpus(runs: RunsFolder) -> None:
    """T4 fp32 110 ms and fp16 55 ms, H200 fp32 11 ms and tf32 5.5 ms: the same work."""
    build_run(runs, "t4", [cell(scale=10), cell(precision="fp16", scale=5)], run_id="20261130-100000-0000000a")
    build_run(runs, "h200-sxm-141gb", [cell(), cell(precision="tf32", scale=0.5)], run_id="20261130-110000-0000000b")


# --- navigation ------------------------------------------------------------------------------------------------------


def test_the_navigation_lists_exactly_the_files_in_pages() -> None:
    files = {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"}
    assert {page.file.name for page in PAGES} == files
    assert len({page.name for page in PAGES}) == len(PAGES)
    assert [page.section for page in PAGES] == sorted(
        (page.section for page in PAGES), key=["Results", "Measure", "Review", "Reference"].index
    )


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_an_empty_database_says_what_to_do_next(visit: OPEN, page: str) -> None:
    text = said(visit(page))
    assert page_info(page).question in text
    expected = {
        "Overview": "Nothing is measured yet",
        "Speedup": "Nothing is measured here yet",
        "Gap": "Nothing is measured here yet, so there is no gap to explain",
        "Predict": "there is nothing to predict from",
        "Sweep": "No sweep has run here yet",
        "Data": "No runs are stored yet",
        "GPUs": "bandwidth",
        "Method": "What is timed",
    }
    assert expected.get(page, "") in text


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_a_page_shows_two_gpus_without_an_exception(visit: OPEN, runs: RunsFolder, page: str) -> None:
    two_gpus(runs)
    app = visit(page)
    assert page_info(page).question in said(app)
    least = {"Overview": 2, "Speedup": 2, "Gap": 2, "Predict": 0, "Sweep": 2, "Data": 0, "GPUs": 2, "Method": 0}
    assert len(charts(app)) >= least.get(page, 0)


# --- results ---------------------------------------------------------------------------------------------------------


def test_the_overview_opens_on_the_founding_pair_and_follows_the_two_fields(visit: OPEN) -> None:
    app = visit()
    text = said(app)
    assert "The Tesla T4 took 170x as long as the A100 SXM4 40GB" in text
    assert "hardware alone does not explain it" in text
    assert {metric.label: metric.value for metric in app.metric} == {
        "Reported ratio": "170x",
        "Memory bandwidth": "4.86x",
        "FP32 arithmetic": "2.41x",
        "Largest healthy operation": "15.2x",
    }
    assert "170x lies outside: no healthy operation on these chips exceeds 15.2x" in charts(app)[0]
    app.text_input(key="baseline").set_value("RTX 3090=2.75s")
    app.text_input(key="target").set_value("RTX 4090=1.46s").run()
    assert "took 1.88x as long" in said(app)
    app.text_input(key="target").set_value("RTX 9999=1s").run()
    assert any("9999" in warning.value for warning in app.warning)
    assert not app.exception


def test_speedup_compares_gpus_on_the_same_work_and_names_the_baseline(visit: OPEN, runs: RunsFolder) -> None:
    two_gpus(runs)
    app = visit("Speedup")
    assert "The H200 SXM 141GB is 10.0x as fast as the Tesla T4; bandwidth says 15.0x, FP32 says" in said(app).replace(
        "FP32 arithmetic says", "FP32 says"
    )
    assert "times as fast as Tesla T4 (1x)" in charts(app)[0]
    app.selectbox(key="baseline").set_value("H200 SXM 141GB").run()
    assert "The Tesla T4 takes 10.0x as long as the H200 SXM 141GB" in said(app)


def test_speedup_opens_on_reported_pairs_until_two_gpu_types_share_a_work(
    visit: OPEN, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.store.store.reference_root", lambda: ROOT / "core" / "reference")
    build_run(runs, "t4", [cell(precision="bf16")])
    app = visit("Speedup", tracker="local4d:base")
    text = said(app)
    if app.segmented_control(key="origin").value == "reported":
        assert "reported by others, hollow" in charts(app)[0]
        assert "Two GPU types with the same work are not measured here yet" in text


def test_gap_explains_two_gpus_with_interval_stages_and_environment(visit: OPEN, runs: RunsFolder) -> None:
    two_gpus(runs)
    app = visit("Gap")
    assert "The Tesla T4 took 10.0x as long as the H200 SXM 141GB" in said(app)
    metrics = {metric.label: (metric.value, metric.delta) for metric in app.metric}
    assert metrics["Measured ratio"][0] == "10.0x"
    assert " to " in metrics["Measured ratio"][1]
    assert metrics["Memory bandwidth"][0] == "15.0x"
    assert "arithmetic units" in charts(app)[0]  # the factors come first
    assert "transformer" in charts(app)[2]


def test_gap_shows_the_first_causes_with_grade_fix_and_command(visit: OPEN, runs: RunsFolder) -> None:
    build_run(runs, "t4", [cell(90, alloc_retries=12)], run_id="20261130-100000-0000000a")
    build_run(runs, "h200-sxm-141gb", [cell(1)], run_id="20261130-110000-0000000b")
    app = visit("Gap")
    shown = said(app)
    assert "Observed" in shown
    assert "llocator retries" in shown
    assert "python -m core run --handicap none alloc_cap_gb=14 --tracker local4d:base" in shown


def test_gap_says_why_two_sides_cannot_be_compared(visit: OPEN, runs: RunsFolder) -> None:
    build_run(runs, "t4", [cell()], run_id="20261130-100000-0000000a")
    build_run(runs, "h200-sxm-141gb", [cell(work_changes={"frames": 24})], run_id="20261130-110000-0000000b")
    app = visit("Gap")
    app.selectbox(key="baseline").set_value("Tesla T4")
    app.selectbox(key="target").set_value("H200 SXM 141GB")
    app.selectbox(key="target_precision").set_value("fp32").run()
    assert "frames 47 against 24" in said(app)
    assert charts(app) == []


def test_a_card_that_nobody_knows_gets_no_theory_and_no_exception(visit: OPEN, runs: RunsFolder) -> None:
    build_run(runs, "unknown", [cell(scale=3)], run_id="20261130-100000-0000000a")
    build_run(runs, "cpu", [cell(scale=90, cuda=False)], run_id="20261130-110000-0000000b")
    for page in ("Overview", "Speedup", "Gap", "Data"):
        visit(page)


def test_a_size_without_memory_is_named_and_never_drawn_as_a_time(visit: OPEN, runs: RunsFolder) -> None:
    large = {"height": 512, "width": 512}
    build_run(
        runs,
        "t4",
        [cell(scale=10), cell(status="oom", reason="2 GiB asked", work_changes=large)],
        run_id="20261130-100000-0000000a",
    )
    build_run(runs, "h200-sxm-141gb", [cell(), cell(scale=4, work_changes=large)], run_id="20261130-110000-0000000b")
    app = visit("Speedup")
    app.selectbox(key="resolution").set_value("512x512").run()
    assert "Without a time: Tesla T4: oom (2 GiB asked)" in said(app)


# --- links and strange text ------------------------------------------------------------------------------------------


def test_a_bad_link_opens_the_nearest_view_and_says_what_was_dropped(visit: OPEN, runs: RunsFolder) -> None:
    two_gpus(runs)
    app = visit("Speedup", frames="46", precision="fp23", colour="blue")
    assert app.selectbox(key="frames").value == "47"
    assert app.selectbox(key="precision").value == "fp32"
    dropped = " ".join(info.value for info in app.info)
    assert all(word in dropped.replace("\\", "") for word in ("46", "fp23", "colour"))


def test_text_from_a_file_is_never_markdown_or_html(visit: OPEN, runs: RunsFolder) -> None:
    label = "**bold** <script>alert(1)</script> :material/home: $x$"
    build_run(runs, "t4", [cell(), cell(precision="fp16", status="failed", reason=label)], label=label, end="failed")
    for page in ("Overview", "Speedup", "Gap", "Sweep", "Data"):
        app = visit(page)
        bodies = [element.value for element in [*app.markdown, *app.caption, *app.warning, *app.info]]
        assert not any("**bold**" in body or "<script>" in body for body in bodies)
        assert not any("<script>" in element.proto.body for element in app.get("html"))


def test_plain_text_stays_letter_by_letter() -> None:
    assert plain("**a** _b_ :red[c] $d$") == r"\*\*a\*\* \_b\_ \:red\[c\] \$d\$"
    assert plain("one\ntwo") == "one two"


# --- sweep and data --------------------------------------------------------------------------------------------------


def test_the_sweep_form_becomes_the_options_of_the_runner(visit: OPEN) -> None:
    app = visit("Sweep")
    assert "No GPU driver is found on this machine" in said(app)
    assert re.search(r"5 cells on CPU, \d+ cores?: about", said(app))
    app.multiselect(key="precisions").set_value(["fp32", "fp16"])
    app.text_input(key="resolution").set_value("64, 32x64")
    app.text_input(key="frames").set_value("2").run()
    assert re.search(r"4 cells on CPU", said(app))
    app.text_input(key="resolution").set_value("65").run()
    assert any("65x65" in warning.value for warning in app.warning)


def test_start_runs_the_options_and_the_state_comes_from_files(
    visit: OPEN, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(argv: list[str], folder: RunsFolder) -> str:
        started.append(argv)
        build_run(folder, "cpu", [cell(cuda=False)], run_id="20261130-120000-0000000c", end=None)
        return "20261130-120000-0000000c"

    monkeypatch.setattr("core.store.jobs.start_sweep", start)
    app = visit("Sweep")
    app.button(key="start").click().run()
    assert started == [["--preset", "quick", "--device", "auto"]]
    assert "1 of 1 cells measured; ended without a word" in said(app)  # its process is no longer there
    assert "Resume" in said(app)
    assert "1 of 1 cells measured; ended without a word" in said(visit("Sweep")), "a new session reads the same state"


def test_a_sweep_without_a_cell_yet_is_shown(visit: OPEN, runs: RunsFolder) -> None:
    build_run(runs, "cpu", [], run_id="20261130-120000-0000000c", end=None)
    assert "0 cells measured; ended without a word" in said(visit("Sweep"))


def test_a_finished_sweep_leads_to_its_shipped_twin(visit: OPEN, runs: RunsFolder, tmp_path: Path) -> None:
    shipped, own = "20261130-110000-0000000a", "20261130-120000-0000000c"
    build_run(tmp_path / "reference" / "runs" / "cpu.jsonl.gz", "cpu", [cell(cuda=False)], run_id=shipped)
    build_run(runs, "cpu", [cell(2, cuda=False)], run_id=own)
    app = visit("Sweep")
    assert "Shipped twin: " in said(app)
    gap, speedup = app.get("page_link")
    assert (gap.proto.label, speedup.proto.label) == (
        "Explain it against its shipped twin",
        "See it beside the other devices",
    )
    sides = dict(parse_qsl(gap.proto.query_string))
    app = visit("Gap")
    assert sides == {
        "baseline": f"run {shipped} (Builder 3000)",
        "target": f"run {own} (Builder 3000)",
        "baseline_precision": "as measured",
        "target_precision": "as measured",
    }
    for key, value in sides.items():
        assert value in app.selectbox(key=key).options, "a link names what the page offers"


def test_a_run_file_is_previewed_before_it_counts(visit: OPEN, runs: RunsFolder, tmp_path: Path) -> None:
    data = build_run(tmp_path / "t4.jsonl", "t4", [cell()], run_id="20261130-130000-0000000d").read_bytes()
    app = visit("Data")
    app.file_uploader[0].upload("t4.jsonl", data, "application/json").run()
    assert "t4.jsonl: 1 run on Tesla T4, 1 cell (1 ok)" in said(app)
    assert not list((tmp_path / "runs").glob("uploads/*"))
    app.button(key="confirm").click().run()
    assert len(list((tmp_path / "runs" / "uploads").iterdir())) == 1
    app.run()
    assert "run 20261130-130000-0000000d" in said(app)
    assert not app.exception


def test_a_file_that_is_no_run_file_gets_one_sentence(visit: OPEN) -> None:
    app = visit("Data")
    app.file_uploader[0].upload("model.jsonl", b"\x80\x04pickle", "application/json").run()
    assert any("pickle" in warning.value for warning in app.warning)
    assert not app.exception


def test_a_deleted_run_leaves_the_pages_and_can_be_restored(visit: OPEN, runs: RunsFolder) -> None:
    two_gpus(runs)
    app = visit("Data")
    uploads.delete_run(runs, "20261130-100000-0000000a")
    wait_until(lambda: len(queries.runs(stored.store())) == 1)
    app.run()
    assert "1 run with 2 ok cell lines" in said(app)
    app.button(key="restore_20261130-100000-0000000a").click().run()
    wait_until(lambda: len(queries.runs(stored.store())) == 2)
    app.run()
    assert "2 runs with 4 ok cell lines" in said(app)


# --- around the pages ------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_shown_and_counts_once_a_person_says_why(visit: OPEN, runs: RunsFolder) -> None:
    build_run(runs, "t4", [cell(wall_ms=[10.0] * 5)], run_id="20261130-100000-0000000a")
    app = visit("Data")
    assert "1 item with 1 cell lines are kept out of answers" in said(app)
    app.text_input(key="quarantine_reason").set_value("the clock of this board ticks in whole milliseconds").run()
    app.button(key="release").click().run()
    wait_until(lambda: len(queries.cells(stored.store())) == 1)
    assert "Released: the clock of this board ticks in whole milliseconds" in said(app.run())
    next(button for button in app.button if button.label == "Hold back").click().run()
    wait_until(lambda: len(queries.cells(stored.store())) == 0)


def test_a_mixed_file_comes_in_only_when_its_good_lines_are_asked_for(visit: OPEN, runs: RunsFolder) -> None:
    elsewhere = RunsFolder(runs.root.parent / "elsewhere")
    path = build_run(elsewhere, "t4", [cell()], run_id="20261130-100000-0000000c")
    lines = path.read_bytes().splitlines(keepends=True)
    app = visit("Data")
    app.file_uploader[0].upload("t4.jsonl", b"".join([*lines, b"rubbish\n"]), "application/jsonl").run()
    assert "1 line cannot be read" in said(app)
    assert not [button for button in app.button if button.label.startswith("Add ")]
    app.checkbox[0].check().run()
    app.button(key="confirm").click().run()
    wait_until(lambda: len(queries.runs(stored.store())) == 1)


def test_the_gap_page_says_which_differences_of_two_runs_can_matter(visit: OPEN, runs: RunsFolder) -> None:
    two_gpus(runs)
    app = visit("Gap", baseline="t4", target="h200-sxm-141gb")
    app.session_state["environment"] = True
    app.run()
    assert not app.exception
    table = next(frame.value for frame in app.dataframe if "can it matter" in frame.value.columns)
    assert table["can it matter"].iloc[0] == "yes"
    row = table[table["what differs"] == "device name"].iloc[0]
    assert (row["baseline"], row["target"]) == ("Tesla T4", "NVIDIA H200")


def test_an_uploaded_run_is_set_beside_the_shipped_run_of_the_same_work(
    visit: OPEN, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = runs.root.parent / "reference" / "runs"
    shipped = build_run(RunsFolder(reference), "h200-sxm-141gb", [cell()], run_id="20261130-110000-0000000b")
    shipped.rename(reference / "h200.jsonl")
    build_run(runs, "t4", [cell(scale=10)], run_id="20261130-100000-0000000a")
    app = visit("Data", run="20261130-100000-0000000a")
    assert "10.0x as long" in said(app)
    assert "10.0x as long" not in said(visit("Data", run="20261130-110000-0000000b"))


def test_the_data_page_offers_the_collector_with_its_commands(visit: OPEN) -> None:
    app = visit("Data")
    assert not app.code
    app.session_state["collect"] = True
    app.run()
    assert any("collect.pyz --preset standard" in block.value for block in app.code)


def test_a_database_of_another_app_gives_one_page_that_names_it(visit: OPEN, monkeypatch: pytest.MonkeyPatch) -> None:
    held = UserError("results.duckdb is held by the app (process 4242)", "one app per database")
    monkeypatch.setattr(stored, "other_holder", lambda: held)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    assert "Another app has the database" in said(app)
    assert any("process 4242" in warning.value for warning in app.warning)
    assert charts(app) == []


def test_what_goes_wrong_in_a_page_is_one_sentence_and_a_log_entry(
    visit: OPEN, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> dict[str, Any]:
        raise RuntimeError("a secret detail")

    visit()
    monkeypatch.setattr(stored, "coverage", broken)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    assert app.error[0].value.replace("\\", "").startswith("This part of the page could not be shown (RuntimeError)")
    assert "secret" not in said(app) + app.error[0].value
    assert not app.exception
    assert any("a secret detail" in str(record.exc_info) for record in caplog.records)


def test_no_file_of_this_test_touches_the_real_database() -> None:
    assert not os.environ.get("GAPSCOPE_DB", "").startswith(str(ROOT))


# --- states ----------------------------------------------------------------------------------------------------------


def one_run(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(runs, "h200-sxm-141gb", [cell()])


def one_gpu(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages.parts.planned.gpus", lambda: ["NVIDIA H200"])


def failed_run(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(runs, "t4", [cell(status="failed", reason="cuDNN gave up")], end="failed")


def no_matching_work(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(runs, "t4", [cell()], run_id="20261130-100000-0000000a")
    build_run(runs, "h200-sxm-141gb", [cell(work_changes={"frames": 24})], run_id="20261130-110000-0000000b")


def job_running(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(runs, "cpu", [cell(cuda=False)], run_id="20261130-120000-0000000c", end=None)
    runs.write_runner("20261130-120000-0000000c", os.getpid())


def disk_full(runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise CannotWriteError("results.duckdb cannot be written (No space left on device)", "a folder with free space")

    monkeypatch.setattr(stored, "open_app", refuse)


# What pages say in each state. Every page is opened in every state; one that is not named says nothing of it.
SAYS: dict[Callable[..., None], dict[str, str]] = {
    one_run: {
        "Overview": "Runs local4d:small in five precisions on the CPU (no GPU driver is found here)",
        "Predict": "there is nothing to predict from",
        "Sweep": "1 of 1 cells measured; done",
        "Data": "1 run with 1 ok cell line",
        "GPUs": "Roofline",
    },
    one_gpu: {"Overview": "Runs local4d:small in five precisions on NVIDIA H200"},
    failed_run: {
        "Overview": "Nothing is measured yet",
        "Predict": "there is nothing to predict from",
        "Sweep": "Without a time: 1 failed",
    },
    no_matching_work: {"Data": "2 runs with 2 ok cell lines"},
    job_running: {"Sweep": "Stop after this cell"},
    disk_full: {},
}


@pytest.mark.parametrize("state", SAYS, ids=lambda value: value.__name__)
def test_every_page_tells_its_state_and_never_an_exception(
    visit: OPEN, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch, state: Callable[..., None]
) -> None:
    state(runs, monkeypatch)
    for page in PAGES:
        app = visit(page.name)
        assert page.question in said(app), page.name
        assert SAYS[state].get(page.name, "") in said(app), page.name
        if state is disk_full and page.name not in ("Method", "Sweep"):
            assert any("No space left on device" in warning.value for warning in app.warning), page.name


def test_a_sweep_that_cannot_start_says_so(visit: OPEN, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    app = visit("Sweep")
    monkeypatch.setattr(Path, "mkdir", full)
    app.button(key="start").click().run()
    monkeypatch.undo()
    assert any("the runs folder takes no new run" in warning.value for warning in app.warning)
    assert not app.exception


def test_failed_cells_are_named_with_their_reason_and_can_be_measured_again(
    visit: OPEN, runs: RunsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_run(
        runs,
        "t4",
        [
            cell(),
            cell(precision="fp16", status="failed", reason="cuDNN gave up"),
            cell(precision="bf16", status="oom", reason="2 GiB asked"),
        ],
        run_id="20261130-120000-0000000c",
    )
    resumed: list[str] = []
    monkeypatch.setattr("core.store.jobs.resume", lambda run_id, folder: resumed.append(run_id))
    app = visit("Sweep")
    assert "Without a time: 1 failed, 1 out of memory" in said(app) or "1 out of memory, 1 failed" in said(app)
    reasons = next(frame.value for frame in app.dataframe if "reason" in frame.value.columns)
    assert set(reasons["reason"]) == {"cuDNN gave up", "2 GiB asked"}
    assert app.button(key="again").label == "Measure 1 failed cell again"  # out of memory would end the same
    app.button(key="again").click().run()
    assert resumed == ["20261130-120000-0000000c"]


def test_execution_and_handicaps_become_options(visit: OPEN) -> None:
    app = visit("Sweep")
    app.session_state["plan"] = True
    app.selectbox(key="preset").set_value("founding")
    app.multiselect(key="execution").set_value(["compile"])
    app.text_input(key="own_handicap").set_value("host_cores=1").run()
    command = app.code[0].value
    assert "--preset founding" in command
    assert "--execution compile --handicap none host_cores=1" in command
    assert "host_cores=1: host limited to 1 core;" in app.multiselect(key="handicap").help


def test_official_trackers_are_shown_with_what_is_missing_and_never_take_a_path(visit: OPEN) -> None:
    app = visit("Sweep")
    app.session_state["official"] = True
    app.run()
    table = next(frame.value for frame in app.dataframe if "how to get it" in frame.value.columns)
    assert "git clone https://github.com/facebookresearch/co-tracker" in " ".join(table["how to get it"])
    assert not set(table["tracker"]) & set(app.multiselect(key="trackers").options)


# --- this machine, cards ---------------------------------------------------------------------------------------------


def test_the_doctor_answers_behind_the_first_picture(visit: OPEN) -> None:
    app = visit()
    wait_until(lambda: machine.check().found is not None)
    app.run()
    assert [box.label for box in app.expander if "driver" in box.label] == [
        "This machine has something to look at: warn: driver."
    ]


def test_a_card_is_added_used_and_taken_away_again(visit: OPEN, runs: RunsFolder) -> None:
    app = visit("GPUs")
    new = {
        "name": "RTX 9090",
        "compute_capability": "12.0",
        "memory_bandwidth_gb_s": "3200",
        "fp32_tflops": "81",
        "memory_gb": "48",
        "source": "a data sheet",
    }
    for field, value in new.items():
        app.text_input(key=f"new_{field}").set_value(value)
    next(button for button in app.button if button.label == "Add this card").click().run()
    assert "RTX 9090 (Blackwell (RTX), compute capability 12.0, 48 GB): 3 200 GB/s of bandwidth" in said(app)
    overview = visit()
    overview.text_input(key="baseline").set_value("Tesla T4=10s")
    overview.text_input(key="target").set_value("RTX 9090=1s").run()
    assert "took 10.0x as long as the RTX 9090. Bandwidth says 10.0x" in said(overview)
    app.button(key="remove").click().run()
    assert "RTX 9090" not in app.selectbox(key="gpu").options
    next(button for button in app.button if button.label == "Add this card").click().run()
    assert any("name is empty" in warning.value for warning in app.warning)


def test_the_method_page_lists_its_parts(visit: OPEN) -> None:
    app = visit("Method")
    contents = next(element.value for element in app.markdown if element.value.startswith("- ["))
    assert "[What is timed](#what-is-timed)" in contents
    assert "[Verdict](#verdict)" in contents
