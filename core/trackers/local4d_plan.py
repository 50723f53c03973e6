"""Work of `local4d` in closed form: its ops, written down from the shapes in `local4d_shape`. Standard library only.

Follows core/trackers/local4d.py op by op; tests/test_registry.py compares the sums with what the counter sees.
Shape letters as there: B clips, T frames, N queries, K = 49 window positions.
"""
from __future__ import annotations

from core.trackers.local4d_shape import (
    BLOCKS_PER_GROUP,
    COARSE_LEVEL,
    ENCODER_GROUPS,
    FINE_LEVEL,
    FRAME_CHUNK,
    LEVEL_CHANNELS,
    LEVEL_OF_GROUP,
    LEVEL_STRIDES,
    MOTION_CHANNELS,
    SHAPES,
    STEM_CHANNELS,
    UPDATE_CHANNELS,
    WINDOW,
    Local4dShape,
)
from core.trackers.plan import Estimate, Ledger, chunks


def estimate(
    variant: str, *, batch: int, frames: int, height: int, width: int, points: int, iterations: int,
    query_chunk: int, parameters: int,
) -> Estimate:
    """One forward pass in fp32. `parameters`: learned numbers of the model, for the peak."""
    shape = SHAPES[variant]
    ledger = Ledger()
    ledger.op(2 * batch * frames * 3 * height * width)  # frames to channels-first
    for often, count in chunks(batch * frames, FRAME_CHUNK):
        with ledger.times(often):
            _encoder(ledger, count, height, width)
    ledger.op(6 * shape.heads * frames * frames, launches=12)  # attention bias
    for often, queries in chunks(points, query_chunk):
        with ledger.times(often):
            _query_chunk(ledger, shape, batch, frames, height, width, queries, iterations)
    ledger.op(6 * batch * points * frames, launches=2)  # chunks put together
    peak = _peak_numbers(shape, batch, frames, height, width, min(points, query_chunk), parameters)
    return Estimate(ledger.flops, ledger.bytes, ledger.launches, 4 * peak)


def _cells(level: int, height: int, width: int) -> int:
    return (height // LEVEL_STRIDES[level]) * (width // LEVEL_STRIDES[level])


def _encoder(ledger: Ledger, count: int, height: int, width: int) -> None:
    """One pass over `count` frames."""
    cells = _cells(0, height, width)
    ledger.convolution(count * 3 * height * width, count * cells, 3, STEM_CHANNELS, 7)
    for group, (group_in, channels_out, group_stride) in enumerate(ENCODER_GROUPS):
        for block in range(BLOCKS_PER_GROUP):
            channels_in, stride = (group_in, group_stride) if block == 0 else (channels_out, 1)
            read = count * channels_in * cells
            cells //= stride * stride
            made = count * channels_out * cells
            _instance_norm_and_relu(ledger, read, count * channels_in)
            if stride != 1 or channels_in != channels_out:
                ledger.convolution(read, count * cells, channels_in, channels_out, 1)
            ledger.convolution(read, count * cells, channels_in, channels_out, 3)
            _instance_norm_and_relu(ledger, made, count * channels_out)
            ledger.convolution(made, count * cells, channels_out, channels_out, 3)
            ledger.op(3 * made)  # shortcut
        if group in LEVEL_OF_GROUP:
            features = count * channels_out * cells
            ledger.op(features + count * cells)  # length of each vector, kept above 0, divided by, stored
            ledger.op(2 * count * cells)
            ledger.op(2 * features + count * cells)
            ledger.op(2 * features)


def _instance_norm_and_relu(ledger: Ledger, numbers: int, maps: int) -> None:
    ledger.op(2 * maps, launches=2)  # scale and shift repeated for each frame
    ledger.op(2 * numbers + 4 * maps)
    ledger.op(2 * numbers)


def _query_chunk(
    ledger: Ledger, shape: Local4dShape, batch: int, frames: int, height: int, width: int, queries: int, iterations: int
) -> None:
    count = batch * queries
    around_query = count * WINDOW
    for level, channels in enumerate(LEVEL_CHANNELS):  # templates
        grid = batch * frames * channels * _cells(level, height, width)
        ledger.op(6 * count, launches=3)
        ledger.op(4 * count)
        ledger.op(2 * count + 2 * WINDOW + 2 * around_query)
        ledger.op(8 * around_query, launches=4)
        ledger.op(5 * around_query + count)
        ledger.op(min(grid, 8 * channels * around_query) + (3 + channels) * around_query)
    for often, length in chunks(frames, FRAME_CHUNK):
        with ledger.times(often):
            _cost_volume(ledger, batch, length, height, width, queries)
    ledger.op(14 * count * frames, launches=6)  # frames put together, the query's own frame set
    tokens = count * frames
    with ledger.times(iterations):
        for level, channels in enumerate(LEVEL_CHANNELS):
            grid = batch * frames * channels * _cells(level, height, width)
            _local_correlation(ledger, channels, grid, tokens, count)
            _correlation_encoder(ledger, shape, tokens)
        # motion encoding, tokens, updates
        ledger.op((150 + 3 * MOTION_CHANNELS + 9) * tokens, launches=13)
        ledger.op(2 * shape.token_channels * tokens)
        _transformer(ledger, shape, tokens, frames)


def _local_correlation(ledger: Ledger, channels: int, grid: int, tokens: int, count: int) -> None:
    places = tokens * WINDOW
    ledger.op(4 * tokens)  # sampling positions
    ledger.op(2 * tokens + 2 * WINDOW + 2 * places)
    ledger.op(8 * places, launches=4)
    ledger.op(4 * places)
    ledger.op(min(grid, 4 * channels * places) + (2 + channels) * places)
    ledger.op(2 * channels * places)  # to the layout of the product
    ledger.product(places // count, channels, WINDOW, batch=count)


def _correlation_encoder(ledger: Ledger, shape: Local4dShape, tokens: int) -> None:
    pairs = 2 * tokens  # both directions
    ledger.op(2 * pairs * WINDOW * WINDOW, launches=2)
    channels_in, read = WINDOW, pairs * WINDOW * WINDOW
    for channels, kernel, side in zip(shape.channels, shape.kernels, shape.correlation_sides(), strict=True):
        places = pairs * side * side
        ledger.convolution(read, places, channels_in, channels, kernel)
        channels_in, read = channels, places * channels
        ledger.op(2 * read + 2 * pairs * (channels // 16))  # group norm
        ledger.op(2 * read)
    ledger.op(read + pairs * channels_in)
    ledger.op(2 * pairs * channels_in)


def _transformer(ledger: Ledger, shape: Local4dShape, tokens: int, frames: int) -> None:
    width, numbers = shape.width, tokens * shape.width
    ledger.product(tokens, shape.token_channels, width)
    with ledger.times(shape.layers):
        ledger.op(4 * numbers + 4 * tokens, launches=2)  # layer norms
        ledger.product(tokens, width, 3 * width)
        ledger.op(4 * numbers + shape.heads * frames * frames, flops=4 * numbers * frames)  # attention
        ledger.product(tokens, width, width)
        ledger.product(tokens, width, 4 * width)
        ledger.op(8 * numbers)
        ledger.product(tokens, 4 * width, width)
        ledger.op(6 * numbers, launches=2)
    ledger.op(2 * numbers + 2 * tokens)
    ledger.product(tokens, width, UPDATE_CHANNELS)


def _cost_volume(ledger: Ledger, batch: int, frames: int, height: int, width: int, queries: int) -> None:
    maps = batch * frames * queries
    fine = maps * _cells(FINE_LEVEL, height, width)
    coarse = maps * _cells(COARSE_LEVEL, height, width)
    for level in (FINE_LEVEL, COARSE_LEVEL):
        ledger.product(queries, LEVEL_CHANNELS[level], _cells(level, height, width), batch=batch * frames)
    ledger.op(coarse + fine)  # enlarged
    ledger.op(4 * fine)  # both beside each other
    ledger.convolution(2 * fine, fine, 2, 1, 3)
    ledger.op(4 * fine, launches=2)  # temperature, softmax
    # Soft peak: maximum, distances, comparison (one byte each), weights, two sums
    ledger.op(fine + fine + (fine + fine // 4) + (2 * fine + fine // 4) + 2 * fine, launches=6)
    ledger.op(6 * fine, launches=3)  # mean, maximum, minimum for the visibility
    ledger.op(80 * maps, launches=23)  # the rest works on one number for each map


def _peak_numbers(
    shape: Local4dShape, batch: int, frames: int, height: int, width: int, queries: int, parameters: int
) -> int:
    """Numbers alive at the worst moment: what stays, and the largest of three phases."""
    video = batch * frames * 3 * height * width
    pyramid = batch * frames * sum(
        channels * _cells(level, height, width) for level, channels in enumerate(LEVEL_CHANNELS)
    )
    # first group: its input, the block's input, its activation, the convolved map, the sum
    encoder = video + 5 * min(batch * frames, FRAME_CHUNK) * STEM_CHANNELS * _cells(0, height, width)
    maps = batch * min(frames, FRAME_CHUNK) * queries
    templates = sum(LEVEL_CHANNELS) * WINDOW * batch * queries
    cost_volume = templates + 7 * maps * _cells(FINE_LEVEL, height, width)
    tokens = batch * queries * frames
    # samples in two layouts, the product and the level before's, positions; tokens of the iteration before, embeddings
    correlation = (
        templates + tokens * WINDOW * (2 * LEVEL_CHANNELS[-1] + 2 * WINDOW + 4)
        + tokens * (2 * shape.token_channels + 4 * shape.channels[-1])
    )
    return parameters + video + pyramid + max(encoder, cost_volume, correlation)
