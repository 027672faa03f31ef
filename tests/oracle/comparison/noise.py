"""A graph run without noise and with noise larger than the rounding errors that ops make.

The first noisy runs hold the most and the least that each number may be, as far as elementwise ops and dots say it:
the corners of what their operands may be. In the others results move to rounder numbers, or at random.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class, int_limits, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value, all_ops
from hlo_disc.dynamic_hlo.ops.families.indexing import sort
from hlo_disc.dynamic_hlo.ops.reference import Function, apply_all, bind
from hlo_disc.dynamic_hlo.ops.table import kind

MODES = ("none", "up", "down", "snap", *["random"] * 4)
_UP, _DOWN = 1, 2
_LARGER = 4.0  # noise over the errors that are expected
_EXACT = frozenset(
    "abs negate sign floor ceil round_nearest_afz round_nearest_even not is_finite popcnt count_leading_zeros real "
    "imag complex bitcast_convert and or xor shift_left shift_right_logical shift_right_arithmetic compare select "
    "clamp maximum minimum remainder reduce_precision convert".split()
)
_ROUNDED = frozenset("add subtract multiply divide sqrt".split())
_PARTS = frozenset("real imag complex select compare convert negate".split())  # exact on complex numbers too
_MOVES = ("source", "view", "gather", "assemble", "sort", "control", "host")
_CUT = ("log", "log_plus_one", "sqrt", "rsqrt", "cbrt", "power")  # complex, along the negative real axis
_NEAR_CUT = 1e-3
_INTEGERS = ("bool", "int", "uint")
Runs = list[np.ndarray]  # what each run makes of one value


@dataclass(frozen=True)
class How:
    """The way in which a graph is run. rounding: how many ulps off an add and its like may be."""

    noises: Sequence[Noise]
    rounding: float
    sizes: Mapping[str, int]


def noisy_runs(graph: Graph, arrays: Sequence[np.ndarray], seed: int, rounding: float) -> list[Runs]:
    """Each output, in every run. rounding: see `How`."""
    how = How([Noise(mode, (seed, i)) for i, mode in enumerate(MODES)], rounding, bind(graph, arrays))
    return _scope(graph, [[np.asarray(x)] * len(MODES) for x in arrays], how)


def _scope(scope: Graph | Region, inputs: Sequence[Runs], how: How) -> list[Runs]:
    values = dict(zip(scope.inputs, inputs, strict=True))
    remaining = Counter(value for op in scope.ops for value in op.operands)
    remaining.update(scope.outputs)
    for op in scope.ops:
        operands = [values[value] for value in op.operands]
        made = {"while": _while, "case": _case}.get(op.name, _noisy)(op, operands, how)
        for value in op.operands:
            remaining[value] -= 1
            if not remaining[value]:
                values.pop(value, None)
        values.update((v, x) for v, x in zip(op.results, made, strict=True) if remaining[v])
    return [values[value] for value in scope.outputs]


def _while(op: Op, operands: Sequence[Runs], how: How) -> list[Runs]:
    """Run a loop for all runs together as long as all of them go on, and the rest of it for each run on its own."""
    count = op.attrs["carried"]
    state, captured = list(operands[:count]), list(operands[count:])
    while True:
        (goes_on,) = _scope(op.attrs["cond"], [*state, *captured], how)
        if not all(goes_on):
            break
        state = _scope(op.attrs["body"], [*state, *captured], how)
    return _apart(op, [*state, *captured], how) if any(goes_on) else state


def _case(op: Op, operands: Sequence[Runs], how: How) -> list[Runs]:
    (index, *rest), branches = operands, op.attrs["branches"]
    if any(x != index[0] for x in index):
        return _apart(op, operands, how)
    return _scope(branches[index[0]] if 0 <= index[0] < len(branches) else branches[-1], rest, how)


def _apart(op: Op, operands: Sequence[Runs], how: How) -> list[Runs]:
    """Run each run on its own, without noise inside the op."""
    with np.errstate(all="ignore"):
        return [
            list(runs)
            for runs in zip(*(apply_all(op, row, how.sizes) for row in zip(*operands, strict=True)), strict=True)
        ]


def rounded_values(graph: Graph, rounding: float) -> set[Value]:
    """The values that depend on an op which may round differently."""

    def rounds(op: Op) -> bool:
        return any(ulps(op, rounding)) and any(dtype_class(v.dtype) in ("float", "complex") for v in op.operands)

    found: set[Value] = set()
    for op in graph.ops:
        inside = all_ops([op]) if kind(op) == "control" else [op]
        if any(map(rounds, inside)) or not found.isdisjoint(op.operands):
            found.update(op.results)
    return found


def ulps(op: Op, rounding: float) -> tuple[float, float]:
    """Noise for the operands and for the results of an op, in units of their last place."""
    row = kind(op)
    if row in _MOVES or op.name == "reduce" and op.attrs["kind"] in ("max", "min"):
        return 0.0, 0.0
    narrow = bool(op.operands) and bit_width(op.operands[0].dtype) < 32
    if row == "cumulative":  # the reference rounds at every step
        return 1.0 if narrow else 4.0, 16.0
    if row != "elementwise":
        return 1.0 if narrow else 4.0, 4.0
    if any(v.dtype.kind == "c" for v in op.operands) and op.name not in _PARTS:
        return 16.0, 16.0
    if op.name in _EXACT:
        return 0.0, 0.0
    if narrow:  # computed in f32, and rounded once, which is exact of what IEEE 754 says how to round
        return 0.0, 0.0 if op.name in _ROUNDED else 1.0
    return 0.0, rounding if op.name in _ROUNDED else 8.0


class Noise:
    """The noise of a run: none, all results "up" or "down", to the roundest number nearby ("snap"), or at "random"."""

    def __init__(self, mode: str, seed: tuple[int, int]):
        self.mode, self.random = mode, np.random.default_rng(seed)

    def signs(self, shape: tuple[int, ...]) -> np.ndarray:
        if self.mode in ("up", "down"):
            return np.full(shape, 1.0 if self.mode == "up" else -1.0)
        return np.asarray(self.random.choice((-1.0, 1.0), shape))

    def anything(self, x: np.ndarray) -> np.ndarray:
        """Return arbitrary values, in place of those about which nothing is said."""
        if dtype_class(x.dtype) in _INTEGERS:
            low, high = (0, 1) if x.dtype == bool else int_limits(x.dtype)
            low, high = max(low, -(1 << 62)), min(high, 1 << 62)
            edge = {"up": high, "down": low, "snap": min(high, -1 % (high + 1))}.get(self.mode)
            drawn = self.random.integers(low, high, x.shape, endpoint=True) if edge is None else np.full(x.shape, edge)
            small = self.random.integers(max(low, -4), min(high, 9), x.shape, endpoint=True)
            return np.where(self.random.random(x.shape) < 0.5 * (edge is None), small, drawn).astype(x.dtype)
        size = 100 * np.abs(self.random.standard_normal(x.shape))
        wide = np.full(x.shape, np.nan) if self.mode == "snap" else size * self.signs(x.shape)
        return (wide * (1 + 2j) if x.dtype.kind == "c" else np.asarray(wide)).astype(x.dtype)

    def moved(self, x: np.ndarray, size: Any) -> np.ndarray:
        """Return numbers moved by up to `size`, an absolute error."""
        if x.dtype.kind == "c":
            return joined(self.moved(x.real, size), self.moved(x.imag, size), x.dtype)
        far = self.random.uniform(0, 1, x.shape) if self.mode == "random" else 0.0 if self.mode == "snap" else 1.0
        return np.asarray(x + size * far * self.signs(x.shape)).astype(x.dtype)

    def of_either_sign(self, x: np.ndarray, operands: Sequence[np.ndarray]) -> np.ndarray:
        """Give zeros either sign in an extreme of operands that have zeros of both signs."""
        if dtype_class(x.dtype) != "float":
            return x
        signs = {bool(sign) for y in operands for sign in np.unique(np.signbit(y[y == 0]))}
        return x if len(signs) < 2 else np.asarray(np.where(x == 0, np.copysign(x, self.signs(x.shape)), x), x.dtype)

    def shaken(self, x: np.ndarray, ulps: float) -> np.ndarray:
        """Return numbers that are a little more or less, and zeros and NaN of either sign."""
        if self.mode == "none" or not ulps or dtype_class(x.dtype) not in ("float", "complex"):
            return x
        if x.dtype.kind == "c":
            real, imag = (self.shaken(part, ulps) for part in (x.real, x.imag))
            if self.mode != "snap":  # an error of one part is as large as the whole
                size = ulps * _LARGER * eps(x.dtype) * np.where(np.isfinite(x), np.abs(x), 0.0)
                real, imag = self.moved(real, size), self.moved(imag, size)
            return joined(real, imag, x.dtype)
        narrow, signs = bit_width(x.dtype) < 32, self.signs(x.shape)
        step = ulps * (1 if narrow else _LARGER) * eps(x.dtype)
        wide = x.astype(np.float64)
        if self.mode == "snap":
            fraction, exponent = np.frexp(wide)
            wide = np.where(np.isfinite(wide), np.ldexp(np.rint(fraction / step) * step, exponent), wide)
            return np.asarray(wide).astype(x.dtype)
        if narrow:
            largest = float(ml_dtypes.finfo(x.dtype).max)
            wide = np.where(np.isinf(wide) & (signs != np.sign(wide)), np.copysign(largest, wide), wide)
        else:  # a subnormal number has few digits, and may be zero as well
            subnormal = (np.abs(wide) < tiny(x.dtype)) & (wide != 0)
            wide = np.where(subnormal, wide * self.random.uniform(0, 2, x.shape), wide)
        if not narrow and self.mode == "random":
            step = step * self.random.uniform(0.5, 1, x.shape)
        with np.errstate(over="ignore"):
            off = step * np.where(np.isfinite(wide), np.abs(wide), 0.0) * signs
            moved = np.where((wide == 0) | np.isnan(wide), np.copysign(wide, signs), wide + off)
            return np.asarray(moved).astype(x.dtype)


def _is_extreme(op: Op) -> bool:
    return op.name in ("maximum", "minimum", "clamp") or (op.name == "reduce" and op.attrs["kind"] in ("max", "min"))


def _noisy(op: Op, operands: Sequence[Runs], how: How) -> list[Runs]:
    """The results of an op without regions that run as programs do."""
    noises, sizes = how.noises, how.sizes
    into, out = ulps(op, how.rounding)
    rounded = [_differ(runs) for runs in operands]
    runs = [[n.shaken(runs[i], into) for runs in operands] for i, n in enumerate(noises)]
    moved: np.ndarray | bool = False
    with np.errstate(all="ignore"):
        if any(rounded) and op.name in ("sort", "reduce_with"):
            _exchange_neighbours(op, runs)
        made = [apply_all(op, row, sizes) for row in runs]
        if any(rounded) and kind(op) in ("elementwise", "dot") and _is_real(op):
            made[_UP][0], made[_DOWN][0] = _ends(op, runs, made[0][0], sizes)
        if any(rounded) and op.name == "sort":  # what changes places in some run could be any of its neighbours
            orders = [_order(op, row, sizes) for row in runs]
            moved = np.any([order != orders[0] for order in orders], axis=0) | _may_move(op, runs, orders[0])
        # a key is about as large whoever has its place
        jumps = (
            [~np.all([_near(x, xs[0]) for x in xs], axis=0) for xs in zip(*made, strict=True)] if np.any(moved) else []
        )
        for n, row, results in zip(noises[1:], runs[1:], made[1:], strict=True):
            for i, x in enumerate(results):
                x = n.shaken(x, out) if op.name != "fft" else n.moved(x, 4 * eps(x.dtype) * _largest(x))
                x = n.of_either_sign(x, row) if _is_extreme(op) else x
                unsaid = _unsaid(op, row, x, rounded) | (moved & jumps[i] if jumps else False)
                results[i] = np.where(unsaid, n.anything(x), x)
    return [list(results) for results in zip(*made, strict=True)]


def _differ(runs: Runs) -> bool:
    """Return whether a value is more or less in some run."""
    first = runs[0]
    return any(x is not first and not bool(np.all((x == first) | ((x != x) & (first != first)))) for x in runs[1:])


def _is_real(op: Op) -> bool:
    return not any(v.dtype.kind == "c" for v in (*op.operands, *op.results))


def _ends(
    op: Op, runs: Sequence[Sequence[np.ndarray]], base: np.ndarray, sizes: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the most and the least that an op makes of the most and the least of its operands.

    Where some results are NaN and others not, they are what `base`, the result without noise, is not.
    """
    ends = {v: _candidates(x, y) for v, x, y in zip(op.operands, runs[_UP], runs[_DOWN], strict=True)}
    places = [list(ends).index(v) for v in op.operands]
    rows = ([corner[place] for place in places] for corner in itertools.product(*ends.values()))
    corners = [base, *(apply_all(op, row, sizes)[0] for row in rows)]
    if op.name == "compare" and len(ends) == 2:  # what may lie on either side may be equal
        (x_most, y_most), (x_least, y_least) = runs[_UP], runs[_DOWN]
        is_open = ((x_most != x_least) | (y_most != y_least)) & (x_most >= y_least) & (y_most >= x_least)
        corners.append(np.where(is_open, ~base, base))
    is_nan = base != base
    most = functools.reduce(lambda x, y: np.where((x > y) | np.where(is_nan, y != y, x != x), x, y), corners)
    least = functools.reduce(lambda x, y: np.where((x < y) | np.where(is_nan, y != y, x != x), x, y), corners)
    return np.asarray(most), np.asarray(least)


def _candidates(most: np.ndarray, least: np.ndarray) -> list[np.ndarray]:
    """Return the values of an operand to look at: the ends and, between them, 0 and, among integers, ±1."""
    if (most == least).all():
        return [most]
    small = {"float": (0,), "int": (0, 1, -1), "uint": (0, 1)}.get(dtype_class(most.dtype), ())
    inside = [(least < np.array(x).astype(most.dtype)) & (most > np.array(x).astype(most.dtype)) for x in small]
    return [
        most,
        least,
        *(np.where(i, x, most).astype(most.dtype) for i, x in zip(inside, small, strict=True) if i.any()),
    ]


def _exchange_neighbours(op: Op, runs: Sequence[list[np.ndarray]]) -> None:
    """Exchange the first with the second, or the second with the third, for an op that looks for an order."""
    dims = (op.attrs["dim"],) if op.name == "sort" else op.attrs["dims"]
    for i, x in enumerate(runs[0]):
        if x.ndim and dtype_class(x.dtype) == "float":
            up, down, even = runs[_UP][i], runs[_DOWN][i], _is_even(x, dims)
            runs[_UP][i], runs[_DOWN][i] = np.where(even, up, down), np.where(even, down, up)


def _is_even(x: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    """Return whether the place of an element in the order of x along dims is an even number."""
    last = np.moveaxis(x, dims, range(-len(dims), 0))
    order = np.argsort(last.reshape((*last.shape[: x.ndim - len(dims)], math.prod(last.shape[x.ndim - len(dims) :]))))
    return np.moveaxis((np.argsort(order) % 2 == 0).reshape(last.shape), range(-len(dims), 0), dims)


def _order(op: Op, operands: Sequence[np.ndarray], sizes: Mapping[str, int]) -> np.ndarray:
    """Return the index, along its dim, from which each element of a sort's results comes."""
    count, dim = op.attrs["count"], op.attrs["dim"]
    body = Function(op.attrs["body"], sizes)
    numbers = np.indices(operands[0].shape)[dim]

    def compare(*pairs: np.ndarray) -> Runs:
        return body(*pairs[: 2 * count], *pairs[2 * count + 2 :])

    arrays = *operands[:count], numbers, *operands[count:]
    return sort(*arrays, dim=dim, stable=True, count=count + 1, body=compare)[-1]


def _may_move(op: Op, runs: Sequence[Sequence[np.ndarray]], order: np.ndarray) -> np.ndarray:
    """Return the places, in a sort by one operand, of elements that may be as large as others. Equal elements stay."""
    found, dim = np.zeros(order.shape, bool), op.attrs["dim"]
    for base, up, down in zip(runs[0], runs[_UP], runs[_DOWN], strict=True):
        if base.shape != order.shape or dtype_class(base.dtype) != "float" or not order.size:
            continue
        ends = [np.take_along_axis(wide(x), order, dim) for x in (base, up, down)]
        for sign in (1.0, -1.0):
            keys, *others = (np.moveaxis(np.where(np.isnan(x), np.inf, sign * x), dim, -1) for x in ends)
            if (keys[..., 1:] >= keys[..., :-1]).all():
                least, most = np.minimum(*others), np.maximum(*others)
                apart = least[..., 1:] > np.maximum.accumulate(most, -1)[..., :-1]
                group = np.concatenate([np.zeros((*apart.shape[:-1], 1), int), np.cumsum(apart, -1)], -1)
                rows, sizes, wide_ones = np.indices(group.shape)[:-1], np.zeros_like(group), np.zeros_like(group)
                np.add.at(sizes, (*rows, group), 1)
                np.add.at(wide_ones, (*rows, group), least != most)
                is_open = (sizes > 1) & (wide_ones > 0)
                found |= np.moveaxis(np.take_along_axis(is_open, group, -1), -1, dim)
    return found


def _unsaid(op: Op, operands: Sequence[np.ndarray], result: np.ndarray, rounded: Sequence[bool]) -> np.ndarray:
    """Return where the result of an op is not specified."""
    if kind(op) == "call" and not all(np.isfinite(x).all() for x in operands):
        return np.ones(result.shape, bool)
    if op.name == "convolution":  # padding may be multiplied, or left out
        return ~np.isfinite(result)
    if op.name == "power" and rounded[1] and dtype_class(result.dtype) == "float":  # is the exponent whole?
        return operands[0] < 0
    if op.name in ("sine", "cosine", "tan") and any(rounded) and operands[0].dtype.kind != "c":
        return 16 * eps(result.dtype) * np.abs(wide(operands[0])) > 1
    if op.name == "atan2" and result.dtype.kind == "c":  # the sign of a zero says on which side of a cut it lies
        cut = np.abs(np.abs(result.real) - np.pi) < _NEAR_CUT if any(rounded) else False
        return (operands[0] == 0) | ~np.isfinite(operands[0] + operands[1]) | cut
    if op.name in _CUT and result.dtype.kind == "c" and rounded[0]:
        x = operands[0] + (op.name == "log_plus_one")
        return (x.real <= 0) & (np.abs(x.imag) <= _NEAR_CUT * np.abs(x.real)) | ~np.isfinite(x) | np.isnan(result)
    if op.name == "bitcast_convert":  # the sign of NaN
        x = operands[0]
        return np.full(result.shape, dtype_class(x.dtype) == "float" and bool(np.isnan(x).any()))
    if op.name == "remainder" and any(rounded) and dtype_class(result.dtype) == "float":
        x, y = (np.abs(wide(v)) for v in operands)
        return 16 * eps(result.dtype) * x > y
    if kind(op) == "elementwise" and op.name not in _PARTS and any(x.dtype.kind == "c" for x in operands):
        return np.any([~np.isfinite(x) for x in operands if x.dtype.kind == "c"], axis=0) | np.isnan(result)
    return np.zeros(result.shape, bool)


def _near(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return whether floats differ by rounding at most."""
    if dtype_class(x.dtype) in _INTEGERS:
        return np.zeros(x.shape, bool)
    return np.isclose(wide(x), wide(y), 64 * eps(x.dtype), 0.0, equal_nan=True)


def _largest(x: np.ndarray) -> float:
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def joined(real: np.ndarray, imag: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The complex numbers with these parts."""
    x = np.empty(real.shape, dtype)
    x.real, x.imag = real, imag
    return x


def wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind == "c" or x.dtype == np.float64 else x.astype(np.float64)


def tiny(dtype: np.dtype) -> float:
    """Return the number below which numbers are subnormal, and may be zero as well."""
    return float(ml_dtypes.finfo(part_dtype(dtype)).tiny)


def eps(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(part_dtype(dtype)).eps)
