"""What cannot be compiled, or must not be: calls that run through `jax.jit`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlo_disc.values import is_key

SPREAD = "JAX spreads it over the devices of a mesh, of which a program knows nothing: call it in jax.shard_map"


class FallbackPath:
    """A path through `jax.jit`, for one structure and its static values. It serves every call, inside `jax.jit` too.

    parameters: of `jax.jit`, for the function of flat arrays.
    """

    __slots__ = ("run", "reason", "arguments", "calls", "_lock")

    def __init__(
        self,
        fn: Callable[..., Any],
        tree: Any,
        reason: str,
        arguments: tuple[str, ...],
        parameters: Mapping[str, Any],
    ):
        import jax

        @functools.wraps(fn)
        def flat(*leaves: Any) -> Any:
            args, kwargs = tree.unflatten(leaves)
            return fn(*args, **kwargs)

        self.run, self.reason, self.arguments = jax.jit(flat, **parameters), reason, arguments
        self.calls, self._lock = 0, threading.Lock()

    def __call__(self, leaves: Sequence[Any]) -> Any:
        with self._lock:
            self.calls += 1
        return self.run(*leaves)

    def with_numpy(self, leaves: Sequence[Any]) -> Any:
        """A call whose arrays are all numpy's, and so are its results; random keys have no form there."""
        from jax import tree_util

        return tree_util.tree_map(lambda result: result if is_key(result.dtype) else np.asarray(result), self(leaves))


def all_numpy(kinds: Sequence[type]) -> bool:
    """Whether all arguments of these types that are arrays are numpy's, and there is one."""
    arrays = [kind for kind in kinds if hasattr(kind, "dtype")]
    return bool(arrays) and all(issubclass(kind, (np.ndarray, np.generic)) for kind in arrays)
