"""Compiled programs on disk: a file each, named by a digest of all inputs of its compilation.

An entry is the output of `Executable.save`, without the large arrays that the graph has anyway, and with its name. It
is checked as it is read: damaged entries, and those under the name of another one, are deleted.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np

from hlo_disc.cache.directory import PROGRAM, Entry, damaged, is_ours, made, package, shrink, tell, versions
from hlo_disc.compiled.program import Program, calling_back
from hlo_disc.compiled.replacing import replacing
from hlo_disc.compiled.saved import read, read_open, save
from hlo_disc.display.notebook import signature_text
from hlo_disc.dynamic_hlo.ir.digest import digest
from hlo_disc.dynamic_hlo.ir.graph import Graph, all_ops, is_array
from hlo_disc.errors import FormatError
from hlo_disc.options import Options
from hlo_disc.targets import registry

# What makes code of a program.
_PACKAGES = ("jax", "jaxlib", "llvmlite", "ml_dtypes", "numpy")
# Arrays of so many bytes are not stored again; which of the graph's they are is a member of the entry.
_LARGE = 1 << 16


def name(graph: Graph, options: Options) -> str:
    """Return the name of a program's entry; "" if there is no cache, or if no other process can have the program.

    Raises ArgumentError for an unknown target.
    """
    program = digest(graph) if options.cache_directory else None
    if program is None:
        return ""
    kind, level = registry.split(options.target)
    machine = registry.find(kind).made_for(level)
    compiler = kind, level, options.excess_precision, machine, versions(*_PACKAGES), package()
    return hashlib.sha256(program + repr(compiler).encode()).hexdigest()


def find(options: Options, name: str, graph: Graph) -> Program | None:
    """Find the program of an entry; None if there is none, or if it is not this graph's."""
    place = options.cache_directory
    if place is None or not name:
        return None
    path = place / f"{name}{PROGRAM}"
    try:
        if not is_ours(place):
            return None
        with path.open("rb") as file:
            if not is_ours(file.fileno()):
                return None
            program = _completed(read_open(file, str(path)), graph)
        if program.entry != name:
            raise ValueError(f"{path} holds the entry {program.entry or 'of no name'}")
        os.utime(path)
    except FileNotFoundError:
        return None
    except (FormatError, LookupError, ValueError) as error:
        damaged(path, error)
        return None
    except OSError as error:
        tell("it cannot be read", error)
        return None
    return program._replace(entry="")


def store(options: Options, name: str, program: Program, graph: Graph) -> None:
    """Store a graph's program, and delete the least recently used entries if there are too many bytes."""
    place = options.cache_directory
    if place is None or not name or calling_back(program):
        return
    numbers = {id(x): number for number, x in enumerate(_large(graph))}
    given = tuple((i, numbers[id(x)]) for i, x in enumerate(program.constants) if id(x) in numbers)
    kept = tuple(x.ravel()[:0] if id(x) in numbers else x for x in program.constants)
    if sum(x.nbytes for x in kept) > options.cache_bytes // 2:
        return
    try:
        if not made(place):
            return
        with replacing(place / f"{name}{PROGRAM}", 0o600) as file:
            save(program._replace(constants=kept, given=given, entry=name), file)
        shrink(place, options.cache_bytes)
    except OSError as error:
        tell("nothing can be kept in it", error)


def _completed(program: Program, graph: Graph) -> Program:
    """Return a program with its graph's arrays put back."""
    if not program.given:
        return program
    arrays, constants = _large(graph), list(program.constants)
    for i, number in program.given:
        constants[i] = arrays[number]
    return program._replace(constants=tuple(constants), given=())


def _large(graph: Graph) -> list[np.ndarray]:
    """List the large arrays of a graph, in their order."""
    values = (op.attrs["value"] for op in all_ops(graph.ops) if is_array(op))
    return [x for x in values if x.nbytes >= _LARGE]


def described(entry: Entry) -> str:
    """Return the signature and the target of the entry's program. Raises FormatError, OSError."""
    program = read(entry.path)
    return f"{signature_text(program.inputs, program.outputs)} for {program.target}"
