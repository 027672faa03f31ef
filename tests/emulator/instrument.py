"""Loads and stores in LLVM IR, with a question to the emulator before each: see `simt_access` in `accesses.cc`.

A thread's own variables are left alone. Lanes of gathers and scatters are accesses of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

DECLARATIONS = """
declare ptr @simt_shared(i64, i64)
declare void @simt_access(ptr, ptr, i64, i64, i64, i32, ptr) nounwind memory(inaccessiblemem: readwrite)
"""


@dataclass(frozen=True)
class Access:
    """A load or store.

    function: which it stands in. base: the value that its address was computed from. at: its address, or each lane's
    with `each`. lanes: how many elements. element: their type. alignment: in bytes. mask: its text, "" if all elements
    are meant. atomic: a store that others may make as well.
    """

    function: str
    base: str
    at: str
    lanes: int
    element: str
    alignment: int
    mask: str
    store: bool
    atomic: bool
    each: bool

    @property
    def bytes(self) -> int:
        """The size of an element."""
        known = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}.get(self.element)
        return known or -(-int(self.element.removeprefix("i")) // 8)


_TYPE = r"(?:<(?P<lanes>\d+) x (?P<vector>\w+)>|(?P<scalar>\w+))"
_MASK = r"<\d+ x i1> (?P<mask>%[\w.]+|splat \(i1 \w+\)|zeroinitializer|<[^>]*>)"
_AT = r"(?P<at>[%@][\w.]+)"
_ALIGN = r"align (?P<alignment>\d+)"
# What may touch memory, and the forms of it that are known.
_TOUCHES = re.compile(
    r"  (?:.* = )?(?:load|store|atomicrmw|cmpxchg|(?:tail )?call .*@llvm\.(?:masked|mem|nvvm\.ldmatrix)[.\w]*\()"
)
_FORMS = [
    re.compile("  " + pattern)
    for pattern in (
        rf"%\S+ = load {_TYPE}, ptr {_AT}, {_ALIGN}",
        rf"(?P<store>store) {_TYPE} .*, ptr {_AT}, {_ALIGN}",
        rf"%\S+ = (?P<atomic>(?P<store>atomicrmw)) \w+ ptr {_AT}, {_TYPE} \S+ monotonic, {_ALIGN}",
        rf"%\S+ = call {_TYPE} @llvm\.masked\.load\.\S+\(ptr {_ALIGN} {_AT}, {_MASK}, .*\)",
        rf"call void @llvm\.masked\.(?P<store>store)\.\S+\({_TYPE} .*, ptr {_ALIGN} {_AT}, {_MASK}\)",
        rf"%\S+ = call {_TYPE} @llvm\.masked\.(?P<each>gather)\.\S+\(<\d+ x ptr> {_ALIGN} {_AT}, {_MASK}, .*\)",
        rf"call void @llvm\.masked\.(?P<each>(?P<store>scatter))\.\S+\({_TYPE} .*, <\d+ x ptr> {_ALIGN} {_AT}, "
        rf"{_MASK}\)",
        rf"%\S+ = call \{{.*\}} @llvm\.nvvm\.(?P<line>ldmatrix)\.\S+\(ptr {_AT}\)",
    )
]
# What a thread says where it is of a matrix that its warp reads: a line of it.
_LINE = {"lanes": "8", "vector": "i16", "alignment": "16"}
_DEFINE = re.compile(r"define .*@([\w.]+)\(")
_ADDRESS = re.compile(r"  (%\S+) = getelementptr (?:inbounds )?[^,]+, ptr ([%@][\w.]+),")
_VARIABLE = re.compile(r"  (%\S+) = alloca ")


def accesses(text: str) -> Iterator[tuple[str, Access | None]]:
    """The lines of a module, each with what it does to memory that others see."""
    function, origins, variables = "", dict[str, str](), set[str]()
    for line in text.splitlines():
        if found := _DEFINE.match(line):
            function, origins, variables = found[1], {}, set()
        elif found := _ADDRESS.match(line):
            origins[found[1]] = origins.get(found[2], found[2])
        elif found := _VARIABLE.match(line):
            variables.add(found[1])
        access = _access(line, function, origins) if _TOUCHES.match(line) else None
        yield line, None if access and access.base in variables else access


def _access(line: str, function: str, origins: dict[str, str]) -> Access:
    found = next(filter(None, (form.fullmatch(line) for form in _FORMS)), None)
    assert found, f"the emulator does not know what this touches: {line}"
    parts = found.groupdict()
    parts |= _LINE if parts.get("line") else {}
    element = parts["vector"] or parts["scalar"]
    assert element != "i1", f"the emulator knows no bits in memory: {line}"
    return Access(
        function,
        origins.get(parts["at"], parts["at"]),
        parts["at"],
        int(parts["lanes"] or 1),
        element,
        int(parts["alignment"]),
        parts.get("mask") or "",
        bool(parts.get("store")),
        bool(parts.get("atomic")),
        bool(parts.get("each")),
    )


def instrumented(text: str) -> str:
    """LLVM IR that asks the emulator before it touches memory."""
    lines: list[str] = []
    sites: list[str] = []
    for line, access in accesses(text):
        if access:
            lines += _questions(access, f"%simt{len(sites)}", sites, line)
        lines.append(line)
    return "\n".join([*lines, *sites, ""])


def _questions(access: Access, name: str, sites: list[str], line: str) -> Iterator[str]:
    """Yield the lines that ask the emulator about an access. name: what names of values begin with."""
    lanes = access.lanes
    if not access.each:
        mask = str((1 << lanes) - 1)
        if access.mask:
            yield f"  {name}.bits = bitcast <{lanes} x i1> {access.mask} to i{lanes}"
            yield f"  {name}.mask = zext i{lanes} {name}.bits to i64"
            mask = f"{name}.mask"
        yield _question(access, access.base, access.at, mask, _site(access, sites, line))
        return
    for k in range(lanes):
        yield f"  {name}.at{k} = extractelement <{lanes} x ptr> {access.at}, i32 {k}"
        yield f"  {name}.bit{k} = extractelement <{lanes} x i1> {access.mask}, i32 {k}"
        yield f"  {name}.mask{k} = zext i1 {name}.bit{k} to i64"
        base = f"{name}.at{k}" if access.base == access.at else access.base
        yield _question(access, base, f"{name}.at{k}", f"{name}.mask{k}", _site(access, sites, line))


def _question(access: Access, base: str, at: str, mask: str, site: str) -> str:
    arguments = [f"ptr {base}", f"ptr {at}", f"i64 {mask}", f"i64 {access.bytes}", f"i64 {access.alignment}"]
    return f"  call void @simt_access({', '.join(arguments)}, i32 {access.store + access.atomic}, ptr {site})"


def _site(access: Access, sites: list[str], line: str) -> str:
    """Return the data of a place in the code: see `Site` in `simt.h`."""
    name = f"@simt.site{len(sites)}"
    text = f"{access.function}: {line.strip()}"
    field = f"[{len(text) + 1} x i8]"
    sites.append(
        f'{name} = private global {{ ptr, ptr, i64, {field} }} {{ ptr null, ptr null, i64 0, {field} c"{text}\\00" }}'
    )
    return name
