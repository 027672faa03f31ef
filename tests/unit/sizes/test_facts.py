"""ShapeFacts: what it must know, what it must not claim, and that no answer is ever wrong."""

from __future__ import annotations

import re

import pytest
from depth import examples
from graphs.dims import build, compute, trees, values_of_symbols
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.sizes import dim, ranges
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.errors import ShapeError

P = Dim.parse
YES, NO, UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN


def facts(*statements: str) -> ShapeFacts:
    known = ShapeFacts()
    for statement in statements:
        state(known, statement)
    return known


def state(known: ShapeFacts, statement: str) -> None:
    left, relation, right = re.split(r" (==|!=|>=|<=|\|) ", statement)
    if relation == "==":
        known.add_equal(P(left), P(right))
    elif relation == "!=":
        known.add_unequal(P(left), P(right))
    elif relation == ">=":
        known.add_at_least(P(left), P(right))
    elif relation == "<=":
        known.add_at_most(P(left), P(right))
    else:
        known.add_divisible(P(right), int(left))


@pytest.mark.parametrize(
    ("statements", "a", "b", "answer"),
    [
        ([], "b*s + s", "s*b + s", YES),
        ([], "s", "s + 1", NO),
        ([], "s", "t", UNKNOWN),
        ([], "s", "0", UNKNOWN),
        ([], "s + 1", "0", NO),
        ([], "b*s", "b*t", UNKNOWN),
        ([], "2*s", "2*t + 1", NO),
        ([], "floordiv(s, s)", "1", UNKNOWN),
        (["s >= 1"], "floordiv(s, s)", "1", YES),
        (["b >= 1"], "floordiv(b*s, b)", "s", YES),
        (["b >= 1"], "floordiv(b*s + b - 1, b)", "s", YES),
        ([], "floordiv(b*s, b)", "s", UNKNOWN),
        ([], "8*floordiv(s, 8) + mod(s, 8)", "s", YES),
        (["8 | s"], "8*floordiv(s, 8)", "s", YES),
        ([], "8*floordiv(s, 8)", "s", UNKNOWN),
        (["mod(s, 8) == 0"], "4*floordiv(s, 4)", "s", YES),
        (["2*floordiv(s, 2) == s"], "2*b*floordiv(s, 2)", "b*s", YES),
        ([], "floordiv(s, 2) + floordiv(s + 1, 2)", "s", YES),
        ([], "floordiv(s, 2) + floordiv(s + 2, 2)", "s", UNKNOWN),
        (["max(s - 1, 0) == 1"], "s", "2", YES),
        (["max(s - 1, 0) == s"], "s", "0", YES),
        (["min(s, 4) == 3"], "s", "3", YES),
        (["min(s, 4) == 4"], "s", "4", UNKNOWN),
        (["max(s - min(s, 1), 0) == 1"], "s", "2", YES),
        (["max(s - 1, 0) == 0"], "s", "1", UNKNOWN),
        (["max(s - 1, 0) == 0", "s != 0"], "s", "1", YES),
        (["s != 0", "s != 1"], "s", "1", NO),
        (["b*s != 4"], "4", "b*s", NO),
        (["b*s != 4"], "b*s", "5", UNKNOWN),
        (["s == t", "t == u"], "s + 1", "u + 1", YES),
        (["s == h*w"], "b*h*w", "b*s", YES),
        (["h*w == u*v"], "b*h*w", "b*u*v", YES),
        (["s <= 512"], "min(s, 512)", "s", YES),
        ([], "min(s, 512)", "s", UNKNOWN),
        (["s <= 0"], "b*s", "0", YES),
        (["s >= 5", "s <= 5"], "2*s", "10", YES),
        (["b >= 1"], "b*s", "b*s + b", NO),
        ([], "b*s", "b*s + b", UNKNOWN),
        (["s >= t", "t >= s"], "s", "t", YES),
    ],
)
def test_equal(statements, a, b, answer):
    assert facts(*statements).equal(P(a), P(b)) is answer


@pytest.mark.parametrize(
    ("statements", "a", "b", "answer"),
    [
        ([], "768*b*s", "3072*b*s", YES),
        ([], "b*s", "b*s + 1", YES),
        ([], "b*s + 1", "b*s", NO),
        ([], "b", "b*s", UNKNOWN),
        (["s >= 1"], "b", "b*s", YES),
        (["s <= 512"], "b*s", "512*b", YES),
        (["s <= t"], "b*s", "b*t", YES),
        (["s <= t", "t <= u"], "s", "u", YES),
        ([], "min(s, t)", "s", YES),
        ([], "s", "max(s, t)", YES),
        ([], "b*min(s, 128)", "b*s", YES),
        (["s <= u", "s <= v"], "s", "min(u, v)", YES),
        ([], "8*floordiv(s, 8)", "s", YES),
        ([], "s", "8*floordiv(s + 7, 8)", YES),
        ([], "mod(s, 8)", "7", YES),
        ([], "mod(s, 8)", "s", YES),
        ([], "mod(s, t)", "s", UNKNOWN),
        (["h*w <= 64"], "b*h*w", "64*b", YES),
        ([], "-s", "0", YES),
        ([], "s*t", "s*s", UNKNOWN),
        ([], "floordiv(s + 1, 2)", "2*floordiv(s + 3, 4)", YES),
        ([], "floordiv(s + 2, 2)", "2*floordiv(s + 3, 4)", UNKNOWN),
        ([], "s - t", "2*floordiv(s - t, 2) + 1", YES),
        (["b <= 8", "b >= 1", "t <= 8", "t >= 1"], "floordiv(b + 1, 2)", "2*floordiv(b + 3, 4)", YES),
    ],
)
def test_at_most(statements, a, b, answer):
    assert facts(*statements).at_most(P(a), P(b)) is answer


@pytest.mark.parametrize(
    ("statements", "d", "k", "answer"),
    [
        ([], "64*b", 16, YES),
        ([], "64*b + 8", 16, NO),
        ([], "b", 16, UNKNOWN),
        ([], "b + 1", 16, UNKNOWN),
        ([], "2*b + 2", 4, UNKNOWN),
        ([], "b", 1, YES),
        ([], "0", 16, YES),
        ([], "2*b + 1", 4, NO),
        (["8 | s"], "s", 4, YES),
        (["8 | s"], "b*s", 8, YES),
        (["8 | s"], "s + 4", 8, NO),
        (["8 | s"], "s", 16, UNKNOWN),
        (["8 | s"], "floordiv(s, 2)", 4, YES),
        (["8 | s"], "min(s, 64)", 8, YES),
        (["4 | s", "6 | s"], "s", 12, YES),
        (["8 | s + t"], "s + t", 8, YES),
        (["8 | s + t"], "s + t + 3", 8, NO),
        (["8 | 2*s"], "s", 4, YES),
        (["8 | s*t"], "b*s*t", 8, YES),
        (["s == 8*t"], "s", 8, YES),
    ],
)
def test_divisible(statements, d, k, answer):
    assert facts(*statements).divisible(P(d), k) is answer


@pytest.mark.parametrize(
    ("statements", "a", "b", "answer"),
    [
        ([], "b; s; 768", "b; s; 12; 64", YES),
        ([], "b; s; 768", "b; s; 12; 65", UNKNOWN),  # equal when b or s is 0
        (["b >= 1", "s >= 1"], "b; s; 768", "b; s; 12; 65", NO),
        ([], "b; 0", "0; s", YES),
        ([], "b; s", "s; b; 1", YES),
        ([], "b; s", "b; t", UNKNOWN),
        (["s == h*w"], "b; h; w", "b; s", YES),
        (["h*w == u*v"], "b; h; w; 3", "3*b; u; v", YES),
        (["8 | s"], "b; s", "b; floordiv(s, 8); 8", YES),
        ([], "2; 3", "6", YES),
        ([], "2; 3", "7", NO),
    ],
)
def test_same_size(statements, a, b, answer):
    assert facts(*statements).same_size(map(P, a.split("; ")), map(P, b.split("; "))) is answer


@pytest.mark.parametrize(
    ("statements", "d", "bounds"),
    [
        ([], "s", (0, None)),
        ([], "3*s + 2", (2, None)),
        (["s <= 512"], "2*s + 1", (1, 1025)),
        (["s <= 512"], "-s", (-512, 0)),
        (["s >= 1", "s <= 512", "b <= 4"], "b*s", (0, 2048)),
        ([], "mod(s, 8)", (0, 7)),
        ([], "min(s, 128)", (0, 128)),
        (["s <= 100"], "floordiv(s, 8)", (0, 12)),
        ([], "floordiv(s, t)", (None, None)),
        (["s - t >= 5"], "s - t", (5, None)),
        (["2*s <= 9"], "s", (0, 4)),
        ([], "2*floordiv(s + 1, 2) - s", (0, None)),
        ([], "s - 2*floordiv(s + 1, 2)", (None, 0)),
    ],
)
def test_bounds(statements, d, bounds):
    assert facts(*statements).bounds(P(d)) == bounds


def test_what_ends_a_search_for_a_proof_is_not_made_a_dim():
    known = facts(*(f"{i}*n + m // {i} >= k + {i * i}" for i in range(2, 14)))
    before = len(dim._dims)
    assert known.at_most(P("3*k*m"), P("n*n // 2 + m*k - min(n, m // 3)")) is UNKNOWN
    assert len(dim._dims) - before < 100


def test_a_likely_size_is_found_once(monkeypatch):
    known = facts("n >= 3")
    assert known.likely(P("n*m")) == 64 * 64
    monkeypatch.setattr(ShapeFacts, "bounds", None)
    assert known.likely(P("n*m")) == 64 * 64


def test_likely():
    known = facts("u == h*w", "v <= 32", "8 | k", "x >= 100", "7 | x", "h <= 14")
    assert [known.likely(P(d)) for d in ("h", "w", "u", "v", "k", "x", "2*h + 1")] == [14, 64, 896, 32, 64, 105, 29]


def test_less():
    assert ShapeFacts().less(P("s"), P("s + 1")) is YES
    assert ShapeFacts().less(P("s"), P("s")) is NO


def test_copy_is_independent():
    first = facts("s <= 512")
    second = first.copy()
    second.add_equal(P("s"), 3)
    assert first.equal(P("s"), 3) is UNKNOWN and second.equal(P("s"), 3) is YES
    first.add_at_most(P("s"), 2)
    assert second.equal(P("s"), 3) is YES


@pytest.mark.parametrize(
    "statements",
    [
        ["s == s + 1"],
        ["s <= 4", "s >= 5"],
        ["s == 3", "s == 4"],
        ["8 | s", "s == 4"],
        ["s == 4", "8 | s"],
        ["s + t == 3", "s + t == 4"],
    ],
)
def test_contradiction_is_an_error_and_changes_nothing(statements):
    known = facts(*statements[:-1])
    before = known.canonical(P("s*t + s"))
    with pytest.raises(ShapeError, match="cannot be|contradictory"):
        state(known, statements[-1])
    assert known.canonical(P("s*t + s")) is before


def test_truth_is_no_condition():
    with pytest.raises(TypeError, match="three values"):
        bool(YES)


def _defined(tree, values) -> int:
    try:
        return compute(tree, values)
    except ZeroDivisionError:
        assume(False)
        raise


@st.composite
def situations(draw):
    """Facts about b, s and t that are true at an assignment, and the assignment."""
    values = draw(values_of_symbols)
    known = ShapeFacts()
    for _ in range(draw(st.integers(0, 4))):
        tree, other = draw(trees()), draw(trees())
        x, y = _defined(tree, values), _defined(other, values)
        d, e = build(tree), build(other)
        kinds = ["equal", "value", "unequal", "at_least", "at_most", "order", "divisible"]
        kind = draw(st.sampled_from(kinds))
        if kind == "equal":
            known.add_equal(d, e + (x - y))
        elif kind == "value":
            known.add_equal(d, x)
        elif kind == "unequal":
            known.add_unequal(d, e if x != y else x + draw(st.sampled_from([-2, -1, 1])))
        elif kind == "at_least":
            known.add_at_least(d, x - draw(st.integers(0, 3)))
        elif kind == "at_most":
            known.add_at_most(d, x + draw(st.integers(0, 3)))
        elif kind == "order":
            (known.add_at_most if x <= y else known.add_at_least)(d, e)
        else:
            known.add_divisible(d, draw(st.sampled_from([k for k in range(1, 13) if x % k == 0])))
    return known, values


def _check(answer: Truth, truth: bool) -> None:
    assert answer is UNKNOWN or (answer is YES) == truth


@given(situations(), trees(), trees(), st.integers(1, 12))
@settings(deadline=None, max_examples=examples(200, 5000))
def test_answers_are_true(situation, tree, other, k):
    known, values = situation
    x, y = _defined(tree, values), _defined(other, values)
    d, e = build(tree), build(other)
    _check(known.equal(d, e), x == y)
    _check(known.equal(d, x), True)
    _check(known.at_most(d, e), x <= y)
    _check(known.less(d, e), x < y)
    _check(known.divisible(d, k), x % k == 0)
    _check(known.same_size([d, e, k], [e, x]), x * y * k == y * x)
    low, high = known.bounds(d)
    assert (low is None or low <= x) and (high is None or x <= high)
    assert known.canonical(d).evaluate(values) == x
    known.likely(d)


@given(situations(), trees(), trees())
@settings(deadline=None, max_examples=examples(50, 5000))
def test_what_is_negative_at_a_point_has_no_proof(situation, tree, other):
    known, values = situation
    _defined(tree, values), _defined(other, values)
    d = build(tree) - build(other)
    assume(any(ranges._is_negative(d, point) for point in known._ranges._points))
    low = known._ranges._low(d.terms)
    assert low < 0 and not known._ranges._search(d, low, ranges._SEARCH_DEPTH, [ranges._SEARCH_NODES])


def test_no_proof_is_searched_for_what_is_negative_at_a_point(monkeypatch):
    known = facts("t >= 3", "s <= 512", "s >= t")
    monkeypatch.setattr(ranges.Ranges, "_search", lambda *_: pytest.fail("a proof is searched for"))
    for a, b in (("3*t", "2*s"), ("1", "u")):
        assert known.at_most(P(a), P(b)) is known.at_most(P(b), P(a)) is UNKNOWN


shapes = st.lists(st.one_of(st.sampled_from("bst"), st.integers(0, 4)), max_size=4)


@given(situations(), shapes, shapes)
@settings(deadline=None)
def test_size_answers_are_true(situation, one, two):
    known, values = situation
    one, two = [Dim.of(d) for d in one], [Dim.of(d) for d in two]
    truth = dim_product(one).evaluate(values) == dim_product(two).evaluate(values)
    _check(known.same_size(one, two), truth)
