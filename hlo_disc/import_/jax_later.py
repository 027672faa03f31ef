"""JAX, which is imported when one of its functions is first called: `from hlo_disc.import_.jax_later import jax, jnp`.

The readers of PyTorch and TensorFlow have rows that JAX traces. Few programs have such an op, and the import of JAX
takes longer than that of the reader. An attribute, as `jax.lax.erf_inv`, is a function and nothing else: dtypes and
numbers are numpy's.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

__all__ = ["jax", "jnp"]

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
else:

    class _Later:
        """A module, a function of it, or a type that only annotations name, by its path."""

        def __init__(self, module: str, *path: str):
            self._module, self._path = module, path

        def __getattr__(self, name: str) -> _Later:
            if name.startswith("__"):  # of protocols, which others ask for
                raise AttributeError(name)
            return _Later(self._module, *self._path, name)

        def __call__(self, *args: object, **kwargs: object) -> object:
            return functools.reduce(getattr, self._path, importlib.import_module(self._module))(*args, **kwargs)

    jax, jnp = _Later("jax"), _Later("jax.numpy")
