"""Frozen dataclasses of our own next to those of `dataclasses`."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import ClassVar

import pytest

from hlo_disc.frozen import frozen


def classes(decorate, by_keyword, by_identity):
    """Classes of each kind, by one decorator or another."""

    @decorate
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: float
        y: float = 2.0
        seen: list[int] = field(default_factory=list)

    @decorate
    class Space(Point):
        """A point with more."""

        z: float = 3.0

        def __post_init__(self):
            if self.z < 0:
                raise ValueError(self.z)

        def __hash__(self):
            return 7

    @decorate
    class One:
        """A class of one field."""

        x: object

    @decorate
    class Nothing:
        """A class without fields."""

    @by_keyword
    class Named:
        """A class of keywords."""

        x: int
        y: int = 1

    @by_keyword
    class More(Named):
        """A class of more keywords."""

        z: int

    @by_identity
    class Itself:
        """A class of identity."""

        x: int

    return Point, Space, One, Nothing, Named, More, Itself


OURS = classes(frozen, frozen(kw_only=True), frozen(eq=False))
THEIRS = classes(dataclass(frozen=True), dataclass(frozen=True, kw_only=True), dataclass(frozen=True, eq=False))


@pytest.mark.parametrize("kinds", [OURS, THEIRS])
def test_what_they_do(kinds):
    Point, Space, One, Nothing, Named, More, Itself = kinds
    a, b = Point(1.0), Point(1.0, y=2.0)
    assert a == b and a != Point(2.0) and a.seen is not b.seen and a.kind == "point"
    assert Point(1.0, 2.0, ()) == Point(1.0, 2.0, ()) and Point(1.0) != Space(1.0)
    assert repr(a).endswith("Point(x=1.0, y=2.0, seen=[])") and Point.__match_args__ == ("x", "y", "seen")
    assert hash(Point(1.0, 2.0, ())) == hash((1.0, 2.0, ())) and hash(Space(1.0)) == 7
    assert [each.name for each in fields(Space)] == ["x", "y", "seen", "z"]
    assert replace(a, y=5.0) == Point(1.0, 5.0) and asdict(Space(1.0)) == {"x": 1.0, "y": 2.0, "seen": [], "z": 3.0}
    assert copy.copy(a) == a and copy.deepcopy(a) == a
    assert One(math.nan) != One(float("nan")) and One(x := math.nan) == One(x) and hash(One(3)) == hash((3,))
    assert Nothing() == Nothing() and hash(Nothing()) == hash(()) and repr(Nothing()).endswith("Nothing()")
    assert Named(x=3) == Named(y=1, x=3) and More(x=1, z=2) == More(z=2, x=1, y=1)
    assert Itself(1) != Itself(1) and len({Itself(1), Itself(1)}) == 2
    with pytest.raises(ValueError):
        Space(1.0, z=-1.0)
    for wrong in (lambda: Point(), lambda: Point(1, 2, [], 4), lambda: Point(1, q=2), lambda: Named(1)):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("kinds", [OURS, THEIRS])
def test_they_are_frozen(kinds):
    a = kinds[0](1.0)
    for change in (lambda: setattr(a, "x", 2.0), lambda: delattr(a, "x"), lambda: setattr(kinds[-1](1), "x", 2)):
        with pytest.raises(FrozenInstanceError):
            change()
    assert dataclasses.is_dataclass(a) and a.x == 1.0


def test_signatures():
    """Signatures, which documentation shows, are right before the first object and after it."""
    for number, by in ((2, frozen), (4, frozen(kw_only=True)), (6, frozen(eq=False))):
        ours = classes(by, by, by)[number]
        assert str(inspect.signature(ours)) == str(inspect.signature(THEIRS[number]))
        ours(x=1)
        assert str(inspect.signature(ours)) == str(inspect.signature(THEIRS[number]))

    class Own(OURS[2]):
        def __init__(self) -> None:
            super().__init__(5)

    assert not inspect.signature(Own).parameters and Own().x == 5
