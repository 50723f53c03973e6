"""The visual language holds, and every chart says what its table says."""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from core import units
from core.answers import sentences
from core.answers.two import explain_two
from core.charts import gap, gpus, overview, parts, speedup, theme
from core.charts.tables import cards as cards_tables
from core.charts.tables import cells as cells_tables
from core.charts.tables import gap as gap_tables
from core.charts.tables import reported as reported_tables
from core.charts.tables import speedup as speedup_tables
from core.charts.tables import sweep as sweep_tables
from core.charts.theme import TOKENS, contrast, gpu_colour
from core.gpus import catalogue

ROOT = Path(__file__).resolve().parent.parent
MODES: tuple[theme.Mode, theme.Mode] = ("light", "dark")
LONG_NAME = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
FOUNDING = explain_two("Tesla T4=85s", "NVIDIA A100-SXM4-40GB=0.5s", precision="fp32")


# --- the theme -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_text_has_contrast_4_5_and_marks_have_3(mode: theme.Mode) -> None:
    tokens = TOKENS[mode]
    for back in (tokens.background, tokens.surface):
        for ink in (tokens.text, tokens.muted, *(style.colour(mode) for style in theme.VERDICTS.values())):
            assert contrast(ink, back) >= 4.5, (ink, back)
    marks = [gpu_colour(key, mode) for key in [*catalogue(), "cpu", None, "no-such-card"]]
    marks += [theme.stage_colour(name, mode) for name in [*theme.STAGE_COLOURS, "something else"]]
    assert min(contrast(mark, tokens.background) for mark in marks) >= 3


def test_a_card_keeps_its_colour_and_a_family_its_hue() -> None:
    assert gpu_colour("t4", "light") == gpu_colour("t4", "light") != gpu_colour("t4", "dark")
    hopper = {gpu_colour(key, "light") for key in ("h100-sxm5-80gb", "h200-sxm-141gb", "h20")}
    assert len(hopper) == 3
    assert all(colour[1:3] < colour[5:7] for colour in hopper)  # blue: less red than blue
    assert gpu_colour("cpu", "light") == "#2B333B"
    assert gpu_colour("no-such-card", "light") == gpu_colour(None, "light")
    families = [theme.family_of(gpu.architecture) for gpu in catalogue().values()]
    assert "unknown" not in families


def test_the_app_theme_has_the_tokens_of_the_charts() -> None:
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    for mode in MODES:
        section, tokens = config["theme"][mode], TOKENS[mode]
        assert section["backgroundColor"] == tokens.background
        assert section["secondaryBackgroundColor"] == tokens.surface
        assert section["textColor"] == tokens.text
        assert section["primaryColor"] == tokens.accent
        badges = {style.badge: style.colour(mode) for style in theme.VERDICTS.values()}
        assert {name: section[f"{name}Color"] for name in badges} == badges
    assert config["server"] == {
        "address": "127.0.0.1",
        "allowedHosts": ["localhost", "127.0.0.1"],
        "maxUploadSize": 50,
        "showEmailPrompt": False,
    }


def test_every_verdict_has_a_word_an_icon_and_no_other_verdicts_colour_and_word() -> None:
    from core.analysis.verdict import VERDICTS

    assert set(theme.VERDICTS) == set(VERDICTS)
    assert len({style.word for style in theme.VERDICTS.values()}) == len(VERDICTS)
    words = {verdict: sentences.capital(word) for verdict, word in sentences.VERDICT_WORDS.items()}
    assert {verdict: style.word for verdict, style in theme.VERDICTS.items()} == words
    assert theme.verdict_style(None) is theme.VERDICTS["undecided"]


def test_labels_of_one_row_never_cover_each_other() -> None:
    positions, texts = [0.30, 0.31, 0.33, 0.60, 0.62, 0.95], ["bandwidth 4.86x"] * 6
    rows = theme.label_rows(positions, texts, 600)
    spans = [
        (row, p * 600, p * 600 + 15 * theme.CHARACTER_WIDTH)
        if p <= 0.5
        else (row, p * 600 - 15 * theme.CHARACTER_WIDTH, p * 600)
        for row, p in zip(rows, positions, strict=True)
    ]
    for (row, start, end), (other_row, other_start, other_end) in itertools.combinations(spans, 2):
        assert row != other_row or end <= other_start or other_end <= start
    assert rows[1] < rows[0], "the outer line ends below the label of the inner one"


def test_a_title_is_broken_for_narrow_charts_and_loses_no_word() -> None:
    words = "170x lies outside: no healthy operation on these chips exceeds 15.2x"
    chart = theme.finish(overview_chart("light"), "light", theme.title(words, "50 282 operations " * 8))
    title = theme.spec(chart)["title"]
    for part, expected in (("text", words), ("subtitle", ("50 282 operations " * 8).strip())):
        lists = [json.loads(f"[{piece.split(']')[0]}]") for piece in title[part]["expr"].split("[")[1:] if '"' in piece]
        assert len(lists) > 2
        assert all(" ".join(lines) == expected for lines in lists)
        assert max(map(len, lists[-1])) < 50
    assert theme.plain_title(chart)[0] == words


def test_names_lose_their_noise_but_stay_whole_in_lines() -> None:
    assert theme.short_name("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz") == "Intel Xeon Platinum 8481C"
    assert theme.short_name("NVIDIA GeForce RTX 4090") == "RTX 4090"
    assert theme.short_name("CPU") == "CPU"
    lines = parts.name_lines(LONG_NAME)
    assert " ".join(lines) == "RTX PRO 6000 Blackwell Max-Q Workstation"
    assert max(map(len, lines)) <= parts.NAME_CHARACTERS


def test_ticks_are_round_and_inside_and_a_single_value_has_an_axis() -> None:
    assert parts.log_ticks([0.9, 250]) == [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
    assert parts.log_ticks([0.5, 30000]) == [1.0, 10.0, 100.0, 1000.0, 10000.0]
    low, high = parts.domain_with_room([7.0])
    assert low < 7.0 < high
    assert parts.is_wide([1, 31])
    assert not parts.is_wide([1, 29])


# --- every chart -----------------------------------------------------------------------------------------------------


def bars_frame() -> pd.DataFrame:
    return pd.DataFrame(
        [
            ("H200 SXM 141GB", "h200-sxm-141gb", 12.0, 11.0, 13.0, "41.1 ms", "measured", "n 150"),
            (LONG_NAME, "rtx-pro-6000-blackwell-maxq", 2.0, 1.9, 2.1, "250 ms", "measured", "n 30"),
            ("Tesla T4", "t4", 1.0, None, None, "500 ms", "measured", "the baseline"),
            ("GeForce GTX 1080 Ti", "gtx-1080-ti", 0.5, 0.4, 0.6, "1.00 s", "measured", "n 5"),
            ("L4", "l4", 170.0, None, None, "2.9 ms", "reported", "n 1"),
        ],
        columns=["label", "gpu_key", "ratio", "low", "high", "time", "origin", "detail"],
    )


def theory_frame() -> pd.DataFrame:
    return pd.DataFrame(
        [
            ("H200 SXM 141GB", "bandwidth", "bandwidth 15.0x", 15.0),
            ("H200 SXM 141GB", "compute", "FP32 arithmetic 8.27x", 8.27),
        ],
        columns=["label", "kind", "name", "ratio"],
    )


def times_frame(factor: float = 1.0) -> pd.DataFrame:
    return pd.DataFrame(
        [
            ("fp32", "h200-sxm-141gb", 40.0 * factor, 39.0 * factor, 42.0 * factor, "measured", "n 30"),
            ("fp16", "h200-sxm-141gb", 20.0, 19.5, 21.0, "measured", "n 30"),
        ],
        columns=["label", "gpu_key", "median_ms", "low_ms", "high_ms", "origin", "detail"],
    )


def heat_frame() -> pd.DataFrame:
    return pd.DataFrame(
        [
            ("T4", "fp32", 1.0, "500 ms", None),
            ("T4", "tf32", None, None, "unsupported"),
            (LONG_NAME, "fp16", 9.0, "55 ms", None),
        ],
        columns=["label", "precision", "ratio", "time", "reason"],
    )


def curve_frame() -> pd.DataFrame:
    rows = [
        (f"{p}", "h200-sxm-141gb", p, size, (size / 256) ** 2 * t, None, None, "ok", "n 30")
        for p, t in (("fp32", 40.0), ("tf32", 39.0))
        for size in (256, 512)
    ]
    rows.append(("fp32", "h200-sxm-141gb", "fp32", 1024, None, None, None, "oom", "out of memory"))
    return pd.DataFrame(
        rows, columns=["series", "gpu_key", "precision", "size", "median_ms", "low_ms", "high_ms", "status", "detail"]
    )


def stage_frame(factor: float) -> pd.DataFrame:
    return pd.DataFrame(
        [("encoder", 8.0 * factor, 4.0, 2.0 * factor), ("cost_volume", 2.0, 1.0, 2.0), ("other", 1.0, None, None)],
        columns=["name", "baseline_ms", "target_ms", "ratio"],
    )


def overview_chart(mode: theme.Mode) -> Any:
    cells = pd.DataFrame(
        [
            ("H200", "h200-sxm-141gb", "local4d:base · 47 frames · 256x256 · 256 points", 5, 5, "measured"),
            ("CPU", "cpu", "local4d:small · 8 frames · 128x128 · 32 points", 4, 4, "measured"),
        ],
        columns=["label", "gpu_key", "workload", "cells", "precisions", "origin"],
    )
    return overview.coverage_map(cells, "One GPU and one CPU", "numbers count cells", mode)


def norm_chart(mode: theme.Mode) -> Any:
    return gap.norm_strip(
        gap_tables.norm_bins(FOUNDING),
        gap_tables.norm_values(FOUNDING),
        gap_tables.theory_lines(FOUNDING),
        170.0,
        "beyond_hardware",
        gap_tables.norm_finding(FOUNDING),
        gap_tables.norm_conditions(FOUNDING),
        mode,
    )


def ceilings_chart(mode: theme.Mode) -> Any:
    rows = pd.DataFrame(
        [("bandwidth, read", 0.79, "3 780 GB/s", "measured"), ("FP8, gemm", 1.08, "1 453 TFLOPS", "reported")],
        columns=["name", "share", "value", "origin"],
    )
    return gpus.ceiling_chart(rows, "h200-sxm-141gb", "The H200 reached 79 %", "by others", mode)


ROOFS = [
    {"source": "data sheet", "bandwidth_gb_s": 4800.0, "peak_tflops": 67.0},
    {"source": "measured", "bandwidth_gb_s": 4000.0, "peak_tflops": 55.0},
]


def roofline_chart(mode: theme.Mode) -> Any:
    points = pd.DataFrame(
        [
            ("stage", "cost_volume", "cost_volume", 3.5, 2.1, 0.1, "said"),
            ("operation", "conv2d", "encoder", 538.0, 29.9, 0.1, "said"),
        ],
        columns=["kind", "name", "stage", "intensity", "tflops", "share", "said"],
    )
    return gpus.roofline_chart(points, ROOFS, "The encoder reaches 42 %", "47 frames", mode)


def working_set_chart(mode: theme.Mode) -> Any:
    rows = pd.DataFrame(
        [("copy_by_size", 2**20, 6000.0), ("copy_by_size", 2**30, 4000.0), ("read_by_size", 2**30, 4100.0)],
        columns=["metric", "working_set_bytes", "value"],
    )
    return gpus.working_set_curve(rows, "h200-sxm-141gb", 50 * 2**20, 4800.0, "The H200 copies", "here", mode)


FACTORS = {
    "factors": [
        {"name": name, "ratio": ratio, "low": None, "high": None, "evidence": "observed", "basis": "test"}
        for name, ratio in (("compute", 8.0), ("clocks", 0.5), ("memory", 1.0))
    ],
    "residual": 3.0,
    "residual_interval": {"low": 2.9, "high": 3.1},
    "modelled_by": "operations",
    "not_assessed": [{"name": "cache", "reason": "not measured"}],
}
"""8 x 0.5 x 1 x 3 = 12: memory stands in a line of its own."""


LOST = {
    "op_diff": [
        {"op": name, "shapes": None, "stage": "encoder", "lost_ms": lost_ms}
        for name, lost_ms in (("aten::conv2d", 8.0), ("aten::add", -2.0), ("(rest)", None))
    ],
    "explained_ms": {"lost_ms": 6.0, "by_roofline_ms": 1.0, "by_norm_ms": 0.0, "unexplained_ms": 5.0},
}


CHARTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "norm_strip": (norm_chart, ("this gap 170x", "bandwidth 4.86x", "FP32 2.41x", "median 2.48x", "never above 15.2x")),
    "norm_strip_without_norm": (
        lambda mode: gap.norm_strip(
            pd.DataFrame(columns=["low", "high", "share"]),
            {},
            gap_tables.theory_lines(FOUNDING),
            5.0,
            "as_expected",
            "No operations are timed on these chips",
            "",
            mode,
        ),
        ("this gap 5.00x",),
    ),
    "speedup_bars": (
        lambda mode: speedup.speedup_bars(
            bars_frame(), theory_frame(), "Tesla T4", "The H200 is 12.0x as fast", "n", mode
        ),
        ("12.0x (11.0x to 13.0x)", "170x", "0.50x (0.40x to 0.60x)", "41.1 ms", "bandwidth 15.0x"),
    ),
    "time_bars": (lambda mode: speedup.time_bars(times_frame(), "From 20 to 40 ms", "n", mode), ("40.0 ms", "20.0 ms")),
    "time_points": (lambda mode: speedup.time_bars(times_frame(50), "Wide", "n", mode), ("2.00 s", "0.0200 s")),
    "heat_map": (
        lambda mode: speedup.heat_map(heat_frame(), "fp16 is fastest", "n", mode),
        ("9.00x", "unsupported", "not measured"),
    ),
    "size_curve": (
        lambda mode: speedup.size_curve(curve_frame(), "pixels", "Twice costs 4x", "n", mode),
        ("fp32", "tf32", "oom"),
    ),
    "theory_chart": (
        lambda mode: gap.theory_chart(
            gap_tables.theory_rows(FOUNDING),
            170.0,
            160.0,
            180.0,
            "beyond_hardware",
            gap_tables.theory_finding(FOUNDING),
            "c",
            mode,
        ),
        ("measured 170x", "4.86x", "2.41x", "6.28x", "as expected"),
    ),
    "factor_waterfall": (
        lambda mode: gap.factor_waterfall(
            gap_tables.factor_steps(FACTORS),
            12.0,
            "beyond_hardware",
            gap_tables.factor_finding(FACTORS),
            gap_tables.factor_conditions(FACTORS),
            mode,
        ),
        ("arithmetic units", "8.00x", "0.50x", "not explained", "3.00x", "measured 12.0x"),
    ),
    "lost_time": (
        lambda mode: gap.lost_time(
            gap_tables.op_steps(LOST), gap_tables.op_finding(LOST), gap_tables.explained_note(LOST), mode
        ),
        ("conv2d", "8.00 ms", "add", "-2.00 ms"),
    ),
    "stage_bars": (
        lambda mode: gap.stage_chart(stage_frame(1), "T4", "A100", "The encoder", "c", mode),
        ("8.00 ms", "4.00 ms", "2.00x", "cost volume"),
    ),
    "stage_points": (
        lambda mode: gap.stage_chart(stage_frame(100), "T4", "A100", "The encoder", "c", mode),
        ("800 ms", "200x"),
    ),
    "coverage_map": (overview_chart, ("local4d:base", "256x256", "5")),
    "ceiling_chart": (ceilings_chart, ("79 %  (3 780 GB/s)", "data sheet")),
    "roofline_chart": (roofline_chart, ("cost volume", "67.0 TFLOP/s, data sheet", "4 000 GB/s, measured")),
    "working_set_curve": (working_set_chart, ("copy", "read", "L2, 50.0 MiB", "memory, data sheet: 4 800 GB/s")),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_draws_in_both_modes_with_its_numbers_as_text(name: str, mode: theme.Mode) -> None:
    converter = pytest.importorskip("vl_convert")
    make, texts = CHARTS[name]
    chart = make(mode)
    finding, _ = theme.plain_title(chart)
    assert len(finding) > 3
    spec = theme.spec(chart)
    spec["width"] = 900
    assert sum(len(part.get("data", {}).get("values", ())) for part in spec.get("layer", [spec])) <= 5000
    assert not spec.get("datasets"), "small tables travel inside the chart"
    json.dumps(spec, allow_nan=False)  # a browser reads no NaN
    svg = converter.vegalite_to_svg(spec, vl_version="6.4").replace("\u2009", " ").replace("&#x2009;", " ")
    for text in texts:
        assert f">{text.replace('  ', ' ')}<" in svg.replace("  ", " "), text
    assert TOKENS[mode].background in svg


def test_a_reported_bar_is_hollow_and_a_measured_one_is_filled() -> None:
    spec = speedup.speedup_bars(bars_frame(), theory_frame(), "T4", "f", "c", "light").to_dict()
    rows = next(rows for rows in spec["datasets"].values() if "hollow" in rows[0] and "ratio" in rows[0])
    assert {row["label"]: row["hollow"] for row in rows}["L4"] is True
    assert sum(row["hollow"] for row in rows) == 1
    assert spec["layer"][0]["encoding"]["fillOpacity"]["condition"] == {"test": "datum.hollow", "value": 0.0}


def test_more_rows_than_a_chart_holds_are_counted_in_its_subtitle() -> None:
    many = pd.concat([bars_frame().assign(label=[f"{name} {i}" for name in bars_frame()["label"]]) for i in range(3)])
    _, conditions = theme.plain_title(speedup.speedup_bars(many, theory_frame(), "T4", "f", "c", "light"))
    assert conditions == "c; 6 more in the table"


def test_a_label_moves_behind_the_line_that_it_would_cover() -> None:
    domain = [1.0, 100.0]
    assert parts.end_labels([2.0], ["2.00x"], [[]], domain) == [2.0]
    assert parts.end_labels([2.0], ["2.00x"], [[2.2, 50.0]], domain) == [2.2]


# --- tables and findings ---------------------------------------------------------------------------------------------


def test_the_founding_pair_is_told_by_its_norm() -> None:
    assert gap_tables.norm_finding(FOUNDING) == "170x lies outside: no healthy operation on these chips exceeds 15.2x"
    inside = explain_two("Tesla T4=5s", "NVIDIA A100-SXM4-40GB=2s", precision="fp32")
    assert gap_tables.norm_finding(inside) == "2.50x lies where healthy operations on these chips lie"
    assert "no healthy operations are timed" in gap_tables.norm_finding(
        explain_two("L4=5s", "L40=2s", precision="fp16")
    )
    assert gap_tables.theory_finding(FOUNDING) == "Measured 170x, hardware says 2.41x to 4.86x: beyond hardware"
    assert math.isclose(gap_tables.norm_bins(FOUNDING)["share"].sum(), 1.0)


def test_equal_theory_readings_are_one_line_and_those_outside_the_verdict_say_so() -> None:
    lines = gap_tables.theory_lines(FOUNDING, all_readings=True)
    assert list(lines["name"]) == ["bandwidth", "FP32", "conv TF32, TF32"]
    rows = gap_tables.theory_rows(FOUNDING)
    assert list(rows["name"]) == [
        "FP32, data sheet",
        "bandwidth, data sheet",
        "bandwidth, measured",
        "conv TF32, TF32, if it was on",
    ]
    assert list(rows["judged"]) == [True, True, False, False]


def cell_lines() -> pd.DataFrame:
    """T4 fp32 500 ms in two processes, H200 fp32 50 ms and fp16 25 ms, all at the founding size; H200 at 512 pixels."""
    rows = [
        ("run-a", 1, 0, "Tesla T4", "t4", "cuda", "fp32", 256, 500.0),
        ("run-a", 2, 1, "Tesla T4", "t4", "cuda", "fp32", 256, 520.0),
        ("run-b", 1, 0, "H200 SXM 141GB", "h200-sxm-141gb", "cuda", "fp32", 256, 50.0),
        ("run-b", 2, 0, "H200 SXM 141GB", "h200-sxm-141gb", "cuda", "fp16", 256, 25.0),
        ("run-b", 3, 0, "H200 SXM 141GB", "h200-sxm-141gb", "cuda", "fp32", 512, 200.0),
    ]
    frame = pd.DataFrame(
        rows,
        columns=[
            "run_id",
            "seq",
            "process",
            "gpu_label",
            "gpu_key",
            "device_type",
            "precision",
            "height",
            "wall_median_ms",
        ],
    )
    return frame.assign(
        width=frame["height"],
        frames=47,
        points=pd.array([256] * 5, "Int64"),
        batch=1,
        tracker="local4d",
        variant="base",
        implementation="builtin",
        status="ok",
        reason=None,
        n=10,
        origin="measured",
        started_at="2026-11-30T10:00:00Z", at=None,
        uuid_hash=frame["gpu_key"],
        wall_p5_ms=frame["wall_median_ms"] * 0.9,
        wall_p95_ms=frame["wall_median_ms"] * 1.1,
        peak_bytes=None,
        work_key="w" + frame["height"].astype(str),
        setting_key=frame["precision"],
        torch="2.13.0",
    )


def test_lines_of_several_processes_are_one_cell() -> None:
    cells = cells_tables.by_cell(cell_lines())
    first = cells.iloc[0]
    assert len(cells) == 4
    assert (first["median_ms"], first["processes"], first["repetitions"]) == (510.0, 2, 20)
    assert (first["low_ms"], round(first["high_ms"], 6)) == (450.0, 572.0)
    assert first["detail"] == "n 20 in 2 processes"


def test_cells_are_named_by_what_differs() -> None:
    lines = cell_lines()
    assert list(cells_tables.cell_names(lines[lines["gpu_key"] == "t4"])) == ["fp32", "fp32"]
    h200 = lines[lines["gpu_key"] != "t4"]
    assert list(cells_tables.cell_names(h200)) == ["fp32, 256x256", "fp16, 256x256", "fp32, 512x512"]
    assert cells_tables.common_words(h200) == "local4d:base, 47 frames, 256 points"


def test_pages_open_on_the_work_that_most_gpu_types_share() -> None:
    works = cells_tables.works(cell_lines())
    assert list(works["cards"]) == [2, 1]
    assert works.iloc[0]["height"] == 256
    sides = gap_tables.opening_sides(cell_lines())
    assert sides["baseline"] == ("Tesla T4", "t4")
    assert sides["target"] == ("H200 SXM 141GB", "h200-sxm-141gb")
    alone = cell_lines()[cell_lines()["gpu_key"] != "t4"]
    sides = gap_tables.opening_sides(alone)
    assert sides["baseline"] == sides["target"]
    assert (sides["baseline_precision"], sides["target_precision"]) == ("fp32", "fp16")


def test_the_heat_map_takes_ratios_of_medians_and_says_why_a_cell_is_empty() -> None:
    lines = cell_lines()
    work = {"selector": "local4d:base", "frames": 47, "height": 256, "width": 256, "points": 256}
    failed = lines.head(1).assign(status="unsupported", precision="bf16")
    grid = speedup_tables.heat_cells(lines, failed, work, "Tesla T4", "fp32")
    values = {(row["label"], row["precision"]): row for row in grid.to_dict("records")}
    assert values["Tesla T4", "fp32"]["ratio"] == 1.0
    assert values["H200 SXM 141GB", "fp16"]["ratio"] == 510 / 25
    assert values["Tesla T4", "bf16"]["reason"] == "unsupported"
    assert list(dict.fromkeys(grid["label"])) == ["H200 SXM 141GB", "Tesla T4"], "fastest first"
    assert speedup_tables.heat_finding(grid) == "fp16 on the H200 SXM 141GB is fastest: 20.4x"


def test_only_ordered_axes_with_two_sizes_are_offered_and_the_growth_is_told() -> None:
    lines = cell_lines()
    work = {"selector": "local4d:base", "frames": 47, "height": 256, "width": 256, "points": 256}
    assert speedup_tables.size_axes(lines, work) == {"resolution": 2}
    points = speedup_tables.size_points(lines, lines.head(0), work, "resolution", "fp32")
    assert set(points["series"]) == {"H200 SXM 141GB"}
    assert speedup_tables.size_finding(points, "resolution") == (
        "From 256 to 512 pixels a side the time grows 4.00x (H200 SXM 141GB)"
    )


def test_a_slower_device_is_told_in_the_direction_that_people_read() -> None:
    rows = pd.DataFrame([("H200", 1.0), ("CPU", 0.02)], columns=["label", "ratio"])
    none = pd.DataFrame(columns=["label", "kind", "name", "ratio"])
    assert speedup_tables.speedup_finding(rows, none, "H200") == "The CPU takes 50.0x as long as the H200"
    faster = pd.DataFrame([("H200", 12.0), ("T4", 1.0)], columns=["label", "ratio"])
    theory = pd.DataFrame([("H200", "bandwidth", "bandwidth 15.0x", 15.0)], columns=["label", "kind", "name", "ratio"])
    assert (
        speedup_tables.speedup_finding(faster, theory, "T4")
        == "The H200 is 12.0x as fast as the T4; bandwidth says 15.0x"
    )


def test_reported_pairs_join_cards_of_one_source_and_work_only() -> None:
    rows = pd.DataFrame(
        [
            ("TAPNext", None, "H100", "h100-sxm5-80gb", None, 0.005, "page"),
            ("TAPNext", None, "V100", "v100-sxm2-16gb", None, 0.015, "page"),
            ("TAPNext", None, "T4", "t4", None, 0.1, "another page"),
            ("TAPNext", None, "laptop CPU", "cpu", None, 9.0, "page"),
        ],
        columns=["tracker", "variant", "gpu_text", "gpu_key", "precision", "seconds", "source"],
    ).assign(frames=1, height=pd.NA, width=pd.NA, points_text="256", batch=1, throughput_unit="ms/frame")
    pairs = reported_tables.reported_pairs(rows, explain_two)
    assert [pair["measured_ratio"]["value"] for pair in pairs] == [3.0]
    bars, lines = reported_tables.reported_rows(pairs)
    assert bars["label"].iloc[0] == "H100 SXM5 80GB / Tesla V100 SXM2 16GB\nTAPNext, 256 points"
    assert bars["origin"].iloc[0] == "reported"
    assert set(lines["kind"]) == {"bandwidth", "compute"}


def test_a_running_cell_is_told_in_words() -> None:
    started = {
        "work": {"tracker": "local4d", "variant": "small", "frames": 8, "height": 128, "width": 128, "points": 32},
        "setting": {"precision": "fp16"},
    }
    assert sweep_tables.workload_words(started) == "local4d:small, 8 frames, 128x128, 32 points, fp16"
    assert (
        sweep_tables.command(["--preset", "quick", "--label=a b"]) == "python -m core run --preset quick '--label=a b'"
    )


def test_facts_of_the_environment_have_units_and_three_digits() -> None:
    rows = [
        {"name": "power_w while timed", "baseline": 474.9435, "target": 407.04200000000003, "differs": True},
        {"name": "cudnn", "baseline": 91900, "target": None, "differs": None},
    ]
    assert gap_tables.environment_table({"environment": rows}).to_numpy().tolist() == [
        ["power while timed, W", "475", "407", "yes"],
        ["cudnn", "91900", units.MISSING, "not recorded"],
    ]


def test_ceilings_are_shares_of_the_figure_they_belong_to() -> None:
    card = {
        "name": "X",
        "values": [{"field": "memory_bandwidth_gb_s", "value": 320.0}],
        "peaks": [{"precision": "fp16", "value": 65.0}],
        "measured_ceilings": [
            {
                "metric": "dram_bandwidth_copy",
                "precision": "bytes",
                "value": 240.0,
                "unit": "GB/s",
                "tool": "a",
                "source": "s",
                "note": "",
            },
            {
                "metric": "gemm_tflops_burst",
                "precision": "fp16 (fp32 accumulate)",
                "value": 26.0,
                "unit": "TFLOPS",
                "tool": "a",
                "source": "s",
                "note": "",
            },
            {
                "metric": "gemm_tflops_burst",
                "precision": "fp8 e4m3",
                "value": 9.0,
                "unit": "TFLOPS",
                "tool": "a",
                "source": "s",
                "note": "",
            },
        ],
    }
    rows = cards_tables.ceiling_rows(card)
    assert list(rows["name"]) == ["bandwidth, copy", "FP16, gemm burst", "FP8, gemm burst"]
    assert rows["share"].iloc[0] == 0.75
    assert rows["share"].iloc[1] == 0.4
    assert math.isnan(rows["share"].iloc[2]), "no printed figure, no share"
    assert list(rows["value"]) == ["240 GB/s", "26.0 TFLOP/s", "9.00 TFLOP/s"]
    assert cards_tables.ceiling_finding(card, rows) == (
        "The X reached 75 % of its printed bandwidth and 40 % of its printed arithmetic peak at best"
    )


def test_the_steps_of_the_factors_end_at_the_measured_ratio() -> None:
    steps = gap_tables.factor_steps(FACTORS)
    assert list(steps["name"]) == ["arithmetic units", "clocks", "not explained"]
    assert list(steps["start"]) == [1.0, 8.0, 4.0]
    assert steps["end"].iloc[-1] == pytest.approx(12)
    assert gap_tables.factor_finding(FACTORS) == "Largest factor: arithmetic units, 8.00x; 3.00x is not explained"
    assert "1x: memory stalls" in gap_tables.factor_conditions(FACTORS)
    assert "not assessed: L2 cache" in gap_tables.factor_conditions(FACTORS)
    assert list(gap_tables.factor_table(FACTORS)["ratio"])[-1] == "not assessed"


def test_lost_time_steps_from_zero_to_the_whole_difference() -> None:
    steps = gap_tables.op_steps(LOST)
    assert list(steps["end_ms"]) == [8.0, 6.0]
    assert gap_tables.op_finding(LOST) == "conv2d loses 8.00 ms"  # more than the whole
    assert gap_tables.explained_note(LOST) == (
        "Of 6.00 ms difference in kernel time 1.00 ms by the roofline and 5.00 ms by neither."
    )
