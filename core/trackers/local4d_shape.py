"""Sizes of the `local4d` tracker family, shared by the model (torch) and its plan arithmetic (standard library).

The family follows the architecture of LocoTrack (Cho et al., ECCV 2024): the sizes below give the same work per stage.
"""
from __future__ import annotations

from dataclasses import dataclass

RADIUS = 3
WINDOW = (2 * RADIUS + 1) ** 2  # 49 positions of a local neighbourhood; a 4D correlation is WINDOW x WINDOW

STEM_CHANNELS = 64
LEVEL_CHANNELS = (64, 128, 256)  # feature pyramid, finest first
LEVEL_STRIDES = (2, 4, 8)  # pixels per feature cell of each level
FINE_LEVEL, COARSE_LEVEL = 1, 2  # the two levels that the global cost volume compares
BLOCKS_PER_GROUP = 2
# (channels in, channels out, stride) of the four groups of residual blocks; groups 0, 1 and 3 give the levels.
ENCODER_GROUPS = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 256, 1))
LEVEL_OF_GROUP = {0: 0, 1: 1, 3: 2}

MOTION_FREQUENCIES = 10
MOTION_CHANNELS = 4 * (1 + 2 * MOTION_FREQUENCIES)  # dx, dy to the frame before and after; raw, sine, cosine
UPDATE_CHANNELS = 3  # dx, dy, visibility logit

FRAME_CHUNK = 16  # frames per encoder pass and per slice of the cost volume: bounds memory, changes no result
DEFAULT_ITERATIONS = 4
DEFAULT_QUERY_CHUNK = 64


@dataclass(frozen=True)
class Local4dShape:
    """Sizes in which the variants differ."""

    # width, attention heads and layers of the transformer over time
    width: int
    heads: int
    layers: int
    # convolutions of the correlation encoder, first to last; `paddings` keep 7x7 inputs ending at 1x1
    channels: tuple[int, ...]
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    paddings: tuple[int, ...]

    @property
    def token_channels(self) -> int:
        """Input width of the transformer: correlation embeddings, motion, visibility logit."""
        return 2 * self.channels[-1] * len(LEVEL_CHANNELS) + MOTION_CHANNELS + 1

    def correlation_sides(self) -> tuple[int, ...]:
        """Side of the square map after each convolution of the correlation encoder, starting from 2r+1."""
        sides = [2 * RADIUS + 1]
        for kernel, stride, padding in zip(self.kernels, self.strides, self.paddings, strict=True):
            sides.append((sides[-1] + 2 * padding - kernel) // stride + 1)
        return tuple(sides[1:])


SHAPES = {
    "small": Local4dShape(width=256, heads=4, layers=3, channels=(64, 128), kernels=(5, 2), strides=(4, 2),
                          paddings=(1, 0)),
    "base": Local4dShape(width=384, heads=6, layers=3, channels=(64, 128, 128), kernels=(3, 3, 2), strides=(2, 2, 2),
                         paddings=(1, 1, 0)),
}
