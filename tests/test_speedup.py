"""The Speedup page: what its bars may stand for, its details, its prices, its link. Numbers can be checked by hand."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import build_run, cell
from test_pages import OPEN, charts, runs, said, two_gpus, visit  # noqa: F401

from core.answers.floors import floors
from core.answers.ladder import ladder
from core.answers.samples import samples
from core.answers.selection import Filters
from core.answers.value import prices, set_price, value
from core.charts import floors as floor_charts
from core.charts import ladder as ladder_charts
from core.charts import samples as sample_charts
from core.charts import theme
from core.charts import value as value_charts
from core.charts.tables import cells as cells_tables
from core.charts.tables import one_device
from core.charts.tables import speedup as tables
from core.errors import UserError
from core.records import RunsFolder, Telemetry
from core.store import Store, open_files, queries
from pages.parts import view

FP32 = Filters(precision=("fp32",))


def stored(tmp_path: Path, *runs_of: Any) -> Store:
    """A database in memory of these runs, given as (gpu, cells) or (gpu, cells, options)."""
    paths = []
    for place, (gpu, cells, *more) in enumerate(runs_of):
        run_id = f"20261130-1{place}0000-0000000{place}"
        paths.append(build_run(tmp_path / f"{place}.jsonl", gpu, cells, run_id=run_id, **(more[0] if more else {})))
    return open_files(paths)


# --- answers ---------------------------------------------------------------------------------------------------------


def test_energy_counts_only_where_the_counter_was_valid(tmp_path: Path) -> None:
    store = stored(
        tmp_path,
        ("t4", [cell(scale=10, energy_j=8.0, energy_valid=True), cell(scale=10, process=1, energy_j=9.0,
                                                                     energy_valid=False)]),
        ("h200-sxm-141gb", [cell(energy_j=4.0, energy_valid=False)]),
        ("a100-sxm4-40gb", [cell()]),
    )
    found = value(store, ["t4", "h200-sxm-141gb", "a100-sxm4-40gb", "l4"], FP32, {"t4": 0.36})
    t4, h200, a100 = found["rows"]
    assert (t4["energy_j"], t4["clips_per_joule"], t4["median_ms"]) == (8.0, 0.125, 110.0)
    assert t4["power_w"] == pytest.approx(8.0 / 0.11)
    assert t4["cost_per_1000"] == pytest.approx(0.36 / 3600 * 0.11 * 1000)
    assert h200["energy_j"] is None
    assert h200["energy_missing"] == "timed too shortly for the board's energy counter"
    assert a100["energy_missing"] == "no reading of an energy counter"
    assert h200["cost_per_1000"] is None, "no price is shipped"
    assert found["headline"] == (
        "The Tesla T4 takes the least energy: 8.00 J per clip; The Tesla T4 is the cheapest: 0.0110 for 1000 clips."
    )


def test_the_newest_price_counts_and_an_empty_one_takes_it_back(tmp_path: Path) -> None:
    folder = RunsFolder(tmp_path)
    set_price(folder, "t4", 0.4)
    set_price(folder, "t4", 0.35)
    set_price(folder, "l4", 0.7)
    set_price(folder, "l4", None)
    assert prices(folder) == {"t4": 0.35}
    with pytest.raises(UserError, match="a price of -1 per hour"):
        set_price(folder, "t4", -1.0)


def test_samples_come_with_their_flags_and_the_median_without_them(tmp_path: Path) -> None:
    hot = Telemetry((1590.0, 1590.0, 900.0), (5000.0,) * 3, (60.0,) * 3, (50.0, 60.0, 85.0), (0, 0, 0x40))
    store = stored(tmp_path, ("t4", [cell(wall_ms=(100.0, 100.0, 160.0), telemetry=hot)]))
    found = samples(store, "t4", FP32)
    assert (found["n"], found["flagged"], found["median_ms"], found["median_without_ms"]) == (3, 1, 100.0, 100.0)
    assert list(found["samples"]["flag"].notna()) == [False, False, True]
    assert "1 throttled of 3 samples" in found["headline"]


def test_the_ladder_stays_on_one_board_and_multiplies_its_single_rungs(tmp_path: Path) -> None:
    few = {"handicap": "sm_count=40"}
    store = stored(
        tmp_path,
        ("h200-sxm-141gb", [
            cell(precision="tf32"), cell(scale=2), cell(scale=3, precision="tf32", setting_changes=few),
            cell(scale=8, setting_changes=few),
        ]),
        ("h200-sxm-141gb", [cell(scale=50, precision="bf16")], {"board": "another"}),
    )
    found = ladder(store, "20261130-100000-00000000")
    told = {tuple(rung["words"]): round(rung["ratio"]["value"], 6) for rung in found["rungs"]}
    assert told == {(): 1.0, ("FP32",): 2.0, ("40 of 132 SMs",): 3.0, ("FP32", "40 of 132 SMs"): 8.0}
    assert found["alone"] == pytest.approx(6.0)
    assert found["headline"] == (
        "FP32 and 40 of 132 SMs together take 8.00x as long; its parts alone multiply to 6.00x"
    )


def test_a_board_with_one_setting_has_no_ladder(tmp_path: Path) -> None:
    found = ladder(stored(tmp_path, ("t4", [cell()])), "t4")
    assert len(found["rungs"]) == 1
    assert found["headline"] == "This board measured this work in one setting only."


def test_floors_stand_beside_stages_and_a_cpu_has_none(tmp_path: Path) -> None:
    store = stored(tmp_path, ("t4", [cell(scale=10)]), ("cpu", [cell(cuda=False)]))
    found = floors(store, "t4", FP32)
    rows = {row["name"]: row for row in found["rows"]}
    assert found["what"] == "stages"
    assert rows["transformer"]["measured_ms"] == pytest.approx(44.0)
    assert rows["transformer"]["share"] == pytest.approx(0.4)
    # 400 bytes at 320 GB/s take longer than 4000 flops at 8.1 TFLOP/s.
    assert rows["transformer"]["bound_by"] == "bandwidth"
    assert rows["transformer"]["floor_ms"] == pytest.approx(400 / 320e9 * 1e3)
    assert floors(store, "cpu", FP32)["rows"] == []


# --- tables ----------------------------------------------------------------------------------------------------------


def cells_of(store: Store) -> pd.DataFrame:
    return cells_tables.by_cell(queries.cells(store))


def test_groups_are_what_is_compared_slowest_first(tmp_path: Path) -> None:
    store = stored(
        tmp_path,
        ("t4", [cell(scale=10)]),
        ("h200-sxm-141gb", [cell(), cell(scale=0.5, precision="tf32")]),
        ("h200-sxm-141gb", [cell(scale=2)], {"board": "second"}),
    )
    found = cells_of(store)
    assert list(tables.comparable_groups(found, "GPU")["selection"]) == ["t4", "h200-sxm-141gb"]
    boards = tables.comparable_groups(found[found["precision"] == "fp32"], "board")
    assert list(boards["gpu_label"]) == ["Tesla T4", "H200 SXM 141GB", "H200 SXM 141GB"]
    assert boards["selection"].str.contains(",board=").all()
    assert boards["name"].is_unique
    own = found[found["gpu_label"] == "H200 SXM 141GB"]
    assert list(tables.comparable_groups(own, "precision")["selection"]) == [
        "h200-sxm-141gb,precision=fp32", "h200-sxm-141gb,precision=tf32",
    ]  # fmt: skip
    assert list(tables.comparable_groups(own, "software")["name"]) == ["torch 2.13.0"]


def test_another_revision_is_not_the_same_work_and_is_named(tmp_path: Path) -> None:
    store = stored(
        tmp_path, ("t4", [cell(scale=10)]), ("h200-sxm-141gb", [cell()]),
        ("a100-sxm4-40gb", [cell(work_changes={"revision": "2"})]),
    )  # fmt: skip
    found = cells_of(store)
    work = {name: cells_tables.works(found).iloc[0][name] for name in cells_tables.WORK_FIELDS}
    work["kin"] = cells_tables.main_kin(found, work)
    assert set(cells_tables.of_work(found, work)["gpu_label"]) == {"Tesla T4", "H200 SXM 141GB"}
    assert tables.left_out_words(found, work).startswith("Not the same work, and so left out: A100 SXM4 40GB")


def test_what_a_card_only_emulates_is_grey_and_never_the_fastest(tmp_path: Path) -> None:
    path = {"emulated_bf16": True}
    store = stored(tmp_path, ("t4", [cell(scale=10), cell(precision="bf16", execution_path=path)]))
    found = cells_of(store)
    work = {name: cells_tables.works(found).iloc[0][name] for name in cells_tables.WORK_FIELDS}
    grid = tables.heat_cells(found, found.head(0), work, "Tesla T4", "fp32")
    assert dict(zip(grid["precision"], grid["reason"].fillna(""), strict=True)) == {"fp32": "", "bf16": "emulated"}
    assert tables.heat_finding(grid) == "fp32 on the Tesla T4 is fastest: 1.00x"


def curve(sizes: list[float], times: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"size": sizes, "median_ms": times, "series": "x", "status": "ok"})


def test_the_power_of_a_curve_is_fitted_from_three_sizes_and_a_knee_is_found() -> None:
    assert tables.exponent(curve([100.0, 200.0, 400.0], [1.0, 4.0, 16.0])) == pytest.approx(2.0)
    assert tables.exponent(curve([100.0, 200.0], [1.0, 4.0])) is None
    bent = curve([100.0, 200.0, 400.0], [1.0, 2.0, 32.0])
    assert tables.steepening(bent) == 200.0
    assert tables.steepening(curve([100.0, 200.0, 400.0], [1.0, 4.0, 16.0])) is None
    assert tables.size_finding(bent, "frames") == (
        "From 100 to 400 frames the time grows 32.0x (x), steeper from 200 on"
    )


def test_theory_that_points_the_other_way_is_said_in_words() -> None:
    rows = pd.DataFrame({"label": ["bf16", "fp32"], "ratio": [0.5, 1.0]})
    theory = pd.DataFrame([("bf16", "compute", "BF16 arithmetic 8.00x", 8.0)],
                          columns=["label", "kind", "name", "ratio"])  # fmt: skip
    assert tables.speedup_finding(rows, theory, "fp32", "precision", "NVIDIA L4") == (
        "On the L4 bf16 takes 2.00x as long as fp32; BF16 arithmetic says 8.00x as fast"
    )


def test_drift_stands_beside_the_speed_of_each_precision(tmp_path: Path) -> None:
    drift = {"median_px": 0.005, "p95_px": 0.014, "visibility_agreement": 0.998}
    store = stored(tmp_path, ("h200-sxm-141gb", [cell(), cell(scale=0.5, precision="tf32", drift=drift)]))
    rows = tables.drift_rows(cells_of(store), "H200 SXM 141GB")
    assert list(rows["time"]) == ["0.0050 / 0.014 px", "the reference"]
    assert tables.drift_finding(rows) == "tf32 is 2.00x as fast as fp32 and moves the median point by 0.0050 px"
    assert tables.drift_rows(cells_of(store), "Tesla T4").empty


# --- charts ----------------------------------------------------------------------------------------------------------


def drawn(chart: Any) -> str:
    converter = pytest.importorskip("vl_convert")
    spec = theme.spec(chart)
    spec["width"] = 900
    json.dumps(spec, allow_nan=False)
    return str(converter.vegalite_to_svg(spec, vl_version="6.4")).replace("\u2009", " ").replace("&#x2009;", " ")


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_details_draw_with_their_numbers_as_text(tmp_path: Path, mode: theme.Mode) -> None:
    few = {"handicap": "sm_count=40"}
    store = stored(tmp_path, ("h200-sxm-141gb", [
        cell(precision="tf32", energy_j=4.0, energy_valid=True), cell(scale=2),
        cell(scale=3, precision="tf32", setting_changes=few), cell(scale=8, setting_changes=few),
    ]))  # fmt: skip
    tf32 = Filters(precision=("tf32",))
    strip = samples(store, "h200-sxm-141gb", tf32)
    svg = drawn(sample_charts.sample_strip(strip["samples"], strip["gpu_key"], 11.0, "Finding", "c", mode))
    assert all(text in svg for text in ("10.0 ms to 12.0 ms", "1 500 MHz", "60.0 W", "temperature"))
    rungs = ladder(store, "h200-sxm-141gb")
    base = one_device.ladder_base(rungs)
    chart = ladder_charts.ladder_bars(one_device.ladder_rungs(rungs), None, base, 6.0, "Finding", "c", mode)
    assert all(text in drawn(chart) for text in ("FP32 + 40 of 132 SMs", "8.00x", "median time"))
    points = floors(store, "h200-sxm-141gb", tf32)
    chart = floor_charts.floor_scatter(one_device.floor_rows(points), "stages", "Finding", "c", mode)
    assert all(text in drawn(chart) for text in ("transformer", "bandwidth"))
    worth = value(store, ["h200-sxm-141gb"], tf32, {})
    svg = drawn(value_charts.amount_bars(one_device.energy_rows(worth), "joules", "Finding", "c", mode))
    assert "4.00 J" in svg
    svg = drawn(value_charts.amount_bars(one_device.money_rows(worth), "money", "Finding", "c", mode))
    assert "no price typed in" in svg


def test_flagged_samples_are_always_drawn() -> None:
    many = pd.DataFrame({"flag": [None] * 5000})
    many.loc[4321, "flag"] = "thermal"
    kept = sample_charts.thinned(many)
    assert len(kept) <= 1201
    assert 4322 in set(kept["at"])


# --- the page --------------------------------------------------------------------------------------------------------


def test_bars_may_stand_for_precisions_of_one_gpu(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    two_gpus(runs)
    app = visit("Speedup")
    app.selectbox(key="by").set_value("precision").run()
    assert "On the H200 SXM 141GB tf32 is 2.00x as fast as fp32; TF32 arithmetic says 7.38x" in said(app)
    assert "times as fast as fp32 (1x)" in charts(app)[0]


def test_unequal_works_get_times_and_no_ratio(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    build_run(runs, "t4", [cell(scale=10)], run_id="20261130-100000-0000000a")
    build_run(runs, "h200-sxm-141gb", [cell(), cell(scale=4, work_changes={"frames": 96})],
              run_id="20261130-110000-0000000b")  # fmt: skip
    app = visit("Speedup")
    app.toggle(key="equal").set_value(False).run()
    assert "Different works side by side: absolute times only" in said(app)
    assert "96 frames" in charts(app)[0]
    assert "times as fast as" not in charts(app)[0]


def test_the_largest_common_size_is_one_button_away(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    large = {"frames": 96}
    for place, gpu in enumerate(("t4", "h200-sxm-141gb")):
        build_run(runs, gpu, [cell(scale=2 - place), cell(scale=4 - place, work_changes=large)],
                  run_id=f"20261130-1{place}0000-0000000a")  # fmt: skip
    app = visit("Speedup")
    assert app.selectbox(key="frames").value == "47", "the founding size comes first"
    app.button(key="largest").click().run()
    assert app.selectbox(key="frames").value == "96"
    assert "1.33x as fast" in said(app)


@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("samples", "H200 SXM 141GB: None of 3 samples is flagged"),
        ("theory", "The stages drawn take"),
        ("ladder", "FP32 takes 2.00x as long"),
        ("drift", "how far its points move was not recorded"),
        ("value", "No energy is known"),
    ],
)
def test_a_detail_is_made_when_it_is_chosen_and_lives_in_the_link(
    visit: OPEN, runs: RunsFolder, detail: str, told: str  # noqa: F811
) -> None:
    two_gpus(runs)
    app = visit("Speedup")
    assert len(charts(app)) == 2
    app.segmented_control(key="detail").set_value(detail).run()
    assert told in charts(app)[-1]
    assert not app.error


def test_a_price_that_is_typed_in_stays(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    two_gpus(runs)
    app = visit("Speedup")
    app.segmented_control(key="detail").set_value("value").run()
    app.number_input(key="price_t4").set_value(0.36).run()
    assert "Tesla T4: 0.0110" in charts(app)[-1]
    assert prices(runs) == {"t4": 0.36}
    again = visit("Speedup")
    again.segmented_control(key="detail").set_value("value").run()
    assert again.number_input(key="price_t4").value == 0.36


def test_the_link_spells_out_every_choice_and_says_who_can_open_it(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    two_gpus(runs)
    app = visit("Speedup")
    app.selectbox(key="baseline").set_value("H200 SXM 141GB").run()
    assert app.session_state[view._SHOWN]["baseline"] == ["H200 SXM 141GB"]
    assert {"origin", "by", "tracker", "resolution", "frames", "points", "batch", "precision", "execution", "equal",
            "baseline", "target"} <= set(app.session_state[view._SHOWN])  # fmt: skip


def test_a_link_with_a_broken_switch_opens_and_says_so(visit: OPEN, runs: RunsFolder) -> None:  # noqa: F811
    two_gpus(runs)
    app = visit("Speedup", equal="perhaps", detail="Nothing of the kind", by="by colour")
    dropped = " ".join(info.value for info in app.info).replace("\\", "")
    assert all(word in dropped for word in ("perhaps", "Nothing of the kind", "by colour"))
    assert app.toggle(key="equal").value is True
