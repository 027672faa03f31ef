"""Batch normalisation, in its three forms: expanded to what it is defined as. Source: the StableHLO specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.import_.decode import integer
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.shapes import Operand
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader

_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)


class _Feature:
    """Arithmetic on a tensor and on vectors over its feature axis. Halves are computed in f32 and rounded once."""

    def __init__(self, r: Reader, op: Any, x: Value):
        self.r, self.type = r, x.dtype
        self.wide = x.dtype if x.dtype.itemsize >= 4 else _F32
        self.axis = r.attr(op, "feature_index", integer)
        if not 0 <= self.axis < x.rank:
            r.unsupported(f"the feature axis {self.axis} is none of rank {x.rank}")
        if dtype_class(x.dtype) != "float":
            r.unsupported(f"batch normalisation of {x.dtype}")
        self.shape = x.shape
        self.others = tuple(a for a in range(x.rank) if a != self.axis)
        self.epsilon = r.constant(np.array(ir.FloatAttr(op.attributes["epsilon"]).value, self.wide))

    def __call__(self, name: str, *values: Value) -> Value:
        """An elementwise op; of tensors and vectors together, the vectors are spread over the tensor."""
        rank = max(v.rank for v in values)
        return self.r.emit(name, [v if v.rank == rank else self.spread(v, rank) for v in values])

    def spread(self, v: Value, rank: int) -> Value:
        shape = self.shape if rank == len(self.shape) else (self.shape[self.axis],)
        dims = (self.axis,) if v.rank and rank == len(self.shape) else () if not v.rank else (0,)
        return self.r.emit("broadcast", (v,), shape=shape, dims=dims)

    def widen(self, values: Sequence[Value]) -> list[Value]:
        for v in values:
            if v.rank == 1:
                self.r.equal(v.shape[0], self.shape[self.axis], "the feature axis and a vector over it")
        return [v if v.dtype == self.wide else self.r.emit("convert", (v,), dtype=self.wide) for v in values]

    def narrow(self, v: Value) -> Value:
        return v if v.dtype == self.type else self.r.emit("convert", (v,), dtype=self.type)

    def sum(self, v: Value) -> Value:
        zero = self.r.constant(np.array(0, self.wide))
        return self.r.emit("reduce", (v, zero), dims=self.others, kind="add")

    def mean(self, v: Value) -> Value:
        return self("divide", self.sum(v), self.count())

    def count(self) -> Value:
        """How many elements a feature has, as a float."""
        count = self.r.emit("dim", expr=dim_product(self.shape[a] for a in self.others), dtype=_I64)
        return self.r.emit("convert", (count,), dtype=self.wide)

    def deviation(self, variance: Value) -> Value:
        return self("sqrt", self("add", variance, self.epsilon))


def _normalised(f: _Feature, x: Value, scale: Value, offset: Value, mean: Value, variance: Value) -> Value:
    centred = f("subtract", x, mean)
    return f("add", f("multiply", f("divide", centred, f.deviation(variance)), scale), offset)


def _inference(r: Reader, op: Any, operands: list[Operand]) -> Result:
    x, *vectors = (r.data(v) for v in operands)
    f = _Feature(r, op, x)
    return f.narrow(_normalised(f, *f.widen([x, *vectors])))


def _training(r: Reader, op: Any, operands: list[Operand]) -> Result:
    f = _Feature(r, op, r.data(operands[0]))
    x, scale, offset = f.widen([r.data(v) for v in operands])
    mean = f.mean(x)
    centred = f("subtract", x, mean)
    variance = f.mean(f("multiply", centred, centred))
    return [f.narrow(v) for v in (_normalised(f, x, scale, offset, mean, variance), mean, variance)]


def _grad(r: Reader, op: Any, operands: list[Operand]) -> Result:
    f = _Feature(r, op, r.data(operands[0]))
    x, scale, mean, variance, grad = f.widen([r.data(v) for v in operands])
    r.same_shape((x, grad))
    centred, deviation = f("subtract", x, mean), f.deviation(variance)
    summed, weighted = f.sum(grad), f.sum(f("multiply", grad, centred))
    square = f("add", variance, f.epsilon)
    change = f("subtract", f("multiply", grad, f.spread(f.count(), x.rank)), summed)
    change = f("subtract", change, f("divide", f("multiply", centred, weighted), square))
    grad_x = f("multiply", change, f("divide", f("divide", scale, deviation), f.count()))
    return [f.narrow(v) for v in (grad_x, f("divide", weighted, deviation), summed)]


HANDLERS: dict[str, Handler] = {
    "stablehlo.batch_norm_inference": _inference,
    "stablehlo.batch_norm_training": _training,
    "stablehlo.batch_norm_grad": _grad,
}
