"""`jax.lax.associative_scan` over a symbolic number of elements.

JAX halves the number of elements in Python until one is left, so that each number would need a program of its own. Here
the elements are combined one after the other, which is right for every associative function, commutative or not.
Results differ by the grouping of sums. The loop is faster than the passes over memory that halving makes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
from jax import lax, tree_util
from jax._src.lax import lax as lax_internal

from hlo_disc.import_.jax_edge.size_questions import is_answered

Combine = Callable[[list[jax.Array], list[jax.Array]], list[jax.Array]]
T = TypeVar("T")


_function = inspect.unwrap(lax.associative_scan)
# As it is, for all other sizes.
_theirs = types.FunctionType(
    _function.__code__, _function.__globals__, _function.__name__, _function.__defaults__, _function.__closure__
)


def install() -> None:
    """Replace the function's own code, because libraries hold the function under names of their own."""
    _function.__code__ = _in_its_place.__code__


def _in_its_place(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """Run in the place of the function, with JAX's globals."""
    from hlo_disc.import_.jax_edge.size_scans import scanned

    return scanned(fn, elems, reverse, axis)


def scanned(fn: Callable[[T, T], T], elems: T, reverse: bool, axis: int) -> T:
    """Compute the result of `jax.lax.associative_scan`."""
    flat, tree = tree_util.tree_flatten(elems)
    # To reverse, JAX takes no axis from the end.
    sizes = [x.shape[axis] for x in flat if (0 if reverse else -x.ndim) <= axis < x.ndim] if callable(fn) else []
    n = next(filter(is_answered, sizes), None)
    if n is None or len(sizes) < len(flat) or not all(n == other for other in sizes):
        return _theirs(fn, elems, reverse, axis)
    if n < 2:
        return elems
    axis %= flat[0].ndim

    def combine(a: list[jax.Array], b: list[jax.Array]) -> list[jax.Array]:
        results = fn(tree_util.tree_unflatten(tree, a), tree_util.tree_unflatten(tree, b))
        return tree_util.tree_leaves(results)

    return tree_util.tree_unflatten(tree, _one_by_one(combine, flat, axis, reverse))


def _one_by_one(combine: Combine, elems: Sequence[jax.Array], axis: int, reverse: bool) -> list[jax.Array]:
    """Combine the elements along their axis one by one with the result so far."""
    first, rest = ((-1, None), (0, -1)) if reverse else ((0, 1), (1, None))
    start = [lax.slice_in_dim(x, *first, axis=axis) for x in elems]
    left = [jax.numpy.moveaxis(lax.slice_in_dim(x, *rest, axis=axis), axis, 0) for x in elems]

    def turn(before: list[jax.Array], xs: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        found = combine(before, [lax.expand_dims(x, (axis,)) for x in xs])
        return found, [lax.squeeze(x, (axis,)) for x in found]

    _, others = lax.scan(turn, start, left, reverse=reverse)
    others = [jax.numpy.moveaxis(x, 0, axis) for x in others]
    parts = zip(others, start, strict=True) if reverse else zip(start, others, strict=True)
    return [lax_internal._convert_element_type(lax.concatenate(pair, axis), weak_type=False) for pair in parts]
