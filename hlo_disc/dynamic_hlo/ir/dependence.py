"""The dependences between the ops of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Op, Value, has_effect


def backward_slice(
    roots: Iterable[Value],
    within: Collection[Op] | None = None,
    reads: Callable[[Op], Sequence[Value]] = operator.attrgetter("operands"),
) -> list[Op]:
    """Return the ops that the roots depend on, each after its operands, in the order in which the roots need them.

    within: stop at ops that are not among these. reads: the values that an op reads.
    """
    allowed = None if within is None else frozenset(within)
    found: dict[Op, None] = {}
    todo = [(value.op, False) for value in roots][::-1]
    while todo:
        op, ready = todo.pop()
        if op is None or op in found or (allowed is not None and op not in allowed):
            continue
        if ready:
            found[op] = None
        else:
            todo.append((op, True))
            todo += [(x.op, False) for x in reversed(reads(op))]
    return list(found)


def live_ops(ops: Sequence[Op], roots: Iterable[Value]) -> list[Op]:
    """Return those of the ops, in order, that the roots depend on or that have an effect."""
    needed = set(roots)
    kept = []
    for op in reversed(ops):
        if has_effect(op) or not needed.isdisjoint(op.results):
            needed.update(op.operands)
            kept.append(op)
    return kept[::-1]
