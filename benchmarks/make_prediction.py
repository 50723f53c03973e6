"""Fit the prediction model and its bands on the op timings of sitar-lab/NeuSight; writes core/reference/prediction.

    python benchmarks/make_prediction.py kernel_latency_fp32.parquet [--out core/reference/prediction]

Input: one row per timed operation, FP32 with TF32 off, torch 2.1, launch floor included. In order:
1. boards: launch floor, best product rate and best bandwidth of each board;
2. floors: time of each operation on tiny tensors over that of add, median of the boards;
3. trees "class/compute", "class/memory": factors on the physical times, boosted on all boards together;
4. trees "class/chip": what is left on one chip, for targets that are in the data;
5. carry: the share of the source's residual that the target shows too;
6. bands: 2.5 and 97.5 % quantiles of log(true / predicted), for shapes held out (measured) and boards held out
(ceilings:
   its own ceilings known; spec: the data sheet alone).
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core.analysis.predict import model, physics  # noqa: E402
from core.analysis.predict.cards import Card, MeasuredBoard, card_of  # noqa: E402
from core.analysis.predict.coefficients import FOLDER, Coefficients  # noqa: E402
from core.analysis.predict.trees import Trees  # noqa: E402
from core.analysis.predict.work import work_table  # noqa: E402

# NVML name in the data -> chip and catalogue key. The 80 GB A100 timed convolution alone.
CHIP_OF_BOARD = {
    "Tesla P4": ("p4", "p4"),
    "Tesla P100-PCIE-16GB": ("p100", "p100-pcie-16gb"),
    "Tesla V100-PCIE-32GB": ("v100", "v100-pcie-32gb"),
    "Tesla T4": ("t4", "t4"),
    "NVIDIA A100-PCIE-40GB": ("a100", "a100-pcie-40gb"),
    "NVIDIA A100 80GB PCIe": ("a100", "a100-pcie-40gb"),
}
CHIPS = tuple(dict.fromkeys(chip for chip, _ in CHIP_OF_BOARD.values()))
KEY_OF_CHIP = dict(CHIP_OF_BOARD.values())
SHAPE_COLUMNS = ["op", "batch", "m", "n", "k", "cin", "cout", "kernel", "size", "h"]
BEST = 0.98  # a ceiling is what the card reaches at best; the highest 2 % may be timing noise
HELD_OUT_SHARE = 0.2
LOG = np.log


def timings_by_chip(timings: pd.DataFrame) -> pd.DataFrame:
    """One row per operation and shape with columns SHAPE_COLUMNS and a latency in ms per chip (median of repeats)."""
    timings = timings.assign(chip=timings["gpu"].map({name: chip for name, (chip, _) in CHIP_OF_BOARD.items()}))
    timings = timings.fillna(dict.fromkeys(SHAPE_COLUMNS[1:], -1))  # groupby would drop NaN
    return timings.groupby([*SHAPE_COLUMNS, "chip"])["latency_ms"].median().unstack("chip").reset_index()


def shapes_of(row: pd.Series) -> list[list[int]]:
    """Tensor shapes of one row. In the data `n` is the summed size of a product and `k` an output size: the kernels'
    grids are ceil(k / tile) x ceil(m / tile) in every one of the rows whose kernel names its tile."""
    batch, m, n, k = (int(row[name]) for name in ("batch", "m", "n", "k"))
    if row["op"] == "linear":
        return [[m, n], [k, n], [k]]
    if row["op"] == "bmm":
        return [[batch, m, n], [batch, n, k]]
    if row["op"] == "conv":
        cin, cout, side, kernel = (int(row[name]) for name in ("cin", "cout", "size", "kernel"))
        return [[batch, cin, side, side], [cout, cin, kernel, kernel]]
    return [[batch, int(row["h"])]]


def operations(table: pd.DataFrame) -> pd.DataFrame:
    """The columns op, shapes, scalars that predict_ops takes."""
    shapes = [shapes_of(row) for _, row in table.iterrows()]
    ops = pd.DataFrame({"op": table["op"].to_numpy(), "shapes": shapes})
    ops["scalars"] = [["[1, 1]", "[1, 1]", "[1, 1]", "1"] if op == "conv" else [] for op in ops["op"]]
    return ops


@dataclass(frozen=True)
class Data:
    """Timings with their work, row by row."""

    latency_ms: pd.DataFrame  # one column per chip, NaN where it was not timed
    work: pd.DataFrame

    def part(self, rows: np.ndarray) -> Data:
        return Data(self.latency_ms[rows].reset_index(drop=True), self.work[rows].reset_index(drop=True))


def load(path: Path) -> Data:
    table = timings_by_chip(pd.read_parquet(path))
    work, _ = work_table(operations(table))
    return Data(table[list(CHIPS)], work)


def measured_boards(data: Data, chips: Sequence[str]) -> tuple[MeasuredBoard, ...]:
    """Launch floor (median of add on tensors below 1 MiB), best product rate (linear, above 0.2 ms) and best bandwidth
    (add, above 64 MiB) of each board."""
    name, moved = data.work["floor_op"], data.work["bytes"]
    boards = []
    for chip in chips:
        ms = data.latency_ms[chip]
        products = (name == "linear") & (ms > 0.2)
        copies = (name == "add") & (moved > 64 * 2**20) & ms.notna()
        tiny = (name == "add") & (moved < 2**20)
        boards.append(MeasuredBoard(
            chip, KEY_OF_CHIP[chip], float((data.work["flops"] / ms / 1e9)[products].quantile(BEST)),
            float((moved / ms / 1e6)[copies].quantile(BEST)), float(ms[tiny].median() * 1e3),
        ))  # fmt: skip
    return tuple(boards)


def floor_ratios(data: Data, boards: Sequence[MeasuredBoard]) -> dict[tuple[str, str], float]:
    """Time of each operation on tensors below 1 MiB over the launch floor, by chip and ("any") the median of all. A
    product may compute for long on small tensors: of these the fastest 5 % count."""
    product = data.work["op_class"].isin(["matmul", "conv"])
    tiny = data.work["bytes"] < 2**20
    ratios = {}
    for board in boards:
        ms, name = data.latency_ms[board.chip], data.work["floor_op"]
        found_ms = pd.concat([ms[tiny & ~product].groupby(name).median(), ms[product].groupby(name).quantile(0.025)])
        ratios[board.chip] = found_ms / board.launch_us * 1e3
    found = pd.DataFrame(ratios)
    found["any"] = found.median(axis=1)
    # No convolution of the data is so small that it shows its floor: it starts about as many things as a linear.
    found.loc["conv"] = found.loc["linear"]
    return {
        (str(chip), str(op)): float(value) for chip, column in found.items() for op, value in column.dropna().items()
    }


# --- boosting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Boosting:
    trees: int
    depth: int
    rate: float = 0.12
    bins: int = 40
    least_weight: float = 15.0
    shrink: float = 3.0
    sample: float = 0.4


SHARED = {
    "matmul": Boosting(150, 6),
    "conv": Boosting(100, 6),
    "softmax": Boosting(60, 4),
    "layer_norm": Boosting(60, 4),
}
SHARED_ROWS = 8_000  # per chip and class
CHIP = {
    "matmul": Boosting(260, 7, 0.12, least_weight=8),
    "conv": Boosting(220, 6, 0.12, least_weight=6),
    "softmax": Boosting(60, 4, 0.15, least_weight=5),
    "layer_norm": Boosting(60, 4, 0.15, least_weight=5),
    "elementwise": Boosting(120, 6, 0.15, least_weight=8),
}


class Grower:
    """Grows trees on binned features; leaf = sum of gradients / (sum of weights + shrink), as in second-order boosting
    (Friedman 2001; Chen and Guestrin 2016)."""

    def __init__(self, features: dict[str, np.ndarray], names: Sequence[str], how: Boosting) -> None:
        self.names, self.how = tuple(sorted(names)), how
        table = [features[name].astype(np.float32) for name in self.names]
        steps = np.linspace(0, 1, how.bins + 1)[1:-1]
        self.edges = [np.unique(np.quantile(values, steps).astype(np.float32)) for values in table]
        self.binned = np.stack(
            [np.searchsorted(edges, values, side="left") for edges, values in zip(self.edges, table, strict=True)], 1
        )
        self.grown: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def grow(self, gradient: np.ndarray, weight: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """One more tree from the chosen rows; its prediction for all rows."""
        how, binned = self.how, self.binned[rows]
        gradient, weight = gradient[rows], weight[rows]
        count, columns = binned.shape
        size, bins = 2 ** (how.depth + 1) - 1, how.bins
        feature, cut, value = np.full(size, -1), np.zeros(size, dtype=int), np.zeros(size)
        node, base = np.zeros(count, dtype=np.int64), 0
        wide_gradient, wide_weight = np.repeat(gradient, columns), np.repeat(weight, columns)
        for depth in range(how.depth + 1):
            nodes = 2**depth
            total = np.bincount(node, weight, minlength=nodes)
            push = np.bincount(node, gradient, minlength=nodes)
            value[base : base + nodes] = push / (total + how.shrink)
            if depth == how.depth:
                break
            place = ((node[:, None] * columns + np.arange(columns)) * bins + binned).ravel()
            shape = (nodes, columns, bins)
            left = np.bincount(place, wide_weight, minlength=nodes * columns * bins).reshape(shape).cumsum(2)
            left_push = np.bincount(place, wide_gradient, minlength=nodes * columns * bins).reshape(shape).cumsum(2)
            right, right_push = total[:, None, None] - left, push[:, None, None] - left_push
            gain = left_push**2 / (left + how.shrink) + right_push**2 / (right + how.shrink)
            gain -= (push**2 / (total + how.shrink))[:, None, None]
            gain[(left < how.least_weight) | (right < how.least_weight)] = -1
            best = gain.reshape(nodes, -1).argmax(1)
            splits = gain.reshape(nodes, -1)[np.arange(nodes), best] > 1e-7
            split_feature, split_cut = best // bins, best % bins
            feature[base : base + nodes] = np.where(splits, split_feature, -1)
            cut[base : base + nodes] = split_cut
            goes_right = (binned[np.arange(count), split_feature[node]] > split_cut[node]) & splits[node]
            node, base = 2 * node + goes_right, base + nodes
        self.grown.append((feature, cut, value * how.rate))
        return self._predict(feature, cut, value * how.rate)

    def _predict(self, feature: np.ndarray, cut: np.ndarray, value: np.ndarray) -> np.ndarray:
        node, rows = np.zeros(len(self.binned), dtype=np.int64), np.arange(len(self.binned))
        for _ in range(self.how.depth):
            split = feature[node]
            right = self.binned[rows, np.maximum(split, 0)] > cut[node]
            node = np.where(split >= 0, 2 * node + 1 + right, node)
        return np.asarray(value[node])

    def trees(self) -> Trees:
        thresholds = [
            np.array([
                self.edges[split][min(place, len(self.edges[split]) - 1)] if split >= 0 else 0.0
                for split, place in zip(feature, cut, strict=True)
            ]) for feature, cut, _ in self.grown
        ]  # fmt: skip
        return Trees(
            self.names,
            np.stack([feature for feature, _, _ in self.grown]),
            np.stack(thresholds),
            np.stack([value for _, _, value in self.grown]),
        )


def _stack(parts: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class Seen:
    """Rows of one class on one chip whose kernel shows above the floor."""

    features: dict[str, np.ndarray]
    compute_ms: np.ndarray
    memory_ms: np.ndarray
    log_kernel: np.ndarray
    weight: np.ndarray


def seen_rows(
    data: Data, chip: str, card: Card, op_class: str, floors: dict[tuple[str, str], float], limit: int | None = None
) -> Seen:
    rows = np.flatnonzero((data.work["op_class"] == op_class) & data.latency_ms[chip].notna())
    if limit is not None and len(rows) > limit:
        rows = np.sort(np.random.default_rng(1).choice(rows, limit, replace=False))
    work = data.work.iloc[rows].reset_index(drop=True)
    latency = data.latency_ms[chip].to_numpy()[rows]
    kernel, seen = physics.kernel_of_latency(latency, physics.floors_ms(work, card, floors))
    keep = np.flatnonzero(seen > 0.2)
    work = work.iloc[keep].reset_index(drop=True)
    compute, memory = physics.parts_ms(work, card, np.full(len(work), "fp32"))
    return Seen(physics.features(work, card), compute, memory, LOG(kernel[keep]), seen[keep])


def fit_shared(
    data: Data, chips: Sequence[str], cards: dict[str, Card], floors: dict[tuple[str, str], float]
) -> dict[str, Trees]:
    """Factors on compute and memory time: boosted in turn, each on the share that its part has in the kernel time."""
    found: dict[str, Trees] = {}
    for op_class, how in SHARED.items():
        parts = [seen_rows(data, chip, cards[chip], op_class, floors, SHARED_ROWS) for chip in chips]
        features = _stack([part.features for part in parts])
        base = {
            "compute": np.concatenate([part.compute_ms for part in parts]),
            "memory": np.concatenate([part.memory_ms for part in parts]),
        }
        truth = np.concatenate([part.log_kernel for part in parts])
        weight = np.concatenate([part.weight for part in parts])
        names = {"memory": physics.MEMORY_FEATURES[op_class]}
        if op_class in physics.COMPUTE_FEATURES:
            names["compute"] = physics.COMPUTE_FEATURES[op_class]
        growers = {part: Grower(features, names[part], how) for part in sorted(names)}
        logs = {part: np.zeros(len(truth)) for part in ("compute", "memory")}
        random = np.random.default_rng(0)
        for _ in range(how.trees):
            for part, grower in growers.items():
                total, share = physics.combined(
                    base["compute"] * np.exp(logs["compute"]), base["memory"] * np.exp(logs["memory"])
                )
                share = share if part == "compute" else 1 - share
                # Clipped: a few rows timed under throttling must not steer the fit.
                residual = np.clip(truth - LOG(total), -0.5, 0.5)
                rows = np.flatnonzero(random.random(len(truth)) < how.sample)
                logs[part] += grower.grow(weight * share * residual, weight * share**2, rows)
        found |= {f"{op_class}/{part}": grower.trees() for part, grower in growers.items()}
    return found


def fit_chip(
    data: Data, chip: str, card: Card, floors: dict[tuple[str, str], float], shared: Coefficients
) -> dict[str, Trees]:
    """What the shared factors leave on one chip."""
    found: dict[str, Trees] = {}
    for op_class, how in CHIP.items():
        seen = seen_rows(data, chip, card, op_class, floors)
        if len(seen.weight) < 200:
            continue
        compute, memory = seen.compute_ms.copy(), seen.memory_ms.copy()
        for part, target in (("compute", compute), ("memory", memory)):
            trees = shared.trees.get(f"{op_class}/{part}")
            if trees is not None:
                target *= np.exp(trees.predict(seen.features))
        truth = seen.log_kernel - LOG(physics.combined(compute, memory)[0])
        names = physics.COMPUTE_FEATURES.get(op_class) or physics.MEMORY_FEATURES.get(
            op_class, physics.ELEMENTWISE_FEATURES
        )
        names = tuple(name for name in names if name != "generation")
        grower = Grower(seen.features, names, how)
        log, random = np.zeros(len(truth)), np.random.default_rng(0)
        for _ in range(how.trees):
            rows = np.flatnonzero(random.random(len(truth)) < 0.6)
            log += grower.grow(seen.weight * np.clip(truth - log, -0.5, 0.5), seen.weight, rows)
        found[f"{op_class}/{chip}"] = grower.trees()
    return found


# --- the whole fit ---------------------------------------------------------------------------------------------------


def fit_model(data: Data, chips: Sequence[str], per_chip: bool) -> Coefficients:
    """Boards, floors and trees from these chips; no carry, no bands yet."""
    boards = measured_boards(data, chips)
    floors = floor_ratios(data, boards)
    cards = {board.chip: card_of(board.key, boards) for board in boards}
    bare = Coefficients(boards, floors, fit_shared(data, chips, cards, floors), {}, {})
    if not per_chip:
        return bare
    trees = dict(bare.trees)
    for chip in chips:
        trees |= fit_chip(data, chip, cards[chip], floors, bare)
    return replace(bare, trees=trees)


class Modelled:
    """Predictions on data for one fit; the modelled times of a card are computed once."""

    def __init__(self, data: Data, fit: Coefficients) -> None:
        self.data, self.fit = data, fit
        self._sides: dict[Card, model.KernelModel] = {}

    def _side(self, card: Card) -> model.KernelModel:
        known = self._sides.get(card)
        if known is None:
            fp32 = np.full(len(self.data.work), "fp32", dtype=object)
            known = self._sides[card] = model.kernel_model(self.data.work, card, fp32, self.fit)
        return known

    def predicted(
        self, source: str, target: str, ceilings: dict[str, float] | None, carry: dict[tuple[str, str], float]
    ) -> tuple[np.ndarray, model.Prediction]:
        """Rows timed on both chips, and their prediction on the target. Times are latencies."""
        latency_ms = self.data.latency_ms
        rows = np.flatnonzero((latency_ms[source].notna() & latency_ms[target].notna()).to_numpy())
        cards = model.cards_of(KEY_OF_CHIP[source], KEY_OF_CHIP[target], ceilings, self.fit)
        first, second = (
            model.KernelModel(side.compute_ms[rows], side.memory_ms[rows], side.chip_log[rows], {})
            for side in map(self._side, cards)
        )
        return rows, model.predict_modelled(
            self.data.work.iloc[rows].reset_index(drop=True),
            (first, second),
            latency_ms[source].to_numpy()[rows],  # type: ignore[arg-type]
            np.ones(len(rows), dtype=bool),
            *cards,
            replace(self.fit, carry=carry),
            ~self.data.work["op_class"].isin(list(physics.MEMORY_FEATURES)).to_numpy()[rows],
        )


def ceilings_of(board: MeasuredBoard) -> dict[str, float]:
    return {"gemm_fp32_tflops": board.gemm_tflops, "copy_gb_s": board.copy_gb_s, "launch_us": board.launch_us}


def best_carry(tries: dict[float, list[tuple[np.ndarray, np.ndarray]]]) -> dict[str, float]:
    """Class -> share with the least median error. `tries`: share -> (classes, absolute log errors) of each pair."""
    errors = {}
    for share, parts in tries.items():
        classes, wrong = (np.concatenate(column) for column in zip(*parts, strict=True))
        errors[share] = pd.Series(wrong).groupby(classes).mean()
    return {str(name): float(share) for name, share in pd.DataFrame(errors).idxmin(axis=1).items()}


def residual_rows(data: Data, rows: np.ndarray, found: model.Prediction, target: str, situation: str) -> pd.DataFrame:
    truth = data.latency_ms[target].to_numpy()[rows]
    return pd.DataFrame({
        "situation": situation, "op_class": found.op_class, "bucket": found.bucket, "row": rows, "true_ms": truth,
        "predicted_ms": found.predicted_ms, "log": LOG(truth / found.predicted_ms),
    })  # fmt: skip


SPREAD = Boosting(60, 4, 0.15, least_weight=40)
_NO_RESIDUAL = 0.005  # timing noise: a residual below it says nothing about the shape


def fit_spreads(data: Data, cards: dict[str, Card], residuals: pd.DataFrame, kind: str) -> dict[str, Trees]:
    """Log of the absolute residual that shapes of a class usually have, so that a band can be narrow where that is due.

    `residuals`: rows with their target chip, of one kind. Each target's features are those of its own card.
    """
    found: dict[str, Trees] = {}
    for name, rows in residuals.groupby("op_class"):
        op_class = str(name)
        if op_class not in physics.MEMORY_FEATURES:
            continue
        parts, logs = [], []
        for target, own in rows.groupby("target"):
            own = own.sample(min(len(own), 8000), random_state=2)
            work = data.work.iloc[own["row"]].reset_index(drop=True)
            parts.append(physics.features(work, cards[str(target)]))
            logs.append(LOG(own["log"].abs().to_numpy() + _NO_RESIDUAL))
        features, truth = _stack(parts), np.concatenate(logs)
        names = physics.COMPUTE_FEATURES.get(str(op_class)) or physics.MEMORY_FEATURES[str(op_class)]
        grower = Grower(features, [name for name in names if name != "generation"], SPREAD)
        log, random = np.zeros(len(truth)), np.random.default_rng(0)
        for _ in range(SPREAD.trees):
            chosen = np.flatnonzero(random.random(len(truth)) < 0.5)
            log += grower.grow(truth - log, np.ones(len(truth)), chosen)
        found[f"{op_class}/spread_{kind}"] = grower.trees()
    return found


def with_spread(data: Data, cards: dict[str, Card], residuals: pd.DataFrame, trees: dict[str, Trees]) -> pd.DataFrame:
    """The residuals with a column `spread`: what the trees expect of each row, 1 where they say nothing."""
    spread = pd.Series(1.0, index=residuals.index)
    for (op_class, target), rows in residuals.groupby(["op_class", "target"]):
        for name, one in trees.items():
            if name.startswith(f"{op_class}/spread_"):
                work = data.work.iloc[rows["row"]].reset_index(drop=True)
                spread[rows.index] = np.exp(one.predict(physics.features(work, cards[str(target)])))
    return residuals.assign(spread=spread)


def bands_of(residuals: pd.DataFrame) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Quantiles of residual / spread per kind, class and bucket; a bucket of fewer than 60 rows takes the whole class.

    Boards that were left out differ more among each other than their pooled rows show: the edge lies half-way between
    that of all rows and that of the board that needs the widest.
    """
    bands = {}
    for (kind, op_class), rows in residuals.groupby(["kind", "op_class"]):
        whole = _edges(rows)
        for bucket in ("/".join(pair) for pair in itertools.product(("floor", "near", "far"), ("seen", "hidden"))):
            own = rows[rows["bucket"] == bucket]
            bands[str(kind), str(op_class), bucket] = _edges(own) if len(own) >= 60 else whole
    return bands


# Classes without timings -> those whose residuals make their band: operations that are about as hard to foresee.
STAND_INS = {"conv_other": ("conv",), "other": ("softmax", "layer_norm")}


def stand_ins(residuals: pd.DataFrame) -> pd.DataFrame:
    """The residuals under the names of the classes that have none of their own; nothing narrows their bands."""
    return pd.concat(
        [
            residuals[residuals["op_class"].isin(others)].assign(op_class=op_class, spread=1.0)
            for op_class, others in STAND_INS.items()
        ]
    )


def _edges(rows: pd.DataFrame) -> tuple[float, float]:
    scaled = rows["log"] / rows["spread"]
    low, high = np.quantile(scaled, [0.025, 0.975])
    boards = [part for _, part in scaled.groupby(rows["target"]) if len(part) >= 60]
    if len(boards) > 1:
        low = (low + min(np.quantile(part, 0.025) for part in boards)) / 2
        high = (high + max(np.quantile(part, 0.975) for part in boards)) / 2
    return float(low), float(high)


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def left_out_fits(data: Data) -> dict[str, Coefficients]:
    """Chip -> the model fitted without it, its carry chosen on the chips that are left."""
    fits = {}
    for chip in CHIPS:
        rest = [other for other in CHIPS if other != chip]
        fits[chip] = fit_model(data, rest, per_chip=False)
        print(f"fitted without {chip}", flush=True)
    return fits


def left_out_carry(fits: dict[str, Modelled], boards: Sequence[MeasuredBoard]) -> dict[tuple[str, str], float]:
    """(class, "other") -> share of the residual to carry to a card that is not in the data."""
    tries: dict[float, list[tuple[np.ndarray, np.ndarray]]] = {share: [] for share in SHARES}
    for board in boards:
        for share, source in itertools.product(SHARES, (chip for chip in CHIPS if chip != board.chip)):
            modelled, carry = fits[board.chip], {(name, "other"): share for name in CHIP}
            rows, found = modelled.predicted(source, board.chip, ceilings_of(board), carry)
            log = residual_rows(modelled.data, rows, found, board.chip, "")["log"]
            tries[share].append((found.op_class, log.abs().to_numpy()))
    return {(name, "other"): share for name, share in best_carry(tries).items()}


def left_out_residuals(
    fits: dict[str, Modelled], boards: Sequence[MeasuredBoard], carry: dict[tuple[str, str], float]
) -> pd.DataFrame:
    """Residuals of every pair with the target left out, with its ceilings and from its data sheet alone."""
    parts = []
    for board in boards:
        for source in (chip for chip in CHIPS if chip != board.chip):
            for situation, ceilings in (("ceilings", ceilings_of(board)), ("spec", None)):
                modelled = fits[board.chip]
                rows, found = modelled.predicted(source, board.chip, ceilings, carry)
                part = residual_rows(modelled.data, rows, found, board.chip, situation)
                parts.append(part.assign(source=source, target=board.chip))
    return pd.concat(parts, ignore_index=True)


def held_out_shapes(data: Data) -> np.ndarray:
    """The fifth of the shapes that the fit for measured pairs does not see."""
    return np.random.default_rng(7).random(len(data.work)) < HELD_OUT_SHARE


def pair_carry(modelled: Modelled) -> dict[tuple[str, str], float]:
    """(class, pair) -> share of the residual that both chips of the data show, on shapes that the fit did not see."""
    carry: dict[tuple[str, str], float] = {}
    for source, target in itertools.permutations(CHIPS, 2):
        tries: dict[float, list[tuple[np.ndarray, np.ndarray]]] = {share: [] for share in SHARES}
        for share in SHARES:
            rows, found = modelled.predicted(
                source, target, None, {(name, f"{source}>{target}"): share for name in CHIP}
            )
            log = residual_rows(modelled.data, rows, found, target, "")["log"]
            tries[share].append((found.op_class, log.abs().to_numpy()))
        carry |= {(name, f"{source}>{target}"): share for name, share in best_carry(tries).items()}
    return carry


def fit_all(data: Data) -> tuple[Coefficients, pd.DataFrame]:
    """The shipped coefficients, and the residuals behind their bands."""
    boards = measured_boards(data, CHIPS)
    third = data.part(
        np.random.default_rng(3).random(len(data.work)) < 1 / 3
    )  # enough to judge by, a third of the time
    fits = {chip: Modelled(third, fit) for chip, fit in left_out_fits(data).items()}
    carry = left_out_carry(fits, boards)
    # Cards from Ampere on share one family of FP32 kernels, so that they share more of a residual than the old chips of
    # the data do; no pair of the data can show how much. Half of the rest is assumed.
    carry |= {(name, "modern"): (1 + share) / 2 for (name, _), share in tuple(carry.items())}
    parts = [left_out_residuals(fits, boards, carry)]
    cards = {board.chip: card_of(board.key, boards) for board in boards}
    spreads = fit_spreads(third, cards, parts[0][parts[0]["situation"] == "ceilings"], "left_out")
    residuals = with_spread(third, cards, parts[0], spreads).assign(kind=lambda rows: rows["situation"])
    held_out = held_out_shapes(data)
    tried = Modelled(data.part(held_out), fit_model(data.part(~held_out), CHIPS, per_chip=True))
    print("fitted without a fifth of the shapes", flush=True)
    carry |= pair_carry(tried)
    own = []
    for source, target in itertools.permutations(CHIPS, 2):
        rows, found = tried.predicted(source, target, None, carry)
        own.append(residual_rows(tried.data, rows, found, target, "measured").assign(source=source, target=target))
    unseen = pd.concat(own, ignore_index=True)
    own_spreads = fit_spreads(tried.data, cards, unseen, "measured")
    unseen = with_spread(tried.data, cards, unseen, own_spreads).assign(kind="measured:" + unseen["target"])
    residuals = pd.concat([residuals, unseen], ignore_index=True)
    full = fit_model(data, CHIPS, per_chip=True)
    trees = {**full.trees, **spreads, **own_spreads}
    bands = bands_of(residuals) | bands_of(stand_ins(residuals))
    return replace(full, trees=trees, carry=carry, bands=bands), residuals


def with_bands(residuals: pd.DataFrame, bands: dict[tuple[str, str, str], tuple[float, float]]) -> pd.DataFrame:
    """The residuals with low_ms, high_ms of their band, and `error`, the absolute relative error."""
    keys = zip(residuals["kind"], residuals["op_class"], residuals["bucket"], strict=True)
    edges = np.array([bands[key] for key in keys]) * residuals["spread"].to_numpy()[:, None]
    least = np.where(residuals["situation"] == "measured", model.LEAST_LOG["measured"], model.LEAST_LOG["left_out"])
    edges = np.stack([np.minimum(edges[:, 0], -least), np.maximum(edges[:, 1], least)], axis=1)
    return residuals.assign(
        low_ms=residuals["predicted_ms"] * np.exp(edges[:, 0]),
        high_ms=residuals["predicted_ms"] * np.exp(edges[:, 1]),
        error=(residuals["predicted_ms"] / residuals["true_ms"] - 1).abs(),
    )


def back_test_table(banded: pd.DataFrame) -> pd.DataFrame:
    """Per situation and class (and "all"): n, median and 90 % error, share inside the band, median high / low."""
    rows = []
    for situation, of_situation in banded.groupby("situation"):
        for op_class in ("all", *sorted(of_situation["op_class"].unique())):
            part = of_situation if op_class == "all" else of_situation[of_situation["op_class"] == op_class]
            inside = (part["true_ms"] >= part["low_ms"]) & (part["true_ms"] <= part["high_ms"])
            rows.append({
                "situation": situation, "op_class": op_class, "n": len(part), "median_error": part["error"].median(),
                "p90_error": part["error"].quantile(0.9), "inside_band": inside.mean(),
                "band_width": (part["high_ms"] / part["low_ms"]).median(),
            })  # fmt: skip
    return pd.DataFrame(rows)


POINTS_SHOWN = 240  # of the back-test's scatter, per situation


def write_back_test(banded: pd.DataFrame, folder: Path) -> None:
    """The figures of the back-test, and a sample of its points for the page's scatter."""
    back_test_table(banded).to_csv(folder / "backtest.csv", index=False, float_format="%.4g")
    points = pd.concat(
        [part.sample(min(POINTS_SHOWN, len(part)), random_state=5) for _, part in banded.groupby("situation")]
    )
    columns = ["situation", "source", "target", "op_class", "true_ms", "predicted_ms", "low_ms", "high_ms"]
    points[columns].to_csv(folder / "backtest_points.csv", index=False, float_format="%.4g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("timings", type=Path, help="kernel_latency_fp32.parquet")
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    data = load(arguments.timings)
    coefficients, residuals = fit_all(data)
    coefficients.write(arguments.out)
    banded = with_bands(residuals, dict(coefficients.bands))
    write_back_test(banded, arguments.out)
    print(back_test_table(banded).to_string(index=False, float_format="%.3f"))
    print({path.name: path.stat().st_size for path in sorted(arguments.out.iterdir())})


if __name__ == "__main__":
    main()
