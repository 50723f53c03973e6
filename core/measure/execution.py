"""Ways to run the same forward pass: eager, torch.compile, CUDA graph, cast weights; layout, cuDNN search, attention.

    with arrange(model, arguments, setting, device, autocast) as arranged:
        with arranged.listening(marker):
            arranged.call()              one forward pass as the setting says: what is timed

A setting that this tracker or device cannot run raises `Unsupported` with the reason, on entry or in the first call.
Compiling and capturing happen in the first call, so that `first_call_ms` holds their cost; torch keeps compiled code
on disk, so a second process may find it there. Behind the block, weights, flags and compiled code are as before.

- compile: one static shape, default mode. Graph breaks are counted and named; the parts between them are compiled.
- cudagraph: the whole pass captured once and replayed. Its output lies in the same memory after every call.
- cast: weights, buffers and floating inputs converted to fp16 or bf16, where eager uses autocast.
- channels_last: 4-dimensional weights and inputs in that layout; convolutions pass it on.
"""
from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from core.measure import reasons
from core.measure.plan import EXECUTIONS, MEMORY_FORMATS, SDP_BACKENDS, STAGED_EXECUTIONS
from core.measure.precision import AUTOCAST
from core.records import SettingKey
from core.trackers.stages import StageMarker, marked, no_marker
from core.trackers.tracker import Tracker

COMPILE, CUDAGRAPH, CAST = "compile", "cudagraph", "cast"
CHANNELS_LAST = "channels_last"
SDP_DEFAULT = "default"
# name in the setting key: member of torch.nn.attention.SDPBackend, argument of the older torch.backends.cuda.sdp_kernel
_SDP = {
    "flash": ("FLASH_ATTENTION", "enable_flash"), "mem_efficient": ("EFFICIENT_ATTENTION", "enable_mem_efficient"),
    "math": ("MATH", "enable_math"), "cudnn": ("CUDNN_ATTENTION", "enable_cudnn"),
}

_CALLS_BEFORE_CAPTURE = 3  # libraries make their handles and workspaces, cuDNN chooses its algorithms
_CPU_COMPILERS = ("g++", "c++", "clang++", "cl")
_NO_KERNEL = ("No available kernel", "No viable backend for scaled_dot_product_attention")


class Unsupported(Exception):  # noqa: N818 - the status of the cell, not a fault
    """This tracker or device cannot run the setting. `retire`: this process should not be used again."""

    def __init__(self, reason: str, retire: bool = False) -> None:
        super().__init__(reason)
        self.reason = reasons.clean(reason)
        self.retire = retire


@dataclass(frozen=True)
class Arranged:
    """A forward pass under one setting, good until its `arrange` block ends."""

    model: Tracker
    call: Callable[[], Any]  # one pass in inference mode, by the setting's execution
    eager: Callable[[], Any]  # the same arithmetic, uncompiled, with no gradient mode of its own: to count its work
    has_stages: bool  # False: compiled code does not ask the marker, all time is `other`
    notes: dict[str, Any] = field(default_factory=dict)  # for the execution path; complete after the first call

    def listening(self, marker: StageMarker) -> AbstractContextManager[None]:
        """`marker` hears of the stages of an eager pass. It must not be seen by what compiles or captures."""
        return marked(self.model, marker if self.has_stages else no_marker)


@contextmanager
def arrange(
    model: Tracker, arguments: dict[str, Any], setting: SettingKey, device: torch.device,
    autocast_factory: Callable[[], AbstractContextManager[Any]], backend: str = "inductor", cuda: Any = torch.cuda,
) -> Iterator[Arranged]:
    """`model(**arguments)` under a setting; precision flags are set by the caller, handicaps are not this module's.

    model and arguments lie on `device`; `arguments` is not changed. backend: of torch.compile. cuda: what makes
    streams and graphs. Raises Unsupported, here or from the first `call`; other errors are the model's own.
    """
    _refuse(setting, device, backend)
    notes: dict[str, Any] = {}
    with ExitStack() as stack:
        if setting.memory_format == CHANNELS_LAST:
            arguments = stack.enter_context(_channels_last(model, arguments, notes))
        if setting.execution == CAST:
            arguments = stack.enter_context(_cast(model, arguments, AUTOCAST[setting.precision]))
            autocast_factory = nullcontext
            notes.update(autocast=None, cast=str(AUTOCAST[setting.precision]).removeprefix("torch."))
        if setting.cudnn_benchmark:
            stack.enter_context(_cudnn_benchmark())
        if setting.sdp_backend != SDP_DEFAULT:
            stack.enter_context(_attention_by(setting.sdp_backend))

        def eager() -> Any:
            with autocast_factory():
                return model(**arguments)

        def plain() -> Any:
            with torch.inference_mode():
                return eager()

        if setting.execution == COMPILE:
            call = _compiled(model, arguments, autocast_factory, plain, backend, notes, stack)
        elif setting.execution == CUDAGRAPH:
            call = _captured(plain, cuda, stack)
        else:
            call = plain
        if setting.execution == CAST or setting.sdp_backend != SDP_DEFAULT:
            call = _explained_at_first(call, setting)
        yield Arranged(model, call, eager, setting.execution in STAGED_EXECUTIONS, notes)


def _refuse(setting: SettingKey, device: torch.device, backend: str) -> None:
    """Raises Unsupported for what is known before anything runs."""
    for name, value, known in (
        ("execution", setting.execution, EXECUTIONS), ("memory format", setting.memory_format, MEMORY_FORMATS),
        ("attention backend", setting.sdp_backend, SDP_BACKENDS),
    ):
        if value not in known:
            raise Unsupported(f"unknown {name} {value!r}, known are {', '.join(known)}")
    if setting.execution == CUDAGRAPH and device.type != "cuda":
        raise Unsupported("a CUDA graph needs a CUDA device")
    if setting.cudnn_benchmark and device.type != "cuda":
        raise Unsupported("cudnn.benchmark searches among cuDNN's algorithms, a CPU has none of them")
    if setting.execution == CAST and setting.precision not in AUTOCAST:
        raise Unsupported(f"cast weights need {' or '.join(AUTOCAST)}, not {setting.precision}")
    if setting.execution == COMPILE and backend == "inductor":
        missing = _missing_for_inductor(device.type)
        if missing is not None:
            raise Unsupported(missing)


def _missing_for_inductor(device_type: str) -> str | None:
    """What torch.compile lacks on this machine, None when nothing is known to be missing."""
    if not hasattr(torch, "compile"):
        return "this torch has no torch.compile"
    if device_type == "cuda":
        return None if importlib.util.find_spec("triton") else "torch.compile on CUDA needs the package triton"
    asked = os.environ.get("CXX")
    if any(shutil.which(name) for name in ((asked,) if asked else _CPU_COMPILERS)):
        return None
    return f"torch.compile on a CPU needs a C++ compiler, none of {', '.join(_CPU_COMPILERS)} was found"


# --- weights, inputs and flags, for the length of a block ------------------------------------------------------------


@contextmanager
def _channels_last(model: Tracker, arguments: dict[str, Any], notes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    weights = [weight for weight in model.parameters() if weight.dim() == 4 and weight.is_contiguous()]
    if not weights:
        raise Unsupported("channels_last: the model has no contiguous 4-dimensional weights that it could change")
    notes["channels_last_weights"] = len(weights)

    def turned(leaf: Any) -> Any:
        fits = torch.is_tensor(leaf) and leaf.dim() == 4 and leaf.is_floating_point()
        return leaf.contiguous(memory_format=torch.channels_last) if fits else leaf

    try:
        for weight in weights:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        yield tree_map(turned, arguments)
    finally:
        for weight in weights:
            weight.data = weight.data.contiguous()


@contextmanager
def _cast(model: Tracker, arguments: dict[str, Any], dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    tensors = [item for item in (*model.parameters(), *model.buffers()) if item.is_floating_point()]
    # Kept on the host: a second set of weights on the GPU would count in this cell's peak memory.
    kept = [item.data.to("cpu", copy=True) for item in tensors]

    def turned(leaf: Any) -> Any:
        return leaf.to(dtype) if torch.is_tensor(leaf) and leaf.is_floating_point() else leaf

    try:
        for item in tensors:
            item.data = item.data.to(dtype)
        yield tree_map(turned, arguments)
    finally:
        for item, before in zip(tensors, kept, strict=True):
            item.data = before.to(item.device)


@contextmanager
def _cudnn_benchmark() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _attention_by(name: str) -> AbstractContextManager[Any]:
    """Only this backend of scaled_dot_product_attention, through torch's newer or older switch."""
    member, argument = _SDP[name]
    attention = getattr(torch.nn, "attention", None)
    if attention is None and importlib.util.find_spec("torch.nn.attention"):
        import torch.nn.attention as attention
    if attention is not None and hasattr(attention, "sdpa_kernel"):
        backend = getattr(attention.SDPBackend, member, None)
        if backend is None:
            raise Unsupported(f"this torch ({torch.__version__}) has no {name} attention")
        chosen: AbstractContextManager[Any] = attention.sdpa_kernel(backend)
        return chosen
    if name == "cudnn":
        raise Unsupported(f"this torch ({torch.__version__}) has no {name} attention")
    flags = {other: other == argument for other in ("enable_flash", "enable_mem_efficient", "enable_math")}
    older: AbstractContextManager[Any] = torch.backends.cuda.sdp_kernel(**flags)
    return older


# --- compile ---------------------------------------------------------------------------------------------------------


def _compiled(
    model: Tracker, arguments: dict[str, Any], autocast_factory: Callable[[], AbstractContextManager[Any]],
    plain: Callable[[], Any], backend: str, notes: dict[str, Any], stack: ExitStack,
) -> Callable[[], Any]:
    """A pass of the compiled model; the first one compiles, and fills the notes."""
    import torch._dynamo as dynamo
    from torch._dynamo.backends.registry import lookup_backend

    dynamo.reset()  # else a second size would be compiled for changing sizes, and limits would count former cells
    stack.callback(dynamo.reset)
    graphs: list[Any] = []  # why each graph ended, in the order of compilation
    compile_graph = lookup_backend(backend)

    def watched(graph: Any, example_inputs: Any) -> Any:
        graphs.append(getattr(graph, "compile_subgraph_reason", None))
        return compile_graph(graph, example_inputs)

    compiled: list[Callable[..., Any]] = []

    def once() -> Any:
        with torch.inference_mode(), autocast_factory():
            return compiled[0](**arguments)

    def call() -> Any:
        if compiled:
            return once()
        try:
            compiled.append(torch.compile(model, backend=watched, dynamic=False))
            with marked(model, no_marker), _limit_watched(notes):
                output = once()
        except Exception as error:
            if reasons.out_of_memory(error, "") is not None:
                raise
            plain()  # raises what is the model's own, whatever runs it
            inner = getattr(error, "inner_exception", None) or error
            raise Unsupported(f"torch.compile failed{_at(inner)}: {reasons.of_error(inner)}") from error
        if not graphs:
            raise Unsupported("torch.compile found nothing in this model that it could compile")
        notes.update(_breaks(graphs))
        return output

    return call


def _breaks(graphs: list[Any]) -> dict[str, Any]:
    """Graphs, graph breaks, and where and why the first one is."""
    broken = [reason for reason in graphs if getattr(reason, "graph_break", False)]
    notes: dict[str, Any] = {"graphs": len(graphs), "graph_breaks": len(broken)}
    if broken:
        frames = getattr(broken[0], "user_stack", None) or []
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
        count = "1 graph break" if len(broken) == 1 else f"{len(broken)} graph breaks, first"
        notes["graph_break"] = reasons.clean(f"{count} at {where}: {_break_reason(str(broken[0].reason))}")
    return notes


def _break_reason(text: str) -> str:
    """Dynamo's reason in a few words, where it is one of the known ones."""
    if "generic_jump" in text or "Data-dependent branching" in text or "data-dependent" in text.split("\n")[0].lower():
        return "a branch on a tensor's value"
    if ".item()" in text.split("\n")[0] or "Tensor.item" in text:
        return "a tensor's value read on the host (.item())"
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


class _LimitHandler(logging.Handler):
    def __init__(self, notes: dict[str, Any]) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        if "limit" in record.getMessage() and "torch._dynamo hit" in record.getMessage():
            self._notes["recompile_limit_hit"] = True  # some function runs eagerly from then on


@contextmanager
def _limit_watched(notes: dict[str, Any]) -> Iterator[None]:
    """Dynamo tells in its log alone that it gave a function up after too many variants."""
    logger, handler = logging.getLogger("torch._dynamo.convert_frame"), _LimitHandler(notes)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# --- CUDA graph ------------------------------------------------------------------------------------------------------


def _captured(plain: Callable[[], Any], cuda: Any, stack: ExitStack) -> Callable[[], Any]:
    """A replay of the captured pass; the first call warms up and captures. The caller's marker is off by then."""
    ready: list[tuple[Any, Any]] = []  # the graph and its output

    def call() -> Any:
        if not ready:
            ready.append(_capture(plain, cuda))
        graph, output = ready[0]
        graph.replay()
        return output

    def release() -> None:
        for graph, _ in ready:
            graph.reset()
        ready.clear()

    stack.callback(release)
    return call


def _capture(plain: Callable[[], Any], cuda: Any) -> tuple[Any, Any]:
    side = cuda.Stream()  # capturing on the default stream is not allowed, and warming up there would not be the same
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(_CALLS_BEFORE_CAPTURE):
            plain()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    broke_it: list[Exception] = []  # ending a broken capture raises, too, and hides what broke it
    try:
        with cuda.graph(graph):
            try:
                output = plain()
            except Exception as error:
                broke_it.append(error)
                raise
    except Exception as error:
        first = broke_it[0] if broke_it else error
        if reasons.out_of_memory(first, "cuda") is not None:
            with suppress(AttributeError):
                first.retire = True  # type: ignore[attr-defined]
            raise first from None
        raise Unsupported(f"CUDA graph: capture failed{_at(first)}: {reasons.of_error(first)}", retire=True) from error
    return graph, output


# --- the first call --------------------------------------------------------------------------------------------------


def _explained_at_first(call: Callable[[], Any], setting: SettingKey) -> Callable[[], Any]:
    """`call`, whose first failure is told as Unsupported where the setting is the cause."""
    succeeded = False

    def explained() -> Any:
        nonlocal succeeded
        if succeeded:
            return call()
        with warnings.catch_warnings(record=True) as told:  # torch says by a warning why an attention kernel is out
            warnings.simplefilter("always")
            try:
                output = call()
            except Exception as error:
                reason = _reason(error, setting, [str(item.message) for item in told])
                if reason is None:
                    raise
                raise Unsupported(reason) from error
        succeeded = True
        return output

    return explained


def _reason(error: Exception, setting: SettingKey, told: list[str]) -> str | None:
    """Why the attention backend or the cast cannot be run; None for what is not their fault."""
    if isinstance(error, Unsupported) or reasons.out_of_memory(error, "") is not None:
        return None
    if setting.sdp_backend != SDP_DEFAULT and any(text in str(error) for text in _NO_KERNEL):
        return f"{setting.sdp_backend} attention: " + (_why_no_kernel(setting.sdp_backend, told) or
                                                       reasons.of_error(error))
    if setting.execution == CAST:
        return f"cast weights to {setting.precision}{_at(error)}: {reasons.of_error(error)}"
    return None


def _why_no_kernel(backend: str, told: list[str]) -> str:
    """What torch warns of behind "Flash attention kernel not used because:", "" where it does not."""
    first_word = backend.split("_")[0]  # flash, mem(ory efficient), cudnn
    causes: list[str] = []
    listening = False
    for text in told:
        if "not used because" in text:
            listening = text.lower().startswith(first_word)
        elif listening:
            causes.append(text.split(" (Triggered")[0].strip())
    return " ".join(causes)


def _at(error: BaseException) -> str:
    """" at FILE:LINE" of the innermost frame outside torch and this module, base name only; "" without one."""
    library = str(Path(torch.__file__).parent)
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((library, "<")) and frame.filename != __file__
    ]
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
