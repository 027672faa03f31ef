"""The inputs for programs that commands run: arrays from files, and sizes from options."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click
import numpy as np

from hlo_disc.compiled.program import Program, dtype_named
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, OutOfMemoryError, ShapeError
from hlo_disc.executable import Executable
from hlo_disc.random_inputs import LARGEST, draw, shown, size_of

C = TypeVar("C", bound=Callable[..., object])

_ADVICE = "give what numpy.save or numpy.savez wrote"
_NUMPY, _ZIP = b"\x93NUMPY", b"PK\x03\x04"


def input_options(command: C) -> C:
    """The options that say what a program runs on."""
    for option in (
        click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of random inputs."),
        click.option("--dim", "sizes", multiple=True, metavar="NAME=SIZE", help="The size of a dim of random inputs."),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="[NAME=]FILE",
            help="A .npy for the next input or the one named, or a .npz with inputs by name. Others are random.",
        ),
    ):
        command = option(command)
    return command


def inputs_of(
    executable: Executable, files: Sequence[str], sizes: Sequence[str], seed: int
) -> tuple[list[np.ndarray], dict[str, int]]:
    """Return all inputs in order, and the size of each dim.

    files: of the options --input; inputs without a file are random. sizes: of the options --dim. Raises ArgumentError,
    ShapeError, OutOfMemoryError.
    """
    given = _read(executable.program, files)
    dims = _dims(executable, sizes, given)
    return draw(executable.program.inputs, given, dims, seed), dims


def pairs(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """Parse options of the form NAME=VALUE. Returns the values by name. Raises ArgumentError."""
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
    """Read arrays by input name. Raises ArgumentError for an unknown or repeated name, and for too many arrays."""
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
    """Split NAME=FILE into name and path, and FILE into "" and a path. A file whose own name has a "=" is a file."""
    name, equals, path = text.rpartition("=")
    if not equals or Path(text).exists():
        return "", text
    if not name.strip() or not path:
        raise ArgumentError(f"--input {text!r} is not of the form [NAME=]FILE")
    return name.strip(), path


def _named(array: np.ndarray, dtype: str) -> np.ndarray:
    """Restore the type of bfloat16 and similar arrays, which npy stores as bytes without a name, if the program expects
    one."""
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
        if not _is_damage(error):
            raise
        raise ArgumentError(f"{path}: {_what(path, error)}; {_ADVICE}") from None
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"{path}: is a zip file, but no .npz: its member {key!r} is no array; {_ADVICE}")
    return arrays


def _is_damage(error: Exception) -> bool:
    """Whether an error of reading is about the file's content. Two OSErrors are: EINVAL, from seeking outside a file,
    and one without a number, which zipfile's decompressor raises and no system call."""
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL)


def _what(path: str, error: Exception) -> str:
    """Describe what is wrong with a file of arrays."""
    with open(path, "rb") as file:
        start = file.read(8)
    if not start:
        return "is empty"
    if "Object arrays" in str(error):
        return "holds Python objects, not numbers"
    kind = ".npy" if start.startswith(_NUMPY) else ".npz" if start.startswith(_ZIP) else ""
    return f"is a damaged {kind} file ({error})" if kind else f"is no .npy or .npz file, it begins with {start!r}"


# ----------------------------------------------------------------------------------------------------------- sizes


def sizes_of(texts: Sequence[str]) -> dict[str, list[int]]:
    """Parse options --dim with lists of sizes, as "s=17,128": the sizes by name. Raises ArgumentError, ShapeError."""
    found = pairs("--dim", texts, "NAME=SIZE,…")
    return {name: [_size(name, text.strip()) for text in value.split(",")] for name, value in found.items()}


def _size(name: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > LARGEST:
        raise ShapeError(f"--dim {name}={text}: {text!r} is no size; give an integer from 0 to {LARGEST}")
    return int(text)


def _dims(executable: Executable, texts: Sequence[str], given: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the size of each dim: that of the user, or that of a given array. Raises ShapeError if these differ."""
    dims: dict[str, int] = {}
    for name, value in pairs("--dim", texts, "NAME=SIZE").items():
        if name not in executable.dims:
            raise ShapeError(
                f"--dim {name}={value}: the program's dims are {', '.join(executable.dims) or 'all fixed'}"
            )
        dims[name] = _size(name, value)
    said = dict(dims)
    for x in executable.program.inputs:
        if x.name not in given or given[x.name].ndim != len(x.shape):  # a wrong rank is the call's to refuse
            continue
        for axis, (text, size) in enumerate(zip(x.shape, given[x.name].shape, strict=True)):
            d = Dim.parse(text)
            if d.symbols and d.symbols <= said.keys() and size_of(x, axis, said) != size:
                raise ShapeError(
                    f"--dim {shown({n: said[n] for n in sorted(d.symbols)})}: the array for the input {x.name} has "
                    f"{size} in dimension {axis}, which is '{text}'"
                )
            if text in executable.dims:
                dims.setdefault(text, size)
    return dims
