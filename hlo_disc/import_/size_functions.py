"""Functions that make numbers of sizes where they need not, as they are while we trace.

Outside of our traces, and of arrays and numbers without a symbolic size, they are Python's and JAX's own.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import core
from jax._src.lax import lax as lax_internal
from jax._src.numpy import hijax, lax_numpy
from jax._src.random import core as random

from hlo_disc.import_.size_questions import is_answered

_MOST_KEYS = (1 << 32) - 1
_lock = threading.Lock()
_tracing = 0  # threads that do, and traces within theirs


@contextmanager
def lent() -> Iterator[None]:
    """Let JAX and the function that is traced have them: `len` gives a number whatever it is told, but ours."""
    global _tracing
    _install()
    with _lock:
        _tracing += 1
        vars(builtins).update(_OURS)
    try:
        yield
    finally:
        with _lock:
            _tracing -= 1
            if not _tracing:
                vars(builtins).update(_PYTHONS)


@functools.wraps(len)
def _length(thing: Any, /) -> Any:
    n = thing.shape[0] if isinstance(thing, core.Tracer) and thing.ndim else None
    return n if is_answered(n) else _PYTHONS["len"](thing)


def _extremum(of_numbers: Callable[..., Any], of_sizes: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @functools.wraps(of_numbers)
    def extremum(*args: Any, **options: Any) -> Any:
        if options or not args:
            return of_numbers(*args, **options)
        values = args if len(args) > 1 else tuple(args[0])
        if any(map(is_answered, values)) and all(isinstance(n, int) or is_answered(n) for n in values):
            return functools.reduce(of_sizes, values)
        return of_numbers(values)

    return extremum


_PYTHONS: dict[str, Callable[..., Any]] = {"len": len, "min": min, "max": max}
_OURS: dict[str, Callable[..., Any]] = {
    "len": _length,
    "min": _extremum(min, core.min_dim),
    "max": _extremum(max, core.max_dim),
}


@functools.cache
def _install() -> None:
    """Once a process."""
    shuffle, search, tile = random._shuffle, hijax._searchsorted_scan_impl, lax_numpy._tile_to_size

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

    def tiled(arr: Any, size: Any) -> Any:
        """As often as it takes: JAX has numpy round the quotient, which makes a number of it."""
        if not (is_answered(size) or is_answered(arr.size)):
            return tile(arr, size)
        return lax.slice_in_dim(jax.numpy.tile(arr, -(-size // arr.size)), 0, size)

    random._shuffle, hijax._searchsorted_scan_impl = shuffled, searched
    lax_numpy._tile_to_size = tiled


@functools.cache
def _most_in(rounds: int) -> int:
    """The largest size that JAX shuffles in so many rounds."""

    def needed(n: int) -> int:
        return int(np.ceil(3 * np.log(n) / np.log(_MOST_KEYS)))

    found = math.floor(_MOST_KEYS ** (rounds / 3)) + 2
    return next(n for n in range(found, 0, -1) if needed(n) <= rounds)
