"""Formulas over values, as in numpy: the operators of `expr.Array`, and functions that need shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dtypes import part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Region, Value, isolated, with_captures
from hlo_disc.dynamic_hlo.ops import expr
from hlo_disc.dynamic_hlo.ops.builder import make_region
from hlo_disc.dynamic_hlo.ops.expr import I32, Term, scalar
from hlo_disc.dynamic_hlo.ops.families.combiners import BOOLEAN, identity, monoid_region
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.gather import make_take
from hlo_disc.import_.handlers.views import make_concatenate, make_reshape, make_slice
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hlo_disc.import_.stablehlo.reader import Reader


Axes = int | Sequence[int] | None
_INVERSES = {"sub": "subtract", "div": "divide"}


class Array(expr.Array):
    """A value with the reader that emits ops on it. Axes may be negative, as in -1 for the last one."""

    __slots__ = ()
    r: Construction

    def reshape(self, shape: Sequence[Dim | int]) -> Array:
        return Array(self.r, make_reshape(self.r, self.value, tuple(map(Dim.of, shape))))

    def transpose(self, perm: Sequence[int]) -> Array:
        perm = tuple(axis % self.rank for axis in perm)
        return self if perm == tuple(range(self.rank)) else self.emit("transpose", perm=perm)

    def broadcast(self, shape: Sequence[Dim], dims: Sequence[int] | None = None) -> Array:
        """Broadcast. dims: the axes of the result that are the value's, by default the last."""
        return Array(self.r, self.r.broadcast(self.value, tuple(shape), None if dims is None else tuple(dims)))

    def expand(self, axis: int) -> Array:
        """Insert an axis of size 1."""
        axis %= self.rank + 1
        return self.reshape((*self.shape[:axis], ONE, *self.shape[axis:]))

    def squeeze(self, axis: int) -> Array:
        """Remove an axis of size 1."""
        axis %= self.rank
        return self.reshape((*self.shape[:axis], *self.shape[axis + 1 :]))

    def flat(self) -> Array:
        """Flatten to one axis."""
        return self.reshape((dim_product(self.shape),))

    def slice(self, axis: int, start: Dim | int, limit: Dim | int, stride: int = 1) -> Array:
        """Take a part of one axis."""
        axis %= self.rank
        starts = tuple(Dim.of(start) if a == axis else ZERO for a in range(self.rank))
        limits = tuple(Dim.of(limit) if a == axis else n for a, n in enumerate(self.shape))
        strides = tuple(stride if a == axis else 1 for a in range(self.rank))
        return Array(self.r, make_slice(self.r, self.value, starts, limits, strides))

    def pad(self, low: Sequence[Dim | int], high: Sequence[Dim | int], number: Term = 0) -> Array:
        if all(Dim.of(d) is ZERO for d in (*low, *high)):
            return self
        ends = [tuple(map(Dim.of, x)) for x in (low, high)]
        return self.emit("pad", self.like(number), low=ends[0], high=ends[1], interior=(ZERO,) * self.rank)

    def reverse(self, axes: Sequence[int]) -> Array:
        return self.emit("reverse", dims=self.axes(axes)) if self.rank and axes else self

    def iota(self, axis: int, dtype: DTypeLike = I32) -> Array:
        """Return the index along an axis, in the same shape."""
        return iota(self.r, self.shape, axis, dtype)

    def axes(self, axes: Axes) -> tuple[int, ...]:
        """Return axes in order; None stands for all."""
        if axes is None or not self.rank:
            return tuple(range(self.rank))
        return tuple(sorted(axis % self.rank for axis in ((axes,) if isinstance(axes, int) else axes)))

    def reduce(self, kind: str, axes: Axes, keep: bool = False) -> Array:
        """Reduce. kind: add, mul, max, min, and, or. keep: axes stay, with size 1."""
        kind = BOOLEAN.get(kind, kind) if self.dtype == expr.BOOL else kind
        axes = self.axes(axes)
        made = self
        if axes:
            made = self.emit("reduce", filled(self.r, identity(kind, self.dtype), self.dtype), dims=axes, kind=kind)
        return made.reshape([ONE if a in axes else n for a, n in enumerate(self.shape)]) if keep else made

    def sum(self, axes: Axes, keep: bool = False) -> Array:
        return self.reduce("add", axes, keep)

    def count(self, axes: Axes, dtype: DTypeLike) -> Array:
        """Return the number of elements along some axes, as a scalar."""
        return filled(self.r, dim_product(self.shape[a] for a in self.axes(axes)), dtype)

    def mean(self, axes: Axes, keep: bool = False) -> Array:
        return self.sum(axes, keep) / self.count(axes, self.dtype)

    def cumulative(self, kind: str, axis: int, reverse: bool = False) -> Array:
        """Return running sums, products or maxima."""
        start, body = filled(self.r, identity(kind, self.dtype), self.dtype), monoid_region(kind, self.dtype)
        return self.emit("cumulative", start, dim=axis % self.rank, reverse=reverse, body=body)

    def take(self, indices: Array, axis: int, batch: int = 0) -> Array:
        """Take elements at indices, which are in range, along an axis; the first `batch` axes of both are paired."""
        return Array(self.r, make_take(self.r, self.value, indices.value, axis, batch))

    def window(self, axis: int, start: Array, size: Dim = ONE) -> Array:
        """Take a part of one axis whose position is data."""
        sizes = tuple(size if a == axis else n for a, n in enumerate(self.shape))
        return self.emit("dynamic_slice", *_corner(self, axis, start), sizes=sizes)

    def put(self, axis: int, start: Array, part: Array) -> Array:
        """Replace such a part."""
        return self.emit("dynamic_update_slice", part, *_corner(self, axis, start))

    def gather(self, indices: Array, depth: int) -> Array:
        """Gather the elements at vectors of `depth` indices, on the last axis; of the other axes all."""
        numbers, sizes = _places(self, indices, depth), (*(ONE,) * depth, *self.shape[depth:])
        return self.emit("gather", indices, **numbers | {"slice_sizes": sizes})

    def scatter(self, indices: Array, updates: Array, depth: int, kind: str = "set") -> Array:
        """Combine updates into such positions. kind: as in `combining`."""
        numbers, body = _places(self, indices, depth), combining(self.r, kind, self.dtype)
        return self.emit("scatter", indices, updates, **numbers | {"unique": False, "count": 1, "body": body})


def _corner(x: Array, axis: int, start: Array) -> list[Array]:
    """Return the start indices, on all axes, of a part of one axis."""
    return [start if a == axis else start.like(0) for a in range(x.rank)]


def combining(r: Construction, kind: str, dtype: np.dtype) -> Region:
    """Return the region of a scatter. kind: set, where updates replace elements, sub, div, or a monoid's name."""
    if kind == "set":
        return make_region(r.facts, [(dtype, ())] * 2, lambda b, v: [v[1]])
    if kind in _INVERSES:
        return make_region(r.facts, [(dtype, ())] * 2, lambda b, v: [b.op(_INVERSES[kind], v)])
    return monoid_region(BOOLEAN.get(kind, kind) if dtype == expr.BOOL else kind, dtype)


def _places(x: Array, indices: Array, depth: int) -> Attributes:
    """Return the dimension numbers of a gather from the first `depth` axes, or of a scatter into them."""
    batch, indexed = indices.rank - 1, tuple(range(depth))
    return {
        "offset_dims": tuple(range(batch, batch + x.rank - depth)),
        "collapsed_slice_dims": indexed,
        "operand_batching_dims": (),
        "start_indices_batching_dims": (),
        "start_index_map": indexed,
        "index_vector_dim": batch,
    }


def array(r: Reader, x: Operand) -> Array:
    """Return an operand of the program as an array."""
    return Array(r, r.data(x))


def together(arrays: Sequence[Array]) -> list[Array]:
    """Broadcast all to a common shape."""
    r = arrays[0].r
    return [Array(r, x) for x in r.alike([x.value for x in arrays])]


def iota(r: Construction, shape: Sequence[Dim], axis: int, dtype: DTypeLike = I32) -> Array:
    return Array(r, r.emit("iota", shape=tuple(shape), dim=axis % len(shape), dtype=np.dtype(dtype)))


def filled(
    r: Construction, x: Dim | complex | np.generic | np.ndarray, dtype: DTypeLike | None, shape: Sequence[Dim] = ()
) -> Array:
    """Fill a shape with a number or a size."""
    return Array(r, scalar(r, x, np.dtype(dtype))).broadcast(shape)


def joined(arrays: Sequence[Array], axis: int) -> Array:
    """Concatenate arrays."""
    r = arrays[0].r
    return Array(r, make_concatenate(r, [x.value for x in arrays], axis % arrays[0].rank))


def emit_all(r: Construction, name: str, arrays: Iterable[Array], **attrs: Unpack[Attributes]) -> list[Array]:
    """Emit an op with several results."""
    return [Array(r, x) for x in r.emit_all(name, [x.value for x in arrays], **attrs)]


def matmul(a: Array, b: Array, dtype: np.dtype, batch: int = 0) -> Array:
    """Multiply matrices, (batch …, m, k) x (batch …, k, n), with sums in `dtype`."""
    lead = tuple(range(batch))
    return a.emit(
        "dot_general", b, lhs_batch=lead, rhs_batch=lead, lhs_contract=(a.rank - 1,), rhs_contract=(batch,),
        dtype=dtype, tf32=False,
    )  # fmt: skip


def dot(
    a: Array, b: Array, lhs: Sequence[int], rhs: Sequence[int], batch: int = 0, dtype: DTypeLike | None = None
) -> Array:
    """Multiply and sum over some axes; the first `batch` axes of both are paired."""
    for i, j in (*((k, k) for k in range(batch)), *zip(lhs, rhs, strict=True)):
        a.r.equal(a.shape[i], b.shape[j], f"dimensions {i} and {j} of the operands")
    lead = tuple(range(batch))
    return a.emit(
        "dot_general", b, lhs_batch=lead, rhs_batch=lead, lhs_contract=tuple(lhs), rhs_contract=tuple(rhs),
        dtype=np.dtype(dtype or a.dtype), tf32=False,
    )  # fmt: skip


def eps(dtype: np.dtype) -> float:
    """Return the distance from 1 to the next number."""
    return float(np.finfo(part_dtype(dtype)).eps)


def loop(
    r: Construction, test: Callable[..., Array], step: Callable[..., Sequence[Array]], initial: Sequence[Array]
) -> list[Array]:
    """Loop over carried arrays while a test of them holds. Both functions take the carried arrays."""
    inputs = [Value(x.dtype, x.shape, None, i) for i, x in enumerate(initial)]
    carried = [Array(r, x) for x in inputs]

    def region(function: Callable[[], Sequence[Array]]) -> tuple[Region, tuple[Value, ...]]:
        with r.inside():
            return isolated(inputs, r.builder.ops, [x.value for x in function()])

    (cond, body), captured = with_captures(
        [region(lambda: [test(*carried)]), region(lambda: step(*carried))], len(initial)
    )
    operands = [*initial, *(Array(r, x) for x in captured)]
    return emit_all(r, "while", operands, cond=cond, body=body, carried=len(initial))
