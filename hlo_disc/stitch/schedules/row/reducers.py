"""The reductions of a row group in registers: the state that a sweep carries, and the combination of lanes.

A reducer's state is a few registers: of scalars, or of vectors whose lanes combine every width-th element or, with
lanes on rows, a row each. A reduction by name starts from its identity. One with a region of its own starts from its
initial values when these are an identity too; otherwise it marks what has been combined already, so that they enter
once. Where the order of elements matters, it is kept:

- the lanes of a vector are folded as pairs of neighbours;
- a region that does not commute folds every vector at once, so that its state is one scalar;
- unless it selects one of its two sides, and an operand says which came first (argmax): then lanes meet in that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value
from hlo_disc.dynamic_hlo.ops.families.combiners import absorbs, commutes, identity, identity_number, selects
from hlo_disc.dynamic_hlo.ops.families.reductions import combined
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.body import Body
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.values.elements import settle
from hlo_disc.stitch.codegen.values.elementwise import MONOIDS, Monoid
from hlo_disc.stitch.codegen.values.val import Val


def reducer(op: Op, lanes_on_rows: bool, sliced: bool) -> Reducer:
    """Return the reducer of an op. sliced: it combines a part of the elements, and leaves the initial values to the
    end."""
    if op.name == "reduce":
        return MonoidReducer(op, lanes_on_rows, sliced)
    return RegionReducer(op, lanes_on_rows, sliced)


class Reducer:
    """One reduction of a sweep."""

    def __init__(self, op: Op, lanes_on_rows: bool, sliced: bool):
        self.op, self.lanes_on_rows, self.sliced = op, lanes_on_rows, sliced

    @property
    def operands(self) -> tuple[Value, ...]:
        """Return the values that the reduction combines."""
        return self.op.operands[: len(self.op.results)]

    @property
    def count(self) -> int:
        """Return the number of registers of its state."""
        return len(self.op.results)

    def start(self, body: Body) -> list[Val]:
        raise NotImplementedError

    def step(self, body: Body, xs: Sequence[Val], state: Sequence[Val]) -> list[Val]:
        """Combine one vector of each operand; with `body.mask`, only those lanes (unless lanes are rows)."""
        raise NotImplementedError

    def fold(self, body: Body, state: Sequence[Val]) -> list[Val]:
        """Fold the lanes of a state to one scalar state."""
        raise NotImplementedError

    def finish(self, body: Body, state: Sequence[Val]) -> list[Val]:
        """Return the op's results."""
        raise NotImplementedError


def identity_init(op: Op) -> bool:
    """Whether the initial value of a reduction by name is its identity."""
    made = op.operands[1].op
    neutral = identity(op.attrs["kind"], op.result.dtype)
    return made is not None and made.name == "constant" and bool(made.attrs["value"] == neutral)


def combine(b: Builder, op: Op, x: Val, y: Val) -> Val:
    """Combine two partial results of a reduction. Rules of `elementwise.py` need an op with operands of its dtype."""
    value = Value(op.result.dtype, ())
    return MONOIDS[op.attrs["kind"]].combine(b, Op("combine", (value, value), {}, op.loc), [x, y])


class MonoidReducer(Reducer):
    """The reducer of a `reduce`."""

    @property
    def monoid(self) -> Monoid:
        return MONOIDS[self.op.attrs["kind"]]

    @property
    def identity(self) -> float:
        return identity_number(self.op.attrs["kind"], self.op.result.dtype)

    def start(self, body: Body) -> list[Val]:
        return [body.b.const(self.identity, body.b.register_type(self.op.result.dtype), body.width)]

    def step(self, body: Body, xs: Sequence[Val], state: Sequence[Val]) -> list[Val]:
        x = body.b.splat(xs[0], body.width)
        if body.mask is not None and not self.lanes_on_rows:
            x = body.b.select(body.mask, x, body.b.like(self.identity, x))
        return [combine(body.b, self.op, x, state[0])]

    def fold(self, body: Body, state: Sequence[Val]) -> list[Val]:
        return [body.b.lanes.reduce(self.monoid.lanes(self.op.result.dtype), state[0])]

    def finish(self, body: Body, state: Sequence[Val]) -> list[Val]:
        if self.sliced or identity_init(self.op):
            total = state[0]
        else:
            total = combine(body.b, self.op, body.eval(self.op.operands[1], ()), state[0])
        return [settle(body.b, total, self.op.result.dtype)]


class RegionReducer(Reducer):
    """The reducer of a `reduce_with`. The state has one register for each result, after a mark of its contents if
    needed."""

    def __init__(self, op: Op, lanes_on_rows: bool, sliced: bool):
        super().__init__(op, lanes_on_rows, sliced)
        self.region: Region = op.attrs["body"]
        self.xs, self.inits, self.captured = combined(op)
        self.neutral = absorbs(self.region, self.inits)
        self.marked = not self.neutral and not (lanes_on_rows and not sliced)
        self.position = _position(op) if not lanes_on_rows and not commutes(self.region) else None
        self.ordered = not lanes_on_rows and self.position is None and not commutes(self.region)

    @property
    def count(self) -> int:
        return len(self.xs) + self.marked

    def start(self, body: Body) -> list[Val]:
        lanes = 0 if self.ordered else body.width
        state = [body.b.splat(x, lanes) for x in self._inits(body)]
        return [body.b.const(0, body.b.i1, lanes), *state] if self.marked else state

    def _inits(self, body: Body) -> list[Val]:
        return [body.eval(x, ()) for x in self.inits]

    def apply(self, body: Body, left: Sequence[Val], right: Sequence[Val]) -> list[Val]:
        """Inline the region. Values that do not depend on lanes are scalars."""
        lanes = max(x.lanes for x in (*left, *right))
        captured = [body.eval(x, ()) for x in self.captured]
        return [body.b.splat(x, lanes) for x in inline(body, self.region, [*left, *right, *captured])]

    def step(self, body: Body, xs: Sequence[Val], state: Sequence[Val]) -> list[Val]:
        b, mask = body.b, None if self.lanes_on_rows else body.mask
        wide = [b.splat(x, body.width) for x in xs]
        if self.ordered:
            if mask is not None and not self.marked:
                wide = [b.select(mask, x, init) for x, init in zip(wide, self._inits(body), strict=True)]
                mask = None
            mark, new = self._fold(body, mask, wide)
            if not self.marked:
                return self.apply(body, state, new)
            return self._join(body, state[0], list(state[1:]), mark, new)
        if not self.marked:
            new = self.apply(body, state, wide)
            return new if mask is None else [b.select(mask, x, y) for x, y in zip(new, state, strict=True)]
        return self._join(body, state[0], list(state[1:]), mask, wide)

    def _join(self, body: Body, mark: Val, state: list[Val], other: Val | None, xs: list[Val]) -> list[Val]:
        """Join two marked states; `other` is the mark of the right one, None if all of it is in."""
        b = body.b
        new = [b.select(mark, z, x) for z, x in zip(self.apply(body, state, xs), xs, strict=True)]
        if other is None:
            return [b.const(1, b.i1, mark.lanes), *new]
        new = [b.select(other, z, x) for z, x in zip(new, state, strict=True)]
        return [b.apply(arith.OrIOp, mark, other), *new]

    def fold(self, body: Body, state: Sequence[Val]) -> list[Val]:
        if self.ordered:
            return list(state)
        if not self.marked:
            return self._fold(body, None, list(state))[1]
        mark, new = self._fold(body, state[0], list(state[1:]))
        assert mark is not None
        return [mark, *new]

    def _fold(self, body: Body, mark: Val | None, state: list[Val]) -> tuple[Val | None, list[Val]]:
        """Join neighbouring lanes until one is left."""

        def join(left: list[list[Val]], right: list[list[Val]]) -> list[list[Val]]:
            (xs, *ahead), (ys, *behind) = left, right
            marks = [x for side in (*ahead, *behind) for x in side]
            if self.position is not None:
                xs, ys, marks = self._in_order(body.b, xs, ys, marks)
            if not marks:
                return [self.apply(body, xs, ys)]
            new, *values = self._join(body, marks[0], xs, marks[1], ys)
            return [values, [new]]

        if mark is None:
            (state,) = body.b.lanes.fold([state], join)
            return None, state
        state, (mark,) = body.b.lanes.fold([state, [mark]], join)
        return mark, state

    def _in_order(
        self, b: Builder, left: list[Val], right: list[Val], marks: list[Val]
    ) -> tuple[list[Val], list[Val], list[Val]]:
        """Exchange the sides if the right one has the earlier element."""
        k = self.position
        assert k is not None
        unsigned = dtype_class(self.xs[k].dtype) == "uint"
        first = b.compare("<", left[k], right[k], unsigned=unsigned)
        pairs = list(zip(left, right, strict=True))
        if marks:
            ahead, behind = marks
            marks = [b.select(first, ahead, behind), b.select(first, behind, ahead)]
        return [b.select(first, x, y) for x, y in pairs], [b.select(first, y, x) for x, y in pairs], marks

    def finish(self, body: Body, state: Sequence[Val]) -> list[Val]:
        if not self.marked:
            return list(state)
        mark, *results = state
        if self.sliced:
            return results
        inits = self._inits(body)
        new = self.apply(body, inits, results)
        return [body.b.select(mark, x, init) for x, init in zip(new, inits, strict=True)]


def _position(op: Op) -> int | None:
    """Return the operand that counts along the one reduced axis, if the region selects one of its sides."""
    if len(op.attrs["dims"]) != 1 or not selects(op.attrs["body"]):
        return None
    (axis,) = op.attrs["dims"]
    for number, x in enumerate(op.operands[: len(op.results)]):
        if _counts(x, axis):
            return number
    return None


def _counts(x: Value, axis: int | None) -> bool:
    """Whether the value grows along the axis. It must be wide enough not to wrap."""
    op = x.op
    if op is None or axis is None or x.dtype.itemsize < 4 or dtype_class(x.dtype) not in ("int", "uint"):
        return False
    if op.name == "broadcast":
        dims = op.attrs["dims"]
        return _counts(op.operands[0], dims.index(axis) if axis in dims else None)
    return op.name == "iota" and op.attrs["dim"] == axis
