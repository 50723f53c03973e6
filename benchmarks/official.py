"""Are the built-in trackers as fast as the official models whose shape they have? Same device, clip and process.

    python benchmarks/official.py --checkout locotrack=PATH --checkout cotracker=PATH [--pair joint4d ...]
        [--frames 47 --resolution 256 --points 256 --precision fp32 --repetitions 10 --device auto]

Each pair runs eagerly in turns (built in, official, official, built in, ...), so that a drift of the clock hits both
alike; times are host times between two synchronisations, without stage marks. Stage shares come from marked passes
afterwards. Prints per pair: median and smallest time, official / built-in with the same ratio of the smallest times,
peak memory, then each stage's share. A pair whose official code is not at hand is named with the command that gets it.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from core import units
from core.errors import UserError
from core.measure import precision as precisions
from core.measure.inputs import procedural_clip, to_model_input
from core.measure.timing import Clock, CudaClock, HostClock, StageTimer
from core.records import PRECISIONS
from core.trackers import registry
from core.trackers.info import OFFICIAL
from core.trackers.stages import OTHER, marked
from core.trackers.tracker import Tracker

PAIRS = {
    "joint4d:base": "cotracker3:offline", "local4d:base": "locotrack:base", "local4d:small": "locotrack:small",
    "dense_pair:base": "raft:large", "dense_pair:small": "raft:small",
}
# RAFT's adapter counts looks at the volume as correlation.
SAME_STAGE = {"lookup": "correlation"}
MARKED_PASSES = 3
WARMUP_PASSES = 3


@dataclass
class Side:
    """One model of a pair and what was measured of it."""

    selector: str
    model: Tracker
    arguments: dict[str, Any]
    wall_ms: list[float] = field(default_factory=list)
    stage_ms: dict[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None

    def call(self) -> None:
        self.model(**self.arguments)


def main() -> int:
    options = _options()
    device = _device(options.device)
    clock: Clock = CudaClock(torch, device) if device.type == "cuda" else HostClock()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    height, width = registry.parse_resolution(options.resolution)
    size = (options.frames, height, width, options.points)
    print(f"{name}, torch {torch.__version__}, {options.precision}, eager: {options.frames} frames of "
          f"{height}x{width}, {options.points} points, {options.repetitions} repetitions of each, in turns")
    compared = 0
    for ours, theirs in PAIRS.items():
        if options.pair and not any(ours == wanted or ours.startswith(f"{wanted}:") for wanted in options.pair):
            continue
        try:
            checkouts = registry.checkouts(options.checkout)
            sides = [_side(selector, size, checkouts, device) for selector in (ours, theirs)]
        except UserError as error:
            print(f"\n{ours} against {theirs}: not compared. {error}")
            continue
        if device.type == "cuda" and precisions.unsupported_reason(
            options.precision, "cuda", torch.cuda.get_device_capability(device)
        ):
            raise SystemExit(f"{options.precision} is not supported on this GPU")
        precisions.apply(options.precision)  # after the models are built, which may set flags
        with torch.inference_mode(), precisions.autocast(options.precision, device.type):
            _measure(sides, clock, device, options.repetitions)
        _print(*sides)
        compared += 1
        del sides
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return 0 if compared else 1


def _options() -> argparse.Namespace:
    frames, height, _, points = registry.FOUNDING_SIZE
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--pair", nargs="+", metavar="BUILTIN[:VARIANT]", help=", ".join(PAIRS))
    parser.add_argument("--frames", type=int, default=frames)
    parser.add_argument("--resolution", default=str(height))
    parser.add_argument("--points", type=int, default=points)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def _device(asked: str) -> torch.device:
    if asked == "auto":
        asked = "cuda:0" if torch.cuda.is_available() else "cpu"
    return torch.device(asked)


def _side(
    selector: str, size: tuple[int, int, int, int], checkouts: dict[str, str], device: torch.device
) -> Side:
    frames, height, width, points = size
    info, variant = registry.resolve(selector)
    registry.check_workload(info, *size)
    problem = registry.missing(info, checkouts)
    if problem is not None:
        raise problem
    options: dict[str, Any] = {}
    if info.implementation == OFFICIAL:
        options = {"frames": frames, "height": height, "width": width,
                   "checkout": checkouts.get(info.checkout.name) if info.checkout else None}
    model = registry.load_builder(info)(variant.name, seed=0, **options).to(device)
    clip = to_model_input(procedural_clip(frames, height, width, points, seed=0), str(device))
    with torch.inference_mode():
        return Side(selector, model, model.prepare(**clip))


def _measure(sides: list[Side], clock: Clock, device: torch.device, repetitions: int) -> None:
    for side in sides:
        for _ in range(WARMUP_PASSES):
            side.call()
        side.peak_bytes = _peak_bytes(side.call, device)
    for repetition in range(repetitions):
        for side in sides if repetition % 2 == 0 else reversed(sides):
            clock.synchronize()
            started = clock.now_ms()
            side.call()
            clock.synchronize()
            side.wall_ms.append(clock.now_ms() - started)
    for side in sides:
        passes = [_stages_of_a_pass(side, clock) for _ in range(MARKED_PASSES)]
        side.stage_ms = {name: statistics.median(one.get(name, 0.0) for one in passes) for name in passes[0]}


def _peak_bytes(call: Callable[[], None], device: torch.device) -> int | None:
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))


def _stages_of_a_pass(side: Side, clock: Clock) -> dict[str, float]:
    timer = StageTimer(clock)
    with marked(side.model, timer):
        clock.synchronize()
        first = clock.mark()
        side.call()
        last = clock.mark()
        clock.synchronize()
    by_name, _ = timer.take()
    stages: dict[str, float] = {}
    for name, milliseconds in by_name.items():
        same = SAME_STAGE.get(name, name)
        stages[same] = stages.get(same, 0.0) + milliseconds
    stages[OTHER] = clock.between_ms(first, last) - sum(stages.values())
    return stages


def _print(ours: Side, theirs: Side) -> None:
    print(f"\n{ours.selector} against {theirs.selector}")
    for side in (ours, theirs):
        median, low = statistics.median(side.wall_ms), min(side.wall_ms)
        print(f"  {side.selector:20} median {units.time_ms(median):>9}   smallest {units.time_ms(low):>9}   "
              f"peak memory {units.bytes_size(side.peak_bytes)}")
    of_medians = units.ratio(statistics.median(theirs.wall_ms) / statistics.median(ours.wall_ms))
    of_smallest = units.ratio(min(theirs.wall_ms) / min(ours.wall_ms))
    print(f"  official / built-in  {of_medians}   smallest {of_smallest}")
    print(f"  {'stage':20} {'built-in':>18} {'official':>18}")
    for name in dict.fromkeys([*ours.stage_ms, *theirs.stage_ms]):
        if name != OTHER:
            print(f"  {name:20} {_told(ours, name):>18} {_told(theirs, name):>18}")
    print(f"  {OTHER:20} {_told(ours, OTHER):>18} {_told(theirs, OTHER):>18}")


def _told(side: Side, stage: str) -> str:
    if stage not in side.stage_ms:
        return units.MISSING
    share = side.stage_ms[stage] / sum(side.stage_ms.values())
    return f"{units.time_ms(side.stage_ms[stage])} {units.percent(share):>7}"


if __name__ == "__main__":
    sys.exit(main())
