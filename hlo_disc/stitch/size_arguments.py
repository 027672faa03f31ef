"""Sizes as arguments of kernels: from a group over a program's symbols to an equal one over numbered sizes.

One kernel serves all groups that are then equal: (b*h*w, 64) and (n, 64). Of an argument is said what is in `Known`,
and no more, so a kernel can depend on nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ir.resized import resized_ops, resized_value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Atom, Dim, make
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.frozen import frozen
from hlo_disc.stitch.fusion.group import Group, Place

# From here on a number may be an argument: smaller ones are unrolled, or decide how lanes run.
LARGE = 16


class Known(NamedTuple):
    """All that kernels know of a size: it is at least `low`, 0 or 1, and at most `high` unless that is None."""

    low: int
    high: int | None


@frozen(eq=False)
class Sized:
    """A group over arguments. facts: what is said of them. sizes: what each is in the program. known: of each.

    values: those of the program's group, by those of this one.
    """

    group: Group
    facts: ShapeFacts
    sizes: Mapping[str, Dim]
    known: tuple[Known, ...]
    values: Mapping[Value, Value]

    def real(self, size: Dim) -> Dim:
        """The size in the program's symbols."""
        return size.substitute(self.sizes) if self.sizes else size


def as_it_is(group: Group, facts: ShapeFacts) -> Sized:
    """The group over the program's symbols."""
    return Sized(group, facts, {}, (), {v: v for v in group.inputs})


class SizeArguments:
    """Makes sizes arguments. facts: of the program."""

    def __init__(self, facts: ShapeFacts):
        self._facts = facts
        self._known: dict[tuple[Dim, bool], Known] = {}

    def of(self, group: Group, numbers: bool) -> Sized:
        """The group over arguments. numbers: whether large numbers are arguments, too."""
        dims = [d for d in dict.fromkeys(group.dims()) if not d.is_const or (numbers and d.value >= LARGE)]
        sizes: dict[str, Dim] = {}  # what is given a name, by it
        spelled = self._spelled(dims)
        given = self._named_parts([*dict.fromkeys(spelled.values())], sizes)
        self._name_wholes(given, sizes)
        names: dict[str, str] = {}
        for d in given.values():
            for name in _symbols(d):
                names.setdefault(name, f"%{len(names)}")
        change = {d: given[same].substitute(names) for d, same in spelled.items()}
        means = {new: sizes[old] if old in sizes else Dim.symbol(old) for old, new in names.items()}
        several = len(group.outputs) > 1  # only then it matters whether columns may be empty
        known = tuple([self._of(size, several) for size in means.values()])
        values: dict[Value, Value] = {}
        made = _resized(group, lambda d: change.get(d, d), values)
        return Sized(made, _facts(known), means, known, {new: old for old, new in values.items()})

    def _spelled(self, dims: Sequence[Dim]) -> dict[Dim, Dim]:
        """One spelling for equal sizes: that they are equal the program's facts know, and not those of arguments."""
        found: dict[Dim, Dim] = {}
        for d in dims:
            alike = (x for x in found.values() if x.symbols == d.symbols and self._facts.equal(x, d) is Truth.YES)
            found[d] = next(alike, d)
        return found

    def _named_parts(self, dims: Sequence[Dim], sizes: dict[str, Dim]) -> dict[Dim, Dim]:
        """The dims with names for quotients and the like whose symbols are nowhere outside of them."""
        around: dict[str, dict[Atom, None]] = {}  # what is around a symbol wherever it is, outermost first

        def walk(d: Dim, path: tuple[Atom, ...]) -> None:
            for atom in _atoms(d):
                if atom.kind == "symbol":
                    known = around.get(atom.name)
                    common = path if known is None else [a for a in known if a in path]
                    around[atom.name] = dict.fromkeys(common)
                else:
                    for arg in atom.args:
                        walk(arg, (*path, atom))

        for d in dims:
            walk(d, ())
        found: dict[Atom, Dim] = {}

        def named(atom: Atom) -> Dim:
            if atom.kind == "symbol":
                return atom.dim
            if atom not in found:
                inside = {name for arg in atom.args for name in arg.symbols}
                if all(atom in around[name] for name in inside) and self._is_size(atom.dim):
                    found[atom] = _new(atom.dim, sizes)
                else:
                    found[atom] = make(atom.kind, *[arg.map_atoms(named) for arg in atom.args])
            return found[atom]

        return {d: d.map_atoms(named) for d in dims}

    def _name_wholes(self, given: dict[Dim, Dim], sizes: dict[str, Dim]) -> None:
        """Give names to sizes whose symbols are in no other one, and to numbers."""
        uses: dict[str, int] = {}
        for d in given.values():
            for name in d.symbols:
                uses[name] = uses.get(name, 0) + 1
        for old, d in given.items():
            alone = str(d) not in d.symbols and all(uses[name] == 1 for name in d.symbols)
            if alone and self._is_size(old):
                given[old] = _new(old, sizes)

    def _is_size(self, d: Dim) -> bool:
        """Symbols are taken to be 0 at least."""
        return self._facts.at_most(ZERO, d) is Truth.YES

    def _of(self, size: Dim, several: bool) -> Known:
        known = self._known.get((size, several))
        if known is None:
            low = int(size.is_const or (several and self._facts.at_most(ONE, size) is Truth.YES))
            high = None if size.is_const else self._facts.bounds(size)[1]
            known = self._known[size, several] = Known(low, None if high is None or high >= LARGE else high)
        return known


def _new(size: Dim, sizes: dict[str, Dim]) -> Dim:
    name = f"%a{len(sizes)}"
    sizes[name] = size
    return Dim.symbol(name)


def _atoms(d: Dim) -> Iterator[Atom]:
    return (atom for monomial, _ in d.terms for atom in monomial)


def _symbols(d: Dim) -> Iterator[str]:
    """The symbols of a size, as they come."""
    for atom in _atoms(d):
        if atom.kind == "symbol":
            yield atom.name
        for arg in atom.args:
            yield from _symbols(arg)


@functools.lru_cache(1 << 10)
def _facts(known: tuple[Known, ...]) -> ShapeFacts:
    """The facts that say this of arguments."""
    facts = ShapeFacts(told=known)
    for number, (low, high) in enumerate(known):
        size = Dim.symbol(f"%{number}")
        facts.add_at_least(size, low)
        if high is not None:
            facts.add_at_most(size, high)
    return facts


def _resized(group: Group, change: Callable[[Dim], Dim], values: dict[Value, Value]) -> Group:
    """The group with other sizes; what its values become is added to `values`."""

    def new(group_values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple([values[v] for v in group_values])

    for v in group.inputs:
        values[v] = resized_value(v, change)
    ops = resized_ops(group.ops, values, change)
    place = group.place
    if place:
        starts = tuple([values[x] if isinstance(x, Value) else change(x) for x in place.starts])
        shape, strides = (tuple([change(d) for d in sizes]) for sizes in (place.shape, place.strides))
        place = Place(place.target, shape, starts, strides, place.axes)
    return Group(group.schedule, ops, new(group.inputs), new(group.outputs), place)
