"""The built-in point tracker: local 4D correlation, then a transformer over time.

Architecture of LocoTrack (Cho et al., "Local All-Pair Correspondence for Point Tracking", ECCV 2024), written anew.
A residual CNN gives features at strides 2, 4 and 8. Tracks start from a global cost volume and are refined
`iterations` times: around the present guess, every cell of a 7x7 neighbourhood is compared with every cell of the
7x7 neighbourhood of the query (a 4D correlation), small convolutions encode that, and a transformer over the frames
updates position and visibility.

Coordinates are pixels `(x, y)` with the left and upper edge of the frame at 0 (the centre of the first pixel lies
at 0.5, 0.5), so going from one stride to another is a plain division. They stay float32 (float64 in a float64
model) under autocast: one pixel of error is what 8 bits of mantissa leave at x = 255. Features are kept in the
same dtype, because grid_sample wants features and grid alike and would else convert whole maps at every call.

Nothing here depends on a value of a tensor: no host synchronisation, no graph break, runs on meta tensors.
Memory is bounded by `query_chunk` (queries) and FRAME_CHUNK (frames); neither changes a result.

Shape letters: B clips, T frames, N queries, C channels, H x W pixels, h x w feature cells, K = 49 window positions.
"""
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.trackers.builtin import checked_inputs, seeded
from core.trackers.local4d_shape import (
    BLOCKS_PER_GROUP,
    COARSE_LEVEL,
    DEFAULT_ITERATIONS,
    DEFAULT_QUERY_CHUNK,
    ENCODER_GROUPS,
    FINE_LEVEL,
    FRAME_CHUNK,
    LEVEL_CHANNELS,
    LEVEL_OF_GROUP,
    LEVEL_STRIDES,
    MOTION_FREQUENCIES,
    RADIUS,
    SHAPES,
    STEM_CHANNELS,
    UPDATE_CHANNELS,
    WINDOW,
    Local4dShape,
)
from core.trackers.tracker import Predictions, Tracker

SOFTMAX_TEMPERATURE = 20.0
PEAK_RADIUS_CELLS = 5.0  # the soft argmax of the cost volume looks this far around its maximum
POSITION_STEP = 0.1  # scale of the last layer's random weights: keeps untrained tracks near their start


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, each after instance norm and ReLU, beside a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.InstanceNorm2d(channels_in, affine=True)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.InstanceNorm2d(channels_out, affine=True)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        changes_shape = stride != 1 or channels_in != channels_out
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False) if changes_shape else None

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(activated)
        return shortcut + self.conv2(F.relu(self.norm2(self.conv1(activated))))


class Encoder(nn.Module):
    """Frames to a pyramid of features with 64, 128 and 256 channels at strides 2, 4 and 8."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, STEM_CHANNELS, 7, stride=2, padding=3, bias=False)
        self.groups = nn.ModuleList(
            nn.Sequential(
                ResidualBlock(channels_in, channels_out, stride),
                *(ResidualBlock(channels_out, channels_out, 1) for _ in range(BLOCKS_PER_GROUP - 1)),
            )
            for channels_in, channels_out, stride in ENCODER_GROUPS
        )

    def forward(self, frames: Tensor) -> list[Tensor]:
        """frames (F, 3, H, W) -> levels (F, C, H/stride, W/stride), finest first."""
        levels = []
        x = self.stem(frames)
        for index, group in enumerate(self.groups):
            x = group(x)
            if index in LEVEL_OF_GROUP:
                levels.append(x)
        return levels


class CorrelationEncoder(nn.Module):
    """A 4D correlation (P, K, K) to an embedding (P, 2 * channels).

    The 4D volume is read in both directions: as a 7x7 map around the guess with one channel per query position, and
    as a 7x7 map around the query with one channel per guess position. Both go through the same convolutions.
    """

    def __init__(self, shape: Local4dShape) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels_in = WINDOW
        for i, channels_out in enumerate(shape.channels):
            layers += [
                nn.Conv2d(channels_in, channels_out, shape.kernels[i], shape.strides[i], shape.paddings[i]),
                nn.GroupNorm(channels_out // 16, channels_out),
                nn.ReLU(),
            ]
            channels_in = channels_out
        self.layers = nn.Sequential(*layers)

    def forward(self, correlation: Tensor) -> Tensor:
        pairs = correlation.shape[0]
        side = 2 * RADIUS + 1
        both = correlation.new_empty(2 * pairs, WINDOW, WINDOW)  # (2P, K channels, K positions)
        both[:pairs] = correlation.transpose(1, 2)
        both[pairs:] = correlation
        encoded = self.layers(both.view(2 * pairs, WINDOW, side, side)).mean(dim=(2, 3))  # (2P, channels)
        return torch.cat([encoded[:pairs], encoded[pairs:]], dim=-1)


class TimeAttention(nn.Module):
    """Multi-head attention over frames through F.scaled_dot_product_attention with a float bias.

    The bias (relative position) rules out the flash backend; memory-efficient and math remain, as in LocoTrack.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """x (S, T, width), bias (1, heads, T, T) -> (S, T, width)."""
        sequences, frames, width = x.shape
        packed = self.query_key_value(x).view(sequences, frames, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)  # each (S, heads, T, width / heads)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        return self.project(attended.transpose(1, 2).reshape(sequences, frames, width))


class TransformerLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = TimeAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), bias)
        return x + self.mlp(self.norm2(x))


class TimeTransformer(nn.Module):
    """Tokens of one track (S, T, channels) to an update per frame (S, T, 3): dx, dy, visibility logit."""

    def __init__(self, shape: Local4dShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.embed = nn.Linear(shape.token_channels, shape.width)
        self.layers = nn.ModuleList(TransformerLayer(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.update = nn.Linear(shape.width, UPDATE_CHANNELS)

    def relative_bias(self, frames: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Attention bias (1, heads, T, T): half of the heads see now and before, half now and after.

        A head subtracts slope x distance, with slopes in a geometric row (ALiBi, Press et al. 2022), so any clip
        length works without a learned position.
        """
        time = torch.arange(frames, device=device, dtype=dtype)
        distance_back = time[:, None] - time[None, :]  # row = query frame, column = key frame
        directed = torch.stack([distance_back, -distance_back])  # (2, T, T), negative: not to be seen
        directed = directed.masked_fill(directed < 0, math.inf)
        per_direction = self.heads // 2
        slopes = torch.exp2(-torch.arange(1, per_direction + 1, device=device, dtype=dtype) * (8 / self.heads))
        return -(directed[:, None] * slopes[:, None, None]).view(1, self.heads, frames, frames)

    def forward(self, tokens: Tensor, bias: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, bias)
        return self.update(self.norm(x))


class Local4d(Tracker):
    """See the module's text. Build it with `build`, which seeds the weights."""

    motion_frequencies: Tensor
    window_offsets: Tensor

    def __init__(self, shape: Local4dShape, iterations: int, query_chunk: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.query_chunk = query_chunk
        self.encoder = Encoder()
        self.correlation_encoders = nn.ModuleList(CorrelationEncoder(shape) for _ in LEVEL_CHANNELS)
        self.cost_filter = nn.Conv2d(2, 1, 3, padding=1)
        self.first_visibility = nn.Linear(6, 1)
        self.transformer = TimeTransformer(shape)
        self.register_buffer("motion_frequencies", torch.empty(MOTION_FREQUENCIES), persistent=False)
        self.register_buffer("window_offsets", torch.empty(WINDOW, 2), persistent=False)

    def forward(self, video: Tensor, queries: Tensor) -> Predictions:
        """Track every query through the whole clip.

        video: (B, T, H, W, 3) or (B, T, 3, H, W), float in -1..1; H and W multiples of 8.
        queries: (B, N, 3) as (t, x, y): frame number and pixels. Raises ValueError on other shapes.
        """
        video = checked_inputs(video, queries, LEVEL_STRIDES[-1])
        height, width = video.shape[-2:]
        with self.stage("encoder"):
            pyramid = self.feature_pyramid(video)
        with self.stage("transformer"):
            bias = self.transformer.relative_bias(video.shape[1], video.device, pyramid[0].dtype)
        queries = queries.to(pyramid[0].dtype)
        chunks = [
            self.track_chunk(pyramid, queries[:, start : start + self.query_chunk], bias, height, width)
            for start in range(0, queries.shape[1], self.query_chunk)
        ]
        return Predictions(
            torch.cat([chunk.tracks for chunk in chunks], dim=1),
            torch.cat([chunk.visibility_logits for chunk in chunks], dim=1),
        )

    def feature_pyramid(self, video: Tensor) -> list[Tensor]:
        """video (B, T, 3, H, W) -> levels (B, T, C, h, w), each feature vector of length 1."""
        batch, total, _, height, width = video.shape
        dtype = self.motion_frequencies.dtype
        # Contiguous, or else convolutions take the channels-last layout of the input over for the whole network.
        frames = video.to(dtype).reshape(batch * total, 3, height, width).contiguous()
        pyramid = [
            frames.new_empty(batch * total, LEVEL_CHANNELS[i], height // LEVEL_STRIDES[i], width // LEVEL_STRIDES[i])
            for i in range(len(LEVEL_CHANNELS))
        ]
        for start in range(0, batch * total, FRAME_CHUNK):
            for level, features in enumerate(self.encoder(frames[start : start + FRAME_CHUNK])):
                pyramid[level][start : start + FRAME_CHUNK] = F.normalize(features.to(dtype), dim=1)
        return [level.view(batch, total, *level.shape[1:]) for level in pyramid]

    def track_chunk(
        self, pyramid: list[Tensor], queries: Tensor, bias: Tensor, height: int, width: int
    ) -> Predictions:
        """queries (B, n, 3) -> tracks (B, n, T, 2), visibility logits (B, n, T)."""
        with self.stage("correlation"):
            templates = [self.query_template(level, queries, i) for i, level in enumerate(pyramid)]
        with self.stage("cost_volume"):
            tracks, visibility = self.first_guess(pyramid, templates, queries)
        batch, count, frames, _ = tracks.shape
        for _ in range(self.iterations):
            embeddings = []
            for i, level in enumerate(pyramid):
                with self.stage("correlation"):
                    correlation = self.local_correlation(level, tracks, templates[i], i)
                with self.stage("correlation_encoder"):
                    embeddings.append(self.correlation_encoders[i](correlation.view(-1, WINDOW, WINDOW)))
            looks = [embedding.to(tracks.dtype).view(batch, count, frames, -1) for embedding in embeddings]
            motion = self.motion_encoding(tracks, height, width)
            tokens = torch.cat([*looks, motion, visibility[..., None]], dim=-1)
            with self.stage("transformer"):
                update = self.transformer(tokens.view(batch * count, frames, -1), bias)
            update = update.to(tracks.dtype).view(batch, count, frames, UPDATE_CHANNELS)
            tracks = tracks + update[..., :2]
            visibility = visibility + update[..., 2]
        return Predictions(tracks, visibility)

    def query_template(self, level: Tensor, queries: Tensor, index: int) -> Tensor:
        """Features of the 7x7 neighbourhood of every query in its own frame: (B, n, C, K).

        Sampled in space and time at once, since picking each query's frame first would copy whole feature maps.
        """
        _, frames, _, rows, columns = level.shape
        time = (queries[..., 0, None] + 0.5) * (2 / frames) - 1  # (B, n, 1)
        cells = queries[..., None, 1:] / LEVEL_STRIDES[index] + self.window_offsets  # (B, n, K, 2)
        grid = torch.stack(
            [cells[..., 0] * (2 / columns) - 1, cells[..., 1] * (2 / rows) - 1, time.expand(cells.shape[:-1])], dim=-1
        )
        volume = level.transpose(1, 2)  # (B, C, T, h, w)
        sampled = F.grid_sample(volume, grid[:, None], mode="bilinear", padding_mode="border", align_corners=False)
        return sampled[:, :, 0].transpose(1, 2)  # (B, C, 1, n, K) -> (B, n, C, K)

    def local_correlation(self, level: Tensor, tracks: Tensor, template: Tensor, index: int) -> Tensor:
        """4D correlation (B, n, T, K, K): neighbourhood of the guess in every frame x neighbourhood of the query."""
        batch, frames, channels, rows, columns = level.shape
        count = tracks.shape[1]
        cells = tracks.transpose(1, 2)[..., None, :] / LEVEL_STRIDES[index] + self.window_offsets  # (B, T, n, K, 2)
        grid = torch.stack([cells[..., 0] * (2 / columns) - 1, cells[..., 1] * (2 / rows) - 1], dim=-1)
        sampled = F.grid_sample(
            level.reshape(batch * frames, channels, rows, columns),
            grid.view(batch * frames, count, WINDOW, 2),
            mode="bilinear", padding_mode="zeros", align_corners=False,
        )  # (B*T, C, n, K)
        around_guess = sampled.view(batch, frames, channels, count, WINDOW).permute(0, 3, 1, 4, 2)  # (B, n, T, K, C)
        correlation = torch.matmul(around_guess.reshape(batch, count, frames * WINDOW, channels), template)
        return correlation.view(batch, count, frames, WINDOW, WINDOW)

    def first_guess(self, pyramid: list[Tensor], templates: list[Tensor], queries: Tensor) -> tuple[Tensor, Tensor]:
        """Tracks (B, n, T, 2) and visibility logits (B, n, T) from the cost volume over whole frames."""
        fine, coarse = pyramid[FINE_LEVEL], pyramid[COARSE_LEVEL]
        batch, frames, _, rows, columns = fine.shape
        count = queries.shape[1]
        center = WINDOW // 2
        fine_query = templates[FINE_LEVEL][:, None, :, :, center]  # (B, 1, n, C)
        coarse_query = templates[COARSE_LEVEL][:, None, :, :, center]
        tracks, visibility = [], []
        for start in range(0, frames, FRAME_CHUNK):
            part = slice(start, start + FRAME_CHUNK)
            fine_cost = torch.matmul(fine_query, fine[:, part].flatten(3)).to(queries.dtype)  # (B, t, n, h*w)
            coarse_cost = torch.matmul(coarse_query, coarse[:, part].flatten(3)).to(queries.dtype)
            enlarged = F.interpolate(
                coarse_cost.view(-1, 1, *coarse.shape[-2:]), size=(rows, columns), mode="bilinear", align_corners=False
            )
            cost = torch.cat([fine_cost.view(-1, 1, rows, columns), enlarged], dim=1)  # (B*t*n, 2, h, w)
            score = self.cost_filter(cost).to(queries.dtype).flatten(1) * SOFTMAX_TEMPERATURE
            points = soft_peak(torch.softmax(score, dim=-1).view(-1, rows, columns))
            tracks.append(points.view(batch, -1, count, 2) * LEVEL_STRIDES[FINE_LEVEL])
            summary = torch.cat([cost.mean(dim=(2, 3)), cost.amax(dim=(2, 3)), cost.amin(dim=(2, 3))], dim=-1)
            visibility.append(self.first_visibility(summary).to(queries.dtype).view(batch, -1, count))
        guess = torch.cat(tracks, dim=1).transpose(1, 2)  # (B, n, T, 2)
        # The query itself is known: its own frame starts at its own position.
        time = torch.arange(frames, device=queries.device, dtype=queries.dtype)
        is_query_frame = torch.round(queries[..., :1]) == time  # (B, n, T)
        guess = torch.where(is_query_frame[..., None], queries[..., None, 1:], guess)
        return guess, torch.cat(visibility, dim=1).transpose(1, 2)

    def motion_encoding(self, tracks: Tensor, height: int, width: int) -> Tensor:
        """Displacement to the frame before and after, in frame sizes; raw, sines, cosines: (B, n, T, 84)."""
        step = tracks[:, :, 1:] - tracks[:, :, :-1]
        step = torch.stack([step[..., 0] / width, step[..., 1] / height], dim=-1)
        both = torch.cat([F.pad(step, (0, 0, 1, 0)), F.pad(step, (0, 0, 0, 1))], dim=-1)  # (B, n, T, 4)
        angles = (both[..., None] * self.motion_frequencies).flatten(-2)  # (B, n, T, 40)
        return torch.cat([both, angles.sin(), angles.cos()], dim=-1)


def soft_peak(heat: Tensor) -> Tensor:
    """Mean position (M, 2) in cells (x, y) of heat maps (M, h, w), weighted near their maximum only."""
    _, rows, columns = heat.shape
    peak = heat.flatten(1).argmax(dim=-1, keepdim=True)  # (M, 1)
    peak_y = torch.div(peak, columns, rounding_mode="floor")
    peak_x = (peak - peak_y * columns).to(heat.dtype)
    peak_y = peak_y.to(heat.dtype)
    y = torch.arange(rows, device=heat.device, dtype=heat.dtype)
    x = torch.arange(columns, device=heat.device, dtype=heat.dtype)
    squared_distance = ((y - peak_y) ** 2)[:, :, None] + ((x - peak_x) ** 2)[:, None, :]
    weight = heat * (squared_distance < PEAK_RADIUS_CELLS**2)
    column_weight, row_weight = weight.sum(dim=1), weight.sum(dim=2)
    total = column_weight.sum(dim=-1)
    # Element-wise and not a matrix product: positions must not pass through TF32 or autocast.
    mean_x, mean_y = (column_weight * x).sum(dim=-1) / total, (row_weight * y).sum(dim=-1) / total
    return torch.stack([mean_x, mean_y], dim=-1) + 0.5


def build(
    variant: str = "base", seed: int = 0, iterations: int = DEFAULT_ITERATIONS, query_chunk: int = DEFAULT_QUERY_CHUNK
) -> Local4d:
    """A `local4d` model on the CPU in evaluation mode with random weights that depend on `seed` alone.

    variant: a key of SHAPES ("small", "base"), KeyError otherwise. No global random state is read or changed.
    """
    scales = {"transformer.update.weight": POSITION_STEP}
    model = seeded(lambda: Local4d(SHAPES[variant], iterations, query_chunk), seed, scales)
    # Smoothed similarity, not noise: untrained tracks then go where the picture looks alike, as trained ones do, and
    # sampling meets memory in the same way.
    model.cost_filter.weight.fill_(1 / model.cost_filter.weight[0, 0].numel())
    reach = torch.arange(-RADIUS, RADIUS + 1, dtype=torch.float32)
    offset_y, offset_x = torch.meshgrid(reach, reach, indexing="ij")
    model.window_offsets.copy_(torch.stack([offset_x, offset_y], dim=-1).view(WINDOW, 2))
    model.motion_frequencies.copy_(torch.exp2(torch.arange(MOTION_FREQUENCIES, dtype=torch.float32)))
    return model
