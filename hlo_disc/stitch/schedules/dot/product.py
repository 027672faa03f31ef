"""The loops of a dot group: the indices of both operands, and the computation on each result element.

A `Product` is made of a group with one `dot_general`, the views of its operands and its epilogue. Axes that memory and
epilogue both iterate over together are one loop. One axis of the result runs over the rows of a register tile and one
over its vectors. All others are batch axes, whether both operands have them or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.dtypes import is_float, is_unsigned
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.axes import dot_sides
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError, UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar
from hlo_disc.stitch.fusion.collapse import collapse_around
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.strided import Strided, composes, strided
from hlo_disc.stitch.schedule import PART


@frozen
class Axis:
    """A loop: its size, and the strides of the operand that is broadcast (rows) and of the one in vectors (cols).

    digits: what it is made of, outermost first, where memory has no one stride (the positions of a window, row by
    row); the strides are then those of the last digit.
    """

    size: Dim
    row_stride: Dim
    col_stride: Dim
    digits: tuple[Axis, ...] = ()


def position(axis: Axis, i: Scalar, side: str, sizes: Sizes) -> Scalar:
    """Return the offset of index i of an axis from its start in an operand; side is "row" or "col"."""
    if not axis.digits:
        return i * sizes(getattr(axis, f"{side}_stride"))
    at: Scalar = 0
    first, *others = axis.digits
    for digit in reversed(others):
        size = sizes.b.maximum(sizes(digit.size), 1)  # of an empty result nothing is computed, but code is made
        at = at + position(digit, i % size, side, sizes)
        i = i // size
    return at + position(first, i, side, sizes)


@frozen
class Product:
    """rows, cols: the operands. axes: of the result, in the order of `epilogue.inputs[0]`, the result itself.

    row, col: the numbers of the axes along a tile's rows and vectors, None when there is none (size 1).
    inner: the contracted axes, innermost last. origins: the last axis of the dot's own result in each of `axes`.
    epilogue: from the dot's result and other values in memory to the output. reads: those other values, as the group
    knows them. dtype: of the accumulators. tf32: operands may be rounded to TF32.
    """

    rows: Strided
    cols: Strided
    axes: tuple[Axis, ...]
    row: int | None
    col: int | None
    inner: tuple[Axis, ...]
    origins: tuple[int, ...]
    epilogue: Group
    reads: tuple[Value, ...]
    dtype: np.dtype
    tf32: bool

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(a for a in range(len(self.axes)) if a not in (self.row, self.col))

    @property
    def row_axis(self) -> Axis:
        return Axis(ONE, ZERO, ZERO) if self.row is None else self.axes[self.row]

    @property
    def col_axis(self) -> Axis:
        return Axis(ONE, ZERO, ZERO) if self.col is None else self.axes[self.col]

    @property
    def gathered(self) -> bool:
        """Whether the columns must be gathered from positions that no strides describe."""
        return bool(self.col_axis.digits) or any(axis.digits for axis in self.inner)

    @property
    def depth(self) -> Dim:
        """Return the number of products that each result element sums."""
        return dim_product(axis.size for axis in self.inner)


def product(group: Group, facts: ShapeFacts) -> Product:
    """Split a group of one dot into its product."""
    dot = next(op for op in group.ops if op.name == "dot_general")
    left, right = (operand(x, group, facts) for x in dot.operands)
    return contraction(dot, left, right, epilogue_of(group, dot), facts)


def operand(value: Value, group: Group, facts: ShapeFacts) -> Strided:
    """Return a dot's operand as a walk over one of the group's inputs."""
    walk = strided(value, set(group.ops), facts)
    if walk is None:
        raise CompileError(f"an operand of a dot lies in no regular pattern in memory ({value.op and value.op.loc})")
    return walk


def contraction(
    dot: Op, left: Strided, right: Strided, epilogue: Group, facts: ShapeFacts, cols: int | None = None
) -> Product:
    """Return the product of two operands in memory under a dot's dimension numbers.

    cols: which operand runs along the vectors; given, every axis of the result keeps a loop of its own.
    """
    lhs, rhs = dot_sides(dot)
    axes = _shared(left, right, zip(lhs.batch, rhs.batch, strict=True))
    axes += [Axis(left.shape[a], left.strides[a], ZERO) for a in lhs.free]
    axes += [Axis(right.shape[a], ZERO, right.strides[a]) for a in rhs.free]
    kinds = ["batch"] * len(lhs.batch) + ["row"] * len(lhs.free) + ["col"] * len(rhs.free)
    real = [a for a, axis in enumerate(axes) if axis.size is not ONE]
    windowed = {"batch": False, "row": left.windowed, "col": right.windowed}
    apart = [
        b
        for a, b in zip(real, real[1:], strict=False)
        if cols is not None or kinds[a] != kinds[b] or not (_one_axis(axes[a], axes[b], facts) or windowed[kinds[a]])
    ]
    reads = epilogue.inputs[1:]
    epilogue, runs = collapse_around(epilogue, facts, epilogue.inputs[0], apart)
    sizes = epilogue.inputs[0].shape
    merged = tuple(_joined([axes[a] for a in run], n, facts) for run, n in zip(runs, sizes, strict=True))
    merged_kinds = [kinds[run[0]] for run in runs]
    row, col = (_widest(kind, merged, merged_kinds, facts) for kind in ("row", "col"))
    turned = cols == 0 or (cols is None and col is None and row is not None)
    inner = _inner(dot, left, right, turned, facts, apart=cols is not None)
    origins = tuple(run[-1] for run in runs)
    dtype = sum_dtype(dot.result.dtype, *(x.dtype for x in dot.operands), loc=dot.loc)
    p = Product(left, right, merged, row, col, inner, origins, epilogue, reads, dtype, dot.attrs["tf32"])
    return swapped(p) if turned else p


def _shared(left: Strided, right: Strided, pairs: Iterable[tuple[int, int]]) -> list[Axis]:
    """Return the loops over axes that both operands have."""
    return [Axis(left.shape[i], left.strides[i], right.strides[j]) for i, j in pairs]


def swapped(p: Product) -> Product:
    """Exchange rows and vectors."""

    def turn(axes: Sequence[Axis]) -> tuple[Axis, ...]:
        return tuple(Axis(x.size, x.col_stride, x.row_stride, turn(x.digits)) for x in axes)

    return replace(p, rows=p.cols, cols=p.rows, axes=turn(p.axes), row=p.col, col=p.row, inner=turn(p.inner))


def _one_axis(x: Axis, y: Axis, facts: ShapeFacts) -> bool:
    rows = composes(x.row_stride, y.row_stride, y.size, facts)
    return rows and composes(x.col_stride, y.col_stride, y.size, facts)


def _widest(kind: str, axes: Sequence[Axis], kinds: Sequence[str], facts: ShapeFacts) -> int | None:
    """Return the axis of a kind that tiles fill best: contiguous columns first, then the longest, then the last."""
    found = [a for a, k in enumerate(kinds) if k == kind]
    return max(found, key=lambda a: (axes[a].col_stride is ONE, facts.likely(axes[a].size), a), default=None)


def _joined(axes: Sequence[Axis], size: Dim, facts: ShapeFacts) -> Axis:
    """Merge neighbouring axes to one of `size`."""
    digits = _merge(list(axes), facts)
    return replace(digits[-1], size=size, digits=digits if len(digits) > 1 else ())


def _inner(dot: Op, left: Strided, right: Strided, turned: bool, facts: ShapeFacts, apart: bool) -> tuple[Axis, ...]:
    """Return the contracted axes in the order in which they lie in the row operand; if `turned`, rows are `right`.

    Where windows are the columns they are brought together anyway: one axis, if the rows' memory has it as one.
    """
    lhs, rhs = dot_sides(dot)
    walks = _shared(left, right, sorted(zip(lhs.contract, rhs.contract, strict=True)))
    if apart or not (left.windowed or right.windowed):
        return _merge(walks, facts)
    side = "col_stride" if turned else "row_stride"
    walks.sort(key=lambda axis: -abs(facts.likely(getattr(axis, side))))
    if not (left if turned else right).windowed:
        return _merge(walks, facts)
    real = [axis for axis in walks if axis.size is not ONE]
    one = all(composes(getattr(x, side), getattr(y, side), y.size, facts) for x, y in zip(real, real[1:], strict=False))
    return (_joined(real, dim_product(x.size for x in real), facts),) if one and real else _merge(walks, facts)


def _merge(walks: list[Axis], facts: ShapeFacts) -> tuple[Axis, ...]:
    merged: list[Axis] = []
    for axis in (w for w in walks if w.size is not ONE):
        if merged and _one_axis(merged[-1], axis, facts):
            axis = replace(axis, size=merged.pop().size * axis.size)
        merged.append(axis)
    return tuple(merged) or (Axis(ONE, ZERO, ZERO),)


def sum_dtype(result: np.dtype, *operands: np.dtype, loc: str = "") -> np.dtype:
    """Return the type in which products of such operands are summed: at least as wide as the result, and 32 bits.

    Integers wrap around, so that narrow ones are summed in wider ones and cut; sums of booleans count.
    """
    floats = [d for d in (result, *operands) if is_float(d)]
    if any(d.kind == "c" for d in (result, *operands)):
        raise UnsupportedOpError(f"products of complex elements have no schedule ({loc or 'unknown line'})")
    if floats:
        return np.dtype(np.float64 if max(d.itemsize for d in floats) > 4 else np.float32)
    if result.itemsize >= 4:
        return result
    return np.dtype(np.uint32 if is_unsigned(result) and result != np.bool_ else np.int32)


def epilogue_of(group: Group, dot: Op) -> Group:
    """Return the ops that follow from the dot, as a group of its own whose first input is the dot's result."""
    needed = set(backward_slice(group.outputs, set(group.ops) - {dot}))
    ops = tuple(op for op in group.ops if op in needed)
    read = {x for op in ops for x in op.operands}
    others = tuple(v for v in group.inputs if v in read)
    return Group(PART, ops, (dot.result, *others), group.outputs)
