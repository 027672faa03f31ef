"""Random numbers from a seed: TensorFlow's own by Philox, bit for bit as its kernels of the CPU make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import F32, F64, U32, U64, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.import_.by_jax import traced
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, joined, loop
from hlo_disc.import_.handlers.random import box_muller, halves, philox, philox_bits, philox_words, whole
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.jax_later import jax
from hlo_disc.import_.sizes.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.shapes import array_1d, result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow.program import Node

_PHILOX = (1, 3)  # by name, or what is best for the device
# The key by which a seed becomes key and counter.
_SCRAMBLE = (0x3EC8F720, 0x02461E29)
# Digits of a significand that are random, and how many bits they are taken of.
_DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def _words(r: Reader, x: Operand) -> list[Array]:
    """Split the elements of a vector of 64 bits into low and high words."""
    made: list[Array] = []
    line = array(r, x)
    for i in range(line.shape[0].value):
        made += halves(Array(r, r.element(line.value, i)).cast(np.int64).emit("bitcast_convert", dtype=U64))
    return made


def _key_counter(r: Reader, op: Node, operands: list[Operand]) -> list[Operand]:
    key = filled(r, _SCRAMBLE[0], U32), filled(r, _SCRAMBLE[1], U32)
    a, b, c, d = _words(r, operands[0])
    mixed = philox(key, (a, b, c, d))
    made = whole(*mixed[:2]), whole(*mixed[2:])
    counter = joined([filled(r, 0, U64, (ONE,)), made[1].reshape((ONE,))], 0)
    return [made[0].reshape((ONE,)).value, counter.value]


def _algorithm(r: Reader, op: Node, operands: list[Operand]) -> Operand:
    return Symbolic(np.dtype(np.int32), (), (ONE,))


def _key_counter_algorithm(r: Reader, op: Node, operands: list[Operand]) -> list[Operand]:
    return [*_key_counter(r, op, operands), _algorithm(r, op, operands)]


def seeded(handler: Handler) -> Handler:
    """Make the handler of an op's older form: a seed in place of a key, a counter and an algorithm."""

    def older(r: Reader, op: Node, operands: list[Operand]) -> Result:
        shape, seed, *rest = operands
        return handler(r, op, [shape, *_key_counter_algorithm(r, op, [seed]), *rest])

    return older


def philox_only(r: Reader, operands: list[Operand]) -> None:
    if r.constant_of(operands[3]) not in _PHILOX:
        r.unsupported("only Philox, by which TensorFlow makes random numbers on a CPU")


def _bits(r: Reader, operands: list[Operand], shape: Shape, width: int) -> Array:
    philox_only(r, operands)
    key, counter = array(r, operands[1]), array(r, operands[2])
    low, high = (Array(r, r.element(counter.value, i)) for i in range(2))
    return philox_bits(r, Array(r, r.element(key.value, 0)), [low, high], shape, width)[1]


def unit(bits: Array, dtype: np.dtype) -> Array:
    """Return numbers in [0, 1) from the low bits of words."""
    digits = _DIGITS[dtype.name]
    if dtype == F64:  # the first word is the high one
        bits = whole((bits >> 32).cast(U32), bits.cast(U32))
    return (bits & ((1 << digits) - 1)).cast(F64 if dtype == F64 else np.float32).cast(dtype) * 2.0**-digits


def _uniform(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    return unit(_bits(r, operands, r.sizes(operands[0]), 64 if dtype == F64 else 32), dtype).value


def _integers(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    low, high = (array(r, x) for x in operands[4:])
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = _bits(r, operands, r.sizes(operands[0]), 8 * dtype.itemsize)
    span = (high - low).emit("bitcast_convert", dtype=unsigned)
    return (bits.op("remainder", span).emit("bitcast_convert", dtype=dtype) + low).value


def _all_integers(r: Reader, op: Node, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    return _bits(r, operands, r.sizes(operands[0]), 8 * dtype.itemsize).emit("bitcast_convert", dtype=dtype).value


def _normal(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Draw by the method of Box and Muller, two at a time."""
    dtype, shape = result_dtype(op), r.sizes(operands[0])
    count = dim_product(shape)
    pairs = (count + 1) // 2
    words = _bits(r, operands, (pairs * 2,), 64 if dtype == F64 else 32).reshape((pairs, 2))
    made = joined(normal_pair(*(words.slice(1, i, i + 1) for i in (0, 1))), 1).reshape((pairs * 2,))
    return made.slice(0, 0, count).reshape(shape).cast(dtype).value


def normal_pair(first: Array, second: Array) -> list[Array]:
    """Return two normal numbers from two words; of f64 if the words have 64 bits."""
    dtype = F64 if first.dtype == U64 else F32
    return box_muller(unit(first, dtype).maximum(1e-7), unit(second, dtype))[::-1]


# Numbers that are drawn until they fit have so many blocks of four words each, of which few are used.
RESERVED = 256


def block(r: Reader, operands: list[Operand], number: Array, dtype: np.dtype) -> Sequence[Array]:
    """Return four words for each number of a block, or two of 64 bits for f64."""
    key, counter = array(r, operands[1]), array(r, operands[2])
    word, low, high = (Array(r, r.element(x.value, i)) for x, i in ((key, 0), (counter, 0), (counter, 1)))
    return philox_words(word, (low, high), number, 64 if dtype == F64 else 32)


def distributions(r: Reader, shape: Shape, given: Array) -> tuple[Array, Array]:
    """Return for each element of a flat result the index of its distribution, and that of its sample.

    given: a parameter of each distribution; `shape` ends with its shape. Samples of one distribution are neighbours.
    """
    for own, size in zip(given.shape, shape[len(shape) - given.rank :], strict=True):
        r.equal(own, size, "the last sizes of the result and those of its parameters")
    count, kinds = dim_product(shape), dim_product(given.shape)
    place, several = iota(r, (count,), 0, U64), filled(r, kinds, U64).maximum(1)
    kind, sample = place.op("remainder", several), place / several
    of_each = filled(r, count // r.evaluator.scalar.maximum(kinds, ONE), U64)
    return kind.cast(np.int64), kind * of_each + sample


def _truncated_normal(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Draw normal numbers below 2 in magnitude: the first such ones of a few at a time, from blocks of their own."""
    dtype, shape = result_dtype(op), r.sizes(operands[0])
    philox_only(r, operands)
    wide = computed(dtype)
    count, each = dim_product(shape), 16 // wide.itemsize
    groups = (count + (each - 1)) // each
    start = iota(r, (groups,), 0, U64) * (RESERVED * each // 4)
    place = iota(r, (groups, Dim.const(each)), 1, np.int32)

    def step(turn: Array, found: Array, made: Array) -> list[Array]:
        words = block(r, operands, start + turn.broadcast(start.shape), wide)
        for x in (number for k in range(0, each, 2) for number in normal_pair(*words[k : k + 2])):
            fits = abs(x) < 2
            here = place == where(fits, found, -1).broadcast(place.shape, (0,))
            made = where(here, x.broadcast(place.shape, (0,)), made)
            found = found + fits.cast(np.int32)
        return [turn + 1, found, made]

    first = [filled(r, 0, U64, ()), filled(r, 0, np.int32, (groups,)), filled(r, 0, wide, place.shape)]
    made = loop(r, lambda turn, found, made: (found < each).reduce("or", [0]), step, first)[2]
    return made.reshape((groups * each,)).slice(0, 0, count).reshape(shape).cast(dtype).value


def _multinomial(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Draw classes by log-weights, in rows: the class at which a random part of their sum is reached.

    The numbers are those that TensorFlow's kernel draws on one thread.
    """
    given, dtype = array(r, operands[0]), result_dtype(op)
    (samples,) = r.sizes(array_1d(r, operands[1]))
    rows, classes = given.shape
    keys = [operands[1], *_key_counter_algorithm(r, op, operands[2:])]
    part = unit(_bits(r, keys, (rows, samples), 64), F64)
    logits = given.cast(F64)
    finite = given.op("is_finite")
    most = where(finite, logits, np.finfo(computed(given.dtype)).min)
    weights = where(finite, (logits - most.reduce("max", [1], keep=True)).exp(), 0)
    reached = weights.cumulative("add", 1)
    wanted = part * weights.sum([1], keep=True)
    shape = (rows, samples, classes)
    return (reached.broadcast(shape, (0, 2)) <= wanted.broadcast(shape, (0, 1))).cast(dtype).sum([2]).value


def _shuffle(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Shuffle: exchange each row in turn with a random one from it on."""
    x = array(r, operands[0])
    line = x.shape[:1]
    place = iota(r, line, 0, U32)
    left = filled(r, line[0], U32) - place
    pivots = place + _bits(r, operands, line, 32).op("remainder", left)
    (order,) = traced(r, lambda p: jax.lax.linalg.lu_pivots_to_permutation(p, p.shape[0]), pivots.cast(np.int32))
    return x.take(order, 0).value


HANDLERS: dict[str, Handler] = {
    "StatelessMultinomial": _multinomial,
    "StatelessRandomGetAlg": _algorithm,
    "StatelessRandomGetKeyCounter": _key_counter,
    "StatelessRandomGetKeyCounterAlg": _key_counter_algorithm,
    "StatelessRandomNormal": seeded(_normal),
    "StatelessRandomNormalV2": _normal,
    "StatelessRandomUniform": seeded(_uniform),
    "StatelessRandomUniformFullInt": seeded(_all_integers),
    "StatelessRandomUniformFullIntV2": _all_integers,
    "StatelessRandomUniformInt": seeded(_integers),
    "StatelessRandomUniformIntV2": _integers,
    "StatelessRandomUniformV2": _uniform,
    "StatelessShuffle": _shuffle,
    "StatelessTruncatedNormal": seeded(_truncated_normal),
    "StatelessTruncatedNormalV2": _truncated_normal,
}
