"""`python -m core.measure cost`: the work of one workload without a GPU, as one JSON document.

A model is counted on tensors without numbers where it allows that: on the meta device, or on fake tensors under
autocast. A model that looks at values (an `.item()`, a branch on a tensor) is counted on real tensors. Those take time,
so a long clip with many points is then counted at two numbers of frames and two of points, and the work is drawn on in
a straight line in both: right for everything but attention over time, which grows with the square of the frames.
"""
from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from core import units
from core.errors import UserError
from core.measure import plan
from core.measure import precision as precisions
from core.measure.command import Parser
from core.measure.cost import StageWork, WorkCount, count_model
from core.records import PRECISIONS, WorkKey
from core.trackers import registry
from core.trackers.info import BUILTIN, OFFICIAL, TrackerInfo
from core.trackers.official_work import official_work
from core.trackers.tracker import Tracker

FEWEST_FRAMES, FEWEST_POINTS = 4, 16
"""Sizes of the smaller counts on real tensors, where neither window nor query chunk gives them."""


@dataclass(frozen=True)
class Counted:
    work: WorkCount
    how: str  # "meta", "fake", "real" or "scaled from ..."


Build = Callable[[WorkKey], Tracker]


def count_workload(work: WorkKey, precision: str, build: Build, info: TrackerInfo) -> Counted:
    """Work of one forward pass at `precision`, in the cheapest way that the model allows.

    build: makes the model for a work key, on the CPU. A built-in model that cannot do without numbers is a fault and
    raises; any other one is counted on real tensors then.
    """
    if precision not in precisions.AUTOCAST:
        try:
            return Counted(count_model(build(work).to("meta"), work, "meta"), "meta")
        except UserError:
            raise
        except Exception:
            if info.implementation == BUILTIN:
                raise
    try:
        return Counted(_on_fake_tensors(build(work), work, precision), "fake")
    except UserError:
        raise
    except Exception:
        if info.implementation == BUILTIN:
            raise
    return _on_real_tensors(work, precision, build, info)


def _on_fake_tensors(model: Tracker, work: WorkKey, precision: str) -> WorkCount:
    """Tensors that say that they lie on the CPU and hold no numbers, so that autocast does its part."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), precisions.autocast(precision, "cpu"):
        return count_model(model, work, "cpu")


def _on_real_tensors(work: WorkKey, precision: str, build: Build, info: TrackerInfo) -> Counted:
    frames, points = frame_counts(work, info), point_counts(work)
    weights = {
        (f, p): frame_weight * point_weight
        for f, frame_weight in _line_through(frames, work.frames or 0).items()
        for p, point_weight in _line_through(points, work.points or 0).items()
    }
    counts = []
    for f, p in weights:
        smaller = replace(work, frames=f, points=p if work.points else None)
        with precisions.autocast(precision, "cpu"):
            counts.append(count_model(build(smaller), smaller, "cpu"))
    if len(counts) == 1:
        return Counted(counts[0], "real")
    sizes = f"{_and(frames)} frames" + (f", {_and(points)} points" if work.points else "")
    return Counted(weighted_sum(counts, list(weights.values())), f"scaled from real tensors of {sizes}")


def frame_counts(work: WorkKey, info: TrackerInfo) -> tuple[int, ...]:
    """Numbers of frames to count at: two that are whole windows, or the work's own where that is no more."""
    least = max(info.min_frames, info.window or 0, FEWEST_FRAMES)
    least = -(-least // info.frames_multiple) * info.frames_multiple
    return (least, 2 * least) if (work.frames or 0) > 2 * least else (work.frames or 0,)


def point_counts(work: WorkKey) -> tuple[int, ...]:
    """Numbers of points to count at: two of whole query chunks, or the work's own where that is no more."""
    least = work.query_chunk or FEWEST_POINTS
    return (least, 2 * least) if (work.points or 0) > 2 * least else (work.points or 0,)


def _line_through(places: Sequence[int], at: int) -> dict[int, float]:
    """What the value at each of one or two places counts for the value `at` on the straight line through them."""
    if len(places) == 1:
        return {places[0]: 1.0}
    low, high = places
    return {low: (high - at) / (high - low), high: (at - low) / (high - low)}


def weighted_sum(counts: Sequence[WorkCount], weights: Sequence[float]) -> WorkCount:
    """Each number of the counts, weighted and summed, never below 0. Without the op table, which has other shapes."""
    def total(values: Sequence[int]) -> int:
        return max(0, round(sum(weight * value for weight, value in zip(weights, values, strict=True))))

    by_name = [{stage.name: stage for stage in count.stages} for count in counts]
    stages = []
    for stage in counts[-1].stages:
        same = [names.get(stage.name, StageWork(stage.name, 0, 0, 0, 0, 0)) for names in by_name]
        stages.append(StageWork(
            name=stage.name, calls=None if stage.calls is None else total([each.calls or 0 for each in same]),
            flops=total([each.flops for each in same]), other_flops=total([each.other_flops for each in same]),
            bytes=total([each.bytes for each in same]), launches=total([each.launches for each in same]),
        ))
    return WorkCount(
        flops=sum(stage.flops for stage in stages), other_flops=sum(stage.other_flops for stage in stages),
        bytes=sum(stage.bytes for stage in stages), launches=sum(stage.launches for stage in stages),
        stages=tuple(stages), ops=(), coverage=min(count.coverage for count in counts),
        unknown_ops=tuple(sorted({op for count in counts for op in count.unknown_ops})),
        peak_bytes=total([count.peak_bytes for count in counts]),
    )


def _and(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))


# --- the answer ------------------------------------------------------------------------------------------------------


def answer(work: WorkKey, precision: str, counted: Counted) -> dict[str, Any]:
    """JSON-ready: the counted work, per stage with its share, beside the official model's where that is known."""
    found = counted.work
    official = official_work(work)
    summary = found.summary()
    for stage in summary["stages"]:
        stage["share"] = stage["flops"] / found.flops if found.flops else None
        tflop = official.stage_tflop.get(stage["name"]) if official else None
        stage["official_share"] = tflop / official.tflop if official and tflop is not None else None
    return {
        "headline": _headline(work, precision, counted), "work": _plain(work), "precision": precision,
        "how": counted.how, **summary,
        "official": {"title": official.title, "flops": round(official.tflop * 1e12)} if official else None,
        "assumptions": _assumptions(precision, counted),
    }


def _plain(work: WorkKey) -> dict[str, Any]:
    return {name: value for name, value in asdict(work).items() if name != "extra"}


def _headline(work: WorkKey, precision: str, counted: Counted) -> str:
    found = counted.work
    points = f", {units.count(work.points)} points" if work.points is not None else ""
    at_least = "at least " if found.coverage < 1 else ""
    return (
        f"{work.selector}, {work.frames} frames of {work.height}x{work.width}{points}, {precision}: "
        f"{at_least}{units.flops(found.flops)}, {units.bytes_size(found.bytes)} moved, "
        f"{units.count(found.launches)} launches, peak memory {units.bytes_size(found.peak_bytes)}."
    )


def _assumptions(precision: str, counted: Counted) -> list[str]:
    texts = ["Peak memory is the sum of living tensors; what a kernel takes as workspace comes on top."]
    if precision in precisions.AUTOCAST:
        texts.append(f"{precision} is autocast as on a CPU; a GPU may choose another dtype for single ops.")
    if counted.how.startswith("scaled"):
        texts.append("The model looks at values, so it was counted at small sizes, from which the work was drawn on in "
                     "a straight line; attention over time grows faster than that.")
    if counted.work.coverage < 1:
        texts.append(f"Not all ops have a formula ({', '.join(counted.work.unknown_ops[:5])}), so the work is a lower "
                     "bound.")
    return texts


# --- the command -----------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of `cost`, which core.cli.cost repeats: it must not import this module, which needs torch."""
    parser.add_argument("--tracker", required=True, metavar="NAME[:VARIANT]")
    frames, height, width, points = registry.FOUNDING_SIZE
    parser.add_argument("--frames", type=int, default=frames, metavar="N")
    parser.add_argument("--resolution", default=f"{height}x{width}", metavar="N|HxW")
    parser.add_argument("--points", type=int, default=points, metavar="N")
    parser.add_argument("--batch", type=int, default=1, metavar="N")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--json", action="store_true", help="accepted for likeness; the answer is always JSON")


def main(argv: Sequence[str]) -> int:
    """Print the answer. Raises UserError for a mistake in what was typed."""
    parser = Parser(prog="python -m core.measure cost", description="Count the work of one workload, without a GPU.")
    add_options(parser)
    arguments = parser.parse_args(list(argv))
    checkouts = dict(plan.checkouts(arguments.checkout))
    info, variant = registry.resolve(arguments.tracker)
    height, width = registry.parse_resolution(arguments.resolution)
    registry.check_workload(info, arguments.frames, height, width, arguments.points, arguments.batch)
    problem = registry.missing(info, checkouts)
    if problem is not None:
        raise problem
    work = registry.work_key(
        arguments.tracker, arguments.frames, height, width, arguments.points, arguments.batch,
        revision=registry.revision(info, checkouts),
    )

    def build(wanted: WorkKey) -> Tracker:
        options: dict[str, Any] = dict(registry.build_options(info, wanted))
        if info.implementation == OFFICIAL:
            options |= {"frames": wanted.frames, "height": wanted.height, "width": wanted.width,
                        "checkout": _checkout_of(info, checkouts)}
        model: Tracker = registry.load_builder(info)(variant.name, **options)
        return model

    counted = count_workload(work, arguments.precision, build, info)
    sys.stdout.write(json.dumps(answer(work, arguments.precision, counted), indent=2) + "\n")
    return 0


def _checkout_of(info: TrackerInfo, checkouts: Mapping[str, str]) -> str | None:
    return checkouts.get(info.checkout.name) if info.checkout is not None else None
