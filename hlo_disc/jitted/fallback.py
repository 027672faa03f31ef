"""Calls that run through `jax.jit` because they cannot be compiled, or must not be."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from hlo_disc.tracing.values import is_key

T = TypeVar("T")

SPREAD = "JAX spreads it over the devices of a mesh, of which a program knows nothing: call it in jax.shard_map"

_LINE = re.compile(r"\.\w+:\d+")


def told(name: str, line: str, reason: str, then: str) -> str:
    """Return the message for a function that cannot be compiled. line: its source line. then: the consequence."""
    where = "" if _LINE.search(reason) or not line else f"\n  {name} is at {line}"
    return f"hlo_disc.jit cannot compile {name}, {then}: {reason}{where}"


def line_of(fn: Callable[..., object]) -> str:
    """Return the source line of a function, or ""."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def in_numpy(results: T) -> T:
    """Convert the results of a call whose arrays are all numpy's; random keys have no such form."""
    from jax import tree_util

    converted: T = tree_util.tree_map(lambda x: x if is_key(x.dtype) else np.asarray(x), results)
    return converted


def all_numpy(kinds: Sequence[type]) -> bool:
    """Whether all arrays among arguments of these types are numpy's, and there is one."""
    arrays = [kind for kind in kinds if hasattr(kind, "dtype")]
    return bool(arrays) and all(issubclass(kind, (np.ndarray, np.generic)) for kind in arrays)


def of_jax(kinds: Sequence[type]) -> frozenset[type]:
    """Return those of these types that are arrays, but not numpy's."""
    return frozenset(x for x in kinds if hasattr(x, "dtype") and not issubclass(x, (np.ndarray, np.generic)))
