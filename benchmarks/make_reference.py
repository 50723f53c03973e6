"""Measures the run files that are shipped in core/reference, on the machine where it runs.

    python3 benchmarks/make_reference.py --out DIR [--seconds 460] [--resume] [--device cuda:0] [--parts NAME ...]

Parts, in this order (every one is a run of its own, `DIR/PREFIX-PART.jsonl`, compressed when it is complete):

    quick           preset quick
    centre          local4d base and small at 47 frames, 256x256, 256 points: five precisions, five processes, op tables
    founding        preset founding: the ladder of handicaps on the founding case
    sm-limited      local4d and joint4d on 40, 66, 108 and all 132 SMs, fp32 and tf32, op tables
    star-base       local4d base around that size: resolution 256, 384, 512; frames 24, 47, 96; points 64, 256, 1024
    star-small      the same for local4d small
    standard-base   preset standard, its cells of local4d base
    standard-small  preset standard, its cells of local4d small

It stops before `--seconds` are over. With `--resume`, complete parts are skipped and an unfinished one is continued;
if that one was made on another board it stays as it is (a valid run of fewer cells) and the part starts anew.
"""
from __future__ import annotations

import argparse
import gzip
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARGIN_S = 15.0  # for the cell that runs when the time is up, and for compressing
LEAST_S = 30.0  # less than this is not worth starting a worker for
MOST_BYTES = 3_000_000

_STAR = ["--preset", "standard", "--star", "--frames", "47", "24", "96", "--resolution", "256", "384", "512",
         "--points", "256", "64", "1024", "--processes", "1"]
PARTS: dict[str, list[str]] = {
    "quick": ["--preset", "quick"],
    "centre": ["--preset", "standard", "--frames", "47", "--resolution", "256", "--points", "256", "--processes", "5",
               "--ops", "all"],
    "founding": ["--preset", "founding"],
    "sm-limited": ["--preset", "standard", "--tracker", "local4d:base", "local4d:small", "joint4d:base", "--frames",
                   "47", "--resolution", "256", "--points", "256", "--precision", "fp32", "tf32", "--handicap", "none",
                   "sm_count=40", "sm_count=66", "sm_count=108", "--processes", "1", "--ops", "all"],
    "star-base": [*_STAR, "--tracker", "local4d:base"],
    "star-small": [*_STAR, "--tracker", "local4d:small"],
    "standard-base": ["--preset", "standard", "--tracker", "local4d:base"],
    "standard-small": ["--preset", "standard", "--tracker", "local4d:small"],
}


def main() -> int:
    arguments = _arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + arguments.seconds
    finished = 0
    for name in arguments.parts:
        left_s = deadline - time.monotonic() - MARGIN_S
        plain = arguments.out / f"{arguments.prefix}-{name}.jsonl"
        packed = plain.with_name(plain.name + ".gz")
        if packed.exists():
            print(f"{name}: complete already")
            finished += 1
            continue
        if left_s < LEAST_S:
            print(f"{name}: no time left")
            continue
        code = _measure(name, plain, left_s, arguments)
        state = _end_state(plain)
        used_s = time.monotonic() - deadline + arguments.seconds
        print(f"{name}: exit code {code}, {state or 'no run file'}, {used_s:.0f} s used")
        if state == "done":
            _pack(plain, packed)
            finished += 1
    print(f"{finished} of {len(arguments.parts)} parts complete")
    return 0 if finished == len(arguments.parts) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=460.0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--prefix", default="h200", help="first word of the file names")
    parser.add_argument("--force", action="store_true", help="measure although another process uses the GPU")
    return parser.parse_args()


def _measure(name: str, plain: Path, left_s: float, arguments: argparse.Namespace) -> int:
    """One part, continued where it was left if that is possible."""
    common = ["--budget", f"{left_s:.0f}s", "--runs", str(arguments.out / "locks"), *["--force"] * arguments.force]
    if plain.exists():
        if not arguments.resume:
            raise SystemExit(f"{plain.name} exists already; use --resume to continue it")
        code = _runner(["--resume", str(plain), *common], left_s)
        if code != 2:
            return code
        plain.rename(_free_name(plain))  # another board: what is there stays a run of its own
    options = [*PARTS[name], "--device", arguments.device, "--label", f"reference {name}"]
    return _runner([*options, "--out", str(plain), *common], left_s)


def _runner(options: list[str], left_s: float) -> int:
    """`python -m core.measure run`; asked to stop when the time is up, ended a little later."""
    process = subprocess.Popen([sys.executable, "-m", "core.measure", "run", *options], cwd=ROOT)
    for number, wait_s in ((signal.SIGTERM, left_s), (signal.SIGTERM, MARGIN_S / 2), (signal.SIGKILL, 3.0)):
        try:
            return process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    return process.wait()


def _free_name(path: Path) -> Path:
    number = 2
    while (other := path.with_name(f"{path.stem}-board{number}{path.suffix}")).exists():
        number += 1
    return other


def _end_state(plain: Path) -> str | None:
    if not plain.exists():
        return None
    last = json.loads(plain.read_text(encoding="utf-8").rstrip("\n").rsplit("\n", 1)[-1])
    return str(last.get("state")) if last.get("kind") == "end" else "unfinished"


def _pack(plain: Path, packed: Path) -> None:
    temporary = packed.with_name(packed.name + ".part")
    # mtime 0: the same lines give the same bytes, so that a repeated packing is no change in git
    with open(plain, "rb") as source, open(temporary, "wb") as raw, \
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as target:
        shutil.copyfileobj(source, target)
    temporary.rename(packed)
    plain.unlink()
    size = packed.stat().st_size
    print(f"  {packed.name}: {size / 1e6:.2f} MB" + (", more than is shipped" if size > MOST_BYTES else ""))


if __name__ == "__main__":
    sys.exit(main())
