"""A card that somebody added stands wherever a shipped one does, says who says so, and can be taken away again."""
from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import DEVICES, build_run, cell

from core.answers.catalogue import all_specs, specs
from core.answers.two import explain_two
from core.charts import theme
from core.cli.main import main
from core.errors import UserError
from core.gpus import by_human_name, by_nvml_name, catalogue, peak_tflops, set_added_cards, value_source
from core.records import RunsFolder
from core.store import open_reading, queries
from core.store.cards import add_card, remove_card, use_cards_of
from core.store.journal import ADD_CARD, Journal

CARD: dict[str, Any] = {
    "name": "RTX 9090", "nvml_names": ["NVIDIA Prototype 9"], "compute_capability": "12.0",
    "memory_bandwidth_gb_s": 3200, "fp32_tflops": 81, "memory_gb": 8, "fp16_tflops": 400.0,
    "source": "a data sheet of 2026",
}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunsFolder]:
    monkeypatch.setenv("GAPSCOPE_DB", str(tmp_path / "results.duckdb"))
    monkeypatch.delenv("GAPSCOPE_RUNS", raising=False)
    (tmp_path / "reference").mkdir()
    monkeypatch.setattr("core.store.store.reference_root", lambda: tmp_path / "reference")
    yield RunsFolder.beside(tmp_path / "results.duckdb")
    set_added_cards(())


def test_an_added_card_is_found_by_both_names_and_names_its_source(runs: RunsFolder) -> None:
    shipped = len(catalogue())
    card = add_card(runs, CARD, actor="me")
    assert (card.key, len(catalogue())) == ("rtx-9090", shipped + 1)
    assert by_human_name("rtx 9090").gpu == by_nvml_name("NVIDIA Prototype 9") == card
    assert value_source(card, "fp32_tflops") == "a data sheet of 2026 (added here)"
    peak = peak_tflops(card, "fp16")
    assert peak is not None
    assert peak.value == 400
    assert peak_tflops(card, "tf32") is None  # it has the unit, and nobody gave a figure
    assert theme.gpu_colour("rtx-9090", "light") != theme.UNKNOWN_COLOURS[0]  # Blackwell, by its capability
    assert any(row["key"] == "rtx-9090" for row in all_specs()["gpus"])
    assert specs("RTX 9090")["verification"] == "added here"


def test_two_numbers_use_an_added_card(runs: RunsFolder) -> None:
    add_card(runs, CARD)
    answer = explain_two("Tesla T4=10s", "RTX 9090=1s", precision="fp32")
    assert answer["expected"]["bandwidth"] == 10.0  # 3200 / 320
    assert answer["expected"]["fp32"] == 10.0  # 81 / 8.1


def test_stored_runs_take_its_name_and_lose_it_again(runs: RunsFolder) -> None:
    build_run(runs, "unknown", [cell()])
    with open_reading() as store:
        assert queries.runs(store)["gpu_label"].tolist() == ["NVIDIA Prototype 9"]
    add_card(runs, CARD)
    with open_reading() as store:
        assert queries.runs(store)["gpu_key"].tolist() == ["rtx-9090"]
        assert queries.runs(store)["gpu_label"].tolist() == ["RTX 9090"]
    remove_card(runs, "rtx-9090")
    with open_reading() as store:
        assert queries.runs(store)["gpu_key"].isna().all()
    with pytest.raises(UserError, match="rtx-9090 was not added here"):
        remove_card(runs, "rtx-9090")
    with pytest.raises(UserError, match="t4 was not added here"):
        remove_card(runs, "t4")


def test_every_command_knows_it_from_the_journal(runs: RunsFolder, capsys: pytest.CaptureFixture[str]) -> None:
    add_card(runs, CARD)
    set_added_cards(())  # another process begins with the shipped cards
    assert main(["specs", "RTX 9090", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == "rtx-9090"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"name": "Tesla T4"}, "Tesla T4 is in the catalogue already"),
        ({"name": "Tesla t4"}, "in the catalogue already, as Tesla T4"),
        ({"name": ""}, "name is empty"),
        ({"name": "card"}, "a card called 'card'"),
        ({"nvml_names": [DEVICES["t4"].name]}, "means Tesla T4 already"),
        ({"memory_bandwidth_gb_s": None}, "memory bandwidth in GB/s is missing"),
        ({"fp32_tflops": "many"}, "FP32 TFLOP/s: many"),
        ({"fp32_tflops": float("nan")}, "FP32 TFLOP/s: nan"),
        ({"memory_gb": -1}, "memory in GB: -1"),
        ({"compute_capability": "new"}, "compute capability 'new'"),
        ({"compute_capability": "7.5", "tf32_tflops": 20.0}, "a TF32 figure at compute capability 7.5"),
        ({"sm_count": 40.5}, "40.5 SMs"),
        ({"source": " "}, "source is empty"),
    ],
)
def test_a_card_that_cannot_be_is_refused_with_one_sentence(
    runs: RunsFolder, change: dict[str, Any], found: str
) -> None:
    with pytest.raises(UserError, match="expected") as refused:
        add_card(runs, {**CARD, **change})
    assert found in str(refused.value)
    assert not runs.journal.exists()


def test_a_card_is_added_once_and_a_broken_entry_does_not_count(runs: RunsFolder) -> None:
    add_card(runs, CARD)
    with pytest.raises(UserError, match="take it away first"):
        add_card(runs, CARD)
    Journal(runs.journal).append(ADD_CARD, "card:rtx-9091", {**CARD, "name": "RTX 9091", "fp32_tflops": "x"})
    use_cards_of(runs)
    assert "rtx-9091" not in catalogue()
    assert "rtx-9090" in catalogue()


def test_a_shipped_card_keeps_its_key(runs: RunsFolder) -> None:
    impostor = dataclasses.replace(catalogue()["t4"], memory_bandwidth_gb_s=1.0)
    set_added_cards([impostor])
    assert catalogue()["t4"].memory_bandwidth_gb_s == 320
