"""The op table: inference at symbolic sizes, and the numpy reference against JAX at sizes that include 0 and 1."""

from __future__ import annotations

import functools
import itertools

import jax
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import at_each
from comparison.xla_results import NEWER_EMITTERS
from depth import examples
from graphs.dhlo import make_graph, sample, shape
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from hlo_disc.dynamic_hlo.ir import dtypes
from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Guard, Region, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.ops.reference import apply, evaluate
from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import ArgumentError, CompileError, ShapeError

BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32, F64 = map(np.dtype, ("float16", "float32", "float64"))
I8, I32, I64, U8, U32 = map(np.dtype, ("int8", "int32", "int64", "uint8", "uint32"))
BOOL = np.dtype(bool)
FLOATS, INTS = (F32, F64, F16, BF16), (I32, I8, I64, U32, U8)
SIGNED = (*FLOATS, I32, I8, I64)
NUMBERS = (*FLOATS, *INTS)
LOGICAL = (BOOL, *INTS)
NARROW = [
    dtype
    for dtype in (*dtypes.FLOATS, *dtypes.INTEGERS)
    if dtype.name not in ("int8", "uint8") and dtype.itemsize == 1 and dtype.name[:7] != "float6_"
]


def values(dtype: np.dtype, count: int) -> np.ndarray:
    """The values of a dtype where mistakes are made."""
    if dtype == BOOL:
        return np.resize(np.array([True, False]), count)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        line = [0, 1, limits.max, limits.min, 2, 7, 31, 100]
        line += [-1, -7, -100] if dtype.kind == "i" else [200, 64]
        return np.resize(np.array(line, dtype), count)
    line = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -12.25, 80.0, -80.0, np.inf, -np.inf, np.nan]
    line += [0.49999997, 6e4 if dtype == F16 else 1e30]
    return np.resize(np.array(line, np.float64).astype(dtype), count)


def infer_one(name: str, operands: list[tuple[str, str]], facts: ShapeFacts | None = None, **attrs) -> Value:
    builder = GraphBuilder(facts or ShapeFacts())
    inputs = [Value(np.dtype(dtype), shape(text), None, i) for i, (dtype, text) in enumerate(operands)]
    return builder.op(name, inputs, loc="model.py:7", **attrs)


def run(name: str, arrays: list[np.ndarray], **attrs) -> np.ndarray:
    """One op on concrete arrays."""
    inputs = [Value(a.dtype, tuple(map(Dim.const, a.shape)), None, i) for i, a in enumerate(arrays)]
    return apply(GraphBuilder(ShapeFacts()).op(name, inputs, **attrs).op, arrays)


def assert_same(ours: np.ndarray, theirs, ulps: float = 8, signed_zeros: bool = True) -> None:
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if ours.dtype in FLOATS:
        tolerance = ulps * float(ml_dtypes.finfo(ours.dtype).eps)
        smallest = float(ml_dtypes.finfo(ours.dtype).tiny)
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=smallest)
        assert not signed_zeros or (np.signbit(ours) == np.signbit(theirs))[ours == 0].all()
    else:
        np.testing.assert_array_equal(ours, theirs)


UNARY = {
    "abs": (lax.abs, SIGNED),
    "negate": (lax.neg, NUMBERS),
    "sign": (lax.sign, SIGNED),
    "exponential": (lax.exp, FLOATS),
    "exponential_minus_one": (lax.expm1, FLOATS),
    "log": (lax.log, FLOATS),
    "log_plus_one": (lax.log1p, FLOATS),
    "logistic": (lax.logistic, FLOATS),
    "tanh": (lax.tanh, FLOATS),
    "sqrt": (lax.sqrt, FLOATS),
    "rsqrt": (lax.rsqrt, FLOATS),
    "cbrt": (lax.cbrt, FLOATS),
    "sine": (lax.sin, FLOATS),
    "cosine": (lax.cos, FLOATS),
    "tan": (lax.tan, FLOATS),
    "floor": (lax.floor, FLOATS),
    "ceil": (lax.ceil, FLOATS),
    "round_nearest_afz": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), FLOATS),
    "round_nearest_even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), FLOATS),
    "not": (lax.bitwise_not, LOGICAL),
    "is_finite": (lax.is_finite, FLOATS),
    "erf": (lax.erf, FLOATS),
    "erfc": (lax.erfc, FLOATS),
    "popcnt": (lax.population_count, INTS),
    "count_leading_zeros": (lax.clz, INTS),
}
BINARY = {
    "add": (lax.add, NUMBERS),
    "subtract": (lax.sub, NUMBERS),
    "multiply": (lax.mul, NUMBERS),
    "divide": (lax.div, NUMBERS),
    "remainder": (lax.rem, NUMBERS),
    "maximum": (lax.max, (*NUMBERS, BOOL)),
    "minimum": (lax.min, (*NUMBERS, BOOL)),
    "power": (lax.pow, FLOATS),
    "atan2": (lax.atan2, FLOATS),
    "and": (lax.bitwise_and, LOGICAL),
    "or": (lax.bitwise_or, LOGICAL),
    "xor": (lax.bitwise_xor, LOGICAL),
    "shift_left": (lax.shift_left, INTS),
    "shift_right_logical": (lax.shift_right_logical, INTS),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, INTS),
}
COMPARE = {"EQ": lax.eq, "NE": lax.ne, "GE": lax.ge, "GT": lax.gt, "LE": lax.le, "LT": lax.lt}


def cases(table):
    return [pytest.param(name, dtype, id=f"{name}-{dtype}") for name, row in table.items() for dtype in row[1]]


def test_every_op_is_tested_here():
    named = {*UNARY, *BINARY, "compare", "select", "clamp", "convert", "bitcast_convert", "reduce_precision"}
    named |= {"real", "imag", "complex"}  # in test_complex.py
    # test_elementwise.py compiles all that have no attributes; numpy's own functions are trusted. What programs cannot
    # have has no dialect.
    rows = [row for row in OPS.values() if row.kind == "elementwise" and row.dialect]
    assert named <= {row.name for row in rows} and {row.name for row in rows if row.attrs} <= named


@functools.cache
def unary_by_xla(name):
    """Return what XLA gives at the values of all types of an op, from one program."""
    function, types = UNARY[name]
    inputs = [values(dtype, 23) for dtype in types]
    if name in ("sine", "tan"):  # XLA's sine of a large argument carries its own error
        inputs = [np.where(np.abs(x.astype(F64)) > 1e6, 3, x.astype(F64)).astype(x.dtype) for x in inputs]
    with jax.enable_x64(True):
        results = at_each(function, [[x] for x in inputs])
    return {x.dtype: (x, np.asarray(result)) for x, result in zip(inputs, results, strict=True)}


@pytest.mark.parametrize("name, dtype", cases(UNARY))
def test_unary(name, dtype):
    inferred = infer_one(name, [(dtype.name, "b, 4")])
    assert inferred.shape == shape("b, 4")
    whole, expected = unary_by_xla(name)[dtype]
    for part, dims in ((slice(0), (0,)), (slice(1), ()), (slice(1), (1,)), (slice(None), (23,))):
        result = run(name, [whole[part].reshape(dims)])
        assert result.dtype == inferred.dtype
        assert_same(result, expected[part].reshape(dims), ulps=64)


def pairs(dtype, count):
    """Return all pairs of values of a type, as two arrays."""
    line = values(dtype, count)
    return [np.array(side, dtype) for side in zip(*itertools.product(line, line), strict=True)]


@functools.cache
def binary_by_xla(name):
    """Return what XLA gives for the pairs of all types of an op, from one program."""
    function, types = BINARY[name]
    inputs = [pairs(dtype, 18 if dtype in FLOATS else 11) for dtype in types]
    with jax.enable_x64(True):
        results = at_each(function, inputs)
    return {a.dtype: (a, b, np.asarray(result)) for (a, b), result in zip(inputs, results, strict=True)}


@pytest.mark.parametrize("name, dtype", cases(BINARY))
def test_binary(name, dtype):
    assert infer_one(name, [(dtype.name, "b, 4"), (dtype.name, "b, 4")]).shape == shape("b, 4")
    a, b, expected = binary_by_xla(name)[dtype]
    assert_same(run(name, [a, b]), expected, ulps=64)
    assert_same(run(name, [a[:0], b[:0]]), expected[:0])
    assert_same(run(name, [a[3].reshape(()), b[3].reshape(())]), expected[3].reshape(()), ulps=64)


@functools.cache
def compared_by_xla(dtype):
    """Return pairs of values of a type, and what XLA gives for them in all directions, from one program."""
    a, b = pairs(dtype, 18)
    with jax.enable_x64(True):
        results = jax.jit(lambda a, b: [compare(a, b) for compare in COMPARE.values()])(a, b)
    return a, b, dict(zip(COMPARE, map(np.asarray, results), strict=True))


@pytest.mark.parametrize("direction", COMPARE)
@pytest.mark.parametrize("dtype", (*NUMBERS, BOOL), ids=str)
def test_compare(direction, dtype):
    a, b, expected = compared_by_xla(dtype)
    assert_same(run("compare", [a, b], direction=direction), expected[direction])
    assert infer_one("compare", [(dtype.name, "b"), (dtype.name, "b")], direction=direction).dtype == BOOL


def test_integer_division_and_shifts_at_their_edges():
    a, b = np.array([7, -7, 5, np.iinfo(np.int32).min], np.int32), np.array([2, 2, 0, -1], np.int32)
    assert run("divide", [a, b]).tolist() == [3, -3, -1, np.iinfo(np.int32).min]
    assert run("remainder", [a, b]).tolist() == [1, -1, 5, 0]
    x, k = np.array([-8, -8, 8, 8], np.int32), np.array([1, 32, 40, -1], np.int32)
    assert run("shift_left", [x, k]).tolist() == [-16, 0, 0, 0]
    assert run("shift_right_logical", [x, k]).tolist() == [2**31 - 4, 0, 0, 0]
    assert run("shift_right_arithmetic", [x, k]).tolist() == [-4, -1, 0, 0]


def test_integer_power():
    a, b = np.array([2, -2, 3, 1, -1, -1, 0], np.int32), np.array([10, 3, -1, -5, -3, -2, 0], np.int32)
    assert run("power", [a, b]).tolist() == [1024, -8, 0, 1, -1, 1, 1]
    assert run("power", [np.array([2, 3], np.uint8), np.array([7, 5], np.uint8)]).tolist() == [128, 243]


@functools.cache
def converted_by_xla(source):
    """Return values of a type, and what XLA converts them to, from one program."""
    x = values(source, 23)
    with jax.enable_x64(True):
        results = jax.jit(lambda x: [lax.convert_element_type(x, target) for target in NUMBERS])(x)
    return x, {**dict(zip(NUMBERS, map(np.asarray, results), strict=True)), BOOL: x.astype(np.float64) != 0}


@pytest.mark.parametrize("source, target", list(itertools.product((*NUMBERS, BOOL), repeat=2)), ids=str)
def test_convert(source, target):
    x, expected = converted_by_xla(source)
    assert_same(run("convert", [x], dtype=target), expected[target], ulps=1)


FORMATS = ((5, 10), (8, 7), (4, 3), (5, 0), (2, 5), (11, 20), (1, 3))  # bits of exponent and of mantissa


@functools.cache
def rounded_by_xla(dtype):
    """Return values of a type, and what XLA rounds them to in all formats, from one program."""
    x = np.concatenate([values(dtype, 23), np.array([1.9, 65519, 3e-5, 1 + 2**-10, 1 + 3 * 2**-11], dtype)])
    with jax.enable_x64(True):
        results = jax.jit(
            lambda x: [lax.reduce_precision(x, *bits) for bits in FORMATS], compiler_options=NEWER_EMITTERS
        )(x)
    return x, dict(zip(FORMATS, map(np.asarray, results), strict=True))


@pytest.mark.parametrize("exponent, mantissa", FORMATS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reduce_precision(dtype, exponent, mantissa):
    x, expected = rounded_by_xla(dtype)
    ours = run("reduce_precision", [x], exponent_bits=exponent, mantissa_bits=mantissa)
    assert_same(ours, expected[exponent, mantissa], ulps=0)
    with pytest.raises(CompileError, match="1 bit of exponent"):
        infer_one("reduce_precision", [(dtype.name, "b")], exponent_bits=0, mantissa_bits=3)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_narrow_types(dtype):
    """Every value with every other, in one program for XLA."""
    width = bit_width(dtype)
    line = np.arange(1 << width, dtype=np.uint8).view(dtype)[:: 1 if width < 8 else 11]
    a, b = (np.array(side, dtype) for side in zip(*itertools.product(line, line), strict=True))
    names = ["add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum"]
    names += ["sqrt", "floor", "negate"] if dtype_class(dtype) == "float" else ["and", "xor", "shift_left", "not"]
    names += [] if dtype_class(dtype) == "float" else ["shift_right_logical", "shift_right_arithmetic"]
    both = [row[0] for row in BINARY.values()]
    functions = [(UNARY | BINARY)[name][0] for name in names]
    by_xla = jax.jit(
        lambda *operands: [f(*operands[: 1 + (f in both)]) for f in functions], compiler_options=NEWER_EMITTERS
    )
    expected = by_xla(a, b)
    for name, theirs in zip(names, expected, strict=True):
        result = run(name, [a, b] if name in BINARY else [a])
        ours, theirs = (np.asarray(x).astype(np.float32) for x in (result, theirs))
        # XLA takes the least power of two for zero.
        skip = (np.abs(ours) < 1e-37) | np.isnan(theirs) if dtype.name == "float8_e8m0fnu" else np.zeros(a.shape, bool)
        np.testing.assert_array_equal(ours[~skip], theirs[~skip], name)


def test_convert_saturates():
    x = np.array([np.nan, 1e30, -1e30, 2147483520.0, -3.99], np.float32)
    assert run("convert", [x], dtype=I32).tolist() == [0, 2**31 - 1, -(2**31), 2147483520, -3]
    assert run("convert", [x], dtype=U8).tolist() == [0, 255, 0, 255, 0]


def test_bitcast_convert():
    x = values(F32, 18)
    assert_same(run("bitcast_convert", [x], dtype=I32), lax.bitcast_convert_type(x, np.int32))
    assert infer_one("bitcast_convert", [("float32", "b")], dtype=U32).shape == shape("b")
    assert infer_one("bitcast_convert", [("float32", "b")], dtype=BOOL).shape == shape("b, 32")
    with pytest.raises(CompileError, match="width"):
        infer_one("bitcast_convert", [("float32", "b")], dtype=np.dtype(ml_dtypes.float6_e2m3fn))
    with pytest.raises(ShapeError, match="last axis"):
        infer_one("bitcast_convert", [("float32", "b, 3")], dtype=I64)


@pytest.mark.parametrize("narrow, wide", [(F32, F64), (U8, I64), (F32, np.dtype(np.complex64))], ids=str)
def test_bitcast_convert_between_widths(narrow, wide):
    parts = wide.itemsize // narrow.itemsize
    for count in (0, 1, 5):
        x = np.arange(count * parts, dtype=narrow).reshape(count, parts)
        whole = run("bitcast_convert", [x], dtype=wide)
        assert whole.shape == (count,) and whole.tobytes() == x.tobytes()
        assert_same(run("bitcast_convert", [whole], dtype=narrow), x)
    assert infer_one("bitcast_convert", [(wide.name, "b")], dtype=narrow).shape == shape(f"b, {parts}")
    assert infer_one("bitcast_convert", [(narrow.name, f"b, {parts}")], dtype=wide).shape == shape("b")


@pytest.mark.parametrize("dtype", (F32, BF16, I32, BOOL), ids=str)
def test_select_and_clamp(dtype):
    line = values(dtype, 9)
    low, x, high = (np.array(side, dtype) for side in zip(*itertools.product(line, line, line), strict=True))
    assert_same(run("clamp", [low, x, high]), np.minimum(np.maximum(x, low), high), signed_zeros=False)
    if dtype != BOOL:
        assert_same(run("clamp", [low, x, high]), lax.clamp(low, x, high), signed_zeros=False)
    pred = values(BOOL, len(x))
    assert_same(run("select", [pred, low, x]), lax.select(pred, low, x))
    assert infer_one("select", [("bool", "b"), (dtype.name, "b"), (dtype.name, "b")]).dtype == dtype


def test_narrow_floats_are_rounded_once():
    x = np.array([1.0, 1.0078125, 3.0], BF16)
    expected = (1 / (1 + np.exp(-x.astype(np.float32)))).astype(BF16)
    assert (run("logistic", [x]) == expected).all()
    ones = np.ones(1000, BF16)
    assert run("reduce", [ones, np.zeros((), BF16)], dims=(0,), kind="add") == 1000


# ----------------------------------------------------------------------------------------- shapes of the other ops


def dims(text: str):
    return shape(text)


def scalars(name: str, *dtypes: np.dtype, **attrs) -> Region:
    """A region of one op on scalars."""
    return make_region(ShapeFacts(), [(t, ()) for t in dtypes], lambda b, x: [b.op(name, x, **attrs)])


GATHER = dict(
    offset_dims=(1,), collapsed_slice_dims=(0,), operand_batching_dims=(), start_indices_batching_dims=(),
    start_index_map=(0,), index_vector_dim=1,
)  # fmt: skip

INFERENCE = [
    ("constant", [], dict(value=np.zeros((2, 0), np.int8)), "2, 0", I8),
    ("iota", [], dict(shape=dims("b, s"), dim=1, dtype=I32), "b, s", I32),
    ("dim", [], dict(expr=Dim.parse("b*s"), dtype=I64), "", I64),
    ("add", [("float32", "b, n"), ("float32", "b, 4")], {}, "b, 4", F32),
    ("broadcast", [("float32", "s")], dict(shape=dims("b, s"), dims=(1,)), "b, s", F32),
    ("broadcast", [("float32", "1, n")], dict(shape=dims("b, s"), dims=(0, 1)), "b, s", F32),
    ("reshape", [("float32", "b, s, 12, 64")], dict(shape=dims("b, s, 768")), "b, s, 768", F32),
    ("reshape", [("float32", "b, s")], dict(shape=dims("b*s")), "b*s", F32),
    ("transpose", [("float32", "b, s, 4")], dict(perm=(2, 0, 1)), "4, b, s", F32),
    ("slice", [("float32", "s, 9")], dict(start=dims("1, 0"), limit=dims("s, 9"), stride=(1, 4)), "s - 1, 3", F32),
    ("slice", [("float32", "s")], dict(start=dims("0"), limit=dims("s"), stride=(2,)), "floordiv(s + 1, 2)", F32),
    ("reverse", [("float32", "s")], dict(dims=(0,)), "s", F32),
    ("gather", [("float32", "v, 768"), ("int32", "b, 1")], dict(GATHER, slice_sizes=dims("1, 768")), "b, 768", F32),
    ("scatter", [("float32", "v, 768"), ("int32", "b, 1"), ("float32", "b, 768")],
     dict(GATHER, unique=False, count=1, body=scalars("add", F32, F32)), "v, 768", F32),
    ("sort", [("float32", "b, s")],
     dict(dim=1, stable=True, count=1, body=scalars("compare", F32, F32, direction="LT")), "b, s", F32),
    ("dynamic_slice", [("float32", "s, 4"), ("int32", ""), ("int32", "")], dict(sizes=dims("1, 4")), "1, 4", F32),
    ("dynamic_update_slice", [("float32", "s"), ("float32", "n"), ("int32", "")], {}, "s", F32),
    ("concatenate", [("float32", "b, s"), ("float32", "b, 1")], dict(dim=1), "b, s + 1", F32),
    ("concatenate", [("float32", "b, s"), ("float32", "2, s")], dict(dim=1), "2, 2*s", F32),
    ("pad", [("float32", "b, s"), ("float32", "")],
     dict(low=dims("0, 1"), high=dims("0, n"), interior=dims("0, 0")), "b, s + n + 1", F32),
    ("pad", [("float32", "s"), ("float32", "")],
     dict(low=dims("0"), high=dims("0"), interior=dims("1")), "s + max(s - 1, 0)", F32),
    ("pad", [("float32", "s"), ("float32", "")],
     dict(low=dims("0"), high=dims("n"), interior=dims("n")), "s + n + n*max(s - 1, 0)", F32),
    ("reduce", [("float32", "b, s, 4"), ("float32", "")], dict(dims=(1,), kind="add"), "b, 4", F32),
    ("dot_general", [("float32", "b, h, s, 64"), ("float32", "b, h, t, 64")],
     dict(lhs_batch=(0, 1), rhs_batch=(0, 1), lhs_contract=(3,), rhs_contract=(3,), dtype=F32, tf32=False),
     "b, h, s, t", F32),
    ("dot_general", [("bfloat16", "k, m"), ("bfloat16", "n, k")],
     dict(lhs_batch=(), rhs_batch=(), lhs_contract=(0,), rhs_contract=(1,), dtype=F32, tf32=False), "m, n", F32),
]  # fmt: skip


@pytest.mark.parametrize("name, operands, attrs, expected, dtype", INFERENCE)
def test_inference(name, operands, attrs, expected, dtype):
    value = infer_one(name, operands, **attrs)
    assert (value.shape, value.dtype) == (shape(expected), dtype)


def test_every_kind_of_op_has_an_inference_case():
    elsewhere = (
        "elementwise",
        "reduce",
        "cumulative",
        "window",
        "control",
        "host",
        "call",
    )  # in test files of their own
    names = {name for name, row in OPS.items() if row.dialect and row.kind not in elsewhere} - {"convolution"}
    assert {row[0] for row in INFERENCE} >= names


ERRORS = [
    ("add", [("float32", "b, 4"), ("float32", "b, 5")], {}, ShapeError, r"\[b, 4\].*\[b, 5\].*model.py:7.*4 and 5"),
    ("add", [("float32", "s"), ("float32", "s + 1")], {}, ShapeError, "never agree: s and s \\+ 1"),
    ("add", [("float32", "s"), ("int32", "s")], {}, CompileError, "dtype int32, expected float32"),
    ("add", [("float32", "s"), ("float32", "s, 1")], {}, CompileError, "rank 2"),
    ("add", [("float32", "s")], {}, CompileError, "1 operands, expected 2"),
    ("exponential", [("int32", "s")], {}, CompileError, "int32"),
    ("and", [("float32", "s"), ("float32", "s")], {}, CompileError, "float32"),
    ("frobnicate", [("float32", "s")], {}, CompileError, "no such op"),
    ("select", [("int32", "s"), ("int32", "s"), ("int32", "s")], {}, CompileError, "predicate"),
    ("broadcast", [("float32", "3")], dict(shape=dims("b, 4"), dims=(1,)), ShapeError, "neither 1 nor"),
    ("broadcast", [("float32", "3")], dict(shape=(3,), dims=(0,)), CompileError, "not a tuple of Dims"),
    ("broadcast", [("float32", "3")], dict(shape=dims("3")), CompileError, r"expected \['dims', 'shape'\]"),
    ("reshape", [("float32", "b, 4")], dict(shape=dims("b, 5")), None, ""),
    ("reshape", [("float32", "2, 4")], dict(shape=dims("9")), ShapeError, r"\(9\)"),
    ("transpose", [("float32", "b, 4")], dict(perm=(0, 0)), CompileError, "distinct"),
    ("slice", [("float32", "4")], dict(start=dims("0"), limit=dims("5"), stride=(1,)), ShapeError, "size 4"),
    ("slice", [("float32", "4")], dict(start=dims("0"), limit=dims("4"), stride=(0,)), CompileError, "stride"),
    ("concatenate", [("float32", "2, 3"), ("float32", "3, 3")], dict(dim=1), ShapeError, "2 and 3"),
    ("reduce", [("float32", "b"), ("float32", "")], dict(dims=(0,), kind="sum"), CompileError, "one of add"),
    ("reduce", [("float32", "b"), ("float32", "")], dict(dims=(0,), kind="and"), CompileError, "float32"),
    ("dynamic_slice", [("float32", "4"), ("int32", "")], dict(sizes=dims("5")), ShapeError, "larger"),
    ("dynamic_slice", [("float32", "4"), ("float32", "")], dict(sizes=dims("2")), CompileError, "integers"),
    ("dot_general", [("float32", "m, 3"), ("float32", "4, n")],
     dict(lhs_batch=(), rhs_batch=(), lhs_contract=(1,), rhs_contract=(0,), dtype=F32, tf32=False),
     ShapeError, "contracting.*3 and 4"),
    ("gather", [("float32", "v, 8"), ("int32", "b, 2")], dict(GATHER, slice_sizes=dims("1, 8")),
     ShapeError, "index vector"),
    ("gather", [("float32", "v, 8"), ("int32", "b, 1")], dict(GATHER, slice_sizes=dims("1, 9")),
     ShapeError, "slice size 9"),
    ("pad", [("float32", "2"), ("float32", "")],
     dict(low=dims("-3"), high=dims("0"), interior=dims("0")), ShapeError, "-1"),
]  # fmt: skip


@pytest.mark.parametrize("name, operands, attrs, error, text", ERRORS)
def test_errors(name, operands, attrs, error, text):
    if error is None:  # b == 0 makes both empty
        infer_one(name, operands, **attrs)
        return
    with pytest.raises(error, match=text) as caught:
        infer_one(name, operands, **attrs)
    assert "model.py:7" in str(caught.value)


def test_facts_decide_what_agrees():
    facts = ShapeFacts()
    facts.add_at_least(Dim.symbol("b"), 1)
    with pytest.raises(ShapeError):
        infer_one("reshape", [("float32", "b, 4")], facts, shape=dims("b, 5"))


# ------------------------------------------------------------------------------------------------ values of the rest

SIZES = (0, 1, 2, 5)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", SIZES)
def test_views(n, m):
    x = np.arange(n * m, dtype=np.float32).reshape(n, m)
    assert_same(run("transpose", [x], perm=(1, 0)), x.T)
    assert_same(run("reverse", [x], dims=(1,)), lax.rev(x, (1,)))
    assert_same(run("reshape", [x], shape=dims(f"{n * m}")), x.reshape(-1))
    out = run("broadcast", [x], shape=dims(f"{m}, 3, {n}"), dims=(2, 0))
    assert_same(out, lax.broadcast_in_dim(x.T, (m, 3, n), (0, 2)))
    if n:
        assert_same(run("broadcast", [x[:1]], shape=dims(f"4, {m}"), dims=(0, 1)), np.tile(x[:1], (4, 1)))
    assert_same(run("iota", [], shape=dims(f"{n}, {m}"), dim=0, dtype=F32), lax.broadcasted_iota(F32, (n, m), 0))
    sliced = run("slice", [x], start=dims(f"0, {m // 2}"), limit=dims(f"{n}, {m}"), stride=(2, 1))
    assert_same(sliced, lax.slice(x, (0, m // 2), (n, m), (2, 1)))
    assert_same(run("concatenate", [x, x], dim=0), np.concatenate([x, x]))


@settings(max_examples=examples(15, 200), deadline=None)
@given(st.data())
def test_pad(data):
    n, m = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))
    interior = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    spread = [size + max(size - 1, 0) * gap for size, gap in zip((n, m), interior, strict=True)]
    low = [data.draw(st.integers(-size, 3)) for size in spread]
    high = [data.draw(st.integers(-size - min(lo, 0), 3)) for size, lo in zip(spread, low, strict=True)]
    x, value = np.arange(n * m, dtype=np.float32).reshape(n, m), np.array(-1, np.float32)
    ours = run(
        "pad",
        [x, value],
        low=tuple(map(Dim.const, low)),
        high=tuple(map(Dim.const, high)),
        interior=tuple(map(Dim.const, interior)),
    )
    assert_same(ours, lax.pad(x, value, list(zip(low, high, interior, strict=True))))


REDUCE = {
    "add": (lax.add, 0), "mul": (lax.mul, 1), "max": (lax.max, -np.inf), "min": (lax.min, np.inf),
    "and": (lax.bitwise_and, -1), "or": (lax.bitwise_or, 0),
}  # fmt: skip
ON_BOOLEANS = {"add": "or", "mul": "and", "max": "or", "min": "and"}


@pytest.mark.parametrize("dtype", (F32, BF16, I32, U8, BOOL), ids=str)
@pytest.mark.parametrize("kind", REDUCE)
def test_reduce(dtype, kind):
    if kind in ("and", "or") and dtype in FLOATS:
        return
    function, identity = REDUCE[ON_BOOLEANS.get(kind, kind) if dtype == BOOL else kind]
    init = run("convert", [np.array(identity, np.float64)], dtype=dtype)
    if kind == "and" and dtype == U8:
        init = np.array(255, U8)
    arrays = [np.resize(values(dtype, 5), sizes).astype(dtype) for sizes in ((0, 3), (3, 0), (1, 1), (5, 2))]
    cases = list(itertools.product(range(len(arrays)), [(0,), (1,), (0, 1)]))
    by_xla = jax.jit(lambda *arrays: [lax.reduce(arrays[i], init, function, axes) for i, axes in cases])(*arrays)
    for (i, axes), expected in zip(cases, by_xla, strict=True):
        assert_same(run("reduce", [arrays[i], init], dims=axes, kind=kind), expected, ulps=64, signed_zeros=False)


def test_reduce_starts_from_init():
    x = np.array([[1, 2], [3, 4]], np.int32)
    assert run("reduce", [x, np.array(10, np.int32)], dims=(0,), kind="add").tolist() == [14, 16]
    assert run("reduce", [x, np.array(10, np.int32)], dims=(0,), kind="max").tolist() == [10, 10]
    assert run("reduce", [x[:0], np.array(10, np.int32)], dims=(0,), kind="mul").tolist() == [10, 10]


@pytest.mark.parametrize("m, k, n, b", [(0, 3, 2, 2), (1, 0, 4, 1), (3, 5, 1, 2), (2, 4, 7, 0), (5, 1, 1, 3)])
def test_dot_general(m, k, n, b):
    rng = np.random.default_rng(0)
    a, c = rng.standard_normal((k, b, m)).astype(np.float32), rng.standard_normal((n, k, b)).astype(np.float32)
    attrs = dict(lhs_batch=(1,), rhs_batch=(2,), lhs_contract=(0,), rhs_contract=(1,), tf32=False)
    expected = lax.dot_general(a, c, (((0,), (1,)), ((1,), (2,))))
    np.testing.assert_allclose(run("dot_general", [a, c], dtype=F32, **attrs), expected, rtol=1e-5, atol=1e-5)
    i, j = (x.astype(np.int8) for x in (a * 20, c * 20))
    expected = lax.dot_general(i, j, (((0,), (1,)), ((1,), (2,))), preferred_element_type=np.int32)
    assert_same(run("dot_general", [i, j], dtype=I32, **attrs), expected)


def gather_attrs(numbers: lax.GatherDimensionNumbers, index_vector_dim: int) -> dict:
    return {name: getattr(numbers, name) for name in GATHER if name != "index_vector_dim"} | dict(
        index_vector_dim=index_vector_dim
    )


@pytest.mark.parametrize(
    "operand, indices, sizes, numbers",
    [
        ((7, 3), (4, 1), (1, 3), dict(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))),
        ((7, 3), (0, 1), (1, 3), dict(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))),
        ((1, 3), (2, 5, 1), (1, 2), dict(offset_dims=(0,), collapsed_slice_dims=(0,), start_index_map=(0,))),
        ((6, 5, 4), (3, 2), (2, 1, 3), dict(offset_dims=(0, 2), collapsed_slice_dims=(1,), start_index_map=(2, 0))),
        ((6, 5), (2,), (2, 2), dict(offset_dims=(0, 1), collapsed_slice_dims=(), start_index_map=(0, 1))),
        (
            (3, 6, 4),
            (5, 3, 1),
            (1, 1, 4),
            dict(
                offset_dims=(2,), collapsed_slice_dims=(1,), start_index_map=(1,),
                operand_batching_dims=(0,), start_indices_batching_dims=(1,),
            ),
        ),
    ],
)  # fmt: skip
def test_gather(operand, indices, sizes, numbers):
    rng = np.random.default_rng(1)
    x, i = rng.standard_normal(operand).astype(np.float32), rng.integers(-3, 9, indices).astype(np.int32)
    spec = lax.GatherDimensionNumbers(**numbers)
    expected = lax.gather(x, i, spec, sizes, mode=lax.GatherScatterMode.CLIP)
    slice_sizes = tuple(map(Dim.const, sizes))
    assert_same(run("gather", [x, i], slice_sizes=slice_sizes, **gather_attrs(spec, i.ndim - 1)), expected)
    moved = np.moveaxis(i, -1, 0)
    if not spec.start_indices_batching_dims:
        assert_same(run("gather", [x, moved], slice_sizes=slice_sizes, **gather_attrs(spec, 0)), expected)
    if i.shape[-1] == 1:
        attrs = gather_attrs(spec, i.ndim - 1)
        assert_same(run("gather", [x, i[..., 0]], slice_sizes=slice_sizes, **attrs), expected)


@pytest.mark.parametrize("start", (-3, 0, 2, 5, 9))
@pytest.mark.parametrize("index", (I32, I64, U32), ids=str)
def test_dynamic_slice_and_update(start, index):
    x, update = np.arange(30, dtype=np.float32).reshape(5, 6), -np.ones((2, 3), np.float32)
    starts = [np.array(start % 256 if index == U32 else start, index), np.array(1, index)]
    # lax reads a negative start as counted from the end; StableHLO clamps it.
    inside = (max(int(starts[0]), 0), 1)
    assert_same(run("dynamic_slice", [x, *starts], sizes=dims("2, 3")), lax.dynamic_slice(x, inside, (2, 3)))
    ours = run("dynamic_update_slice", [x, update, *starts])
    assert_same(ours, lax.dynamic_update_slice(x, update, inside))
    assert x[0, 0] == 0


# ---------------------------------------------------------------------------------------------------------- evaluate


def softmax(builder: GraphBuilder, x: Value) -> Value:
    low = builder.op("constant", value=np.array(-np.inf, np.float32))
    zero = builder.op("constant", value=np.array(0, np.float32))
    high = builder.op("reduce", [x, low], dims=(1,), kind="max")
    shifted = builder.op("subtract", [x, builder.op("broadcast", [high], shape=x.shape, dims=(0,))])
    powers = builder.op("exponential", [shifted])
    total = builder.op("reduce", [powers, zero], dims=(1,), kind="add")
    return builder.op("divide", [powers, builder.op("broadcast", [total], shape=x.shape, dims=(0,))])


@pytest.mark.parametrize("b, s", [(0, 3), (1, 1), (2, 7), (3, 0)])
def test_evaluate_binds_symbols(b, s):
    graph = make_graph([("float32", "b, s")], softmax)
    (x,) = sample(graph, dict(b=b, s=s))
    (y,) = evaluate(graph, [x])
    np.testing.assert_allclose(y, jax.nn.softmax(x, axis=1), rtol=1e-5)


def test_evaluate_checks_the_call():
    rows, expected = raw_dim(1, 0), Dim.parse("s + 1")
    guard = Guard(rows, "==", expected, "y has {0} rows, expected {1}", (rows, expected))
    graph = make_graph(
        [("float32", "s"), ("float32", "s + 1")],
        lambda builder, x, y: [x, x],
        guards=[guard],
        bindings={"s": raw_dim(0, 0)},
    )
    x = np.ones(3, np.float32)
    first, second = evaluate(graph, [x, np.ones(4, np.float32)])
    assert first is not second and (first == x).all()
    with pytest.raises(ShapeError, match="y has 5 rows, expected 4"):
        evaluate(graph, [x, np.ones(5, np.float32)])
    with pytest.raises(ArgumentError, match="2 arguments, not 1"):
        evaluate(graph, [x])
    with pytest.raises(ArgumentError, match="x1 has dtype float64, expected float32"):
        evaluate(graph, [x, np.ones(4)])
    with pytest.raises(ArgumentError, match="x0 has rank 2, expected 1"):
        evaluate(graph, [x[None], x])


def test_evaluate_reports_sizes_that_only_the_call_knows():
    graph = make_graph([("float32", "a"), ("float32", "b")], lambda b, x, y: b.op("add", [x, y], loc="m.py:1"))
    with pytest.raises(ShapeError, match=r"m.py:1.*\(2,\), \(1,\) differ"):
        evaluate(graph, [np.ones(2, np.float32), np.ones(1, np.float32)])


def test_sizes_are_values():
    def build(builder, x):
        return builder.op("dim", expr=Dim.parse("floordiv(s, 2) + 1"), dtype=I32)

    graph = make_graph([("float32", "s")], build)
    assert evaluate(graph, [np.ones(7, np.float32)])[0] == 4
