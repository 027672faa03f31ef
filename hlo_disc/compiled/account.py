"""The decisions of a compilation as plain data, which `explain` shows and profiles use.

A program holds them as one string, which is parsed on demand. Sizes are the texts of `Dim`s.
"""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hlo_disc.errors import FormatError


class Condition(NamedTuple):
    """A condition on a size: it is "<=" or ">=" a number, or a "multiple of" it."""

    size: str
    relation: str
    bound: int

    def __str__(self) -> str:
        return f"{self.size} {self.relation} {self.bound}"


class Form(NamedTuple):
    """A compiled form of a launch; the first of them that applies runs.

    when: conditions that must all hold. packed: it needs the packed form of a weight. declines: the vendor's library
    may not take it. fast: bytes of fast memory of a block, "0" for none.
    """

    kernel: str
    when: Sequence[Condition]
    packed: bool
    declines: bool
    fast: str


class Launch(NamedTuple):
    """A group of ops that one kernel computes.

    writes: types of the values that it stores in memory. ops: (name, index into the places, number). bytes: the bytes
    that it reads and writes, each once. operations: its operations on numbers. factors: the type of the matrices that
    it multiplies, "" if there are none. at: its step, as memory counts steps.
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
    """A part of the arena. late: only the run knows its size. values: its values, one after the other."""

    bytes: str
    late: bool
    values: Sequence[Held]


class Split(NamedTuple):
    """An op that starts a kernel of its own, and the reason. launch: its launch, -1 if no kernel computes it."""

    op: str
    place: int
    reason: str
    launch: int


class Account(NamedTuple):
    """The decisions of the compilation of a program.

    places: the user's lines, "model.py:12:3 (function)", "" for an unknown one. flow: launches by number, in order, and
    [text, [[name of a part, its flow]…]] for the host's computations, loops and branches. values: the number of values
    in the arena. packs: the number of packed weights.
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
        """The names of the kernels, each once."""
        return list(dict.fromkeys(form.kernel for launch in self.launches for form in launch.forms))

    def text(self) -> str:
        """Return the text that `parse` reads."""
        return json.dumps(self, separators=(",", ":"))


def parse(text: str) -> Account:
    """Read the text of `Account.text`. Raises FormatError for any other text."""
    try:
        account: Account = _read(Account, json.loads(text))
        _check_numbers(account)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"what this executable says of how it was compiled is damaged: {error}") from None
    return account


def _read(kind: object, value: object) -> Any:
    """Read `value` as a record (a list of its fields), a Sequence, a tuple or a plain type. Raises ValueError."""
    form, kinds = _form(kind)
    if kind is Any or form is None and type(value) is kind:
        return value
    if form is list and isinstance(value, list):
        return [_read(kinds, x) for x in value]
    if form is not None and isinstance(value, list) and len(value) == len(kinds):
        return form(map(_read, kinds, value))
    raise ValueError(f"{value!r:.40} is no {kind}")


@functools.cache
def _form(kind: object) -> tuple[Callable[..., object] | None, Any]:
    """Return the constructor of a type from a list, None for a plain type, and the types of the list's elements."""
    if hasattr(kind, "_make"):
        return kind._make, [*typing.get_type_hints(kind).values()]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    return (tuple, arguments) if origin is tuple else (list, arguments[0]) if origin else (None, None)


def _check_numbers(account: Account) -> None:
    """Check the numbers of places and launches. Raises ValueError for one that does not exist."""
    places = [place for launch in account.launches for _, place, _ in launch.ops] + [x.place for x in account.splits]
    launches = [*_numbers(account.flow), *(split.launch for split in account.splits if split.launch != -1)]
    for what, numbers, count in (("place", places, len(account.places)), ("launch", launches, len(account.launches))):
        for number in numbers:
            if not 0 <= number < count:
                raise ValueError(f"there is no {what} {number} of {count}")


def _numbers(flow: Sequence[object]) -> Iterator[int]:
    """Yield the launches of a flow, and of the flows in it."""
    for item in flow:
        if isinstance(item, list):
            _, parts = _read(tuple[str, Sequence[tuple[str, Sequence[Any]]]], item)
            for _, inside in parts:
                yield from _numbers(inside)
        else:
            yield _read(int, item)
