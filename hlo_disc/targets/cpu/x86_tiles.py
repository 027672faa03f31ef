"""AMX: eight registers of 16 lines of 64 bytes.

Actions are in `stitch/schedules/dot/tiles/bf16_tiles.py`. Words of instructions are those of Intel's Architecture
Instruction Set Extensions Programming Reference, chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.targets.translate.emit import FunctionBody

# Words of eight bytes of a configuration: palette 1; bytes of a line, 16 bits a register; lines, a byte a register.
_WORDS, _LINES = 8, 6
_CONFIG = {0: 1, 2: 0x0040_0040_0040_0040, 3: 0x0040_0040_0040_0040}


def tile(body: FunctionBody, action: str, operands: Sequence[str]) -> None:
    """Append the instruction of an action."""
    name, *numbers = action.split(".")
    registers = [("i8", number) for number in numbers]
    if name == "config":
        _configure(body, operands[0])
    elif name in ("load", "store"):
        pointer, byte, stride = operands
        where = body.op(f"getelementptr i8, ptr {pointer}, i64 {byte}")
        intrinsic = {"load": "tileloadd64", "store": "tilestored64"}[name]
        body.call("void", f"llvm.x86.{intrinsic}", [*registers, ("ptr", where), ("i64", stride)])
    else:
        intrinsic = {"dot": "tdpbf16ps", "zero": "tilezero", "release": "tilerelease"}[name]
        body.call("void", f"llvm.x86.{intrinsic}", registers)


def _configure(body: FunctionBody, lines: str) -> None:
    slot = body.alloca(f"[{_WORDS} x i64]")
    for word in range(_WORDS):
        where = body.op(f"getelementptr i64, ptr {slot}, i64 {word}")
        body.do(f"store i64 {lines if word == _LINES else _CONFIG.get(word, 0)}, ptr {where}, align 8")
    body.call("void", "llvm.x86.ldtilecfg", [("ptr", slot)])
