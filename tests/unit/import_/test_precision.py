"""The precision that a program asks of its products, and which of them round to TF32 then."""

from __future__ import annotations

import depth
import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc
from hlo_disc.errors import UnsupportedOpError

ALGORITHM = (
    "algorithm = <lhs_precision_type = {0}, rhs_precision_type = {1}, accumulation_type = {2}, "
    "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = {3}, "
    "allow_imprecise_accumulation = false>"
)
# What is asked of a product of f32, and whether it may round its operands to TF32.
ASKED = {
    "": True,
    ", precision = [DEFAULT, DEFAULT]": True,
    ", precision = [HIGH, DEFAULT]": True,
    ", precision = [HIGHEST, DEFAULT]": False,
    ", precision = [DEFAULT, HIGHEST]": False,
    ", " + ALGORITHM.format("tf32", "tf32", "f32", 1): True,
    ", " + ALGORITHM.format("bf16", "bf16", "f32", 1): True,
    ", " + ALGORITHM.format("f16", "f16", "f16", 1): True,
    ", " + ALGORITHM.format("bf16", "bf16", "f32", 3): False,
    ", " + ALGORITHM.format("tf32", "tf32", "f32", 3): False,
    ", " + ALGORITHM.format("f32", "f32", "f32", 1): False,
    ", precision = [DEFAULT, DEFAULT], " + ALGORITHM.format("f32", "f32", "f32", 1): False,
}


def module(asked: str, kind: str = "f32") -> str:
    return f"""
      func.func @main(%x: tensor<?x20x{kind}>, %y: tensor<20x?x{kind}>) -> tensor<?x?x{kind}> {{
        %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]{asked}
          : (tensor<?x20x{kind}>, tensor<20x?x{kind}>) -> tensor<?x?x{kind}>
        return %r : tensor<?x?x{kind}>
      }}"""


def operands(kind: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Return x, whose first column is a number that rounds up, and y, which is all ones."""
    x, y = np.zeros((3, 20), kind), np.ones((20, 5), kind)
    x[:, 0] = 1 + 2.0**-11
    return x, y


@depth.sampled(2)
@pytest.mark.parametrize("asked", ASKED)
def test_products_of_f32(asked, emulated_targets):
    x, y = operands()
    for target in ("emulated-cuda", "emulated-rocm", "cpu"):
        rounds = ASKED[asked] and target == "emulated-cuda"
        result = np.asarray(hlo_disc.compile(module(asked), target=target)(x, y))
        np.testing.assert_array_equal(result, np.float32(1 + 2.0**-10 if rounds else 1 + 2.0**-11))
    emulated.check()


def test_products_of_other_types_are_as_exact_as_ever(emulated_targets):
    x, y = operands("float64")
    result = np.asarray(hlo_disc.compile(module("", "f64"), target="emulated-cuda")(x, y))
    emulated.check()
    np.testing.assert_array_equal(result, 1 + 2.0**-11)


def test_sums_that_nobody_has():
    with pytest.raises(UnsupportedOpError, match="sums in f64"):
        hlo_disc.compile(module(", " + ALGORITHM.format("f64", "f64", "f64", 1)))


@pytest.mark.parametrize("form", ["jnp", "einsum", "batch", "derivative", "jit", "in a loop"])
def test_precision_of_jax(form, emulated_targets):
    """JAX's precision is an argument or a setting, however the product comes to be."""
    x, y = operands()
    programs = {
        "jnp": lambda x, y, p: jnp.matmul(x, y, precision=p),
        "einsum": lambda x, y, p: jnp.einsum("mk,kn->mn", x, y, precision=p),
        "batch": lambda x, y, p: jax.vmap(lambda x: jnp.matmul(x, y, precision=p))(x[:, None])[:, 0],
        "derivative": lambda x, y, p: (
            jax.vjp(lambda y: jnp.matmul(x, y, precision=p), y)[1](jnp.ones((3, 5)))[0][:1] / 3
        ),
        "jit": lambda x, y, p: jax.jit(lambda x, y: jnp.dot(x, y, precision=p))(x, y),
        "in a loop": lambda x, y, p: lax.map(lambda x: jnp.matmul(x, y, precision=p), x[:, None])[:, 0],
    }
    for precision, rounds in {"default": True, "highest": False, None: False}.items():
        function = lambda x, y, p=precision: programs[form](x, y, p)  # noqa: E731
        result = np.asarray(hlo_disc.compile(function, "f32[3, 20]", "f32[20, 5]", target="emulated-cuda")(x, y))
        emulated.check()
        expected = np.full_like(result, 1 + 2.0**-10 if rounds else 1 + 2.0**-11)
        np.testing.assert_array_equal(result, expected, str(precision))


def test_numbers_that_tf32_rounds(emulated_targets):
    """Numbers round to nearest, ties away from zero. Beyond the largest number they become infinite."""
    top = np.float32(3.4028235e38)
    numbers = [
        1 + 2.0**-11,
        -1 - 2.0**-11,
        1 + 2.0**-11 - 2.0**-23,
        1 + 3 * 2.0**-12,
        0.0,
        -0.0,
        2.0**-149,
        np.inf,
        top,
    ]
    rounded = [1 + 2.0**-10, -1 - 2.0**-10, 1.0, 1 + 2.0**-10, 0.0, 0.0, 0.0, np.inf, np.inf]
    with jax.default_matmul_precision("default"):
        executable = hlo_disc.compile(lambda x, y: x @ y, "f32[m, 1]", "f32[1, 1]", target="emulated-cuda")
    result = np.asarray(executable(np.array(numbers, np.float32)[:, None], np.ones((1, 1), np.float32)))
    emulated.check()
    np.testing.assert_array_equal(result[:, 0], np.array(rounded, np.float32))
