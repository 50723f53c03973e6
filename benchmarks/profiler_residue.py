"""Does a profiled pass slow the passes behind it in the same process? The reason why a worker of its own profiles.

    python benchmarks/profiler_residue.py [--repetitions 40]

Prints the median wall time of one forward pass before the first profile, and after one and after two profiles, then
the same with no profile in between (what the machine's own drift gives). Needs a CUDA GPU.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from core.measure import profile
from core.measure.inputs import procedural_clip, to_model_input
from core.measure.timing import CudaClock
from core.trackers import local4d


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=40)
    repetitions = parser.parse_args().repetitions
    device = torch.device("cuda:0")
    clock = CudaClock(torch, device)
    model = local4d.build("small").to(device)
    inputs = to_model_input(procedural_clip(8, 128, 128, 32), device)

    def call() -> object:
        with torch.inference_mode():
            return model(**inputs)

    def median_ms() -> float:
        times = []
        for _ in range(repetitions):
            clock.synchronize()
            start = clock.now_ms()
            call()
            clock.synchronize()
            times.append(clock.now_ms() - start)
        return statistics.median(times)

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, local4d:small 8f 128x128 32p, default")
    median_ms()
    print("without a profile:", ", ".join(f"{median_ms():.2f} ms" for _ in range(4)))
    for done in (1, 2):
        profile.record(call, model, clock, with_shapes=True, on_cuda=True)
        print(f"behind {done} profiled pass(es):", ", ".join(f"{median_ms():.2f} ms" for _ in range(3)))


if __name__ == "__main__":
    main()
