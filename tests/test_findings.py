"""Causes: planted ones are named, by run files; nothing else is blamed; no finding exceeds its bound."""
from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.analysis.factors import Factor, Factors
from core.analysis.findings import (
    GRADES,
    RULES,
    Ablation,
    Evidence,
    Side,
    findings,
    handicap_parts,
    kernels_in_words,
    lone_difference,
)
from core.answers.explain import explain
from core.cli.main import main
from core.gpus import catalogue
from core.records import OpTrial, Telemetry, uuid_hash
from core.store import open_files
from tests.builders import DEVICES, build_run, cell, header, op, stages_of

ONE, TWO = "20261130-100000-00000001", "20261130-100000-00000002"


def explained(tmp_path: Path, baseline: dict[str, Any], target: dict[str, Any], *, selections: tuple[str, str] = (
    ONE, TWO)) -> dict[str, Any]:
    """Two run files, one per side, and their explanation. Each: gpu, cells and any field of the run header."""
    paths = []
    for run_id, run in ((ONE, baseline), (TWO, target)):
        fields = {**run}
        paths.append(build_run(tmp_path / f"{run_id}.jsonl", fields.pop("gpu", "cpu"), fields.pop("cells"),
                               run_id=run_id, **fields))
    with open_files(paths) as store:
        return explain(store, *selections)


def on_cpu(scale: float = 1.0, threads: int = 2, **changes: Any) -> dict[str, Any]:
    return {"gpu": "cpu", "cells": [cell(scale, cuda=False, **changes)], "settings": {"threads": threads}}


def on_gpu(gpu: str, *cells: Any, **changes: Any) -> dict[str, Any]:
    return {"gpu": gpu, "cells": list(cells), **changes}


def told(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["evidence"], finding["cause"]) for finding in answer["findings"]]


# --- planted on a CPU


def test_limited_threads_are_named_and_nothing_else(tmp_path: Path) -> None:
    answer = explained(tmp_path, on_cpu(1.8, threads=1), on_cpu(1.0, threads=2))
    assert told(answer) == [("observed", "fewer threads or cores")]
    effect = answer["findings"][0]["effect"]
    assert (effect["low"], effect["high"]) == (1.0, pytest.approx(1.8))  # twice the threads, but the gap is 1.8
    assert answer["findings"][0]["command"].startswith("python -m core run --handicap none host_cores=1")


def test_threads_that_are_fewer_on_the_faster_side_explain_nothing(tmp_path: Path) -> None:
    assert told(explained(tmp_path, on_cpu(1.0, threads=2), on_cpu(0.5, threads=1))) == []


def test_a_first_call_inside_the_samples_is_named(tmp_path: Path) -> None:
    inside = on_cpu(wall_ms=(500.0, 10.0), first_call_ms=None, warmup_ms=())
    answer = explained(tmp_path, inside, on_cpu(wall_ms=(10.0, 10.0)))
    assert told(answer) == [("observed", "first call inside the figure")]
    assert answer["findings"][0]["effect"]["value"] == pytest.approx(25.5)  # the median of 500 and 10, over 10


def test_a_single_sample_without_a_first_call_apart_is_only_possible(tmp_path: Path) -> None:
    answer = explained(tmp_path, on_cpu(wall_ms=(500.0,), first_call_ms=None), on_cpu(wall_ms=(10.0,)))
    assert told(answer) == [("possible", "first call inside the figure")]
    assert answer["verdict"] == "undecided"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"work_changes": {"batch": 4}}, "batch 4 against 1"),
        ({"work_changes": {"frames": 24}}, "frames 24 against 47"),
        ({"precision": "bf16"}, "precision bf16 against fp32"),
    ],
)
def test_other_work_or_another_dtype_is_not_compared(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    answer = explained(tmp_path, on_cpu(**changes), on_cpu())
    assert answer["verdict"] == "not_comparable"
    assert reason in answer["not_comparable_because"][0]
    assert (answer["findings"], answer["factors"]) == ([], [])


def test_another_dtype_that_is_asked_for_is_the_only_cause(tmp_path: Path) -> None:
    answer = explained(tmp_path, on_cpu(2.0), on_cpu(1.0, precision="bf16"),
                       selections=(f"{ONE},precision=fp32", f"{TWO},precision=bf16"))
    assert told(answer) == [("proved", "precision fp32 instead of bf16")]
    assert answer["findings"][0]["effect"]["value"] == pytest.approx(2)


def test_a_wrong_frame_count_under_one_work_key_is_found_by_the_counted_work(tmp_path: Path) -> None:
    half = tuple(dataclasses.replace(stage, flops=(stage.flops or 0) // 2) for stage in stages_of((5.0,) * 3, False))
    answer = explained(tmp_path, on_cpu(), on_cpu(0.5, stages=half))
    assert answer["verdict"] == "not_comparable"
    assert "under one work key" in answer["not_comparable_because"][0]


def test_a_sync_in_the_loop_is_named(tmp_path: Path) -> None:
    plain = (op(device_ms=2.0),)
    waiting = (*plain, op("aten::item", "other", 0.001, kernels=("Memcpy DtoH (Device -> Pageable)",), calls=500))
    # kernels fill half of the time; the target's fill nearly all of it
    answer = explained(
        tmp_path, on_gpu("h200-sxm-141gb", cell(2, ops=waiting, kernel_busy_ms=11.0)),
        on_gpu("h200-sxm-141gb", cell(1, ops=plain, kernel_busy_ms=10.5)))
    causes = told(answer)
    assert ("observed", "calls that wait for the device") in causes
    assert {cause for _, cause in causes} == {"calls that wait for the device", "host holds the GPU up"}
    effect = next(f["effect"] for f in answer["findings"] if f["cause"] == "calls that wait for the device")
    assert effect["high"] == pytest.approx(2, rel=0.01)  # no more than the time that kernels do not fill


def test_swapped_labels_are_a_possible_cause_of_an_inverted_gap(tmp_path: Path) -> None:
    # the T4's times under the A100's name: 4x, where bandwidth says 4.9x the other way round
    answer = explained(tmp_path, on_gpu("t4", cell(1)), on_gpu("a100-sxm4-40gb", cell(4)))
    assert answer["verdict"] == "slower_than_expected"
    assert ("possible", "swapped labels") in told(answer)
    assert all(grade == "possible" for grade, _ in told(answer))


# --- a run against itself, and healthy pairs


def test_a_run_against_itself_gives_one_and_no_findings(tmp_path: Path) -> None:
    path = build_run(tmp_path / "t4.jsonl", "t4", [cell(ops=(op(device_ms=9.0),))], run_id=ONE)
    with open_files([path]) as store:
        answer = explain(store, ONE, ONE)
    assert answer["measured_ratio"]["value"] == answer["residual"] == 1.0
    assert {factor["ratio"] for factor in answer["factors"]} == {1.0}
    assert answer["findings"] == []


def test_a_gap_as_the_hardware_says_blames_nobody(tmp_path: Path) -> None:
    answer = explained(tmp_path, on_gpu("t4", cell(3)), on_gpu("a100-sxm4-40gb", cell(1)))
    assert (answer["verdict"], answer["findings"]) == ("as_expected", [])


# --- ladder: ablations on one board


def h200(handicap: str | None = None, scale: float = 1.0, precision: str = "fp32", **changes: Any) -> Any:
    return cell(scale, precision=precision, setting_changes={"handicap": handicap}, **changes)


def limited(tmp_path: Path, handicap: str, scale: float, **changes: Any) -> dict[str, Any]:
    """One H200 with and without a handicap, in one run: `scale` is what it costs. `changes`: ops=(...) or nothing."""
    name, _, value = handicap.partition("=")
    slower: dict[str, Any] = {
        key: tuple(dataclasses.replace(o, device_ms=o.device_ms * scale) for o in ops) for key, ops in changes.items()
    }
    cells = [h200(**changes), h200(handicap, scale, **slower)]
    path = build_run(tmp_path / "ladder.jsonl", "h200-sxm-141gb", cells, run_id=ONE)
    with open_files([path]) as store:
        return explain(store, f"{ONE},handicap.{name}={value or 'on'}", ONE)


def test_a_limit_of_the_sms_is_proved_and_is_the_factor_compute(tmp_path: Path) -> None:
    answer = limited(tmp_path, "sm_count=44", 2.5, ops=(op(device_ms=8.0), op("aten::add", "other", 2.0)))
    ratio = answer["measured_ratio"]["value"]
    assert ratio == pytest.approx(2.5)
    assert told(answer)[0] == ("proved", "handicap sm_count=44")
    assert answer["findings"][0]["effect"]["value"] == pytest.approx(ratio, rel=0.1)
    by_name = {factor["name"]: factor["ratio"] for factor in answer["factors"]}
    assert by_name["compute"] == pytest.approx(ratio, rel=0.1)
    assert by_name["library"] == 1
    assert {factor for factor, value in by_name.items() if abs(value - 1) > 0.05} == {"compute"}


@pytest.mark.parametrize(
    ("handicap", "player"),
    [("launch_delay_us=20", "host"), ("host_cores=1", "host"), ("alloc_cap_gb=2", "memory")],
)
def test_what_a_limit_takes_is_the_factor_it_belongs_to(tmp_path: Path, handicap: str, player: str) -> None:
    answer = limited(tmp_path, handicap, 2.0)
    assert told(answer)[0] == ("proved", f"handicap {handicap}")
    by_name = {factor["name"]: factor["ratio"] for factor in answer["factors"]}
    assert by_name[player] == pytest.approx(2.0)


def test_an_unknown_handicap_is_told_by_its_name(tmp_path: Path) -> None:
    answer = limited(tmp_path, "cosmic_rays=7", 1.5)
    assert told(answer)[0] == ("proved", "handicap cosmic_rays=7")
    assert answer["ladder"][0]["setting"] == "handicap cosmic_rays"


def test_an_ablation_on_another_board_is_possible_and_says_where_it_was_reproduced(tmp_path: Path) -> None:
    # T4 against A100 in torch's default; the H200 measured both FP32 and default
    paths = [
        build_run(tmp_path / "t4.jsonl", "t4", [cell(30, precision="default")], run_id=ONE),
        build_run(tmp_path / "a.jsonl", "a100-sxm4-40gb", [cell(1, precision="default")], run_id=TWO),
        build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [h200(scale=3.0), h200(precision="default")],
                  run_id="20261130-100000-00000003"),
    ]
    with open_files(paths) as store:
        answer = explain(store, ONE, TWO)
    found = next(f for f in answer["findings"] if f["cause"] == "precision fp32 instead of default")
    assert found["evidence"] == "possible"
    assert "Reproduced on H200 SXM 141GB, factor 3.00x" in found["detail"]
    assert found["effect"]["value"] <= 3 + 1e-9


# --- other rules, each by what it reads


def with_power_cap(scale: float, clock_mhz: float, bits: int) -> Any:
    return cell(scale, telemetry=Telemetry((clock_mhz,) * 3, (1200.0,) * 3, (69.0,) * 3, (50.0,) * 3, (bits,) * 3))


@pytest.mark.parametrize(
    ("bits", "cause", "most"), [(0x4, "power cap", 2.0), (0x20, "thermal slowdown", 1.1), (0x80, "power brake", 2.0)]
)
def test_a_low_clock_with_its_reason_is_bounded_by_the_clock_and_heat_by_a_tenth(
    tmp_path: Path, bits: int, cause: str, most: float
) -> None:
    answer = explained(tmp_path, on_gpu("t4", with_power_cap(20, 795.0, bits)),
                       on_gpu("a100-sxm4-40gb", with_power_cap(1, 1410.0, 0)))
    found = next(f for f in answer["findings"] if f["cause"] == cause)
    assert found["evidence"] == "observed"
    assert found["effect"]["high"] == pytest.approx(most)


def test_a_poorer_kernel_is_named_by_its_kernels_and_launches(tmp_path: Path) -> None:
    # the profiled pass stretched it: its stage took 80 ms of 99 while it was timed
    slow = op(device_ms=160.0, kernels=("DSE::vector_fft<0>",), launches=5000)
    fast = op(device_ms=3.0, kernels=("sm80_xmma_tf32",), launches=10)
    answer = explained(
        tmp_path, on_gpu("h200-sxm-141gb", cell(9, ops=(slow,), stages=two_stages(80.0, 19.0))),
        on_gpu("h200-sxm-141gb", cell(1, ops=(fast,), precision="tf32", stages=two_stages(3.0, 8.0))),
        selections=(f"{ONE},precision=fp32", f"{TWO},precision=tf32"))
    found = next(f for f in answer["findings"] if f["cause"].startswith("poorer kernel"))
    assert (found["evidence"], found["side"]) == ("observed", "baseline")
    assert found["cause"] == "poorer kernel from the library (an FFT convolution)"
    assert "took 80.0 ms (160 ms while profiled)" in found["detail"]
    assert "in 5\u2009000 launches against 10" in found["detail"]
    # 3 ms x 7.38 by the roofline are 22 ms: without the other 58 ms of 99 it would take 2.4 times less
    assert found["effect"]["value"] == pytest.approx(99 / (99 - 80 + 3 * 494.5 / 67), rel=0.01)
    assert found["factors"] == ["library", "precision"]
    assert found["most"] == pytest.approx(answer["measured_ratio"]["value"], rel=0.2)


def two_stages(encoder_ms: float, other_ms: float) -> tuple[Any, ...]:
    """Three repetitions of an encoder and the rest."""
    return tuple(
        dataclasses.replace(stages_of((ms,) * 3, cuda=True)[0], name=name, event_ms=(ms,) * 3)
        for name, ms in (("encoder", encoder_ms), ("other", other_ms))
    )


SLOW = op(device_ms=80.0, calls=10, kernels=("gemm_64x64",))


def trial(change: str, after_ms: float, agrees: bool | None = True, reproduced: bool | None = True) -> OpTrial:
    return OpTrial(SLOW, change, (8.0,) * 5, (after_ms,) * 5, ("gemm_64x64",), ("gemm_128x128",), 1e-5, reproduced,
                   agrees)


def tried(tmp_path: Path, *trials: OpTrial, board: str | None = None) -> dict[str, Any]:
    """A T4 of 99 ms with `SLOW` and its trials, on its own board or on another one, against an A100 of 11 ms."""
    paths = [
        build_run(tmp_path / "t4.jsonl", "t4", [cell(9, ops=(SLOW,), stages=two_stages(80.0, 19.0))], run_id=ONE,
                  extra_records=trials if board is None else ()),
        build_run(tmp_path / "a100.jsonl", "a100-sxm4-40gb",
                  [cell(1, ops=(op(device_ms=9.0),), stages=two_stages(9.0, 2.0))], run_id=TWO),
    ]
    if board is not None:
        paths.append(build_run(tmp_path / "other.jsonl", "t4", [], run_id="20261130-100000-00000003", board=board,
                               extra_records=trials))
    with open_files(paths) as store:
        return explain(store, ONE, TWO)


def test_the_trial_of_an_operation_is_proved_on_its_own_board(tmp_path: Path) -> None:
    answer = tried(tmp_path, trial("layout: channels_last", 2.0))
    assert told(answer)[0] == ("proved", "conv2d computed another way: channels_last")
    assert answer["findings"][0]["effect"]["value"] == pytest.approx(99 / (99 - 60))  # 10 calls, 6 ms each
    assert answer["microscope"][0]["factor"] == 4


def test_ways_to_compute_one_operation_are_one_finding_with_the_best_first(tmp_path: Path) -> None:
    answer = tried(
        tmp_path, trial("layout: channels_last", 4.0), trial("flag: cudnn.benchmark on", 1.0),
        trial("rewriting: batch in 2 parts", 2.0), trial("layout: channels_last (copy not timed)", 0.5),
        trial("precision: TF32 on", 0.1, agrees=False), trial("flag: cuDNN off", 0.2, agrees=False),
    )
    ways = [finding for finding in answer["findings"] if "conv2d" in finding["cause"]]
    assert [(way["evidence"], way["cause"]) for way in ways] == [
        ("proved", "conv2d computed another way: cudnn.benchmark on")]
    assert "2 other ways were faster too: batch in 2 parts 4.00x; channels_last 2.00x." in ways[0]["detail"]
    assert len(answer["microscope"]) == 6


@pytest.mark.parametrize("unknown", [{"agrees": None}, {"reproduced": None}])
def test_a_trial_that_nobody_judged_is_only_possible(tmp_path: Path, unknown: dict[str, Any]) -> None:
    answer = tried(tmp_path, trial("layout: channels_last", 2.0, **unknown))
    assert ("possible", "conv2d computed another way: channels_last") in told(answer)


def test_a_trial_on_another_board_is_possible_and_says_where(tmp_path: Path) -> None:
    answer = tried(tmp_path, trial("layout: channels_last", 2.0), board="another")
    found = next(f for f in answer["findings"] if f["cause"].startswith("conv2d computed another way"))
    assert found["evidence"] == "possible"
    assert found["detail"].startswith("Reproduced on Tesla T4, another board, factor 4.00x")


def test_the_drift_of_an_ablation_is_told_in_words_of_the_side_that_is_not_the_reference(tmp_path: Path) -> None:
    exact, rounded = ({"median_px": px, "p95_px": 4 * px, "visibility_agreement": 1 - px, "max_px": 9.0}
                      for px in (0.0, 0.25))
    path = build_run(tmp_path / "h.jsonl", "h200-sxm-141gb", [
        cell(3, precision="fp32", drift=exact), cell(1, precision="tf32", drift=rounded),
        cell(2, precision="bf16", drift={"unknown": "no memory for the fp32 pass"}),
    ], run_id=ONE)
    with open_files([path]) as store:
        answer = explain(store, f"{ONE},precision=fp32", f"{ONE},precision=tf32")
        other = explain(store, f"{ONE},precision=bf16", f"{ONE},precision=tf32")
    words = "outputs against eager fp32: median 0.250 px, p95 1.00 px, visibility agrees for 75 %"
    assert answer["ladder"][0]["outputs"] == words
    assert answer["findings"][0]["detail"].endswith(f"nothing else differs; {words}.")
    assert other["ladder"][0]["outputs"] == f"outputs against eager fp32: tf32: {words.partition(': ')[2]}"


def test_a_torch_without_code_for_the_card_is_observed(tmp_path: Path) -> None:
    software = dataclasses.replace(header("t4").software, arch_list=("sm_80", "sm_90"))
    answer = explained(tmp_path, on_gpu("t4", cell(90), software=software), on_gpu("a100-sxm4-40gb", cell(1)))
    assert ("observed", "torch without code for the card") in told(answer)


def test_allocator_retries_are_observed_and_their_factor_is_not_assessed(tmp_path: Path) -> None:
    answer = explained(tmp_path, on_gpu("t4", cell(90, alloc_retries=40)), on_gpu("a100-sxm4-40gb", cell(1)))
    assert ("observed", "allocator retries") in told(answer)
    assert "memory" in {item["name"] for item in answer["not_assessed"]}


def test_a_slice_of_a_card_is_observed(tmp_path: Path) -> None:
    sliced = dataclasses.replace(DEVICES["a100-sxm4-40gb"], sm_count=28, mig=True, uuid_hash=uuid_hash("slice"))
    answer = explained(tmp_path, on_gpu("x", cell(40), device=sliced), on_gpu("h200-sxm-141gb", cell(1)))
    found = next(f for f in answer["findings"] if f["cause"] == "slice of a card")
    assert found["evidence"] == "observed"


# --- the table and its laws


def test_the_table_of_rules_is_complete_and_its_commands_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({rule.cause for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.reads
        assert rule.fix
        assert rule.limit_source
        words = rule.command.split()
        assert words[:3] == ["python", "-m", "core"]
        assert words[3] in ("run", "microscope", "ceilings", "doctor", "cost", "compare", "explain")
        assert rule.limit is None or rule.limit > 1
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    known = capsys.readouterr().out
    for rule in RULES:
        if " run " in rule.command:
            assert all(word in known for word in rule.command.split() if word.startswith("--"))


def side(**changes: Any) -> Side:
    base: dict[str, Any] = {
        "label": "Tesla T4", "card": catalogue()["t4"], "device_type": "cuda", "precision": "fp32", "time_ms": 100.0,
        "run": {"sm_count": 40, "arch_list": ["sm_80"], "compute_capability": "7.5"},
    }
    return Side(**{**base, **changes})


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 100.0), st.floats(0.1, 10.0), st.floats(0.05, 1.0), st.floats(0.05, 1.0), st.integers(0, 50))
def test_no_finding_exceeds_its_bounds(ratio: float, factor: float, busy: float, clock: float, retries: int) -> None:
    known = tuple(Factor(name, factor, None, None, "observed", "") for name in ("host", "clocks", "library"))
    found = Factors(known, (), ratio / factor**3, None, None, "operations")
    evidence = Evidence(
        side(kernel_busy_ms=100 * busy, clock_share=clock, throttle_bits=(0x24,) * 3, alloc_retries=retries),
        side(label="A100", card=catalogue()["a100-sxm4-40gb"]), ratio, "beyond_hardware", "beyond", (2.0, 5.0), found)
    limits = {rule.cause: rule for rule in RULES}
    for finding in findings(evidence):
        rule = limits[finding.cause]
        slowed = finding.side == "baseline"
        bound = found.ratio(*rule.factors) * found.residual
        bound = bound if slowed else 1 / bound
        most = finding.high if slowed else 1 / finding.low if finding.low else math.inf
        assert most is None or most <= bound * (1 + 1e-9)
        assert rule.limit is None or (most or math.inf) <= rule.limit * (1 + 1e-9)
        assert finding.evidence in GRADES


def test_evidence_comes_before_capability_and_large_before_small() -> None:
    ablation = Ablation("precision", "tf32", "fp32", 3.0, 2.9, 3.1, "b", "A100", "baseline", ("r", "r"))
    evidence = Evidence(
        side(setting={"precision": "fp32"}, alloc_retries=9),
        side(label="A100", card=catalogue()["a100-sxm4-40gb"], setting={"precision": "tf32"}, precision="tf32",
             run={"compute_capability": "8.0"}),
        50.0, "beyond_hardware", "beyond", (2.0, 5.0), Factors((), (), 50.0, None, None, None), ablations=(ablation,))
    grades = [finding.evidence for finding in findings(evidence)]
    assert grades == sorted(grades, key=GRADES.index)
    assert grades[0] == "proved"


def test_settings_are_compared_part_by_part() -> None:
    base = {"precision": "fp32", "handicap": None}
    assert lone_difference(base, {**base, "handicap": "sm_count=40"}) == ("handicap sm_count", "none", "40")
    assert lone_difference(base, {**base, "handicap": "cold_l2+sm_count=40"}) is None
    assert lone_difference(base, base) is None
    assert handicap_parts("cold_l2+sm_count=40") == {"cold_l2": "on", "sm_count": "40"}


def test_kernels_are_told_in_words() -> None:
    assert kernels_in_words(["DSE::regular_fft_pad"]) == "an FFT convolution"
    assert kernels_in_words(["volta_sgemm_64x64_tn"]) == "a 64x64 tile with an FP32 product"
    assert kernels_in_words([]) == "unnamed kernels"
    assert kernels_in_words(["my_kernel"]) == "my_kernel"


def test_findings_are_plain_json(tmp_path: Path) -> None:
    answer = explained(tmp_path, on_cpu(1.8, threads=1), on_cpu())
    assert json.loads(json.dumps(answer["findings"], allow_nan=False)) == answer["findings"]
