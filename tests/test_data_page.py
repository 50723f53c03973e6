"""The Data page: cells out of it, files that wait, everything that was uploaded, text of strangers."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
from builders import build_run, cell, encode_run, records_of_run
from test_pages import OPEN, runs, said, two_gpus, visit  # noqa: F401

from core.answers.export import export, extent
from core.records import RunsFolder
from core.store import uploads
from pages.parts import stored
from pages.parts.show import plain

NAME = "![x](https://example.invalid/x.png) [y](https://example.invalid) <img src=x>.csv"


def opened(app: Any, key: str) -> Any:
    app.session_state[key] = True
    return app.run()


def test_a_selection_is_counted_and_comes_in_three_formats(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    two_gpus(runs)
    app = visit("Data")
    opened(app, "export")
    app.selectbox(key="export_gpu").select("t4").run()
    assert "2 cell lines of 1 runs on Tesla T4, 6 repetitions." in said(app)
    app.text_input(key="export_fields").input("precision=fp16").run()
    assert "1 cell lines of 1 runs on Tesla T4, 3 repetitions." in said(app)
    labels = [getattr(button, "label", "") for button in app.get("download_button")]
    assert labels[-3:] == ["Run-file lines", "CSV", "Parquet"]
    app.text_input(key="export_fields").input("colour=red").run()
    assert any("colour" in warning.value for warning in app.warning)
    assert not app.exception


def test_what_is_counted_is_what_comes_out(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    build_run(runs, "t4", [cell(), cell(status="oom", precision="fp16")], run_id="20261130-100000-0000000a")
    visit("Data")
    store = stored.store()
    found = extent(store, "t4")
    assert (found["cells"], found["failed"], found["runs"], found["repetitions"]) == (1, 1, 1, 3)
    table = pd.read_parquet(io.BytesIO(export(store, "t4", "parquet")))
    assert table["wall_ms"].tolist()[:3] == [10.0, 11.0, 12.0]
    assert (len(table), int(table["wall_ms"].isna().sum())) == (4, 1)
    rows = pd.read_csv(io.BytesIO(export(store, "t4", "csv")))
    assert rows["wall_ms"].tolist()[:3] == [10.0, 11.0, 12.0]


def test_a_half_written_file_of_the_runs_folder_is_listed_as_one_that_waits(
    visit: OPEN, runs: RunsFolder  # noqa: F811
) -> None:
    two_gpus(runs)
    data = encode_run("20261130-120000-0000000c", records_of_run("t4", [cell(), cell(precision="fp16")]))
    (runs.root / "copy.jsonl").write_bytes(data[:-40])
    app = opened(visit("Data"), "waiting")
    table = next(frame.value for frame in app.dataframe if "what it waits for" in frame.value.columns)
    assert table[["file", "what it waits for"]].to_numpy().tolist() == [["copy.jsonl", "its last line has no end"]]


def test_an_upload_beyond_the_tenth_can_still_be_undone(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    for number in range(12):
        data = encode_run(f"20261130-1300{number:02d}-0000000d", records_of_run("t4", [cell()]))
        uploads.accept(runs, data, f"{number}.jsonl", found=None)
    oldest = uploads.history(runs)[-1].upload_id
    app = visit("Data")
    assert not [button for button in app.button if button.key == f"undo_{oldest}"]
    opened(app, "older_uploads")
    app.button(key=f"undo_{oldest}").click().run()
    assert [record.active for record in uploads.history(runs)][-1] is False


def test_the_name_of_a_file_is_no_markdown_in_the_link_to_it(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    two_gpus(runs)
    app = visit("Data")
    app.session_state["added_runs"] = [(NAME, [("20261130-110000-0000000b", "H200")], "t4")]
    app.run()
    labels = [link.proto.label for link in app.get("page_link")]
    assert plain(f"See {NAME} (H200) against t4") in labels
