"""Work of `dense_pair` in closed form: its ops, written down from the shapes in `dense_pair_shape`.

Standard library only.
Follows core/trackers/dense_pair.py op by op; tests/test_dense_pair.py compares the sums with what the counter sees.
Shape letters as there: B clips, T frames, N queries, P pairs, h x w feature cells, K positions of a look.
"""
from __future__ import annotations

from itertools import pairwise

from core.trackers.dense_pair_shape import (
    BLOCKS_PER_GROUP,
    FLOW_CHANNELS,
    FRAME_CHUNK,
    GROUP_STRIDES,
    LEVELS,
    NEIGHBOURS,
    PAIR_CHUNK,
    SHAPES,
    STEM_STRIDE,
    STRIDE,
    DensePairShape,
)
from core.trackers.plan import Estimate, Ledger, chunks

ENLARGED = STRIDE * STRIDE  # pixels of a cell


def estimate(
    variant: str, *, batch: int, frames: int, height: int, width: int, points: int, iterations: int, parameters: int
) -> Estimate:
    """One forward pass in fp32. `parameters`: learned numbers of the model, for the peak."""
    shape = SHAPES[variant]
    points = max(points, 1)  # a tracker of every pixel has no number of points; one query is followed then
    ledger = Ledger()
    images, pairs = batch * frames, batch * (frames - 1)
    cells = (height // STRIDE) * (width // STRIDE)
    video = images * 3 * height * width
    ledger.op(2 * video)  # frames to channels-first
    for count, channels, normed in ((images, shape.features, True), (pairs, shape.hidden + shape.context, False)):
        for often, length in chunks(count, FRAME_CHUNK):
            with ledger.times(often):
                _encoder(ledger, shape, length, height, width, channels, normed)
        if count > FRAME_CHUNK:
            ledger.op(2 * count * channels * cells)
    ledger.op(2 * images * shape.features * cells)  # scaled
    if batch > 1:  # pairs of all clips put together
        ledger.op(4 * pairs * shape.features * cells, launches=2)
        ledger.op(2 * pairs * 3 * height * width)
    for often, length in chunks(pairs, PAIR_CHUNK):
        with ledger.times(often):
            _pairs(ledger, shape, length, height // STRIDE, width // STRIDE, iterations)
    flow = pairs * FLOW_CHANNELS * height * width
    if pairs > PAIR_CHUNK:
        ledger.op(2 * flow)
    _chain(ledger, batch * points, frames, batch * FLOW_CHANNELS * height * width)
    peak = _peak_numbers(shape, batch, frames, height, width, points, parameters)
    return Estimate(ledger.flops, ledger.bytes, ledger.launches, 4 * peak)


def _convolution(
    ledger: Ledger, read: int, places: int, channels_in: int, channels_out: int, taps: int, reads_bias: bool = True
) -> None:
    """A filter of `taps` positions, rows x columns."""
    weights = channels_in * channels_out * taps
    bias = channels_out if reads_bias else 0
    ledger.op(read + weights + bias + places * channels_out, flops=2 * places * weights)


def _relu(ledger: Ledger, maps: int, cells: int, normed: bool) -> None:
    if normed:
        ledger.op(2 * maps * cells + 2 * maps)
    ledger.op(2 * maps * cells)


def _encoder(
    ledger: Ledger, shape: DensePairShape, count: int, height: int, width: int, channels: int, normed: bool
) -> None:
    """One pass over `count` frames."""
    cells = (height // STEM_STRIDE) * (width // STEM_STRIDE)
    _convolution(ledger, count * 3 * height * width, count * cells, 3, shape.stem, 49, not normed)
    _relu(ledger, count * shape.stem, cells, normed)
    channels_in = shape.stem
    for channels_out, group_stride in zip(shape.groups, GROUP_STRIDES, strict=True):
        for block in range(BLOCKS_PER_GROUP):
            stride = group_stride if block == 0 else 1
            after = cells // (stride * stride)
            made = count * channels_out * after
            parts: tuple[tuple[int, int, int, int, int], ...]  # channels in and out, taps, cells read and made
            if shape.bottlenecks:
                middle = channels_out // 4
                parts = ((channels_in, middle, 1, cells, cells), (middle, middle, 9, cells, after),
                         (middle, channels_out, 1, after, after))
            else:
                parts = ((channels_in, channels_out, 9, cells, after), (channels_out, channels_out, 9, after, after))
            for part_in, part_out, taps, read, places in parts:
                _convolution(ledger, count * part_in * read, count * places, part_in, part_out, taps, not normed)
                _relu(ledger, count * part_out, places, normed)
            if stride != 1 or channels_in != channels_out:
                _convolution(
                    ledger, count * channels_in * cells, count * after, channels_in, channels_out, 1, not normed
                )
                if normed:
                    ledger.op(2 * made + 2 * count * channels_out)
            ledger.op(3 * made)  # shortcut
            ledger.op(2 * made)
            channels_in, cells = channels_out, after
    _convolution(ledger, count * channels_in * cells, count * cells, channels_in, channels, 1)


def _pairs(ledger: Ledger, shape: DensePairShape, pairs: int, rows: int, columns: int, iterations: int) -> None:
    """Flow of `pairs` pairs of frames."""
    cells = rows * columns
    places = pairs * cells
    levels = _levels(places, rows, columns)
    ledger.product(cells, shape.features, cells, batch=pairs)
    for finer, coarser in pairwise(levels):
        ledger.op(finer + coarser)
    edges = rows + columns
    for _ in levels:  # where looks fall
        ledger.op(10 * edges + (5 + 2 * edges) * shape.window, launches=15)
        ledger.op(edges * shape.window + 2 * cells * shape.window)
    ledger.op(FLOW_CHANNELS * places)
    ledger.op(2 * (shape.hidden + shape.context) * places, launches=2)  # first state, context
    with ledger.times(iterations):
        ledger.op(2 * FLOW_CHANNELS * places)
        for level in levels:
            looks = places * shape.window
            ledger.op(2 * cells * shape.window + FLOW_CHANNELS * places + 2 * looks)
            ledger.op(min(level, 4 * looks) + 3 * looks)
        ledger.op(2 * LEVELS * shape.window * places)
        _update(ledger, shape, places)
    ledger.op(2 * FLOW_CHANNELS * places)  # flow in pixels
    if shape.learned_upsampling:
        weights = NEIGHBOURS * ENLARGED
        _convolution(ledger, shape.hidden * places, places, shape.hidden, shape.head, 9)
        ledger.op(2 * shape.head * places)
        _convolution(ledger, shape.head * places, places, shape.head, weights, 1)
        ledger.op(2 * weights * places)
        ledger.op(FLOW_CHANNELS * (1 + NEIGHBOURS) * places)  # neighbours of each cell
        ledger.op((weights + FLOW_CHANNELS * NEIGHBOURS + FLOW_CHANNELS * weights) * places)
        ledger.op(FLOW_CHANNELS * (weights + ENLARGED) * places)
        ledger.op(2 * FLOW_CHANNELS * ENLARGED * places)
    else:
        ledger.op(FLOW_CHANNELS * (1 + ENLARGED) * places)


def _levels(places: int, rows: int, columns: int) -> list[int]:
    """Numbers on each level of the volumes of `places` cells."""
    return [places * (rows >> level) * (columns >> level) for level in range(LEVELS)]


def _update(ledger: Ledger, shape: DensePairShape, places: int) -> None:
    first, *others = shape.correlation_channels
    wide, narrow = shape.flow_channels
    ledger.product(places, LEVELS * shape.window, first)
    ledger.op(4 * first * places, launches=2)  # ReLU, to the layout of convolutions
    convolutions = [(before, after, 9) for before, after in pairwise((first, *others))]
    convolutions += [(FLOW_CHANNELS, wide, 49), (wide, narrow, 9)]
    seen = shape.correlation_channels[-1] + narrow
    convolutions += [(seen, shape.motion, 9)]
    for before, after, taps in convolutions:
        _convolution(ledger, before * places, places, before, after, taps)
        ledger.op(2 * after * places)
    ledger.op(2 * seen * places)
    ledger.op(2 * shape.joined * places)
    hidden = shape.hidden
    for rows, columns in shape.kernels:
        ledger.op(2 * hidden * places)
        _convolution(ledger, shape.joined * places, places, shape.joined, 2 * hidden, rows * columns)
        ledger.op(4 * hidden * places)
        ledger.op(5 * hidden * places, launches=2)  # state kept, put in place
        _convolution(ledger, shape.joined * places, places, shape.joined, hidden, rows * columns)
        ledger.op(6 * hidden * places, launches=2)  # candidate, mixed in
    _convolution(ledger, hidden * places, places, hidden, shape.head, 9)
    ledger.op(2 * shape.head * places)
    _convolution(ledger, shape.head * places, places, shape.head, FLOW_CHANNELS, 9)
    ledger.op(3 * FLOW_CHANNELS * places)


def _chain(ledger: Ledger, count: int, frames: int, flow: int) -> None:
    """`count` points along the flow of `frames` frames; `flow`: numbers of all clips' flow of one pair."""
    ledger.op(2 * count)  # first frame of each point
    with ledger.times(frames - 1):
        ledger.op(8 * count, launches=4)
        ledger.op(4 * count)
        ledger.op(min(flow, 8 * count) + 4 * count)
        ledger.op(14 * count, launches=3)  # moved, compared, chosen
    ledger.op(21 * count * frames, launches=14)


def _peak_numbers(
    shape: DensePairShape, batch: int, frames: int, height: int, width: int, points: int, parameters: int
) -> int:
    """Numbers alive at the worst moment: what stays, and the larger of two phases."""
    images, pairs = batch * frames, batch * (frames - 1)
    rows, columns = height // STRIDE, width // STRIDE
    cells = rows * columns
    video = images * 3 * height * width
    features = images * shape.features * cells
    context = pairs * (shape.hidden + shape.context) * cells
    copies = 2 * pairs * shape.features * cells if batch > 1 else 0
    stem = shape.stem * (height // STEM_STRIDE) * (width // STEM_STRIDE)
    # frames in the layout of convolutions; second block of the first group: the group's input, its own, two more.
    # For the context, the features are there already.
    encoder = video + max(min(images, FRAME_CHUNK) * 4 * stem, features + min(pairs, FRAME_CHUNK) * 4 * stem)
    if batch > 1:
        encoder += pairs * 3 * height * width

    places = min(pairs, PAIR_CHUNK) * cells
    volumes = sum(_levels(places, rows, columns))
    looks = LEVELS * shape.window
    looking = 3 * looks + 2 * shape.window + 2 * FLOW_CHANNELS
    updating = looks + shape.motion + shape.joined + 5 * shape.hidden
    enlarging = looks + (
        (1 + FLOW_CHANNELS) * NEIGHBOURS * ENLARGED + FLOW_CHANNELS * NEIGHBOURS if shape.learned_upsampling
        else FLOW_CHANNELS * ENLARGED
    )
    done = (pairs - min(pairs, PAIR_CHUNK)) * FLOW_CHANNELS * height * width
    windows = LEVELS * 2 * cells * shape.window
    flow = (
        features + copies + context + volumes + windows
        + places * (shape.hidden + shape.context + max(looking, updating, enlarging)) + done
    )
    return parameters + video + max(encoder, flow)
