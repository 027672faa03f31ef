"""Windows that reach outside of an array, where the initial value is no identity: JAX's programs follow XLA.

XLA leaves padding and holes out. StableHLO's specification takes them for initial values. Where a window is a whole
long axis, XLA takes the initial value for an identity and counts it several times: no test here has such windows.
"""

from __future__ import annotations

import re

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.by_xla import run_stablehlo
from jax import lax
from tracing import Spec, trace

import hlo_disc
from hlo_disc import mlir
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.print.text import dense
from hlo_disc.import_.stablehlo.decode import array

# Window, strides, dilations of the array and of the window, padding: all on both axes.
WINDOWS = {
    "padding": ((2, 3), (1, 1), (1, 1), (1, 1), ((1, 0), (0, 2))),
    "strides": ((3, 2), (2, 3), (1, 1), (1, 1), ((2, 2), (1, 1))),
    "holes": ((2, 3), (1, 2), (2, 3), (1, 1), ((0, 0), (0, 0))),
    "holes and padding": ((3, 2), (1, 1), (3, 1), (1, 2), ((1, 2), (2, 0))),
    "windows outside": ((1, 2), (1, 1), (1, 1), (1, 1), ((2, 2), (3, 3))),
    "cut and padded": ((2, 2), (1, 1), (2, 1), (1, 1), ((-1, 1), (1, -1))),
    "nothing outside": ((2, 2), (1, 1), (1, 1), (2, 1), ((0, 0), (-1, 0))),
}
COMBINE = {"sum": lax.add, "product": lax.mul, "maximum": lax.max, "difference": lax.sub, "last": lambda a, b: b}
SHAPES = ((4, 5), (1, 7), (5, 1), (0, 3), (9, 40))


def windows(name: str) -> dict:
    window, strides, base, holes, padding = WINDOWS[name]
    return dict(
        window_dimensions=window, window_strides=strides, padding=padding, base_dilation=base, window_dilation=holes
    )


def numbers(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    """Return small integers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@depth.sampled(2)
@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("name", WINDOWS)
def test_jax(name, combine):
    def fn(x, init):
        return lax.reduce_window(x, init, COMBINE[combine], **windows(name))

    dynamic = hlo_disc.compile(fn, "f32[n + 2, m + 2]", "f32[]")
    static = hlo_disc.compile(lambda x: fn(x, np.float32(10)), "f32[4, 5]")
    np.testing.assert_array_equal(static(numbers((4, 5))), jax.jit(fn)(numbers((4, 5)), np.float32(10)))
    for shape in SHAPES:
        x = numbers((shape[0] + 2, shape[1] + 2))
        np.testing.assert_array_equal(dynamic(x, np.float32(10)), jax.jit(fn)(x, np.float32(10)))


@pytest.mark.parametrize("combine", COMBINE)
def test_rows_of_one_element_are_not_read_outside(combine, emulated_targets):
    """Lanes may run along such an axis. Its index is no part of an address, so the row's address must be inside."""

    def fn(x):
        return lax.reduce_window(x, np.float32(1), COMBINE[combine], (3, 2), (1, 1), ((2, 1), (1, 2)))

    executable = hlo_disc.compile(fn, "f32[n, 1]", target="emulated-cuda")
    for n in (1, 2, 5, 9):
        np.testing.assert_array_equal(executable(numbers((n, 1))), jax.jit(fn)(numbers((n, 1))))


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float64", "complex64"])
def test_types(dtype):
    init, combine = np.ones((), dtype), lax.bitwise_xor if dtype == "bool" else lax.add

    def fn(x):
        return lax.reduce_window(x, init, combine, **windows("holes and padding"))

    with jax.enable_x64(True):
        x = jnp.asarray(numbers((6, 7))).astype(dtype)
        np.testing.assert_array_equal(hlo_disc.compile(fn, x)(x), jax.jit(fn)(x))


def test_several_operands():
    """The results are the pair with the largest sum, where values outside would win, and a count of elements."""

    def best(a, b):
        first = a[0] + a[1] >= b[0] + b[1]
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1]), a[2] + b[2]

    def fn(x, y):
        inits = np.float32(-1), np.float32(-1), np.int32(1)
        ones = jnp.ones(x.shape, np.int32)
        return lax.reduce_window((x, y, ones), inits, best, **windows("holes and padding"))

    exe = hlo_disc.compile(fn, "f32[n + 2, m + 2]", "f32[n + 2, m + 2]")
    for rows, columns in SHAPES:
        x, y = (numbers((rows + 2, columns + 2), seed=seed) for seed in (1, 2))
        for got, want in zip(exe(x, y), jax.jit(fn)(x, y), strict=True):
            np.testing.assert_array_equal(got, want)


def test_an_export_is_jaxs_and_text_is_stablehlos():
    def fn(x):
        return lax.reduce_window(x, np.float32(10), lax.add, **windows("holes and padding"))

    x = numbers((4, 5))
    exported = jax.export.export(jax.jit(fn))(x)
    inside = np.asarray(jax.jit(fn)(x))
    np.testing.assert_array_equal(hlo_disc.compile(exported)(x), inside)
    filled = interpreted(exported.mlir_module(), x)
    assert (filled != inside).any()
    np.testing.assert_array_equal(hlo_disc.compile(exported.mlir_module_serialized)(x), filled)
    # As DHLO the program says the same to both.
    text = to_stablehlo(trace(fn, Spec("4, 5", "float32"))[0])
    np.testing.assert_array_equal(hlo_disc.compile(text)(x), inside)
    np.testing.assert_array_equal(run_stablehlo(text, [x])[0], inside)


def interpreted(text: str, x: np.ndarray) -> np.ndarray:
    """Return the result of StableHLO's interpreter for a program."""
    with mlir.context():
        given = mlir.ir.Attribute.parse(f"{dense(x)} : tensor<{'x'.join(map(str, x.shape))}xf32>")
        module = mlir.ir.Module.parse(text)
        mlir.run_passes(module, "inline")
        (result,) = mlir.stablehlo.eval_module(module, [mlir.ir.DenseElementsAttr(given)])
    return array(result, np.dtype(np.float32))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("op", ["add", "multiply", "maximum"])
def test_stablehlo(name, op):
    window, strides, base, holes, padding = WINDOWS[name]
    edges = f"[[{padding[0][0]}, {padding[0][1]}], [{padding[1][0]}, {padding[1][1]}]]"
    attributes = ", ".join(
        f"{key} = array<i64: {value[0]}, {value[1]}>"
        for key, value in {
            "window_dimensions": window, "window_strides": strides, "base_dilations": base, "window_dilations": holes,
        }.items()
    )  # fmt: skip
    text = f"""
      func.func @main(%x: tensor<4x5xf32>) -> tensor<?x?xf32> {{
        %i = stablehlo.constant dense<10.0> : tensor<f32>
        %r = "stablehlo.reduce_window"(%x, %i) <{{{attributes},
          padding = dense<{edges}> : tensor<2x2xi64>}}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %s = stablehlo.{op} %a, %b : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }}) : (tensor<4x5xf32>, tensor<f32>) -> tensor<?x?xf32>
        return %r : tensor<?x?xf32>
      }}"""
    x = numbers((4, 5))
    result = hlo_disc.compile(text)(x)
    static = re.sub(r"tensor<\?x\?xf32>", f"tensor<{result.shape[0]}x{result.shape[1]}xf32>", text)
    np.testing.assert_array_equal(result, interpreted(static, x))


@pytest.mark.parametrize("init", [0.0, 10.0])
@pytest.mark.parametrize("combine", ["add", "multiply", "subtract"])
def test_select_and_scatter(init, combine):
    """Every element starts once with the initial value, in XLA and the specification. Outer windows select nothing."""
    text = f"""
      func.func @main(%x: tensor<4x5xf32>, %s: tensor<5x4xf32>) -> tensor<4x5xf32> {{
        %i = stablehlo.constant dense<{init}> : tensor<f32>
        %r = "stablehlo.select_and_scatter"(%x, %s, %i) <{{window_dimensions = array<i64: 2, 2>,
          window_strides = array<i64: 1, 2>, padding = dense<[[1, 1], [2, 2]]> : tensor<2x2xi64>}}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }}, {{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.{combine} %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
        }}) : (tensor<4x5xf32>, tensor<5x4xf32>, tensor<f32>) -> tensor<4x5xf32>
        return %r : tensor<4x5xf32>
      }}"""
    x, source = numbers((4, 5)), numbers((5, 4), seed=1)
    np.testing.assert_array_equal(hlo_disc.compile(text)(x, source), run_stablehlo(text, [x, source])[0])
