"""Contexts: where a call's tensors, memory and threads come from.

The native module asks `find_adapter` once for every new argument type. A framework's module is loaded only when one of
its arrays arrives, so the runtime works without any framework.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Adapter(Protocol):
    """What the native module wants to know about a framework's array type."""

    immutable: bool  # the arrays never change, so packed forms of them may be kept

    def give(self, array: Any) -> Any:
        """A DLPack capsule or a numpy array of the array's contents, for those that have no buffer protocol."""

    def type(self, array: Any) -> object:
        """What says the array's dtype, shape and weakness: of all arrays with the same object they are the same.

        None where nothing does.
        """

    def weak(self, array: Any) -> bool:
        """Whether the array's type gives way to any other's, as the types of JAX's numbers do."""

    def deleted(self, array: Any) -> bool:
        """Whether the array's memory was taken from it, so that a call with it is a mistake."""

    def wrap(self, array: np.ndarray, like: Any, weak: bool = False) -> Any:
        """The framework's array over `array`'s memory, of a weak type where that is asked for.

        like: the first argument of the call that is of the framework's type.
        """


# A context's answer for a type of its package: how to treat its arrays, None for what is no array type.
Claim = Callable[[type], Adapter | None]


def _jax(kind: type) -> Adapter | None:
    if "jax" not in sys.modules:  # jaxlib is there without it, for MLIR
        return None
    from hlo_disc.ral.contexts import jax

    return jax.adapter(kind)


# The package that defines a type -> the context that may claim it.
_CONTEXTS: dict[str, Claim] = {"jaxlib": _jax, "jax": _jax}


def register(package: str, claim: Claim) -> None:
    """Let arrays of a package's own types be arguments and results. A type is asked for once: register it before."""
    _CONTEXTS[package] = claim


def find_adapter(kind: type) -> Adapter | None:
    """The adapter for arrays of type `kind`; None for types that no framework here claims."""
    claim = _CONTEXTS.get((getattr(kind, "__module__", None) or "").partition(".")[0])
    return claim(kind) if claim else None
