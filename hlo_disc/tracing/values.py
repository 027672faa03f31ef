"""JAX's values at the edge of a program, which works on numbers only.

There a Python number is an array of its type, a random key is its data, and an array of float0 (the derivatives of
integers) is one of booleans. A weak type, which another operand's type overrules, is part of a program's key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np

from hlo_disc.errors import ArgumentError, UnsupportedOpError

if TYPE_CHECKING:
    import jax
    from jax.core import Tracer
    from jax.typing import ArrayLike

    Conversion: TypeAlias = Callable[[ArrayLike], ArrayLike]
    from jax.typing import ArrayLike


_NUMBERS = (bool, int, float, complex)


class Leaf(NamedTuple):
    """The known type of one array argument. dtype: numpy's, or JAX's for random keys. weak: as for a Python number."""

    dtype: Any
    shape: tuple[int, ...]
    weak: bool = False


class Result(NamedTuple):
    """The type that a result has in JAX."""

    dtype: Any
    weak: bool


def describe(leaf: object) -> Leaf:
    """Return dtype, shape and weakness of an array, a number or a ShapeDtypeStruct.

    Raises UnsupportedOpError for what only JAX takes, what JAX raises for a masked array, and TypeError for anything
    else.
    """
    import jax
    from jax import dtypes

    if is_number(leaf):
        dtype = getattr(leaf, "dtype", None) or dtypes.canonicalize_dtype(np.result_type(type(leaf)))
        return Leaf(np.dtype(dtype), (), np.dtype(dtype) != bool)  # Python's bool is as good a type as an array's
    if isinstance(leaf, np.ndarray) and type(leaf) is not np.ndarray:
        jax.typeof(leaf)
    dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
    known = isinstance(dtype, np.dtype) and dtype.kind not in "OSUMm" or is_key(dtype)
    if not known or not isinstance(shape, tuple) or isinstance(leaf, jax.Ref):
        try:
            kind = jax.typeof(leaf)
        except (TypeError, ValueError):
            raise TypeError(f"{type(leaf).__name__} is no array") from None
        raise UnsupportedOpError(f"{kind} as an argument is not supported: pass its data, or make it inside")
    if not all(isinstance(n, int) for n in shape):
        raise ArgumentError(f"a size of {shape} is symbolic: call the function with concrete sizes")
    if is_key(dtype) or dtype == dtypes.float0:
        return Leaf(dtype, shape)
    return Leaf(np.dtype(dtypes.canonicalize_dtype(dtype)), shape, getattr(leaf, "weak_type", False))


def describe_all(leaves: Sequence[object], names: Sequence[str], function: str) -> list[Leaf]:
    """Apply `describe` to each leaf. Raises ArgumentError that names the first that is no array."""
    infos = []
    for i, leaf in enumerate(leaves):
        try:
            infos.append(describe(leaf))
        except TypeError:
            raise ArgumentError(
                f"{function}: the argument {names[i]} is a {type(leaf).__name__}, not an array or a number; "
                "pass an array, or make the argument static (static_argnames)"
            ) from None
    return infos


def show(name: str, leaf: Leaf, dims: Sequence[str | None]) -> str:
    """Format an argument for messages and stats: "x: float32[b, 8]"."""
    sizes = (str(n) if d is None else d for n, d in zip(leaf.shape, dims, strict=True))
    return f"{name}: {'weak ' if leaf.weak else ''}{leaf.dtype}[{', '.join(sizes)}]"


def is_number(leaf: object) -> bool:
    """Whether it is a Python number; JAX's own, which its transformations pass on, know their dtype."""
    return type(leaf) in _NUMBERS or (isinstance(leaf, _NUMBERS) and hasattr(leaf, "aval"))


def is_key(dtype: object) -> bool:
    """Whether it is a type of random keys."""
    from jax import dtypes

    return dtype is not None and dtypes.issubdtype(dtype, dtypes.prng_key)


def is_tracer(leaf: object) -> TypeGuard[Tracer]:
    from jax.core import Tracer

    return isinstance(leaf, Tracer)


def is_symbolic(leaf: object) -> bool:
    """Whether it is a tracer with a symbolic size: an export that goes on, or another compilation."""
    return is_tracer(leaf) and not all(isinstance(n, int) for n in leaf.shape)


def taken(leaf: object, info: Leaf) -> Conversion | None:
    """Return a function that converts an argument like `leaf` for a program; None where the program takes it as it is.

    The function raises ArgumentError for an argument of another type than `info` says.
    """
    from jax import dtypes

    if is_number(leaf):
        return functools.partial(np.asarray, dtype=info.dtype)
    if is_key(info.dtype):
        return functools.partial(_key_data, dtype=info.dtype)
    return _booleans if info.dtype == dtypes.float0 else None


def as_array(leaf: ArrayLike, info: Leaf) -> ArrayLike:
    """Return `leaf`, which a program takes except for its dtype, as an array of the compiled dtype."""
    if leaf.dtype == info.dtype and not isinstance(leaf, np.generic):
        return leaf
    return leaf.astype(info.dtype) if is_tracer(leaf) else np.asarray(leaf, info.dtype)


def given(result: Result, wrap: bool) -> Conversion | None:
    """Return a conversion of a result to what the call returns; None for none. wrap: numpy's arrays become JAX's."""
    from jax import dtypes

    from hlo_disc.ral.contexts.jax import keys_of, new_array

    if is_key(result.dtype):
        return functools.partial(keys_of, dtype=result.dtype)
    if result.dtype == dtypes.float0:
        return _float0
    return functools.partial(new_array, weak=result.weak) if wrap else None


def _key_data(keys: jax.Array, dtype: object) -> jax.Array | np.ndarray:
    from hlo_disc.ral.contexts.jax import key_data

    if keys.dtype != dtype:
        raise ArgumentError(f"an argument has dtype {keys.dtype}, but {dtype} was compiled")
    return key_data(keys)


def _booleans(array: jax.Array | np.ndarray) -> np.ndarray:
    from jax import dtypes

    if array.dtype != dtypes.float0:
        raise ArgumentError(f"an argument has dtype {array.dtype}, but float0 was compiled")
    return np.zeros(array.shape, bool)


def _float0(array: jax.Array | np.ndarray) -> np.ndarray:
    from jax import dtypes

    return np.zeros(array.shape, dtypes.float0)
