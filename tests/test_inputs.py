"""The procedural clip's ground truth is exact, and a video file comes in or fails with one clear sentence."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from core.errors import UserError
from core.measure.inputs import Clip, procedural_clip, to_model_input, video_clip


@pytest.fixture(scope="module")
def clip() -> Clip:
    return procedural_clip(frames=24, height=96, width=128, points=200, seed=3)


def colours_at(clip: Clip, frame: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Bilinear colours (M, 3) at pixels (x, y) of frames: what a camera sees there."""
    height, width = clip.video.shape[1:3]
    x = np.clip(xy[:, 0] - 0.5, 0, width - 1.001)
    y = np.clip(xy[:, 1] - 0.5, 0, height - 1.001)
    column, row = x.astype(int), y.astype(int)
    across, down = (x - column)[:, None], (y - row)[:, None]
    video = clip.video.astype(float)
    upper = video[frame, row, column] * (1 - across) + video[frame, row, column + 1] * across
    lower = video[frame, row + 1, column] * (1 - across) + video[frame, row + 1, column + 1] * across
    return upper * (1 - down) + lower * down


def test_shapes_and_types_are_as_documented(clip: Clip) -> None:
    assert clip.video.shape == (24, 96, 128, 3)
    assert clip.video.dtype == np.uint8
    assert clip.queries.shape == (200, 3)
    assert clip.queries.dtype == np.float32
    assert clip.tracks is not None
    assert clip.tracks.shape == (200, 24, 2)
    assert clip.tracks.dtype == np.float32
    assert clip.visible is not None
    assert clip.visible.shape == (200, 24)
    assert clip.visible.dtype == np.bool_


def test_same_seed_gives_the_same_clip_and_another_seed_another(clip: Clip) -> None:
    again = procedural_clip(frames=24, height=96, width=128, points=200, seed=3)
    other = procedural_clip(frames=24, height=96, width=128, points=200, seed=4)
    assert np.array_equal(clip.video, again.video)
    assert np.array_equal(clip.queries, again.queries)
    assert not np.array_equal(clip.video, other.video)


def test_every_track_passes_through_its_query_and_is_visible_there(clip: Clip) -> None:
    assert clip.tracks is not None
    assert clip.visible is not None
    rows = np.arange(200)
    frame = clip.queries[:, 0].astype(int)
    assert np.abs(clip.tracks[rows, frame] - clip.queries[:, 1:]).max() < 1e-3
    assert clip.visible[rows, frame].all()


def test_a_visible_point_shows_its_colour_in_every_frame(clip: Clip) -> None:
    assert clip.tracks is not None
    assert clip.visible is not None
    frame = clip.queries[:, 0].astype(int)
    own = colours_at(clip, frame, clip.queries[:, 1:])
    seen, elsewhere = [], []
    for t in range(24):
        difference = np.abs(colours_at(clip, np.full(200, t), clip.tracks[:, t]) - own).mean(axis=1)
        seen.append(difference[clip.visible[:, t]])
        stayed = np.abs(colours_at(clip, np.full(200, t), clip.queries[:, 1:]) - own).mean(axis=1)
        elsewhere.append(stayed[clip.visible[:, t]])
    # 2-pixel noise blurs a little under rotation; a wrong track would be as far off as a point that stayed in place
    assert np.median(np.concatenate(seen)) < 5
    assert np.median(np.concatenate(seen)) < 0.4 * np.median(np.concatenate(elsewhere))


def test_points_get_hidden_and_come_back(clip: Clip) -> None:
    assert clip.visible is not None
    assert 0.3 < clip.visible.mean() < 0.98
    hidden_then_seen = (~clip.visible[:, :-1] & clip.visible[:, 1:]).any(axis=1)
    assert hidden_then_seen.sum() > 5


def test_sprites_turn_so_neighbours_swap_sides() -> None:
    clip = procedural_clip(frames=60, height=128, width=128, points=400, seed=1)
    assert clip.tracks is not None
    # Of two points that belong to one rigid sprite the connecting line turns; on the background it never does.
    line = clip.tracks[:, None] - clip.tracks[None]  # (N, N, T, 2)
    length = np.linalg.norm(line, axis=-1)
    near = (length.max(axis=-1) < 20) & (length.min(axis=-1) > 3)
    angle = np.unwrap(np.arctan2(line[near][..., 1], line[near][..., 0]), axis=-1)
    turned = np.abs(angle[:, -1] - angle[:, 0])
    assert (turned > 0.3).any()
    assert (turned < 1e-3).any()


@pytest.mark.parametrize("size", [(1, 1, 1, 1), (3, 33, 70, 5), (2, 8, 200, 4)])
def test_any_size_and_length_works(size: tuple[int, int, int, int]) -> None:
    frames, height, width, points = size
    clip = procedural_clip(*size)
    assert clip.video.shape == (frames, height, width, 3)
    assert clip.tracks is not None
    assert np.isfinite(clip.tracks).all()
    assert len(clip.tracks) == points


@pytest.mark.parametrize("size", [(0, 8, 8, 1), (1, 0, 8, 1), (1, 8, -8, 1), (1, 8, 8, 0)])
def test_a_size_below_one_is_refused(size: tuple[int, int, int, int]) -> None:
    with pytest.raises(UserError, match="at least 1"):
        procedural_clip(*size)


def test_model_input_runs_from_minus_one_to_one_and_repeats_the_batch() -> None:
    clip = procedural_clip(frames=2, height=16, width=16, points=3)
    clip.video[0, 0, 0] = (0, 255, 51)
    inputs = to_model_input(clip, "cpu", batch=2)
    assert inputs["video"].shape == (2, 2, 16, 16, 3)
    assert inputs["video"].dtype == torch.float32
    assert torch.allclose(inputs["video"][1, 0, 0, 0], torch.tensor([-1.0, 1.0, -0.6]), atol=1e-6)
    assert inputs["queries"].shape == (2, 3, 3)
    assert torch.equal(inputs["queries"][0], torch.from_numpy(clip.queries))


@pytest.fixture(scope="module")
def video_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real MPEG-4 file of 6 frames, 64x48, each of one grey level."""
    av = pytest.importorskip("av")
    path = tmp_path_factory.mktemp("video") / "greys.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=24)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for level in range(6):
            picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 * level, dtype=np.uint8), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def test_a_video_file_gives_its_first_frames_resized_and_no_ground_truth(video_file: Path) -> None:
    clip = video_clip(video_file, frames=4, height=32, width=40, points=7, seed=1)
    assert clip.video.shape == (4, 32, 40, 3)
    levels = clip.video.mean(axis=(1, 2, 3))
    assert np.abs(levels - [0, 40, 80, 120]).max() < 6  # lossy codec
    assert clip.tracks is None
    assert clip.visible is None
    assert clip.source == "greys.mp4"
    assert (clip.queries >= 0).all()
    assert (clip.queries < [4, 40, 32]).all()


def test_too_few_frames_names_found_and_needed(video_file: Path) -> None:
    with pytest.raises(UserError, match=r"has 6 frames; expected at least 47; use --frames 6"):
        video_clip(video_file, frames=47, height=32, width=32, points=1)


def test_half_a_video_file_is_named_as_unreadable(video_file: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.mp4"
    torn.write_bytes(video_file.read_bytes()[: video_file.stat().st_size // 2])  # an MP4's index is at its end
    with pytest.raises(UserError, match=r"torn\.mp4 (holds no pictures|cannot be read as a video)"):
        video_clip(torn, frames=1, height=32, width=32, points=1)


def test_a_missing_file_and_a_file_that_is_no_video_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no video file 'gone\.mp4'"):
        video_clip(tmp_path / "gone.mp4", 1, 32, 32, 1)
    text = tmp_path / "notes.mp4"
    text.write_text("this is not a video\n" * 50)
    with pytest.raises(UserError, match=r"notes\.mp4 cannot be read as a video"):
        video_clip(text, 1, 32, 32, 1)
