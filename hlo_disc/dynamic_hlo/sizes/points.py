"""Decides which signs a size of one symbol has, by its values at finitely many points.

Without products, and divided by numbers only, such an expression grows by the same amount from period to period once
its minima and maxima have settled: what holds in one period then holds in all later ones. It is exact where proofs of
inequalities fail (`n // 2 + (n + 1) // 2 == n`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple

from hlo_disc.dynamic_hlo.sizes.dim import Atom, Dim

# Points that are looked at, and parts of an expression: it is asked of many.
_MOST = 128
_LARGEST = 32


class _Tail(NamedTuple):
    """A tail: from `start` on the value grows by `growth` in each period."""

    start: int
    period: int
    growth: int

    @property
    def slope(self) -> Fraction:
        return Fraction(self.growth, self.period)


class _TooMuch(Exception):
    """The expression has another form, or needs too many points."""


def signs(d: Dim, conditions: Iterable[tuple[Dim, Callable[[int], bool]]]) -> set[int] | None:
    """Return those of -1, 0 and 1 that are signs of `d` at sizes that meet the conditions; None if undecided.

    conditions: dims of the same symbol with their relations to 0. Dims of another form are ignored.
    """
    (name,) = d.symbols
    try:
        settled = [_settled(d)]
        kept = []
        for other, holds in conditions:
            if other.symbols == d.symbols and (tail := _settled_or_none(other)):
                settled.append(tail)
                kept.append((other, holds))
        end = max(tail.start for tail in settled) + math.lcm(*(tail.period for tail in settled))
        _check(end)
    except _TooMuch:
        return None
    found = set()
    for n in range(end):
        at = {name: n}
        if all(holds(other.evaluate(at)) for other, holds in kept):
            value = d.evaluate(at)
            found.add((value > 0) - (value < 0))
    return found


def _settled_or_none(d: Dim) -> _Tail | None:
    try:
        return _settled(d)
    except _TooMuch:
        return None


@functools.lru_cache(1 << 12)
def _settled(d: Dim) -> _Tail:
    """Return a tail from which on the sign repeats with the period."""
    tail = _tail(d)
    if not tail.growth:
        return tail
    (name,) = d.symbols
    largest = max(abs(d.evaluate({name: tail.start + n})) for n in range(tail.period))
    steps = -(-largest // abs(tail.growth)) + 1
    return _checked(tail.start + steps * tail.period, tail.period, tail.growth)


@functools.lru_cache(1 << 12)
def _tail(d: Dim) -> _Tail:
    if sum(atom.size for monomial, _ in d.terms for atom in monomial) > _LARGEST:
        raise _TooMuch
    parts = []
    for monomial, c in d.terms:
        if len(monomial) > 1:
            raise _TooMuch
        if monomial:
            parts.append((_of_atom(monomial[0]), c))
    period = math.lcm(*(tail.period for tail, _ in parts))
    growth = sum(c * tail.growth * (period // tail.period) for tail, c in parts)
    return _checked(max((tail.start for tail, _ in parts), default=0), period, growth)


def _of_atom(atom: Atom) -> _Tail:
    if atom.kind == "symbol":
        return _Tail(0, 1, 1)
    if atom.kind in ("min", "max"):
        return _of_extremum(atom)
    x, k = atom.args
    if not k.is_const or k.value < 1:
        raise _TooMuch
    tail = _tail(x)
    growth = tail.growth if atom.kind == "floordiv" else 0
    return _checked(tail.start, tail.period * k.value, growth)


def _of_extremum(atom: Atom) -> _Tail:
    tails = list(map(_tail, atom.args))
    pairs = [a - b for i, a in enumerate(atom.args) for b in atom.args[:i]]
    start = max(_settled(d).start if d.symbols else 0 for d in pairs)
    period = math.lcm(*(tail.period for tail in tails))
    slope = (min if atom.kind == "min" else max)(tail.slope for tail in tails)
    return _checked(max(start, *(tail.start for tail in tails)), period, int(slope * period))


def _checked(start: int, period: int, growth: int) -> _Tail:
    _check(start + period)
    return _Tail(start, period, growth)


def _check(points: int) -> None:
    if points > _MOST:
        raise _TooMuch
