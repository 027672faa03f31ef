"""A device function that sweeps rows of scores in fast memory: the ops between the two dots of an attention.

There is one pass over the keys for each level of reductions. If everything later follows from the value that a pass
reduces, that value replaces the scores, so that it is computed once. A last division or product by a value that is the
same for all keys is left out. It becomes a factor of the row, which the second dot's epilogue applies, unless weights
are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.dtypes import is_small_float
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.families.combiners import identity_number
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import ZERO, Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.elements import keeps_more, settle
from hlo_disc.stitch.codegen.values.elementwise import MONOIDS
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.attention_pattern import Scores
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.dot.product import Product
from hlo_disc.stitch.schedules.row.reducers import combine, identity_init


class Sweep:
    """Builds the function and its calls. p: of the first dot, every axis apart."""

    def __init__(
        self, b: Builder, group: Group, scores: Scores, p: Product, lanes: int, device: Device, facts: ShapeFacts
    ):
        self.b, self.group, self.scores, self.p, self.facts = b, group, scores, p, facts
        self.width = lanes * device.unroll
        self.element = b.register_type(p.dtype)
        self.batch = [a for a in p.origins if a not in (scores.row, scores.key)]
        self.leaves = self._leaves()
        self.folded = self._folded()
        self.call = b.module.shared(("sweep", group.key, lanes), "sweep", self._types(), self._build)

    @property
    def scaled(self) -> bool:
        """Whether a row has a factor."""
        return self.folded is not None

    def __call__(
        self,
        sizes: Sizes,
        memory: Mapping[Value, Val],
        buffers: Sequence[Val],
        stride: Scalar,
        batch: Sequence[Scalar],
        row: Scalar,
        rows: Scalar,
    ) -> None:
        """Sweep `rows` rows. buffers: scores (rows `stride` apart), factors. batch: the index but of row and key."""
        symbols = [self.b.index(sizes.symbols[name]) for name in self.group.symbols]
        self.call(*buffers, *[memory[v] for v in self.leaves], stride, *symbols, *batch, row, rows)

    def _leaves(self) -> list[Value]:
        """Return the group's inputs that the ops between the dots read."""
        results = [v for op in self.scores.middle for v in op.results]
        ops = backward_slice(results, set(self.group.ops) - {self.scores.first})
        found = {x for op in ops for x in op.operands}
        return [v for v in self.group.inputs if v in found]

    def _folded(self) -> tuple[Value, Value, bool] | None:
        """Split weights that are a quotient or product: (what stays, what is the same for all keys, whether it
        divides)."""
        op = self.scores.weights.op
        if op is None or op not in self.scores.middle or op.name not in ("divide", "multiply"):
            return None
        if is_small_float(op.result.dtype) and not keeps_more(self.b, op.result.dtype):
            return None
        x, y = op.operands
        if self._uniform(y) and not self._uniform(x):
            return x, y, op.name == "divide"
        if op.name == "multiply" and self._uniform(x) and not self._uniform(y):
            return y, x, False
        return None

    def _uniform(self, value: Value) -> bool:
        """Whether the value is the same for all keys."""
        if value in self.scores.at and not self.scores.has_keys(value):
            return True
        op = value.op
        if op is None or op not in self.scores.middle:
            return value.rank == 0
        if op.name == "broadcast" or kind(op) == "elementwise":
            return all(self._uniform(x) for x in op.operands)
        return False

    def _types(self) -> list[ir.Type]:
        """Return the parameters' types: scores, factors, inputs; the stride of a row, symbols, batch, the first row,
        rows."""
        b = self.b
        types = [b.buffer_type(self.element)] * 2 + [b.buffer_type(b.memory_type(v.dtype)) for v in self.leaves]
        return types + [b.index_type] * (len(self.group.symbols) + len(self.batch) + 3)

    def _build(self, *values: Val) -> None:
        b, names, count = self.b, self.group.symbols, 2 + len(self.leaves)
        rows_of, factors, *buffers = values[:count]
        stride, *scalars = values[count:]
        symbols, (*batch, first, rows) = scalars[: len(names)], scalars[len(names) :]
        sizes = Sizes(b, dict(zip(names, symbols, strict=True)), self.facts)
        leaves = {v: InMemory(m, sizes.shape(v.shape), v.dtype) for v, m in zip(self.leaves, buffers, strict=True)}
        with b.loop(0, rows) as loop:
            body = Body(b, self.width, sizes, leaves)
            at = {("out", a): Index(i) for a, i in zip(self.batch, batch, strict=True)}
            if self.scores.row is not None:
                at["out", self.scores.row] = Index(first + loop.i)
            factor = _Row(self, body, at, rows_of, loop.i * stride).run()
            if factor is not None:
                b.store(factor, factors, loop.i)


class _Row:
    """One row of scores: it begins at `start` in `buffer`; `at` is the index of all axes but the keys'."""

    def __init__(self, sweep: Sweep, body: Body, at: dict[tuple[str, int], Index], buffer: Val, start: Scalar):
        self.b, self.sweep, self.body, self.at, self.buffer, self.start = sweep.b, sweep, body, at, buffer, start
        self.scores = sweep.scores
        self.keys = body.sizes(sweep.p.col_axis.size)
        self.now = self.scores.first.result
        self._read_back()

    def run(self) -> Val | None:
        """Replace the scores by the weights; returns the factor that is left out."""
        folded = self.sweep.folded
        last = folded[0] if folded else self.scores.weights
        done: set[Op] = set()
        for level in self.scores.reductions:
            done.update(level)
            roots = [op.operands[0] for op in self.scores.middle if op.name == "reduce" and op not in done]
            kept = next((op.operands[0] for op in level if self._replaces(op.operands[0], [*roots, last], done)), None)
            self._reduce(level, kept)
        if self.now is not last:
            self._pass([], lambda at, acc: self._keep(last, at))
        if folded is None:
            return None
        _, value, divides = folded
        factor = self.body.eval(value, self._index(value, ZERO))
        factor = self.b.binary("/", 1.0, factor) if divides else factor
        # Without keys nothing is weighted: the sum of nothing must not meet a factor that is no number.
        if isinstance(self.keys, int):
            return factor if self.keys else self.b.like(1.0, factor)
        return self.b.select(self.b.compare("==", self.keys, 0), self.b.like(1.0, factor), factor)

    def _replaces(self, value: Value, roots: Sequence[Value], done: Collection[Op]) -> bool:
        """Whether `value` may replace the contents of fast memory: whether everything needed later follows from it."""
        if value is self.now or self.b.register_type(value.dtype) != self.sweep.element:
            return False
        todo, seen = list(roots), {value}
        while todo:
            x = todo.pop()
            if x is self.now:
                return False
            if x not in seen and x.op in self.scores.middle and x.op not in done:
                todo += x.op.operands if x.op is not None else ()
            seen.add(x)
        return True

    def _read_back(self) -> None:
        key = self.scores.at[self.now].index(("out", self.scores.key))

        def read(at: tuple[Index, ...]) -> Val:
            x = self.b.load(self.buffer, self.start + at[key].base, self.body.width, self.body.mask)
            # Scores are sums still, whatever takes their place is an element of its type.
            return settle(self.b, x, self.now.dtype) if self.now is self.scores.first.result else x

        self.body.computed = {self.now: read}

    def _keep(self, value: Value, at: Index) -> list[Val]:
        x = self.b.splat(self.body.eval(value, self._index(value, at)), self.body.width)
        self.b.store(x, self.buffer, self.start + at.base, self.body.mask)
        return []

    def _index(self, value: Value, key: Index) -> tuple[Index, ...]:
        at = {**self.at, ("out", self.scores.key): key}
        return tuple(ZERO if a is None else at[a] for a in self.scores.at[value])

    def _reduce(self, level: Sequence[Op], kept: Value | None) -> None:
        monoids = [MONOIDS[op.attrs["kind"]] for op in level]
        identities = [identity_number(op.attrs["kind"], op.result.dtype) for op in level]

        def step(at: Index, acc: list[Val]) -> list[Val]:
            out = []
            for op, identity, y in zip(level, identities, acc, strict=True):
                x = self.b.splat(self.body.eval(op.operands[0], self._index(op.operands[0], at)), self.body.width)
                if self.body.mask is not None:
                    x = self.b.select(self.body.mask, x, self.b.like(identity, x))
                out.append(combine(self.b, op, x, y))
            if kept is not None:
                self._keep(kept, at)
            return out

        inits = [
            self.b.const(i, self.b.register_type(op.result.dtype), self.body.width)
            for i, op in zip(identities, level, strict=True)
        ]
        for op, monoid, lanes in zip(level, monoids, self._pass(inits, step), strict=True):
            x = self.b.lanes.reduce(monoid.lanes(op.result.dtype), lanes)
            init = op.operands[1]
            x = x if identity_init(op) else combine(self.b, op, self.body.eval(init, ()), x)
            self.body.bound[op.result] = settle(self.b, x, op.result.dtype)
        if kept is not None:
            self.now = kept
            self._read_back()

    def _pass(self, acc: list[Val], step: Callable[[Index, list[Val]], list[Val]]) -> list[Val]:
        """Sweep whole steps of `width` keys, then a masked one for the rest."""
        width, body = self.body.width, self.body
        rest = self.keys % width
        whole = self.keys - rest
        with self.b.loop(0, whole, width, acc) as loop:
            loop.yield_(*step(Index(loop.i, 1), loop.args))
        acc = loop.results

        def tail() -> list[Val]:
            body.mask = self.b.lanes.first(rest, width)
            results = step(Index(whole, 1), acc)
            body.mask = None
            return results

        if isinstance(rest, int):
            return tail() if rest else acc
        if not acc:
            self.b.if_(self.b.compare("!=", rest, 0), tail)
            return acc
        return self.b.if_(self.b.compare("!=", rest, 0), tail, lambda: acc, like=acc)
