"""The roles of the axes of a scatter's updates, and the position of an index vector's window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.axes import placed
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import ZERO, Index
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group

# From where to where to walk an axis.
Bounds = Callable[[int], tuple[Scalar, Scalar]]


def scatter_of(group: Group) -> Op:
    """Return the op of a scatter's group."""
    op = group.outputs[0].op
    assert op is not None
    return op


def update_of(op: Op) -> Value:
    """Return the first array of updates; others have its shape."""
    count: int = op.attrs["count"]
    return op.operands[count + 1]


@frozen
class Axes:
    """The update's axes by what walks them: blocks (`shared`), then one after another (`serial`, `window`, `vector`).

    of: for each axis of the operand its axis in the update, None where it has none. starts: for each axis of the
    operand the entry of the index vector that points into it, if any. batch: for each axis of the indices its axis in
    the update, None for that of an index vector. vector: neighbours in memory, None when a window has none; split:
    whether blocks may share them.
    """

    shared: tuple[int, ...]
    serial: tuple[int, ...]
    window: tuple[int, ...]
    vector: int | None
    split: bool
    of: tuple[int | None, ...]
    starts: tuple[int | None, ...]
    batch: tuple[int | None, ...]

    @staticmethod
    def find(op: Op) -> Axes:
        attrs, shape, update = op.attrs, op.results[0].shape, update_of(op).shape
        of, batch = placed(op)
        pointed, batched = attrs["start_index_map"], attrs["operand_batching_dims"]
        kept = [a for a, position in enumerate(of) if position is not None and a not in batched]
        shared = [of[a] for a in batched]
        real = [a for a, n in enumerate(shape) if n is not ONE]
        vector = of[real[-1]] if real and real[-1] in kept else None
        if vector is not None and update[vector] is ONE:
            vector = None
        shared += [of[a] for a in kept if a not in pointed and of[a] != vector]
        return Axes(
            tuple(a for a in shared if a is not None),
            tuple(a for a in batch if a is not None and a not in shared),
            tuple(p for a in kept if a in pointed and (p := of[a]) is not None and p != vector),
            vector,
            vector is not None and real[-1] not in pointed,
            of,
            tuple(pointed.index(a) if a in pointed else None for a in range(len(shape))),
            batch,
        )


class Places:
    """A scatter under construction: its sizes, and what an update does to the elements of its window.

    at: where in the update we are.
    """

    def __init__(self, b: Builder, op: Op, axes: Axes, sizes: Sizes, leaves: Mapping[Value, InMemory]):
        self.b, self.op, self.axes = b, op, axes
        self.targets = [leaves[v] for v in op.results]
        count = op.attrs["count"]
        self.size = sizes.shape(update_of(op).shape)
        if axes.serial:
            first = axes.serial[0]
            self.size[first] = b.turns(self.size[first], (n for a, n in enumerate(self.size) if a != first))
        self.shape = sizes.shape(op.results[0].shape)
        self.indices = op.operands[count]
        self.updates = op.operands[count + 1 : 2 * count + 1]
        self.captured = op.operands[2 * count + 1 :]
        self.at: dict[int, Index] = {}

    def starts(self, body: Body) -> list[Index | None]:
        """Return for each axis of the operand where the window starts, None if no index points into the axis."""
        return [None if k is None else self.start(body, k) for k in self.axes.starts]

    def start(self, body: Body, entry: int) -> Index:
        """Return an entry of the index vector."""
        where = tuple(Index(entry) if a is None else self.at[a] for a in self.axes.batch)
        return body.as_index(body.eval(self.indices, where), self.indices.dtype)

    def inside(self, body: Body, starts: Sequence[Index | None]) -> Val | None:
        """Whether the window is entirely inside the operand; None if no index points into it."""
        b, inside = self.b, None
        for n, start, position in zip(self.shape, starts, self.axes.of, strict=True):
            if start is not None:
                window: Scalar = 1 if position is None else self.size[position]
                ends = b.maximum(n - window + 1, 0)
                fits = b.compare("<", body.math.value(start), b.index(ends), unsigned=True)
                inside = fits if inside is None else b.both(inside, fits)
        return inside

    def place(self, body: Body, starts: Sequence[Index | None]) -> list[Index]:
        """Return the current position in the operand."""
        place = []
        for start, position in zip(starts, self.axes.of, strict=True):
            i = ZERO if position is None else self.at[position]
            place.append(i if start is None else body.math.add(i, start))
        return place

    def given(self, body: Body) -> list[Val]:
        """Return the elements of the updates, and the values that the region captured."""
        source = tuple(self.at[a] for a in range(len(self.size)))
        return [*(body.eval(u, source) for u in self.updates), *(body.eval(x, ()) for x in self.captured)]

    def combine(self, body: Body, targets: Sequence[InMemory], place: Sequence[Index]) -> None:
        """Replace the old elements by the region of them and the update's."""
        old = [body.load(leaf, place) for leaf in targets]
        made = inline(body, self.op.attrs["body"], [*old, *self.given(body)])
        for x, leaf in zip(made, targets, strict=True):
            body.store(x, leaf, place)


def nested(
    places: Places,
    axes: Sequence[int],
    inner: Callable[[], None],
    bounds: Bounds | None = None,
) -> None:
    """Loop over axes of the update, nested; bounds: those of partial axes."""
    if not axes:
        return inner()
    low, high = bounds(axes[0]) if bounds else (0, places.size[axes[0]])
    with places.b.loop(low, high) as loop:
        places.at[axes[0]] = Index(loop.i)
        nested(places, axes[1:], inner, bounds)
