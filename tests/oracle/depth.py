"""The depth of sweeps: `make test` has a few cases of everything, always the same; `make test-full` many, at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
U = TypeVar("U")
full = False
_GOLDEN = (5**0.5 - 1) / 2


def set_full() -> None:
    """Make sweeps deep, for `pytest --full`. Test modules ask when they are imported, so call it before."""
    global full
    full = True


def examples(quick: int, many: int) -> int:
    """Return the number of random examples to try."""
    return many if full else quick


def some(cases: Sequence[T], turn: int, step: int = 0) -> Sequence[T]:
    """Return some of the cases, others at each turn: every `step`-th, by default one. Deep sweeps have all of them."""
    return cases if full else cases[turn % (step or len(cases)) :: step or len(cases)]


def crossed(cases: Sequence[T], levels: Sequence[U]) -> list[tuple[T, U]]:
    """Return each case with one of the levels, the next with the next. Deep sweeps have all pairs."""
    return [(case, level) for turn, case in enumerate(cases) for level in some(levels, turn)]


def ends(levels: Sequence[T]) -> Sequence[T]:
    """Return the first and the last level. Deep sweeps have all."""
    return levels if full or len(levels) < 3 else (levels[0], levels[-1])


def sampled(step: int) -> pytest.MarkDecorator:
    """Mark a test of many similar cases, of which `make test` runs about every `step`-th."""
    return pytest.mark.sampled(step)


def is_kept(number: int, step: int) -> bool:
    """Whether a sample has the case of this number.

    Multiples of the golden ratio, modulo 1, are spread evenly, and keep step with no parameter. A sample has all values
    of each if there are enough cases: `test_depth.py` says how many.
    """
    return number * _GOLDEN % 1 < 1 / step
