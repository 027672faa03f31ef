"""Contexts: where a call's tensors, memory and threads come from.

The native module asks `find_adapter` once for every new argument type. A framework's module is loaded only when one of
its arrays arrives, so the runtime works without any framework.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Protocol

import numpy as np

# The package that defines an array type -> the module here whose `adapter(type)` knows what to do with it.
_CONTEXTS = {"jaxlib": "jax", "jax": "jax"}


class Adapter(Protocol):
    """What the native module wants to know about a framework's array type."""

    immutable: bool  # the arrays never change, so packed forms of them may be kept

    def give(self, array: Any) -> Any:
        """A DLPack capsule or a numpy array of the array's contents, for those that have no buffer protocol."""

    def wrap(self, array: np.ndarray, like: Any) -> Any:
        """The framework's array over `array`'s memory; `like` is the first argument of the call that is of its type."""


def find_adapter(kind: type) -> Adapter | None:
    """The adapter for arrays of type `kind`; None for types that no framework here claims."""
    name = _CONTEXTS.get((getattr(kind, "__module__", None) or "").partition(".")[0])
    if name is None or name not in sys.modules:
        return None
    return importlib.import_module(f"{__name__}.{name}").adapter(kind)
