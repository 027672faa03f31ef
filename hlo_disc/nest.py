"""How the results of a program nest, as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def describe_structure(template: Any) -> str:
    """A nest of dicts, lists, tuples and None with output numbers as leaves, as JSON; "" for a nest of other things."""
    try:
        return json.dumps(_encode(template))
    except TypeError:
        return ""


def _encode(node: Any) -> Any:
    if node is None or type(node) is int:
        return node
    if type(node) is dict and all(type(key) is str for key in node):
        return {"dict": [[key, _encode(value)] for key, value in node.items()]}
    if type(node) in (list, tuple):
        return {type(node).__name__: [_encode(value) for value in node]}
    raise TypeError(type(node))


def nest(node: Any, leaves: Sequence[Any]) -> Any:
    """Results as such a nest, which is parsed, says."""
    if node is None:
        return None
    if isinstance(node, int):
        return leaves[node]
    ((kind, items),) = node.items()
    if kind == "dict":
        return {key: nest(value, leaves) for key, value in items}
    values = [nest(value, leaves) for value in items]
    return values if kind == "list" else tuple(values)
