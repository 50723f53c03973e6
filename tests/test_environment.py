"""What differs between two runs, and whether it can matter for their numbers."""
from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from builders import DEVICES, build_run, cell

from core.answers.environment import RULES, environment_diff
from core.errors import UserError
from core.records import Host, Software, Telemetry
from core.store import open_files

A, B = "20261130-100000-00000001", "20261130-100000-00000002"
SOFTWARE = Software("3.11.7", "2.13.0", "13.0", "9.1", "580.1", ("sm_75", "sm_80", "sm_90"))
HOST = Host("Builder CPU 3000", 8, 32 * 1024**3, "Linux 6.1", "x86_64")


def diff(tmp_path: Path, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    for run_id, fields in ((A, a), (B, b)):
        facts = {"gpu": "t4", "host": HOST, "software": SOFTWARE, **fields}
        build_run(tmp_path / f"{run_id}.jsonl", run_id=run_id, **facts)
    with open_files([tmp_path / f"{run_id}.jsonl" for run_id in (A, B)]) as store:
        return environment_diff(store, A, B)


def rows(found: dict[str, Any]) -> dict[str, Any]:
    return {row["field"]: row["matters"] for row in found["rows"]}


def device(**changes: Any) -> Any:
    return dataclasses.replace(DEVICES["t4"], **changes)


def software(**changes: Any) -> Any:
    return dataclasses.replace(SOFTWARE, **changes)


def test_two_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    found = diff(tmp_path, {}, {})
    assert found["rows"] == []
    assert found["headline"] == "Nothing that was recorded differs."
    assert {"torch", "driver", "arch_list", "ecc"} <= set(found["same"])


def busy(share: float) -> Any:
    return cell(kernel_busy_ms=11.0 * share, profiled_wall_ms=11.0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ({}, {"software": software(torch="2.11.0")}, {"torch": True}),
        ({}, {"software": software(torch="2.13.0+cu126")}, {"torch": True}),
        ({}, {"software": software(cuda="12.6")}, {"cuda": True}),
        ({}, {"software": software(cudnn="8.9")}, {"cudnn": True}),
        ({}, {"software": software(driver="580.9")}, {"driver": False}),
        ({}, {"software": software(driver="535.1")}, {"driver": True}),
        ({}, {"software": software(driver=None)}, {"driver": None}),
        ({}, {"software": software(arch_list=("sm_75",))}, {"arch_list": False}),
        ({}, {"software": software(arch_list=("sm_70", "sm_80"))}, {"arch_list": False}),
        ({}, {"software": software(arch_list=("sm_80", "sm_90"))}, {"arch_list": True}),
        ({"software": software(arch_list=("sm_80",))}, {"software": software(arch_list=("sm_80",))},
         {"arch_list": True}),
        ({}, {"device": device(power_limit_w=50.0)}, {"power_limit_w": True}),
        ({}, {"device": device(max_sm_clock_mhz=1300.0)}, {"max_sm_clock_mhz": True, "clock_share": False}),
        ({}, {"device": device(ecc=False)}, {"ecc": True}),
        ({}, {"device": device(mig=True)}, {"mig": True}),
        ({}, {"device": device(pcie_generation=1, pcie_width=4)}, {"pcie_generation": False, "pcie_width": False}),
        ({"device": device(virtualization="none")}, {"device": device(virtualization="vgpu")},
         {"virtualization": True}),
        ({"device": device(virtualization="none"), "cells": [busy(0.95)]},
         {"device": device(virtualization="passthrough"), "cells": [busy(0.95)]}, {"virtualization": False}),
        ({"cells": [busy(0.95)]}, {"cells": [busy(0.95)], "host": dataclasses.replace(HOST, cores=2)},
         {"cores": False}),
        ({"cells": [busy(0.95)]}, {"cells": [busy(0.5)], "host": dataclasses.replace(HOST, cores=2)},
         {"cores": True, "busy": None}),
        ({"cells": [cell(kernel_busy_ms=None)]}, {"host": dataclasses.replace(HOST, cores=2),
                                                 "cells": [cell(kernel_busy_ms=None)]}, {"cores": None}),
        ({"cells": [busy(0.95)]}, {"cells": [busy(0.95)], "host": dataclasses.replace(HOST, os="Windows 11")},
         {"os": True}),
        ({"settings": {"sdp_enabled": {"flash": True}}}, {"settings": {"sdp_enabled": {"flash": False}}},
         {"settings.sdp_enabled.flash": True}),
        ({"settings": {"untouched": {"conv_fp32": "tf32"}}}, {"settings": {"untouched": {"conv_fp32": "ieee"}}},
         {"settings.untouched.conv_fp32": True}),
        ({"settings": {"environment": {}}}, {"settings": {"environment": {"CUDA_LAUNCH_BLOCKING": "1"}}},
         {"settings.environment.CUDA_LAUNCH_BLOCKING": True}),
        ({"settings": {}}, {"settings": {"allow_fp16_reduced_precision_reduction": True}},
         {"settings.allow_fp16_reduced_precision_reduction": None}),
        ({"settings": {"precision_api": "a"}}, {"settings": {"precision_api": "b"}},
         {"settings.precision_api": False}),
        ({}, {"board": "second"}, {"uuid_hash": True}),
    ],
)
def test_a_difference_says_whether_it_can_matter(
    tmp_path: Path, a: dict[str, Any], b: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = diff(tmp_path, a, b)
    expected.pop("busy", None)
    assert rows(found) == expected
    assert all(row["why"].endswith(".") for row in found["rows"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_clock_held_back_while_timed_can_matter(tmp_path: Path) -> None:
    slow = Telemetry((800.0,) * 3, (1200.0,) * 3, (60.0,) * 3, (50.0,) * 3, (4,) * 3)
    found = diff(tmp_path, {}, {"cells": [cell(telemetry=slow)]})
    assert rows(found) == {"clock_share": True}
    assert found["rows"][0]["why"] == "b ran below 90% of its highest clock while timed."
    assert (found["rows"][0]["a"], found["rows"][0]["b"]) == (pytest.approx(1500 / 1590), pytest.approx(800 / 1590))


def test_rated_limits_of_two_cards_do_not_matter_and_a_lowered_one_does(tmp_path: Path) -> None:
    assert rows(diff(tmp_path, {}, {"gpu": "h200-sxm-141gb"}))["power_limit_w"] is False
    lowered = dataclasses.replace(DEVICES["h200-sxm-141gb"], power_limit_w=400.0)
    assert rows(diff(tmp_path, {}, {"device": lowered}))["power_limit_w"] is True


def test_a_cpu_against_a_gpu_has_no_driver_to_differ(tmp_path: Path) -> None:
    found = rows(diff(tmp_path, {}, {"gpu": "cpu", "software": Software("3.11.7", "2.13.0")}))
    assert found["device_name"] is True
    assert [found[name] for name in ("driver", "cuda", "cudnn", "power_limit_w", "clock_share", "arch_list")] == [
        False] * 6


def test_what_can_matter_comes_first_and_the_headline_counts(tmp_path: Path) -> None:
    found = diff(tmp_path, {}, {"software": software(torch="2.11.0", driver="580.9"), "device": device(ecc=False)})
    assert [row["field"] for row in found["rows"]] == ["ecc", "torch", "driver"]
    assert found["headline"] == "3 differences, 2 of which can matter for these numbers: ecc, torch."


def test_a_run_that_is_not_stored_is_named(tmp_path: Path) -> None:
    build_run(tmp_path / "a.jsonl", run_id=A)
    with open_files([tmp_path / "a.jsonl"]) as store, pytest.raises(UserError, match=f"no run {B} is stored"):
        environment_diff(store, A, B)


def test_every_fact_has_one_rule() -> None:
    assert len({rule.field for rule in RULES}) == len(RULES)
