"""The forms of a dot on a machine with teams of threads: a team has a tile of the result, see `team_kernel.py`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from hlo_disc.device import Device, Mma, Tile
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.schedules.dot.library_dot import library_dot
from hlo_disc.stitch.schedules.dot.operand import DotTypes, Staging
from hlo_disc.stitch.schedules.dot.product import Product, swapped
from hlo_disc.stitch.schedules.dot.shared_dot import shared_dot
from hlo_disc.stitch.schedules.dot.teams.fma_tile import FmaTile, fma_staging
from hlo_disc.stitch.schedules.dot.teams.mma_tile import MmaTile, mma_staging
from hlo_disc.stitch.schedules.dot.teams.team_kernel import TeamKernel, along_k
from hlo_disc.stitch.schedules.kernel import group_kernel
from hlo_disc.stitch.variant import Choice, Condition, Variant, When


@frozen
class TeamDot(Variant):
    """One compiled form of a dot group. Kernel arguments: buffers and symbols.

    slices: into how many parts K is divided; more than one are the product's first axis. multiples: the sizes that are
    multiples of what a thread reads at once, so that whole vectors are read and written. mma: the products of small
    matrices that sums are made of; None where they are made of products of numbers.
    """

    group: Group
    product: Product
    types: DotTypes
    tile: Tile
    facts: ShapeFacts
    multiples: tuple[Dim, ...] = ()
    slices: int = 1
    mma: Mma | None = None

    @property
    def name(self) -> str:
        kind = "dot_mma" if self.mma else "dot"
        return f"{kind}_{self.tile.rows}x{self.tile.cols}" + "_aligned" * bool(self.multiples)

    def key(self) -> tuple[Hashable, ...]:
        return (self.group.key, self.tile, self.multiples, self.slices)

    @property
    def staging(self) -> Staging:
        """The layout of operands and sums in fast memory."""
        return mma_staging(self.types, self.mma) if self.mma else fma_staging(self.types)

    def sums(self, b: Builder) -> FmaTile | MmaTile:
        """Return the object that builds the sums."""
        return MmaTile(b, self.tile, self.types, self.mma) if self.mma else FmaTile(b, self.tile, self.types.sum)

    @property
    def rows_elements(self) -> int:
        """The number of elements of fast memory for the rows of a block."""
        return self.tile.depth * (self.tile.rows + self.staging.pad)

    @property
    def block_elements(self) -> int:
        """The number of elements of fast memory for a block of K."""
        return self.rows_elements + self.tile.depth * (self.tile.cols + self.staging.pad)

    @property
    def sums_elements(self) -> int:
        """The number of elements of fast memory for the sums."""
        return self.tile.parts * self.tile.rows * (self.tile.cols + self.staging.sums_pad)

    def fast_bytes(self) -> Dim:
        """Return the fast memory of a block: two blocks of K, which the sums later reuse."""
        blocks = 2 * self.block_elements * self.staging.dtype.itemsize
        return Dim.const(max(blocks, self.sums_elements * np.dtype(self.types.sum).itemsize))

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        p, tile = self.product, self.tile
        tiles = sizes.count([p.axes[a].size for a in p.batch])
        for axis, size in ((p.row_axis, tile.rows), (p.col_axis, tile.cols)):
            tiles = tiles * b.ceil_div(sizes(axis.size), size)
        b.launch(kernel, tiles, [*buffers, *symbols], sizes(self.fast_bytes()), tile.team)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel to the module."""
        with group_kernel(b, name, self.group, self.facts, 0, team=self.tile.team) as (sizes, buffers, _):
            TeamKernel(b, self, sizes, buffers).item(b.block_id())


def team_choices(group: Group, p: Product, facts: ShapeFacts, device: Device) -> list[Choice]:
    """Return the choices: the machine's tiles, each with and without whole vectors, and few long sums shared among
    blocks."""
    if facts.at_most(p.col_axis.size, Dim.const(min(tile.rows for tile in device.tiles))) is Truth.YES:
        p = swapped(p)  # few columns are few rows of the other matrix
    types, sizes = DotTypes(p.rows.source.dtype, p.cols.source.dtype, p.dtype), _strides(p)
    names = tuple(np.dtype(x).name for x in (types.row, types.col, types.sum))
    known = (x for x in device.matrix if (x.operands, x.operands, x.sums) == names)
    mma = next((x for x in known if x.exact or p.tf32), None)
    tiles = device.tiles if mma is None else [_of_types(tile, types) for tile in device.matrix_tiles]
    choices: list[Choice] = []
    for tile in tiles:
        form = TeamDot(group, p, types, tile, facts, mma=mma)
        whole = tuple(Condition(size, "multiple of", form.staging.vector) for size in sizes)
        when = _when(p, tile) if tile is not tiles[-1] else ()
        choices += [Choice(replace(form, multiples=sizes), (*when, *whole)), Choice(form, when)]
    shared = shared_dot(TeamDot(group, p, types, tiles[-1], facts, mma=mma), device, facts, Static())
    library = library_dot(group, p, device)
    return [*filter(None, [library, shared]), *choices]


# Of a thread, the most there are.
REGISTERS = 255


def _of_types(tile: Tile, types: DotTypes) -> Tile:
    """Return a tile for operands of 16 bits with as many bytes for others. If registers are counted, others may use
    all."""
    size = types.row.itemsize
    registers = REGISTERS if tile.registers and size != 2 else tile.registers
    return replace(tile, depth=tile.depth * 2 // size, registers=registers)


def _when(p: Product, tile: Tile) -> When:
    """Return when a tile is taken: with parts for few rows; others if few are cut, and enough for all processors."""
    if tile.parts > 1:
        return (Condition(p.row_axis.size, "<=", tile.rows),)
    if not tile.least:
        return ()
    results = Condition(dim_product(axis.size for axis in p.axes), ">=", tile.least)
    return (results, Condition(p.row_axis.size, ">=", tile.rows), Condition(p.col_axis.size, ">=", tile.cols))


def _strides(p: Product) -> tuple[Dim, ...]:
    """Return the sizes that decide whether a vector of an operand, or of the result, is aligned to its length."""
    found = [p.rows.offset, p.cols.offset, p.col_axis.size]
    for side in ("row", "col"):
        axis = p.row_axis if side == "row" else p.col_axis
        found.append(p.inner[-1].size if along_k(p, side) else axis.size)
        axes = [*p.axes, *p.inner, *(digit for axis in (*p.axes, *p.inner) for digit in axis.digits)]
        found += [getattr(axis, f"{side}_stride") for axis in axes]
    return tuple(dict.fromkeys(size for size in found if size not in (ZERO, ONE)))
