"""Which numbers an index is known to be a multiple of, found by following the ops that it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hlo_disc.mlir import ir

# No alignment is larger than this many elements; 0 is a multiple of everything.
_MOST = 1 << 12


def multiple(value: ir.Value, known: Mapping[ir.Value, int]) -> int:
    """The largest power of two up to 4096 that is known to divide the value, given what some are multiples of."""

    found = dict(known)  # an op may be reached on very many ways

    def of(value: ir.Value) -> int:
        if value not in found:
            found[value] = made_of(value)
        return found[value]

    def made_of(value: ir.Value) -> int:
        if isinstance(value.owner, ir.Block):
            return _counter(ir.BlockArgument(value), of)
        op = value.owner
        if op.name == "arith.constant":
            return int(ir.IntegerAttr(op.attributes["value"]).value)
        rule = _RULES.get(op.name)
        return rule(*map(of, op.operands)) if rule else 1

    return math.gcd(of(value), _MOST)


def _counter(argument: ir.BlockArgument, of: Callable[[ir.Value], int]) -> int:
    """The counter of a loop goes from its start in its steps."""
    loop = argument.owner.owner
    if loop.name != "scf.for" or argument.arg_number != 0:
        return 1
    start, _, step = list(loop.operands)[:3]
    return math.gcd(of(start), of(step))


def _capped(x: int, y: int) -> int:
    return math.gcd(x, _MOST) * math.gcd(y, _MOST)


_RULES: Mapping[str, Callable[..., int]] = {
    "arith.addi": math.gcd,
    "arith.subi": math.gcd,
    "arith.muli": _capped,
    "arith.minsi": math.gcd,
    "arith.maxsi": math.gcd,
    "arith.remsi": math.gcd,
    "arith.index_cast": lambda x: x,
    "arith.select": lambda _, x, y: math.gcd(x, y),
}
