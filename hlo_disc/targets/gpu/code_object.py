"""The code objects that AMD's driver loads, made of the relocatable objects that LLVM writes, and bundles of them.

A code object is an ELF shared object that has a descriptor of 64 bytes for each kernel, `kernel.kd`, beside its code
(LLVM's "User Guide for AMDGPU Backend"). The driver's loader (ROCR-Runtime) copies the segments as they lie, and finds
descriptors in .symtab; its compiler support library (comgr) reads .dynsym, and the note that says what arguments a
kernel has. So both tables are there, with the same contents. All that is left to link are distances between sections.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hlo_disc.errors import CompileError
from hlo_disc.frozen import frozen

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_TAG = struct.Struct("<QQ")
_SHARED_OBJECT, _AMDGPU = 3, 224
# Types and flags of sections.
_SYMBOLS, _STRINGS, _RELOCATIONS, _HASHES, _DYNAMIC, _NOTE, _NO_BITS, _DYNAMIC_SYMBOLS = 2, 3, 4, 5, 6, 7, 8, 11
_WRITTEN, _LOADED, _RUN = 1, 2, 4
# Numbers of sections from here on say something else of a symbol.
_NO_SECTION = 0xFF00
_DEFAULT, _PROTECTED = 0, 3  # visibilities of symbols that others may use
# Types of relocations that are distances: how many bytes of it, and from which bit on. 5: R_AMDGPU_REL64; 4, 10, 11:
# R_AMDGPU_REL32 and its _LO and _HI.
_DISTANCES = {5: (8, 0), 4: (4, 0), 10: (4, 0), 11: (4, 32)}
# Segments: their types, and what may be done with their memory.
_LOAD, _DYNAMIC_SEGMENT, _NOTE_SEGMENT = 1, 2, 4
_R, _RX, _RW = 4, 5, 6
_PAGE = 0x1000
_CODE_ALIGNMENT = 256

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"


@dataclass
class _Section:
    """A section, as its header describes it; link: the section that this one is about or refers to. index: in the code
    object."""

    name: str
    type: int
    flags: int
    data: bytearray
    alignment: int = 1
    entry: int = 0
    link: _Section | None = None
    info: int = 0
    offset: int = 0
    address: int = 0
    index: int = 0


@frozen
class _Symbol:
    name: str
    info: int
    visibility: int
    section: _Section | None  # None where there is none, or the value is no place in one
    value: int
    size: int

    @property
    def address(self) -> int:
        return self.value + (self.section.address if self.section else 0)

    @property
    def exported(self) -> bool:
        return self.section is not None and self.info >> 4 > 0 and self.visibility in (_DEFAULT, _PROTECTED)


@frozen
class _Relocatable:
    """head: what both headers begin with."""

    head: bytes
    flags: int
    sections: list[_Section]
    symbols: list[_Symbol]

    def relocations(self) -> Iterator[tuple[_Section, int, _Symbol, int, int]]:
        """Section, place in it, symbol, type, addend."""
        for table in self.sections:
            if table.type != _RELOCATIONS:
                continue
            section = self.sections[table.info]
            if section.flags & _LOADED:
                for at, what, addend in _RELOCATION.iter_unpack(table.data):
                    yield section, at, self.symbols[what >> 32], what & 0xFFFFFFFF, addend


@frozen
class _Tables:
    """The sections by which others find kernels; where each exported symbol's name begins."""

    exported: list[_Symbol]
    places: list[int]
    symbols: _Section
    strings: _Section
    hashes: _Section
    dynamic: _Section

    def fill(self) -> None:
        """Write the contents of the tables, once all sections have their places."""
        for k, (symbol, place) in enumerate(zip(self.exported, self.places, strict=True), 1):
            assert symbol.section is not None
            fields = (place, symbol.info, symbol.visibility, symbol.section.index, symbol.address, symbol.size)
            _SYMBOL.pack_into(self.symbols.data, k * _SYMBOL.size, *fields)
        # DT_SYMTAB, DT_SYMENT, DT_STRTAB, DT_STRSZ, DT_HASH, DT_NULL
        tags = [(6, self.symbols.address), (11, _SYMBOL.size), (5, self.strings.address), (10, len(self.strings.data))]
        tags += [(4, self.hashes.address), (0, 0)]
        for k, tag in enumerate(tags):
            _TAG.pack_into(self.dynamic.data, k * _TAG.size, *tag)


def code_object(relocatable: bytes) -> bytes:
    """Make the code object of a relocatable object of kernels. Raises CompileError for contents that kernels do not
    have."""
    source = _read(relocatable)
    loaded = [s for s in source.sections if s.flags & _LOADED and s.data]
    if variables := [s.name for s in loaded if s.flags & _WRITTEN]:
        raise CompileError(f"kernels of a GPU cannot have variables of their own: {', '.join(variables)}")
    notes = [s for s in loaded if s.type == _NOTE]
    code = [s for s in loaded if s.flags & _RUN]
    constants = [s for s in loaded if s.type != _NOTE and not s.flags & _RUN]
    for section in code:
        section.alignment = max(section.alignment, _CODE_ALIGNMENT)

    tables = _tables([s for s in source.symbols if s.exported])
    dynamic = tables.dynamic
    parts = [(_R, [*notes, tables.symbols, tables.hashes, tables.strings, *constants]), (_RX, code), (_RW, [dynamic])]
    parts = [(access, sections) for access, sections in parts if sections]
    segments = _place_segments(parts, _HEADER.size + _SEGMENT.size * (len(parts) + 1 + len(notes)))
    segments += [(_DYNAMIC_SEGMENT, _RW, dynamic.offset, dynamic.address, len(dynamic.data), 8)]
    segments += [(_NOTE_SEGMENT, _R, s.offset, s.address, len(s.data), s.alignment) for s in notes]
    placed = [section for _, sections in parts for section in sections]
    for index, section in enumerate(placed, 1):
        section.index = index
    tables.fill()
    _relocate(source)
    return _written(source, placed, segments, tables.symbols)


def _tables(exported: list[_Symbol]) -> _Tables:
    strings = _Section(".dynstr", _STRINGS, _LOADED, bytearray())
    places = _add_strings(strings, [s.name for s in exported])
    count = len(exported) + 1
    empty = bytearray(count * _SYMBOL.size)
    symbols = _Section(".dynsym", _DYNAMIC_SYMBOLS, _LOADED, empty, 8, _SYMBOL.size, strings, info=1)
    hashes = _Section(".hash", _HASHES, _LOADED, _one_bucket(count), 8, 4, symbols)
    dynamic = _Section(".dynamic", _DYNAMIC, _WRITTEN | _LOADED, bytearray(6 * _TAG.size), 8, _TAG.size, strings)
    return _Tables(exported, places, symbols, strings, hashes, dynamic)


def _place_segments(parts: Sequence[tuple[int, list[_Section]]], headers: int) -> list[tuple[int, ...]]:
    """Place each part on memory pages of its own, the first after the headers; in the file they follow each other."""
    segments: list[tuple[int, ...]] = []
    end = headers
    for k, (access, sections) in enumerate(parts):
        end = _place(sections, end, k * _PAGE)
        start = sections[0].offset if segments else 0
        segments.append((_LOAD, access, start, start + k * _PAGE, end - start, _PAGE))
    return segments


def _read(relocatable: bytes) -> _Relocatable:
    head, _, machine, _, _, _, start, flags, _, _, _, _, count, names = _HEADER.unpack_from(relocatable)
    assert machine == _AMDGPU, "LLVM's object is for another machine"
    headers = [_SECTION.unpack_from(relocatable, start + k * _SECTION.size) for k in range(count)]

    def text(table: int, at: int) -> str:
        begin = headers[table][4] + at
        return relocatable[begin : relocatable.index(0, begin)].decode()

    sections = []
    for name, type_, section_flags, _, offset, size, _, info, alignment, entry in headers:
        data = bytearray(size) if type_ == _NO_BITS else bytearray(relocatable[offset : offset + size])
        known = section_flags & (_WRITTEN | _LOADED | _RUN)
        sections.append(_Section(text(names, name), type_, known, data, max(alignment, 1), entry, None, info))
    symbols = []
    table = next(k for k, section in enumerate(sections) if section.type == _SYMBOLS)
    for name, info, other, number, value, size in _SYMBOL.iter_unpack(sections[table].data):
        section = sections[number] if 0 < number < _NO_SECTION else None
        symbols.append(_Symbol(text(headers[table][6], name), info, other & 3, section, value, size))
        if number == 0 and len(symbols) > 1:
            raise CompileError(f"kernels of a GPU need {symbols[-1].name}, which nobody defines")
    return _Relocatable(head, flags, sections, symbols)


def _add_strings(table: _Section, texts: Sequence[str]) -> list[int]:
    """Append strings to a table. Returns the offset of each."""
    places = []
    table.data += b"\0"
    for text in texts:
        places.append(len(table.data))
        table.data += text.encode() + b"\0"
    return places


def _one_bucket(count: int) -> bytearray:
    """Make a hash table in which all symbols are one chain, whatever their hashes are."""
    following = [0, *(k + 1 if k + 1 < count else 0 for k in range(1, count))]
    return bytearray(struct.pack(f"<{3 + count}I", 1, count, int(count > 1), *following))


def _aligned(x: int, alignment: int) -> int:
    return -(-x // alignment) * alignment


def _place(sections: Sequence[_Section], start: int, ahead: int) -> int:
    """Place sections one after another, in memory so many bytes ahead of the file; returns the end of the last one."""
    for section in sections:
        section.offset = _aligned(start, section.alignment)
        section.address = section.offset + ahead
        start = section.offset + len(section.data)
    return start


def _relocate(source: _Relocatable) -> None:
    for section, at, symbol, type_, addend in source.relocations():
        if type_ not in _DISTANCES or symbol.section is None:
            raise CompileError(f"kernels of a GPU need a relocation of type {type_} against {symbol.name}")
        size, shift = _DISTANCES[type_]
        distance = symbol.address + addend - (section.address + at)
        section.data[at : at + size] = (distance >> shift & (1 << 8 * size) - 1).to_bytes(size, "little")


def _written(
    source: _Relocatable, placed: list[_Section], segments: Sequence[tuple[int, ...]], table: _Section
) -> bytes:
    """Return the file. `table`: the symbols, which come once more for the loader."""
    assert table.link is not None
    strings = _Section(".strtab", _STRINGS, 0, table.link.data, index=len(placed) + 1)
    symbols = _Section(".symtab", _SYMBOLS, 0, table.data, 8, table.entry, strings, 1, index=len(placed) + 2)
    names = _Section(".shstrtab", _STRINGS, 0, bytearray(), index=len(placed) + 3)
    sections = [*placed, strings, symbols, names]
    places = _add_strings(names, [s.name for s in sections])
    end = _aligned(_place([strings, symbols, names], placed[-1].offset + len(placed[-1].data), 0), 8)

    out = bytearray(end)
    fields = (_SHARED_OBJECT, _AMDGPU, 1, 0, _HEADER.size, end, source.flags, _HEADER.size, _SEGMENT.size)
    _HEADER.pack_into(out, 0, source.head, *fields, len(segments), _SECTION.size, len(sections) + 1, names.index)
    for k, (type_, access, offset, address, size, alignment) in enumerate(segments):
        at = _HEADER.size + k * _SEGMENT.size
        _SEGMENT.pack_into(out, at, type_, access, offset, address, address, size, size, alignment)
    out += bytes(_SECTION.size)
    for section, name in zip(sections, places, strict=True):
        out[section.offset : section.offset + len(section.data)] = section.data
        loaded = section.address if section.flags & _LOADED else 0
        link = section.link.index if section.link else 0
        where = (loaded, section.offset, len(section.data), link, section.info, section.alignment, section.entry)
        out += _SECTION.pack(name, section.type, section.flags, *where)
    return bytes(out)


def bundle(objects: Mapping[str, bytes]) -> bytes:
    """Code objects by processor, of which the driver takes that of its GPU.

    The format is that of clang-offload-bundler: places and names, then the code objects, each at a page.
    """
    entries = {f"hipv4-amdgcn-amd-amdhsa--{name}": data for name, data in objects.items()}
    place = _PAGE
    head, body = bytearray(_BUNDLE + struct.pack("<Q", len(entries))), bytearray()
    for name, data in entries.items():
        head += struct.pack("<QQQ", place + len(body), len(data), len(name)) + name.encode()
        body += data.ljust(_aligned(len(data), _PAGE), b"\0")
    assert len(head) <= _PAGE
    return bytes(head.ljust(_PAGE, b"\0") + body)


def unbundled(image: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the code objects of all bundles in an image, each behind its processor."""
    start = image.index(_BUNDLE)
    while start >= 0:
        at = start + len(_BUNDLE)
        (count,) = struct.unpack_from("<Q", image, at)
        at += 8
        for _ in range(count):
            place, size, length = struct.unpack_from("<QQQ", image, at)
            name = image[at + 24 : at + 24 + length].decode()
            yield name.rpartition("--")[2], image[start + place : start + place + size]
            at += 24 + length
        start = image.find(_BUNDLE, at)
