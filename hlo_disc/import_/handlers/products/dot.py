"""Dots."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.axes import SIDES
from hlo_disc.import_.handlers.products.precision import allows_tf32
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.mlir import stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _dot_general(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return _typed_dot(r, op, operands, r.attr(op, "dot_dimension_numbers", _dot_numbers))


def _dot(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    rank = r.data(operands[0]).rank
    numbers: Attributes = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (rank - 1,), "rhs_contract": (0,)}
    return _typed_dot(r, op, operands, numbers)


def _typed_dot(r: Reader, op: ir.OpView, operands: list[Operand], numbers: Attributes) -> Value:
    a, b = map(r.data, operands)
    dtype = r.result_type(op)[0]
    return make_dot(r, a, b, numbers, dtype, allows_tf32(r, op, a, b, dtype))


def make_dot(r: Reader, a: Value, b: Value, numbers: Attributes, dtype: np.dtype, tf32: bool = False) -> Value:
    """Emit a dot of operands that fit."""
    need_alike(r, a, b, numbers)
    return r.emit("dot_general", (a, b), **numbers | {"dtype": dtype, "tf32": tf32})


def need_alike(r: Reader, a: Value, b: Value, numbers: Attributes) -> None:
    """Require that paired axes have equal sizes."""
    for k, what in enumerate(("batch", "contract")):
        lhs, rhs = (numbers[side[k]] for side in SIDES)
        for i, j in zip(lhs, rhs, strict=True):
            r.equal(a.shape[i], b.shape[j], f"{what}ing dimensions {i} and {j} of the operands")


def numbers_of(written: object, batch: str = "batching") -> Attributes:
    """Decode dimension numbers of StableHLO, CHLO or XLA. batch: their name for paired axes."""
    numbers = {
        f"{side}_{own}": tuple(getattr(written, f"{side}_{name}_dimensions"))
        for own, name in (("batch", batch), ("contract", "contracting"))
        for side in ("lhs", "rhs")
    }
    return cast("Attributes", numbers)


def _dot_numbers(attribute: ir.Attribute) -> Attributes:
    return numbers_of(stablehlo.DotDimensionNumbers(attribute))


HANDLERS: dict[str, Handler] = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
}
