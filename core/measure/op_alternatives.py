"""Other ways to compute the same op, made from its own arguments: nothing here knows a tracker or a card.

The text of a change begins with its kind, which says what it costs:
- `flag`, `backend`: a setting of the libraries, the arithmetic keeps its precision;
- `layout`, `contiguity`: the same values elsewhere in memory. Copies of inputs are timed, unless the text ends with
  "(copy not timed)": then the op before would have to write them so. Weights are always laid out beforehand;
- `rewriting`: an equal expression (padding and cropping, parts, another op); its copies are timed;
- `precision`: other arithmetic. Its results differ by more, and it is never counted as the same work.
Each is tried by the caller; one that cannot run on this device raises, which is an answer, too.
"""
from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from core.measure import precision
from core.measure.op_formulas import (
    ALLOCATIONS,
    ATTENTION,
    CONVOLUTIONS,
    ELEMENTWISE,
    GRID_SAMPLERS,
    MATRIX_PRODUCTS,
    MOVES,
    NORMS,
    SOFTMAX,
    UPSAMPLING,
    VIEWS,
    base_name,
)
from core.measure.op_replay import Call

FLAG, BACKEND, LAYOUT, CONTIGUITY, REWRITING, PRECISION = (
    "flag", "backend", "layout", "contiguity", "rewriting", "precision",
)
COPY_NOT_TIMED = "(copy not timed)"
PAD_MULTIPLES = (8, 16)
PARTS = (2, 4)
_UNFOLD_BYTES = 4 * 2**30  # im2col beyond this is no alternative
_ARITHMETIC = ("float64", "float32", "tf32", "float16", "bfloat16")  # finer to coarser
_MATH = MATRIX_PRODUCTS | CONVOLUTIONS | {ATTENTION}
_COMPUTES = _MATH | NORMS | SOFTMAX | GRID_SAMPLERS | set(UPSAMPLING) | set(ELEMENTWISE)

Thunk = Callable[[], Any]


@dataclass(frozen=True)
class Alternative:
    """One other way. `make` prepares it untimed and gives the function to time."""

    kind: str
    text: str
    make: Callable[[Call], Thunk]
    setting: Callable[[], AbstractContextManager[Any]] = nullcontext  # entered around the timed calls
    arithmetic: str | None = None  # key of TOLERANCE; None: that of the op itself
    own_process: bool = False  # cannot share a process with the op as it is

    @property
    def change(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Platform:
    """What decides which alternatives can exist at all."""

    on_cuda: bool
    capability: tuple[int, int] | None = None


def alternatives(call: Call, platform: Platform) -> list[Alternative]:
    """Every alternative that the op's arguments allow, each change once.

    Equal work that needs no new process comes first, since time may end before the last one.
    """
    name = base_name(call.op)
    found = _contiguity(name, call, platform) + _batch(name, call, platform)
    for names, generate in _REWRITINGS:
        if name in names:
            found += generate(name, call)
    found += _layouts(name, call, platform) + _backends(name, call, platform) + _flags(name, call, platform)
    found += _precisions(name, call, platform)
    found.sort(key=lambda alternative: alternative.own_process)
    return list({alternative.change: alternative for alternative in found}.values())


def own_arithmetic(call: Call, on_cuda: bool) -> str:
    """Key of TOLERANCE for the op as the tracker ran it."""
    used = [str(tensor.dtype).removeprefix("torch.") for tensor in call.tensors.values() if tensor.is_floating_point()]
    if call.autocasts:
        used.append(str(precision.AUTOCAST[call.precision]).removeprefix("torch."))
    name = base_name(call.op)
    if on_cuda and call.precision in ("tf32", "default") and name in _MATH:
        used.append("tf32")
    known = [dtype for dtype in used if dtype in _ARITHMETIC]
    return max(known, key=_ARITHMETIC.index) if known else "float32"


def coarser(first: str, second: str | None) -> str:
    return first if second is None else max(first, second, key=_ARITHMETIC.index)


# --- settings of the libraries ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _precision_set(name: str, back: str) -> Iterator[None]:
    precision.apply(name)
    try:
        yield
    finally:
        precision.apply(back)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Not torch.backends.mkldnn.flags, which also sets the precision of products."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextlib.contextmanager
def _cublaslt() -> Iterator[None]:
    choose = torch.backends.cuda.preferred_blas_library
    before = choose()
    choose("cublaslt")
    try:
        yield
    finally:
        choose(before)


@contextlib.contextmanager
def _attention_backend(wanted: str) -> Iterator[None]:
    """Only one backend of attention allowed; torch then raises when it cannot take the arguments."""
    cuda = torch.backends.cuda
    switches = {
        name: (getattr(cuda, f"{name}_sdp_enabled"), getattr(cuda, f"enable_{name}_sdp"))
        for name in ("flash", "mem_efficient", "math", "cudnn") if hasattr(cuda, f"enable_{name}_sdp")
    }
    before = {name: bool(ask()) for name, (ask, _) in switches.items()}
    for name, (_, enable) in switches.items():
        enable(name == wanted)
    try:
        yield
    finally:
        for name, (_, enable) in switches.items():
            enable(before[name])


def _same(call: Call) -> Thunk:
    return call.run


def _flags(name: str, call: Call, platform: Platform) -> list[Alternative]:
    found: list[Alternative] = []
    if not platform.on_cuda:
        if name in CONVOLUTIONS | MATRIX_PRODUCTS and hasattr(torch._C, "_set_mkldnn_enabled"):
            found.append(Alternative(FLAG, "oneDNN off", _same, _without_onednn))
        return found
    if name in CONVOLUTIONS:
        # cuDNN's plan for these arguments is kept once chosen, whatever the flag says later.
        found.append(Alternative(FLAG, "cudnn.benchmark on", _same, own_process=True))
        found.append(Alternative(FLAG, "cudnn.deterministic on", _same,
                                 lambda: _set(torch.backends.cudnn, "deterministic", True)))
    if name in CONVOLUTIONS | NORMS | GRID_SAMPLERS:
        found.append(Alternative(FLAG, "cuDNN off", _same, lambda: _set(torch.backends.cudnn, "enabled", False)))
    return found


def _backends(name: str, call: Call, platform: Platform) -> list[Alternative]:
    found: list[Alternative] = []
    if name == ATTENTION:
        labels = {"flash": "flash", "mem_efficient": "memory-efficient", "math": "math", "cudnn": "cuDNN"}
        for key, label in labels.items():
            if hasattr(torch.backends.cuda, f"enable_{key}_sdp") and (platform.on_cuda or key in ("flash", "math")):
                found.append(Alternative(BACKEND, f"{label} attention", _same,
                                         lambda key=key: _attention_backend(key)))  # type: ignore[misc]
    if platform.on_cuda and name in MATRIX_PRODUCTS and hasattr(torch.backends.cuda, "preferred_blas_library"):
        found.append(Alternative(BACKEND, "cuBLASLt preferred", _same, _cublaslt))
    return found


# --- arithmetic ------------------------------------------------------------------------------------------------------


def _cast(call: Call, dtype: torch.dtype) -> dict[str, Any]:
    def cast(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(dtype) if value.dtype in (torch.float32, torch.float16, torch.bfloat16) else value
        return type(value)(cast(item) for item in value) if isinstance(value, (list, tuple)) else value

    return {name: cast(value) for name, value in call.named.items() if name not in call.writes}


def _precisions(name: str, call: Call, platform: Platform) -> list[Alternative]:
    if name not in _COMPUTES or call.writes:
        return []
    tf32 = platform.on_cuda and (platform.capability or (0, 0)) >= precision.TF32_CAPABILITY
    found: list[Alternative] = []
    if call.autocasts:
        for other, dtype in precision.AUTOCAST.items():
            if other != call.precision:
                found.append(_without_autocast(f"{_short(dtype)} inputs (casts not timed)", dtype))
        found.append(_without_autocast("float32 instead of autocast (casts not timed)", torch.float32))
        return found
    if not any(tensor.dtype == torch.float32 for tensor in call.tensors.values()):
        return []
    if tf32 and call.precision in ("fp32", "default") and name in _MATH:
        own = call.precision
        found.append(Alternative(PRECISION, "TF32 on", _same, lambda: _precision_set("tf32", own), arithmetic="tf32"))
    if tf32 and call.precision in ("tf32", "default") and name in _MATH:
        own = call.precision
        found.append(Alternative(PRECISION, "TF32 off", _same, lambda: _precision_set("fp32", own)))
    for dtype in precision.AUTOCAST.values():
        found.append(_without_autocast(f"{_short(dtype)} inputs (casts not timed)", dtype))
    return found


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _without_autocast(text: str, dtype: torch.dtype) -> Alternative:
    def make(call: Call) -> Thunk:
        changed = _cast(call, dtype)

        def run() -> Any:
            with torch.autocast(call.device.type, enabled=False):
                return call.run(**changed)

        return run if call.autocasts else lambda: call.run(**changed)

    return Alternative(PRECISION, text, make, arithmetic=_short(dtype))


# --- memory ----------------------------------------------------------------------------------------------------------


def _formats(tensor: Tensor) -> torch.memory_format | None:
    return {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())


def _layouts(name: str, call: Call, platform: Platform) -> list[Alternative]:
    """channels_last for ops of feature maps; the way back where they come in channels_last already."""
    if name not in CONVOLUTIONS | NORMS | GRID_SAMPLERS | set(UPSAMPLING) or call.writes:
        return []
    main = _main_input(call)
    if main is None:
        return []
    tensor = call.named[main]
    other = _formats(tensor)
    if other is None:
        return []
    if tensor.is_contiguous(memory_format=other):
        return []  # the way back is among the changes of contiguity

    def weights(call: Call) -> dict[str, Tensor]:
        weight = call.tensors.get("weight")
        fits = weight is not None and weight.dim() == tensor.dim()
        return {"weight": call.named["weight"].contiguous(memory_format=other)} if fits else {}

    def timed(call: Call) -> Thunk:
        laid_out = weights(call)
        return lambda: call.run(**laid_out, **{main: call.named[main].contiguous(memory_format=other)})

    def untimed(call: Call) -> Thunk:
        laid_out, copy = weights(call), call.named[main].contiguous(memory_format=other)
        return lambda: call.run(**laid_out, **{main: copy})

    return [Alternative(LAYOUT, "channels_last", timed),
            Alternative(LAYOUT, f"channels_last {COPY_NOT_TIMED}", untimed)]


def _main_input(call: Call) -> str | None:
    """The first tensor argument: the data, where the others are weights or a grid."""
    return next(iter(call.tensors), None)


def _contiguity(name: str, call: Call, platform: Platform) -> list[Alternative]:
    """Inputs copied together first. Not for ops that are such a copy themselves."""
    if name in MOVES | VIEWS | ALLOCATIONS:
        return []
    strided = [key for key, tensor in call.tensors.items() if not tensor.is_contiguous() and key not in call.writes]
    if not strided:
        return []

    def timed(call: Call) -> Thunk:
        return lambda: call.run(**{key: call.named[key].contiguous() for key in strided})

    def untimed(call: Call) -> Thunk:
        copies = {key: call.named[key].contiguous() for key in strided}
        return lambda: call.run(**copies)

    which = " and ".join(strided)
    return [Alternative(CONTIGUITY, f"{which} made contiguous", timed),
            Alternative(CONTIGUITY, f"{which} made contiguous {COPY_NOT_TIMED}", untimed)]


# --- batch -----------------------------------------------------------------------------------------------------------


def batched_arguments(name: str, call: Call) -> tuple[str, ...]:
    """Arguments whose first axis counts independent items, as the result's does; () where there is no such axis."""
    tensors = call.tensors
    if call.writes or not tensors:
        return ()
    main = next(iter(tensors))
    data = tensors[main]
    if data.dim() < 2 or data.shape[0] < 2:
        return ()
    items = data.shape[0]
    if name in CONVOLUTIONS:
        weight = tensors.get("weight")
        return (main,) if weight is not None and data.dim() == weight.dim() else ()
    if name == "linear" or name in UPSAMPLING or name == "gelu":
        return (main,)
    if name in ("matmul", "bmm", "mm"):
        other = [key for key in tensors if key != main][-1]
        right = tensors[other]
        if right.dim() < data.dim() or (right.dim() > 2 and right.shape[0] == 1 and right.dim() == data.dim()):
            return (main,)
        same = right.dim() == data.dim() > 2 and right.shape[0] == items
        return (main, other) if same else (main,) if name == "mm" else ()
    if name == ATTENTION:
        keys = [key for key in ("query", "key", "value") if tensors[key].shape[0] == items]
        mask = tensors.get("attn_mask")
        if mask is not None and mask.dim() == data.dim() and mask.shape[0] == items:
            keys.append("attn_mask")
        return tuple(keys) if len(keys) >= 3 else ()
    if name in GRID_SAMPLERS:
        return (main, "grid") if "grid" in tensors else ()
    if name in SOFTMAX:
        return (main,) if call.named.get("dim", 0) % data.dim() != 0 else ()
    if name == "layer_norm":
        return (main,) if len(call.named["normalized_shape"]) < data.dim() else ()
    if name == "group_norm":
        return (main,)
    if name == "instance_norm":
        alone = call.named.get("use_input_stats", False) and call.named.get("running_mean") is None
        return (main,) if alone else ()
    return ()


def _batch(name: str, call: Call, platform: Platform) -> list[Alternative]:
    keys = batched_arguments(name, call)
    if not keys:
        return []
    items = call.tensors[keys[0]].shape[0]
    found: list[Alternative] = []
    for index, padded in enumerate(dict.fromkeys(math.ceil(items / multiple) * multiple for multiple in PAD_MULTIPLES)):
        if not items < padded <= 2 * items:
            continue
        found.append(Alternative(REWRITING, f"batch padded from {items} to {padded} and cropped",
                                 _padded_batch(keys, padded - items, timed=True)))
        if index == 0:
            found.append(Alternative(REWRITING, f"batch padded from {items} to {padded} and cropped {COPY_NOT_TIMED}",
                                     _padded_batch(keys, padded - items, timed=False)))
    for parts in PARTS:
        if items >= 2 * parts:
            found.append(Alternative(REWRITING, f"batch in {parts} parts", _in_parts(keys, parts)))
    return found


def _padded_batch(keys: Sequence[str], extra: int, timed: bool) -> Callable[[Call], Thunk]:
    """Items of the batch itself fill it up: zeros could meet a division, and the layout stays as it is."""
    def make(call: Call) -> Thunk:
        items = call.tensors[keys[0]].shape[0]

        def fill() -> dict[str, Tensor]:
            return {key: torch.cat([call.named[key], call.named[key][:extra]]) for key in keys}

        if timed:
            return lambda: call.run(**fill())[:items]
        filled = fill()
        return lambda: call.run(**filled)[:items]

    return make


def _in_parts(keys: Sequence[str], parts: int) -> Callable[[Call], Thunk]:
    def make(call: Call) -> Thunk:
        def run() -> Tensor:
            pieces = [call.named[key].chunk(parts) for key in keys]
            return torch.cat([call.run(**dict(zip(keys, row, strict=True))) for row in zip(*pieces, strict=True)])

        return run

    return make


# --- rewritings of single ops ----------------------------------------------------------------------------------------


def _convolution(name: str, call: Call) -> list[Alternative]:
    if name not in ("conv1d", "conv2d", "conv3d") or isinstance(call.named["padding"], str):
        return []
    data, weight = call.named["input"], call.named["weight"]
    axes = weight.dim() - 2
    if data.dim() != weight.dim():
        return []
    groups = int(call.named["groups"])
    stride, padding, dilation = (_per_axis(call.named[key], axes) for key in ("stride", "padding", "dilation"))
    found: list[Alternative] = []
    if groups == 1:
        found += _padded_channels(call)
        if math.prod(weight.shape[2:]) == 1 and not any(padding):
            found.append(Alternative(REWRITING, "1x1 convolution as a matrix product", _pointwise(stride)))
        elif axes == 2:
            places = data.shape[0] * math.prod(_sides(data, weight, stride, padding, dilation))
            if places * math.prod(weight.shape[1:]) * weight.element_size() <= _UNFOLD_BYTES:
                unfolded = _unfolded(tuple(stride), tuple(padding), tuple(dilation))
                found.append(Alternative(REWRITING, "im2col and a matrix product", unfolded))
    if axes == 1:
        found.append(Alternative(REWRITING, "1-D convolution as a 2-D one", _as_two_axes(stride, padding, dilation)))
    return found


def _per_axis(value: Any, axes: int) -> list[int]:
    values = [int(item) for item in value] if isinstance(value, (list, tuple)) else [int(value)]
    return values * axes if len(values) == 1 else values


def _sides(
    data: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    return [
        (data.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(len(stride))
    ]


def _up_to(value: int, multiple: int = 8) -> int:
    return math.ceil(value / multiple) * multiple


def _padded_channels(call: Call) -> list[Alternative]:
    weight = call.named["weight"]
    outside, inside = weight.shape[:2]
    more_inside, more_outside = _up_to(inside) - inside, _up_to(outside) - outside
    if not more_inside and not more_outside:
        return []

    def make(call: Call) -> Thunk:
        weight, bias = call.named["weight"], call.named.get("bias")
        spread = [0, 0] * (weight.dim() - 2)
        wide = F.pad(weight, [*spread, 0, more_inside, 0, more_outside])
        longer = None if bias is None else F.pad(bias, [0, more_outside])

        def run() -> Tensor:
            data = call.named["input"]
            if more_inside:
                data = F.pad(data, [*spread, 0, more_inside])
            return call.run(input=data, weight=wide, bias=longer)[:, :outside]

        return run

    parts = [f"{side} from {old} to {old + more}" for side, old, more in
             (("in", inside, more_inside), ("out", outside, more_outside)) if more]
    return [Alternative(REWRITING, f"channels padded ({', '.join(parts)}) and cropped", make)]


def _pointwise(stride: list[int]) -> Callable[[Call], Thunk]:
    def make(call: Call) -> Thunk:
        weight, bias = call.named["weight"], call.named.get("bias")
        matrix = weight.flatten(1)  # (out, in)
        steps = (slice(None), slice(None), *(slice(None, None, step) for step in stride))

        def run() -> Tensor:
            data = call.named["input"][steps]
            flat = data.flatten(2)
            out = torch.matmul(matrix, flat)
            if bias is not None:
                out = out + bias[:, None].to(out.dtype)
            return out.view(out.shape[0], out.shape[1], *data.shape[2:])

        return run

    return make


def _unfolded(
    stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> Callable[[Call], Thunk]:
    def make(call: Call) -> Thunk:
        weight, bias = call.named["weight"], call.named.get("bias")
        matrix, window = weight.flatten(1), tuple(weight.shape[2:])
        sides = _sides(call.named["input"], weight, stride, padding, dilation)

        def run() -> Tensor:
            columns = F.unfold(call.named["input"], window, dilation, padding, stride)
            out = torch.matmul(matrix, columns)
            if bias is not None:
                out = out + bias[:, None].to(out.dtype)
            return out.view(out.shape[0], out.shape[1], *sides)

        return run

    return make


def _as_two_axes(stride: list[int], padding: list[int], dilation: list[int]) -> Callable[[Call], Thunk]:
    def make(call: Call) -> Thunk:
        weight = call.named["weight"].unsqueeze(2)
        groups = int(call.named["groups"])
        return lambda: F.conv2d(call.named["input"].unsqueeze(2), weight, call.named.get("bias"), [1, *stride],
                                [0, *padding], [1, *dilation], groups).squeeze(2)

    return make


def _linear(name: str, call: Call) -> list[Alternative]:
    data, weight = call.named["input"], call.named["weight"]
    if weight.dim() != 2 or data.dim() < 2:
        return []

    def product_and_sum(call: Call) -> Thunk:
        weight, bias = call.named["weight"], call.named.get("bias")

        def run() -> Tensor:
            data = call.named["input"]
            out = torch.mm(data.reshape(-1, data.shape[-1]), weight.t())
            if bias is not None:
                out = out + bias.to(out.dtype)
            return out.view(*data.shape[:-1], weight.shape[0])

        return run

    def transposed(call: Call) -> Thunk:
        columns, bias = call.named["weight"].t().contiguous(), call.named.get("bias")

        def run() -> Tensor:
            out = torch.matmul(call.named["input"], columns)
            return out if bias is None else out + bias.to(out.dtype)

        return run

    found = [Alternative(REWRITING, "linear as a matrix product and a sum", product_and_sum),
             Alternative(REWRITING, "linear with its weight stored transposed", transposed)]
    outside, inside = weight.shape
    more_inside, more_outside = _up_to(inside) - inside, _up_to(outside) - outside
    if more_inside or more_outside:
        def padded(call: Call) -> Thunk:
            weight, bias = call.named["weight"], call.named.get("bias")
            wide = F.pad(weight, [0, more_inside, 0, more_outside])
            longer = None if bias is None else F.pad(bias, [0, more_outside])

            def run() -> Tensor:
                data = call.named["input"]
                if more_inside:
                    data = F.pad(data, [0, more_inside])
                return F.linear(data, wide, longer)[..., :outside]

            return run

        found.append(Alternative(
            REWRITING, f"features padded to a multiple of 8 ({inside}x{outside} to {_up_to(inside)}x{_up_to(outside)})",
            padded,
        ))
    return found


def _product(name: str, call: Call) -> list[Alternative]:
    keys = list(call.tensors)
    if len(keys) != 2:
        return []
    left_key, right_key = keys
    left, right = call.tensors[left_key], call.tensors[right_key]
    if left.dim() < 2 or right.dim() < 2:
        return []
    found: list[Alternative] = []
    depth, columns = right.shape[-2:]

    def swapped(call: Call) -> Thunk:
        return lambda: torch.matmul(call.named[right_key].transpose(-1, -2),
                                    call.named[left_key].transpose(-1, -2)).transpose(-1, -2)

    found.append(Alternative(REWRITING, "product of the transposed factors in the other order", swapped))
    outer = right.shape[:-2]
    # The same right factor for every item of the left one.
    shared = all(size == 1 or stride == 0 for size, stride in zip(outer, right.stride(), strict=False))
    if shared and left.dim() > 2 and torch.broadcast_shapes(left.shape[:-2], outer) == left.shape[:-2]:
        def folded(call: Call) -> Thunk:
            def run() -> Tensor:
                left, right = call.named[left_key], call.named[right_key]
                while right.dim() > 2:
                    right = right[0]
                out = torch.mm(left.reshape(-1, depth), right)
                return out.view(*left.shape[:-1], columns)

            return run

        found.append(Alternative(REWRITING, "batch folded into the rows of one matrix product", folded))
    if left.dim() == right.dim() == 4:
        def three_axes(call: Call) -> Thunk:
            def run() -> Tensor:
                left, right = call.named[left_key], call.named[right_key]
                shape = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
                out = torch.bmm(left.expand(*shape, *left.shape[-2:]).flatten(0, 1),
                                right.expand(*shape, *right.shape[-2:]).flatten(0, 1))
                return out.view(*shape, *out.shape[-2:])

            return run

        found.append(Alternative(REWRITING, "matmul as one batched product", three_axes))
    pads = {"rows": _up_to(left.shape[-2]) - left.shape[-2], "depth": _up_to(depth) - depth,
            "columns": _up_to(columns) - columns}
    if any(pads.values()):
        def padded(call: Call) -> Thunk:
            def run() -> Tensor:
                left = F.pad(call.named[left_key], [0, pads["depth"], 0, pads["rows"]])
                right = F.pad(call.named[right_key], [0, pads["columns"], 0, pads["depth"]])
                rows = call.named[left_key].shape[-2]
                return call.run(**{left_key: left, right_key: right})[..., :rows, :columns]

            return run

        found.append(Alternative(REWRITING, "matrices padded to multiples of 8 and cropped", padded))
    return found


def _attention(name: str, call: Call) -> list[Alternative]:
    query, value = call.named["query"], call.named["value"]
    head = query.shape[-1]
    scale = call.named.get("scale") or 1 / math.sqrt(head)
    if call.named.get("dropout_p"):
        return []

    def written_out(call: Call) -> Thunk:
        causal = bool(call.named.get("is_causal"))

        def run() -> Tensor:
            query, key, value = (call.named[part] for part in ("query", "key", "value"))
            mask = call.named.get("attn_mask")
            score = torch.matmul(query * scale, key.transpose(-1, -2))
            if causal:
                later = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).triu(1)
                score = score.masked_fill(later, -math.inf)
            if mask is not None:
                score = score.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else score + mask
            return torch.matmul(score.softmax(-1), value)

        return run

    found = [Alternative(REWRITING, "attention written out as two products and a softmax", written_out)]
    if head % 8 or value.shape[-1] % 8:
        def padded(call: Call) -> Thunk:
            def run() -> Tensor:
                wide = {part: F.pad(call.named[part], [0, _up_to(call.named[part].shape[-1])
                                                       - call.named[part].shape[-1]])
                        for part in ("query", "key", "value")}
                return call.run(**wide, scale=scale)[..., : value.shape[-1]]

            return run

        found.append(Alternative(REWRITING, f"head size padded from {head} to {_up_to(head)} and cropped", padded))
    mask = call.named.get("attn_mask")
    if mask is not None and mask.shape[-1] % 8:
        # Some kernels want rows of the mask that begin on 16 bytes: the same values, a longer memory behind them.
        def aligned(call: Call) -> Thunk:
            mask = call.named["attn_mask"]
            length = mask.shape[-1]
            copy = F.pad(mask, [0, _up_to(length) - length])[..., :length]
            return lambda: call.run(attn_mask=copy)

        found.append(Alternative(REWRITING, "rows of the mask aligned to 8 elements", aligned))
    return found


def _softmax(name: str, call: Call) -> list[Alternative]:
    data = next(iter(call.tensors.values()))
    axis = int(call.named.get("dim", -1))
    if data.dim() < 2 or axis % data.dim() == data.dim() - 1:
        return []
    key = next(iter(call.tensors))

    def make(call: Call) -> Thunk:
        return lambda: call.run(**{key: call.named[key].movedim(axis, -1).contiguous(), "dim": -1}).movedim(-1, axis)

    return [Alternative(REWRITING, "softmax over a contiguous last axis", make)]


def _instance_norm(name: str, call: Call) -> list[Alternative]:
    if not batched_arguments(name, call) and call.named["input"].shape[0] > 1:
        return []
    if not call.named.get("use_input_stats", False):
        return []

    def as_group_norm(call: Call) -> Thunk:
        data = call.named["input"]
        return lambda: F.group_norm(call.named["input"], data.shape[1], call.named.get("weight"),
                                    call.named.get("bias"), float(call.named["eps"]))

    def written_out(call: Call) -> Thunk:
        eps = float(call.named["eps"])
        channels = (1, -1, *([1] * (call.named["input"].dim() - 2)))

        def run() -> Tensor:
            data = call.named["input"]
            variance, mean = torch.var_mean(data, dim=tuple(range(2, data.dim())), keepdim=True, correction=0)
            scale = torch.rsqrt(variance + eps)
            weight, bias = call.named.get("weight"), call.named.get("bias")
            if weight is not None:
                scale = scale * weight.view(channels)
            shift = -mean * scale
            if bias is not None:
                shift = shift + bias.view(channels)
            return torch.addcmul(shift, data, scale)

        return run

    return [Alternative(REWRITING, "instance norm as group norm of single channels", as_group_norm),
            Alternative(REWRITING, "instance norm written out (var_mean, addcmul)", written_out)]


def _group_norm(name: str, call: Call) -> list[Alternative]:
    def written_out(call: Call) -> Thunk:
        eps, groups = float(call.named["eps"]), int(call.named["num_groups"])

        def run() -> Tensor:
            data = call.named["input"]
            parts = data.reshape(data.shape[0], groups, -1)
            out = F.layer_norm(parts, [parts.shape[-1]], None, None, eps).view(data.shape)
            channels = (1, -1, *([1] * (data.dim() - 2)))
            weight, bias = call.named.get("weight"), call.named.get("bias")
            if weight is not None:
                out = out * weight.view(channels)
            return out if bias is None else out + bias.view(channels)

        return run

    return [Alternative(REWRITING, "group norm as layer norm, scale and shift", written_out)]


def _einsum(name: str, call: Call) -> list[Alternative]:
    equation, operands = str(call.named["equation"]), call.named["tensors"]
    if len(operands) != 2 or "." in equation or "->" not in equation:
        return []
    inputs, result = equation.replace(" ", "").split("->")
    first, second = inputs.split(",")

    def make(call: Call) -> Thunk:
        def run() -> Tensor:
            left, right = call.named["tensors"]
            return torch.einsum(f"{second},{first}->{result}", right, left)

        return run

    return [Alternative(REWRITING, "einsum with its factors in the other order", make)]


_REWRITINGS: tuple[tuple[frozenset[str] | set[str], Callable[[str, Call], list[Alternative]]], ...] = (
    (CONVOLUTIONS, _convolution),
    ({"linear"}, _linear),
    ({"matmul", "bmm", "mm"}, _product),
    ({ATTENTION}, _attention),
    (SOFTMAX, _softmax),
    ({"instance_norm"}, _instance_norm),
    ({"group_norm"}, _group_norm),
    ({"einsum"}, _einsum),
)
