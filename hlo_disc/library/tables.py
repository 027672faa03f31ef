"""Programs as the constant tables of `ral/c_api/model.h`: C++ source, and the bytes that it refers to."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hlo_disc import ral
from hlo_disc.abi import ALIGNMENT
from hlo_disc.compiled.program import Attribute, BufferType, InputRow, LibraryCall, OutputRow, Program
from hlo_disc.compiled.saved import Section, Sections
from hlo_disc.dynamic_hlo.ops.families.library import FFT_CALL
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.ral.handlers import lapack_name

if TYPE_CHECKING:
    from hlo_disc.targets.target import Driver

# Library functions that need nothing but the runtime, and their handlers.
_OWN_CALLS = {FFT_CALL: "fft_handler"}
MOST_RANK = 16  # HLO_DISC_MAX_RANK


class Data(Sections):
    """The bytes that the source refers to, without duplicates."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[int, int], list[tuple[bytes | memoryview, Section]]] = {}

    def add(self, data: bytes | memoryview) -> Section:
        same = self._known.setdefault((ral.digest(data), len(data)), [])
        found = next((section for known, section in same if known == data), None)
        if found is None:
            found = super().add(data)
            same.append((data, found))
        return found


def _row(**fields: object) -> str:
    """Write a record of `model.h`. The compiler checks the names of its fields, and their order."""
    return f"{{{', '.join(f'.{name} = {value}' for name, value in fields.items())}}}"


def _span(section: Section) -> str:
    return _row(start=section.start, size=section.size, digest=f"0x{section.digest}u")


def check(program: Program) -> None:
    """Raise UnsupportedOpError for a program that no library can contain, with the op and the user's line."""
    for call in program.calls:
        if call.target not in _OWN_CALLS and lapack_symbol(call) is None:
            raise UnsupportedOpError(
                f"{call.where}: a library cannot call {call.target}, which is a function of this Python process; "
                "an executable file (--emit disc) can, where hlo_disc loads it"
            )
    rows: tuple[InputRow | OutputRow, ...] = (*program.inputs, *program.outputs)
    for row in rows:
        if len(row.shape) > MOST_RANK:
            raise UnsupportedOpError(f"{row} has rank {len(row.shape)}; tensors of a library have at most {MOST_RANK}")


def lapack_symbol(call: LibraryCall) -> str | None:
    """Return the LAPACK symbol that a call needs, as Fortran's compilers name it; None if it needs none."""
    name = lapack_name(call.target)
    return name and f"{name}_"


class Source:
    """The C++ source of a library. code, weights: the data that it refers to; symbols: the LAPACK functions that it
    needs."""

    def __init__(self, name: str):
        self.name = name
        self.code, self.weights = Data(), Data()
        self.symbols: set[str] = set()
        self._lines: list[str] = []
        self._levels: list[str] = []
        self._machine = 0

    def add(self, program: Program, level: str, wide_code: bytes) -> None:
        """Add a program, the best first. wide_code: its kernels with indices of 64 bits, if they differ."""
        inputs = [self._type(x.name, x.dtype, x.shape, i not in program.unread) for i, x in enumerate(program.inputs)]
        outputs = [self._type("", x.dtype, x.shape, True) for x in program.outputs]
        forms: list[str] = []
        packs: list[str] = []
        for x, array in zip(program.packs, program.forms or [None] * len(program.packs), strict=True):
            number = -1
            if x.kind == "constant" and array is not None:
                number = len(forms)
                forms.append(_span(self.weights.add_array(array)))
            of_constant, function = _bool(x.kind == "constant"), _text(x.function)
            packs.append(_row(of_constant=of_constant, index=x.number, bytes=x.size, function=function, form=number))
        guards = [_row(message=_text(x.message), args=len(x.args), overflow=_bool(x.overflow)) for x in program.guards]
        driver = _driver(program)
        (self._machine,) = struct.unpack_from("<H", program.object, 18)  # e_machine of the object's header
        self._levels.append(
            _row(
                features=self._texts(program.features),
                name=_text(level),
                code=_span(self.code.add(program.object)),
                wide_code=_span(self.code.add(wide_code)) if wide_code else "{}",
                driver=_row(api=_text(driver.api), libraries=self._texts(driver.libraries)) if driver else "{}",
                env=_row(**program.env._asdict()),
                inputs=self._rows("TypeRow", inputs),
                outputs=self._rows("TypeRow", outputs),
                packs=self._rows("PackRow", packs),
                guards=self._rows("GuardRow", guards),
                asked=self._texts(x.message for x in program.asked),
                calls=self._rows("CallRow", map(self._call, program.calls)),
                constants=self._rows("Span", map(_span, map(self.weights.add_array, program.constants))),
                forms=self._rows("Span", forms),
            )
        )

    def text(self, beside: bool) -> str:
        """Return the whole source. beside: the weights are in a file of their own, and not part of the library."""
        levels = self._rows("LevelRow", self._levels)
        weights = "hlo_disc_data + weights_start" if self.weights.size and not beside else "nullptr"
        table = _row(
            name=_text(self.name),
            levels=levels,
            code="hlo_disc_data",
            weights=weights,
            weights_size=self.weights.size,
        )
        start = self.code.size + -self.code.size % ALIGNMENT
        return "\n".join(
            [
                *(f'#include "{header}"' for header in ("library/fft/fft.h", "library/lapack/lapack.h", "model.h")),
                f"#if HLO_DISC_MACHINE != {self._machine}",
                '#error "the program is compiled for another kind of machine than this compiler: name one as with CXX='
                'aarch64-linux-gnu-g++"',
                "#endif",
                'asm(".pushsection .rodata.hlo_disc, \\"a\\", %progbits\\n"',
                f'    ".balign {ALIGNMENT}\\n.hidden hlo_disc_data\\n.global hlo_disc_data\\nhlo_disc_data:\\n"',
                '    ".incbin \\"code.bin\\"\\n"',
                *([] if beside else [f'    ".balign {ALIGNMENT}\\n.incbin \\"weights.bin\\"\\n"']),
                '    ".popsection\\n");',
                'extern "C" __attribute__((visibility("hidden"))) const char hlo_disc_data[];',
                *(f'extern "C" void {symbol}();' for symbol in sorted(self.symbols)),
                "namespace {",
                "using namespace ral;",
                f"constexpr int64_t weights_start = {start};",
                *self._lines,
                f"const LibraryTable library = {table};",
                "}  // namespace",
                f"HLO_DISC_LIBRARY({self.name}, library)",
                "",
            ]
        )

    def _rows(self, kind: str, rows: Iterable[str]) -> str:
        """Write a constant array, and return its `Rows`."""
        found = list(rows)
        if not found:
            return "{}"
        name = f"t{len(self._lines)}"
        self._lines.append(f"const {kind} {name}[] = {{{', '.join(found)}}};")
        return f"{{{name}, {len(found)}}}"

    def _texts(self, texts: Iterable[str]) -> str:
        return self._rows("char* const", map(_text, texts))

    def _type(self, name: str, dtype: str, shape: Sequence[str], read: bool) -> str:
        return _row(name=_text(name), dtype=_text(dtype), dims=self._texts(shape), read=_bool(read))

    def _call(self, call: LibraryCall) -> str:
        symbol = lapack_symbol(call)
        if symbol:
            self.symbols.add(symbol)
        return _row(
            where=_text(call.where),
            handler=call.target if symbol else _OWN_CALLS[call.target],
            function=symbol or "nullptr",
            attributes=self._attributes(call.config),
            operands=self._buffers(call.operands),
            results=self._buffers(call.results),
            aliases=self._rows("AliasRow", (_row(operand=x.operand, result=x.result) for x in call.aliases)),
        )

    def _buffers(self, buffers: Sequence[BufferType]) -> str:
        return self._rows("BufferRow", (_row(dtype=_text(x.dtype), rank=x.rank) for x in buffers))

    def _attributes(self, config: Sequence[Attribute]) -> str:
        return self._rows("AttributeRow", map(self._attribute, config))

    def _attribute(self, x: Attribute) -> str:
        content = x.text.encode() if x.kind == "string" else b"" if x.kind == "dictionary" else bytes.fromhex(x.text)
        return _row(
            name=_text(x.name),
            kind=_text(x.kind),
            dtype=_text(x.dtype),
            content=_quoted(content),
            size=len(content),
            entries=self._attributes(x.entries),
        )


def _driver(program: Program) -> Driver | None:
    from hlo_disc.targets import registry

    return registry.find(program.target).driver


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _text(text: str) -> str:
    return _quoted(text.encode())


def _quoted(content: bytes) -> str:
    """Write a C string. Special characters become three octal digits, because a fourth could not follow."""
    plain = [chr(x) if 32 <= x < 127 and chr(x) not in '"\\?' else f"\\{x:03o}" for x in content]
    return f'"{"".join(plain)}"'
