"""Computes x * 2^n by AVX-512's instruction."""

from __future__ import annotations

from hlo_disc.targets.math.vecexpr import X
from hlo_disc.targets.translate.types import F32

# lanes -> (intrinsic, mask type) of x * 2^floor(n)
_SCALEF = {16: ("llvm.x86.avx512.mask.scalef.ps.512", "i16"), 8: ("llvm.x86.avx512.mask.scalef.ps.256", "i8")}
_ROUNDING = ", i32 4"


def scale(x: X, n: X) -> X | None:
    """Compute x * 2^n, a register at a time; None for lanes that fill no register."""
    code, lanes = x.code, x.code.lanes
    if not lanes or lanes % 8:
        return None
    chunk = 16 if lanes % 16 == 0 else 8
    name, mask = _SCALEF[chunk]
    type_ = F32.vector(chunk).text
    rounding = _ROUNDING if chunk == 16 else ""
    code.declarations[name] = f"declare {type_} @{name}({type_}, {type_}, {type_}, {mask}{', i32' if rounding else ''})"

    def call(a: str, b: str) -> str:
        text = f"call {type_} @{name}({type_} {a}, {type_} {b}, {type_} zeroinitializer, {mask} -1{rounding})"
        return code.op("f32", text).text

    if chunk == lanes:
        return X(code, "f32", call(x.text, n.text))
    whole, parts = x.type.text, []
    for start in range(0, lanes, chunk):
        picked = _lanes(range(start, start + chunk))
        a, b = (code.op("f32", f"shufflevector {whole} {v.text}, {whole} poison, {picked}").text for v in (x, n))
        parts.append(call(a, b))
    while len(parts) > 1:
        wide = f"<{chunk} x float>"
        chunk *= 2
        pairs = zip(parts[::2], parts[1::2], strict=True)
        picked = _lanes(range(chunk))
        parts = [code.op("f32", f"shufflevector {wide} {a}, {wide} {b}, {picked}").text for a, b in pairs]
    return X(code, "f32", parts[0])


def _lanes(lanes: range) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {k}' for k in lanes)}>"
