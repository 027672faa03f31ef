"""Scalars of the host flow: which ops are computed there, in registers, instead of by kernels.

Conditions, loop counters and all that they follow from, and in loops and branches every scalar that follows from such
ones alone: a kernel for each would cost far more than the arithmetic. Elements of arrays are loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.table import axis_rule, kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE

_IN_MEMORY = ("dot", "assemble", "control", "scatter", "sort", "call", "reduce")


def host_ops(
    ops: Sequence[Op],
    wanted: Iterable[Value],
    registers: Collection[Value],
    free: Collection[Op],
    taken: Collection[Op],
    nested: bool,
) -> set[Op]:
    """The ops of a scope that the host flow computes.

    wanted: scalars that must be in registers. registers: scalars that are. taken: ops that kernels have already.
    nested: the scope is a region, which may run often.
    """
    found: set[Op] = set()
    todo = list(wanted)
    while todo:
        op = todo.pop().op
        if op is None or op in found or op in free or op in taken or not _is_scalar(op):
            continue
        found.add(op)
        chain = [op] if kind(op) == "elementwise" else element_chain(op)
        todo += [x for link in chain for x in link.operands]
    if nested:
        known = set(registers) | {value for op in found for value in op.results}
        for op in ops:
            if kind(op) != "elementwise" or op.result.shape or op in found or op in free or op in taken:
                continue
            if all(x in known or x.op in free for x in op.operands):
                found.add(op)
                known.add(op.result)
    return found


def _is_scalar(op: Op) -> bool:
    """A scalar that is computed from scalars, or is an element of something in memory."""
    if len(op.results) != 1 or op.result.shape:
        return False
    return kind(op) == "elementwise" or bool(element_chain(op))


def element_chain(op: Op) -> list[Op]:
    """The views by which a scalar is one element of what lies in memory, last one first; none if it is not."""
    chain: list[Op] = []
    value = op.results[0]
    while value.op is not None and _is_view(value.op) and all(n is ONE for n in value.shape):
        chain.append(value.op)
        value = value.op.operands[0]
    made_there = value.op is None or value.op.name == "constant" or kind(value.op) in _IN_MEMORY
    return chain if made_there else []


def _is_view(op: Op) -> bool:
    """Does it read one element for each of its own, at most where scalars say?"""
    rule = axis_rule(op)
    return kind(op) == "view" or (kind(op) == "gather" and rule is not None and rule.starts)
