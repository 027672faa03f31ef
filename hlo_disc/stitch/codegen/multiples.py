"""Finds known divisors of indices, by following the ops that compute them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hlo_disc.mlir import MlirValue, ir

# No alignment is larger than this many elements; 0 is a multiple of everything.
_MOST = 1 << 12


class Multiples:
    """The largest powers of two that are known to divide the indices that a function computes."""

    def __init__(self) -> None:
        self._given: dict[MlirValue, int] = {}
        self._found: dict[MlirValue, int] = {}

    def add(self, value: MlirValue, number: int) -> None:
        """Note that the value is a multiple of the number."""
        self._given[value] = number
        self._found = dict(self._given)

    def of(self, value: MlirValue) -> int:
        """Return the largest known power of two that divides one value, up to 4096."""
        return math.gcd(self._of(value), _MOST)

    def _of(self, value: MlirValue) -> int:
        if value not in self._found:  # an op is reached on very many ways
            self._found[value] = self._made_of(value)
        return self._found[value]

    def _made_of(self, value: MlirValue) -> int:
        if isinstance(value.owner, ir.Block):
            return self._counter(ir.BlockArgument(value))
        op = value.owner
        if op.name == "arith.constant":
            return int(ir.IntegerAttr(op.attributes["value"]).value)
        rule = _RULES.get(op.name)
        return rule(*map(self._of, op.operands)) if rule else 1

    def _counter(self, argument: ir.BlockArgument[ir.Type]) -> int:
        """Return the divisor of a loop's counter, from its start and its steps."""
        loop = argument.owner.owner
        if loop.name != "scf.for" or argument.arg_number != 0:
            return 1
        start, _, step = list(loop.operands)[:3]
        return math.gcd(self._of(start), self._of(step))


_RULES: Mapping[str, Callable[..., int]] = {
    "arith.addi": math.gcd,
    "arith.subi": math.gcd,
    "arith.muli": lambda x, y: math.gcd(x, _MOST) * math.gcd(y, _MOST),
    "arith.minsi": math.gcd,
    "arith.maxsi": math.gcd,
    "arith.remsi": math.gcd,
    "arith.index_cast": lambda x: x,
    "arith.select": lambda _, x, y: math.gcd(x, y),
}
