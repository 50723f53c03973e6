"""The built-in tracker computes what its text says, on any chunking and precision, with honest stage marks."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core.measure.inputs import Clip, procedural_clip, to_model_input
from core.trackers import registry
from core.trackers.local4d import Local4d, build, soft_peak
from core.trackers.local4d_shape import LEVEL_CHANNELS, LEVEL_STRIDES, WINDOW
from core.trackers.stages import StageLog, marked, no_marker
from core.trackers.tracker import Predictions

torch.set_num_threads(2)
FRAMES, HEIGHT, WIDTH, POINTS = 4, 32, 40, 7


@pytest.fixture(scope="module")
def inputs() -> dict[str, torch.Tensor]:
    return to_model_input(procedural_clip(FRAMES, HEIGHT, WIDTH, POINTS, seed=2), "cpu", batch=2)


@pytest.fixture(scope="module")
def model() -> Local4d:
    return build("small", seed=0)


@pytest.fixture(scope="module")
def output(model: Local4d, inputs: dict[str, torch.Tensor]) -> Predictions:
    return run(model, inputs)


def run(model: Local4d, inputs: dict[str, torch.Tensor]) -> Predictions:
    with torch.no_grad():
        result: Predictions = model(**inputs)
    return result


@pytest.mark.parametrize("variant", ["small", "base"])
def test_outputs_are_finite_and_have_the_documented_shapes(variant: str, inputs: dict[str, torch.Tensor]) -> None:
    tracks, visibility = run(build(variant), inputs)
    assert tracks.shape == (2, POINTS, FRAMES, 2)
    assert visibility.shape == (2, POINTS, FRAMES)
    assert tracks.dtype == visibility.dtype == torch.float32
    assert tracks.isfinite().all()
    assert visibility.isfinite().all()


@pytest.mark.parametrize("variant", ["small", "base"])
def test_the_registered_number_of_parameters_is_the_model_s(variant: str) -> None:
    assert sum(p.numel() for p in build(variant).parameters()) == registry.resolve(f"local4d:{variant}")[1].parameters


def test_both_video_layouts_give_the_same_tracks(
    model: Local4d, inputs: dict[str, torch.Tensor], output: Predictions
) -> None:
    channels_first = {**inputs, "video": inputs["video"].permute(0, 1, 4, 2, 3).contiguous()}
    assert torch.equal(run(model, channels_first).tracks, output.tracks)


def test_items_of_a_batch_do_not_mix(model: Local4d, inputs: dict[str, torch.Tensor], output: Predictions) -> None:
    other = to_model_input(procedural_clip(FRAMES, HEIGHT, WIDTH, POINTS, seed=9), "cpu")
    mixed = {name: torch.cat([inputs[name][:1], other[name]]) for name in inputs}
    torch.testing.assert_close(run(model, mixed).tracks[0], output.tracks[0], atol=1e-3, rtol=0)


def test_query_chunking_does_not_change_results(inputs: dict[str, torch.Tensor]) -> None:
    in_three = run(build("small", query_chunk=4), inputs)
    at_once = run(build("small", query_chunk=64), inputs)
    torch.testing.assert_close(in_three.tracks, at_once.tracks, atol=1e-3, rtol=0)
    torch.testing.assert_close(in_three.visibility_logits, at_once.visibility_logits, atol=1e-4, rtol=1e-4)


def test_frame_chunking_does_not_change_results(
    model: Local4d, inputs: dict[str, torch.Tensor], output: Predictions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.trackers.local4d.FRAME_CHUNK", 3)
    torch.testing.assert_close(run(model, inputs).tracks, output.tracks, atol=1e-3, rtol=0)


def test_float64_and_float32_agree(model: Local4d, inputs: dict[str, torch.Tensor], output: Predictions) -> None:
    double = run(build("small", seed=0).double(), {name: value.double() for name, value in inputs.items()})
    assert double.tracks.dtype == torch.float64
    torch.testing.assert_close(double.tracks.float(), output.tracks, atol=5e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_coordinates_in_float32(
    model: Local4d, inputs: dict[str, torch.Tensor], dtype: torch.dtype
) -> None:
    with torch.autocast("cpu", dtype=dtype):
        tracks, visibility = run(model, inputs)
    assert tracks.dtype == visibility.dtype == torch.float32
    assert tracks.isfinite().all()


def test_the_seed_alone_decides_the_weights_and_no_global_generator_moves() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = build("small", seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    again, other = build("small", seed=1), build("small", seed=2)
    states = [dict(m.named_parameters()) for m in (first, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["encoder.stem.weight"], states[2]["encoder.stem.weight"])


def test_running_twice_gives_equal_bits(
    model: Local4d, inputs: dict[str, torch.Tensor], output: Predictions
) -> None:
    assert torch.equal(run(model, inputs).tracks, output.tracks)


# --- against a plain reference ---------------------------------------------------------------------------------------


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
    model = build("small").double()
    generator = torch.Generator().manual_seed(0)
    level = torch.randn(1, 3, 4, 9, 10, dtype=torch.float64, generator=generator)  # (B, T, C, h, w)
    queries = torch.tensor([[[1.0, 41.5, 36.0], [2.0, 44.0, 33.25]]], dtype=torch.float64)
    tracks = torch.rand(1, 2, 3, 2, dtype=torch.float64, generator=generator) * 80  # some windows leave the frame
    stride = LEVEL_STRIDES[2]
    template = model.query_template(level, queries, index=2)
    assert template.shape == (1, 2, 4, WINDOW)
    got = model.local_correlation(level, tracks, template, index=2).numpy()

    features = level.numpy()[0]
    offsets = [(dx, dy) for dy in range(-3, 4) for dx in range(-3, 4)]
    for n in range(2):
        t_query, x_query, y_query = queries[0, n].tolist()
        around_query = [
            bilinear_zero(features[int(t_query)], x_query / stride + dx, y_query / stride + dy) for dx, dy in offsets
        ]
        for t in range(3):
            x, y = (tracks[0, n, t] / stride).tolist()
            around_guess = [bilinear_zero(features[t], x + dx, y + dy) for dx, dy in offsets]
            np.testing.assert_allclose(got[0, n, t], np.array(around_guess) @ np.array(around_query).T, atol=1e-10)


def test_soft_peak_finds_a_single_peak_at_its_cell_centre_and_ignores_far_mass() -> None:
    heat = torch.zeros(1, 20, 30)
    heat[0, 4, 7] = 0.6
    heat[0, 4, 8] = 0.2  # near: pulls by a quarter of a cell
    heat[0, 15, 25] = 0.2  # far away: not counted
    torch.testing.assert_close(soft_peak(heat), torch.tensor([[7.75, 4.5]]))


def test_attention_bias_lets_half_of_the_heads_look_back_and_half_ahead() -> None:
    bias = build("small").transformer.relative_bias(3, torch.device("cpu"), torch.float32)
    assert bias.shape == (1, 4, 3, 3)
    back, ahead = bias[0, 0], bias[0, 2]
    assert torch.isinf(back[0, 1])
    assert torch.isinf(ahead[1, 0])
    assert back[2, 0] == 2 * back[1, 0] < 0
    assert torch.equal(ahead, back.T)
    assert (bias.diagonal(dim1=2, dim2=3) == 0).all()


def test_the_query_frame_starts_at_the_query(model: Local4d, inputs: dict[str, torch.Tensor]) -> None:
    unrefined = run(build("small", iterations=0), inputs).tracks[0]
    frame = inputs["queries"][0, :, 0].long()
    torch.testing.assert_close(unrefined[torch.arange(POINTS), frame], inputs["queries"][0, :, 1:])


def test_even_untrained_features_find_points_better_than_standing_still() -> None:
    long = procedural_clip(40, 128, 128, 200, seed=0)
    assert long.tracks is not None
    assert long.visible is not None
    kept = long.queries[:, 0] % 5 == 0  # every fifth frame: few frames, much motion
    queries = long.queries[kept] / np.float32([5, 1, 1])
    truth, visible = long.tracks[kept][:, ::5], long.visible[kept][:, ::5]
    clip = Clip(np.ascontiguousarray(long.video[::5]), queries, truth, visible, long.source)
    tracks = run(build("small", iterations=1), to_model_input(clip, "cpu")).tracks[0].numpy()
    error = np.linalg.norm(tracks - truth, axis=-1)[visible]
    still = np.linalg.norm(queries[:, None, 1:] - truth, axis=-1)[visible]
    assert np.median(error) < 0.6 * np.median(still)


# --- stages ----------------------------------------------------------------------------------------------------------


def test_every_registered_stage_is_visited_and_none_nests(model: Local4d, inputs: dict[str, torch.Tensor]) -> None:
    log = StageLog()  # raises if stages nest
    with marked(model, log):
        run(model, inputs)
    assert tuple(dict.fromkeys(log.visits)) == registry.TRACKERS["local4d"].stages
    # one query chunk, 4 iterations, 3 levels
    counts = {name: log.visits.count(name) for name in set(log.visits)}
    assert counts == {
        "encoder": 1, "cost_volume": 1, "correlation": 1 + 12, "correlation_encoder": 12, "transformer": 1 + 4,
    }
    assert model.stage_marker is no_marker


def test_a_marker_is_put_back_after_an_error(model: Local4d) -> None:
    with pytest.raises(ValueError, match="multiples of 8"), marked(model, StageLog()):
        model(torch.zeros(1, 2, 33, 40, 3), torch.zeros(1, 1, 3))
    assert model.stage_marker is no_marker


def test_a_nested_stage_is_refused_by_the_log() -> None:
    log = StageLog()
    with pytest.raises(RuntimeError, match="must not nest"), log("outer"), log("inner"):
        pass


# --- safe on other devices -------------------------------------------------------------------------------------------


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
    model: Local4d, inputs: dict[str, torch.Tensor], context: Callable[[], Any]
) -> None:
    with _Dtypes() as dtypes, context():
        run(model, inputs)
    assert torch.float64 not in dtypes.seen


def test_the_whole_model_traces_to_one_graph(inputs: dict[str, torch.Tensor]) -> None:
    model = build("small", iterations=1)
    traced = torch.compile(model, backend="eager", fullgraph=True)  # raises on a graph break
    torch.testing.assert_close(run(traced, inputs).tracks, run(model, inputs).tracks, atol=1e-3, rtol=0)


def test_convolutions_get_contiguous_input_from_a_channels_last_video(
    model: Local4d, inputs: dict[str, torch.Tensor]
) -> None:
    seen = []
    handle = model.encoder.stem.register_forward_hook(lambda module, args, result: seen.append((args[0], result)))
    try:
        run(model, {name: value[:1] for name, value in inputs.items()})
    finally:
        handle.remove()
    assert all(frames.is_contiguous() and features.is_contiguous() for frames, features in seen)


def test_the_pyramid_has_unit_vectors_at_its_strides(model: Local4d, inputs: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        levels = model.feature_pyramid(inputs["video"].permute(0, 1, 4, 2, 3))
    for level, channels, stride in zip(levels, LEVEL_CHANNELS, LEVEL_STRIDES, strict=True):
        assert level.shape == (2, FRAMES, channels, HEIGHT // stride, WIDTH // stride)
        torch.testing.assert_close(level.norm(dim=2), torch.ones(2, FRAMES, HEIGHT // stride, WIDTH // stride))


@pytest.mark.parametrize(
    ("video", "queries", "message"),
    [
        ((1, 2, 32, 32), (1, 1, 3), "video has shape"),
        ((1, 2, 32, 32, 4), (1, 1, 3), "video has shape"),
        ((1, 2, 32, 36, 3), (1, 1, 3), "multiples of 8"),
        ((1, 2, 32, 32, 3), (1, 3), "queries have shape"),
    ],
)
def test_wrong_shapes_are_named(
    model: Local4d, video: tuple[int, ...], queries: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(video), torch.zeros(queries))
