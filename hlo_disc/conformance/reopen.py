"""Repeats a case with dims of its inputs as symbols: as many as allow all other sizes to be inferred.

First every dim is a symbol of its own. Then dims of one size share a symbol. Then the dims that can be symbols alone
are added, one by one. Each attempt only reads the module, because inference decides which dims can be symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hlo_disc.conformance.cases import Case
from hlo_disc.errors import HloDiscError
from hlo_disc.frozen import frozen
from hlo_disc.import_.stablehlo.module import read_module

Place = tuple[int, int]  # input, axis
Naming = Mapping[Place, str]


@frozen
class Opened:
    """The dims as `compile` takes them; empty if none can be a symbol, with the `reason`. share: "2 of 3"."""

    dims: Mapping[int, str]
    share: str = ""
    reason: str = ""


def open_dims(case: Case) -> Opened:
    """Find the dims of the inputs that can be symbols."""
    places = [(i, axis) for i, x in enumerate(case.inputs) for axis in range(x.ndim)]
    if not places:
        return Opened({}, reason="no input has a dimension")
    if refused := _refuses(case, {}):
        return Opened({}, reason=f"it does not read as it is: {refused}")
    reason = ""
    for naming in _whole(case, places):
        refused = _refuses(case, naming)
        if not refused:
            return _opened(case, naming, len(places))
        reason = reason or refused
    naming = {}
    for place in places:
        more = {**naming, place: _own(place)}
        if not _refuses(case, more):
            naming = more
    if not naming:
        return Opened({}, reason=reason)
    return _opened(case, naming, len(places))


def _own(place: Place) -> str:
    return f"d{place[0]}_{place[1]}"


def _whole(case: Case, places: list[Place]) -> Iterator[Naming]:
    """List namings of all dims, then of all but those of size 1, which are often only broadcast."""
    for some in (places, [p for p in places if _size(case, p) != 1]):
        if some:
            yield {place: _own(place) for place in some}
            yield {place: f"n{_size(case, place)}" for place in some}


def _size(case: Case, place: Place) -> int:
    return int(case.inputs[place[0]].shape[place[1]])


def _opened(case: Case, naming: Naming, count: int) -> Opened:
    return Opened(_specs(case, naming), f"{len(naming)} of {count}")


def _specs(case: Case, naming: Naming) -> dict[int, str]:
    return {
        i: f"({', '.join(naming.get((i, axis), '_') for axis in range(x.ndim))})"
        for i, x in enumerate(case.inputs)
        if any((i, axis) in naming for axis in range(x.ndim))
    }


def _refuses(case: Case, naming: Naming) -> str:
    """Return why the case cannot be read with these names, or ""."""
    try:
        read_module(case.module, dims=_specs(case, naming))
        return ""
    except HloDiscError as error:
        return " ".join(str(error).split())[:300]
