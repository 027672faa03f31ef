"""The first few elements of sorted rows: a scan that keeps the best records so far, and what may still be among them.

    for each part of a row:                      many rows: a part is a row
        while elements are left:
            until the buffer is full:            compare a vector with the last of the best; append what comes before
            sort the buffer, drop what is behind the first k
    rows of several parts: the same over the best of all parts

Almost nothing comes before the best of many, so that most elements are read, compared and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.kernel import block_grain, each_item
from hlo_disc.stitch.schedules.sort.records import Records
from hlo_disc.stitch.schedules.sort.sorter import Layout, Sorter, sort_kernel

# Elements of the buffer, where there is so much fast memory.
ROOM = 1 << 13
# All rows together have about so many parts, of at least so many elements and so many times what is wanted.
PARTS, PART, TIMES = 32, 1 << 13, 1 << 7


@frozen
class TopVariant:
    """workspace: the best records of the parts of rows that have several."""

    layout: Layout
    workspace: tuple[Value, ...]
    name: str = "top"

    @staticmethod
    def of(group: Group, records: Records, facts: ShapeFacts, device: Device) -> TopVariant:
        layout = Layout(group, records, facts, device, ROOM).fitting()
        total = (Dim.const(PARTS) * layout.kept + ROOM,)
        work = tuple(Value(np.dtype(f"int{records.bits(i)}"), total) for i in range(len(records.words)))
        return TopVariant(layout, work)

    @property
    def most(self) -> int:
        """Return the largest number of wanted elements; there is space for as many more."""
        return self.layout.room // 2

    def key(self) -> tuple[Hashable, ...]:
        return (self.layout.group.key, "top")

    def fast_bytes(self) -> Dim:
        return Dim.const(self.layout.fast_bytes)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernels to the module: one whose items are parts, and one whose items are rows of several parts.

        (inputs, outputs, workspace, symbols, parts of a row, items, items a block)
        """
        for kernel, step in ((name, _part), (f"{name}_rest", _rest)):
            with sort_kernel(b, self.layout, kernel, 1, 3) as (sorter, (work,), (parts, items, per)):
                with each_item(b, items, per) as item:
                    step(sorter, item, parts, work)

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Scan the parts of all rows, then the best of the parts of rows that have several."""
        shape, dim = self.layout.op.operands[0].shape, self.layout.op.attrs["dim"]
        n = b.index(sizes(shape[dim]))
        rows = b.index(sizes.count([size for axis, size in enumerate(shape) if axis != dim]))
        least = b.maximum(b.index(sizes(self.layout.kept)) * TIMES, PART)
        parts = b.maximum(b.minimum(PARTS // b.maximum(rows, 1), n // least), 1)

        def launch(name: str, items: Scalar, length: Scalar, more: Sequence[Scalar]) -> None:
            per = b.maximum(block_grain(b, self.layout.device, None, items * length) // b.maximum(length, 1), 1)
            b.launch(name, b.ceil_div(items, per), [*buffers, *symbols, *more, items, per], self.layout.fast_bytes)

        launch(kernel, rows * parts, b.ceil_div(n, parts), [parts])
        several = b.compare(">", b.index(parts), 1)
        b.if_(several, lambda: launch(f"{kernel}_rest", rows, b.index(PART), [parts]))


def _part(s: Sorter, item: Val, parts: Val, work: Sequence[Val]) -> None:
    b, begin = s.b, s.b.index(0)
    row, length = item // parts, b.index(b.ceil_div(s.n, parts))
    first = b.index((item % parts) * length)
    _select(s, b.index(b.minimum(length, s.n - first)), lambda at: s.load(row, first + at))
    whole = b.compare("==", parts, 1)
    b.if_(
        whole,
        lambda: s.results(row, begin, begin, s.kept),
        lambda: s.keep(work, item * s.kept, begin, s.kept),
    )


def _rest(s: Sorter, row: Val, parts: Val, work: Sequence[Val]) -> None:
    """Take the best of a row from the best of its parts."""
    b, begin = s.b, s.b.index(0)
    count = b.index(parts * s.kept)
    start = row * count
    _select(s, count, lambda at: [b.load(array, start + at, s.body.width) for array in work])
    s.results(row, begin, begin, s.kept)


def _select(s: Sorter, count: Val, load: Callable[[Val], list[Val]]) -> None:
    """Leave the first of `count` records, in order, at the start of the tiles; `load` gives a vector of them.

    Of equal records those that were loaded first come first: they lie before the others in the buffer.
    """
    b, width = s.b, s.body.width
    room = b.index(b.minimum(b.ceil_div(b.maximum(s.kept, width) * 4, width) * width, s.layout.room))

    def fill(state: list[Val]) -> list[Val]:
        done, held, full = state
        last = {i: b.load(s.tiles[i], b.maximum(s.kept - 1, 0)) for i in s.records.key_words}

        def more(at: list[Val]) -> Val:
            return b.both(b.compare("<", at[0], count), b.compare("<=", at[1] + width, room))

        def take(at: list[Val]) -> list[Val]:
            i, end = at
            s.body.mask = b.lanes.first(count - i, width)
            words = load(i)
            before = s.records.less(s.body, dict(enumerate(words)), last, s.captured)
            before = b.apply(arith.OrIOp, before, b.compare("==", full, 0))
            chosen = b.both(b.splat(before, width), s.body.mask)
            s.body.mask = None

            # For a thread of a GPU's, LLVM compresses in a stack, which it reads at the wrong multiples.
            register_bits = 0 if s.layout.device.teams else 8 * s.layout.device.simd_bytes
            append = lambda: [b.simd.append(words, chosen, s.tiles, end, register_bits)]  # noqa: E731
            (end,) = b.if_(b.lanes.any(chosen), append, lambda: [end], like=[end])
            return [i + width, end]

        done, held = b.while_([done, held], more, take)
        source = s.sort(held)
        held = b.index(b.minimum(held, s.kept))

        def to_start() -> None:
            with b.loop(0, held, width) as loop:
                for tile in s.tiles:
                    b.store(b.load(tile, source + loop.i, width), tile, loop.i)

        b.if_(b.compare("!=", source, 0), to_start)
        return [done, held, b.index(1)]

    zero = b.index(0)
    b.while_([zero, zero, zero], lambda state: b.compare("<", state[0], count), fill)
