"""Loops of a few known iterations are written out, all others stay."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tracing import Spec, trace

from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.passes.simplify import simplify

X = Spec("(n,)", np.dtype(np.float32))
COUNT = Spec((), np.dtype(np.int32))


def nested(x):
    return lax.fori_loop(0, 3, lambda i, a: lax.fori_loop(0, 2, lambda j, b: b * 1.5 + i + j, a), x)


def until(x):
    return lax.while_loop(lambda c: c[0] * 2 < 9, lambda c: (c[0] + 2, c[1] + x), (1, x))[1]


WRITTEN_OUT = {
    "five": lambda x: lax.fori_loop(0, 5, lambda i, a: a * 2 + i, x),
    "none": lambda x: lax.fori_loop(3, 3, lambda i, a: a * 2 + i, x),
    "one": lambda x: lax.fori_loop(3, 4, lambda i, a: a * 2 + i, x),
    "nested": nested,
    "until": until,
}
LEFT = {
    "many": lambda x: lax.fori_loop(0, 100, lambda i, a: a * 0.5 + i, x),
    "of data": lambda x: lax.while_loop(lambda a: jnp.sum(a) < 50, lambda a: a + 1, x),
}


def check(fn, loops: int, *specs: Spec, inputs=()) -> None:
    graph, _ = trace(fn, *specs)
    simple = simplify(graph)
    assert sum(op.name == "while" for op in simple.ops) == loops
    for size in (0, 1, 7):
        arrays = [np.arange(size, dtype=np.float32) + 10, *inputs]
        for ours, theirs in zip(evaluate(simple, arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_few_iterations(name):
    check(WRITTEN_OUT[name], 0, X)


def test_many_iterations():
    check(LEFT["many"], 1, X)


def test_as_many_iterations_as_an_argument_says():
    check(lambda x, n: lax.fori_loop(0, n, lambda i, a: a + i, x), 1, X, COUNT, inputs=[np.int32(3)])


def test_iterations_that_data_decides():
    graph, _ = trace(LEFT["of data"], X)
    assert any(op.name == "while" for op in simplify(graph).ops)
