"""The sort schedule: a merge sort, stable, of whole records by any comparator.

    for each run of RUN elements of a row:       in fast memory
        load the operands, compute their keys
        sort columns of COLUMN elements by a network, a column a lane
        merge neighbours until the run is sorted
    while runs are shorter than the row:         a launch each
        for each TILE outputs of the merged runs: find where they begin, merge
    the last pass writes the results

Operands are computed lazily (`Body`), and read in the order of memory or across it, whatever the axis.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.schedules.kernel import block_grain
from hlo_disc.stitch.schedules.sort.comparator import comparator
from hlo_disc.stitch.schedules.sort.kernels import RUN, TILE, build_merges, build_runs, log2_ceil
from hlo_disc.stitch.schedules.sort.records import Records
from hlo_disc.stitch.schedules.sort.sorter import Layout
from hlo_disc.stitch.schedules.sort.top_k import TopVariant
from hlo_disc.stitch.variant import Choice, Condition

# What sorting costs, in elements of memory-bound work an element.
PER_ELEMENT = 16


def sort_choices(group: Group, facts: ShapeFacts, device: Device, static: Static) -> list[Choice]:
    """Return a merge sort, or a scan if only a few elements are wanted."""
    op = group.outputs[0].op
    assert op is not None
    count = op.attrs["count"]
    parts = comparator(op.attrs["body"], count)
    operands = [x if y in group.outputs else None for x, y in zip(op.operands, op.results, strict=False)]
    records = Records.of(parts, operands, op.operands[count:], group.symbols, facts)
    total, words = dim_product(op.operands[0].shape) + TILE, range(len(records.words))
    work = tuple(Value(np.dtype(f"int{records.bits(i)}"), (total,)) for _ in range(2) for i in words)
    whole = SortVariant(Layout(group, records, facts, device, RUN, TILE).fitting(), work)
    kept = op.results[0].shape[op.attrs["dim"]]
    if kept == op.operands[0].shape[op.attrs["dim"]]:
        return [Choice(whole)]
    top = TopVariant.of(group, records, facts, device)
    return [Choice(top, (Condition(kept, "<=", top.most),)), Choice(whole)]


@frozen
class SortVariant:
    """workspace: the records twice, row after row; merges go from one to the other."""

    layout: Layout
    workspace: tuple[Value, ...]
    name: str = "sort"

    def key(self) -> tuple[Hashable, ...]:
        return self.layout.group.key

    def fast_bytes(self) -> Dim:
        return Dim.const(self.layout.fast_bytes)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernels to the module."""
        build_runs(b, self.layout, name)
        build_merges(b, self.layout, f"{name}_merge")

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Sort the runs; then merge, level by level."""
        op, group, room = self.layout.op, self.layout.group, self.layout.room
        shape, dim = op.operands[0].shape, op.attrs["dim"]
        n = b.index(sizes(shape[dim]))
        rows = sizes.count([size for axis, size in enumerate(shape) if axis != dim])
        count = len(group.inputs) + len(group.outputs)
        middle = count + len(self.layout.records.words)
        work, other = buffers[count:middle], buffers[middle:]

        def launch(name: str, length: int, buffers: Sequence[Val], more: Sequence[Scalar]) -> None:
            cost = b.maximum(b.minimum(n, length) * PER_ELEMENT, 1)
            items = rows * b.ceil_div(n, length)
            per = b.maximum(block_grain(b, self.layout.device, None, items * cost) // cost, 1)
            b.launch(name, b.ceil_div(items, per), [*buffers, *symbols, *more, items, per], self.layout.fast_bytes)

        launch(kernel, room, buffers[: count + len(work)], ())
        runs = b.index(b.ceil_div(n, room))
        # The number of doublings that make one run of all.
        levels = log2_ceil(b, b.maximum(runs, 1))
        with b.loop(0, levels) as level:
            odd = b.compare("==", level.i % 2, 1)
            source = [b.select(odd, y, x) for x, y in zip(work, other, strict=True)]
            target = [b.select(odd, x, y) for x, y in zip(work, other, strict=True)]
            last = b.select(b.compare("==", level.i + 1, levels), b.index(1), b.index(0))
            run = b.apply(arith.ShLIOp, b.index(room), level.i)
            launch(f"{kernel}_merge", self.layout.tile, [*buffers[:count], *source, *target], [run, last])
