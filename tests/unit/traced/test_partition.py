"""A program and its derivatives, taken apart: what is kept for later, and that both together are the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.passes.partition import SEED, Parts, partition
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.import_.jax import from_jax

DIMS = {1: ("n",), 2: ("n", None), 3: (None, "n", None)}


def parts_of(fn: Callable[..., Any], *arrays: np.ndarray) -> Parts:
    """The parts of a function of one result, differentiated by all arrays."""

    def both(*xs: Any) -> list[Any]:
        result, pull = jax.vjp(fn, *xs)
        seed = jax.ffi.ffi_call(f"{SEED}0", jax.ShapeDtypeStruct(result.shape, result.dtype))(result)
        return [result, *pull(seed)]

    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays]
    dims = [DIMS[x.ndim] for x in arrays]
    names = [f"x{i}" for i in range(len(arrays))]
    return partition(simplify(from_jax(both, structs, dims, names)[0]), 1)


def names(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops]


def shapes(graph: Graph) -> list[tuple[str, ...]]:
    return [tuple(map(str, value.shape)) for value in graph.outputs]


X, W = np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5), np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def softmax(x):
    return jax.nn.softmax(x, -1)


def kept(x):
    """exp and sin of what a dot makes: one of the two, or what both follow from, is enough."""
    y = x @ jnp.asarray(W)
    return jnp.exp(y) * jnp.sin(y)


@pytest.mark.parametrize("fn", [softmax, kept, jnp.tanh, lambda x: x + 1, lambda x: jnp.cumsum(x * x, 1), jnp.sum])
@pytest.mark.parametrize("n", [1, 3, 4])
def test_both_parts_are_the_whole(fn: Callable[..., Any], n: int) -> None:
    x = np.linspace(-2, 2, 5 * n, dtype=np.float32).reshape(n, 5)
    parts = parts_of(fn, X)
    made = evaluate(parts.forward, [x])
    result, pull = jax.vjp(fn, x)
    np.testing.assert_allclose(made[0], result, rtol=1e-5, atol=1e-5)
    ct = np.cos(np.arange(result.size)).reshape(result.shape).astype(np.float32)
    (found,) = evaluate(parts.backward, [x, *(made[k] for k in parts.needed), *(ct for _ in parts.seeds)])
    np.testing.assert_allclose(found, pull(jnp.asarray(ct))[0], rtol=1e-4, atol=1e-6)


def test_what_only_inputs_make_is_made_again() -> None:
    parts = parts_of(lambda x: jnp.sin(x) * jnp.exp(x), X)
    assert parts.needed == () and len(parts.forward.outputs) == 1
    assert "sine" in names(parts.backward) or "cosine" in names(parts.backward)


def test_a_result_is_kept_already() -> None:
    parts = parts_of(lambda x: jnp.tanh(x @ jnp.asarray(W)), X)
    assert parts.needed == (0,) and len(parts.forward.outputs) == 1


def test_dots_are_not_made_again() -> None:
    parts = parts_of(kept, X)
    assert shapes(parts.forward)[1:] == [("n", "4")]
    assert names(parts.backward).count("dot_general") == 1  # of the derivative


def test_the_smaller_of_two_is_kept() -> None:
    """A row's sum, and not the row that it is spread over."""
    parts = parts_of(lambda x: jnp.sin(x) * jnp.exp(jnp.sum(x * x, -1, keepdims=True)), X)
    assert [s for s in shapes(parts.forward)[1:] if "5" in s] == []


def test_a_linear_function_keeps_nothing() -> None:
    parts = parts_of(lambda x: x @ jnp.asarray(W), X)
    assert parts.needed == () and parts.seeds == (0,)


def test_seeds_that_nothing_follows_from() -> None:
    parts = parts_of(lambda x: jnp.ones(3) + 0 * x.shape[1], X)
    assert parts.seeds == () and evaluate(parts.backward, [X])[0].tolist() == np.zeros_like(X).tolist()


def test_sizes_of_what_is_kept_are_guarded() -> None:
    parts = parts_of(kept, X)
    assert any(str(guard.lhs).startswith("%1.") for guard in parts.backward.guards)
