"""The XLA ops in graphs of TensorFlow. They have StableHLO's meaning; axes are messages, regions are functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.families.indexing import OF_SCATTER
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.import_.handlers.arrays import Array, array, joined
from hlo_disc.import_.handlers.gather import (
    OF_GATHER,
    make_dynamic_slice,
    make_gather,
    make_scatter,
    make_update,
    numbers_of,
    window_start,
)
from hlo_disc.import_.handlers.products import dot
from hlo_disc.import_.handlers.products.convolution import make_convolution
from hlo_disc.import_.handlers.products.dot import make_dot
from hlo_disc.import_.handlers.random import generate
from hlo_disc.import_.handlers.reductions.reduce import make_reduce, scalar_body
from hlo_disc.import_.handlers.reductions.windows import Window, make_reduce_window, make_select_and_scatter
from hlo_disc.import_.handlers.sort import first_operand_order, make_sort
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.handlers.views import make_pad
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.flow import control
from hlo_disc.import_.tensorflow.matrices import linalg
from hlo_disc.import_.tensorflow.shapes import ints, result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node
    from hlo_disc.mlir import ir


def as_bytes(text: str | bytes) -> bytes:
    """Return the bytes of an attribute that is no text."""
    return text.encode() if isinstance(text, str) else text


def _message(op: Node, kind: str) -> Any:
    """Parse the XLA message that an attribute contains."""
    from tensorflow.compiler.xla import xla_data_pb2

    return getattr(xla_data_pb2, kind).FromString(as_bytes(op.attributes["dimension_numbers"]))


def _region(r: Reader, op: Node, name: str) -> ir.Region:
    region: ir.Region = r.functions[op.attributes[name]].regions[0]  # of the form of MLIR's
    return region


# --------------------------------------------------------------------------------------------------- products and sums


def _dot(r: Reader, op: Node, operands: list[Operand]) -> Result:
    a, b = (r.data(x) for x in operands)
    return make_dot(r, a, b, dot.numbers_of(_message(op, "DotDimensionNumbers"), "batch"), result_dtype(op))


def _conv(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, w = (r.data(o) for o in operands[:2])
    strides, base, holes, groups = (tuple(ints(r, operands[i], "strides and dilations")) for i in (2, 4, 5, 6))
    given = _message(op, "ConvolutionDimensionNumbers")

    def spec(side: str, *names: str) -> tuple[int, ...]:
        own = (getattr(given, f"{side}_{name}_dimension") for name in names)
        return (*own, *getattr(given, f"{side}_spatial_dimensions"))

    specs: Attributes = {
        "lhs_spec": spec("input", "batch", "feature"),
        "rhs_spec": spec("kernel", "output_feature", "input_feature"),
        "out_spec": spec("output", "batch", "feature"),
    }
    return make_convolution(
        r,
        x,
        w,
        specs,
        r.dims(operands[3]),
        strides=strides,
        base_dilations=base,
        window_dilations=holes,
        reversal=(),
        feature_groups=groups[0],
        batch_groups=op.attributes.get("batch_group_count", 1),
        dtype=result_dtype(op),
    )


def _reduce(r: Reader, op: Node, operands: list[Operand]) -> Result:
    values = [r.data(x) for x in operands]
    count = len(values) // 2
    xs, inits = values[:count], values[count:]
    r.same_shape(xs)
    body, captured = scalar_body(r, _region(r, op, "reducer"), [x.dtype for x in (*xs, *xs)])
    axes = tuple(sorted(op.attributes.get("dimensions_to_reduce") or ()))
    return make_reduce(r, xs, inits, captured, axes, body)


# -------------------------------------------------------------------------------------------------------------- windows


def _window(r: Reader, window: Operand, padding: Operand, rest: Sequence[Operand]) -> Window:
    """Return the windows. rest: strides, and dilations of the operand and the window, by default 1."""
    sizes, pairs = r.dims(window), r.dims(padding)
    numbers = [tuple(ints(r, x, "strides and dilations")) for x in rest]
    strides, base, holes = [*numbers, *[(1,) * len(sizes)] * (3 - len(numbers))]
    return Window(sizes, strides, base, holes, pairs[::2], pairs[1::2])


def _reduce_window(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, init, window, *rest, padding = operands
    region = _region(r, op, "computation")
    return make_reduce_window(r, [r.data(x), r.data(init)], region, _window(r, window, padding, rest))


def _select_and_scatter(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, window, strides, padding, source, init = operands
    regions = [_region(r, op, name) for name in ("select", "scatter")]
    sizes = _window(r, window, padding, [strides])
    return make_select_and_scatter(r, r.data(x), r.data(source), r.data(init), regions, sizes)


# ---------------------------------------------------------------------------------------------------------------- sorts


def _sorted(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Sort the last axis in ascending order of the first operand."""
    xs = [r.data(x) for x in operands]
    return make_sort(r, xs, first_operand_order(r, xs), (), xs[0].rank - 1, True)


def _sort_by(r: Reader, op: Node, operands: list[Operand]) -> Result:
    *given, axis = operands
    xs = [r.data(x) for x in given]
    body, captured = scalar_body(r, _region(r, op, "comparator"), [x.dtype for x in xs for _ in range(2)])
    (dim,) = ints(r, axis, "the axis")
    return make_sort(r, xs, body, captured, dim % xs[0].rank, op.attributes.get("is_stable", False))


# -------------------------------------------------------------------------------------------------- parts of an operand


def _gather(r: Reader, op: Node, operands: list[Operand]) -> Result:
    numbers = numbers_of(_message(op, "GatherDimensionNumbers"), OF_GATHER)
    return make_gather(r, r.data(operands[0]), operands[1], numbers, r.sizes(operands[2]))


def _scatter(r: Reader, op: Node, operands: list[Operand]) -> Result:
    numbers = numbers_of(_message(op, "ScatterDimensionNumbers"), OF_SCATTER)
    x, at, updates = (r.data(o) for o in operands)
    body = scalar_body(r, _region(r, op, "update_computation"), [x.dtype] * 2)
    return make_scatter(r, [x], at, [updates], numbers, body)


def _starts(r: Reader, x: Operand, rank: int) -> list[Operand]:
    """Return the elements of a vector, one for each axis."""
    if isinstance(x, Symbolic):
        return window_start(x, range(rank), rank)
    return [r.element(r.data(x), i) for i in range(rank)]


def _dynamic_slice(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = r.data(operands[0])
    return make_dynamic_slice(r, x, _starts(r, operands[1], x.rank), r.sizes(operands[2]))


def _dynamic_update_slice(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x, update = (r.data(o) for o in operands[:2])
    return make_update(r, x, update, [r.data(start) for start in _starts(r, operands[2], x.rank)])


def _pairs(op: Node, rank: int, name: str, default: int) -> list[int]:
    return list(op.attributes.get(name) or [default] * rank)


def _concatenated(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Join blocks in row-major order to one tensor, and cut its padding at the end of each axis."""
    xs = [array(r, x) for x in operands]
    counts = _pairs(op, xs[0].rank, "num_concats", 1)
    for axis in reversed(range(len(counts))):
        k = counts[axis]
        xs = [joined(xs[i : i + k], axis) for i in range(0, len(xs), k)]
    (x,) = xs
    for axis, extra in enumerate(_pairs(op, x.rank, "paddings", 0)):
        x = x.slice(axis, ZERO, x.shape[axis] - extra)
    return x.value


def _split(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Split a tensor into blocks in row-major order, after padding at the end of each axis."""
    x = array(r, operands[0])
    x = x.pad([ZERO] * x.rank, _pairs(op, x.rank, "paddings", 0))
    parts = [x]
    for axis, k in enumerate(_pairs(op, x.rank, "num_splits", 1)):
        n = x.shape[axis]
        r.require(n % k, "==", ZERO, f"dimension {axis} of {{0}} cannot be split into {k}", (n,))
        parts = [y.slice(axis, n // k * i, n // k * (i + 1)) for y in parts for i in range(k)]
    return [y.value for y in parts]


def _aligned(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Bring two operands to one rank; attributes name the axes of the one with fewer."""
    a, b = (array(r, x) for x in operands[:2])
    axes = ints(r, operands[2], "the axes")
    if a.rank == b.rank or not axes:
        return operands[:2]
    rank = max(a.rank, b.rank)

    def wide(x: Array) -> Value:
        shape: list[Dim] = [ONE] * rank
        for axis, n in zip(axes, x.shape, strict=True):
            shape[axis] = n
        return x.reshape(shape).value

    return [x.value if x.rank == rank else wide(x) for x in (a, b)]


# --------------------------------------------------------------------------------------------------------------- others


def _reduce_precision(r: Reader, op: Node, operands: list[Operand]) -> Result:
    attrs = {name: op.attributes[name] for name in ("exponent_bits", "mantissa_bits")}
    return r.emit("reduce_precision", (r.data(operands[0]),), **attrs)


_THREEFRY = 2  # TensorFlow's number of it; Philox is 1, and what the CPU takes where it may choose


def _rng_bits(r: Reader, op: Node, operands: list[Operand]) -> Result:
    (algorithm,) = ints(r, operands[0], "the algorithm")
    shape: Shape = r.sizes(operands[2])
    return generate(r, r.data(operands[1]), shape, result_dtype(op, 1), algorithm == _THREEFRY)


def _alone(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Combine values over the devices of a group of one: the result is the operand."""
    if others := sorted({n for n in ints(r, operands[1], "the groups of devices") if n > 0}):
        r.unsupported(f"its groups name the devices {others}, but a program runs on one device, number 0")
    return operands[0]


def _cut(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Cut an axis to the stated number of elements."""
    x = array(r, operands[0])
    (axis,) = ints(r, operands[1], "the axis")
    size = array(r, operands[2]).cast(np.int64).reshape((ONE,))
    (count,) = r.tensor_shape(r.elements(operands[2] if isinstance(operands[2], Symbolic) else size.value))
    r.at_most(count, x.shape[axis], "{0} elements of {1}")
    return x.slice(axis, ZERO, count).value


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        (
            "XlaOptimizationBarrier", "XlaRemoveDynamicDimensionSize", "XlaSetBound", "XlaSharding",
            "XlaSpmdFullToShardShape", "XlaSpmdShardToFullShape",
        ),
        lambda r, op, operands: operands[: len(op.results)],
    ),
    "XlaAllReduce": _alone,
    "XlaBroadcastHelper": _aligned,
    "XlaConcatND": _concatenated,
    "XlaConv": _conv,
    "XlaConvV2": _conv,
    "XlaDot": _dot,
    "XlaDotV2": _dot,
    "XlaDynamicSlice": _dynamic_slice,
    "XlaDynamicUpdateSlice": _dynamic_update_slice,
    "XlaEinsum": linalg.HANDLERS["Einsum"],
    "XlaGather": _gather,
    "XlaIf": control.HANDLERS["If"],
    "XlaKeyValueSort": _sorted,
    "XlaPad": lambda r, op, operands: make_pad(r, operands[:2], *map(r.dims, operands[2:])),
    "XlaReduce": _reduce,
    "XlaReducePrecision": _reduce_precision,
    "XlaReduceWindow": _reduce_window,
    "XlaReduceScatter": _alone,
    "XlaReplicaId": lambda r, op, operands: Symbolic(np.dtype(np.int32), (), (ZERO,)),
    "XlaRngBitGenerator": _rng_bits,
    "XlaScatter": _scatter,
    "XlaSelectAndScatter": _select_and_scatter,
    "XlaSetDynamicDimensionSize": _cut,
    "XlaSort": _sorted,
    "XlaSplitND": _split,
    "XlaVariadicReduce": _reduce,
    "XlaVariadicReduceV2": _reduce,
    "XlaVariadicSort": _sort_by,
    "XlaWhile": control.HANDLERS["While"],
}  # fmt: skip
