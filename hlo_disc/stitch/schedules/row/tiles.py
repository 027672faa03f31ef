"""Maps with a transposed input, for teams of threads: square tiles of it go through fast memory.

    for each tile of the block:                    neighbours of the input along one axis, of the results along the last
        for each input that is transposed:         read along its own memory, written to fast memory
        for each vector of the tile:               evaluate the body along the results' memory

So neighbouring threads have neighbouring elements both times. A row of a tile in fast memory has one element more than
it needs, so that the elements of a column are in different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from hlo_disc.device import Device, Team
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.elementwise import ELEMENTWISE
from hlo_disc.stitch.codegen.values.val import Scalar, Val, product
from hlo_disc.stitch.codegen.views import view
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.kernel import block_grain, each_item, group_kernel
from hlo_disc.stitch.variant import Variant

# The side of a tile, and of a row of it in fast memory.
SIDE, PITCH = 32, 33
# Tiles are for axes of at least so many elements, which fill a sector of memory: of shorter ones more is empty.
LEAST = 8


def transposed(group: Group) -> tuple[int, tuple[Value, ...]]:
    """Return the axis of the results, not the last, along which inputs are contiguous, and these transposed inputs."""
    found: dict[Value, int] = {}
    reached = set(group.outputs)  # through elementwise ops alone
    for op in reversed(group.ops):
        value = op.results[0]
        if value not in reached:
            continue
        if op.name in ELEMENTWISE:
            reached.update(op.operands)
        elif op.name == "transpose" and op.operands[0] in group.inputs and value.dtype.kind != "c":
            found[value] = op.attrs["perm"].index(value.rank - 1)
    axes = [axis for value, axis in found.items() if axis != value.rank - 1]
    return (axes[0], tuple(v for v, axis in found.items() if axis == axes[0])) if axes else (0, ())


@frozen
class TileVariant(Variant):
    """Kernel arguments: inputs, outputs, symbols, items, items a block. An item is a tile.

    axis, staged: see `transposed`.
    """

    group: Group
    facts: ShapeFacts
    device: Device
    team: Team
    axis: int
    staged: tuple[Value, ...]

    @property
    def name(self) -> str:
        return f"map_{self.team.threads}_tiles"

    def key(self) -> tuple[Hashable, ...]:
        return (self.group.key, "tiles", self.team)

    def fast_bytes(self) -> Dim:
        return Dim.const(sum(_tile_bytes(value) for value in self.staged))

    def _counts(self, b: Builder, shape: Sequence[Scalar]) -> list[Scalar]:
        """Return, for each axis, the number of tiles, or of elements where it has none."""
        tiled = (self.axis, len(shape) - 1)
        return [b.ceil_div(n, SIDE) if a in tiled else n for a, n in enumerate(shape)]

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide the tiles into blocks that are worth handing out, and launch."""
        items = product(self._counts(b, sizes.shape(self.group.outputs[0].shape)))
        per = b.maximum(block_grain(b, self.device, self.team, items * SIDE**2) // SIDE**2, 1)
        fast = sizes(self.fast_bytes())
        b.launch(kernel, b.ceil_div(items, per), [*buffers, *symbols, items, per], fast, self.team)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel to the module."""
        group = self.group
        with group_kernel(b, name, group, self.facts, 2, team=self.team) as (sizes, buffers, (items, per)):
            leaves = {
                v: InMemory(m, sizes.shape(v.shape), v.dtype)
                for v, m in zip((*group.inputs, *group.outputs), buffers, strict=True)
            }
            outputs = {v: leaves.pop(v) for v in group.outputs}
            kernel = _TileKernel(b, self, Body(b, self.team.runs, sizes, leaves), outputs)
            with each_item(b, items, per) as item:
                kernel.tile(item)


class _TileKernel:
    def __init__(self, b: Builder, variant: TileVariant, body: Body, outputs: dict[Value, InMemory]):
        self.b, self.variant, self.body, self.outputs = b, variant, body, outputs
        self.shape = next(iter(outputs.values())).shape
        number = b.lanes.numbers(body.width)
        self.column, self.row = number % SIDE, number // SIDE
        fast, byte = b.fast(), 0
        self.tiles: dict[Value, InMemory] = {}
        for value in variant.staged:
            view = b.view(fast, byte, b.memory_type(value.dtype), SIDE * PITCH)
            self.tiles[value] = InMemory(view, [SIDE * PITCH], value.dtype, fixed=False)
            byte += _tile_bytes(value)

    def tile(self, item: Val) -> None:
        b, body = self.b, self.body
        counts = self.variant._counts(b, self.shape)
        corner = body.math.delinear(Index(item), counts)
        self._sweep(corner, self.variant.axis, self._stage)
        b.barrier()
        self._sweep(corner, len(self.shape) - 1, self._evaluate)
        b.barrier()  # before the next tile takes its place

    def _sweep(self, corner: Sequence[Index], along: int, step: Callable[[list[Index], int], None]) -> None:
        """Compute all vectors of a tile, whose lanes run along one axis, SIDE of them, and then along the other one."""
        b, body, last = self.b, self.body, len(self.shape) - 1
        across = self.variant.axis + last - along
        for first in range(0, SIDE, body.width // SIDE):
            index = list(corner)
            inside: Val | None = None
            for axis, lanes, start in ((along, self.column, 0), (across, self.row, first)):
                base = corner[axis].base * SIDE + start
                index[axis] = Index(base, lanes)
                here = b.compare("<", lanes, b.index(self.shape[axis] - base))
                inside = here if inside is None else b.both(inside, here)
            body.mask = inside
            step(index, first)
            body.mask = None

    def _stage(self, index: list[Index], first: int) -> None:
        for value, tile in self.tiles.items():
            x = self.body.eval(value, tuple(index))
            self.body.store(x, tile, [Index(first * PITCH, self.row * PITCH + self.column)])

    def _evaluate(self, index: list[Index], first: int) -> None:
        body, here = self.body, tuple(index)

        def staged(value: Value) -> Callable[[tuple[Index, ...]], Val]:
            place = [Index(first, self.column * PITCH + self.row)]
            op: Op = value.op  # type: ignore[assignment]
            return lambda at: body.load(self.tiles[value], place) if at == here else view(body, op, at)

        body.computed = {value: staged(value) for value in self.tiles}
        for value, leaf in self.outputs.items():
            body.store(body.eval(value, here), leaf, here)
        body.computed = {}


def _tile_bytes(value: Value) -> int:
    """Return a tile's bytes, a multiple of 16."""
    return -(-SIDE * PITCH * value.dtype.itemsize // 16) * 16
