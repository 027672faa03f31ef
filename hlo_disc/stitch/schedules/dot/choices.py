"""The tile schedule: a dot and its epilogue as register tiles of rows x vectors.

    for each (batch, panel of columns, chunk of rows) of the block:
        bring the panel's columns together, unless they are packed or can be read in place
        for each tile of 6, 4, 2 or 1 rows of the chunk:    sums over all of K in registers, then the epilogue

Forms are classes: `PackedDot` (a static operand, packed once), `BlockedDot` (columns are read in place, or by many
rows from a copy of the panel in fast memory; in a `TransposedDot` rows are copied, too, but for an `AcrossDot`, of few
columns, which are exchanged with the rows), `InnerDot` (few rows, columns contiguous along K: lanes run along K),
`NarrowDot` (the same with rows and columns exchanged, for few columns), `StreamDot` (one row, wide tiles). Long sums
with few results are shared among blocks (`shared_dot.py`); where the machine multiplies pairs of bf16, all forms but
`StreamDot` do (`bf16_dot.py`), or small matrices of them (`bf16_tiles.py`), for which the rows of windows are brought
together (`window_tiles.py`).
"""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.schedules.dot.operand import DotTypes
from hlo_disc.stitch.schedules.dot.product import Product, product, swapped
from hlo_disc.stitch.schedules.dot.shared_dot import shared_dot
from hlo_disc.stitch.schedules.dot.teams.team_dot import team_choices
from hlo_disc.stitch.schedules.dot.tiles.bf16_tiles import VECTORS
from hlo_disc.stitch.schedules.dot.tiles.blocked_kernel import AcrossDot, BlockedDot
from hlo_disc.stitch.schedules.dot.tiles.forms import InnerDot, NarrowDot, PackedDot, StreamDot
from hlo_disc.stitch.schedules.dot.tiles.pack import PanelPacking
from hlo_disc.stitch.schedules.dot.tiles.packed_tiles import PackedTilesDot
from hlo_disc.stitch.schedules.dot.tiles.transposed_lhs import TransposedDot, is_transposed
from hlo_disc.stitch.schedules.dot.tiles.window_tiles import WindowTilesDot
from hlo_disc.stitch.schedules.dot.variant import DotVariant
from hlo_disc.stitch.variant import Choice, Condition

BF16 = np.dtype(ml_dtypes.bfloat16)
# Up to so many rows lanes run along K when the operand is contiguous there.
INNER_ROWS = 3
# Up to so many columns lanes run along K, and the rows' operand is the one in vectors.
NARROW_COLUMNS = 4
# Up to so many columns are made rows when the rows lie together: their operand is then in vectors, and read as it lies.
FEW_COLUMNS = 32
# Vectors of a tile of one row, in tiles of many rows: what memory gives at once.
STREAM = 4


def dot_choices(group: Group, facts: ShapeFacts, device: Device, static: Static) -> list[Choice]:
    """Return the variants of a dot group: packed if the columns are static and packed, else by the number of rows."""
    p = product(group, facts)
    if device.tiles:
        return team_choices(group, p, facts, device)
    narrow = _is_narrow(p, facts)
    p = swapped(p) if narrow else p
    inner = narrow or _is_inner(p)
    row, col = (x.source.dtype for x in (p.rows, p.cols))
    paired = device.pair_dot and is_paired(p, inner)
    types = DotTypes(row, col, p.dtype, paired, paired and device.tile_dot)
    lanes = min(device.lanes, device.simd_bytes // p.dtype.itemsize)
    size = static.size(p.col_axis.size)
    vectors = tile_vectors(size, lanes, device, types.tiles)

    def form(kind: type[DotVariant], vectors: int = vectors, types: DotTypes = types) -> DotVariant:
        along_k = issubclass(kind, InnerDot)
        return kind(group, p, replace(types, tiles=False) if along_k else types, lanes, vectors, device, facts)

    def packed(kind: type[DotVariant], vectors: int = vectors, types: DotTypes = types) -> Choice:
        packing = PanelPacking.of(p, p.cols.source, types, lanes, vectors, static.size)
        return Choice(form(kind, vectors, types), packing=packing)

    if narrow:
        return [Choice(form(NarrowDot))]
    columns = form(TransposedDot if is_transposed(p) else BlockedDot)
    last = _shared_or_whole(columns, device, facts, static)
    if static.value(p.cols.source) and _is_static(p, static) and not p.gathered:
        if device.tile_dot and not paired and has_pairs(p, inner):
            tiles = replace(types, pairs=True, tiles=True)
            return [packed(WindowTilesDot, tile_vectors(size, lanes, device, tiles=True), tiles), *last]
        return [packed(PackedTilesDot if types.tiles else PackedDot), *last]
    rows, columns_size = p.row_axis.size, p.col_axis.size
    first = []
    if columns.in_place:
        wide = STREAM * vectors
        least = STREAM * wide * lanes
        first.append(Choice(form(StreamDot, wide), (Condition(rows, "<=", 1), Condition(columns_size, ">=", least))))
    elif inner:
        first.append(Choice(form(InnerDot), (Condition(rows, "<=", INNER_ROWS),)))
    exchanged, types_exchanged = swapped(p), DotTypes(col, row, p.dtype)
    if _narrow_fits(p) and not size.is_const:
        column = NarrowDot(group, exchanged, types_exchanged, lanes, vectors, device, facts)
        first.append(Choice(column, (Condition(columns_size, "<=", 1),)))
    if is_transposed(p) and p.col is not None and not p.gathered:
        across_vectors = tile_vectors(static.size(exchanged.col_axis.size), lanes, device)
        across = AcrossDot(group, exchanged, types_exchanged, lanes, across_vectors, device, facts)
        few = Condition(columns_size, "<=", FEW_COLUMNS)
        first += [
            replace(choice, when=(few, *choice.when)) for choice in _shared_or_whole(across, device, facts, static)
        ]
    return [*first, *last]


def _shared_or_whole(columns: DotVariant, device: Device, facts: ShapeFacts, static: Static) -> list[Choice]:
    """Return the dot, preceded by a variant shared among blocks if sums may be long and results few."""
    return [*filter(None, [shared_dot(columns, device, facts, static)]), Choice(columns)]


def is_paired(p: Product, inner: bool) -> bool:
    """Whether pairs of bf16 along K can be multiplied: rows are read in place, columns brought together in pairs."""
    return has_pairs(p, inner) and not p.row_axis.digits and len(p.inner) == 1


def has_pairs(p: Product, inner: bool) -> bool:
    """Whether pairs of bf16 along K are adjacent in the rows, and can be brought together in the columns."""
    if {p.rows.source.dtype, p.cols.source.dtype} != {BF16} or p.dtype != np.float32:
        return False
    if p.gathered or p.inner[-1].row_stride is not ONE:
        return False
    inside = p.inner[-1].col_stride is ONE
    return inside or (not inner and ONE in (p.col_axis.col_stride, p.col_axis.size))


def _is_inner(p: Product) -> bool:
    """Whether lanes can run along K of both operands."""
    return not p.gathered and len(p.inner) == 1 and p.inner[0].row_stride is p.inner[0].col_stride is ONE


def _is_narrow(p: Product, facts: ShapeFacts) -> bool:
    """Whether columns are so few, and rows contiguous along K, that vectors along K are faster."""
    return _narrow_fits(p) and facts.at_most(p.col_axis.size, Dim.const(NARROW_COLUMNS)) is Truth.YES


def _narrow_fits(p: Product) -> bool:
    if p.gathered or p.row_axis.digits or p.col is None or p.row is None:
        return False
    return len(p.inner) == 1 and p.inner[0].row_stride is ONE


def tile_vectors(size: Dim, lanes: int, device: Device, tiles: bool = False) -> int:
    """Return the vectors of a tile: fewer if there never are more columns, or if less of the last panel is then empty.

    size: the number of columns. tiles: those of `register_tile`.
    """
    most = VECTORS if tiles else device.tile_vectors
    if not size.is_const:
        return most
    wanted = -(-size.value // lanes)
    least = most - 1 if most > 3 else most  # still narrower ones have too few sums to keep the machine busy
    return max(1, min(wanted, min(range(most, least - 1, -1), key=lambda n: -(-wanted // n) * n)))


def _is_static(p: Product, static: Static) -> bool:
    axes = [*p.inner, p.col_axis, *(p.axes[a] for a in p.batch if p.axes[a].col_stride is not ZERO)]
    return all(static.size(d).is_const for d in (p.cols.offset, *(axis.size for axis in axes)))
