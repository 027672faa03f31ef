"""PyTorch's symbolic sizes as `Dim`s: expressions of sympy over the symbols of a `ShapeEnv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
from torch.utils._sympy import functions as torch_functions

from hlo_disc.dynamic_hlo.ir.graph import NEGATED
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.elements import ONE


def of_expression(e: sympy.Expr) -> Dim:
    """A sympy expression of integers as a Dim. Raises UnsupportedOpError."""
    if e.is_Integer:
        return Dim.const(int(e))
    if e.is_Symbol:
        return Dim.symbol(e.name)
    make = _FUNCTIONS.get(type(e).__name__)
    if make is None:
        raise UnsupportedOpError(f"the size {e} is computed by {type(e).__name__}, which sizes cannot be")
    return make(e)


def conditions(ranges: Mapping[sympy.Symbol, Any]) -> list[sympy.Basic]:
    """What PyTorch's ranges of symbols say."""
    found = []
    for symbol, values in ranges.items():
        found += [sympy.Ge(symbol, values.lower, evaluate=False)] if values.lower.is_Integer else []
        found += [sympy.Le(symbol, values.upper, evaluate=False)] if values.upper.is_Integer else []
    return found


def relation(e: sympy.Basic) -> tuple[Dim, str, Dim] | None:
    """What a condition of a ShapeEnv says; None for one that is no relation of two sizes."""
    if isinstance(e, sympy.Not):
        inner = relation(e.args[0])
        return inner and (inner[0], NEGATED[inner[1]], inner[2])
    if not isinstance(e, sympy.core.relational.Relational):
        return None
    try:
        return of_expression(e.lhs), e.rel_op, of_expression(e.rhs)
    except UnsupportedOpError:
        return None


def _arguments(e: sympy.Expr) -> list[Dim]:
    return [of_expression(x) for x in e.args]


def _add(e: sympy.Expr) -> Dim:
    return sum(_arguments(e), start=Dim.const(0))


def _power(e: sympy.Expr) -> Dim:
    base, exponent = e.args
    if not (exponent.is_Integer and exponent >= 0):
        raise UnsupportedOpError(f"the size {e} is a power with an exponent that is no number")
    return dim_product([of_expression(base)] * int(exponent))


def _divisor(d: Dim) -> Dim:
    return d if d.is_const else Dim.max(d, ONE)


def _is_negative(d: Dim) -> bool:
    return not d.is_const and all(factor < 0 for _, factor in d.terms)


def _floordiv(e: sympy.Expr) -> Dim:
    a, b = _arguments(e)
    return -a // _divisor(-b) if _is_negative(b) else a // _divisor(b)


def _mod(e: sympy.Expr) -> Dim:
    a, b = _arguments(e)
    return -(-a % _divisor(-b)) if _is_negative(b) else a % _divisor(b)


def _modular_indexing(e: sympy.Expr) -> Dim:
    x, divisor, modulus = _arguments(e)
    return x // _divisor(divisor) % _divisor(modulus)


def _rounded(e: sympy.Expr) -> Dim:
    """A quotient that is rounded down or up."""
    (quotient,) = e.args
    if not isinstance(quotient, (torch_functions.IntTrueDiv, torch_functions.FloatTrueDiv)):
        raise UnsupportedOpError(f"the size {e} is a rounded {type(quotient).__name__}, which sizes cannot be")
    a, b = (of_expression(x.args[0] if isinstance(x, torch_functions.ToFloat) else x) for x in quotient.args)
    return a // _divisor(b) if isinstance(e, torch_functions.FloorToInt) else -(-a // _divisor(b))


# By the name of a sympy function.
_FUNCTIONS: dict[str, Callable[[Any], Dim]] = {
    "Add": _add,
    "Mul": lambda e: dim_product(_arguments(e)),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _floordiv,
    "CleanDiv": _floordiv,
    "Mod": _mod,
    "PythonMod": _mod,
    "ModularIndexing": _modular_indexing,
    "Max": lambda e: Dim.max(*_arguments(e)),
    "Min": lambda e: Dim.min(*_arguments(e)),
    "FloorToInt": _rounded,
    "CeilToInt": _rounded,
    "Identity": lambda e: of_expression(e.args[0]),
}
