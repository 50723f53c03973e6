"""Is the built-in tracker right on this GPU? Each precision against float64 on the CPU, same weights and clip.

    python benchmarks/check_gpu.py [--frames 8 --resolution 128 --points 32]

Prints, per variant and precision, the relative error ||out - ref|| / ||ref|| of the tracks and the largest distance
in pixels. Exit status 1 when IEEE fp32 is off by 1e-3 or more, or anything is not finite.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from core.measure import precision as precisions
from core.measure.inputs import procedural_clip, to_model_input
from core.records import PRECISIONS
from core.trackers import local4d


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--points", type=int, default=32)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {options.frames} frames {options.resolution}x{options.resolution}, "
          f"{options.points} points")
    wrong = False
    for variant in ("small", "base"):
        # One clip per variant with a seed of its own, so that a check never repeats the inputs of another.
        clip = procedural_clip(options.frames, options.resolution, options.resolution, options.points,
                               seed=17 + len(variant))
        with torch.inference_mode():
            inputs = to_model_input(clip, "cpu")
            exact = local4d.build(variant).double()(**{k: v.double() for k, v in inputs.items()}).tracks
            model = local4d.build(variant).to(device)
            moved = to_model_input(clip, device)
            for precision in PRECISIONS:
                capability = torch.cuda.get_device_capability() if device == "cuda" else None
                if precisions.unsupported_reason(precision, device, capability):
                    continue
                precisions.apply(precision)
                with precisions.autocast(precision, device):
                    tracks = model(**moved).tracks.double().cpu()
                error = float((tracks - exact).norm() / exact.norm())
                worst = float((tracks - exact).norm(dim=-1).max())
                finite = bool(torch.isfinite(tracks).all())
                wrong |= not finite or (precision == "fp32" and error >= 1e-3)
                print(f"{variant:6} {precision:8} relative error {error:.2e}  largest distance {worst:.3g} px  "
                      f"finite {finite}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
