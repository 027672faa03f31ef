"""Dim: canonical form, printing and parsing, and agreement with integer arithmetic."""

from __future__ import annotations

import copy
import pickle
import re
import threading

import numpy as np
import pytest
from graphs.dims import OPS, build, compute, texts, trees, values_of_symbols
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.sizes import dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim, dim_product
from hlo_disc.errors import ParseError

b, s, t = map(Dim.symbol, "bst")


@given(trees(), values_of_symbols)
@settings(deadline=None)
def test_agrees_with_integers(tree, values):
    try:
        expected = compute(tree, values)
    except ZeroDivisionError:
        assume(False)
    d = build(tree)
    assert d.evaluate(values) == expected
    assert d.substitute(values).value == expected
    partial = d.substitute({"b": values["b"]})
    assert "b" not in partial.symbols
    assert partial.evaluate(values) == expected
    names = {"add": "+", "mul": "*", "floordiv": "//", "mod": "%", "min": "min", "max": "max"}
    assert d.lower(int, values.__getitem__, {k: OPS[v] for k, v in names.items()}) == expected


@given(trees())
@settings(deadline=None)
def test_text_reads_back(tree):
    try:
        d = build(tree)
    except ZeroDivisionError:
        assume(False)
    assert Dim.parse(str(d)) is d
    assert pickle.loads(pickle.dumps(d)) is d
    assert copy.deepcopy(d) is d


@given(trees(), trees(), trees())
@settings(deadline=None)
def test_ring_laws_are_structural(x, y, z):
    try:
        x, y, z = build(x), build(y), build(z)
    except ZeroDivisionError:
        assume(False)
    assert x + y is y + x
    assert (x + y) + z is x + (y + z)
    assert x * y is y * x
    assert (x * y) * z is x * (y * z)
    assert x * (y + z) is x * y + x * z
    assert x - x is Dim.const(0)
    assert Dim.min(x, y) is Dim.min(y, x)
    assert Dim.max(x, Dim.max(y, z)) is Dim.max(Dim.max(x, y), z)


@given(trees(), st.integers(1, 12), st.integers(0, 11))
@settings(deadline=None)
def test_exact_division_is_structural(x, k, r):
    try:
        x = build(x)
    except ZeroDivisionError:
        assume(False)
    assert (k * x) // k is x
    assert (k * x + r % k) % k is Dim.const(r % k)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("2*b*s+1", "2*b*s + 1"),
        ("s*b", "b*s"),
        ("floordiv(s, 2)", "floordiv(s, 2)"),
        ("s // 2 // 3", "floordiv(s, 6)"),
        ("(2*s) // 4", "floordiv(s, 2)"),
        ("(4*s + 7) // 4", "s + 1"),
        ("(s + 7) // 4", "floordiv(s + 3, 4) + 1"),
        ("s // -2", "-floordiv(s + 1, 2)"),
        ("s // 1", "s"),
        ("mod(s, 1)", "0"),
        ("mod(9*s + 9, 8)", "mod(s + 1, 8)"),
        ("mod(mod(s, 8), 4)", "mod(s, 4)"),
        ("mod(mod(s, 4), 8)", "mod(s, 4)"),
        ("min(s, 512)", "min(s, 512)"),
        ("min(512, min(3, s), s)", "min(s, 3)"),
        ("max(s, s + 1, b)", "max(b, s + 1)"),
        ("max(2, 3)", "3"),
        ("s^2*s", "s^3"),
        ("-1*s + 512", "-s + 512"),
        ("b - (s - t)", "b - s + t"),
        ("0*s", "0"),
        ("%0.1 + x.y_2", "%0.1 + x.y_2"),
        ("s // s", "floordiv(s, s)"),
        ("0 // s", "floordiv(0, s)"),
        ("s % 8", "mod(s, 8)"),
        ("s%8", "mod(s, 8)"),
        ("s %8 * 2", "2*mod(s, 8)"),
        ("2*s % 3", "mod(2*s, 3)"),
        ("b + s % 8", "b + mod(s, 8)"),
        ("-s % 8", "mod(7*s, 8)"),
        ("-s // 2", "-floordiv(s + 1, 2)"),
        ("-(-(-(-s // 2)) // 4)", "floordiv(s + 7, 8)"),
        ("-s^2", "-s^2"),
        ("s // 2 % b // 3", "floordiv(mod(floordiv(s, 2), b), 3)"),
        ("%0.1%%0.2", "mod(%0.1, %0.2)"),
        ("s % (b + 1)", "mod(s, b + 1)"),
    ],
)
def test_printed_form(text, printed):
    assert str(Dim.parse(text)) == printed


@given(texts(), values_of_symbols)
@settings(deadline=None)
def test_operators_bind_as_in_python(text, values):
    """Without parentheses, what is written means what Python says, and the printed form reads back."""
    try:
        expected = eval(text, {}, dict(values))
        d = Dim.parse(text)
    except (ZeroDivisionError, ParseError):
        assume(False)
    assert d.evaluate(values) == expected
    assert Dim.parse(str(d)) is d


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected an integer, a name, .*, but it ends"),
        ("2*", "expected an integer, a name, .*, but it ends"),
        ("s s", "expected an operator or the end, but found 's' at column 3"),
        ("s & 2", "expected an operator or the end, but found '&' at column 3"),
        ("3.5", "expected an operator or the end, but found '.5' at column 2"),
        ("s ==", "expected an operator or the end, but found '==' at column 3"),
        ("foo(s)", "expected floordiv.*, but found 'foo' at column 1"),
        ("1 + floordiv(s)", "floordiv at column 5 has 1 arguments, not 2"),
        ("mod(s, 2", "expected ',' or '\\)', but it ends"),
        ("(s b)", "expected '\\)', but found 'b' at column 4"),
        ("s % ", "expected an integer, a name, .*, but it ends"),
        ("s % % 8", "expected an integer, a name, .*, but found '%' at column 5"),
        ("2^s", "expected an integer of at most 63, but found 's' at column 3"),
        ("s^1000000000", "expected an integer of at most 63, but found '1000000000' at column 3"),
        ("()", "expected an integer, a name, .*, but found '\\)' at column 2"),
        (",", "expected an integer, a name, .*, but found ',' at column 1"),
        ("1 + s % 0", "'mod\\(s, 0\\)' divides by zero, before column 10"),
        ("floordiv(s, b - b) + 1", "'floordiv\\(s, 0\\)' divides by zero, before column 20"),
        ("9" * 5000, "999… has too many digits"),
        ("(" * 5000 + "s", "nested too deeply"),
    ],
    ids=lambda text: text[:20],
)
def test_parse_error_shows_text_place_and_what_was_expected(text, reason):
    with pytest.raises(ParseError, match=f"^{re.escape(repr(text)[:70])}.* is not a dimension expression: .*{reason}$"):
        Dim.parse(text)


def test_bad_symbol_name():
    for name in ("1x", "a%b", "%", ""):
        with pytest.raises(ParseError, match="not a dimension name"):
            Dim.symbol(name)


def test_never_decides():
    for question in (lambda: bool(s), lambda: s < 3, lambda: 3 <= s, lambda: s > b, lambda: s >= b):
        with pytest.raises(TypeError, match="ask ShapeFacts"):
            question()


def test_constants_equal_integers():
    assert Dim.const(3) == 3 and 3 == Dim.const(3) and Dim.const(3) != 4 and s != 3
    assert {3: "x"}[Dim.const(3)] == "x"
    assert Dim.of(np.int64(3)) is Dim.const(3)
    assert np.int64(3) * s is 3 * s
    assert (s - s + 7).value == 7 and not s.is_const
    with pytest.raises(TypeError, match="not a constant"):
        _ = s.value


def test_zero_divisor():
    for division in (lambda: s // 0, lambda: s % 0, lambda: (s // b).evaluate({"s": 1, "b": 0})):
        with pytest.raises(ZeroDivisionError):
            division()


def test_no_float_sizes():
    with pytest.raises(TypeError):
        s + 1.5  # noqa: B018 (the addition is what raises)


def test_products():
    assert dim_product([]) is Dim.const(1)
    assert dim_product([b, 3, s]) is 3 * b * s


def test_a_sum_is_mapped_at_once():
    names = [Dim.symbol(f"d{i}") for i in range(50)]
    total = sum(names, Dim.const(0))
    before = len(dim._dims)
    assert total.map_atoms(lambda atom: 2 * atom.dim) is 2 * total
    assert len(dim._dims) <= before + len(names) + 1


def test_one_object_across_threads():
    seen: list[list[Dim]] = [[] for _ in range(8)]

    def work(out):
        for i in range(300):
            n = Dim.symbol(f"thread_{i}")
            out.append((n * n + i) // 3 + Dim.min(n, i))

    threads = [threading.Thread(target=work, args=(out,)) for out in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(x is y for out in seen for x, y in zip(out, seen[0], strict=True))
