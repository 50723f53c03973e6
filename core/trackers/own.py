"""Bring your own model: `--entry FILE.py:build` as a tracker. For the command line and the collector, never a page.

`build()` is the user's function. It returns one of

    module, inputs               a torch module and what it is called with: a tensor, a tuple or list, or a dict
    module, inputs, stages       stages: {stage name: name of a submodule, or a list of names}
    function                     called without arguments; it brings its own data and places it itself

`inputs` may hold tensors and, beside them, plain values (numbers, text, None); a dict is passed as keywords. A `build`
with a parameter `device` is told the device ("cuda:0", "cpu"). `build.name = "..."` names the model, else the file.

Stages come from hooks on the named submodules, or from `record_function("stage:NAME")` ranges in the model's own code;
the outermost counts where they nest. A submodule that is not called as `module(...)` (but by another method) is
never entered, and its time stays in `other`.

What holds for every cell: the module is put into evaluation mode and moved to the device; inputs are moved once,
outside the timed region, and a forward pass must not change them; passes run in `torch.inference_mode`, so a model
that computes gradients inside its forward pass fails with torch's own reason. The user's code is run as it is: texts
of its errors are kept on one line here, and cut by the measurer before they enter a record.
"""
from __future__ import annotations

import difflib
import hashlib
import importlib.util
import inspect
import random
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import record_function
from torch.nn.parameter import UninitializedParameter
from torch.utils._pytree import tree_flatten, tree_map

from core.errors import UserError
from core.records import WorkKey
from core.trackers import registry
from core.trackers.info import OWN
from core.trackers.stages import OTHER, PROFILER_PREFIX, StageMarker, no_marker
from core.trackers.tracker import Tracker

DEFAULT_FUNCTION = "build"
WEIGHTS = "own"
_MAX_NAME, _MAX_INPUTS_TEXT, _MAX_ERROR = 60, 120, 200
_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


class OwnTracker(Tracker):
    """The user's module or function with its inputs. Made by `load_entry`."""

    def __init__(
        self, target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any],
        stages: Mapping[str, Sequence[str]], name: str, revision: str,
    ) -> None:
        """stages: {stage name: dotted names of submodules of `target`}; they exist."""
        super().__init__()
        self.target = target  # a module becomes a submodule and moves with this one
        self.name = name
        self.revision = revision
        self.stages = tuple(stages)
        self._args, self._kwargs = args, dict(kwargs)
        modules = dict(target.named_modules()) if isinstance(target, nn.Module) else {}
        # In a dict, which does not register: they are submodules already.
        self._staged = {stage: [modules[item] for item in names] for stage, names in stages.items()}

    def work_key(self) -> WorkKey:
        """What makes two runs comparable: the user's name, the inputs' shapes and dtypes, the parameter count."""
        return WorkKey(
            tracker=self.name, variant=None, implementation=OWN, revision=self.revision, weights=WEIGHTS,
            frames=None, height=None, width=None, points=None,
        )

    def prepare(self, video: Tensor | None = None, queries: Tensor | None = None) -> dict[str, Any]:
        """The user's inputs on the device of the module, or of `video` for a function. The clip itself is not used.

        Raises UserError when the module is not on one device: move it first, with `.to(device)`.
        """
        device = _device_of(self.target) if isinstance(self.target, nn.Module) else None
        if device is None and video is not None:
            device = video.device
        if device is None:
            return {"args": self._args, "kwargs": self._kwargs}

        def moved(leaf: Any) -> Any:
            return leaf.to(device) if torch.is_tensor(leaf) else leaf

        return {"args": tree_map(moved, self._args), "kwargs": tree_map(moved, self._kwargs)}

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.target(*args, **kwargs)

    # The marker is a property, so that hooks and the watched record_function exist only while somebody listens: an
    # unmeasured or compiled pass is the user's model alone.

    @property
    def stage_marker(self) -> StageMarker:
        marker: StageMarker = self.__dict__.get("_marker", no_marker)
        return marker

    @stage_marker.setter
    def stage_marker(self, marker: StageMarker) -> None:  # type: ignore[override]
        listening = self.__dict__.pop("_listening", None)
        if listening is not None:
            listening.close()
        self.__dict__["_marker"] = marker
        target = self.__dict__.get("_modules", {}).get("target")
        if isinstance(target, Tracker):
            target.stage_marker = marker
        elif marker is not no_marker:
            self.__dict__["_listening"] = _Listening(marker, self._staged)


class _Listening:
    """Tells a marker about entered stages, from its making until `close`."""

    def __init__(self, marker: StageMarker, staged: Mapping[str, Iterable[nn.Module]]) -> None:
        self._marker = marker
        self._thread = threading.get_ident()
        self._open: list[AbstractContextManager[Any] | None] = []  # None: a stage inside another one
        self._in_marker = False
        self._handles: list[Any] = []
        for stage, modules in staged.items():
            for module in modules:
                self._handles.append(module.register_forward_pre_hook(self._entering(stage)))
                # Called after an exception, too: a model may catch it and go on.
                self._handles.append(module.register_forward_hook(self._leaving, always_call=True))
        # Names that user code holds are this very class, so its methods are replaced and not the names.
        self._before = record_function.__enter__, record_function.__exit__
        enter, leave = self._before

        def watched_enter(range_: record_function) -> Any:
            if not self._is_stage(range_):
                return enter(range_)
            self._enter(range_.name[len(PROFILER_PREFIX):])
            return range_

        def watched_exit(range_: record_function, *exception: Any) -> Any:
            if not self._is_stage(range_):
                return leave(range_, *exception)
            return self._leave()

        self._set_methods(watched_enter, watched_exit)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._set_methods(*self._before)

    @staticmethod
    def _set_methods(enter: Any, leave: Any) -> None:
        record_function.__enter__ = enter  # type: ignore[method-assign]
        record_function.__exit__ = leave  # type: ignore[method-assign]

    def _is_stage(self, range_: record_function) -> bool:
        """A marker may use record_function itself, and other threads are not on the measured time line."""
        return (
            not self._in_marker and range_.name.startswith(PROFILER_PREFIX) and threading.get_ident() == self._thread
        )

    def _entering(self, stage: str) -> Callable[..., None]:
        def entering(module: nn.Module, args: Any) -> None:
            if threading.get_ident() == self._thread:
                self._enter(stage)

        return entering

    def _leaving(self, module: nn.Module, args: Any, output: Any) -> None:
        if threading.get_ident() == self._thread:
            self._leave()

    def _enter(self, stage: str) -> None:
        if self._open:
            self._open.append(None)
            return
        context = self._marker(stage)
        self._open.append(context)
        with self._telling():
            context.__enter__()

    def _leave(self) -> None:
        context = self._open.pop() if self._open else None
        if context is not None:
            with self._telling():
                context.__exit__(None, None, None)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        self._in_marker = True
        try:
            yield
        finally:
            self._in_marker = False


# --- loading ---------------------------------------------------------------------------------------------------------


def load_entry(spec: str, root: Path | None = None, seed: int = 0, device: str = "cpu") -> OwnTracker:
    """The user's model from `FILE.py:build`, on the CPU or wherever `build` put it, in evaluation mode.

    root: folder that a relative FILE lies in, else the current one. The file's folder goes to the front of the import
    path and stays there, as `python FILE.py` would have it, so that its neighbours can be imported, also later.
    seed: of torch, random and (where loaded) numpy before the file runs. device: told to a `build` that asks for it.
    Raises UserError for everything that is wrong with the file, the function or what it returns.
    """
    path, function_name = _parsed(spec, root)
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    module = _executed(path)
    build = getattr(module, function_name, None)
    where = f"{path.name}:{function_name}"
    if not callable(build):
        functions = [name for name, item in vars(module).items() if inspect.isfunction(item)]
        near = difflib.get_close_matches(function_name, functions, n=3, cutoff=0.4) or functions[:5]
        raise UserError(f"{path.name} has no function {function_name!r}", " or ".join(near) or "a function in it",
                        f"write --entry {path.name}:NAME")
    takes_device = "device" in _parameters(build)
    with _told(f"{where} raised"):
        made = build(device=device) if takes_device else build()
    target, args, kwargs, stages = _taken_apart(made, getattr(build, "stages", None), where)
    revision = _revision(target, args, kwargs, path)
    name = _name(getattr(build, "name", None), path, function_name)
    return OwnTracker(target, args, kwargs, stages, name, revision).eval()


def _parsed(spec: str, root: Path | None) -> tuple[Path, str]:
    file, colon, function_name = spec.strip().rpartition(":")
    if not colon or file.endswith(":") or "/" in function_name or "\\" in function_name:  # C:\model.py has no function
        file, function_name = spec.strip(), DEFAULT_FUNCTION
    path = Path(file).expanduser() if root is None else Path(root) / Path(file).expanduser()
    function_name = function_name or DEFAULT_FUNCTION
    if path.suffix != ".py" or not function_name.isidentifier():
        raise UserError(f"--entry {Path(spec).name!r}", "FILE.py:FUNCTION, such as model.py:build")
    if not path.is_file():
        raise UserError(f"no file {path.name!r} for --entry", "a Python file with a function that builds the model",
                        "check the path")
    return path.resolve(), function_name


def _executed(path: Path) -> ModuleType:
    name = f"gapscope_entry_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    with _told(f"{path.name} cannot be loaded"):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Anything that the user's code raises, as a UserError with the line of the exception."""
    try:
        yield
    except UserError:
        raise
    except SystemExit as error:
        raise UserError(f"{what}: it ended the program ({error.code})", "a file that only defines things when loaded",
                        "put the rest under `if __name__ == \"__main__\":`") from error
    except Exception as error:
        # ModuleNotFoundError names the missing part: an own package `core` is hidden by the one of this program.
        hidden = isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "core"
        fix = "rename your package `core`, which is a name of this program, or put its folder on sys.path" if hidden \
            else "run it with plain Python first"
        raise UserError(f"{what}: {_line_of(error)}", "", fix) from error


def _line_of(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' '.join(lines[:1])}" if lines else type(error).__name__
    return text if len(text) <= _MAX_ERROR else text[: _MAX_ERROR - 3] + "..."


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _taken_apart(
    made: Any, stages: Any, where: str
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], dict[str, list[str]]]:
    """What `build` returned: target, positional and keyword inputs, submodule names by stage."""
    expected = "(module, inputs), (module, inputs, stages) or a function without arguments"
    if isinstance(made, (tuple, list)):
        if len(made) not in (2, 3) or not callable(made[0]):
            kinds = ", ".join(type(item).__name__ for item in made[:4])
            raise UserError(f"{where} returned {type(made).__name__}({kinds})", expected, "change its return line")
        target, inputs = made[0], made[1]
        stages = made[2] if len(made) == 3 else stages
    elif callable(made):
        target, inputs = made, ()
        function = made.forward if isinstance(made, nn.Module) else made
        missing = [
            name for name, parameter in _parameters(function).items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if missing:
            raise UserError(f"{where} returned {type(made).__name__} without inputs, but it needs {missing[0]!r}",
                            expected, "return its inputs, too")
    else:
        raise UserError(f"{where} returned {type(made).__name__}", expected, "change its return line")
    _check_target(target, where)
    args, kwargs = _call_arguments(inputs, where)
    return target, args, kwargs, _checked_stages(stages, target, where)


def _check_target(target: Callable[..., Any], where: str) -> None:
    function = target.forward if isinstance(target, nn.Module) else target
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UserError(f"{where} returned a coroutine or generator function", "one that does its work when called",
                        "wrap it in a plain function")
    if isinstance(target, nn.Module):
        if any(isinstance(item, UninitializedParameter) for item in target.parameters()):
            raise UserError(f"{where} returned a module with lazy parameters", "parameters that exist",
                            "call the module once in the function")
        _device_of(target)


def _device_of(module: nn.Module) -> torch.device | None:
    """The one device of a module's parameters and buffers, None without any. Raises UserError for several, or meta."""
    devices = sorted({str(tensor.device) for tensor in (*module.parameters(), *module.buffers())})
    if len(devices) > 1:
        raise UserError(f"the module lies on {' and '.join(devices)}", "one device", "move all of it to one device")
    if devices == ["meta"]:
        raise UserError("the module lies on the meta device", "parameters with values",
                        "build it on the CPU, or use to_empty and initialise it")
    return torch.device(devices[0]) if devices else None


def _call_arguments(inputs: Any, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`inputs` as positional and keyword arguments. Raises UserError for what is neither tensor nor plain value."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        kwargs = dict(inputs)
        if not all(isinstance(name, str) for name in kwargs):
            raise UserError(f"{where} returned inputs in a dict whose keys are no names",
                            "names of the module's parameters", "use their names as keys")
    else:
        args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    for leaf in tree_flatten((args, kwargs))[0]:
        if torch.is_tensor(leaf):
            if leaf.requires_grad:
                raise UserError(f"an input of {where} requires grad", "data", "call .detach() on it")
            if leaf.device.type == "meta":
                raise UserError(f"an input of {where} lies on the meta device", "a tensor with values",
                                "make it on the CPU")
        elif not isinstance(leaf, _PLAIN):
            raise UserError(f"a {type(leaf).__name__} among the inputs of {where}",
                            "tensors, numbers, text or None", "make a tensor of it, such as by torch.from_numpy")
    return args, kwargs


def _checked_stages(stages: Any, target: Callable[..., Any], where: str) -> dict[str, list[str]]:
    """{stage: module names}; a container that is never called itself (ModuleList) stands for what it holds."""
    if stages is None:
        return {}
    if not isinstance(stages, Mapping):
        raise UserError(f"{where} gave stages as {type(stages).__name__}",
                        'a dict such as {"encoder": "backbone"}', "change its return line")
    if stages and not isinstance(target, nn.Module):
        raise UserError(f"{where} names modules as stages of a plain function", "a module",
                        f'use record_function("{PROFILER_PREFIX}NAME") ranges in it')
    modules = dict(target.named_modules()) if isinstance(target, nn.Module) else {}
    checked: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for stage, names in stages.items():
        stage_name = _cleaned(str(stage))
        if not stage_name or stage_name == OTHER or stage_name in checked:
            raise UserError(f"{where} has a stage {str(stage)[:40]!r}",
                            f"distinct names; {OTHER!r} holds the time outside all stages", "choose another name")
        checked[stage_name] = []
        for item in [names] if isinstance(names, str) else list(names):
            if item not in modules or item == "":
                near = difflib.get_close_matches(str(item), modules, n=3, cutoff=0.4) or [m for m in modules if m][:5]
                raise UserError(f"{where}: the module of stage {stage_name!r} is {str(item)[:60]!r}",
                                " or ".join(near) or "a submodule", "use a name of named_modules()")
            held = isinstance(modules[item], (nn.ModuleList, nn.ModuleDict))
            for called in [f"{item}.{child}" for child, _ in modules[item].named_children()] if held else [item]:
                if called in owner:
                    raise UserError(f"{where}: module {called!r} is in the stages {owner[called]!r} and {stage_name!r}",
                                    "each module in one stage", "take it out of one")
                owner[called] = stage_name
                checked[stage_name].append(called)
    return checked


# --- identity --------------------------------------------------------------------------------------------------------


def _cleaned(text: str) -> str:
    """Letters, digits and . _ + - only, so that it fits into keys, selectors and file names."""
    return re.sub(r"[^\w.+-]+", "-", text, flags=re.ASCII).strip("-._")[:_MAX_NAME]


def _name(given: Any, path: Path, function_name: str) -> str:
    """The user's name of the model; else the file's, and the function's where it says more."""
    fallback = path.stem if function_name == DEFAULT_FUNCTION else f"{path.stem}-{function_name}"
    name = _cleaned(str(given)) if isinstance(given, str) else ""
    name = name or _cleaned(fallback) or OWN
    return f"{OWN}-{name}" if name in registry.TRACKERS else name


def _revision(target: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], path: Path) -> str:
    """Inputs and size of the model, readable: "in:1x3x96x96:float32 params:25400000".

    A function has no parameters to count, so its file's text stands for it: a changed file is another model.
    """
    parts = [_leaf_text(leaf) for leaf in tree_flatten(args)[0]]
    parts += [f"{key}=" + "+".join(_leaf_text(leaf) for leaf in tree_flatten(kwargs[key])[0]) for key in sorted(kwargs)]
    inputs = "+".join(parts) or "none"
    if len(inputs) > _MAX_INPUTS_TEXT:
        digest = hashlib.sha256(inputs.encode()).hexdigest()[:10]
        inputs = f"{inputs[:_MAX_INPUTS_TEXT - 11]}#{digest}"
    if not isinstance(target, nn.Module):
        return f"in:{inputs} code:{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
    parameters = list(target.parameters())
    dtypes = sorted({_dtype_text(parameter.dtype) for parameter in parameters} - {"float32"})
    return f"in:{inputs} params:{sum(parameter.numel() for parameter in parameters)}" + "".join(f":{d}" for d in dtypes)


def _leaf_text(leaf: Any) -> str:
    if torch.is_tensor(leaf):
        return f"{'x'.join(map(str, leaf.shape)) or 'scalar'}:{_dtype_text(leaf.dtype)}"
    return _cleaned(str(leaf)) or f"text{len(str(leaf))}"


def _dtype_text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
