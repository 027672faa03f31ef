"""Scatters with any region: updates are applied to what lies in the results already, in the order of the indices.

    for each item of the block:                  a part of the elements that different indices never share
        for each index vector, in order:         where does its window lie? not inside as a whole: skip it
            for each vector of the window:       combine the old elements with the update's

Elements are shared only along the axes that the indices point into. All other axes, batching ones and those that a
window spans from a fixed start, may be divided among blocks: so the order in which updates meet in an element, and with
it the result, is the same for any number of threads.

Where there are many blocks (teams of threads), the operand is divided along an axis that the indices point into, too. A
block looks at all indices, as many at once as it has threads, and applies what reaches into its part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from hlo_disc.device import Device, Team
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val, product
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.kernel import block_grain, each_item, group_kernel
from hlo_disc.stitch.schedules.scatters.axes import Axes, Bounds, Places, nested, scatter_of, update_of
from hlo_disc.stitch.variant import Variant

# A window is divided into about this many parts, each of some cache lines: every part looks at all indices again.
PARTS = 16
PART_BYTES = 128
# Teams of threads that are worth having, though each of them looks at all indices.
TEAMS = 1024
# What finding a window costs, in elements of memory-bound work.
PER_INDEX = 8


@frozen
class OrderedScatter(Variant):
    """Kernel arguments: inputs, outputs, symbols, items, items a block, elements of the vector axis in an item, and
    positions of the owned axis.

    team: the threads that share a block; None for one.
    """

    group: Group
    facts: ShapeFacts
    device: Device
    team: Team | None = None

    @property
    def name(self) -> str:
        return f"scatter_{self.team.threads}" if self.team else "scatter"

    @property
    def op(self) -> Op:
        return scatter_of(self.group)

    @property
    def axes(self) -> Axes:
        """Return the axes. If threads share vectors, an element must belong to the same thread in all windows."""
        axes = Axes.find(self.op)
        if self.team and axes.vector is not None and not axes.split:
            return replace(axes, window=(*axes.window, axes.vector), vector=None)
        return axes

    @property
    def owned(self) -> int | None:
        """Return the axis of the operand that is divided although indices point into it."""
        shape = self.op.results[0].shape
        pointed = [a for a in self.op.attrs["start_index_map"] if shape[a] is not ONE]
        return pointed[0] if self.team and pointed else None

    @property
    def width(self) -> int:
        return self.device.lanes * (self.team.runs if self.team else 1)

    def key(self) -> tuple[Hashable, ...]:
        return (self.group.key, self.team)

    # Host side.

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide elements that different indices never share into blocks that are worth handing out, and launch."""
        axes, size = self.axes, sizes.shape(update_of(self.op).shape)
        items = product([size[a] for a in axes.shared])
        span: Scalar = size[axes.vector] if axes.vector is not None else 1
        reach: Scalar = 0
        if axes.split:
            parts = b.maximum(PARTS // b.maximum(items, 1), 1)
            least = max(PART_BYTES // min(v.dtype.itemsize for v in self.group.outputs), self.width)
            whole: Scalar = b.ceil_div(b.maximum(b.ceil_div(span, parts), least), self.width) * self.width
            span = b.minimum(span, whole)
            items = items * b.ceil_div(size[axes.vector], b.maximum(span, 1))  # type: ignore[index]
        if self.owned is not None:
            length = sizes(self.op.results[0].shape[self.owned])
            parts = b.maximum(TEAMS // b.maximum(items, 1), 1)
            reach = b.maximum(b.ceil_div(length, parts), 1)
            items = items * b.ceil_div(length, reach)
        window = product([size[a] for a in axes.window]) * span
        cost = b.maximum(product([size[a] for a in axes.serial]) * (window + PER_INDEX), 1)
        per = b.maximum(block_grain(b, self.device, self.team, items * cost) // cost, 1)
        b.launch(kernel, b.ceil_div(items, per), [*buffers, *symbols, items, per, span, reach], 0, self.team)

    # Kernel side.

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel to the module."""
        group = self.group
        with group_kernel(b, name, group, self.facts, 4, team=self.team) as (sizes, buffers, (items, per, span, reach)):
            leaves = {
                v: InMemory(m, sizes.shape(v.shape), v.dtype, fixed=v in group.inputs)
                for v, m in zip((*group.inputs, *group.outputs), buffers, strict=True)
            }
            kernel = _Kernel(b, self, sizes, leaves, span, reach)
            with each_item(b, items, per) as item:
                kernel.item(item)


class _Kernel:
    def __init__(
        self,
        b: Builder,
        variant: OrderedScatter,
        sizes: Sizes,
        leaves: Mapping[Value, InMemory],
        span: Val,
        reach: Val,
    ):
        self.b, self.span, self.reach = b, span, reach
        self.axes, self.owned = variant.axes, variant.owned
        self.body = Body(b, variant.width, sizes, leaves)
        # One index for each thread.
        self.search = Body(b, variant.team.runs, sizes, leaves) if variant.team else self.body
        self.places = Places(b, variant.op, self.axes, sizes, leaves)
        # What the item has of the owned axis.
        self.low: Scalar = 0
        self.high: Scalar = 0

    def item(self, item: Val) -> None:
        """Apply all updates of one part of the elements."""
        b, axes, size = self.b, self.axes, self.places.size
        first: Scalar = 0
        end: Scalar = 1 if axes.vector is None else size[axes.vector]
        if self.owned is not None:
            length = self.places.shape[self.owned]
            pieces = b.ceil_div(length, self.reach)
            self.low = (item % pieces) * self.reach
            self.high = b.minimum(self.low + self.reach, length)
            item = item // pieces
        if axes.split:
            parts = b.ceil_div(end, b.maximum(self.span, 1))
            first = (item % parts) * self.span
            end = b.minimum(first + self.span, end)
            item = item // parts
        places = self.body.math.delinear(Index(item), [size[a] for a in axes.shared])
        self.places.at = dict(zip(axes.shared, places, strict=True))

        def window() -> None:
            self._window(first, end)

        owned = self.owned
        if owned is not None and axes.serial:
            *outer, last = axes.serial
            nested(self.places, outer, lambda: self._near(owned, last, window))
        else:
            nested(self.places, axes.serial, window)

    def _near(self, owned: int, axis: int, window: Callable[[], None]) -> None:
        """Visit the index vectors along an axis whose windows may reach into the owned part of the operand."""
        b, body, places = self.b, self.search, self.places
        size, width = places.size[axis], body.width
        with b.loop(0, size, width) as loop:
            count = b.minimum(size - loop.i, width)
            body.mask = b.lanes.first(count, width)
            places.at[axis] = Index(loop.i, 1)
            start = places.starts(body)[owned]
            assert start is not None
            near = b.both(body.mask, self._reaches(owned, body.math.vector(start)))
            body.mask = None

            def one_by_one() -> None:
                with b.loop(loop.i, loop.i + count) as each:
                    places.at[axis] = Index(each.i)
                    window()

            b.if_(b.lanes.any(near), one_by_one)

    def _reaches(self, owned: int, start: Val) -> Val:
        """Whether a window that starts there, and is inside, reaches into the owned part."""
        b, position = self.b, self.axes.of[owned]
        window: Scalar = 1 if position is None else self.places.size[position]
        return b.both(b.compare(">", start, self.low - window), b.compare("<", start, self.high))

    def _window(self, first: Scalar, end: Scalar) -> None:
        """Apply the update of one index vector, if its window is entirely inside the operand."""
        b, places = self.b, self.places
        starts = places.starts(self.body)
        inside = places.inside(self.body, starts)
        bounds = None
        if self.owned is not None and inside is not None:
            inside, bounds = self._mine(self.owned, starts, inside)

        def apply() -> None:
            nested(places, self.axes.window, lambda: self._elements(starts, first, end), bounds)

        if inside is None:
            apply()
        else:
            b.if_(inside, apply)

    def _mine(self, owned: int, starts: Sequence[Index | None], inside: Val) -> tuple[Val, Bounds]:
        """Return whether a window has owned elements, and its bounds along each axis."""
        b, places, start, position = self.b, self.places, starts[owned], self.axes.of[owned]
        assert start is not None
        at = b.index(start.base)

        def bounds(axis: int) -> tuple[Scalar, Scalar]:
            size = places.size[axis]
            return (0, size) if axis != position else (b.maximum(self.low - at, 0), b.minimum(self.high - at, size))

        return b.both(inside, self._reaches(owned, at)), bounds

    def _elements(self, starts: Sequence[Index | None], first: Scalar, end: Scalar) -> None:
        """Walk the innermost axis of a window: vectors, and a masked one for the rest."""
        b, body, places, axis = self.b, self.body, self.places, self.axes.vector
        if axis is None:
            # Nobody else has to see what the others of a team would read.
            return b.lanes.once(lambda: places.combine(body, places.targets, places.place(body, starts)))
        width = body.width
        rest = (end - first) % width
        whole = end - rest
        with b.loop(first, whole, width) as loop:
            places.at[axis] = Index(loop.i, 1)
            places.combine(body, places.targets, places.place(body, starts))

        def tail() -> None:
            body.mask = b.lanes.first(rest, width)
            places.at[axis] = Index(whole, 1)
            places.combine(body, places.targets, places.place(body, starts))
            body.mask = None

        if isinstance(rest, Val):
            b.if_(b.compare("!=", rest, 0), tail)
        elif rest:
            tail()
