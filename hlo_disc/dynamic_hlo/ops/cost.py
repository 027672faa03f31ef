"""The costs of ops, as far as passes and schedules need them."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_disc.dynamic_hlo.ir.graph import Op, Value, is_array
from hlo_disc.dynamic_hlo.ops.table import OPS, kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product

# What a symbol is taken for where bytes are compared.
_TYPICAL = 256


def is_expensive(op: Op) -> bool:
    """Whether an element costs about ten additions or more, so that it should be kept rather than computed twice."""
    return OPS[op.name].expensive


def is_slow(op: Op) -> bool:
    """Whether it should be hoisted out of the loop over rows if it is the same in all: it is expensive, or many roots.

    A root of one element is hoisted anyway.
    """
    return is_expensive(op) or (op.name in ("sqrt", "rsqrt") and any(n is not ONE for n in op.result.shape))


def operations(op: Op) -> Dim:
    """Count an op's operations: one for each element, and for a dot one for each multiplication and addition."""
    if op.name == "dot_general":
        return 2 * dim_product((*op.result.shape, *(op.operands[0].shape[a] for a in op.attrs["lhs_contract"])))
    elements = {"elementwise": op.results, "reduce": op.operands}.get(kind(op))
    return dim_product(elements[0].shape) if elements else ZERO


def only_moves(op: Op) -> bool:
    """Whether an op reads of its operand only what is read of its result."""
    return kind(op) == "view" or op.name == "convert"


def only_gathers(op: Op, number: int) -> bool:
    """Whether an op reads of this operand as many elements as its result has."""
    return kind(op) == "gather" and number == 0


def free_ops(ops: Iterable[Op]) -> set[Op]:
    """Return the ops that are recomputed at each use, because they read no memory and cost little. ops: in order."""
    free: set[Op] = set()
    for op in ops:
        source = kind(op) == "source" and not is_array(op)
        cheap = kind(op) in ("elementwise", "view") and not is_slow(op)
        if source or (cheap and all(x.op in free for x in op.operands)):
            free.add(op)
    return free


def typical_bytes(value: Value) -> float:
    """Return the bytes of a value at typical sizes, for comparisons with others."""
    size = dim_product(value.shape)
    return value.dtype.itemsize * max(size.evaluate(dict.fromkeys(size.symbols, _TYPICAL)), 0)
