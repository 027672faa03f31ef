"""Do two graphs compute the same, op by op? They may differ in names, lines, and the order of what does not depend."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Region, Value, has_effect

# What ops say to people.
_WORDS = {"check": ("message", "args")}


def equal(left: Graph, right: Graph) -> bool:
    """Whether the graphs have the same inputs, effects and outputs. False may be said of equal ones, too."""
    numbers: dict[Hashable, int] = {}
    return list(_numbered(left, numbers)) == list(_numbered(right, numbers))


def _numbered(graph: Graph | Region, numbers: dict[Hashable, int], depth: int = 0) -> Iterator[Hashable]:
    """Yield descriptions of all parts of a graph. Values that are computed alike have one number, from `numbers`."""
    found: dict[Value, int] = {}
    for position, value in enumerate(graph.inputs):
        key: Hashable = (depth, position, str(value.dtype), value.shape)
        yield key
        found[value] = numbers.setdefault(key, len(numbers))
    for op in graph.ops:
        said = _WORDS.get(op.name, ())
        attrs = ((name, _key(attr, numbers, depth)) for name, attr in op.attrs.items() if name not in said)
        attributes = tuple(sorted(attrs))
        operands = tuple(found[x] for x in op.operands)
        for position, value in enumerate(op.results):
            key = (op.name, operands, attributes, position, str(value.dtype), value.shape)
            found[value] = numbers.setdefault(key, len(numbers))
        if has_effect(op):
            yield op.name, operands, attributes
    yield tuple(found[value] for value in graph.outputs)
    if isinstance(graph, Graph):
        yield tuple(sorted((name, found[value]) for name, value in graph.definitions.items()))


def _key(attribute: object, numbers: dict[Hashable, int], depth: int) -> str:
    if isinstance(attribute, Region):
        return str(list(_numbered(attribute, numbers, depth + 1)))
    if isinstance(attribute, tuple):
        return str([_key(item, numbers, depth) for item in attribute])
    if isinstance(attribute, np.ndarray):
        content = hashlib.blake2b(np.ascontiguousarray(attribute).reshape(-1).view(np.uint8).data).hexdigest()
        return f"{attribute.dtype}{attribute.shape}{content}"
    return f"{type(attribute).__name__} {attribute}"
