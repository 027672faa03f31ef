"""The compiled variants of a row group: their width, and how their items are divided among blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

from hlo_disc.device import Device, Team
from hlo_disc.dynamic_hlo.ir.graph import Op, Value, regions
from hlo_disc.dynamic_hlo.ops.cost import is_expensive
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.space import RowSpace
from hlo_disc.stitch.schedules.kernel import block_grain, each_item, group_kernel
from hlo_disc.stitch.schedules.row.kernel import RowKernel, stage_bytes
from hlo_disc.stitch.variant import Variant

# So many cheap operations take an element as long as it takes to read and write it.
CHEAP = 8


@frozen
class RowVariant(Variant):
    """One compiled form of a row group. Kernel arguments: inputs, outputs, symbols, items, items a block, span.

    narrow: one vector a step, for rows that would not fill more. slices: parts of `span` columns that
    are shared among blocks; 0 for none. Reductions go over one of them, and the outputs get an axis of so many more,
    the last one, or with lanes on rows the first. totals: what such a kernel left of the cumulative ops' operands, from
    which each part of the columns starts.
    team: the threads that share a block; None for one. aligned: the axis along which lanes run is a multiple of the
    lanes of a register. stages: what several passes need is kept in fast memory, where that can be; otherwise it is
    computed again.
    """

    group: Group
    space: RowSpace
    lanes_on_rows: bool
    device: Device
    facts: ShapeFacts
    narrow: bool = False
    slices: int = 0
    totals: tuple[Value, ...] = ()
    team: Team | None = None
    aligned: bool = False
    stages: bool = True

    @property
    def sliced(self) -> bool:
        """Whether the results are those of slices."""
        return self.slices > 0 and not self.totals

    @property
    def along(self) -> Dim:
        """Return the size of the axis along which lanes run."""
        return (self.space.rows if self.lanes_on_rows else (Dim.const(1), *self.space.widest))[-1]

    @cached_property
    def width(self) -> int:
        """Return the lanes of a step: more than one register's, so that several vectors are in flight."""
        if self.team:
            return self.team.runs * self.device.lanes
        if self.narrow:
            return self.device.lanes
        light = not any(is_heavy(op) for op in self.group.ops)
        return self.device.lanes * (self.device.unroll * (4 if self.lanes_on_rows and light else 1))

    @property
    def parts(self) -> bool:
        """Whether an item is a part of its columns. A map may share a long row among blocks, too."""
        # Finding the part of a row takes a division, which is as long as a short row.
        whole = self.space.reduced_at or self.space.scans or self._short
        return self.slices > 0 or (not self.lanes_on_rows and not whole)

    @property
    def _short(self) -> bool:
        """Whether rows are known to be too short to be shared."""
        cols = dim_product(self.space.widest)
        return cols.is_const and cols.value <= self.device.grain * (self.team.runs if self.team else 1)

    @property
    def staged(self) -> bool:
        """Whether fast memory is used. Teams side by side would have to share it; their rows are short."""
        if not self.stages or self.lanes_on_rows or not any(p.stage for p in self.space.passes):
            return False
        return self.team is None or self.team.count == 1

    def fast_bytes(self) -> Dim:
        """Return the fast memory of a block, for staged values."""
        total = Dim.const(0)
        for p in self.space.passes if self.staged else ():
            for value in p.stage:
                total = total + stage_bytes(value, p)
        return total

    @property
    def name(self) -> str:
        kind = "reduce" if self.space.reduced_at else "scan" if self.space.scans else "map"
        kind += f"_{self.team.threads}" if self.team else ""
        kind += "_across" * self.lanes_on_rows + "_narrow" * self.narrow + "_sliced" * self.sliced
        return kind + "_unstaged" * (not self.stages) + "_aligned" * self.aligned

    def key(self) -> tuple[Hashable, ...]:
        form = (self.lanes_on_rows, self.narrow, self.slices, len(self.totals), self.team, self.aligned, self.stages)
        return (self.group.key, *form)

    # Host side.

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide the items into blocks that are worth handing out, and launch."""
        cols = sizes.count(self.space.widest)
        cheap = 0 if self.team else sum(kind(op) == "elementwise" for op in self.group.ops)
        weight = 1 + cheap // CHEAP + 4 * sum(is_expensive(op) for op in self.group.ops)
        work = sizes.count(self.space.rows) * cols
        grain = b.maximum(block_grain(b, self.device, self.team, work) // weight, self.width)
        chunks: Scalar = 1
        span = cols
        if self.slices:
            span, chunks = b.ceil_div(cols, self.slices), self.slices
        elif self.parts:
            span = b.minimum(cols, b.ceil_div(grain, self.width) * self.width)
            chunks = b.ceil_div(cols, b.maximum(span, 1))
        if self.lanes_on_rows:
            panels = b.ceil_div(sizes(self.space.rows[-1]), self.width)
            items = sizes.count(self.space.rows[:-1]) * panels * chunks
            per_item = span * self.width
        else:
            items, per_item = sizes.count(self.space.rows) * chunks, span
        # Of the rows of a team each takes a step at least.
        per = b.maximum(grain // b.maximum(per_item, self.width if self.team else 1), 1)
        fast = sizes(self.fast_bytes())
        b.launch(kernel, b.ceil_div(items, per), [*buffers, *symbols, items, per, span], fast, self.team)

    # Kernel side.

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel to the module."""
        with group_kernel(b, name, self.group, self.facts, 3, self.totals, team=self.team) as opened:
            sizes, buffers, scalars = opened
            items, per, span = scalars
            if self.aligned:
                for size in (sizes(self.along), *([] if self.slices else [span])):
                    b.lanes.is_multiple(size, self.device.lanes)
            build = RowKernel(b, self, sizes, buffers, span)
            with each_item(b, items, per) as item:
                (build.panel if self.lanes_on_rows else build.row)(item)


def is_heavy(op: Op) -> bool:
    """Whether an op keeps registers busy, so that several vectors in flight are no gain."""
    inner = [x for region in regions(op) for x in region.ops]
    return (is_expensive(op) and kind(op) != "cumulative") or any(is_expensive(x) for x in inner)
