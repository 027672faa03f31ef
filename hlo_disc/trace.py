"""From a JAX function and what is known of its arrays to a DHLO graph and the tree of its results.

The function is traced on flat arrays, so that names, dims and results are lists in flattening order everywhere below.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import HloDiscError, ShapeError
from hlo_disc.generalise import Dims
from hlo_disc.values import Leaf, Result, show

_state = threading.local()


class Traced(NamedTuple):
    """A function as a graph, the tree of its results, and what each of them is to JAX."""

    graph: Graph
    out_tree: Any
    results: tuple[Result, ...]


def trace(
    fn: Callable[..., Any],
    tree: Any,
    leaves: Sequence[Leaf],
    dims: Dims,
    names: Sequence[str],
    constraints: Sequence[str],
) -> Traced:
    """The program of `fn`, whose (args, kwargs) have the structure `tree`.

    Raises what tracing raises; JAX's refusal of a symbolic size is a ShapeError with JAX's message.
    """
    from jax import tree_util

    from hlo_disc.import_.jax import from_jax

    out_tree: list[Any] = []

    @functools.wraps(fn)
    def flat(*arrays: Any) -> list[Any]:
        args, kwargs = tree.unflatten(arrays)
        results, results_tree = tree_util.tree_flatten(fn(*args, **kwargs))
        out_tree[:] = [results_tree]
        return results

    outer, _state.active = active(), True
    try:
        graph, avals = from_jax(flat, leaves, dims, names, constraints)
    except HloDiscError:
        raise
    except Exception as error:
        if not any(map(any, dims)):
            raise
        own = _mistake(flat, leaves)
        if own is not None:
            raise own from None
        shown = ", ".join(show(n, leaf, ds) for n, leaf, ds in zip(names, leaves, dims, strict=True) if any(ds))
        raise ShapeError(
            f"{getattr(fn, '__name__', 'the function')} cannot be traced with {shown}, though it can at fixed sizes: "
            "name equal dims alike, add what you know as constraints, or keep a dim static with '_'. "
            f"JAX says:\n{error}"
        ) from error
    finally:
        _state.active = outer
    return Traced(graph, out_tree[0], tuple(Result(aval.dtype, aval.weak_type) for aval in avals))


def active() -> bool:
    """Whether this thread is tracing a function for hlo_disc: what it calls becomes part of that program."""
    return getattr(_state, "active", False)


def _mistake(flat: Callable[..., Any], leaves: Sequence[Leaf]) -> Exception | None:
    """What the function raises at the sizes of the call, where none is symbolic; None when it can be traced there."""
    import jax

    structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak) for leaf in leaves]
    try:
        jax.eval_shape(flat, *structs)
    except Exception as error:
        return error
    return None
