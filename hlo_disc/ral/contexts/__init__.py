"""Contexts: the sources of a call's tensors, memory and threads.

The native module asks `find_adapter` once for every new argument type. A framework's module is loaded only when one of
its arrays arrives, so the runtime works without any framework.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Tensor(Protocol):
    """A tensor that exposes its memory through DLPack."""

    def __dlpack__(self) -> object: ...


class Adapter(Protocol):
    """The interface by which the native module uses a framework's array type."""

    immutable: bool  # the arrays never change, so packed forms of them may be kept

    def give(self, array: Any) -> Any:
        """Return a DLPack capsule or a numpy array of the contents of an array without the buffer protocol."""

    def type(self, array: Any) -> object:
        """Return an object that determines the dtype, shape and weakness of all arrays that have it.

        None where there is no such object.
        """

    def weak(self, array: Any) -> bool:
        """Whether any other type wins over the array's, as over the types of JAX's numbers."""

    def deleted(self, array: Any) -> bool:
        """Whether the array's memory was taken away, so that a call with it is an error."""

    def wrap(self, array: np.ndarray, like: Any, weak: bool = False) -> Any:
        """Return the framework's array over `array`'s memory, of a weak type if that is asked for.

        like: the first argument of the call that is of the framework's type.
        """

    def take(self, tensor: Tensor, like: Any, weak: bool) -> Any:
        """Return the framework's array over a tensor in a GPU's memory, which has `__dlpack__`. like: as of `wrap`."""


class Exchanged(Adapter, Protocol):
    """An Adapter for a type with DLPack's C functions (`__dlpack_c_exchange_api__`), which pass its tensors.

    `give`, `type` and `deleted` are not called then, and `wrap` gets only arrays of dtypes that the framework lacks.
    """

    recorded: Any  # a data descriptor, or a function of a tensor: whether operations with it are recorded
    lazy: tuple[Any, ...]  # the same: whether what it holds is not what its memory says; of floats and complex numbers

    def threads(self) -> int:
        """Return the number of threads of the framework's own operations: a call uses no more, unless its options say
        so."""

    def recording(self) -> bool:
        """Whether operations are recorded for derivatives, which executables do not have."""

    def resolve(self, tensor: Any) -> Any:
        """Return a tensor with the elements of a lazy one, as they are, in its memory."""


# A context's answer for a type of its package: how to treat its arrays, None for what is no array type.
Claim = Callable[[type], Adapter | None]


def _jax(kind: type) -> Adapter | None:
    if "jax" not in sys.modules:  # jaxlib is there without it, for MLIR
        return None
    from hlo_disc.ral.contexts import jax

    return jax.adapter(kind)


def _pytorch(kind: type) -> Adapter | None:
    from hlo_disc.ral.contexts import torch

    return torch.adapter(kind)


def _tensorflow(kind: type) -> Adapter | None:
    from hlo_disc.ral.contexts import tensorflow

    return tensorflow.adapter(kind)


# The package that defines a type -> the context that may claim it.
_CONTEXTS: dict[str, Claim] = {"jaxlib": _jax, "jax": _jax, "torch": _pytorch, "tensorflow": _tensorflow}


def register(package: str, claim: Claim) -> None:
    """Let arrays of a package's own types be arguments and results. A type is looked up once, so register it before
    use."""
    _CONTEXTS[package] = claim


# Programs run on GPU 0, whichever is the framework's current one.


def _torch() -> int:
    stream: int = sys.modules["torch"].cuda.current_stream(0).cuda_stream
    return stream


def _cupy() -> int:
    stream: int = sys.modules["cupy"].cuda.get_current_stream(0).ptr
    return stream


# The package that defines a type of tensors on a GPU -> its current stream, as the driver knows it. A call runs in it.
# For others, a stream of the runtime's own waits for the tensor, and the call for its results.
_STREAMS: dict[str, Callable[[], int]] = {"torch": _torch, "cupy": _cupy}


def register_stream(package: str, stream: Callable[[], int]) -> None:
    """Let programs with a package's tensors on a GPU run in its own stream."""
    _STREAMS[package] = stream


def _package(kind: type) -> str:
    return (getattr(kind, "__module__", None) or "").partition(".")[0]


def stream_of(kind: type) -> int | None:
    """Return the current stream of the package that a type belongs to; None if unknown."""
    stream = _STREAMS.get(_package(kind))
    return None if stream is None else stream()


def find_adapter(kind: type) -> Adapter | None:
    """Return the adapter for arrays of type `kind`; None for types of no framework here."""
    for base in kind.__mro__:
        claim = _CONTEXTS.get(_package(base))
        if claim:
            return claim(kind)
    return None
