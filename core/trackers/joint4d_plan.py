"""Work of `joint4d` in closed form: its ops, written down from the shapes in `joint4d_shape`. Standard library only.

Follows core/trackers/joint4d.py op by op; tests/test_joint4d.py compares the sums with what the counter sees.
Shape letters as there: B clips, T frames, N queries, V virtual tracks, K = 49 window positions.
"""
from __future__ import annotations

from itertools import pairwise

from core.trackers.joint4d_shape import (
    BLOCKS_PER_GROUP,
    CORRELATION_CHANNELS,
    CORRELATION_HIDDEN,
    ENCODER_GROUPS,
    FEATURE_CHANNELS,
    FRAME_CHUNK,
    FUSED_CHANNELS,
    LEVELS,
    LOGITS,
    MOTION_FREQUENCIES,
    SHAPES,
    STEM_CHANNELS,
    TOKEN_CHANNELS,
    UPDATE_CHANNELS,
    WINDOW,
    Joint4dShape,
    encoder_sides,
    level_side,
)
from core.trackers.plan import Estimate, Ledger, chunks

JOINED_CHANNELS = sum(channels for _, channels, _ in ENCODER_GROUPS)


def estimate(
    variant: str, *, batch: int, frames: int, height: int, width: int, points: int, iterations: int, parameters: int
) -> Estimate:
    """One forward pass in fp32. `parameters`: learned numbers of the model, for the peak."""
    shape = SHAPES[variant]
    ledger = Ledger()
    images = batch * frames
    ledger.op(2 * images * 3 * height * width)  # frames to channels-first
    for often, count in chunks(images, FRAME_CHUNK):
        with ledger.times(often):
            _encoder(ledger, count, height, width)
    features = [images * FEATURE_CHANNELS * _cells(level, height, width) for level in range(LEVELS)]
    if images > FRAME_CHUNK:
        ledger.op(2 * features[0])
    for finer, coarser in pairwise(features):
        ledger.op(finer + coarser)
    count, tokens = batch * points, batch * points * frames
    for numbers in features:
        _template(ledger, batch, count, numbers)
    ledger.op(3 * shape.width * frames, launches=8)  # time encoding
    ledger.op(LOGITS * tokens)
    with ledger.times(iterations):
        ledger.op(4 * tokens)  # tracks by frame
        for numbers in features:
            _local_correlation(ledger, numbers, tokens, count)
            ledger.product(tokens, WINDOW * WINDOW, CORRELATION_HIDDEN)
            ledger.op(2 * CORRELATION_HIDDEN * tokens)
            ledger.product(tokens, CORRELATION_HIDDEN, CORRELATION_CHANNELS)
        ledger.op((18 + 4 + 5 * 4 * MOTION_FREQUENCIES) * tokens, launches=7)  # motion
        ledger.op(2 * TOKEN_CHANNELS * tokens)
        _transformer(ledger, shape, batch, frames, points)
        ledger.op(12 * tokens, launches=2)  # updates
    ledger.op(3 * tokens)
    peak = _peak_numbers(shape, batch, frames, height, width, points, parameters)
    return Estimate(ledger.flops, ledger.bytes, ledger.launches, 4 * peak)


def _cells(level: int, height: int, width: int) -> int:
    return level_side(height, level) * level_side(width, level)


def _encoder(ledger: Ledger, count: int, height: int, width: int) -> None:
    """One pass over `count` frames."""
    cells = [rows * columns for rows, columns in zip(encoder_sides(height), encoder_sides(width), strict=True)]
    finest = count * _cells(0, height, width)
    ledger.convolution(count * 3 * height * width, count * cells[0], 3, STEM_CHANNELS, 7)
    _norm_relu(ledger, count * STEM_CHANNELS, cells[0])
    for group, (group_in, channels_out, group_stride) in enumerate(ENCODER_GROUPS):
        made = count * channels_out * cells[group + 1]
        for block in range(BLOCKS_PER_GROUP):
            channels_in, stride = (group_in, group_stride) if block == 0 else (channels_out, 1)
            read = count * channels_in * cells[group] if block == 0 else made
            places = count * cells[group + 1]
            ledger.convolution(read, places, channels_in, channels_out, 3)
            _norm_relu(ledger, count * channels_out, cells[group + 1])
            ledger.convolution(made, places, channels_out, channels_out, 3)
            _norm_relu(ledger, count * channels_out, cells[group + 1])
            if stride != 1 or channels_in != channels_out:
                ledger.convolution(read, places, channels_in, channels_out, 1)
                ledger.op(2 * made + 2 * count * channels_out)
            ledger.op(3 * made)  # shortcut
            ledger.op(2 * made)
        if count * cells[group + 1] != finest:
            ledger.op(made + channels_out * finest)  # brought to the finest level
    ledger.op(2 * JOINED_CHANNELS * finest)
    ledger.convolution(JOINED_CHANNELS * finest, finest, JOINED_CHANNELS, FUSED_CHANNELS, 3)
    _norm_relu(ledger, count * FUSED_CHANNELS, finest // count)
    ledger.convolution(FUSED_CHANNELS * finest, finest, FUSED_CHANNELS, FEATURE_CHANNELS, 1)
    # length of each vector, kept above 0, divided by
    ledger.op(FEATURE_CHANNELS * finest + finest)
    ledger.op(2 * finest)
    ledger.op(2 * FEATURE_CHANNELS * finest + finest)


def _norm_relu(ledger: Ledger, maps: int, cells: int) -> None:
    ledger.op(2 * maps * cells + 2 * maps)
    ledger.op(2 * maps * cells)


def _template(ledger: Ledger, batch: int, count: int, features: int) -> None:
    """Neighbourhoods of the queries on one level, and the level's window."""
    around = count * WINDOW
    ledger.op(6 * count, launches=3)
    ledger.op(4 * count)
    ledger.op(2 * count + 2 * WINDOW + 2 * around)
    ledger.op(8 * around, launches=4)
    ledger.op(5 * around + count)
    ledger.op(min(features, 8 * FEATURE_CHANNELS * around) + (3 + FEATURE_CHANNELS) * around)
    if batch > 1:
        ledger.op(2 * FEATURE_CHANNELS * around)  # clips put together
    ledger.op(18 * WINDOW, launches=8)


def _local_correlation(ledger: Ledger, features: int, tokens: int, count: int) -> None:
    places = tokens * WINDOW
    ledger.op(2 * tokens + 4 * WINDOW + 2 * places)  # sampling positions
    ledger.op(min(features, 4 * FEATURE_CHANNELS * places) + (2 + FEATURE_CHANNELS) * places)
    ledger.op(2 * FEATURE_CHANNELS * places)  # to the layout of the product
    ledger.product(places // count, FEATURE_CHANNELS, WINDOW, batch=count)


def _transformer(ledger: Ledger, shape: Joint4dShape, batch: int, frames: int, points: int) -> None:
    width, virtual = shape.width, shape.virtual_tracks
    tokens, virtual_tokens = batch * points * frames, batch * virtual * frames
    every = tokens + virtual_tokens
    ledger.product(tokens, TOKEN_CHANNELS, width)
    ledger.op(2 * tokens * width + frames * width)  # time
    with ledger.times(shape.layers):
        ledger.op(2 * every * width)  # points and virtual tracks in one tensor
        _projected(ledger, every, width, 3)
        _attention(ledger, shape, batch * (points + virtual), frames, frames)
        _finished(ledger, every, width)
        _projected(ledger, tokens, width, 3)  # points
        _projected(ledger, virtual_tokens, width, 1)
        _attention(ledger, shape, batch * frames, virtual, points)
        _finished(ledger, virtual_tokens, width)
        _projected(ledger, virtual_tokens, width, 3)
        _attention(ledger, shape, batch * frames, virtual, virtual)
        _finished(ledger, virtual_tokens, width)
        _projected(ledger, virtual_tokens, width, 2)
        _attention(ledger, shape, batch * frames, points, virtual)
        _finished(ledger, tokens, width)
    _layer_norm(ledger, tokens, width)
    ledger.product(tokens, width, UPDATE_CHANNELS)


def _layer_norm(ledger: Ledger, tokens: int, width: int) -> None:
    ledger.op(2 * tokens * width + 2 * tokens)


def _projected(ledger: Ledger, tokens: int, width: int, parts: int) -> None:
    """Norm, projection to `parts` of query, key and value, heads put apart."""
    _layer_norm(ledger, tokens, width)
    ledger.product(tokens, width, parts * width)
    ledger.op(2 * parts * tokens * width)


def _attention(ledger: Ledger, shape: Joint4dShape, sequences: int, asking: int, asked: int) -> None:
    """`asking` tokens of each sequence read `asked` tokens."""
    each = shape.width // shape.heads
    ledger.product(asking, each, asked, batch=sequences * shape.heads)
    ledger.op(2 * sequences * shape.heads * asking * asked)
    ledger.product(asking, asked, each, batch=sequences * shape.heads)
    ledger.op(2 * sequences * asking * shape.width)  # heads put together


def _finished(ledger: Ledger, tokens: int, width: int) -> None:
    """After attention: projection, norm and MLP, both added."""
    ledger.product(tokens, width, width)
    ledger.op(3 * tokens * width)
    _layer_norm(ledger, tokens, width)
    ledger.product(tokens, width, 4 * width)
    ledger.op(8 * tokens * width)
    ledger.product(tokens, 4 * width, width)
    ledger.op(3 * tokens * width)


def _peak_numbers(
    shape: Joint4dShape, batch: int, frames: int, height: int, width: int, points: int, parameters: int
) -> int:
    """Numbers alive at the worst moment: what stays, and the largest of three phases."""
    video = batch * frames * 3 * height * width
    level_cells = [_cells(level, height, width) for level in range(LEVELS)]
    chunk = min(batch * frames, FRAME_CHUNK)
    stem = STEM_CHANNELS * encoder_sides(height)[0] * encoder_sides(width)[0]
    done = FEATURE_CHANNELS * level_cells[0] * (batch * frames - chunk)
    # second block of the first group: the group's input, its own, a convolution, its norm; or the four scales apart
    # and joined with what comes of them
    fused = (2 * JOINED_CHANNELS + FUSED_CHANNELS) * level_cells[0]
    encoder = video + done + chunk * max(4 * stem, fused)

    pyramid = batch * frames * FEATURE_CHANNELS * sum(level_cells)
    templates = LEVELS * FEATURE_CHANNELS * WINDOW * batch * points
    tokens, virtual_tokens = batch * points * frames, batch * shape.virtual_tracks * frames
    # samples in two layouts, the product, positions; tokens of the iteration before, embeddings
    correlation = tokens * (
        WINDOW * (2 * FEATURE_CHANNELS + WINDOW + 2) + TOKEN_CHANNELS + (LEVELS - 1) * CORRELATION_CHANNELS
    )
    # MLP over time: its input before and after attention, the norm, its wide layer twice, and the points before. MLP of
    # the points: query, key and value, the layer's input, the points, their norm, its wide layer twice
    over_time = 11 * (tokens + virtual_tokens) + tokens
    over_points = 14 * tokens + 2 * virtual_tokens
    transformer = (
        shape.width * max(over_time, over_points) + tokens * (TOKEN_CHANNELS + LEVELS * CORRELATION_CHANNELS)
    )
    return parameters + video + max(encoder, pyramid + templates + max(correlation, transformer))
