"""Every elementwise op on every element type, compiled once and run at many sizes, against the numpy reference.

One program holds all ops of a type, so that the matrix costs one compilation a type and feature level. The reference
itself is held against JAX in test_ops.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import depth
import ml_dtypes
import numpy as np
import pytest
from graphs.dhlo import make_graph
from hand_written.kernel_runner import KIND, levels

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.dtypes import (
    BOOL,
    FLOATS,
    INTEGERS,
    bit_width,
    dtype_class,
    int_limits,
    is_integer,
)
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS, OPS
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError
from hlo_disc.executable import Executable
from hlo_disc.options import Options

SIZES = (0, 1, 7, 31, 32, 33, 257)
F32, F64, I64, U64 = map(np.dtype, ("float32", "float64", "int64", "uint64"))
TYPES = (BOOL, *INTEGERS, *FLOATS)
MINI = [dtype for dtype in FLOATS if dtype.itemsize == 1]  # test_minifloats.py has all of these at both levels


def cells(at_every_level: Callable[[np.dtype], bool]) -> list[tuple[np.dtype, str]]:
    """(type, feature level): the best level for all types, the others for some."""
    every = levels()
    return [(dtype, level) for dtype in TYPES for level in every if level == every[-1] or at_every_level(dtype)]


def line(dtype: np.dtype) -> np.ndarray:
    """Return the values of a type where mistakes are made: all of them for a narrow one."""
    if dtype == BOOL:
        return np.array([False, True])
    if bit_width(dtype) < 8:
        return np.arange(1 << bit_width(dtype), dtype=np.uint8).view(dtype)
    if is_integer(dtype):
        low, high = int_limits(dtype)
        some = {low, low + 1, low // 2, 0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 100, high // 3, high - 1, high}
        return np.array(sorted(some | ({-1, -2, -7, -64} if low else set())), dtype)
    if bit_width(dtype) == 8:
        return np.arange(256, dtype=np.uint8).view(dtype)[::3]
    info = ml_dtypes.finfo(dtype)
    small, least, most = (float(x) for x in (info.tiny, info.smallest_subnormal, info.max))
    some = [0, 1, 0.5, 1.5, 2.5, 3.7, 12.25, 80, 1e-3, 0.4999, most, small, small * 0.75, least, least * 3, math.inf]
    some += [1 + 2.0**-m + 2.0**-40 for m in (2, 3, 4, 5, 8, 11)]  # just above a tie of each narrower type
    return np.array([*some, *(-x for x in some), math.nan], np.float64).astype(dtype)


def pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return every value with every other."""
    values = line(dtype)
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    return a, b


@functools.cache
def ops_of(dtype: np.dtype) -> tuple[tuple[str, dict], ...]:
    """(name, attributes) of every op that takes operands of the type alone."""
    plain = [row for row in OPS.values() if row.kind == "elementwise" and not row.attrs]
    names: list[tuple[str, dict]] = [(row.name, {}) for row in plain if takes(row, dtype)]
    names += [("compare", {"direction": d}) for d in DIRECTIONS]
    if dtype_class(dtype) == "float":
        names += [("reduce_precision", {"exponent_bits": e, "mantissa_bits": m}) for e, m in ((5, 2), (8, 7), (3, 0))]
    return tuple(names)


def takes(row: OpDef, dtype: np.dtype) -> bool:
    assert row.operands is not None
    op = Op(row.name, tuple(Value(dtype, (), None, i) for i in range(row.operands)), {})
    try:
        ((result, _),) = row.infer(op, ShapeFacts())
    except CompileError:
        return False
    return dtype_class(result) != "complex" and row.name != "select"  # which has a test of its own


def given(name: str, *pair: Any) -> list[Any]:
    """Return x, (x, y) or (x, y, x): as many operands as the op has."""
    x, y = pair
    return [x, y, x][: OPS[name].operands]


def compiled(graph, level: str) -> Executable:
    options = Options(target=f"{KIND}:{level}", threads=1)
    return Executable(pipeline.compile(graph, options), options)


@functools.cache
def matrix(dtype: np.dtype, level: str):
    def build(g: GraphBuilder, x: Value, y: Value) -> list[Value]:
        results = []
        for name, attrs in ops_of(dtype):
            results.append(g.op(name, given(name, x, y), **attrs))
        return results

    graph = make_graph([(dtype, "n")] * 2, build)
    return graph, compiled(graph, level)


def check(name: str, got: np.ndarray, want: np.ndarray, ulps: float, *operands: np.ndarray) -> None:
    """Check a result. Zeros must have the right sign; a type without NaN has a zero of either sign in place of NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape, name
    if dtype_class(got.dtype) != "float":
        wrong = got != want
    else:
        with np.errstate(invalid="ignore"):  # NaN of some kinds
            wide, best = got.astype(np.float64), want.astype(np.float64)
        info = ml_dtypes.finfo(got.dtype)
        step = np.maximum(np.abs(best), float(info.tiny)) * float(info.eps)
        with np.errstate(all="ignore"):
            same = (wide == best) | (np.isnan(wide) & np.isnan(best))
            wrong = ~(same | (np.abs(wide - best) <= ulps * step))
            if ulps == 0 and bit_width(got.dtype) >= 8:
                wrong |= same & (best == 0) & (np.signbit(wide) != np.signbit(best))
    if wrong.any():
        at = int(np.argmax(wrong))
        given = ", ".join(repr(x[at]) for x in operands)
        raise AssertionError(
            f"{name}({given}) of {got.dtype}: {got[at]!r} instead of {want[at]!r}, {wrong.sum()} wrong"
        )


def tolerance(name: str, dtype: np.dtype) -> float:
    """Return the tolerance in ulp. The reference rounds what numpy computed in f32, which has errors of its own."""
    if dtype_class(dtype) != "float" or not (OPS[name].expensive or name == "rsqrt"):
        return 0
    return 8 if dtype == F32 else 2 if dtype.itemsize == 8 else 1


@depth.sampled(3)
@pytest.mark.parametrize("dtype, level", cells(lambda dtype: dtype not in MINI), ids=str)
def test_every_op_of_a_type(dtype, level):
    graph, executable = matrix(dtype, level)
    x, y = pairs(dtype)
    for size in (len(x), *SIZES):
        a, b = np.resize(x, size), np.resize(y, size)
        results = executable(a, b)
        for (name, attrs), got, want in zip(ops_of(dtype), results, evaluate(graph, [a, b]), strict=True):
            exact = tolerance(name, dtype)
            check(f"{name}{attrs or ''}", got, want, exact, *given(name, a, b))


@depth.sampled(3)
@pytest.mark.parametrize("source, level", cells(lambda dtype: dtype in (F32, F64, I64, U64)), ids=str)
def test_conversions(source, level):
    targets = TYPES
    same = [t for t in targets if t != source and BOOL not in (t, source) and bit_width(t) == bit_width(source)]

    def build(g: GraphBuilder, x: Value) -> list[Value]:
        converted = [g.op("convert", [x], dtype=target) for target in targets]
        return converted + [g.op("bitcast_convert", [x], dtype=target) for target in same]

    graph = make_graph([(source, "n")], build)
    executable = compiled(graph, level)
    x = line(source)
    if dtype_class(source) == "float":
        limits = [edge for t in INTEGERS for edge in (float(int_limits(t)[0]), float(int_limits(t)[1]))]
        with np.errstate(all="ignore"):
            more = np.array([y + d for y in limits for d in (-1, -0.5, 0, 0.5, 1)]).astype(source)
        x = np.concatenate([x, more])
    names = [f"convert to {t}" for t in targets] + [f"bitcast to {t}" for t in same]
    for size in (len(x), *SIZES):
        a = np.resize(x, size)
        for name, got, want in zip(names, executable(a), evaluate(graph, [a]), strict=True):
            check(name, got, want, 0, a)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_select(dtype):
    graph = make_graph([("bool", "n"), (dtype, "n"), (dtype, "n")], lambda g, *xs: g.op("select", xs))
    executable = compiled(graph, "host")
    for size in SIZES:
        x = np.resize(line(dtype), size)
        arrays = [np.arange(size) % 3 == 0, x, x[::-1].copy()]
        check("select", executable(*arrays), evaluate(graph, arrays)[0], 0, *arrays)
