"""Dots and convolutions of complex numbers, each as one of real numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value
from hlo_disc.dynamic_hlo.ops.axes import dot_sides
from hlo_disc.dynamic_hlo.ops.expr import Array, PlainMaker
from hlo_disc.dynamic_hlo.passes.complex.block import Block, Expansion, Pair, is_complex
from hlo_disc.dynamic_hlo.passes.complex.formulas import Complex, multiply
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth

_SHORT = 4  # products in a sum that is no dot


def _long_dot(e: Block, op: Op) -> Pair | None:
    """One real dot: a complex left operand contracts its parts too, against (re, im) and (-im, re) of the right one.

    So a dot of complex matrices is one of twice the depth and twice the columns, with the left operand and the result
    as they lie in memory. A real operand meets the parts of the other one as more rows or columns.
    """
    x, y = op.operands
    dtype = part_dtype(op.attrs["dtype"])
    attrs = op.attrs | {"dtype": dtype}
    parts_at = op.result.rank
    left = e.memory(x) if is_complex(x) else e.reals[x]
    if is_complex(x) and is_complex(y):
        attrs["lhs_contract"] += (x.rank,)
        right, moved, contracted = _rows_and_columns(e, op)
        attrs["rhs_contract"] = (*(moved[a] for a in attrs["rhs_contract"]), contracted)
        attrs["rhs_batch"] = tuple(moved[a] for a in attrs["rhs_batch"])
    elif is_complex(y):
        right = e.memory(y)
    else:
        right = e.reals[y]
        parts_at = len(dot_sides(op)[0].in_result)
    operands = [v if v.dtype == dtype else e.b.op("convert", [v], op.loc, dtype=dtype) for v in (left, right)]
    result = e.b.op("dot_general", operands, op.loc, **attrs)
    return _parted(e, op, result, parts_at)


def _parted(e: Block, op: Op, result: Value, axis: int) -> Pair | None:
    """Return the parts of a result, which lie on an axis; None for the last axis, where they form a complex value."""
    if axis < result.rank - 1:
        return Pair(*(e.at(result, axis, k) for k in range(2)))
    e.wholes[op.result] = e.b.op("bitcast_convert", [result], op.loc, dtype=op.result.dtype)
    return None


def _dot(e: Block, op: Op) -> Pair | None:
    """Few products are summed as such; how many there are may be known at the call only."""
    count = dim_product(op.operands[0].shape[axis] for axis in op.attrs["lhs_contract"])
    short = e.b.facts.at_most(count, Dim.const(_SHORT))
    if short is Truth.NO or not all(map(is_complex, op.operands)):
        return _long_dot(e, op)
    if short is Truth.YES:
        return _short_dot(e, op)
    if not op.result.shape:
        return _long_dot(e, op)
    inputs = tuple(Value(x.dtype, x.shape, None, i) for i, x in enumerate(op.operands))
    inner = op.with_operands(inputs)
    branches = []
    for expansion in (_short_dot, _long_dot):
        block = Block(e.b.facts, {op.name: expansion})
        block.inputs(zip(inputs, inputs, strict=True))
        block.expand(inner)
        result = block.whole(inner.result)
        branches.append(Region(inputs, tuple(block.b.ops), (result,)))
    long = Dim.min(Dim.max(count - _SHORT, 0), 1)
    index = e.b.op("dim", [], op.loc, expr=long, dtype=np.dtype(np.int32))
    e.wholes[op.result] = e.b.op("case", [index, *map(e.whole, op.operands)], op.loc, branches=tuple(branches))
    return None


def _short_dot(e: Block, op: Op) -> Pair:
    """Few products are made and rounded as complex numbers, and then summed: packing for a dot would cost more."""
    x, y = op.operands
    dtype, sides = part_dtype(op.attrs["dtype"]), dot_sides(op)
    shape = (*op.result.shape, *(x.shape[axis] for axis in sides[0].contract))
    factors = []
    for value, side in zip((x, y), sides, strict=True):
        places = side.in_result | {axis: place for place, axis in enumerate(side.contract, op.result.rank)}
        dims = tuple(places[axis] for axis in range(value.rank))
        typed = [v if v.dtype == dtype else e.b.op("convert", [v], op.loc, dtype=dtype) for v in e.pair(value)]
        spread = [e.b.op("broadcast", [v], op.loc, shape=shape, dims=dims) for v in typed]
        factors.append(Complex(*(Array(PlainMaker(e.b, op.loc), v) for v in spread)))
    product = multiply(*factors)
    zero = e.b.op("constant", [], op.loc, value=np.zeros((), dtype))
    over = tuple(range(op.result.rank, len(shape)))
    return Pair(*(e.b.op("reduce", [part.value, zero], op.loc, dims=over, kind="add") for part in product))


def _rows_and_columns(e: Block, op: Op) -> tuple[Value, list[int], int]:
    """The right operand of a dot as a matrix of reals: (value, where each axis has gone, the new contracted axis).

    The parts of the result stand behind the last free axis, those that are contracted behind the last contracted one.
    """
    _, y = op.operands
    side = dot_sides(op)[1]
    column = side.free[-1] + 1 if side.free else y.rank
    moved = [axis + (axis >= column) for axis in range(y.rank)]
    row = max((moved[axis] for axis in side.contract), default=y.rank) + 1
    return _matrix(e, y, column, row), [axis + (axis >= row) for axis in moved], row


def _matrix(e: Block, value: Value, column: int, row: int) -> Value:
    """(re, im) and (-im, re) along new axes: `column` is where the one for the result goes, `row`, then, the other."""
    re, im = e.pair(value)
    minus = e.b.op("negate", [im])
    if column == value.rank:  # rows of complex memory: z and iz
        return e.join([e.memory(value), e.reals_of(e.b.op("complex", [minus, re]))], row)
    if row == value.rank + 1:  # columns of complex memory
        return e.join([e.reals_of(e.b.op("complex", parts)) for parts in ((re, minus), (im, re))], column)
    return e.join([e.join((re, im), column), e.join((minus, re), column)], row)


def _convolution(e: Block, op: Op) -> Pair | None:
    """Twice the features: as in a dot, the parts of the operand are summed over and those of the result are columns."""
    (x, w), dtype = op.operands, part_dtype(op.attrs["dtype"])
    attrs = op.attrs | {"dtype": dtype}

    def convolved(x: Value, w: Value) -> Value:
        operands = [v if v.dtype == dtype else e.b.op("convert", [v], op.loc, dtype=dtype) for v in (x, w)]
        return e.b.op("convolution", operands, op.loc, **attrs)

    if not is_complex(w):
        return Pair(*(convolved(part, e.reals[w]) for part in e.pair(x)))
    out, into = attrs["rhs_spec"][:2]
    if is_complex(x):
        channels = attrs["lhs_spec"][1]
        left = e.memory(x) if channels == x.rank - 1 else e.join(e.pair(x), channels + 1)
        left = _merged(e, left, channels)
        moved = into + (into > out)
        right = _merged(e, _merged(e, _matrix(e, w, out + 1, moved + 1), moved), out)
    else:
        left, right = e.reals[x], _merged(e, e.join(e.pair(w), out + 1), out)
    result, features = convolved(left, right), attrs["out_spec"][1]
    shape = list(result.shape)
    shape[features : features + 1] = [w.shape[out], Dim.const(2)]
    split = e.b.op("reshape", [result], op.loc, shape=tuple(shape))
    return _parted(e, op, split, features + 1)


def _merged(e: Block, x: Value, axis: int) -> Value:
    """An axis and the next one as one."""
    return e.b.op("reshape", [x], shape=(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


EXPANSIONS: Mapping[str, Expansion] = {"dot_general": _dot, "convolution": _convolution}
