"""Points that follow dense flow: how the outputs of dense models become tracks. Outside the timed region."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from core.trackers.official.adapter import at_least_single


def sample(maps: Tensor, points: Tensor) -> Tensor:
    """maps (B, C, H, W) at points (B, N, 2) as (x, y) with the frame's edge at 0: (B, N, C), bilinear."""
    height, width = maps.shape[-2:]
    grid = points / points.new_tensor([width, height]) * 2 - 1
    maps = at_least_single(maps)
    found = F.grid_sample(maps, grid[:, :, None].to(maps.dtype), padding_mode="border", align_corners=False)
    return found[..., 0].transpose(1, 2)


def chained(flows: Tensor, queries: Tensor) -> Tensor:
    """Tracks (B, N, T, 2) along flows (B, T - 1, 2, H, W) from each frame to the next.

    queries: (B, N, 3) as (t, x, y). Before its own frame a point stays where it was asked for: there is no flow back.
    """
    start = torch.round(queries[..., 0])  # (B, N)
    place = queries[..., 1:].clone()
    tracks = [place]
    for frame in range(flows.shape[1]):
        moved = place + sample(flows[:, frame], place)
        place = torch.where((start <= frame)[..., None], moved, place)
        tracks.append(place)
    return torch.stack(tracks, dim=2)
