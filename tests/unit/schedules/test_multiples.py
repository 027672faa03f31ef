"""The numbers that an index is a multiple of: what is found divides every value that the index takes."""

from __future__ import annotations

import pytest

from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.module import ModuleBuilder
from hlo_disc.stitch.codegen.multiples import Multiples

# Of n, which is known to be a multiple of four, and k, of which nothing is known.
CASES = {
    "itself": (lambda b, n, k: n, 4),
    "sum": (lambda b, n, k: n + 8, 4),
    "odd sum": (lambda b, n, k: n + 2, 2),
    "unknown": (lambda b, n, k: n + k, 1),
    "product": (lambda b, n, k: n * k, 4),
    "product with a number": (lambda b, n, k: n * 6, 8),
    "difference": (lambda b, n, k: n - 12, 4),
    "remainder": (lambda b, n, k: n % 256, 4),
    "quotient": (lambda b, n, k: n // 2, 1),
    "minimum": (lambda b, n, k: b.minimum(n, 64), 4),
    "maximum with an odd number": (lambda b, n, k: b.maximum(n, 3), 1),
    "select": (lambda b, n, k: b.select(b.compare("<", k, 3), n, b.index(16)), 4),
    "large": (lambda b, n, k: b.index(1 << 20), 1 << 12),
    "zero": (lambda b, n, k: b.index(0), 1 << 12),
    "whole steps": (lambda b, n, k: n - n % 32, 4),
}


def built(build):
    """Return what `build` makes of n and k in a kernel."""
    builder = ModuleBuilder()
    b = builder.builder
    try:
        with builder.kernel("k", [(b.index_type, "")] * 2) as (n, k):
            return build(b, n, k)
    finally:
        builder.close()


def of(build) -> int:
    def multiple(b, n, k):
        multiples = Multiples()
        multiples.add(n.v, 4)
        return multiples.of(build(b, n, k).v)

    return built(multiple)


@pytest.mark.parametrize("name", CASES)
def test_arithmetic(name):
    build, expected = CASES[name]
    assert of(build) == expected


@pytest.mark.parametrize(("start", "step", "expected"), [(0, 128, 128), (64, 128, 64), (0, 3, 1)])
def test_counters(start, step, expected):
    def counter(b, n, k):
        with b.loop(start, n, step) as loop:
            return loop.i

    assert of(counter) == expected


def test_a_carried_value_is_anything():
    def carried(b, n, k):
        with b.loop(0, n, 4, [b.index(0)]) as loop:
            found = loop.args[0]
            loop.yield_(b.apply(arith.AddIOp, found, b.index(1)))
        return found

    assert of(carried) == 1


def test_what_is_said_later_counts():
    def both(b, n, k):
        multiples, value = Multiples(), (n + k).v
        before = multiples.of(value)
        multiples.add(n.v, 4)
        multiples.add(k.v, 8)
        return before, multiples.of(value)

    assert built(both) == (1, 4)
