"""CHLO's elementwise ops, plain and broadcasting, and the names under which other frameworks write them."""

from __future__ import annotations

import depth
import jax
import numpy as np
import pytest
from comparison.by_xla import run_stablehlo

import hlo_disc
from hlo_disc.errors import ShapeError, UnsupportedOpError
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

UNARY = "acos acosh asin asinh atan atanh bessel_i1e conj cosh digamma erf erf_inv erfc lgamma sinh square tan".split()
TESTS = ("is_inf", "is_neg_inf", "is_pos_inf")
BINARY = ("next_after", "polygamma", "zeta")
BROADCASTING = "add atan2 divide maximum minimum multiply next_after polygamma power remainder subtract zeta".split()
SERIES = {"polygamma", "zeta"}  # thousands of instructions each
BITS = "and or shift_left shift_right_arithmetic shift_right_logical xor".split()
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
# numbers of every size, but none that XLA takes for zero
LINE = (0.5, -0.3, 1.5, 2.7, 0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, -2.5, 1e-3, 1.0, -1.0, 0.999, 30.25, 7.0, 2.0)
SIZES = (0, 1, 7, 31, 33, 257)


def module(lines: list[str], inputs: list[str], outputs: list[str]) -> str:
    """A module of `lines` that puts out %0, %1 … of the types `outputs`."""
    args = ", ".join(f"%{chr(ord('a') + i)}: {kind}" for i, kind in enumerate(inputs))
    results = ", ".join(f"%{i}" for i in range(len(outputs)))
    body = "\n  ".join(lines)
    return (
        f"func.func @main({args}) -> ({', '.join(outputs)}) {{\n  {body}\n  return {results} : {', '.join(outputs)}\n}}"
    )


def assert_close(ours: np.ndarray, theirs: np.ndarray, name: str, ulps: float = 64) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, name
    if ours.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs, name)
        return
    # such functions cancel near their zeros: an error there is one of the largest value around
    np.testing.assert_allclose(
        ours.astype(np.float64),
        theirs.astype(np.float64),
        rtol=ulps * float(np.finfo(ours.dtype).eps),
        atol=ulps * float(np.finfo(ours.dtype).eps) / 8,
        err_msg=name,
    )


@pytest.mark.parametrize("element", DTYPES)
def test_functions(element):
    kind = f"tensor<?x{element}>"
    lines = [f"%{i} = chlo.{name} %a : {kind} -> {kind}" for i, name in enumerate(UNARY)]
    count = len(UNARY)
    lines += [f"%{count + i} = chlo.{name} %a : {kind} -> tensor<?xi1>" for i, name in enumerate(TESTS)]
    names = (*UNARY, *TESTS, *BINARY)
    count = len(UNARY) + len(TESTS)
    lines += [f"%{count + i} = chlo.{name} %b, %a : {kind}, {kind} -> {kind}" for i, name in enumerate(BINARY)]
    outputs = [kind] * len(UNARY) + ["tensor<?xi1>"] * len(TESTS) + [kind] * len(BINARY)
    text = module(lines, [kind, kind], outputs)
    executable = hlo_disc.compile(text)
    for size in SIZES:
        x = np.resize(np.array(LINE, DTYPES[element]), size)
        y = np.resize(np.array([2, 3, 1, 5], DTYPES[element]), size)
        results = executable(x, y)
        assert all(result.shape == (size,) for result in results)
        if size in (0, 33):
            for name, ours, theirs in zip(names, results, run_stablehlo(text, [x, y]), strict=True):
                assert_close(ours, theirs, name)


@pytest.mark.parametrize("element, bits", (("i8", 8), ("ui8", 8), ("i32", 32), ("ui32", 32), ("i64", 64), ("ui64", 64)))
def test_mulhi(element, bits):
    kind = f"tensor<?x{element}>"
    executable = hlo_disc.compile(module([f"%0 = chlo.mulhi %a, %b : {kind}, {kind} -> {kind}"], [kind] * 2, [kind]))
    dtype = np.dtype(element.replace("ui", "uint") if element[0] == "u" else element.replace("i", "int"))
    limits = np.iinfo(dtype)
    line = [limits.min, limits.max, limits.max // 3, 0, 1, 5, limits.max - 1, limits.min // 2]
    a, b = (np.array(side, dtype) for side in zip(*[(x, y) for x in line for y in line], strict=True))
    assert executable(a, b).tolist() == [(int(x) * int(y)) >> bits for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(
    "left, right, result, pairs",
    (
        ("?", "?", "?", [((5,), (5,)), ((1,), (4,)), ((4,), (1,)), ((0,), (1,)), ((1,), (1,))]),
        ("?x4", "4", "?x4", [((3, 4), (4,)), ((0, 4), (4,))]),
        ("", "?x3", "?x3", [((), (5, 3))]),
        ("?x1", "?x?", "?x?", [((5, 1), (5, 7)), ((1, 1), (2, 3)), ((5, 1), (1, 7))]),
        ("2x1x?", "3x?", "2x3x?", [((2, 1, 5), (3, 5)), ((2, 1, 1), (3, 5)), ((2, 1, 5), (3, 1))]),
    ),
)
def test_broadcasting(left, right, result, pairs):
    def types(element: str) -> list[str]:
        return [f"tensor<{sizes}{'x' if sizes else ''}{element}>" for sizes in (left, right, result)]

    left_out = set() if depth.full or left == "2x1x?" else SERIES
    names = [name for name in BROADCASTING + BITS if name not in left_out]
    lines, outputs = [], []
    for i, name in enumerate(names):
        a, b, out = types("i32" if name in BITS else "f32")
        x, y = ("%c", "%d") if name in BITS else ("%a", "%b")
        lines.append(f"%{i} = chlo.broadcast_{name} {x}, {y} : ({a}, {b}) -> {out}")
        outputs.append(out)
    (a, b, _), (c, d, _) = types("f32"), types("i32")
    executable = hlo_disc.compile(module(lines, [a, b, c, d], outputs))
    rng = np.random.default_rng(0)
    for one, two in pairs:
        x, y = rng.uniform(2, 5, one).astype(np.float32), rng.integers(2, 6, two).astype(np.float32)
        n, m = rng.integers(-50, 50, one).astype(np.int32), rng.integers(0, 9, two).astype(np.int32)
        shape = np.broadcast_shapes(one, two)
        results = dict(zip(names, executable(x, y, n, m), strict=True))
        assert all(value.shape == shape for value in results.values())
        np.testing.assert_array_equal(results["add"], x + y)
        np.testing.assert_array_equal(results["remainder"], np.fmod(x, y))
        np.testing.assert_array_equal(results["next_after"], np.nextafter(x, y))
        np.testing.assert_array_equal(results["shift_left"], n << m)
        np.testing.assert_array_equal(results["xor"], n ^ m)
        if (one, two) != pairs[0]:
            continue
        same = [np.ascontiguousarray(np.broadcast_to(v, shape)) for v in (x, y)]
        kinds = ["tensor<" + "".join(f"{size}x" for size in shape) + "f32>"] * 2
        binary = [name for name in BINARY if name not in left_out]
        plain = [f"%{i} = chlo.{name} %a, %b : {kinds[0]}, {kinds[0]} -> {kinds[0]}" for i, name in enumerate(binary)]
        computed = hlo_disc.compile(module(plain, kinds, [kinds[0]] * len(plain)))(*same)
        for name, ours in zip(binary, jax.tree.leaves(computed), strict=True):
            np.testing.assert_array_equal(results[name], ours)


def test_broadcasting_compare_and_select():
    executable = hlo_disc.compile("""
    func.func @main(%a: tensor<?xf32>, %b: tensor<?x?xf32>) -> (tensor<?x?xi1>, tensor<?x?xf32>) {
      %0 = chlo.broadcast_compare %a, %b {broadcast_dimensions = array<i64: 0>,
          comparison_direction = #chlo<comparison_direction LT>} : (tensor<?xf32>, tensor<?x?xf32>) -> tensor<?x?xi1>
      %1 = stablehlo.constant dense<7.0> : tensor<f32>
      %2 = chlo.broadcast_select %0, %1, %b : (tensor<?x?xi1>, tensor<f32>, tensor<?x?xf32>) -> tensor<?x?xf32>
      return %0, %2 : tensor<?x?xi1>, tensor<?x?xf32>
    }""")
    for rows, columns in ((3, 5), (1, 1), (0, 4), (4, 4)):
        a, b = np.arange(rows, dtype=np.float32), np.random.default_rng(1).uniform(0, 4, (rows, columns))
        less, chosen = executable(a, b.astype(np.float32))
        np.testing.assert_array_equal(less, a[:, None] < b.astype(np.float32))
        np.testing.assert_array_equal(chosen, np.where(less, np.float32(7), b.astype(np.float32)))


def test_sizes_that_do_not_broadcast():
    kinds = ["tensor<?xf32>"] * 2
    executable = hlo_disc.compile(module(["%0 = chlo.broadcast_add %a, %b : (tensor<?xf32>, tensor<?xf32>) -> "
                                          "tensor<?xf32>"], kinds, kinds[:1]))  # fmt: skip
    with pytest.raises(ShapeError, match="neither 1 nor"):
        executable(np.zeros(2, np.float32), np.zeros(3, np.float32))


@pytest.mark.parametrize("dialect", ("mhlo", "chlo"))
def test_custom_calls_by_name(dialect):
    kind = "tensor<?xf32>"
    names = ("erf", "tan", "asinh", "lgamma", "next_after")
    lines = [
        f"%{i} = stablehlo.custom_call @{dialect}.{name}({'%a, %a' if name == 'next_after' else '%a'}) : "
        f"({', '.join([kind] * (1 + (name == 'next_after')))}) -> {kind}"
        for i, name in enumerate(names)
    ]
    x = np.array([0.25, -0.5, 3.0], np.float32)
    erf, tan, asinh, lgamma, after = hlo_disc.compile(module(lines, [kind], [kind] * len(names)))(x)
    np.testing.assert_allclose(tan, np.tan(x), rtol=1e-6)
    np.testing.assert_allclose(asinh, np.arcsinh(x), rtol=1e-6)
    np.testing.assert_allclose(lgamma, [1.2880225, 1.2655121, 0.6931472], rtol=1e-5)
    np.testing.assert_allclose(erf, [0.2763264, -0.5204999, 0.9999779], rtol=1e-6)
    np.testing.assert_array_equal(after, x)


def test_a_composite_is_its_decomposition_unless_there_is_an_op():
    text = """
    func.func @main(%a: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
      %0 = stablehlo.composite "chlo.erf" %a {decomposition = @f} : (tensor<?xf32>) -> tensor<?xf32>
      %1 = stablehlo.composite "my.negate" %a {decomposition = @f} : (tensor<?xf32>) -> tensor<?xf32>
      return %0, %1 : tensor<?xf32>, tensor<?xf32>
    }
    func.func private @f(%a: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.negate %a : tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    assert [op.name for op in read_module(load_module(text)).ops] == ["erf", "negate"]


def test_an_unknown_name_is_refused():
    kind = "tensor<?xf32>"
    with pytest.raises(UnsupportedOpError, match="chlo.no_such"):
        hlo_disc.compile(module([f"%0 = stablehlo.custom_call @chlo.no_such(%a) : ({kind}) -> {kind}"], [kind], [kind]))
