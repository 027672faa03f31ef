"""The parts of the benchmark. Each yields rows: what was run, hlo_disc's figure, jax.jit's, and what must hold."""

from __future__ import annotations

import dataclasses
import functools
import random
import statistics
import time
import unittest.mock
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_disc
from benchmarks import cases
from benchmarks.cases import Family
from benchmarks.indexing import INDEXING
from benchmarks.measure import Pair, alternate, elapsed, error, first_call, float64, per_call
from hlo_disc.import_.handlers import HANDLERS
from hlo_disc.limits import Limits


@dataclass(frozen=True)
class Row:
    """One line of the result.

    ours, theirs: hlo_disc's figure and jax.jit's, in `unit`. value: what `bound` ("≥ 1.05") is about, mostly a ratio.
    fraction: how much of the machine's limit hlo_disc reaches.
    """

    section: str
    case: str
    ours: float
    theirs: float | None
    unit: str
    value: float
    bound: str = ""
    fraction: float | None = None

    @property
    def met(self) -> bool | None:
        if not self.bound:
            return None
        relation, limit = self.bound.split()
        return self.value >= float(limit) if relation == "≥" else self.value <= float(limit)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


@dataclass
class Bench:
    """What the sections share. budget: seconds of turns a shape."""

    limits: Limits
    quick: bool
    budget: float

    def __post_init__(self) -> None:
        self._params: dict[Any, Any] = {}

    def params(self, family: Family) -> tuple[Any, ...]:
        """The weights of a family as leading arguments."""
        if family.params is None:
            return ()
        if family.params not in self._params:
            self._params[family.params] = family.params()
        return (self._params[family.params],)

    def arguments(self, family: Family, *sizes: int, **named: int) -> tuple[Any, ...]:
        return self.params(family) + tuple(family.inputs(*sizes, **named))


def compiled(family: Family) -> hlo_disc.JitFunction:
    return hlo_disc.jit(family.fn, dims=family.dims)


def fresh(family: Family) -> Any:
    """A `jax.jit` that has compiled nothing yet: a new function object each time."""
    return jax.jit(lambda *args: family.fn(*args))


def warm_up() -> None:
    """Loads both compilers, so that the first model does not pay for that."""
    x = np.ones(8, np.float32)
    hlo_disc.jit(lambda x: jnp.tanh(x) + 1, dims={"x": "(n)"})(x)
    jax.block_until_ready(jax.jit(lambda x: jnp.tanh(x) + 1)(x))


def versus(bench: Bench, family: Family, ours: Any, sizes: Any) -> tuple[Pair, float, float]:
    """Steady state at one shape: the two medians, the limit's seconds, and how long XLA took to compile it."""
    args = bench.arguments(family, **sizes) if isinstance(sizes, dict) else bench.arguments(family, *sizes)
    theirs = fresh(family)
    cold = first_call(lambda: theirs(*args))
    jax.block_until_ready(ours(*args))
    pair = alternate(lambda: ours(*args), lambda: theirs(*args), bench.budget)
    work = family.work(**sizes) if isinstance(sizes, dict) else family.work(*sizes)
    return pair, bench.limits.seconds(*work), cold - pair.theirs


def models(bench: Bench) -> Iterator[Row]:
    """Steady state of the models, and what compiling them costs."""
    for family, shapes in cases.model_shapes(bench.quick):
        ours = compiled(family)
        first = bench.arguments(family, *shapes[0])
        cold = first_call(functools.partial(ours, *first))
        ratios, compile_times = [], []
        bound = {"BERT-base": "≥ 1.05", "GPT-2 decode": "≥ 1.0"}.get(family.name, "")
        for i, shape in enumerate(shapes):
            pair, limit, theirs_cold = versus(bench, family, ours, shape)
            if i == 0:
                cold -= pair.ours
            ratios.append(pair.ratio)
            compile_times.append(theirs_cold)
            yield row("models", f"{family.name} {shape}", pair, limit, bound)
        yield Row(
            "models", f"{family.name} geometric mean", 0, None, "", geometric(ratios), "≥ 1.25" * (family is cases.BERT)
        )
        theirs_cold = statistics.median(compile_times)
        bound = "≤ 0.6" if family is cases.BERT else ""
        yield Row("compile", f"{family.name}, cold", cold, theirs_cold, "s", cold / theirs_cold, bound)
        yield Row("compile", f"{family.name}, compilations", ours.stats().compilations, len(shapes), "", 1)


def row(section: str, case: str, pair: Pair, limit: float, bound: str) -> Row:
    return Row(section, case, 1e3 * pair.ours, 1e3 * pair.theirs, "ms", pair.ratio, bound, limit / pair.ours)


def geometric(ratios: list[float]) -> float:
    return statistics.geometric_mean(ratios)


def kernels(bench: Bench) -> Iterator[Row]:
    """Steady state of the kernels."""
    ratios = []
    for family, shapes in cases.kernel_families():
        ours = compiled(family)
        for sizes in shapes:
            pair, limit, _ = versus(bench, family, ours, sizes)
            ratios.append(pair.ratio)
            yield row("kernels", f"{family.name} {tuple(sizes.values())}", pair, limit, "≥ 1.0")
    yield Row("kernels", "geometric mean", 0, None, "", geometric(ratios), "≥ 1.6")


def indexing(bench: Bench) -> Iterator[Row]:
    """Steady state of sorts, gathers and scatters."""
    for family, shapes in cases.kernel_families(INDEXING):
        ours = compiled(family)
        for sizes in shapes:
            pair, limit, _ = versus(bench, family, ours, sizes)
            yield row("indexing", f"{family.name} {tuple(sizes.values())}", pair, limit, "≥ 0.8")


def programs(bench: Bench) -> Iterator[Row]:
    """Steady state of images, training, and programs with control flow."""
    for family, shapes, bound in cases.program_shapes(bench.quick):
        ours = compiled(family)
        for shape in shapes:
            pair, limit, _ = versus(bench, family, ours, shape)
            yield row("programs", f"{family.name} {shape}", pair, limit, bound)


def gradients(bench: Bench) -> Iterator[Row]:
    """A training step: a compiled loss, differentiated in a `jax.jit` of the step, and the whole step compiled."""
    ratios: dict[str, list[float]] = {}
    for family, shapes in cases.gradient_shapes(bench.quick):
        loss = _loss(family.fn)
        inner = hlo_disc.jit(loss)
        ways = {"inside jax.jit": jax.jit(_step(inner)), "whole": hlo_disc.jit(_step(loss))}
        for shape in shapes:
            args = bench.arguments(family, *shape)
            theirs = jax.jit(_step(loss))
            jax.block_until_ready([call(*args) for call in (theirs, *ways.values())])
            limit = bench.limits.seconds(*(3 * cost for cost in family.work(*shape)))
            for way, ours in ways.items():
                pair = alternate(functools.partial(ours, *args), functools.partial(theirs, *args), bench.budget)
                ratios.setdefault(way, []).append(pair.ratio)
                yield row("gradients", f"{family.name} {shape}, {way}", pair, limit, "")
        count = inner.stats().compilations
        yield Row("gradients", f"{family.name}, compilations", count, None, "", count, "≤ 4")
    for way, found in ratios.items():
        yield Row("gradients", f"geometric mean, {way}", 0, None, "", geometric(found), "≥ 1.1")


# What is less is no error.
_ROUNDING = float(np.finfo(np.float32).eps)


def slopes(bench: Bench) -> Iterator[Row]:
    """Errors of gradients through a compiled loss against float64, next to XLA's, and how many programs they take."""
    for family, shapes in cases.DIFFERENTIATED:
        loss = _loss(family.fn)
        inner = hlo_disc.jit(loss)
        for shape in shapes[:2] if bench.quick else shapes:
            args = bench.arguments(family, *shape)
            reference = _all(float64(jax.value_and_grad(loss), args))
            results = (jax.value_and_grad(inner)(*args), jax.jit(jax.value_and_grad(loss))(*args))
            ours, theirs = (error(_all(result), reference) for result in results)
            ratio = max(ours, _ROUNDING) / max(theirs, _ROUNDING)
            yield Row("slopes", f"{family.name} {shape}", ours, theirs, "error", ratio, "≤ 2")
        records = inner.stats().records
        for name, backward in (("forward", False), ("backward", True)):
            count = sum(record.backward is backward for record in records)
            yield Row("slopes", f"{family.name}, compilations {name}", count, len(shapes), "", count, "≤ 2")


def _all(value_and_slopes: Any) -> np.ndarray:
    """As one array, whose largest value is the scale of all errors: some slopes are zero but for rounding."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(value_and_slopes)])


def _step(loss: Any) -> Any:
    """One of gradient descent."""

    def step(params: Any, *inputs: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, *inputs)
        return value, jax.tree.map(lambda p, slope: p - 1e-3 * slope, params, slopes)

    return step


def _loss(fn: Any) -> Any:
    """The mean square of all floats that a function returns."""

    def loss(*args: Any) -> jax.Array:
        floats = [x for x in jax.tree.leaves(fn(*args)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.mean(jnp.square(x.astype(jnp.float32))) for x in floats)

    return loss


def closed_over(bench: Bench) -> Family:
    """BERT with its weights as constants of the function: the other way that users have of passing them."""
    params = bench.params(cases.BERT)
    return dataclasses.replace(cases.BERT, name="BERT-base, closed over", fn=_bind(cases.BERT.fn, params), params=None)


def _bind(fn: Any, params: tuple[Any, ...]) -> Any:
    return lambda ids, mask: fn(*params, ids, mask)


def constants(bench: Bench) -> Iterator[Row]:
    """What compiling costs when the weights are constants."""
    family = closed_over(bench)
    args = bench.arguments(family, 1, 17)
    costs = []
    for call in (compiled(family), fresh(family)):
        cold = first_call(functools.partial(call, *args))
        costs.append(cold - elapsed(functools.partial(call, *args)))
    yield Row("compile", f"{family.name}, cold", costs[0], costs[1], "s", costs[0] / costs[1], "≤ 0.6")


def targets(bench: Bench) -> Iterator[Row]:
    """What compiling for a GPU costs next to compiling for the CPU, with tracing and without: medians of turns."""
    shapes = jax.eval_shape(lambda: bench.arguments(cases.BERT, 1, 17))
    seconds: dict[str, list[tuple[float, float]]] = {"cpu": [], "cuda": []}
    for _ in range(3 if bench.quick else 7):
        for target, times in seconds.items():
            start = time.perf_counter()
            lowered = hlo_disc.jit(cases.BERT.fn, dims=cases.BERT.dims, target=target).lower(*shapes)
            traced = time.perf_counter()
            lowered.compile()
            end = time.perf_counter()
            times.append((end - start, end - traced))
    for number, how in enumerate(("traced and compiled", "compiled")):
        cpu, gpu = (statistics.median(times[number] for times in taken) for taken in seconds.values())
        case = f"BERT-base {how} for a GPU; value: to the CPU"
        yield Row("targets", case, gpu, None, "s", gpu / cpu, "" if number else "≤ 2.5")


def stream(bench: Bench) -> Iterator[Row]:
    """40 distinct BERT shapes one after the other, compilation and all."""
    shapes = cases.stream(40)
    for family in (cases.BERT, closed_over(bench)):
        inputs = [bench.arguments(family, *shape) for shape in shapes]
        ours_total = run_all(compiled(family), inputs)
        sample = inputs[::8] if bench.quick else inputs
        theirs_total = run_all(fresh(family), sample) * len(inputs) / len(sample)
        note = f", jax.jit extrapolated from {len(sample)}" if len(sample) < len(inputs) else ""
        case = f"{family.name}, {len(inputs)} shapes{note}"
        yield Row("stream", case, ours_total, theirs_total, "s", theirs_total / ours_total, "≥ 15")


def run_all(call: Any, inputs: list[tuple[Any, ...]]) -> float:
    """Seconds for all inputs one after the other."""
    return elapsed(lambda: [jax.block_until_ready(call(*args)) for args in inputs])


def recompilations(bench: Bench) -> Iterator[Row]:
    """30 random (batch, length) pairs after the first call: nothing may be compiled."""
    pick = random.Random(3)
    for family in (cases.BERT, cases.PREFILL, cases.DECODE):
        ours = compiled(family)
        ours(*bench.arguments(family, 2, 9))
        first = ours.stats().compilations
        for _ in range(10 if bench.quick else 30):
            jax.block_until_ready(ours(*bench.arguments(family, pick.randint(1, 4), pick.randint(1, 40))))
        again = ours.stats().compilations - first
        yield Row("recompilations", f"{family.name}, random shapes", again, None, "", again, "≤ 0")


def memory(bench: Bench) -> Iterator[Row]:
    """Peak temporary memory of BERT at (4, 128)."""
    args = bench.arguments(cases.BERT, 4, 128)
    ours = compiled(cases.BERT).lower(*args).compile().memory(b=4, s=128).temporary / 2**20
    theirs = fresh(cases.BERT).lower(*args).compile().memory_analysis().temp_size_in_bytes / 2**20
    yield Row("memory", "BERT (4, 128), temporary", ours, theirs, "MiB", ours / theirs, "≤ 1.1")


def overhead(bench: Bench) -> Iterator[Row]:
    """What a call costs that has almost nothing to do."""
    x = jnp.ones(8, jnp.float32)
    ours, theirs = hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"}), jax.jit(lambda x: x + 1)
    jax.block_until_ready((ours(x), theirs(x)))
    pair = Pair(per_call(lambda: ours(x)), per_call(lambda: theirs(x)))
    yield Row("overhead", "x + 1 on f32[8], eager", 1e6 * pair.ours, 1e6 * pair.theirs, "µs", 1e6 * pair.ours, "≤ 12")

    arrays = [x + i for i in range(300)]
    for used, fn in (("all used", lambda xs: sum(xs)), ("one used", lambda xs: xs[0] + 1)):
        ours300, theirs300 = hlo_disc.jit(fn), jax.jit(fn)
        jax.block_until_ready((ours300(arrays), ours300(arrays), theirs300(arrays)))
        pair = Pair(*(per_call(functools.partial(call, arrays), 200) for call in (ours300, theirs300)))
        what = f"300 arrays of f32[8], {used}, eager"
        yield Row("overhead", what, 1e6 * pair.ours, 1e6 * pair.theirs, "µs", pair.ours / pair.theirs, "≤ 1")

    for leaves in (1, 100, 300):
        pair = fallen_back(leaves)
        name = f"what runs through jax.jit, {leaves} {'leaf' if leaves == 1 else 'leaves'}"
        yield Row("overhead", name, 1e6 * pair.ours, 1e6 * pair.theirs, "µs", 1 / pair.ratio, "≤ 1.1")

    def chain(count: int) -> Any:
        def chained(x):
            for _ in range(count):
                x = ours(x)
            return x

        return jax.jit(chained)

    count = 100
    short, long = chain(1), chain(1 + count)
    jax.block_until_ready((short(x), long(x)))
    cost = (per_call(lambda: long(x)) - per_call(lambda: short(x))) / count
    yield Row("overhead", f"x + 1, {count} chained in jax.jit, each", 1e6 * cost, None, "µs", 1e6 * cost, "≤ 0.5")


def fallen_back(leaves: int, turns: int = 40) -> Pair:
    """A call of a function that cannot be compiled, for want of an op; the best of turns."""
    tree = jnp.ones(8) if leaves == 1 else {f"leaf{k}": jnp.ones(8) for k in range(leaves)}
    with warnings.catch_warnings(), unittest.mock.patch.dict(HANDLERS):
        warnings.simplefilter("ignore", hlo_disc.FallbackWarning)
        del HANDLERS["stablehlo.cosine"]
        calls = [functools.partial(jit(lambda t: jax.tree.map(jnp.cos, t)), tree) for jit in (hlo_disc.jit, jax.jit)]
        jax.block_until_ready([call() for call in calls])
    return Pair(*map(min, zip(*([per_call(call, 10, 1) for call in calls] for _ in range(turns)), strict=True)))


def accuracy(bench: Bench) -> Iterator[Row]:
    """Error against float64, next to XLA's; the programs at several shapes, from one executable."""
    chosen: list[tuple[Family, list[Any]]] = [(cases.BERT, [(2, 77)]), (cases.PREFILL, [(2, 33)])]
    chosen += [(cases.DECODE, [(2, 40)]), (cases.MLP, [(33,)])]
    chosen += [(family, shapes[-1:]) for family, shapes in cases.kernel_families()]
    chosen += [(family, shapes[:2] if bench.quick else shapes) for family, shapes in cases.ACCURACY]
    for family, shapes in chosen:
        function = compiled(family)
        for sizes in shapes:
            args = bench.arguments(family, **sizes) if isinstance(sizes, dict) else bench.arguments(family, *sizes)
            reference = float64(family.fn, args)
            ours, theirs = error(function(*args), reference), error(fresh(family)(*args), reference)
            shown = tuple(sizes.values()) if isinstance(sizes, dict) else sizes
            ratio = ours / theirs if theirs else 1.0
            yield Row("accuracy", f"{family.name} {shown}", ours, theirs, "error", ratio, "≤ 2")
        if len(shapes) > 1:
            count = function.stats().compilations
            yield Row("accuracy", f"{family.name}, compilations", count, len(shapes), "", count, "≤ 1")


SECTIONS = {
    "models": models,
    "constants": constants,
    "targets": targets,
    "kernels": kernels,
    "indexing": indexing,
    "programs": programs,
    "gradients": gradients,
    "slopes": slopes,
    "memory": memory,
    "overhead": overhead,
    "accuracy": accuracy,
    "recompilations": recompilations,
    "stream": stream,
}
