"""Converts f32 to bf16 by AVX-512's instruction, which flushes subnormals; vectors with one are rounded otherwise.

It pays if the result is stored: 4 instructions for two registers and a branch that is hardly ever taken, in place of
13. If the result is widened again, the integer arithmetic of `floats.py` measured faster.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo_disc.targets.translate.emit import FunctionBody
from hlo_disc.targets.translate.types import F32, I16, Type
from hlo_disc.targets.translate.vectors import shuffle

_LANES = 16
_PAIR, _ONE = "llvm.x86.avx512bf16.cvtne2ps2bf16.512", "llvm.x86.avx512bf16.cvtneps2bf16.512"
_CLASS, _SUBNORMAL = "llvm.x86.avx512.fpclass.ps.512", 0x20
# For modules: how seldom the branch is taken.
METADATA = '!0 = !{!"branch_weights", i32 1, i32 1048576}'


def narrow(body: FunctionBody, x: str, type_: Type, otherwise: Callable[[], str]) -> str | None:
    """Convert a vector of f32 to bf16, whose bits are an i16; None for lanes that fill no registers.

    otherwise: f() appends code that rounds all of them exactly.
    """
    if not type_.lanes or type_.lanes % _LANES:
        return None
    register, count = F32.vector(_LANES), type_.lanes // _LANES
    lanes = [range(k * _LANES, (k + 1) * _LANES) for k in range(count)]
    parts = [shuffle(body, type_, x, "poison", part) for part in lanes] if count > 1 else [x]
    found = "zeroinitializer"
    for part in parts:
        arguments = [(register.text, part), ("i32", str(_SUBNORMAL))]
        found = body.op(f"or <{_LANES} x i1> {found}, {body.call(f'<{_LANES} x i1>', _CLASS, arguments)}")
    bits = body.op(f"bitcast <{_LANES} x i1> {found} to i{_LANES}")
    rare = body.op(f"icmp ne i{_LANES} {bits}, 0")
    easy, before = _joined(body, parts), body.current
    label, end = body.fresh("subnormal"), body.fresh("rounded")
    body.do(f"br i1 {rare}, label %{label}, label %{end}, !prof !0")
    body.begin(label)
    exact = otherwise()
    body.do(f"br label %{end}")
    body.begin(end)
    return body.op(f"phi {I16.vector(type_.lanes).text} [{easy}, %{before}], [{exact}, %{label}]")


def _joined(body: FunctionBody, parts: list[str]) -> str:
    """Join registers to one vector of i16, two by one instruction if there are two."""
    pairs = len(parts) % 2 == 0
    size = 2 * _LANES if pairs else _LANES
    register = F32.vector(_LANES).text
    made = []
    for k in range(0, len(parts), 2 if pairs else 1):
        operands = [(register, parts[k + 1]), (register, parts[k])] if pairs else [(register, parts[k])]
        x = body.call(f"<{size} x bfloat>", _PAIR if pairs else _ONE, operands)
        made.append(body.op(f"bitcast <{size} x bfloat> {x} to {I16.vector(size).text}"))
    whole = made[0]
    for k, x in enumerate(made[1:], 1):
        # both as long as what is made so far
        so_far = k * size
        wide = I16.vector(so_far)
        x = shuffle(body, I16.vector(size), x, "poison", [*range(size), *[-1] * (so_far - size)])
        whole = shuffle(body, wide, whole, x, range(so_far + size))
    return whole
