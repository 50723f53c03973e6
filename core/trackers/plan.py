"""What a plan says about a workload before anything runs. Standard library only."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Estimate:
    """Estimated work of one forward pass in fp32; words as in docs/method.md, "Work"."""

    flops: int
    bytes: int
    launches: int
    peak_bytes: int


@dataclass
class Ledger:
    """Adds up ops that are written down from the shapes of a model.

    One line per op: the numbers (float32, 4 bytes) that it reads and writes, and its flops where it is a matrix
    product or a convolution. Inside `times(n)` everything counts n times.
    """

    flops: int = 0
    bytes: int = 0
    launches: int = 0
    _factor: int = field(default=1, repr=False)

    def op(self, numbers: int, flops: int = 0, launches: int = 1) -> None:
        self.flops += self._factor * flops
        self.bytes += self._factor * 4 * numbers
        self.launches += self._factor * launches

    def product(self, rows: int, depth: int, columns: int, batch: int = 1) -> None:
        """A matrix product (batch, rows, depth) x (batch, depth, columns)."""
        numbers = batch * (rows * depth + depth * columns + rows * columns)
        self.op(numbers, flops=2 * batch * rows * depth * columns)

    def convolution(self, read: int, places: int, channels_in: int, channels_out: int, kernel: int) -> None:
        """`read` numbers in, `places` positions out, a kernel x kernel filter."""
        weights = channels_in * channels_out * kernel * kernel
        self.op(read + weights + places * channels_out, flops=2 * places * weights)

    @contextmanager
    def times(self, count: int) -> Iterator[None]:
        before = self._factor
        self._factor *= count
        try:
            yield
        finally:
            self._factor = before


def chunks(total: int, size: int) -> tuple[tuple[int, int], ...]:
    """How a loop in steps of `size` cuts `total`: (how often, how long) for the full steps and the rest."""
    full, rest = divmod(total, size)
    return tuple((often, length) for often, length in ((full, size), (1, rest)) if often and length)
