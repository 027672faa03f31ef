"""x / y in f32 by a machine's approximate 1/y.

After P. Markstein, "IA-64 and Elementary Functions" (2000): a step of Newton's for 1/y, and one that corrects the
quotient by its exact remainder. Nothing but the last one depends on x: loops that divide by one number take 1/y once.
"""

from __future__ import annotations

from hlo_disc.targets.vecexpr import X

# Where 1/y is a normal number, and where quotients are surely finite.
_SMALLEST, _LARGEST = 2.0**-126, 2.0**126


def divide(x: X, y: X) -> X:
    """Rounded once; where |x| < 2^-100, whose remainders are no f32, within 1.5 ulp."""
    code = x.code
    r = code.each(code.machine.reciprocal, y)
    r = (-y).fma(r, 1.0).fma(r, r)
    first = x * r
    quotient = (-y).fma(first, x).fma(r, first).with_sign_of(first)  # that of a zero is lost
    size = y.abs()
    usual = (size >= _SMALLEST) & (size <= _LARGEST) & (first.abs() < _LARGEST)
    return code.rare(~usual, [quotient], lambda: [x / y])[0]
