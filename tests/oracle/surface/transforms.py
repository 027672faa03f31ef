"""JAX's transformations of a row: around the compiled call, or compiled themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Function = Callable[..., Any]


class Transform(NamedTuple):
    """A transformation of a row's function.

    inside: what is made of the function before it is compiled. around: what is made of the compiled one. batched:
    whether its arrays are several of the row's. differentiates: whether one of them has to be a float.
    """

    inside: Callable[[Function], Function]
    around: Callable[[Function], Function]
    batched: bool = False
    differentiates: bool = True


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _direction(x: Any) -> np.ndarray:
    """Return a tangent or cotangent of an array."""
    if not _is_float(x):
        return np.zeros(x.shape, jax.dtypes.float0)
    return np.cos(np.arange(np.prod(x.shape))).reshape(x.shape).astype(x.dtype)


def _numbers(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Return the indices of the arrays that are differentiated."""
    return tuple(i for i, x in enumerate(arrays) if _is_float(x))


def _itself(fn: Function) -> Function:
    return fn


def _loss(fn: Function) -> Function:
    """Return a function that computes a weighted sum of all floats that `fn` returns."""

    def loss(*arrays: Any) -> jax.Array:
        floats = [x for x in jax.tree.leaves(fn(*arrays)) if _is_float(x)]
        parts = [part for x in floats for part in ((x.real, x.imag) if jnp.iscomplexobj(x) else (x,))]
        return sum((jnp.sum(x * jnp.cos(jnp.arange(x.size)).reshape(x.shape).astype(x.dtype)) for x in parts), 0.0)

    return loss


def _vjp(fn: Function) -> Function:
    def of(*arrays: Any) -> Any:
        results, pull = jax.vjp(fn, *arrays)
        return results, pull(jax.tree.map(_direction, results))

    return of


def _jvp(fn: Function) -> Function:
    return lambda *arrays: jax.jvp(fn, arrays, tuple(map(_direction, arrays)))


def _value_and_grad(fn: Function) -> Function:
    return lambda *arrays: jax.value_and_grad(fn, _numbers(arrays))(*arrays)


def _by_one(transform: Any) -> Callable[[Function], Function]:
    """Return a transform by the first array that is differentiated."""
    return lambda fn: lambda *arrays: transform(fn, _numbers(arrays)[0])(*arrays)


def _of_each(transform: Callable[[Function], Function]) -> Callable[[Function], Function]:
    return lambda fn: jax.vmap(transform(fn))


TRANSFORMS: Mapping[str, Transform] = {
    "vjp": Transform(_itself, _vjp),
    "jvp": Transform(_itself, _jvp),
    "grad": Transform(_loss, _value_and_grad),
    "grad_in_jit": Transform(_loss, lambda fn: jax.jit(_value_and_grad(fn))),
    "jit_of_grad": Transform(lambda fn: _value_and_grad(_loss(fn)), _itself),
    "vmap": Transform(_itself, jax.vmap, batched=True, differentiates=False),
    "vmap_of_grad": Transform(_loss, _of_each(_value_and_grad), batched=True),
    "jacrev": Transform(_itself, _by_one(jax.jacrev)),
    "jacfwd": Transform(_itself, _by_one(jax.jacfwd)),
    "hessian": Transform(_loss, _by_one(jax.hessian)),
}
NONE = Transform(_itself, _itself, differentiates=False)
