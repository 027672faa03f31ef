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
    """The ops that the roots follow from, each after those that it reads, in the order in which the roots need them.

    within: no other ops, and nothing that lies behind others. reads: what counts as read by an op.
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
    """Those of the ops, in order, that the roots follow from or that have an effect."""
    needed = set(roots)
    kept = []
    for op in reversed(ops):
        if has_effect(op) or not needed.isdisjoint(op.results):
            needed.update(op.operands)
            kept.append(op)
    return kept[::-1]
