"""Ours against the numpy reference and XLA, with a tolerance that follows from the program.

The reference runs several times with noise larger than the rounding errors that ops make: in each result up, down, to
rounder numbers, at random. Where the noise shows, a result may differ by as much; where it changes everything (a
comparison that flips, a sum that cancels), nothing is said about that element. What decides by rounded numbers sees
them as far apart as any run has them. Where no op rounds, results must be equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from dhlo import run_stablehlo
from jax.errors import JaxRuntimeError

from hlo_disc.dynamic_hlo.dtypes import bit_width, dtype_class, int_limits, part_dtype
from hlo_disc.dynamic_hlo.graph import Graph, Op, Value
from hlo_disc.dynamic_hlo.ops import kind
from hlo_disc.dynamic_hlo.print import to_stablehlo
from hlo_disc.dynamic_hlo.reference import Function, apply_all, bind
from hlo_disc.dynamic_hlo.semantics_indexing import sort
from hlo_disc.executable import Executable
from hlo_disc.mlir import ir
from hlo_disc.options import Options
from hlo_disc.pipeline import compile as compile_graph

_RUNS = ("snap", "up", "down", *["random"] * 6)
_FACTOR = 2.0  # the noise that was seen is less than the worst
_LARGER = 4.0  # noise over the errors that are expected
_EXACT = frozenset(
    "abs negate sign floor ceil round_nearest_afz round_nearest_even not is_finite popcnt count_leading_zeros real "
    "imag complex bitcast_convert and or xor shift_left shift_right_logical shift_right_arithmetic compare select "
    "clamp maximum minimum remainder reduce_precision convert".split()
)
_ROUNDED = frozenset("add subtract multiply divide sqrt".split())
_PARTS = frozenset("real imag complex select compare convert negate".split())  # exact on complex numbers too
_STEPS = frozenset("compare sign floor ceil round_nearest_afz round_nearest_even convert remainder".split())
_MOVES = ("source", "view", "gather", "assemble", "sort")


# Sizes of b and s: none, one, around the width of vectors, long. The index is the seed of the inputs.
SIZES = ((4, 3), (0, 3), (1, 1), (2, 33), (3, 0), (257, 2), (7, 32), (16, 17))


class Mismatch(AssertionError):
    """A wrong result, at `SIZES[number]`."""

    def __init__(self, number: int, message: str):
        b, s = SIZES[number]
        super().__init__(f"b = {b}, s = {s}, inputs of seed {number}: {message}")
        self.number = number


def check(
    graph: Graph, rounding: float = 1.0, numbers: Sequence[int] = range(len(SIZES)), with_xla: bool = False
) -> None:
    """Compile once and run at every size, or at some of `SIZES` by number. Raises Mismatch.

    rounding: see `bands`. with_xla: hold XLA's results against the reference too, which tests the reference.
    """
    executable = Executable(compile_graph(graph, Options(threads=2)))
    for number in numbers:
        arrays = inputs(graph, dict(zip("bs", SIZES[number], strict=True)), number)
        expected = bands(graph, arrays, number, rounding)
        _compare("", executable.native(*arrays), expected, number)
        if with_xla and (results := _by_xla(graph, arrays)) is not None:
            _compare("XLA: ", results, expected, number)


def _by_xla(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """XLA's outputs; None for what XLA does not take."""
    try:
        return run_stablehlo(to_stablehlo(graph), arrays)
    except (JaxRuntimeError, ir.MLIRError):
        return None


def _compare(who: str, results: Sequence[np.ndarray], expected: Sequence[Band], number: int) -> None:
    for i, (got, band) in enumerate(zip(results, expected, strict=True)):
        if message := wrong(got, band):
            raise Mismatch(number, f"{who}output {i}: {message}")


@dataclass(frozen=True)
class Band:
    """One output: what it should be, how far it may be off, and where anything goes."""

    want: np.ndarray
    tolerance: np.ndarray
    free: np.ndarray


def bands(graph: Graph, arrays: Sequence[np.ndarray], seed: int = 0, rounding: float = 1.0) -> list[Band]:
    """What the outputs should be. rounding: how many ulps off an add and its like may be, 0 for a single one."""
    rounded = _rounded(graph, rounding)
    bits = _bits(graph, rounded)
    outputs = zip(graph.outputs, _run(graph, arrays, seed, rounding, rounded), strict=True)
    return [_band(want, others, value in rounded, value in bits) for value, (want, *others) in outputs]


def _rounded(graph: Graph, rounding: float) -> set[Value]:
    """The values that depend on an op which may round differently."""
    found: set[Value] = set()
    for op in graph.ops:
        rounds = any(_ulps(op, rounding)) and any(dtype_class(v.dtype) in ("float", "complex") for v in op.operands)
        if rounds or not found.isdisjoint(op.operands):
            found.update(op.results)
    return found


def _bits(graph: Graph, rounded: set[Value]) -> set[Value]:
    """The values that depend on the last bits of numbers which may round differently."""
    found: set[Value] = set()
    for op in graph.ops:
        if (op.name == "bitcast_convert" and op.operands[0] in rounded) or not found.isdisjoint(op.operands):
            found.update(op.results)
    return found


def _band(want: np.ndarray, runs: Sequence[np.ndarray], rounded: bool, bits: bool) -> Band:
    with np.errstate(all="ignore"):
        if bits:
            return Band(want, np.zeros(want.shape), np.ones(want.shape, bool))
        if dtype_class(want.dtype) in ("bool", "int", "uint"):
            free = np.zeros(want.shape, bool)
            for x in runs:
                free = free | (x != want)
            return Band(want, np.zeros(want.shape), free)
        base = _wide(want)
        free, tolerance = np.zeros(want.shape, bool), np.zeros(want.shape)
        for x in map(_wide, runs):
            both = np.isfinite(x) & np.isfinite(base)
            free = free | ~(both | _same(x, base))
            tolerance = np.maximum(tolerance, np.where(both, np.abs(x - base), 0.0))
        # Half of what there is: nothing is left to compare.
        free = free | (_FACTOR * tolerance > 0.5 * np.abs(base)) & (tolerance > _tiny(want.dtype))
        # The noise of a few runs may happen to be small.
        size = np.where(np.isfinite(base), np.abs(base), 0.0)
        if want.dtype.kind == "c":  # the formulas of complex functions cancel
            size = 2 * np.maximum(size, 1.0)
        least = size * _eps(want.dtype) * (8 if want.dtype.itemsize > 2 else 1)
        return Band(want, _FACTOR * tolerance + least + _tiny(want.dtype) if rounded else 0.0 * tolerance, free)


def wrong(got: np.ndarray, band: Band) -> str:
    """What is wrong with one output, "" when nothing is."""
    want = band.want
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    with np.errstate(all="ignore"):
        if dtype_class(want.dtype) in ("bool", "int", "uint"):
            bad = got != want
        else:
            x, y = _wide(got), _wide(want)
            bad = ~(_same(x, y) | (np.abs(x - y) <= band.tolerance))
    bad = np.asarray(bad) & ~band.free
    if not bad.any():
        return ""
    at = tuple(map(int, np.argwhere(bad)[0]))
    return (
        f"{int(bad.sum())} of {got.size} differ; at {list(at)} {got[at]!r}, not {want[at]!r} ± {band.tolerance[at]:.2g}"
    )


def _near(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Whether numbers differ by rounding at most."""
    if dtype_class(x.dtype) in ("bool", "int", "uint"):
        return x == y
    return np.isclose(_wide(x), _wide(y), 64 * _eps(x.dtype), 0.0, equal_nan=True)


def _wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind == "c" or x.dtype == np.float64 else x.astype(np.float64)


def _same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        # How an infinite complex number splits into parts is not said of most ops.
        return (x == y) | (~np.isfinite(x) & ~np.isfinite(y))
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))


def _tiny(dtype: np.dtype) -> float:
    """Below this numbers are subnormal, and may be zero as well."""
    return float(ml_dtypes.finfo(part_dtype(dtype)).tiny)


def _eps(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(part_dtype(dtype)).eps)


class Noise:
    """How one run differs: all results "up" or "down", to the roundest numbers nearby ("snap"), or at "random"."""

    def __init__(self, mode: str, seed: tuple[int, int]):
        self.mode, self.random = mode, np.random.default_rng(seed)

    def signs(self, shape: tuple[int, ...]) -> np.ndarray:
        if self.mode in ("up", "down"):
            return np.full(shape, 1.0 if self.mode == "up" else -1.0)
        return np.asarray(self.random.choice((-1.0, 1.0), shape))

    def anything(self, x: np.ndarray) -> np.ndarray:
        """In place of what nothing is said about."""
        if dtype_class(x.dtype) in ("bool", "int", "uint"):
            low, high = (0, 1) if x.dtype == bool else int_limits(x.dtype)
            low, high = max(low, -(1 << 62)), min(high, 1 << 62)
            edge = {"up": high, "down": low, "snap": min(high, -1 % (high + 1))}.get(self.mode)
            drawn = self.random.integers(low, high, x.shape, endpoint=True) if edge is None else np.full(x.shape, edge)
            return np.asarray(drawn).astype(x.dtype)
        size = 100 * np.abs(self.random.standard_normal(x.shape))
        wide = np.full(x.shape, np.nan) if self.mode == "snap" else size * self.signs(x.shape)
        return (wide * (1 + 2j) if x.dtype.kind == "c" else np.asarray(wide)).astype(x.dtype)


def _run(
    graph: Graph, arrays: Sequence[np.ndarray], seed: int, rounding: float, rounded: set[Value]
) -> list[list[np.ndarray]]:
    """Each output without noise, then with each of `_RUNS`."""
    sizes = bind(graph, arrays)
    noises = [None, *(Noise(mode, (seed, i)) for i, mode in enumerate(_RUNS))]
    values = {value: [x] * len(noises) for value, x in zip(graph.inputs, arrays, strict=True)}
    remaining = Counter(value for op in graph.ops for value in op.operands)
    remaining.update(graph.outputs)
    for op in graph.ops:
        into, out = _ulps(op, rounding)
        some = [value in rounded for value in op.operands]
        results: list[list[np.ndarray]] = []
        orders: list[np.ndarray] = []
        for noise, *operands in zip(noises, *(values[value] for value in op.operands), strict=False):
            if noise is not None and into:
                operands = [_shaken(x, into, noise) for x in operands]
            if noise is not None and noise.mode in ("up", "down") and any(some):
                operands = _decided(op, operands, [values[value] for value in op.operands], noise)
            operands = list(map(np.asarray, operands))  # numpy makes scalars of rank 0
            with np.errstate(all="ignore"):
                made = apply_all(op, operands, sizes)
                if noise is not None:
                    made = [_shaken(x, out, noise) if out else x for x in made]
                    made = [np.where(_unsaid(op, operands, x, some), noise.anything(x), x) for x in made]
            results.append(made)
            if op.name == "sort" and any(some):
                orders.append(_order(op, operands, sizes))
        if orders:  # what is in another place in some run could be any of its neighbours
            moved = np.any([order != orders[0] for order in orders], axis=0)
            for noise, made in zip(noises[1:], results[1:], strict=True):
                for i, (x, base) in enumerate(zip(made, results[0], strict=True)):
                    made[i] = np.where(moved & ~_near(x, base), noise.anything(x), x)
        for value in op.operands:
            remaining[value] -= 1
            if not remaining[value]:
                values.pop(value, None)
        values.update((v, list(x)) for v, x in zip(op.results, zip(*results, strict=True), strict=True) if remaining[v])
    return [values[value] for value in graph.outputs]


def _decided(
    op: Op, operands: Sequence[np.ndarray], runs: Sequence[Sequence[np.ndarray]], noise: Noise
) -> list[np.ndarray]:
    """The operands of an op that decides, moved as far as noise moved them in any run: one way up, the other down."""
    if op.name in _STEPS:
        ways: list[Any] = [1.0, -1.0]
    elif op.name in ("sort", "reduce_with"):  # neighbours change places, the first with the second or with the third
        dims = (op.attrs["dim"],) if op.name == "sort" else op.attrs["dims"]
        ways = [_alternating(x, dims) if x.ndim and dtype_class(x.dtype) == "float" else 0.0 for x in operands]
    else:
        return list(operands)
    ways = [way if noise.mode == "up" else -way for way in ways]
    return [_moved(x, others, way) for x, others, way in zip(operands, runs, ways, strict=False)]


def _order(op: Op, operands: Sequence[np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    """Where along its dim each element of a sort's results comes from."""
    count, dim = op.attrs["count"], op.attrs["dim"]
    body = Function(op.attrs["body"], sizes)
    numbers = np.indices(operands[0].shape)[dim]

    def compare(*pairs: np.ndarray) -> list[np.ndarray]:
        return body(*pairs[: 2 * count], *pairs[2 * count + 2 :])

    arrays = *operands[:count], numbers, *operands[count:]
    return sort(*arrays, dim=dim, stable=True, count=count + 1, body=compare)[-1]


def _moved(x: np.ndarray, runs: Sequence[np.ndarray], way: Any) -> np.ndarray:
    if dtype_class(x.dtype) != "float":
        return x
    with np.errstate(all="ignore"):
        base = runs[0].astype(np.float64)
        off = np.abs(np.array(runs[1:], np.float64) - base)
        far = np.max(np.where(np.isfinite(off), off, 0.0), axis=0)
        return np.where(far > 0, base + way * far, x).astype(x.dtype)


def _alternating(x: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    """1 and -1 in turn, in the order of x along dims."""
    last = np.moveaxis(x, dims, range(-len(dims), 0))
    order = np.argsort(last.reshape((*last.shape[: x.ndim - len(dims)], math.prod(last.shape[x.ndim - len(dims) :]))))
    signs = 1.0 - 2.0 * (np.argsort(order) % 2)
    return np.moveaxis(signs.reshape(last.shape), range(-len(dims), 0), dims)


def _ulps(op: Op, rounding: float) -> tuple[float, float]:
    """Noise for the operands and for the results of an op, in units of their last place."""
    row = kind(op)
    if row in _MOVES:
        return 0.0, 0.0
    narrow = bool(op.operands) and bit_width(op.operands[0].dtype) < 32
    if row == "cumulative" and narrow:  # the reference rounds at every step
        return 1.0, 16.0
    if row != "elementwise":
        return 1.0 if narrow else 4.0, 4.0
    if any(v.dtype.kind == "c" for v in op.operands) and op.name not in _PARTS:
        return 16.0, 16.0
    if op.name in _EXACT:
        return 0.0, 0.0
    return 0.0, rounding if op.name in _ROUNDED else 1.0 if narrow else 8.0  # narrow: computed in f32, rounded once


def _shaken(x: np.ndarray, ulps: float, noise: Noise) -> np.ndarray:
    """Values times a little more or less than 1, zeros and NaN of either sign."""
    if dtype_class(x.dtype) not in ("float", "complex"):
        return x
    if x.dtype.kind == "c":
        real, imag = (_shaken(part, ulps, noise) for part in (x.real, x.imag))
        if noise.mode != "snap":  # an error of one part is as large as the whole
            size = ulps * _LARGER * _eps(x.dtype) * np.where(np.isfinite(x), np.abs(x), 0.0)
            real, imag = (
                part + size * noise.signs(x.shape) * noise.random.uniform(0, 1, x.shape) for part in (real, imag)
            )
        shaken = np.empty(x.shape, x.dtype)
        shaken.real, shaken.imag = real, imag
        return shaken
    narrow, signs = bit_width(x.dtype) < 32, noise.signs(x.shape)
    eps = ulps * (1 if narrow else _LARGER) * _eps(x.dtype)
    wide = x.astype(np.float64)
    if noise.mode == "snap":
        fraction, exponent = np.frexp(wide)
        wide = np.where(np.isfinite(wide), np.ldexp(np.rint(fraction / eps) * eps, exponent), wide)
        return np.asarray(wide).astype(x.dtype)
    if narrow:  # between the ops of a kernel there is neither underflow nor overflow
        largest, tiny = float(ml_dtypes.finfo(x.dtype).max), _tiny(x.dtype)
        wide = np.where(np.abs(wide) < tiny, tiny * noise.random.uniform(-1, 1, x.shape), wide)
        wide = np.where(np.isinf(wide) & (signs < 0), np.copysign(largest, wide), wide)
    else:  # a subnormal number has few digits, and may be zero as well
        subnormal = (np.abs(wide) < _tiny(x.dtype)) & (wide != 0)
        wide = np.where(subnormal, wide * noise.random.uniform(0, 2, x.shape), wide)
    if not narrow and noise.mode == "random":
        eps = eps * noise.random.uniform(0.5, 1, x.shape)
    with np.errstate(over="ignore"):
        moved = np.where((wide == 0) | np.isnan(wide), np.copysign(wide, signs), wide * (1 + eps * signs))
        return np.asarray(moved).astype(x.dtype)


def _unsaid(op: Op, operands: Sequence[np.ndarray], result: np.ndarray, rounded: Sequence[bool]) -> np.ndarray:
    """Where it is not said what an op makes. rounded: which operands may be a little more or less."""
    if kind(op) == "call" and not all(np.isfinite(x).all() for x in operands):
        return np.ones(result.shape, bool)
    if kind(op) == "control" and not all(np.isfinite(x).all() for x in operands if x.dtype.kind == "c"):
        return np.ones(result.shape, bool)
    if op.name == "convolution":  # padding may be multiplied, or left out
        return ~np.isfinite(result)
    if op.name == "power" and rounded[1] and dtype_class(result.dtype) == "float":  # is the exponent whole?
        return operands[0] < 0
    if op.name in ("sine", "cosine", "tan") and any(rounded) and operands[0].dtype.kind != "c":
        return 16 * _eps(result.dtype) * np.abs(_wide(operands[0])) > 1
    if op.name == "atan2" and result.dtype.kind == "c":  # the sign of a zero says on which side of a cut it lies
        return (operands[0] == 0) | ~np.isfinite(operands[0] + operands[1])
    if op.name == "bitcast_convert":  # the sign of NaN
        x = operands[0]
        return np.full(result.shape, dtype_class(x.dtype) == "float" and bool(np.isnan(x).any()))
    if op.name == "remainder" and any(rounded) and dtype_class(result.dtype) == "float":
        x, y = (np.abs(_wide(v)) for v in operands)
        return 16 * _eps(result.dtype) * x > y
    if kind(op) == "elementwise" and op.name not in _PARTS and any(x.dtype.kind == "c" for x in operands):
        return np.any([~np.isfinite(x) for x in operands if x.dtype.kind == "c"], axis=0) | np.isnan(result)
    return np.zeros(result.shape, bool)


# ------------------------------------------------------------------------------------------------------------ inputs

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.0, 1e-3, 1e3, 1e4, np.inf, -np.inf, np.nan)


def inputs(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    """Random inputs: small numbers of both signs; some inputs hold zeros, large values, infinities and NaN as well."""
    random = np.random.default_rng(seed)
    return [_random(random, v.dtype, tuple(d.evaluate(sizes) for d in v.shape)) for v in graph.inputs]


def _random(random: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    special = random.random() < 0.3
    match dtype_class(dtype):
        case "bool":
            return np.asarray(random.integers(0, 2, shape)).astype(dtype)
        case "int" | "uint":
            low, high = int_limits(dtype)
            small = random.integers(max(low, -4), min(high, 9) + 1, shape)
            if not special:
                return np.asarray(small).astype(dtype)
            edges = random.choice(
                np.array([low, high, high // 2, low + 1, 31, 64][: 4 if high < 64 else 6], object), shape
            )
            return np.where(random.random(shape) < 0.3, edges, small).astype(dtype)
    values = np.asarray(random.standard_normal(shape) * 2)
    if special:
        values = np.where(random.random(shape) < 0.3, random.choice(_SPECIAL, shape), values)
    if dtype.kind == "c":  # what ops make of infinite complex numbers is not said
        values = np.where(np.isfinite(values), values, 0.0)
        return (values + 1j * random.standard_normal(shape)).astype(dtype)
    with np.errstate(all="ignore"):
        return values.astype(dtype)
