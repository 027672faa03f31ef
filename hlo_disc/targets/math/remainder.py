"""C's fmod, exactly: integer remainders, ten bits of the quotient at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_disc.targets.math.vecexpr import X

_MANTISSA = (1 << 52) - 1
# as many as a mantissa leaves free in an integer with a sign
_BITS = 10


def _parts(x: X) -> tuple[X, X]:
    """Return mantissa and exponent of |x|, which is mantissa 2^(exponent - 1075), denormal numbers included."""
    bits = x.bits("i64")
    exponent = (bits >> 52) & 0x7FF
    normal = exponent > 0
    mantissa = bits & _MANTISSA
    return normal.select(mantissa | (1 << 52), mantissa), normal.select(exponent, 1)


def fmod(x: X, y: X) -> X:
    """Compute fmod; for f32 in f64, where no bit gets lost."""
    if x.kind == "f32":
        return fmod(x.to("f64"), y.to("f64")).to("f32")
    number, scale = _parts(x)
    divisor, unit = _parts(y)
    divisor = divisor.equals(0).select(1, divisor)  # no trap: the result is replaced

    def step(state: Sequence[X]) -> list[X]:
        rest, left = state
        shift = (left < _BITS).select(left, _BITS)
        longer = rest << shift
        return [longer - longer / divisor * divisor, left - shift]

    distance = scale - unit
    # nothing to divide where |x| < |y|
    first = number - number / divisor * divisor
    rest, _ = x.code.repeat([first, distance], lambda state: state[1] > 0, step)
    value = (rest.to("f64") * 2.0**-52) * (unit << 52).bits("f64")
    value = (x.abs() < y.abs()).select(x, value).with_sign_of(x)
    undefined = x.abs().equals(math.inf) | y.equals(0.0) | y.is_nan() | x.is_nan()
    return undefined.select(math.nan, value)
