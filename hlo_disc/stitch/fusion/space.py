"""The iteration space of a row group: which axes of its outputs are rows, which are columns, what each pass computes.

`row_space` turns a group's ops and outputs into a `RowSpace`, or returns the reason why one tiling of rows does not
cover them. It follows every value from the outputs down with the axes that index it. It follows a reduction's operand
over its own columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value
from hlo_disc.dynamic_hlo.ops.axes import ELEMENTWISE, First, Link, Order, Reduced, Repeated, Same, Windowed
from hlo_disc.dynamic_hlo.ops.cost import is_expensive, is_slow
from hlo_disc.dynamic_hlo.ops.table import axis_rule, kind, links
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.frozen import frozen

# An axis of the space: ("out", axis of the main output), ("col", reduced axis), ("window", axis) for the elements of
# windows around it, or None for any other index.
Axis = tuple[str, int] | None
Access = tuple[Axis, ...]


@frozen
class Pass:
    """One sweep over columns of sizes `cols`: reductions that do not depend on each other, or, with none, the stores.

    stage: values that this sweep keeps in fast memory, because computing them again in a later one is expensive.
    scans: the cumulative ops that the sweep needs, in order.
    """

    cols: Shape
    reductions: tuple[Op, ...]
    stage: tuple[Value, ...] = ()
    scans: tuple[Op, ...] = ()


@frozen
class RowSpace:
    """`row_axes`, `col_axes`: axes of `main`, the output that spans the space; `rows`: sizes of the row axes.

    passes: the reductions, level by level, and last the stores when some output has columns.
    outputs: each with the axes that index it. reduced_at: the axes that index each reduction's result. scanned_at:
    those that index each cumulative op.
    lanes_on_rows: memory order runs along the last row axis, not along the columns.
    """

    main: Value
    row_axes: tuple[int, ...]
    col_axes: tuple[int, ...]
    passes: tuple[Pass, ...]
    outputs: tuple[tuple[Value, Access], ...]
    reduced_at: Mapping[Op, Access]
    scanned_at: Mapping[Op, Access]
    accesses: Mapping[Value, Access]
    lanes_on_rows: bool

    @property
    def rows(self) -> Shape:
        return tuple(self.main.shape[a] for a in self.row_axes)

    def has_columns(self, access: Access) -> bool:
        return any(a is not None and (a[0] == "col" or a[1] in self.col_axes) for a in access)

    @property
    def widest(self) -> Shape:
        """The columns of the pass that has the most axes."""
        return max((p.cols for p in self.passes), key=len)

    @property
    def scans(self) -> bool:
        """Are there cumulative ops?"""
        return bool(self.scanned_at)

    @property
    def cols(self) -> Shape:
        return tuple(self.main.shape[a] for a in self.col_axes)


class _NotARow(Exception):
    """Why a set of ops is not one row group."""


def row_space(ops: Collection[Op], outputs: Sequence[Value], facts: ShapeFacts) -> RowSpace | str:
    """The space of the group, or the reason why it has none."""
    try:
        return _analyse(set(ops), outputs, facts)
    except _NotARow as reason:
        return str(reason)


class _Reads:
    """Every (value, access) that the outputs need, and the accesses at which each reduction is needed."""

    def __init__(self, ops: set[Op], facts: ShapeFacts):
        self.ops, self.facts = ops, facts
        self.seen: dict[Value, set[Access]] = {}
        self.reductions: dict[Op, set[Access]] = {}
        self.scans: dict[Op, set[Access]] = {}

    def follow(self, value: Value, access: Access) -> None:
        access = _without_ones(access, value)
        seen = self.seen.setdefault(value, set())
        if access in seen:
            return
        seen.add(access)
        op = value.op
        if op is None or op not in self.ops:
            return
        of = kind(op)
        if of == "reduce":
            self.reductions.setdefault(op, set()).add(access)
        elif of == "cumulative":
            self.scans.setdefault(op, set()).add(access)
        for operand, at in operand_accesses(op, access, self.facts):
            self.follow(operand, at)


def operand_accesses(op: Op, access: Access, facts: ShapeFacts) -> list[tuple[Value, Access]]:
    """Return how `op` indexes its operands when its result is indexed by `access`.

    An op that reads at other places is followed along none of its axes.
    """
    if axis_rule(op) is ELEMENTWISE:  # what the rest comes to, for most ops
        return [(x, access) for x in op.operands]
    found: dict[Value, Access] = {}
    for link in links(op, facts):
        if link.other in op.results:
            at = _through(link, access, facts)
            if at is None:
                found = {}
                break
            found.update(dict.fromkeys(link.values, at))
    return [(x, found[x] if x in found else (_unknown(access),) * x.rank) for x in op.operands]


def _through(link: Link, access: Access, facts: ShapeFacts) -> Access | None:
    """Return how the values of a link are indexed; None when they are read at other indices."""
    if link.along is Order.AXES:
        return access
    if link.along is Order.ELEMENTS:
        x = link.values[0]
        plain: list[Axis] = [_unknown(access)] * x.rank
        for result_axes, operand_axes in reshape_segments(link.other.shape, x.shape, facts):
            if len(result_axes) == len(operand_axes) == 1:
                plain[operand_axes[0]] = access[result_axes[0]]
        return tuple(plain)
    at: list[Axis] = []
    for entry in link.entries:
        if isinstance(entry, Same):
            at.append(access[entry.axis])
        elif isinstance(entry, Reduced):
            at.append(("col", entry.number))
        elif isinstance(entry, Windowed):
            at.append(("window", entry.axis))
        elif isinstance(entry, First | Repeated):
            at.append(None)
        else:
            return None
    return tuple(at)


def _unknown(access: Access) -> Axis:
    """Some index of an operand; what is read for a window stays that."""
    return next((a for a in access if a is not None and a[0] == "window"), None)


def _analyse(ops: set[Op], outputs: Sequence[Value], facts: ShapeFacts) -> RowSpace:
    main = max(outputs, key=lambda v: sum(n is not ONE for n in v.shape))
    reads = _Reads(ops, facts)
    everywhere = tuple(("out", a) for a in range(main.rank))
    reads.follow(main, everywhere)
    where = {main: _without_ones(everywhere, main)}
    for value in outputs:
        if value not in where:
            where[value] = _output_access(value, main, reads, facts)
            reads.follow(value, where[value])
    row_axes = _row_axes(main, reads)
    _check_scans(main, reads, row_axes)
    col_axes = tuple(a for a in range(main.rank) if a not in row_axes)
    for value, access in where.items():
        _check_output(value, access, row_axes, main)
        if not reads.reductions and not _has_columns(access, row_axes, main) and _may_be_empty(main, col_axes, facts):
            raise _NotARow("an output would be stored along columns of which there may be none")
    _check_recomputation(reads, row_axes, main)
    levels = _levels(ops, reads.reductions)
    reductions = sorted(reads.reductions, key=lambda op: levels[op.results[0]])
    passes: list[Pass] = []
    for op in reductions:
        cols = tuple(op.operands[0].shape[a] for a in op.attrs["dims"])
        found = next(
            (p for p in passes if levels[p.reductions[0].results[0]] == levels[op.results[0]] and p.cols == cols), None
        )
        if found:
            passes[passes.index(found)] = Pass(cols, (*found.reductions, op))
        else:
            passes.append(Pass(cols, (op,)))
    if not reductions or any(_has_columns(a, row_axes, main) for a in where.values()):
        passes.append(Pass(tuple(main.shape[a] for a in col_axes), ()))
    if missing := [op for op in ops if kind(op) == "reduce" and op not in reads.reductions]:
        raise _NotARow(f"a reduction is not needed by the outputs ({missing[0].loc})")
    accesses = _plain_accesses(reads, col_axes)
    stores = [v for v, access in where.items() if _has_columns(access, row_axes, main)]
    return RowSpace(
        main,
        row_axes,
        col_axes,
        _with_stages(passes, stores, accesses, reads.ops),
        tuple(where.items()),
        {op: next(iter(found)) for op, found in reads.reductions.items()},
        {op: next(iter(found)) for op, found in reads.scans.items()},
        accesses,
        _lanes_on_rows(main, row_axes, reductions, bool(reads.scans)),
    )


def _plain_accesses(reads: _Reads, col_axes: tuple[int, ...]) -> dict[Value, Access]:
    """The access of every value that has only one, with columns named alike in all passes."""
    names: dict[Axis, Axis] = {("out", a): ("col", i) for i, a in enumerate(col_axes)}
    plain: dict[Value, Access] = {}
    for value, found in reads.seen.items():
        unified = {tuple([names.get(a, a) for a in access]) for access in found}
        if len(unified) == 1:
            plain[value] = next(iter(unified))
    return plain


def _with_stages(
    passes: list[Pass], stores: list[Value], accesses: Mapping[Value, Access], ops: set[Op]
) -> tuple[Pass, ...]:
    """Mark what each pass keeps: the largest expensive values that a later pass over the same columns needs again."""

    reductions = {op for p in passes for op in p.reductions}

    def expensive(value: Value) -> bool:
        op = value.op
        if op is None or op not in ops or op in reductions:
            return False
        return is_expensive(op) or any(expensive(x) for x in op.operands)

    def reach(roots: Sequence[Value], stop: Collection[Value]) -> dict[Value, None]:
        found: dict[Value, None] = {}
        todo = list(roots)
        while todo:
            value = todo.pop()
            if value in found:
                continue
            found[value] = None
            op = value.op
            if op is not None and op in ops and op not in reductions and value not in stop:
                todo += op.operands
        return found

    done: list[Pass] = []
    needed: list[dict[Value, None]] = []
    stage: list[list[Value]] = [[] for _ in passes]
    for number, p in enumerate(passes):
        roots = [x for op in p.reductions for x in op.operands[: len(op.results)]] or stores
        staged = [v for kept in stage for v in kept]
        mine = reach(roots, staged)
        for earlier in range(number):
            if len(p.cols) != 1 or passes[earlier].cols != p.cols:
                continue
            again = [v for v in needed[earlier] if v in mine and v not in staged and expensive(v)]
            top = [
                v
                for v in again
                if ("col", 0) in accesses.get(v, ())
                and v.dtype != np.bool_
                and not any(v in reach(w.op.operands, ()) for w in again if w is not v and w.op)
            ]
            stage[earlier] += top
            staged += top
        needed.append(mine)
    for p, kept, mine in zip(passes, stage, needed, strict=True):
        done.append(Pass(p.cols, p.reductions, tuple(kept), _scans_in(p, mine, ops)))
    return tuple(done)


def _scans_in(p: Pass, values: Collection[Value], ops: set[Op]) -> tuple[Op, ...]:
    """The cumulative ops that make any of the values, operands first."""
    found = {v.op: None for v in values if v.op is not None and v.op in ops and kind(v.op) == "cumulative"}
    if found and sum(n is not ONE for n in p.cols) != 1:
        raise _NotARow("a cumulative op along a part of the columns")
    return tuple(op for op in backward_slice([op.results[0] for op in found], ops) if op in found)


def _without_ones(access: Access, value: Value) -> Access:
    return tuple([None if n is ONE else a for a, n in zip(access, value.shape, strict=True)])


def _output_access(value: Value, main: Value, reads: _Reads, facts: ShapeFacts) -> Access:
    """An output is stored where it is read, if that is one place for each of its own; else it has the main's axes."""
    seen = reads.seen.get(value, set())
    if value.rank == main.rank and not (len(seen) == 1 and _is_permuted(next(iter(seen)), value)):
        if all(facts.equal(x, y) is Truth.YES for x, y in zip(value.shape, main.shape, strict=True)):
            return _without_ones(tuple(("out", a) for a in range(main.rank)), value)
    if len(seen) != 1:
        raise _NotARow("two outputs of different shapes")
    return next(iter(seen))


def _is_permuted(access: Access, value: Value) -> bool:
    """Whether all axes of a value are axes of the main output, each another one."""
    axes = [a for a, n in zip(access, value.shape, strict=True) if n is not ONE]
    return len(set(axes)) == len(axes) and all(a is not None and a[0] == "out" for a in axes)


def _row_axes(main: Value, reads: _Reads) -> tuple[int, ...]:
    """The axes of the main output that index every reduction; all but the last when there is none."""
    real = [a for a in range(main.rank) if main.shape[a] is not ONE]
    if not reads.reductions and reads.scans:
        return _scanned_rows(main, reads)
    if not reads.reductions:
        return tuple(real[:-1])
    accesses = {
        tuple(a for a, n in zip(access, op.results[0].shape, strict=True) if n is not ONE)
        for op, found in reads.reductions.items()
        for access in found
    }
    if len(accesses) != 1:
        raise _NotARow("reductions over different rows")
    (axes,) = accesses
    if any(a is None or a[0] != "out" for a in axes):
        raise _NotARow("a reduction is not indexed by the output's own axes")
    numbers = tuple(a[1] for a in axes if a)
    if list(numbers) != sorted(set(numbers)):
        raise _NotARow("a reduction's rows are in another order than the output's")
    return numbers


def _scanned_rows(main: Value, reads: _Reads) -> tuple[int, ...]:
    """The axes of the main output but the one along which a cumulative op runs."""
    op, found = next(iter(reads.scans.items()))
    axis = next(iter(found))[op.attrs["dim"]]
    if axis is None or axis[0] != "out":
        raise _NotARow("a cumulative op does not run along the output's own axis")
    return tuple(a for a in range(main.rank) if main.shape[a] is not ONE and a != axis[1])


def _check_scans(main: Value, reads: _Reads, row_axes: tuple[int, ...]) -> None:
    """Cumulative ops run along the columns, one for each row, and all the same way."""
    for op, found in reads.scans.items():
        for access in found:
            axis, dim = access[op.attrs["dim"]], op.attrs["dim"]
            rows = [a for k, a in enumerate(access) if k != dim and op.results[0].shape[k] is not ONE]
            if axis is None or (axis[0] == "out" and axis[1] in row_axes) or axis[0] == "window":
                raise _NotARow("a cumulative op does not run along the columns")
            if rows != [("out", a) for a in row_axes if main.shape[a] is not ONE]:
                raise _NotARow("a cumulative op would run again for every row")
    ways = {op.attrs["reverse"] for op in reads.scans}
    ordered = any("body" in op.attrs for op in reads.reductions)
    if len(ways) > 1 or (ordered and True in ways):
        raise _NotARow("cumulative ops from both ends")


def _has_columns(access: Access, row_axes: tuple[int, ...], main: Value) -> bool:
    return any(a is not None and a[1] not in row_axes for a in access)


def _check_output(value: Value, access: Access, row_axes: tuple[int, ...], main: Value) -> None:
    plain = [a for a, n in zip(access, value.shape, strict=True) if n is not ONE]
    if any(a is None or a[0] != "out" for a in plain):
        raise _NotARow("an output is not indexed by the rows and columns")
    numbers = [a[1] for a in plain if a]
    rows = [n for n in numbers if n in row_axes]
    cols = [n for n in numbers if n not in row_axes]
    wanted = [a for a in range(main.rank) if a not in row_axes and main.shape[a] is not ONE]
    if rows != list(row_axes) or cols not in ([], wanted):
        raise _NotARow("an output covers only a part of the rows and columns")


def _may_be_empty(main: Value, axes: Sequence[int], facts: ShapeFacts) -> bool:
    return any(facts.at_most(ONE, main.shape[a]) is not Truth.YES for a in axes)


def _check_recomputation(reads: _Reads, row_axes: tuple[int, ...], main: Value) -> None:
    """A slow op that does not vary with the rows would be computed again for each of them."""
    rows = {("out", a) for a in row_axes if main.shape[a] is not ONE}
    for value, accesses in reads.seen.items():
        if value.op in reads.ops and value.op is not None and is_slow(value.op):
            for access in accesses:
                if any(a is not None and a[0] == "window" for a in access):
                    raise _NotARow(f"{value.op.name} would be computed again for every window")
                along = [a for a, n in zip(access, value.shape, strict=True) if n is not ONE]
                if not rows <= set(along) and None not in along:
                    raise _NotARow(f"{value.op.name} would be computed again for every row")


def _levels(ops: set[Op], reductions: Collection[Op]) -> dict[Value, int]:
    """Return for each value the number of these reductions on the longest path down from it, itself included."""
    levels: dict[Value, int] = {}

    def level(value: Value) -> int:
        if value not in levels:
            op = value.op
            below = max([level(x) for x in op.operands], default=0) if op in ops and op is not None else 0
            levels[value] = below + (op in reductions)
        return levels[value]

    for op in ops:
        for value in op.results:
            level(value)
    return levels


def _lanes_on_rows(main: Value, row_axes: tuple[int, ...], reductions: list[Op], scans: bool) -> bool:
    if not reductions and not scans:
        return False
    real = [a for a in range(main.rank) if main.shape[a] is not ONE]
    if any(a not in row_axes for a in real):
        return bool(real) and real[-1] in row_axes
    x, dims = reductions[-1].operands[0], reductions[-1].attrs["dims"]
    axes = [a for a in range(x.rank) if x.shape[a] is not ONE]
    return bool(axes) and axes[-1] not in dims
