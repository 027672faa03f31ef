"""The memory plan: which intermediate values share a place in the one arena of a call.

A value takes over a slot whose last reader has run, when the facts prove that one of the two sizes holds the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_disc.dynamic_hlo.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.graph import Value

ALIGNMENT = 64


@dataclass(eq=False)
class Slot:
    """A part of the arena, `size` bytes at least, free again after step `until`."""

    size: Dim
    until: int


def value_bytes(value: Value) -> Dim:
    """Bytes of the value in memory; bool takes a byte."""
    return dim_product(value.shape) * value.dtype.itemsize


def plan_memory(lives: Mapping[Value, tuple[int, int]], facts: ShapeFacts) -> tuple[dict[Value, Slot], list[Slot]]:
    """Slots for values that live from one step to another, both included."""
    slots: list[Slot] = []
    places: dict[Value, Slot] = {}
    for value, (start, end) in sorted(lives.items(), key=lambda item: item[1]):
        size = value_bytes(value)
        slot = _take([s for s in slots if s.until < start], size, facts)
        if slot is None:
            slot = Slot(size, end)
            slots.append(slot)
        slot.until = end
        places[value] = slot
    return places, slots


def _take(free: Sequence[Slot], size: Dim, facts: ShapeFacts) -> Slot | None:
    for slot in free:
        if slot.size == size:
            return slot
    larger = [s for s in free if facts.at_most(size, s.size) is Truth.YES]
    if larger:
        return min(larger, key=lambda s: facts.likely(s.size))
    smaller = [s for s in free if facts.at_most(s.size, size) is Truth.YES]
    if smaller:
        slot = max(smaller, key=lambda s: facts.likely(s.size))
        slot.size = size
        return slot
    return None
