"""Computes x / y in f32 by a machine's approximate 1/y.

After P. Markstein, "IA-64 and Elementary Functions" (2000): a step of Newton's for 1/y, and one that corrects the
quotient by its exact remainder. Nothing but the last one depends on x: loops that divide by one number take 1/y once.
NVIDIA's own division is a call where numbers are rare, and calls cost all kernels registers.
"""

from __future__ import annotations

from hlo_disc.targets.math.vecexpr import X

# Where 1/y is a normal number, and where quotients are surely finite.
_SMALLEST, _LARGEST = 2.0**-126, 2.0**126
# Numbers of a size between 1/_FAR and _FAR have remainders and quotients that are normal.
_FAR = 2.0**64


def divide(x: X, y: X) -> X:
    """Divide within 0.5001 ulp: not rounded right if the quotient is next to the middle of two numbers.

    Where |x| < 2^-100, whose remainders are no f32, or the result is no normal number and |y| > 2^126, within 1.5 ulp.
    """
    quotient, first = _quotient(x, y)
    size = y.abs()
    usual = (size >= _SMALLEST) & (size <= _LARGEST) & (first.abs() < _LARGEST)
    return x.code.rare(~usual, [quotient], lambda: [_of_any_size(x, y)])[0]


def _quotient(x: X, y: X) -> tuple[X, X]:
    """Return x / y, and its approximation without x's remainder."""
    code = x.code
    guess = code.each(code.machine.reciprocal, y)
    r = (-y).fma(guess, 1.0).fma(guess, guess)
    first = x * r
    return (-y).fma(first, x).fma(r, first).with_sign_of(first), x * guess  # a zero's sign is lost by adding


def _of_any_size(x: X, y: X) -> X:
    """Compute x / y of numbers scaled near to 1. An infinite number has no remainder, nor has a division by 0."""
    below, above = _scale(y), _scale(x)
    quotient, first = _quotient(x * above, y * below)
    far = quotient.is_nan().select(first, quotient)
    return far * below * _inverse(above)


def _scale(x: X) -> X:
    size = x.abs()
    return (size > _FAR).select(1 / _FAR, (size < 1 / _FAR).select(x.code.constant(_FAR, "f32"), 1.0))


def _inverse(power: X) -> X:
    """Return 1/x of a power of two."""
    return (0x7F000000 - power.bits("i32")).bits("f32")
