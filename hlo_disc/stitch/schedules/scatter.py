"""The scatter schedule: updates are applied to what lies in the results already, in the order of the indices.

    for each item of the block:                  a part of the elements that different indices never share
        for each index vector, in order:         where does its window lie? not inside as a whole: skip it
            for each vector of the window:       combine the old elements with the update's

Elements are shared only along the axes that the indices point into. All other axes, batching ones and those that a
window spans from a fixed start, may be divided among blocks: so the order in which updates meet in an element, and with
it the result, is the same for any number of threads. Indices and updates are computed lazily (`Body`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import ZERO, Index
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.kernel import each_item, group_kernel
from hlo_disc.stitch.variant import Choice

# A window is divided into about this many parts, each of some cache lines: every part looks at all indices again.
PARTS = 16
PART_BYTES = 128
# What finding a window costs, in elements of memory-bound work.
PER_INDEX = 8


def scatter_choices(group: Group, facts: ShapeFacts, device: Device, static: Callable[[Value], bool]) -> list[Choice]:
    """The one form of a scatter."""
    return [Choice(ScatterVariant(group, facts, device))]


def updates_shape(result: Value) -> Shape:
    """The shape of the updates, each of which is computed once, of the scatter that makes a value."""
    assert result.op is not None
    return result.op.operands[result.op.attrs["count"] + 1].shape


@dataclass(frozen=True)
class Axes:
    """The update's axes by what walks them: blocks (`shared`), then one after another (`serial`, `window`, `vector`).

    of: for each axis of the operand its axis in the update, None where it has none. starts: for each axis of the
    operand the entry of the index vector that points into it, if any. batch: the update's axes that the indices have.
    vector: neighbours in memory, None when a window has none; split: whether blocks may share them.
    """

    shared: tuple[int, ...]
    serial: tuple[int, ...]
    window: tuple[int, ...]
    vector: int | None
    split: bool
    of: tuple[int | None, ...]
    starts: tuple[int | None, ...]
    batch: tuple[int, ...]

    @staticmethod
    def find(op: Op) -> Axes:
        attrs, count = op.attrs, op.attrs["count"]
        shape, update = op.results[0].shape, op.operands[count + 1].shape
        dropped = attrs["collapsed_slice_dims"] + attrs["operand_batching_dims"]
        kept = [a for a in range(len(shape)) if a not in dropped]
        batch = tuple(a for a in range(len(update)) if a not in attrs["offset_dims"])
        vector_dim, pointed = attrs["index_vector_dim"], attrs["start_index_map"]
        of: list[int | None] = [None] * len(shape)
        for a, position in zip(kept, attrs["offset_dims"], strict=True):
            of[a] = position
        shared = []
        for a, k in zip(attrs["operand_batching_dims"], attrs["start_indices_batching_dims"], strict=True):
            of[a] = batch[k - (k > vector_dim)]
            shared.append(of[a])
        real = [a for a, n in enumerate(shape) if n != ONE]
        vector = of[real[-1]] if real and real[-1] in kept else None
        if vector is not None and update[vector] == ONE:
            vector = None
        shared += [of[a] for a in kept if a not in pointed and of[a] != vector]
        return Axes(
            tuple(a for a in shared if a is not None),
            tuple(a for a in batch if a not in shared),
            tuple(p for a in kept if a in pointed and (p := of[a]) is not None and p != vector),
            vector,
            vector is not None and real[-1] not in pointed,
            tuple(of),
            tuple(pointed.index(a) if a in pointed else None for a in range(len(shape))),
            batch,
        )


@dataclass(frozen=True)
class ScatterVariant:
    """Kernel arguments: inputs, outputs, symbols, items, items a block, elements of the vector axis in an item."""

    group: Group
    facts: ShapeFacts
    device: Device
    workspace: tuple[Value, ...] = ()
    name: str = "scatter"

    @property
    def op(self) -> Op:
        return self.group.outputs[0].op  # type: ignore[return-value]

    @property
    def axes(self) -> Axes:
        return Axes.find(self.op)

    @property
    def update(self) -> Value:
        return self.op.operands[self.op.attrs["count"] + 1]

    def key(self) -> tuple:
        return self.group.key()

    def fast_bytes(self) -> Dim:
        return Dim.const(0)

    # Host side.

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide what different indices never share into blocks that are worth handing out, and launch."""
        axes, size = self.axes, sizes.shape(self.update.shape)
        shared = _product(size[a] for a in axes.shared)
        span: Scalar = size[axes.vector] if axes.vector is not None else 1
        items = shared
        if axes.split:
            width = self.device.lanes
            parts = b.maximum(PARTS // b.maximum(shared, 1), 1)
            least = max(PART_BYTES // min(v.dtype.itemsize for v in self.group.outputs), width)
            span = b.minimum(span, b.ceil_div(b.maximum(b.ceil_div(span, parts), least), width) * width)
            items = shared * b.ceil_div(size[axes.vector], b.maximum(span, 1))  # type: ignore[index]
        window = _product(size[a] for a in axes.window) * span
        cost = b.maximum(_product(size[a] for a in axes.serial) * (window + PER_INDEX), 1)
        per = b.maximum(self.device.grain // cost, 1)
        b.launch(kernel, b.ceil_div(items, per), [*buffers, *symbols, items, per, span])

    # Kernel side.

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel to the module."""
        group = self.group
        with group_kernel(b, name, group, self.facts, 3) as (sizes, buffers, (items, per, span)):
            leaves = {
                v: InMemory(m, sizes.shape(v.shape), v.dtype, fixed=v in group.inputs)
                for v, m in zip((*group.inputs, *group.outputs), buffers, strict=True)
            }
            kernel = _ScatterKernel(b, self, sizes, leaves, span)
            with each_item(b, items, per) as item:
                kernel.item(item)


class _ScatterKernel:
    def __init__(self, b: Builder, variant: ScatterVariant, sizes: Sizes, leaves: Mapping[Value, InMemory], span: Val):
        self.b, self.sizes, self.leaves, self.span = b, sizes, leaves, span
        self.op, self.axes = variant.op, variant.axes
        self.body = Body(b, variant.device.lanes, sizes, leaves)
        self.size = sizes.shape(variant.update.shape)
        self.shape = sizes.shape(self.op.results[0].shape)
        count = self.op.attrs["count"]
        self.indices = self.op.operands[count]
        self.updates = self.op.operands[count + 1 : 2 * count + 1]
        self.captured = self.op.operands[2 * count + 1 :]
        # Where in the update we are.
        self.at: dict[int, Index] = {}

    def item(self, item: Val) -> None:
        """All updates of one part of the elements."""
        b, axes = self.b, self.axes
        first: Scalar = 0
        end: Scalar = 1 if axes.vector is None else self.size[axes.vector]
        if axes.split:
            parts = b.ceil_div(end, b.maximum(self.span, 1))
            first = (item % parts) * self.span
            end = b.minimum(first + self.span, end)
            item = item // parts
        places = self.body.math.delinear(Index(item), [self.size[a] for a in axes.shared])
        self.at = dict(zip(axes.shared, places, strict=True))
        self._nest(axes.serial, lambda: self._window(first, end))

    def _nest(self, axes: Sequence[int], inner: Callable[[], None]) -> None:
        if not axes:
            return inner()
        with self.b.loop(0, self.size[axes[0]]) as loop:
            self.at[axes[0]] = Index(loop.i)
            self._nest(axes[1:], inner)

    def _window(self, first: Scalar, end: Scalar) -> None:
        """Apply the update of one index vector, where its window lies in the operand as a whole."""
        b, axes = self.b, self.axes
        starts = [None if k is None else self._start(k) for k in axes.starts]
        inside: Val | None = None
        for n, start, position in zip(self.shape, starts, axes.of, strict=True):
            if start is not None:
                window: Scalar = 1 if position is None else self.size[position]
                ends = b.maximum(n - window + 1, 0)
                fits = b.compare("<", start, b.index(ends), unsigned=True)
                inside = fits if inside is None else b.both(inside, fits)

        def apply() -> None:
            self._nest(axes.window, lambda: self._elements(starts, first, end))

        if inside is None:
            apply()
        else:
            b.if_(inside, apply)

    def _start(self, entry: int) -> Val:
        """An entry of the index vector."""
        where = [self.at[a] for a in self.axes.batch]
        vector_dim = self.op.attrs["index_vector_dim"]
        if vector_dim < self.indices.rank:
            where.insert(vector_dim, Index(entry))
        index = self.body.as_index(self.body.eval(self.indices, tuple(where)), self.indices.dtype)
        return self.b.index(index.base)

    def _elements(self, starts: Sequence[Val | None], first: Scalar, end: Scalar) -> None:
        """The innermost axis of a window: vectors, and a masked one for the rest."""
        b, body, axis, width = self.b, self.body, self.axes.vector, self.body.width
        if axis is None:
            return self._combine(starts)
        rest = (end - first) % width
        whole = end - rest
        with b.loop(first, whole, width) as loop:
            self.at[axis] = Index(loop.i, 1)
            self._combine(starts)

        def tail() -> None:
            body.mask = b.lanes.first(rest, width)
            self.at[axis] = Index(whole, 1)
            self._combine(starts)
            body.mask = None

        if isinstance(rest, Val):
            b.if_(b.compare("!=", rest, 0), tail)
        elif rest:
            tail()

    def _combine(self, starts: Sequence[Val | None]) -> None:
        body, axes = self.body, self.axes
        place = []
        for start, position in zip(starts, axes.of, strict=True):
            i = ZERO if position is None else self.at[position]
            place.append(i if start is None else i.shift(start))
        source = tuple(self.at[a] for a in range(len(self.size)))
        targets = [self.leaves[v] for v in self.op.results]
        old = [body.load(leaf, place) for leaf in targets]
        given = [*(body.eval(u, source) for u in self.updates), *(body.eval(x, ()) for x in self.captured)]
        for x, leaf in zip(inline(body, self.op.attrs["body"], [*old, *given]), targets, strict=True):
            body.store(x, leaf, place)


def _product(sizes: object) -> Scalar:
    n: Scalar = 1
    for size in sizes:  # type: ignore[attr-defined]
        n = n * size
    return n
