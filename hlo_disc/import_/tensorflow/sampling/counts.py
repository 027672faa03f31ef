"""Random counts from a seed, of Poisson and binomial distributions, as TensorFlow's kernels of the CPU draw them.

Where few events are expected, times between them are drawn and added up until they pass the end (Knuth, "The art of
computer programming", 3.4.1). Elsewhere by transformed rejection: one uniform number makes a candidate, which another
takes or refuses (W. Hörmann, "The transformed rejection method for generating Poisson random variables" and "The
generation of binomial random variates", both of 1993). Each element has blocks of words of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import F64, U64, where
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.import_.handlers.arrays import Array, array, filled, loop, together
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.elementwise import chlo
from hlo_disc.import_.tensorflow.sampling.random import RESERVED, block, distributions, seeded, unit
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

lgamma = chlo("lgamma")
# A draw of a distribution that is defined ends within some tens of blocks; the kernel goes on for ever where none is.
_LIMIT = 4 * RESERVED
# log(k!) less Stirling's formula for k of 0 to 9, and the first terms of the series that it is from there on.
_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


class Method(NamedTuple):
    """A method of drawing elements, each in one of two ways.

    Args:
        few: the elements whose events are drawn one by one.
        begin: what those start from.
        advance: (what is reached, a uniform number) -> what is reached with one event more.
        ended: whether an event is past the end.
        attempt: (two uniform numbers) -> a count, and whether it is taken.
    """

    few: Array
    begin: float
    advance: Callable[[Array, Array], Array]
    ended: Callable[[Array], Array]
    attempt: Callable[[Array, Array], tuple[Array, Array]]


def _drawn(r: Reader, operands: list[Operand], start: Array, wanted: Array, method: Method) -> Array:
    """Draw a count for each requested element; NaN where there is none, 0 for the others.

    start: the number of each element's first block.
    """
    few, line = method.few, start.shape

    def step(turn: Array, left: Array, made: Array, reached: Array) -> list[Array]:
        second, first = (unit(x, F64) for x in block(r, operands, start + turn.broadcast(line), F64))
        count, taken = method.attempt(first, second)
        some = left & few
        for u in (first, second):
            reached = method.advance(reached, u)
            some = some & ~method.ended(reached)
            made = where(some, made + 1, made)
        made = where(left & ~few & taken, count, made)
        return [turn + 1, where(few, some, left & ~taken), made, reached]

    def more(turn: Array, left: Array, *_: Array) -> Array:
        return (turn < _LIMIT) & left.reduce("or", [0])

    first = [filled(r, 0, U64, ()), wanted, filled(r, 0, F64, line), filled(r, method.begin, F64, line)]
    _, left, made, _ = loop(r, more, step, first)
    return where(left, np.nan, made)


def _poisson(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Draw Poisson counts for each rate."""
    shape, given, dtype = r.sizes(operands[0]), array(r, operands[4]), result_dtype(op)
    kind, sample = distributions(r, shape, given)
    rate = given.cast(F64).reshape((dim_product(given.shape),)).take(kind, 0)
    b = rate.sqrt() * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    last, log_rate = (-rate).exp(), rate.log()
    most = float(np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max)

    def attempt(u: Array, v: Array) -> tuple[Array, Array]:
        u = u - 0.5
        edge = 0.5 - abs(u)
        k = ((2 * a / edge + b) * u + rate + 0.43).op("floor")
        inside = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
        out = (k < 0) | ((edge < 0.013) & (v > edge))
        s = (v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b)).log()
        t = k * log_rate - rate - lgamma(k + 1)
        return k, (k <= most) & (inside | (~out & (s <= t)))

    method = Method(rate < 10, 1, lambda product, u: product * u, lambda product: product <= last, attempt)
    endless = rate == np.inf
    infinity = np.inf if dtype.kind == "f" else 0  # as numbers in C++ have it
    made = where(endless, infinity, _drawn(r, operands, sample * RESERVED, ~endless, method))
    return made.cast(dtype).reshape(shape).value


def _tail(k: Array) -> Array:
    square = (k + 1) * (k + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    table = Array(k.r, k.r.constant(np.array(_TAILS)))
    return where(k <= 9, table.take(k.maximum(0).minimum(9).cast(np.int64), 0), series)


def _binomial(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Draw binomial counts for each number of trials and chance; for a chance above a half, failures are counted."""
    shape, (counts, chances) = r.sizes(operands[0]), together([array(r, x) for x in operands[4:]])
    kind, sample = distributions(r, shape, counts)
    counts, chances = (x.reshape((dim_product(x.shape),)).take(kind, 0) for x in (counts, chances))
    often = chances > 0.5
    rarer = where(often, 1 - chances, chances)
    n, p, few = counts.cast(F64), rarer.cast(F64), counts * rarer < 10
    deviation = (n * p * (1 - p)).sqrt()
    b = deviation * 2.53 + 1.15
    a = b * 0.0248 - 0.0873 + p * 0.01
    odds, middle = p / (1 - p), ((n + 1) * p).op("floor")
    rest, log_failed = n - middle, (-p).op("log_plus_one")

    def attempt(u: Array, v: Array) -> tuple[Array, Array]:
        u = u - 0.5
        edge = 0.5 - abs(u)
        k = ((2 * a / edge + b) * u + n * p + 0.5).op("floor")
        inside = (edge >= 0.07) & (v <= 0.92 - 4.2 / b)
        s = (v * ((5.1 / b + 2.83) * deviation) / (a / (edge * edge) + b)).log()
        bound = (middle + 0.5) * ((middle + 1) / (odds * (rest + 1))).log()
        bound = bound + (n + 1) * ((rest + 1) / (n - k + 1)).log()
        bound = bound + (k + 0.5) * (odds * (n - k + 1) / (k + 1)).log()
        bound = bound + _tail(middle) + _tail(rest) - _tail(k) - _tail(n - k)
        return k, inside | ((k >= 0) & (k <= n) & (s <= bound))

    def trials(reached: Array, u: Array) -> Array:
        return reached + (u.log() / log_failed).op("ceil")

    method = Method(few, 0, trials, lambda reached: reached > n, attempt)
    never, always = (n <= 0) | (chances <= 0), chances >= 1
    start = sample * where(few, sample.like(42), sample.like(RESERVED))
    made = _drawn(r, operands, start, ~(never | always) & (chances == chances), method)
    made = where(chances == chances, where(often, n - made, made), np.nan)
    made = where(never, 0, where(always, n, made))
    return made.cast(result_dtype(op)).reshape(shape).value


HANDLERS: dict[str, Handler] = {
    "StatelessRandomBinomial": seeded(_binomial),
    "StatelessRandomPoisson": seeded(_poisson),
}
