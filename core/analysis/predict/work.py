"""What an operation has to do, read from its name and shapes: its class, its sizes, flops and bytes of one call.

Classes: matmul, conv (3x3, stride 1), conv_other, softmax, layer_norm, elementwise, other. Operations without a class
of their own are `other` and are judged by flops and bytes alone. Names are ATen names (`aten::addmm`) or the class
names of the timing data (`linear`, `bmm`, `conv`, `ln`, `addu`: a trailing u has a scalar operand).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from core.errors import UserError

PRECISION_OF_DTYPE = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "f32": "fp32", "single": "fp32",
    "tf32": "tf32", "default": "default",
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bf16": "bf16", "bfloat16": "bf16",
    "fp64": "fp64", "float64": "fp64", "double": "fp64",
}  # fmt: skip
# Operands that are no floating-point numbers: such an operation moves bytes at any precision.
_WHOLE_NUMBERS = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int": 4, "int64": 8, "long": 8}
ITEM_BYTES = {"fp32": 4, "tf32": 4, "default": 4, "fp16": 2, "bf16": 2, "fp64": 8}

MATMUL = {"linear": "linear", "addmm": "linear", "mm": "linear", "matmul": "linear", "bmm": "bmm", "baddbmm": "bmm"}
CONVOLUTION = ("conv", "conv1d", "conv2d", "conv3d", "convolution", "cudnn_convolution", "_convolution")
NORMALISATION = {
    "softmax": "softmax", "_softmax": "softmax", "log_softmax": "softmax", "_log_softmax": "softmax",
    "layer_norm": "ln", "native_layer_norm": "ln", "ln": "ln",
}  # fmt: skip
# Name -> tensors that are read and written at the size of the output; the scalar variants read one tensor.
ELEMENTWISE = {
    "add": 3, "sub": 3, "mul": 3, "div": 3, "pow": 3, "addu": 2, "subu": 2, "mulu": 2, "divu": 2, "powu": 2,
    "gelu": 2, "relu": 2, "tanh": 2, "sigmoid": 2, "silu": 2, "exp": 2, "sqrt": 2, "rsqrt": 2, "neg": 2, "abs": 2,
    "clamp": 2, "clamp_min": 2, "leaky_relu": 2, "sin": 2, "cos": 2, "copy": 2, "clone": 2, "contiguous": 2, "to": 2,
    "where": 3, "masked_fill": 2, "cat": 2, "stack": 2, "reshape": 2,
}  # fmt: skip
MODEL_CLASSES = ("matmul", "conv", "conv_other", "softmax", "layer_norm", "elementwise", "other")


@dataclass(frozen=True)
class Work:
    """One call of one operation. Products are `batch` times (m x k) by (k x n); a convolution is one product with
    m = output channels / groups, n = output pixels, k = input channels / groups x kernel."""

    op_class: str
    floor_op: str  # the operation of the timing data whose host time is taken
    flops: float
    bytes: float
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    batch: float = 1.0
    m: float = 1.0
    n: float = 1.0
    k: float = 1.0
    side: float = 1.0  # convolution: square root of the pixels of one output image
    images: float = 1.0
    rows: float = 1.0  # softmax, layer norm: rows of `width`
    width: float = 1.0


def plain_name(op: str) -> str:
    """`aten::add_.Tensor` -> `add`."""
    return op.split("::")[-1].split(".")[0].rstrip("_") or op


def precision_of(dtype: object) -> str:
    """The precision that a dtype names. Missing is fp32. A list takes its first floating-point entry.

    Raises UserError for a name that is no dtype known here.
    """
    if isinstance(dtype, (list, tuple, np.ndarray)):
        names = [str(part) for part in dtype if str(part).lower() not in ("", "none", "scalar", "scalarlist")]
        floating = [name for name in names if _folded(name) not in _WHOLE_NUMBERS]
        return precision_of(floating[0]) if floating else "fp32"
    if dtype is None or dtype is pd.NA or (isinstance(dtype, float) and math.isnan(dtype)) or dtype == "":
        return "fp32"
    text = str(dtype)
    if text.startswith("["):
        return precision_of(_parsed(text))
    name = _folded(text)
    if name in _WHOLE_NUMBERS:
        return "fp32"
    if name not in PRECISION_OF_DTYPE:
        raise UserError(f'precision "{text}" is unknown', f"one of {', '.join(ITEM_BYTES)}", "")
    return PRECISION_OF_DTYPE[name]


def _folded(name: str) -> str:
    return name.split(".")[-1].strip().lower()


def _parsed(value: object) -> list[object]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return []
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []


def _sizes(shapes: object) -> list[list[int]]:
    """Tensor shapes; a flat list of numbers is the shape of one tensor. Anything else is unknown and left out."""
    parts = _parsed(shapes)
    if parts and all(isinstance(part, (int, float, np.integer, np.floating)) for part in parts):
        parts = [parts]
    sizes = []
    for part in parts:
        if isinstance(part, (Sequence, np.ndarray)) and not isinstance(part, str):
            numbers = list(part)
            if all(isinstance(n, (int, float, np.integer, np.floating)) and n >= 0 for n in numbers):
                sizes.append([int(n) for n in numbers])
    return sizes


def _count(size: Sequence[int]) -> int:
    return math.prod(size)


def read_work(
    op: str, shapes: object, precision: str, flops: float | None, bytes_: float | None, scalars: object = None
) -> Work | None:
    """The work of one call; None where neither the shapes nor flops nor bytes say what it is.

    `flops` and `bytes_` of one call win over what the shapes give, where both are known.
    """
    name = plain_name(op)
    sizes = _sizes(shapes)
    found = _from_shapes(name, sizes, ITEM_BYTES[precision], scalars) if sizes else None
    if found is None:
        if not flops and not bytes_:
            moved = sum(map(_count, sizes)) * ITEM_BYTES[precision]
            return Work("other", "add", 0.0, float(moved)) if moved and sizes else None
        kind = "elementwise" if name in ELEMENTWISE else "other"
        return Work(kind, _floor_op(name), flops or 0.0, bytes_ or 0.0, rows=1.0, width=1.0)
    if not bytes_ and not flops:
        return found
    replaced = {**found.__dict__, "bytes": bytes_ or found.bytes}
    if flops and found.op_class in ("conv_other", "other"):
        replaced["flops"] = flops
    return Work(**replaced)


def _floor_op(name: str) -> str:
    if name in MATMUL:
        return MATMUL[name]
    if name in NORMALISATION:
        return NORMALISATION[name]
    return "conv" if name in CONVOLUTION else name


def _from_shapes(name: str, sizes: list[list[int]], item: int, scalars: object) -> Work | None:
    if name in MATMUL:
        return _product(name, sizes, item)
    if name in CONVOLUTION:
        return _convolution(name, sizes, item, scalars)
    first = sizes[0]
    if name in NORMALISATION and first and _count(first):
        width = first[-1]
        moved = 2.0 * _count(first) * item
        kind = "softmax" if NORMALISATION[name] == "softmax" else "layer_norm"
        return Work(
            kind, NORMALISATION[name], 0.0, moved, moved / 2, moved / 2, rows=_count(first) / width, width=width
        )
    if name in ELEMENTWISE:
        return _elementwise(name, sizes, item)
    return None


def _product(name: str, sizes: list[list[int]], item: int) -> Work | None:
    """`linear` takes (.., in) and (out, in); `addmm` and `baddbmm` lead with the bias."""
    operands = sizes[1:] if name in ("addmm", "baddbmm") and len(sizes) > 2 else sizes
    if len(operands) < 2:
        return _listed_product(name, sizes, item)
    a, b = operands[0], operands[1]
    if not a or not b or not _count(a) or not _count(b):
        return None
    k = a[-1]
    if name == "linear":
        n, batch, m = _count(b) / k, 1.0, _count(a) / k
    elif len(b) <= 2:
        n, batch, m = b[-1] if len(b) == 2 else 1, 1.0, _count(a) / k
    else:
        batch = float(max(_count(a[:-2]), _count(b[:-2])))
        n, m = b[-1], a[-2] if len(a) > 1 else 1
    kind = "bmm" if batch > 1 or name in ("bmm", "baddbmm") else "linear"
    return _product_of(kind, batch, float(m), float(n), float(k), item)


def _product_of(kind: str, batch: float, m: float, n: float, k: float, item: int) -> Work:
    read, written = batch * (m * k + k * n) * item, batch * m * n * item
    return Work("matmul", kind, 2 * batch * m * n * k, read + written, read, written, batch, m, n, k)


def _listed_product(name: str, sizes: list[list[int]], item: int) -> Work | None:
    """One list [batch, m, n, k] as the timing data have it: n is summed over there and k is an output size."""
    if len(sizes) != 1 or len(sizes[0]) != 4 or min(sizes[0]) < 1:
        return None
    batch, m, summed, out = sizes[0]
    return _product_of(MATMUL[name], float(batch), float(m), float(out), float(summed), item)


def _numbers(part: object) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", str(part))]


def _convolution(name: str, sizes: list[list[int]], item: int, scalars: object) -> Work | None:
    """conv2d(input (b, c, *image), weight (out, c / groups, *kernel)); scalars: stride, padding, dilation, groups."""
    if len(sizes) == 1 and len(sizes[0]) >= 5:  # [batch, cin, cout, kernel, size] as the timing data have it
        b, c, out, kernel, side = sizes[0][:5]
        sizes = [[b, c, side, side], [out, c, kernel, kernel]]
        scalars = [[1], [kernel // 2], [1], 1]
    if len(sizes) < 2 or len(sizes[0]) < 3 or len(sizes[1]) != len(sizes[0]):
        return None
    image, weight = sizes[0], sizes[1]
    dims = len(image) - 2
    given = [numbers for numbers in map(_numbers, _parsed(scalars)) if numbers]
    lists = [
        numbers
        for numbers, part in zip(given, [p for p in _parsed(scalars) if _numbers(p)], strict=True)
        if str(part).startswith(("[", "("))
    ]

    def spread(numbers: list[int], default: int) -> list[int]:
        return (numbers * dims)[:dims] if numbers else [default] * dims

    stride = spread(lists[0] if lists else [], 1)
    padding = spread(lists[1] if len(lists) > 1 else [], weight[-1] // 2)
    dilation = spread(lists[2] if len(lists) > 2 else [], 1)
    if not weight[1] or not _count(image) or not _count(weight):
        return None
    groups = max(image[1] // weight[1], 1)
    out_image = [
        max((size + 2 * p - d * (kernel - 1) - 1) // max(s, 1) + 1, 1)
        for size, kernel, s, p, d in zip(image[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    pixels = image[0] * _count(out_image)
    out_channels = weight[0] / groups
    depth = float(_count(weight[1:]))
    read, written = (_count(image) + _count(weight)) * item, pixels * weight[0] * item
    plain = dims == 2 and weight[2:] == [3, 3] and stride == padding == dilation == [1, 1] and groups == 1
    return Work(
        "conv" if plain else "conv_other",
        "conv",
        2.0 * groups * out_channels * pixels * depth,
        float(read + written),
        float(read),
        float(written),
        float(groups),
        float(out_channels),
        float(pixels),
        depth,
        side=math.sqrt(_count(out_image)),
        images=float(image[0]),
        rows=float(image[1]),
    )


def _elementwise(name: str, sizes: list[list[int]], item: int) -> Work | None:
    known = [size for size in sizes if _count(size)]
    if not known:
        return None
    largest = max(map(_count, known))
    if name in ("cat", "stack"):
        moved = 2.0 * sum(map(_count, known)) * item
    elif len(known) > 1:
        moved = float(sum(map(_count, known[:3])) + largest) * item
    else:
        # One shape given: of a two-operand name the other operand has it too (that is how the timing data list it).
        moved = float(ELEMENTWISE[name] * largest) * item
    width = max(known, key=_count)[-1] if max(known, key=_count) else 1
    return Work("elementwise", name, 0.0, moved, rows=largest / max(width, 1), width=float(width))


def work_table(ops: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    """One row per operation with the fields of Work per call, and the precision of each row.

    Raises UserError for an operation that has neither readable shapes nor flops nor bytes, and for an unknown dtype.
    """
    calls = calls_of(ops)
    columns = {
        name: ops[name].tolist() if name in ops else [None] * len(ops)
        for name in ("op", "shapes", "dtype", "flops", "bytes", "scalars")
    }
    rows, precisions = [], []
    for place in range(len(ops)):
        op, shapes, dtype, flops, bytes_, scalars = (column[place] for column in columns.values())
        if not isinstance(op, str) or not op:
            raise UserError(f"row {place} has no operation name", 'an ATen name such as "aten::addmm"', "")
        precision = precision_of(dtype)
        found = read_work(
            op, shapes, precision, _per_call(flops, calls[place]), _per_call(bytes_, calls[place]), scalars
        )
        if found is None:
            raise UserError(
                f"{op} (row {place}) has no shapes, flops or bytes", "one of them", "measure with an op table"
            )
        rows.append(found.__dict__)
        precisions.append(precision)
    table = pd.DataFrame(rows, columns=list(Work.__dataclass_fields__))
    return table, pd.Series(precisions, dtype=object)


def _per_call(total: object, calls: float) -> float | None:
    try:
        number = float(total)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number / calls if math.isfinite(number) and number > 0 else None


def calls_of(ops: pd.DataFrame) -> np.ndarray:
    """Calls of each row, 1 where they are not known."""
    if "calls" not in ops:
        return np.ones(len(ops))
    calls = pd.to_numeric(ops["calls"], errors="coerce").to_numpy(dtype=float)
    return np.where(np.isfinite(calls) & (calls > 0), calls, 1.0)
