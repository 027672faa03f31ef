"""Versions, for tracing, of functions that make numbers of sizes without need, or that would run too long.

Outside of hlo_disc's traces, and for arguments without symbolic sizes, they behave as Python's and JAX's own.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax
from jax._src import core, dtypes
from jax._src.lax import lax as lax_internal
from jax._src.lax import slicing
from jax._src.lax import utils as lax_utils
from jax._src.numpy import hijax, lax_numpy, setops

from hlo_disc.import_.jax_edge import size_scans
from hlo_disc.import_.jax_edge.size_questions import are_known_equal, is_answered

if TYPE_CHECKING:
    from jax.typing import ArrayLike

    from hlo_disc.import_.jax_edge.size_numbers import Size


# Where JAX keeps it differs from version to version.
random: Any = sys.modules[jax.random.permutation.__module__]
_MOST_KEYS = (1 << 32) - 1
_lock = threading.Lock()
_tracing = 0  # threads that do, and traces within theirs


@contextmanager
def lent() -> Iterator[None]:
    """Replace the functions for JAX and for the traced function. `len` needs a version of its own, since it returns an
    int."""
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


_NO_ARRAYS = frozenset((tuple, list, dict, set, str))
_python_len = len


@functools.wraps(len)
def _length(thing: Sized, /) -> Size:
    if type(thing) in _NO_ARRAYS:  # what JAX itself mostly asks
        return _python_len(thing)
    n = thing.shape[0] if isinstance(thing, core.Tracer) and thing.ndim else None
    return n if is_answered(n) else _python_len(thing)


def _extremum(of_numbers: Callable[..., object], of_sizes: Callable[[Size, Size], Size]) -> Callable[..., object]:
    @functools.wraps(of_numbers)
    def extremum(*args: Any, **options: object) -> object:
        if options or not args:
            return of_numbers(*args, **options)
        values = args if len(args) > 1 else tuple(args[0])
        if any(map(is_answered, values)) and all(isinstance(n, int) or is_answered(n) for n in values):
            return functools.reduce(of_sizes, values)
        return of_numbers(values)

    return extremum


_PYTHONS: dict[str, Callable[..., object]] = {"len": len, "min": min, "max": max}
_OURS: dict[str, Callable[..., object]] = {
    "len": _length,
    "min": _extremum(min, core.min_dim),
    "max": _extremum(max, core.max_dim),
}


# What stands in the place of JAX's functions, which come first

_shuffle, _search = random._shuffle, hijax._searchsorted_scan_impl
_tile, _split, _roll = lax_numpy._tile_to_size, lax_numpy._split, lax_numpy.roll
_dedup, _same, _one_of = core.dedup_referents, core.same_referent, core.definitely_equal_one_of_dim
_broadcast_shapes = lax_internal._try_broadcast_shapes


@functools.cache
def _most_in(rounds: int) -> int:
    """Return the largest size that JAX shuffles in so many rounds."""

    def needed(n: int) -> int:
        return int(np.ceil(3 * np.log(n) / np.log(_MOST_KEYS)))

    found = math.floor(_MOST_KEYS ** (rounds / 3)) + 2
    return next(n for n in range(found, 0, -1) if needed(n) <= rounds)


@functools.wraps(_shuffle)
def _shuffled(key: jax.Array, x: jax.Array, axis: int) -> jax.Array:
    """Shuffle in as many rounds as JAX, which grow with the logarithm of the size; one if JAX needs none."""
    if not is_answered(x.size):
        return _shuffle(key, x, axis)
    for rounds in itertools.count(1):
        key, subkey = random._split(key)
        _, x = lax.sort_key_val(random._random_bits(subkey, 32, x.shape), x, axis)
        if x.size <= _most_in(rounds):
            return x
    raise AssertionError("there is no largest number of rounds")


@functools.wraps(_search)
def _searched(sorted_arr: jax.Array, query: jax.Array, side: str, dtype: np.dtype, unrolled: bool) -> jax.Array:
    """Search in as many halvings as the size has bits, counted at run time."""
    n = sorted_arr.shape[0]
    if unrolled or not is_answered(n) or n == 0:
        return _search(sorted_arr, query, side, dtype, unrolled)
    goes_left = lax_internal._sort_le_comparator if side == "left" else lax_internal._sort_lt_comparator

    def halved(_: jax.Array, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = low + (high - low) // 2
        left = goes_left(query, sorted_arr[middle])
        return lax.select(left, low, middle), lax.select(left, middle, high)

    size = jax.numpy.asarray(core.dimension_as_value(n), np.uint64 if np.dtype(dtype).itemsize == 8 else np.uint32)
    ends = lax.full(query.shape, 0, size.dtype), lax.broadcast(size, query.shape)
    bits = np.iinfo(size.dtype).bits - lax.convert_element_type(lax.clz(size), np.int32)
    return lax.fori_loop(0, bits, halved, ends)[1].astype(dtype)


def _tiled(arr: jax.Array, size: Size) -> jax.Array:
    """Tile. JAX makes numpy round the quotient, which makes a number of it."""
    if not (is_answered(size) or is_answered(arr.size)):
        return _tile(arr, size)
    return lax.slice_in_dim(jax.numpy.tile(arr, -(-size // arr.size)), 0, size)


@functools.wraps(_split)
def _parts(op: str, ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[jax.Array]:
    """Split into parts as equal as possible. JAX makes a list as long as the remainder, which then is a number."""
    whole = op == "array_split" and type(indices_or_sections) is int and isinstance(axis, int)
    size = jax.numpy.shape(ary)[axis] if whole else None
    if not is_answered(size) or indices_or_sections < 1:
        return _split(op, ary, indices_or_sections, axis)
    least, larger = divmod(size, indices_or_sections)
    ends = [k * least + core.min_dim(larger, k) for k in range(indices_or_sections)]
    return [lax.slice_in_dim(ary, *pair, axis=axis) for pair in itertools.pairwise([*ends, size])]


@functools.wraps(_roll)
def _rolled(a: ArrayLike, shift: ArrayLike, axis: int | Sequence[int] | None = None) -> jax.Array:
    """Roll by less than the size. JAX makes an i32 of unknown shifts."""
    if is_answered(shift) and isinstance(axis, int):
        shift = shift % core.max_dim(jax.numpy.shape(a)[axis], 1)
    return _roll(a, shift, axis)


def _array(thing: object, *args: Any, **options: Any) -> ArrayLike:
    """Make an array of a list of sizes: numpy would make objects, which JAX cannot use."""
    if args or options or not isinstance(thing, list) or not any(map(is_answered, thing)):
        return np.array(thing, *args, **options)
    return jax.numpy.stack([jax.numpy.asarray(core.dimension_as_value(n), int) for n in thing])


def _index_dtype(size: Size, *, signed: bool) -> np.dtype:
    """Choose the dtype of indices by the size: JAX takes 64 bits, if enabled, for unknown sizes."""
    if not (signed and is_answered(size) and dtypes.default_int_dtype().itemsize == 8):
        return lax_utils.int_dtype_for_dim(size, signed=signed)
    return np.dtype(np.int64 if size > np.iinfo(np.int32).max else np.int32)


def _distinct(things: Iterable[object]) -> list[object]:
    """Return the distinct sizes without hashing them, as JAX does."""
    kept: list[Any] = []
    for x in _dedup(things):
        if not any((is_answered(x) or is_answered(y)) and x == y for y in kept):
            kept.append(x)
    return kept


# JAX asks whether a size is 1 before it sees that it is the size that it should be.


def _same_referent(a: object, b: object) -> bool:
    return _same(a, b) or are_known_equal(a, b)


def _equal_one_of(n: Size, sizes: Sequence[Size]) -> bool:
    return any(are_known_equal(n, other) for other in sizes) or _one_of(n, sizes)


def _broadcast(*shapes: Sequence[Size], name: str) -> tuple[Size, ...]:
    """Broadcast: next to a size of 1, the other size is the result, whether it is 1 or not."""
    if len({len(shape) for shape in shapes}) != 1 or not any(map(is_answered, itertools.chain(*shapes))):
        return _broadcast_shapes(*shapes, name=name)
    wide = [next((n for n in sizes if is_answered(n)), None) for sizes in zip(*shapes, strict=True)]
    shapes = tuple(
        tuple(w if w is not None and type(n) is int and n == 1 else n for n, w in zip(shape, wide, strict=True))
        for shape in shapes
    )
    return _broadcast_shapes(*shapes, name=name)


_REPLACEMENTS: tuple[tuple[object, str, object], ...] = (
    (core, "same_referent", _same_referent),
    (core, "definitely_equal_one_of_dim", _equal_one_of),
    (core, "dedup_referents", _distinct),
    (lax_internal, "_try_broadcast_shapes", _broadcast),
    (random, "_shuffle", _shuffled),
    (hijax, "_searchsorted_scan_impl", _searched),
    (lax_numpy, "_tile_to_size", _tiled),
    (lax_numpy, "_split", _parts),
    (lax_numpy, "roll", _rolled),
    (jax.numpy, "roll", _rolled),
    (slicing, "np", types.SimpleNamespace(**{**vars(np), "array": _array})),
    *(
        (module, "lax_utils", types.SimpleNamespace(**{**vars(lax_utils), "int_dtype_for_dim": _index_dtype}))
        for module in (lax_numpy, setops)
    ),
)


@functools.cache
def _install() -> None:
    """Replace them once a process."""
    size_scans.install()
    for owner, name, replacement in _REPLACEMENTS:
        setattr(owner, name, replacement)
