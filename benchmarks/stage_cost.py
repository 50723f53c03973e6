"""What marking the stages costs: the same forward passes with and without marks, taken in turn.

    python benchmarks/stage_cost.py [--device cuda:0|cpu] [--repetitions 40]

Stages are marked in the timed repetitions themselves, so that they sum to each total; this shows the price.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from core.measure import precision
from core.measure.inputs import procedural_clip, to_model_input
from core.measure.timing import Clock, CudaClock, HostClock, StageTimer
from core.trackers import local4d
from core.trackers.stages import marked, no_marker

SIZES = {"cpu": [(8, 128, 32)], "cuda": [(47, 256, 256), (8, 128, 32)]}  # frames, side, points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repetitions", type=int, default=40)
    options = parser.parse_args()
    device = torch.device(options.device)
    clock: Clock = CudaClock(torch, device) if device.type == "cuda" else HostClock()
    stages = StageTimer(clock)
    model = local4d.build("base").to(device)
    for frames, side, points in SIZES[device.type]:
        inputs = to_model_input(procedural_clip(frames, side, side, points), device)
        for name in ("fp32", "bf16"):
            precision.apply(name)
            times: dict[bool, list[float]] = {True: [], False: []}
            visits = 0
            for repetition in range(options.repetitions + 5):
                for with_marks in (True, False):
                    clock.synchronize()
                    start = clock.now_ms()
                    with torch.inference_mode(), precision.autocast(name, device.type), \
                            marked(model, stages if with_marks else no_marker):
                        model(**inputs)
                    clock.synchronize()
                    if repetition >= 5:  # the first ones load kernels and warm up
                        times[with_marks].append(clock.now_ms() - start)
                    visits = max(visits, len(stages.visits))
                    stages.take()
            on, off = statistics.median(times[True]), statistics.median(times[False])
            print(f"{frames}f {side}x{side} {points}p {name}: {off:.2f} ms, with {visits} marked stages {on:.2f} ms "
                  f"({(on / off - 1) * 100:+.2f} %)")


if __name__ == "__main__":
    main()
