"""Batch normalisation, in its three forms, expanded to its definition. Source: the StableHLO specification."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.formulas.norms import Features
from hlo_disc.import_.handlers.arrays import Array, array
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import integer
from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


class _Norm(Features):
    """The axis of features and the epsilon of an op. 16-bit floats are computed in f32 and rounded once."""

    def __init__(self, r: Reader, op: ir.OpView, x: Value):
        super().__init__(x.shape, r.attr(op, "feature_index", integer))
        self.r, self.type = r, x.dtype
        if not 0 <= self.axis < x.rank:
            r.unsupported(f"the feature axis {self.axis} is none of rank {x.rank}")
        if dtype_class(x.dtype) != "float":
            r.unsupported(f"batch normalisation of {x.dtype}")
        self.epsilon = ir.FloatAttr(op.attributes["epsilon"]).value

    def widen(self, operands: Iterable[Operand]) -> list[Array]:
        arrays = [array(self.r, x) for x in operands]
        for x in arrays:
            if x.rank == 1:
                self.r.equal(x.shape[0], self.shape[self.axis], "the feature axis and a vector over it")
        return [x.cast(computed(self.type)) for x in arrays]

    def narrow(self, x: Array) -> Value:
        return x.cast(self.type).value

    def normalised(self, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
        deviation = (variance + self.epsilon).sqrt()
        centred = x - self.spread(mean)
        return centred / self.spread(deviation) * self.spread(scale) + self.spread(offset)


def _inference(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    f = _Norm(r, op, r.data(operands[0]))
    return f.narrow(f.normalised(*f.widen(operands)))


def _training(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    f = _Norm(r, op, r.data(operands[0]))
    x, scale, offset = f.widen(operands)
    mean, variance = f.moments(x)
    return [f.narrow(v) for v in (f.normalised(x, scale, offset, mean, variance), mean, variance)]


def _grad(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    f = _Norm(r, op, r.data(operands[0]))
    x, scale, mean, variance, grad = f.widen(operands)
    r.same_shape((x.value, grad.value))
    square, count = variance + f.epsilon, x.count(f.others, x.dtype)
    centred, deviation = x - f.spread(mean), square.sqrt()
    summed, weighted = f.sums(grad, centred)
    change = grad * count - f.spread(summed) - centred * f.spread(weighted) / f.spread(square)
    grad_x = change * f.spread(scale / deviation / count)
    return [f.narrow(v) for v in (grad_x, weighted / deviation, summed)]


HANDLERS: dict[str, Handler] = {
    "stablehlo.batch_norm_inference": _inference,
    "stablehlo.batch_norm_training": _training,
    "stablehlo.batch_norm_grad": _grad,
}
