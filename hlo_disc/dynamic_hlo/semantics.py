"""What each op computes, in numpy: `function(*arrays, **attrs)` with every size an int.

The semantics are those of the StableHLO specification and, where that leaves a choice (integer division by zero, shifts
past the width), XLA's. Floats narrower than 32 bits are computed in f32 and rounded once; sums and products of floats
accumulate in f64, so that a comparison against these functions measures the other side's error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.inference import BOOL, dtype_class, part_dtype
from hlo_disc.errors import ShapeError

Array = np.ndarray
Ints = tuple[int, ...]


def _wide(x: Array) -> Array:
    """Narrow floats as f32, complex numbers in double precision, everything else as it is."""
    if x.dtype == np.complex64:
        return x.astype(np.complex128)
    return x.astype(np.float32) if dtype_class(x.dtype) == "float" and x.dtype.itemsize < 4 else x


def _narrow(x: Array, dtype: np.dtype) -> Array:
    return x if x.dtype == dtype else x.astype(dtype)


def _is_integer(dtype: np.dtype) -> bool:
    return dtype_class(dtype) in ("int", "uint")


def _unsigned(x: Array) -> Array:
    """The same bits as an unsigned integer."""
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def rounded(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` computed on widened operands, its result rounded once to the operands' dtype."""

    def wrapped(*arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return _narrow(np.asarray(function(*map(_wide, arrays))), arrays[0].dtype)

    return wrapped


# ----------------------------------------------------------------------------------------------------- elementwise

erf = np.vectorize(math.erf, otypes=[np.float64])
erfc = np.vectorize(math.erfc, otypes=[np.float64])


def magnitude(x: Array) -> Array:
    return _narrow(np.abs(_wide(x)), part_dtype(x.dtype))


def complex_(re: Array, im: Array) -> Array:
    # re + 1j*im would turn infinities into NaNs.
    return np.ascontiguousarray(np.stack([re, im], axis=-1)).view(np.result_type(re.dtype, np.complex64))[..., 0]


def cbrt(x: Array) -> Array:
    return np.power(x, 1 / 3) if x.dtype.kind == "c" else np.cbrt(x)


def atan2(y: Array, x: Array) -> Array:
    return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)) if x.dtype.kind == "c" else np.arctan2(y, x)


def sign(x: Array) -> Array:
    # numpy turns -0.0 into +0.0.
    return np.where(x == 0, x, np.sign(x))


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def round_nearest_afz(x: Array) -> Array:
    # Not floor(x + 0.5): that rounds the largest value below 0.5 to 1.
    whole = np.trunc(x)
    return whole + np.copysign(np.abs(x - whole) >= 0.5, x)


def is_finite(x: Array) -> Array:
    return np.isfinite(_wide(x))


def popcnt(x: Array) -> Array:
    bits = _unsigned(x)
    return sum((((bits >> k) & 1) for k in range(x.dtype.itemsize * 8)), np.zeros_like(bits)).astype(x.dtype)


def count_leading_zeros(x: Array) -> Array:
    bits, width = _unsigned(x), x.dtype.itemsize * 8
    length = sum((((bits >> k) != 0) for k in range(width)), np.zeros(x.shape, np.int64))
    return (width - length).astype(x.dtype)


def _safe(divisor: Array) -> Array:
    """A divisor without what the machine traps on: 0, and -1, by which the smallest integer has no quotient."""
    traps = divisor == 0 if dtype_class(divisor.dtype) == "uint" else (divisor == 0) | (divisor == -1)
    return np.where(traps, 1, divisor).astype(divisor.dtype)


def divide(a: Array, b: Array) -> Array:
    if not _is_integer(a.dtype):
        return np.true_divide(a, b)
    safe = _safe(b)
    quotient = np.floor_divide(a, safe)
    if dtype_class(a.dtype) == "int":
        # numpy rounds down, StableHLO toward zero.
        quotient += ((np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
        quotient = np.where(b == -1, np.negative(a), quotient)
    return np.where(b == 0, np.array(-1).astype(a.dtype), quotient)


def remainder(a: Array, b: Array) -> Array:
    if not _is_integer(a.dtype):
        return np.fmod(a, b)
    return np.where(b == 0, a, np.fmod(a, _safe(b)))


def maximum(a: Array, b: Array) -> Array:
    # IEEE 754 orders -0.0 below +0.0, numpy does not.
    result = np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, result) if a.dtype.kind == "f" else result


def minimum(a: Array, b: Array) -> Array:
    result = np.minimum(a, b)
    return np.where((a == 0) & (b == 0), -(-a - b), result) if a.dtype.kind == "f" else result


def power(a: Array, b: Array) -> Array:
    if not _is_integer(a.dtype):
        return np.power(a, b)
    result = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    if a.dtype.kind == "u":
        return result
    # A reciprocal rounds to zero unless the base is a unit.
    reciprocal = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, reciprocal, result).astype(a.dtype)


def logical_not(x: Array) -> Array:
    return np.logical_not(x) if x.dtype == BOOL else np.invert(x)


def _shift(a: Array, b: Array, function: Callable[..., Array], past_width: Array) -> Array:
    width = a.dtype.itemsize * 8
    amount = _unsigned(np.asarray(b))
    inside = amount < width
    safe = np.where(inside, b, 0).astype(a.dtype)
    return np.where(inside, function(a, safe), past_width).astype(a.dtype)


def shift_left(a: Array, b: Array) -> Array:
    return _shift(a, b, np.left_shift, np.zeros_like(a))


def shift_right_logical(a: Array, b: Array) -> Array:
    return _shift(a, b, lambda x, k: np.right_shift(_unsigned(x), _unsigned(k)).view(x.dtype), np.zeros_like(a))


def shift_right_arithmetic(a: Array, b: Array) -> Array:
    bits = np.dtype(f"i{a.dtype.itemsize}")
    negative = np.where(a.view(bits) < 0, -1, 0).astype(bits).view(a.dtype)
    return _shift(a, b, lambda x, k: np.right_shift(x.view(bits), k.view(bits)).view(x.dtype), negative)


_COMPARE = {
    "EQ": np.equal, "NE": np.not_equal, "GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal, "LT": np.less,
}  # fmt: skip


def compare(a: Array, b: Array, *, direction: str) -> Array:
    return _COMPARE[direction](_wide(a), _wide(b))


def convert(x: Array, *, dtype: np.dtype) -> Array:
    x = _wide(x)
    if x.dtype.kind == "c" and dtype_class(dtype) != "complex":
        x = x.real
    if dtype == BOOL:
        return x != 0
    with np.errstate(all="ignore"):
        if not (_is_integer(dtype) and dtype_class(x.dtype) == "float"):
            return x.astype(dtype)
        limits = np.iinfo(dtype)
        # The largest integer is no float; the power of two above it is.
        above, below = x >= float(limits.max // 2 + 1) * 2, x < float(limits.min)
        inside = np.where(above | below | np.isnan(x), 0, x).astype(dtype)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(dtype)


def bitcast_convert(x: Array, *, dtype: np.dtype) -> Array:
    if x.dtype.itemsize == dtype.itemsize:
        return x.view(dtype)
    if x.dtype.itemsize > dtype.itemsize:
        return np.ascontiguousarray(x)[..., None].view(dtype)
    return np.ascontiguousarray(x).view(dtype)[..., 0]


def select(pred: Array, on_true: Array, on_false: Array) -> Array:
    return np.where(pred, on_true, on_false)


def clamp(low: Array, x: Array, high: Array) -> Array:
    return minimum(maximum(x, low), high)


# ------------------------------------------------------------------------------------------------ sources and views


def constant(*, value: Array) -> Array:
    return value


def iota(*, shape: Ints, dim: int, dtype: np.dtype) -> Array:
    line = np.arange(shape[dim]).astype(dtype)
    return np.broadcast_to(line.reshape([-1 if axis == dim else 1 for axis in range(len(shape))]), shape)


def dim(*, expr: int, dtype: np.dtype) -> Array:
    return np.array(expr).astype(dtype)


def broadcast(x: Array, *, shape: Ints, dims: Ints) -> Array:
    order = np.argsort(dims)
    expanded = [1] * len(shape)
    for axis in order:
        expanded[dims[axis]] = x.shape[axis]
    return np.broadcast_to(x.transpose(order).reshape(expanded), shape)


def reshape(x: Array, *, shape: Ints) -> Array:
    return x.reshape(shape)


def transpose(x: Array, *, perm: Ints) -> Array:
    return x.transpose(perm)


def slice_(x: Array, *, start: Ints, limit: Ints, stride: Ints) -> Array:
    for axis, (low, high, size) in enumerate(zip(start, limit, x.shape, strict=True)):
        if not 0 <= low <= high <= size:
            raise ShapeError(f"dim {axis} of size {size} has no elements {low} to {high}")
    return x[tuple(map(slice, start, limit, stride))]


def reverse(x: Array, *, dims: Ints) -> Array:
    return np.flip(x, dims)


# ------------------------------------------------------------------------------------------------- gather, assemble


def _signed(index: Array) -> Array:
    return np.minimum(index, np.iinfo(np.int64).max).astype(np.int64) if index.dtype.kind == "u" else index


def _clamped(starts: Sequence[Array], sizes: Sequence[int], shape: Sequence[int]) -> list[slice]:
    """Where a block of `sizes` lies, moved inside `shape`."""
    corners = [min(max(int(start), 0), n - size) for start, size, n in zip(starts, sizes, shape, strict=True)]
    if any(corner < 0 for corner in corners):
        raise ShapeError(f"a block of {tuple(sizes)} does not fit an operand of {tuple(shape)}")
    return [slice(corner, corner + size) for corner, size in zip(corners, sizes, strict=True)]


def gather(
    x: Array,
    indices: Array,
    *,
    offset_dims: Ints,
    collapsed_slice_dims: Ints,
    operand_batching_dims: Ints,
    start_indices_batching_dims: Ints,
    start_index_map: Ints,
    index_vector_dim: int,
    slice_sizes: Ints,
) -> Array:
    if any(size > n for size, n in zip(slice_sizes, x.shape, strict=True)):
        raise ShapeError(f"slices of {slice_sizes} do not fit an operand of {x.shape}")
    if index_vector_dim == indices.ndim:
        indices = indices[..., None]
    starts = np.moveaxis(_signed(indices), index_vector_dim, -1)
    batch = starts.shape[:-1]
    kept = [axis for axis in range(x.ndim) if axis not in collapsed_slice_dims + operand_batching_dims]
    rank = len(batch) + len(kept)
    where: list[Array] = []
    for axis, (size, n) in enumerate(zip(slice_sizes, x.shape, strict=True)):
        position = np.zeros(batch, np.int64)
        if axis in start_index_map:
            position = np.clip(starts[..., start_index_map.index(axis)], 0, n - size).astype(np.int64)
        if axis in operand_batching_dims:
            index_axis = start_indices_batching_dims[operand_batching_dims.index(axis)]
            position = iota(shape=batch, dim=index_axis - (index_axis > index_vector_dim), dtype=np.dtype(np.int64))
        position = position.reshape(batch + (1,) * len(kept))
        if axis in kept:
            position = position + iota(
                shape=(1,) * len(batch) + tuple(size if other == axis else 1 for other in kept),
                dim=len(batch) + kept.index(axis),
                dtype=np.dtype(np.int64),
            )
        where.append(position)
    shape = batch + tuple(slice_sizes[axis] for axis in kept)
    # Without elements there is nothing to read, not even from an operand of size 0.
    result = np.broadcast_to(x[tuple(where)], shape) if math.prod(shape) else np.empty(shape, x.dtype)
    batches = iter(range(len(batch)))
    axes = [len(batch) + offset_dims.index(k) if k in offset_dims else next(batches) for k in range(rank)]
    return result.transpose(axes)


def dynamic_slice(x: Array, *starts: Array, sizes: Ints) -> Array:
    return x[tuple(_clamped(starts, sizes, x.shape))]


def dynamic_update_slice(x: Array, update: Array, *starts: Array) -> Array:
    result = x.copy()
    result[tuple(_clamped(starts, update.shape, x.shape))] = update
    return result


def concatenate(*xs: Array, dim: int) -> Array:
    return np.concatenate(xs, axis=dim)


def pad(x: Array, value: Array, *, low: Ints, high: Ints, interior: Ints) -> Array:
    spread = [n + max(n - 1, 0) * gap for n, gap in zip(x.shape, interior, strict=True)]
    dilated = np.full(spread, value, x.dtype)
    dilated[tuple(slice(None, None, gap + 1) for gap in interior)] = x
    crop = tuple(slice(max(-lo, 0), n - max(-hi, 0)) for lo, hi, n in zip(low, high, spread, strict=True))
    outside = [(max(lo, 0), max(hi, 0)) for lo, hi in zip(low, high, strict=True)]
    return np.pad(dilated[crop], outside, constant_values=value)


# --------------------------------------------------------------------------------------------- reductions and dots

_REDUCE = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


def _accumulator(dtype: np.dtype) -> np.dtype:
    return {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}.get(dtype_class(dtype), dtype)


def reduce(x: Array, init: Array, *, dims: Ints, kind: str) -> Array:
    wide = x.astype(_accumulator(x.dtype))
    start = init.astype(wide.dtype)
    with np.errstate(all="ignore"):
        if kind in ("add", "mul"):
            result = _REDUCE[kind].reduce(wide, axis=dims, initial=start, dtype=wide.dtype)
        else:
            result = _REDUCE[kind].reduce(wide, axis=dims, initial=start)
        return np.asarray(result).astype(x.dtype)


def dot_general(
    a: Array,
    b: Array,
    *,
    lhs_batch: Ints,
    rhs_batch: Ints,
    lhs_contract: Ints,
    rhs_contract: Ints,
    dtype: np.dtype,
) -> Array:
    lhs_free = [axis for axis in range(a.ndim) if axis not in lhs_batch + lhs_contract]
    rhs_free = [axis for axis in range(b.ndim) if axis not in rhs_batch + rhs_contract]
    batch, contract = [a.shape[i] for i in lhs_batch], math.prod(a.shape[i] for i in lhs_contract)
    for i, j in zip(lhs_batch + lhs_contract, rhs_batch + rhs_contract, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(f"lhs dim {i} of size {a.shape[i]} meets rhs dim {j} of size {b.shape[j]}")
    rows, columns = [a.shape[i] for i in lhs_free], [b.shape[j] for j in rhs_free]
    wide = _accumulator(dtype)
    lhs = a.astype(wide).transpose([*lhs_batch, *lhs_free, *lhs_contract])
    rhs = b.astype(wide).transpose([*rhs_batch, *rhs_contract, *rhs_free])
    with np.errstate(all="ignore"):
        product = np.matmul(
            lhs.reshape([*batch, math.prod(rows), contract]), rhs.reshape([*batch, contract, math.prod(columns)])
        )
        return product.reshape([*batch, *rows, *columns]).astype(dtype)
