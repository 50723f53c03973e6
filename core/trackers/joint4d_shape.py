"""Sizes of the `joint4d` tracker family, shared by the model (torch) and its plan arithmetic (standard library).

The family follows the architecture of CoTracker3 offline (Karaev et al., arXiv 2410.11831): the sizes below give the
same work per stage. The encoder is that of PIPs (Harley et al., ECCV 2022), which CoTracker3 takes over.
"""
from __future__ import annotations

from dataclasses import dataclass

RADIUS = 3
WINDOW = (2 * RADIUS + 1) ** 2  # 49 positions of a local neighbourhood; a 4D correlation is WINDOW x WINDOW

STRIDE = 4  # pixels per cell of the finest level
LEVELS = 4  # each next one averages 2x2 cells
MIN_SIDE = STRIDE * 2 ** (LEVELS - 1)  # pixels that leave one cell on the coarsest level

STEM_CHANNELS = 64  # at stride 2
# (channels in, channels out, stride) of the four groups of two residual blocks; all four results are brought to STRIDE
ENCODER_GROUPS = ((64, 64, 1), (64, 96, 2), (96, 128, 2), (128, 128, 2))
BLOCKS_PER_GROUP = 2
FUSED_CHANNELS = 256
FEATURE_CHANNELS = 128

CORRELATION_HIDDEN, CORRELATION_CHANNELS = 384, 256  # layers of the correlation encoder

MOTION_FREQUENCIES = 10
MOTION_CHANNELS = 4 * (1 + 2 * MOTION_FREQUENCIES)  # dx, dy to the frame before and after; raw, sine, cosine
LOGITS = 2  # visibility, confidence
TOKEN_CHANNELS = LEVELS * CORRELATION_CHANNELS + MOTION_CHANNELS + LOGITS
UPDATE_CHANNELS = 2 + LOGITS  # dx, dy and the logits

FRAME_CHUNK = 64  # frames per encoder pass: bounds memory, changes no result
DEFAULT_ITERATIONS = 4


@dataclass(frozen=True)
class Joint4dShape:
    """The transformer: width of a token, attention heads, pairs of a time and a space layer, virtual tracks."""

    width: int
    heads: int
    layers: int
    virtual_tracks: int


SHAPES = {"base": Joint4dShape(width=384, heads=8, layers=3, virtual_tracks=64)}


def level_side(side: int, level: int) -> int:
    """Cells on a level along `side` pixels; pooling drops a last odd cell."""
    return side // STRIDE // 2**level


def encoder_sides(side: int) -> tuple[int, ...]:
    """Cells along `side` pixels after the stem and after each encoder group; halving rounds up."""
    sides = [(side + 1) // 2]
    for *_, stride in ENCODER_GROUPS:
        sides.append(-(-sides[-1] // stride))
    return tuple(sides)
