"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.tensors import I32, Operand

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _product(r: AtenReader, a: Value, b: Value, batch: int = 0) -> Value:
    """Multiply matrices in the type in which their sums are computed."""
    return r.matmul(a, b, computed(a.dtype), batch)


def _mm(r: AtenReader, a: Value, b: Value) -> Value:
    return r.convert(_product(r, a, b), r.out.dtype)


def _bmm(r: AtenReader, a: Value, b: Value) -> Value:
    return r.convert(_product(r, a, b, 1), r.out.dtype)


def _scaled(r: AtenReader, x: Value, factor: Operand) -> Value:
    return x if factor == 1 else r.op("multiply", x, factor)


def _added(batch: int) -> Callable[..., Value]:
    """beta * c + alpha * a @ b; where beta is 0, what c holds does not count."""

    def handle(r: AtenReader, c: Value, a: Value, b: Value, *, beta: Operand = 1, alpha: Operand = 1) -> Value:
        made = _scaled(r, _product(r, a, b, batch), alpha)
        if beta != 0:
            made = r.op("add", made, _scaled(r, r.convert(c, made.dtype), beta))
        return r.convert(made, r.out.dtype)

    return handle


ROWS: dict[str, Callable[..., Any]] = {
    "aten.mm.default": _mm,
    "aten._int_mm.default": lambda r, a, b: r.matmul(a, b, I32),
    "aten.bmm.default": _bmm,
    "aten.addmm.default": _added(0),
    "aten.baddbmm.default": _added(1),
}
