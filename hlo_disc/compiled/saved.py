"""The file of a compiled program, which any process on a machine of its kind reads.

It begins with PREFIX: the kind of the file, and the length and the digest of the header. The header is JSON. It has the
fields of the program's records by their names, and the offsets of the sections behind it: object code, modules of MLIR
bytecode, and each constant or its packed form. These sections are mapped, so that processes share them. Two functions
convert between header and records, by the annotations of the records. Digests are those of `ral.digest`.
"""

import functools
import io
import json
import mmap
import os
import struct
import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, ForwardRef, NamedTuple, Protocol

import numpy as np

from hlo_disc import ral
from hlo_disc.abi import ALIGNMENT
from hlo_disc.compiled.program import Program, calling_back, dtype_named
from hlo_disc.compiled.replacing import replacing
from hlo_disc.errors import FormatError, UnsupportedOpError

VERSION = 20
_KIND = b"hlo_disc"
PREFIX = struct.Struct("<8sQQ")
_AGAIN = "compile it again, and save or copy it anew"

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class Section(NamedTuple):
    """A range of bytes in a file.

    start: the offset from the first multiple of ALIGNMENT behind the header. digest: in hexadecimal digits.
    """

    start: int
    size: int
    digest: str


class _Array(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    section: Section


# Fields that have sections of their own, or no place in a file.
_NO_FIELDS = ("object", "wide_kernels", "constants", "forms", "callback")


def save(program: Program, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a program to one file, a path or an open file, which `read` reads on any machine.

    An existing file is replaced as a whole: programs that were read from it stay as they are.

    Raises UnsupportedOpError for a program that calls Python functions.
    """
    for call in calling_back(program):
        raise UnsupportedOpError(
            f"{call.where}: a program that calls a Python function cannot be saved or pickled, for the function is of "
            "this process; compile it again where it is needed"
        )
    sections = Sections()

    def array(x: np.ndarray) -> _Array:
        return _Array(str(x.dtype), x.shape, sections.add_array(x))

    header = _Header(
        code=sections.add(program.object),
        modules=tuple(map(sections.add, program.wide_kernels)),
        arrays=tuple(map(array, program.constants)),
        packed=tuple(map(array, program.forms)),
    )
    text = json.dumps({"version": VERSION, "program": _to_json(program), **_record(header)}).encode()
    start = PREFIX.pack(_KIND, len(text), ral.digest(text))
    whole = [start, text, bytes(-_end(len(text)) % ALIGNMENT), *sections.parts]
    if not isinstance(file, (str, os.PathLike)):
        file.writelines(whole)
        return
    special = os.path.exists(file) and not os.path.isfile(file)
    opened: AbstractContextManager[BinaryIO] = open(file, "wb") if special else replacing(file)
    with opened as stream:
        stream.writelines(whole)
        if not special:  # it is on the disk before it takes the place of another one
            stream.flush()
            os.fsync(stream.fileno())


class Sections:
    """Sections, one after the other, each from a multiple of ALIGNMENT on. parts: their bytes, and the gaps between."""

    def __init__(self) -> None:
        self.size = 0
        self.parts: list[bytes | memoryview] = []

    def add(self, data: bytes | memoryview) -> Section:
        """Append bytes. Return their section."""
        gap = -self.size % ALIGNMENT
        section = Section(self.size + gap, len(data), f"{ral.digest(data):x}")
        self.parts += [bytes(gap), data]
        self.size = section.start + section.size
        return section

    def add_array(self, array: np.ndarray) -> Section:
        """Append the bytes of an array. Return their section."""
        return self.add(_bytes(array))


def _end(header: int) -> int:
    """Return the offset in the file at which a header of so many bytes ends."""
    return PREFIX.size + header


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def content_hash(program: Program) -> int:
    """Return a hash of 63 bits of everything in a program that affects what a call does.

    For a program that calls Python functions it is random: no other process has it.
    """
    import hashlib
    import secrets

    if calling_back(program):
        return secrets.randbits(63)
    fields = _to_json(program._replace(account="", compile_ms={}, source=""))
    digest = hashlib.sha256(json.dumps(fields).encode())
    digest.update(program.object)
    for module in program.wide_kernels:
        digest.update(module)
    for array in (*program.constants, *program.forms):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(_bytes(array))
    return int.from_bytes(digest.digest()[:8]) >> 1


def read(path: str | os.PathLike[str], mapped: bool = True) -> Program:
    """Read a file of `save`. mapped: constants lie in the file, which must not change; else they are copies.

    Raises FormatError for another format version or a damaged file, FileNotFoundError.
    """
    with open(path, "rb") as file:
        return read_open(file if mapped else io.BytesIO(file.read()), str(path))


def read_open(file: BinaryIO, name: str) -> Program:
    """Read an open file of `save`, which messages call `name`. Raises FormatError."""
    content = _content(file)
    try:
        return _read(content)
    except FormatError as error:
        raise FormatError(f"{name} ({len(content)} bytes) {error}") from None
    # json and numpy raise these for a damaged file.
    except (_Damaged, ValueError, TypeError, AttributeError, SyntaxError, RecursionError) as error:
        reason = f"its header{error}" if isinstance(error, _Damaged) else str(error)
        raise FormatError(
            f"{name} ({len(content)} bytes) is a damaged hlo_disc executable ({reason}); {_AGAIN}"
        ) from error


def release_pages(program: Program) -> None:
    """Give back the memory of mapped constants. Later reads take them from the file, or from the system's copy."""
    arrays = (*program.constants, *program.forms)
    maps = {id(x): x for x in map(_map_of, arrays) if x is not None}
    for one in maps.values():
        one.madvise(mmap.MADV_DONTNEED)


def _map_of(array: np.ndarray) -> mmap.mmap | None:
    """Return the mapped file that holds an array; None for an array elsewhere."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap) else None


def is_saved(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as those of `save` do. No StableHLO module does."""
    with open(path, "rb") as file:
        return file.read(len(_KIND)) == _KIND


def _read(content: memoryview) -> Program:
    header, behind = _header(content)
    if header["version"] != VERSION:
        raise FormatError(f"has format version {header['version']}, this hlo_disc reads {VERSION}: compile it again")
    parts = _from_json(_Header, {name: part for name, part in header.items() if name not in ("version", "program")})

    def array(name: str, x: _Array) -> np.ndarray:
        data = _checked(behind, name, x.section)
        found = np.frombuffer(data, np.uint8) if data.nbytes else np.zeros(0, np.uint8)
        return _aligned(found).view(dtype_named(x.dtype)).reshape(x.shape)

    return Program(
        object=bytes(_checked(behind, "the object code", parts.code)),
        wide_kernels=tuple(bytes(_checked(behind, f"module {i}", x)) for i, x in enumerate(parts.modules)),
        constants=tuple(array(f"constant {i}", x) for i, x in enumerate(parts.arrays)),
        forms=tuple(array(f"packed form {i}", x) for i, x in enumerate(parts.packed)),
        **_fields(Program, header["program"]),
    )


class _Header(NamedTuple):
    """The fields of the header, without the program's."""

    code: Section
    modules: tuple[Section, ...]
    arrays: tuple[_Array, ...]
    packed: tuple[_Array, ...]


def _header(content: memoryview) -> tuple[dict[str, Json], memoryview]:
    """Return the header and the sections behind it. Raises FormatError for another kind of file or a truncated one."""
    if not content:
        raise FormatError(f"is no hlo_disc executable: it is empty; {_AGAIN}")
    start = bytes(content[: len(_KIND)])
    if start.startswith(b"PK"):
        raise FormatError(
            f"is a zip archive, as format versions up to 13 were; this hlo_disc reads {VERSION}: {_AGAIN}"
        )
    if start != _KIND[: len(start)]:
        raise FormatError(
            f"is no hlo_disc executable: it begins with {start!r}; give what Executable.save or 'hlo-disc compile' "
            "wrote (a StableHLO module is compiled with hlo_disc.compile)"
        )
    truncated = f"is truncated: it begins as an hlo_disc executable, and its end is missing; {_AGAIN}"
    if len(content) < PREFIX.size:
        raise FormatError(truncated)
    _, size, digest = PREFIX.unpack_from(content)
    text = content[PREFIX.size : _end(size)]
    if len(text) != size:
        raise FormatError(truncated)
    if ral.digest(text) != digest:
        raise ValueError("the digest of its header is another one")
    header = json.loads(bytes(text))
    if not isinstance(header, dict) or not {"version", "program"} <= header.keys():
        raise _Damaged(f" is {header!r:.40}")
    return header, content[_end(size) + -_end(size) % ALIGNMENT :]


def _content(file: BinaryIO) -> memoryview:
    """Return the content of an open file, mapped if the file is on disk."""
    if isinstance(file, io.BytesIO):
        return file.getbuffer()
    empty = not os.fstat(file.fileno()).st_size  # nothing can be mapped of that
    return memoryview(b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _checked(behind: memoryview, name: str, section: Section) -> memoryview:
    """Return the bytes of a section. Raises FormatError if the file is too short, ValueError for another digest."""
    data = behind[section.start : section.start + section.size]
    if section.start < 0 or len(data) != section.size:
        raise FormatError(
            f"is truncated: {len(data)} of {section.size} bytes of {name}, from {section.start} on, are there; {_AGAIN}"
        )
    if f"{ral.digest(data):x}" != section.digest:
        raise ValueError(f"the digest of {name} is another one")
    return data


def _aligned(array: np.ndarray) -> np.ndarray:
    """Return bytes at an aligned address, as code may expect: in a mapped file they are, but not in every buffer."""
    if array.ctypes.data % ALIGNMENT == 0 or not array.size:
        return array
    room = np.empty(array.size + ALIGNMENT, np.uint8)
    moved = room[-room.ctypes.data % ALIGNMENT :][: array.size]
    moved[:] = array
    return moved


class _Record(Protocol):
    """A named tuple."""

    @property
    def _fields(self) -> tuple[str, ...]: ...


def _record(value: _Record) -> dict[str, Json]:
    return {name: _to_json(getattr(value, name)) for name in value._fields if name not in _NO_FIELDS}


def _to_json(value: object) -> Json:
    """Convert a value to JSON. Records become fields by name, without those of _NO_FIELDS."""
    if hasattr(value, "_fields"):
        return _record(value)
    if isinstance(value, tuple):
        return [_to_json(x) for x in value]
    if isinstance(value, Mapping):
        return {str(key): _to_json(x) for key, x in value.items()}
    assert value is None or isinstance(value, (bool, int, float, str)), value
    return value


class _Damaged(Exception):
    """An error for a wrong value in the header. Each reader of an enclosing value puts a step of the path in front."""

    def within(self, step: str) -> "_Damaged":
        return _Damaged(step + str(self))


def _from_json(kind: Callable[..., object], value: Json) -> Any:
    """Read `value` as a record, tuple[X, ...], Mapping[str, X], int, float or str. Raises _Damaged if it is not one."""
    form, part = _form(kind)
    if form is dict:
        return kind(**_fields(kind, value))
    if form is tuple and isinstance(value, list):
        return tuple([_part(part, x, i) for i, x in enumerate(value)])
    if form is Mapping and isinstance(value, dict):
        return {key: _part(part, x, key) for key, x in value.items()}
    if form is float and type(value) is int:
        return float(value)
    if type(value) is not form:
        raise _Damaged(f" is {value!r:.40}, not {kind}")
    return value


def _part(kind: Callable[..., object], value: Json, place: int | str) -> object:
    try:
        return _from_json(kind, value)
    except _Damaged as error:
        raise error.within(f"[{place!r}]") from None


def _fields(kind: Callable[..., object], value: Json) -> dict[str, Any]:
    """Read the fields of a record that are in the header. Raises _Damaged."""
    _, kinds = _form(kind)
    if not isinstance(value, dict):
        raise _Damaged(f" is {value!r:.40}, not the fields of {kind.__name__}")
    for wrong, names in (("no", kinds.keys() - value.keys()), ("an unknown", value.keys() - kinds.keys())):
        if names:
            raise _Damaged(f" has {wrong} {', '.join(sorted(names))}")
    fields = {}
    for name, x in value.items():
        try:
            fields[name] = _from_json(kinds[name], x)
        except _Damaged as error:
            raise error.within(f".{name}") from None
    return fields


@functools.cache
def _form(kind: object) -> tuple[object, Any]:
    """Return a type's parts: (dict, types of a record's fields), (tuple or Mapping, X), or (the type itself, None)."""
    if hasattr(kind, "_fields"):
        kinds = {name: x for name, x in kind.__annotations__.items() if name not in _NO_FIELDS}
        names = vars(sys.modules[kind.__module__])  # for a record that holds others of its kind
        return dict, {
            name: eval(x.__forward_arg__, names) if isinstance(x, ForwardRef) else x for name, x in kinds.items()
        }
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    return (origin, arguments[0 if origin is tuple else 1]) if origin else (kind, None)
