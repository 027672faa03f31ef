"""Random numbers from a seed: TensorFlow's own by Philox, bit for bit as its kernels of the CPU make them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.passes.complex.reals import Real
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.import_.elements import ONE
from hlo_disc.import_.handlers.random import philox, philox_bits
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.shapes import Operand, Symbolic
from hlo_disc.import_.tensorflow.arrays import Array, array, joined
from hlo_disc.import_.tensorflow.shapes import result_dtype

if TYPE_CHECKING:
    from hlo_disc.import_.reader import Reader

U32, U64, F64 = map(np.dtype, (np.uint32, np.uint64, np.float64))
_PHILOX = (1, 3)  # by name, or what is best for the device
# The key by which a seed becomes key and counter.
_SCRAMBLE = (0x3EC8F720, 0x02461E29)
# Digits of a significand that are random, and how many bits they are taken of.
_DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}


def _real(r: Reader, x: Value) -> Real:
    return Real(r.builder, x, r.location())


def _words(r: Reader, x: Operand) -> list[Array]:
    """The elements of a vector of 64 bits, each as a low and a high word."""
    made = []
    whole = array(r, x)
    for i in range(whole.shape[0].value):
        wide = Array(r, r.element(whole.value, i)).cast(np.int64).emit("bitcast_convert", dtype=U64)
        made += [wide.cast(U32), wide.op("shift_right_logical", 32).cast(U32)]
    return made


def _joined_words(low: Array, high: Array) -> Array:
    return low.cast(U64) | high.cast(U64).op("shift_left", 32)


def _key_counter(r: Reader, op: Any, operands: list[Operand]) -> Result:
    seed = [_real(r, x.value) for x in _words(r, operands[0])]
    key = tuple(_real(r, r.constant(np.array(word, U32))) for word in _SCRAMBLE)
    mixed = [Array(r, x.value) for x in philox(key, tuple(seed))]  # type: ignore[arg-type]
    zero = r.constant(np.zeros((), U64))
    made = _joined_words(*mixed[:2]), _joined_words(*mixed[2:])
    counter = joined([Array(r, zero).reshape((ONE,)), made[1].reshape((ONE,))], 0)
    return [made[0].reshape((ONE,)).value, counter.value]


def _algorithm(r: Reader, op: Any, operands: list[Operand]) -> Result:
    return Symbolic(np.dtype(np.int32), (), (ONE,))


def _bits(r: Reader, operands: list[Operand], shape: Shape, width: int) -> Array:
    if r.constant_of(operands[3]) not in _PHILOX:
        r.unsupported("only Philox, by which TensorFlow makes random numbers on a CPU")
    key, counter = array(r, operands[1]), array(r, operands[2])
    low, high = (_real(r, r.element(counter.value, i)) for i in range(2))
    _, bits = philox_bits(r, _real(r, r.element(key.value, 0)), [low, high], shape, width)
    return Array(r, bits.value)


def _unit(bits: Array, dtype: np.dtype) -> Array:
    """Numbers in [0, 1) from the low bits of words."""
    digits = _DIGITS[dtype.name]
    if dtype == F64:  # the first word is the high one
        bits = _joined_words(bits.op("shift_right_logical", 32).cast(U32), bits.cast(U32))
    return (bits & ((1 << digits) - 1)).cast(F64 if dtype == F64 else np.float32).cast(dtype) * 2.0**-digits


def _uniform(r: Reader, op: Any, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    return _unit(_bits(r, operands, r.sizes(operands[0]), 64 if dtype == F64 else 32), dtype).value


def _integers(r: Reader, op: Any, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    low, high = (array(r, x) for x in operands[4:])
    unsigned = np.dtype(f"u{dtype.itemsize}")
    bits = _bits(r, operands, r.sizes(operands[0]), 8 * dtype.itemsize)
    span = (high - low).emit("bitcast_convert", dtype=unsigned)
    return (bits.op("remainder", span).emit("bitcast_convert", dtype=dtype) + low).value


def _all_integers(r: Reader, op: Any, operands: list[Operand]) -> Result:
    dtype = result_dtype(op)
    return _bits(r, operands, r.sizes(operands[0]), 8 * dtype.itemsize).emit("bitcast_convert", dtype=dtype).value


def _normal(r: Reader, op: Any, operands: list[Operand]) -> Result:
    """By the method of Box and Muller, two at a time."""
    dtype, shape = result_dtype(op), r.sizes(operands[0])
    if dtype == F64:
        r.unsupported("only f32 and narrower")
    count = dim_product(shape)
    pairs = (count + 1) // 2
    words = _bits(r, operands, (pairs * 2,), 32).reshape((pairs, 2))
    first, second = (_unit(words.slice(1, i, i + 1), np.dtype(np.float32)) for i in (0, 1))
    size = (first.maximum(1e-7).log() * -2).sqrt()
    turn = second * (2 * math.pi)
    made = joined([turn.op("sine") * size, turn.op("cosine") * size], 1).reshape((pairs * 2,))
    return made.slice(0, 0, count).reshape(shape).cast(dtype).value


HANDLERS: dict[str, Handler] = {
    "StatelessRandomGetAlg": _algorithm,
    "StatelessRandomGetKeyCounter": _key_counter,
    "StatelessRandomNormalV2": _normal,
    "StatelessRandomUniformFullIntV2": _all_integers,
    "StatelessRandomUniformIntV2": _integers,
    "StatelessRandomUniformV2": _uniform,
}
