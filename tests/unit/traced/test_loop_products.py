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
    """Return a scan that makes both operands of a product, and transposes what it carries."""
    step = lambda c, x: (c + ((x @ jnp.tile(w, 3)).T @ (x + 1)).T, [x * k for k in range(6)])  # noqa: E731
    return lax.scan(step, jnp.ones((3, 15), xs.dtype), xs)


def row_of(xs, i, size=3):
    return lax.dynamic_slice(xs, (i, 0, 0), (1, 2, size), allow_negative_indices=False)[0]


def counted(product, first=0, step=1, test=lax.lt):
    """Return a sum of products, by a loop that counts itself."""

    def run(xs, w, u):
        n = xs.shape[0]
        turn = lambda c: (c[0] + step, c[1] + product(xs, c[0]))  # noqa: E731
        shape = jax.eval_shape(product, xs, 0).shape
        return lax.while_loop(lambda c: test(c[0], n), turn, (first, jnp.ones(shape)))[1]

    return run


def squared(xs, i):
    return (x := row_of(xs, i)).T @ x


def in_turns(xs, w, u):
    """Write each row to one of two arrays in turns: to the one that the iteration before had not."""

    def turn(i, c):
        row = (row_of(xs, i) @ w)[None]
        return lax.dynamic_update_slice(c[1], row, (i, 0, 0), allow_negative_indices=False), c[0]

    return lax.fori_loop(0, xs.shape[0], turn, (jnp.ones((xs.shape[0], 2, 5)), jnp.zeros((xs.shape[0], 2, 5))))


def graph_of(fn: Callable[..., Any]) -> Graph:
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (rows(4), W, U)]
    return simplify(from_jax(fn, structs, [("n", None, None), (None, None), (None, None)], ["xs", "w", "u"])[0])


def dots(graph: Graph) -> list[Op]:
    return [op for op in all_ops(graph.ops) if op.name == "dot_general"]


def dots_inside(graph: Graph) -> list[int]:
    """Return the number of dots in the body of each loop."""
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
    "turned after it has another shape": (
        lambda xs, w, u: lax.scan(
            lambda c, x: (c + ((x @ jnp.tile(w, 3)).T @ (x + 1)).reshape(5, 9).T, [x * k for k in range(6)]),
            jnp.ones((9, 5)),
            xs,
        ),
        [2],
        [1],
    ),
    "counted": (counted(squared), [1], [0]),
    "counted, from the last row": (counted(lambda xs, i: squared(xs, xs.shape[0] - 1 - i)), [1], [0]),
    "rows from both ends": (
        counted(lambda xs, i: row_of(xs, i).T @ row_of(xs, xs.shape[0] - 1 - i)),
        [1],
        [0],
    ),
    "two results in turns": (in_turns, [1], [0]),
    "vmap": (lambda xs, w, u: jax.vmap(DERIVATIVES, (None, 0, None))(xs, jnp.stack([w, -w]), u), [2, 4], [1, 2]),
}
AS_BEFORE: dict[str, Callable[..., Any]] = {
    "counted by twos": counted(squared, step=2),
    "counted from one": counted(squared, first=1),
    "counted to the end and once more": counted(squared, test=lax.le),
    "of the row behind": counted(lambda xs, i: squared(xs, i + 1)),
    "of the row before": counted(lambda xs, i: squared(xs, i - 1)),
    "of rows behind the last": counted(lambda xs, i: squared(xs, xs.shape[0] - i)),
    "of some of the rows": counted(lambda xs, i: squared(jnp.concatenate([xs, xs]), i)),
    "of parts of rows": counted(lambda xs, i: (x := row_of(xs, i, 2)).T @ x),
    "read in the body afterwards": lambda xs, w, u: lax.scan(
        lambda c, x: ((d := c + x.T @ x), d.sum()), jnp.ones((3, 3)), xs
    ),
    "with an axis of both": lambda xs, w, u: lax.scan(
        lambda c, x: (jnp.sin(c) + jnp.einsum("bi,bij->bj", x, jnp.stack([w, -w])), x + c.sum()), jnp.ones((2, 5)), xs
    ),
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


def test_sums_that_each_turn_rounds() -> None:
    """One product rounds bf16 once, where the loop rounds in each iteration: that has to be allowed."""
    fn = lambda xs, w, u: summed(xs.astype(jnp.bfloat16), w.astype(jnp.bfloat16), u)  # noqa: E731
    graph = graph_of(fn)
    assert multiply_after_loops(graph) is graph
    assert dots_inside(multiply_after_loops(graph, excess_precision=True)) == [1]


@pytest.mark.parametrize("name", AS_BEFORE)
def test_products_that_stay(name: str) -> None:
    graph = graph_of(AS_BEFORE[name])
    assert multiply_after_loops(graph) is graph
