"""Products of loops that run once, after them: which do, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, all_ops
from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.passes.loop_products import multiply_after_loops
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.import_.jax import from_jax

W, U = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5), np.linspace(1, -1, 25, dtype=np.float32).reshape(5, 5)


def rows(turns: int) -> np.ndarray:
    return np.sin(np.arange(turns * 6, dtype=np.float32)).reshape(turns, 2, 3)


def rnn(xs, w, u, reverse=False):
    def step(h, x):
        h = jnp.tanh(x @ w + h @ u)
        return h, h

    return lax.scan(step, jnp.zeros((2, 5)), xs, reverse=reverse)[1].sum()


def summed(xs, w, u):
    """Both operands of the product are made in the loop, and what is carried is turned."""
    step = lambda c, x: (c + ((x @ jnp.tile(w, 3)).T @ (x + 1)).T, [x * k for k in range(6)])  # noqa: E731
    return lax.scan(step, jnp.ones((3, 15)), xs)


def graph_of(fn: Callable[..., Any]) -> Graph:
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (rows(4), W, U)]
    return simplify(from_jax(fn, structs, [("n", None, None), (None, None), (None, None)], ["xs", "w", "u"])[0])


def dots(graph: Graph) -> list[Op]:
    return [op for op in all_ops(graph.ops) if op.name == "dot_general"]


def dots_inside(graph: Graph) -> list[int]:
    """How many dots the body of each loop has."""
    loops = [op for op in graph.ops if op.name == "while"]
    return [sum(op.name == "dot_general" for op in all_ops(loop.attrs["body"].ops)) for loop in loops]


DERIVATIVES = jax.grad(rnn, (0, 1, 2))
LATER: dict[str, tuple[Callable[..., Any], list[int], list[int]]] = {
    "gradient": (DERIVATIVES, [2, 4], [1, 1]),
    "gradient, backwards": (jax.grad(lambda *args: rnn(*args, reverse=True), (0, 1, 2)), [2, 4], [1, 1]),
    "no gradient of rows": (jax.grad(rnn, 2), [2, 2], [1, 1]),
    "of rows alone": (
        lambda xs, w, u: lax.scan(lambda c, x: (jnp.sin(c) + x @ w, x + c.sum()), jnp.ones((2, 5)), xs),
        [1],
        [0],
    ),
    "only results wait": (
        lambda xs, w, u: lax.scan(lambda c, x: (jnp.sin(c), (x @ w, x + c)), 0.0, xs),
        [1],
        [0],
    ),
    "both operands stacked": (summed, [2], [1]),
    "vmap": (lambda xs, w, u: jax.vmap(DERIVATIVES, (None, 0, None))(xs, jnp.stack([w, -w]), u), [2, 4], [1, 2]),
}
AS_BEFORE: dict[str, Callable[..., Any]] = {
    "read in the body": lambda xs, w, u: lax.scan(lambda c, x: (c + x.T @ x, c.sum()), jnp.ones((3, 3)), xs),
    "of more than the loop has a row of": lambda xs, w, u: lax.scan(
        lambda c, x: (jnp.sin(c) + jnp.sin(x @ jnp.tile(w, 9)).sum(), None), 0.0, xs
    ),
    "of less than what it is made of": lambda xs, w, u: lax.scan(
        lambda c, x: (jnp.sin(c) + jnp.sin(x.T @ jnp.sin(u[:2])).sum(), [x + c] * 3), 0.0, xs
    ),
    "made of itself": lambda xs, w, u: lax.scan(lambda c, x: (c + c.T @ u, x), jnp.ones((5, 5)), xs),
    "what is the same each turn": lambda xs, w, u: lax.scan(
        lambda c, x: (c + x.T @ u[:2], (x * 2, x * 3)), jnp.ones((3, 5)), xs
    ),
    "more to stack than to carry": lambda xs, w, u: lax.scan(
        lambda c, x: (c + (y := jnp.sin(x @ jnp.tile(w, 9))) @ y.T, y), jnp.ones((2, 2)), xs
    ),
    "nothing else a turn": lambda xs, w, u: lax.fori_loop(
        0, xs.shape[0], lambda i, c: (c[0] + c[1].T @ c[1], jnp.sin(c[1])), (u, u[:2])
    ),
    "as long as the sum is small": lambda xs, w, u: lax.while_loop(
        lambda c: c[1][0, 0] < 9.0, lambda c: (c[0] + 1, c[1] + xs[0].T @ xs[0] + 1), (0, jnp.zeros((3, 3)))
    ),
}


def assert_equal(left: Graph, right: Graph, turns: int) -> None:
    for a, b in zip(evaluate(left, [rows(turns), W, U]), evaluate(right, [rows(turns), W, U]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LATER)
def test_products_that_run_once(name: str) -> None:
    fn, before, after = LATER[name]
    graph = graph_of(fn)
    later = multiply_after_loops(graph)
    verify(later)
    assert (dots_inside(graph), dots_inside(later)) == (before, after)
    assert len(dots(later)) <= len(dots(graph))
    for turns in (0, 1, 4):
        assert_equal(graph, later, turns)
    assert multiply_after_loops(later) is later


@pytest.mark.parametrize("name", AS_BEFORE)
def test_products_that_stay(name: str) -> None:
    graph = graph_of(AS_BEFORE[name])
    assert multiply_after_loops(graph) is graph
