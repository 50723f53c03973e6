"""What the built-in trackers share: the check of their inputs and weights that depend on a seed alone."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def checked_inputs(video: Tensor, queries: Tensor, size_multiple: int, min_side: int = 1) -> Tensor:
    """The video as (B, T, 3, H, W), a view.

    video: (B, T, H, W, 3) or (B, T, 3, H, W); queries: (B, N, 3). Raises ValueError for other shapes, for sides that
    are no multiples of `size_multiple` pixels and for sides below `min_side` pixels.
    """
    if video.dim() != 5 or 3 not in (video.shape[-1], video.shape[2]):
        raise ValueError(f"video has shape {tuple(video.shape)}, expected (B, T, H, W, 3) or (B, T, 3, H, W)")
    if video.shape[-1] == 3:
        video = video.permute(0, 1, 4, 2, 3)
    height, width = video.shape[-2:]
    if height % size_multiple or width % size_multiple or min(height, width) < min_side:
        at_least = f", at least {min_side}" if min_side > 1 else ""
        raise ValueError(f"video is {height}x{width}, expected multiples of {size_multiple}{at_least}")
    if queries.dim() != 3 or queries.shape[-1] != 3:
        raise ValueError(f"queries have shape {tuple(queries.shape)}, expected (B, N, 3)")
    return video


def seeded(make: Callable[[], Model], seed: int, scales: Mapping[str, float]) -> Model:
    """The model that `make` builds, on the CPU in evaluation mode, with random weights that depend on `seed` alone.

    Weights of two axes and more follow He et al. 2015, so that activations keep their size through the layers, times
    the factor that `scales` gives for a parameter's name. Other parameters become 0, scales of norms 1. Buffers are
    left to the caller. No global random state is read or changed.
    """
    with torch.device("meta"):  # skips torch's own initialisation, which would draw from the global generator
        model = make()
    model = model.to_empty(device="cpu").eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            parameter.normal_(0, scales.get(name, 1.0) * math.sqrt(2 / parameter[0].numel()), generator=generator)
        elif name.endswith("weight"):
            parameter.fill_(1)
        else:
            parameter.zero_()
    return model
