"""Residual blocks of the built-in encoders (He et al., CVPR 2016): convolutions beside a shortcut."""
from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Convolutions, each followed by instance norm (if `normed`) and ReLU, beside a shortcut.

    The norms have no weights, and convolutions before a norm no bias, which it would take away again. Without norms
    convolutions have a bias: a trained network's batch norm, folded into them.
    """

    def __init__(self, convolutions: Sequence[tuple[int, int, int, int]], normed: bool) -> None:
        """convolutions: (channels in, channels out, kernel, stride) each."""
        super().__init__()
        self.normed = normed
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, bias=not normed)
            for channels_in, channels_out, kernel, stride in convolutions
        )
        channels_in, channels_out = convolutions[0][0], convolutions[-1][1]
        total_stride = max(stride for *_, stride in convolutions)
        changes_shape = total_stride != 1 or channels_in != channels_out
        self.shortcut = (
            nn.Conv2d(channels_in, channels_out, 1, stride=total_stride, bias=not normed) if changes_shape else None
        )

    def forward(self, x: Tensor) -> Tensor:
        made = x
        for convolution in self.convolutions:
            made = convolution(made)  # a line of its own: its input is gone before the norm needs room
            made = relu(made, self.normed)
        shortcut = x
        if self.shortcut is not None:
            shortcut = F.instance_norm(self.shortcut(x)) if self.normed else self.shortcut(x)
        return F.relu(shortcut + made, inplace=True)


def plain_block(channels_in: int, channels_out: int, stride: int, normed: bool = True) -> Block:
    """Two 3x3 convolutions."""
    return Block(((channels_in, channels_out, 3, stride), (channels_out, channels_out, 3, 1)), normed)


def bottleneck(channels_in: int, channels_out: int, stride: int, normed: bool = True) -> Block:
    """A 3x3 convolution on a quarter of the channels, between two 1x1 convolutions."""
    middle = channels_out // 4
    return Block(((channels_in, middle, 1, 1), (middle, middle, 3, stride), (middle, channels_out, 1, 1)), normed)


def relu(x: Tensor, normed: bool = True) -> Tensor:
    """ReLU after instance norm, or alone; overwrites what it gets, which must be nobody else's."""
    return F.relu(F.instance_norm(x) if normed else x, inplace=True)
