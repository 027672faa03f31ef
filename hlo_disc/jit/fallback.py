"""What cannot be compiled, or must not be: calls that run through `jax.jit`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlo_disc.values import is_key


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
        results = self.run(*leaves)
        if not _all_numpy(leaves):
            return results
        from jax import tree_util

        # Random keys have no form in numpy.
        return tree_util.tree_map(lambda result: result if is_key(result.dtype) else np.asarray(result), results)


def _all_numpy(leaves: Sequence[Any]) -> bool:
    """Whether all arrays of a call are numpy's, and there is one: its results are numpy's then."""
    arrays = [leaf for leaf in leaves if hasattr(leaf, "dtype")]
    return bool(arrays) and all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in arrays)
