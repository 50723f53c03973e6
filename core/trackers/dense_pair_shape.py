"""Sizes of the `dense_pair` tracker family, shared by the model (torch) and its plan arithmetic (standard library).

The family follows the architecture of RAFT (Teed and Deng, ECCV 2020): `base` is its full model, `small` its small one.
"""
from __future__ import annotations

from dataclasses import dataclass

STRIDE = 8  # pixels per feature cell
LEVELS = 4  # of the volume; each next one averages 2x2 cells of the second frame
MIN_SIDE = STRIDE * 2 ** (LEVELS - 1)  # pixels that leave one cell on the coarsest level
STEM_STRIDE = 2
GROUP_STRIDES = (1, 2, 2)
BLOCKS_PER_GROUP = 2
FLOW_CHANNELS = 2  # dx, dy
NEIGHBOURS = 9  # cells from which an enlarged flow vector is mixed

FRAME_CHUNK = 64  # frames per encoder pass: bounds memory, changes no result
PAIR_CHUNK = 8  # pairs of frames whose volumes exist at once: bounds memory, changes no result
DEFAULT_ITERATIONS = 12


@dataclass(frozen=True)
class DensePairShape:
    """Sizes in which the variants differ."""

    # Encoders: stem, groups of residual blocks (bottlenecks or plain ones), result
    stem: int
    groups: tuple[int, ...]
    bottlenecks: bool
    features: int
    # Recurrent update: its state, what it is told of the first frame, the reach of its look at the volume
    hidden: int
    context: int
    radius: int
    # what it is told of the volume and of the flow so far, convolution by convolution; both joined
    correlation_channels: tuple[int, ...]
    flow_channels: tuple[int, int]
    motion: int
    kernels: tuple[tuple[int, int], ...]  # one gated update after the other: (rows, columns) of its filters
    head: int
    learned_upsampling: bool

    @property
    def window(self) -> int:
        """Positions that one look at one level of the volume sees."""
        return (2 * self.radius + 1) ** 2

    @property
    def joined(self) -> int:
        """Input channels of a gated update: state, context, motion and the flow itself."""
        return self.hidden + self.context + self.motion + FLOW_CHANNELS


SHAPES = {
    "small": DensePairShape(
        stem=32, groups=(32, 64, 96), bottlenecks=True, features=128, hidden=96, context=64, radius=3,
        correlation_channels=(96,), flow_channels=(64, 32), motion=80, kernels=((3, 3),), head=128,
        learned_upsampling=False,
    ),
    "base": DensePairShape(
        stem=64, groups=(64, 96, 128), bottlenecks=False, features=256, hidden=128, context=128, radius=4,
        correlation_channels=(256, 192), flow_channels=(128, 64), motion=126, kernels=((1, 5), (5, 1)), head=256,
        learned_upsampling=True,
    ),
}
