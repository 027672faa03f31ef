"""A fused group's body: values computed lazily at an index, wherever a schedule asks for them.

From DHLO ops and index tuples to registers. Views become index arithmetic (`views.py`), elementwise ops rows of
`elementwise.py`, leaves loads. A value asked for twice at one index is computed once, as long as the scope that it was
built in is open.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import is_unsigned
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.errors import CompileError
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index, IndexMath
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values import complex_values as pairs
from hlo_disc.stitch.codegen.values.elements import convert, from_memory, to_memory
from hlo_disc.stitch.codegen.values.elementwise import ELEMENTWISE
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.codegen.views import view
from hlo_disc.stitch.codegen.windows import reduce_window

INDEX_DTYPE = np.dtype(np.int64)
# Elements at most so far apart are loaded with those between them.
STRIDED = 4
# Bytes of a line of a cache.
LINE = 64


@frozen
class InMemory:
    """A value that lies in memory, row-major from `offset` on. `fixed`: nothing writes to it while the kernel runs."""

    buffer: Val
    shape: Sequence[Scalar]
    dtype: np.dtype
    fixed: bool = True
    offset: Scalar = 0


class Body:
    """Evaluates values of a group. `leaves` are read from memory, `bound` values are already in registers.

    mask: set by the schedule while it builds a step whose last lanes must not be touched. ahead: how many bytes ahead
    memory is asked for, set while it is read for the first time.
    """

    def __init__(self, b: Builder, width: int, sizes: Sizes, leaves: Mapping[Value, InMemory]):
        self.b, self.width, self.sizes, self.leaves = b, width, sizes, leaves
        self.math = IndexMath(b, width)
        self.bound: dict[Value, Val] = {}
        self.computed: dict[Value, Callable[[tuple[Index, ...]], Val]] = {}
        self.mask: Val | None = None
        self.ahead = 0
        self._memo: dict[tuple[Hashable, ...], Val] = {}

    def eval(self, value: Value, index: tuple[Index, ...]) -> Val:
        """Return the value at `index`: a scalar if no index has lanes, else a vector."""
        bound = self.bound.get(value)
        if bound is not None:
            return bound
        key = (value, index, self.mask)
        found = self._memo.get(key)
        if found is None or not found.scope.open:
            found = self._memo[key] = self._compute(value, index)
        return found

    def _compute(self, value: Value, index: tuple[Index, ...]) -> Val:
        computed = self.computed.get(value)
        if computed is not None:
            return computed(index)
        leaf = self.leaves.get(value)
        if leaf is not None:
            return self.load(leaf, index)
        op = value.op
        if op is None:
            raise CompileError(f"an input {value} is no leaf of its kernel")
        with self.b.at(op.loc):
            rule = ELEMENTWISE.get(op.name)
            if rule is not None:
                return rule(self.b, op, [self.eval(x, index) for x in op.operands])
            if op.name == "reduce_window":
                made = reduce_window(self, op, index)
                self._memo.update(((v, index, self.mask), x) for v, x in zip(op.results, made, strict=True))
                return made[value.index]
            return view(self, op, index)

    def load(self, leaf: InMemory, index: Sequence[Index]) -> Val:
        at = self.math.linear(index, leaf.shape).shift(leaf.offset)
        if leaf.dtype.kind == "c":
            return pairs.load(self, leaf, at)
        if not at.lanes:
            x = self.b.load(leaf.buffer, at.base, fixed=leaf.fixed)
        elif isinstance(at.lanes, int) and at.lanes == 1:
            x = self.b.load(leaf.buffer, at.base, self.width, self.mask, fixed=leaf.fixed)
            if self.ahead and self.mask is None:
                size = leaf.dtype.itemsize
                for byte in range(self.ahead, self.ahead + self.width * size, LINE):
                    self.b.prefetch(leaf.buffer, at.base + byte // size)
        elif isinstance(at.lanes, int) and abs(at.lanes) <= STRIDED:
            x = self.b.lanes.load_strided(leaf.buffer, at.base, at.lanes, self.width, self.mask, leaf.fixed)
        else:
            x = self.b.gather(leaf.buffer, at.base, self.math.offsets(at), self.mask, fixed=leaf.fixed)
        return from_memory(self.b, x, leaf.dtype)

    def store(self, x: Val, leaf: InMemory, index: Sequence[Index]) -> None:
        at = self.math.linear(index, leaf.shape).shift(leaf.offset)
        if leaf.dtype.kind == "c":
            return pairs.store(self, x, leaf, at)
        x = to_memory(self.b, x, leaf.dtype)
        if not at.lanes:
            self.b.store(x, leaf.buffer, at.base)
        elif isinstance(at.lanes, int) and at.lanes == 1:
            self.b.store(self.b.splat(x, self.width), leaf.buffer, at.base, self.mask)
        else:
            self.b.scatter(self.b.splat(x, self.width), leaf.buffer, at.base, self.math.offsets(at), self.mask)

    def as_index(self, x: Val, dtype: np.dtype) -> Index:
        """Convert an integer in registers to an index."""
        if dtype.itemsize == 8 and is_unsigned(dtype):  # what no index reaches stays out of reach
            x = self.b.apply(arith.MinUIOp, x, self.b.like(np.iinfo(np.int64).max, x))
        cast = arith.IndexCastUIOp if is_unsigned(dtype) else arith.IndexCastOp
        y = self.b.cast(cast, self.b.index_type, x)
        return Index(0, y) if y.lanes else Index(y)

    def from_index(self, i: Index, dtype: np.dtype) -> Val:
        """Convert an index to an element of `dtype`."""
        x = self.b.cast(arith.IndexCastOp, self.b.i64, self.math.value(i))
        return convert(self.b, x, INDEX_DTYPE, dtype)
