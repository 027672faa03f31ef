"""The first few elements of sorted rows: a scan that keeps the best records so far, and what may still be among them.

    for each part of a row:                      many rows: a part is a row
        while elements are left:
            until the buffer is full:            compare a vector with the last of the best; append what comes before
            sort the buffer, drop what is behind the first k
    rows of several parts: the same over the best of all parts

Almost nothing comes before the best of many, so that most elements are read, compared and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.dynamic_hlo.dim import Dim
from hlo_disc.dynamic_hlo.facts import ShapeFacts
from hlo_disc.dynamic_hlo.graph import Op, Value
from hlo_disc.mlir import arith
from hlo_disc.stitch.body import Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val
from hlo_disc.stitch.device import Device
from hlo_disc.stitch.group import Group
from hlo_disc.stitch.records import Records
from hlo_disc.stitch.sorter import COLUMN, RUN, Layout, Sorter, fast_bytes, sort_kernel

# Up to so many elements are wanted; the buffer holds at least as many more.
MOST = RUN // 2
# All rows together have about so many parts, of so many elements or more.
PARTS, PART = 32, 1 << 13


@dataclass(frozen=True)
class TopVariant:
    """workspace: the best records of the parts of rows that have several."""

    group: Group
    records: Records
    facts: ShapeFacts
    device: Device
    workspace: tuple[Value, ...]
    name: str = "top"

    @staticmethod
    def of(group: Group, records: Records, facts: ShapeFacts, device: Device) -> TopVariant:
        total = (Dim.const(PARTS * MOST + MOST),)
        work = tuple(Value(np.dtype(f"int{records.bits(i)}"), total) for i in range(len(records.words)))
        return TopVariant(group, records, facts, device, work)

    @property
    def op(self) -> Op:
        return self.group.outputs[0].op  # type: ignore[return-value]

    def key(self) -> tuple:
        return (self.group.key(), "top")

    def fast_bytes(self) -> Dim:
        return Dim.const(fast_bytes(self.records))

    def build(self, b: Builder, name: str) -> None:
        """Add the kernels to the module."""
        layout = Layout(self.group, self.op, self.records, self.facts, self.device)
        _build_parts(b, layout, name)
        _build_rest(b, layout, f"{name}_rest")

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Scan the parts of all rows, then the best of the parts of rows that have several."""
        shape, dim = self.op.operands[0].shape, self.op.attrs["dim"]
        n = b.index(sizes(shape[dim]))
        rows = b.index(sizes.count([size for axis, size in enumerate(shape) if axis != dim]))
        parts = b.maximum(b.minimum(PARTS // b.maximum(rows, 1), n // PART), 1)
        fast = fast_bytes(self.records)

        def launch(name: str, items: Scalar, length: Scalar, more: Sequence[Scalar]) -> None:
            per = b.maximum(self.device.grain // b.maximum(length, 1), 1)
            b.launch(name, b.ceil_div(items, per), [*buffers, *symbols, *more, items, per], fast)

        launch(kernel, rows * parts, b.ceil_div(n, parts), [parts])
        several = b.compare(">", b.index(parts), 1)
        b.if_(several, lambda: launch(f"{kernel}_rest", rows, b.index(PART), [parts]))


def _build_parts(b: Builder, layout: Layout, name: str) -> None:
    """(inputs, outputs, workspace, symbols, parts of a row, items, items a block)"""
    with sort_kernel(b, layout, name, 1, 3) as (sorter, (work,), (parts, items, per)):
        lo = b.block_id() * per
        with b.loop(lo, b.minimum(lo + per, items)) as item:
            row, part = item.i // parts, b.index(item.i % parts)
            length = b.index(b.ceil_div(sorter.n, parts))
            first = part * length
            count = b.index(b.minimum(length, sorter.n - first))
            _select(sorter, count, lambda at, first=first, row=row: sorter.load(row, first + at))
            begin, kept = b.index(0), sorter.kept
            b.if_(
                b.compare("==", parts, 1),
                lambda row=row: sorter.results(row, begin, begin, kept),
                lambda item=item: sorter.keep(work, item.i * kept, begin, kept),
            )


def _build_rest(b: Builder, layout: Layout, name: str) -> None:
    """The same arguments, items being rows: the best of each row from the best of its parts."""
    with sort_kernel(b, layout, name, 1, 3) as (sorter, (work,), (parts, items, per)):
        lo = b.block_id() * per
        width = sorter.body.width
        with b.loop(lo, b.minimum(lo + per, items)) as item:
            count = b.index(parts * sorter.kept)
            start = item.i * count
            _select(sorter, count, lambda at, start=start: [b.load(array, start + at, width) for array in work])
            sorter.results(item.i, b.index(0), b.index(0), sorter.kept)


def _select(s: Sorter, count: Val, load: Callable[[Val], list[Val]]) -> None:
    """Leave the first of `count` records, in order, at the start of the tiles; `load` gives a vector of them.

    Of equal records those that were loaded first come first: they lie before the others in the buffer.
    """
    b, width = s.b, s.body.width
    room = b.index(b.minimum(b.ceil_div(s.kept * 4, COLUMN * width) * (COLUMN * width), RUN))

    def fill(state: list[Val]) -> list[Val]:
        done, held, full = state
        last = {i: b.load(s.tiles[i], b.maximum(s.kept - 1, 0)) for i in s.records.key_words}

        def more(at: list[Val]) -> Val:
            return b.both(b.compare("<", at[0], count), b.compare("<=", at[1] + width, room))

        def take(at: list[Val]) -> list[Val]:
            i, end = at
            s.body.mask = b.mask(count - i, width)
            words = load(i)
            before = s.records.less(s.body, dict(enumerate(words)), last, s.captured)
            before = b.apply(arith.OrIOp, before, b.compare("==", full, 0))
            chosen = b.both(b.splat(before, width), s.body.mask)
            s.body.mask = None

            def append() -> list[Val]:
                for word, tile in zip(words, s.tiles, strict=True):
                    b.compress(word, tile, end, chosen)
                return [end + b.count(chosen)]

            (end,) = b.if_(b.horizontal("or", chosen), append, lambda: [end], like=[end])
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
