"""Does reading telemetry between repetitions change the timed passes? A and B in one process, block by block.

    python benchmarks/telemetry_cost.py [--device cuda:0] [--blocks 10] [--repetitions 10] [--points 1024]

Each block times the same passes once with an NVML reading after every repetition and once without any, in turn; the
order changes from block to block. Needs a GPU with NVML; prints the cost of one reading, too.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from core.measure import device, inputs, precision, telemetry  # noqa: E402
from core.measure.nvml import Nvml  # noqa: E402
from core.measure.timing import CudaClock  # noqa: E402
from core.trackers import registry  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--points", type=int, default=1024)
    asked = parser.parse_args()
    nvml = Nvml.open()
    found = device.find(asked.device, nvml)
    where = torch.device(found.torch_name)
    torch.cuda.set_device(where)
    sensor, clock = telemetry.Sensor(nvml, found.uuid), CudaClock(torch, where)
    info, variant = registry.resolve("local4d:base")
    model = registry.load_builder(info)(variant.name).to(where)
    clip = inputs.procedural_clip(47, 256, 256, asked.points, 0)
    arguments = model.prepare(**inputs.to_model_input(clip, where))
    precision.apply("tf32")

    def block(with_readings: bool) -> list[float]:
        times = []
        for _ in range(asked.repetitions):
            clock.synchronize()
            start = clock.now_ms()
            model(**arguments)
            clock.synchronize()
            times.append(clock.now_ms() - start)
            if with_readings:
                sensor.read()
        return times

    with torch.inference_mode():
        block(True)
        samples: dict[bool, list[float]] = {True: [], False: []}
        ratios = []
        for index in range(asked.blocks):
            order = (True, False) if index % 2 == 0 else (False, True)
            found_times = {reading: block(reading) for reading in order}
            for reading, times in found_times.items():
                samples[reading] += times
            ratios.append(statistics.median(found_times[True]) / statistics.median(found_times[False]))
    with_ms, without_ms = statistics.median(samples[True]), statistics.median(samples[False])
    print(f"{found.device.name}, local4d:base tf32, 47 frames 256x256, {asked.points} points, "
          f"{asked.blocks} blocks of {asked.repetitions}")
    print(f"one reading: {telemetry.reading_cost_us(sensor):.0f} us, outside the timed region")
    print(f"median pass with readings {with_ms:.3f} ms, without {without_ms:.3f} ms, ratio {with_ms / without_ms:.5f}; "
          f"ratio of blocks: median {statistics.median(ratios):.5f}, from {min(ratios):.5f} to {max(ratios):.5f}")


if __name__ == "__main__":
    main()
