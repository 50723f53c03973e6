"""What a tracker is measured on: a procedural clip with exact ground truth, or frames of a video file.

Coordinates are pixels `(x, y)` with the frame's left and upper edge at 0, so the centre of the first pixel lies at
(0.5, 0.5), as in TAP-Vid. Shape letters: T frames, H x W pixels, N query points.

The procedural clip has a textured background that drifts and textured sprites that move along closed curves, turn,
grow and shrink, and pass in front of each other. Each query is a random place in a random frame; it belongs to the
uppermost thing there, and its track is that thing's motion in closed form. So ground truth needs no estimate.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from core.errors import UserError

SPRITES = 8
BACKGROUND_DRIFT = 0.08  # largest shift of the background, as a share of the shorter side

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Clip:
    """Frames and query points, with ground truth where it is known."""

    video: NDArray[np.uint8]  # (T, H, W, 3) RGB
    queries: NDArray[np.float32]  # (N, 3) as (t, x, y): frame number and pixels
    tracks: NDArray[np.float32] | None  # (N, T, 2) pixels (x, y), also where hidden; None for a video file
    visible: NDArray[np.bool_] | None  # (N, T); None for a video file
    source: str  # "procedural seed 0" or the base name of the video file


@dataclass(frozen=True)
class _Sprite:
    """A textured disc with lobes. All arrays over time have shape (T,)."""

    center_x: FloatArray
    center_y: FloatArray
    angle: FloatArray
    zoom: FloatArray
    radius: float
    lobes: int
    lobe_depth: float
    texture: NDArray[np.float32]  # (S, S, 3), its centre is the sprite's origin

    @property
    def reach(self) -> float:
        """No point of the sprite is further from its origin than this, at zoom 1."""
        return self.radius * (1 + self.lobe_depth)

    def to_local(self, frame: Any, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Frame pixels to the sprite's own axes (origin at its centre, zoom 1). `frame` indexes time."""
        dx, dy = x - self.center_x[frame], y - self.center_y[frame]
        cos, sin = np.cos(self.angle[frame]) / self.zoom[frame], np.sin(self.angle[frame]) / self.zoom[frame]
        return cos * dx + sin * dy, cos * dy - sin * dx

    def to_frame(self, frame: Any, u: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The reverse of `to_local`."""
        cos, sin = np.cos(self.angle[frame]) * self.zoom[frame], np.sin(self.angle[frame]) * self.zoom[frame]
        return self.center_x[frame] + cos * u - sin * v, self.center_y[frame] + sin * u + cos * v

    def contains(self, u: FloatArray, v: FloatArray) -> NDArray[np.bool_]:
        """Whether places in the sprite's own axes belong to it."""
        edge = self.radius * (1 + self.lobe_depth * np.cos(self.lobes * np.arctan2(v, u)))
        return np.asarray(u * u + v * v < edge * edge)


def procedural_clip(frames: int, height: int, width: int, points: int, seed: int = 0) -> Clip:
    """A clip of any size and length with exact tracks; the same arguments always give the same clip.

    Raises UserError when a size is below 1.
    """
    for name, value in (("frames", frames), ("height", height), ("width", width), ("points", points)):
        if value < 1:
            raise UserError(f"{name} is {value}", "at least 1", f"give a larger number of {name}")
    rng = np.random.default_rng(seed)
    time = np.arange(frames, dtype=np.float64)
    short = min(height, width)

    margin = BACKGROUND_DRIFT * short
    shift_x = _wave(rng, time, margin)
    shift_y = _wave(rng, time, margin)
    pad = int(np.ceil(margin)) + 1
    background = _texture(rng, height + 2 * pad + 1, width + 2 * pad + 1)
    sprites = [_random_sprite(rng, time, height, width) for _ in range(SPRITES)]

    video = np.empty((frames, height, width, 3), dtype=np.uint8)
    for frame in range(frames):
        canvas = _shifted(background, pad + shift_x[frame], pad + shift_y[frame], height, width)
        for sprite in sprites:
            _paint(canvas, sprite, frame)
        np.add(canvas, 0.5, out=canvas)  # rounds to the nearest level
        video[frame] = canvas

    query_frame = rng.integers(0, frames, points)
    query_x = rng.random(points) * width
    query_y = rng.random(points) * height
    # float32 first, so that the track passes through the query exactly as the model sees it
    queries = np.stack([query_frame, query_x, query_y], axis=1).astype(np.float32)
    x, y = queries[:, 1].astype(np.float64), queries[:, 2].astype(np.float64)
    owner = _uppermost(sprites, query_frame, x, y)

    track_x = x[:, None] + shift_x[query_frame, None] - shift_x[None, :]  # right for the background's points
    track_y = y[:, None] + shift_y[query_frame, None] - shift_y[None, :]
    everywhen = np.arange(frames)[None, :]
    for index, sprite in enumerate(sprites):
        mine = owner == index
        u, v = sprite.to_local(query_frame[mine], x[mine], y[mine])
        track_x[mine], track_y[mine] = sprite.to_frame(everywhen, u[:, None], v[:, None])

    inside = (track_x >= 0) & (track_x < width) & (track_y >= 0) & (track_y < height)
    visible = inside & ~_covered(sprites, owner, everywhen, track_x, track_y)
    visible[np.arange(points), query_frame] = True  # by construction; the round trip may miss an edge by one rounding
    tracks = np.stack([track_x, track_y], axis=-1).astype(np.float32)
    return Clip(video, queries, tracks, visible, f"procedural seed {seed}")


def video_clip(path: str | Path, frames: int, height: int, width: int, points: int, seed: int = 0) -> Clip:
    """The first `frames` frames of a video file, resized, with seeded random queries; no ground truth.

    Raises UserError when the file is missing, is no video, is shorter than `frames`, or PyAV is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no video file {path.name!r}", "a readable file", "check the path given to --video")
    try:
        import av
        import av.error
    except ImportError as error:
        raise UserError("PyAV is not installed", "the package `av` for --video", "run `pip install av`") from error

    pictures: list[NDArray[np.uint8]] = []
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise UserError(f"{path.name} holds no pictures", "a video file", "choose another file")
            for picture in container.decode(video=0):
                resized = picture.reformat(width=width, height=height, format="rgb24")
                pictures.append(np.asarray(resized.to_ndarray(), dtype=np.uint8))
                if len(pictures) == frames:
                    break
    except av.error.FFmpegError as error:
        if not pictures:
            raise UserError(
                f"{path.name} cannot be read as a video ({error.strerror})", "a format that FFmpeg decodes",
                "choose another file",
            ) from error
        # A damaged tail: what was decoded before it may still be enough.
    if len(pictures) < frames:
        raise UserError(
            f"{path.name} has {len(pictures)} frames", f"at least {frames}", f"use --frames {len(pictures)} or less"
        )
    rng = np.random.default_rng(seed)
    queries = np.stack(
        [rng.integers(0, frames, points), rng.random(points) * width, rng.random(points) * height], axis=1
    ).astype(np.float32)
    return Clip(np.stack(pictures), queries, None, None, path.name)


def to_model_input(clip: Clip, device: str | torch.device, batch: int = 1) -> dict[str, torch.Tensor]:
    """The clip as keyword arguments of a tracker: `video` (B, T, H, W, 3) float32 in -1..1, `queries` (B, N, 3).

    With batch > 1 the same clip is repeated, so that every item costs the same.
    """
    # bytes go to the device and become floats there: a quarter of the transfer
    video = torch.from_numpy(clip.video).to(device).to(torch.float32).mul_(2 / 255).sub_(1)
    queries = torch.from_numpy(clip.queries).to(device)
    return {"video": video[None].repeat(batch, 1, 1, 1, 1), "queries": queries[None].repeat(batch, 1, 1)}


def _wave(rng: np.random.Generator, time: FloatArray, reach: float) -> FloatArray:
    """A closed curve over time within +-reach, one round in 40 to 90 frames."""
    return np.asarray(reach * np.sin(2 * np.pi * (time / rng.uniform(40, 90) + rng.random())))


def _random_sprite(rng: np.random.Generator, time: FloatArray, height: int, width: int) -> _Sprite:
    radius = rng.uniform(0.07, 0.14) * min(height, width)
    lobe_depth = rng.uniform(0.1, 0.35)
    size = 2 * int(np.ceil(radius * (1 + lobe_depth))) + 4
    return _Sprite(
        center_x=width * rng.uniform(0.3, 0.7) + _wave(rng, time, 0.3 * width),
        center_y=height * rng.uniform(0.3, 0.7) + _wave(rng, time, 0.3 * height),
        angle=rng.uniform(0, 2 * np.pi) + rng.uniform(-0.06, 0.06) * time,
        zoom=1 + _wave(rng, time, 0.2),
        radius=radius,
        lobes=int(rng.integers(2, 6)),
        lobe_depth=lobe_depth,
        texture=_texture(rng, size, size),
    )


def _texture(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.float32]:
    """A random colour with noise at four scales, (rows, columns, 3) in 0..255."""
    canvas = np.empty((rows, columns, 3), dtype=np.float32)
    canvas[:] = rng.uniform(70, 185, 3)
    for cell_pixels, strength in ((48, 60.0), (16, 45.0), (6, 35.0), (2, 20.0)):
        grid = rng.uniform(-strength, strength, (rows // cell_pixels + 2, columns // cell_pixels + 2, 3))
        canvas += _enlarged(_enlarged(grid.astype(np.float32), rows, cell_pixels, axis=0), columns, cell_pixels, axis=1)
    return np.clip(canvas, 0, 255)


def _enlarged(grid: NDArray[np.float32], length: int, cell_pixels: int, axis: int) -> NDArray[np.float32]:
    """Linear interpolation of `grid` along one axis to `length` places, `cell_pixels` apart."""
    place = np.arange(length, dtype=np.float32) / cell_pixels
    low = place.astype(np.intp)
    weight = (place - low).reshape([-1 if i == axis else 1 for i in range(grid.ndim)])
    first, second = np.take(grid, low, axis=axis), np.take(grid, low + 1, axis=axis)
    return np.asarray(first + weight * (second - first), dtype=np.float32)


def _shifted(texture: NDArray[np.float32], x: float, y: float, height: int, width: int) -> NDArray[np.float32]:
    """The part of `texture` whose upper left edge lies at (x, y), bilinear: (height, width, 3)."""
    column, row = int(x), int(y)
    right, down = np.float32(x - column), np.float32(y - row)
    rows = texture[row : row + height + 1, column : column + width + 1]
    mixed = rows[:, :-1] * (1 - right)
    mixed += rows[:, 1:] * right
    canvas = mixed[:-1] * (1 - down)
    canvas += mixed[1:] * down
    return np.asarray(canvas)


def _paint(canvas: NDArray[np.float32], sprite: _Sprite, frame: int) -> None:
    """Draw a sprite over the canvas (H, W, 3) in place: the pixels whose centre belongs to it."""
    height, width = canvas.shape[:2]
    reach = sprite.reach * sprite.zoom[frame] + 1
    left, right = _span(sprite.center_x[frame] - reach, sprite.center_x[frame] + reach, width)
    top, bottom = _span(sprite.center_y[frame] - reach, sprite.center_y[frame] + reach, height)
    if left >= right or top >= bottom:
        return
    x = (np.arange(left, right) + 0.5)[None, :]
    y = (np.arange(top, bottom) + 0.5)[:, None]
    u, v = sprite.to_local(frame, x, y)
    inside = sprite.contains(u, v)
    middle = sprite.texture.shape[0] / 2
    column, row = u[inside] + (middle - 0.5), v[inside] + (middle - 0.5)
    left_column, upper_row = column.astype(np.intp), row.astype(np.intp)
    across = (column - left_column).astype(np.float32)[:, None]
    down = (row - upper_row).astype(np.float32)[:, None]
    size = sprite.texture.shape[1]
    flat = sprite.texture.reshape(-1, 3)
    corner = upper_row * size + left_column
    upper = flat[corner] * (1 - across) + flat[corner + 1] * across
    lower = flat[corner + size] * (1 - across) + flat[corner + size + 1] * across
    canvas[top:bottom, left:right][inside] = upper * (1 - down) + lower * down


def _span(low: float, high: float, length: int) -> tuple[int, int]:
    return max(0, int(np.floor(low))), min(length, int(np.ceil(high)))


def _from_the_top(sprites: list[_Sprite]) -> Iterator[tuple[int, _Sprite]]:
    """Later sprites are painted over earlier ones."""
    return reversed(list(enumerate(sprites)))


def _uppermost(sprites: list[_Sprite], frame: Any, x: FloatArray, y: FloatArray) -> NDArray[np.int64]:
    """Index of the sprite seen at each place, -1 for the background."""
    owner = np.full(x.shape, -1, dtype=np.int64)
    for index, sprite in _from_the_top(sprites):
        owner[(owner == -1) & sprite.contains(*sprite.to_local(frame, x, y))] = index
    return owner


def _covered(
    sprites: list[_Sprite], owner: NDArray[np.int64], frame: Any, x: FloatArray, y: FloatArray
) -> NDArray[np.bool_]:
    """Whether a sprite above a point's owner lies over it: (N, T) for places x, y (N, T)."""
    covered = np.zeros(x.shape, dtype=np.bool_)
    for index, sprite in _from_the_top(sprites):
        covered |= (index > owner)[:, None] & sprite.contains(*sprite.to_local(frame, x, y))
    return covered
