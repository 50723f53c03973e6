"""What the op microscope is asked for: its options, checked. Standard library only, shared with the shell."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import units
from core.errors import UserError
from core.measure.plan import parse_device, parse_duration_s
from core.records import PRECISIONS, WorkKey
from core.trackers import registry
from core.trackers.checkout import weights_name

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

    def to_json(self) -> dict[str, Any]:
        """For the header of the run file: no path of this machine."""
        return {
            "microscope": {
                "tracker": self.work.selector, "precision": self.precision, "top": self.top, "budget_s": self.budget_s,
                "frames": self.work.frames, "height": self.work.height, "width": self.work.width,
                "points": self.work.points, "batch": self.work.batch, "work_key": self.work.key(),
                "checkouts": sorted(self.checkouts or {}), "seed": self.seed,
                "weights": Path(self.weights).name if self.weights else None,
            }
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the microscope; read by `request_from`."""
    frames, height, _, points = registry.FOUNDING_SIZE
    parser.add_argument("--tracker", required=True, metavar="NAME[:VARIANT]", help="such as local4d:base")
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
    frames, height, width, points = registry.FOUNDING_SIZE
    if arguments.resolution:
        height, width = registry.parse_resolution(arguments.resolution)
    checkouts = registry.checkouts(arguments.checkout or ())
    info, _ = registry.resolve(arguments.tracker)
    missing = registry.missing(info, checkouts)
    if missing is not None:
        raise missing
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
    work = registry.work_key(
        arguments.tracker, _count(arguments.frames, "frames", frames), height, width,
        _count(arguments.points, "points", points), _count(arguments.batch, "batch", 1),
        revision=registry.revision(info, checkouts),
        weights=weights_name(arguments.weights) if arguments.weights else None,
    )
    return MicroscopeRequest(
        work=work, precision=precision, top=_count(arguments.top, "top", DEFAULT_TOP, most=MOST_OPS),
        device=parse_device(arguments.device or "auto"), budget_s=budget_s,
        seed=_count(arguments.seed, "seed", 0, least=0), label=label, force=bool(arguments.force),
        ceilings=arguments.ceilings, checkouts=checkouts, weights=arguments.weights,
    )


def _count(text: str | None, name: str, default: int, least: int = 1, most: int = 1_000_000) -> int:
    if text is None:
        return default
    try:
        value: int | None = int(text.strip())
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise UserError(f"{name} {text[:40]!r}", f"a whole number from {least} to {most}")
    return value
