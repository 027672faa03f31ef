"""Facts of one symbol, decided at finitely many points, against all points up to a limit."""

from __future__ import annotations

import random

import pytest

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.points import signs

N = Dim.symbol("n")
LIMIT = 300


def drawn(rng: random.Random, depth: int) -> Dim:
    kind = rng.randrange(7 if depth else 2)
    if kind == 0:
        return N
    if kind == 1:
        return Dim.const(rng.randrange(-5, 9))
    x = drawn(rng, depth - 1)
    if kind in (2, 3):
        return x + drawn(rng, depth - 1) * rng.choice([-2, -1, 1, 3])
    if kind == 4:
        return x // rng.choice([2, 3, 4])
    if kind == 5:
        return x % rng.choice([2, 3, 4])
    return rng.choice([Dim.min, Dim.max])(x, drawn(rng, depth - 1))


@pytest.mark.parametrize("seed", range(4))
def test_signs_are_those_at_all_points(seed: int) -> None:
    rng, decided = random.Random(seed), 0
    while decided < 60:
        d, other = drawn(rng, 3), drawn(rng, 2)
        if not d.symbols or not other.symbols:
            continue
        found = signs(d, [(other, lambda value: value >= 0)])
        if found is not None:
            values = [d.evaluate({"n": n}) for n in range(LIMIT) if other.evaluate({"n": n}) >= 0]
            assert {(v > 0) - (v < 0) for v in values} <= found, (d, other)
            decided += 1


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("n // 2 + (n + 1) // 2", "n"),
        ("n + floordiv(-n, 2)", "floordiv(n - min(n, 1) + 1, 2)"),
        ("max(n - max(n - 3, 0), 0)", "min(n, 3)"),
    ],
)
def test_what_is_equal_at_all_sizes(left: str, right: str) -> None:
    facts = ShapeFacts()
    assert facts.equal(Dim.parse(left), Dim.parse(right)) is Truth.YES
    assert facts.at_most(Dim.parse(left), Dim.parse(right)) is Truth.YES
    assert facts.equal(Dim.parse(left) + 1, Dim.parse(right)) is Truth.NO


def test_what_is_known_leaves_few_sizes() -> None:
    facts = ShapeFacts()
    facts.add_equal(Dim.parse("max(min(n - 1, 3), 0)"), 0)
    assert facts.equal(N, 1) is Truth.UNKNOWN
    facts.add_at_least(N, 1)
    assert facts.equal(N, 1) is Truth.YES


def test_other_expressions_are_not_decided() -> None:
    assert signs(N * N - N, []) is None
    assert signs(N // (N + 1), []) is None
    assert signs(N // 1000 - 1, []) is None
