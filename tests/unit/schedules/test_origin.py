"""The text that decides a kernel: equal for equal kernels in all processes, and for nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hlo_disc.device import Team
from hlo_disc.dynamic_hlo.sizes.asked import AskedFacts
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch import origin
from hlo_disc.stitch.origin import Kept, Origin
from hlo_disc.stitch.size_arguments import Known

B, S, N = map(Dim.symbol, "bsn")


def identity(key, symbols=("b", "s"), answers=(), name="map", known=()):
    return Origin(name, key, symbols, dict(answers), ShapeFacts(), known).identity()


KEYS = [
    (),
    ((),),
    (1,),
    (True,),
    ("1",),
    (Dim.const(1),),
    (None,),
    ("None",),
    (1, 2),
    ((1,), 2),
    ("1,2",),
    ("a')",),
    (np.dtype("f4"),),
    ("float32",),
    (np.dtype("f8"),),
    (B,),
    (S,),
    (B + S,),
    (B * S,),
    (Team(32),),
    (Team(64),),
    (Truth.YES,),
    (Truth.NO,),
]


@pytest.mark.parametrize(("a", "b"), [*itertools.combinations(KEYS, 2)], ids=str)
def test_different_keys_have_different_texts(a, b):
    assert identity(a) != identity(b)


def test_names_forms_and_answers_tell_kernels_apart():
    asked = {("at_most", (B, 8)): Truth.YES}
    texts = [
        identity((B,)),
        identity((B,), name="reduce"),
        identity((B,), answers=asked),
        identity((B,), answers={("at_most", (B, 8)): Truth.NO}),
        identity((B,), answers={("at_most", (B, 9)): Truth.YES}),
        identity((B,), answers={("at_most", (S, 8)): Truth.YES}),
        identity((B,), known=(Known(0, None),)),
        identity((B,), known=(Known(1, None),)),
        identity((B,), known=(Known(1, 8),)),
    ]
    assert len({*texts}) == len(texts)


def test_symbols_are_numbered():
    assert identity((B * 2 + S, B)) == identity((N * 2 + S, N), ("n", "s"))
    assert identity((B, S)) != identity((S, B))


def test_what_another_process_lacks_has_no_text():
    assert identity((object(),)) is None
    assert identity((test_symbols_are_numbered,)) is None
    assert identity((np.float32(1),)) is None


def facts(size: Dim) -> ShapeFacts:
    made = ShapeFacts()
    made.add_divisible(size, 32)
    made.add_at_most(size, 96)
    return made


def test_what_was_kept_is_for_facts_with_the_same_answers():
    asked = AskedFacts(facts(S))
    with asked.noting() as answers:
        asked.divisible(S, 16)
        asked.same_size([S, B], [B * S])
        asked.holds(S, "<=", 96)
        asked.bounds(S)
        asked.canonical(S + B - S)
        asked.likely(S)
    kept = Kept({"inner_ab": "cd"}, {"map": "(index) -> ()"})
    content = origin.written(kept, answers, ("b", "s"))
    assert origin.read(content, ("b", "s"), facts(S)) == kept
    assert origin.read(content, ("k", "n"), facts(N)) == kept, "sizes have other names there"
    assert origin.read(content, ("b", "s"), ShapeFacts()) is None
    assert origin.read(content, ("n", "b"), facts(N)) is None, "it is of the other symbol"
    other = facts(S)
    other.add_at_most(S, 64)
    assert origin.read(content, ("b", "s"), other) is None
