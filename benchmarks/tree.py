"""Trees of dictionaries, lists and tuples, for processes that have no JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """Return the leaves in order; dictionaries are in the order of their sorted keys."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [leaf for item in tree for leaf in leaves(item)]
    return [tree]


def with_keys(fn: Callable[[str, Any], Any], tree: Any, key: str = "") -> Any:
    """Return the tree of `fn(key, leaf)`. The key is that of the innermost dictionary around the leaf."""
    if isinstance(tree, dict):
        return {name: with_keys(fn, tree[name], name) for name in sorted(tree)}
    if isinstance(tree, list | tuple):
        return [with_keys(fn, item, key) for item in tree]
    return fn(key, tree)


def mapped(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return the tree of `fn` applied to the leaves at the same position in all trees."""
    if isinstance(tree, dict):
        return {name: mapped(fn, tree[name], *(other[name] for other in others)) for name in sorted(tree)}
    if isinstance(tree, list | tuple):
        return [mapped(fn, *items) for items in zip(tree, *others, strict=True)]
    return fn(tree, *others)
