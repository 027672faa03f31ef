"""Functions that make numbers of sizes where they need not, as JAX's functions of arrays get them while we trace.

Outside of our traces, and of arrays and numbers without a symbolic size, they are Python's and JAX's own.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import core
from jax._src.lax import lax as lax_internal
from jax._src.numpy import hijax
from jax._src.random import core as random

from hlo_disc.import_.size_questions import is_answered

_OF_ARRAYS = tuple(f"jax._src.{name}." for name in ("image", "lax", "nn", "numpy", "random", "scipy", "third_party"))
_MOST_KEYS = (1 << 32) - 1


def lend() -> None:
    """Let JAX's functions of arrays have them, those too that are imported since the last time."""
    _install()
    for module in [module for name, module in sys.modules.items() if name.startswith(_OF_ARRAYS)]:
        for name, function in _PYTHONS.items():
            vars(module).setdefault(name, function)


def _length(thing: Any) -> Any:
    n = thing.shape[0] if isinstance(thing, core.Tracer) and thing.ndim else None
    return n if is_answered(n) else len(thing)


def _extremum(of_numbers: Callable[..., Any], of_sizes: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def extremum(*args: Any, **options: Any) -> Any:
        if options:
            return of_numbers(*args, **options)
        values = args if len(args) > 1 else tuple(args[0])
        if any(map(is_answered, values)) and all(isinstance(n, int) or is_answered(n) for n in values):
            return functools.reduce(of_sizes, values)
        return of_numbers(values)

    return extremum


_PYTHONS = {"len": _length, "min": _extremum(min, core.min_dim), "max": _extremum(max, core.max_dim)}


@functools.cache
def _install() -> None:
    """Once a process."""
    shuffle, search = random._shuffle, hijax._searchsorted_scan_impl

    @functools.wraps(shuffle)
    def shuffled(key: Any, x: Any, axis: int) -> Any:
        """In as many rounds as JAX decides on, which grow with the logarithm of the size; one where it needs none."""
        if not is_answered(x.size):
            return shuffle(key, x, axis)
        for rounds in itertools.count(1):
            key, subkey = random._split(key)
            _, x = lax.sort_key_val(random._random_bits(subkey, 32, x.shape), x, axis)
            if x.size <= _most_in(rounds):
                return x

    @functools.wraps(search)
    def searched(sorted_arr: Any, query: Any, side: str, dtype: np.dtype, unrolled: bool) -> Any:
        """As many halvings as the size has bits, counted where the program runs."""
        n = sorted_arr.shape[0]
        if unrolled or not is_answered(n) or n == 0:
            return search(sorted_arr, query, side, dtype, unrolled)
        goes_left = lax_internal._sort_le_comparator if side == "left" else lax_internal._sort_lt_comparator

        def halved(_: Any, ends: Any) -> Any:
            low, high = ends
            middle = low + (high - low) // 2
            left = goes_left(query, sorted_arr[middle])
            return lax.select(left, low, middle), lax.select(left, middle, high)

        size = jax.numpy.asarray(core.dimension_as_value(n), np.uint64 if np.dtype(dtype).itemsize == 8 else np.uint32)
        ends = lax.full(query.shape, 0, size.dtype), lax.broadcast(size, query.shape)
        bits = np.iinfo(size.dtype).bits - lax.convert_element_type(lax.clz(size), np.int32)
        return lax.fori_loop(0, bits, halved, ends)[1].astype(dtype)

    random._shuffle, hijax._searchsorted_scan_impl = shuffled, searched


@functools.cache
def _most_in(rounds: int) -> int:
    """The largest size that JAX shuffles in so many rounds."""

    def needed(n: int) -> int:
        return int(np.ceil(3 * np.log(n) / np.log(_MOST_KEYS)))

    found = math.floor(_MOST_KEYS ** (rounds / 3)) + 2
    return next(n for n in range(found, 0, -1) if needed(n) <= rounds)
