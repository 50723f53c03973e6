"""Boosted regression trees as a readable table: learned corrections of the physical model.

A row of the table is one node: `model`, `tree`, `node` (0 is the root, the children of i are 2i+1 and 2i+2),
`feature` (empty at a leaf), `threshold` (right when the feature is larger) and `value` (at a leaf, learning rate
included). A prediction is the sum of one leaf per tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

Features = dict[str, np.ndarray]
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Trees:
    """All trees of one model as arrays (trees x nodes); feature -1 marks a leaf."""

    names: tuple[str, ...]
    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray

    def predict(self, features: Features) -> np.ndarray:
        """The sum over trees for each row. `features`: name -> values, all of one length."""
        if not self.names:  # no tree ever split
            return np.full(len(next(iter(features.values()))), float(self.value[:, 0].sum()))
        table = np.stack([np.asarray(features[name], dtype=np.float32) for name in self.names], axis=1)
        depth = int(np.log2(self.feature.shape[1] + 1))
        number = np.arange(len(self.feature))[:, None]
        total = np.empty(len(table))
        # All trees at once, on so many rows that the arrays stay small.
        for start in range(0, len(table), _ROWS_AT_ONCE):
            part = table[start : start + _ROWS_AT_ONCE]
            rows = np.arange(len(part))[None, :]
            node = np.zeros((len(self.feature), len(part)), dtype=np.int64)
            for _ in range(depth - 1):
                split = self.feature[number, node]
                right = part[rows, np.maximum(split, 0)] > self.threshold[number, node]
                node = np.where(split >= 0, 2 * node + 1 + right, node)
            total[start : start + len(part)] = self.value[number, node].sum(axis=0)
        return total

    def table(self, model: str) -> pd.DataFrame:
        """The trees as rows, only the nodes that a row can reach."""
        parts = []
        for number, (feature, threshold, value) in enumerate(
            zip(self.feature, self.threshold, self.value, strict=True)
        ):
            reached = [0]
            for node in reached:
                if feature[node] >= 0:
                    reached += [2 * node + 1, 2 * node + 2]
            nodes = np.array(reached)
            inner = feature[nodes] >= 0
            parts.append(pd.DataFrame({
                "model": model, "tree": number, "node": nodes,
                "feature": [self.names[place] if place >= 0 else "" for place in feature[nodes]],
                "threshold": np.where(inner, threshold[nodes], np.nan),
                "value": np.where(inner, np.nan, value[nodes]),
            }))  # fmt: skip
        return pd.concat(parts, ignore_index=True)


def from_table(table: pd.DataFrame) -> Trees:
    """The trees of one model from their rows (columns tree, node, feature, threshold, value)."""
    names = tuple(sorted(name for name in table["feature"].dropna().unique() if name))
    place = {name: number for number, name in enumerate(names)}
    # A leaf at depth d needs its children's places too only when it splits; the deepest node fixes the size.
    size = 2 ** int(np.floor(np.log2(table["node"].max() + 1)) + 1) - 1
    count = int(table["tree"].max()) + 1
    feature = np.full((count, size), -1, dtype=np.int64)
    threshold, value = np.zeros((count, size), dtype=np.float32), np.zeros((count, size))
    where = (table["tree"].to_numpy(), table["node"].to_numpy())
    feature[where] = table["feature"].map(place).fillna(-1).to_numpy(dtype=np.int64)
    threshold[where] = table["threshold"].fillna(0.0).to_numpy(dtype=np.float32)
    value[where] = table["value"].fillna(0.0).to_numpy()
    return Trees(names, feature, threshold, value)
