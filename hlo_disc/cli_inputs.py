"""The inputs of `hlo-disc run`: arrays from files, and random ones of the sizes that the user says."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, OutOfMemoryError, ShapeError
from hlo_disc.executable import Executable
from hlo_disc.program import InputRow, Program, dtype_named, is_damage

_RANDOM_BELOW = 100  # random integers are often indices: small ones
_DRAWN_BYTES = 8  # of an element as it is drawn, before it is converted
_LARGEST = (1 << 63) - 1
_ADVICE = "give what numpy.save or numpy.savez wrote"
_NUMPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"


def inputs_of(
    executable: Executable, files: Sequence[str], sizes: Sequence[str], seed: int
) -> tuple[list[np.ndarray], dict[str, int]]:
    """All inputs in order, and the size of each dim.

    files: of the options --input; inputs without a file are random. sizes: of the options --dim. Raises ArgumentError,
    ShapeError, OutOfMemoryError.
    """
    given = _read(executable.program, files)
    dims = _dims(executable, sizes, given)
    return _fill(executable.program, given, dims, seed), dims


def pairs(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """The values of an option that is given as NAME=VALUE, by name. Raises ArgumentError."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = map(str.strip, text.partition("="))
        if not name or not value:
            raise ArgumentError(f"{option} {text!r} is not of the form {form}")
        if name in found:
            raise ArgumentError(f"{option} gives {name} twice, as {found[name]} and as {value}")
        found[name] = value
    return found


# ------------------------------------------------------------------------------------------------------ from files


def _read(program: Program, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays by input name. Raises ArgumentError for a name that is none or comes twice, and for too many arrays."""
    names = [x.name for x in program.inputs]
    given: dict[str, np.ndarray] = {}

    def put(name: str, array: np.ndarray, origin: str) -> None:
        if name not in names:
            raise ArgumentError(f"{origin}: the program has no input {name!r}; its inputs are {', '.join(names)}")
        if name in given:
            raise ArgumentError(f"{origin}: the input {name} is given twice")
        given[name] = _named(array, program.inputs[names.index(name)].dtype)

    for text in texts:
        name, path = _split(text)
        found = _load(path)
        if isinstance(found, np.ndarray):
            free = [n for n in names if n not in given]
            if not name and not free:
                raise ArgumentError(f"{path}: the program has only {len(names)} inputs")
            put(name or free[0], found, path)
            continue
        if name:
            raise ArgumentError(f"--input {text!r}: a .npz names its arrays itself; give it as {path!r}")
        for key, array in found.items():
            put(names[int(key[4:])] if key not in names and _is_position(key, names) else key, array, path)
    return given


def _split(text: str) -> tuple[str, str]:
    """NAME=FILE as a name and a path, FILE as "" and a path. A file whose own name has a "=" is a file."""
    name, equals, path = text.rpartition("=")
    if not equals or Path(text).exists():
        return "", text
    if not name.strip() or not path:
        raise ArgumentError(f"--input {text!r} is not of the form [NAME=]FILE")
    return name.strip(), path


def _named(array: np.ndarray, dtype: str) -> np.ndarray:
    """npy writes bfloat16 and its like as bytes without a name: they are what the program wants, if that is such."""
    wanted = dtype_named(dtype)
    nameless = array.dtype == np.dtype((np.void, wanted.itemsize))
    return array.view(wanted) if nameless and wanted.isbuiltin != 1 else array


def _is_position(key: str, names: Sequence[str]) -> bool:
    """Whether an npz key is numpy's own name for an array without one, arr_0, arr_1 …"""
    return re.fullmatch("arr_[0-9]{1,9}", key) is not None and int(key[4:]) < len(names)


def _load(path: str) -> np.ndarray | dict[str, np.ndarray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            arrays = dict(loaded)
    except MemoryError as error:
        raise OutOfMemoryError(f"{path}: {error}") from None
    except Exception as error:  # numpy and zipfile raise errors of many kinds for damaged files
        if not is_damage(error):
            raise
        raise ArgumentError(f"{path}: {_what(path, error)}; {_ADVICE}") from None
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"{path}: is a zip file, but no .npz: its member {key!r} is no array; {_ADVICE}")
    return arrays


def _what(path: str, error: Exception) -> str:
    """What is wrong with a file of arrays."""
    with open(path, "rb") as file:
        start = file.read(8)
    if not start:
        return "is empty"
    if "Object arrays" in str(error):
        return "holds Python objects, not numbers"
    kind = ".npy" if start.startswith(_NUMPY) else ".npz" if start.startswith(_ZIP) else ""
    return f"is a damaged {kind} file ({error})" if kind else f"is no .npy or .npz file, it begins with {start!r}"


# --------------------------------------------------------------------------------------------------- random inputs


def _dims(executable: Executable, texts: Sequence[str], given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """The size of each dim: as the user says, else as a given array has it. Raises ShapeError where these differ."""
    dims: dict[str, int] = {}
    for name, value in pairs("--dim", texts, "NAME=SIZE").items():
        if name not in executable.dims:
            raise ShapeError(
                f"--dim {name}={value}: the program's dims are {', '.join(executable.dims) or 'all fixed'}"
            )
        if not re.fullmatch("[0-9]{1,19}", value) or int(value) > _LARGEST:
            raise ShapeError(f"--dim {name}={value}: {value!r} is no size; give an integer from 0 to {_LARGEST}")
        dims[name] = int(value)
    said = dict(dims)
    for x in executable.program.inputs:
        if x.name not in given or given[x.name].ndim != len(x.shape):  # a wrong rank is the call's to refuse
            continue
        for axis, (text, size) in enumerate(zip(x.shape, given[x.name].shape, strict=True)):
            d = Dim.parse(text)
            if d.symbols and d.symbols <= said.keys() and _size(x, axis, said) != size:
                raise ShapeError(
                    f"--dim {_shown({n: said[n] for n in sorted(d.symbols)})}: the array for the input {x.name} has "
                    f"{size} in dimension {axis}, which is '{text}'"
                )
            if text in executable.dims:
                dims.setdefault(text, size)
    return dims


def _size(x: InputRow, axis: int, dims: Mapping[str, int]) -> int:
    """The size of an axis of an input. Raises ShapeError for what is none."""
    place = f"the input {x.name} is {x.dtype}[{', '.join(x.shape)}]: with {_shown(dims)}, its dimension {axis}"
    try:
        size = Dim.parse(x.shape[axis]).evaluate(dims)
    except ZeroDivisionError:
        raise ShapeError(f"{place} divides by zero") from None
    if not 0 <= size <= _LARGEST:
        raise ShapeError(f"{place} is {size}, which is no size")
    return size


def _fill(program: Program, given: Mapping[str, np.ndarray], dims: Mapping[str, int], seed: int) -> list[np.ndarray]:
    """All inputs in order; those that are not given are random. Raises ShapeError for a dim without a size."""
    random = np.random.default_rng(seed)
    arrays = []
    for x in program.inputs:
        if x.name in given:
            arrays.append(given[x.name])
            continue
        missing = sorted({s for d in x.shape for s in Dim.parse(d).symbols} - dims.keys())
        if missing:
            needed = " ".join(f"--dim {symbol}=…" for symbol in missing)
            raise ShapeError(
                f"the input {x.name} is {x.dtype}[{', '.join(x.shape)}]: give {needed}, or the array itself"
            )
        sizes = [_size(x, axis, dims) for axis in range(len(x.shape))]
        _check_memory(x, sizes)
        dtype = dtype_named(x.dtype)
        array: np.ndarray
        if dtype.kind == "b":
            array = np.asarray(random.random(sizes) < 0.5)
        elif dtype.kind in "iu":
            array = np.asarray(random.integers(0, _RANDOM_BELOW, sizes))
        else:
            array = np.asarray(random.standard_normal(sizes))
        arrays.append(array.astype(dtype))
    return arrays


def _check_memory(x: InputRow, sizes: Sequence[int]) -> None:
    """Raise OutOfMemoryError for an array that this machine cannot hold, before the system kills the process for it."""
    what = f"the random input {x.name}, {x.dtype}{list(sizes)}"
    if math.prod(max(size, 1) for size in sizes) * _DRAWN_BYTES > _LARGEST:
        raise ShapeError(f"{what}, is larger than any array can be; give smaller sizes with --dim")
    needed, there = math.prod(sizes) * _DRAWN_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise OutOfMemoryError(
            f"{what}, takes {needed} bytes to make, and this machine has {there}; give smaller sizes with --dim"
        )


def _shown(dims: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in dims.items())
