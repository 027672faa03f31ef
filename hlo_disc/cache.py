"""Compiled programs on disk, for all processes of a user: a file each, named by a digest of all that it follows from.

An entry is what `Executable.save` writes, without the large arrays that the graph has anyway, and with its name. It
appears at once and whole, for it is written under another name, and what is in it is checked as it is read: damaged
entries, and those under the name of another one, are deleted.
Nothing is locked. No failure here is one of the compilation: where the directory cannot be used, a warning is logged
once.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hlo_disc.compiled.program import Program, calling_back
from hlo_disc.compiled.saved import read, read_open, replacing, save
from hlo_disc.display.notebook import signature_text
from hlo_disc.dynamic_hlo.ir.digest import digest
from hlo_disc.dynamic_hlo.ir.graph import Graph, all_ops, is_array
from hlo_disc.errors import FormatError
from hlo_disc.options import Options
from hlo_disc.targets import registry

logger = logging.getLogger("hlo_disc")

SUFFIX = ".disc"
# What a build leaves beside this file: a digest of the contents of all that it was made of.
BUILD = "build.digest"
# What makes code of a program.
_PACKAGES = ("jax", "jaxlib", "llvmlite", "ml_dtypes", "numpy")
# Arrays of so many bytes are not stored again; which of the graph's they are is a member of the entry.
_LARGE = 1 << 16
# Permissions of what others than the owner may write.
_OTHERS = 0o022
# An entry, and one that is being written.
_NAMES = re.compile(r"[0-9a-f]{64}\.disc|\.[0-9a-f]{64}\.disc\.[0-9a-f]{16}")

_told: set[str] = set()


class Entry(NamedTuple):
    """A file of the cache. used: when it was last read or written, in seconds since 1970."""

    path: Path
    size: int
    used: float


def name(graph: Graph, options: Options) -> str:
    """The name of a program's entry; "" where there is no cache, or no other process can have the program.

    Raises ArgumentError for a target that there is not.
    """
    program = digest(graph) if options.cache_directory else None
    if program is None:
        return ""
    kind, level = registry.split(options.target)
    made_by = (kind, level, options.excess_precision, registry.find(kind).made_for(level), _versions(), _package())
    return hashlib.sha256(program + repr(made_by).encode()).hexdigest()


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {metadata.version(name)}" for name in _PACKAGES)


@functools.cache
def _package() -> str:
    """Return the version of this package and a digest of its files, which identify how it compiles."""
    from hlo_disc import __version__
    from hlo_disc.ral import _ral

    assert _ral.__file__
    return f"{__version__} {_files(Path(__file__).parent, Path(_ral.__file__))}"


def _files(place: Path, native: Path) -> str:
    """A digest of the contents of a package's files. It is made when the package is built; of files that are used as
    they lie in a source tree their names, sizes and times have to do.
    """
    with suppress(FileNotFoundError):
        return (place / BUILD).read_text()
    found = hashlib.sha256()
    inside = (Path(path, name) for path, _, names in sorted(os.walk(place)) for name in sorted(names))
    for file in [*(x for x in inside if x.suffix == ".py"), native]:
        stat = file.stat()
        found.update(f"{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return found.hexdigest()


def find(options: Options, name: str, graph: Graph) -> Program | None:
    """The program of an entry, which is of this graph, if there is one."""
    place = options.cache_directory
    if place is None or not name:
        return None
    path = place / f"{name}{SUFFIX}"
    try:
        if not _is_ours(place):
            return None
        with path.open("rb") as file:
            if not _is_ours(file.fileno()):
                return None
            program = _completed(read_open(file, str(path)), graph)
        if program.entry != name:
            raise ValueError(f"{path} holds the entry {program.entry or 'of no name'}")
        os.utime(path)
    except FileNotFoundError:
        return None
    except (FormatError, LookupError, ValueError) as error:
        _tell("an entry was damaged, and is compiled anew", error)
        with suppress(OSError):
            path.unlink()
        return None
    except OSError as error:
        _tell("it cannot be read", error)
        return None
    return program._replace(entry="")


def store(options: Options, name: str, program: Program, graph: Graph) -> None:
    """Keep a graph's program, and delete what was not used for longest where there is too much."""
    place = options.cache_directory
    if place is None or not name or calling_back(program):
        return
    numbers = {id(x): number for number, x in enumerate(_large(graph))}
    given = tuple((i, numbers[id(x)]) for i, x in enumerate(program.constants) if id(x) in numbers)
    kept = tuple(x.ravel()[:0] if id(x) in numbers else x for x in program.constants)
    if sum(x.nbytes for x in kept) > options.cache_bytes // 2:
        return
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            return
        with replacing(place / f"{name}{SUFFIX}", 0o600) as file:
            save(program._replace(constants=kept, given=given, entry=name), file)
        _shrink(place, options.cache_bytes)
    except OSError as error:
        _tell("nothing can be kept in it", error)


def _completed(program: Program, graph: Graph) -> Program:
    """A program with the arrays that its graph has."""
    if not program.given:
        return program
    arrays, constants = _large(graph), list(program.constants)
    for i, number in program.given:
        constants[i] = arrays[number]
    return program._replace(constants=tuple(constants), given=())


def _large(graph: Graph) -> list[np.ndarray]:
    """The large arrays of a graph, in their order."""
    values = (op.attrs["value"] for op in all_ops(graph.ops) if is_array(op))
    return [x for x in values if x.nbytes >= _LARGE]


def _shrink(place: Path, most: int) -> None:
    """Delete the entries that were not used for longest, and what killed processes left, until they fit."""
    found = sorted(entries(place), key=lambda entry: entry.used)
    total = sum(entry.size for entry in found)
    for entry in found[:-1]:
        if total <= most:
            break
        total -= entry.size
        with suppress(FileNotFoundError):
            entry.path.unlink()


def entries(place: Path) -> Iterator[Entry]:
    """The files of a cache, in no order: also those that are being written, whose names begin with a dot."""
    with suppress(FileNotFoundError), os.scandir(place) as found:
        for file in found:
            if _NAMES.fullmatch(file.name):
                with suppress(FileNotFoundError):  # another process deletes it
                    stat = file.stat(follow_symlinks=False)
                    yield Entry(Path(file.path), stat.st_size, stat.st_mtime)


def described(entry: Entry) -> str:
    """Return the signature and the target of the entry's program. Raises FormatError, OSError."""
    program = read(entry.path)
    return f"{signature_text(program.inputs, program.outputs)} for {program.target}"


def _is_ours(place: Path | int) -> bool:
    """Whether nobody else can have written it: what is in it is machine code, which runs as this user."""
    stat = os.stat(place)
    ours = stat.st_uid == os.geteuid() and not stat.st_mode & _OTHERS
    if not ours:
        _tell("it is not used", "others may write to it: it must belong to this user, as chmod go-w makes it")
    return ours


def _tell(what: str, why: object) -> None:
    """Once a process."""
    if what in _told:
        return
    _told.add(what)
    logger.warning(
        "the cache of compiled programs: %s (%s); HLO_DISC_CACHE names another directory, or none", what, why
    )
