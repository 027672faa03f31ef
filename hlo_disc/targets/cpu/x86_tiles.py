"""AMX: eight registers of 16 lines of 64 bytes.

Actions are those of `kernel_ops.TileAction`. Words of instructions are those of Intel's Architecture
Instruction Set Extensions Programming Reference, chapter 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple

from hlo_disc.kernel_ops import TileAction, TileConfig, TileDot, TileLoad, TileRelease, TileStore, TileZero
from hlo_disc.targets.translate.emit import FunctionBody

# Words of eight bytes of a configuration: palette 1; bytes of a line, 16 bits a register; lines, a byte a register.
_WORDS, _LINES = 8, 6
_CONFIG = {0: 1, 2: 0x0040_0040_0040_0040, 3: 0x0040_0040_0040_0040}
_INTRINSICS: Mapping[type[TileAction], str] = {
    TileDot: "tdpbf16ps", TileLoad: "tileloadd64", TileRelease: "tilerelease", TileStore: "tilestored64",
    TileZero: "tilezero",
}  # fmt: skip


def tile(body: FunctionBody, action: TileAction, operands: Sequence[str]) -> None:
    """Append the instruction of an action."""
    if isinstance(action, TileConfig):
        return _configure(body, operands[0])
    arguments = [("i8", str(register)) for register in astuple(action)]
    if operands:
        pointer, byte, stride = operands
        arguments += [("ptr", body.op(f"getelementptr i8, ptr {pointer}, i64 {byte}")), ("i64", stride)]
    body.call("void", f"llvm.x86.{_INTRINSICS[type(action)]}", arguments)


def _configure(body: FunctionBody, lines: str) -> None:
    slot = body.alloca(f"[{_WORDS} x i64]")
    for word in range(_WORDS):
        where = body.op(f"getelementptr i64, ptr {slot}, i64 {word}")
        body.do(f"store i64 {lines if word == _LINES else _CONFIG.get(word, 0)}, ptr {where}, align 8")
    body.call("void", "llvm.x86.ldtilecfg", [("ptr", slot)])
