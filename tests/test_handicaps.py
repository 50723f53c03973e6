"""Handicaps: one spelling, what a device cannot do, and those that a CPU can host, done for real."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from core.errors import UserError
from core.measure import handicaps
from core.measure.handicap_apply import Handicapped, SlowLaunches
from core.measure.plan import FOUNDING_LADDER, setting_in_words

ROOT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")


def test_one_handicap_has_one_spelling() -> None:
    assert handicaps.parse("SM_COUNT=40.0") == "sm_count=40"
    assert handicaps.parse("sm_count=40+alloc_cap_gb=15") == "alloc_cap_gb=15+sm_count=40"
    assert handicaps.parse("cold_l2") == handicaps.parse("cold_l2=1") == "cold_l2"
    assert handicaps.parse("none") is None
    assert handicaps.values("alloc_cap_gb=2.5+cold_l2") == {"alloc_cap_gb": 2.5, "cold_l2": 1.0}


def test_a_handicap_is_told_in_words() -> None:
    assert handicaps.in_words("host_cores=1+sm_count=40") == "host limited to 1 core, 40 of the GPU's SMs"
    assert handicaps.in_words("host_cores=2") == "host limited to 2 cores"
    assert handicaps.in_words(None) == ""


@pytest.mark.parametrize(("text", "said"), [
    ("sm_cuont=40", "did you mean sm_count"), ("sm_count", "whole number"), ("sm_count=1.5", "whole number"),
    ("alloc_cap_gb=-1", "from 0.1"), ("sm_count=4+sm_count=5", "twice"), ("launch_delay_us=nan", "a number"),
])
def test_a_handicap_that_is_none_is_told_with_the_fix(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        handicaps.parse(text)


def test_a_device_says_what_it_cannot_do_before_anything_starts() -> None:
    assert handicaps.unsupported_reason("sm_count=40", "cpu", None) == "handicap sm_count needs a CUDA device"
    assert handicaps.unsupported_reason("sm_count=40", "cuda", 40) == "this GPU has 40 SMs: 40 take none away"
    assert handicaps.unsupported_reason("sm_count=40", "cuda", 132) is None
    assert handicaps.unsupported_reason("host_cores=1", "cpu", None) is None
    assert handicaps.unsupported_reason(None, "cpu", None) is None


def test_the_ladder_takes_each_advantage_once_and_all_together() -> None:
    words = [setting_in_words(setting) for setting in FOUNDING_LADDER]
    assert words[0] == "tf32"
    assert len(set(words)) == len(words)
    together = handicaps.values(FOUNDING_LADDER[-1].handicap)
    alone = [handicaps.values(setting.handicap) for setting in FOUNDING_LADDER[:-1] if setting.handicap]
    assert together == {name: value for rung in alone for name, value in rung.items()}
    assert all(handicaps.parse(setting.handicap or "none") == setting.handicap for setting in FOUNDING_LADDER)


def test_slowed_launches_cost_at_least_their_delay_for_every_operation() -> None:
    x = torch.ones(4)
    with SlowLaunches(2000.0):
        started = time.perf_counter()
        for _ in range(5):
            x = x + 1
        spent_s = time.perf_counter() - started
    assert spent_s >= 5 * 2e-3
    assert x.tolist() == [6.0] * 4  # results stay what they are


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="binding to cores is a matter of Linux")
def test_a_host_of_one_core_binds_every_thread_of_the_process() -> None:
    code = (
        "import os, torch\n"
        "torch.ones(2000, 2000) @ torch.ones(2000, 2000)\n"  # starts the threads of the library
        "from core.measure.handicap_apply import Handicapped\n"
        "Handicapped('host_cores=1', torch.device('cpu'), None)\n"
        "masks = [os.sched_getaffinity(int(t)) for t in os.listdir('/proc/self/task')]\n"
        "assert all(len(mask) == 1 for mask in masks), masks\n"
        "assert torch.get_num_threads() == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_handicap_does_nothing() -> None:
    free = Handicapped(None, CPU, None)
    with free.around_cell():
        assert torch.ones(2).sum() == 2
    assert free.before_repetition is None
