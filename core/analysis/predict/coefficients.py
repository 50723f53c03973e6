"""What was learned from the timing data, read from core/reference/prediction (made by
benchmarks/make_prediction.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from core.analysis.predict.cards import MeasuredBoard
from core.analysis.predict.trees import Trees, from_table

FOLDER = Path(__file__).resolve().parents[2] / "reference" / "prediction"
FLOATS = "%.5g"


@dataclass(frozen=True)
class Coefficients:
    """`trees`: "matmul/compute" and "matmul/memory" hold for every card, "matmul/t4" for one measured chip.

    `floor_ratios`: (chip, or "any" for the median of all, operation) -> its time on tiny tensors over that of add.
    `carry`: (class, relation of the two cards) -> share of the source's residual that the target has too.
    `bands`: (kind, class, bucket) -> log of true over predicted time at 2.5 and 97.5 %, over what "class/spread_.."
    trees expect; the kind is ceilings, spec or measured:CHIP.
    """

    boards: tuple[MeasuredBoard, ...]
    floor_ratios: Mapping[tuple[str, str], float]
    trees: Mapping[str, Trees]
    carry: Mapping[tuple[str, str], float]
    bands: Mapping[tuple[str, str, str], tuple[float, float]]

    def write(self, folder: Path = FOLDER) -> None:
        """All tables as CSV files, the trees compressed."""
        folder.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([vars(board) for board in self.boards]).to_csv(
            folder / "measured_boards.csv", index=False, float_format=FLOATS
        )
        floors = pd.DataFrame(
            [(*key, value) for key, value in self.floor_ratios.items()], columns=["chip", "op", "ratio_to_add"]
        )
        floors.to_csv(folder / "floors.csv", index=False, float_format="%.4g")
        carry = pd.DataFrame(
            [(*key, value) for key, value in self.carry.items()], columns=["op_class", "relation", "share"]
        )
        carry.to_csv(folder / "carry.csv", index=False, float_format="%.3g")
        bands = pd.DataFrame(
            [(*key, *value) for key, value in self.bands.items()],
            columns=["kind", "op_class", "bucket", "log_low", "log_high"],
        )
        bands.to_csv(folder / "bands.csv", index=False, float_format="%.4g")
        trees = pd.concat([trees.table(name) for name, trees in self.trees.items()], ignore_index=True)
        trees.to_csv(
            folder / "trees.csv.gz", index=False, float_format="%.5g", compression={"method": "gzip", "mtime": 0}
        )


@lru_cache(maxsize=1)
def shipped() -> Coefficients:
    """The coefficients that come with Gapscope."""
    boards = pd.read_csv(FOLDER / "measured_boards.csv")
    floors = pd.read_csv(FOLDER / "floors.csv")
    carry = pd.read_csv(FOLDER / "carry.csv")
    bands = pd.read_csv(FOLDER / "bands.csv")
    trees = pd.read_csv(FOLDER / "trees.csv.gz")
    return Coefficients(
        boards=tuple(
            MeasuredBoard(str(chip), str(key), float(gemm), float(copy), float(launch))
            for chip, key, gemm, copy, launch in boards[list(MeasuredBoard.__dataclass_fields__)].to_numpy()
        ),
        floor_ratios={(str(chip), str(op)): float(ratio) for chip, op, ratio in floors.to_numpy()},
        trees={str(name): from_table(part) for name, part in trees.groupby("model", sort=False)},
        carry={(str(op_class), str(kind)): float(share) for op_class, kind, share in carry.to_numpy()},
        bands={
            (str(kind), str(op_class), str(bucket)): (float(low), float(high))
            for kind, op_class, bucket, low, high in bands.to_numpy()
        },
    )
