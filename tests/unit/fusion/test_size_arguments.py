"""The sizes of a group that become arguments, and what is said of them."""

from __future__ import annotations

import itertools

import pytest
from graphs.dhlo import make_graph, shape

from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Joins, Schedule
from hlo_disc.stitch.size_arguments import LARGE, Known, SizeArguments, Sized

ROWS = Schedule("row", None, Joins.ROWS)


def sized(*texts: str, facts: ShapeFacts | None = None, numbers: bool = False) -> Sized:
    """A group that adds 1 to values of these shapes."""
    facts = facts or ShapeFacts()
    symbols = sorted({name for text in texts for size in shape(text) for name in size.symbols})
    inputs = [("float32", text) for text in (*texts, *symbols)]
    graph = make_graph(inputs, lambda g, *xs: [g.op("negate", [x]) for x in xs[: len(texts)]], facts)
    return SizeArguments(facts).of(Group.of(ROWS, graph.ops, graph.outputs), numbers)


def shapes(made: Sized) -> list[Shape]:
    return [value.shape for value in made.group.inputs]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["n"], ["%0"]),
        (["b*s*c, 4"], ["%0, 4"]),
        (["3*n + 5"], ["%0"]),
        (["b, (h + 1) // 2, 8"], ["%0, %1, 8"]),
        (["b, ((h + 1) // 2 + 1) // 2"], ["%0, %1"]),
        # relations stay
        (["h, (h + 1) // 2"], ["%0, (%0 + 1) // 2"]),
        (["(h + 1) // 2, (h + 1) // 2 + 2"], ["%0, %0 + 2"]),
        (["(h + 3) // 4, (h + 7) // 8"], ["(%0 + 3) // 4, (%0 + 7) // 8"]),
        (["b*s, b, s"], ["%0*%1, %0, %1"]),
        (["n, n + 1", "n"], ["%0, %0 + 1", "%0"]),
        (["n % m, m"], ["%0 % %1, %1"]),
        # one size is one argument
        (["b*s, 4", "b*s"], ["%0, 4", "%0"]),
    ],
    ids=str,
)
def test_sizes_whose_symbols_are_nowhere_else_are_arguments(given, made):
    assert shapes(sized(*given)) == [*map(shape, made)]


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (["n, 768"], ["%0, %1"]),
        (["n, 768", "768, 768"], ["%0, %1", "%1, %1"]),
        ([f"n, {LARGE}, {LARGE - 1}"], [f"%0, %1, {LARGE - 1}"]),
        (["1, 0, 64"], ["1, 0, %0"]),
    ],
    ids=str,
)
def test_large_numbers_are_arguments_where_they_buy_nothing(given, made):
    assert shapes(sized(*given, numbers=True)) == [*map(shape, made)]
    kept = [d for sizes in shapes(sized(*given)) for d in sizes if d.is_const]
    assert kept == [d for text in given for d in shape(text) if d.is_const]


def test_what_may_be_negative_is_none():
    assert shapes(sized("n - 4")) == [shape("%0 - 4")], "nothing says that it is no less than 0"
    facts = ShapeFacts()
    facts.add_at_least(Dim.symbol("n"), 4)
    assert shapes(sized("n - 4", facts=facts)) == [shape("%0")]


def test_equal_sizes_have_one_argument():
    facts = ShapeFacts()
    facts.add_divisible(Dim.symbol("n"), 8)
    assert shapes(sized("n // 8 * 8, 4", "n, 4", facts=facts)) == [shape("%0, 4")] * 2
    assert shapes(sized("n // 8 * 8, 4", "n, 4")) == [shape("%0 // 8 * 8, 4"), shape("%0, 4")]


def test_all_that_is_said_is_known():
    facts = ShapeFacts()
    facts.add_at_least(Dim.symbol("b"), 1)
    facts.add_at_most(Dim.symbol("b"), 8)
    facts.add_at_most(Dim.symbol("s"), 512)
    facts.add_divisible(Dim.symbol("s"), 64)
    assert sized("b, s, 768", facts=facts, numbers=True).known == (Known(0, 8), Known(0, None), Known(1, None))
    made = sized("b, s, 768", "b, s", facts=facts, numbers=True)
    assert made.known == (Known(1, 8), Known(0, None), Known(1, None))
    b, s, c = (Dim.symbol(f"%{number}") for number in range(3))
    assert made.facts.at_most(b, 8) is made.facts.at_most(1, c) is Truth.YES
    for size, other in itertools.product((b, s, c), (64, 512, 768)):
        assert made.facts.equal(size, other) is (Truth.NO if size is b else Truth.UNKNOWN)
    assert made.facts.divisible(s, 64) is made.facts.divisible(c, 16) is Truth.UNKNOWN


def test_arguments_are_the_sizes_of_the_program():
    given = ["b*h, 64", "(h + 1) // 2, w, w + 2"]
    made = sized(*given, numbers=True)
    assert [tuple(map(made.real, sizes)) for sizes in shapes(made)] == [*map(shape, given)]
    assert [value.shape for value in made.group.outputs] == shapes(made)
    assert [value.shape for value in map(made.values.__getitem__, made.group.inputs)] == [shape(text) for text in given]


def test_groups_that_are_then_equal_have_one_key():
    assert sized("b*s, 64").group.key == sized("n, 64").group.key
    assert sized("n, 64").group.key != sized("n, 96").group.key
    assert sized("n, 64", numbers=True).group.key == sized("k, 96", numbers=True).group.key
    assert sized("n, 64", numbers=True).group.key != sized("n, 64", "64", numbers=True).group.key
