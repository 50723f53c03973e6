"""The registry names trackers, refuses what they cannot take, and estimates their work without torch."""
from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from core.errors import UserError
from core.trackers import registry
from core.trackers.plan import Ledger, chunks

LOCAL4D = registry.TRACKERS["local4d"]


def test_a_selector_gives_tracker_and_variant_and_falls_back_to_the_default() -> None:
    assert registry.resolve("local4d:small")[1].name == "small"
    assert registry.resolve(" local4d ") == (LOCAL4D, LOCAL4D.variants["base"])
    assert registry.selectors()[:2] == ("local4d:small", "local4d:base")


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("local4", "unknown tracker 'local4'; expected local4d"),
        ("qqqq", "unknown tracker 'qqqq'; expected local4d"),
        ("local4d:bas", "local4d has no variant 'bas'; expected base"),
        ("local4d:huge", "local4d has no variant 'huge'; expected small or base"),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones(selector: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        registry.resolve(selector)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("size", "fix"),
    [
        ((47, 250, 256, 256), "use 248x256"),
        ((47, 252, 256, 256), "use 256x256"),
        ((47, 256, 10, 256), "use 256x32"),
        ((1, 256, 256, 256), "use --frames 2"),
        ((47, 256, 256, 0), "use --points 1"),
        ((47, -8, 256, 1), "use 32x256"),
    ],
)
def test_a_size_it_cannot_take_gets_the_nearest_that_it_can(size: tuple[int, int, int, int], fix: str) -> None:
    with pytest.raises(UserError, match=fix):
        registry.check_workload(LOCAL4D, *size)


def test_sizes_it_can_take_pass() -> None:
    registry.check_workload(LOCAL4D, 47, 256, 256, 256)
    registry.check_workload(LOCAL4D, 2, 32, 40, 1, batch=3)


def test_a_work_key_carries_the_registered_facts() -> None:
    work = registry.work_key("local4d", 47, 256, 384, 64)
    assert (work.tracker, work.variant, work.implementation, work.weights) == ("local4d", "base", "builtin", "random")
    assert (work.iterations, work.query_chunk, work.window, work.items_per_run) == (4, 64, None, 1)
    assert (work.frames, work.height, work.width, work.points, work.batch) == (47, 256, 384, 64, 1)
    assert work.revision == LOCAL4D.revision


def test_the_registry_does_not_load_torch() -> None:
    code = "import sys, core.trackers.registry as r; r.estimate(r.work_key('local4d', 47, 256, 256, 256)); " \
           "sys.exit(sorted({'torch', 'numpy'} & set(sys.modules)) or 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_loop_in_steps_of_16_cuts_47_into_two_full_steps_and_a_rest() -> None:
    assert chunks(47, 16) == ((2, 16), (1, 15))
    assert chunks(32, 16) == ((2, 16),)
    assert chunks(5, 16) == ((1, 5),)


def test_the_ledger_adds_products_convolutions_and_repeats() -> None:
    ledger = Ledger()
    ledger.product(2, 3, 5)  # 6 + 15 in, 10 out
    with ledger.times(2):
        ledger.convolution(read=7, places=4, channels_in=1, channels_out=2, kernel=3)  # 7 + 18 in, 8 out
    assert ledger.flops == 2 * 2 * 3 * 5 + 2 * (2 * 4 * 18)
    assert ledger.bytes == 4 * (31 + 2 * 33)
    assert ledger.launches == 3


@pytest.mark.parametrize(
    ("selector", "frames", "height", "width", "points", "batch"),
    [
        ("local4d:base", 47, 256, 256, 256, 1),
        ("local4d:small", 47, 256, 256, 256, 1),
        ("local4d:small", 8, 128, 128, 32, 1),
        ("local4d:base", 24, 256, 384, 100, 1),
        ("local4d:base", 2, 32, 32, 1, 1),
        ("local4d:small", 17, 64, 96, 65, 2),
    ],
)
def test_the_estimate_agrees_with_the_count(
    selector: str, frames: int, height: int, width: int, points: int, batch: int
) -> None:
    cost = pytest.importorskip("core.measure.cost")
    work = registry.work_key(selector, frames, height, width, points, batch)
    counted, estimated = cost.count_tracker(work), registry.estimate(work)
    assert estimated.flops == pytest.approx(counted.flops, rel=0.001)
    assert estimated.bytes == pytest.approx(counted.bytes, rel=0.02)
    assert estimated.launches == pytest.approx(counted.launches, rel=0.03)
    assert estimated.peak_bytes == pytest.approx(counted.peak_bytes, rel=0.1)


def test_the_estimate_follows_iterations_and_query_chunk() -> None:
    work = registry.work_key("local4d:small", 8, 64, 64, 32)
    longer = dataclasses.replace(work, iterations=8)
    smaller_chunks = dataclasses.replace(work, query_chunk=8)
    assert registry.estimate(longer).flops > 1.2 * registry.estimate(work).flops
    assert registry.estimate(smaller_chunks).flops == registry.estimate(work).flops
    assert registry.estimate(smaller_chunks).launches > 2 * registry.estimate(work).launches
