"""From the sizes that calls passed to the dims that a program needs: which are fixed, which vary, which vary together.

Pure functions over `Sizes`; `jit` uses them when the user has named no dims. Sizes 0 and 1 are like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

Sizes = tuple[tuple[int, ...], ...]  # one call: the shape of each argument
Dims = tuple[tuple[str | None, ...], ...]  # the same with symbol names; None is a size fixed at compile time

_MENTIONED = 4


def generalise(history: Sequence[Sizes]) -> Dims:
    """The dims for every call in `history`: what never changed stays fixed, what was always equal shares a symbol.

    [((4, 8), (4,)), ((5, 8), (5,))] -> (("d0", None), ("d0",))
    """
    symbols: dict[tuple[int, ...], str] = {}

    def dim(values: tuple[int, ...]) -> str | None:
        if len(set(values)) == 1:
            return None
        return symbols.setdefault(values, f"d{len(symbols)}")

    return tuple(tuple(dim(values) for values in zip(*shapes, strict=True)) for shapes in zip(*history, strict=True))


def reason(names: Sequence[str], history: Sequence[Sizes]) -> str:
    """Why the last call of `history` needs another compilation, in the user's argument names."""
    if len(history) == 1:
        return "first call"
    before, now = generalise(history[:-1]), history[-1]
    changes: list[str] = []
    together: dict[str, tuple[str, int]] = {}
    for name, dims, was, sizes in zip(names, before, history[-2], now, strict=True):
        for axis, (dim, old, new) in enumerate(zip(dims, was, sizes, strict=True)):
            place = f"{name}.shape[{axis}]"
            if dim is None:
                if old != new:
                    changes.append(f"{place} was always {old} and is now {new}")
                continue
            first, size = together.setdefault(dim, (place, new))
            if size != new:
                changes.append(f"{first} and {place} were always equal and are now {size} and {new}")
    more = len(changes) - _MENTIONED
    return "; ".join(changes[:_MENTIONED]) + (f"; and {more} more" if more > 0 else "")
