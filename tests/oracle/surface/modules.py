"""JAX's public functions, as its modules list them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

ROOTS = ("jax.numpy", "jax.numpy.fft", "jax.numpy.linalg", "jax.lax", "jax.lax.linalg", "jax.nn", "jax.nn.initializers",
         "jax.random", "jax.image", "jax.scipy")  # fmt: skip


def modules() -> Iterator[ModuleType]:
    """The modules of `ROOTS`, and the public ones below jax.scipy."""
    for name in ROOTS:
        module = importlib.import_module(name)
        yield from _below(module) if name == "jax.scipy" else [module]


def _below(module: ModuleType) -> Iterator[ModuleType]:
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not found.name.startswith("_"):
            yield from _below(importlib.import_module(f"{module.__name__}.{found.name}"))


def public_functions() -> Iterator[str]:
    """The full names of all public callables but classes: "jax.numpy.sum"."""
    for module in modules():
        for name in getattr(module, "__all__", None) or dir(module):
            if not name.startswith("_") and callable(value := getattr(module, name)) and not inspect.isclass(value):
                yield f"{module.__name__}.{name}"


def function(name: str) -> Callable[..., Any]:
    """Return the object that a full name stands for. Raises AttributeError."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
