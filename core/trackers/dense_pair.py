"""The built-in dense tracker: optical flow from each frame to the next, and points that follow the chained flow.

Architecture of RAFT (Teed and Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", ECCV 2020), written
anew. A residual CNN gives features at stride 8. For two frames every cell of the first is compared with every cell of
the second: a volume of (H/8 * W/8)^2 numbers, which grows with the fourth power of the resolution, and averages of it
for four levels. A recurrent update refines the flow `iterations` times: it looks at a neighbourhood of the present
guess on each level and changes its state by gated convolutions.

All frames are encoded once, and PAIR_CHUNK pairs are worked on at a time. A point stands where it was asked for until
its own frame, then moves with the flow; it counts as visible while it is inside the picture. So points cost next to
nothing, and every other pixel could be followed as well.

Flow and coordinates stay float32 (float64 in a float64 model) under autocast, and so does the volume, since grid_sample
wants it like its places. Pixels `(x, y)` count from the left and upper edge. Nothing here depends on a value of a
tensor: no host synchronisation, no graph break, runs on meta tensors.

Shape letters: B clips, T frames, N queries, P pairs of frames, C channels, H x W pixels, h x w feature cells, K
positions of a look.
"""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.trackers.builtin import checked_inputs, seeded
from core.trackers.dense_pair_shape import (
    BLOCKS_PER_GROUP,
    DEFAULT_ITERATIONS,
    FLOW_CHANNELS,
    FRAME_CHUNK,
    GROUP_STRIDES,
    LEVELS,
    MIN_SIDE,
    NEIGHBOURS,
    PAIR_CHUNK,
    SHAPES,
    STEM_STRIDE,
    STRIDE,
    DensePairShape,
)
from core.trackers.residual import bottleneck, plain_block, relu
from core.trackers.tracker import Predictions, Tracker

FLOW_STEP = 0.1  # scale of the last layer's random weights: keeps untrained flow small


class Encoder(nn.Module):
    """Frames (F, 3, H, W) to features (F, channels, H/8, W/8)."""

    def __init__(self, shape: DensePairShape, channels: int, normed: bool) -> None:
        super().__init__()
        self.normed = normed
        self.stem = nn.Conv2d(3, shape.stem, 7, stride=STEM_STRIDE, padding=3, bias=not normed)
        block = bottleneck if shape.bottlenecks else plain_block
        blocks: list[nn.Module] = []
        channels_in = shape.stem
        for channels_out, stride in zip(shape.groups, GROUP_STRIDES, strict=True):
            blocks.append(block(channels_in, channels_out, stride, normed))
            blocks += [block(channels_out, channels_out, 1, normed) for _ in range(BLOCKS_PER_GROUP - 1)]
            channels_in = channels_out
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.Conv2d(channels_in, channels, 1)

    def forward(self, frames: Tensor) -> Tensor:
        return self.project(self.blocks(relu(self.stem(frames), self.normed)))


class MotionEncoder(nn.Module):
    """What the update is told: the looks at the volume and the flow so far."""

    def __init__(self, shape: DensePairShape) -> None:
        super().__init__()
        first, *others = shape.correlation_channels
        self.look = nn.Linear(LEVELS * shape.window, first)  # a 1x1 convolution on the layout that looks come in
        self.correlation = nn.ModuleList(nn.Conv2d(first, other, 3, padding=1) for other in others)
        wide, narrow = shape.flow_channels
        self.flow1 = nn.Conv2d(FLOW_CHANNELS, wide, 7, padding=3)
        self.flow2 = nn.Conv2d(wide, narrow, 3, padding=1)
        self.join = nn.Conv2d(shape.correlation_channels[-1] + narrow, shape.motion, 3, padding=1)

    def forward(self, looks: Tensor, flow: Tensor) -> Tensor:
        """looks (P, h * w, levels * K), flow (P, 2, h, w) -> (P, motion, h, w)."""
        seen = F.relu(self.look(looks), inplace=True).transpose(1, 2).contiguous()
        seen = seen.view(*seen.shape[:2], *flow.shape[-2:])
        for convolution in self.correlation:
            seen = F.relu(convolution(seen), inplace=True)
        moved = F.relu(self.flow2(F.relu(self.flow1(flow), inplace=True)), inplace=True)
        return F.relu(self.join(torch.cat([seen, moved], dim=1)), inplace=True)


class GatedUpdate(nn.Module):
    """A convolutional GRU step; both gates come from one convolution, since they see the same."""

    def __init__(self, shape: DensePairShape, kernel: tuple[int, int]) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2)
        self.gates = nn.Conv2d(shape.joined, 2 * shape.hidden, kernel, padding=padding)
        self.candidate = nn.Conv2d(shape.joined, shape.hidden, kernel, padding=padding)

    def forward(self, state: Tensor, joined: Tensor) -> Tensor:
        """state (P, hidden, h, w); joined (P, hidden + ..., h, w), whose first channels are overwritten."""
        hidden = state.shape[1]
        joined[:, :hidden].copy_(state)
        change, keep = torch.sigmoid(self.gates(joined)).split(hidden, dim=1)
        joined[:, :hidden].copy_(keep * state)
        return torch.lerp(state, torch.tanh(self.candidate(joined)), change)


class Update(nn.Module):
    """One refinement: the next state of the recurrence and the change of the flow."""

    def __init__(self, shape: DensePairShape) -> None:
        super().__init__()
        self.motion = MotionEncoder(shape)
        self.steps = nn.ModuleList(GatedUpdate(shape, kernel) for kernel in shape.kernels)
        self.head1 = nn.Conv2d(shape.hidden, shape.head, 3, padding=1)
        self.head2 = nn.Conv2d(shape.head, FLOW_CHANNELS, 3, padding=1)

    def forward(self, state: Tensor, context: Tensor, looks: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        told = self.motion(looks, flow)
        joined = torch.cat([state, context, told, flow.to(told.dtype)], dim=1)
        for step in self.steps:
            state = step(state, joined)
        return state, self.head2(F.relu(self.head1(state), inplace=True))


class DensePair(Tracker):
    """See the module's text. Build it with `build`, which seeds the weights."""

    look_offsets: Tensor

    def __init__(self, shape: DensePairShape, iterations: int) -> None:
        super().__init__()
        self.shape = shape
        self.iterations = iterations
        self.feature_encoder = Encoder(shape, shape.features, normed=True)
        self.context_encoder = Encoder(shape, shape.hidden + shape.context, normed=False)
        self.update = Update(shape)
        self.weigh_neighbours = nn.Sequential(
            nn.Conv2d(shape.hidden, shape.head, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(shape.head, NEIGHBOURS * STRIDE * STRIDE, 1),
        ) if shape.learned_upsampling else None
        self.register_buffer("look_offsets", torch.empty(shape.window, 2), persistent=False)

    def forward(self, video: Tensor, queries: Tensor) -> Predictions:
        """Flow of every pair of neighbouring frames, and the queries along it.

        video: (B, T, H, W, 3) or (B, T, 3, H, W), float in -1..1; H and W multiples of 8, at least 64.
        queries: (B, N, 3) as (t, x, y): frame number and pixels. Raises ValueError on other shapes.
        """
        video = checked_inputs(video, queries, STRIDE, MIN_SIDE)
        batch, total, _, height, width = video.shape
        with self.stage("encoder"):
            first, second, context = self.encoded_pairs(video)
        flows = []
        for start in range(0, first.shape[0], PAIR_CHUNK):
            part = slice(start, start + PAIR_CHUNK)
            flows.append(self.flow_of_pairs(first[part], second[part], context[part]))
        with self.stage("chain"):
            every = flows[0] if len(flows) == 1 else torch.cat(flows)
            return chained(every.view(batch, total - 1, FLOW_CHANNELS, height, width), queries.to(every.dtype))

    def encoded_pairs(self, video: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """video (B, T, 3, H, W) -> features of both frames of a pair (P, C, h * w), context of its first frame.

        Features carry the factor C^-1/4, so that their products are divided by the root of C.
        """
        batch, total = video.shape[:2]
        dtype = self.look_offsets.dtype
        frames = video.to(dtype).contiguous()
        features = self.encoded(self.feature_encoder, frames.flatten(0, 1)).to(dtype) * self.shape.features**-0.25
        features = features.view(batch, total, self.shape.features, -1)
        context = self.encoded(self.context_encoder, frames[:, :-1].flatten(0, 1))
        return features[:, :-1].flatten(0, 1), features[:, 1:].flatten(0, 1), context

    @staticmethod
    def encoded(encoder: nn.Module, frames: Tensor) -> Tensor:
        parts = [encoder(frames[start : start + FRAME_CHUNK]) for start in range(0, frames.shape[0], FRAME_CHUNK)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def flow_of_pairs(self, first: Tensor, second: Tensor, context: Tensor) -> Tensor:
        """first, second (P, C, h * w), context (P, hidden + context, h, w) -> flow (P, 2, H, W) in pixels."""
        pairs, rows, columns = first.shape[0], *context.shape[-2:]
        with self.stage("correlation"):
            pyramid = self.volume(first, second, rows, columns)
        with self.stage("lookup"):
            windows = [self.window_on(level, rows, columns, i) for i, level in enumerate(pyramid)]
            flow = first.new_zeros(pairs, FLOW_CHANNELS, rows, columns)
        with self.stage("update"):
            state = torch.tanh(context[:, : self.shape.hidden])
            given = F.relu(context[:, self.shape.hidden :])
        for _ in range(self.iterations):
            with self.stage("lookup"):
                looks = self.look(pyramid, windows, flow)
            with self.stage("update"):
                state, change = self.update(state, given, looks, flow)
                flow = flow + change.to(flow.dtype)
        with self.stage("upsample"):
            return self.enlarged(flow, state)

    def volume(self, first: Tensor, second: Tensor, rows: int, columns: int) -> list[Tensor]:
        """Every cell of the first frame x every cell of the second: levels (P * h * w, 1, h_l, w_l), finest first."""
        products = torch.bmm(first.transpose(1, 2), second).to(first.dtype)  # (P, h * w, h * w)
        pyramid = [products.view(-1, 1, rows, columns)]
        for _ in range(LEVELS - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2))
        return pyramid

    def window_on(self, level: Tensor, rows: int, columns: int, index: int) -> tuple[Tensor, Tensor]:
        """Where a look at a level falls without flow (h * w, K, 2), and how a cell of flow moves it (1, 2).

        Places as grid_sample wants them. Worked out once for a chunk, so that each look costs one operation.
        """
        offsets = self.look_offsets
        y = torch.arange(rows, device=offsets.device, dtype=offsets.dtype) + 0.5
        x = torch.arange(columns, device=offsets.device, dtype=offsets.dtype) + 0.5
        # 2 / cells of this level; a look's offsets are cells of the level, flow and positions cells of the finest
        scale_x, scale_y = 2 / level.shape[-1], 2 / level.shape[-2]
        per_x, per_y = scale_x / 2**index, scale_y / 2**index
        across = (x * per_x - 1)[None, :, None] + offsets[:, 0] * scale_x  # (1, w, K)
        down = (y * per_y - 1)[:, None, None] + offsets[:, 1] * scale_y  # (h, 1, K)
        size = (rows, columns, offsets.shape[0])
        places = torch.stack([across.expand(size), down.expand(size)], dim=-1).flatten(0, 1)
        step = torch.stack([torch.full_like(x[:1], per_x), torch.full_like(y[:1], per_y)], dim=-1)
        return places, step

    def look(self, pyramid: list[Tensor], windows: list[tuple[Tensor, Tensor]], flow: Tensor) -> Tensor:
        """Neighbourhoods of the present guesses on all levels: (P, h * w, levels * K)."""
        pairs = flow.shape[0]
        moved = flow.flatten(2).transpose(1, 2).contiguous()[:, :, None]  # (P, h * w, 1, 2)
        looks = []
        for level, (places, step) in zip(pyramid, windows, strict=True):
            grid = torch.addcmul(places, moved, step)  # (P, h * w, K, 2)
            seen = F.grid_sample(
                level, grid.view(level.shape[0], 1, -1, 2), mode="bilinear", padding_mode="zeros", align_corners=False
            )
            looks.append(seen.view(pairs, -1, seen.shape[-1]))
        return torch.cat(looks, dim=-1)

    def enlarged(self, flow: Tensor, state: Tensor) -> Tensor:
        """Flow in cells (P, 2, h, w) -> in pixels (P, 2, H, W)."""
        pairs, _, rows, columns = flow.shape
        pixels = flow * STRIDE
        if self.weigh_neighbours is None:
            return F.interpolate(pixels, scale_factor=float(STRIDE), mode="bilinear", align_corners=False)
        weights = self.weigh_neighbours(state).to(flow.dtype)
        weights = weights.view(pairs, 1, NEIGHBOURS, STRIDE, STRIDE, rows, columns).softmax(dim=2)
        around = F.unfold(pixels, 3, padding=1).view(pairs, FLOW_CHANNELS, NEIGHBOURS, 1, 1, rows, columns)
        mixed = (weights * around).sum(dim=2)  # (P, 2, 8, 8, h, w)
        return mixed.permute(0, 1, 4, 2, 5, 3).reshape(pairs, FLOW_CHANNELS, STRIDE * rows, STRIDE * columns)


def chained(flows: Tensor, queries: Tensor) -> Predictions:
    """Points along flows (B, T - 1, 2, H, W) in pixels; queries (B, N, 3) as (t, x, y)."""
    height, width = flows.shape[-2:]
    start = torch.round(queries[..., :1])  # (B, N, 1)
    x_scale, y_scale = 2 / width, 2 / height
    place = queries[..., 1:]
    tracks = [place]
    for frame in range(flows.shape[1]):
        grid = torch.stack([place[..., 0] * x_scale - 1, place[..., 1] * y_scale - 1], dim=-1)[:, None]
        moved = F.grid_sample(flows[:, frame], grid, mode="bilinear", padding_mode="border", align_corners=False)
        place = torch.where(start <= frame, place + moved[:, :, 0].transpose(1, 2), place)  # no flow leads back
        tracks.append(place)
    every = torch.stack(tracks, dim=2)  # (B, N, T, 2)
    x, y = every.unbind(-1)
    time = torch.arange(every.shape[2], device=every.device, dtype=every.dtype)
    visible = (x >= 0) & (x < width) & (y >= 0) & (y < height) & (time >= start)
    return Predictions(every, visible.to(every.dtype) * 2 - 1)


def build(variant: str = "base", seed: int = 0, iterations: int = DEFAULT_ITERATIONS) -> DensePair:
    """A `dense_pair` model on the CPU in evaluation mode with random weights that depend on `seed` alone.

    variant: a key of SHAPES ("small", "base"), KeyError otherwise. No global random state is read or changed.
    """
    shape = SHAPES[variant]
    model = seeded(lambda: DensePair(shape, iterations), seed, {"update.head2.weight": FLOW_STEP})
    reach = torch.arange(-shape.radius, shape.radius + 1, dtype=torch.float32)
    offset_y, offset_x = torch.meshgrid(reach, reach, indexing="ij")
    model.look_offsets.copy_(torch.stack([offset_x, offset_y], dim=-1).view(shape.window, 2))
    return model
