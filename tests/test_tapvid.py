"""TAP-Vid pickles of the user's: what is read from a good one, and that a hostile one runs nothing."""
from __future__ import annotations

import builtins
import io
import os
import pickle
import struct
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import UserError
from core.measure.agreement import FIRST, accuracy
from core.measure.inputs import Clip, to_model_input
from core.measure.tapvid import clip_of_size, read_clips


def example(frames: int = 3, height: int = 8, width: int = 16) -> dict[str, Any]:
    """Two points; the first is hidden in frame 0, the second always."""
    return {
        "video": np.arange(frames * height * width * 3, dtype=np.uint8).reshape(frames, height, width, 3),
        "points": np.array([[[0.25, 0.5]] * frames, [[1.5, -0.1]] * frames], dtype=np.float32),
        "occluded": np.array([[True] + [False] * (frames - 1), [True] * frames]),
    }


def written(path: Path, held: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(held, protocol=protocol))
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        list(read_clips(path, **options))
    assert "\n" not in str(caught.value)
    assert path.parent.name not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_gives_the_same_clip(tmp_path: Path, protocol: int) -> None:
    (clip,) = read_clips(written(tmp_path / "davis.pkl", {"goat": example()}, protocol), side=64)
    assert clip.source == "davis.pkl: goat"
    assert clip.video.shape == (3, 64, 64, 3)
    assert clip.queries.tolist() == [[1, 16, 32]]  # first seen in frame 1, at a quarter and a half of 64
    assert clip.tracks is not None
    assert clip.tracks.tolist() == [[[16, 32]] * 3]
    assert clip.visible is not None
    assert clip.visible.tolist() == [[False, True, True]]


def test_the_names_of_numpy_1_and_2_are_both_known(tmp_path: Path) -> None:
    data = pickle.dumps({"goat": example()}, protocol=2)
    old, new = b"numpy.core.multiarray", b"numpy._core.multiarray"
    for index, names in enumerate(((old, new), (new, old))):
        path = tmp_path / f"{index}.pkl"
        path.write_bytes(data.replace(*names))
        assert len(list(read_clips(path, side=8))) == 1


def test_a_list_of_examples_is_named_by_number(tmp_path: Path) -> None:
    clips = list(read_clips(written(tmp_path / "k.pkl", [example(), example()]), side=8))
    assert [clip.source for clip in clips] == ["k.pkl: 0", "k.pkl: 1"]


def test_pixels_are_kept_where_the_size_is_right(tmp_path: Path) -> None:
    held = example(height=16)
    (clip,) = read_clips(written(tmp_path / "a.pkl", [held]), side=16)
    assert np.array_equal(clip.video, held["video"])
    assert to_model_input(clip, "cpu")["video"].shape == (1, 3, 16, 16, 3)


def test_a_resized_flat_picture_keeps_its_colour(tmp_path: Path) -> None:
    held = {**example(), "video": np.full((3, 8, 16, 3), 77, np.uint8)}
    (clip,) = read_clips(written(tmp_path / "a.pkl", [held]), side=32)
    assert (clip.video == 77).all()


def test_big_endian_and_fortran_arrays_are_read_as_they_are_meant(tmp_path: Path) -> None:
    held = example()
    held["points"] = np.asfortranarray(held["points"].astype(">f8"))
    (clip,) = read_clips(written(tmp_path / "a.pkl", [held]), side=64)
    assert clip.queries.tolist() == [[1, 16, 32]]


def test_jpeg_pictures_are_decoded(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 16, 8, "yuvj444p"
    encoder.time_base = Fraction(1, 25)
    picture = av.VideoFrame.from_ndarray(np.full((8, 16, 3), 120, np.uint8), format="rgb24").reformat(format="yuvj444p")
    data = b"".join(bytes(packet) for packet in [*encoder.encode(picture), *encoder.encode(None)])
    (clip,) = read_clips(written(tmp_path / "k.pkl", [{**example(), "video": [data] * 3}]), side=8)
    assert clip.video.shape == (3, 8, 8, 3)
    assert abs(int(clip.video.mean()) - 120) <= 2
    assert "picture 1 is no JPEG" in refusal(
        written(tmp_path / "bad.pkl", [{**example(), "video": [data, b"no picture", data]}]))


def test_the_truth_of_a_clip_judges_itself_as_perfect(tmp_path: Path) -> None:
    import torch

    from core.trackers.tracker import Predictions

    (clip,) = read_clips(written(tmp_path / "a.pkl", [example()]))
    assert isinstance(clip, Clip)
    assert clip.tracks is not None
    assert clip.visible is not None
    exact = Predictions(torch.tensor(clip.tracks)[None], torch.tensor(clip.visible)[None].float() - 0.5)
    told = accuracy(exact, clip, "checkpoint", FIRST)
    assert told is not None
    assert told["average_jaccard"] == 1


# --- hostile files ---


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.parts = function, arguments

    def __reduce__(self) -> Any:
        return self.parts


class WithState:
    """Pickles as an instance with a state."""


@pytest.mark.parametrize(("held", "named"), [
    (lambda mark: Calls(os.system, f"touch {mark}"), "system"),
    (lambda mark: Calls(builtins.eval, f"open({str(mark)!r}, 'w')"), ".eval"),
    (lambda mark: {"a": {**example(), "points": Calls(os.system, f"touch {mark}")}}, "system"),
    (lambda mark: Calls(getattr, Calls(__import__, "os"), "system"), ".getattr"),
    (lambda mark: Calls(np.load, str(mark)), "numpy"),
    (lambda mark: Calls(np.zeros, 3), "numpy"),
    (lambda mark: WithState(), "WithState"),
    (lambda mark: {1, 2}, "asks for"),
    (lambda mark: [{**example(), "video": np.array([object()], dtype=object)}], "dtype 'O8'"),
    (lambda mark: [{**example(), "video": np.array(["a", 1], dtype=object)}], "dtype 'O8'"),
    (lambda mark: [{**example(), "video": np.zeros(2, dtype="c16")}], "dtype 'c16'"),
    (lambda mark: [{**example(), "video": np.zeros(2, dtype=[("a", "i4")])}], "dtype 'V4'"),
])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_nothing_but_data_is_taken_and_nothing_runs(tmp_path: Path, held: Any, named: str, protocol: int) -> None:
    mark = tmp_path / "ran"
    path = written(tmp_path / "evil.pkl", held(mark), protocol)
    assert named in refusal(path)
    assert not mark.exists()


def small(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def known(module: str, name: str) -> bytes:
    return small(module) + small(name) + b"\x93"


ARRAY = known("numpy.core.multiarray", "_reconstruct") + known("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
UINT8 = known("numpy", "dtype") + small("u1") + b"\x89\x88\x87R"
HUGE = b"\x8a\x06" + (2**39).to_bytes(6, "little")


@pytest.mark.parametrize("body", [
    ARRAY + b"(K\x01" + HUGE + b"\x85" + UINT8 + b"\x89C\x01xtb.",  # a huge shape over one byte
    ARRAY + b"(K\x01" + HUGE + HUGE + HUGE + b"\x87" + UINT8 + b"\x89C\x00tb.",  # a product beyond 64 bit
    ARRAY + b"(K\x01J\xff\xff\xff\xff\x85" + UINT8 + b"\x89C\x00tb.",  # a negative side
    b"B\xff\xff\xff\x7f",  # two gigabytes of bytes that are not there
    b"\x8e" + struct.pack("<Q", 2**62),  # more bytes than a machine has
    b"\x96" + struct.pack("<Q", 2**36),  # the same as bytearray
    b"\x95" + struct.pack("<Q", 2**36),  # as a frame
    b"Nr\xff\xff\xff\xff.",  # a memo of four thousand million places
    b"cos\nsystem\n(S'true'\ntR.", b"(S'true'\nios\nsystem\n.", b"(cos\nsystem\nS'true'\no.",  # call in three spellings
    b"\x82\x01.", b"Pname\n.", b"\x97.",  # extension, persistent id, buffer
    UINT8 + b"}" + small("__class__") + b"Nsb.",  # a dict as state
    known("numpy", "dtype") + b"N}" + small("__defaults__") + b"Ns\x86b.",  # the state of a function
    known("numpy", "ndarray") + b"K\x01\x85R.", b"]" + b"\x85R.",  # calls of what is no constructor
    b"0.", b"", b".", b"\x80\x04", b"garbage", b"\x80\xff.",
], ids=range(24))
def test_a_crafted_file_ends_in_one_sentence_and_takes_no_memory(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "evil.pkl"
    path.write_bytes(b"\x80\x05" + body if body[:1] != b"\x80" else body)
    tracemalloc.start()
    refusal(path)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_a_file_cut_anywhere_is_told_in_one_sentence(tmp_path: Path) -> None:
    data = pickle.dumps({"goat": example()}, protocol=4)
    for length in range(0, len(data), 37):
        path = tmp_path / "cut.pkl"
        path.write_bytes(data[:length])
        refusal(path)


# --- data that is no TAP-Vid ---


@pytest.mark.parametrize(("change", "told"), [
    ({"video": np.zeros((3, 8, 16, 3), np.float32)}, "the video is float32"),
    ({"video": np.zeros((3, 8, 16), np.uint8)}, "uint8 (frames, height, width, 3)"),
    ({"video": "a film"}, "video is a str"),
    ({"video": []}, "video is a list"),
    ({"points": np.zeros((2, 4, 2), np.float32)}, "floats (N, 3, 2)"),
    ({"points": np.zeros((2, 3, 2), np.int32)}, "points are int32"),
    ({"points": np.full((2, 3, 2), 99, np.float32)}, "lie up to 99"),
    ({"points": np.full((2, 3, 2), np.nan, np.float32)}, "lie up to nan"),
    ({"occluded": np.zeros((1, 3), bool)}, "occluded is bool (1, 3)"),
])
def test_a_damaged_example_is_told(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    assert told in refusal(written(tmp_path / "a.pkl", [{**example(), **change}]))


@pytest.mark.parametrize(("held", "told"), [
    ({}, "no examples"), ([1], "no examples"), (7, "holds a int"), ([{"video": 1}], "has no 'points'"),
])
def test_another_layout_is_told(tmp_path: Path, held: Any, told: str) -> None:
    assert told in refusal(written(tmp_path / "a.pkl", held))


def test_a_video_without_visible_points_is_left_out(tmp_path: Path) -> None:
    hidden = {**example(), "occluded": np.ones((2, 3), bool)}
    clips = read_clips(written(tmp_path / "a.pkl", [hidden, example()]), side=8)
    assert [clip.source for clip in clips] == ["a.pkl: 1"]


def test_a_path_as_name_does_not_enter_the_source(tmp_path: Path) -> None:
    (clip,) = read_clips(written(tmp_path / "a.pkl", {"/home/somebody/goat": example()}), side=8)
    assert clip.source == "a.pkl: home-somebody-goat"


def test_a_file_that_is_missing_or_too_large_is_not_opened(tmp_path: Path) -> None:
    assert "no file 'gone.pkl'" in refusal(tmp_path / "gone.pkl")
    assert "at most 0.0 GiB" in refusal(written(tmp_path / "a.pkl", [example()]), largest_file_bytes=100)


def test_an_ordinary_unpickler_would_have_run_it() -> None:
    stream = io.BytesIO(pickle.dumps(Calls(len, "four")))
    assert pickle.load(stream) == 4  # what the tests above keep from happening


def test_a_clip_is_cut_to_the_size_of_a_workload_and_keeps_its_truth(tmp_path: Path) -> None:
    path = written(tmp_path / "clips.pkl", {"short": example(frames=2), "long": example(frames=5)})
    (whole,) = [clip for clip in read_clips(path, side=32) if len(clip.video) == 5]
    clip = clip_of_size(path, frames=4, height=32, width=32, points=7)
    assert clip.video.shape == (4, 32, 32, 3)
    assert clip.queries.shape == (7, 3)
    assert clip.tracks is not None
    assert clip.tracks.shape == (7, 4, 2)
    assert clip.queries[:, 0].max() < 4
    assert {tuple(query) for query in clip.queries} <= {tuple(query) for query in whole.queries}
    assert clip.source == whole.source


@pytest.mark.parametrize(("size", "told"), [((9, 32, 32), "at most 5"), ((4, 32, 48), "square")])
def test_a_size_that_no_clip_has_is_told_with_the_fix(tmp_path: Path, size: tuple[int, int, int], told: str) -> None:
    path = written(tmp_path / "clips.pkl", {"long": example(frames=5)})
    with pytest.raises(UserError, match=told):
        clip_of_size(path, *size, points=3)
