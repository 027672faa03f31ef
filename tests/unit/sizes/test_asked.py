"""Facts that note what they are asked: every question, with the answer that the facts themselves give."""

from __future__ import annotations

import inspect

from hlo_disc.dynamic_hlo.sizes.asked import AskedFacts
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

B, S = Dim.symbol("b"), Dim.symbol("s")
QUESTIONS = {
    "equal": (B * S, S * B + 1),
    "same_size": ((B, S), (S * B,)),
    "at_most": (B, 8),
    "less": (B, S),
    "holds": (B, ">=", 4),
    "divisible": (S, 16),
    "bounds": (B,),
    "canonical": (B + S,),
    "likely": (S,),
}


def facts() -> ShapeFacts:
    made = ShapeFacts()
    made.add_at_most(B, 8)
    made.add_divisible(S, 32)
    return made


def test_every_question_is_noted():
    public = {name for name, _ in inspect.getmembers(ShapeFacts, inspect.isfunction) if name[0] != "_"}
    assert {x for x in public if not x.startswith("add_")} - {"copy", "stated"} == QUESTIONS.keys()
    asked = AskedFacts(facts())
    with asked.noting() as answers:
        got = {name: getattr(asked, name)(*arguments) for name, arguments in QUESTIONS.items()}
    want = {name: getattr(facts(), name)(*arguments) for name, arguments in QUESTIONS.items()}
    assert got == want
    assert answers == {(name, arguments): want[name] for name, arguments in QUESTIONS.items()}


def test_iterators_are_noted_as_shapes():
    asked = AskedFacts(facts())
    with asked.noting() as answers:
        assert asked.same_size(iter([B, S]), iter([S, B])) is Truth.YES
    assert answers == {("same_size", ((B, S), (S, B))): Truth.YES}


def test_contexts_inside_note_for_themselves():
    asked = AskedFacts(facts())
    with asked.noting() as outer:
        asked.likely(B)
        with asked.noting() as inner:
            asked.bounds(B)
        asked.divisible(S, 4)
    assert [name for name, _ in outer] == ["likely", "divisible"] and [name for name, _ in inner] == ["bounds"]
    with asked.noting() as again:
        asked.note(inner)
    assert again == inner
