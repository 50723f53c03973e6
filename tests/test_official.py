"""Adapters of official trackers against stand-ins with the same interfaces, which echo their query points."""
from __future__ import annotations

import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.errors import UserError
from core.trackers import registry
from core.trackers.info import OFFICIAL
from core.trackers.official import loading
from core.trackers.official.flow import chained, sample
from core.trackers.official.hooks import Hooked, StageHooks
from core.trackers.stages import StageLog, marked, no_marker

STANDINS = Path(__file__).parent / "official_standins"
OFFICIALS = [row["selector"] for row in registry.table() if row["implementation"] == OFFICIAL]
FRAMES, SIDE = 16, 160


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The packages that the official code needs, as empty stand-ins."""
    monkeypatch.syspath_prepend(str(STANDINS / "packages"))
    real = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "torchvision"}
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.modules.update(real)


def build(selector: str, **options: Any) -> Any:
    info, variant = registry.resolve(selector)
    checkout = STANDINS / info.checkout.name if info.checkout else None
    return registry.load_builder(info)(
        variant.name, **{"checkout": checkout, "frames": FRAMES, "height": SIDE, "width": SIDE, **options}
    )


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """A clip (2, 16, 160, 160, 3) in -1..1 and three queries per clip as (t, x, y)."""
    video = torch.linspace(-1, 1, SIDE)[:, None].expand(2, FRAMES, SIDE, SIDE, 3)
    queries = torch.tensor([[0.0, 10.5, 20.5], [0.0, 100.25, 3.0], [0.0, 50.0, 120.75]])
    return video, queries.expand(2, 3, 3).clone()


@pytest.mark.parametrize("selector", OFFICIALS)
def test_layout_range_and_order_are_converted_both_ways(selector: str) -> None:
    video, queries = inputs()
    before_video, before_queries = video.clone(), queries.clone()
    model = build(selector)
    predictions = model.predictions(model(**model.prepare(video, queries)))
    assert predictions.tracks.shape == (2, 3, FRAMES, 2)
    assert predictions.visibility_logits.shape == (2, 3, FRAMES)
    expected = queries[:, :, None, 1:].expand(-1, -1, FRAMES, -1)
    if registry.resolve(selector)[0].dense:  # the stand-ins of dense models move by a pixel per frame
        expected = expected + torch.arange(FRAMES)[:, None]
    torch.testing.assert_close(predictions.tracks, expected)
    assert bool((predictions.visibility_logits > 0).all())
    torch.testing.assert_close(video, before_video)
    torch.testing.assert_close(queries, before_queries)


@pytest.mark.parametrize("selector", OFFICIALS)
def test_stages_are_the_registered_ones_and_only_while_somebody_listens(selector: str) -> None:
    model = build(selector)
    arguments = model.prepare(*inputs())
    code = {name: vars(part).get("forward") for name, part in model.named_modules()}
    log = StageLog()
    with marked(model, log):
        model(**arguments)
    assert tuple(dict.fromkeys(log.visits)) == registry.resolve(selector)[0].stages
    assert {name: vars(part).get("forward") for name, part in model.named_modules()} == code
    visits = len(log.visits)
    model(**arguments)
    assert len(log.visits) == visits


@pytest.mark.parametrize("selector", OFFICIALS)
def test_weights_come_from_the_seed_alone_and_no_generator_moves(selector: str) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, again, other = (build(selector, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in first.values())


def test_a_model_is_ready_for_inference() -> None:
    model = build("locotrack:small")
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_iterations_and_query_chunk_reach_the_model() -> None:
    model = build("locotrack:base", iterations=2, query_chunk=2)
    log = StageLog()
    with marked(model, log):
        model(**model.prepare(*inputs()))
    assert log.visits.count("cost_volume") == 2  # three queries in chunks of two
    assert log.visits.count("transformer") == 2 * 2


def test_two_checkouts_live_in_one_process_and_leave_the_import_system_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "locotrack"
    shutil.copytree(STANDINS / "locotrack", copy)
    code = copy / "locotrack_pytorch/models/locotrack_model.py"
    code.write_text(code.read_text().replace("-20.0", "20.0"))  # all points are hidden in this version
    foreign = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "models", foreign)
    path = list(sys.path)
    first, second = build("locotrack"), build("locotrack", checkout=copy)
    assert sys.modules["models"] is foreign
    assert not [name for name in sys.modules if name.startswith("models.")]
    assert sys.path == path
    arguments = first.prepare(*inputs())
    logits = [model.predictions(model(**arguments)).visibility_logits for model in (first, second)]
    assert bool((logits[0] > 0).all())
    assert bool((logits[1] < 0).all())
    # torch.compile asks for a function's globals by the name of its module.
    assert sys.modules[type(second.model).forward.__globals__["__name__"]].LocoTrack is type(second.model)


def test_without_a_checkout_the_command_that_gets_one_is_named() -> None:
    with pytest.raises(UserError, match=r"--checkout locotrack=PATH; get one with `git clone https://github.com/cvlab"):
        build("locotrack", checkout=None)


def test_another_repository_is_refused() -> None:
    with pytest.raises(UserError, match="'tapnet' is no copy of cvlab-kaist/locotrack"):
        build("locotrack", checkout=STANDINS / "tapnet")


def test_a_package_that_the_code_imports_and_nobody_installed_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/net.py").write_text("import no_such_package_anywhere\n")
    with pytest.raises(UserError, match="needs the package no_such_package_anywhere"):
        loading.import_from(tmp_path, ("models",), ("models.net",))
    (tmp_path / "models/net.py").write_text("raise RuntimeError('operator x::nms does not exist')\n")
    with pytest.raises(UserError, match="fails when imported"):
        loading.import_from(tmp_path, ("models",), ("models.net",))
    assert "models" not in sys.modules
    assert str(tmp_path) not in sys.path


# --- weights ---------------------------------------------------------------------------------------------------------


def save(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize("wrap", [
    lambda tensors: tensors,
    lambda tensors: {"state_dict": {f"model.{name}": tensor for name, tensor in tensors.items()}},
    lambda tensors: {"model": tensors, "step": 3},
])
def test_a_checkpoint_fills_the_model(tmp_path: Path, wrap: Any) -> None:
    tensors = build("locotrack", seed=5).model.state_dict()
    path = save(tmp_path / "w.pt", wrap(tensors))
    loaded = build("locotrack", seed=1, weights=path).model.state_dict()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_a_predictor_takes_the_weights_of_the_model_inside_it(tmp_path: Path) -> None:
    tensors = build("cotracker3:offline", seed=5).model.state_dict()
    path = save(tmp_path / "w.pth", {"model": tensors})
    loaded = build("cotracker3:offline-predictor", weights=path).model.model.state_dict()
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_a_checkpoint_that_does_not_fit_names_the_first_key(tmp_path: Path) -> None:
    tensors = dict(build("locotrack:base").model.state_dict())
    with pytest.raises(UserError, match=r"resnet_torch.weight is 3x3x1x1, the model's is 2x3x1x1"):
        build("locotrack:small", weights=save(tmp_path / "base.pt", tensors))
    shorter = {name: tensor for name, tensor in tensors.items() if not name.startswith("cmdtop.1")}
    with pytest.raises(UserError, match=r"cmdtop.1.weight is not in it"):
        build("locotrack:base", weights=save(tmp_path / "short.pt", shorter))
    longer = {**tensors, "extra.weight": torch.zeros(1)}
    with pytest.raises(UserError, match=r"extra.weight is not in the model"):
        build("locotrack:base", weights=save(tmp_path / "long.pt", longer))


class Malicious:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code in a checkpoint ran')",)


def test_a_checkpoint_with_code_in_it_is_refused_and_not_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds more than tensors"):
        build("locotrack", weights=save(tmp_path / "evil.pt", {"state_dict": Malicious()}))
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Malicious(), protocol=2))
    with pytest.raises(UserError, match="holds more than tensors"):
        build("locotrack", weights=tmp_path / "evil.pkl")


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(b"hello")
    with pytest.raises(UserError, match=r"w.pt is no checkpoint"):
        build("locotrack", weights=tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"no weights file 'gone.pt'"):
        build("locotrack", weights=tmp_path / "gone.pt")
    with pytest.raises(UserError, match="holds no tensors by name"):
        build("locotrack", weights=save(tmp_path / "list.pt", [torch.zeros(1)]))


def test_tapnext_weights_belong_to_one_size(tmp_path: Path) -> None:
    square = build("tapnext", height=256, width=256)
    path = save(tmp_path / "w.pt", square.model.state_dict())
    build("tapnext", height=256, width=256, weights=path)
    with pytest.raises(UserError, match=r"image_pos_emb is 1024x4, the model's is 512x4; .*use --resolution 256"):
        build("tapnext", height=128, width=256, weights=path)


def test_tapnext_takes_the_jax_weights_of_its_repository(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    numpy.savez(tmp_path / "w.npz", **{"head/kernel": numpy.full((1, 4), 3.0, dtype=numpy.float32)})
    assert bool((build("tapnext", weights=tmp_path / "w.npz").model.head.weight == 3).all())
    numpy.savez(tmp_path / "other.npz", weights=numpy.zeros(1))
    with pytest.raises(UserError, match="head/kernel is not in it"):
        build("tapnext", weights=tmp_path / "other.npz")


# --- stages of code that has none ------------------------------------------------------------------------------------


class Parts:
    """Ten is the outer part, which calls the inner one."""

    def outer(self) -> int:
        return self.inner() + 9

    def inner(self) -> int:
        return 1

    def fails(self) -> None:
        raise ValueError("no")


def hooked(*names: str, held: bool = False) -> tuple[Parts, StageHooks, StageLog]:
    parts, log = Parts(), StageLog()
    hooks = StageHooks([Hooked(name, parts, name, held=held and name == names[0]) for name in names])
    hooks.listen(log)
    return parts, hooks, log


def test_a_stage_inside_another_belongs_to_the_outer_one() -> None:
    parts, _, log = hooked("outer", "inner")
    assert parts.outer() == 10
    assert parts.inner() == 1
    assert log.visits == ["outer", "inner"]


def test_a_held_stage_lasts_until_the_next_one_starts() -> None:
    parts, hooks, log = hooked("inner", "fails", held=True)
    parts.inner()
    assert log._open == "inner"
    parts.inner()
    assert log.visits == ["inner", "inner"]
    with pytest.raises(ValueError, match="no"):
        parts.fails()
    assert log._open is None
    parts.inner()
    hooks.close()
    assert log._open is None
    assert log.visits == ["inner", "inner", "fails", "inner"]


def test_listening_ends_without_a_trace_and_may_change_hands() -> None:
    parts, hooks, first = hooked("inner")
    second = StageLog()
    hooks.listen(second)
    parts.inner()
    assert (first.visits, second.visits) == ([], ["inner"])
    hooks.listen(no_marker)
    parts.inner()
    assert second.visits == ["inner"]
    assert vars(parts) == {}


def test_a_model_that_fails_leaves_no_stage_open() -> None:
    model = build("locotrack")
    log = StageLog()
    arguments = model.prepare(*inputs())
    with marked(model, log), pytest.raises(ValueError, match="range"):
        model(**{**arguments, "video": arguments["video"] + 5})
    with marked(model, log):
        model(**arguments)
    assert log._open is None


def test_cuda_is_left_alone_after_a_call_on_the_cpu() -> None:
    original = torch.Tensor.cuda
    model = build("alltracker")
    model(**model.prepare(*inputs()))
    assert torch.Tensor.cuda is original


# --- dense flow to tracks --------------------------------------------------------------------------------------------


def test_a_map_is_sampled_at_pixel_centres_and_between_them() -> None:
    maps = torch.tensor([[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]])  # one channel, two rows
    points = torch.tensor([[[0.5, 0.5], [2.5, 1.5], [1.0, 0.5], [1.5, 1.0]]])
    torch.testing.assert_close(sample(maps, points)[0, :, 0], torch.tensor([0.0, 5.0, 0.5, 2.5]))


def test_a_point_follows_the_flow_from_its_own_frame_on() -> None:
    flows = torch.zeros(1, 3, 2, 8, 8)
    flows[:, :, 0] = 1.0  # a pixel to the right per frame
    queries = torch.tensor([[[0.0, 2.0, 3.0], [2.0, 2.0, 3.0]]])
    tracks = chained(flows, queries)
    torch.testing.assert_close(tracks[0, 0, :, 0], torch.tensor([2.0, 3.0, 4.0, 5.0]))
    torch.testing.assert_close(tracks[0, 1, :, 0], torch.tensor([2.0, 2.0, 2.0, 3.0]))
    torch.testing.assert_close(tracks[0, :, :, 1], torch.full((2, 4), 3.0))
