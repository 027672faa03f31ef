"""Cases that random sizes seldom meet: nested quotients and remainders, and answers that hold but for one size."""

from __future__ import annotations

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

B, S, T = map(Dim.symbol, "bst")


def test_quotients_of_quotients() -> None:
    for c in range(-5, 6):
        nested = (B // 2 + c) // 4
        assert [nested.evaluate({"b": b}) for b in range(20)] == [(b // 2 + c) // 4 for b in range(20)]


def test_remainders_of_remainders() -> None:
    for j, k in ((5, 3), (3, 5), (6, 3), (3, 6), (4, 4)):
        assert [(B % j % k).evaluate({"b": b}) for b in range(40)] == [b % j % k for b in range(40)]


def test_bounds_of_multiples() -> None:
    facts = ShapeFacts()
    facts.add_at_least(2 * B, 3)
    facts.add_at_most(3 * B, 11)
    assert facts.bounds(B) == (2, 3)


def test_an_inequality_times_what_may_be_negative_proves_nothing() -> None:
    facts = ShapeFacts()
    facts.add_at_least(S, T)
    factor = (B - Dim.symbol("u")) // 2
    assert facts.at_most(T * B, S * B) is Truth.YES
    assert facts.at_most(T * factor, S * factor) is Truth.UNKNOWN


def test_a_divisor_that_may_be_zero_cancels_nothing() -> None:
    facts = ShapeFacts()
    assert facts.canonical(B * S // S) == B * S // S
    facts.add_at_least(S, 1)
    assert facts.canonical(B * S // S) == B


def test_a_size_that_may_be_the_divisor_is_no_remainder() -> None:
    facts = ShapeFacts()
    facts.add_at_least(T, 1)
    facts.add_at_most(S, T)
    assert facts.equal(S // T, 0) is Truth.UNKNOWN
    assert facts.equal(S % T, S) is Truth.UNKNOWN
    facts.add_at_most(S, T - 1)
    assert facts.equal(S // T, 0) is Truth.YES
    assert facts.equal(S % T, S) is Truth.YES


def test_a_multiple_by_its_coefficient() -> None:
    facts = ShapeFacts()
    facts.add_divisible(6 * B, 4)
    assert facts.divisible(B, 2) is Truth.YES
    assert facts.divisible(B, 4) is Truth.UNKNOWN
    facts.add_divisible(B, 6)
    assert facts.divisible(B, 6) is Truth.YES
    assert facts.divisible(B, 12) is Truth.UNKNOWN


def test_an_equation_replaces_multiples_of_its_coefficient_only() -> None:
    facts = ShapeFacts()
    facts.add_equal(2 * B * S, 3 * T * T)
    values = {"b": 3, "s": 2, "t": 2}
    for c in (1, 2, 3, 4, 5):
        assert facts.canonical(c * B * S).evaluate(values) == c * 6
        assert facts.canonical(c * T * T).evaluate(values) == c * 4
