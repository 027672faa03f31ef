"""Sizes that are equal and written otherwise: by what is known of them, and where only a check says so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.errors import ShapeError

# At these sizes floordiv(n, 4) is 3, and the slice below has floordiv(n + 4, 8) - 1 rows, which is 1.
ONE_ROW = ["n // 8 == 1", "n // 4 % 2 == 1"]

SLICED = """
func.func @main(%x: tensor<?x?xf32>, %y: tensor<1x?xf32>) -> (tensor<?x?xf32>, tensor<1x?x5xf32>) {
  %start = stablehlo.constant dense<[2, 0]> : tensor<2xi32>
  %step = stablehlo.constant dense<[2, 1]> : tensor<2xi32>
  %four = stablehlo.constant dense<[4, 1]> : tensor<2xi32>
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x?xf32>) -> tensor<i32>
  %m = stablehlo.get_dimension_size %x, dim = 1 : (tensor<?x?xf32>) -> tensor<i32>
  %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %m1 = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
  %nm = stablehlo.concatenate %n1, %m1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %limit = stablehlo.divide %nm, %four : tensor<2xi32>
  %z = stablehlo.real_dynamic_slice %x, %start, %limit, %step
    : (tensor<?x?xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
  %s = stablehlo.multiply %z, %y : (tensor<?x?xf32>, tensor<1x?xf32>) -> tensor<?x?xf32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %five = stablehlo.constant dense<5> : tensor<1xi32>
  %shape = stablehlo.concatenate %one, %m1, %five, dim = 0
    : (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<3xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %z, %shape, dims = [0, 1]
    : (tensor<?x?xf32>, tensor<3xi32>) -> tensor<1x?x5xf32>
  %t = stablehlo.add %b, %b : tensor<1x?x5xf32>
  return %s, %t : tensor<?x?xf32>, tensor<1x?x5xf32>
}"""


def test_a_slice_has_one_row():
    exe = hlo_disc.compile(SLICED, dims={0: "(n, m)", 1: "(1, m)"}, constraints=ONE_ROW)
    for n, m in [(12, 3), (15, 1), (13, 0), (14, 65)]:
        x, y = np.random.default_rng(n).standard_normal((2, n, m)).astype(np.float32)
        product, spread = exe(x, y[:1])
        np.testing.assert_array_equal(product, x[2:3] * y[:1])
        np.testing.assert_array_equal(spread, np.repeat(x[2:3, :, None], 5, 2) * 2)


def rows_are_written_otherwise(x, y):
    return -lax.slice(x, (0, 1), (y.shape[0] // 16, x.shape[1]), (1, 1))


def a_row_of_windows(x):
    highest = lax.reduce_window(x, -np.inf, lax.max, (16, 1), (16, 1), "VALID")
    return jnp.exp2(highest)[0, 1:], jnp.sin(lax.dynamic_slice_in_dim(highest, x.shape[1] % 2, 1, 0))


def the_only_row(x, y):
    return -jnp.abs(x)[0, 1:], jnp.cumsum(jnp.abs(x), 1) + y.sum()


# Each has axes of floordiv(n, 16) elements, which is 1, beside axes of 1.
@pytest.mark.parametrize(
    ("function", "specs"),
    [
        (rows_are_written_otherwise, ("f32[1, m]", "f32[n]")),
        (a_row_of_windows, ("f32[n, m]",)),
        (the_only_row, ("f32[floordiv(n, 16), m]", "f32[n]")),
    ],
)
def test_an_axis_of_one_that_is_written_otherwise(function, specs):
    exe = hlo_disc.compile(function, *specs, constraints=["n >= 16", "n <= 31", "m >= 1"])
    for n, m in [(16, 1), (20, 5), (31, 33)]:
        shapes = {"f32[1, m]": (1, m), "f32[n]": (n,), "f32[n, m]": (n, m), "f32[floordiv(n, 16), m]": (1, m)}
        args = [np.random.default_rng(n).standard_normal(shapes[spec]).astype(np.float32) for spec in specs]
        for got, want in zip(jax.tree.leaves(exe(*args)), jax.tree.leaves(jax.jit(function)(*args)), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_function_whose_slice_has_one_row():
    def function(x):
        y = x[2 : x.shape[0] // 4 : 2]
        return lax.mul(y, x[:1]), lax.cumsum(y, 1) - x[1:2], y @ x.T

    exe = hlo_disc.compile(function, "f32[n, m]", constraints=ONE_ROW)
    for n, m in [(12, 3), (15, 17)]:
        x = np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)
        wanted = x[2:3] * x[:1], np.cumsum(x[2:3], 1) - x[1:2], x[2:3] @ x.T
        for got, want in zip(exe(x), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


# %a or %b has as many rows as data say, the other one has one.
CHECKED = """
func.func @main(%k: tensor<i32>, %x: tensor<?xf32>, %y: tensor<1x3xf32>)
    -> (tensor<?x3xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?x3xf32>, tensor<?x3xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %three = stablehlo.constant dense<3> : tensor<1xi32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %kv = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
  %h = stablehlo.real_dynamic_slice %x, %zero, %kv, %one
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %v = stablehlo.concatenate %kv, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %m = stablehlo.dynamic_broadcast_in_dim %h, %v, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %e = stablehlo.abs %y : tensor<1x3xf32>
  %w = stablehlo.convert %e : (tensor<1x3xf32>) -> tensor<?x3xf32>
  %p = stablehlo.compare GT, %A, %B : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xi1>
  %s = stablehlo.select %p, %A, %B : (tensor<?x3xi1>, tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
  %r:2 = "stablehlo.reduce"(%A, %B, %z, %z) ({
    ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<f32>, %q1: tensor<f32>):
      %sum = stablehlo.add %p0, %p1 : tensor<f32>
      %max = stablehlo.maximum %q0, %q1 : tensor<f32>
      stablehlo.return %sum, %max : tensor<f32>, tensor<f32>
  }) {dimensions = array<i64: 1>}
    : (tensor<?x3xf32>, tensor<?x3xf32>, tensor<f32>, tensor<f32>) -> (tensor<?xf32>, tensor<?xf32>)
  %c:2 = "stablehlo.reduce_window"(%A, %B, %z, %z) ({
    ^bb0(%p0: tensor<f32>, %q0: tensor<f32>, %p1: tensor<f32>, %q1: tensor<f32>):
      %sum = stablehlo.add %p0, %p1 : tensor<f32>
      %max = stablehlo.maximum %q0, %q1 : tensor<f32>
      stablehlo.return %sum, %max : tensor<f32>, tensor<f32>
  }) {window_dimensions = array<i64: 1, 3>, padding = dense<[[0, 0], [2, 0]]> : tensor<2x2xi64>}
    : (tensor<?x3xf32>, tensor<?x3xf32>, tensor<f32>, tensor<f32>) -> (tensor<?x3xf32>, tensor<?x3xf32>)
  return %s, %r#0, %r#1, %c#0, %c#1
    : tensor<?x3xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?x3xf32>, tensor<?x3xf32>
}"""


SPREAD = """
func.func @main(%k: tensor<i32>, %x: tensor<?xf32>) -> tensor<1x3xf32> {
  %zero = stablehlo.constant dense<0> : tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %kv = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
  %h = stablehlo.real_dynamic_slice %x, %zero, %kv, %one
    : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  %s = stablehlo.constant dense<[1, 3]> : tensor<2xi32>
  %b = stablehlo.dynamic_broadcast_in_dim %h, %s, dims = [0] : (tensor<?xf32>, tensor<2xi32>) -> tensor<1x3xf32>
  %r = stablehlo.negate %b : tensor<1x3xf32>
  return %r : tensor<1x3xf32>
}"""


def test_a_check_says_that_what_is_spread_is_one():
    exe = hlo_disc.compile(SPREAD)
    x = np.array([4, 5], np.float32)
    np.testing.assert_array_equal(exe(np.int32(1), x), np.full((1, 3), -4, np.float32))
    with pytest.raises(ShapeError):
        exe(np.int32(2), x)


@pytest.mark.parametrize("turned", [False, True])
def test_a_check_says_that_there_is_one_row(turned):
    a, b = ("%w", "%m") if turned else ("%m", "%w")
    exe = hlo_disc.compile(CHECKED.replace("%A", a).replace("%B", b))
    x, y = np.array([4, 5], np.float32), np.array([[6, -5, 1]], np.float32)
    data, plain = np.full((1, 3), 4, np.float32), np.abs(y)
    left, right = (plain, data) if turned else (data, plain)
    wanted = [np.where(left > right, left, right), left.sum(1), right.max(1)]
    wanted += [left.cumsum(1), np.maximum.accumulate(right, 1)]
    for got, want in zip(exe(np.int32(1), x, y), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    for k in (0, 2):
        sizes = f"1 and {k}" if turned else f"{k} and 1"
        with pytest.raises(ShapeError, match=f"dimension 0 of operands 0 and 1 must be equal, but they are {sizes}"):
            exe(np.int32(k), x, y)
