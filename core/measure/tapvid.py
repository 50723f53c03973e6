"""A TAP-Vid pickle of the user's own, read as clips with ground truth: local files named on the command line only.

The benchmark (Doersch et al. 2022, arXiv 2211.03726) comes as pickles, and a pickle can run any code when it is
loaded. This reader is an unpickler with a closed list: it knows the operations that build dicts, lists, tuples, text,
bytes and numbers, and calls nothing but its own four stand-ins for numpy's constructors, which check shape, dtype and
length before an array is made. Anything else ends with one sentence.

Layout: {name: example} (DAVIS) or [example, ...] (Kinetics, RGB-Stacking), where an example holds `video` (T, H, W, 3)
uint8 or a list of T JPEG pictures, `points` (N, T, 2) as (x, y) in 0..1, `occluded` (N, T).
"""
from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from core.errors import UserError
from core.measure.agreement import BENCHMARK_SIDE_PX
from core.measure.inputs import Clip

LARGEST_FILE_BYTES = 8 * 2**30
"""Arrays lie in the pickle as they are, so a file's size bounds the memory that its arrays take."""

_EXPECTED = "a TAP-Vid pickle: dicts with video, points and occluded"
_FIX = "use a file of the TAP-Vid benchmark"
_DTYPES = {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"}
_RESIZED_AT_ONCE = 16  # frames
_FARTHEST = 16.0  # a hidden point may lie outside the frame, but not this many frame sizes away


def read_clips(
    path: str | Path, side: int = BENCHMARK_SIDE_PX, largest_file_bytes: int = LARGEST_FILE_BYTES
) -> Iterator[Clip]:
    """The clips of a TAP-Vid pickle, one after the other, resized to side x side pixels (bilinear, antialiased).

    Queries are in the benchmark's mode "first": each point is asked for at its first visible frame; points that are
    never visible are left out, and so is a video without any. Judge the answers with query_mode="first".
    Raises UserError when the file is missing, too large, no such pickle, or holds anything but data; a damaged
    example raises it when its turn comes.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"no file {path.name!r}", _EXPECTED, "check the path")
    size = path.stat().st_size
    if size > largest_file_bytes:
        raise UserError(f"{path.name} has {size / 2**30:.1f} GiB", f"at most {largest_file_bytes / 2**30:.1f} GiB",
                        "cut it into smaller pickles")
    with path.open("rb") as stream:
        held = _load(stream, size, path.name)
    if isinstance(held, dict):
        examples = list(held.items())
    elif isinstance(held, (list, tuple)):
        examples = list(enumerate(held))
    else:
        raise UserError(f"{path.name} holds a {_kind(held)}", _EXPECTED, _FIX)
    if not examples or not all(isinstance(example, dict) for _, example in examples):
        raise UserError(f"{path.name} holds no examples", _EXPECTED, _FIX)
    return _clips(examples, path.name, side)


SUFFIX = ".pkl"


def clip_of_size(path: str | Path, frames: int, height: int, width: int, points: int) -> Clip:
    """The first clip of a TAP-Vid pickle that is long enough, cut to the size of a workload.

    Its first `frames` frames and the points that are first seen in them; the points are repeated where there are
    fewer than `points`, so that the work stays that of the workload. Raises UserError as `read_clips`, for a size
    that is not square, and when no clip is long enough.
    """
    if height != width:
        raise UserError(f"{height}x{width} pixels with a TAP-Vid pickle", "a square size, as the benchmark uses",
                        f"use --resolution {min(height, width)}")
    longest = 0
    for clip in read_clips(path, side=height):
        longest = max(longest, len(clip.video))
        early = np.flatnonzero(clip.queries[:, 0] < frames)
        if len(clip.video) < frames or not len(early):
            continue
        chosen = early[np.arange(points) % len(early)]
        assert clip.tracks is not None
        assert clip.visible is not None
        return Clip(clip.video[:frames], clip.queries[chosen], clip.tracks[chosen, :frames],
                    clip.visible[chosen, :frames], clip.source)
    raise UserError(f"no clip of {Path(path).name} has {frames} frames", f"at most {longest}, its longest clip",
                    f"use --frames {longest} or less" if longest else "use another file")


def _clips(examples: list[tuple[Any, Any]], file: str, side: int) -> Iterator[Clip]:
    for name, example in examples:
        label = re.sub(r"[^\w.-]+", "-", str(name), flags=re.ASCII).strip("-.")[-40:] or "unnamed"
        clip = _clip(example, f"{file}: {label}", side)
        if clip is not None:
            yield clip


def _clip(example: Mapping[str, Any], source: str, side: int) -> Clip | None:
    """One example as a clip, None when no point is ever visible."""
    missing = [name for name in ("video", "points", "occluded") if name not in example]
    if missing:
        raise UserError(f"{source} has no {missing[0]!r}", _EXPECTED, _FIX)
    video = _video(example["video"], source)
    points, occluded = (_array(example[name], f"{source}, {name}") for name in ("points", "occluded"))
    frames = len(video)
    if points.ndim != 3 or points.shape[1:] != (frames, 2) or points.dtype.kind != "f":
        raise UserError(f"{source}: points are {points.dtype} {points.shape}", f"floats (N, {frames}, 2)", _FIX)
    if occluded.shape != points.shape[:2] or occluded.dtype.kind not in "bui":
        raise UserError(f"{source}: occluded is {occluded.dtype} {occluded.shape}",
                        f"true or false {points.shape[:2]}", _FIX)
    points = points.astype(np.float32)
    visible = occluded == 0
    shown = visible.any(axis=1)
    points, visible = points[shown], visible[shown]
    if not len(points):
        return None
    if not np.isfinite(points).all() or np.abs(points).max() > _FARTHEST:
        raise UserError(f"{source}: points lie up to {np.abs(points).max():g}", "shares of width and height, 0 to 1",
                        _FIX)
    tracks = points * np.float32(side)
    first = visible.argmax(axis=1)
    queries = np.column_stack([first, tracks[np.arange(len(first)), first]]).astype(np.float32)
    return Clip(_resized(video, side), queries, tracks, visible, source)


def _video(held: Any, source: str) -> NDArray[np.uint8]:
    if isinstance(held, (list, tuple)) and held and all(isinstance(picture, bytes) for picture in held):
        return _decoded([bytes(picture) for picture in held], source)
    video = _array(held, f"{source}, video")
    if video.dtype != np.uint8 or video.ndim != 4 or video.shape[-1] != 3 or 0 in video.shape:
        raise UserError(f"{source}: the video is {video.dtype} {video.shape}", "uint8 (frames, height, width, 3)", _FIX)
    return video


def _decoded(pictures: list[bytes], source: str) -> NDArray[np.uint8]:
    """JPEG pictures of one size, as the Kinetics pickles hold them, by PyAV."""
    try:
        import av
        import av.error
    except ImportError as error:
        raise UserError(f"{source} holds JPEG pictures and PyAV is not installed", "the package `av`",
                        "run `pip install av`") from error
    frames = []
    try:
        for picture in pictures:
            with av.open(io.BytesIO(picture), mode="r", format="jpeg_pipe") as container:
                frame = next(container.decode(video=0))
                frames.append(np.asarray(frame.to_ndarray(format="rgb24"), dtype=np.uint8))
    except (av.error.FFmpegError, StopIteration) as error:
        raise UserError(f"{source}: picture {len(frames)} is no JPEG", "JPEG bytes", _FIX) from error
    if len({frame.shape for frame in frames}) != 1:
        raise UserError(f"{source} holds pictures of several sizes", "one size", _FIX)
    return np.stack(frames)


def _resized(video: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """(T, H, W, 3) to (T, side, side, 3), a few frames at a time since floats take four times the memory."""
    frames, height, width, _ = video.shape
    if (height, width) == (side, side):
        return video.copy()  # torch wants arrays that it could write to; those of a pickle are not
    small = np.empty((frames, side, side, 3), dtype=np.uint8)
    for start in range(0, frames, _RESIZED_AT_ONCE):
        part = torch.from_numpy(video[start : start + _RESIZED_AT_ONCE].copy()).permute(0, 3, 1, 2)
        turned = F.interpolate(part.float(), size=(side, side), mode="bilinear", align_corners=False, antialias=True)
        small[start : start + _RESIZED_AT_ONCE] = turned.round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return small


# --- a pickle that can only hold data --------------------------------------------------------------------------------


class _RefusedError(Exception):
    """The pickle asks for something that is no data."""


class _Dtype:
    """numpy.dtype(code, align, copy), then its state; only plain numbers, truth values and bytes."""

    def __init__(self, code: object) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if not isinstance(text, str) or (text not in _DTYPES and not re.fullmatch(r"S\d{1,9}", text)):
            raise _RefusedError(f"an array of dtype {str(text)[:20]!r}")
        self.found = np.dtype(text)

    def set_state(self, state: Any) -> None:
        order = state[1]
        if order in (">", b">"):
            self.found = self.found.newbyteorder(">")


class _Array:
    """numpy.ndarray as _reconstruct makes it: empty, until its state comes."""

    def __init__(self) -> None:
        self.found: NDArray[Any] | None = None

    def set_state(self, state: Any) -> None:
        _, shape, dtype, is_fortran, raw = state
        self.found = _made(raw, dtype, shape, "F" if is_fortran else "C")


def _made(raw: Any, dtype: Any, shape: Any, order: str) -> NDArray[Any]:
    """An array over `raw`, whose length must be what shape and dtype say: no shape can ask for memory."""
    if not isinstance(dtype, _Dtype) or not isinstance(raw, (bytes, bytearray)) or not isinstance(shape, tuple):
        raise _RefusedError("an array that is not made of plain numbers")
    if len(shape) > 8 or not all(type(side) is int and 0 <= side < 2**40 for side in shape):
        raise _RefusedError(f"an array of shape {str(shape)[:60]}")
    if math.prod(shape) * dtype.found.itemsize != len(raw):
        raise _RefusedError(f"an array of shape {str(shape)[:60]} over {len(raw)} bytes")
    return np.frombuffer(raw, dtype.found).reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    if kind is not _ndarray:
        raise _RefusedError("an array of an unknown kind")
    return _Array()


def _ndarray(*unused: Any) -> Any:
    """Stands for numpy.ndarray, which is named as an argument and never called."""
    raise _RefusedError("a call of numpy.ndarray")


def _dtype(code: Any = None, *unused: Any) -> _Dtype:
    return _Dtype(code)


def _frombuffer(raw: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    return _made(raw, dtype, shape, str(order))


def _scalar(dtype: Any, raw: Any) -> Any:
    return _made(raw, dtype, (), "C")[()]


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Bytes as protocols 0 to 2 write them."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _RefusedError("an unknown encoding")
    return text.encode("latin1")


_KNOWN: Mapping[tuple[str, str], Callable[..., Any]] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _frombuffer for core in ("core", "_core")},
    ("numpy", "ndarray"): _ndarray, ("numpy", "dtype"): _dtype, ("_codecs", "encode"): _encode,
}
_CALLABLE = tuple(dict.fromkeys(_KNOWN.values()))

# What builds plain data, calls a known constructor and sets its state. Not there: classes, instances, persistent ids,
# extension codes, buffers outside the stream.
_OPERATIONS = (
    "MARK", "STOP", "POP", "POP_MARK", "DUP", "FLOAT", "INT", "BININT", "BININT1", "LONG", "BININT2", "NONE", "REDUCE",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "APPEND", "BUILD", "GLOBAL", "DICT",
    "EMPTY_DICT", "APPENDS", "GET", "BINGET", "LONG_BINGET", "LIST", "EMPTY_LIST", "PUT", "BINPUT", "LONG_BINPUT",
    "SETITEM", "TUPLE", "EMPTY_TUPLE", "SETITEMS", "BINFLOAT", "PROTO", "TUPLE1", "TUPLE2", "TUPLE3", "NEWTRUE",
    "NEWFALSE", "LONG1", "LONG4", "BINBYTES", "SHORT_BINBYTES", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES8",
    "STACK_GLOBAL", "MEMOIZE", "FRAME", "BYTEARRAY8",
)


class _Reader(pickle._Unpickler):
    """The unpickler in Python, since the one in C takes no closed list of operations and sizes its memo by a number
    in the file."""

    stack: list[Any]
    dispatch: ClassVar[Any] = {
        code: method for code, method in pickle._Unpickler.dispatch.items()
        if code in {getattr(pickle, name)[0] for name in _OPERATIONS}
    }

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise _RefusedError(f"{str(module)[:40]}.{str(name)[:40]}")
        return known

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        if not isinstance(arguments, tuple) or not any(function is known for known in _CALLABLE):
            raise _RefusedError("a call of something that is no array")
        self.stack[-1] = function(*arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (_Array, _Dtype)) or not isinstance(state, tuple):
            raise _RefusedError("the state of something that is no array")
        self.stack[-1].set_state(state)

    def load_bytearray8(self) -> None:
        """As the base class, which would make the array before it is known whether the file is that long."""
        reader: Any = self
        reader.append(bytearray(reader.read(int.from_bytes(reader.read(8), "little"))))

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


class _Bounded:
    """A stream that refuses to read more than the file has, before anything is allocated for it."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, count: int) -> bytes:
        if not 0 <= count <= self._left:
            raise EOFError
        self._left -= count
        return self._stream.read(count)

    def readline(self) -> bytes:
        line = self._stream.readline()
        self._left -= len(line)
        return line


def _load(stream: BinaryIO, size: int, name: str) -> Any:
    """What a pickle holds. Raises UserError for everything but data."""
    try:
        return _Reader(_Bounded(stream, size)).load()
    except _RefusedError as refused:
        raise UserError(f"{name} asks for {refused}", "arrays, dicts, lists, text and numbers only",
                        "do not open this file with an ordinary unpickler unless you trust it") from None
    except KeyError as error:
        # The base class looks operations up in `dispatch`; what is not there is no data.
        code = error.args[0] if error.args else None
        what = f"the operation {chr(code)!r}" if isinstance(code, int) and 0 <= code < 256 else "an unknown reference"
        raise UserError(f"{name} asks for {what}", "arrays, dicts, lists, text and numbers only", _FIX) from None
    except MemoryError:
        raise UserError(f"{name} does not fit into memory", "a smaller file", "cut it into smaller pickles") from None
    except Exception as error:  # a broken pickle fails in many ways
        raise UserError(f"{name} is no readable pickle ({type(error).__name__})", _EXPECTED, _FIX) from error


def _array(held: Any, what: str) -> NDArray[Any]:
    found = held.found if isinstance(held, _Array) else held
    if not isinstance(found, np.ndarray):
        raise UserError(f"{what} is a {_kind(held)}", "an array", _FIX)
    return found


def _kind(held: Any) -> str:
    return "array" if isinstance(held, (_Array, np.ndarray)) else type(held).__name__
