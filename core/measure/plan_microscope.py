"""What the op microscope is asked for: its options, checked. Standard library only, shared with the shell."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import units
from core.errors import UserError
from core.measure.plan import (
    MAX_BATCH,
    base_name_of_entry,
    checkouts,
    count,
    parse_device,
    parse_duration_s,
    work_before_a_look,
)
from core.records import PRECISIONS, WorkKey
from core.trackers import registry
from core.trackers.checkout import weights_name
from core.trackers.info import OFFICIAL

DEFAULT_TOP, DEFAULT_BUDGET_S, MOST_OPS, LEAST_BUDGET_S = 10, 480.0, 100, 5.0


@dataclass(frozen=True)
class MicroscopeRequest:
    """One look through the microscope."""

    work: WorkKey
    precision: str = "fp32"
    top: int = DEFAULT_TOP
    device: str = "auto"
    budget_s: float = DEFAULT_BUDGET_S
    seed: int = 0
    label: str | None = None
    force: bool = False
    ceilings: str | None = None  # path of a run file with ceiling lines
    checkouts: Mapping[str, str] | None = None
    weights: str | None = None
    entry: str | None = None  # FILE.py:build of the user's own model; `work` is then known once a worker has looked

    def to_json(self) -> dict[str, Any]:
        """For the header of the run file: no path of this machine."""
        return {
            "microscope": {
                "tracker": self.work.selector, "precision": self.precision, "top": self.top, "budget_s": self.budget_s,
                "frames": self.work.frames, "height": self.work.height, "width": self.work.width,
                "points": self.work.points, "batch": self.work.batch, "work_key": self.work.key(),
                "checkouts": sorted(self.checkouts or {}), "seed": self.seed,
                "entry": base_name_of_entry(self.entry),
                "weights": Path(self.weights).name if self.weights else None,
            }
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the microscope; read by `request_from`."""
    frames, height, _, points = registry.FOUNDING_SIZE
    parser.add_argument("--tracker", metavar="NAME[:VARIANT]", help="such as local4d:base")
    parser.add_argument("--entry", metavar="FILE.py:build", help="your own model instead of a tracker")
    parser.add_argument("--top", metavar="N", help=f"so many ops with the most lost time ({DEFAULT_TOP})")
    parser.add_argument("--precision", metavar="P", help=f"one of {', '.join(PRECISIONS)} (fp32)")
    parser.add_argument("--resolution", metavar="N|HxW", help=f"height x width ({height})")
    parser.add_argument("--frames", metavar="N", help=f"({frames})")
    parser.add_argument("--points", metavar="N", help=f"query points ({points})")
    parser.add_argument("--batch", metavar="N", help="(1)")
    parser.add_argument("--device", metavar="D", help="auto, cuda:0 or cpu (auto)")
    parser.add_argument("--budget", metavar="T",
                        help=f"time for everything, such as 90s or 8m ({units.duration(DEFAULT_BUDGET_S)})")
    parser.add_argument("--ceilings", metavar="FILE",
                        help="run file with this device's measured ceilings, instead of its data sheet")
    parser.add_argument("--checkout", nargs="+", action="extend", metavar="NAME=PATH",
                        help="your copy of an official repository")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint instead of random weights")
    parser.add_argument("--label", metavar="TEXT", help="a name for this run")
    parser.add_argument("--seed", metavar="N", help="of clip and weights (0)")
    parser.add_argument("--force", action="store_true", help="measure although another process uses the GPU")
    parser.add_argument("--out", metavar="FILE", help="write the run file there instead of into the runs folder")
    parser.add_argument("--json", action="store_true", help="the closing table as one JSON document on stdout")


def request_from(arguments: argparse.Namespace) -> MicroscopeRequest:
    """The request that parsed options ask for. Raises UserError for what cannot be."""
    copies = dict(checkouts(arguments.checkout))
    work = _work(arguments, copies)
    precision = arguments.precision or "fp32"
    if precision not in PRECISIONS:
        raise UserError(f"unknown precision {precision[:40]!r}", f"one of {', '.join(PRECISIONS)}")
    budget_s = parse_duration_s(arguments.budget, "budget") if arguments.budget else DEFAULT_BUDGET_S
    if budget_s < LEAST_BUDGET_S:
        raise UserError(f"a budget of {budget_s:g} s", f"at least {LEAST_BUDGET_S:g} s",
                        "the tracker alone must be built and profiled in it")
    if arguments.ceilings and not Path(arguments.ceilings).is_file():
        raise UserError(f"no file {Path(arguments.ceilings).name!r}", "a run file with ceilings", "check the path")
    label = arguments.label or None
    if label is not None and len(label) > 200:
        raise UserError(f"a label of {len(label)} characters", "at most 200", "shorten --label")
    return MicroscopeRequest(
        work=work, precision=precision, top=count(arguments.top or str(DEFAULT_TOP), "top", MOST_OPS),
        device=parse_device(arguments.device or "auto"), budget_s=budget_s,
        seed=count(arguments.seed or "0", "seed", least=0), label=label, force=bool(arguments.force),
        ceilings=arguments.ceilings, checkouts=copies, weights=arguments.weights, entry=arguments.entry or None,
    )


def _work(arguments: argparse.Namespace, copies: Mapping[str, str]) -> WorkKey:
    """What is looked at: a tracker at a size, or the user's own model, which brings its own inputs."""
    sizes = ("frames", "resolution", "points", "batch")
    if arguments.entry:
        given = next((name for name in ("tracker", "weights", *sizes) if getattr(arguments, name)), None)
        if given is not None:
            raise UserError(f"--entry with --{given}", "--entry alone: the model brings its own inputs",
                            f"leave --{given} out")
        return work_before_a_look(arguments.entry)
    if not arguments.tracker:
        raise UserError("nothing to look at", "--tracker NAME or --entry FILE.py:build",
                        f"such as --tracker {registry.selectors()[0]}")
    frames, height, width, points = registry.FOUNDING_SIZE
    if arguments.resolution:
        height, width = registry.parse_resolution(arguments.resolution)
    info, _ = registry.resolve(arguments.tracker)
    if arguments.weights and info.implementation != OFFICIAL:
        raise UserError(f"--weights with {info.name}", "an official tracker: built-in ones have random weights",
                        "leave --weights out")
    missing = registry.missing(info, copies)
    if missing is not None:
        raise missing
    return registry.work_key(
        arguments.tracker, count(arguments.frames or str(frames), "frames"), height, width,
        count(arguments.points or str(points), "points"), count(arguments.batch or "1", "batch", MAX_BATCH),
        revision=registry.revision(info, copies),
        weights=weights_name(arguments.weights) if arguments.weights else None,
    )
