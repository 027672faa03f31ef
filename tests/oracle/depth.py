"""The depth of sweeps: `make test` has a few cases of everything, always the same; `make test-full` many, at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
full = False


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
