"""The relation between the axes of an op's operands and those of its results: an `AxisRule`, on the op's row in `OPS`.

Fusion, kernels and dots read it instead of the op's name. An elementwise op needs no rule. Any other op without a rule
keeps all its axes, and is assumed to read its operands at unknown indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, cast

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.windows import moving_axes
from hlo_disc.frozen import frozen


class Affine(NamedTuple):
    """The index is start + the sum of step * (index of the other value's axis), for each of `terms`: (axis, step)."""

    terms: tuple[tuple[int, int], ...]
    start: Dim = ZERO


class First(NamedTuple):
    """The index is 0."""


class Same(NamedTuple):
    """The index is that of an axis of the other value, which is known to be as long."""

    axis: int


class Repeated(NamedTuple):
    """The index is that of an axis of the other value, or 0 where this axis turns out to have one element."""

    axis: int


class Windowed(NamedTuple):
    """The index is in a window around the index of an axis of the other value."""

    axis: int


class Reduced(NamedTuple):
    """The index takes all values: the axis is the reduced axis with this number."""

    number: int


class Elsewhere(NamedTuple):
    """The index depends on data, and may also depend on an axis of the other value."""

    axis: int | None = None


Axis = Affine | First | Same | Repeated | Windowed | Reduced | Elsewhere


def followed(entry: Axis) -> Sequence[int | None]:
    """List the axes of the other value that an entry names."""
    match entry:
        case Affine(terms):
            return [axis for axis, _ in terms]
        case First() | Reduced():
            return ()
    return (entry.axis,)


class Order(Enum):
    """The relation of the axes of two values as a whole: one to one, or the same elements in memory."""

    AXES = 1
    ELEMENTS = 2


class Link(NamedTuple):
    """The relation of the axes of `values`, which are all alike, to those of `other`: one entry of `along` for each
    axis."""

    values: tuple[Value, ...]
    other: Value
    along: Order | tuple[Axis, ...]

    @property
    def entries(self) -> tuple[Axis, ...]:
        """The entries for each axis; none if an order gives the whole relation."""
        return () if isinstance(self.along, Order) else self.along


class Part(NamedTuple):
    """A block inside the result: element i of an axis is at starts + i*steps. Scalars among the starts are clamped."""

    value: Value
    starts: tuple[Dim | Value, ...]
    steps: tuple[Dim, ...]


def whole(value: Value) -> Part:
    """The block that is the whole result."""
    return Part(value, (ZERO,) * value.rank, (ONE,) * value.rank)


class Relation(NamedTuple):
    """The relations between all values of an op.

    links: those from operands to the first result, between operands, or from results to an operand whose elements move
    there. apart: axes of the results whose index has a meaning of its own, so that they may not merge with a neighbour.
    """

    links: tuple[Link, ...]
    apart: tuple[int, ...] = ()


# The new axes of a value: of each, the neighbouring old ones that it is made of. The others are of size 1 and go.
Runs = list[list[int]]


def position(runs: Runs, axis: int) -> int | None:
    """Return the number of the new axis that contains the old one, or None."""
    return next((i for i, run in enumerate(runs) if axis in run), None)


class Attribute(NamedTuple):
    """An attribute that refers to axes. It stays unchanged if these axes cannot merge.

    along: the value for each of whose axes it has an entry. names: the value whose axes the entries number.
    """

    along: Callable[[Op], Value] | None = None
    names: Callable[[Op], Value] | None = None


@frozen
class AxisRule:
    """The rule for the axes of an op.

    attributes: those that refer to axes. Kernels compute an op with all its axes if this or the relation is None.
    starts: the scalars after the arrays are one for each axis of the first. parts: the blocks from which an op
    assembles its result.
    """

    relation: Callable[[Op, ShapeFacts], Relation | None]
    attributes: Mapping[str, Attribute] | None = None
    starts: bool = False
    parts: Callable[[Op], list[Part]] | None = None

    def renumbered(self, op: Op, runs: Callable[[Value], Runs], products: Callable[[Shape, Runs], Shape]) -> Attributes:
        """Return the op's attributes for values with new axes. products: maps sizes of old axes to new ones."""
        attrs: dict[str, Any] = dict(op.attrs)
        for name, of in (self.attributes or {}).items():
            value = attrs[name]
            if of.along is not None:
                along = runs(of.along(op))
                sizes = of.names is None and all(isinstance(entry, Dim) for entry in value)
                value = products(value, along) if sizes else tuple(value[run[0]] for run in along)
            if of.names is not None:
                new = runs(of.names(op))
                if isinstance(value, tuple):
                    numbers = (position(new, axis) for axis in value)
                    value = tuple(dict.fromkeys(number for number in numbers if number is not None))
                else:  # gather's indices may have no axis of their vectors
                    at = position(new, value)
                    value = len(new) if at is None else at
            attrs[name] = value
        return cast("Attributes", attrs)


def operand(op: Op) -> Value:
    return op.operands[0]


def result(op: Op) -> Value:
    return op.results[0]


def follow(op: Op, along: Order | Sequence[Axis], apart: tuple[int, ...] = ()) -> Relation:
    """Return the relation of an op whose operands, except scalars, all follow the result in the same way."""
    xs = op.operands
    if len(xs) > 1:
        rank = xs[0].rank
        xs = tuple([x for x in xs if len(x.shape) == rank])
    return Relation((Link(xs, op.results[0], along if isinstance(along, Order) else tuple(along)),), apart)


# Sources and views.


def _broadcast(op: Op, facts: ShapeFacts) -> Relation:
    (x,), shape = op.operands, op.result.shape

    def axis(n: Dim, a: int) -> Axis:
        return Same(a) if facts.equal(n, shape[a]) is Truth.YES else Repeated(a)

    return follow(op, [First() if n is ONE else axis(n, a) for n, a in zip(x.shape, op.attrs["dims"], strict=True)])


def _transpose(op: Op, facts: ShapeFacts) -> Relation:
    perm = op.attrs["perm"]
    return follow(op, [Same(perm.index(a)) for a in range(len(perm))])


def _slice(op: Op, facts: ShapeFacts) -> Relation:
    (x,), attrs = op.operands, op.attrs

    def axis(a: int, n: Dim) -> Axis:
        step = attrs["stride"][a]
        if (step == 1 or n is ONE) and facts.equal(n, op.result.shape[a]) is Truth.YES:
            return Same(a)
        return Affine(((a, step),), attrs["start"][a])

    return follow(op, [axis(a, n) for a, n in enumerate(x.shape)])


def _reverse(op: Op, facts: ShapeFacts) -> Relation:
    def axis(a: int, n: Dim) -> Axis:
        return Affine(((a, -1),), n - 1) if a in op.attrs["dims"] and n is not ONE else Same(a)

    return follow(op, [axis(a, n) for a, n in enumerate(op.result.shape)])


def _window(op: Op, facts: ShapeFacts) -> Relation:
    (x,), attrs = op.operands, op.attrs
    along: list[Axis] = [Same(a) for a in range(x.rank)]
    rows = zip(attrs["dims"], attrs["strides"], attrs["dilations"], strict=True)
    for number, (a, stride, dilation) in enumerate(rows):
        along[a] = Affine(((a, stride), (x.rank + number, dilation)))
    return follow(op, along)


# Reductions and windows.


def _reduce(op: Op, facts: ShapeFacts) -> Relation:
    dims, kept = op.attrs["dims"], iter(range(op.results[0].rank))
    rank = op.operands[0].rank
    return follow(op, [Reduced(dims.index(a)) if a in dims else Same(next(kept)) for a in range(rank)])


def _windows(op: Op, facts: ShapeFacts) -> Relation:
    moving = moving_axes(op.attrs)
    return follow(op, [Windowed(a) if a in moving else Same(a) for a in range(op.results[0].rank)])


def over_windows(attributes: Sequence[str]) -> AxisRule:
    """Make the rule of an op on windows, whose attributes have an entry for each axis."""
    return AxisRule(_windows, dict.fromkeys(attributes, OF_EACH))


# Products.


# What each operand of a dot calls its batch axes, and its contracted ones.
SIDES: Sequence[tuple[Literal["lhs_batch", "rhs_batch"], Literal["lhs_contract", "rhs_contract"]]] = (
    ("lhs_batch", "lhs_contract"),
    ("rhs_batch", "rhs_contract"),
)


class DotSide(NamedTuple):
    """The axes of an operand of a dot, by their use. in_result: the result's axis for each batch and free axis."""

    batch: tuple[int, ...]
    contract: tuple[int, ...]
    free: tuple[int, ...]
    in_result: dict[int, int]


def sides_of(attrs: Attributes, lhs: int, rhs: int) -> tuple[DotSide, DotSide]:
    """Return both sides of a dot, given its attributes and the ranks of its operands.

    The result has the batch axes, then the free axes of the lhs, then those of the rhs.
    """

    def side(number: int, rank: int, before: int) -> DotSide:
        of_batch, contracted = SIDES[number]
        batch, contract = attrs[of_batch], attrs[contracted]
        free = tuple([a for a in range(rank) if a not in batch and a not in contract])
        first = len(batch) + before
        places = (*range(len(batch)), *range(first, first + len(free)))
        return DotSide(batch, contract, free, dict(zip(batch + free, places, strict=True)))

    left = side(0, lhs, 0)
    return left, side(1, rhs, len(left.free))


def dot_sides(op: Op) -> tuple[DotSide, DotSide]:
    return sides_of(op.attrs, *(x.rank for x in op.operands))


# What is read or written where data say. See `indexing.py`.


def _indices(op: Op) -> Value:
    return op.operands[op.attrs.get("count", 1)]


def moved(op: Op) -> Value:
    """Return the value that moves: the gathered elements, or the updates."""
    return op.operands[op.attrs["count"] + 1] if "count" in op.attrs else op.result


def _target(op: Op) -> Value:
    return op.results[0] if "count" in op.attrs else op.operands[0]


def placed(op: Op) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """For each axis of the operand and of the indices, give the corresponding axis of the value that moves, or None."""
    attrs, rank = op.attrs, op.operands[0].rank
    outer = iter([p for p in range(moved(op).rank) if p not in attrs["offset_dims"]])
    batch = tuple(None if a == attrs["index_vector_dim"] else next(outer) for a in range(_indices(op).rank))
    along = dict(zip(attrs["operand_batching_dims"], attrs["start_indices_batching_dims"], strict=True))
    kept = [a for a in range(rank) if a not in along and a not in attrs["collapsed_slice_dims"]]
    window = dict(zip(kept, attrs["offset_dims"], strict=True))
    return tuple(batch[along[a]] if a in along else window.get(a) for a in range(rank)), batch


def _placed(op: Op, facts: ShapeFacts) -> Relation:
    """Relate axes that no index points into. The operand of a scatter becomes its result, which is written in place."""
    attrs, other, count = op.attrs, moved(op), op.attrs.get("count", 0)

    def link(values: tuple[Value, ...], axes: tuple[int | None, ...], data: Sequence[int]) -> Link:
        def axis(a: int, p: int | None) -> Axis:
            if p is None or a in data or facts.equal(values[0].shape[a], other.shape[p]) is not Truth.YES:
                return Elsewhere(p)
            return Same(p)

        return Link(values, other, tuple(axis(a, p) for a, p in enumerate(axes)))

    of, batch = placed(op)
    links = (
        link(op.results if count else op.operands[:1], of, attrs["start_index_map"] + attrs["operand_batching_dims"]),
        link((_indices(op),), batch, attrs["start_indices_batching_dims"]),
    )
    return Relation((*links, Link(op.operands[count + 1 : 2 * count + 1], other, Order.AXES)) if count else links)


def _dynamic_slice(op: Op, facts: ShapeFacts) -> Relation:
    rows = enumerate(zip(op.operands[0].shape, op.result.shape, strict=True))
    along = tuple(Same(a) if facts.equal(n, m) is Truth.YES else Elsewhere(a) for a, (n, m) in rows)
    return Relation((Link(op.operands[:1], op.result, along),))


# What is assembled from parts.


def _concatenated(op: Op) -> list[Part]:
    axis, rank, at, parts = op.attrs["dim"], op.result.rank, ZERO, []
    for x in op.operands:
        parts.append(Part(x, tuple(at if a == axis else ZERO for a in range(rank)), (ONE,) * rank))
        at = at + x.shape[axis]
    return parts


def _padded(op: Op) -> list[Part]:
    """Relate the operand alone: all other elements are padding."""
    return [Part(op.operands[0], op.attrs["low"], tuple(n + 1 for n in op.attrs["interior"]))]


def _updated(op: Op) -> list[Part]:
    base, update, *starts = op.operands
    return [whole(base), Part(update, tuple(starts), (ONE,) * base.rank)]


def assembly(parts: Callable[[Op], list[Part]], attributes: Mapping[str, Attribute], starts: bool = False) -> AxisRule:
    """Make the rule of an op that assembles its result: an axis of a part stays in place if it is as long as the
    result's."""

    def relation(op: Op, facts: ShapeFacts) -> Relation:
        def axis(a: int, n: Dim, start: Dim | Value, step: Dim) -> Axis:
            first = start is ZERO or isinstance(start, Value)  # which is clamped
            stays = first and ONE in (step, n) and facts.equal(n, op.result.shape[a]) is Truth.YES
            return Same(a) if stays else Elsewhere(a)

        def link(x: Value, starts: Sequence[Dim | Value], steps: Shape) -> Link:
            rows = enumerate(zip(x.shape, starts, steps, strict=True))
            return Link((x,), op.result, tuple(axis(a, *row) for a, row in rows))

        return Relation(tuple(link(*part) for part in parts(op)))

    return AxisRule(relation, attributes, starts, parts)


_OF_OPERAND = Attribute(names=operand)
OF_EACH = Attribute(along=result)
_SHAPE = {"shape": OF_EACH}
_NUMBERS = {
    "offset_dims": Attribute(names=moved),
    **dict.fromkeys(("start_indices_batching_dims", "index_vector_dim"), Attribute(names=_indices)),
    **dict.fromkeys(("collapsed_slice_dims", "operand_batching_dims", "start_index_map"), Attribute(names=_target)),
}

ELEMENTWISE = AxisRule(lambda op, facts: follow(op, Order.AXES), {})
NO_AXES = AxisRule(lambda op, facts: Relation(()), {})
IOTA = AxisRule(lambda op, facts: Relation((), (op.attrs["dim"],)), {**_SHAPE, "dim": Attribute(names=result)})
BROADCAST = AxisRule(_broadcast, {**_SHAPE, "dims": Attribute(along=operand, names=result)})
RESHAPE = AxisRule(lambda op, facts: follow(op, Order.ELEMENTS), _SHAPE)
TRANSPOSE = AxisRule(_transpose, {"perm": Attribute(along=result, names=operand)})
SLICE = AxisRule(_slice, dict.fromkeys(("start", "limit", "stride"), Attribute(along=operand)))
REVERSE = AxisRule(_reverse, {"dims": _OF_OPERAND})
WINDOW = AxisRule(
    _window, {"dims": _OF_OPERAND, **dict.fromkeys(("sizes", "window", "strides", "dilations"), Attribute())}
)
REDUCE = AxisRule(_reduce, {"dims": _OF_OPERAND})
GATHER = AxisRule(_placed, {**_NUMBERS, "slice_sizes": Attribute(along=operand)})
SCATTER = AxisRule(_placed, _NUMBERS)
DYNAMIC_SLICE = AxisRule(_dynamic_slice, {"sizes": OF_EACH}, starts=True)
CUMULATIVE = SORT = AxisRule(lambda op, facts: follow(op, Order.AXES, (op.attrs["dim"],)), {"dim": _OF_OPERAND})
CONCATENATE = assembly(_concatenated, {"dim": _OF_OPERAND})
PAD = assembly(_padded, dict.fromkeys(("low", "high", "interior"), OF_EACH))
UPDATE = assembly(_updated, {}, starts=True)
