"""From a JAX function and what is known of its arrays to a DHLO graph and the tree of its results.

The function is traced on flat arrays, so that names, dims and results are lists in flattening order everywhere below.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import ArgumentError, HloDiscError, ShapeError, UnsupportedOpError
from hlo_disc.generalise import Dims

_state = threading.local()


class Leaf(NamedTuple):
    """What is known of one array argument. `weak`: a Python number, which takes the others' dtype."""

    dtype: np.dtype
    shape: tuple[int, ...]
    weak: bool = False


def describe(leaf: Any) -> Leaf:
    """dtype, shape and weakness of an array, a number or a ShapeDtypeStruct. Raises TypeError for anything else."""
    from jax import dtypes

    if type(leaf) in (bool, int, float, complex):
        return Leaf(np.dtype(dtypes.canonicalize_dtype(np.result_type(type(leaf)))), (), True)
    dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
    if dtype is not None and dtypes.issubdtype(dtype, dtypes.extended):
        raise UnsupportedOpError(
            f"an array of {dtype} as an argument is not supported: pass its data, or make it inside"
        )
    if not isinstance(dtype, np.dtype) or not isinstance(shape, tuple) or dtype.kind in "OSUMm":
        raise TypeError(f"{type(leaf).__name__} is no array")
    if not all(isinstance(n, int) for n in shape):
        raise ArgumentError(f"a size of {shape} is symbolic: call the function with concrete sizes")
    return Leaf(np.dtype(dtypes.canonicalize_dtype(dtype)), shape)


def describe_all(leaves: Sequence[Any], names: Callable[[], Sequence[str]], function: str) -> list[Leaf]:
    """`describe` for each leaf. Raises ArgumentError that names the first that is no array."""
    infos = []
    for i, leaf in enumerate(leaves):
        try:
            infos.append(describe(leaf))
        except TypeError:
            raise ArgumentError(
                f"{function}: the argument {names()[i]} is a {type(leaf).__name__}, not an array or a number; "
                "pass an array, or make the argument static (static_argnames)"
            ) from None
    return infos


def show(name: str, leaf: Leaf, dims: Sequence[str | None]) -> str:
    """An argument as messages and stats show it: "x: float32[b, 8]"."""
    sizes = (str(n) if d is None else d for n, d in zip(leaf.shape, dims, strict=True))
    return f"{name}: {leaf.dtype}[{', '.join(sizes)}]"


def trace(
    fn: Callable[..., Any],
    tree: Any,
    leaves: Sequence[Leaf],
    dims: Dims,
    names: Sequence[str],
    constraints: Sequence[str],
) -> tuple[Graph, Any]:
    """The graph of `fn`, whose (args, kwargs) have the structure `tree`, and the tree of its results.

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
        graph = from_jax(flat, leaves, dims, names, constraints)
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
    return graph, out_tree[0]


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
