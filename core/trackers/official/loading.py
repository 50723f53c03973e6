"""Getting an official model into this process: its code, its random numbers, its weights.

**Code.** Repositories import their own modules by short names (`models`, `utils`) that clash with each other. So
`import_from` puts the repository on sys.path for the import only, and afterwards keeps its modules in sys.modules
under private names (`models` becomes `models@1`): two checkouts, or two versions of one, live side by side, and each
build has modules of its own whose functions may be wrapped without touching another model's. They stay in
sys.modules since torch.compile looks a function's globals up by module name.

**Random numbers.** Some repositories seed the global generator when they are imported, and building a model draws
from it. Both happen inside `own_random_numbers`, which puts every generator back.

**Weights.** Loaded with `weights_only=True`, so that a checkpoint can hold tensors and no code.
"""
from __future__ import annotations

import contextlib
import importlib
import itertools
import pickle
import random
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from core.errors import UserError
from core.trackers import checkout as checkouts
from core.trackers import registry
from core.trackers.info import TrackerInfo

_LOCK = threading.RLock()
_NUMBERS = itertools.count(1)
_WRAPPERS = ("state_dict", "model", "model_state_dict")  # keys under which checkpoints keep their tensors

Model = TypeVar("Model", bound=nn.Module)


def modules_of(tracker: str, given: str | Path | None, names: Sequence[str]) -> list[ModuleType]:
    """Modules of the official tracker's code by their full names, freshly imported from the user's checkout.

    Raises UserError without a checkout, for a folder that is another repository, and for a missing package.
    """
    info = registry.TRACKERS[tracker]
    here = {} if given is None or info.checkout is None else {info.checkout.name: str(given)}
    problem = registry.missing(info, here)
    if problem is not None:
        raise problem
    assert info.checkout is not None
    top = checkouts.locate(info.checkout, str(given))
    return import_from(top / info.checkout.package_root, info.checkout.packages, names)


def import_from(root: Path, packages: Sequence[str], names: Sequence[str]) -> list[ModuleType]:
    """Import modules `names` with `root` first on the path; `packages` are the top-level names that lie there.

    Their code is run anew at each call. Raises UserError when it cannot be imported.
    """
    with _LOCK:
        before = _taken_out(packages)
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        try:
            with own_random_numbers(0):
                modules = [importlib.import_module(name) for name in names]
        except ImportError as error:
            missing = (error.name or "").partition(".")[0]
            if missing and missing not in packages:
                raise UserError(f"the code in {root.name!r} needs the package {missing}, which is not installed", "",
                                f"run `pip install {registry.INDEX_NAMES.get(missing, missing)}`") from error
            raise UserError(f"the code in {root.name!r} cannot be imported ({error})", "a complete copy",
                            "get a fresh one") from error
        except Exception as error:  # such as a torchvision that was built for another torch
            raise UserError(f"the code in {root.name!r} fails when imported ({type(error).__name__}: {error})",
                            "packages that fit this version of torch") from error
        finally:
            sys.path.remove(str(root))
            _keep_apart(_taken_out(packages))
            sys.modules.update(before)
    return modules


@contextlib.contextmanager
def own_random_numbers(seed: int) -> Iterator[None]:
    """Random numbers from `seed` inside the block; Python's and torch's generators as before after it."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=list(devices)):
            torch.random.default_generator.manual_seed(seed)
            random.seed(seed)
            yield
    finally:
        random.setstate(state)


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Fill `model` from a checkpoint file.

    Raises UserError for a file that is missing, is no checkpoint or holds more than tensors, and for one that was
    made for another model, with the first of the model's keys that does not fit.
    """
    path = Path(path).expanduser()
    found = _tensors(path)
    wanted = model.state_dict()
    for prefix in ("", "model.", "module.", "model.module."):  # wrappers that training code leaves in the names
        stripped = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
        if stripped.keys() & wanted.keys():
            found = stripped
            break
    problem = _first_mismatch(wanted, found)
    if problem is not None:
        raise UserError(f"the weights in {path.name} do not fit this model: {problem}",
                        "a checkpoint of the same tracker and variant", "choose another file or `random`")
    model.load_state_dict(found)


def finished(model: Model, weights: str | Path | None) -> Model:
    """The model with its weights, for inference."""
    if weights is not None and str(weights) != registry.RANDOM_WEIGHTS:
        load_weights(model, weights)
    return model.eval().requires_grad_(False)


def own(value: int | None, info: TrackerInfo, name: str) -> int:
    """An option of the builder, or the registered default where it is not given."""
    return int(getattr(info, name) if value is None else value)


def _tensors(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a checkpoint file by name."""
    if not path.is_file():
        raise UserError(f"no weights file {path.name!r}", "`random` or a readable checkpoint file")
    loaded: Any
    if path.suffix == ".safetensors":
        try:
            loaded = importlib.import_module("safetensors.torch").load_file(path, device="cpu")
        except ImportError:
            raise UserError(f"{path.name} needs the package safetensors, which is not installed", "",
                            "run `pip install safetensors`") from None
        except Exception as error:  # its own error type
            raise UserError(f"{path.name} cannot be read ({error})", "a safetensors file") from None
    else:
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError):
            raise UserError(
                f"{path.name} is no checkpoint, or it holds more than tensors and could run code",
                "a file that torch.load reads with weights_only=True", "save its state_dict alone, or use `random`",
            ) from None
    for name in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(name), Mapping):
            loaded = loaded[name]
    tensors = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)} \
        if isinstance(loaded, Mapping) else {}
    if not tensors:
        raise UserError(f"{path.name} holds no tensors by name", "a checkpoint with a state_dict")
    return tensors


def _first_mismatch(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """The first key, in the model's order, that the file lacks or holds in another shape; then any that is left."""
    for name, tensor in wanted.items():
        if name not in found:
            return f"{name} is not in it"
        if found[name].shape != tensor.shape:
            return f"{name} is {_shape(found[name])}, the model's is {_shape(tensor)}"
    for name in found:
        if name not in wanted:
            return f"{name} is not in the model"
    return None


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"


def _taken_out(packages: Sequence[str]) -> dict[str, ModuleType]:
    """The modules of these top-level names, removed from sys.modules."""
    names = [name for name in sys.modules if name.partition(".")[0] in packages]
    return {name: sys.modules.pop(name) for name in names}


def _keep_apart(modules: Mapping[str, ModuleType]) -> None:
    """Put imported modules back under names that no import statement asks for."""
    number = next(_NUMBERS)
    for name, module in modules.items():
        top, dot, rest = name.partition(".")
        module.__name__ = f"{top}@{number}{dot}{rest}"
        sys.modules[module.__name__] = module
