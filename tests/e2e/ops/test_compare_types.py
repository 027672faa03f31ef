"""`stablehlo.compare` by each `compare_type`, and sorting, which JAX does by total order."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import mlir
from hlo_disc.conformance.oracle import XlaProgram, refine
from hlo_disc.dynamic_hlo.ir.dtypes import FLOATS, INTEGERS, bit_width, element_type, int_limits
from hlo_disc.mlir import ir

DIRECTIONS = {"LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal}
NUMBERS = (0.0, -0.0, 1, -1, 0.5, 2, 4, np.inf, -np.inf, np.nan)


def module(dtype: np.dtype, order: str) -> str:
    """All directions of one comparison."""
    kind = f"tensor<?x{element_type(dtype)}>"
    names = [f"%r{i}" for i in range(len(DIRECTIONS))]
    lines = (
        f"{name} = stablehlo.compare {direction}, %a, %b, {order} : ({kind}, {kind}) -> tensor<?xi1>"
        for name, direction in zip(names, DIRECTIONS, strict=True)
    )
    types = ", ".join(["tensor<?xi1>"] * len(names))
    body = "\n".join((*lines, f"return {', '.join(names)} : {types}"))
    return f"module {{ func.func public @main(%a: {kind}, %b: {kind}) -> ({types}) {{\n{body}\n}} }}"


@pytest.mark.parametrize("order", ["SIGNED", "UNSIGNED"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=element_type)
def test_integers_are_compared_as_it_says(dtype, order):
    lowest, highest = int_limits(dtype)
    values = np.array(list(itertools.product({lowest, lowest + 1, 0, 1, highest}, repeat=2)), object).T.astype(dtype)
    modulus = 1 << bit_width(dtype)

    def seen(x: np.ndarray) -> np.ndarray:
        bits = [int(v) % modulus for v in x]
        return np.array([v - modulus if order == "SIGNED" and 2 * v >= modulus else v for v in bits], object)

    compiled = hlo_disc.compile(module(dtype, order))
    for n in (values.shape[1], 7, 1, 0):
        a, b = values[:, :n]
        for got, (direction, expected) in zip(compiled(a, b), DIRECTIONS.items(), strict=True):
            np.testing.assert_array_equal(got, expected(seen(a), seen(b)).astype(bool), err_msg=direction)


def test_a_comparison_of_sizes_as_unsigned():
    """An unsigned comparison is shape arithmetic, but it may not decide about sizes below 0."""
    compiled = hlo_disc.compile("""
    module { func.func public @main(%x: tensor<?xf32>) -> tensor<i1> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
      %four = stablehlo.constant dense<4> : tensor<i32>
      %less = stablehlo.subtract %n, %four : tensor<i32>
      %r = stablehlo.compare GT, %less, %four, UNSIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %r : tensor<i1>
    } }""")
    assert [bool(compiled(np.zeros(n, np.float32))) for n in (0, 3, 4, 8, 9)] == [True, True, False, False, True]


# Of six bits XLA:CPU compiles no comparison.
@pytest.mark.parametrize("dtype", [d for d in FLOATS if bit_width(d) != 6], ids=element_type)
def test_floats_are_ordered_as_by_xla(dtype):
    values = np.array(list(itertools.product(NUMBERS, repeat=2))).T.astype(dtype)
    text = module(dtype, "TOTALORDER")
    parsed = ir.Module.parse(text, context=mlir.context())
    expected = XlaProgram(refine(parsed, [(dtype, values[0].shape)] * 2))(list(values))
    for got, wanted, direction in zip(hlo_disc.compile(text)(*values), expected, DIRECTIONS, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=direction)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.itemsize == 1], ids=element_type)
def test_small_floats_are_sorted_as_by_jax(dtype):
    compiled = hlo_disc.jit(jnp.argsort)
    for n in (len(NUMBERS), 3, 1, 0):
        x = np.array(NUMBERS[-n:] if n else (), np.float32).astype(dtype)
        wide = x.astype(np.float32) if bit_width(dtype) == 6 else x
        np.testing.assert_array_equal(compiled(x), jax.jit(jnp.argsort)(wide))
