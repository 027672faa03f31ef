"""Loops that formulas write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Region, Value, isolated, with_captures
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.arrays import Array, emit_all


def loop(
    r: Construction, test: Callable[..., Array], step: Callable[..., Sequence[Array]], initial: Sequence[Array]
) -> list[Array]:
    """Carry arrays through iterations for as long as a test of them holds. Both functions take the carried arrays."""
    inputs = [Value(x.dtype, x.shape, None, i) for i, x in enumerate(initial)]
    carried = [Array(r, x) for x in inputs]

    def region(function: Callable[[], Sequence[Array]]) -> tuple[Region, tuple[Value, ...]]:
        with r.inside():
            return isolated(inputs, r.builder.ops, [x.value for x in function()])

    (cond, body), captured = with_captures(
        [region(lambda: [test(*carried)]), region(lambda: step(*carried))], len(initial)
    )
    operands = [*initial, *(Array(r, x) for x in captured)]
    return emit_all(r, "while", operands, cond=cond, body=body, carried=len(initial))
