"""Floats computed from sizes, as `1 / math.sqrt(n)`, and sizes computed from floats, as `int(n * 0.35)`.

The program computes them, in f64 as Python does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import sympy
from torch.utils._sympy import functions

from hlo_disc.dynamic_hlo.ops.expr import F64, I64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.dynamic_hlo.sizes.shapes import is_long
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.aten import sizes
from hlo_disc.import_.handlers.arrays import Array

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def scalar(r: AtenReader, e: sympy.Expr) -> Array:
    """Compute a sympy expression as an f64 scalar. Raises UnsupportedOpError."""
    if e.is_number:
        return r.scalar(float(e), F64)
    if e.is_Symbol and not e.is_integer:
        if e.name not in r.data.floats:
            raise UnsupportedOpError(f"the number {e} is none that follows from sizes, which is not supported")
        return r.data.floats[e.name]
    if e.is_Symbol or e.is_integer:
        return _integer(r, r.dim_of(e))
    if isinstance(e, functions.FloatPow) and e.args[1] == 0.5:
        return scalar(r, e.args[0]).sqrt()
    name = type(e).__name__
    make = _FUNCTIONS.get(name)
    if make is None:
        raise UnsupportedOpError(f"the number {e} follows from sizes by {name}, which is not supported")
    return make(r, *[scalar(r, x) for x in e.args])


def rounded(e: sympy.Expr) -> list[sympy.Expr]:
    """List the rounded floats in an expression of integers, except those that are sizes and those inside others."""
    if isinstance(e, tuple(_ROUNDINGS)):
        try:
            sizes.of_expression(e)
        except UnsupportedOpError:
            return [e]
        return []
    return [x for argument in e.args for x in rounded(argument)]


def rounding(r: AtenReader, e: sympy.Expr) -> Array:
    """Compute a rounded float as an i64 scalar. Raises UnsupportedOpError if it may differ from Python's."""
    (x,) = e.args
    is_log2 = isinstance(x, functions.OpaqueUnaryFn_log2) and isinstance(x.args[0], functions.ToFloat)
    if is_log2 and not isinstance(e, functions.RoundToInt):
        # A number's digits. Of one below 2^46 no float is between its logarithm and the next integer.
        size = r.dim_of(x.args[0].args[0])
        r.require(size, ">=", ONE, "{0} has no logarithm", (size,))
        up = isinstance(e, functions.CeilToInt)
        digits = r.scalar(size - 1 if up else size, I64).op("count_leading_zeros")
        return r.scalar(64 if up else 63, I64) - digits
    if not (_is_root(x) or _is_exact(r, x)):
        raise UnsupportedOpError(f"the size {e} depends on how floats are rounded, and is not computed as Python does")
    return _ROUNDINGS[type(e)](r, scalar(r, x)).cast(I64)


def is_natural(e: sympy.Expr) -> bool:
    """Whether its form excludes negative values, which symbols cannot have. Roots of negative numbers are found at run
    time."""
    if e.is_number:
        return bool(e >= 0)
    if isinstance(e, functions.OpaqueUnaryFn_sqrt) or (isinstance(e, functions.FloatPow) and e.args[1] == 0.5):
        return True
    return e.is_Symbol or (isinstance(e, _GROWING) and all(map(is_natural, e.args)))


def _is_exact(r: AtenReader, e: sympy.Expr) -> bool:
    """Whether `scalar` computes Python's value: only operations that IEEE 754 rounds, each of at most two floats."""
    if e.is_number or (e.is_Symbol and not e.is_integer):
        return True
    if e.is_integer:
        return not is_long(r.dim_of(e))
    if isinstance(e, (sympy.Add, sympy.Mul)) and len(e.args) > 2:
        return False
    return isinstance(e, _EXACT) and all(_is_exact(r, x) for x in e.args)


def _is_root(e: sympy.Expr) -> bool:
    """Recognise `n ** 0.5`: neither a root nor any C library's power is inexact enough to cross the next integer."""
    return isinstance(e, functions.FloatPow) and isinstance(e.args[0], functions.ToFloat) and e.args[1] == 0.5


def _integer(r: AtenReader, size: Dim) -> Array:
    """Compute an integer in parts if 64 bits may not hold it."""
    if not is_long(size):
        return r.scalar(size, F64)
    terms = [
        _folded("multiply")(r, r.scalar(float(factor), F64), *(_integer(r, atom.dim) for atom in monomial))
        for monomial, factor in size.terms
    ]
    return _folded("add")(r, *terms)


def _folded(name: str) -> Callable[..., Array]:
    def fold(r: AtenReader, first: Array, *rest: Array) -> Array:
        for x in rest:
            first = first.op(name, x)
        return first

    return fold


def _op(name: str) -> Callable[..., Array]:
    return lambda r, x, *others: x.op(name, *others)


# What makes a size of a float.
_ROUNDINGS: dict[type[sympy.Expr], Callable[..., Array]] = {
    functions.FloorToInt: _op("floor"),
    functions.CeilToInt: _op("ceil"),
    functions.TruncToInt: lambda r, x: x,  # as conversions do
    functions.RoundToInt: _op("round_nearest_even"),
}
# What IEEE 754 says the result of.
_EXACT = (
    sympy.Add, sympy.Mul, functions.ToFloat, functions.IntTrueDiv, functions.FloatTrueDiv, functions.Max, functions.Min,
    functions.OpaqueUnaryFn_sqrt,
)  # fmt: skip
_GROWING = (*_EXACT, functions.FloatPow, functions.OpaqueUnaryFn_log2, *_ROUNDINGS)


# By the name of a sympy function.
_FUNCTIONS: dict[str, Callable[..., Array]] = {
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
