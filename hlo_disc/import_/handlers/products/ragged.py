"""`chlo.ragged_dot`: dots whose groups have sizes that are data, as masks and one dot over all groups.

Modes, by the lhs dimension that is ragged (b batch, m and n free, k contracted, g groups):
  m:  [b,m,k], [g,b,k,n], [b,g] -> [b,m,n]      k:  [b,m,k], [b,k,n], [b,g] -> [g,b,m,n]      b:  a plain dot
Group sizes may also be [g], the same for all. Elements behind the last group give 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.axes import SIDES, sides_of
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.import_.handlers.arrays import Array, iota
from hlo_disc.import_.handlers.products.dot import need_alike, numbers_of
from hlo_disc.import_.handlers.products.precision import allows_tf32
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.mlir import chlo

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _ragged_dot(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    lhs, rhs, sizes = map(r.data, operands)
    numbers = r.attr(op, "ragged_dot_dimension_numbers", chlo.RaggedDotDimensionNumbers)
    groups, dot, dtype = numbers.rhs_group_dimensions, numbers_of(numbers), r.result_type(op)[0]
    need_alike(r, lhs, rhs, dot)
    dot |= {"dtype": dtype, "tf32": allows_tf32(r, op, lhs, rhs, dtype)}
    if len(numbers.lhs_ragged_dimensions) != 1 or len(groups) > 1:
        r.unsupported("a ragged dot has one ragged dimension and at most one group dimension")
    (ragged,) = numbers.lhs_ragged_dimensions
    if ragged in dot["lhs_batch"]:
        _own_axes(r, lhs, sizes, dot["lhs_batch"][: dot["lhs_batch"].index(ragged)])
        return r.emit("dot_general", (lhs, rhs), **dot)
    mine, theirs = list(dot["lhs_contract"]), list(dot["rhs_contract"])
    if ragged not in mine:
        (group,) = groups
        free = sides_of(dot, lhs.rank, rhs.rank)[0].free
        left = _in_groups(r, lhs, sizes, ragged, (*dot["lhs_batch"], *free[: free.index(ragged)]))
        r.equal(left.shape[0], rhs.shape[group], "the number of group sizes and the group dimension")
        dot |= {"lhs_batch": _next(dot["lhs_batch"]), "lhs_contract": (*_next(dot["lhs_contract"]), 0)}
        return r.emit("dot_general", (left, rhs), **dot | {"rhs_contract": (*dot["rhs_contract"], group)})
    at = mine.index(ragged)
    left = _in_groups(r, lhs, sizes, ragged, (*dot["lhs_batch"], *mine[:at]))
    right = _in_groups(r, rhs, sizes, theirs[at], (*dot["rhs_batch"], *theirs[:at]))
    for batch, contract in SIDES:
        dot[batch], dot[contract] = (0, *_next(dot[batch])), _next(dot[contract])
    return r.emit("dot_general", (left, right), **dot)


def _next(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + 1 for a in axes)


def _own_axes(r: Reader, x: Value, sizes: Value, prefix: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of x that group sizes have too: `prefix`, or none if the sizes are the same for all."""
    own = prefix if sizes.rank > 1 else ()
    if sizes.rank != len(own) + 1:
        r.unsupported(f"group sizes of rank {sizes.rank} where {len(prefix) + 1} or 1 is expected")
    for i, axis in enumerate(own):
        r.equal(sizes.shape[i], x.shape[axis], f"dimension {i} of the group sizes and dimension {axis} of the operand")
    return own


def _in_groups(r: Reader, x: Value, sizes: Value, ragged: int, prefix: tuple[int, ...]) -> Value:
    """Return x once for each group, along a new first axis, with zeros in place of the other groups' elements.

    sizes: [g], or with the axes `prefix` of x before.
    """
    own = _own_axes(r, x, sizes, prefix)
    shape = (sizes.shape[-1], *x.shape)
    dims = (*(a + 1 for a in own), 0)
    ends = [_running_sum(Array(r, sizes), inclusive) for inclusive in (False, True)]
    start, end = (e.broadcast(shape, dims) for e in ends)
    at = iota(r, shape, ragged + 1, I64)
    inside = (start <= at) & (at < end)
    return where(inside, Array(r, x).broadcast(shape), 0).value


def _running_sum(sizes: Array, inclusive: bool) -> Array:
    """Return for each group the sum of all before it, and the sum including it."""
    rank = sizes.rank
    copies = sizes.cast(I64).broadcast((*sizes.shape, sizes.shape[-1]), (*range(rank - 1), rank))
    mine, other = copies.iota(rank - 1, I64), copies.iota(rank, I64)
    return where(other <= mine if inclusive else other < mine, copies, 0).sum(rank)


HANDLERS: dict[str, Handler] = {"chlo.ragged_dot": _ragged_dot}
