"""Random numbers of the same distributions as eager mode's, but other ones, from a seed that each call draws.

The bits are those of Threefry-2x32 (Salmon, Moraes, Dror and Shaw 2011). An op's key combines the call's seed and the
op's number in its graph; the counter is an element's number. So equal seeds give equal results at any number of
threads, and different shapes have a common beginning. PyTorch makes other distributions from these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import computed, dtype_class, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Shape
from hlo_disc.dynamic_hlo.ops.expr import BOOL, F32, F64, I64, U64, formula_region, where
from hlo_disc.import_.aten.tensors import Operand, Size
from hlo_disc.import_.formulas.windows import numbered
from hlo_disc.import_.handlers.arrays import Array, emit_all, filled, iota
from hlo_disc.import_.handlers.random import halves, normal_pair, threefry, unit, whole

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

# Bits


def _threefry(key: tuple[Array, Array], counter: Array) -> tuple[Array, Array]:
    """Return two words for each counter of 64 bits."""
    return threefry(key, halves(counter.cast(U64)))


def _words(r: AtenReader, shape: Shape) -> tuple[Array, Array]:
    """Return two words of 32 bits for each element; the ops of a graph have different ones."""
    number, seed = r.seed()
    key = _threefry(halves(Array(r, seed)), filled(r, number, U64))
    return _threefry(key, numbered(r, shape, len(shape)) if shape else filled(r, 0, I64))


# Distributions


def _normal(r: AtenReader, dtype: np.dtype, shape: Shape) -> Array:
    """Draw normal numbers; the parts of a complex number have half of its variance."""
    part = part_dtype(dtype)
    made = normal_pair(_words(r, shape), computed(part))
    if part == dtype:
        return made[0].cast(dtype)
    re, im = (x * math.sqrt(0.5) for x in made)
    return re.emit("complex", im)


def _rand(r: AtenReader, *_: object, **__: object) -> Array:
    dtype = r.out.dtype
    if dtype_class(dtype) != "complex":
        return unit(_words(r, r.out.shape), dtype)
    re, im = (unit(_words(r, r.out.shape), part_dtype(dtype)) for _ in range(2))
    return re.emit("complex", im)


def _uniform(r: AtenReader, shape: Shape, *, low: Operand, high: Operand, **_: object) -> Array:
    """Draw from `low` up to, but without, `high`."""
    drawn = _rand(r)
    return drawn * (r.scalar(high, drawn.dtype) - low) + low


def _scaled_normal(r: AtenReader, _: object, mean: Operand = 0.0, std: Operand = 1.0, **__: object) -> Array:
    made = _normal(r, r.out.dtype, r.out.shape)
    return made * std + mean


def _integers(r: AtenReader, low: Operand, high: Operand) -> Array:
    """Draw integers from `low` up to, but without, `high`: remainders of 64 bits."""
    span = (r.scalar(high, I64) - r.scalar(low, I64)).cast(U64)
    offset = whole(*_words(r, r.out.shape)).op("remainder", span)
    return (offset.cast(I64) + r.scalar(low, I64)).cast(r.out.dtype)


def _bernoulli(r: AtenReader, x: Array, p: Operand = 0.5, **_: object) -> Array:
    drawn = unit(_words(r, x.shape), F32)
    chance = p.cast(F32) if isinstance(p, Array) else p
    return (drawn < chance).cast(r.out.dtype)


def _geometric(r: AtenReader, x: Array, p: float, **_: object) -> Array:
    """Count the trials up to the first success of this chance."""
    drawn = unit(_words(r, x.shape), F64)
    tries = (-drawn).op("log_plus_one") / (math.log1p(-p) if p < 1 else -np.inf)
    return (tries.op("floor") + 1).cast(r.out.dtype)


def _dropout(r: AtenReader, x: Array, p: float, train: bool | None = True) -> list[Array]:
    """Drop elements with probability p, and divide kept ones by the probability that they are kept."""
    if train is False or not p:
        return [x, r.full(True, BOOL, x.shape)]
    kept = unit(_words(r, x.shape), F32) >= p
    scaled = x * (1 / (1 - p) if p < 1 else 0.0)
    return [where(kept, scaled, r.full(0, x.dtype, x.shape)), kept]


# Choices


def _order(r: AtenReader, keys: Array) -> Array:
    """Return the numbers of the elements of the last axis, those of large keys first."""
    numbers = iota(r, keys.shape, keys.rank - 1, I64)

    body = formula_region(r.facts, [keys.dtype, keys.dtype, I64, I64], lambda a, b, *_: [a > b])
    return emit_all(r, "sort", [keys, numbers], dim=keys.rank - 1, stable=True, count=2, body=body)[1]


def _multinomial(r: AtenReader, weights: Array, count: Size, replacement: bool = False, **_: object) -> Array:
    """Draw classes: without replacement of the largest weight over an exponential number, or by running sums."""
    wide = weights.cast(computed(weights.dtype))
    if not replacement:
        drawn = unit(_words(r, wide.shape), wide.dtype)
        exponential = -(-drawn).op("log_plus_one")
        order = _order(r, wide / exponential.maximum(float(np.finfo(np.float32).tiny)))
        return order.slice(-1, 0, r.out.shape[-1])
    sums = wide.cumulative("add", -1)
    last = sums.shape[-1] - 1
    total = sums.slice(-1, last, last + 1)
    shape = (*sums.shape[:-1], r.out.shape[-1])
    place = unit(_words(r, shape), wide.dtype) * total
    passed = place.expand(-1) >= sums.expand(-2)
    found = passed.cast(I64).sum(-1)
    return found.minimum(last)


def _rrelu(
    r: AtenReader, x: Array, _: Array, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, **__: object
) -> list[Array]:
    """Scale negative numbers by random factors between the bounds; the factors are the second result."""
    negative = x <= 0
    if training:
        drawn = unit(_words(r, x.shape), computed(x.dtype)).cast(x.dtype)
        slope = drawn * (upper - lower) + lower
    else:
        slope = r.full((lower + upper) / 2, x.dtype, x.shape)
    noise = where(negative, slope, r.full(1, x.dtype, x.shape))
    return [x * noise, noise]


def _low(*bounds: str) -> Callable[..., Array]:
    """Draw integers below a bound, or between two; the bounds come first or after a tensor."""

    def handle(r: AtenReader, *args: Operand, **_: object) -> Array:
        given = dict(zip(bounds, args, strict=False))
        return _integers(r, given.get("low", 0), given["high"])

    return handle


ROWS: dict[str, Callable[..., Any]] = {
    "aten.rand.default": _rand,
    "aten.rand_like.default": _rand,
    "aten.randn.default": lambda r, *_, **__: _normal(r, r.out.dtype, r.out.shape),
    "aten.randn_like.default": lambda r, *_, **__: _normal(r, r.out.dtype, r.out.shape),
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
    "aten.randperm.default": lambda r, _, **__: _order(r, whole(*_words(r, r.out.shape))).cast(r.out.dtype),
    "aten.multinomial.default": _multinomial,
    "aten.rrelu_with_noise_functional.default": _rrelu,
}
