"""Decides whether 32 bits hold all sizes that kernels count: not if a call has arrays of too many elements.

An index of a kernel is a position in a value, in memory or not, or a part of such a position. So are most sizes that it
uses; others are attributes of ops, or operands of a quotient or minimum of sizes. Loops may step beyond a position, at
the end of a row or of all work, by less than such a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hlo_disc.dynamic_hlo.ir.graph import Value, all_ops
from hlo_disc.dynamic_hlo.sizes.dim import Dim, Monomial, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.scheduling import Scheduled


def decisive(scheduled: Scheduled, facts: ShapeFacts, limit: int) -> tuple[Dim, ...] | None:
    """Return the sizes that must be below `limit`, without those that are in every call; None if one never is."""
    found: dict[Dim, None] = {}
    for size in dict.fromkeys(size for dim in _sizes(scheduled) for size in _parts(dim)):
        low, high = facts.bounds(size)
        if low is not None and low >= limit:
            return None
        if high is None or high >= limit:
            found[size] = None
        if low is None or low <= -limit:
            found[-size] = None
    return tuple(found)


def _sizes(scheduled: Scheduled) -> Iterator[Dim]:
    for group in scheduled.steps:
        values = dict.fromkeys(scheduled.workspace(group))
        for op in all_ops(group.ops):
            values.update(dict.fromkeys((*op.operands, *op.results)))
            yield from _of_attribute(tuple(op.attrs.values()))
        for value in values:
            yield _elements(value)
            yield from value.shape


def counted(groups: Iterable[Group]) -> Iterable[Dim]:
    """Return the numbers of elements of all values, of those never in memory too: an index of a kernel is below one of
    them."""
    ops = (op for group in groups for op in all_ops(group.ops))
    values = dict.fromkeys(value for op in ops for value in (*op.operands, *op.results))
    alike = {(value.shape, value.dtype.kind): value for value in values}
    return map(_elements, alike.values())


def beyond(sizes: Iterable[Dim], held: Iterable[Dim]) -> list[Dim]:
    """Return those of the sizes, symbols aside, that 64 bits may not hold although they hold these others."""
    most: dict[Monomial, int] = {}
    for size in held:
        for monomial, factor in size.terms:
            most[monomial] = max(abs(factor), most.get(monomial, 0))
    return [
        size
        for size in sizes
        if not size.is_const
        and str(size) not in size.symbols
        and any(abs(factor) > most.get(m, 0) for m, factor in size.terms if m)
    ]


def _elements(value: Value) -> Dim:
    """Count elements as kernels do: a complex number is two."""
    return dim_product(value.shape) * (2 if value.dtype.kind == "c" else 1)


def _of_attribute(attr: object) -> Iterator[Dim]:
    if isinstance(attr, Dim):
        yield attr
    elif isinstance(attr, tuple):
        for part in attr:
            yield from _of_attribute(part)


def _parts(dim: Dim) -> Iterator[Dim]:
    """Return the size, and all sizes in its quotients, remainders, minima and maxima. Sums may overflow in between."""
    yield dim
    for atom in dict.fromkeys(atom for monomial, _ in dim.terms for atom in monomial):
        for argument in atom.args:
            yield from _parts(argument)
