"""How deep sweeps go: `make test` has a few cases of everything, always the same; `make test-full` many, at random."""

from __future__ import annotations

full = False


def set_full() -> None:
    """For `pytest --full`. Test modules ask when they are imported, so it comes before."""
    global full
    full = True


def examples(quick: int, many: int) -> int:
    """How many random examples to try."""
    return many if full else quick
