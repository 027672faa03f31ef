"""Random arguments for a program, of sizes that a user says."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from hlo_disc.compiled.program import InputRow, dtype_named
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import OutOfMemoryError, ShapeError

LARGEST = (1 << 63) - 1
_BELOW = 100  # random integers are often indices: small ones
_DRAWN_BYTES = 8  # of an element as it is drawn, before it is converted


def draw(
    inputs: Sequence[InputRow], given: Mapping[str, np.ndarray], dims: Mapping[str, int], seed: int
) -> list[np.ndarray]:
    """Return an array for each input in order; those that are not given, by name, are random.

    dims: a size for each symbol. Raises ShapeError for a dim without a size and for impossible sizes, OutOfMemoryError
    for arrays that the machine cannot hold.
    """
    random = np.random.default_rng(seed)
    arrays = []
    for x in inputs:
        if x.name in given:
            arrays.append(given[x.name])
            continue
        missing = sorted({s for d in x.shape for s in Dim.parse(d).symbols} - dims.keys())
        if missing:
            needed = " ".join(f"--dim {symbol}=…" for symbol in missing)
            raise ShapeError(
                f"the input {x.name} is {x.dtype}[{', '.join(x.shape)}]: give {needed}, or the array itself"
            )
        sizes = [size_of(x, axis, dims) for axis in range(len(x.shape))]
        _check_memory(x, sizes)
        dtype = dtype_named(x.dtype)
        array: np.ndarray
        if dtype.kind == "b":
            array = np.asarray(random.random(sizes) < 0.5)
        elif dtype.kind in "iu":
            array = np.asarray(random.integers(0, _BELOW, sizes))
        else:
            array = np.asarray(random.standard_normal(sizes))
        arrays.append(array.astype(dtype))
    return arrays


def size_of(x: InputRow, axis: int, dims: Mapping[str, int]) -> int:
    """Return the size of an axis of an input. Raises ShapeError if it is not a size."""
    place = f"the input {x.name} is {x.dtype}[{', '.join(x.shape)}]: with {shown(dims)}, its dimension {axis}"
    try:
        size = Dim.parse(x.shape[axis]).evaluate(dims)
    except ZeroDivisionError:
        raise ShapeError(f"{place} divides by zero") from None
    if not 0 <= size <= LARGEST:
        raise ShapeError(f"{place} is {size}, which is no size")
    return size


def shown(dims: Mapping[str, int]) -> str:
    """Format as "b=2, s=17"."""
    return ", ".join(f"{name}={size}" for name, size in dims.items())


def _check_memory(x: InputRow, sizes: Sequence[int]) -> None:
    """Raise OutOfMemoryError for an array that this machine cannot hold, before the system kills the process for it."""
    what = f"the random input {x.name}, {x.dtype}{list(sizes)}"
    if math.prod(max(size, 1) for size in sizes) * _DRAWN_BYTES > LARGEST:
        raise ShapeError(f"{what}, is larger than any array can be; give smaller sizes with --dim")
    needed, there = math.prod(sizes) * _DRAWN_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise OutOfMemoryError(
            f"{what}, takes {needed} bytes to make, and this machine has {there}; give smaller sizes with --dim"
        )
