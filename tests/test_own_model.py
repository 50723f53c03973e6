"""Bring your own model: what `build` may return, its stages, its identity, and every mistake in one sentence."""
from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd.profiler import record_function

from core.errors import UserError
from core.trackers.own import OwnTracker, load_entry
from core.trackers.stages import StageLog, marked

ROOT = Path(__file__).resolve().parent.parent

NET = """
import torch
from torch import nn
from torch.profiler import record_function

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(4, 8)
        self.heads = nn.ModuleList([nn.Linear(8, 2), nn.Linear(8, 2)])
    def forward(self, x, times=1):
        for _ in range(times):
            y = self.backbone(x)
        return self.heads[0](y) + self.heads[1](y)
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(code: str, name: str = "model.py") -> str:
        (tmp_path / name).write_text(NET + textwrap.dedent(code))
        return f"{tmp_path / name}:build"

    return write


def run(own: OwnTracker) -> Any:
    with torch.inference_mode():
        return own(**own.prepare())


def visits(own: OwnTracker) -> list[str]:
    log = StageLog()
    with marked(own, log):
        run(own)
    return log.visits


@pytest.mark.parametrize("inputs", ["torch.ones(3, 4)", "(torch.ones(3, 4),)", "[torch.ones(3, 4), 2]",
                                    "{'x': torch.ones(3, 4), 'times': 2}"])
def test_a_module_is_called_with_its_inputs_as_they_are_given(write: Any, inputs: str) -> None:
    own = load_entry(write(f"def build(): return Net(), {inputs}"))
    assert run(own).shape == (3, 2)
    assert not own.target.training


def test_a_function_is_called_without_arguments_and_may_return_nothing(write: Any) -> None:
    own = load_entry(write("""
        calls = []
        def work(): calls.append(1)
        work.calls = calls
        def build(): return work
    """))
    assert run(own) is None
    assert own.target.calls == [1]
    assert own.predictions(None) is None


def test_the_same_seed_gives_the_same_weights(write: Any) -> None:
    spec = write("def build(): return Net(), torch.ones(3, 4)")
    first, again, other = (run(load_entry(spec, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_build_is_told_the_device_when_it_asks(write: Any) -> None:
    own = load_entry(write("def build(device): return Net(), torch.ones(3, 4), {device.replace(':', ''): 'backbone'}"),
                     device="cuda:1")
    assert own.stages == ("cuda1",)


def test_a_relative_file_lies_in_the_root(write: Any, tmp_path: Path) -> None:
    write("def build(): return Net(), torch.ones(3, 4)")
    assert load_entry("model.py", root=tmp_path).name == "model"


def test_the_file_imports_its_neighbours(write: Any, tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_own_model.py").write_text("SIZE = 4")
    own = load_entry(write("""
        def build():
            from neighbour_of_own_model import SIZE
            return Net(), torch.ones(3, SIZE)
    """))
    assert run(own).shape == (3, 2)


# --- stages ---


def test_named_submodules_are_stages_and_a_module_list_stands_for_what_it_holds(write: Any) -> None:
    own = load_entry(write("""
        def build(): return Net(), (torch.ones(3, 4), 2), {'encoder': 'backbone', 'head': ['heads']}
    """))
    assert own.stages == ("encoder", "head")
    assert visits(own) == ["encoder", "encoder", "head", "head"]


def test_profiler_ranges_in_the_code_are_stages(write: Any) -> None:
    own = load_entry(write("""
        def work():
            with record_function("stage:first"), record_function("stage:inside"), record_function("else"):
                torch.ones(2)
            with record_function("stage:second"):
                torch.ones(2)
        def build(): return work
    """))
    assert visits(own) == ["first", "second"]


def test_nested_stages_are_flattened_to_the_outermost(write: Any) -> None:
    own = load_entry(write("""
        def build(): return nn.Sequential(Net()), torch.ones(3, 4), {'inner': '0.backbone', 'whole': '0'}
    """))
    assert visits(own) == ["whole"]


def test_a_stage_that_raises_is_left(write: Any) -> None:
    own = load_entry(write("""
        class Careful(Net):
            def forward(self, x):
                try:
                    self.backbone(torch.ones(1, 99))
                except RuntimeError:
                    pass
                return self.heads[0](self.backbone(x))
        def build(): return Careful(), torch.ones(3, 4), {'encoder': 'backbone', 'head': 'heads.0'}
    """))
    assert visits(own) == ["encoder", "encoder", "head"]


def test_without_a_listener_nothing_is_watched(write: Any) -> None:
    before = record_function.__enter__
    own = load_entry(write("def build(): return Net(), torch.ones(3, 4), {'encoder': 'backbone'}"))
    with marked(own, StageLog()):
        assert record_function.__enter__ is not before
        assert own.target.backbone._forward_pre_hooks
    assert record_function.__enter__ is before
    assert not own.target.backbone._forward_pre_hooks
    assert not own.target.backbone._forward_hooks


def test_the_profiler_itself_may_be_the_listener(write: Any) -> None:
    own = load_entry(write("""
        class Ranged(Net):
            def forward(self, x):
                with record_function("stage:range"):
                    y = x + 1
                return self.backbone(y)
        def build(): return Ranged(), torch.ones(3, 4), {'encoder': 'backbone'}
    """))
    with torch.profiler.profile() as profile, marked(own, lambda name: record_function(f"stage:{name}")):
        run(own)
    names = [event.key for event in profile.key_averages() if event.key.startswith("stage:")]
    assert sorted(names) == ["stage:encoder", "stage:range"]


def test_a_built_in_tracker_keeps_its_own_stages(write: Any) -> None:
    own = load_entry(write("""
        from core.trackers import local4d
        def build():
            return local4d.build("small"), (torch.zeros(1, 2, 32, 32, 3), torch.zeros(1, 1, 3))
    """))
    assert visits(own)[0] == "encoder"
    assert own.predictions(run(own)) is not None


# --- identity ---


def test_the_work_key_holds_name_shapes_and_parameter_count(write: Any) -> None:
    work = load_entry(write("def build(): return Net(), torch.ones(3, 4)\nbuild.name = 'My / tracker: v2'")).work_key()
    assert (work.tracker, work.implementation, work.revision) == (
        "My-tracker-v2", "own", f"in:3x4:float32 params:{4 * 8 + 8 + 2 * (8 * 2 + 2)}")
    assert (work.frames, work.height, work.width, work.points) == (None, None, None, None)


@pytest.mark.parametrize("other", [
    "Net(), torch.ones(5, 4)", "Net(), torch.ones(3, 4).double()", "Net(), (torch.ones(3, 4), 2)",
    "Net(), {'x': torch.ones(3, 4)}", "nn.Linear(4, 8), torch.ones(3, 4)", "Net().half(), torch.ones(3, 4)",
    "lambda x: x, torch.ones(3, 4)",
])
def test_other_inputs_or_parameters_are_other_work(write: Any, other: str) -> None:
    first = load_entry(write("def build(): return Net(), torch.ones(3, 4)")).work_key()
    assert load_entry(write(f"def build(): return {other}")).work_key().key() != first.key()


def test_a_function_is_known_by_its_text(write: Any) -> None:
    first = load_entry(write("def build(): return lambda: torch.ones(1)")).revision
    second = load_entry(write("def build(): return lambda: torch.ones(2)")).revision
    assert re.fullmatch(r"in:none code:[0-9a-f]{12}", first)
    assert first != second


def test_many_inputs_are_cut_to_a_hash_that_still_tells_them_apart(write: Any) -> None:
    inputs = "[torch.ones(3, 4)] * 40 + [torch.ones({})]"
    one, two = (
        load_entry(write(f"def build(): return (lambda *x: x), {inputs.format(last)}")).revision for last in (1, 2)
    )
    assert one.split()[0] != two.split()[0]
    assert len(one) < 160


def test_a_name_of_a_registered_tracker_is_not_taken(write: Any) -> None:
    assert load_entry(write("def build(): return Net(), torch.ones(3, 4)", "local4d.py")).name == "own-local4d"


def test_no_folder_enters_the_work_key(write: Any, tmp_path: Path) -> None:
    own = load_entry(write("def build(): return lambda: None"))
    assert tmp_path.name not in own.work_key().key()
    assert "/" not in own.revision + own.name


# --- mistakes ---


@pytest.mark.parametrize(("code", "told"), [
    ("build = 3", "has no function 'build'"),
    ("def built(): return Net(), torch.ones(3, 4)", "expected built"),
    ("def build(): raise ValueError('no weights\\nmore')", "model.py:build raised: ValueError: no weights;"),
    ("def build(): return 7", "returned int; expected (module, inputs)"),
    ("def build(): return None", "returned NoneType"),
    ("def build(): return 1, 2, 3, 4", "returned tuple(int, int, int, int)"),
    ("def build(): return Net()", "returned Net without inputs, but it needs 'x'"),
    ("async def work(): pass\ndef build(): return work", "coroutine"),
    ("def build(): return Net(), [1].__iter__()", "list_iterator among the inputs"),
    ("def build(): return Net(), torch.ones(3, 4, requires_grad=True)", "requires grad"),
    ("def build(): return Net().to('meta'), torch.ones(3, 4)", "meta device"),
    ("def build():\n    net = Net()\n    net.backbone.to('meta')\n    return net, torch.ones(3, 4)", "cpu and meta"),
    ("def build(): return nn.LazyLinear(3), torch.ones(3, 4)", "lazy parameters"),
    ("def build(): return Net(), torch.ones(3, 4), {'a': 'bakbone'}", "expected backbone"),
    ("def build(): return Net(), torch.ones(3, 4), {'other': 'backbone'}", "stage 'other'"),
    ("def build(): return Net(), torch.ones(3, 4), {'a': 'backbone', 'b': 'backbone'}", "the stages 'a' and 'b'"),
    ("def build(): return Net(), torch.ones(3, 4), ['backbone']", "stages as list"),
    ("def build(): return (lambda x: x), torch.ones(3, 4), {'a': 'b'}", "plain function"),
    ("import no_such_package_here", "ModuleNotFoundError: No module named 'no_such_package_here'"),
    ("import core.raft", "rename your package `core`"),
    ("raise SystemExit(3)", "it ended the program (3)"),
    ("def build(: pass", "SyntaxError"),
])
def test_a_mistake_is_told_in_one_line(write: Any, code: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        load_entry(write(code))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["", "model", "model.txt:build", "model.py:no name", ":build"])
def test_a_spec_that_is_no_file_and_function(spec: str) -> None:
    with pytest.raises(UserError, match=re.escape("FILE.py:FUNCTION")):
        load_entry(spec)


def test_a_missing_file_is_named_without_its_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_entry(str(tmp_path / "gone.py") + ":build")
    assert "gone.py" in str(caught.value)
    assert tmp_path.name not in str(caught.value)


def test_a_model_that_needs_gradients_says_so_itself(write: Any) -> None:
    own = load_entry(write("""
        class Needs(Net):
            def forward(self, x):
                with torch.enable_grad():
                    return torch.autograd.grad(self.backbone(x).sum(), list(self.backbone.parameters()))
        def build(): return Needs(), torch.ones(3, 4)
    """))
    with pytest.raises(RuntimeError, match="grad"):
        run(own)


def test_the_example_of_the_readme_runs_with_its_stages() -> None:
    own = load_entry("examples/own_model.py:build", root=ROOT)
    assert visits(own) == ["encoder", "head"]
