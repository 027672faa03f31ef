"""Relocatable ELF objects, as LLVM writes them, joined to one: sections side by side, with one table of symbols.

So whoever links or keeps object code sees no difference between a program of one module and one of many.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

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
# Numbers of sections from here on say something else of a symbol.
_NO_SECTION = 0xFF00


@dataclass(frozen=True)
class _Part:
    """An object. names: of sections and symbols, which LLVM has in one table. own: symbols that only it knows."""

    sections: np.ndarray
    contents: list[bytes]
    symbols: np.ndarray
    names: bytes
    own: int


def joined(objects: Sequence[bytes]) -> bytes:
    """One object with all that several have. Raises CompileError for a function that two of them define for others."""
    if len(objects) == 1:
        return objects[0]
    parts = [_part(object_) for object_ in objects]
    # Sections that are replaced stay as ones of no type, so that all numbers of sections only move.
    sections = [np.zeros(1, _SECTION)]
    tables = 1 + sum(len(part.sections) for part in parts)
    out, names = bytearray(_HEADER.size), bytearray()
    symbols, numbers = _symbols(parts)
    first = 1
    for part, number in zip(parts, numbers, strict=True):
        for k, content in enumerate(part.contents):
            section = part.sections[k]
            if section["type"] in (_NONE, _SYMBOLS, _STRINGS):
                part.sections[k] = 0
                continue
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
    at = _place(out, symbols.tobytes(), 8)
    table[0] = (0, _SYMBOLS, 0, 0, at, symbols.nbytes, tables + 1, own, 8, _SYMBOL.itemsize)
    table[1] = (0, _STRINGS, 0, 0, _place(out, names, 1), len(names), 0, 0, 1, 0)
    head, _, flags, sizes, *_ = _HEADER.unpack_from(objects[0])
    at = _place(out, np.concatenate([*sections, table]).tobytes(), 8)
    _HEADER.pack_into(out, 0, head, at, flags, sizes, tables + 2, tables + 1)
    return bytes(out)


def _part(object_: bytes) -> _Part:
    _, at, _, _, count, names = _HEADER.unpack_from(object_)
    sections = np.frombuffer(object_, _SECTION, count, at).copy()
    contents = [b"" if s["type"] == _NO_BITS else object_[s["at"] : s["at"] + s["size"]] for s in sections]
    (table,) = np.flatnonzero(sections["type"] == _SYMBOLS)
    symbols = np.frombuffer(contents[table], _SYMBOL).copy()
    return _Part(sections, contents, symbols, contents[names], int(sections["info"][table]))


def _symbols(parts: Sequence[_Part]) -> tuple[np.ndarray, list[np.ndarray]]:
    """All symbols, those first that one part alone knows; and of each part the new numbers of its own."""
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
            start = int(symbol["name"][0])
            name = part.names[start : part.names.index(b"\0", start)]
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
    return np.concatenate([*own, *shared]), numbers


def _place(out: bytearray, content: bytes | bytearray, alignment: int) -> int:
    """Append something, and return where it is."""
    out += bytes(-len(out) % max(alignment, 1))
    out += content
    return len(out) - len(content)
