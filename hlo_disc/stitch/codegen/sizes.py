"""Sizes in generated code: dims as scalars of the function under construction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val, product


class Sizes:
    """Dims as scalars of the function under construction, computed once each from its symbols."""

    def __init__(self, b: Builder, symbols: Mapping[str, Scalar], facts: ShapeFacts):
        self.b, self.symbols, self.facts = b, symbols, facts
        self._known: dict[Dim, Scalar] = {}

    def __call__(self, dim: Dim) -> Scalar:
        if dim.is_const:
            return dim.value
        found = self._known.get(dim)
        if found is None or (isinstance(found, Val) and not found.scope.open):
            found = self._known[dim] = dim.lower(int, self.symbols.__getitem__, self._ops())
        return found

    def shape(self, shape: Sequence[Dim]) -> list[Scalar]:
        return [self(dim) for dim in shape]

    def count(self, shape: Sequence[Dim]) -> Scalar:
        return product(map(self, shape))

    def bound(self, dim: Dim) -> Val:
        """Return a double that bounds all intermediate numbers of a size: below 2^63, nothing has overflowed."""
        b = self.b
        divided: list[Scalar] = []

        def magnitude(x: Scalar) -> Val:
            return b.const(float(abs(x)), b.f64) if isinstance(x, int) else x

        def add(x: Scalar, y: Scalar) -> Scalar:
            return b.binary("+", magnitude(x), magnitude(y))

        def least(x: Scalar, y: Scalar) -> Scalar:
            """Bound a minimum: by the other operand if one is a constant from 0 on, which may be huge ("all of it")."""
            numbers = [n for n in (x, y) if isinstance(n, int)]
            if len(numbers) == 1 and numbers[0] >= 0:
                return y if isinstance(x, int) else x
            return add(x, y)

        def rest(x: Scalar, y: Scalar) -> Scalar:
            divided.append(add(x, y))
            return magnitude(y)

        ops: dict[str, Callable[[Scalar, Scalar], Scalar]] = dict.fromkeys(("add", "floordiv", "max"), add)
        ops |= {"min": least, "mod": rest, "mul": lambda x, y: b.binary("*", magnitude(x), magnitude(y))}
        return magnitude(functools.reduce(add, divided, dim.lower(int, self._symbol, ops)))

    def clearly(self, dim: Dim, relation: str) -> Val:
        """Compare with 0, in doubles, a size that 64 bits may not hold; False if the doubles might be wrong."""
        b = self.b
        if relation == "==" or dim.is_const or any(a.kind != "symbol" for monomial, _ in dim.terms for a in monomial):
            return b.const(0, b.i1)
        ops = {"add": lambda x, y: b.binary("+", x, y), "mul": lambda x, y: b.binary("*", x, y)}
        value = dim.lower(lambda n: b.const(float(n), b.f64), self._symbol, ops)
        error = b.binary("*", self.bound(dim), 2.0**-40)
        above, below = b.compare(">", value, error), b.compare(">", b.binary("-", 0.0, value), error)
        return {"!=": b.apply(arith.OrIOp, above, below), ">": above, ">=": above, "<": below, "<=": below}[relation]

    def _symbol(self, name: str) -> Val:
        return self.b.cast(arith.SIToFPOp, self.b.f64, self.b.wide(self.symbols[name]))

    def _ops(self) -> dict[str, Callable[[Scalar, Scalar], Scalar]]:
        return {
            "add": lambda x, y: x + y,
            "mul": lambda x, y: x * y,
            "floordiv": self._floordiv,
            "mod": self._mod,
            "min": self.b.minimum,
            "max": self.b.maximum,
        }

    def _floordiv(self, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        x, y = self.b.index(x), self._divisor(y)
        return (x - _remainder(x, y)) // y

    def _divisor(self, y: Scalar) -> Val:
        """Replace a divisor of 0 by 1: sizes are computed before it is known whether they are valid."""
        if isinstance(y, int):
            return self.b.index(y or 1)
        return self.b.select(self.b.compare("==", y, 0), self.b.index(1), y)

    def _mod(self, x: Scalar, y: Scalar) -> Scalar:
        """Compute a remainder with the sign of the divisor, as Dim has it."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        x, y = self.b.index(x), self._divisor(y)
        return _remainder(x, y)


def _remainder(x: Val, y: Val) -> Scalar:
    return (x % y + y) % y
