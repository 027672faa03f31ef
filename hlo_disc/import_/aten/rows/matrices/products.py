"""Products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ops.expr import I32
from hlo_disc.import_.aten.rows.numbers.elementwise import scaled
from hlo_disc.import_.aten.tensors import Operand, is_just
from hlo_disc.import_.handlers.arrays import Array, matmul

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _product(r: AtenReader, a: Array, b: Array, batch: int = 0) -> Array:
    """Multiply matrices in the type in which their sums are computed."""
    return matmul(a, b, computed(a.dtype), batch)


def _added(product: Callable[[AtenReader, Array, Array], Array]) -> Callable[..., Array]:
    """Compute beta * c + alpha * product. If beta is 0, c is not used, not even its NaNs."""

    def handle(r: AtenReader, c: Array, a: Array, b: Array, *, beta: Operand = 1, alpha: Operand = 1) -> Array:
        made = scaled(product(r, a, b), alpha)
        if not is_just(beta, 0):
            made = made + scaled(c.cast(made.dtype), beta)
        return made.cast(r.out.dtype)

    return handle


ROWS: dict[str, Callable[..., Any]] = {
    "aten.mm.default": lambda r, a, b: _product(r, a, b).cast(r.out.dtype),
    "aten._int_mm.default": lambda r, a, b: matmul(a, b, I32),
    "aten.bmm.default": lambda r, a, b: _product(r, a, b, 1).cast(r.out.dtype),
    "aten.addmm.default": _added(_product),
    "aten.baddbmm.default": _added(lambda r, a, b: _product(r, a, b, 1)),
    "aten.addbmm.default": _added(lambda r, a, b: _product(r, a, b, 1).sum(0)),
}
