"""The nesting of a program's arguments and results, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.errors import ArgumentError
from hlo_disc.import_.leaves import Constant, Number

if TYPE_CHECKING:
    from jax.typing import ArrayLike

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def describe_structure(template: object) -> str:
    """Describe a nest of dicts, lists, tuples and None over numbers of inputs or outputs, or over leaves, as JSON.

    "" for a nest of other things.
    """
    try:
        return json.dumps(_encode(template))
    except TypeError:
        return ""


def _encode(node: Any) -> Json:
    if node is None or type(node) is int:
        return node
    if isinstance(node, Constant):
        return {"constant": node.value}
    if isinstance(node, Number):
        return {"number": [node.number, node.natural]}
    if type(node) is dict and all(type(key) is str for key in node):
        return {"dict": [[key, _encode(value)] for key, value in node.items()]}
    if type(node) in (list, tuple):
        return {type(node).__name__: [_encode(value) for value in node]}
    raise TypeError(type(node))


def nest(node: Any, leaves: Sequence[ArrayLike]) -> Any:
    """Nest results as a parsed description says."""
    if node is None:
        return None
    if isinstance(node, int):
        return leaves[node]
    ((kind, items),) = node.items()
    if kind == "constant":
        return items
    if kind == "number":
        return leaves[items[0]].item()
    if kind == "dict":
        return {key: nest(value, leaves) for key, value in items}
    values = [nest(value, leaves) for value in items]
    return values if kind == "list" else tuple(values)


def inputs_of(node: Any, args: Sequence[ArrayLike], kwargs: Mapping[str, ArrayLike]) -> tuple[ArrayLike, ...]:
    """Return the inputs from arguments, by the parsed nest of (args, kwargs). Raises ArgumentError."""
    found: dict[int, ArrayLike] = {}
    (positional, keywords) = node["tuple"]
    names = [name for name, _ in keywords["dict"]]
    if len(args) > len(positional["tuple"]) and not kwargs:  # by place, as PyTorch's own programs take them
        args, kwargs = args[: (n := len(positional["tuple"]))], dict(zip(names, args[n:], strict=False))
    _collect(positional, args, "the positional arguments", found)
    _collect(keywords, kwargs, "the keyword arguments", found)
    return tuple(found[i] for i in sorted(found))


def _collect(node: Any, given: object, place: str, found: dict[int, ArrayLike]) -> None:
    if isinstance(node, int):
        found[node] = given
        return
    kind: str
    items: Any
    kind, items = ("constant", None) if node is None else next(iter(node.items()))
    if kind == "constant":
        if type(given) is not type(items) or given != items:
            raise ArgumentError(f"{place}: {given!r} is given, but the program is for {items!r} alone")
    elif kind == "number":
        number, natural = items
        if type(given) is not int or natural and given < 0:
            wanted = "one that is not negative" if natural else "one"
            raise ArgumentError(f"{place}: {given!r} is given, but the program takes an int, {wanted}")
        found[number] = np.empty((max(given, 0), max(-given, 0)), bool)
    elif kind == "dict":
        names = [name for name, _ in items]
        if not isinstance(given, Mapping) or set(given) != set(names):
            got = ", ".join(map(repr, given)) if isinstance(given, Mapping) else type(given).__name__
            wanted = ", ".join(map(repr, names)) or "none"
            raise ArgumentError(f"{place}: {got or 'nothing'} given, but the program has {wanted}")
        for name, value in items:
            _collect(value, given[name], f"{place}, {name!r}", found)
    else:
        if not isinstance(given, (list, tuple)) or len(given) != len(items):
            count = len(given) if isinstance(given, (list, tuple)) else type(given).__name__
            raise ArgumentError(f"{place}: {count} given, but the program has {len(items)}")
        for number, value in enumerate(items):
            _collect(value, given[number], f"{place}, number {number}", found)
