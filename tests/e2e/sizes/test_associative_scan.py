"""`jax.lax.associative_scan`, and scans over arrays whose lengths are alike at calls: one program for all lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.by_xla import at_each
from jax import lax
from jax.lax import associative_scan  # before anything is traced, as libraries do

import hlo_disc

SIZES = (5, 16, 1, 7, 0, 33, 2, 64) if depth.full else (5, 16, 1, 0, 33)


def floats(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).uniform(-1, 1, shape), jnp.float32)


def linear(left: Any, right: Any) -> Any:
    """h = a h + b, whose operands may not change places."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def both(a: jax.Array, b: jax.Array, **settings: Any) -> Any:
    return lax.associative_scan(linear, (a, b), **settings)


Row = tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]
SCANS: dict[str, Row] = {
    "sum": (lambda x: associative_scan(jnp.add, x), lambda n: (floats(n),)),
    "linear": (both, lambda n: (floats(n, 3), floats(n, 3))),
    "reversed": (lambda a, b: both(a, b, reverse=True), lambda n: (floats(n, 3), floats(n, 3))),
    "another axis": (lambda a, b: both(a, b, reverse=True, axis=1), lambda n: (floats(2, n, 3), floats(2, n, 3))),
    "the last axis": (lambda a, b: both(a, b, axis=-1), lambda n: (floats(2, n), floats(2, n))),
    "matrices": (
        lambda x: lax.associative_scan(jax.vmap(jnp.matmul), x, reverse=True),
        lambda n: (floats(n, 3, 3),),
    ),
    "last one set": (lambda x: lax.associative_scan(lambda a, b: jnp.where(b > 0, b, a), x), lambda n: (floats(n),)),
    "tree": (
        lambda x: lax.associative_scan(
            lambda a, b: {"p": a["p"] + b["p"], "q": jnp.maximum(a["q"], b["q"])}, {"p": x, "q": x * 2}
        ),
        lambda n: (floats(n),),
    ),
    "integers": (lambda x: lax.associative_scan(jnp.minimum, x), lambda n: (jnp.arange(n) * 7 % 5,)),
    "weak types": (lambda x: lax.associative_scan(jnp.multiply, jnp.exp(1j * x)), lambda n: (jnp.arange(n),)),
    "gradient": (
        jax.grad(lambda a, b: sum(x.sum() for x in both(a, b))),
        lambda n: (floats(n, 3), floats(n, 3)),
    ),
    "vmap": (jax.vmap(both), lambda n: (floats(2, n, 3), floats(2, n, 3))),
    "lengths that are alike": (lambda x: both(x[1:], x[:-1]), lambda n: (floats(n + 1),)),
    "infinities": (lambda x: lax.associative_scan(jnp.add, 1 / x), lambda n: (jnp.arange(float(n)) - 3,)),
    "scan over two lengths": (
        lambda a, b: lax.scan(lambda c, x: (c + x[0].sum() * x[1], c), jnp.zeros(()), (a[1:], b)),
        lambda n: (floats(n + 1, 4), floats(n)),
    ),
    "vmap over two lengths": (
        lambda a, b: jax.vmap(lambda x, y: x * y)(a[1:], b),
        lambda n: (floats(n + 1), floats(n)),
    ),
}


@pytest.mark.parametrize("name", SCANS)
def test_one_program_for_all_lengths(name: str) -> None:
    fn, make = SCANS[name]
    compiled = hlo_disc.jit(fn)
    for n, wanted in zip(SIZES, at_each(fn, map(make, SIZES)), strict=True):
        got = compiled(*make(n))
        assert jax.tree.structure(got) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # That of the first call, which knows no dims yet; that for all; and of less than two elements, where that differs.
    assert compiled.stats().compilations <= 3 and not compiled.stats().fallbacks


MISTAKES: dict[str, Callable[[jax.Array], Any]] = {
    "lengths": lambda x: lax.associative_scan(linear, (x, x[1:])),
    "no function": lambda x: lax.associative_scan(3, x),
    "axis": lambda x: lax.associative_scan(jnp.add, x, axis=2),
    "reversed axis": lambda x: lax.associative_scan(jnp.add, x, axis=-1, reverse=True),
    "dtype": lambda x: lax.associative_scan(lambda a, b: (a + b).astype(jnp.float16), x),
    "lengths of a scan": lambda x: lax.scan(lambda c, x: (c, x), 0, (x, x[1:])),
    "lengths of a vmap": lambda x: jax.vmap(jnp.add)(x, x[1:]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_those_of_jax(name: str) -> None:
    compiled = hlo_disc.jit(MISTAKES[name], dims={"x": "(n)"})
    for n in (5, 6, 9):
        with pytest.raises(Exception) as wanted:  # noqa: PT011 - whichever JAX raises
            jax.jit(MISTAKES[name])(floats(n))
        with pytest.raises(wanted.type) as got:
            compiled(floats(n))
        assert str(got.value) == str(wanted.value)


def test_jax_has_its_own_function_back() -> None:
    """Outside of our traces it makes what it made before: no loop."""
    hlo_disc.jit(lambda x: associative_scan(jnp.add, x))(floats(3))
    assert "scan" not in str(jax.make_jaxpr(lambda x: associative_scan(jnp.add, x))(floats(8)))
    (n,) = jax.export.symbolic_shape("n")
    with pytest.raises(NotImplementedError, match="non-constant size"):
        jax.eval_shape(lambda x: associative_scan(jnp.add, x), jax.ShapeDtypeStruct((n,), jnp.float32))
