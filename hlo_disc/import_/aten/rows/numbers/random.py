"""Random numbers: not eager mode's, but of the same distributions, from a seed that each call draws of its generator.

The bits are those of Threefry-2x32 (Salmon, Moraes, Dror and Shaw 2011). An op has a key of its own, made of the call's
seed and the op's number in its graph, and an element's number is the counter. So equal seeds give equal results at any
number of threads, and shapes that differ share what they can. Other distributions are made of these by PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.import_.aten.rows.axes.reductions import computed
from hlo_disc.import_.aten.rows.windows.pools import numbered
from hlo_disc.import_.aten.tensors import BOOL, F32, F64, I64, Operand, Size
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.handlers.random import threefry

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)
# Of complex numbers.
_PARTS: dict[np.dtype, np.dtype] = {np.dtype(np.complex64): F32, np.dtype(np.complex128): F64}
# Digits of a significand, which is all that a number in [0, 1) has.
_DIGITS = {F64: 53, F32: 24, np.dtype(np.float16): 11, np.dtype(ml_dtypes.bfloat16): 8}


# Bits


def _halves(r: AtenReader, x: Value) -> tuple[Value, Value]:
    return r.convert(x, U32), r.convert(r.op("shift_right_logical", x, 32), U32)


def _threefry(r: AtenReader, key: tuple[Value, Value], counter: Value) -> tuple[Value, Value]:
    """Two words for each counter of 64 bits."""
    keys = [r.broadcast(k, counter.shape) for k in key]
    halves = _halves(r, r.convert(counter, U64))
    (a, b), x = ([Array(r, v) for v in pair] for pair in (keys, halves))
    first, second = threefry((a, b), (x[0], x[1]))
    return first.value, second.value


def _words(r: AtenReader, shape: Shape) -> tuple[Value, Value]:
    """Two words of 32 bits for each element; the ops of a graph have different ones."""
    number, seed = r.seed()
    key = _threefry(r, _halves(r, seed), r.scalar(number, U64))
    return _threefry(r, key, numbered(r, shape, len(shape)) if shape else r.scalar(0, I64))


def _long(r: AtenReader, words: tuple[Value, Value]) -> Value:
    low, high = (r.convert(word, U64) for word in words)
    return r.op("or", low, r.op("shift_left", high, 32))


# Distributions


def _unit(r: AtenReader, words: tuple[Value, Value], dtype: np.dtype) -> Value:
    """Numbers in [0, 1): as many leading bits as the significand has."""
    bits, width = (_long(r, words), 64) if dtype == F64 else (words[0], 32)
    leading = r.op("shift_right_logical", bits, width - _DIGITS[dtype])
    return r.op("multiply", r.convert(leading, dtype), 2.0 ** -_DIGITS[dtype])


def _normal(r: AtenReader, dtype: np.dtype, shape: Shape) -> Value:
    """By the method of Box and Muller; the parts of a complex number have half of its variance."""
    words = _words(r, shape)
    part = _PARTS.get(dtype, dtype)
    wide = computed(part)
    first = _unit(r, words, wide)
    second = _unit(r, (words[1], words[0]), wide)
    radius = r.emit(
        "sqrt", (r.op("multiply", r.emit("log", (r.op("subtract", r.full(1, wide, shape), first),)), -2.0),)
    )
    angle = r.op("multiply", second, 2 * math.pi)
    made = [r.op("multiply", radius, r.emit(name, (angle,))) for name in ("cosine", "sine")]
    if part == dtype:
        return r.convert(made[0], dtype)
    return r.emit("complex", [r.op("multiply", x, math.sqrt(0.5)) for x in made])


def _rand(r: AtenReader, *_: Any, **__: Any) -> Value:
    dtype = r.out.dtype
    if dtype_class(dtype) != "complex":
        return _unit(r, _words(r, r.out.shape), dtype)
    part = F64 if dtype.itemsize == 16 else F32
    return r.emit("complex", [_unit(r, _words(r, r.out.shape), part) for _ in range(2)])


def _uniform(r: AtenReader, shape: Shape, *, low: Operand, high: Operand, **_: Any) -> Value:
    """From `low` to before `high`."""
    unit = _rand(r)
    return r.op("add", r.op("multiply", unit, r.op("subtract", r.scalar(high, unit.dtype), low)), low)


def _randn(r: AtenReader, *_: Any, **__: Any) -> Value:
    return _normal(r, r.out.dtype, r.out.shape)


def _scaled_normal(r: AtenReader, _: Any, mean: Operand = 0.0, std: Operand = 1.0, **__: Any) -> Value:
    made = _normal(r, r.out.dtype, r.out.shape)
    return r.op("add", r.op("multiply", made, std), mean)


def _integers(r: AtenReader, low: Operand, high: Operand) -> Value:
    """From `low` to before `high`: remainders of 64 bits."""
    span = r.convert(r.op("subtract", r.scalar(high, I64), r.scalar(low, I64)), U64)
    offset = r.op("remainder", _long(r, _words(r, r.out.shape)), span)
    return r.convert(r.op("add", r.convert(offset, I64), r.scalar(low, I64)), r.out.dtype)


def _bernoulli(r: AtenReader, x: Value, p: Operand = 0.5, **_: Any) -> Value:
    unit = _unit(r, _words(r, x.shape), F32)
    chance = r.convert(p, F32) if isinstance(p, Value) else p
    return r.convert(r.compare(unit, "LT", chance), r.out.dtype)


def _geometric(r: AtenReader, x: Value, p: float, **_: Any) -> Value:
    """How often something of this chance has to be tried."""
    unit = _unit(r, _words(r, x.shape), F64)
    tries = r.op("divide", r.emit("log_plus_one", (r.emit("negate", (unit,)),)), math.log1p(-p) if p < 1 else -np.inf)
    return r.convert(r.op("add", r.emit("floor", (tries,)), 1), r.out.dtype)


def _dropout(r: AtenReader, x: Value, p: float, train: bool | None = True) -> list[Value]:
    """Drop elements with probability p, and divide kept ones by the probability that they are kept."""
    if train is False or not p:
        return [x, r.full(True, BOOL, x.shape)]
    kept = r.compare(_unit(r, _words(r, x.shape), F32), "GE", p)
    scaled = r.op("multiply", x, 1 / (1 - p) if p < 1 else 0.0)
    return [r.select(kept, scaled, r.full(0, x.dtype, x.shape)), kept]


# Choices


def _order(r: AtenReader, keys: Value) -> Value:
    """The numbers of the elements of the last axis, those of large keys first."""
    numbers = r.iota(I64, keys.shape, keys.rank - 1)

    def build(b: GraphBuilder, values: tuple[Value, ...]) -> list[Value]:
        return [b.op("compare", values[:2], direction="GT")]

    body = make_region(r.facts, [(t, ()) for t in (keys.dtype, keys.dtype, I64, I64)], build)
    return r.emit_all("sort", (keys, numbers), dim=keys.rank - 1, stable=True, count=2, body=body)[1]


def _randperm(r: AtenReader, _: Size, **__: Any) -> Value:
    return r.convert(_order(r, _long(r, _words(r, r.out.shape))), r.out.dtype)


def _multinomial(r: AtenReader, weights: Value, count: Size, replacement: bool = False, **_: Any) -> Value:
    """Without replacement the largest of weights over exponential numbers; else places in the running sums."""
    wide = r.convert(weights, computed(weights.dtype))
    if not replacement:
        unit = _unit(r, _words(r, wide.shape), wide.dtype)
        exponential = r.emit("negate", (r.emit("log_plus_one", (r.emit("negate", (unit,)),)),))
        order = _order(r, r.op("divide", wide, r.op("maximum", exponential, float(np.finfo(np.float32).tiny))))
        return r.slice(order, -1, 0, r.out.shape[-1])
    sums = r.cumulative(wide, -1, "add")
    last = sums.shape[-1] - 1
    total = r.slice(sums, -1, last, last + 1)
    shape = (*sums.shape[:-1], r.out.shape[-1])
    place = r.op("multiply", _unit(r, _words(r, shape), wide.dtype), total)
    passed = r.compare(r.unsqueeze(place, -1), "GE", r.unsqueeze(sums, -2))
    found = r.reduce(r.convert(passed, I64), -1, "add")
    return r.op("minimum", found, last)


def _rrelu(
    r: AtenReader, x: Value, _: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, **__: Any
) -> list[Value]:
    """Negative numbers times something between the bounds, which is the second result."""
    negative = r.compare(x, "LE", 0)
    if training:
        unit = r.convert(_unit(r, _words(r, x.shape), computed(x.dtype)), x.dtype)
        slope = r.op("add", r.op("multiply", unit, upper - lower), lower)
    else:
        slope = r.full((lower + upper) / 2, x.dtype, x.shape)
    noise = r.select(negative, slope, r.full(1, x.dtype, x.shape))
    return [r.op("multiply", x, noise), noise]


def _low(*bounds: str) -> Callable[..., Value]:
    """Integers below a bound, or between two, which come first or after a tensor."""

    def handle(r: AtenReader, *args: Any, **_: Any) -> Value:
        given = dict(zip(bounds, args, strict=False))
        return _integers(r, given.get("low", 0), given["high"])

    return handle


ROWS: dict[str, Callable[..., Any]] = {
    "aten.rand.default": _rand,
    "aten.rand_like.default": _rand,
    "aten.randn.default": _randn,
    "aten.randn_like.default": _randn,
    "prims.uniform.default": _uniform,
    "prims.normal.default": lambda r, shape, *, mean=0.0, std=1.0, **_: _scaled_normal(r, shape, mean, std),
    "aten.normal_functional.default": _scaled_normal,
    "aten.randint.default": _low("high"),
    "aten.randint.low": _low("low", "high"),
    "aten.randint_like.default": _low("like", "high"),
    "aten.randint_like.low_dtype": _low("like", "low", "high"),
    "aten.bernoulli.default": lambda r, x, **_: _bernoulli(r, x, x),
    "aten.bernoulli.p": _bernoulli,
    "aten.bernoulli.Tensor": _bernoulli,
    "aten.geometric.default": _geometric,
    "aten.native_dropout.default": _dropout,
    "aten.randperm.default": _randperm,
    "aten.multinomial.default": _multinomial,
    "aten.rrelu_with_noise_functional.default": _rrelu,
}
