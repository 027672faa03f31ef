"""The row schedule: maps, row reductions and column reductions, any number of them in one kernel.

    for each item of the block:            an item is a row, a part of a row, or a panel of rows
        for each pass:                     reductions level by level, then the stores
            for each vector of columns:    evaluate the body, accumulate or store

Lanes run along the columns. If memory runs along the last row axis (column sums), or if there are few columns, they run
along that axis. The body is the same in both forms. With lanes on rows a reduction needs no other lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import ZERO, Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Place
from hlo_disc.stitch.fusion.space import Access, Pass
from hlo_disc.stitch.schedules.row.reducers import Reducer, reducer
from hlo_disc.stitch.schedules.row.scans import BLOCK, Scan

if TYPE_CHECKING:
    from hlo_disc.stitch.schedules.row.variant import RowVariant


def stage_bytes(value: Value, p: Pass) -> Dim:
    return dim_product(p.cols) * max(value.dtype.itemsize, 4)


Step = Callable[[Body, list[Index], list[Val]], list[Val]]


class RowKernel:
    def __init__(self, b: Builder, variant: RowVariant, sizes: Sizes, buffers: Sequence[Val], span: Val):
        self.b, self.variant, self.space, self.sizes, self.span = b, variant, variant.space, sizes, span
        group = variant.group
        read = (*group.inputs, *variant.totals)
        n = len(read)
        self.leaves = {v: self._leaf(v, m) for v, m in zip(read, buffers[:n], strict=True)}
        shapes = [group.place.shape] if group.place else [self._output_shape(v) for v in group.outputs]
        self.outputs = {
            v: InMemory(m, sizes.shape(shape), v.dtype)
            for v, m, shape in zip(group.outputs, buffers[n:], shapes, strict=True)
        }
        self.vectors = self._body(variant.width)
        self.row_index: list[Index] = []
        self.first: Scalar = 0
        self.end: Scalar = 0
        self.slice = ZERO
        self._stages = self._stage_leaves()

    def _leaf(self, value: Value, buffer: Val) -> InMemory:
        return InMemory(buffer, self.sizes.shape(value.shape), value.dtype)

    def _output_shape(self, value: Value) -> Shape:
        if not self.variant.sliced:
            return value.shape
        slices = Dim.const(self.variant.slices)
        return (slices, *value.shape) if self.variant.lanes_on_rows else (*value.shape, slices)

    def _body(self, width: int) -> Body:
        return Body(self.b, width, self.sizes, self.leaves)

    def _stage_leaves(self) -> dict[Value, InMemory]:
        stages: dict[Value, InMemory] = {}
        if not self.variant.staged:
            return stages
        fast, offset = None, Dim.const(0)
        for p in self.space.passes:
            for value in p.stage:
                fast = fast or self.b.fast()
                dtype = computed(value.dtype)
                count = self.sizes.count(p.cols)
                view = self.b.view(fast, self.sizes(offset), self.b.memory_type(dtype), count)
                stages[value] = InMemory(view, [count], dtype, fixed=False)
                offset = offset + stage_bytes(value, p)
        return stages

    # The two forms of an item.

    def row(self, item: Val) -> None:
        """Run lanes along the columns of one row, or of a chunk of it."""
        cols = self.sizes.count(self.space.passes[-1].cols)
        if self.variant.parts:
            item = self._take_part(item, cols)
        self.row_index = self.vectors.math.delinear(Index(item), self.sizes.shape(self.space.rows))
        self._passes(self._sweep_vectors)

    def _take_part(self, item: Val, cols: Scalar, panels: Scalar | None = None) -> Val:
        """Split the item's number into the part of the columns and the rest.

        Neighbouring items take neighbouring memory: parts of one row or, of all `panels`, the next one.
        """
        chunks = self.variant.slices or self.b.ceil_div(cols, self.b.maximum(self.span, 1))
        if panels is None:
            part, rest = self.b.index(item % chunks), item // chunks
        else:
            part, rest = item // panels, self.b.index(item % panels)
        self.slice = Index(part)
        self.first = self.b.minimum(part * self.span, cols)
        self.end = self.b.minimum(self.first + self.span, cols)
        return rest

    def panel(self, item: Val) -> None:
        """Run lanes along the last row axis; columns one by one."""
        *outer, last = self.sizes.shape(self.space.rows)
        panels = self.b.ceil_div(last, self.variant.width)
        if self.variant.parts:
            count = self.b.index(self.sizes.count(self.space.rows[:-1]) * panels)
            item = self._take_part(item, self.sizes.count(self.space.passes[-1].cols), count)
        at = self.vectors.math.delinear(Index(item // panels), outer)
        base = (item % panels) * self.variant.width
        self.row_index = [*at, Index(base, 1)]
        rest = self.b.index(last - base)

        def masked() -> None:
            self.vectors.mask = self.b.lanes.first(rest, self.variant.width)
            self._passes(self._sweep_scalars)
            self.vectors.mask = None

        def whole() -> None:
            self._passes(self._sweep_scalars)

        self.b.if_(self.b.compare(">=", rest, self.variant.width), whole, masked)

    def _passes(self, sweep: Callable[[Pass, list[Reducer], Step], list[Val]]) -> None:
        self.vectors.bound = {}
        self.vectors.computed = {}
        for p in self.space.passes:
            self.vectors.ahead = self._ahead(p)
            if p.reductions:
                self._reduce(p, sweep)
            else:
                sweep(p, [], self._store_step)
            for op in p.scans:
                for value in op.results:
                    self.vectors.bound.pop(value, None)
        row_outputs = [(v, a) for v, a in self.space.outputs if self.space.reduced_at and not self.space.has_columns(a)]
        for value, access in row_outputs:
            index = self._index(access, [])
            self._store(self.vectors, value, index)

    def _ahead(self, p: Pass) -> int:
        """Return how far to prefetch: a core does not see by itself that a long row follows one that is computed on."""
        first = len(self.space.passes) > 1 and p is self.space.passes[0]
        return self.variant.device.prefetch if first and not self.variant.lanes_on_rows else 0

    def _store(self, body: Body, value: Value, index: tuple[Index, ...]) -> None:
        x = body.eval(value, index)
        if self.variant.group.place:
            index = placed(body, self.variant.group.place, value, index)
        elif self.variant.sliced:
            index = (self.slice, *index) if self.variant.lanes_on_rows else (*index, self.slice)
        body.store(x, self.outputs[value], index)

    def _reduce(self, p: Pass, sweep: Callable[..., Sequence[Val]]) -> None:
        reducers = [reducer(op, self.variant.lanes_on_rows, self.variant.sliced) for op in p.reductions]

        def step(body: Body, cols: list[Index], state: list[Val]) -> list[Val]:
            self._stage(body, p, cols)
            out: list[Val] = []
            rest: Sequence[Val] = state
            for r in reducers:
                xs = [body.eval(x, self._operand_index(r.op, cols)) for x in r.operands]
                out += r.step(body, xs, rest[: r.count])
                rest = rest[r.count :]
            return out

        states = sweep(p, reducers, step)
        for r in reducers:
            self.vectors.bound.update(zip(r.op.results, r.finish(self.vectors, states[: r.count]), strict=True))
            states = states[r.count :]
        for value in p.stage:
            if value in self._stages:
                self._read_back(value)

    def _stage(self, body: Body, p: Pass, cols: list[Index]) -> None:
        for value in p.stage:
            if value in self._stages:
                index = self._index(self.space.accesses[value], cols)
                body.store(self.b.splat(body.eval(value, index), body.width), self._stages[value], cols)

    def _read_back(self, value: Value) -> None:
        column = self.space.accesses[value].index(("col", 0))
        leaf = self._stages[value]
        self.vectors.computed[value] = lambda index: self.vectors.load(leaf, [index[column]])

    def _store_step(self, body: Body, cols: list[Index], _: list[Val]) -> list[Val]:
        for value, access in self.space.outputs:
            if self.space.has_columns(access) or not self.space.reduced_at:
                self._store(body, value, self._index(access, cols))
        return []

    def _index(self, access: Access, cols: Sequence[Index]) -> tuple[Index, ...]:
        at = []
        for axis in access:
            if axis is None:
                at.append(ZERO)
            elif axis[0] == "col":
                at.append(cols[axis[1]])
            elif axis[1] in self.space.row_axes:
                at.append(self.row_index[self.space.row_axes.index(axis[1])])
            else:
                at.append(cols[self.space.col_axes.index(axis[1])])
        return tuple(at)

    def _operand_index(self, op: Op, cols: Sequence[Index]) -> tuple[Index, ...]:
        kept = iter(self._index(self.space.reduced_at[op], ()))
        dims = list(op.attrs["dims"])
        return tuple(cols[dims.index(a)] if a in dims else next(kept) for a in range(op.operands[0].rank))

    # Sweeps over the columns of a pass. They carry what the cumulative ops need, then what the reducers do.

    def _sweep_vectors(self, p: Pass, reducers: list[Reducer], step: Step) -> list[Val]:
        """Whole steps of `width` lanes, then a masked one for the rest; lanes meet at the end.

        In reverse the masked step comes first.
        """
        sizes: list[Scalar] = self.sizes.shape(p.cols) if p.cols else [1]
        *outer, last = sizes
        first, end = (self.first, self.end) if self.variant.parts else (0, last)
        width, body, scans = self.variant.width, self.vectors, self._scans(p)
        reverse = bool(scans) and scans[0].reverse
        rest = (end - first) % width
        whole = end - rest

        def inner(at: list[Index], acc: list[Val]) -> list[Val]:
            def take(i: Scalar, acc: list[Val]) -> list[Val]:
                return self._step(scans, step, [*at, Index(i, 1)] if p.cols else [], acc)

            def tail() -> list[Val]:
                body.mask = self.b.lanes.first(rest, width)
                results = take(whole, acc)
                body.mask = None
                return results

            def steps(acc: list[Val]) -> list[Val]:
                if isinstance(whole, int) and whole == first:
                    return acc

                def one(at: Val, acc: list[Val]) -> list[Val]:
                    return take((whole - width) - (at - first) if reverse else at, acc)

                return self._in_blocks(scans, first, whole, width, acc, one)

            acc = acc if reverse else steps(acc)
            if not isinstance(rest, int):
                acc = self.b.if_(self.b.compare("!=", rest, 0), tail, lambda: acc, like=acc)
            elif rest:
                acc = tail()
            return steps(acc) if reverse else acc

        start = self._start(scans, reducers)
        if outer:
            outer[0] = self.b.turns(outer[0], [*outer[1:], end - first])
        states: Sequence[Val] = self._nest(outer, [], start, inner)[sum(scan.count for scan in scans) :]
        folded: list[Val] = []
        for r in reducers:
            folded += r.fold(body, states[: r.count])
            states = states[r.count :]
        return folded

    def _sweep_scalars(self, p: Pass, reducers: list[Reducer], step: Step) -> list[Val]:
        """Sweep column by column; every lane is a row of its own."""
        scans = self._scans(p)
        reverse = bool(scans) and scans[0].reverse
        acc = self._start(scans, reducers)

        def take(at: list[Index], acc: list[Val]) -> list[Val]:
            return self._step(scans, step, at, acc)

        if self.variant.parts or scans:
            first, end = (self.first, self.end) if self.variant.parts else (0, self.sizes(p.cols[0]))

            def one(at: Val, acc: list[Val]) -> list[Val]:
                return take([Index((end - 1) - (at - first) if reverse else at)], acc)

            results = self._in_blocks(scans, first, end, 1, acc, one)
        else:
            cols = self.sizes.shape(p.cols)
            if cols:
                cols[0] = self.b.turns(cols[0], cols[1:])
            results = self._nest(cols, [], acc, take)
        return results[sum(scan.count for scan in scans) :]

    def _in_blocks(
        self,
        scans: Sequence[Scan],
        first: Scalar,
        end: Scalar,
        step: int,
        acc: list[Val],
        one: Callable[[Val, list[Val]], list[Val]],
    ) -> list[Val]:
        """Loop; if sums are carried along, over blocks of steps and over the steps of each."""
        b, block = self.b, step * BLOCK
        if not any(scan.blocked for scan in scans):
            with b.loop(first, end, step, acc) as loop:
                loop.yield_(*one(loop.i, loop.args))
            return loop.results
        with b.loop(first, end, block, acc) as outer:
            with b.loop(outer.i, b.minimum(outer.i + block, end), step, outer.args) as loop:
                loop.yield_(*one(loop.i, loop.args))
            closed, rest = [], loop.results
            for scan in scans:
                closed += scan.close(self.vectors, rest[: scan.count])
                rest = rest[scan.count :]
            outer.yield_(*closed, *rest)
        return outer.results

    def _scans(self, p: Pass) -> list[Scan]:
        return [Scan(op, self.variant.lanes_on_rows) for op in p.scans]

    def _start(self, scans: Sequence[Scan], reducers: Sequence[Reducer]) -> list[Val]:
        body = self.vectors
        state: list[Val] = []
        totals = self.variant.totals
        for scan in scans:
            count = len(scan.xs)
            state += scan.start(body, self._before(scan, totals[:count]))
            totals = totals[count:]
        return [*state, *(x for r in reducers for x in r.start(body))]

    def _before(self, scan: Scan, totals: Sequence[Value]) -> list[Val]:
        """Return the initial state of a scan: where blocks share columns, all that comes before a block's part."""
        body, b = self.vectors, self.b
        state = scan.neutral(body)
        if not totals:
            return state
        part = self.b.index(self.slice.base)
        low, high = (part + 1, self.variant.slices) if scan.reverse else (0, part)
        with b.loop(low, high, 1, state) as loop:
            at = Index((self.variant.slices - 1) - (loop.i - low) if scan.reverse else loop.i)
            row = self._index(self.space.scanned_at[scan.op], [ZERO])
            dim = scan.op.attrs["dim"]
            rows = [i for axis, i in enumerate(row) if axis != dim]
            index = (at, *rows) if self.variant.lanes_on_rows else (*rows, at)
            xs = [b.splat(body.eval(v, index), body.width) for v in totals]
            loop.yield_(*scan.apply(body, loop.args, xs))
        return loop.results

    def _step(self, scans: Sequence[Scan], step: Step, cols: list[Index], acc: list[Val]) -> list[Val]:
        """Run one step of a sweep: the cumulative ops first, so that everything else finds their results."""
        body, rest = self.vectors, acc
        carried: list[Val] = []
        for scan in scans:
            index = self._index(self.space.scanned_at[scan.op], cols)
            results, new = scan.step(body, [body.eval(x, index) for x in scan.xs], rest[: scan.count])
            body.bound.update(zip(scan.op.results, results, strict=True))
            carried, rest = [*carried, *new], rest[scan.count :]
        return [*carried, *step(body, cols, rest)]

    def _nest(
        self, shape: list[Scalar], at: list[Index], acc: list[Val], inner: Callable[[list[Index], list[Val]], list[Val]]
    ) -> list[Val]:
        if not shape:
            return inner(at, acc)
        with self.b.loop(0, shape[0], 1, acc) as loop:
            loop.yield_(*self._nest(shape[1:], [*at, Index(loop.i)], loop.args, inner))
        return loop.results


def placed(body: Body, place: Place, value: Value, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """Return where in the larger value an element of `value` goes."""
    at = []
    for axis, size, start, stride in zip(place.axes, place.shape, place.starts, place.strides, strict=True):
        i = ZERO if axis is None else body.math.scale(index[axis], body.sizes(stride))
        if isinstance(start, Value):
            window = Dim.const(1) if axis is None else value.shape[axis]
            first = body.as_index(body.eval(start, ()), start.dtype)
            at.append(body.math.add(i, body.math.clamp(first, body.sizes(size - window))))
        else:
            at.append(i.shift(body.sizes(start)))
    return tuple(at)
