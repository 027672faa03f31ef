"""The attention schedule: dot -> softmax and the like -> dot in one kernel; scores never leave fast memory.

    for each (batch element, chunk of query rows) of the block:
        pack the keys in fast memory
        for each tile of 6, 4, 2 or 1 rows: scores of all keys; sweep the rows; weights x values; epilogue

With few query rows (decoding) the keys are read in place, with lanes along the head. If the machine multiplies small
matrices of bf16, both dots use them (`dot/tiles/bf16_tiles.py`), with 32 rows per tile. Weights that are bf16 are
rounded before the second dot, as in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import CompileError
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index, IndexMath
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.elements import to_memory
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.attention_pattern import Scores, scores_of
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.strided import Strided
from hlo_disc.stitch.schedule import PART, Static
from hlo_disc.stitch.schedules.attention.sweep import Sweep
from hlo_disc.stitch.schedules.dot.choices import BF16, is_paired, tile_vectors
from hlo_disc.stitch.schedules.dot.epilogue import Epilogue
from hlo_disc.stitch.schedules.dot.operand import DotTypes, KAxis, Operand
from hlo_disc.stitch.schedules.dot.product import Product, contraction, epilogue_of, operand
from hlo_disc.stitch.schedules.dot.tiles.bf16_dot import panel_depth
from hlo_disc.stitch.schedules.dot.tiles.bf16_tiles import ROWS, register_tile, rest_elements, tiles_of_registers
from hlo_disc.stitch.schedules.dot.tiles.kernel import panel_steps, rows_of_tiles
from hlo_disc.stitch.schedules.dot.tiles.microkernel import inner_tile, outer_tile
from hlo_disc.stitch.schedules.dot.tiles.pack import PanelPacker
from hlo_disc.stitch.schedules.dot.variant import MOST_BLOCKS, row_chunks
from hlo_disc.stitch.schedules.kernel import each_item, group_kernel
from hlo_disc.stitch.variant import Choice, Condition, Variant

# FLOPs that a score costs between the dots.
SCORE_FLOPS = 32
# Up to so many query rows the keys are read where they lie.
FEW_QUERIES = 1
# Rows whose work is as much as packing the keys and values of a block.
PACKING_ROWS = 4
# A block of fewer rows would spend its time on packing the keys.
LEAST_ROWS = 64


@frozen
class AttentionVariant(Variant):
    """One compiled form of an attention group. Kernel arguments: buffers, symbols, items, items a block, rows, chunks.

    first, second: the dots as products, rows the queries', every axis apart. few: the variant for few query rows.
    tiles: both dots by `register_tile`.
    """

    group: Group
    scores: Scores
    first: Product
    second: Product
    few: bool
    tiles: bool
    device: Device
    facts: ShapeFacts

    @property
    def name(self) -> str:
        return "attention_few" if self.few else "attention"

    def key(self) -> tuple[Hashable, ...]:
        return (self.group.key, self.few)

    @property
    def dtype(self) -> np.dtype:
        return self.first.dtype

    @property
    def lanes(self) -> int:
        return self.device.simd_bytes // self.dtype.itemsize

    @property
    def steps(self) -> tuple[int, ...]:
        if self.tiles:
            return (ROWS,)
        return (1,) if self.few else (self.device.tile_rows, *self.device.row_steps)

    @property
    def copied(self) -> bool:
        """Whether the values are packed."""
        return self.tiles or self.second.col_axis.col_stride is not ONE

    @property
    def widths(self) -> tuple[int, int]:
        """Return the columns of a tile of the first dot, and of the second."""
        vectors = (
            tile_vectors(p.col_axis.size, self.lanes, self.device, self.tiles) for p in (self.first, self.second)
        )
        first, second = (n * self.lanes for n in vectors)
        return first, second

    @property
    def stride(self) -> Dim:
        """Return the distance between rows of scores: whole tiles fit, and it is no power of two."""
        return _panels(self.first, self.widths[0]) * self.widths[0] + self.lanes

    def layout(self) -> tuple[list[Dim], Dim]:
        """Return element offsets in fast memory: sums, factors, scores, packed keys and values, rest of K, the end."""
        keys = ZERO if self.few else self.panel_room(self.first, self.widths[0])
        values = self.panel_room(self.second, self.widths[1]) if self.copied else ZERO
        rows = self.steps[0]
        rest = Dim.const(rest_elements(max(self.widths) // self.lanes) if self.tiles else 0)
        factors = Dim.const(max(rows, self.lanes))
        room = [Dim.const(rows * self.widths[1]), factors, self.stride * rows, keys, values, rest]
        offsets = [ZERO]
        for n in room:
            offsets.append(offsets[-1] + n)
        return offsets[:-1], offsets[-1]

    def panel(self, p: Product, width: int) -> Dim:
        """Return the elements of a packed panel."""
        return panel_depth(self.tiles, p.depth) * width

    def panel_room(self, p: Product, width: int) -> Dim:
        return _panels(p, width) * self.panel(p, width)

    def fast_bytes(self) -> Dim:
        """Return the fast memory of a block."""
        return self.layout()[1] * self.dtype.itemsize

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide the batch elements, and their rows when those are few, into blocks that are worth handing out."""
        p, q = self.first, self.second
        rows, keys = sizes(p.row_axis.size), sizes(p.col_axis.size)
        batch = sizes.count([p.axes[a].size for a in p.batch])
        flops = (sizes(p.depth) + sizes(q.col_axis.size)) * 2 + SCORE_FLOPS
        wanted = batch * (rows + PACKING_ROWS) * keys * flops // self.device.grain_flops
        wanted = b.maximum(b.minimum(wanted, MOST_BLOCKS), 1)
        chunks = row_chunks(b, wanted, batch, rows, LEAST_ROWS)
        step = ROWS if self.tiles else self.device.tile_rows
        chunk = b.ceil_div(b.ceil_div(rows, chunks), step) * step
        total = batch * chunks
        per = b.maximum(b.index(total) // wanted, 1)
        fast = sizes(self.fast_bytes())
        b.launch(kernel, b.ceil_div(total, per), [*buffers, *symbols, total, per, chunk, chunks], fast)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel and the device functions that it calls to the module."""
        group, parts = self.group, _AttentionParts(b, self)
        with group_kernel(b, name, group, self.facts, 4, calls_only=True) as (sizes, buffers, scalars):
            total, per, chunk, chunks = scalars
            memory = dict(zip((*group.inputs, *group.outputs), buffers, strict=True))
            work = _AttentionKernel(b, self, parts, sizes, memory)
            with each_item(b, total, per) as item:
                work.item(item // chunks, (item % chunks) * chunk, chunk)


def attention_choices(group: Group, facts: ShapeFacts, device: Device, static: Static) -> list[Choice]:
    """Return the variants of an attention group: for few query rows, if they may be fewer than keys, and for many."""
    scores = scores_of(group.ops, facts)
    if scores is None:
        raise CompileError("an attention group is no attention")
    first, second = _products(group, scores, facts)

    def form(few: bool) -> AttentionVariant:
        tiles = not few and device.tile_dot and _takes_tiles(first, second, scores)
        return AttentionVariant(group, scores, first, second, few, tiles, device, facts)

    choices = []
    rows, keys = first.row_axis.size, first.col_axis.size
    contiguous = len(first.inner) == 1 and first.inner[0].row_stride is first.inner[0].col_stride is ONE
    if contiguous and facts.equal(rows, keys) is not Truth.YES:
        choices.append(Choice(form(True), (Condition(rows, "<=", FEW_QUERIES),)))
    return [*choices, Choice(form(False))]


def _takes_tiles(first: Product, second: Product, scores: Scores) -> bool:
    """Whether `register_tile` computes both products, once the weights are in memory."""
    types = {first.rows.source.dtype, first.cols.source.dtype, second.cols.source.dtype, scores.weights.dtype}
    return types == {BF16} and is_paired(first, inner=False) and is_paired(second, inner=False)


def _products(group: Group, scores: Scores, facts: ShapeFacts) -> tuple[Product, Product]:
    """Return both dots with the queries along rows. The weights, the second dot's row operand, are not in memory."""
    one, two = scores.first, scores.second
    left, right = (operand(x, group, facts) for x in one.operands)
    whole = Group(PART, (), (one.result,), (one.result,))
    first = contraction(one, left, right, whole, facts, cols=scores.key_side)
    first = _with_axes(first, scores.row, scores.key)
    weights = scores.weights
    strides = tuple(ONE if a == ("out", scores.key) else ZERO for a in scores.at[weights])
    walks = [Strided(weights, weights.shape, ZERO, strides), operand(two.operands[1 - scores.side], group, facts)]
    left, right = walks if scores.side == 0 else reversed(walks)
    second = contraction(two, left, right, epilogue_of(group, two), facts, cols=1 - scores.side)
    row = None if scores.row is None else scores.result_axis(scores.row)
    columns = second.col if second.col is None else second.origins[second.col]
    return first, _with_axes(second, row, columns)


def _with_axes(p: Product, row: int | None, col: int | None) -> Product:
    """Choose the axes along rows and vectors, by their numbers in the dot's own result."""
    found = [None if a is None else p.origins.index(a) for a in (row, col)]
    return replace(p, row=found[0], col=found[1])


def _panels(p: Product, width: int) -> Dim:
    return (p.col_axis.size + (width - 1)) // width


class _AttentionParts:
    """Builds the device functions of a variant."""

    def __init__(self, b: Builder, v: AttentionVariant):
        p, q, lanes = v.first, v.second, v.lanes
        wide, narrow = (w // lanes for w in v.widths)
        one = DotTypes(p.rows.source.dtype, p.cols.source.dtype, v.dtype, v.tiles, v.tiles)
        two = DotTypes(BF16 if v.tiles else v.dtype, q.cols.source.dtype, v.dtype, v.tiles, v.tiles)
        self.sweep = Sweep(b, v.group, v.scores, p, lanes, v.device, v.facts)
        self.epilogue = Epilogue(b, q, v.widths[1], lanes, v.device, v.facts, self.sweep.scaled)
        self.pack_keys = None if v.few else PanelPacker(b, p.inner, p.col_axis, one, lanes, wide)
        self.pack_values = PanelPacker(b, q.inner, q.col_axis, two, lanes, narrow) if v.copied else None
        self.first: dict[int, Callable[..., None]] = {}
        # The last panel of keys is often half empty, texts being short; the tiles of few rows are not worth a half.
        self.half: dict[int, Callable[..., None]] = {}
        self.second: dict[tuple[int, bool], Callable[..., None]] = {}
        self.whole = True
        if v.tiles:
            self.rows_by_keys, self.rows_by_values = register_tile(b, one, wide), register_tile(b, two, narrow)
            self.inner = None
            return
        self.inner = inner_tile(b, one, lanes, lanes) if v.few else None
        packed = DotTypes(one.row, v.dtype, v.dtype)
        if v.copied:
            two = DotTypes(v.dtype, v.dtype, v.dtype)
        columns = q.col_axis.size
        self.whole = v.copied or (columns.is_const and columns.value % v.widths[1] == 0)
        keys = p.col_axis.size
        halves = wide % 2 == 0 and not (keys.is_const and not 0 < keys.value % v.widths[0] <= v.widths[0] // 2)
        for rows in v.steps:
            if not v.few:
                self.first[rows] = outer_tile(b, packed, lanes, rows, wide, len(p.inner), False)
                if halves and rows == v.steps[0]:
                    self.half[rows] = outer_tile(b, packed, lanes, rows, wide // 2, len(p.inner), False)
            for masked in (False,) if self.whole else (False, True):
                self.second[rows, masked] = outer_tile(
                    b, two, lanes, rows, narrow, 1, masked, prefetch=v.device.prefetch if v.few else 0
                )


class _AttentionKernel:
    def __init__(self, b: Builder, v: AttentionVariant, parts: _AttentionParts, sizes: Sizes, memory: dict[Value, Val]):
        self.b, self.v, self.parts, self.sizes, self.memory = b, v, parts, sizes, memory
        self.p, self.q = v.first, v.second
        element, bytes_ = b.memory_type(v.dtype), v.dtype.itemsize
        fast, (offsets, end) = b.fast(), v.layout()
        views = [b.generic(b.view(fast, sizes(at * bytes_), element, sizes(end))) for at in offsets]
        self.sums, self.factors, self.scores, self.keys, self.values, self.rest = views
        self.queries = memory[self.p.rows.source]
        self.stride = sizes(v.stride)
        self.count = sizes(self.p.col_axis.size)
        self.columns = sizes(self.q.col_axis.size)

    def item(self, number: Scalar, first: Scalar, chunk: Scalar) -> None:
        """Compute one batch element's query rows from `first` on."""
        b, p, q, sizes = self.b, self.p, self.q, self.sizes
        at = IndexMath(b, 1).delinear(Index(number), sizes.shape([p.axes[a].size for a in p.batch]))
        self.batch = [i.base for i in at]
        of_axis = {p.origins[a]: i for a, i in zip(p.batch, self.batch, strict=True)}
        places = {self.v.scores.result_axis(a): i for a, i in of_axis.items()}
        self.second_batch = [places[q.origins[a]] for a in q.batch]
        self.query_at = self._start(p.rows.offset, p, "row_stride", self.batch)
        self.key_at = self._start(p.cols.offset, p, "col_stride", self.batch)
        self.value_at = self._start(q.cols.offset, q, "col_stride", self.second_batch)
        if self.parts.pack_keys:
            self._pack(self.parts.pack_keys, p, self.v.widths[0], self.key_at, self.keys)
        if self.parts.pack_values:
            self._pack(self.parts.pack_values, q, self.v.widths[1], self.value_at, self.values)
        end = b.minimum(first + chunk, sizes(p.row_axis.size))
        if self.v.tiles:
            tiles_of_registers(b, first, end, self._tile_of_registers)
        else:
            rows_of_tiles(b, self.v.steps, first, end, self._tile)

    def _start(self, offset: Dim, p: Product, stride: str, batch: Sequence[Scalar]) -> Scalar:
        at = self.sizes(offset)
        for i, a in zip(batch, p.batch, strict=True):
            at = at + i * self.sizes(getattr(p.axes[a], stride))
        return at

    def _pack(self, pack: PanelPacker, p: Product, width: int, at: Scalar, target: Val) -> None:
        """Pack all panels of an operand."""
        sizes, columns = self.sizes, self.sizes(p.col_axis.size)
        room, stride = sizes(self.v.panel(p, width)), sizes(p.col_axis.col_stride)
        with self.b.loop(0, self.b.ceil_div(columns, width)) as loop:
            first = loop.i * width
            source = Operand(self.memory[p.cols.source], at + first * stride)
            pack(sizes, source, Operand(target, loop.i * room, (width, self.v.lanes)), columns - first)

    def _tile(self, row: Scalar, rows: int) -> None:
        query_at = self.query_at + row * self.sizes(self.p.row_axis.row_stride)
        self._scores(query_at, rows)
        buffers = [self.scores, self.factors]
        self.parts.sweep(self.sizes, self.memory, buffers, self.stride, self.batch, row, rows)
        self._output(row, rows)

    def _tile_of_registers(self, row: Scalar, rows: Scalar) -> None:
        """Compute a tile of up to ROWS rows in registers of small matrices.

        These are the scores, the weights in bf16 in place of the scores, and their products with the values.
        """
        b, p, q, sizes = self.b, self.p, self.q, self.sizes
        (wide, narrow), rest = self.v.widths, Operand(self.rest, 0)
        stride, room = sizes(p.row_axis.row_stride), sizes(self.v.panel(p, wide))
        queries = Operand(self.queries, self.query_at + row * stride, (stride,))
        with b.loop(0, b.ceil_div(self.count, wide)) as loop:
            scores = Operand(self.scores, loop.i * wide, (self.stride,))
            walk = KAxis(sizes(p.inner[0].size), 1, wide)
            self.parts.rows_by_keys(queries, Operand(self.keys, loop.i * room), scores, walk, 0, rows, rest)
        self.parts.sweep(self.sizes, self.memory, [self.scores, self.factors], self.stride, self.batch, row, rows)
        rounded = b.retyped(self.scores, b.memory_type(BF16))
        with b.loop(0, rows) as loop, b.loop(0, self.count, self.v.lanes) as keys:
            x = b.load(self.scores, loop.i * self.stride + keys.i, self.v.lanes)
            b.store(to_memory(b, x, BF16), rounded, loop.i * self.stride * 2 + keys.i)
        sums = [self.sums, self.factors] if self.parts.sweep.scaled else [self.sums]
        memory = [self.memory[x] for x in (*q.reads, *self.v.group.outputs)]
        weights, target = Operand(rounded, 0, (self.stride * 2,)), Operand(self.sums, 0, (narrow,))
        room = sizes(self.v.panel(q, narrow))
        with b.loop(0, self.columns, narrow) as loop:
            values, walk = Operand(self.values, loop.i // narrow * room), KAxis(self.count, 1, narrow)
            self.parts.rows_by_values(weights, values, target, walk, 0, rows, rest)
            self.parts.epilogue(sizes, sums, memory, self.second_batch, row, rows, loop.i)

    def _scores(self, query_at: Scalar, rows: int) -> None:
        b, p, sizes = self.b, self.p, self.sizes
        if self.parts.inner:
            step, size = sizes(p.col_axis.col_stride), sizes(p.inner[0].size)
            with b.loop(0, self.count, self.v.lanes) as loop:
                keys = Operand(self.memory[p.cols.source], self.key_at + loop.i * step, (step,))
                query, last = Operand(self.queries, query_at, (1,)), self.count - loop.i - 1
                self.parts.inner(query, keys, last, Operand(self.scores, loop.i), size)
            return
        width = self.v.widths[0]
        steps = panel_steps(p, sizes, width)
        walk = [KAxis(sizes(x.size), sizes(x.row_stride), step) for x, step in zip(p.inner, steps, strict=True)]
        room, row_stride = sizes(self.v.panel(p, width)), sizes(p.row_axis.row_stride)
        with b.loop(0, b.ceil_div(self.count, width)) as loop:
            scores = Operand(self.scores, loop.i * width, (self.stride,))
            queries, keys = Operand(self.queries, query_at, (row_stride,)), Operand(self.keys, loop.i * room)
            args = (queries, keys, scores, *walk, 0)
            if rows in self.parts.half:
                few = b.compare("<=", b.index(self.count - loop.i * width), width // 2)
                b.if_(few, partial(self.parts.half[rows], *args), partial(self.parts.first[rows], *args))
            else:
                self.parts.first[rows](*args)

    def _output(self, row: Scalar, rows: int) -> None:
        b, q, sizes, width = self.b, self.q, self.sizes, self.v.widths[1]
        step = sizes(q.inner[0].col_stride)
        room = sizes(self.v.panel(q, width))
        sums = [self.sums, self.factors] if self.parts.sweep.scaled else [self.sums]
        memory = [self.memory[x] for x in (*q.reads, *self.v.group.outputs)]
        with b.loop(0, self.columns, width) as loop:
            weights, target = Operand(self.scores, 0, (self.stride,)), Operand(self.sums, 0, (width,))
            rest = self.columns - loop.i
            if self.v.copied:
                values = Operand(self.values, loop.i // width * room)
                self.parts.second[rows, False](weights, values, target, KAxis(self.count, 1, width), 0)
            else:
                values = Operand(self.memory[q.cols.source], self.value_at + loop.i)
                args = (weights, values, target, KAxis(self.count, 1, step), 0)
                if self.parts.whole:
                    self.parts.second[rows, False](*args)
                else:
                    full, part = self.parts.second[rows, False], self.parts.second[rows, True]
                    b.if_(b.compare(">=", b.index(rest), width), partial(full, *args), partial(part, *args, rest))
            self.parts.epilogue(sizes, sums, memory, self.second_batch, row, rows, loop.i)
