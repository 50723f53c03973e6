"""Work of one op from the shapes of its arguments: matrix flops, other flops, bytes. Standard library only.

One set of formulas serves the counter in `cost.py` (which sees every argument and result) and the op table of a
profiled pass (which knows input shapes only, so `op_work` works the results out first).

Conventions (docs/method.md, "Work"):
- `flops`: matrix products and convolutions, one multiply-add = 2. Bias additions belong to `other_flops`.
- `other_flops`: one per output element of an element-wise op, whatever it costs in hardware; composed ops get the sum
  of their steps, named below. Moving data costs 0.
- `bytes`: every input read once and every result written once, views 0. An op that picks places (gather, grid_sample)
  reads the elements that it samples, at most the whole input. In-place ops read and write.
"""
from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BYTES_PER_ELEMENT: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}
_FLOATS = ("float64", "float32", "float16", "bfloat16")
# torch.profiler writes C++ names
_DTYPE_OF_NAME = {
    **{name: name for name in BYTES_PER_ELEMENT}, "double": "float64", "float": "float32", "half": "float16",
    "c10::half": "float16", "c10::bfloat16": "bfloat16", "long": "int64", "long int": "int64", "int": "int32",
    "short": "int16", "short int": "int16", "signed char": "int8", "char": "int8", "unsigned char": "uint8",
}
# what torch.profiler reports for a dtype argument: c10::ScalarType as a number
_DTYPE_OF_CODE = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
                  11: "bool", 15: "bfloat16"}


@dataclass(frozen=True)
class OpWork:
    """Work of one call. None: there is no formula for this op, or the arguments do not say."""

    flops: int | None
    other_flops: int | None
    bytes: int | None


UNKNOWN = OpWork(None, None, None)
NOTHING = OpWork(0, 0, 0)


@dataclass(frozen=True)
class TensorArgument:
    """A tensor as formulas see it. `dtype`: torch's name without `torch.`; one unknown to BYTES_PER_ELEMENT (complex,
    float8) makes `bytes` raise KeyError.
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes_per_element(self) -> int:
        return BYTES_PER_ELEMENT[self.dtype]

    @property
    def bytes(self) -> int:
        return self.elements * self.bytes_per_element


Argument = Any  # TensorArgument, list of TensorArgument, or a plain Python value; in the order of the op's schema


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- which op is what ------------------------------------------------------------------------------------------------

VIEWS = _names(
    "view _unsafe_view _reshape_alias permute transpose t numpy_t movedim swapaxes slice select narrow "
    "expand expand_as unsqueeze squeeze unbind split split_with_sizes tensor_split chunk as_strided alias detach "
    "diagonal unfold unflatten view_as view_as_real view_as_complex real imag lift_fresh broadcast_to broadcast_tensors"
)
ALLOCATIONS = _names("empty empty_like empty_strided empty_permuted new_empty new_empty_strided")
HOST_ONLY = _names(
    "size stride sym_size sym_stride sym_numel sym_storage_offset device layout is_pinned result_type is_nonzero "
    "resolve_conj resolve_neg"
)
NO_KERNEL = VIEWS | ALLOCATIONS | HOST_ONLY

MAYBE_VIEWS = _names("reshape reshape_as flatten contiguous to type_as")
"""Ops that are a view or a copy, depending on strides. `op_work` answers as for a copy: a caller that saw no kernel
under such an op writes NOTHING instead."""

MATRIX_PRODUCTS = _names("mm bmm matmul linear addmm baddbmm addbmm mv addmv dot")
CONVOLUTIONS = _names(
    "conv1d conv2d conv3d convolution _convolution cudnn_convolution mkldnn_convolution "
    "thnn_conv2d _slow_conv2d_forward convolution_overrideable"
)
ATTENTION = "scaled_dot_product_attention"

# Element-wise ops of several steps; sigmoid = negate, exp, add, divide; gelu = scale, erf, add, two products.
_COMPOSED = {"gelu": 5, "silu": 5, "sigmoid": 4, "softplus": 3, "lerp": 3, "addcmul": 3, "addcdiv": 3, "clamp": 2,
             "hardtanh": 2, "leaky_relu": 2, "elu": 3, "hardswish": 5, "hardsigmoid": 4, "mish": 6,
             "log_sigmoid": 4}
_COMPARISONS = _names("eq ne lt le gt ge logical_and logical_or logical_not isnan isinf isfinite")
_ONE_STEP = _names(
    "add sub rsub mul div true_divide floor_divide remainder fmod pow square sqrt rsqrt exp exp2 expm1 log log2 log1p "
    "sin cos tan asin acos atan atan2 sinh cosh tanh erf abs neg sign sgn reciprocal relu clamp_min clamp_max minimum "
    "maximum floor ceil round trunc frac bitwise_and bitwise_or bitwise_xor bitwise_not threshold"
)
ELEMENTWISE: Mapping[str, int] = {
    **_COMPOSED, **dict.fromkeys(_ONE_STEP, 1), **dict.fromkeys(_COMPARISONS, 1), "where": 0, "masked_fill": 0,
}

# Statistics 4 (sum; subtract, square, sum), normalise 2, scale and shift 2, for each element.
_NORM_FLOPS = 8
_NORM_WITHOUT_STATISTICS_FLOPS = 4
NORMS = _names(
    "instance_norm batch_norm native_batch_norm cudnn_batch_norm _native_batch_norm_legit _batch_norm_with_update "
    "_native_batch_norm_legit_functional group_norm native_group_norm layer_norm native_layer_norm"
)
_FROZEN_NORMS = frozenset(["_native_batch_norm_legit_no_training", "_batch_norm_no_update"])
_SOFTMAX_FLOPS = 5  # maximum, subtract, exp, sum, divide
SOFTMAX = _names("softmax _softmax log_softmax _log_softmax")
REDUCTIONS: Mapping[str, int] = {  # for each element of the input
    **dict.fromkeys(_names("sum mean amax amin max min argmax argmin prod any all cumsum nansum"), 1),
    "linalg_vector_norm": 2, "norm": 2, "var": 4, "std": 4, "var_mean": 4, "logsumexp": 4, "cumprod": 1,
    "_adaptive_avg_pool2d": 1, "_adaptive_avg_pool3d": 1,
}
_INDEX_RESULTS = frozenset(["argmax", "argmin"])
GRID_SAMPLERS = _names("grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler")
# How many places of the input a result is weighed from; 1: the nearest, which is no arithmetic.
UPSAMPLING = {"upsample_linear1d": 2, "upsample_bilinear2d": 4, "upsample_trilinear3d": 8, "upsample_bicubic2d": 16,
              "upsample_nearest1d": 1, "upsample_nearest2d": 1, "upsample_nearest3d": 1}
POOLING = _names("avg_pool1d avg_pool2d avg_pool3d max_pool2d max_pool2d_with_indices")
GATHERS = _names("gather index_select index embedding take take_along_dim")
_WHOLE_COPIES = _names("clone _to_copy contiguous to reshape reshape_as flatten type_as")
_JOINS = frozenset(["cat", "concat", "stack"])
_FILLS = _names(
    "fill zero zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full arange linspace eye "
    "rand randn randint randperm bernoulli normal uniform"
)
_OTHER_MOVES = _names(
    "copy repeat constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad2d replication_pad3d "
    "scalar_tensor flip roll tril triu im2col scatter index_put index_copy index_fill slice_scatter select_scatter "
    "_local_scalar_dense"
)
MOVES = _WHOLE_COPIES | _JOINS | _FILLS | GATHERS | _OTHER_MOVES
WRITES_FIRST_ARGUMENT = frozenset(["copy_", "fill_", "zero_"])
"""Ops whose first argument is overwritten without being read."""


def base_name(op: str) -> str:
    """`aten::add_` -> `add`: without name space and without the mark of an in-place op, lower case."""
    name = op.split("::")[-1].lower()
    if name.startswith("_scaled_dot_product"):  # the backends of attention
        return ATTENTION
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def is_known(op: str) -> bool:
    """Whether there is a formula for the flops of this op."""
    name = base_name(op)
    return (
        name == ATTENTION
        or name in ELEMENTWISE or name in REDUCTIONS or name in UPSAMPLING
        or any(name in family for family in (
            NO_KERNEL, MATRIX_PRODUCTS, CONVOLUTIONS, NORMS, _FROZEN_NORMS, SOFTMAX, GRID_SAMPLERS, POOLING, MOVES,
        ))
    )


# --- flops -----------------------------------------------------------------------------------------------------------


def op_flops(op: str, arguments: Sequence[Argument], results: Sequence[TensorArgument]) -> tuple[int, int] | None:
    """(flops, other_flops) of one call, None for an op without a formula.

    arguments: in the order of the op's schema. results: the tensors that it returns, the main one first.
    """
    name = base_name(op)
    if not is_known(op):
        return None
    if name in NO_KERNEL or name in MOVES or not results:
        return 0, 0
    out = results[0].elements
    if name in MATRIX_PRODUCTS:
        left, right = _factors(name, arguments)
        depth = right.shape[-1] if name == "linear" else left.shape[-1]
        batch = left.shape[0] if name == "addbmm" else 1  # sums over its batch
        bias = name.startswith("add") or name == "baddbmm" or (name == "linear" and _is_tensor(arguments, 2))
        return 2 * out * depth * batch, out if bias else 0
    if name in CONVOLUTIONS:
        source, weight = arguments[0], arguments[1]
        # every element of the result (of the input, if transposed) meets one filter: (out, in / groups, kernel...)
        places = source.elements if _is_transposed(name, arguments) else out
        return 2 * places * math.prod(weight.shape[1:]), out if _is_tensor(arguments, 2) else 0
    if name == ATTENTION:
        query, key, value = arguments[:3]
        pairs = math.prod(query.shape[:-1]) * key.shape[-2]
        mask = any(_is_tensor(arguments, i) for i in range(3, len(arguments)))
        return 2 * pairs * (query.shape[-1] + value.shape[-1]), pairs * (_SOFTMAX_FLOPS + 1 + int(mask))
    if name in ELEMENTWISE:
        return 0, ELEMENTWISE[name] * out
    # the sixth argument of batch and instance norms: statistics from the input (True) or given (False)
    given_statistics = name in _FROZEN_NORMS or (name in NORMS and _value(arguments, 5, True) is False)
    if name in NORMS and not given_statistics:
        return 0, _NORM_FLOPS * out
    if given_statistics:
        return 0, _NORM_WITHOUT_STATISTICS_FLOPS * out
    if name in SOFTMAX:
        return 0, _SOFTMAX_FLOPS * out
    if name in REDUCTIONS:
        return 0, REDUCTIONS[name] * _tensors(arguments)[0].elements
    if name in GRID_SAMPLERS:
        axes = arguments[1].shape[-1]
        places = math.prod(arguments[1].shape[:-1])
        if _value(arguments, 2, 0) != 0:  # nearest neighbour: unnormalise and round
            return 0, places * 4 * axes
        corners = 2**axes
        # for each place: unnormalise 3, floor 1, remainder 1 per axis; corner weights. For each element: weigh and sum.
        return 0, places * (5 * axes + corners * (axes - 1)) + out * (2 * corners - 1)
    if name in UPSAMPLING:
        places = UPSAMPLING[name]
        return 0, out * (2 * places - 1) if places > 1 else 0
    # pooling: each result looks at one window
    return 0, out * math.prod(_window(arguments, len(results[0].shape) - 2))


def _factors(name: str, arguments: Sequence[Argument]) -> tuple[TensorArgument, TensorArgument]:
    first = 1 if name.startswith("add") or name == "baddbmm" else 0
    return arguments[first], arguments[first + 1]


def _is_tensor(arguments: Sequence[Argument], index: int) -> bool:
    return index < len(arguments) and isinstance(arguments[index], TensorArgument)


def _value(arguments: Sequence[Argument], index: int, default: Any) -> Any:
    """A plain argument, the default where it is missing or not given."""
    value = arguments[index] if index < len(arguments) else None
    return default if value is None or isinstance(value, TensorArgument) else value


def _tensors(arguments: Sequence[Argument]) -> list[TensorArgument]:
    flat: list[TensorArgument] = []
    for argument in arguments:
        if isinstance(argument, TensorArgument):
            flat.append(argument)
        elif isinstance(argument, (list, tuple)):
            flat += [item for item in argument if isinstance(item, TensorArgument)]
    return flat


def _is_transposed(name: str, arguments: Sequence[Argument]) -> bool:
    return name in ("convolution", "_convolution", "convolution_overrideable") and bool(_value(arguments, 6, False))


def _window(arguments: Sequence[Argument], axes: int) -> list[int]:
    return _per_axis(_value(arguments, 1, 1), axes)


def _per_axis(value: Any, axes: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * axes if len(values) == 1 else values


# --- bytes -----------------------------------------------------------------------------------------------------------


def sampled_elements(op: str, source: TensorArgument, arguments: Sequence[Argument], results: Sequence[Any]) -> int:
    """How many elements an op reads from its first argument `source`: all, or those that it picks."""
    name = base_name(op)
    if name in GATHERS:
        return min(source.elements, results[0].elements)
    if name in GRID_SAMPLERS:
        corners = 1 if _value(arguments, 2, 0) == 1 else 2 ** arguments[1].shape[-1]
        return min(source.elements, corners * results[0].elements)
    return source.elements


def _op_bytes(op: str, arguments: Sequence[Argument], results: Sequence[TensorArgument]) -> int:
    inputs = _tensors(arguments)
    total = sum(result.bytes for result in results)
    if not inputs:
        return total
    first, rest = inputs[0], inputs[1:]
    total += sum(argument.bytes for argument in rest)
    if op.split("::")[-1] not in WRITES_FIRST_ARGUMENT:
        total += sampled_elements(op, first, arguments, results) * first.bytes_per_element
    return total


# --- from input shapes alone -----------------------------------------------------------------------------------------


def op_work(op: str, shapes: Sequence[Sequence[int]], dtypes: Sequence[str], scalars: Sequence[str]) -> OpWork:
    """Work of one call of a top-level op as torch.profiler reports it.

    op: `aten::conv2d`. shapes, dtypes, scalars: one entry per argument of the op's schema, as in the profiler's input
    shapes ([] for an argument that is no tensor), dtypes ("float", "c10::Half", "Scalar", "") and concrete inputs as
    text ("[2, 2]", "1", "" or "None" for a tensor). Trailing entries may be missing where they hold defaults.
    Ops of a list of tensors (cat, stack): every entry with a shape is taken as a tensor; where the profiler gave no
    shapes (torch 2.13 gives none for lists) the answer is UNKNOWN. Never raises.
    """
    name = base_name(op)
    if name in NO_KERNEL:
        return NOTHING
    if not is_known(op):
        return UNKNOWN
    arguments = [
        _argument(shapes[i] if i < len(shapes) else (), dtypes[i] if i < len(dtypes) else "",
                  scalars[i] if i < len(scalars) else "")
        for i in range(max(len(shapes), len(dtypes), len(scalars)))
    ]
    try:
        results = _results(op, name, arguments)
        if results is None:
            return UNKNOWN
        if name == "to" and results[0] == arguments[0]:
            return NOTHING  # a conversion to the dtype that it has
        counted = op_flops(op, arguments, results)
        if counted is None:
            return UNKNOWN
        return OpWork(*counted, _op_bytes(op, arguments, results))
    except (IndexError, TypeError, ValueError, KeyError, AttributeError):
        # Arguments in an unforeseen form: no formula applies, which is what "unknown" means.
        return UNKNOWN


def _argument(shape: Sequence[int], dtype: str, scalar: str) -> Argument:
    """A tensor (it has a dtype and a shape of at least one axis; a number wrapped in a tensor has none), or a value."""
    known = _DTYPE_OF_NAME.get(dtype.lower().removeprefix("torch."))
    if len(shape) and known:
        return TensorArgument(tuple(int(n) for n in shape), known)
    try:
        return ast.literal_eval(str(scalar).replace("true", "True").replace("false", "False"))
    except (ValueError, SyntaxError):
        return scalar if scalar and scalar != "None" else None


def _results(op: str, name: str, arguments: list[Argument]) -> list[TensorArgument] | None:
    """Results worked out from the arguments; None where they do not say."""
    inputs = _tensors(arguments)
    if not inputs:
        return _filled(name, arguments)
    first = inputs[0]
    if op.endswith("_") and not op.endswith("__"):
        return [first]
    if name in ELEMENTWISE:
        shape = _broadcast([tensor.shape for tensor in inputs])
        values = inputs[1:] if name == "where" and len(inputs) > 1 else inputs
        return [TensorArgument(shape, "bool" if name in _COMPARISONS else _widest(values))]
    builders: dict[str, Callable[[], list[TensorArgument] | None]] = {
        **dict.fromkeys(MATRIX_PRODUCTS, lambda: [_product(name, arguments)]),
        **dict.fromkeys(CONVOLUTIONS, lambda: [_convolved(name, arguments)]),
        ATTENTION: lambda: [TensorArgument((*arguments[0].shape[:-1], arguments[2].shape[-1]), first.dtype)],
        **dict.fromkeys(REDUCTIONS, lambda: [_reduced(name, arguments)]),
        **dict.fromkeys(GRID_SAMPLERS, lambda: [
            TensorArgument((*first.shape[:2], *arguments[1].shape[1:-1]), first.dtype)]),
        **dict.fromkeys(UPSAMPLING, lambda: None if not isinstance(_value(arguments, 1, None), list) else [
            TensorArgument((*first.shape[:2], *arguments[1]), first.dtype)]),
        **dict.fromkeys(POOLING, lambda: [_pooled(arguments)]),
        **dict.fromkeys(_JOINS, lambda: [TensorArgument((sum(tensor.elements for tensor in inputs),), first.dtype)]),
        **dict.fromkeys(("zeros_like", "ones_like", "full_like", "flip"), lambda: [first]),
        **dict.fromkeys(("new_zeros", "new_ones", "new_full"), lambda: [
            TensorArgument(tuple(arguments[1]), first.dtype)]),
        "repeat": lambda: [TensorArgument((first.elements * math.prod(arguments[1]),), first.dtype)],
        "constant_pad_nd": lambda: [_padded(first, arguments[1])],
        "pad": lambda: [_padded(first, arguments[1])],
        "gather": lambda: [TensorArgument(arguments[2].shape, first.dtype)],
        "take_along_dim": lambda: [TensorArgument(arguments[1].shape, first.dtype)],
        "take": lambda: [TensorArgument(arguments[1].shape, first.dtype)],
        "embedding": lambda: [TensorArgument((*arguments[1].shape, first.shape[-1]), first.dtype)],
        "index_select": lambda: [TensorArgument(
            (arguments[2].elements, first.elements // first.shape[arguments[1]]), first.dtype)],
        "index": lambda: None,  # its indices are a list of tensors
    }
    if name in ("to", "_to_copy", "type_as"):
        target = _value(arguments, 1, None)
        if len(inputs) > 1:
            return [TensorArgument(first.shape, inputs[1].dtype)]
        return [TensorArgument(first.shape, _DTYPE_OF_CODE.get(target, first.dtype) if isinstance(target, int)
                               else first.dtype)]
    if name in builders:
        return builders[name]()
    return [first]  # norms, softmax, whole copies


def _filled(name: str, arguments: list[Argument]) -> list[TensorArgument] | None:
    size = _value(arguments, 0, None)
    if name not in ("zeros", "ones", "full") or not isinstance(size, list):
        return None
    code = _value(arguments, 2 if name == "full" else 1, 6)
    return [TensorArgument(tuple(size), _DTYPE_OF_CODE.get(code, "float32"))]


def _widest(tensors: Sequence[TensorArgument]) -> str:
    """The dtype that wins a promotion: floats over integers, then more bytes."""
    return max(tensors, key=lambda tensor: (tensor.dtype in _FLOATS, tensor.bytes_per_element)).dtype


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    axes = max(len(shape) for shape in shapes)
    padded = [(1,) * (axes - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in column else max(column) for column in zip(*padded, strict=True))


def _product(name: str, arguments: list[Argument]) -> TensorArgument:
    left, right = _factors(name, arguments)
    if name == "linear":
        return TensorArgument((*left.shape[:-1], *right.shape[:-1]), left.dtype)
    if name == "addbmm":
        return TensorArgument((left.shape[-2], right.shape[-1]), left.dtype)
    rows = left.shape[-2:-1]
    columns = right.shape[-1:] if len(right.shape) > 1 else ()
    return TensorArgument((*_broadcast([left.shape[:-2], right.shape[:-2]]), *rows, *columns), left.dtype)


def _convolved(name: str, arguments: list[Argument]) -> TensorArgument:
    source, weight = arguments[0], arguments[1]
    axes = len(weight.shape) - 2
    stride = _per_axis(_value(arguments, 3, 1), axes)
    padding = _value(arguments, 4, 0)
    dilation = _per_axis(_value(arguments, 5, 1), axes)
    if name in ("cudnn_convolution", "mkldnn_convolution"):  # their order is padding before stride
        shift = 1 if name == "cudnn_convolution" else 0
        padding = _value(arguments, 3 - shift, 0)
        stride = _per_axis(_value(arguments, 4 - shift, 1), axes)
        dilation = _per_axis(_value(arguments, 5 - shift, 1), axes)
    if _is_transposed(name, arguments):
        extra = _per_axis(_value(arguments, 7, 0), axes)
        groups = _value(arguments, 8, 1)
        pad = _per_axis(padding, axes)
        sides = [
            (source.shape[2 + i] - 1) * stride[i] - 2 * pad[i] + dilation[i] * (weight.shape[2 + i] - 1) + extra[i] + 1
            for i in range(axes)
        ]
        return TensorArgument((source.shape[0], weight.shape[1] * groups, *sides), source.dtype)
    if padding == "same":
        sides = list(source.shape[2:])
    else:
        pad = [0] * axes if padding == "valid" else _per_axis(padding, axes)
        sides = [
            (source.shape[2 + i] + 2 * pad[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1
            for i in range(axes)
        ]
    return TensorArgument((source.shape[0], weight.shape[0], *sides), source.dtype)


def _pooled(arguments: list[Argument]) -> TensorArgument:
    source = arguments[0]
    axes = len(source.shape) - 2
    window = _window(arguments, axes)
    stride = _per_axis(_value(arguments, 2, []) or window, axes)
    padding = _per_axis(_value(arguments, 3, 0), axes)
    sides = [(source.shape[2 + i] + 2 * padding[i] - window[i]) // stride[i] + 1 for i in range(axes)]
    return TensorArgument((*source.shape[:2], *sides), source.dtype)


def _padded(source: TensorArgument, pad: Sequence[int]) -> TensorArgument:
    """`pad` names the last axis first: (left, right, top, bottom, ...)."""
    shape = list(source.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] += pad[2 * i] + pad[2 * i + 1]
    return TensorArgument(tuple(shape), source.dtype)


def _reduced(name: str, arguments: list[Argument]) -> TensorArgument:
    source = _tensors(arguments)[0]
    place = 2 if name in ("linalg_vector_norm", "norm") else 1
    axes = _value(arguments, place, None)
    if name == "sum" and isinstance(axes, int):  # sum(self, dtype): over everything
        axes = None
    dtype = "int64" if name in _INDEX_RESULTS else "bool" if name in ("any", "all") else source.dtype
    if name == "cumsum":
        return source
    if axes is None or axes == []:
        return TensorArgument((), dtype)
    dropped = {axis % len(source.shape) for axis in _per_axis(axes, 1)}
    return TensorArgument(tuple(n for i, n in enumerate(source.shape) if i not in dropped), dtype)
