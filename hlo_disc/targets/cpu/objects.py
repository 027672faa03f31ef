"""Relocatable ELF objects, as LLVM writes them: joins several to one, and extracts parts as objects of their own.

Sections lie side by side, with one table of symbols. So the linker sees no difference between a program of one module
and a program of many.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hlo_disc.errors import CompileError

# The header: all up to the place of the table of sections, that place, flags, sizes, the number of sections, and which
# of them has names.
_HEADER = struct.Struct("<40sQI8sHH")
_SECTION = np.dtype(
    [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("at", "<u8"), ("size", "<u8"),
     ("link", "<u4"), ("info", "<u4"), ("alignment", "<u8"), ("entry", "<u8")]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_RELOCATION = np.dtype([("at", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
# Types of sections.
_NONE, _SYMBOLS, _STRINGS, _RELOCATIONS, _NO_BITS = 0, 2, 3, 4, 8
# The flag of sections that are loaded.
_ALLOCATED = 2
# What names of sections of kernels, and of functions for them, begin with. Host functions are in the section before it.
_KERNELS = b".text."
# Numbers of sections from here on say something else of a symbol.
_NO_SECTION = 0xFF00


class Part(NamedTuple):
    """An object to join. renamed: prefixes of symbols that it defines, and their replacements."""

    object: bytes
    renamed: Mapping[str, str] = {}


@dataclass
class _Sections:
    """An object. head: the part of its header that says which machine it is for. names: of sections and symbols, which
    LLVM has in one table. own: symbols that only it knows.
    """

    head: tuple[bytes, bytes, int]
    sections: np.ndarray
    contents: list[bytes]
    symbols: np.ndarray
    names: bytes
    own: int

    def name(self, start: int) -> bytes:
        """Return the name at an offset of the table."""
        return self.names[start : self.names.index(b"\0", start)]

    def relocations(self, section: int) -> np.ndarray:
        """Return the entries of a section of relocations."""
        return np.frombuffer(self.contents[section], _RELOCATION)


def joined(parts: Sequence[Part]) -> bytes:
    """Join several objects. Raises CompileError for a function that two of them export."""
    return _written([_loaded(part) for part in parts])


def picked(object_: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Return an object for each named section: the section and all that it refers to.

    Functions that the object exports are left out. They are references to other objects then.
    """
    whole = _sections(object_)
    by_name = {whole.name(int(s["name"])).decode(): k for k, s in enumerate(whole.sections)}
    return {name: _written([_with_needed(whole, [by_name[name]])]) for name in names}


def kernels_of(objects: Sequence[bytes]) -> list[bytes]:
    """Return objects of what lies in sections of kernels, and all that it refers to.

    A function that several of them export stays in the first one.
    """
    exported: set[bytes] = set()
    found = []
    for whole in map(_sections, objects):
        sections = {k for k, s in enumerate(whole.sections) if whole.name(int(s["name"])).startswith(_KERNELS)}
        for symbol in whole.symbols[whole.own :]:
            if symbol["section"] in sections:
                name = whole.name(int(symbol["name"]))
                if name in exported:
                    sections.remove(int(symbol["section"]))
                exported.add(name)
        found.append(_written([_with_needed(whole, sections)]))
    return found


def _with_needed(whole: _Sections, sections: Iterable[int]) -> _Sections:
    """Return an object of some sections and all that they refer to."""
    of_section = {int(s["info"]): k for k, s in enumerate(whole.sections) if s["type"] == _RELOCATIONS}
    keep, waiting = {0}, list(sections)
    while waiting:
        section = waiting.pop()
        if section in keep:
            continue
        keep.add(section)
        if (table := of_section.get(section)) is not None:
            keep.add(table)
            symbols = whole.relocations(table)["symbol"]
            targets = whole.symbols["section"][symbols[symbols < whole.own]]
            waiting += [k for k in set(targets.tolist()) if 0 < k < _NO_SECTION]
    return _only(whole, sorted(keep))


def _written(parts: Sequence[_Sections]) -> bytes:
    sections = [np.zeros(1, _SECTION)]
    tables = 1 + sum(len(part.sections) for part in parts)
    out, names = bytearray(_HEADER.size), bytearray()
    symbols, numbers = _symbols(parts)
    first = 1
    for part, number in zip(parts, numbers, strict=True):
        for k, content in enumerate(part.contents):
            section = part.sections[k]
            section["name"] += len(names)
            if section["type"] == _RELOCATIONS:
                relocations = np.frombuffer(content, _RELOCATION).copy()
                relocations["symbol"] = number[relocations["symbol"]]
                content = relocations.tobytes()
                section["link"], section["info"] = tables, section["info"] + first
            section["at"] = _place(out, content, int(section["alignment"]))
        sections.append(part.sections)
        names += part.names
        first += len(part.sections)
    table = np.zeros(2, _SECTION)
    own = sum(part.own for part in parts)
    at = _place(out, symbols, 8)
    table[0] = (0, _SYMBOLS, 0, 0, at, len(symbols), tables + 1, own, 8, _SYMBOL.itemsize)
    table[1] = (0, _STRINGS, 0, 0, _place(out, names, 1), len(names), 0, 0, 1, 0)
    if tables + 2 >= _NO_SECTION:
        raise CompileError(
            f"the program has {tables + 2} sections of code, of which an object may have {_NO_SECTION - 1}"
        )
    at = _place(out, _bytes(*sections, table), 8)
    head, flags, sizes = parts[0].head
    _HEADER.pack_into(out, 0, head, at, flags, sizes, tables + 2, tables + 1)
    return bytes(out)


def _loaded(part: Part) -> _Sections:
    """Return the sections of an object that a linker needs, with symbols renamed."""
    found = _sections(part.object)
    types, is_code = found.sections["type"], found.sections["flags"] & _ALLOCATED > 0
    # An empty section that is no code says something to linkers: that the stack need not be executable.
    needed = (types != _NONE) & (types != _SYMBOLS) & (types != _STRINGS) & ((found.sections["size"] > 0) | ~is_code)
    kept = _only(found, [0, *np.flatnonzero(needed)])
    renamed = [(before.encode(), after.encode()) for before, after in part.renamed.items() if before != after]
    names = bytearray(kept.names)
    for k in np.flatnonzero(kept.symbols["section"]) if renamed else ():
        name = kept.name(int(kept.symbols["name"][k]))
        for before, after in renamed:
            if name.startswith(before):
                kept.symbols["name"][k] = len(names)
                names += after + name.removeprefix(before) + b"\0"
    kept.names = bytes(names)
    return kept


def _sections(object_: bytes) -> _Sections:
    head, at, flags, sizes, count, names = _HEADER.unpack_from(object_)
    sections = np.frombuffer(object_, _SECTION, count, at).copy()
    contents = [b"" if s["type"] == _NO_BITS else object_[s["at"] : s["at"] + s["size"]] for s in sections]
    (table,) = np.flatnonzero(sections["type"] == _SYMBOLS)
    symbols = np.frombuffer(contents[table], _SYMBOL).copy()
    return _Sections((head, flags, sizes), sections, contents, symbols, contents[names], int(sections["info"][table]))


def _only(whole: _Sections, keep: Sequence[int]) -> _Sections:
    """Return an object of some sections, the first of which is none, with the symbols that they define or refer to.

    Symbols of sections that it lacks are those of other objects.
    """
    number = np.zeros(len(whole.sections), np.uint32)
    number[keep] = np.arange(len(keep))
    kept, contents = whole.sections[keep], [whole.contents[k] for k in keep]
    symbols = whole.symbols
    defined = (symbols["section"] > 0) & (symbols["section"] < _NO_SECTION)
    needed = defined & (number[np.where(defined, symbols["section"], 0)] > 0)
    needed[0] = True
    for k in keep:
        if whole.sections[k]["type"] == _RELOCATIONS:
            needed[whole.relocations(k)["symbol"]] = True
    numbers = np.cumsum(needed, dtype=np.uint32) - 1
    for i, k in enumerate(keep):
        if whole.sections[k]["type"] == _RELOCATIONS:
            relocations = whole.relocations(k).copy()
            relocations["symbol"] = numbers[relocations["symbol"]]
            contents[i] = relocations.tobytes()
            kept[i]["info"] = number[kept[i]["info"]]
    left = symbols[needed]
    inside = (left["section"] > 0) & (left["section"] < _NO_SECTION)
    left["section"][inside] = number[left["section"][inside]]
    outside = inside & (left["section"] == 0)
    left["value"][outside] = left["size"][outside] = 0
    names, starts = bytearray(b"\0"), {}
    for table in (kept, left):
        for i, start in enumerate(table["name"].tolist()):
            if start not in starts:
                starts[start] = len(names) if start else 0
                names += whole.name(start) + b"\0" if start else b""
            table["name"][i] = starts[start]
    return _Sections(whole.head, kept, contents, left, bytes(names), int(needed[: whole.own].sum()))


def _bytes(*tables: np.ndarray) -> bytes:
    """Join the entries of tables: numpy would promote the types of each pair anew."""
    return b"".join([table.tobytes() for table in tables])


def _symbols(parts: Sequence[_Sections]) -> tuple[bytes, list[np.ndarray]]:
    """Return all symbols, local ones first; and for each part the new numbers of its own."""
    own = [part.symbols[: part.own] for part in parts]
    shared: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    known: dict[bytes, int] = {}
    before, count, first, names = 0, sum(map(len, own)), 1, 0
    for part in parts:
        symbols = part.symbols
        symbols["section"][(symbols["section"] > 0) & (symbols["section"] < _NO_SECTION)] += first
        number = np.arange(before, before + len(symbols))
        for k in range(part.own, len(symbols)):
            symbol = symbols[k : k + 1]
            name = part.name(int(symbol["name"][0]))
            place = known.setdefault(name, len(known))
            number[k] = count + place
            if place == len(shared):
                shared.append(symbol)
            elif symbol["section"][0]:
                if shared[place]["section"][0]:
                    raise CompileError(f"two modules define @{name.decode()}")
                shared[place] = symbol
        symbols["name"] += names
        numbers.append(number)
        before, first, names = before + part.own, first + len(part.sections), names + len(part.names)
    return _bytes(*own, *shared), numbers


def _place(out: bytearray, content: bytes | bytearray, alignment: int) -> int:
    """Append data, and return its offset."""
    out += bytes(-len(out) % max(alignment, 1))
    out += content
    return len(out) - len(content)
