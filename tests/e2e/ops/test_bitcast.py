"""`bitcast_convert` between every two widths: against StableHLO's interpreter, and at many sizes against the reference.

XLA takes a bool for 8 bits and makes results of other shapes than the module says, and JAX refuses bools and complex
numbers: the specification and its interpreter decide.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo_disc
from hlo_disc import mlir
from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class, element_type
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.print.text import dense
from hlo_disc.import_.stablehlo.decode import array
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module

TYPES = [
    np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        "bool", "int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn", "int8", "uint8", "float8_e5m2",
        "int16", "bfloat16", "uint32", "float32", "int64", "float64",
    )
]  # fmt: skip
REAL, COMPLEX = [np.dtype(x) for x in (np.float32, np.float64)], [np.dtype(x) for x in (np.complex64, np.complex128)]


def pairs(source: np.dtype) -> list[np.dtype]:
    """The types of another width that elements of `source` have as parts, or are parts of."""
    width = bit_width(source)
    other = [t for t in TYPES if bit_width(t) != width]
    return [t for t in other if max(bit_width(t), width) % min(bit_width(t), width) == 0]


def module(source: np.dtype, targets: list[np.dtype], size: str) -> str:
    """An input [size, 3] for each narrower target, and [size, 3, parts] for each wider one, cast."""
    lines, inputs, outputs = [], [], []
    for k, target in enumerate(targets):
        short, long = sorted((bit_width(source), bit_width(target)))
        whole, parts = f"{size}x3x", f"{size}x3x{long // short}x"
        if bit_width(source) == short:
            whole, parts = parts, whole
        given, made = f"tensor<{whole}{element_type(source)}>", f"tensor<{parts}{element_type(target)}>"
        inputs.append(f"%x{k}: {given}")
        outputs.append(made)
        lines.append(f"%y{k} = stablehlo.bitcast_convert %x{k} : ({given}) -> {made}")
    returned = ", ".join(f"%y{k}" for k in range(len(targets)))
    head = f"func.func @main({', '.join(inputs)}) -> ({', '.join(outputs)})"
    return "\n".join([f"{head} {{", *lines, f"return {returned} : {', '.join(outputs)}", "}"])


def random(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits but those of NaN."""
    width = bit_width(dtype)
    bits = np.random.default_rng(0).integers(0, 1 << min(width, 63), shape, np.uint64) << (width // 64)
    x = bits.astype(f"u{dtype.itemsize}")
    x = x.astype(dtype) if width < 8 and dtype_class(dtype) != "float" else x.view(dtype)
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x), np.ones((), dtype), x) if dtype_class(dtype) == "float" else x


def interpreted(text: str, arrays: list[np.ndarray], dtypes: list[np.dtype]) -> list[np.ndarray]:
    with mlir.context():
        types = ("".join(f"{n}x" for n in a.shape) + element_type(a.dtype) for a in arrays)
        texts = [f"{dense(a)} : tensor<{kind}>" for a, kind in zip(arrays, types, strict=True)]
        given = [mlir.ir.DenseElementsAttr(mlir.ir.Attribute.parse(text)) for text in texts]
        results = mlir.stablehlo.eval_module(mlir.ir.Module.parse(text), given)
    return [array(result, dtype) for result, dtype in zip(results, dtypes, strict=True)]


def assert_equal(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if dtype_class(got.dtype) == "float":
        with np.errstate(invalid="ignore"):
            got, want = (x.astype(np.float64) for x in (got, want))
        np.testing.assert_array_equal(np.signbit(got) | np.isnan(got), np.signbit(want) | np.isnan(want))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_between_widths(source):
    targets = pairs(source)
    text = module(source, targets, "?")
    exe = hlo_disc.compile(text)
    graph = read_module(load_module(text))
    for size in (3, 0, 1, 65):
        given = [v.shape[1:] for v in graph.inputs]
        arrays = [random(source, (size, *(d.value for d in rest))) for rest in given]
        results = exe.native(*arrays)
        expected = evaluate(graph, arrays)
        for got, want in zip(results, expected, strict=True):
            assert_equal(got, want)
        if size == 3:
            for got, want in zip(results, interpreted(module(source, targets, "3"), arrays, targets), strict=True):
                assert_equal(got, want)


def test_computed_bools_and_a_loop():
    """Bits that are no input, and a cast inside of a loop: the bits of a counter, put together again."""
    exe = hlo_disc.compile("""
      func.func @main(%x: tensor<?xui16>) -> (tensor<?xui16>, tensor<?xi32>) {
        %z = stablehlo.constant dense<0> : tensor<i32>
        %five = stablehlo.constant dense<5> : tensor<i32>
        %bits = stablehlo.bitcast_convert %x : (tensor<?xui16>) -> tensor<?x16xi1>
        %no = stablehlo.not %bits : tensor<?x16xi1>
        %y = stablehlo.bitcast_convert %no : (tensor<?x16xi1>) -> tensor<?xui16>
        %n:2 = stablehlo.while(%i = %z, %w = %y) : tensor<i32>, tensor<?xui16> cond {
          %c = stablehlo.compare LT, %i, %five : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        } do {
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          %b = stablehlo.bitcast_convert %w : (tensor<?xui16>) -> tensor<?x16xi1>
          %r = stablehlo.reverse %b, dims = [1] : tensor<?x16xi1>
          %v = stablehlo.bitcast_convert %r : (tensor<?x16xi1>) -> tensor<?xui16>
          stablehlo.return %j, %v : tensor<i32>, tensor<?xui16>
        }
        %wide = stablehlo.convert %no : (tensor<?x16xi1>) -> tensor<?x16xi32>
        %count = stablehlo.reduce(%wide init: %z) applies stablehlo.add across dimensions = [1]
          : (tensor<?x16xi32>, tensor<i32>) -> tensor<?xi32>
        return %n#1, %count : tensor<?xui16>, tensor<?xi32>
      }""")
    for size in (0, 1, 100):
        x = np.random.default_rng(1).integers(0, 1 << 16, size, np.uint16)
        turned, count = exe(x)
        bits = np.unpackbits((~x).view(np.uint8).reshape(-1, 2), axis=1, bitorder="little")
        np.testing.assert_array_equal(count, bits.sum(1))
        np.testing.assert_array_equal(
            turned, np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(np.uint16)[:, 0]
        )


def test_complex_numbers():
    """complex128 as two complex64, and back; computed ones and those that are inputs."""
    exe = hlo_disc.compile("""
      func.func @main(%x: tensor<?xcomplex<f64>>)
          -> (tensor<?x2xcomplex<f32>>, tensor<?xcomplex<f64>>, tensor<?x2xf32>) {
        %y = stablehlo.bitcast_convert %x : (tensor<?xcomplex<f64>>) -> tensor<?x2xcomplex<f32>>
        %s = stablehlo.negate %x : tensor<?xcomplex<f64>>
        %p = stablehlo.bitcast_convert %s : (tensor<?xcomplex<f64>>) -> tensor<?x2xcomplex<f32>>
        %im = stablehlo.imag %p : (tensor<?x2xcomplex<f32>>) -> tensor<?x2xf32>
        %r = stablehlo.reverse %y, dims = [1] : tensor<?x2xcomplex<f32>>
        %t = stablehlo.bitcast_convert %r : (tensor<?x2xcomplex<f32>>) -> tensor<?xcomplex<f64>>
        return %y, %t, %im : tensor<?x2xcomplex<f32>>, tensor<?xcomplex<f64>>, tensor<?x2xf32>
      }""")
    for size in (0, 1, 33):
        random = np.random.default_rng(2).standard_normal((2, size))
        x = random[0] + 1j * random[1]
        parts, turned, im = exe(x)
        assert parts.tobytes() == x.tobytes() and parts.shape == (size, 2)
        assert turned.tobytes() == (x.imag + 1j * x.real).tobytes()
        np.testing.assert_array_equal(im, (-x).view(np.complex64).reshape(size, 2).imag)


def test_a_scalar_of_bools():
    exe = hlo_disc.compile("""
      func.func @main(%x: tensor<8xi1>) -> tensor<ui8> {
        %y = stablehlo.bitcast_convert %x : (tensor<8xi1>) -> tensor<ui8>
        return %y : tensor<ui8>
      }""")
    assert exe(np.array([1, 0, 0, 0, 0, 0, 1, 1], bool)) == 0b11000001
