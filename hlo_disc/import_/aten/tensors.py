"""Arithmetic on tensors with what frameworks leave unsaid: numbers among operands, broadcasting, axes from behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.combiners import BOOLEAN, identity, monoid_region
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.elements import ONE, ZERO
from hlo_disc.import_.handlers.views import make_concatenate, make_reshape, make_slice

BOOL, I32, I64 = np.dtype(bool), np.dtype(np.int32), np.dtype(np.int64)
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
Operand = Value | Dim | complex
Size = Dim | int
Axes = int | Sequence[int] | None


class Tensors(Construction):
    """Ops in the form in which handlers write formulas. Axes may be negative, as in -1 for the last one."""

    # Numbers and types

    def scalar(self, x: Operand, dtype: np.dtype) -> Value:
        """A number, or a size, as a tensor without axes; tensors as they are, of this type."""
        if isinstance(x, Value):
            return self.convert(x, dtype)
        if isinstance(x, Dim) and not x.is_const:
            return self.convert(self.emit("dim", expr=x, dtype=I64), dtype)
        number = x.value if isinstance(x, Dim) else x
        with np.errstate(all="ignore"):
            return self.constant(np.asarray(number).astype(dtype))

    def held(self, x: Operand, dtype: np.dtype) -> Value:
        """A number that is given to a tensor of this type, which has to hold it: in arithmetic it would wrap."""
        if isinstance(x, Dim) and dtype.kind in "iu" and dtype.itemsize < 8:
            self.fits(x, dtype)
        return self.scalar(x, dtype)

    def convert(self, x: Value, dtype: np.dtype) -> Value:
        if x.dtype == dtype:
            return x
        if dtype_class(x.dtype) == "complex" and dtype == BOOL:
            return self.compare(x, "NE", 0)
        if dtype_class(x.dtype) == "complex" and dtype_class(dtype) != "complex":
            x = self.emit("real", (x,))
        return x if x.dtype == dtype else self.emit("convert", (x,), dtype=dtype)

    def full(self, x: Operand, dtype: np.dtype, shape: Shape) -> Value:
        return self.broadcast(self.held(x, dtype), shape)

    def iota(self, dtype: np.dtype, shape: Shape, axis: int = 0) -> Value:
        return self.emit("iota", shape=shape, dim=axis % len(shape), dtype=dtype)

    # Shapes

    def common(self, values: Sequence[Value]) -> Shape:
        """The shape to which all broadcast."""
        rank = max(x.rank for x in values)
        shape = [ONE] * rank
        for x in values:
            for axis, size in enumerate(x.shape, rank - x.rank):
                if shape[axis] is ONE:
                    shape[axis] = size
                elif size is not ONE:
                    self.equal(shape[axis], size, f"dimension {axis} of two operands")
        return tuple(shape)

    def broadcast(self, x: Value, shape: Shape, dims: tuple[int, ...] | None = None) -> Value:
        """By PyTorch's and numpy's rule; a size that may be 1 is not spread."""
        if dims is not None:
            return self.emit("broadcast", (x,), shape=shape, dims=dims)
        before = len(shape) - x.rank
        spread = before > 0
        for axis, (size, target) in enumerate(zip(x.shape, shape[before:], strict=True)):
            if size is ONE and target is not ONE:
                spread = True
            elif size is not target:
                self.equal(size, target, f"dimension {axis} of an operand and the size that it is spread to")
        return self.emit("broadcast", (x,), shape=shape, dims=tuple(range(before, len(shape)))) if spread else x

    def reshape(self, x: Value, shape: Shape) -> Value:
        return make_reshape(self, x, shape)

    def flat(self, x: Value) -> Value:
        return self.reshape(x, (dim_product(x.shape),))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        order = tuple(axis % x.rank for axis in order)
        return x if order == tuple(range(x.rank)) else self.emit("transpose", (x,), perm=order)

    def unsqueeze(self, x: Value, axis: int) -> Value:
        axis %= x.rank + 1
        return self.emit("reshape", (x,), shape=(*x.shape[:axis], ONE, *x.shape[axis:]))

    def squeeze(self, x: Value, axis: int) -> Value:
        """Without an axis of size 1."""
        axis %= x.rank
        return self.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))

    def slice(self, x: Value, axis: int, start: Dim | int, limit: Dim | int, stride: int = 1) -> Value:
        axis %= x.rank
        starts, limits = [ZERO] * x.rank, list(x.shape)
        starts[axis], limits[axis] = Dim.of(start), Dim.of(limit)
        strides = tuple(stride if a == axis else 1 for a in range(x.rank))
        return make_slice(self, x, tuple(starts), tuple(limits), strides)

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        return make_concatenate(self, values, axis % values[0].rank)

    def pad(self, x: Value, value: Operand, low: Sequence[Dim | int], high: Sequence[Dim | int]) -> Value:
        sides = [tuple(map(Dim.of, side)) for side in (low, high)]
        none = (ZERO,) * x.rank
        return self.emit("pad", (x, self.scalar(value, x.dtype)), low=sides[0], high=sides[1], interior=none)

    # Elements

    def op(self, name: str, *operands: Operand, **attrs: Any) -> Value:
        """An elementwise op. Operands are spread; numbers, and tensors without axes, have the type of the first one."""
        dtype = next(x.dtype for x in operands if isinstance(x, Value))
        values = [x if isinstance(x, Value) and x.rank else self.scalar(x, dtype) for x in operands]
        if len(values) > 1:
            shape = self.common(values)
            values = [self.broadcast(x, shape) for x in values]
        return self.emit(name, values, **attrs)

    def compare(self, a: Operand, direction: str, b: Operand) -> Value:
        """direction: EQ, NE, LT, LE, GT or GE."""
        return self.op("compare", a, b, direction=direction)

    def select(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """Operands that are numbers have the type of the other one."""
        dtype = next(x.dtype for x in (yes, no) if isinstance(x, Value))
        values = [condition, self.scalar(yes, dtype), self.scalar(no, dtype)]
        shape = self.common(values)
        return self.emit("select", [self.broadcast(x, shape) for x in values])

    # Reductions

    def axes(self, axes: Axes, rank: int) -> tuple[int, ...]:
        """Axes of a tensor in order; None or none at all are all axes."""
        if axes is None or (not isinstance(axes, int) and not len(axes)):
            return tuple(range(rank))
        chosen = (axes,) if isinstance(axes, int) else axes
        return tuple(sorted(axis % rank for axis in chosen)) if rank else ()

    def reduce(self, x: Value, axes: Axes, kind: str, keep: bool = False) -> Value:
        """kind: add, mul, max, min, and, or; of truth values they mean the last two. keep: axes stay, of size 1."""
        kind = BOOLEAN.get(kind, kind) if x.dtype == BOOL else kind
        reduced = self.axes(axes, x.rank)
        made = x
        if reduced:
            start = self.constant(np.asarray(identity(kind, x.dtype)))
            made = self.emit("reduce", (x, start), dims=reduced, kind=kind)
        if not keep:
            return made
        return self.reshape(made, tuple(ONE if axis in reduced else size for axis, size in enumerate(x.shape)))

    def cumulative(self, x: Value, axis: int, kind: str, reverse: bool = False) -> Value:
        """Running sums, products, maxima."""
        start = self.constant(np.asarray(identity(kind, x.dtype)))
        body = monoid_region(kind, x.dtype)
        (made,) = self.emit_all("cumulative", (x, start), dim=axis % x.rank, reverse=reverse, body=body)
        return made

    def count(self, x: Value, axes: Axes, dtype: np.dtype) -> Value:
        """How many elements the axes have, as a number."""
        size = ONE
        for axis in self.axes(axes, x.rank):
            size = size * x.shape[axis]
        return self.scalar(size, dtype)

    # Products

    def matmul(self, a: Value, b: Value, dtype: np.dtype, batch: int = 0) -> Value:
        """(batch …, m, k) x (batch …, k, n): sums of products in `dtype`."""
        axes = tuple(range(batch))
        return self.emit(
            "dot_general", (a, b), lhs_batch=axes, rhs_batch=axes, lhs_contract=(a.rank - 1,),
            rhs_contract=(batch,), dtype=dtype, tf32=False,
        )  # fmt: skip
