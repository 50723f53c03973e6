"""What a sweep will measure: the request, the presets, the cells in their order, rough predictions. No torch here.

A request names trackers, sizes and precisions; its cells are every combination, once per process. The order is
random by a seed and blocked: processes, then trackers, then sizes, then precisions. So the precisions of one size
run next to each other (a drift of the clock hits all alike), and clip and model are made once per block.
"""
from __future__ import annotations

import argparse
import difflib
import functools
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core import units
from core.errors import UserError
from core.gpus import by_nvml_name, peak_tflops
from core.measure import handicaps
from core.records import PRECISIONS, RecordError, SettingKey, WorkKey, Workload, from_json, to_json
from core.trackers import checkout, registry
from core.trackers.info import OFFICIAL, OWN

OPS_CHOICES = ("all", "centre", "none")
EXECUTIONS = ("eager", "compile", "cudagraph", "cast")
STAGED_EXECUTIONS = ("eager", "cast")
"""Under these the model's own Python runs, so that stages and ops can be told apart."""
MEMORY_FORMATS = ("contiguous", "channels_last")
SDP_BACKENDS = ("default", "flash", "mem_efficient", "math", "cudnn")
BENCHMARK_CHOICES = ("off", "on")
MAX_CELLS = 20_000
MAX_PROCESSES = 50
MAX_BATCH = 4096


@dataclass(frozen=True)
class Effort:
    """How much time one cell gets. `half_width`: stop when half the 95 % interval of the median is this narrow."""

    warmup_s: float
    sample_s: float
    min_repetitions: int
    max_repetitions: int
    half_width: float = 0.02


@dataclass(frozen=True)
class Size:
    frames: int
    height: int
    width: int
    points: int
    batch: int = 1

    def __str__(self) -> str:
        batch = f" x{self.batch}" if self.batch != 1 else ""
        return f"{self.frames}f {self.height}x{self.width} {self.points}p{batch}"


FOUNDING_SIZE = Size(*registry.FOUNDING_SIZE)
"""The size of the founding case; where it is among the sizes of a sweep, it is the centre."""


@dataclass(frozen=True)
class SweepRequest:
    """What somebody asked for, complete: presets are resolved, so that a resumed sweep plans the same cells."""

    preset: str
    trackers: tuple[str, ...]
    precisions: tuple[str, ...]
    sizes: tuple[Size, ...]
    effort: Effort
    executions: tuple[str, ...] = ("eager",)
    memory_formats: tuple[str, ...] = ("contiguous",)
    cudnn_benchmarks: tuple[bool, ...] = (False,)
    sdp_backends: tuple[str, ...] = ("default",)
    handicaps: tuple[str | None, ...] = (None,)
    ladder: tuple[SettingKey, ...] | None = None  # exactly these settings, instead of every combination of the above
    entry: str | None = None  # FILE.py:build of the user's own model, in place of trackers and sizes
    checkouts: tuple[tuple[str, str], ...] = ()  # (tracker family, path) of official repositories
    weights: str | None = None  # path of a checkpoint, else random weights
    ceilings: bool = False
    device: str = "auto"
    processes: int = 1
    budget_s: float | None = None
    label: str | None = None
    seed: int = 0
    force: bool = False
    ops: str = "centre"
    cell_timeout_s: float = 600.0
    video: str | None = None  # a path; only its base name enters a run file

    @property
    def centre(self) -> Size:
        return FOUNDING_SIZE if FOUNDING_SIZE in self.sizes else self.sizes[0]

    def settings(self) -> tuple[SettingKey, ...]:
        """Every setting under which each workload is measured."""
        if self.ladder is not None:
            return self.ladder
        return tuple(
            SettingKey(precision=p, execution=e, memory_format=m, cudnn_benchmark=b, sdp_backend=s, handicap=h)
            for h in self.handicaps for e in self.executions for m in self.memory_formats
            for b in self.cudnn_benchmarks for s in self.sdp_backends for p in self.precisions
        )

    def to_json(self) -> dict[str, Any]:
        """For the header of the run file: base names only, no path in it."""
        data: dict[str, Any] = asdict(self)
        for name in ("video", "weights"):
            data[name] = Path(data[name]).name if data[name] else None
        data["entry"] = base_name_of_entry(self.entry)
        data["checkouts"] = [[name, ""] for name, _ in self.checkouts]
        data["ladder"] = [to_json(setting) for setting in self.ladder] if self.ladder is not None else None
        return data

    @classmethod
    def from_json(cls, data: Any) -> SweepRequest:
        """A request out of a run file's header. Raises UserError when it is none."""
        try:
            known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
            for name in ("trackers", "precisions", "executions", "memory_formats", "sdp_backends"):
                if name in known:
                    known[name] = tuple(str(item) for item in known[name])
            for name in ("cudnn_benchmarks", "handicaps"):
                if name in known:
                    known[name] = tuple(known[name])
            if known.get("ladder") is not None:
                known["ladder"] = tuple(from_json(SettingKey, item, "ladder") for item in known["ladder"])
            known["checkouts"] = tuple((str(name), "") for name, _ in known.get("checkouts") or ())
            known["sizes"] = tuple(Size(**size) for size in known["sizes"])
            known["effort"] = Effort(**known["effort"])
            return cls(**known)
        except (KeyError, TypeError, AttributeError, ValueError, RecordError):
            raise UserError(
                "this run file does not say what was asked for", "one that `run` of this version made",
                "start a new sweep",
            ) from None


@dataclass(frozen=True)
class PlannedCell:
    """One workload in one worker process. Predictions are rough, None where nothing is known."""

    workload: Workload
    process: int
    with_ops: bool  # whether the op table is wanted
    predicted_pass_s: float | None = None  # one forward pass
    predicted_s: float | None = None  # the whole cell
    predicted_bytes: int | None = None

    @property
    def key(self) -> tuple[int, str]:
        return self.process, self.workload.key()

    @property
    def size(self) -> Size:
        work = self.workload.work
        return Size(*work.size, work.points or 0, work.batch)

    def __str__(self) -> str:
        work = self.workload.work
        return f"{work.selector} {size_in_words(work)} {setting_in_words(self.workload.setting)}"


def size_in_words(work: WorkKey) -> str:
    """"47f 256x256 256p"; for work without a size what its revision says about its inputs."""
    if work.frames is None or work.height is None or work.width is None:
        return work.revision
    points = f" {work.points}p" if work.points is not None else ""
    batch = f" x{work.batch}" if work.batch != 1 else ""
    return f"{work.frames}f {work.height}x{work.width}{points}{batch}"


def setting_in_words(setting: SettingKey) -> str:
    """The precision, and after it whatever is not as usual: "tf32, sdp math, sm_count=40"."""
    usual = SettingKey(precision=setting.precision)
    parts = [setting.precision]
    if setting.execution != usual.execution:
        parts.append(setting.execution)
    if setting.memory_format != usual.memory_format:
        parts.append(setting.memory_format)
    if setting.cudnn_benchmark:
        parts.append("cudnn.benchmark")
    if setting.sdp_backend != usual.sdp_backend:
        parts.append(f"sdp {setting.sdp_backend}")
    if setting.handicap:
        parts.append(setting.handicap)
    return ", ".join(parts)


def base_name_of_entry(entry: str | None) -> str | None:
    """`FILE.py:build` without the folders of its file."""
    if entry is None:
        return None
    path, colon, function = entry.rpartition(":")
    return f"{Path(path).name}:{function}" if colon else Path(entry).name


@dataclass(frozen=True)
class Preset:
    """Defaults of a sweep. The first value of each list is the centre; the others vary one at a time (a star)."""

    trackers: tuple[str, ...]
    frames: tuple[int, ...]
    resolutions: tuple[tuple[int, int], ...]  # (height, width)
    points: tuple[int, ...]
    batches: tuple[int, ...]
    precisions: tuple[str, ...]
    processes: int
    effort: Effort
    ops: str
    ladder: tuple[SettingKey, ...] | None = None  # settings that are not a product of lists
    ceilings: bool = True  # whether a GPU's ceilings are measured at the start


# What a fast card has and a slow one has not, taken away one at a time and then all together: the host and the memory
# of a T4 in a small cloud machine (40 SMs, 15 GB usable, TF32 and fused attention absent).
_LESS = {"sm_count": "sm_count=40", "alloc_cap_gb": "alloc_cap_gb=15", "host_cores": "host_cores=1",
         "launch_delay_us": "launch_delay_us=10", "bandwidth_copies": "bandwidth_copies=1"}
FOUNDING_LADDER = (
    SettingKey("tf32"),
    SettingKey("fp32"),
    SettingKey("fp32", cudnn_benchmark=True),
    SettingKey("tf32", sdp_backend="math"),
    *(SettingKey("tf32", handicap=handicap) for handicap in _LESS.values()),
    SettingKey("fp32", sdp_backend="math", handicap=handicaps.JOIN.join(sorted(_LESS.values()))),
)

_ONE, _MANY = (1,), (256, 1024)
PRESETS: dict[str, Preset] = {
    # Small enough for two CPU cores: five precisions in half a minute.
    "quick": Preset(
        ("local4d:small",), (8,), ((96, 96),), (32,), _ONE, PRECISIONS, 1, Effort(0.3, 1.0, 6, 40), "centre",
        ceilings=False,
    ),
    "standard": Preset(
        ("local4d:base", "local4d:small"), (47, 24), ((256, 256), (384, 384)), _MANY, _ONE, PRECISIONS, 3,
        Effort(1.0, 3.0, 10, 200), "centre",
    ),
    "careful": Preset(
        ("local4d:base", "local4d:small"), (47, 24), ((256, 256), (384, 384)), _MANY, _ONE, PRECISIONS, 5,
        Effort(2.0, 10.0, 20, 500, half_width=0.005), "centre",
    ),
    # The ladder of handicaps on the founding case: with every advantage, without each, without all.
    "founding": Preset(
        ("local4d:base",), (47,), ((256, 256),), (256,), _ONE, ("tf32", "fp32"), 1, Effort(1.0, 4.0, 6, 200), "all",
        ladder=FOUNDING_LADDER,
    ),
}
DEFAULT_PRESET = "quick"


# --- options ---------------------------------------------------------------------------------------------------------


def add_sweep_options(parser: argparse.ArgumentParser) -> None:
    """The options of a sweep; the same in `python -m core.measure` and `python -m core run`. Read by `request_from`."""
    many: dict[str, Any] = {"nargs": "+", "action": "extend"}
    parser.add_argument("--preset", choices=list(PRESETS), metavar="|".join(PRESETS),
                        help="defaults for what is not given below (quick)")
    parser.add_argument("--tracker", **many, metavar="NAME[:VARIANT]", help="trackers, such as local4d:base")
    parser.add_argument("--precision", **many, metavar="P", help=f"any of {', '.join(PRECISIONS)}")
    parser.add_argument("--resolution", **many, metavar="N|HxW", help="256 is 256x256; 256x384 is height x width")
    parser.add_argument("--frames", **many, metavar="N")
    parser.add_argument("--points", **many, metavar="N", help="query points")
    parser.add_argument("--batch", **many, metavar="N")
    parser.add_argument("--star", action="store_true", default=None,
                        help="vary one size at a time around the first value of each, instead of all combinations")
    parser.add_argument("--execution", **many, metavar="E", help=", ".join(EXECUTIONS))
    parser.add_argument("--memory-format", **many, metavar="F", help=", ".join(MEMORY_FORMATS))
    parser.add_argument("--cudnn-benchmark", **many, metavar="B", help=", ".join(BENCHMARK_CHOICES))
    parser.add_argument("--sdp-backend", **many, metavar="S", help=", ".join(SDP_BACKENDS))
    parser.add_argument("--handicap", **many, metavar="H",
                        help=f"none, or any of {', '.join(handicaps.KINDS)}, such as sm_count=40; join with +")
    parser.add_argument("--entry", metavar="FILE.py:build", help="your own model: a function that returns it")
    parser.add_argument("--checkout", **many, metavar="NAME=PATH", help="your copy of an official repository")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint instead of random weights")
    parser.add_argument("--video", metavar="FILE",
                        help="a video file, or a TAP-Vid pickle (.pkl), instead of the procedural clip")
    parser.add_argument("--device", metavar="D",
                        help="auto, cuda:0, cpu, or all: every GPU in turn, one run file each (auto)")
    parser.add_argument("--processes", metavar="N", help="worker processes per cell")
    parser.add_argument("--ops", choices=OPS_CHOICES, metavar="|".join(OPS_CHOICES),
                        help="cells with an op table, in their first process (centre)")
    parser.add_argument("--budget", metavar="T", help="time for the whole sweep, such as 90s, 10m, 1h")
    parser.add_argument("--cell-timeout", metavar="T", help="a cell silent for this long counts as hung (10m)")
    parser.add_argument("--label", metavar="TEXT", help="a name for this run")
    parser.add_argument("--no-ceilings", action="store_true", default=None,
                        help="do not measure what the GPU does at best first (presets but quick do)")
    parser.add_argument("--seed", metavar="N", help="of order, clip and weights (0)")
    parser.add_argument("--force", action="store_true", default=None,
                        help="measure although another process uses the GPU")


SWEEP_OPTIONS = (
    "preset", "tracker", "precision", "resolution", "frames", "points", "batch", "star", "execution",
    "memory_format", "cudnn_benchmark", "sdp_backend", "handicap", "device", "processes", "ops", "cell_timeout",
    "label", "seed", "no_ceilings",
)
"""Options that decide what is measured: not to be given with --resume, which takes them from the file."""


_SETTING_OPTIONS = ("execution", "memory_format", "cudnn_benchmark", "sdp_backend", "handicap")


def request_from(arguments: argparse.Namespace) -> SweepRequest:
    """The request that the parsed options of `add_sweep_options` ask for.

    Raises UserError for anything that cannot be measured: an unknown tracker, precision, execution (with the nearest
    matches), a size that is no number or does not fit the tracker, an empty sweep.
    """
    preset_name = arguments.preset or DEFAULT_PRESET
    preset = PRESETS[preset_name]
    given = {option: _split(getattr(arguments, option)) for option in
             ("tracker", "precision", "resolution", "frames", "points", "batch", *_SETTING_OPTIONS)}
    for option, texts in given.items():
        if texts is not None and not texts:
            name = option.replace("_", "-")
            raise UserError(f"the sweep is empty: --{name} has no value", f"at least one {name}")
    sizes_given = any(given[option] for option in ("frames", "resolution", "points", "batch"))

    def values(option: str, own: Sequence[Any], parse: Any) -> list[Any]:
        """Given values; else the preset's, or only its centre once another size option was given."""
        if given[option]:
            return list(dict.fromkeys(parse(text) for text in given[option] or ()))
        return list(own[:1]) if sizes_given else list(own)

    def chosen(option: str, own: Sequence[str], choices: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(
            _choice(text, choices, option.replace("_", "-")) for text in given[option] or own
        ))

    if arguments.entry and (given["tracker"] or sizes_given):
        raise UserError("--entry with --tracker or a size", "--entry alone: the model brings its own inputs",
                        "leave the other options out")
    sizes = _sizes(
        values("frames", preset.frames, lambda text: count(text, "frames")),
        values("resolution", preset.resolutions, registry.parse_resolution),
        values("points", preset.points, lambda text: count(text, "points")),
        values("batch", preset.batches, lambda text: count(text, "batch", MAX_BATCH)),
        star=not sizes_given or bool(arguments.star),
    )
    trackers = () if arguments.entry else tuple(
        dict.fromkeys(_selector(text) for text in given["tracker"] or preset.trackers)
    )
    own_settings = any(given[option] for option in ("precision", *_SETTING_OPTIONS))
    request = SweepRequest(
        preset=preset_name, trackers=trackers, sizes=sizes[:1] if arguments.entry else sizes, effort=preset.effort,
        precisions=chosen("precision", preset.precisions, PRECISIONS),
        executions=chosen("execution", EXECUTIONS[:1], EXECUTIONS),
        memory_formats=chosen("memory_format", MEMORY_FORMATS[:1], MEMORY_FORMATS),
        cudnn_benchmarks=tuple(
            choice == "on" for choice in chosen("cudnn_benchmark", BENCHMARK_CHOICES[:1], BENCHMARK_CHOICES)
        ),
        sdp_backends=chosen("sdp_backend", SDP_BACKENDS[:1], SDP_BACKENDS),
        handicaps=tuple(dict.fromkeys(handicaps.parse(text) for text in given["handicap"] or ("none",))),
        ladder=None if own_settings else preset.ladder,
        entry=arguments.entry or None,
        checkouts=checkouts(arguments.checkout),
        weights=arguments.weights or None,
        ceilings=preset.ceilings and not arguments.no_ceilings,
        device=parse_device(arguments.device or "auto"),
        processes=count(arguments.processes, "processes", MAX_PROCESSES) if arguments.processes else preset.processes,
        budget_s=parse_duration_s(arguments.budget, "budget") if arguments.budget else None,
        label=arguments.label or None,
        seed=count(arguments.seed, "seed", least=0) if arguments.seed else 0,
        force=bool(arguments.force),
        ops=arguments.ops or preset.ops,
        cell_timeout_s=parse_duration_s(arguments.cell_timeout, "cell-timeout") if arguments.cell_timeout else 600.0,
        video=arguments.video or None,
    )
    check(request)
    return request


def check(request: SweepRequest) -> None:
    """Raises UserError when a cell of the request cannot be planned or there is none, or far too many."""
    for text in request.trackers:
        info, _ = registry.resolve(text)
        if request.weights and info.implementation != OFFICIAL:
            raise UserError(f"--weights with {info.name}", "an official tracker: built-in ones have random weights",
                            "leave --weights out")
        for size in request.sizes:
            work_of(request, text, size)
    if request.label is not None and len(request.label) > 200:
        raise UserError(f"a label of {len(request.label)} characters", "at most 200", "shorten --label")
    workloads = 1 if request.entry else len(request.trackers) * len(request.sizes)
    cells = workloads * len(request.settings()) * request.processes
    if cells == 0:
        raise UserError("the sweep is empty", "at least one tracker, size and precision")
    if cells > MAX_CELLS:
        raise UserError(f"the sweep has {cells} cells", f"at most {MAX_CELLS}", "ask for fewer sizes or use --star")
    if request.budget_s is not None and request.budget_s < request.effort.warmup_s:
        raise UserError(f"a budget of {request.budget_s:g} s",
                        f"at least {request.effort.warmup_s:g} s, the warmup of one cell of preset {request.preset}",
                        "raise --budget or leave it out")
    if request.weights and not Path(request.weights).is_file():
        raise UserError(f"no checkpoint {Path(request.weights).name!r}", "a readable file",
                        "check the path given to --weights")
    if request.video:
        if not Path(request.video).is_file():
            raise UserError(f"no video file {Path(request.video).name!r}", "a readable file",
                            "check the path given to --video")
        if not request.video.endswith(".pkl") and importlib.util.find_spec("av") is None:
            raise UserError("PyAV is not installed", "the package `av` for --video", "run `pip install av`")


def parse_duration_s(text: str, name: str) -> float:
    """"90s", "10m", "1.5h" or plain seconds."""
    units = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    number = text.strip().lower()
    unit = next((unit for unit in ("min", "s", "m", "h") if number.endswith(unit)), "")
    try:
        seconds = float(number.removesuffix(unit)) * units.get(unit, 1.0)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e7:
        raise UserError(f"--{name} {text!r}", "a time such as 90s, 10m or 1h")
    return seconds


LEAST_CEILINGS_S = 5.0
"""Below, not even the bandwidth of memory would be measured: its first working set is the largest."""


def parse_ceilings_budget_s(text: str) -> float:
    """The budget of `ceilings`. Raises UserError for one that no ceiling fits into."""
    budget_s = parse_duration_s(text, "budget")
    if budget_s < LEAST_CEILINGS_S:
        raise UserError(f"a budget of {budget_s:g} s", f"at least {LEAST_CEILINGS_S:g} s for one ceiling",
                        "raise --budget")
    return budget_s


ALL_DEVICES = "all"
BOARD = "board:"  # and the id of a board, as in run files


def parse_device(text: str) -> str:
    """auto, cpu, cuda (the first), cuda:N, board:ID, or all (every GPU of this machine in turn)."""
    if text == "cuda":
        return "cuda:0"
    board = re.fullmatch(BOARD + r"[0-9a-f]{32}", text)
    if text in ("auto", "cpu", ALL_DEVICES) or board or (text.startswith("cuda:") and text[5:].isdecimal()):
        return text
    raise UserError(f"device {text!r}", "auto, cpu, cuda:N or all", "try --device auto")


TRACKERS_FILE = "trackers.toml"
"""In the current folder: where the user's copies of official repositories are, in a table [checkouts]."""


def checkouts(texts: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """(checkout name, path) from `--checkout NAME=PATH` and trackers.toml. Raises UserError as registry.checkouts."""
    file = Path(TRACKERS_FILE)
    return tuple(registry.checkouts(texts or (), file if file.is_file() else None).items())


def _selector(text: str) -> str:
    """`name:variant`, the default variant filled in."""
    info, variant = registry.resolve(text)
    return f"{info.name}:{variant.name}"


def _split(values: Iterable[str] | None) -> list[str] | None:
    """Values given apart or with commas between them."""
    if values is None:
        return None
    return [part for value in values for part in str(value).split(",") if part.strip()]


def count(text: str, name: str, most: int = 1_000_000, least: int = 1) -> int:
    """A whole number within limits. Raises UserError for anything else."""
    try:
        value = int(str(text).strip())
    except ValueError:
        value = None  # type: ignore[assignment]
    if value is None or not least <= value <= most:
        raise UserError(f"{name} {str(text)[:40]!r}", f"a whole number from {least} to {most}")
    return value


def _choice(text: str, choices: Sequence[str], name: str) -> str:
    if text in choices:
        return text
    near = difflib.get_close_matches(text.lower(), choices, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}" if near else ""
    raise UserError(f"unknown {name} {text[:40]!r}", f"one of {', '.join(choices)}", hint)


def _sizes(
    frames: list[int], resolutions: list[tuple[int, int]], points: list[int], batches: list[int], star: bool
) -> tuple[Size, ...]:
    """All combinations, or the first of each with one varied at a time. The first size is made of the first values."""
    every = [Size(f, h, w, p, b) for f in frames for h, w in resolutions for p in points for b in batches]
    if not star:
        return tuple(every)
    first = every[0]
    around = [replace(first, frames=f) for f in frames]
    around += [replace(first, height=h, width=w) for h, w in resolutions]
    around += [replace(first, points=p) for p in points]
    around += [replace(first, batch=b) for b in batches]
    return tuple(dict.fromkeys(around))


# --- cells -----------------------------------------------------------------------------------------------------------


def expand(
    request: SweepRequest, rate: RoughRate | None = None, works: Sequence[WorkKey] | None = None
) -> list[PlannedCell]:
    """The cells of a sweep in the order in which they run, with predictions where `rate` is known.

    `works` stands in for the request's trackers and sizes: the work of a model that only a worker can look at. The
    order is random within each process; cells of one handicap and one cuDNN search stay together, since they share
    worker processes.
    """
    order = random.Random(request.seed)
    cells: list[PlannedCell] = []
    settings = request.settings()
    together = list(dict.fromkeys((setting.handicap, setting.cudnn_benchmark) for setting in settings))
    for process in range(request.processes):
        for kind in order.sample(together, len(together)):
            group = [setting for setting in settings if (setting.handicap, setting.cudnn_benchmark) == kind]
            for work, size in _works_in_order(request, works, order):
                estimate = registry.estimate(work) if works is None else None
                for setting in order.sample(group, len(group)):
                    pass_s = rate.pass_s(estimate, setting.precision) if rate and estimate else None
                    cells.append(PlannedCell(
                        workload=Workload(work, setting), process=process,
                        with_ops=process == 0 and setting.execution in STAGED_EXECUTIONS and (
                            request.ops == "all" or (request.ops == "centre" and size == request.centre)
                        ),
                        predicted_pass_s=pass_s,
                        predicted_s=cell_s(pass_s, request.effort) if pass_s is not None else None,
                        predicted_bytes=estimate.peak_bytes if estimate else None,
                    ))
    return cells


def _works_in_order(
    request: SweepRequest, works: Sequence[WorkKey] | None, order: random.Random
) -> list[tuple[WorkKey, Size]]:
    """Each work once, with the size that it was asked for; a dense tracker has one work for all numbers of points."""
    if works is not None:
        return [(work, request.centre) for work in works]
    found: dict[str, tuple[WorkKey, Size]] = {}
    for selector in order.sample(request.trackers, len(request.trackers)):
        for size in order.sample(request.sizes, len(request.sizes)):
            work = work_of(request, selector, size)
            if work.key() not in found or size == request.centre:
                found[work.key()] = work, size
    return list(found.values())


def works_before_a_look(request: SweepRequest) -> list[WorkKey] | None:
    """What a plan can say about the user's own model before a worker has loaded it: its file. None for trackers."""
    return None if request.entry is None else [work_before_a_look(request.entry)]


def work_before_a_look(entry: str) -> WorkKey:
    """The work of `FILE.py:build` as far as its name tells."""
    name = Path(entry.rpartition(":")[0] or entry).stem
    return WorkKey(tracker=name, variant=None, implementation=OWN, revision="(known once it is loaded)",
                   weights=OWN, frames=None, height=None, width=None, points=None)


def work_of(request: SweepRequest, selector: str, size: Size) -> WorkKey:
    """The work key of one tracker at one size, with the revision of its checkout and the identity of its weights."""
    info, _ = registry.resolve(selector)
    revision = weights = None
    if info.implementation == OFFICIAL:
        revision = _revision(selector, request.checkouts)
        weights = _weights_name(request.weights) if request.weights else None
    return registry.work_key(selector, size.frames, size.height, size.width, size.points, size.batch,
                             revision=revision, weights=weights)


@functools.lru_cache(maxsize=64)
def _revision(selector: str, given: tuple[tuple[str, str], ...]) -> str:
    """Asked once for all cells of a sweep: it reads every Python file of a checkout."""
    info, _ = registry.resolve(selector)
    problem = registry.missing(info, dict(given))
    if problem is not None:
        raise problem
    return registry.revision(info, dict(given))


@functools.lru_cache(maxsize=8)
def _weights_name(path: str) -> str:
    return checkout.weights_name(path)


def cell_s(pass_s: float, effort: Effort) -> float:
    """Rough time of one cell: first call, warmup, and the fewest repetitions or the sample budget."""
    warmup_s = max(effort.warmup_s, pass_s)
    repetitions_s = max(3 * pass_s, min(effort.sample_s, effort.min_repetitions * pass_s))
    return pass_s + warmup_s + repetitions_s


# --- rough predictions -----------------------------------------------------------------------------------------------

# LocoTrack base (the same architecture), 47 frames, 64 points: 1.18 TFLOP in 14.7 s on two Xeon cores.
CPU_FLOPS_PER_CORE_S = 40e9
# Assumed, not measured: a forward pass reaches this share of the data sheet. Good for a plan, never for a verdict.
GPU_SHARE_OF_PEAK = 0.5
ROUGH_FACTOR = 7
"""How far a pass may lie from its prediction; the shipped runs stay within it (a test)."""
# An op timed alone takes at least 25 us on a T4 and an A100 alike (core/reference/norms). In a stream its host work
# overlaps with the op before; that less than half of it is left is assumed, too.
GPU_LAUNCH_S = 10e-6


@dataclass(frozen=True)
class RoughRate:
    """What a device is assumed to reach, for a prediction only."""

    name: str
    flops_per_s: dict[str, float]
    bytes_per_s: float | None
    launch_s: float

    def pass_s(self, estimate: registry.Estimate, precision: str) -> float | None:
        rate = self.flops_per_s.get(precision)
        if rate is None:
            return None
        memory_s = estimate.bytes / self.bytes_per_s if self.bytes_per_s else 0.0
        return max(estimate.flops / rate, memory_s, estimate.launches * self.launch_s)


def cpu_rate(cores: int | None = None) -> RoughRate:
    available = cores or usable_cores()
    rate = available * CPU_FLOPS_PER_CORE_S
    # tf32 does not exist there and gets no prediction.
    return RoughRate(f"CPU, {available} cores", {p: rate for p in PRECISIONS if p != "tf32"}, None, 0.0)


def gpu_rate(name: str, memory_bytes: int | None = None) -> RoughRate | None:
    """From the catalogue by the driver's name of the card; None for a card that is not in it."""
    gpu = by_nvml_name(name, memory_bytes)
    if gpu is None or gpu.memory_bandwidth_gb_s is None:
        return None
    peaks = {precision: peak_tflops(gpu, precision) for precision in PRECISIONS}
    rates = {p: peak.value * 1e12 * GPU_SHARE_OF_PEAK for p, peak in peaks.items() if peak is not None}
    return RoughRate(gpu.name, rates, gpu.memory_bandwidth_gb_s * 1e9 * GPU_SHARE_OF_PEAK, GPU_LAUNCH_S)


def rate_of(device: str) -> RoughRate | None:
    """Rate of the device a sweep would use, found without torch: asks nvidia-smi for the card's name."""
    if device == "cpu":
        return cpu_rate()
    if device.startswith(BOARD):
        return None
    cards = _nvidia_smi_cards()
    if cards is None:
        return cpu_rate() if device in ("auto", ALL_DEVICES) else None
    index = int(device[5:]) if device.startswith("cuda:") else 0
    return gpu_rate(*cards[index]) if index < len(cards) else None


def _nvidia_smi_cards() -> list[tuple[str, int]] | None:
    """(name, memory in bytes) of each card, None without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout
        rows = [line.rsplit(",", 1) for line in answer.splitlines() if "," in line]
        return [(name.strip(), int(mebibytes) * 2**20) for name, mebibytes in rows] or None
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def usable_cores() -> int:
    """Cores that this process may use: affinity and cgroup quota count, not what the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return cores


# --- showing a plan --------------------------------------------------------------------------------------------------


def told(arguments: argparse.Namespace) -> str:
    """The plan that the parsed options ask for: a table, or with `arguments.json` one JSON document."""
    request = request_from(arguments)
    rate = rate_of(request.device)
    cells = expand(request, rate, works_before_a_look(request))
    return json.dumps(plan_json(request, cells, rate)) if arguments.json else plan_table(request, cells, rate)


def choices() -> dict[str, Any]:
    """What the options of a sweep may be, for a form: the app does not import this module.

    `handicaps`: an example of each kind, with what it means in words.
    """
    examples = {kind.name: kind.name if kind.flag else f"{kind.name}={kind.least:g}"
                for kind in handicaps.KINDS.values()} | _LESS
    return {
        "presets": list(PRESETS), "precisions": list(PRECISIONS), "executions": list(EXECUTIONS),
        "memory_formats": list(MEMORY_FORMATS), "sdp_backends": list(SDP_BACKENDS),
        "cudnn_benchmarks": list(BENCHMARK_CHOICES),
        "handicaps": [
            {"value": examples[kind.name], "words": handicaps.in_words(examples[kind.name]),
             "needs_cuda": kind.needs_cuda}
            for kind in handicaps.KINDS.values()
        ],
    }


def plan_json(request: SweepRequest, cells: list[PlannedCell], rate: RoughRate | None) -> dict[str, Any]:
    """The plan as one JSON document. Predictions are rough and say on what they rest."""
    known = [cell.predicted_s for cell in cells if cell.predicted_s is not None]
    return {
        "cells": [
            {
                "tracker": cell.workload.work.selector, "frames": cell.workload.work.frames,
                "height": cell.workload.work.height, "width": cell.workload.work.width,
                "points": cell.workload.work.points, "batch": cell.workload.work.batch,
                "precision": cell.workload.setting.precision,
                "setting": setting_in_words(cell.workload.setting), "process": cell.process, "ops": cell.with_ops,
                "predicted_pass_ms": None if cell.predicted_pass_s is None else cell.predicted_pass_s * 1e3,
                "predicted_s": cell.predicted_s, "predicted_bytes": cell.predicted_bytes,
            }
            for cell in cells
        ],
        "request": request.to_json(),
        "choices": choices(),
        "predicted_s": sum(known) if known else None,
        "predicted_bytes": max((cell.predicted_bytes for cell in cells if cell.predicted_bytes is not None),
                               default=None),
        "predicted_for": rate.name if rate else None,
        "prediction": f"rough: {GPU_SHARE_OF_PEAK:.0%} of data-sheet rates, or "
                      f"{CPU_FLOPS_PER_CORE_S / 1e9:.0f} GFLOP/s per CPU core; measured times may differ "
                      f"{ROUGH_FACTOR}-fold",
    }


def plan_table(request: SweepRequest, cells: list[PlannedCell], rate: RoughRate | None) -> str:
    """The plan as plain text, one line per workload, in the order of the first process."""
    width = max([9, *(len(setting_in_words(cell.workload.setting)) for cell in cells)])
    name_width = max([16, *(len(cell.workload.work.selector) for cell in cells)])
    lines = [f"{'tracker':<{name_width}} {'size':<24} {'setting':<{width}} {'pass':>9} {'cell':>9} {'memory':>9}  ops"]
    for cell in cells:
        if cell.process == 0:
            lines.append(
                f"{cell.workload.work.selector:<{name_width}} {size_in_words(cell.workload.work):<24} "
                f"{setting_in_words(cell.workload.setting):<{width}} {_time(cell.predicted_pass_s):>9} "
                f"{_time(cell.predicted_s):>9} {units.bytes_size(cell.predicted_bytes):>9}  "
                f"{'yes' if cell.with_ops else ''}".rstrip()
            )
    known = [cell.predicted_s for cell in cells if cell.predicted_s is not None]
    total = f"about {units.duration(sum(known))} on {rate.name} (rough)" if known and rate else "time not predicted"
    lines.append(f"{len(cells)} cells in {request.processes} process{'es' if request.processes > 1 else ''}, {total}")
    return "\n".join(lines)


def _time(value_s: float | None) -> str:
    return units.time_ms(None if value_s is None else value_s * 1e3)
