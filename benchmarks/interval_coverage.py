"""How often does the 95 % interval of a ratio cover the true ratio? Simulated runs, so that the truth is known.

    python benchmarks/interval_coverage.py [--runs 2000] [--seed 1]

Both sides have the same number of processes with 20 repetitions each. Times are log-normal: processes differ by 2 %,
repetitions by 1 %, and the true ratio is 2. Prints the share of runs whose interval holds it, and the median width.
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from core.analysis.statistics import ratio_interval

BETWEEN, WITHIN, REPETITIONS, RATIO = 0.02, 0.01, 20, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice = np.random.default_rng(options.seed)

    def side(median_ms: float, processes: int) -> list[np.ndarray]:
        levels = median_ms * np.exp(dice.normal(0, BETWEEN, processes))
        return [level * np.exp(dice.normal(0, WITHIN, REPETITIONS)) for level in levels]

    for processes in (1, 3, 5, 10, 20):
        covered, widths = 0, []
        for _ in range(options.runs):
            found = ratio_interval(side(10 * RATIO, processes), side(10, processes))
            assert found.low is not None
            assert found.high is not None
            covered += found.low <= RATIO <= found.high
            widths.append(found.high / found.low - 1)
        print(f"{processes:3} processes a side: {covered / options.runs:6.1%} covered, width {np.median(widths):.1%} "
              f"({found.kind})")


if __name__ == "__main__":
    main()
