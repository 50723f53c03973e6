"""The built-in joint tracker computes what its text says, with the work of the official model's stages."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from core.measure.cost import WorkCount, count_tracker
from core.measure.inputs import procedural_clip, to_model_input
from core.trackers import registry
from core.trackers.joint4d import Joint4d, build, build_shape
from core.trackers.joint4d_shape import STRIDE, WINDOW, Joint4dShape
from core.trackers.stages import StageLog, marked
from core.trackers.tracker import Predictions

torch.set_num_threads(2)
FRAMES, HEIGHT, WIDTH, POINTS = 4, 32, 44, 7
TINY = Joint4dShape(width=32, heads=4, layers=2, virtual_tracks=5)
INFO = registry.TRACKERS["joint4d"]


@pytest.fixture(scope="module")
def inputs() -> dict[str, torch.Tensor]:
    return to_model_input(procedural_clip(FRAMES, HEIGHT, WIDTH, POINTS, seed=2), "cpu", batch=2)


@pytest.fixture(scope="module")
def model() -> Joint4d:
    return build_shape(TINY, seed=0, iterations=3)


@pytest.fixture(scope="module")
def output(model: Joint4d, inputs: dict[str, torch.Tensor]) -> Predictions:
    return run(model, inputs)


def run(model: Any, inputs: dict[str, torch.Tensor]) -> Predictions:
    with torch.no_grad():
        result: Predictions = model(**inputs)
    return result


# --- the work of the official model (shared/TRACKERS.md, table 2: counted on CoTracker3 offline with fake tensors)


@pytest.fixture(scope="module")
def founding() -> WorkCount:
    return count_tracker(registry.work_key("joint4d", 47, 256, 256, 256))


def test_it_does_the_work_of_cotracker3_offline_stage_by_stage(founding: WorkCount) -> None:
    tflop = {stage.name: stage.flops / 1e12 for stage in founding.stages}
    assert founding.flops / 1e12 == pytest.approx(2.81, rel=0.02)
    assert tflop["encoder"] == pytest.approx(0.81, rel=0.02)  # fnet
    assert tflop["transformer"] == pytest.approx(1.49, rel=0.02)  # updateformer
    assert tflop["correlation_encoder"] == pytest.approx(0.39, rel=0.02)  # corr_mlp
    assert founding.coverage == 1
    assert {stage.name: stage.calls for stage in founding.stages}["correlation_encoder"] == 16
    # and with fewer launches and bytes than core.measure.cost counts on the official model (commit 82e02e8)
    assert founding.launches < 1489
    assert founding.bytes < 84.5e9


@pytest.mark.parametrize(("points", "official_tflop"), [(64, 1.60), (1024, 7.65), (2500, 16.95)])
def test_its_work_grows_with_points_as_the_official_model_s(points: int, official_tflop: float) -> None:
    work = count_tracker(registry.work_key("joint4d", 47, 256, 256, points))
    assert work.flops / 1e12 == pytest.approx(official_tflop, rel=0.02)


@pytest.mark.parametrize(
    ("frames", "height", "width", "points", "batch"),
    [(47, 256, 256, 256, 1), (8, 128, 128, 32, 1), (17, 64, 96, 65, 2), (5, 36, 44, 3, 1), (2, 32, 32, 1, 1),
     (80, 64, 64, 900, 1)],
)
def test_the_estimate_agrees_with_the_count(frames: int, height: int, width: int, points: int, batch: int) -> None:
    work = registry.work_key("joint4d", frames, height, width, points, batch)
    counted, estimated = count_tracker(work), registry.estimate(work)
    assert estimated is not None
    assert estimated.flops == pytest.approx(counted.flops, rel=0.001)
    assert estimated.bytes == pytest.approx(counted.bytes, rel=0.02)
    assert estimated.launches == pytest.approx(counted.launches, rel=0.03)
    assert estimated.peak_bytes == pytest.approx(counted.peak_bytes, rel=0.1)


def test_the_registered_number_of_parameters_is_the_model_s_and_near_the_official_one() -> None:
    parameters = sum(parameter.numel() for parameter in build().parameters())
    assert parameters == INFO.variants["base"].parameters
    assert parameters == pytest.approx(25_385_700, rel=0.01)


# --- outputs


def test_outputs_are_finite_and_have_the_documented_shapes(output: Predictions) -> None:
    tracks, visibility = output
    assert tracks.shape == (2, POINTS, FRAMES, 2)
    assert visibility.shape == (2, POINTS, FRAMES)
    assert tracks.dtype == visibility.dtype == torch.float32
    assert tracks.isfinite().all()
    assert visibility.isfinite().all()


def test_tracks_start_at_the_query(inputs: dict[str, torch.Tensor]) -> None:
    unrefined = run(build_shape(TINY, seed=0, iterations=0), inputs).tracks
    assert torch.equal(unrefined, inputs["queries"][:, :, None, 1:].expand(-1, -1, FRAMES, -1))


def test_a_refinement_moves_the_tracks(inputs: dict[str, torch.Tensor], output: Predictions) -> None:
    moved = (output.tracks - inputs["queries"][:, :, None, 1:]).abs()
    assert moved.mean() > 0.01


def test_both_video_layouts_give_the_same_tracks(
    model: Joint4d, inputs: dict[str, torch.Tensor], output: Predictions
) -> None:
    channels_first = {**inputs, "video": inputs["video"].permute(0, 1, 4, 2, 3).contiguous()}
    assert torch.equal(run(model, channels_first).tracks, output.tracks)


def test_items_of_a_batch_do_not_mix_but_points_do(
    model: Joint4d, inputs: dict[str, torch.Tensor], output: Predictions
) -> None:
    other = to_model_input(procedural_clip(FRAMES, HEIGHT, WIDTH, POINTS, seed=9), "cpu")
    mixed = {name: torch.cat([inputs[name][:1], other[name]]) for name in inputs}
    torch.testing.assert_close(run(model, mixed).tracks[0], output.tracks[0], atol=1e-3, rtol=0)
    fewer = {"video": inputs["video"], "queries": inputs["queries"][:, :-1]}
    assert (run(model, fewer).tracks - output.tracks[:, :-1]).abs().max() > 1e-4  # the last point helped the others


def test_frame_chunking_does_not_change_results(
    model: Joint4d, inputs: dict[str, torch.Tensor], output: Predictions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.trackers.joint4d.FRAME_CHUNK", 3)
    torch.testing.assert_close(run(model, inputs).tracks, output.tracks, atol=1e-3, rtol=0)


def test_float64_and_float32_agree(inputs: dict[str, torch.Tensor], output: Predictions) -> None:
    double = run(build_shape(TINY, seed=0, iterations=3).double(), {k: v.double() for k, v in inputs.items()})
    assert double.tracks.dtype == torch.float64
    torch.testing.assert_close(double.tracks.float(), output.tracks, atol=5e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_coordinates_in_float32(
    model: Joint4d, inputs: dict[str, torch.Tensor], dtype: torch.dtype
) -> None:
    with torch.autocast("cpu", dtype=dtype):
        tracks, visibility = run(model, inputs)
    assert tracks.dtype == visibility.dtype == torch.float32
    assert tracks.isfinite().all()


def test_the_seed_alone_decides_the_weights_and_no_global_generator_moves() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = build_shape(TINY, 1, 1)
    assert torch.equal(torch.random.get_rng_state(), before)
    again, other = build_shape(TINY, 1, 1), build_shape(TINY, 2, 1)
    states = [dict(m.named_parameters()) for m in (first, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["encoder.stem.weight"], states[2]["encoder.stem.weight"])


# --- against plain references ----------------------------------------------------------------------------------------


def bilinear_zero(image: np.ndarray, x: float, y: float) -> np.ndarray:
    """image (C, h, w) at cell coordinates whose first cell's centre is (0.5, 0.5); zero outside."""
    _, rows, columns = image.shape
    left, top = int(np.floor(x - 0.5)), int(np.floor(y - 0.5))
    value = np.zeros(image.shape[0])
    for row in (top, top + 1):
        for column in (left, left + 1):
            if 0 <= row < rows and 0 <= column < columns:
                value += (1 - abs(x - 0.5 - column)) * (1 - abs(y - 0.5 - row)) * image[:, row, column]
    return value


def test_the_4d_correlation_equals_a_naive_one() -> None:
    model = build_shape(TINY, 0, 1).double()
    generator = torch.Generator().manual_seed(0)
    level = torch.randn(2, 3, 4, 9, 10, dtype=torch.float64, generator=generator)  # (B, T, C, h, w)
    queries = torch.tensor([[[1.0, 41.5, 36.0], [2.0, 44.0, 33.25]]] * 2, dtype=torch.float64)
    tracks = torch.rand(2, 2, 3, 2, dtype=torch.float64, generator=generator) * 80  # some windows leave the frame
    pixels = STRIDE * 2  # per cell of level 1
    template = model.query_template(level, queries, index=1)
    assert template.shape == (4, 4, WINDOW)
    got = model.local_correlation(
        level, tracks.transpose(1, 2).contiguous(), template, model.window_on(level, 1)
    ).view(2, 2, 3, WINDOW, WINDOW).numpy()

    offsets = [(dx, dy) for dy in range(-3, 4) for dx in range(-3, 4)]
    for clip in range(2):
        features = level.numpy()[clip]
        for n in range(2):
            t_query, x_query, y_query = queries[clip, n].tolist()
            around_query = [
                bilinear_zero(features[int(t_query)], x_query / pixels + dx, y_query / pixels + dy)
                for dx, dy in offsets
            ]
            for t in range(3):
                x, y = (tracks[clip, n, t] / pixels).tolist()
                around_guess = [bilinear_zero(features[t], x + dx, y + dy) for dx, dy in offsets]
                expected = np.array(around_guess) @ np.array(around_query).T
                np.testing.assert_allclose(got[clip, n, t], expected, atol=1e-10)


def test_each_level_of_the_pyramid_averages_two_by_two_cells_of_unit_vectors(
    model: Joint4d, inputs: dict[str, torch.Tensor]
) -> None:
    with torch.no_grad():
        levels = model.feature_pyramid(inputs["video"].permute(0, 1, 4, 2, 3))
    assert [tuple(level.shape[2:]) for level in levels] == [(128, 8, 11), (128, 4, 5), (128, 2, 2), (128, 1, 1)]
    torch.testing.assert_close(levels[0].norm(dim=2), torch.ones(2, FRAMES, 8, 11))
    torch.testing.assert_close(levels[1][0, 1, :, 3, 4], levels[0][0, 1, :, 6:8, 8:10].mean(dim=(1, 2)))


def attention_of(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int) -> torch.Tensor:
    """Torch's own attention of one sequence (length, C); the query's weights carry the scale already."""
    apart = [tensor.view(1, tensor.shape[0], heads, -1).transpose(1, 2) for tensor in (query, key, value)]
    return F.scaled_dot_product_attention(*apart, scale=1.0).transpose(1, 2).reshape(query.shape)


def test_time_attention_sees_the_frames_of_one_track(model: Joint4d) -> None:
    layer = model.transformer.time_layers[0]
    x = torch.randn(2, 3, 4, TINY.width, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        got = layer(x)
        for clip, track in ((0, 0), (1, 2)):
            tokens = x[clip, track]
            normed = F.layer_norm(tokens, (TINY.width,))
            attended = attention_of(*layer.query_key_value(normed).chunk(3, dim=-1), TINY.heads)
            tokens = tokens + layer.project(attended)
            tokens = tokens + layer.mlp(F.layer_norm(tokens, (TINY.width,)))
            torch.testing.assert_close(got[clip, track], tokens, atol=1e-4, rtol=1e-4)


def test_points_of_a_frame_meet_through_the_virtual_tracks_only(model: Joint4d) -> None:
    layer = model.transformer.space_layers[0]
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(2, 3, 4, TINY.width, generator=generator)
    virtual = torch.randn(2, TINY.virtual_tracks, 4, TINY.width, generator=generator)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (TINY.width,))

    with torch.no_grad():
        got_points, got_virtual = layer(points, virtual)
        p, v = points[1, :, 2], virtual[1, :, 2]  # one frame
        query, key, value = layer.points_query_key_value(norm(p)).chunk(3, dim=-1)
        v = v + layer.virtual_project(attention_of(layer.virtual_query(norm(v)), key, value, TINY.heads))
        v = v + layer.virtual_mlp(norm(v))
        among = layer.among_virtual
        v = v + among.project(attention_of(*among.query_key_value(norm(v)).chunk(3, dim=-1), TINY.heads))
        v = v + among.mlp(norm(v))
        key, value = layer.virtual_key_value(norm(v)).chunk(2, dim=-1)
        p = p + layer.points_project(attention_of(query, key, value, TINY.heads))
        p = p + layer.points_mlp(norm(p))
    torch.testing.assert_close(got_points[1, :, 2], p, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(got_virtual[1, :, 2], v, atol=1e-4, rtol=1e-4)


def test_query_weights_carry_the_scale_of_attention() -> None:
    weight = build_shape(TINY, 0, 1).transformer.time_layers[0].query_key_value.weight
    query, key = weight[: TINY.width], weight[TINY.width : 2 * TINY.width]
    assert float(query.std() / key.std()) == pytest.approx((TINY.width / TINY.heads) ** -0.5, rel=0.1)


def test_motion_is_told_in_longer_sides_of_the_frame(model: Joint4d) -> None:
    tracks = torch.tensor([[[[0.0, 0.0], [8.0, 4.0], [8.0, 12.0]]]])
    raw, sines, cosines = model.motion_encoding(tracks, longer_side=16)
    expected = torch.tensor([[0, 0, 0.5, 0.25], [0.5, 0.25, 0, 0.5], [0, 0.5, 0, 0]])  # before, after
    torch.testing.assert_close(raw[0, 0], expected)
    torch.testing.assert_close(sines[0, 0, 1, :2], torch.tensor([0.5, 1.0]).sin())
    assert cosines.shape == (1, 1, 3, 40)


# --- stages, and safe on other devices -------------------------------------------------------------------------------


def test_every_registered_stage_is_visited_and_none_nests(model: Joint4d, inputs: dict[str, torch.Tensor]) -> None:
    log = StageLog()  # raises if stages nest
    with marked(model, log):
        run(model, inputs)
    assert tuple(dict.fromkeys(log.visits)) == INFO.stages
    counts = {name: log.visits.count(name) for name in set(log.visits)}
    # 3 iterations, 4 levels
    assert counts == {"encoder": 1, "correlation": 1 + 3 * 5, "correlation_encoder": 12, "transformer": 1 + 3}


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
    model: Joint4d, inputs: dict[str, torch.Tensor], context: Callable[[], Any]
) -> None:
    with _Dtypes() as dtypes, context():
        run(model, inputs)
    assert torch.float64 not in dtypes.seen


def test_the_whole_model_traces_to_one_graph(inputs: dict[str, torch.Tensor]) -> None:
    model = build_shape(TINY, seed=0, iterations=1)
    traced = torch.compile(model, backend="eager", fullgraph=True)  # raises on a graph break
    torch.testing.assert_close(run(traced, inputs).tracks, run(model, inputs).tracks, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("video", "queries", "message"),
    [
        ((1, 2, 32, 32), (1, 1, 3), "video has shape"),
        ((1, 2, 32, 34, 3), (1, 1, 3), "multiples of 4, at least 32"),
        ((1, 2, 28, 32, 3), (1, 1, 3), "multiples of 4, at least 32"),
        ((1, 2, 32, 32, 3), (1, 3), "queries have shape"),
    ],
)
def test_wrong_shapes_are_named(
    model: Joint4d, video: tuple[int, ...], queries: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(video), torch.zeros(queries))
