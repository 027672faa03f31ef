"""A fused group's body: values computed lazily at an index, wherever a schedule asks for them.

From DHLO ops and index tuples to registers. Views become index arithmetic, elementwise ops rows of `emit`, leaves
loads. A value asked for twice at one index is computed once, as long as the scope that it was built in is open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import is_unsigned
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.shapes import reshape_segments
from hlo_disc.errors import CompileError
from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen import complex_values as pairs
from hlo_disc.stitch.codegen import windows
from hlo_disc.stitch.codegen.build import Builder, Scalar, Val
from hlo_disc.stitch.codegen.elements import convert, from_memory, to_memory
from hlo_disc.stitch.codegen.elementwise import ELEMENTWISE
from hlo_disc.stitch.codegen.index import ZERO, Index, IndexMath

INDEX_DTYPE = np.dtype(np.int64)
# Elements at most so far apart are loaded with those between them.
STRIDED = 4


class Sizes:
    """Dims as scalars of the function under construction, computed once each from its symbols."""

    def __init__(self, b: Builder, symbols: Mapping[str, Scalar], facts: ShapeFacts):
        self.b, self.symbols, self.facts = b, symbols, facts
        self._known: dict[Dim, Scalar] = {}

    def __call__(self, dim: Dim) -> Scalar:
        if dim.is_const:
            return dim.value
        found = self._known.get(dim)
        if found is None or (isinstance(found, Val) and not found.scope.open):
            found = self._known[dim] = dim.lower(int, self.symbols.__getitem__, self._ops())
        return found

    def shape(self, shape: Sequence[Dim]) -> list[Scalar]:
        return [self(dim) for dim in shape]

    def count(self, shape: Sequence[Dim]) -> Scalar:
        n: Scalar = 1
        for dim in shape:
            n = n * self(dim)
        return n

    def _ops(self) -> dict[str, Callable[[Scalar, Scalar], Scalar]]:
        return {
            "add": lambda x, y: x + y,
            "mul": lambda x, y: x * y,
            "floordiv": self._floordiv,
            "mod": self._mod,
            "min": self.b.minimum,
            "max": self.b.maximum,
        }

    def _floordiv(self, x: Scalar, y: Scalar) -> Scalar:
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        x, y = self.b.index(x), self.b.index(y)
        return (x - self._mod(x, y)) // y

    def _mod(self, x: Scalar, y: Scalar) -> Scalar:
        """The sign of the divisor, as Dim has it."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        x, y = self.b.index(x), self.b.index(y)
        return (x % y + y) % y


@dataclass(frozen=True)
class Leaf:
    """A value that lies in memory, row-major from `offset` on. `fixed`: nothing writes to it while the kernel runs."""

    buffer: Val
    shape: Sequence[Scalar]
    dtype: np.dtype
    fixed: bool = True
    offset: Scalar = 0


class Body:
    """Evaluates values of a group. `leaves` are read from memory, `bound` values are already in registers.

    mask: set by the schedule while it builds a step whose last lanes must not be touched.
    """

    def __init__(self, b: Builder, width: int, sizes: Sizes, leaves: Mapping[Value, Leaf]):
        self.b, self.width, self.sizes, self.leaves = b, width, sizes, leaves
        self.math = IndexMath(b, width)
        self.bound: dict[Value, Val] = {}
        self.computed: dict[Value, Callable[[tuple[Index, ...]], Val]] = {}
        self.mask: Val | None = None
        self._memo: dict[tuple, Val] = {}

    def eval(self, value: Value, index: tuple[Index, ...]) -> Val:
        """The value at `index`: a scalar when no index has lanes, else a vector."""
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
                made = windows.reduce_window(self, op, index)
                self._memo.update(((v, index, self.mask), x) for v, x in zip(op.results, made, strict=True))
                return made[value.index]
            view = _VIEWS.get(op.name)
            if view is None:
                raise CompileError(f"{op.name} cannot be computed inside a kernel ({op.loc or 'unknown line'})")
            return view(self, op, index)

    def load(self, leaf: Leaf, index: Sequence[Index]) -> Val:
        at = self.math.linear(index, leaf.shape).shift(leaf.offset)
        if leaf.dtype.kind == "c":
            return pairs.load(self, leaf, at)
        if not at.lanes:
            x = self.b.load(leaf.buffer, at.base, fixed=leaf.fixed)
        elif isinstance(at.lanes, int) and at.lanes == 1:
            x = self.b.load(leaf.buffer, at.base, self.width, self.mask, fixed=leaf.fixed)
        elif isinstance(at.lanes, int) and abs(at.lanes) <= STRIDED:
            x = self.b.lanes.load_strided(leaf.buffer, at.base, at.lanes, self.width, self.mask, leaf.fixed)
        else:
            x = self.b.gather(leaf.buffer, at.base, self.math.offsets(at), self.mask, fixed=leaf.fixed)
        return from_memory(self.b, x, leaf.dtype)

    def store(self, x: Val, leaf: Leaf, index: Sequence[Index]) -> None:
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
        """An integer in registers as an index."""
        if dtype.itemsize == 8 and is_unsigned(dtype):  # what no index reaches stays out of reach
            x = self.b.apply(arith.MinUIOp, x, self.b.like(np.iinfo(np.int64).max, x))
        cast = arith.IndexCastUIOp if is_unsigned(dtype) else arith.IndexCastOp
        y = self.b.cast(cast, self.b.index_type, x)
        return Index(0, y) if y.lanes else Index(y)

    def from_index(self, i: Index, dtype: np.dtype) -> Val:
        """An index as an element of `dtype`."""
        x = self.math.vector(i) if i.lanes else self.b.index(i.base)
        return convert(self.b, self.b.cast(arith.IndexCastOp, self.b.i64, x), INDEX_DTYPE, dtype)


def _constant(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    value = op.attrs["value"]
    if value.size != 1:
        raise CompileError("a constant of many elements is a leaf of its kernel")
    if value.dtype.kind == "c":
        element = body.b.register_type(value.real.dtype)
        return pairs.join(body.b, body.b.const(value.item().real, element), body.b.const(value.item().imag, element))
    return body.b.const(value.item(), body.b.register_type(value.dtype))


def _iota(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    return body.from_index(index[op.attrs["dim"]], op.result.dtype)


def _dim(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    return body.from_index(Index(body.sizes(op.attrs["expr"])), op.result.dtype)


def _broadcast(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,) = op.operands
    at = []
    for size, axis in zip(x.shape, op.attrs["dims"], strict=True):
        if size.is_const and size.value == 1:
            at.append(ZERO)
        elif body.sizes.facts.equal(size, op.result.shape[axis]) is Truth.YES:
            at.append(index[axis])
        else:  # either equal or 1, known only at the call
            n = body.b.index(body.sizes(size))
            step = body.b.select(body.b.compare("==", n, 1), body.b.index(0), body.b.index(1))
            at.append(body.math.scale(index[axis], step))
    return body.eval(x, tuple(at))


def _reshape(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,) = op.operands
    at: list[Index] = []
    for result_axes, operand_axes in reshape_segments(op.result.shape, x.shape, body.sizes.facts):
        if len(result_axes) == len(operand_axes) == 1:
            at.append(index[result_axes[0]])
            continue
        flat = body.math.linear(
            [index[a] for a in result_axes], body.sizes.shape([op.result.shape[a] for a in result_axes])
        )
        at += body.math.delinear(flat, body.sizes.shape([x.shape[a] for a in operand_axes]))
    return body.eval(x, tuple(at))


def _transpose(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    at = [ZERO] * len(index)
    for i, axis in zip(index, op.attrs["perm"], strict=True):
        at[axis] = i
    return body.eval(op.operands[0], tuple(at))


def _slice(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    at = [
        body.math.scale(i, stride).shift(body.sizes(start))
        for i, start, stride in zip(index, op.attrs["start"], op.attrs["stride"], strict=True)
    ]
    return body.eval(op.operands[0], tuple(at))


def _window(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    (x,), attrs = op.operands, op.attrs
    at = list(index[: x.rank])
    rows = zip(attrs["dims"], attrs["strides"], attrs["dilations"], index[x.rank :], strict=True)
    for axis, stride, dilation, offset in rows:
        at[axis] = body.math.add(body.math.scale(at[axis], stride), body.math.scale(offset, dilation))
    return body.eval(x, tuple(at))


def _reverse(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    at = list(index)
    for axis in op.attrs["dims"]:
        at[axis] = body.math.scale(index[axis], -1).shift(body.sizes(op.result.shape[axis]) + (-1))
    return body.eval(op.operands[0], tuple(at))


def clamped_starts(body: Body, starts: Sequence[Value], size: Sequence[Dim], window: Sequence[Dim]) -> list[Index]:
    """Scalar start indices, clamped so that the window fits."""
    at = []
    for start, n, w in zip(starts, size, window, strict=True):
        i = body.as_index(body.eval(start, ()), start.dtype)
        at.append(body.math.clamp(i, body.sizes(n - w)))
    return at


def _dynamic_slice(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    x, *starts = op.operands
    base = clamped_starts(body, starts, x.shape, op.attrs["sizes"])
    return body.eval(x, tuple(body.math.add(i, j) for i, j in zip(base, index, strict=True)))


def _gather(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    x, indices = op.operands
    attrs = op.attrs
    batch = [i for axis, i in enumerate(index) if axis not in attrs["offset_dims"]]
    offsets = iter([index[axis] for axis in attrs["offset_dims"]])
    vector_axis = attrs["index_vector_dim"]
    at = []
    for axis, (size, window) in enumerate(zip(x.shape, attrs["slice_sizes"], strict=True)):
        i = ZERO
        if axis in attrs["operand_batching_dims"]:
            k = attrs["start_indices_batching_dims"][attrs["operand_batching_dims"].index(axis)]
            i = batch[k if k < vector_axis else k - 1]
        elif axis not in attrs["collapsed_slice_dims"]:
            i = next(offsets)
        if axis in attrs["start_index_map"]:
            where = list(batch)
            if vector_axis < indices.rank:
                where.insert(vector_axis, Index(attrs["start_index_map"].index(axis)))
            start = body.as_index(body.eval(indices, tuple(where)), indices.dtype)
            i = body.math.add(i, body.math.clamp(start, body.sizes(size - window)))
        at.append(i)
    return body.eval(x, tuple(at))


_VIEWS: dict[str, Callable[[Body, Op, tuple[Index, ...]], Val]] = {
    "constant": _constant,
    "iota": _iota,
    "dim": _dim,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "window": _window,
    "reverse": _reverse,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "select_windows": windows.select_windows,
    "window_scatter": windows.window_scatter,
}
