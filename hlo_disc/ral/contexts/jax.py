"""The JAX context: jax.Array in and out of the standalone context, and executables as custom calls inside `jax.jit`.

Everything that uses jaxlib's internals is here. `_fast_wrap` and `_fast_give` are about five times faster than
the public API; where a jaxlib lacks what they need, the public API does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from hlo_disc.ral import Executable
from hlo_disc.ral._ral import ffi_handler

_TARGET = "hlo_disc_call"


def adapter(kind: type) -> _JaxAdapter | None:
    """The adapter for concrete jax.Arrays; None for tracers, random keys and other types."""
    with jax.ensure_compile_time_eval():  # the first array may arrive while jax.jit traces
        return _JaxAdapter() if kind is type(jax.device_put(np.zeros((), np.float32))) else None


class _JaxAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = True

    def __init__(self) -> None:
        self.give: Callable[[jax.Array], Any] = _fast_give() or _give
        self.wrap: Callable[[np.ndarray, Any], jax.Array] = _fast_wrap() or _wrap


def _give(array: jax.Array) -> Any:
    """Contents that the buffer protocol does not carry: bfloat16, a layout other than row-major, several shards."""
    return array.__dlpack__() if len(array.sharding.device_set) == 1 else np.asarray(array)


def _fast_give() -> Callable[[jax.Array], Any] | None:
    """The same by jaxlib's internals, five times faster for bfloat16; None where they are not what they were."""
    try:
        from jaxlib._jax import buffer_to_dlpack_managed_tensor as export

        export(jax.device_put(np.zeros((), np.float32)))
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None

    def fast_give(array: jax.Array) -> Any:
        return export(array) if len(array.sharding.device_set) == 1 else np.asarray(array)

    return fast_give


def _wrap(array: np.ndarray, like: jax.Array) -> jax.Array:
    """`array` as a jax.Array, by the public API alone."""
    devices = like.sharding.device_set
    return jax.device_put(array, next(iter(devices)) if like.committed and len(devices) == 1 else None)


def _fast_wrap() -> Callable[[np.ndarray, Any], jax.Array] | None:
    """The same by jaxlib's internals; None where they are not what they were.

    Results go to the device that the argument is committed to. Those of uncommitted arguments stay uncommitted, like
    the results of `jax.jit`: a committed array would make every jitted function that takes it compile once more.
    """
    try:
        from jax.core import ShapedArray
        from jaxlib._jax import batched_device_put

        aval_of = lru_cache(4096)(ShapedArray)
        device = jax.local_devices(backend="cpu")[0]
        sharding = SingleDeviceSharding(device)
        devices = [device]

        def fast_wrap(array: np.ndarray, like: Any) -> jax.Array:
            aval = aval_of(array.shape, array.dtype)
            if like._committed and len(where := like.sharding.device_set) == 1:
                return batched_device_put(aval, SingleDeviceSharding(*where), [array], list(where), True)
            return batched_device_put(aval, sharding, [array], devices, False)

        like = jax.device_put(np.zeros((), np.float32))
        sample = fast_wrap(np.ones((2,), np.float32), like)
        usable = (
            isinstance(sample, jax.Array) and sample.shape == (2,) and float(sample[1]) == 1 and not sample.committed
        )
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None
    return fast_wrap if usable else None


@cache
def _register() -> None:
    jax.ffi.register_ffi_target(_TARGET, ffi_handler(), platform="cpu")


def call_in_jit(executable: Executable, *arrays: jax.Array) -> list[jax.Array]:
    """Calls `executable` on tracers of the function that `jax.jit` is tracing; also works on concrete arrays.

    Shapes are concrete here: guards are checked and result shapes computed while tracing. The call runs on XLA's
    buffers and XLA's intra-op threads, with one more u8 buffer for intermediate values. The executable is kept for the
    life of the process. Raises ArgumentError and ShapeError like a call outside of `jax.jit`.
    """
    _register()
    results, temporary = executable.infer([(np.dtype(a.dtype).name, a.shape) for a in arrays])
    types = [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for dtype, shape in results]
    types.append(jax.ShapeDtypeStruct((temporary,), np.dtype(np.uint8)))
    return jax.ffi.ffi_call(_TARGET, types)(*arrays, executable=np.int64(executable.publish()))[:-1]
