"""The report: figures of the page and of `explain --json`, in one file without script or network; text stays text."""
from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

from core import units
from core.answers import review
from core.answers.explain import explain
from core.answers.review import Question
from core.charts import theme
from core.cli.main import main
from core.errors import UserError
from core.records import RunsFolder
from core.reports import html as html_module
from core.reports.html import html_report
from core.reports.markdown import code, markdown_report, plain
from core.reports.sections import of_answers, of_item, report_of
from core.reports.svg import drawn, inline
from core.store import Store, open_reading
from core.store.pins import Words
from tests.builders import build_run, cell

T4, H200 = "20261130-100000-00000001", "20261130-100000-00000002"
EVIL = "<script>alert(1)</script> **bold** [x](http://evil.example) | `tick` <img src=x onerror=alert(1)> @you"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsFolder:
    """A T4 that is four times slower than an H200, its run's label hostile; no shipped data."""
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "results.duckdb"))
    monkeypatch.setenv("GAPSCOPE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "reference").mkdir()
    monkeypatch.setattr("core.store.store.reference_root", lambda: tmp_path / "reference")
    folder = RunsFolder(tmp_path / "runs")
    build_run(folder, "t4", [cell(4), cell(9, work_changes={"frames": 24})], run_id=T4, label=EVIL)
    build_run(folder, "h200-sxm-141gb", [cell(1), cell(1, work_changes={"frames": 24})], run_id=H200)
    return folder


@pytest.fixture
def store(runs: RunsFolder) -> Iterator[Store]:
    with open_reading() as opened:
        yield opened


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are drawn for real in one test only."""
    monkeypatch.setattr(html_module, "drawn", lambda specs: ["<svg/>"] * len(specs))


def words_of(page: bytes) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", page.decode()))


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_s_figures_are_those_of_explain_json(
    runs: RunsFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = ["--baseline", "t4", "--target", "h200"]
    assert main(["explain", *sides, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    out = tmp_path / "report.html"
    assert main(["report", *sides, "--out", str(out)]) == 0
    assert main(["report", *sides, "--out", str(tmp_path / "report.md")]) == 0
    page = out.read_bytes()
    assert len(page) < 3_000_000
    ratio = answer["measured_ratio"]
    for said in (words_of(page), (tmp_path / "report.md").read_text().replace("\\", "")):
        for figure in (
            answer["headline"], units.ratio(ratio["value"]), units.ratio_interval(ratio["low"], ratio["high"]),
            units.ratio(answer["residual"]), units.time_ms(answer["baseline"]["median_ms"]),
            *(units.ratio(factor["ratio"]) for factor in answer["factors"]),
            *(units.ratio(reading["ratio"]) for reading in answer["expected"]["readings"]),
            *(units.ratio(stage["ratio"]) for stage in answer["stages"]),
            *(units.ratio(other["ratio"]) for other in answer["other_cells"]),
            *(finding["command"] for finding in answer["findings"]),
        ):
            assert figure in said, figure


def test_the_page_needs_no_script_and_no_network(store: Store) -> None:
    page = html_report(report_of([of_answers([explain(store, "t4", "h200")])])).decode()
    assert page.count("<svg") == 3
    assert "Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert not re.search(r"<script|<link|<img|<iframe|<object|@import|\ssrc=|\son\w+=", page)
    addresses = set(re.findall(r'(?:href|url\()="?([^">)]+)', page))
    assert all(address.startswith("#") for address in addresses), addresses
    assert re.findall(r"https?://[^\"' <]+", page).count("http://www.w3.org/2000/svg") == len(
        re.findall(r"https?://", page))


def test_the_title_of_a_drawn_chart_has_its_room() -> None:
    """Vega gives a title its room once; lines that depend on a width known later would stand outside the drawing."""
    rows = pd.DataFrame({"x": [1.0], "name": ["kernels chosen"]})
    conditions = ("150 characters: two lines at the width of a report, one at the width that the plot seems to have "
                  "before its labels are placed").ljust(150, ".")
    chart = theme.finish(alt.Chart(rows).mark_bar().encode(x="x:Q", y="name:N"), "light",
                         theme.title("A finding", conditions), height=40, names=list(rows["name"]))
    svg = drawn([theme.spec(chart)])[0]
    root = float(re.search(r'translate\([-\d.]+,([-\d.]+)\)', svg)[1])  # type: ignore[index]
    title = float(re.search(r'role-title"><g transform="translate\([-\d.]+,([-\d.]+)\)', svg)[1])  # type: ignore[index]
    assert root + title >= 0
    assert "Title text 'A finding" in svg


def test_pins_become_a_report_with_then_and_now(
    runs: RunsFolder, tmp_path: Path, fast: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_reading() as store:
        pin = review.pin_view(store, runs, "Gap", [], Question("explain", ("t4", "h200")), Words("Buy?", "by May"))
    build_run(runs, "t4", [cell(8)], run_id="20261201-100000-00000003", started_at="2026-12-01T10:00:00Z")
    assert main(["report", "--pins", "open", "--out", str(tmp_path / "a.html")]) == 0
    said = words_of((tmp_path / "a.html").read_bytes())
    for text in ("Buy?", "by May", "Status: open", "measured ratio 4.00x, now 8.00x"):
        assert text in said
    assert main(["report", "--pins", pin.id, "--out", str(tmp_path / "b.md")]) == 0
    assert main(["report", "--pins", "done", "--out", str(tmp_path / "c.md")]) == 2
    assert main(["report", "--pins", "nosuch", "--out", str(tmp_path / "d.md")]) == 2
    assert "no pin 'nosuch'" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "told"), [
    (["--baseline", "t4"], "needs two sides"), (["--pins", "all", "--target", "t4"], "together"),
    (["--baseline", "t4", "--target", "h200", "--out", "report.html"], "exists already"),
])
def test_mistakes_are_one_line(
    runs: RunsFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    options: list[str], told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.html").write_text("mine")
    given = options if "--out" in options else [*options, "--out", "new.html"]
    assert main(["report", *given]) == 2
    assert told in capsys.readouterr().err
    assert Path("report.html").read_text() == "mine"


# --- text of other people --------------------------------------------------------------------------------------------


def hostile(store: Store, runs: RunsFolder) -> bytes:
    question = Question("explain", (T4, "h200"))
    review.pin_view(store, runs, "Gap", [], question, Words(EVIL[:200], EVIL, EVIL[:100], command=EVIL))
    item = review.agenda(store, runs)[0]
    told = review.then_and_now(store, item.pin)
    for answer in (*told["then"], *told["now"]):
        answer["baseline"]["label"] = answer["baseline"]["gpu"] = EVIL
        answer["headline"] = answer["conditions"] = EVIL
        answer["assumptions"] = [EVIL]
        answer["stages"][0]["name"] = EVIL
        answer["workload"]["tracker"] = answer["workload"]["words"] = EVIL
        for other in answer["other_cells"]:
            other["workload"] = EVIL
        answer["findings"] = [{**finding, "detail": EVIL, "command": EVIL} for finding in answer["findings"]]
    section = of_item(item, told)
    report = report_of([section, section], title=EVIL)
    return html_report(report) + b"\n<!--SPLIT-->\n" + markdown_report(report)


def test_no_text_becomes_html_or_markdown(store: Store, runs: RunsFolder) -> None:
    page, _, copy = hostile(store, runs).decode().partition("\n<!--SPLIT-->\n")
    assert not re.search(r"<script|<img|<b>bold|\sonerror=alert\(1\)>$", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; **bold**" in page  # as text, also inside the drawn charts
    ElementTree.fromstring(re.sub(r"<!doctype html>|<meta[^>]+>|<br>", "", re.sub(
        r"<(p|th|figure)\s(class|scope|role)=([a-z]+)", r'<\1 \2="\3"', page)).replace("<ul class=causes>", "<ul>"))
    spoken = re.sub(r"(`+).+?\1", "", copy.replace("\\`", ""))  # code spans show everything as it is
    for mark in ("<script", "<img", "**bold", "[x](", "http://", " @you"):
        assert mark not in spoken.replace("@<!-- -->", "(at)"), mark


@pytest.mark.parametrize(("text", "shown"), [
    ("a\nb", "a b"), ("# x", r"\# x"), ("1. x", r"1\. x"), ("- x", r"\- x"), ("16.3x", "16.3x"), ("---", r"--\-"),
    ("a|b", r"a\|b"), ("<b>", r"&lt;b\>"), ("https://x.y", "https:\\//x.y"), ("@you", "@<!-- -->you"),
    ("~~x~~", r"\~\~x\~\~"),
])
def test_markdown_shows_text_letter_by_letter(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_code_span_holds_its_own_fence() -> None:
    assert code("run") == "`run`"
    assert code("a `b`` c") == "``` a `b`` c ```"


# --- drawing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["<script>x</script>", "<foreignObject/>", '<g onclick="x"/>', '<path href="x"/>'])
def test_a_drawing_with_more_than_drawing_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match="a drawing with"):
        inline(f'<svg xmlns="http://www.w3.org/2000/svg">{part}</svg>', "a")


def test_ids_of_two_drawings_stay_apart() -> None:
    one = '<svg xmlns="http://www.w3.org/2000/svg"><clipPath id="c"/><g clip-path="url(#c)"/></svg>'
    assert 'id="a-c"' in inline(one, "a")
    assert 'clip-path="url(#a-c)"' in inline(one, "a")


def test_a_chart_that_cannot_be_drawn_is_one_sentence() -> None:
    with pytest.raises(UserError, match="could not be drawn"):
        drawn([{"mark": 3}])


def test_a_report_that_is_too_large_is_refused(store: Store, fast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_module, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="choose fewer pins"):
        html_report(report_of([of_answers([explain(store, "t4", "h200")])]))


def test_an_empty_report_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to report"):
        report_of([])
