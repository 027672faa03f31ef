"""Masks of a machine that keeps them in vector registers (AVX2), hidden from LLVM's code generation.

LLVM 22 takes every lane of a register for chosen where it finds out that none is, when it divides what a mask of i1
guards between registers: such a load reads what it must not, and such a store writes it. Mostly a mask is a condition
of all lanes and a constant, as in windows over padding. What passes through empty assembly it cannot see through.
"""

from __future__ import annotations

from hlo_disc.targets.translate.emit import FunctionBody
from hlo_disc.targets.translate.types import Type

_REGISTER = 32


def hidden(body: FunctionBody, mask: str, type_: Type) -> str:
    """Return the mask of i1 for elements of a vector type, unchanged but opaque to LLVM."""
    lanes = _REGISTER // type_.size
    if type_.lanes <= lanes or type_.lanes % lanes or type_.size < 4:  # narrow elements are taken one by one
        return mask
    word = f"i{8 * type_.size}"
    parts = []
    for start in range(0, type_.lanes, lanes):
        part = _shuffled(body, type_.lanes, mask, "poison", range(start, start + lanes))
        wide = body.op(f"sext <{lanes} x i1> {part} to <{lanes} x {word}>")
        wide = body.op(f'call <{lanes} x {word}> asm "", "=x,0"(<{lanes} x {word}> {wide})')
        parts.append(body.op(f"icmp slt <{lanes} x {word}> {wide}, zeroinitializer"))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffled(body, lanes, low, high, range(2 * lanes)) for low, high in pairs]
        lanes *= 2
    return parts[0]


def _shuffled(body: FunctionBody, lanes: int, low: str, high: str, picked: range) -> str:
    order = ", ".join(f"i32 {k}" for k in picked)
    return body.op(f"shufflevector <{lanes} x i1> {low}, <{lanes} x i1> {high}, <{len(picked)} x i32> <{order}>")
