"""From the sizes that calls passed to the dims that a program needs: which are fixed, which vary, which vary together.

Pure functions over `Sizes`; `jit` uses them when the user has named no dims. Sizes 0 and 1 are like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo_disc.dynamic_hlo.sizes.dim import Dim

Sizes = tuple[tuple[int, ...], ...]  # one call: the shape of each argument
Dims = tuple[tuple[str | None, ...], ...]  # the same with dim expressions; None is a size fixed at compile time

_MENTIONED = 4


def generalise(history: Sequence[Sizes], offsets: bool = False) -> Dims:
    """The dims for every call in `history`: what never changed stays fixed, what was always equal shares a symbol.

    [((4, 8), (4,)), ((5, 8), (5,))] -> (("d0", None), ("d0",))
    offsets: what always changed by as much shares one too: [((4, 5),), ((6, 7),)] -> (("d0", "d0 + 1"),)
    """
    columns = [list(zip(*shapes, strict=True)) for shapes in zip(*history, strict=True)]
    changing = [values for column in columns for values in column if len(set(values)) > 1]
    # Of the sizes that share a symbol the smallest is the symbol itself.
    smallest: dict[tuple[int, ...], int] = {}
    for values in changing:
        key = _steps(values, offsets)
        smallest[key] = min(smallest.get(key, values[0]), values[0])
    names = {key: f"d{i}" for i, key in enumerate(smallest)}

    def dim(values: tuple[int, ...]) -> str | None:
        if len(set(values)) == 1:
            return None
        key = _steps(values, offsets)
        offset = values[0] - smallest[key]
        return f"{names[key]} + {offset}" if offset else names[key]

    return tuple(tuple(map(dim, column)) for column in columns)


def _steps(values: tuple[int, ...], offsets: bool) -> tuple[int, ...]:
    return tuple(value - values[0] for value in values) if offsets else values


def fixed(dims: Dims, sizes: Sizes) -> Sizes:
    """The sizes with 0 in place of those that are dims."""
    return tuple(
        tuple(n if d is None else 0 for d, n in zip(ds, ns, strict=True)) for ds, ns in zip(dims, sizes, strict=True)
    )


def changes(names: Sequence[str], dims: Dims, compiled: Sizes, sizes: Sizes) -> Iterator[str]:
    """What of a call does not fit `generalise`'s dims, in the user's argument names; nothing for a call that fits."""
    seen: dict[Dim, tuple[str, int, int]] = {}
    for name, ds, olds, news in zip(names, dims, compiled, sizes, strict=True):
        for axis, (d, old, new) in enumerate(zip(ds, olds, news, strict=True)):
            place = f"{name}.shape[{axis}]"
            if d is None:
                if old != new:
                    yield f"{place} was always {old} and is now {new}"
                continue
            offset = Dim.parse(d).constant_term
            first, size, base = seen.setdefault(Dim.parse(d) - offset, (place, new, offset))
            if new - offset != size - base:
                apart = f"always {abs(offset - base)} apart" if offset != base else "always equal"
                yield f"{first} and {place} were {apart} and are now {size} and {new}"


def reason(names: Sequence[str], dims: Dims, compiled: Sizes, sizes: Sizes) -> str:
    """The first few `changes`, as the reason for another compilation."""
    found = list(changes(names, dims, compiled, sizes))
    more = len(found) - _MENTIONED
    return "; ".join(found[:_MENTIONED]) + (f"; and {more} more" if more > 0 else "")
