"""Dots between reshapes that merge and split batch axes, as PyTorch writes products of tensors of four axes."""

from __future__ import annotations

import numpy as np
import pytest
from graphs.dhlo import make_graph, sample, shape

from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.passes.simplify import simplify

LEFT, RIGHT = ("float32", "b, h, s, 4"), ("float32", "b, h, 4, t")
NUMBERS = ("lhs_batch", "lhs_contract", "rhs_batch", "rhs_contract")


def reshape(b, x, to):
    return b.op("reshape", (x,), shape=shape(to))


def product(b, x, y, *numbers):
    """Return the product of matrices with one batch axis, the first one unless the numbers say another."""
    numbers = numbers or ((0,), (2,), (0,), (1,))
    return b.op(
        "dot_general", (x, y), dtype=np.dtype(np.float32), tf32=False, **dict(zip(NUMBERS, numbers, strict=True))
    )


def names(graph):
    return [op.name for op in graph.ops]


def same(before, after, **sizes):
    verify(after)
    arrays = sample(before, sizes or {"b": 2, "h": 3, "s": 5, "t": 7})
    for got, want in zip(evaluate(after, arrays), evaluate(before, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_axes_of_a_batch_are_the_dots_own():
    def build(b, x, y):
        return reshape(b, product(b, reshape(b, x, "b*h, s, 4"), reshape(b, y, "b*h, 4, t")), "b, h, s, t")

    before = make_graph([LEFT, RIGHT], build)
    after = simplify(before)
    assert names(after) == ["dot_general"] and after.ops[0].operands == after.inputs
    assert [after.ops[0].attrs[x] for x in NUMBERS] == [(0, 1), (3,), (0, 1), (2,)]
    same(before, after)


def test_batch_axes_that_are_not_the_first():
    """Three batch axes lie behind another axis in one operand, and behind all others in the other one."""

    def build(b, x, y):
        x, y = reshape(b, x, "s, b*h*2, 4"), reshape(b, y, "4, t, 2*b*h")
        return reshape(b, product(b, x, y, (1,), (2,), (2,), (0,)), "b, h, 2, s, t")

    before = make_graph([("float32", "s, b, h, 2, 4"), ("float32", "4, t, b, h, 2")], build)
    after = simplify(before)
    assert names(after) == ["dot_general"] and after.ops[0].operands == after.inputs
    same(before, after)


def test_an_operand_of_other_axes_is_reshaped():
    def build(b, x, y):
        return reshape(b, product(b, reshape(b, x, "b*h, s, 4"), y), "b, h, s, t")

    before = make_graph([LEFT, ("float32", "b*h, 4, t")], build)
    after = simplify(before)
    assert names(after) == ["reshape", "dot_general"]
    same(before, after)


def attention(b, q, k, v):
    scores = reshape(b, product(b, reshape(b, q, "b*h, s, 4"), reshape(b, k, "b*h, 4, t")), "b, h, s, t")
    weights = b.op("exponential", (scores,))
    return reshape(b, product(b, reshape(b, weights, "b*h, s, t"), reshape(b, v, "b*h, t, 5")), "b, h, s, 5")


def test_what_is_between_two_dots_has_their_axes():
    before = make_graph([LEFT, RIGHT, ("float32", "b, h, t, 5")], attention)
    after = simplify(before)
    assert names(after) == ["dot_general", "exponential", "dot_general"]
    for sizes in ({"b": 2, "h": 3, "s": 5, "t": 7}, {"b": 1, "h": 1, "s": 1, "t": 1}, {"b": 0, "h": 3, "s": 2, "t": 2}):
        same(before, after, **sizes)


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x, y: reshape(b, product(b, reshape(b, x, "b*h, s, 4"), reshape(b, y, "b*h, 4, t")), "h, b, s, t"),
        lambda b, x, y: reshape(b, product(b, reshape(b, x, "b*h, s, 4"), reshape(b, y, "b*h, 4, t")), "b*h, s*t"),
        lambda b, x, y: reshape(b, product(b, reshape(b, x, "b*h, s, 4"), reshape(b, y, "b*h, 4, t")), "1, b*h, s, t"),
        lambda b, x, y: reshape(b, product(b, reshape(b, x, "b*h, s, 4"), reshape(b, y, "b*h, 4, t")), "b, h, t, s"),
    ],
)
def test_other_reshapes_stay(build):
    before = make_graph([LEFT, RIGHT], build)
    after = simplify(before)
    assert names(after) == ["reshape", "reshape", "dot_general", "reshape"]
    same(before, after)


def test_an_axis_of_one_is_no_part_of_a_batch():
    def build(b, x, y):
        return reshape(b, product(b, reshape(b, x, "n, s, 4"), reshape(b, y, "n, 4, t")), "1, n, s, t")

    before = make_graph([("float32", "1, n, s, 4"), ("float32", "1, n, 4, t")], build)
    after = simplify(before)
    (dot,) = [op for op in after.ops if op.name == "dot_general"]
    assert dot.attrs["lhs_batch"] == (0,)
    same(before, after, n=3, s=5, t=7)


@pytest.mark.parametrize("other", [lambda b, x: x, lambda b, x: b.op("negate", (x,))])
def test_a_product_that_is_read_twice_stays(other):
    def build(b, x, y):
        whole = product(b, reshape(b, x, "b*h, s, 4"), reshape(b, y, "b*h, 4, t"))
        return other(b, whole), reshape(b, whole, "b, h, s, t")

    before = make_graph([LEFT, RIGHT], build)
    after = simplify(before)
    assert names(after).count("dot_general") == 1 and names(after)[-1] == "reshape"
    same(before, after)
