"""Formulas over values, as numpy writes them: operands are brought to one shape, numbers take the other side's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value
from hlo_disc.dynamic_hlo.ops.combiners import BOOLEAN, identity, monoid_region
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.import_.elements import ONE, ZERO
from hlo_disc.import_.handlers.broadcasts import common
from hlo_disc.import_.handlers.gather import make_take
from hlo_disc.import_.handlers.views import make_broadcast, make_concatenate, make_reshape, make_slice
from hlo_disc.import_.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader

I32, I64, F32, BOOL = map(np.dtype, (np.int32, np.int64, np.float32, np.bool_))


class Array:
    """A value with the reader that makes ops of it."""

    __slots__ = ("r", "value")

    def __init__(self, r: Reader, value: Value):
        self.r = r
        self.value = value

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    @property
    def shape(self) -> Shape:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.rank

    def emit(self, name: str, *others: Array, **attrs: Any) -> Array:
        """An op on values as they are."""
        return Array(self.r, self.r.emit(name, (self.value, *(x.value for x in others)), **attrs))

    def like(self, number: Any) -> Array:
        """A scalar of the same type."""
        if isinstance(number, Array):
            return number
        return Array(self.r, self.r.constant(np.asarray(number).astype(self.dtype)))

    def op(self, name: str, *others: Any, **attrs: Any) -> Array:
        """An elementwise op on operands of one shape."""
        x, *rest = together([self, *map(self.like, others)])
        return x.emit(name, *rest, **attrs)

    def __add__(self, other: Any) -> Array:
        return self.op("add", other) if self.dtype != BOOL else self.op("or", other)

    def __radd__(self, other: Any) -> Array:
        return self.like(other) + self

    def __sub__(self, other: Any) -> Array:
        return self.op("subtract", other)

    def __rsub__(self, other: Any) -> Array:
        return self.like(other) - self

    def __mul__(self, other: Any) -> Array:
        return self.op("multiply", other)

    def __rmul__(self, other: Any) -> Array:
        return self.like(other) * self

    def __truediv__(self, other: Any) -> Array:
        return self.op("divide", other)

    def __rtruediv__(self, other: Any) -> Array:
        return self.like(other) / self

    def __neg__(self) -> Array:
        return self.op("negate")

    def __and__(self, other: Any) -> Array:
        return self.op("and", other)

    def __or__(self, other: Any) -> Array:
        return self.op("or", other)

    def __invert__(self) -> Array:
        return self.op("not")

    def __lt__(self, other: Any) -> Array:
        return self.op("compare", other, direction="LT")

    def __le__(self, other: Any) -> Array:
        return self.op("compare", other, direction="LE")

    def __gt__(self, other: Any) -> Array:
        return self.op("compare", other, direction="GT")

    def __ge__(self, other: Any) -> Array:
        return self.op("compare", other, direction="GE")

    def equal(self, other: Any) -> Array:
        return self.op("compare", other, direction="EQ")

    def differs(self, other: Any) -> Array:
        return self.op("compare", other, direction="NE")

    def cast(self, dtype: Any) -> Array:
        dtype = np.dtype(dtype)
        if self.dtype.kind == "c" and dtype.kind != "c":
            return self.emit("real").cast(dtype)
        return self if self.dtype == dtype else self.emit("convert", dtype=dtype)

    def reshape(self, shape: Sequence[Dim | int]) -> Array:
        return Array(self.r, make_reshape(self.r, self.value, tuple(map(Dim.of, shape))))

    def transpose(self, perm: Sequence[int]) -> Array:
        return self if list(perm) == list(range(self.rank)) else self.emit("transpose", perm=tuple(perm))

    def broadcast(self, shape: Sequence[Dim], dims: Sequence[int] | None = None) -> Array:
        """Spread; dims: which axes of the result its own are, by default the last."""
        where = tuple(range(len(shape) - self.rank, len(shape))) if dims is None else tuple(dims)
        return Array(self.r, make_broadcast(self.r, self.value, tuple(shape), where))

    def expand(self, axis: int) -> Array:
        """With an axis of size 1 more."""
        return self.reshape((*self.shape[:axis], ONE, *self.shape[axis:]))

    def slice(self, axis: int, start: Dim | int, limit: Dim | int, stride: int = 1) -> Array:
        """A part of one axis."""
        starts = tuple(Dim.of(start) if a == axis else ZERO for a in range(self.rank))
        limits = tuple(Dim.of(limit) if a == axis else n for a, n in enumerate(self.shape))
        strides = tuple(stride if a == axis else 1 for a in range(self.rank))
        return Array(self.r, make_slice(self.r, self.value, starts, limits, strides))

    def pad(self, low: Sequence[Dim | int], high: Sequence[Dim | int], number: Any = 0) -> Array:
        if all(Dim.of(d) is ZERO for d in (*low, *high)):
            return self
        ends = [tuple(map(Dim.of, x)) for x in (low, high)]
        return self.emit("pad", self.like(number), low=ends[0], high=ends[1], interior=(ZERO,) * self.rank)

    def iota(self, axis: int, dtype: Any = I32) -> Array:
        """The index along an axis, of the same shape."""
        return iota(self.r, self.shape, axis, dtype)

    def reduce(self, kind: str, axes: Sequence[int], keep: bool = False) -> Array:
        """kind: add, mul, max, min, and, or."""
        kind = BOOLEAN.get(kind, kind) if self.dtype == BOOL else kind
        axes = tuple(sorted(a % self.rank for a in axes))
        init = Array(self.r, self.r.constant(identity(kind, self.dtype)))
        made = self.emit("reduce", init, dims=axes, kind=kind) if axes else self
        return made.reshape([ONE if a in axes else n for a, n in enumerate(self.shape)]) if keep else made

    def sum(self, axes: Sequence[int], keep: bool = False) -> Array:
        return self.reduce("add", axes, keep)

    def count(self, axes: Sequence[int], dtype: Any) -> Array:
        """How many elements some axes have, as a scalar."""
        return size_scalar(self.r, dim_product(self.shape[a] for a in axes), dtype)

    def mean(self, axes: Sequence[int], keep: bool = False) -> Array:
        return self.sum(axes, keep) / self.count(axes, self.dtype)

    def cumulative(self, kind: str, axis: int, reverse: bool = False) -> Array:
        """Prefixes combined."""
        init = Array(self.r, self.r.constant(identity(kind, self.dtype)))
        return self.emit("cumulative", init, dim=axis, reverse=reverse, body=monoid_region(kind, self.dtype))

    def take(self, indices: Array, axis: int, batch: int = 0) -> Array:
        """Take elements at indices, which are in range, along an axis; the first `batch` axes of both are paired."""
        return Array(self.r, make_take(self.r, self.value, indices.value, axis, batch))

    def scatter(self, indices: Array, updates: Array, depth: int, body: Region) -> Array:
        """Windows combined into places that vectors of `depth` indices, the last axis, say."""
        batch = indices.rank - 1
        return self.emit(
            "scatter",
            indices,
            updates,
            offset_dims=tuple(range(batch, updates.rank)),
            collapsed_slice_dims=tuple(range(depth)),
            operand_batching_dims=(),
            start_indices_batching_dims=(),
            start_index_map=tuple(range(depth)),
            index_vector_dim=batch,
            unique=False,
            count=1,
            body=body,
        )

    def real(self) -> Array:
        return self.emit("real") if self.dtype.kind == "c" else self

    def conj(self) -> Array:
        return self.emit("real").emit("complex", -self.emit("imag")) if self.dtype.kind == "c" else self

    def sqrt(self) -> Array:
        return self.op("sqrt")

    def exp(self) -> Array:
        return self.op("exponential")

    def log(self) -> Array:
        return self.op("log")

    def abs(self) -> Array:
        return self if self.dtype.kind == "u" else self.op("abs")

    def maximum(self, other: Any) -> Array:
        return self.op("maximum", other)

    def minimum(self, other: Any) -> Array:
        return self.op("minimum", other)


def array(r: Reader, x: Operand) -> Array:
    """An operand of the program."""
    return Array(r, r.data(x))


def together(arrays: Sequence[Array]) -> list[Array]:
    """All in the shape that they broadcast to."""
    r, rank = arrays[0].r, max(x.rank for x in arrays)
    shape: list[Dim] = [ONE] * rank
    for x in arrays:
        for axis, n in enumerate(x.shape, rank - x.rank):
            shape[axis] = common(r, shape[axis], n)
    return [x.broadcast(shape) for x in arrays]


def where(condition: Array, yes: Any, no: Any) -> Array:
    """Elements of one where a condition holds, and of another elsewhere."""
    some = yes if isinstance(yes, Array) else no
    condition, yes, no = together([condition, some.like(yes), some.like(no)])
    return condition.emit("select", yes, no)


def iota(r: Reader, shape: Sequence[Dim], axis: int, dtype: Any = I32) -> Array:
    return Array(r, r.emit("iota", shape=tuple(shape), dim=axis, dtype=np.dtype(dtype)))


def filled(r: Reader, number: Any, dtype: Any, shape: Sequence[Dim]) -> Array:
    return Array(r, r.constant(np.asarray(number).astype(dtype))).broadcast(tuple(shape))


def size_scalar(r: Reader, size: Dim, dtype: Any) -> Array:
    """A size as data."""
    if size.is_const:
        return filled(r, size.value, dtype, ())
    return Array(r, r.emit("dim", expr=size, dtype=I64)).cast(dtype)


def joined(arrays: Sequence[Array], axis: int) -> Array:
    """Concatenated."""
    r = arrays[0].r
    return Array(r, make_concatenate(r, [x.value for x in arrays], axis))


def dot(a: Array, b: Array, lhs: Sequence[int], rhs: Sequence[int], batch: int = 0, dtype: Any = None) -> Array:
    """Products summed over some axes, the first `batch` axes of both taken together."""
    for i, j in (*((k, k) for k in range(batch)), *zip(lhs, rhs, strict=True)):
        a.r.equal(a.shape[i], b.shape[j], f"dimensions {i} and {j} of the operands")
    lead = tuple(range(batch))
    numbers = {"lhs_batch": lead, "rhs_batch": lead, "lhs_contract": tuple(lhs), "rhs_contract": tuple(rhs)}
    return a.emit("dot_general", b, **numbers, dtype=np.dtype(dtype or a.dtype), tf32=False)


def eps(dtype: np.dtype) -> float:
    """The distance from 1 to the next number."""
    return float(np.finfo(part_dtype(dtype)).eps)
