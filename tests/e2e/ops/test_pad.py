"""`dynamic_pad` whose gaps between elements are sizes, or data: one program at every size, against XLA's `lax.pad`.

Then what `pad`, `concatenate` and `repeat` put together for each other.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.by_xla import at_each
from jax import lax

import hlo_disc
from hlo_disc.errors import ShapeError

# Gaps are as long as g has columns, edges three less than h has elements.
BY_SIZE = """
func.func @main(%x: tensor<?x?xTYPE>, %g: tensor<?xi32>, %h: tensor<?xi32>, %v: tensor<TYPE>) -> tensor<?x?xTYPE> {
  %c3 = stablehlo.constant dense<3> : tensor<i32>
  %n = stablehlo.get_dimension_size %g, dim = 0 : (tensor<?xi32>) -> tensor<i32>
  %m = stablehlo.get_dimension_size %h, dim = 0 : (tensor<?xi32>) -> tensor<i32>
  %k = stablehlo.subtract %m, %c3 : tensor<i32>
  %a = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %b = stablehlo.reshape %k : (tensor<i32>) -> tensor<1xi32>
  %one = stablehlo.constant dense<1> : tensor<1xi32>
  %edges = stablehlo.concatenate %b, %b, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %gaps = stablehlo.concatenate GAPS, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %y = stablehlo.dynamic_pad %x, %v, %edges, %edges, %gaps
    : (tensor<?x?xTYPE>, tensor<TYPE>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xTYPE>
  return %y : tensor<?x?xTYPE>
}"""
BY_DATA = """
func.func @main(%x: tensor<?xf32>, %g: tensor<1xi32>) -> tensor<?xf32> {
  %v = stablehlo.constant dense<7.0> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<1xi32>
  %y = stablehlo.dynamic_pad %x, %v, %z, %z, %g
    : (tensor<?xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}"""


@pytest.mark.parametrize("gaps", ["%a, %one", "%one, %a", "%a, %a"])
@pytest.mark.parametrize("dtype", ["f32", "i1"])
def test_gaps_that_are_sizes(gaps, dtype):
    exe = hlo_disc.compile(BY_SIZE.replace("TYPE", dtype).replace("GAPS", gaps), dims=["r, c", "g", "h", ""])
    random = np.random.default_rng(0)
    one, right = np.ones((), bool if dtype == "i1" else np.float32), []
    for (r, c), g, h in itertools.product([(0, 3), (1, 1), (3, 0), (5, 19)], (0, 1, 2, 9), (0, 2, 3, 6)):
        x = random.integers(0, 2, (r, c)).astype(one.dtype)
        given = x, np.zeros(g, np.int32), np.zeros(h, np.int32), one
        config = [(h - 3, h - 3, g if gap.strip() == "%a" else 1) for gap in gaps.split(",")]
        if any(n + max(n - 1, 0) * gap + 2 * low < 0 for n, (low, _, gap) in zip(x.shape, config, strict=True)):
            with pytest.raises(ShapeError, match="would be padded to the size -"):
                exe(*given)
        else:
            right.append((x, config, exe(*given)))
    wanted = jax.jit(lambda xs: [lax.pad(x, one, config) for x, (_, config, _) in zip(xs, right, strict=True)])
    for (_, _, result), theirs in zip(right, wanted([x for x, _, _ in right]), strict=True):
        np.testing.assert_array_equal(result, theirs)


def test_gaps_that_are_data():
    exe = hlo_disc.compile(BY_DATA)
    for n, gap in itertools.product((0, 1, 2, 30), (0, 1, 5)):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(exe(x, np.array([gap], np.int32)), lax.pad(x, np.float32(7), [(0, 0, gap)]))
    with pytest.raises(ShapeError, match="interior padding of dimension 0 is -1"):
        exe(np.ones(3, np.float32), np.array([-1], np.int32))


def test_gaps_less_than_none():
    text = BY_SIZE.replace("TYPE", "f32").replace("GAPS", "%b, %one")
    exe = hlo_disc.compile(text, dims=["r, c", "g", "h", ""])
    with pytest.raises(ShapeError, match="interior padding of dimension 0 is -1"):
        exe(np.ones((9, 9), np.float32), np.zeros(1, np.int32), np.zeros(2, np.int32), np.float32(0))


def _repeated(x, y):
    return jnp.concatenate([jnp.repeat(jnp.repeat(x, 2, 0), 3, 1), y], -1)


# Functions of x (n, m, 6) and y (2 n, 3 m, 5), and how often they launch a kernel.
ASSEMBLED = {
    "pad of parts": (lambda x, y: jnp.pad(jnp.concatenate([x, jnp.tanh(x), x + 1], 1), 1), 4),
    "parts of pads": (lambda x, y: jnp.concatenate([jnp.pad(x, 2, constant_values=1), jnp.pad(x, 2)], 2), 4),
    "pad of a pad": (lambda x, y: lax.pad(lax.pad(x, 1.0, [(1, 2, 1)] * 3), 2.0, [(0, 3, 2)] * 3), 3),
    "cut": (lambda x, y: lax.pad(jnp.concatenate([x, x], 0), 1.0, [(-1, 2, 0), (0, -1, 0), (1, 1, 0)]), 4),
    "read twice": (lambda x, y: (z := jnp.concatenate([x, -x]), jnp.pad(z, 1)), 4),
    "parts that come later": (lambda x, y: jnp.concatenate([jnp.zeros_like(x), x])[::-1] + jnp.concatenate([x, x]), 5),
    "repeated rows": (_repeated, 2),
    "repeated rows, padded": (lambda x, y: jnp.pad(_repeated(x, y), 1), 3),
    "repeated rows of a sum": (lambda x, y: jnp.repeat(x.sum(2), 3, 0) + y[..., 0].sum(), 2),
}


@pytest.mark.parametrize("name", ASSEMBLED)
def test_what_is_assembled_of_parts_is_written_once(name):
    fn, launches = ASSEMBLED[name]
    compiled = hlo_disc.jit(fn, dims={"x": "(n, m, _)", "y": "(2*n, 3*m, _)"})
    calls = []
    for n, m in ((3, 4), (1, 1), (2, 0), (0, 3), (17, 5)):
        rng = np.random.default_rng(n)
        if name != "cut" or n and m:  # otherwise it is more than there is
            calls.append(
                [rng.standard_normal((n, m, 6), np.float32), rng.standard_normal((2 * n, 3 * m, 5), np.float32)]
            )
    for call, want in zip(calls, at_each(fn, calls), strict=True):
        for one, other in zip(jax.tree.leaves(compiled(*call)), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert f"{launches} launches" in str(compiled.explain(full=True))
