"""The built-in point tracker that follows all points jointly: local 4D correlation, attention over time and points.

Architecture of CoTracker3 offline (Karaev et al., "CoTracker3: Simpler and Better Point Tracking by Pseudo-Labelling
Real Videos", arXiv 2410.11831), written anew from the paper. A residual CNN gives features at stride 4, pooled to four
levels. All tracks start at their query and are refined `iterations` times: around the present guess, every cell of a
7x7 neighbourhood is compared with every cell of the 7x7 neighbourhood of the query (a 4D correlation), an MLP encodes
that, and a transformer updates position, visibility and confidence. Its layers attend over the frames of a track, then
over the tracks of a frame; the latter through 64 virtual tracks, so that the cost grows linearly with the points.

Attention is written out (product, softmax, product), as in the official model: the backends of
F.scaled_dot_product_attention, which `local4d` uses, play no part here. That keeps the two families apart when a gap is
explained. The scale of the scores lies in the weights of the query projection, which saves one pass over them.

Coordinates are pixels `(x, y)` with the left and upper edge of the frame at 0, so going from one level to another is a
plain division. They stay float32 (float64 in a float64 model) under autocast, and so do features: grid_sample wants
both alike. Frames are whole numbers, so guesses are sampled in each frame's plane and not in time too.

Nothing here depends on a value of a tensor: no host synchronisation, no graph break, runs on meta tensors.

Shape letters: B clips, T frames, N queries, V virtual tracks, C channels, H x W pixels, h x w feature cells, K = 49
window positions.
"""
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.trackers.builtin import checked_inputs, seeded
from core.trackers.joint4d_shape import (
    BLOCKS_PER_GROUP,
    CORRELATION_CHANNELS,
    CORRELATION_HIDDEN,
    DEFAULT_ITERATIONS,
    ENCODER_GROUPS,
    FEATURE_CHANNELS,
    FRAME_CHUNK,
    FUSED_CHANNELS,
    LEVELS,
    LOGITS,
    MIN_SIDE,
    MOTION_FREQUENCIES,
    RADIUS,
    SHAPES,
    STEM_CHANNELS,
    STRIDE,
    TOKEN_CHANNELS,
    UPDATE_CHANNELS,
    WINDOW,
    Joint4dShape,
)
from core.trackers.residual import plain_block, relu
from core.trackers.tracker import Predictions, Tracker

POSITION_STEP = 0.1  # scale of the last layer's random weights: keeps untrained tracks near their start
LONGEST_PERIOD = 10_000.0  # of the sines that tell the transformer a frame's number (Vaswani et al. 2017)


class Encoder(nn.Module):
    """Frames to features with 128 channels at stride 4, out of four resolutions (strides 2, 4, 8 and 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, STEM_CHANNELS, 7, stride=2, padding=3, bias=False)
        self.groups = nn.ModuleList(
            nn.Sequential(
                plain_block(channels_in, channels_out, stride),
                *(plain_block(channels_out, channels_out, 1) for _ in range(BLOCKS_PER_GROUP - 1)),
            )
            for channels_in, channels_out, stride in ENCODER_GROUPS
        )
        joined = sum(channels for _, channels, _ in ENCODER_GROUPS)
        self.fuse = nn.Conv2d(joined, FUSED_CHANNELS, 3, padding=1, bias=False)
        self.project = nn.Conv2d(FUSED_CHANNELS, FEATURE_CHANNELS, 1)

    def forward(self, frames: Tensor) -> Tensor:
        """frames (F, 3, H, W) -> (F, 128, H/4, W/4)."""
        size = frames.shape[-2] // STRIDE, frames.shape[-1] // STRIDE
        x = relu(self.stem(frames))
        scales = []
        for group in self.groups:
            x = group(x)
            same = x.shape[-2:] == size
            scales.append(x if same else F.interpolate(x, size=size, mode="bilinear", align_corners=False))
        return self.project(relu(self.fuse(torch.cat(scales, dim=1))))


def heads_apart(packed: Tensor, parts: int, heads: int, over_time: bool) -> Tensor:
    """(B, tracks, T, parts * C) -> (parts, B, sequences, heads, length, C / heads), contiguous.

    Over time a sequence is the frames of a track, else the tracks of a frame. One copy puts all parts into the layout
    of batched products, whichever axis is attended over, so the tokens themselves never change their layout.
    """
    split = packed.view(*packed.shape[:3], parts, heads, -1)
    return split.permute((3, 0, 1, 4, 2, 5) if over_time else (3, 0, 2, 4, 1, 5)).contiguous()


def attend(query: Tensor, key: Tensor, value: Tensor, over_time: bool) -> Tensor:
    """Attention without scale over tensors as `heads_apart` lays them out -> (B, tracks, T, C)."""
    weights = torch.softmax(torch.matmul(query, key.transpose(-1, -2)), dim=-1)
    attended = torch.matmul(weights, value)  # (B, sequences, heads, length, C / heads)
    return attended.permute((0, 1, 3, 2, 4) if over_time else (0, 3, 1, 2, 4)).flatten(3)


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


class Mlp(nn.Sequential):
    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


class SelfLayer(nn.Module):
    """Attention within each sequence, then an MLP: over the frames of a track, or over the tracks of a frame."""

    def __init__(self, width: int, heads: int, over_time: bool) -> None:
        super().__init__()
        self.heads, self.over_time = heads, over_time
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, tracks, T, C) -> the same shape."""
        query, key, value = heads_apart(self.query_key_value(norm(x)), 3, self.heads, self.over_time).unbind(0)
        x = x + self.project(attend(query, key, value, self.over_time))
        return x + self.mlp(norm(x))


class SpaceLayer(nn.Module):
    """Points of one frame learn from each other through the virtual tracks.

    Virtual tracks read the points, then each other; then the points read the virtual tracks. Both readings see the
    same points, so one product makes all that they need of them.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.points_query_key_value = nn.Linear(width, 3 * width)
        self.virtual_query = nn.Linear(width, width)
        self.virtual_project = nn.Linear(width, width)
        self.virtual_mlp = Mlp(width)
        self.among_virtual = SelfLayer(width, heads, over_time=False)
        self.virtual_key_value = nn.Linear(width, 2 * width)
        self.points_project = nn.Linear(width, width)
        self.points_mlp = Mlp(width)

    def forward(self, points: Tensor, virtual: Tensor) -> tuple[Tensor, Tensor]:
        """points (B, N, T, C), virtual (B, V, T, C) -> the same shapes."""
        points_query, key, value = heads_apart(
            self.points_query_key_value(norm(points)), 3, self.heads, over_time=False
        ).unbind(0)
        query = heads_apart(self.virtual_query(norm(virtual)), 1, self.heads, over_time=False)[0]
        virtual = virtual + self.virtual_project(attend(query, key, value, over_time=False))
        virtual = virtual + self.virtual_mlp(norm(virtual))
        virtual = self.among_virtual(virtual)
        key, value = heads_apart(self.virtual_key_value(norm(virtual)), 2, self.heads, over_time=False).unbind(0)
        points = points + self.points_project(attend(points_query, key, value, over_time=False))
        return points + self.points_mlp(norm(points)), virtual


class JointTransformer(nn.Module):
    """Tokens (B, N, T, channels) to an update per point and frame (B, N, T, 4): dx, dy, two logits."""

    def __init__(self, shape: Joint4dShape) -> None:
        super().__init__()
        self.embed = nn.Linear(TOKEN_CHANNELS, shape.width)
        self.virtual_tracks = nn.Parameter(torch.empty(shape.virtual_tracks, shape.width))
        self.time_layers = nn.ModuleList(SelfLayer(shape.width, shape.heads, True) for _ in range(shape.layers))
        self.space_layers = nn.ModuleList(SpaceLayer(shape.width, shape.heads) for _ in range(shape.layers))
        self.update = nn.Linear(shape.width, UPDATE_CHANNELS)

    def time_encoding(self, frames: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Sines and cosines of the frame number (T, width), any number of frames."""
        half = self.virtual_tracks.shape[-1] // 2
        frequency = torch.exp(torch.arange(half, device=device, dtype=dtype) * (-math.log(LONGEST_PERIOD) / half))
        angles = torch.arange(frames, device=device, dtype=dtype)[:, None] * frequency
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    def forward(self, tokens: Tensor, time_encoding: Tensor) -> Tensor:
        batch, count, frames, _ = tokens.shape
        points = self.embed(tokens) + time_encoding
        virtual = self.virtual_tracks[None, :, None].to(points.dtype).expand(batch, -1, frames, -1)
        for time_layer, space_layer in zip(self.time_layers, self.space_layers, strict=True):
            every = time_layer(torch.cat([points, virtual], dim=1))
            points, virtual = space_layer(every[:, :count], every[:, count:])
        return self.update(norm(points))


class Joint4d(Tracker):
    """See the module's text. Build it with `build`, which seeds the weights."""

    motion_frequencies: Tensor
    window_offsets: Tensor

    def __init__(self, shape: Joint4dShape, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.encoder = Encoder()
        self.correlation_encoder = nn.Sequential(
            nn.Linear(WINDOW * WINDOW, CORRELATION_HIDDEN), nn.GELU(),
            nn.Linear(CORRELATION_HIDDEN, CORRELATION_CHANNELS),
        )
        self.transformer = JointTransformer(shape)
        self.register_buffer("motion_frequencies", torch.empty(MOTION_FREQUENCIES), persistent=False)
        self.register_buffer("window_offsets", torch.empty(WINDOW, 2), persistent=False)

    def forward(self, video: Tensor, queries: Tensor) -> Predictions:
        """Track all queries through the whole clip.

        video: (B, T, H, W, 3) or (B, T, 3, H, W), float in -1..1; H and W multiples of 4, at least 32.
        queries: (B, N, 3) as (t, x, y): frame number and pixels. Raises ValueError on other shapes.
        A point counts as visible where both its visibility and its confidence logit are above 0.
        """
        video = checked_inputs(video, queries, STRIDE, MIN_SIDE)
        batch, frames, _, height, width = video.shape
        count = queries.shape[1]
        with self.stage("encoder"):
            pyramid = self.feature_pyramid(video)
        dtype = pyramid[0].dtype
        queries = queries.to(dtype)
        with self.stage("correlation"):
            templates = [self.query_template(level, queries, i) for i, level in enumerate(pyramid)]
            windows = [self.window_on(level, i) for i, level in enumerate(pyramid)]
        with self.stage("transformer"):
            time_encoding = self.transformer.time_encoding(frames, video.device, dtype)
        tracks = queries[:, :, None, 1:].expand(-1, -1, frames, -1)
        logits = tracks.new_zeros(batch, count, frames, LOGITS)
        for _ in range(self.iterations):
            with self.stage("correlation"):
                by_frame = tracks.transpose(1, 2).contiguous()  # (B, T, N, 2)
            looks = []
            for level, template, window in zip(pyramid, templates, windows, strict=True):
                with self.stage("correlation"):
                    correlation = self.local_correlation(level, by_frame, template, window)
                with self.stage("correlation_encoder"):
                    looks.append(self.correlation_encoder(correlation.view(batch, count, frames, WINDOW * WINDOW)))
                del correlation  # the largest tensor: not beside the next level's
            tokens = torch.cat([*looks, *self.motion_encoding(tracks, max(height, width)), logits], dim=-1)
            with self.stage("transformer"):
                update = self.transformer(tokens, time_encoding).to(dtype)
            tracks = tracks + update[..., :2]
            logits = logits + update[..., 2:]
        return Predictions(tracks, logits.amin(dim=-1))

    def feature_pyramid(self, video: Tensor) -> list[Tensor]:
        """video (B, T, 3, H, W) -> levels (B, T, C, h, w), finest first; its feature vectors have length 1."""
        batch, total, _, height, width = video.shape
        dtype = self.motion_frequencies.dtype
        # Contiguous, or else convolutions take the channels-last layout of the input over for the whole network.
        frames = video.to(dtype).reshape(batch * total, 3, height, width).contiguous()
        parts = [
            F.normalize(self.encoder(frames[start : start + FRAME_CHUNK]).to(dtype), dim=1)
            for start in range(0, batch * total, FRAME_CHUNK)
        ]
        pyramid = [parts[0] if len(parts) == 1 else torch.cat(parts)]
        for _ in range(LEVELS - 1):
            pyramid.append(F.avg_pool2d(pyramid[-1], 2))
        return [level.view(batch, total, *level.shape[1:]) for level in pyramid]

    def query_template(self, level: Tensor, queries: Tensor, index: int) -> Tensor:
        """Features of the 7x7 neighbourhood of every query in its own frame: (B * N, C, K).

        Sampled in space and time at once, since picking each query's frame first would copy whole feature maps.
        """
        _, frames, _, rows, columns = level.shape
        time = (queries[..., 0, None] + 0.5) * (2 / frames) - 1  # (B, N, 1)
        cells = queries[..., None, 1:] / (STRIDE * 2**index) + self.window_offsets  # (B, N, K, 2)
        grid = torch.stack(
            [cells[..., 0] * (2 / columns) - 1, cells[..., 1] * (2 / rows) - 1, time.expand(cells.shape[:-1])], dim=-1
        )
        volume = level.transpose(1, 2)  # (B, C, T, h, w)
        sampled = F.grid_sample(volume, grid[:, None], mode="bilinear", padding_mode="border", align_corners=False)
        return sampled[:, :, 0].transpose(1, 2).flatten(0, 1)  # (B, C, 1, N, K) -> (B * N, C, K)

    def window_on(self, level: Tensor, index: int) -> tuple[Tensor, Tensor]:
        """From pixels to the 7x7 places around them as grid_sample wants them: (offset (K, 2), scale (K, 2)).

        places = offset + pixels * scale. Worked out once for a level, so that each guess costs one operation.
        """
        rows, columns = level.shape[-2:]
        x, y = self.window_offsets.unbind(-1)
        offset = torch.stack([x * (2 / columns) - 1, y * (2 / rows) - 1], dim=-1)
        pixels = STRIDE * 2**index
        scale = torch.stack([torch.full_like(x, 2 / (pixels * columns)), torch.full_like(y, 2 / (pixels * rows))], -1)
        return offset, scale

    def local_correlation(
        self, level: Tensor, by_frame: Tensor, template: Tensor, window: tuple[Tensor, Tensor]
    ) -> Tensor:
        """4D correlation (B * N, T * K, K): neighbourhood of the guess in every frame x neighbourhood of the query.

        level (B, T, C, h, w), by_frame (B, T, N, 2) pixels, template (B * N, C, K), window of `window_on`.
        """
        batch, frames, channels, rows, columns = level.shape
        count = by_frame.shape[2]
        offset, scale = window
        places = torch.addcmul(offset, by_frame[..., None, :], scale)  # (B, T, N, K, 2)
        sampled = F.grid_sample(
            level.view(batch * frames, channels, rows, columns), places.view(batch * frames, count, WINDOW, 2),
            mode="bilinear", padding_mode="zeros", align_corners=False,
        )  # (B * T, C, N, K)
        around_guess = sampled.view(batch, frames, channels, count, WINDOW).permute(0, 3, 1, 4, 2)  # (B, N, T, K, C)
        return torch.bmm(around_guess.reshape(batch * count, frames * WINDOW, channels), template)

    def motion_encoding(self, tracks: Tensor, longer_side: int) -> list[Tensor]:
        """Displacement to the frame before and after in longer sides of the frame: raw, sines, cosines.

        tracks (B, N, T, 2) -> parts (B, N, T, 4), (B, N, T, 40), (B, N, T, 40).
        """
        step = (tracks[:, :, 1:] - tracks[:, :, :-1]) / longer_side
        padded = F.pad(step, (0, 0, 1, 1))
        both = torch.cat([padded[:, :, :-1], padded[:, :, 1:]], dim=-1)
        angles = (both[..., None] * self.motion_frequencies).flatten(-2)
        return [both, angles.sin(), angles.cos()]


def build(variant: str = "base", seed: int = 0, iterations: int = DEFAULT_ITERATIONS) -> Joint4d:
    """A `joint4d` model on the CPU in evaluation mode with random weights that depend on `seed` alone.

    variant: a key of SHAPES ("base"), KeyError otherwise. No global random state is read or changed.
    """
    return build_shape(SHAPES[variant], seed, iterations)


def build_shape(shape: Joint4dShape, seed: int, iterations: int) -> Joint4d:
    model = seeded(lambda: Joint4d(shape, iterations), seed, {"transformer.update.weight": POSITION_STEP})
    scale = (shape.width // shape.heads) ** -0.5  # of the attention scores
    for name, parameter in model.named_parameters():
        if name.endswith(("query_key_value.weight", "virtual_query.weight")):
            parameter[: shape.width] *= scale
    reach = torch.arange(-RADIUS, RADIUS + 1, dtype=torch.float32)
    offset_y, offset_x = torch.meshgrid(reach, reach, indexing="ij")
    model.window_offsets.copy_(torch.stack([offset_x, offset_y], dim=-1).view(WINDOW, 2))
    model.motion_frequencies.copy_(torch.exp2(torch.arange(MOTION_FREQUENCIES, dtype=torch.float32)))
    return model
