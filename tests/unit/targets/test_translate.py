"""Every op of the kernels' language, compiled and run, against numpy."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace

import depth
import ml_dtypes
import numpy as np
import pytest
from hand_written import kernel_runner as kernels

from hlo_disc import mlir
from hlo_disc.errors import CompileError
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.target import compile_modules
from hlo_disc.targets.translate.module import EXTENSIONS, HANDLERS, canonicalize

BF16 = ml_dtypes.bfloat16
LEVELS = kernels.levels()
INTS = [np.int8, np.int16, np.int32, np.int64]
FLOATS = [np.float16, BF16, np.float32, np.float64]
WIDTHS = [0, 4, 16]


def _ints(dtype, seed: int, low: int | None = None, high: int | None = None) -> np.ndarray:
    info = np.iinfo(dtype)
    low, high = info.min if low is None else low, info.max if high is None else high
    values = np.random.default_rng(seed).integers(low, high, 64, dtype, endpoint=True)
    values[:4] = [low, high, min(max(0, low), high), min(max(1, low), high)]
    return values


def _floats(dtype, seed: int) -> np.ndarray:
    values = (np.random.default_rng(seed).standard_normal(64) * 4).astype(dtype)
    values[:8] = [0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, 0.5]
    return np.roll(values, seed)


def _same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    if actual.dtype in map(np.dtype, FLOATS):
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(actual, expected)


def _check_table(table, name: str, inputs, dtype, lanes: int, level: str = "host") -> None:
    """Every op of a table {op: numpy reference} on the same operands."""
    operands = ", ".join(f"%x{k}" for k in range(len(inputs)))
    texts = [f"%r = {name.format(op)} {operands} : V({kernels.mlir_type(dtype)})" for op in table]
    results = kernels.apply_all(texts, inputs, [dtype] * len(texts), lanes, level)
    with np.errstate(all="ignore"):
        for (op, reference), result in zip(table.items(), results, strict=True):
            try:
                _same(result, reference(*inputs).astype(dtype))
            except AssertionError as error:
                raise AssertionError(f"{op}: {error}") from None


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.dtype(f"u{x.dtype}"))


INTEGER_OPS = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "minsi": np.minimum,
    "maxsi": np.maximum,
    "minui": lambda a, b: np.minimum(_unsigned(a), _unsigned(b)).view(a.dtype),
    "maxui": lambda a, b: np.maximum(_unsigned(a), _unsigned(b)).view(a.dtype),
}
DIVISIONS = {
    "divui": lambda a, b: (_unsigned(a) // _unsigned(b)).view(a.dtype),
    "remui": lambda a, b: (_unsigned(a) % _unsigned(b)).view(a.dtype),
    "divsi": lambda a, b: (np.sign(a) * np.sign(b) * (abs(a.astype(object)) // abs(b.astype(object)))).astype(a.dtype),
    "remsi": np.fmod,
}
SHIFTS = {
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "shrui": lambda a, b: (_unsigned(a) >> _unsigned(b)).view(a.dtype),
}
FLOAT_OPS = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.remf": np.fmod,
    "math.copysign": np.copysign,
}
FLOAT_UNARY = {
    "arith.negf": np.negative,
    "math.absf": np.abs,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.roundeven": np.rint,
    "math.round": lambda a: (np.sign(a) * np.floor(np.abs(a) + 0.5)).astype(a.dtype),
    "math.sqrt": np.sqrt,
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("lanes", WIDTHS)
def test_integer_ops(dtype, lanes, level):
    a, b = _ints(dtype, 1), _ints(dtype, 2)
    shift = _ints(dtype, 3, 0, np.iinfo(dtype).bits - 1)
    for ops, right in ((INTEGER_OPS, b), (SHIFTS, shift)):
        _check_table(ops, "arith.{}", [a, right], dtype, lanes, level)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("lanes", WIDTHS)
def test_integer_divisions(dtype, lanes):
    a = _ints(dtype, 1, np.iinfo(dtype).min + 1)
    b = _ints(dtype, 2, -7, 7)
    b[b == 0] = 3
    _check_table(DIVISIONS, "arith.{}", [a, b], dtype, lanes)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_unary(dtype):
    t = kernels.mlir_type(dtype)
    a = _ints(dtype, 1, np.iinfo(dtype).min + 1)
    _same(kernels.apply(f"%r = math.absi %x0 : V({t})", [a], dtype, 16), np.abs(a))
    bits = np.iinfo(dtype).bits
    ones = np.array([int(x) & (2**bits - 1) for x in a], object)
    counts = np.array([x.bit_count() for x in ones], dtype)
    _same(kernels.apply(f"%r = math.ctpop %x0 : V({t})", [a], dtype, 16), counts)
    lengths = np.array([bits - x.bit_length() for x in ones], dtype)
    _same(kernels.apply(f"%r = math.ctlz %x0 : V({t})", [a], dtype, 16), lengths)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lanes", WIDTHS)
def test_float_ops(dtype, lanes, level):
    a, b = _floats(dtype, 1), _floats(dtype, 5)
    _check_table(FLOAT_OPS, "{}", [a, b], dtype, lanes, level)
    _check_table(FLOAT_UNARY, "{}", [a], dtype, lanes, level)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_multiply_add(dtype):
    t = kernels.mlir_type(dtype)
    a, b = _floats(dtype, 1), _floats(dtype, 5)
    a[~np.isfinite(a)], b[~np.isfinite(b)] = 3, 4
    fused = kernels.apply(f"%r = math.fma %x0, %x1, %x0 : V({t})", [a, b], dtype, 16)
    wide = np.float64 if dtype != np.float64 else np.longdouble
    exact = (a.astype(wide) * b.astype(wide) + a.astype(wide)).astype(dtype)
    bound = 2 * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(fused.astype(np.float64), exact.astype(np.float64), rtol=bound)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lanes", [0, 16])
def test_float_comparisons(dtype, lanes):
    t = kernels.mlir_type(dtype)
    a, b = _floats(dtype, 1), _floats(dtype, 1)
    b[8:40] = _floats(dtype, 5)[8:40]
    a[3] = b[7] = np.nan
    ordered = ~(np.isnan(a) | np.isnan(b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    expected = {"une": x != y, "one": ordered & (x != y), "ord": ordered, "uno": ~ordered}
    for predicate, compared in {"eq": x == y, "gt": x > y, "ge": x >= y, "lt": x < y, "le": x <= y}.items():
        expected |= {f"o{predicate}": ordered & compared, f"u{predicate}": ~ordered | compared}
    texts = [f"%c = arith.cmpf {p}, %x0, %x1 : V({t})\n%r = arith.extui %c : V(i1) to V(i8)" for p in expected]
    results = kernels.apply_all(texts, [a, b], [np.uint8] * len(texts), lanes)
    for want, result in zip(expected.values(), results, strict=True):
        _same(result, want.astype(np.uint8))


def test_integer_comparisons_and_select():
    a, b = _ints(np.int32, 1), _ints(np.int32, 2)
    b[::3] = a[::3]
    ua, ub = _unsigned(a), _unsigned(b)
    table = {
        "eq": a == b, "ne": a != b, "slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b,
        "ult": ua < ub, "ule": ua <= ub, "ugt": ua > ub, "uge": ua >= ub,
    }  # fmt: skip
    select = "%r = arith.select %c, %x0, %x1 : V(i1), V(i32)"
    texts = [f"%c = arith.cmpi {predicate}, %x0, %x1 : V(i32)\n{select}" for predicate in table]
    for expected, result in zip(
        table.values(), kernels.apply_all(texts, [a, b], [np.int32] * len(texts), 16), strict=True
    ):
        _same(result, np.where(expected, a, b))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", FLOATS)
def test_float_conversions(source, target, lanes, level):
    if np.dtype(source).itemsize == np.dtype(target).itemsize:
        return
    rng = np.random.default_rng(7)
    a = (rng.standard_normal(256) * np.exp(rng.uniform(-14, 9, 256))).astype(source)
    a[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    op = "extf" if np.dtype(source).itemsize < np.dtype(target).itemsize else "truncf"
    text = f"%r = arith.{op} %x0 : V({kernels.mlir_type(source)}) to V({kernels.mlir_type(target)})"
    result = kernels.apply(text, [a], target, lanes, level)
    with np.errstate(over="ignore"):
        if target == BF16 and source == np.float64:
            a = _round_to_odd(a)
        _same(result.astype(np.float64), a.astype(target).astype(np.float64))


def _round_to_odd(x: np.ndarray) -> np.ndarray:
    """f64 to f32 such that rounding once more to bf16 is right (ml_dtypes itself rounds twice)."""
    near = x.astype(np.float32)
    beyond = np.abs(near.astype(np.float64)) > np.abs(x)
    towards_zero = np.where(beyond, np.nextafter(near, np.float32(0)), near)
    inexact = np.isfinite(x) & (near.astype(np.float64) != x)
    return np.where(inexact, (towards_zero.view(np.int32) | 1).view(np.float32), near)


def test_double_rounding_is_avoided():
    # just above a tie of f16 (and of bf16) by less than f32 can hold
    for target, ulp in ((np.float16, 2.0**-10), (BF16, 2.0**-7)):
        a = np.full(16, 1 + ulp / 2 + 2.0**-40)
        t = kernels.mlir_type(target)
        result = kernels.apply(f"%r = arith.truncf %x0 : V(f64) to V({t})", [a], target, 16)
        _same(result.astype(np.float64), np.full(16, 1 + ulp))


@depth.sampled(2)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("dtype", FLOATS)
def test_conversions_between_integers_and_floats(dtype, lanes, level):
    t = kernels.mlir_type(dtype)
    for integer in INTS:
        i = kernels.mlir_type(integer)
        a = _ints(integer, 3, -100 if integer != np.int8 else None, 100)
        unsigned = _unsigned(np.abs(a.astype(np.int64)).astype(integer))
        _same(kernels.apply(f"%r = arith.sitofp %x0 : V({i}) to V({t})", [a], dtype, lanes, level), a.astype(dtype))
        floats = kernels.apply(f"%r = arith.uitofp %x0 : V({i}) to V({t})", [unsigned], dtype, lanes, level)
        _same(floats, unsigned.astype(dtype))
        back = np.clip(_floats(dtype, 2).astype(np.float64), -90, 90).astype(dtype)
        result = kernels.apply(f"%r = arith.fptosi %x0 : V({t}) to V({i})", [back], integer, lanes, level)
        _same(result, back.astype(np.float64).astype(integer))
        result = kernels.apply(f"%r = arith.fptoui %x0 : V({t}) to V({i})", [np.abs(back)], integer, lanes, level)
        _same(result, np.abs(back).astype(np.float64).astype(integer))


@pytest.mark.parametrize("lanes", [0, 16])
def test_integer_casts(lanes):
    small, large = _ints(np.int8, 1), _ints(np.int64, 2)
    _same(kernels.apply("%r = arith.extsi %x0 : V(i8) to V(i32)", [small], np.int32, lanes), small.astype(np.int32))
    wide = kernels.apply("%r = arith.extui %x0 : V(i8) to V(i64)", [small], np.int64, lanes)
    _same(wide, small.view(np.uint8).astype(np.int64))
    _same(kernels.apply("%r = arith.trunci %x0 : V(i64) to V(i16)", [large], np.int16, lanes), large.astype(np.int16))
    text = "%j = arith.index_cast %x0 : V(i8) to V(index)\n%r = arith.index_cast %j : V(index) to V(i32)"
    _same(kernels.apply(text, [small], np.int32, lanes), small.astype(np.int32))
    text = "%j = arith.index_castui %x0 : V(i8) to V(index)\n%r = arith.index_cast %j : V(index) to V(i64)"
    _same(kernels.apply(text, [small], np.int64, lanes), small.view(np.uint8).astype(np.int64))
    floats = _floats(np.float32, 1)
    _same(kernels.apply("%r = arith.bitcast %x0 : V(f32) to V(i32)", [floats], np.int32, lanes), floats.view(np.int32))


def test_constants_keep_every_bit():
    body = """
      %f = arith.constant dense<[1.0, -0.0, 0x7FC00001, 1.0e-45]> : vector<4xf32>
      %h = arith.constant dense<[1.0, -0.0, 65504.0, 5.9604645e-8]> : vector<4xf16>
      %b = arith.constant dense<[1.0, -0.0, 0x7F80, 3.140625]> : vector<4xbf16>
      %d = arith.constant dense<[0.1, -0.0, 0x7FF0000000000000, 5.0e-324]> : vector<4xf64>
      %i = arith.constant dense<[1, -2, 127, -128]> : vector<4xi8>
      %s = arith.constant dense<-1.25> : vector<4xbf16>
      %x = arith.constant -9223372036854775808 : index
      vector.store %f, %a0[%c0] : memref<?xf32>, vector<4xf32>
      vector.store %h, %a1[%c0] : memref<?xf16>, vector<4xf16>
      vector.store %b, %a2[%c0] : memref<?xbf16>, vector<4xbf16>
      vector.store %d, %a3[%c0] : memref<?xf64>, vector<4xf64>
      vector.store %i, %a4[%c0] : memref<?xi8>, vector<4xi8>
      vector.store %s, %a5[%c0] : memref<?xbf16>, vector<4xbf16>
      %y = arith.index_cast %x : index to i64
      memref.store %y, %a6[%c0] : memref<?xi64>"""
    dtypes = [np.float32, np.float16, BF16, np.float64, np.int8, BF16, np.int64]
    out = [np.ones(4, d) for d in dtypes]
    kernels.run(body, *out)
    assert out[0].view(np.uint32).tolist() == [0x3F800000, 0x80000000, 0x7FC00001, 1]
    assert out[1].view(np.uint16).tolist() == [0x3C00, 0x8000, 0x7BFF, 1]
    assert out[2].view(np.uint16).tolist() == [0x3F80, 0x8000, 0x7F80, 0x4049]
    assert out[3].view(np.uint64).tolist() == [0x3FB999999999999A, 1 << 63, 0x7FF << 52, 1]
    assert out[4].tolist() == [1, -2, 127, -128]
    assert out[5].astype(float).tolist() == [-1.25] * 4
    assert out[6][0] == -(2**63)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [0, 1, 7, 16, 40])
def test_masked_memory(count, level):
    body = f"""
      %n = arith.constant {count} : index
      %m = vector.create_mask %n : vector<16xi1>
      %z = arith.constant dense<-1.0> : vector<16xf32>
      %v = vector.maskedload %a0[%c0], %m, %z : memref<?xf32>, vector<16xi1>, vector<16xf32> into vector<16xf32>
      vector.store %v, %a1[%c0] : memref<?xf32>, vector<16xf32>
      vector.maskedstore %a2[%c0], %m, %v : memref<?xf32>, vector<16xi1>, vector<16xf32>"""
    x, y, z = np.arange(16, dtype=np.float32), np.zeros(16, np.float32), np.full(16, 9, np.float32)
    kernels.run(body, x, y, z, level=level)
    inside = np.arange(16) < count
    _same(y, np.where(inside, x, -1).astype(np.float32))
    _same(z, np.where(inside, x, 9).astype(np.float32))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_a_store_of_one_truncated_lane_leaves_its_neighbours(dtype, level):
    to = f"i{8 * np.dtype(dtype).itemsize}"
    body = f"""
      %m = vector.constant_mask [1] : vector<16xi1>
      %v = vector.load %a0[%c0] : memref<?xi32>, vector<16xi32>
      %t = arith.trunci %v : vector<16xi32> to vector<16x{to}>
      vector.maskedstore %a1[%c0], %m, %t : memref<?x{to}>, vector<16xi1>, vector<16x{to}>"""
    x, y = np.arange(5, 21, dtype=np.int32), np.full(16, 9, dtype)
    kernels.run(body, x, y, level=level)
    assert y.tolist() == [5] + [9] * 15


def test_a_mask_of_fewer_than_no_elements_is_empty():
    body = """
      %n64 = memref.load %a0[%c0] : memref<?xi64>
      %n = arith.index_cast %n64 : i64 to index
      %m = vector.create_mask %n : vector<16xi1>
      %k = arith.extui %m : vector<16xi1> to vector<16xi8>
      vector.store %k, %a1[%c0] : memref<?xi8>, vector<16xi8>"""
    for count in (-1, -(2**40) + 5, 2**40, 3):
        out = np.full(16, 7, np.int8)
        kernels.run(body, np.array([count]), out)
        _same(out, (np.arange(16) < count).astype(np.int8))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("index", ["i32", "i64", "index"])
def test_gather_and_scatter(index, level):
    body = f"""
      %l = vector.load %a1[%c0] : memref<?xi32>, vector<16xi32>
      %i = arith.{"index_cast" if index == "index" else "extsi"} %l : vector<16xi32> to vector<16x{index}>
    """
    if index == "i32":
        body = "%i = vector.load %a1[%c0] : memref<?xi32>, vector<16xi32>"
    body += f"""
      %k = arith.constant 13 : index
      %m = vector.create_mask %k : vector<16xi1>
      %z = arith.constant dense<-1.0> : vector<16xf32>
      %v = vector.gather %a0[%c1] [%i], %m, %z
        : memref<?xf32>, vector<16x{index}>, vector<16xi1>, vector<16xf32> into vector<16xf32>
      vector.store %v, %a2[%c0] : memref<?xf32>, vector<16xf32>
      vector.scatter %a3[%c1] [%i], %m, %v : memref<?xf32>, vector<16x{index}>, vector<16xi1>, vector<16xf32>"""
    x = np.arange(40, dtype=np.float32)
    lanes = np.random.default_rng(0).permutation(38)[:16].astype(np.int32) - 1
    y, z = np.zeros(16, np.float32), np.zeros(40, np.float32)
    kernels.run(body, x, lanes, y, z, level=level)
    inside = np.arange(16) < 13
    expected = np.where(inside, x[lanes + 1], -1).astype(np.float32)
    _same(y, expected)
    scattered = np.zeros(40, np.float32)
    scattered[lanes[inside] + 1] = expected[inside]
    _same(z, scattered)


def test_views_casts_and_pointers():
    body = """
      %four = arith.constant 4 : index
      %eight = arith.constant 8 : index
      %v = memref.view %a0[%eight][%four] : memref<?xi8> to memref<?xf32>
      %fixed = memref.cast %v : memref<?xf32> to memref<4xf32>
      %back = memref.cast %fixed : memref<4xf32> to memref<?xf32>
      %x = memref.load %back[%c1] : memref<?xf32>
      memref.store %x, %a1[%c0] : memref<?xf32>
      %p = memref.extract_aligned_pointer_as_index %a0 : memref<?xi8> -> index
      %q = memref.extract_aligned_pointer_as_index %v : memref<?xf32> -> index
      %d = arith.subi %q, %p : index
      %i = arith.index_cast %d : index to i32
      %f = arith.sitofp %i : i32 to f32
      memref.store %f, %a1[%c1] : memref<?xf32>
      %y = vector.load %a1[%c0] : memref<?xf32>, vector<2xf32>
      vector.store %y, %a1[%four] : memref<?xf32>, vector<2xf32>"""
    bytes_, out = np.arange(8, dtype=np.float32).view(np.int8), np.zeros(8, np.float32)
    kernels.run(body, bytes_, out)
    assert out.tolist() == [3, 8, 0, 0, 3, 8, 0, 0]


@pytest.mark.parametrize("i", [0, 1 << 20, 1 << 50])
def test_a_prefetch_may_be_of_memory_that_is_not_there(i):
    body = f"""
      %far = arith.constant {i} : index
      memref.prefetch %a0[%far], read, locality<3>, data : memref<?xf32>
      memref.store %one, %a0[%c0] : memref<?xf32>"""
    out = np.zeros(1, np.float32)
    kernels.run(f"%one = arith.constant 1.0 : f32{body}", out)
    assert out[0] == 1


REDUCTIONS = {
    ("add", np.int32): np.sum,
    ("mul", np.int32): np.prod,
    ("and", np.int32): np.bitwise_and.reduce,
    ("or", np.int32): np.bitwise_or.reduce,
    ("xor", np.int32): np.bitwise_xor.reduce,
    ("minsi", np.int8): np.min,
    ("maxsi", np.int64): np.max,
    ("minui", np.int8): lambda x: _unsigned(x).min().astype(np.int8),
    ("maxui", np.int32): lambda x: _unsigned(x).max().astype(np.int32),
    ("add", np.float32): np.sum,
    ("mul", np.float64): np.prod,
    ("maximumf", np.float32): np.max,
    ("minimumf", np.float64): np.min,
}


@pytest.mark.parametrize("kind, dtype", REDUCTIONS)
def test_reductions(kind, dtype):
    t = kernels.mlir_type(dtype)
    float_like = dtype in FLOATS
    x = _ints(dtype, 1)[4:20] if not float_like else np.arange(1, 17).astype(dtype) / np.asarray(8, dtype)
    flags = "fastmath<reassoc> " if float_like and kind in ("add", "mul") else ""
    body = f"""
      %v = vector.load %a0[%c0] : memref<?x{t}>, vector<16x{t}>
      %r = vector.reduction <{kind}>, %v {flags}: vector<16x{t}> into {t}
      memref.store %r, %a1[%c0] : memref<?x{t}>"""
    out = np.zeros(1, dtype)
    kernels.run(body, x, out)
    with np.errstate(over="ignore"):
        expected = REDUCTIONS[kind, dtype](x)
    np.testing.assert_allclose(out[0].astype(np.float64), float(np.asarray(expected).astype(dtype)), rtol=1e-5)


def test_nan_in_maximum_reductions():
    x = np.arange(16, dtype=np.float32)
    x[5] = np.nan
    body = """
      %v = vector.load %a0[%c0] : memref<?xf32>, vector<16xf32>
      %r = vector.reduction <maximumf>, %v : vector<16xf32> into f32
      memref.store %r, %a1[%c0] : memref<?xf32>"""
    out = np.zeros(1, np.float32)
    kernels.run(body, x, out)
    assert np.isnan(out[0])


def test_vector_rearrangement():
    body = """
      %v = vector.load %a0[%c0] : memref<?xi32>, vector<8xi32>
      %w = vector.load %a0[%c1] : memref<?xi32>, vector<4xi32>
      %e0 = vector.extract %v[3] : i32 from vector<8xi32>
      %e1 = vector.extract %v[2] : i32 from vector<8xi32>
      %s0 = vector.shuffle %v, %w [0, 8, 11, 7] : vector<8xi32>, vector<4xi32>
      %s1 = vector.shuffle %w, %v [0, 4, 11, 3] : vector<4xi32>, vector<8xi32>
      %il = vector.interleave %s0, %s1 : vector<4xi32> -> vector<8xi32>
      %b = vector.broadcast %e0 : i32 to vector<4xi32>
      %st = vector.step : vector<8xindex>
      %si = arith.index_cast %st : vector<8xindex> to vector<8xi32>
      %fe = vector.from_elements %e0, %e1, %e0, %e1 : vector<4xi32>
      %cm = vector.constant_mask [3] : vector<8xi1>
      %cs = arith.select %cm, %v, %si : vector<8xi1>, vector<8xi32>
      %n8 = arith.constant 8 : index
      %n16 = arith.constant 16 : index
      %n24 = arith.constant 24 : index
      %n28 = arith.constant 28 : index
      vector.store %il, %a1[%c0] : memref<?xi32>, vector<8xi32>
      vector.store %si, %a1[%n8] : memref<?xi32>, vector<8xi32>
      vector.store %cs, %a1[%n16] : memref<?xi32>, vector<8xi32>
      vector.store %b, %a1[%n24] : memref<?xi32>, vector<4xi32>
      vector.store %fe, %a1[%n28] : memref<?xi32>, vector<4xi32>"""
    x = np.arange(10, 20, dtype=np.int32)
    out = np.zeros(32, np.int32)
    kernels.run(body, x, out)
    assert out[:8].tolist() == [10, 11, 11, 10, 14, 17, 17, 14]
    assert out[8:16].tolist() == list(range(8))
    assert out[16:24].tolist() == [10, 11, 12, 3, 4, 5, 6, 7]
    assert out[24:].tolist() == [13, 13, 13, 13, 13, 12, 13, 12]


def test_vector_bitcast_between_widths():
    body = """
      %v = vector.load %a0[%c0] : memref<?xf32>, vector<4xf32>
      %b = vector.bitcast %v : vector<4xf32> to vector<16xi8>
      vector.store %b, %a1[%c0] : memref<?xi8>, vector<16xi8>"""
    x, out = np.arange(4, dtype=np.float32), np.zeros(16, np.int8)
    kernels.run(body, x, out)
    _same(out, x.view(np.int8))


def test_control_flow():
    # nested loops with results, an if with and without an else, a while loop, and loops that never run
    body = """
      %n64 = memref.load %a0[%c0] : memref<?xi64>
      %n = arith.index_cast %n64 : i64 to index
      %zero = arith.constant 0 : i64
      %one = arith.constant 1 : i64
      %two = arith.constant 2 : i64
      %sum, %last = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero, %l = %one) -> (i64, i64) {
        %i64 = arith.index_cast %i : index to i64
        %t = scf.for %j = %c0 to %i step %c1 iter_args(%u = %s) -> (i64) {
          %odd = arith.andi %i64, %one : i64
          %c = arith.cmpi eq, %odd, %one : i64
          %w = scf.if %c -> (i64) {
            %x = arith.addi %u, %i64 : i64
            scf.yield %x : i64
          } else {
            scf.yield %u : i64
          }
          scf.yield %w : i64
        }
        scf.yield %t, %i64 : i64, i64
      }
      %steps, %at = scf.while (%k = %zero, %v = %n64) : (i64, i64) -> (i64, i64) {
        %go = arith.cmpi sgt, %v, %one : i64
        scf.condition(%go) %k, %v : i64, i64
      } do {
      ^bb0(%k: i64, %v: i64):
        %half = arith.divsi %v, %two : i64
        %more = arith.addi %k, %one : i64
        scf.yield %more, %half : i64, i64
      }
      %big = arith.cmpi sgt, %n64, %two : i64
      scf.if %big {
        memref.store %sum, %a1[%c0] : memref<?xi64>
      }
      %c2 = arith.constant 2 : index
      memref.store %last, %a1[%c1] : memref<?xi64>
      memref.store %steps, %a1[%c2] : memref<?xi64>"""
    for n in (0, 1, 2, 7, 100):
        out = np.full(3, -5, np.int64)
        kernels.run(body, np.array([n]), out)
        expected = sum(i * i for i in range(n) if i % 2)
        assert out[0] == (expected if n > 2 else -5)
        assert out[1] == (n - 1 if n else 1)
        assert out[2] == max(n, 1).bit_length() - 1


def test_loops_count_in_any_integer():
    body = """
      %zero = arith.constant 0 : i32
      %two = arith.constant 2 : i32
      %seven = arith.constant 7 : i32
      %s = scf.for %i = %zero to %seven step %two iter_args(%a = %zero) -> (i32) : i32 {
        %b = arith.addi %a, %i : i32
        scf.yield %b : i32
      }
      memref.store %s, %a0[%c0] : memref<?xi32>"""
    out = np.zeros(1, np.int32)
    kernels.run(body, out)
    assert out.tolist() == [12]


def test_device_functions_are_outlined_calls():
    functions = """
      func.func private @scaled(%s: f32, %x: memref<?xf32>, %i: index) -> f32 {
        %v = memref.load %x[%i] : memref<?xf32>
        %r = arith.mulf %v, %s : f32
        return %r : f32
      }
      func.func private @put(%v: vector<16xf32>, %x: memref<?xf32>) {
        %c0 = arith.constant 0 : index
        vector.store %v, %x[%c0] : memref<?xf32>, vector<16xf32>
        return
      }"""
    body = """
      %s = arith.constant 3.0 : f32
      %r = func.call @scaled(%s, %a0, %c1) : (f32, memref<?xf32>, index) -> f32
      %v = vector.broadcast %r : f32 to vector<16xf32>
      func.call @put(%v, %a1) : (vector<16xf32>, memref<?xf32>) -> ()"""
    for level in LEVELS:
        out = np.zeros(16, np.float32)
        kernels.run(body, np.array([1, 2, 3], np.float32), out, level=level, functions=functions)
        assert out.tolist() == [6.0] * 16


def test_blocks_and_fast_memory():
    body = """
      %b = gpu.block_id x
      %by = gpu.block_id y
      %i0 = arith.addi %b, %by : index
      %fast = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %four = arith.constant 4 : index
      %v = memref.view %fast[%four][%four]
        : memref<?xi8, #gpu.address_space<workgroup>> to memref<?xf32, #gpu.address_space<workgroup>>
      %g = memref.memory_space_cast %v : memref<?xf32, #gpu.address_space<workgroup>> to memref<?xf32>
      %x = memref.load %a0[%i0] : memref<?xf32>
      memref.store %x, %v[%c1] : memref<?xf32, #gpu.address_space<workgroup>>
      %y = memref.load %g[%c1] : memref<?xf32>
      %z = arith.addf %y, %y : f32
      memref.store %z, %a1[%b] : memref<?xf32>"""
    x, out = np.arange(11, dtype=np.float32), np.zeros(11, np.float32)
    kernels.run(body, x, out, blocks=11)
    _same(out, 2 * x)
    kernels.run(body, x, out, blocks=0)


PLAN = """
module {
  func.func @plan(%dims: memref<?xi64>, %env: memref<?xi64>) -> i32 attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %ok = arith.constant 0 : i32
    %bad = arith.constant 1 : i32
    %a = memref.load %dims[%c0] : memref<?xi64>
    %b = memref.load %dims[%c1] : memref<?xi64>
    %same = arith.cmpi eq, %a, %b : i64
    %p = func.call @double(%a) : (i64) -> i64
    memref.store %p, %env[%c0] : memref<?xi64>
    %r = arith.select %same, %ok, %bad : i32
    return %r : i32
  }
  func.func private @double(%x: i64) -> i64 {
    %y = arith.addi %x, %x : i64
    return %y : i64
  }
}"""


def test_exported_host_functions_have_the_c_abi():
    library = kernels.load(PLAN)
    plan = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(library.address("plan"))
    env = np.zeros(1, np.int64)
    for dims, status in (([5, 5], 0), ([5, 6], 1)):
        sizes = np.array(dims)
        assert plan(sizes.ctypes.data, env.ctypes.data) == status
        assert env[0] == 10
    with pytest.raises(KeyError, match="double"):
        library.address("double")


def test_main_reads_env_arena_and_buffers():
    text = """
    module {
      func.func @main(%call: !llvm.ptr, %env: memref<?xi64>, %arena: memref<?xi8>, %x: memref<?xf32>, %y: memref<?xi8>)
          attributes {llvm.emit_c_interface} {
        %c0 = arith.constant 0 : index
        %n = memref.load %env[%c0] : memref<?xi64>
        %i = arith.index_cast %n : i64 to index
        %v = memref.load %x[%i] : memref<?xf32>
        %b = arith.fptosi %v : f32 to i8
        memref.store %b, %arena[%i] : memref<?xi8>
        memref.store %b, %y[%c0] : memref<?xi8>
        return
      }
    }"""
    arena, out = np.zeros(4, np.int8), np.zeros(1, np.int8)
    kernels.main_of(kernels.load(text))(np.array([7, 8, 9], np.float32), out, env=np.array([2]), arena=arena)
    assert arena.tolist() == [0, 0, 9, 0] and out[0] == 9


def _refused(text: str, *words: str) -> None:
    with pytest.raises(CompileError) as error:
        compile_modules(x86.generator("host"), [kernels.parse(text)])
    for word in words:
        assert word in str(error.value), str(error.value)


def test_an_unknown_op_is_named_with_its_location():
    body = '%x = math.atan %s : f32 loc("model.py":7:3)'
    body = "%s = memref.load %a0[%c0] : memref<?xf32>\n" + body + "\nmemref.store %x, %a0[%c0] : memref<?xf32>"
    _refused(kernels.kernel_module(body, ["f32"]), "math.atan", "model.py", "7")


def test_types_that_have_no_layout_are_refused():
    body = "%v = memref.load %a0[%c0] : memref<?xi1>\nmemref.store %v, %a0[%c1] : memref<?xi1>"
    _refused(kernels.kernel_module(body, ["i1"]), "memref<?xi1>")
    body = """%s = memref.load %a0[%c0] : memref<?xf32>
      %v = vector.broadcast %s : f32 to vector<2x8xf32>
      %w = arith.negf %v : vector<2x8xf32>
      %x = vector.shuffle %v, %w [1, 2] : vector<2x8xf32>, vector<2x8xf32>
      %y = vector.extract %x[0] : vector<8xf32> from vector<2x8xf32>
      vector.store %y, %a0[%c0] : memref<?xf32>, vector<8xf32>"""
    _refused(kernels.kernel_module(body, ["f32"]), "vector<2x8xf32>", "rank 1")


REFUSED_FORMS = {
    "a reduction starts with nothing": """%s = vector.extract %v[0] : f32 from vector<8xf32>
      %y = vector.reduction <add>, %v, %s : vector<8xf32> into f32""",
    "at least 32 bits": """%h = arith.truncf %v : vector<8xf32> to vector<8xf16>
      %g = vector.reduction <add>, %h : vector<8xf16> into f16
      %y = arith.extf %g : f16 to f32""",
    "a lane is taken by its number": """%n = gpu.block_id x
      %y = vector.extract %v[%n] : f32 from vector<8xf32>""",
    "counts with a sign": """%n = gpu.block_id x
      %z = arith.constant 0.0 : f32
      %y = scf.for unsigned %i = %c0 to %n step %c1 iter_args(%a = %z) -> (f32) {
        %x = memref.load %a0[%i] : memref<?xf32>
        %b = arith.addf %a, %x : f32
        scf.yield %b : f32
      }""",
}


@pytest.mark.parametrize("message", REFUSED_FORMS)
def test_forms_that_nothing_builds_are_refused(message):
    body = f"""%v = vector.load %a0[%c0] : memref<?xf32>, vector<8xf32>
      {REFUSED_FORMS[message]}
      memref.store %y, %a0[%c0] : memref<?xf32>"""
    _refused(kernels.kernel_module(body, ["f32"]), message)


# What nobody builds, but MLIR's canonicalizer makes of what is built.
CANONICAL = {
    "ub.poison": ("vector.shuffle %x, %y [0, 2] : vector<4xf32>, vector<4xf32>", "vector<2xf32>"),
    "vector.constant_mask": ("vector.create_mask %three : vector<4xi1>", "vector<4xi1>"),
    "vector.interleave": ("vector.shuffle %x, %y [0, 2, 1, 3] : vector<2xf32>, vector<2xf32>", "vector<4xf32>"),
}


def test_every_op_that_is_translated_is_built():
    package = Path(mlir.__file__).parent
    source = "".join(path.read_text() for path in [package / "kernel_ops.py", *(package / "stitch").rglob("*.py")])
    built = set(re.findall(r'"(\w+\.\w+)"', source))
    for dialect, name in re.findall(r"\b(\w+)\.(\w+Op)\b", source):
        built.add(getattr(getattr(getattr(mlir, dialect, None), name, None), "OPERATION_NAME", ""))
    assert set(HANDLERS) - built == set(CANONICAL)
    assert set(re.findall(r"\b([A-Z]\w+)\(", source)) >= {op.__name__ for op in EXTENSIONS}


@pytest.mark.parametrize("name", CANONICAL)
def test_the_canonicalizer_makes_what_nobody_builds(name):
    op, result = CANONICAL[name]
    operand = op.rpartition(", ")[2] if "shuffle" in op else "f32"
    text = f"""func.func @f(%x: {operand}, %y: {operand}) -> {result} {{
      %three = arith.constant 3 : index
      %r = {op}
      return %r : {result}
    }}"""
    module = mlir.ir.Module.parse(text, context=mlir.context())
    mlir.run_passes(module, "canonicalize,cse")
    assert name in str(module)


def test_an_intrinsic_that_could_abort_the_process_is_refused():
    body = """%x = memref.load %a0[%c0] : memref<?xf32>
      %y = llvm.call_intrinsic "llvm.amdgcn.rcp.f32"(%x) : (f32) -> f32
      memref.store %y, %a0[%c0] : memref<?xf32>"""
    _refused(kernels.kernel_module(body, ["f32"]), "llvm.amdgcn.rcp.f32")


def test_an_op_of_ours_that_is_misspelt_is_refused():
    body = 'llvm.call_intrinsic "llvm.hlo_disc.tile.zeros"() {register = 0 : i64} : () -> ()'
    _refused(kernels.kernel_module(body, ["f32"]), "tile.zeros")
    body = 'llvm.call_intrinsic "llvm.hlo_disc.tile.zero"() : () -> ()'
    _refused(kernels.kernel_module(body, ["f32"]), "tile.zero has no register")


def test_an_intrinsic_with_the_wrong_types_is_an_error():
    body = """%x = memref.load %a0[%c0] : memref<?xf32>
      %m = arith.constant true
      %y = llvm.call_intrinsic "llvm.hlo_disc.compress"(%x, %m) : (f32, i1) -> f32
      memref.store %y, %a0[%c0] : memref<?xf32>"""
    _refused(kernels.kernel_module(body, ["f32"]), "compress", "vector")


def test_pairs_are_refused_where_the_machine_has_no_such_instruction():
    body = """%s = vector.load %a0[%c0] : memref<?xf32>, vector<8xf32>
      %x = vector.bitcast %s : vector<8xf32> to vector<16xbf16>
      %y = llvm.call_intrinsic "llvm.hlo_disc.pair_dot"(%s, %x, %x) :
        (vector<8xf32>, vector<16xbf16>, vector<16xbf16>) -> vector<8xf32>
      vector.store %y, %a0[%c0] : memref<?xf32>, vector<8xf32>"""
    with pytest.raises(CompileError, match="pairs of bf16"):
        compile_modules(x86.generator("avx2"), [kernels.parse(kernels.kernel_module(body, ["f32"]))])


def test_registers_of_matrices_are_refused_where_the_machine_has_none():
    body = 'llvm.call_intrinsic "llvm.hlo_disc.tile.zero"() {register = 0 : i64} : () -> ()'
    with pytest.raises(CompileError, match="registers of small matrices"):
        compile_modules(x86.generator("avx2"), [kernels.parse(kernels.kernel_module(body, ["f32"]))])


@pytest.mark.parametrize("level", kernels.levels())
def test_compress(level):
    x = np.arange(16, dtype=np.int32)
    text = """%two = arith.constant dense<2> : vector<16xi32>
      %rest = arith.remui %x0, %two : vector<16xi32>
      %odd = arith.trunci %rest : vector<16xi32> to vector<16xi1>
      %r = llvm.call_intrinsic "llvm.hlo_disc.compress"(%x0, %odd) :
        (vector<16xi32>, vector<16xi1>) -> vector<16xi32>"""
    out = kernels.apply(text, [x], np.int32, 16, level)
    assert out[:8].tolist() == [1, 3, 5, 7, 9, 11, 13, 15]


def test_a_launch_without_the_runtime_pointer_is_an_error():
    text = kernels.kernel_module("", ["f32"]).replace("%call: !llvm.ptr, ", "").replace("llvm.emit_c_interface", "")
    _refused(text, "gpu.launch_func", "!llvm.ptr")


def test_fast_memory_outside_a_kernel_is_an_error():
    functions = """func.func private @f() -> i8 {
      %c0 = arith.constant 0 : index
      %fast = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %x = memref.load %fast[%c0] : memref<?xi8, #gpu.address_space<workgroup>>
      return %x : i8
    }"""
    body = "%x = func.call @f() : () -> i8\nmemref.store %x, %a0[%c0] : memref<?xi8>"
    _refused(kernels.kernel_module(body, ["i8"], functions=functions), "gpu.dynamic_shared_memory", "kernel")


def test_names_of_kernels_and_host_functions_do_not_clash():
    text = kernels.kernel_module("memref.store %x, %a0[%c0] : memref<?xf32>", ["f32"])
    text = text.replace("%c1 = arith.constant 1 : index", "%x = arith.constant 4.0 : f32", 1)
    text = text.replace("gpu.func @k(", "gpu.func @main(").replace("@kernels::@k ", "@kernels::@main ")
    out = np.zeros(1, np.float32)
    kernels.main_of(kernels.load(text))(out)
    assert out[0] == 4


def test_passes_are_made_once(monkeypatch):
    """Passes are made once where that is asked for. Other pipelines may differ from module to module."""
    modules = [kernels.parse(kernels.kernel_module("", ["f32"])) for _ in range(3)]
    canonicalize(modules[:1])
    made = []
    parse = mlir.PassManager.parse
    monkeypatch.setattr(mlir, "PassManager", SimpleNamespace(parse=lambda text: made.append(text) or parse(text)))
    canonicalize(modules[1:])
    assert not made
    mlir.run_passes(modules[0], "cse")
    mlir.run_passes(modules[0], "cse")
    assert made == ["builtin.module(cse)"] * 2
