"""The memory plan: values that live together never overlap, and a slot holds every value in it at every size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.stitch.hostflow.memory import plan_memory, value_bytes

B, S = Dim.symbol("b"), Dim.symbol("s")
F32 = np.dtype(np.float32)
SIZES = [{"b": b, "s": s} for b in (0, 1, 2, 7, 100) for s in (0, 1, 3, 50)]


def value(*shape: Dim) -> Value:
    return Value(F32, shape, None, 0)


def test_values_whose_sizes_nothing_orders_do_not_share() -> None:
    first, second = value(B), value(S)
    places, slots = plan_memory({first: (0, 1), second: (2, 3)}, ShapeFacts())
    assert places[first] is not places[second]
    assert [slot.size for slot in slots] == [4 * B, 4 * S]


@pytest.mark.parametrize("shapes", [[(B,), (B + 1,)], [(B + 1,), (B,)]])
def test_a_slot_is_as_large_as_the_larger_value(shapes: list[tuple[Dim, ...]]) -> None:
    first, second = (value(*shape) for shape in shapes)
    lives = {first: (0, 1), second: (2, 3)}
    places, slots = plan_memory(lives, ShapeFacts())
    assert places[first] is places[second] and [slot.size for slot in slots] == [4 * (B + 1)]
    places, _ = plan_memory(lives, ShapeFacts(), exact=True)
    assert places[first] is not places[second]


def test_a_value_that_is_read_at_a_step_keeps_its_place_at_that_step() -> None:
    first, second, third = value(B), value(B), value(B)
    places, slots = plan_memory({first: (0, 1), second: (1, 2), third: (2, 3)}, ShapeFacts())
    assert places[first] is not places[second] and places[second] is not places[third]
    assert places[third] is places[first] and len(slots) == 2


SHAPES = st.sampled_from([(B,), (S,), (B, S), (B + 1,), (2 * B,), (S * S,), (B * S + 1,), (B // 2,), (Dim.const(8),)])


@given(st.lists(st.tuples(SHAPES, st.integers(0, 9), st.integers(0, 4)), max_size=10), st.booleans())
def test_plans(drawn: list, exact: bool) -> None:
    lives = {value(*shape): (start, start + length) for shape, start, length in drawn}
    places, slots = plan_memory(lives, ShapeFacts(), exact)
    assert set(places) == set(lives) and {id(slot) for slot in places.values()} == set(map(id, slots))
    for v, slot in places.items():
        for sizes in SIZES:
            assert value_bytes(v).evaluate(sizes) <= slot.size.evaluate(sizes)
        for other, (start, end) in lives.items():
            if other is not v and places[other] is slot:
                assert end < lives[v][0] or lives[v][1] < start
