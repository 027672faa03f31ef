"""Functions derived from a function of arrays: its batched form, and its derivatives. They are compiled like it.

Which arrays are differentiated is said by a `mask`, a bool each. The derivatives are those of all results that have
some, floats and complex numbers, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypedDict, TypeVar

import jax
import numpy as np

from hlo_disc.dynamic_hlo.passes.partition import SEED
from hlo_disc.tracing.signature import parse_dims

if TYPE_CHECKING:
    from jax.core import ShapedArray
    from jax.extend.core import ClosedJaxpr
    from jax.interpreters import ad
    from jax.typing import ArrayLike

    from hlo_disc.jitted.flat import FlatFunction
    from hlo_disc.jitted.transforms.primitives import Pair

    Arrays: TypeAlias = Sequence[ArrayLike]
    Results: TypeAlias = list[jax.Array]
    Tangent: TypeAlias = ArrayLike | ad.Zero
    Tangents: TypeAlias = Sequence[Tangent]
    Function: TypeAlias = Callable[..., Results]
    Moved: TypeAlias = tuple[Results, list[Tangent]]  # results, and their tangents
    Batched: TypeAlias = tuple[Results, list[int]]  # results, and their mapped axes
    Split: TypeAlias = tuple[list[ArrayLike], list[ArrayLike | None]]  # that have derivatives, and all others

    class Params(TypedDict, total=False):
        """The parameters of the primitives of transformations, of which each has some."""

        flat: FlatFunction
        jaxpr: ClosedJaxpr
        mask: Mask
        pair: Pair


T = TypeVar("T")
Mask = tuple[bool, ...]
Axes = tuple[int | None, ...]  # which axis of each array is mapped


def has_derivative(x: ArrayLike | ShapedArray) -> bool:
    """Whether an array, a number or an aval has a derivative."""
    return bool(jax.dtypes.issubdtype(getattr(x, "dtype", None) or np.result_type(type(x)), np.inexact))


def vmapped(flat: FlatFunction, axes: Axes, ranks: Sequence[int]) -> FlatFunction:
    """Return the batched function; all results are mapped along their first axes. ranks: those of the mapped arrays."""

    def mapped(*leaves: jax.Array) -> list[ArrayLike]:
        return jax.vmap(flat.call, in_axes=axes)(*leaves)

    dims = None
    if flat.dims is not None:
        dims = list(flat.dims)
        for i, (text, axis, rank) in enumerate(zip(flat.dims, axes, ranks, strict=True)):
            if text is not None and axis is not None:
                sizes = ["_" if d is None else d for d in parse_dims(text, rank - 1, flat.names[i])]
                dims[i] = ", ".join([*sizes[:axis], "mapped", *sizes[axis:]])
    return flat.derived(("vmap", axes), mapped, flat.names, dims)


def pushforward(flat: FlatFunction, mask: Mask) -> FlatFunction:
    """Return (arrays, tangents of those in the mask) -> tangents of the results: `jax.jvp`."""

    def pushed(*leaves: jax.Array) -> list[ArrayLike]:
        arrays, tangents = leaves[: len(mask)], leaves[len(mask) :]
        of, chosen = _of(flat, mask, arrays)
        typed = [t.astype(x.dtype) for t, x in zip(tangents, chosen, strict=True)]
        return jax.jvp(lambda *xs: of(*xs)[0], chosen, typed)[1]

    names = [*flat.names, *(f"tangent of {name}" for name in _chosen(mask, flat.names))]
    dims = None if flat.dims is None else [*flat.dims, *_chosen(mask, flat.dims)]
    return flat.derived(("jvp", mask), pushed, names, dims)


def pullback(flat: FlatFunction, mask: Mask, count: int) -> FlatFunction:
    """Return (arrays, cotangents of `count` differentiable results) -> cotangents of those in the mask: `jax.vjp`."""

    def pulled(*leaves: jax.Array) -> list[ArrayLike]:
        of, chosen = _of(flat, mask, leaves[: len(mask)])
        outs, pull, _ = jax.vjp(of, *chosen, has_aux=True)
        return list(pull([ct.astype(x.dtype) for ct, x in zip(leaves[len(mask) :], outs, strict=True)]))

    names = [*flat.names, *(f"cotangent {k}" for k in range(count))]
    return flat.derived(("vjp", mask), pulled, names, None)


def differentiated(flat: FlatFunction, mask: Mask) -> FlatFunction:
    """Return arrays -> results, then cotangents of those in the mask, computed from seeds; for `partition`."""

    def both(*leaves: jax.Array) -> list[ArrayLike]:
        of, chosen = _of(flat, mask, leaves)
        outs, pull, others = jax.vjp(of, *chosen, has_aux=True)
        derivatives = pull([_seed(k, x) for k, x in enumerate(outs)])
        return [*_merged([x is None for x in others], outs, others), *derivatives]

    return flat.derived(("grad", mask), both, flat.names, flat.dims, differentiates=sum(mask))


def _of(flat: FlatFunction, mask: Mask, leaves: Sequence[T]) -> tuple[Callable[..., Split], list[T]]:
    """Return a function of the arrays in the mask. It returns the differentiable results, and all others."""

    def of(*chosen: ArrayLike) -> Split:
        results = flat.call(*_merged(mask, chosen, leaves))
        return [x for x in results if has_derivative(x)], [None if has_derivative(x) else x for x in results]

    return of, _chosen(mask, leaves)


def _chosen(mask: Sequence[bool], values: Sequence[T]) -> list[T]:
    return [x for x, m in zip(values, mask, strict=True) if m]


def _merged(mask: Sequence[bool], chosen: Sequence[T], others: Sequence[T]) -> list[T]:
    """Merge the chosen arrays, where the mask says so, into the others."""
    rest = iter(chosen)
    return [next(rest) if m else x for x, m in zip(others, mask, strict=True)]


def _seed(number: int, like: jax.Array) -> jax.Array:
    return jax.ffi.ffi_call(f"{SEED}{number}", jax.ShapeDtypeStruct(like.shape, like.dtype))(like)
