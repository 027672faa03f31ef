"""Random numbers of gamma distributions from a seed, as TensorFlow's kernel of the CPU draws them, bit for bit.

By transformed rejection (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000): a normal number
makes a candidate, which a uniform one takes or refuses. Each element has blocks of words of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ops.expr import BOOL, F64, U64, where
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.import_.handlers.arrays import Array, array, filled, loop
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.tensorflow.sampling.random import RESERVED, block, distributions, normal_pair, philox_only, unit
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node


class Drawn(NamedTuple):
    """Two numbers that each element has drawn, used last one first, and how many are left."""

    first: Array
    second: Array
    left: Array


def _gamma(r: Reader, op: Node, operands: list[Operand]) -> Result:
    philox_only(r, operands)
    shape, given = r.sizes(operands[0]), array(r, operands[4])
    kind, sample = distributions(r, shape, given)
    line, start = kind.shape, sample * RESERVED
    alpha = given.cast(F64).reshape((dim_product(given.shape),)).take(kind, 0)
    small, is_one = alpha < 1, alpha == 1
    d = alpha + where(small, alpha.like(2 / 3), alpha.like(-1 / 3))
    c = 1 / 3 / d.sqrt()

    def draw(needed: Array, of: Drawn, used: Array, normal: bool) -> tuple[Array, Drawn, Array]:
        """Return a number where one is needed, from a new block if none is left."""
        words = block(r, operands, start + used, F64)
        fresh = normal_pair(*words) if normal else [unit(x, F64) for x in words]
        fetched = needed & (of.left == 0)
        first, second = (where(fetched, new, old) for new, old in zip(fresh, of[:2], strict=True))
        left = where(fetched, 2, of.left) - needed.cast(np.int32)
        return where(left > 0, second, first), Drawn(first, second, left), used + fetched.cast(U64)

    def step(*state: Array) -> list[Array]:
        left, made, used = state[:3]
        normals, uniforms = Drawn(*state[3:6]), Drawn(*state[6:])
        x, normals, used = draw(left & ~is_one, normals, used, True)
        v = c * x + 1
        tried = left & (is_one | ~(v <= 0))
        v = v * v * v
        u, uniforms, used = draw(tried, uniforms, used, False)
        square = x * x
        inside = (u < 1 - square * square * 0.0331) | (u.log() < square * 0.5 + d * (1 - v + v.log()))
        taken = tried & (is_one | inside)
        b, uniforms, used = draw(taken & small, uniforms, used, False)
        number = where(small, d * v * b.op("power", 1 / alpha), d * v)
        number = where(is_one, -(-u).op("log_plus_one"), number)
        return [left & ~taken, where(taken, number, made), used, *normals, *uniforms]

    none = [filled(r, 0, F64, line), filled(r, 0, F64, line), filled(r, 0, np.int32, line)]
    first = [filled(r, True, BOOL, line), filled(r, np.nan, F64, line), filled(r, 0, U64, line), *none, *none]

    def more(left: Array, made: Array, used: Array, *_: Array) -> Array:
        return (left & (used < RESERVED)).reduce("or", [0])

    return loop(r, more, step, first)[1].cast(result_dtype(op)).reshape(shape).value


HANDLERS: dict[str, Handler] = {"StatelessRandomGammaV3": _gamma}
