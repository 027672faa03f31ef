"""Dots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.handlers.products.precision import allows_tf32
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.mlir import stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _dot_general(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return _make_dot(r, op, operands, r.attr(op, "dot_dimension_numbers", _dot_numbers))


def _dot(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    rank = r.data(operands[0]).rank
    numbers = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (rank - 1,), "rhs_contract": (0,)}
    return _make_dot(r, op, operands, numbers)


def _make_dot(r: Reader, op: ir.OpView, operands: list[Operand], numbers: dict[str, tuple[int, ...]]) -> Value:
    a, b = map(r.data, operands)
    for what in ("batch", "contract"):
        for i, j in zip(numbers[f"lhs_{what}"], numbers[f"rhs_{what}"], strict=True):
            r.equal(a.shape[i], b.shape[j], f"{what}ing dimensions {i} and {j} of the operands")
    dtype = r.result_type(op)[0]
    return r.emit("dot_general", (a, b), **numbers, dtype=dtype, tf32=allows_tf32(r, op, a, b, dtype))


def _dot_numbers(attribute: ir.Attribute) -> dict[str, tuple[int, ...]]:
    numbers = stablehlo.DotDimensionNumbers(attribute)
    return {
        "lhs_batch": tuple(numbers.lhs_batching_dimensions),
        "rhs_batch": tuple(numbers.rhs_batching_dimensions),
        "lhs_contract": tuple(numbers.lhs_contracting_dimensions),
        "rhs_contract": tuple(numbers.rhs_contracting_dimensions),
    }


HANDLERS: dict[str, Handler] = {
    "stablehlo.dot_general": _dot_general,
    "stablehlo.dot": _dot,
}
