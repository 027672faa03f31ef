"""The JAX context: jax.Array in and out of the standalone context, and executables as custom calls inside `jax.jit`.

Everything that uses jaxlib's internals is here. `_fast_wrap` and `_fast_give` are about five times faster than the
public API. If a jaxlib lacks the names that they need, the public API does the work.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import jax
import ml_dtypes
import numpy as np
from jax.sharding import SingleDeviceSharding

from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.ral import Executable
from hlo_disc.ral._ral import (
    device_ffi_handler,
    ffi_handler,
    held_handler,
    held_type_id,
    held_type_info,
    recordable_ffi_handler,
    wrapper,
)

if TYPE_CHECKING:
    from jax._src.array import ArrayImpl
    from jax._src.prng import KeyTy
    from jax.typing import DTypeLike

    from hlo_disc.ral.contexts import Tensor


_TARGET = "hlo_disc_call"
_RECORDABLE_TARGET = "hlo_disc_call_recordable"
_HELD_TARGET = "hlo_disc_held"


def adapter(kind: type) -> _JaxAdapter | None:
    """Return the adapter for concrete jax.Arrays; None for tracers, random keys and other types."""
    # The first array may arrive while jax.jit traces, or where no array may move.
    with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"):
        return _JaxAdapter() if kind is type(jax.device_put(np.zeros((), np.float32))) else None


class _JaxAdapter:
    """Implements `hlo_disc.ral.contexts.Adapter`."""

    immutable = True

    def __init__(self) -> None:
        self.give: Callable[[jax.Array], Any] = _fast_give() or _give
        self.wrap: Callable[..., jax.Array] = _fast_wrap() or _wrap
        self.take: Callable[[Any, jax.Array | None, bool], jax.Array] = _take
        self.type: Callable[[jax.Array], object] = operator.attrgetter("aval")
        self.weak: Callable[[jax.Array], bool] = operator.attrgetter("aval.weak_type")
        self.deleted: Callable[[jax.Array], bool] = operator.methodcaller("is_deleted")


@cache
def is_narrow(dtype: object) -> bool:
    """Whether its elements have fewer than 8 bits: XLA packs them, numpy and compiled programs give each a byte."""
    return isinstance(dtype, np.dtype) and re.match(r"u?(int|float)[1-7](_|$)", dtype.name) is not None


def is_spread(array: object) -> bool:
    """Whether it lies on several devices."""
    return isinstance(array, jax.Array) and len(array.sharding.device_set) > 1


def _give(array: jax.Array) -> object:
    """Return contents that the buffer protocol does not carry: bfloat16, int4, layouts that are not row-major."""
    copied = _copied(array)
    return array.__dlpack__() if copied is None else copied


def _copied(array: jax.Array) -> np.ndarray | None:
    """Return the contents of an array whose memory has another form than programs need; None for all others.

    Raises ArgumentError for an array in several memories.
    """
    if is_spread(array):
        raise ArgumentError("an array is spread over several devices: pass one that is on one")
    if is_narrow(array.dtype):
        with jax.transfer_guard("allow"):  # from the CPU to the CPU
            return np.asarray(array)
    return None


def _fast_give() -> Callable[[jax.Array], object] | None:
    """Return a `_give` by jaxlib's internals, five times faster for bfloat16; None if they have changed."""
    try:
        from jaxlib._jax import buffer_to_dlpack_managed_tensor as export

        export(jax.device_put(np.zeros((), np.float32)))
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None

    def fast_give(array: jax.Array) -> object:
        copied = _copied(array)
        return export(array) if copied is None else copied

    return fast_give


def _wrap(array: np.ndarray, like: jax.Array | None, weak: bool = False) -> jax.Array:
    """Wrap `array` as a jax.Array by public functions only. No data moves, so transfer guards do not apply."""
    devices = like.sharding.device_set if like is not None and like.committed else ()
    with jax.transfer_guard("allow"):
        made = jax.device_put(array, next(iter(devices)) if len(devices) == 1 else None)
    return weakly_typed(made) if weak else made


def _take(tensor: Tensor, like: jax.Array | None, weak: bool) -> jax.Array:
    made: jax.Array = jax.dlpack.from_dlpack(tensor)
    if like is None or not like.committed:
        made = _uncommitted(made)
    return weakly_typed(made) if weak else made


def _uncommitted(array: jax.Array) -> jax.Array:
    """Return the array uncommitted, so that it can move to others. An array over another framework's tensor is
    committed."""
    from jax._src.array import ArrayImpl

    parts = array._arrays  # type: ignore[attr-defined]
    made: jax.Array = ArrayImpl(array.aval, array.sharding, parts, committed=False, _skip_checks=True)
    return made


def platform_of(arrays: Sequence[object]) -> str:
    """Return JAX's name for the kind of machine on which the arrays of JAX are; "cpu" if there are none.

    Raises UnsupportedOpError if they are on several kinds of machines: only JAX knows which of them move.
    """
    known = (x for x in arrays if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer))
    found = list(dict.fromkeys(map(_platform, known))) or ["cpu"]
    if len(found) > 1:
        raise UnsupportedOpError(f"its arguments lie on machines of several kinds: {', '.join(found)}")
    return found[0]


def _platform(array: jax.Array) -> str:
    client = next(iter(array.sharding.device_set)).client
    if client.platform != "gpu":
        return str(client.platform)
    return "rocm" if "rocm" in client.platform_version.lower() else "cuda"


def weakly_typed(array: jax.Array) -> jax.Array:
    """Return the array or tracer with a weak type, which another operand's type overrules."""
    from jax._src.lax.lax import _convert_element_type

    weak: jax.Array = _convert_element_type(array, array.dtype, weak_type=True)
    return weak


@cache
def _fast_wrap() -> Callable[..., jax.Array] | None:
    """Return a faster `_wrap` by jaxlib's internals; None if they have changed.

    Results go to the device that the argument is committed to. Those of uncommitted arguments stay uncommitted, like
    the results of `jax.jit`: a committed array would make every jitted function that takes it compile once more.
    """
    try:
        from jax.core import ShapedArray
        from jaxlib._jax import batched_device_put

        put: Callable[..., jax.Array] = batched_device_put
        aval_of = lru_cache(4096)(lambda shape, dtype, weak: ShapedArray(shape, dtype, weak_type=weak))
        device = jax.local_devices(backend="cpu")[0]

        def otherwise(array: np.ndarray, like: ArrayImpl | None, weak: bool) -> jax.Array:
            try:
                if like is not None and like._committed and len(where := like.sharding.device_set) == 1:
                    aval = aval_of(array.shape, array.dtype, weak)
                    return put(aval, SingleDeviceSharding(*where), [array], list(where), True)
            except RuntimeError:  # a transfer guard, and `_wrap` knows that nothing moves
                pass
            return _wrap(array, like, weak)

        fast_wrap = wrapper(put, aval_of, SingleDeviceSharding(device), [device], otherwise)
        like = jax.device_put(np.zeros((), np.float32))
        sample = fast_wrap(np.ones((2,), np.float32), like, False)
        found = np.asarray(sample)  # an index would be compiled by XLA
        usable = isinstance(sample, jax.Array) and found.tolist() == [1, 1] and not sample.committed
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None
    return fast_wrap if usable else None


def new_array(array: np.ndarray, weak: bool = False) -> jax.Array:
    """Return `array` as an uncommitted jax.Array, like the results of `jax.jit` for a call without arrays."""
    with jax.ensure_compile_time_eval(), jax.transfer_guard("allow"):
        return (_fast_wrap() or _wrap)(array, None, weak)


def key_data(keys: jax.Array) -> jax.Array:
    """Return the data of random keys, uint32, with the axes of one key's data last. A tracer is accepted too."""
    data: jax.Array | None = getattr(keys, "_base_array", None)  # as `jax.random.key_data`, which takes 50 us
    if data is None:
        data = jax.random.key_data(keys)
    return data


def keys_of(data: jax.Array | np.ndarray, dtype: KeyTy) -> jax.Array:
    """Return random keys of a dtype from their data. A tracer is accepted too."""
    made = new_array(data) if isinstance(data, np.ndarray) else data
    keys: jax.Array = jax.random.wrap_key_data(made, impl=dtype._impl)
    return keys


@cache
def _register() -> None:
    jax.ffi.register_ffi_target(_TARGET, ffi_handler(), platform="cpu")
    for platform in ("CUDA", "ROCM"):  # which waits until JAX finds such a machine
        jax.ffi.register_ffi_target(_TARGET, device_ffi_handler(), platform=platform)
        stages = dict.fromkeys(("initialize", "execute"), recordable_ffi_handler())
        jax.ffi.register_ffi_target(_RECORDABLE_TARGET, stages, platform=platform)


def call_in_jit(executable: Executable, content: int, *arrays: jax.Array) -> list[jax.Array]:
    """Call `executable` on tracers of the function that `jax.jit` is tracing, or on concrete arrays.

    content: a hash of the executable, at least 0, by which XLA programs name it. It is that of other processes, so that
    JAX's persistent compilation cache serves them all.
    Shapes are concrete here: guards are checked and result shapes computed while tracing. The call runs on XLA's
    buffers and XLA's intra-op threads, or in its stream, with one more u8 buffer for intermediate values. The
    executable is kept for the life of the process. Raises ArgumentError and ShapeError as a call outside of `jax.jit`.
    """
    _register()
    inferred = executable.infer([(np.dtype(a.dtype).name, a.shape) for a in arrays])
    dtypes = [np.dtype(getattr(ml_dtypes, name, name)) for name, _ in inferred.types]
    types = [
        jax.ShapeDtypeStruct(shape, np.uint8 if is_narrow(dtype) else dtype)
        for dtype, (_, shape) in zip(dtypes, inferred.types, strict=True)
    ]
    types.append(jax.ShapeDtypeStruct((inferred.temporary,), np.uint8))
    call = jax.ffi.ffi_call(_RECORDABLE_TARGET if executable.recordable else _TARGET, types)
    results = call(*map(_as_bytes, arrays), executable=np.int64(executable.publish(content)))
    return [_of_bytes(result, dtype) for result, dtype in zip(results[:-1], dtypes, strict=True)]


@cache
def _register_held() -> None:
    state = {"type_id": held_type_id(), "type_info": held_type_info()}
    jax.ffi.register_ffi_type(_HELD_TARGET, state, platform="cpu")
    stages = dict.fromkeys(("instantiate", "execute"), held_handler())
    jax.ffi.register_ffi_target(_HELD_TARGET, stages, platform="cpu")


def compiled_with(
    executable: Executable, content: int, arrays: Sequence[jax.Array], weak: Sequence[bool]
) -> Callable[..., tuple[jax.Array, ...]]:
    """Return an XLA program that calls `executable` with arrays like these, none of narrow elements, as calls from
    Python do.

    It refuses arrays of other types or on other devices, and keeps the executable for as long as it lives.
    content: a hash of the executable. weak: which results have a weak type.
    """
    _register_held()
    inferred = executable.infer([(np.dtype(a.dtype).name, a.shape) for a in arrays])
    types = [jax.ShapeDtypeStruct(shape, np.dtype(getattr(ml_dtypes, name, name))) for name, shape in inferred.types]
    number = executable.offer(content)

    def hlo_disc_held(*operands: jax.Array) -> tuple[jax.Array, ...]:
        results = jax.ffi.ffi_call(_HELD_TARGET, types)(*operands, executable=np.int64(number))
        return tuple(weakly_typed(x) if w else x for x, w in zip(results, weak, strict=True))

    try:
        compiled: Callable[..., tuple[jax.Array, ...]] = jax.jit(hlo_disc_held).lower(*arrays).compile()
    finally:
        executable.withdraw(number)
    return compiled


def array_type() -> type:
    """Return the type of the arrays that hold numbers."""
    return type(new_array(np.zeros((), np.float32)))


def lie_on_first_cpu(arrays: Sequence[jax.Array]) -> bool:
    """Whether all are on it, in its usual memory, and are alike committed to it."""
    first = jax.local_devices(backend="cpu")[0]
    usual = (None, first.default_memory().kind)
    there = all(x.sharding.device_set == {first} and x.sharding.memory_kind in usual for x in arrays)
    return there and len({x.committed for x in arrays}) == 1


def _as_bytes(array: jax.Array) -> jax.Array:
    """Return an array of narrow elements with a byte for each, as programs have them; all others as they are."""
    if not is_narrow(array.dtype):
        return array
    bits: jax.Array = jax.lax.bitcast_convert_type(array, _unsigned(array.dtype))
    return bits.astype(np.uint8)


def _of_bytes(array: jax.Array, dtype: np.dtype) -> jax.Array:
    if not is_narrow(dtype):
        return array
    elements: jax.Array = jax.lax.bitcast_convert_type(array.astype(_unsigned(dtype)), dtype)
    return elements


def _unsigned(dtype: DTypeLike) -> np.dtype:
    kind: type = ml_dtypes.uint2 if np.dtype(dtype).name.endswith("int2") else ml_dtypes.uint4
    return np.dtype(kind)
