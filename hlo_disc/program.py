"""A compiled program as plain data, and one file on disk: what compiling makes, `save` writes, and the runtime runs.

The file is a zip archive: `header.json` with the fields of the records below by their names, `object.o`,
`wide.mlirbc`, and the bytes of each constant or its packed form, which are mapped where they lie: processes share them.
Header and records are turned into each other by two functions that go by the records' annotations.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import io
import json
import mmap
import os
import struct
import typing
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from hlo_disc import ral
from hlo_disc.abi import ALIGNMENT, EnvLayout
from hlo_disc.errors import FormatError, UnsupportedOpError

FORMAT = "hlo_disc executable"
VERSION = 14
_ARCHIVE = b"PK\x03\x04"  # a zip file that holds something
# Arrays begin at multiples of ALIGNMENT; what is left out before them is a field among a member's extra ones.
_LEFT_OUT = 0xD935
# Of a member: the bytes in front of its name, where the lengths of the name and of the extra fields are, and the bytes
# of the field that large members get besides.
_LOCAL, _LENGTHS, _LARGE = 30, 26, 20

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class InputRow:
    """An argument; its shape as dim expressions."""

    name: str
    dtype: str
    shape: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {_type(self)}"


@dataclass(frozen=True)
class OutputRow:
    """A result; its shape as dim expressions."""

    dtype: str
    shape: tuple[str, ...]

    def __str__(self) -> str:
        return _type(self)


def _type(row: InputRow | OutputRow) -> str:
    return f"{row.dtype}[{', '.join(row.shape)}]"


@dataclass(frozen=True)
class GuardRow:
    """What must hold of two dim expressions, and the message when it does not: `{k}` in it is the value of args[k]."""

    lhs: str
    relation: str
    rhs: str
    message: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class PackRow:
    """An operand that is kept in another form.

    kind, index: "input" or "constant", and which of them. size: bytes of the packed form. function: what makes it.
    """

    kind: str
    index: int
    size: int
    function: str


@dataclass(frozen=True)
class Attribute:
    """An attribute of a library call, as the XLA FFI has them.

    kind: "scalar" or "array", with the bytes of its elements of type `dtype` as hexadecimal digits in `text`; "string",
        with its `text`; "dictionary", with `entries`; or "callable", with `callback`, a Python function, which no file
        can hold.
    """

    name: str
    kind: str
    dtype: str = ""
    text: str = ""
    entries: tuple[Attribute, ...] = ()
    callback: Any = None


@dataclass(frozen=True)
class BufferType:
    """An operand or result of a library call."""

    dtype: str
    rank: int


@dataclass(frozen=True)
class Alias:
    """An operand and a result of a library call that share memory, by number."""

    operand: int
    result: int


@dataclass(frozen=True)
class LibraryCall:
    """A call site of a library function. where: the op with the user's line."""

    target: str
    where: str
    config: tuple[Attribute, ...]
    operands: tuple[BufferType, ...]
    results: tuple[BufferType, ...]
    aliases: tuple[Alias, ...] = ()


@dataclass(frozen=True, eq=False)
class Program:
    """What compiling makes and `save` writes.

    object: object code of the target, with `plan`, `main` and the `pack` functions.
    constants: what kernels read; empty where they read packed forms alone, and these are made. packed: the numbers of
        those that are, or may be. forms: by pack, the packed form of a constant, once it is made; else empty.
    wide_kernels: modules of MLIR bytecode, where calls may need other kernels than those in `object`: with indices of
        64 bits.
    target, features: the kind of machine that the object code is for, and the features that it uses.
    symbols: the dims' names, in the order in which `plan` writes their values into the env.
    asked: what holds at the calls that the program is for; the message says who asked.
    env: where `plan` leaves what for `main`, and for who calls it.
    unread: inputs whose sizes alone matter, by number.
    structure: how the outputs nest, as JSON; "" for a plain sequence.
    compile_ms: milliseconds of each stage.
    source: what `hlo_disc.compile` took it from, in words.
    """

    object: bytes
    target: str
    features: tuple[str, ...]
    inputs: tuple[InputRow, ...]
    outputs: tuple[OutputRow, ...]
    symbols: tuple[str, ...]
    guards: tuple[GuardRow, ...]
    asked: tuple[GuardRow, ...]
    constants: tuple[np.ndarray, ...]
    packs: tuple[PackRow, ...]
    calls: tuple[LibraryCall, ...]
    env: EnvLayout
    unread: tuple[int, ...] = ()
    explain: str = ""
    structure: str = ""
    compile_ms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    packed: tuple[int, ...] = ()
    forms: tuple[np.ndarray, ...] = ()
    wide_kernels: tuple[bytes, ...] = ()
    source: str = ""

    @property
    def weights(self) -> int:
        """Bytes of constants and packed forms."""
        return sum(x.nbytes for x in (*self.constants, *self.forms))


@dataclass(frozen=True)
class _Array:
    """A member of the archive. digest: of its bytes, as `ral.digest` has it, in hexadecimal digits."""

    dtype: str
    shape: tuple[int, ...]
    digest: str


# Fields that are members of the archive, or have no place in it.
_MEMBERS = ("object", "wide_kernels", "constants", "forms", "callback")


def dtype_named(name: str) -> np.dtype:
    """The numpy dtype of this name, ml_dtypes' included. Raises TypeError for an unknown name."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name, name))


def save(program: Program, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a program as one file, by its path or open, that `read` reads on any machine.

    A file that is there already is replaced as a whole: programs that were read from it stay as they are.

    Raises UnsupportedOpError for one that calls Python functions.
    """
    for call in calling_back(program):
        raise UnsupportedOpError(
            f"{call.where}: a program that calls a Python function cannot be saved or pickled, for the function is of "
            "this process; compile it again where it is needed"
        )
    header = {
        "format": FORMAT,
        "version": VERSION,
        "program": _to_json(program),
        "wide_kernels": len(program.wide_kernels),
        "constants": [_described(x) for x in program.constants],
        "forms": [_described(x) for x in program.forms],
    }
    if not isinstance(file, (str, os.PathLike)):
        _write(program, header, file)
    elif os.path.exists(file) and not os.path.isfile(file):
        with open(file, "wb") as stream:
            _write(program, header, stream)
    else:
        with replacing(file) as stream:
            _write(program, header, stream)


@contextmanager
def replacing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that takes the place of another one, or of none, when it is complete."""
    whole = os.path.realpath(path)
    made = os.path.join(os.path.dirname(whole), f".{os.path.basename(whole)}.{os.urandom(8).hex()}")
    try:
        with open(made, "w+b", opener=lambda name, _: os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)) as file:
            yield file
        os.replace(made, whole)
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None
        raise
    finally:
        with suppress(OSError):
            os.unlink(made)


def _write(program: Program, header: Mapping[str, Any], file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("header.json", json.dumps(header, indent=1))
        archive.writestr("object.o", program.object)
        for i, module in enumerate(program.wide_kernels):
            archive.writestr(f"wide/{i}.mlirbc", module)
        for name, array in _arrays(program):
            data = _bytes(array)
            member = zipfile.ZipInfo(name)
            more = _LARGE if data.nbytes >= zipfile.ZIP64_LIMIT // 2 else 0
            start = file.tell() + _LOCAL + len(member.filename) + 4 + more
            member.extra = struct.pack("<HH", _LEFT_OUT, -start % ALIGNMENT) + bytes(-start % ALIGNMENT)
            with archive.open(member, "w", force_zip64=bool(more)) as stream:
                stream.write(data)


def _arrays(program: Program) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays that are members, with their names."""
    for kind, arrays in (("constants", program.constants), ("forms", program.forms)):
        yield from ((f"{kind}/{i}", array) for i, array in enumerate(arrays))


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _described(array: np.ndarray) -> Json:
    return _to_json(_Array(str(array.dtype), array.shape, f"{ral.digest(_bytes(array)):x}"))


def calling_back(program: Program) -> list[LibraryCall]:
    """The calls of Python functions."""
    return [call for call in program.calls if any(x.callback is not None for x in call.config)]


def content_hash(program: Program) -> int:
    """63 bits that tell programs apart, by all that has a part in what a call does.

    Those of a program that calls Python functions are its own, and no other process has them.
    """
    import hashlib
    import secrets

    if calling_back(program):
        return secrets.randbits(63)
    fields = _to_json(dataclasses.replace(program, explain="", compile_ms={}, source=""))
    digest = hashlib.sha256(json.dumps(fields).encode())
    digest.update(program.object)
    for module in program.wide_kernels:
        digest.update(module)
    for name, array in _arrays(program):
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(_bytes(array))
    return int.from_bytes(digest.digest()[:8]) >> 1


def read(path: str | os.PathLike[str]) -> Program:
    """Read what `save` wrote. Raises FormatError for another format version or a damaged file, FileNotFoundError."""
    with open(path, "rb") as file:
        return read_open(file, str(path))


def read_open(file: BinaryIO, name: str) -> Program:
    """The same from an open file, which messages call `name`."""
    try:
        with zipfile.ZipFile(file) as archive:
            return _read(archive, _content(file))
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # zipfile, numpy and json raise errors of many kinds for damaged files
        if not is_damage(error):
            raise
        reason = f"its header{error}" if isinstance(error, _Damaged) else str(error)
        size = file.seek(0, os.SEEK_END)
        raise FormatError(f"{name} ({size} bytes) {_what(file, size, reason)}") from error


def release_pages(program: Program) -> None:
    """Give back the memory of mapped constants: what is read again comes from the file, or from the system's copy."""
    maps = {id(x): x for x in (_map_of(array) for _, array in _arrays(program)) if x is not None}
    for one in maps.values():
        one.madvise(mmap.MADV_DONTNEED)


def _map_of(array: np.ndarray) -> mmap.mmap | None:
    """What an array is a part of, if that is a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap) else None


def is_damage(error: Exception) -> bool:
    """Whether an error of reading says something of the file's content. Of the OSErrors these do: EINVAL, to seek
    outside of a file, and one without a number, which no system call raised but a decompressor of zipfile's did."""
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL)


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as `save` lets it begin, which no StableHLO module does."""
    with open(path, "rb") as file:
        return file.read(len(_ARCHIVE)) == _ARCHIVE


def _what(file: BinaryIO, size: int, reason: str) -> str:
    """Why a file is no executable, and what to do."""
    again = "compile it again, and save or copy it anew"
    if not size:
        return f"is no hlo_disc executable: it is empty; {again}"
    file.seek(0)
    start = file.read(8)
    if not start.startswith(_ARCHIVE):
        return (
            f"is no hlo_disc executable: it begins with {start!r}; give what Executable.save or 'hlo-disc compile' "
            "wrote (a StableHLO module is compiled with hlo_disc.compile)"
        )
    if not zipfile.is_zipfile(file):
        return f"is truncated: it begins as an hlo_disc executable, and its end is missing; {again}"
    return f"is a damaged hlo_disc executable, or another zip file ({reason}); {again}"


def _read(archive: zipfile.ZipFile, content: memoryview) -> Program:
    header = json.loads(archive.read("header.json"))
    if header["format"] != FORMAT:
        raise ValueError(f"its header does not say {FORMAT!r}")
    if header["version"] != VERSION:
        raise FormatError(
            f"executable format version {header['version']}, this hlo_disc reads {VERSION}: compile it again"
        )
    arrays: dict[str, Any] = {
        name: tuple(_array(archive, f"{name}/{i}", content, kind) for i, kind in enumerate(kinds))
        for name in ("constants", "forms")
        for kinds in [_part(tuple[_Array, ...], header[name], name)]
    }
    fields = _fields(Program, header["program"])
    wide = range(_part(int, header["wide_kernels"], "wide_kernels"))
    modules = tuple(archive.read(f"wide/{i}.mlirbc") for i in wide)
    fields |= {"object": archive.read("object.o"), "wide_kernels": modules}
    return Program(**arrays, **fields)


def _content(file: BinaryIO) -> memoryview:
    """All of an open file, mapped where it is one on disk."""
    if isinstance(file, io.BytesIO):
        return file.getbuffer()
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _array(archive: zipfile.ZipFile, name: str, content: memoryview, kind: _Array) -> np.ndarray:
    """A member as an array of what the file holds, which is checked. Raises BadZipFile, KeyError, ValueError."""
    member = archive.getinfo(name)
    start = member.header_offset + _LOCAL + sum(struct.unpack_from("<HH", content, member.header_offset + _LENGTHS))
    data = content[start : start + member.file_size]
    if member.compress_type != zipfile.ZIP_STORED or data.nbytes != member.file_size:
        raise zipfile.BadZipFile(f"{name} is not in the file as it is")
    if f"{ral.digest(data):x}" != kind.digest:
        raise zipfile.BadZipFile(f"the digest of {name} is not what the header says")
    array = np.frombuffer(data, np.uint8) if data.nbytes else np.zeros(0, np.uint8)
    return _aligned(array).view(dtype_named(kind.dtype)).reshape(kind.shape)


def _aligned(array: np.ndarray) -> np.ndarray:
    """Bytes at a place where code may expect them: there they are in a file that is mapped, but not in every buffer."""
    if array.ctypes.data % ALIGNMENT == 0 or not array.size:
        return array
    room = np.empty(array.size + ALIGNMENT, np.uint8)
    moved = room[-room.ctypes.data % ALIGNMENT :][: array.size]
    moved[:] = array
    return moved


def _to_json(value: object) -> Json:
    """Records by their fields' names; the members of the archive are left out."""
    if dataclasses.is_dataclass(value):
        return {f.name: _to_json(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in _MEMBERS}
    if isinstance(value, tuple):
        return [_to_json(x) for x in value]
    if isinstance(value, Mapping):
        return {str(key): _to_json(x) for key, x in value.items()}
    assert value is None or isinstance(value, (bool, int, float, str)), value
    return value


class _Damaged(Exception):
    """What is wrong with a value of the header. Whoever reads what it is part of puts a step of the way in front."""

    def within(self, step: str) -> _Damaged:
        return _Damaged(step + str(self))


def _from_json(kind: Any, value: Json) -> Any:
    """`value` as a record, tuple[X, ...], Mapping[str, X], int, float or str. Raises _Damaged when it is none."""
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


def _part(kind: Any, value: Json, place: int | str) -> Any:
    try:
        return _from_json(kind, value)
    except _Damaged as error:
        raise error.within(f"[{place!r}]") from None


def _fields(kind: Any, value: Json) -> dict[str, Any]:
    """The fields of a record that are in the header."""
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
def _form(kind: Any) -> tuple[Any, Any]:
    """What a type is made of: (dict, types of a record's fields), (tuple or Mapping, X), or (the type itself, None)."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return dict, {name: hint for name, hint in typing.get_type_hints(kind).items() if name not in _MEMBERS}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    return (origin, arguments[0 if origin is tuple else 1]) if origin else (kind, None)
