"""Fewer axes: merge neighbouring axes that every op of a group walks together, and drop axes of size 1.

From a row group to an equal one of lower rank: (b, s, 3072) + bias becomes (b*s, 3072) + bias. A boundary between two
axes of a value must be kept when some op treats the two sides differently; ops tie boundaries of operands and results
together. Memory is row-major, so that merging axes never moves an element. An op that nothing is said of here keeps all
its axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value, make_op
from hlo_disc.dynamic_hlo.ops.axes import (
    Affine,
    Axis,
    Elsewhere,
    Order,
    Reduced,
    Relation,
    Same,
    Windowed,
    followed,
    position,
)
from hlo_disc.dynamic_hlo.ops.table import axis_rule, kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.group import Group, Place


def collapse(group: Group, facts: ShapeFacts) -> Group:
    """Return an equivalent group over as few axes as possible. Values are new, in the same order."""
    return _Collapse(group, facts).run()


def collapse_around(
    group: Group, facts: ShapeFacts, value: Value, boundaries: Iterable[int]
) -> tuple[Group, list[list[int]]]:
    """Collapse a group, but keep the axes of `value` apart at each boundary; boundary a is the one before axis a.

    Returns the group, and for each axis that `value` has then the axes that were merged to it.
    """
    work = _Collapse(group, facts)
    for a in boundaries:
        work.keep_before(value, a)
    return work.run(), work.runs(value)


class _Collapse:
    def __init__(self, group: Group, facts: ShapeFacts):
        self.group, self.facts = group, facts
        # A boundary is (value, axis): between the real axis and the one before it. Real axes are those not of size 1.
        self.parent: dict[tuple[Value, int], tuple[Value, int]] = {}
        self.kept: set[tuple[Value, int]] = set()
        self.real: dict[Value, list[int]] = {}
        self.merged: dict[Value, list[list[int]]] = {}
        self.new: dict[Value, Value] = {}
        self.relations: dict[Op, Relation | None] = {}
        self.sizes: dict[Dim, Dim] = {}

    def run(self) -> Group:
        for op in self.group.ops:
            self._constrain(op)
        main = max(self.group.outputs, key=lambda v: v.rank)
        for value in self.group.outputs:
            if value is not main and len(self._axes(value)) == len(self._axes(main)):
                self._tie_all(value, main)
        if self.group.place:
            self._constrain_place(self.group.place)
        for value in self.group.inputs:
            self.new[value] = Value(value.dtype, self._shape(value), None, value.index)
        ops = [new for op in self.group.ops for new in self._rebuild(op)]
        outputs = tuple(self.new[v] for v in self.group.outputs)
        place = self._rebuild_place(self.group.place) if self.group.place else None
        return Group(self.group.schedule, tuple(ops), tuple(self.new[v] for v in self.group.inputs), outputs, place)

    def keep_before(self, value: Value, axis: int) -> None:
        """Keep what lies before `axis` apart from what follows, also when the axis itself has size 1."""
        axes = self._axes(value)
        following = [a for a in axes if a >= axis]
        if following and following[0] != axes[0]:
            self._keep((value, following[0]))

    def keep_around(self, value: Value, axis: int) -> None:
        """Keep what lies on both sides of `axis` apart from it, also when the axis itself has size 1."""
        self.keep_before(value, axis)
        self.keep_before(value, axis + 1)

    # Boundaries.

    def _axes(self, value: Value) -> list[int]:
        found = self.real.get(value)
        if found is None:
            found = self.real[value] = [a for a, n in enumerate(value.shape) if n is not ONE]
        return found

    def _find(self, boundary: tuple[Value, int]) -> tuple[Value, int]:
        root = boundary
        while root in self.parent:
            root = self.parent[root]
        while boundary != root:
            self.parent[boundary], boundary = root, self.parent[boundary]
        return root

    def _tie(self, x: tuple[Value, int], y: tuple[Value, int]) -> None:
        x, y = self._find(x), self._find(y)
        if x != y:
            self.parent[x] = y
            if x in self.kept:
                self.kept.add(y)

    def _keep(self, boundary: tuple[Value, int]) -> None:
        self.kept.add(self._find(boundary))

    def _keep_all(self, value: Value) -> None:
        for a in self._axes(value)[1:]:
            self._keep((value, a))

    def _tie_all(self, x: Value, y: Value) -> None:
        for a, b in zip(self._axes(x)[1:], self._axes(y)[1:], strict=True):
            self._tie((x, a), (y, b))

    def _constrain(self, op: Op) -> None:
        relation = self._relation(op)
        if relation is None:
            for value in (*op.results, *op.operands):
                self._keep_all(value)
            return
        for value in op.results[1:]:
            self._tie_all(value, op.results[0])
        for link in relation.links:
            first, *others = link.values
            for value in others:
                self._tie_all(value, first)
            if link.along is Order.AXES:
                self._tie_all(first, link.other)
            elif link.along is Order.ELEMENTS:
                self._reshape(first, link.other)
            else:
                self._match(first, link.other, link.along)
        for axis in relation.apart:
            self.keep_around(op.results[0], axis)

    def _relation(self, op: Op) -> Relation | None:
        """Return how the op's axes follow each other; None when it keeps all of them."""
        if op not in self.relations:
            rule = axis_rule(op)
            found = rule.relation(op, self.facts) if rule and rule.attributes is not None else None
            self.relations[op] = None if found and self._counts_ones(op, found) else found
        return self.relations[op]

    def _counts_ones(self, op: Op, relation: Relation) -> bool:
        """Does an axis of size 1 count: may its index have a meaning, or is the size written as 1 on one side alone?"""
        axes = self._axes
        if any([axis not in axes(op.results[0]) for axis in relation.apart]):
            return True
        for values in (op.results, *[link.values for link in relation.links]):
            if len(values) > 1 and any([axes(value) != axes(values[0]) for value in values]):
                return True
        for link in relation.links:
            real, others = axes(link.values[0]), axes(link.other)
            for a, entry in enumerate(link.entries):
                ones = [axis not in others for axis in followed(entry) if axis is not None]
                if isinstance(entry, Affine | Windowed) and (a not in real or True in ones):
                    return True
                if isinstance(entry, Same) and (a not in real) not in ones:
                    return True
        return False

    def _match(self, x: Value, y: Value, along: Sequence[Axis]) -> None:
        """Tie neighbours in x to those in y, and keep all else apart.

        Neighbours of which the other value has neither may merge: in x when both are reduced.
        """
        before = {b: a for a, b in pairwise(self._axes(y))}
        tied = set()
        for a, b in pairwise(self._axes(x)):
            of, to = along[a], along[b]
            if isinstance(of, Same) and isinstance(to, Same) and before.get(to.axis) == of.axis:
                self._tie((x, b), (y, to.axis))
                tied.add(to.axis)
            elif not (isinstance(of, Reduced) and isinstance(to, Reduced)):
                self._keep((x, b))
        named = {axis for entry in along for axis in followed(entry)}
        for b, a in before.items():
            if b not in tied and (a in named or b in named):
                self._keep((y, b))

    def _reshape(self, x: Value, y: Value) -> None:
        """Boundaries with equal sizes before them are the same boundary; others have nothing to do with each other."""
        before = {size: a for a, size in self._sizes_before(x)}
        for b, size in self._sizes_before(y):
            a = before.get(size)
            if a is not None:
                self._tie((x, a), (y, b))

    def _sizes_before(self, value: Value) -> Iterator[tuple[int, Dim]]:
        """The size of all before each real axis but the first."""
        axes, size = self._axes(value), ONE
        for before, a in pairwise(axes):
            size = size * value.shape[before]
            yield a, self.facts.canonical(size)

    def _constrain_place(self, place: Place) -> None:
        (x,) = self.group.outputs
        for a, stride in enumerate(place.strides):
            # What is as long as the target starts at 0, even if the start is data.
            if stride is not ONE or self.facts.equal(x.shape[a], place.shape[a]) is not Truth.YES:
                self.keep_around(x, a)

    # Rebuilding.

    def _all_runs(self, value: Value) -> list[list[int]]:
        """The merged axes and those of size 1 between them, in order."""
        runs = self.runs(value)
        covered = {a for run in runs for a in run}
        return sorted([*runs, *([a] for a in range(value.rank) if a not in covered)])

    def runs(self, value: Value) -> list[list[int]]:
        """The real axes of the value, merged."""
        found = self.merged.get(value)
        if found is None:
            found = []
            for a in self._axes(value):
                if found and self._find((value, a)) not in self.kept:
                    found[-1].append(a)
                else:
                    found.append([a])
            self.merged[value] = found
        return found

    def _shape(self, value: Value) -> Shape:
        return self._products(value.shape, self.runs(value))

    def _products(self, sizes: Shape, runs: list[list[int]]) -> Shape:
        """The sizes of merged axes."""
        if len(runs) == len(sizes):
            return sizes
        return tuple([sizes[r[0]] if len(r) == 1 else dim_product([self._size(sizes[a]) for a in r]) for r in runs])

    def _size(self, d: Dim) -> Dim:
        """One spelling for equal sizes: that factors are equal facts may know, and not that their products are.

        It has the same symbols, for host code computes with those of the group.
        """
        known = self.sizes.get(d)
        if known is None:
            alike = [x for x in self.sizes.values() if x.symbols == d.symbols]
            equal = (x for x in alike if self.facts.equal(x, d) is Truth.YES)
            known = self.sizes[d] = next(equal, d)
        return known

    def _rebuild(self, op: Op) -> list[Op]:
        """The op on merged axes.

        Where its attributes or data may count axes of size 1, it has these too, between reshapes.
        """
        relation, rule = self._relation(op), axis_rule(op)
        narrow = relation is not None and not any([Elsewhere in map(type, x.entries) for x in relation.links])
        runs = self.runs if narrow else self._all_runs
        types = [(v.dtype, self._products(v.shape, runs(v))) for v in op.results]
        first: list[Op] = []
        operands: list[Value] = []
        in_place = len(op.results) if kind(op) == "scatter" else 0
        for number, x in enumerate(op.operands):
            if number < in_place:  # it is in the result already, which keeps its axes of size 1
                operands.append(Value(*types[number]))
            elif narrow or not x.rank:
                operands.append(self.new[x])
            else:
                first.append(_reshape(self.new[x], self._products(x.shape, runs(x)), op.loc))
                operands.append(first[-1].result)
        attrs = op.attrs
        if relation is not None and rule is not None:
            attrs = rule.renumbered(op, runs, self._products)
            if rule.starts:
                arrays = len(operands) - op.operands[0].rank
                operands[arrays:] = [operands[arrays + run[0]] for run in runs(op.operands[0])]
        middle = make_op(op.name, operands, attrs, types, op.loc)
        if narrow or in_place:
            self.new.update(zip(op.results, middle.results, strict=True))
            return [*first, middle]
        last = [_reshape(x, self._shape(y), op.loc) for x, y in zip(middle.results, op.results, strict=True)]
        self.new.update((value, again.result) for value, again in zip(op.results, last, strict=True))
        return [*first, middle, *last]

    def _rebuild_place(self, place: Place) -> Place:
        """The target's axes merged as the output's are; an axis of size 1 that has a start stays."""
        (x,) = self.group.outputs
        shape: list[Dim] = []
        starts, strides, axes = [], [], []
        for run in self._all_runs(x):
            at = position(self.runs(x), run[0])
            shape += self._products(place.shape, [run])
            start = place.starts[run[0]]
            starts.append(self.new[start] if isinstance(start, Value) else start)
            strides.append(place.strides[run[0]])
            axes.append(at)
        return Place(place.target, tuple(shape), tuple(starts), tuple(strides), tuple(axes))


def _reshape(x: Value, shape: Shape, loc: str) -> Op:
    return make_op("reshape", [x], {"shape": shape}, [(x.dtype, shape)], loc)
