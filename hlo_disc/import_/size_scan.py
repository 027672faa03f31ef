"""`lax.associative_scan` along an axis whose size is symbolic.

JAX halves arrays in Python until there is one element left, so that their size has to be a number. Here they are halved
as often as a call needs, and somewhat more: further halvings of one element or none change nothing, so that the program
is right for all smaller sizes. Elements are combined in JAX's order, to the same bits. A last element without a
partner, which JAX leaves out, is its own; what comes of the two is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax._src import core, util

from hlo_disc.import_.size_questions import at_call, is_answered

_STEP = 4  # so many halvings more at once: all sizes take a few programs


def associative_scan(own: Callable[..., Any], fn: Any, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """own: JAX's, for all that is not about symbolic sizes."""
    flat, tree = jax.tree.flatten(elems)
    if not callable(fn) or not flat or not all(isinstance(x, core.Tracer) and x.ndim for x in flat):
        return own(fn, elems, reverse, axis)
    axis = util.canonicalize_axis(axis, flat[0].ndim)
    size = flat[0].shape[axis]
    if not is_answered(size) or any(x.ndim <= axis or x.shape[axis] != size for x in flat):
        return own(fn, elems, reverse, axis)
    halvings = max(-(-(at_call(size) - 1).bit_length() // _STEP), 1) * _STEP
    if size > 1 << halvings:  # asked, so that larger sizes have another program
        raise AssertionError("it is no larger at this call")

    def combined(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return jax.tree.leaves(fn(tree.unflatten(left), tree.unflatten(right)))

    turned = [lax.rev(x, [axis]) for x in flat] if reverse else flat
    scanned = _scan(combined, turned, axis, halvings)
    return tree.unflatten([lax.rev(x, [axis]) for x in scanned] if reverse else scanned)


def _scan(combined: Callable[..., list[Any]], xs: Sequence[Any], axis: int, halvings: int) -> Sequence[Any]:
    if not halvings:
        return xs
    size = xs[0].shape[axis]
    half = (size + 1) // 2
    first = core.min_dim(half, 1)
    left, right = zip(*(_pairs(x, axis, half) for x in xs), strict=True)
    odd = _scan(combined, combined(left, right), axis, halvings - 1)
    even = combined([_part(x, 0, half - first, axis) for x in odd], [_part(x, first, half, axis) for x in left])
    even = [lax.concatenate([_part(x, 0, first, axis), y], axis) for x, y in zip(left, even, strict=True)]
    return [_part(_joined(x, y, axis), 0, size, axis) for x, y in zip(even, odd, strict=True)]


def _part(x: Any, start: Any, limit: Any, axis: int) -> Any:
    return lax.slice_in_dim(x, start, limit, axis=axis)


def _pairs(x: Any, axis: int, half: Any) -> list[Any]:
    """The elements at even and at odd places, as many of each."""
    size = x.shape[axis]
    even = lax.concatenate([x, _part(x, 2 * (size - half), size, axis)], axis)
    paired = lax.reshape(even, (*x.shape[:axis], half, 2, *x.shape[axis + 1 :]))
    return [lax.index_in_dim(paired, k, axis + 1, keepdims=False) for k in range(2)]


def _joined(even: Any, odd: Any, axis: int) -> Any:
    paired = lax.concatenate([lax.expand_dims(x, (axis + 1,)) for x in (even, odd)], axis + 1)
    return lax.reshape(paired, (*even.shape[:axis], 2 * even.shape[axis], *even.shape[axis + 1 :]))
