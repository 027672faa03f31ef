"""One function an op: from a StableHLO or CHLO op whose operands are known to DHLO ops.

Static and dynamic forms end in the same DHLO op. What StableHLO leaves undefined for sizes that do not agree becomes a
guard here (`Reader.equal`, `Reader.at_most`), so nothing behind this stage reads outside a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.facts import Truth
from hlo_disc.dynamic_hlo.graph import Shape, Value
from hlo_disc.import_.decode import array, integer, ints, text
from hlo_disc.import_.elements import ONE, ZERO
from hlo_disc.import_.shapes import Operand, Symbolic, direction
from hlo_disc.mlir import ir, stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader

Result = Operand | Sequence[Operand]
Handler = Callable[["Reader", Any, list[Operand]], Result]

_UNARY = (
    "abs negate sign exponential exponential_minus_one log log_plus_one logistic tanh sqrt rsqrt cbrt sine cosine tan "
    "floor ceil round_nearest_afz round_nearest_even not is_finite popcnt count_leading_zeros"
).split()
_BINARY = (
    "add subtract multiply divide remainder maximum minimum power atan2 and or xor shift_left shift_right_logical "
    "shift_right_arithmetic"
).split()
_MONOIDS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "and": "and", "or": "or"}
# Custom calls that place a value and change nothing.
_PLACEMENT = frozenset(
    ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint")
)


# ---------------------------------------------------------------------------------------------------- elementwise


def _elementwise(name: str) -> Handler:
    def handler(r: Reader, op: Any, operands: list[Operand]) -> Value:
        values = [r.data(x) for x in operands]
        if len(values) > 1:
            r.same_shape(values)
        return r.emit(name, values)

    return handler


def _compare(r: Reader, op: Any, operands: list[Operand]) -> Value:
    attributes = op.attributes
    if "compare_type" in attributes and r.attr(op, "compare_type", str).find("TOTALORDER") >= 0:
        r.unsupported("comparison in total order is not supported")
    values = [r.data(x) for x in operands]
    r.same_shape(values)
    return r.emit("compare", values, direction=r.attr(op, "comparison_direction", direction))


def _convert(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, dtype = r.data(operands[0]), r.result_type(op)[0]
    return x if x.dtype == dtype else r.emit("convert", (x,), dtype=dtype)


def _bitcast_convert(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, dtype = r.data(operands[0]), r.result_type(op)[0]
    if x.dtype.itemsize != dtype.itemsize:
        r.unsupported("a bitcast between element types of different width is not supported")
    return x if x.dtype == dtype else r.emit("bitcast_convert", (x,), dtype=dtype)


def _select(r: Reader, op: Any, operands: list[Operand]) -> Value:
    pred, *branches = map(r.data, operands)
    r.same_shape(branches)
    pred = _spread(r, pred, branches[0].shape)
    r.same_shape((branches[0], pred))
    return r.emit("select", (pred, *branches))


def _clamp(r: Reader, op: Any, operands: list[Operand]) -> Value:
    low, x, high = map(r.data, operands)
    values = (_spread(r, low, x.shape), x, _spread(r, high, x.shape))
    r.same_shape(values)
    return r.emit("clamp", values)


def _spread(r: Reader, x: Value, shape: Shape) -> Value:
    return r.emit("broadcast", (x,), shape=shape, dims=()) if shape and not x.shape else x


def _square(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    return r.emit("multiply", (x, x))


# ---------------------------------------------------------------------------------------------- constants and views


def _constant(r: Reader, op: Any, operands: list[Operand]) -> Value:
    attribute = op.attributes["value"]
    value = array(attribute, r.result_type(op)[0])
    if value.ndim and value.size > 1 and not any(value.strides):
        scalar = r.constant(value.reshape(-1)[0])
        return r.emit("broadcast", (scalar,), shape=r.policy.created(r, op, r.static_sizes(op)), dims=())
    return r.dense(attribute, value)


def _iota(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _make_iota(r, op, r.result_type(op)[0], r.policy.created(r, op, r.static_sizes(op)))


def _dynamic_iota(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _make_iota(r, op, r.result_type(op)[0], r.sizes(operands[0]))


def _make_iota(r: Reader, op: Any, dtype: np.dtype, shape: Shape) -> Value:
    return r.emit("iota", shape=shape, dim=r.attr(op, "iota_dimension", integer), dtype=dtype)


def _broadcast_in_dim(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, dims = r.data(operands[0]), r.attr(op, "broadcast_dimensions", ints)
    return _broadcast(r, x, r.policy.broadcast(r, op, x, dims, r.static_sizes(op)), dims)


def _dynamic_broadcast_in_dim(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _broadcast(r, r.data(operands[0]), r.sizes(operands[1]), r.attr(op, "broadcast_dimensions", ints))


def _broadcast_prefix(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    prefix = tuple(map(Dim.const, r.attr(op, "broadcast_sizes", ints)))
    return _broadcast(r, x, prefix + x.shape, tuple(range(len(prefix), len(prefix) + x.rank)))


def _broadcast(r: Reader, x: Value, shape: Shape, dims: tuple[int, ...]) -> Value:
    shape = _broadcast_shape(r, x, shape, dims)
    if shape == x.shape and dims == tuple(range(x.rank)):
        return x
    return r.emit("broadcast", (x,), shape=shape, dims=dims)


def _broadcast_shape(r: Reader, x: Value, shape: Shape, dims: tuple[int, ...]) -> Shape:
    """`shape`, with guards for what an operand dim must be: 1, or the result's size."""
    if all(size is ONE or size is shape[axis] for size, axis in zip(x.shape, dims, strict=True)):
        return shape
    result = list(shape)
    for i, (size, axis) in enumerate(zip(x.shape, dims, strict=True)):
        target = result[axis]
        if size is target or size is ONE or r.facts.equal(size, target) is Truth.YES:
            continue
        if target is Dim.max(size, ONE):
            # Frameworks compute the common size of two shapes as a maximum; with itself and 1 it is the operand's.
            result[axis] = size
            continue
        low, high = r.facts.bounds(size)
        if low == high == 1:
            continue
        if (low is not None and low > 1) or high == 0:
            r.equal(size, target, f"operand dimension {i} and result dimension {axis}")
            continue
        product = (size - 1) * (size - target)
        message = f"operand dimension {i} is {{0}}, neither 1 nor the result's {{1}}"
        r.require(product, "==", ZERO, message, (size, target), is_fact=False)
    return tuple(result)


def _reshape(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    return _make_reshape(r, x, r.policy.reshape(r, op, x, r.static_sizes(op)))


def _dynamic_reshape(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _make_reshape(r, r.data(operands[0]), r.sizes(operands[1]))


def _make_reshape(r: Reader, x: Value, shape: Shape) -> Value:
    if shape == x.shape:
        return x
    r.same_count(x.shape, shape)
    return r.emit("reshape", (x,), shape=shape)


def _transpose(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, perm = r.data(operands[0]), r.attr(op, "permutation", ints)
    return x if perm == tuple(range(x.rank)) else r.emit("transpose", (x,), perm=perm)


def _reverse(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return r.emit("reverse", (r.data(operands[0]),), dims=r.attr(op, "dimensions", ints))


def _slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    written = (r.attr(op, name, ints) for name in ("start_indices", "limit_indices"))
    start, limit = r.policy.slice(r, op, x, *written)
    return make_slice(r, x, start, limit, r.attr(op, "strides", ints))


def _real_dynamic_slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    start, limit, strides = (r.elements(operand) for operand in operands[1:])
    stride = r.constants(strides, "strides")
    if any(r.is_opaque(d) for d in start):
        sizes = tuple(r.facts.canonical(high - low) for low, high in zip(start, limit, strict=True))
        r.no_opaque(sizes)
        if any(s != 1 for s in stride):
            r.unsupported("a slice whose start depends on data must have strides of 1")
        # Such a slice need not clamp; but where it must not, it is in range and clamping changes nothing.
        starts = [r.start_index(d, n - size) for d, n, size in zip(start, x.shape, sizes, strict=True)]
        if None in starts:
            corner = r.data(operands[1])
            starts = [r.element(corner, i) if s is None else s for i, s in enumerate(starts)]
        return _make_dynamic_slice(r, x, starts, sizes)  # type: ignore[arg-type]
    r.no_opaque(limit)
    return make_slice(r, x, start, limit, stride)


def make_slice(r: Reader, x: Value, start: Shape, limit: Shape, stride: tuple[int, ...]) -> Value:
    if limit == x.shape and all(s is ZERO for s in start) and all(s == 1 for s in stride):
        return x
    for axis, (low, high, size) in enumerate(zip(start, limit, x.shape, strict=True)):
        if low is ZERO and high is size:
            continue
        r.at_most(ZERO, low, f"the slice's start in dimension {axis} must be at least 0, but is {{1}}")
        r.at_most(low, high, f"the slice's start {{0}} in dimension {axis} must be at most its limit {{1}}")
        r.at_most(high, size, f"the slice's limit {{0}} in dimension {axis} must be at most the size {{1}}")
    return r.emit("slice", (x,), start=start, limit=limit, stride=stride)


# ----------------------------------------------------------------------------------------- gathers and dynamic slices


def _dynamic_slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, sizes = r.data(operands[0]), r.attr(op, "slice_sizes", ints)
    return _make_dynamic_slice(r, x, operands[1:], r.policy.window(r, op, x, sizes))


def _make_dynamic_slice(r: Reader, x: Value, starts: Sequence[Operand], sizes: Shape) -> Value:
    _fits(r, sizes, x.shape)
    corner = _known_corner(r, starts, x.shape, sizes)
    if corner is not None:
        limit = tuple(low + size for low, size in zip(corner, sizes, strict=True))
        return make_slice(r, x, corner, limit, (1,) * x.rank)
    return r.emit("dynamic_slice", (x, *map(r.data, starts)), sizes=sizes)


def _fits(r: Reader, sizes: Shape, limits: Shape) -> None:
    for axis, (size, limit) in enumerate(zip(sizes, limits, strict=True)):
        r.at_most(size, limit, f"the size {{0}} to take in dimension {axis} is larger than the operand's {{1}}")


def _known_corner(r: Reader, starts: Sequence[Operand], limits: Shape, sizes: Shape) -> Shape | None:
    """The start of a slice that is known not to be clamped, for which a plain slice will do."""
    corner = []
    for start, limit, size in zip(starts, limits, sizes, strict=True):
        if size is limit:
            corner.append(ZERO)
            continue
        if type(start) is not Symbolic or not start.exact:
            return None
        low = r.evaluator.scalar.number(start.elements[0])
        if r.facts.at_most(ZERO, low) is not Truth.YES or r.facts.at_most(low + size, limit) is not Truth.YES:
            return None
        corner.append(low)
    return tuple(corner)


def _dynamic_update_slice(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x, update = r.data(operands[0]), r.data(operands[1])
    for axis, (size, limit) in enumerate(zip(update.shape, x.shape, strict=True)):
        r.at_most(size, limit, f"the update's size {{0}} in dimension {axis} is larger than the operand's {{1}}")
    return r.emit("dynamic_update_slice", (x, update, *map(r.data, operands[2:])))


def _gather(r: Reader, op: Any, operands: list[Operand]) -> Value:
    x = r.data(operands[0])
    return _make_gather(r, op, x, operands[1], r.policy.window(r, op, x, r.attr(op, "slice_sizes", ints)))


def _dynamic_gather(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _make_gather(r, op, r.data(operands[0]), operands[1], r.sizes(operands[2]))


def _make_gather(r: Reader, op: Any, x: Value, indices: Operand, sizes: Shape) -> Value:
    numbers = r.attr(op, "dimension_numbers", _gather_numbers)
    # Nothing is taken where there is no index: a gather of no elements from an empty dimension is fine.
    index_shape = tuple(map(Dim.of, indices.sizes)) if isinstance(indices, Symbolic) else indices.shape
    some = Dim.min(1, dim_product(n for a, n in enumerate(index_shape) if a != numbers["index_vector_dim"]))
    _fits(r, tuple(some * n for n in sizes), x.shape)
    if type(indices) is Symbolic and len(indices.sizes) == 1 and numbers["index_vector_dim"] == 0:
        # One window at a known place is a slice.
        corner = _known_corner(r, _window_start(indices, numbers["start_index_map"], x.rank), x.shape, sizes)
        if corner is not None:
            limit = tuple(low + size for low, size in zip(corner, sizes, strict=True))
            window = make_slice(r, x, corner, limit, (1,) * x.rank)
            kept = tuple(d for axis, d in enumerate(sizes) if axis not in numbers["collapsed_slice_dims"])
            return _make_reshape(r, window, kept)
    at = r.data(indices)
    pairs = zip(numbers["operand_batching_dims"], numbers["start_indices_batching_dims"], strict=True)
    for axis, index_axis in pairs:
        r.equal(x.shape[axis], at.shape[index_axis], f"batching dimensions {axis} and {index_axis}")
    return r.emit("gather", (x, at), **numbers, slice_sizes=sizes)


def _window_start(indices: Symbolic, axes: tuple[int, ...], rank: int) -> list[Operand]:
    zero = Symbolic(indices.dtype, (), (ZERO,))
    starts: list[Operand] = [zero] * rank
    for axis, element in zip(axes, indices.elements, strict=True):
        starts[axis] = Symbolic(indices.dtype, (), (element,), indices.exact)
    return starts


def _gather_numbers(attribute: Any) -> dict[str, Any]:
    numbers = stablehlo.GatherDimensionNumbers(attribute)
    lists = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims")
    result: dict[str, Any] = {name: tuple(getattr(numbers, name)) for name in (*lists, "start_index_map")}
    return result | {"index_vector_dim": numbers.index_vector_dim}


# ---------------------------------------------------------------------------------------------- concatenate and pad


def _concatenate(r: Reader, op: Any, operands: list[Operand]) -> Value:
    values, axis = [r.data(x) for x in operands], r.attr(op, "dimension", integer)
    if len(values) == 1:
        return values[0]
    for value in values[1:]:
        for i, (a, b) in enumerate(zip(values[0].shape, value.shape, strict=True)):
            if i != axis:
                r.equal(a, b, f"dimension {i} of the operands")
    return r.emit("concatenate", values, dim=axis)


def _pad(r: Reader, op: Any, operands: list[Operand]) -> Value:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (r.attr(op, name, ints) for name in names)
    return _make_pad(r, operands, tuple(map(Dim.const, low)), tuple(map(Dim.const, high)), interior)


def _dynamic_pad(r: Reader, op: Any, operands: list[Operand]) -> Value:
    interior = r.constants(r.dims(operands[4]), "interior padding")
    return _make_pad(r, operands, r.dims(operands[2]), r.dims(operands[3]), interior)


def _make_pad(r: Reader, operands: list[Operand], low: Shape, high: Shape, interior: tuple[int, ...]) -> Value:
    x, value = r.data(operands[0]), r.data(operands[1])
    if all(d is ZERO for d in low + high) and not any(interior):
        return x
    result = r.emit("pad", (x, value), low=low, high=high, interior=interior)
    for axis, size in enumerate(result.shape):
        r.at_most(ZERO, size, f"dimension {axis} would be padded to the size {{1}}")
    return result


# ------------------------------------------------------------------------------------------------ reductions and dots


def _reduce(r: Reader, op: Any, operands: list[Operand]) -> Value:
    if len(operands) != 2:
        r.unsupported("a reduction of several operands at once is not supported")
    x, init = map(r.data, operands)
    kind = _monoid(op)
    if kind is None or r.result_type(op)[0] != x.dtype:
        r.unsupported(f"a reduction must be one of {', '.join(_MONOIDS)} in the operand's type")
    if x.dtype == np.bool_:
        kind = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(kind, kind)
    return r.emit("reduce", (x, init), dims=tuple(sorted(r.attr(op, "dimensions", ints))), kind=kind)


def _monoid(op: Any) -> str | None:
    block = op.regions[0].blocks[0]
    body = list(block.operations)
    if len(body) != 2 or set(body[0].operands) != set(block.arguments):
        return None
    if list(body[1].operands) != list(body[0].results):
        return None
    return _MONOIDS.get(body[0].operation.name.removeprefix("stablehlo."))


def _dot_general(r: Reader, op: Any, operands: list[Operand]) -> Value:
    return _make_dot(r, op, operands, r.attr(op, "dot_dimension_numbers", _dot_numbers))


def _dot(r: Reader, op: Any, operands: list[Operand]) -> Value:
    rank = r.data(operands[0]).rank
    numbers = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (rank - 1,), "rhs_contract": (0,)}
    return _make_dot(r, op, operands, numbers)


def _make_dot(r: Reader, op: Any, operands: list[Operand], numbers: dict[str, tuple[int, ...]]) -> Value:
    a, b = map(r.data, operands)
    for what in ("batch", "contract"):
        for i, j in zip(numbers[f"lhs_{what}"], numbers[f"rhs_{what}"], strict=True):
            r.equal(a.shape[i], b.shape[j], f"{what}ing dimensions {i} and {j} of the operands")
    return r.emit("dot_general", (a, b), **numbers, dtype=r.result_type(op)[0])


def _dot_numbers(attribute: Any) -> dict[str, tuple[int, ...]]:
    numbers = stablehlo.DotDimensionNumbers(attribute)
    return {
        "lhs_batch": tuple(numbers.lhs_batching_dimensions),
        "rhs_batch": tuple(numbers.rhs_batching_dimensions),
        "lhs_contract": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contract": tuple(numbers.rhs_contracting_dimensions),
    }


# -------------------------------------------------------------------------------------------------- calls and the rest


def _identity(r: Reader, op: Any, operands: list[Operand]) -> Result:
    return operands


def _nothing(r: Reader, op: Any, operands: list[Operand]) -> Result:
    return ()


def _call(r: Reader, op: Any, operands: list[Operand]) -> Result:
    return r.call(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, operands)


def _composite(r: Reader, op: Any, operands: list[Operand]) -> Result:
    return r.call(ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value, operands)


def _custom_call(r: Reader, op: Any, operands: list[Operand]) -> Result:
    target = r.attr(op, "call_target_name", text)
    if target == "shape_assertion":
        return r.assertion(op, operands)
    if target in _PLACEMENT or target.startswith("xla.sdy."):
        return operands
    dialect, _, name = target.partition(".")
    if dialect in ("mhlo", "chlo") and f"chlo.{name}" in HANDLERS:
        return HANDLERS[f"chlo.{name}"](r, op, operands)
    r.unsupported(f"there is no custom call @{target}")


HANDLERS: dict[str, Handler] = {
    **{f"stablehlo.{name}": _elementwise(name) for name in (*_UNARY, *_BINARY)},
    "chlo.erf": _elementwise("erf"),
    "chlo.erfc": _elementwise("erfc"),
    "chlo.square": _square,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.select": _select,
    "stablehlo.clamp": _clamp,
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.dynamic_iota": _dynamic_iota,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast_in_dim,
    "stablehlo.broadcast": _broadcast_prefix,
    "stablehlo.reshape": _reshape,
    "stablehlo.dynamic_reshape": _dynamic_reshape,
    "stablehlo.transpose": _transpose,
    "stablehlo.reverse": _reverse,
    "stablehlo.slice": _slice,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.dynamic_gather": _dynamic_gather,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.dynamic_pad": _dynamic_pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
    "stablehlo.optimization_barrier": _identity,
    "stablehlo.composite": _composite,
    "stablehlo.custom_call": _custom_call,
    "func.call": _call,
    "builtin.unrealized_conversion_cast": _identity,  # between index and integer, by the shape-legalisation pass
    "sdy.sharding_constraint": _identity,
    "sdy.mesh": _nothing,
}
