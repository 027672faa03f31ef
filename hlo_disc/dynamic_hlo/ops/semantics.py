"""What each op computes, in numpy: `function(*arrays, **attrs)` with every size an int.

The semantics are those of the StableHLO specification and, where that leaves a choice, XLA's. Sums and products of
floats accumulate in f64, so that a comparison against these functions measures the other side's error.
"""

from __future__ import annotations

import math

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class
from hlo_disc.errors import ShapeError

Array = np.ndarray
Ints = tuple[int, ...]


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


# --------------------------------------------------------------------------------------------------------- assemble


def concatenate(*xs: Array, dim: int) -> Array:
    return np.concatenate(xs, axis=dim)


def pad(x: Array, value: Array, *, low: Ints, high: Ints, interior: Ints) -> Array:
    result: list[int] = []
    taken, places = [], []
    for n, before, after, gap in zip(x.shape, low, high, interior, strict=True):
        result.append(before + n + max(n - 1, 0) * gap + after)
        place = before + np.arange(n) * (gap + 1)
        inside = (place >= 0) & (place < result[-1])
        taken.append(np.flatnonzero(inside))
        places.append(place[inside])
    padded = np.full(result, value, x.dtype)
    padded[np.ix_(*places)] = x[np.ix_(*taken)]
    return padded


# --------------------------------------------------------------------------------------------- reductions and dots

_REDUCE = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def _accumulator(dtype: np.dtype) -> np.dtype:
    if bit_width(dtype) < 8 and dtype_class(dtype) != "float":
        return np.dtype(np.int64)  # wraps to the same
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
