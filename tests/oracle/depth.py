"""How deep sweeps go: `make test` has a few cases of everything, always the same; `make test-full` many, at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
full = False


def set_full() -> None:
    """For `pytest --full`. Test modules ask when they are imported, so it comes before."""
    global full
    full = True


def examples(quick: int, many: int) -> int:
    """How many random examples to try."""
    return many if full else quick


def some(cases: Sequence[T], turn: int, step: int = 0) -> Sequence[T]:
    """Some of the cases, others at each turn: every `step`-th, by default one. All of them in the deep sweeps."""
    return cases if full else cases[turn % (step or len(cases)) :: step or len(cases)]
