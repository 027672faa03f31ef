"""Rows of elementwise ops and of those that make values from nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS, OPS
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError
from op_rows.gen import (
    ALL,
    BOOL,
    COMPLEX,
    FLOATS,
    INTS,
    NARROW,
    NUMBERS,
    REAL,
    UINTS,
    B,
    Gen,
    S,
)

WITH_NARROW = (*ALL, *NARROW)


def plain(name: str) -> Callable[[Gen], Value]:
    """The row of an op whose operands have one type and shape, and which has no attributes."""
    row = OPS[name]
    assert row.operands is not None and not row.attrs
    dtypes = tuple(dtype for dtype in WITH_NARROW if _takes(name, dtype))

    def make(g: Gen) -> Value:
        first = g.value(dtypes)
        rest = [g.of(first.dtype, first.shape) for _ in range(row.operands - 1)]
        return g.b.op(name, [first, *rest])

    return make


def _takes(name: str, dtype: np.dtype) -> bool:
    values = tuple(Value(dtype, (), None, i) for i in range(OPS[name].operands or 0))
    try:
        OPS[name].infer(Op(name, values, {}), ShapeFacts())
        return True
    except CompileError:
        return False


def _compare(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    directions = ("EQ", "NE") if x.dtype in COMPLEX else DIRECTIONS
    return g.b.op("compare", [x, g.of(x.dtype, x.shape)], direction=g.choose(directions))


def _select(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    return g.b.op("select", [g.of(BOOL, x.shape), x, g.of(x.dtype, x.shape)])


def _convert(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    # What a number that the target cannot hold becomes is not said of every pair of types.
    return g.b.op("convert", [x], dtype=g.dtype(WITH_NARROW))


def _bitcast_convert(g: Gen) -> Value:
    x = g.value(WITH_NARROW)
    width = bit_width(x.dtype)
    alike = COMPLEX if x.dtype in COMPLEX else (*REAL, *NARROW, BOOL)
    target = g.choose([d for d in alike if max(bit_width(d), width) % min(bit_width(d), width) == 0])
    if bit_width(target) > width:
        x = g.of(x.dtype, (*x.shape, Dim.const(bit_width(target) // width)))
    return g.b.op("bitcast_convert", [x], dtype=target)


def _reduce_precision(g: Gen) -> Value:
    bits = dict(exponent_bits=g.integer(1, 12), mantissa_bits=g.integer(0, 55))
    return g.b.op("reduce_precision", [g.value(FLOATS)], **bits)


def _constant(g: Gen) -> Value:
    dtype = g.dtype(WITH_NARROW)
    shape = tuple(d.value for d in g.shape(0, 3, g.fixed))
    random = np.random.default_rng(g.integer(0, 3))
    return g.b.op("constant", value=np.asarray(random.integers(0, 2 if dtype == BOOL else 4, shape)).astype(dtype))


def _iota(g: Gen) -> Value:
    shape = g.shape(1)
    return g.b.op("iota", shape=shape, dim=g.integer(0, len(shape) - 1), dtype=g.dtype(NUMBERS))


def _dim(g: Gen) -> Value:
    expr = g.choose((B, S, B * S, 3 * B + 2, (S + 1) // 2, S % 3, Dim.max(B, S), Dim.min(B, Dim.const(4))))
    return g.b.op("dim", expr=expr, dtype=g.dtype((*INTS, *UINTS)))


ROWS = {
    "compare": _compare,
    "select": _select,
    "convert": _convert,
    "bitcast_convert": _bitcast_convert,
    "reduce_precision": _reduce_precision,
    "constant": _constant,
    "iota": _iota,
    "dim": _dim,
}
