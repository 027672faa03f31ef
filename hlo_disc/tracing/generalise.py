"""Finds the dims that a program needs from the sizes of calls: which are fixed, which vary, which vary together.

Pure functions over `Sizes`; `jit` uses them if the user has named no dims. Sizes 0 and 1 are like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Sizes = tuple[tuple[int, ...], ...]  # one call: the shape of each argument
Dims = tuple[tuple[str | None, ...], ...]  # the same with dim expressions; None is a size fixed at compile time

_MENTIONED = 4
# Of the names of arrays that are there for their first size alone, which the rest of the name is about.
STATIC = "static "


def generalise(history: Sequence[Sizes]) -> Dims:
    """Return the dims for every call in `history`: sizes that never changed stay fixed, equal ones share a symbol.

    An argument whose sizes have changed at two calls is expected to change in all of them: each of its axes is a dim.

    [((4, 8), (4,)), ((5, 8), (5,))] -> (("d0", None), ("d0",))
    """
    columns = [list(zip(*shapes, strict=True)) for shapes in zip(*history, strict=True)]
    names: dict[tuple[object, ...], str] = {}
    dims = []
    for argument, column in enumerate(columns):
        free = len({_first_change(values) for values in column} - {0}) > 1
        row: list[str | None] = []
        for axis, values in enumerate(column):
            changes = len(set(values)) > 1
            key: tuple[object, ...] = values if changes else ("free", argument, axis)
            row.append(names.setdefault(key, f"d{len(names)}") if changes or free else None)
        dims.append(tuple(row))
    return tuple(dims)


def _first_change(values: Sequence[int]) -> int:
    """Return the first call with another size than the first one, or 0."""
    return next((call for call, size in enumerate(values) if size != values[0]), 0)


def fixed(dims: Dims, sizes: Sizes) -> Sizes:
    """Return the sizes with 0 in place of those that are dims."""
    return tuple(
        tuple(n if d is None else 0 for d, n in zip(ds, ns, strict=True)) for ds, ns in zip(dims, sizes, strict=True)
    )


def place_of(name: str, axis: int) -> str:
    """Name a size of an argument for messages."""
    return name if name.startswith(STATIC) else f"{name}.shape[{axis}]"


def changes(names: Sequence[str], dims: Dims, compiled: Sizes, sizes: Sizes) -> Iterator[str]:
    """Describe how a call does not fit `generalise`'s dims, by the user's argument names; nothing for one that fits."""
    seen: dict[str, tuple[str, int]] = {}
    for name, ds, olds, news in zip(names, dims, compiled, sizes, strict=True):
        for axis, (d, old, new) in enumerate(zip(ds, olds, news, strict=True)):
            place = place_of(name, axis)
            if d is None:
                if old != new:
                    yield f"{place} was always {old} and is now {new}"
                continue
            first, size = seen.setdefault(d, (place, new))
            if new != size:
                yield f"{first} and {place} were always equal and are now {size} and {new}"


def reason(names: Sequence[str], dims: Dims, compiled: Sizes, sizes: Sizes) -> str:
    """The first few `changes`, as the reason for another compilation."""
    found = list(changes(names, dims, compiled, sizes))
    more = len(found) - _MENTIONED
    return "; ".join(found[:_MENTIONED]) + (f"; and {more} more" if more > 0 else "")
