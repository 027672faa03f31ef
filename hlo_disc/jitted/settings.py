"""JAX's settings: those that a trace may depend on, and those under which calls run through `jax.jit`.

`jax.jit` keeps its programs by `trace_context()`, which holds all that a trace may read: 64-bit types, promotion,
precision of products, the default device, named axes, a user's own contexts. So do we. The attribute `post_hook` is
what `jax.jit` calls with the results of every call while NaNs or infinities are looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
from jax._src import config
from jax._src.api import _post_hook_state

from hlo_disc import ral

Settings = tuple[tuple[Any, ...], Any]


def now() -> Settings:
    """Return all settings of this thread, as a key."""
    return config.trace_context(), _post_hook_state.value


# What decides which numbers a function computes; all else may change between a trace and what becomes of it.
_NUMERICS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


def numerics() -> tuple[object, ...]:
    """Return the settings of this thread on which the numbers of a trace depend."""
    return tuple(getattr(jax.config, name) for name in _NUMERICS)


def watch(settings: Settings) -> Callable[[], bool]:
    """Return a function that checks in a quarter of a microsecond whether this thread still has these settings."""
    context, hook = settings
    return ral.watch(config.trace_context, context, _post_hook_state, "value", hook)


def jit_is_disabled() -> bool:
    return bool(config.disable_jit.value)


def log_level() -> int:
    """Return the level at which compilations are logged: `jax_log_compiles` makes it a warning, as for `jax.jit`."""
    return logging.WARNING if config.log_compiles.value else logging.INFO


def reason_for_jax() -> str:
    """Return why calls from Python run through `jax.jit` under this thread's settings; "" if programs serve them."""
    if _post_hook_state.value is not None:
        return "jax_debug_nans or jax_debug_infs is set: JAX looks for the operation that makes them"
    device = config.default_device.value
    if device is not None and _device(device) != jax.local_devices(backend="cpu")[0]:
        return f"jax_default_device is {device}: the results of a program lie on the first CPU device"
    if not jax.sharding.get_abstract_mesh().empty:
        return "a mesh is set: the results of a program are not spread over devices"
    return ""


def _device(setting: object) -> object:
    return jax.local_devices(backend=setting)[0] if isinstance(setting, str) else setting
