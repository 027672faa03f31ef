"""PyTorch's symbolic sizes as `Dim`s: expressions of sympy over the symbols of a `ShapeEnv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import sympy
from torch.utils._sympy import functions as torch_functions

from hlo_disc.dynamic_hlo.ir.graph import NEGATED
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.errors import UnsupportedOpError

if TYPE_CHECKING:
    from torch.utils._sympy.value_ranges import ValueRanges

_DENOMINATOR = 1000  # of what a float is taken for
_LARGEST = 1 << 40  # a size


def of_expression(e: sympy.Expr) -> Dim:
    """Convert a sympy expression of integers to a Dim. Raises UnsupportedOpError."""
    if e.is_Integer:
        return Dim.const(int(e))
    if e.is_Symbol:
        return Dim.symbol(e.name)
    make = _FUNCTIONS.get(type(e).__name__)
    if make is None:
        raise UnsupportedOpError(f"the size {e} is computed by {type(e).__name__}, which sizes cannot be")
    return make(e)


def conditions(ranges: Mapping[sympy.Symbol, ValueRanges[sympy.Expr]]) -> list[sympy.Basic]:
    """List the conditions that PyTorch's ranges of symbols state."""
    found = []
    for symbol, values in ranges.items():
        found += [sympy.Ge(symbol, values.lower, evaluate=False)] if values.lower.is_Integer else []
        found += [sympy.Le(symbol, values.upper, evaluate=False)] if values.upper.is_Integer else []
    return found


def relation(e: sympy.Basic, dim: Callable[[sympy.Expr], Dim] = of_expression) -> tuple[Dim, str, Dim] | None:
    """Read a condition of a ShapeEnv as a relation of two sizes; None if it has another form."""
    if isinstance(e, sympy.Not):
        inner = relation(e.args[0], dim)
        return inner and (inner[0], NEGATED[inner[1]], inner[2])
    if not isinstance(e, sympy.core.relational.Relational):
        return None
    try:
        return dim(e.lhs), e.rel_op, dim(e.rhs)
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
    """Convert a quotient, or a multiple by a float, that is rounded down, up, or towards zero."""
    (x,) = e.args
    if isinstance(x, (torch_functions.IntTrueDiv, torch_functions.FloatTrueDiv)):
        a, b = (of_expression(y.args[0] if isinstance(y, torch_functions.ToFloat) else y) for y in x.args)
        b = _divisor(b)
    elif x.is_Mul and len(x.args) == 2 and x.args[0].is_Float and isinstance(x.args[1], torch_functions.ToFloat):
        a, b = _scaled(e, float(x.args[0]), of_expression(x.args[1].args[0]))
    else:
        raise UnsupportedOpError(f"the size {e} is a rounded {type(x).__name__}, which sizes cannot be")
    if isinstance(e, torch_functions.CeilToInt):
        return -(-a // b)
    if isinstance(e, torch_functions.TruncToInt) and not _is_natural(a):
        raise UnsupportedOpError(f"the size {e} is a number towards zero that may be negative, which sizes cannot be")
    return a // b


def _is_natural(d: Dim) -> bool:
    """Whether its form excludes negative values, which symbols cannot have."""
    return all(factor >= 0 and all(not atom.args for atom in monomial) for monomial, factor in d.terms)


def _scaled(e: sympy.Expr, scale: float, size: Dim) -> tuple[Dim, Dim]:
    """Return (a, b) such that a / b is rounded like the float `scale * size`, for all sizes below 2^40. Raises
    otherwise.

    Of p / q, the simplest fraction near `scale`, the float is off by a relative `e` and the rounding of the product.
    Where size * p / q is no integer, the next one is at least 1 / q away, which must be more than both. Where it is
    one, the product must not fall on its wrong side: it cannot if `scale` is not on that side of p / q, for rounding
    keeps order; nor if `e` is at most 2^-54, half the least distance of floats: that is rounded away, a tie to the
    integer, whose mantissa is even.
    """
    ratio = Fraction(scale).limit_denominator(_DENOMINATOR)
    error = Fraction(scale) / ratio - 1 if ratio else Fraction(0)
    outwards = -error if isinstance(e, torch_functions.CeilToInt) else error
    exact = outwards >= 0 or -outwards <= Fraction(1, 1 << 54)
    apart = _LARGEST * ratio * (abs(error) + Fraction(1, 1 << 52)) < Fraction(1, ratio.denominator)
    if not (scale > 0 and ratio and _is_natural(size) and exact and apart):
        raise UnsupportedOpError(f"the size {e} depends on how floats are rounded, which sizes cannot")
    return size * ratio.numerator, Dim.const(ratio.denominator)


# By the name of a sympy function.
_FUNCTIONS: dict[str, Callable[[sympy.Expr], Dim]] = {
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
    "TruncToInt": _rounded,
    "Identity": lambda e: of_expression(e.args[0]),
}
