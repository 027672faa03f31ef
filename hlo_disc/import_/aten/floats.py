"""Floats that follow from sizes, as `1 / math.sqrt(n)`: computed by the program, in f64 as Python does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sympy

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.shapes import is_long
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.aten.tensors import F64

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def scalar(r: AtenReader, e: sympy.Expr) -> Value:
    """A sympy expression as an f64 without axes. Raises UnsupportedOpError."""
    if e.is_number:
        return r.scalar(float(e), F64)
    if e.is_Symbol and not e.is_integer:
        if e.name not in r.data.floats:
            raise UnsupportedOpError(f"the number {e} is none that follows from sizes, which is not supported")
        return r.data.floats[e.name]
    if e.is_Symbol or e.is_integer:
        return _integer(r, r.dim_of(e))
    name = type(e).__name__
    make = _FUNCTIONS.get(name)
    if make is None:
        raise UnsupportedOpError(f"the number {e} follows from sizes by {name}, which is not supported")
    return make(r, *[scalar(r, x) for x in e.args])


def _integer(r: AtenReader, size: Dim) -> Value:
    """In parts where 64 bits may not hold it."""
    if not is_long(size):
        return r.scalar(size, F64)
    terms = [
        _folded("multiply")(r, r.scalar(float(factor), F64), *(_integer(r, atom.dim) for atom in monomial))
        for monomial, factor in size.terms
    ]
    return _folded("add")(r, *terms)


def _folded(name: str) -> Callable[..., Value]:
    def fold(r: AtenReader, first: Value, *rest: Value) -> Value:
        for x in rest:
            first = r.op(name, first, x)
        return first

    return fold


def _op(name: str) -> Callable[..., Value]:
    return lambda r, *operands: r.op(name, *operands)


# By the name of a sympy function.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ToFloat": lambda r, x: x,
    "Add": _folded("add"),
    "Mul": _folded("multiply"),
    "Pow": _op("power"),
    "FloatPow": _op("power"),
    "IntTrueDiv": _op("divide"),
    "FloatTrueDiv": _op("divide"),
    "Max": _folded("maximum"),
    "Min": _folded("minimum"),
    **{
        f"OpaqueUnaryFn_{function}": _op(op)
        for function, op in {
            "sqrt": "sqrt", "exp": "exponential", "log": "log", "sin": "sine", "cos": "cosine", "tan": "tan",
            "tanh": "tanh",
        }.items()
    },
}  # fmt: skip
