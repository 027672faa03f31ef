"""Random numbers as ordinary ops: XLA's counter-based generators, bit for bit, and distributions made from them.

Threefry-2x32 (20 rounds) and Philox-4x32 (10 rounds) are those of Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3" (2011). Which counter an element has, and which word of the result it takes, is XLA's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, computed, dtype_class, is_integer
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.expr import F32, F64, I64, U32, U64, A, Term, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.handlers.arrays import Array, array, filled, iota, joined
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

# Digits of a significand, which is all that a number in [0, 1) has.
_DIGITS = {F64: 53, F32: 24, np.dtype(np.float16): 11, np.dtype(ml_dtypes.bfloat16): 8}
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
# Keys of the distributions, whose bits are nobody's business: the fractional part of the golden ratio.
_SEED = 0x9E3779B97F4A7C15


def _rng_bit_generator(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    sizes = r.decoder.static_tensor(op.results[1].type)[1]
    if sizes is None:
        r.unsupported("this form of the op needs a result type of static shape")
    shape = r.policy.created(r, op, sizes)
    return _generated(r, op, r.data(operands[0]), shape)


def _dynamic_rng_bit_generator(r: Reader, op: ir.OpView, operands: list[Operand]) -> Result:
    """Read JAX's custom call, whose second operand is the shape."""
    return _generated(r, op, r.data(operands[0]), r.sizes(operands[1]))


def _generated(r: Reader, op: ir.OpView, state: Value, shape: Shape) -> Result:
    dtype = r.decoder.tensor(op.results[1].type)[0]
    return generate(r, state, shape, dtype, "THREE_FRY" in str(op.attributes["rng_algorithm"]))


def generate(r: Reader, state: Value, shape: Shape, dtype: np.dtype, by_threefry: bool) -> tuple[Value, Value]:
    """Return the generator's new state, and random bits as elements of a type."""
    if state.dtype != U64 or state.rank != 1 or not state.shape[0].is_const or not 2 <= state.shape[0].value <= 3:
        r.unsupported(f"a generator's state must be 2 or 3 numbers of 64 bits, not {state}")
    if dtype_class(dtype) in ("bool", "complex"):
        r.unsupported(f"random bits of type {dtype} have no meaning")
    words = [Array(r, r.element(state, i)) for i in range(state.shape[0].value)]
    bits_of = _threefry_bits if by_threefry else philox_bits
    counter, bits = bits_of(r, words[0], words[1:], shape, 64 if bit_width(dtype) == 64 else 32)
    return joined([x.reshape((ONE,)) for x in (words[0], *counter)], 0).value, _as(bits, dtype)


def _as(bits: Array, dtype: np.dtype) -> Value:
    """Return the low bits as elements of `dtype`."""
    width = bit_width(dtype)
    unsigned = np.dtype(getattr(ml_dtypes, f"uint{width}", f"uint{width}"))
    bits = bits.cast(unsigned)
    return (bits if unsigned == dtype else bits.op("bitcast_convert", dtype=dtype)).value


# -------------------------------------------------------------------------------------------------- words and shapes


def halves(x: A) -> tuple[A, A]:
    """Return the low and the high 32 bits."""
    return x.cast(U32), (x >> 32).cast(U32)


def whole(low: A, high: A) -> A:
    return low.cast(U64) | (high.cast(U64) << 32)


def _position(r: Reader, shape: Shape) -> Array:
    """Return the row-major number of each element."""
    position = filled(r, 0, U64, shape)
    for axis, size in enumerate(shape):
        position = position * size + iota(r, shape, axis, U64)
    return position


# ---------------------------------------------------------------------------------------------------------- Threefry


def threefry(key: tuple[A, A], x: tuple[A, A]) -> tuple[A, A]:
    """Return two words of 32 bits from two words of a counter."""
    ks = (*key, key[0] ^ key[1] ^ _PARITY)
    a, b = x[0] + ks[0], x[1] + ks[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            a = a + b
            b = ((b << distance) | (b >> (32 - distance))) ^ a
        a, b = a + ks[(group + 1) % 3], b + ks[(group + 2) % 3] + (group + 1)
    return a, b


def _threefry_bits(
    r: Reader, key: Array, counter: Sequence[Array], shape: Shape, width: int
) -> tuple[list[Array], Array]:
    """Return the new counter and the bits. One counter gives two words of 32 bits."""
    second = None
    if width == 64:
        at, count = _position(r, shape), filled(r, dim_product(shape), U64)
    else:
        at, count, second = _halved_positions(r, shape)
    words = threefry(halves(key), halves(counter[0] + at))
    if width == 64:
        bits = whole(*words)
    else:
        bits = words[0] if second is None else where(second, words[1], words[0])
    return [counter[0] + count, *counter[1:]], bits


def _halved_positions(r: Reader, shape: Shape) -> tuple[Array, Array, Array | None]:
    """Return each element's position in `shape` with one axis halved, the number of such elements, and the half it is
    in.

    The axis is the first of even size, else the first of the largest. If only a call knows it, the program selects it.
    """
    if not shape:
        return filled(r, 0, U64), filled(r, 1, U64), None
    chosen = None
    for axis in reversed(range(len(shape))):
        found = _halved_at(r, shape, axis)
        chosen = found if chosen is None else _choose(r, shape, axis, found, chosen)
    assert chosen is not None
    return chosen


def _halved_at(r: Reader, shape: Shape, axis: int) -> tuple[Array, Array, Array]:
    half = (*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 :])
    position = filled(r, 0, U64, shape)
    for a, size in enumerate(half):
        index = iota(r, shape, a, U64)
        position = position * size + (index >> 1 if a == axis else index)
    odd = (iota(r, shape, axis, U64) & 1) == 1
    return position, filled(r, dim_product(half), U64), odd


def _choose(
    r: Reader, shape: Shape, axis: int, found: tuple[Array, Array, Array], rest: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """Select `found` if `axis` is even, or if all axes are odd and it is the largest; else `rest`, the choice of later
    axes."""
    odd = [size % 2 for size in shape]
    if odd[axis] is ZERO:
        return found
    later_even = ONE - dim_product(odd[axis + 1 :])
    smaller = [Dim.min(ONE, Dim.max(ZERO, size - shape[axis])) for size in shape[axis + 1 :]]
    largest = dim_product([ONE - larger for larger in smaller])
    takes = r.facts.canonical(ONE - odd[axis] * (ONE - (ONE - later_even) * largest))
    if takes.is_const:
        return found if takes.value else rest
    condition = filled(r, takes, U64) == 1
    position, count, second = (where(condition, one, other) for one, other in zip(found, rest, strict=True))
    return position, count, second


# ------------------------------------------------------------------------------------------------------------ Philox


def philox(key: tuple[A, A], x: tuple[A, A, A, A]) -> tuple[A, A, A, A]:
    """Return four words of 32 bits from four words of a counter."""
    for number in range(10):
        if number:
            key = key[0] + _WEYL[0], key[1] + _WEYL[1]
        (low0, high0), (low1, high1) = (
            halves(word.cast(U64) * m) for word, m in zip(x[::2], _MULTIPLIERS, strict=True)
        )
        x = (high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0)
    return x


def advanced(low: A, high: A, by: Term) -> tuple[A, A]:
    """Add to a counter of 128 bits."""
    made = low + by
    return made, where(made < low, high + 1, high)


def philox_words(key: A, counter: tuple[A, A], by: A, width: int) -> Sequence[A]:
    """Return the words of 32 or 64 bits at a distance from a counter."""
    low, high = advanced(*counter, by)
    words = philox(halves(key), (*halves(low), *halves(high)))
    return words if width == 32 else (whole(*words[:2]), whole(*words[2:]))


def philox_bits(r: Reader, key: Array, counter: Sequence[Array], shape: Shape, width: int) -> tuple[list[Array], Array]:
    """Return the new counter and the bits. One counter of 128 bits gives four words, dealt to elements in turn."""
    low, high = (*counter, key)[:2]  # a state of two is short of one: XLA takes the key
    count = dim_product(shape)
    each = 128 // width
    blocks = (count + (each - 1)) // each
    parts = philox_words(key, (low, high), iota(r, (blocks,), 0, U64), width)
    bits = joined([part.expand(1) for part in parts], 1).reshape((blocks * each,)).slice(0, 0, count).reshape(shape)
    return list(advanced(low, high, blocks)[: len(counter)]), bits


# ----------------------------------------------------------------------------------------------------- distributions


def _rng(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Draw by Threefry, with a key for every op of the module: StableHLO does not define the bits."""
    a, b = (array(r, x) for x in operands[:2])
    shape = r.sizes(operands[2])
    words = threefry(halves(filled(r, _SEED + len(r.builder.ops), U64)), halves(_position(r, shape)))
    uniform = "NORMAL" not in str(op.attributes["rng_distribution"])
    return (_uniform if uniform else _normal)(words, a, b).value


def unit(words: tuple[Array, Array], dtype: np.dtype) -> Array:
    """Return numbers in [0, 1), from as many leading bits as the significand has."""
    bits, width = (whole(*words), 64) if dtype == F64 else (words[0], 32)
    return (bits >> (width - _DIGITS[dtype])).cast(dtype) * 2.0 ** -_DIGITS[dtype]


def box_muller(first: Array, second: Array) -> list[Array]:
    """Return two normal numbers from two uniform ones, of which the first is not 0."""
    radius, angle = (first.log() * -2).sqrt(), second * (2 * math.pi)
    return [radius * angle.op(name) for name in ("cosine", "sine")]


def normal_pair(words: tuple[Array, Array], dtype: np.dtype) -> list[Array]:
    return box_muller(1 - unit(words, dtype), unit((words[1], words[0]), dtype))


def _uniform(words: tuple[Array, Array], low: Array, high: Array) -> Array:
    """Draw between two scalars, the second excluded."""
    dtype = low.dtype
    if dtype == BOOL:
        return (words[0] & 1) == 1
    if is_integer(dtype):
        span = (high - low).cast(I64).op("bitcast_convert", dtype=U64)
        offset = whole(*words).op("remainder", span & ((1 << bit_width(dtype)) - 1))
        return offset.cast(dtype) + low
    wide = computed(dtype)
    low, high = low.cast(wide), high.cast(wide)
    return (low + unit(words, wide) * (high - low)).cast(dtype)


def _normal(words: tuple[Array, Array], mean: Array, deviation: Array) -> Array:
    wide = computed(mean.dtype)
    return (normal_pair(words, wide)[0] * deviation.cast(wide) + mean.cast(wide)).cast(mean.dtype)


HANDLERS: dict[str, Handler] = {
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    "stablehlo.rng": _rng,
}
CUSTOM_CALLS: dict[str, Handler] = {"stablehlo.dynamic_rng_bit_generator": _dynamic_rng_bit_generator}
