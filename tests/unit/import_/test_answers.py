"""The answers to what traces ask about sizes: facts decide, else the call. JAX is as it was for everybody else."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import export

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.import_.jax_edge.size_questions import Again, Answers, answering


def sizes(text: str, **call: int):
    """Return answers for a call, and the sizes of a trace that they decide about."""
    facts = ShapeFacts()
    for name in call:
        facts.add_at_least(Dim.symbol(name), 0)
    answers = Answers(call, facts)
    scope = export.SymbolicScope()
    answers.scope = scope
    return answers, export.symbolic_shape(text, scope=scope)


def shown(answers: Answers) -> list[str]:
    return list(map(str, answers.asked()))


def test_what_does_not_hold_is_noted_with_its_line():
    answers, (n, m) = sizes("n, m", n=5, m=7)
    with answering(answers):
        assert not n == 1 and n != m and 1 not in (n, m)  # noqa: SIM201
    assert shown(answers) == ["n != 1", "n != m", "m != 1"]
    line = answers.asked()[0].line
    assert line.startswith("test_answers.py:")


def test_what_holds_starts_the_trace_again():
    answers, (n,) = sizes("n", n=5)
    with answering(answers), pytest.raises(Again):
        n == 5  # noqa: B015
    assert str(answers.equal) == "n == 5"
    again = Answers({"n": 5}, ShapeFacts(), [answers.equal])
    assert again.are_equal(Dim.symbol("n"), Dim.const(5)) and shown(again) == ["n == 5"]


def test_order():
    answers, (n,) = sizes("n", n=5)
    with answering(answers):
        assert n >= 3 and n > 2 and not n < 3 and n + 1 >= 4  # the first answers all
        assert n <= 8 and not n > 8
        assert n >= 0 and n > -1 and not n < 0  # known of all sizes
        assert max(n, 0) is n and min(n, 20) is n
    assert shown(answers) == ["n >= 3", "8 >= n"]


def test_truth_and_division():
    answers, (n, m) = sizes("n, m", n=5, m=2)
    with answering(answers):
        assert n and n // m is not None and divmod(n, 4)
    assert shown(answers) == ["n != 0", "m != 0"]
    answers, (n, m) = sizes("n, m", n=5, m=0)
    with answering(answers), pytest.raises(Again):
        n % m


@pytest.mark.parametrize(
    "ask",
    [
        int, float, complex, hash, str, repr, range, "{:d}".format, "{}".format, np.zeros,
        lambda n: n & 1, lambda n: 1 | n, lambda n: n >> 1, lambda n: 1 << n, lambda n: ~n, round, [1, 2].__getitem__,
        lambda n: n in {1, 2}, lambda n: n.bit_length(),
    ],
)  # fmt: skip
def test_numbers(ask):
    answers, (n,) = sizes("n", n=5)
    with answering(answers), pytest.raises(Again):
        ask(n)
    assert str(answers.equal) == "n == 5"


def test_a_size_that_is_known_is_a_number():
    answers, (n,) = sizes("n", n=5)
    answers.facts.add_equal(Dim.symbol("n"), 5)
    with answering(answers):
        assert (int(n), hash(n), str(n), list(range(n))) == (5, hash(5), "5", [0, 1, 2, 3, 4])
    assert not answers.asked()


def test_sizes_are_integers_to_those_who_look():
    answers, (n,) = sizes("n", n=5)
    with answering(answers):
        assert isinstance(n, int)
        assert not answers.asked()
    assert not isinstance(n, int)


def test_tables_do_not_ask():
    """A table compares a key that has a size with others whenever some bits of the hashes agree. That asks nothing."""
    answers, (n,) = sizes("n", n=5)
    one, other = (jax.core.ShapedArray((d, 3), np.float32) for d in (n, 5))
    with answering(answers):
        assert one != other and not one == other  # noqa: SIM201
    assert not answers.asked()


def as_jax_has_it(n) -> None:
    assert not n == 5 and n != 5 and not isinstance(n, int) and bool(n) and str(n) == "n"  # noqa: SIM201
    with pytest.raises(Exception, match="inconclusive"):
        n >= 5  # noqa: B015
    for ask in (int, float, lambda n: n & 1, range):
        with pytest.raises((TypeError, jax.errors.JAXTypeError, Exception)):
            ask(n)


def test_others_sizes_are_as_jax_has_them():
    answers, _ = sizes("n", n=5)
    (other,) = export.symbolic_shape("n")
    as_jax_has_it(other)
    with answering(answers):
        as_jax_has_it(other)
    as_jax_has_it(other)
    assert not answers.asked()
