"""The built-in dense tracker computes what its text says, with the work of RAFT and its appetite for memory."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from core.measure.cost import WorkCount, count_tracker
from core.measure.inputs import procedural_clip, to_model_input
from core.trackers import registry
from core.trackers.dense_pair import DensePair, build, chained
from core.trackers.stages import StageLog, marked
from core.trackers.tracker import Predictions

torch.set_num_threads(2)
FRAMES, HEIGHT, WIDTH, POINTS = 3, 64, 72, 5
INFO = registry.TRACKERS["dense_pair"]


@pytest.fixture(scope="module")
def inputs() -> dict[str, torch.Tensor]:
    return to_model_input(procedural_clip(FRAMES, HEIGHT, WIDTH, POINTS, seed=2), "cpu", batch=2)


@pytest.fixture(scope="module")
def model() -> DensePair:
    return build("small", iterations=3)


@pytest.fixture(scope="module")
def output(model: DensePair, inputs: dict[str, torch.Tensor]) -> Predictions:
    return run(model, inputs)


def run(model: Any, inputs: dict[str, torch.Tensor]) -> Predictions:
    with torch.no_grad():
        result: Predictions = model(**inputs)
    return result


# --- work and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "gflop"),
    # RAFT of torchvision 0.28.0, one pair of 256x256 frames, 12 updates, counted by core.measure.cost. Its large model
    # enlarges the flow at each of them; without that (10.9 GFLOP) and with one such step (0.9) it takes 93.9.
    [("small", 23.02), ("base", 93.93)],
)
def test_one_pair_takes_the_work_of_raft(variant: str, gflop: float) -> None:
    counted = count_tracker(registry.work_key(f"dense_pair:{variant}", 2, 256, 256, None))
    assert counted.flops / 1e9 == pytest.approx(gflop, rel=0.01)
    assert counted.coverage == 1
    gflop_of = {stage.name: stage.flops / 1e9 for stage in counted.stages}
    official = {"small": (1.229, 0.2684, 21.52), "base": (26.72, 0.5369, 65.76)}[variant]
    assert (gflop_of["encoder"], gflop_of["correlation"], gflop_of["update"]) == pytest.approx(official, rel=0.01)


@pytest.mark.parametrize(("variant", "official"), [("small", 990_162), ("base", 5_257_536)])
def test_the_registered_number_of_parameters_is_the_model_s_and_near_raft_s(variant: str, official: int) -> None:
    parameters = sum(parameter.numel() for parameter in build(variant).parameters())
    assert parameters == INFO.variants[variant].parameters
    assert parameters == pytest.approx(official, rel=0.01)


def counted_at(side: int, frames: int = 2, points: int | None = None) -> WorkCount:
    work = registry.work_key("dense_pair:small", frames, side, side, None)
    return count_tracker(replace(work, points=points))


def test_the_volume_grows_with_the_fourth_power_of_the_resolution() -> None:
    correlation = [
        next(stage for stage in counted_at(side).stages if stage.name == "correlation") for side in (256, 512, 1024)
    ]
    assert correlation[1].flops == 16 * correlation[0].flops
    assert correlation[2].flops == 16 * correlation[1].flops
    # (1024 / 8)^4 numbers and their three averages, of 4 bytes
    assert counted_at(1024).peak_bytes > 128**4 * (1 + 1 / 4 + 1 / 16 + 1 / 64) * 4


def test_points_cost_next_to_nothing() -> None:
    assert INFO.dense
    one, many = counted_at(256, 4, 1), counted_at(256, 4, 4096)
    assert many.flops == one.flops
    assert many.bytes < 1.01 * one.bytes


@pytest.mark.parametrize("variant", ["small", "base"])
@pytest.mark.parametrize(
    ("frames", "height", "width", "batch", "iterations"),
    [(20, 256, 256, 1, 12), (12, 64, 96, 2, 3), (2, 64, 64, 1, 12), (66, 64, 72, 1, 1)],
)
def test_the_estimate_agrees_with_the_count(
    variant: str, frames: int, height: int, width: int, batch: int, iterations: int
) -> None:
    work = registry.work_key(f"dense_pair:{variant}", frames, height, width, None, batch)
    work = replace(work, iterations=iterations)
    counted, estimated = count_tracker(work), registry.estimate(work)
    assert estimated is not None
    assert estimated.flops == pytest.approx(counted.flops, rel=0.001)
    assert estimated.bytes == pytest.approx(counted.bytes, rel=0.02)
    assert estimated.launches == pytest.approx(counted.launches, rel=0.03)
    assert estimated.peak_bytes == pytest.approx(counted.peak_bytes, rel=0.1)


# --- outputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["small", "base"])
def test_outputs_are_finite_and_have_the_documented_shapes(variant: str, inputs: dict[str, torch.Tensor]) -> None:
    tracks, visibility = run(build(variant, iterations=2), inputs)
    assert tracks.shape == (2, POINTS, FRAMES, 2)
    assert visibility.shape == (2, POINTS, FRAMES)
    assert tracks.dtype == visibility.dtype == torch.float32
    assert tracks.isfinite().all()


def test_both_video_layouts_give_the_same_tracks(
    model: DensePair, inputs: dict[str, torch.Tensor], output: Predictions
) -> None:
    channels_first = {**inputs, "video": inputs["video"].permute(0, 1, 4, 2, 3).contiguous()}
    assert torch.equal(run(model, channels_first).tracks, output.tracks)


def test_items_of_a_batch_and_points_do_not_mix(
    model: DensePair, inputs: dict[str, torch.Tensor], output: Predictions
) -> None:
    other = to_model_input(procedural_clip(FRAMES, HEIGHT, WIDTH, POINTS, seed=9), "cpu")
    mixed = {name: torch.cat([inputs[name][:1], other[name]]) for name in inputs}
    torch.testing.assert_close(run(model, mixed).tracks[0], output.tracks[0], atol=1e-3, rtol=0)
    fewer = {**inputs, "queries": inputs["queries"][:, :2]}
    torch.testing.assert_close(run(model, fewer).tracks, output.tracks[:, :2], atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["FRAME_CHUNK", "PAIR_CHUNK"])
def test_chunking_does_not_change_results(
    name: str, model: DensePair, inputs: dict[str, torch.Tensor], output: Predictions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"core.trackers.dense_pair.{name}", 3)
    torch.testing.assert_close(run(model, inputs).tracks, output.tracks, atol=1e-3, rtol=0)


def test_float64_and_float32_agree(inputs: dict[str, torch.Tensor], output: Predictions) -> None:
    double = run(build("small", iterations=3).double(), {name: value.double() for name, value in inputs.items()})
    assert double.tracks.dtype == torch.float64
    torch.testing.assert_close(double.tracks.float(), output.tracks, atol=5e-3, rtol=0)


@pytest.mark.parametrize("variant", ["small", "base"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_coordinates_in_float32(
    variant: str, inputs: dict[str, torch.Tensor], dtype: torch.dtype
) -> None:
    with torch.autocast("cpu", dtype=dtype):
        tracks, _ = run(build(variant, iterations=2), {name: value[:1] for name, value in inputs.items()})
    assert tracks.dtype == torch.float32
    assert tracks.isfinite().all()


def test_the_seed_alone_decides_the_weights() -> None:
    states = [dict(build("small", seed=seed).named_parameters()) for seed in (1, 1, 2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["feature_encoder.stem.weight"], states[2]["feature_encoder.stem.weight"])


# --- against plain references ----------------------------------------------------------------------------------------


def bilinear_zero(image: np.ndarray, x: float, y: float) -> float:
    """image (h, w) at cell coordinates whose first cell's centre is (0.5, 0.5); zero outside."""
    rows, columns = image.shape
    left, top = int(np.floor(x - 0.5)), int(np.floor(y - 0.5))
    value = 0.0
    for row in (top, top + 1):
        for column in (left, left + 1):
            if 0 <= row < rows and 0 <= column < columns:
                value += (1 - abs(x - 0.5 - column)) * (1 - abs(y - 0.5 - row)) * image[row, column]
    return value


def test_looks_at_the_volume_equal_naive_ones() -> None:
    model = build("small").double()
    generator = torch.Generator().manual_seed(0)
    rows, columns, channels = 8, 9, 6
    first, second = (torch.randn(2, channels, rows * columns, dtype=torch.float64, generator=generator)
                     for _ in range(2))
    flow = 4 * torch.randn(2, 2, rows, columns, dtype=torch.float64, generator=generator)  # some looks leave the frame
    pyramid = model.volume(first, second, rows, columns)
    assert [tuple(level.shape) for level in pyramid] == [
        (144, 1, 8, 9), (144, 1, 4, 4), (144, 1, 2, 2), (144, 1, 1, 1)]
    windows = [model.window_on(level, rows, columns, i) for i, level in enumerate(pyramid)]
    got = model.look(pyramid, windows, flow).view(2, rows, columns, 4, 49).numpy()

    offsets = [(dx, dy) for dy in range(-3, 4) for dx in range(-3, 4)]
    for pair, row, column in ((0, 0, 0), (0, 3, 5), (1, 7, 8)):
        products = first[pair, :, row * columns + column] @ second[pair]
        level = products.view(1, 1, rows, columns)
        x = column + 0.5 + float(flow[pair, 0, row, column])
        y = row + 0.5 + float(flow[pair, 1, row, column])
        for index in range(4):
            image = level[0, 0].numpy()
            expected = [bilinear_zero(image, x / 2**index + dx, y / 2**index + dy) for dx, dy in offsets]
            np.testing.assert_allclose(got[pair, row, column, index], expected, atol=1e-10)
            level = F.avg_pool2d(level, 2) if index < 3 else level


def test_a_gated_update_is_a_convolutional_gru_step() -> None:
    model = build("base", seed=3)
    shape, step = model.shape, model.update.steps[0]
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(1, shape.hidden, 8, 9, generator=generator)
    rest = torch.randn(1, shape.joined - shape.hidden, 8, 9, generator=generator)
    with torch.no_grad():
        got = step(state, torch.cat([torch.zeros_like(state), rest], dim=1))
        change, reset = torch.sigmoid(step.gates(torch.cat([state, rest], dim=1))).chunk(2, dim=1)
        candidate = torch.tanh(step.candidate(torch.cat([reset * state, rest], dim=1)))
    torch.testing.assert_close(got, (1 - change) * state + change * candidate, atol=1e-5, rtol=1e-5)


def test_a_pixel_s_flow_is_a_mix_of_the_nine_cells_around_it() -> None:
    model = build("base", seed=1).double()
    assert model.weigh_neighbours is not None
    generator = torch.Generator().manual_seed(0)
    flow = torch.randn(1, 2, 8, 9, dtype=torch.float64, generator=generator)
    state = torch.randn(1, model.shape.hidden, 8, 9, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        got = model.enlarged(flow, state)
        weights = torch.softmax(model.weigh_neighbours(state).view(9, 8, 8, 8, 9), dim=0)
    assert got.shape == (1, 2, 64, 72)
    row, column, inner_y, inner_x = 3, 5, 2, 7
    around = 8 * flow[0, :, row - 1 : row + 2, column - 1 : column + 2].flatten(1)  # (2, 9)
    expected = around @ weights[:, inner_y, inner_x, row, column]
    torch.testing.assert_close(got[0, :, 8 * row + inner_y, 8 * column + inner_x], expected)


def test_points_wait_for_their_frame_then_follow_the_flow_until_they_leave_the_picture() -> None:
    flows = torch.zeros(1, 3, 2, 16, 16)
    flows[:, :, 0] = 5.0  # five pixels to the right, per frame
    queries = torch.tensor([[[0.0, 1.0, 8.0], [2.0, 3.0, 4.0]]])
    tracks, logits = chained(flows, queries)
    assert torch.equal(tracks[0, :, :, 0], torch.tensor([[1.0, 6, 11, 16], [3, 3, 3, 8]]))
    assert torch.equal(tracks[0, :, :, 1], torch.tensor([[8.0] * 4, [4.0] * 4]))
    assert torch.equal(logits[0], torch.tensor([[1.0, 1, 1, -1], [-1, -1, 1, 1]]))


def test_flow_is_read_at_the_point_and_not_at_its_pixel_number() -> None:
    flows = torch.zeros(1, 1, 2, 16, 16)
    flows[0, 0, 1, 4] = 2.0  # the row whose centre is y = 4.5
    tracks, _ = chained(flows, torch.tensor([[[0.0, 8.0, 4.5], [0.0, 8.0, 5.0]]]))
    assert torch.allclose(tracks[0, :, 1, 1], torch.tensor([6.5, 6.0]))


# --- stages, and safe on other devices -------------------------------------------------------------------------------


def test_every_registered_stage_is_visited_and_none_nests(model: DensePair, inputs: dict[str, torch.Tensor]) -> None:
    log = StageLog()  # raises if stages nest
    with marked(model, log):
        run(model, inputs)
    counts = {name: log.visits.count(name) for name in log.visits}
    # one chunk of pairs, 3 iterations
    assert counts == {"encoder": 1, "correlation": 1, "lookup": 1 + 3, "update": 1 + 3, "upsample": 1, "chain": 1}
    assert tuple(counts) == INFO.stages


class _Dtypes(TorchDispatchMode):
    """Notes the dtype of every tensor that an op makes, and refuses ops that wait for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "_local_scalar_dense" not in str(func), "the host waits for a value of a tensor"
        assert "nonzero" not in str(func), "a shape depends on a value"
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.numel() > 1:
            self.seen.add(out.dtype)
        return out


@pytest.mark.parametrize("context", [nullcontext, lambda: torch.autocast("cpu", dtype=torch.bfloat16)])
def test_no_op_waits_for_a_value_or_leaks_float64(
    inputs: dict[str, torch.Tensor], context: Callable[[], Any]
) -> None:
    with _Dtypes() as dtypes, context():
        run(build("base", iterations=1), inputs)
    assert torch.float64 not in dtypes.seen


def test_the_whole_model_traces_to_one_graph(inputs: dict[str, torch.Tensor]) -> None:
    model = build("small", iterations=1)
    traced = torch.compile(model, backend="eager", fullgraph=True)  # raises on a graph break
    torch.testing.assert_close(run(traced, inputs).tracks, run(model, inputs).tracks, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("video", "queries", "message"),
    [
        ((1, 2, 64, 64), (1, 1, 3), "video has shape"),
        ((1, 2, 64, 68, 3), (1, 1, 3), "multiples of 8, at least 64"),
        ((1, 2, 56, 64, 3), (1, 1, 3), "multiples of 8, at least 64"),
        ((1, 2, 64, 64, 3), (1, 3), "queries have shape"),
    ],
)
def test_wrong_shapes_are_named(
    model: DensePair, video: tuple[int, ...], queries: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(video), torch.zeros(queries))
