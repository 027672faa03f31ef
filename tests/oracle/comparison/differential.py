"""Ours against the numpy reference and XLA, with a tolerance that follows from the program.

The reference runs several times with noise larger than the rounding errors that ops make (`noise.py`). Where the noise
shows, a result may differ by as much; where it changes everything (a comparison that flips, a sum that cancels),
nothing is said about that element. Where no op rounds, results must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jax.errors import JaxRuntimeError

from comparison.by_xla import run_stablehlo
from comparison.noise import eps, noisy_runs, rounded_values, tiny, wide
from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, dtype_class, int_limits
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value, all_ops
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.executable import Executable
from hlo_disc.mlir import ir
from hlo_disc.options import Options
from hlo_disc.pipeline import compile as compile_graph

_FACTOR = 2.0  # the noise that was seen is less than the worst


# Sizes of b and s: none, one, around the width of vectors, long. The index is the seed of the inputs.
SIZES = ((4, 3), (0, 3), (1, 1), (2, 33), (3, 0), (257, 2), (7, 32), (16, 17))


class Mismatch(AssertionError):
    """A wrong result, at `SIZES[number]`."""

    def __init__(self, number: int, message: str):
        b, s = SIZES[number]
        super().__init__(f"b = {b}, s = {s}, inputs of seed {number}: {message}")
        self.number = number


def check(graph: Graph, numbers: Sequence[int] = range(len(SIZES)), with_xla: bool = False) -> None:
    """Compile once and run at every size, or at some of `SIZES` by number. Raises Mismatch.

    with_xla: hold XLA's results against the reference too, which tests the reference.
    """
    options = replace(Options.from_env(), threads=2)
    executable = Executable(compile_graph(graph, options))
    called = on_a_gpu if options.target.startswith("emulated-") and in_tensors(graph) else on_the_cpu
    for number in numbers:
        arrays = inputs(graph, dict(zip("bs", SIZES[number], strict=True)), number)
        _compare("", called(executable, arrays, number % 4), bands(graph, arrays, number), number)
        if with_xla and (results := _by_xla(graph, arrays)) is not None:
            _compare("XLA: ", results, bands(graph, arrays, number, rounding=1.0), number)


def on_the_cpu(executable: Executable, arrays: Sequence[np.ndarray], offset: int) -> Sequence[np.ndarray]:
    """Return the results for arguments that begin so many elements behind a multiple of 64 bytes."""
    moved = []
    for x in arrays:
        memory = np.zeros(x.nbytes + offset * x.itemsize + 64, np.uint8)
        start = -memory.ctypes.data % 64 + offset * x.itemsize
        moved.append(memory[start : start + x.nbytes].view(x.dtype).reshape(x.shape))
        moved[-1][...] = x
    return executable.native(*moved)


def in_tensors(graph: Graph) -> bool:
    """Return whether DLPack has the types of the results, so that they can be read from a GPU."""
    import frameworks

    return all(frameworks.has(v.dtype) for v in graph.outputs)


def on_a_gpu(executable: Executable, arrays: Sequence[np.ndarray], offset: int) -> Sequence[np.ndarray]:
    """Return the results for arguments in the memory of an emulated GPU, where DLPack has their type."""
    import frameworks

    framework = frameworks.Framework(1, frameworks.KINDS[executable.program.target])
    given = [framework.put(x, offset=offset * x.itemsize) if frameworks.has(x.dtype) else x for x in arrays]
    results = executable.native(*given)
    found = [x if isinstance(x, np.ndarray) else frameworks.Taken(framework, x, None).copy() for x in results]
    del given, results
    framework.close()
    return found


def _by_xla(graph: Graph, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """XLA's outputs; None for what XLA does not take, or takes for something else."""
    casts = (op for op in all_ops(graph.ops) if op.name == "bitcast_convert")
    if any(BOOL in (op.operands[0].dtype, op.result.dtype) for op in casts):  # to XLA a bool has 8 bits
        return None
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
    """The band of one output: its expected values, how far it may be off, and where any value is right."""

    want: np.ndarray
    tolerance: np.ndarray
    free: np.ndarray


def bands(graph: Graph, arrays: Sequence[np.ndarray], seed: int = 0, rounding: float = 0.0) -> list[Band]:
    """Return the outputs' bands. rounding: how many ulps off an add and its like may be, as XLA contracts products."""
    rounded = rounded_values(graph, rounding)
    bits = _bits(graph, rounded)
    outputs = zip(graph.outputs, noisy_runs(graph, arrays, seed, rounding), strict=True)
    return [_band(want, others, value in rounded, value in bits) for value, (want, *others) in outputs]


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
        base = wide(want)
        free, tolerance = np.zeros(want.shape, bool), np.zeros(want.shape)
        for x in map(wide, runs):
            both = np.isfinite(x) & np.isfinite(base)
            free = free | ~(both | _same(x, base))
            tolerance = np.maximum(tolerance, np.where(both, np.abs(x - base), 0.0))
        # Half of what there is: nothing is left to compare.
        free = free | (_FACTOR * tolerance > 0.5 * np.abs(base)) & (tolerance > tiny(want.dtype))
        # The noise of a few runs may happen to be small.
        size = np.where(np.isfinite(base), np.abs(base), 0.0)
        if want.dtype.kind == "c":  # the formulas of complex functions cancel
            size = 2 * np.maximum(size, 1.0)
        least = size * eps(want.dtype) * (8 if want.dtype.itemsize > 2 else 1)
        return Band(want, _FACTOR * tolerance + least + tiny(want.dtype) if rounded else 0.0 * tolerance, free)


def wrong(got: np.ndarray, band: Band) -> str:
    """Return what is wrong with one output, "" when nothing is."""
    want = band.want
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"got {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    with np.errstate(all="ignore"):
        if dtype_class(want.dtype) in ("bool", "int", "uint"):
            bad = got != want
        else:
            x, y = wide(got), wide(want)
            bad = ~(_same(x, y) | (np.abs(x - y) <= band.tolerance))
    bad = np.asarray(bad) & ~band.free
    if not bad.any():
        return ""
    at = tuple(map(int, np.argwhere(bad)[0]))
    return (
        f"{int(bad.sum())} of {got.size} differ; at {list(at)} {got[at]!r}, not {want[at]!r} ± {band.tolerance[at]:.2g}"
    )


def _same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        # How an infinite complex number splits into parts is not said of most ops.
        return (x == y) | (~np.isfinite(x) & ~np.isfinite(y))
    return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))


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
