"""What was decided when a program was compiled, as plain data: what `explain` shows, and a profile goes by.

It travels in a program as one string, which is parsed when it is asked for. Sizes are the texts of `Dim`s.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hlo_disc.errors import FormatError


class Condition(NamedTuple):
    """What must hold of a size: it is "<=" or ">=" a number, or a "multiple of" it."""

    size: str
    relation: str
    bound: int

    def __str__(self) -> str:
        return f"{self.size} {self.relation} {self.bound}"


class Form(NamedTuple):
    """A compiled form of a launch; the first of them that applies runs.

    when: all of these must hold. packed: it needs the packed form of a weight. declines: the
    vendor's library may not take it. fast: bytes of fast memory of a block, "0" for none.
    """

    kernel: str
    when: Sequence[Condition]
    packed: bool
    declines: bool
    fast: str


class Launch(NamedTuple):
    """A group of ops that one kernel computes.

    writes: types of what it leaves in memory. ops: (name, index into the places, how many). bytes: that it reads and
    writes, each once. operations: on numbers. factors: the type of what it multiplies, where that is matrices, else "".
    at: its step, as memory counts them.
    """

    forms: Sequence[Form]
    writes: Sequence[str]
    ops: Sequence[tuple[str, int, int]]
    bytes: str
    operations: str
    factors: str
    at: int


class Held(NamedTuple):
    """A value in a slot of the arena, from one step to another, both included. bytes: its size."""

    type: str
    bytes: str
    first: int
    last: int


class Slot(NamedTuple):
    """A part of the arena; `late` where only the run knows its size. values: one after the other."""

    bytes: str
    late: bool
    values: Sequence[Held]


class Split(NamedTuple):
    """An op that starts a kernel of its own, and why. launch: which, -1 where no kernel computes it."""

    op: str
    place: int
    reason: str
    launch: int


class Account(NamedTuple):
    """What was decided.

    places: the user's lines, "model.py:12:3 (function)", "" for one that nobody knows. flow: launches by number, in
    order, and [text, [[name of a part, its flow]…]] for what the host computes, and for loops and branches. values: how
    many lie in the arena. packs: packed weights.
    """

    name: str
    places: Sequence[str]
    launches: Sequence[Launch]
    flow: Sequence[Any]
    slots: Sequence[Slot]
    values: int
    splits: Sequence[Split]
    packs: int

    @property
    def kernels(self) -> list[str]:
        """Their names, each once."""
        return list(dict.fromkeys(form.kernel for launch in self.launches for form in launch.forms))

    def text(self) -> str:
        """What `parse` reads."""
        return json.dumps(self, separators=(",", ":"))


def _form(kernel: str, when: Sequence[Any], *others: Any) -> Form:
    return Form(kernel, [Condition(*x) for x in when], *others)


def parse(text: str) -> Account:
    """Reads `Account.text`. Raises FormatError for what is none."""
    try:
        name, places, launches, flow, slots, values, splits, packs = json.loads(text)
        return Account(
            name,
            places,
            [Launch([_form(*form) for form in forms], *others) for forms, *others in launches],
            flow,
            [Slot(size, late, [Held(*value) for value in inside]) for size, late, inside in slots],
            values,
            [Split(*split) for split in splits],
            packs,
        )
    except (ValueError, TypeError) as error:
        raise FormatError(f"what this executable says of how it was compiled is damaged: {error}") from None
