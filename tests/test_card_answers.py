"""What stored runs say about one card: ceilings as shares of the data sheet, and points under its roofline."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from builders import build_run, cell, op

from core.answers.card import own_ceilings, roof_tflops, roofline_points
from core.charts.tables import cards as tables
from core.gpus import catalogue
from core.gpus.claims import claims
from core.records import Ceiling
from core.store import Store, open_files

CEILINGS = [
    Ceiling("copy", 240.0, "GB/s", samples=(240.0,), clock_mhz=1500.0),
    Ceiling("gemm", 4.05, "TFLOPS", precision="fp32", samples=(4.05,)),
    Ceiling("gemm", 2.0, "TFLOPS", precision="bf16", samples=(2.0,), limited_by="emulation"),
    Ceiling("launch_floor", 6.0, "us", samples=(6.0,)),
    *(Ceiling("copy_by_size", value, "GB/s", samples=(value,), working_set_bytes=size)
      for size, value in ((2**20, 600.0), (2**24, 250.0), (2**30, 240.0))),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    # 4 ops of 1 ms each: 1e9 flops, 1e6 bytes: 1000 FLOP per byte at 1 TFLOP/s
    path = build_run(tmp_path / "t4.jsonl", "t4", [cell(ops=(op(), op("aten::relu", flops=0)))], ceilings=CEILINGS)
    with open_files([path]) as opened:
        yield opened


def test_own_ceilings_are_shares_of_the_figure_that_they_belong_to(store: Store) -> None:
    answer = own_ceilings(store, "t4")
    shares = {(row["metric"], row["precision"]): row["share"] for row in answer["rows"]}
    assert shares == {
        ("copy", None): pytest.approx(0.75),  # of 320
        ("gemm", "fp32"): pytest.approx(0.5),  # of 8.1
        ("gemm", "bf16"): None,  # emulated: no ceiling of the hardware
        ("launch_floor", None): None,
    }
    assert answer["headline"] == "Measured here, the Tesla T4 reached 75 % of the bandwidth on its data sheet and " \
                                 "50 % of the FP32 peak."
    assert [point["working_set_bytes"] for point in answer["by_size"]] == [2**20, 2**24, 2**30]
    assert (answer["boards"], answer["l2_bytes"]) == (1, 4 * 2**20)
    assert own_ceilings(store, "h200-sxm-141gb")["rows"] == []


def test_the_working_set_says_what_the_cache_is_worth(store: Store) -> None:
    answer = own_ceilings(store, "t4")
    said = tables.working_set_finding("Tesla T4", tables.working_set_rows(answer), answer["l2_bytes"])
    assert said == "The Tesla T4 copies up to 600 GB/s while the data fit into its L2 cache (4.00 MiB), and 240 GB/s " \
                   "from memory"
    flat = pd.DataFrame({"metric": ["copy_by_size"] * 2, "working_set_bytes": [1, 2], "value": [240.0, 239.0]})
    assert "no working set is much faster" in tables.working_set_finding("Tesla T4", flat, None)


def test_points_stand_where_their_work_and_time_put_them(store: Store) -> None:
    answer = roofline_points(store, "20261130-100000-00000001", 10)
    operations = [point for point in answer["points"] if point["kind"] == "operation"]
    assert [(p["name"], p["intensity"], p["tflops"], p["share"]) for p in operations] == [("conv2d", 1000.0, 1.0, 0.5)]
    assert operations[0]["roof_share"] == pytest.approx(1 / 8.1)
    stages = {point["name"]: point for point in answer["points"] if point["kind"] == "stage"}
    assert stages["transformer"]["intensity"] == 10.0  # 100 flops and 10 bytes per percent
    assert answer["left_out"] == 1  # relu computes no product
    assert [(roof["source"], roof["bandwidth_gb_s"], roof["peak_tflops"]) for roof in answer["roofs"]] == [
        ("data sheet", 320.0, 8.1), ("measured", 240.0, 4.05),
    ]
    assert answer["headline"].startswith("The transformer takes 40 % of the time and reaches ")


def test_a_roof_is_bandwidth_up_to_the_knee_and_the_peak_behind_it() -> None:
    roof = {"bandwidth_gb_s": 320.0, "peak_tflops": 8.0}
    assert roof_tflops(roof, 10.0) == 3.2
    assert roof_tflops(roof, 25.0) == roof_tflops(roof, 250.0) == 8.0


def test_the_chart_has_one_bar_a_metric_and_tells_origins_apart(store: Store) -> None:
    public = pd.DataFrame({"name": ["bandwidth, read"], "share": [0.7], "value": ["224 GB/s"]})
    both = tables.both_ceilings(own_ceilings(store, "t4"), public)
    assert both[["name", "origin"]].to_numpy().tolist() == [
        ["bandwidth, copy", "measured"], ["bandwidth, read", "reported"], ["FP32, products, short burst", "measured"],
    ]


def test_every_claim_names_a_card_what_holds_and_a_source() -> None:
    found = claims()
    assert len({claim.said for claim in found}) == len(found) >= 12
    for claim in found:
        assert claim.gpu_key in catalogue()
        assert claim.verdict in ("wrong", "depends")
        assert claim.holds
        assert claim.source
    t4 = " ".join(claim.said for claim in found if claim.gpu_key == "t4" and claim.verdict == "wrong")
    assert all(word in t4 for word in ("first-generation", "NVLink", "interposer", "MIG", "sparsity", "BF16"))
    assert tables.claim_table(found)["is"].isin(["wrong", "only sometimes"]).all()
