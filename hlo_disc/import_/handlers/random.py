"""Random numbers as ordinary ops: the counter-based generators of XLA, bit for bit, and distributions made of them.

Threefry-2x32 (20 rounds) and Philox-4x32 (10 rounds) are those of Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3" (2011). Which counter an element has, and which word of the result it takes, is XLA's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, dtype_class, is_integer
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.expr import A, Array, PlainMaker, where
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

U32, U64, F32, F64 = map(np.dtype, (np.uint32, np.uint64, np.float32, np.float64))
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
    """JAX's custom call with the shape as its second operand."""
    return _generated(r, op, r.data(operands[0]), r.sizes(operands[1]))


def _generated(r: Reader, op: ir.OpView, state: Value, shape: Shape) -> Result:
    dtype = r.decoder.tensor(op.results[1].type)[0]
    return generate(r, state, shape, dtype, "THREE_FRY" in str(op.attributes["rng_algorithm"]))


def generate(r: Reader, state: Value, shape: Shape, dtype: np.dtype, by_threefry: bool) -> tuple[Value, Value]:
    """The state behind the numbers, and random bits as elements of a type."""
    if state.dtype != U64 or state.rank != 1 or not state.shape[0].is_const or not 2 <= state.shape[0].value <= 3:
        r.unsupported(f"a generator's state must be 2 or 3 numbers of 64 bits, not {state}")
    if dtype_class(dtype) in ("bool", "complex"):
        r.unsupported(f"random bits of type {dtype} have no meaning")
    words = [_real(r, r.element(state, i)) for i in range(state.shape[0].value)]
    bits_of = _threefry_bits if by_threefry else philox_bits
    counter, bits = bits_of(r, words[0], words[1:], shape, 64 if bit_width(dtype) == 64 else 32)
    rows = [r.emit("reshape", (x.value,), shape=(ONE,)) for x in (words[0], *counter)]
    return r.emit("concatenate", rows, dim=0), _as(bits, dtype)


def _real(r: Reader, x: Value) -> Array:
    return Array(PlainMaker(r.builder, r.location()), x)


def _as(bits: Array, dtype: np.dtype) -> Value:
    """The low bits as elements of `dtype`."""
    width = bit_width(dtype)
    unsigned = np.dtype(getattr(ml_dtypes, f"uint{width}", f"uint{width}"))
    bits = bits.cast(unsigned)
    return (bits if unsigned == dtype else bits.op("bitcast_convert", dtype=dtype)).value


# -------------------------------------------------------------------------------------------------- words and shapes


def _spread(x: Array, shape: Shape) -> Array:
    """A scalar as a value of `shape`."""
    return x.emit("broadcast", shape=shape, dims=()) if shape else x


def _scalar(x: Array, dim: Dim, dtype: np.dtype = U64) -> Array:
    return x.of(x.r.emit("dim", expr=dim, dtype=dtype))


def _iota(x: Array, shape: Shape, axis: int) -> Array:
    return x.of(x.r.emit("iota", shape=shape, dim=axis, dtype=U64))


def halves(x: A) -> tuple[A, A]:
    """The low and the high 32 bits."""
    return x.cast(U32), (x >> 32).cast(U32)


def whole(low: A, high: A) -> A:
    return low.cast(U64) | (high.cast(U64) << 32)


def _position(x: Array, shape: Shape) -> Array:
    """The row-major number of each element."""
    position = _spread(x.like(0), shape)
    for axis, size in enumerate(shape):
        position = position * _spread(_scalar(x, size), shape) + _iota(x, shape, axis)
    return position


# ---------------------------------------------------------------------------------------------------------- Threefry


def threefry(key: tuple[A, A], x: tuple[A, A]) -> tuple[A, A]:
    """Two words of 32 bits from as many of a counter."""
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
    """The new counter and the bits. Two words of 32 bits come from one counter."""
    keys = tuple(_spread(k, shape) for k in halves(key))
    if width == 64:
        at, count, second = _position(key, shape), _scalar(key, dim_product(shape)), None
    else:
        at, count, second = _halved_positions(r, key, shape)
    words = threefry(keys, halves(_spread(counter[0], shape) + at))  # type: ignore[arg-type]
    if width == 64:
        bits = whole(*words)
    else:
        bits = words[0] if second is None else where(second, words[1], words[0])
    return [counter[0] + count, *counter[1:]], bits


def _halved_positions(r: Reader, like: Array, shape: Shape) -> tuple[Array, Array, Array | None]:
    """Where an element is in `shape` with one axis halved, how many elements that has, and which half is meant.

    The axis is the first of even size, else the first of the largest. What only a call knows is chosen there.
    """
    if not shape:
        return like.like(0), like.like(1), None
    chosen = None
    for axis in reversed(range(len(shape))):
        found = _halved_at(like, shape, axis)
        chosen = found if chosen is None else _choose(r, like, shape, axis, found, chosen)
    assert chosen is not None
    return chosen


def _halved_at(like: Array, shape: Shape, axis: int) -> tuple[Array, Array, Array]:
    half = (*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 :])
    position = _spread(like.like(0), shape)
    for a, size in enumerate(half):
        index = _iota(like, shape, a)
        index = index >> 1 if a == axis else index
        position = position * _spread(_scalar(like, size), shape) + index
    odd = (_iota(like, shape, axis) & 1) == 1
    return position, _scalar(like, dim_product(half)), odd


def _choose(
    r: Reader, like: Array, shape: Shape, axis: int, found: tuple[Array, Array, Array], rest: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    """`found` if `axis` is even, or all axes are odd and it is the largest; `rest` is the choice of later axes."""
    odd = [size % 2 for size in shape]
    if odd[axis] is ZERO:
        return found
    later_even = ONE - dim_product(odd[axis + 1 :])
    smaller = [Dim.min(ONE, Dim.max(ZERO, size - shape[axis])) for size in shape[axis + 1 :]]
    largest = dim_product([ONE - larger for larger in smaller])
    takes = r.facts.canonical(ONE - odd[axis] * (ONE - (ONE - later_even) * largest))
    if takes.is_const:
        return found if takes.value else rest
    condition = _scalar(like, takes) == 1
    each = _spread(condition, shape)
    return where(each, found[0], rest[0]), where(condition, found[1], rest[1]), where(each, found[2], rest[2])


# ------------------------------------------------------------------------------------------------------------ Philox


def philox(key: tuple[A, A], x: tuple[A, A, A, A]) -> tuple[A, A, A, A]:
    """Four words of 32 bits from as many of a counter."""
    for number in range(10):
        if number:
            key = key[0] + _WEYL[0], key[1] + _WEYL[1]
        (low0, high0), (low1, high1) = (
            halves(word.cast(U64) * m) for word, m in zip(x[::2], _MULTIPLIERS, strict=True)
        )
        x = (high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0)
    return x


def philox_bits(r: Reader, key: Array, counter: Sequence[Array], shape: Shape, width: int) -> tuple[list[Array], Array]:
    """The new counter and the bits. One counter of 128 bits gives four words, and to elements in turn."""
    low, high = counter if len(counter) == 2 else (counter[0], key)  # a state of two is short of one: XLA takes the key
    count = dim_product(shape)
    each = 128 // width
    blocks = (count + (each - 1)) // each
    line = (blocks,)
    start = _spread(low, line)
    at = start + _iota(key, line, 0)
    carried = where(at < start, _spread(high + 1, line), _spread(high, line))
    words = philox(tuple(_spread(k, line) for k in halves(key)), (*halves(at), *halves(carried)))  # type: ignore[arg-type]
    parts = words if width == 32 else (whole(*words[:2]), whole(*words[2:]))
    columns = [r.emit("reshape", (part.value,), shape=(blocks, ONE)) for part in parts]
    flat = r.emit("reshape", (r.emit("concatenate", columns, dim=1),), shape=(blocks * each,))
    if flat.shape[0] is not count:
        flat = r.emit("slice", (flat,), start=(ZERO,), limit=(count,), stride=(1,))
    bits = r.emit("reshape", (flat,), shape=shape)
    new_low = low + _scalar(key, blocks)
    new = [new_low, where(new_low < low, high + 1, high)][: len(counter)]
    return new, _real(r, bits)


# ----------------------------------------------------------------------------------------------------- distributions


def _rng(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """StableHLO says nothing of the bits: they are those of Threefry, a key for every op of the module."""
    a, b = (_real(r, r.data(x)) for x in operands[:2])
    shape = r.sizes(operands[2])
    seed = _real(r, r.constant(np.array(_SEED + len(r.builder.ops), U64)))
    words = threefry(tuple(_spread(k, shape) for k in halves(seed)), halves(_position(seed, shape)))  # type: ignore[arg-type]
    uniform = "NORMAL" not in str(op.attributes["rng_distribution"])
    return (_uniform if uniform else _normal)(words, a, b, shape).value


def _unit(bits: Array, dtype: np.dtype) -> Array:
    """Numbers in [0, 1): as many leading bits as the significand has."""
    width, digits = (64, 53) if dtype == F64 else (32, 24)
    return (bits >> width - digits).cast(dtype) * 2.0**-digits


def _uniform(words: tuple[Array, Array], low: Array, high: Array, shape: Shape) -> Array:
    """Between two scalars, the second excluded."""
    dtype = low.dtype
    if dtype == BOOL:
        return (words[0] & 1) == 1
    if is_integer(dtype):
        span = (high - low).cast(np.dtype(np.int64)).op("bitcast_convert", dtype=U64)
        offset = whole(*words).op("remainder", _spread(span & ((1 << bit_width(dtype)) - 1), shape))
        return offset.cast(dtype) + _spread(low, shape)
    wide = F64 if dtype == F64 else F32
    unit = _unit(whole(*words) if wide == F64 else words[0], wide)
    low, high = (x.cast(wide) for x in (low, high))
    found = _spread(low, shape) + unit * _spread(high - low, shape)
    return found.cast(dtype)


def _normal(words: tuple[Array, Array], mean: Array, deviation: Array, shape: Shape) -> Array:
    """By the method of Box and Muller."""
    dtype = mean.dtype
    wide = F64 if dtype == F64 else F32
    pair = (whole(*words), whole(*reversed(words))) if wide == F64 else words
    first, second = (_unit(bits, wide) for bits in pair)
    unit = (-2 * (1 - first).log()).sqrt() * (second * (2 * math.pi)).op("cosine")
    mean, deviation = (x.cast(wide) for x in (mean, deviation))
    found = unit * _spread(deviation, shape) + _spread(mean, shape)
    return found.cast(dtype)


HANDLERS: dict[str, Handler] = {
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    "stablehlo.rng": _rng,
}
CUSTOM_CALLS: dict[str, Handler] = {"stablehlo.dynamic_rng_bit_generator": _dynamic_rng_bit_generator}
