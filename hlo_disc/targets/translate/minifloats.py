"""Floats of 4 to 8 bits, one byte each in memory: computed in f32, and rounded once by integer arithmetic.

No machine that we generate for converts them all, so each format is a few numbers, which its name says, and one pair of
functions serves the lot. Formats and what becomes of values beyond their range are those of ml_dtypes, which are XLA's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from hlo_disc.frozen import frozen
from hlo_disc.targets.math.vecexpr import Code, X
from hlo_disc.targets.translate.types import Type

Append = Callable[[str], str]
_INFINITY = 0x7F800000
_QUIET_NAN = 0x7FC00000
_SIZE = 0x7FFFFFFF
_MANTISSA = 23  # bits of an f32's


@frozen
class Format:
    """exponent, mantissa: bits of each. bias: of the exponent.

    beyond: what the largest code points mean, and what becomes of numbers that are too large:
        "inf" as IEEE 754 has it; "nan": the largest code is NaN; "unsigned zero": NaN where -0 would be;
        "largest": neither infinities nor NaN, which becomes -0; numbers saturate.
    """

    exponent: int
    mantissa: int
    bias: int
    beyond: str

    @property
    def bits(self) -> int:
        """All bits but the sign."""
        return self.exponent + self.mantissa

    @property
    def largest(self) -> int:
        """Return the code of the largest number."""
        if self.beyond == "inf":
            return ((1 << self.exponent) - 1 << self.mantissa) - 1
        return (1 << self.bits) - (2 if self.beyond == "nan" else 1)


_POWERS = "f8E8M0FNU"  # nothing but an exponent


@functools.cache
def format_of(name: str) -> Format:
    """Return the format that MLIR's name of a type says: F has no infinities, N another NaN, UZ no negative zero."""
    found = re.fullmatch(r"f(\d)E(\d)M(\d)(?:B(\d+))?(FN|FNUZ)?", name)
    assert found, name
    bits, exponent, mantissa = map(int, found.group(1, 2, 3))
    finite = found[5] or ""
    beyond = {"": "inf", "FN": "nan" if bits == 8 else "largest", "FNUZ": "unsigned zero"}[finite]
    bias = int(found[4] or (1 << exponent - 1) - (finite != "FNUZ"))
    return Format(exponent, mantissa, bias, beyond)


class _Lines(Code):
    """Expressions whose instructions go where `append` puts them."""

    def __init__(self, append: Append, lanes: int):
        super().__init__(lanes)
        self.append = append

    def op(self, kind: str, text: str) -> X:
        return X(self, kind, self.append(text))


def widen(append: Append, value: str, type_: Type) -> str:
    """Widen a mini float to f32, exactly."""
    code = _Lines(append, type_.lanes)
    x = code.op("i32", f"zext {type_.text} {value} to {code.type('i32').text}")
    name = (type_.element or type_).name
    return (_powers(x) if name == _POWERS else _decoded(x, format_of(name))).text


def narrow(append: Append, value: str, target: Type) -> str:
    """Round an f32 to a mini float, ties to even."""
    code = _Lines(append, target.lanes)
    x = X(code, "f32", value)
    name = (target.element or target).name
    found = _nearest_power(x) if name == _POWERS else _encoded(x, format_of(name))
    return append(f"trunc {code.type('i32').text} {found.text} to {target.text}")


def _decoded(x: X, f: Format) -> X:
    size = x & (1 << f.bits) - 1
    shifted = size << (_MANTISSA - f.mantissa)
    normal = shifted + (127 - f.bias << _MANTISSA)
    if f.beyond == "inf":
        normal = (f.largest < size).select(shifted | _INFINITY, normal)
    elif f.beyond == "nan":
        normal = size.equals(f.largest + 1).select(_QUIET_NAN, normal)
    # denormals are small integers times the smallest of them
    small = (size.to("f32") * 2.0 ** (1 - f.bias - f.mantissa)).bits("i32")
    value = (size < 1 << f.mantissa).select(small, normal)
    if f.beyond == "unsigned zero":
        value = x.equals(1 << f.bits).select(_QUIET_NAN, value)
    return (value | ((x & 1 << f.bits) << (31 - f.bits))).bits("f32")


def _encoded(x: X, f: Format) -> X:
    bits = x.bits("i32")
    size = bits & _SIZE
    shift = _MANTISSA - f.mantissa
    nudged = size + ((size >> shift) & 1) + ((1 << shift - 1) - 1)
    code = (nudged >> shift) - (127 - f.bias << f.mantissa)
    # below the normal numbers: added to one whose last place is the smallest denormal, its low bits are the code
    magic = 2.0 ** (_MANTISSA + 1 - f.bias - f.mantissa)
    small = (size.bits("f32") + magic).bits("i32") - x.code.constant(magic, "f32").bits("i32")
    code = (size < 128 - f.bias << _MANTISSA).select(small, code)
    is_nan = size > _INFINITY
    sign = (bits < 0).select(x.code.constant(1 << f.bits, "i32"), 0)
    if f.beyond == "unsigned zero":
        beyond = is_nan | (code > f.largest)
        return beyond.select(1 << f.bits, code.equals(0).select(code, code | sign))
    over = f.largest if f.beyond == "largest" else f.largest + 1
    code = (code > f.largest).select(over, code)
    if f.beyond == "largest":
        return is_nan.select(1 << f.bits, code | sign)
    nan = over | 1 << f.mantissa - 1
    return is_nan.select(nan, code) | sign


def _powers(x: X) -> X:
    """Return 2^(x - 127); 2^-127 is a denormal f32, 255 is NaN."""
    value = x.equals(0).select(1 << _MANTISSA - 1, x << _MANTISSA)
    return x.equals(255).select(_QUIET_NAN, value).bits("f32")


def _nearest_power(x: X) -> X:
    """Round to the nearest power of two, ties away from zero; a number that is not positive becomes NaN."""
    bits = x.bits("i32")
    half = 1 << _MANTISSA - 1
    code = (bits > half).select((bits + half) >> _MANTISSA, 0)
    return ((bits > 0) & (bits < _INFINITY)).select(code, 255)
