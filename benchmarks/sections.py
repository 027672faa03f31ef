"""The parts of the benchmark. Each yields rows: what was run, hlo_disc's figure, jax.jit's, and what must hold."""

from __future__ import annotations

import functools
import gc
import statistics
import time
import unittest.mock
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import hlo_disc
from benchmarks import in_jax
from benchmarks.cost import least_work
from benchmarks.measure import per_call
from benchmarks.program import Program, named, programs
from benchmarks.programs import bert, training
from benchmarks.programs.kernels import MEMORY_BOUND, no_weights
from hlo_disc.benchmark.cost import Work
from hlo_disc.benchmark.result import Row as Measured
from hlo_disc.benchmark.run import error, measured
from hlo_disc.benchmark.subjects import Case
from hlo_disc.benchmark.turns import elapsed
from hlo_disc.import_.handlers import HANDLERS
from hlo_disc.profile.limits import Limits

BERT, PREFILL, DECODE = map(named, ("BERT-base", "GPT-2 prefill", "GPT-2 decode"))
RESNET, TRAINING, LSTM = map(named, ("ResNet-50", "MLP training step", "LSTM"))
MLP, SMALL_BERT = training.MLP, bert.SMALL
MODELS = ((BERT, "≥ 1.05"), (PREFILL, ""), (DECODE, "≥ 1.0"), (MLP, ""))
Sizes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Row:
    """A line of the result.

    ours, theirs: hlo_disc's figure and jax.jit's, in `unit`. value: the number that `bound` ("≥ 1.05") limits, mostly a
    ratio. fraction: the fraction of the machine's limit that hlo_disc reaches.
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
    """The state that sections share. budget: the seconds of turns at each shape."""

    limits: Limits
    quick: bool
    budget: float

    def __post_init__(self) -> None:
        self._weights: dict[Any, Any] = {}

    def arguments(self, program: Program, sizes: Mapping[str, int]) -> tuple[Any, list[Any]]:
        """Return weights and inputs, in the first type that the program is for."""
        dtype = program.dtypes[0]
        key = program.weights, dtype
        if key not in self._weights:
            self._weights[key] = in_jax.weights(program, dtype)
        return self._weights[key], in_jax.inputs(program, sizes, dtype)

    def picked(self, shapes: Sequence[Mapping[str, int]]) -> Sequence[Mapping[str, int]]:
        return shapes[:: max(len(shapes) // 2, 1)] if self.quick else shapes

    def versus(self, sizes: Mapping[str, int], args: Any, ours: Any, theirs: Any, work: Work) -> Measured:
        """Return the times of both at one shape, after their first calls, whose results are compared."""
        case = Case(sizes, functools.partial(ours, *args), functools.partial(theirs, *args), work)
        found, notes = measured(case, self.limits, self.budget, lambda text: None)
        if found.wrong:
            warnings.warn("; ".join(notes), stacklevel=2)
        return found

    def steady(self, program: Program, shapes: Sequence[Mapping[str, int]], ours: Any = None) -> Iterator[Measured]:
        """Yield steady-state times at each shape. hlo_disc compiles once, jax.jit for each shape."""
        ours, work = ours or in_jax.compiled(program), least_work(program, program.dtypes[0])
        for sizes in shapes:
            theirs = jax.jit(in_jax.function(program))
            yield self.versus(sizes, self.arguments(program, sizes), ours, theirs, work(sizes))


def warm_up() -> None:
    """Load both compilers, so that the first model does not pay for that."""
    x = np.ones(8, np.float32)
    hlo_disc.jit(lambda x: jnp.tanh(x) + 1, dims={"x": "(n)"})(x)
    jax.block_until_ready(jax.jit(lambda x: jnp.tanh(x) + 1)(x))


def models(bench: Bench) -> Iterator[Row]:
    """Yield steady-state times of the models, and the cost of compiling them."""
    for program, bound in MODELS:
        found, ours = [], in_jax.compiled(program)
        for one in bench.steady(program, bench.picked(program.shapes), ours):
            found.append(one)
            yield row("models", program, one, bound)
        mean = geometric(found)
        yield Row("models", f"{program.name} geometric mean", 0, None, "", mean, "≥ 1.25" * (program is BERT))
        cold = found[0].ours.first - found[0].ours.median
        theirs_cold = statistics.median(one.theirs.first - one.theirs.median for one in found if one.theirs)
        bound = "≤ 0.6" if program is BERT else ""
        yield Row("compile", f"{program.name}, cold", cold, theirs_cold, "s", cold / theirs_cold, bound)
        yield Row("compile", f"{program.name}, compilations", ours.stats().compilations, len(found), "", 1)


def row(section: str, program: Program, found: Measured, bound: str, note: str = "") -> Row:
    assert found.theirs is not None and found.ratio is not None
    ours, theirs, case = 1e3 * found.ours.median, 1e3 * found.theirs.median, shown(program, found.dims) + note
    return Row(section, case, ours, theirs, "ms", found.ratio, bound, found.fraction)


def shown(program: Program, sizes: Mapping[str, int]) -> str:
    return f"{program.name} ({', '.join(map(str, sizes.values()))})"


def geometric(found: Sequence[Measured]) -> float:
    return statistics.geometric_mean(one.ratio for one in found if one.ratio)


def kernels(bench: Bench) -> Iterator[Row]:
    """Yield steady-state times of the kernels that are bound by memory."""
    found = []
    for program in MEMORY_BOUND:
        for one in bench.steady(program, program.shapes):
            found.append(one)
            yield row("kernels", program, one, "≥ 1.0")
    yield Row("kernels", "geometric mean", 0, None, "", geometric(found), "≥ 1.6")


def indexing(bench: Bench) -> Iterator[Row]:
    """Yield steady-state times of sorts, gathers and scatters."""
    for program in (named("sort"), *programs(["indexing"])):
        for one in bench.steady(program, program.shapes):
            yield row("indexing", program, one, "≥ 0.8")


def products(bench: Bench) -> Iterator[Row]:
    """Yield rates of dots and attention."""
    for program in programs(["products"]):
        for one in bench.steady(program, bench.picked(program.shapes)):
            assert one.theirs is not None and one.ratio is not None
            case = f"{shown(program, one.dims)} {program.dtypes[0]}"
            rates = 1e-9 * one.flops, 1e-9 * one.flops / one.ratio
            yield Row("products", case, *rates, "GFLOP/s", one.ratio, "", one.fraction)


def control_flow(bench: Bench) -> Iterator[Row]:
    """Yield steady-state times of images, training, and programs with control flow."""
    count, greedy = programs(["loops"])
    for program in (RESNET, TRAINING, LSTM, count, greedy):
        for one in bench.steady(program, bench.picked(program.shapes)):
            yield row("programs", program, one, "≥ 1.0" if program is count else "≥ 0.8")


# The sizes at which training steps of these are timed.
TRAINED: list[tuple[Program, Sizes]] = [
    (SMALL_BERT, [(1, 17), (2, 64), (4, 100)]),
    (MLP, [(32,), (256,), (1,), (100,)]),
    (LSTM, [(128, 1), (128, 32), (128, 8)]),
    (RESNET, [(2, 64, 64), (4, 96, 80)]),
]


def gradients(bench: Bench) -> Iterator[Row]:
    """Yield times of a training step: with a compiled loss inside a `jax.jit` of the step, and compiled as a whole."""
    found: dict[str, list[Measured]] = {}
    for program, shapes in TRAINED:
        loss, work = _loss(in_jax.function(program)), least_work(program, "f32")
        inner = hlo_disc.jit(loss)
        ways = {"inside jax.jit": jax.jit(_step(inner)), "whole": hlo_disc.jit(_step(loss))}
        for values in shapes[: 1 + (program is not RESNET)] if bench.quick else shapes:
            sizes = program.sizes(*values)
            least = work(sizes)
            thrice = replace(least, operations={x: 3 * n for x, n in least.operations.items()}, bytes=3 * least.bytes)
            for way, ours in ways.items():
                one = bench.versus(sizes, bench.arguments(program, sizes), ours, jax.jit(_step(loss)), thrice)
                found.setdefault(way, []).append(one)
                yield row("gradients", program, one, "", f", {way}")
        count = inner.stats().compilations
        yield Row("gradients", f"{program.name}, compilations", count, None, "", count, "≤ 4")
    for way, all_ in found.items():
        yield Row("gradients", f"geometric mean, {way}", 0, None, "", geometric(all_), "≥ 1.1")


# The programs that are differentiated at several shapes. Those of ResNet-50 are shapes where no ReLU is so near to 0
# that rounding decides about a gradient.
DIFFERENTIATED: list[tuple[Program, Sizes]] = [
    (BERT, [(1, 17), (2, 33), (1, 1), (3, 8), (1, 64), (2, 5)]),
    (RESNET, [(3, 40, 64), (1, 128, 96), (1, 64, 64), (1, 97, 64), (2, 48, 64)]),
    (LSTM, [(17, 3), (64, 8), (1, 2), (8, 1), (33, 16), (20, 5)]),
]
# An error below this counts as this.
_ROUNDING = float(np.finfo(np.float32).eps)


def slopes(bench: Bench) -> Iterator[Row]:
    """Yield errors of gradients through a compiled loss against float64, next to XLA's, and the number of programs."""
    for program, shapes in DIFFERENTIATED:
        loss = _loss(in_jax.function(program))
        inner = hlo_disc.jit(loss)
        for values in shapes[:2] if bench.quick else shapes:
            sizes = program.sizes(*values)
            args = bench.arguments(program, sizes)
            reference = _all(float64(jax.value_and_grad(loss), args))
            results = (jax.value_and_grad(inner)(*args), jax.jit(jax.value_and_grad(loss))(*args))
            ours, theirs = (error([_all(result)], [reference]) for result in results)
            ratio = max(ours, _ROUNDING) / max(theirs, _ROUNDING)
            yield Row("slopes", shown(program, sizes), ours, theirs, "error", ratio, "≤ 2")
        records = inner.stats().records
        for name, backward in (("forward", False), ("backward", True)):
            count = sum(record.backward is backward for record in records)
            yield Row("slopes", f"{program.name}, compilations {name}", count, len(shapes), "", count, "≤ 2")


def _all(value_and_slopes: Any) -> np.ndarray:
    """Return one array, whose largest value is the scale of all errors: some gradients are zero but for rounding."""
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(value_and_slopes)])


def _step(loss: Any) -> Any:
    """Return a step of gradient descent."""

    def step(params: Any, *inputs: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, *inputs)
        return value, jax.tree.map(lambda p, slope: p - 1e-3 * slope, params, slopes)

    return step


def _loss(fn: Any) -> Any:
    """Return a loss: the mean squares of all float results of a function, summed over the results."""

    def loss(*args: Any) -> jax.Array:
        floats = [x for x in jax.tree.leaves(fn(*args)) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.mean(jnp.square(x.astype(jnp.float32))) for x in floats)

    return loss


def float64(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Return the results of `fn` in float64, as numpy arrays."""

    def widen(x: Any) -> Any:
        return np.asarray(x, np.float64) if np.asarray(x).dtype.kind == "f" else x

    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(fn)(*jax.tree.map(widen, tuple(args))))


def closed_over(bench: Bench) -> Program:
    """Return BERT with its weights as constants of the function, which is another usual way to pass them."""
    weights, _ = bench.arguments(BERT, BERT.shapes[0])
    fn = lambda ops, _, *inputs: BERT.fn(ops, weights, *inputs)  # noqa: E731
    return replace(BERT, name="BERT-base, closed over", fn=fn, weights=no_weights)


def constants(bench: Bench) -> Iterator[Row]:
    """Yield the time to compile a program whose weights are constants."""
    program = closed_over(bench)
    args = bench.arguments(program, BERT.shapes[0])
    costs = []
    for call in (in_jax.compiled(program), jax.jit(in_jax.function(program))):
        now = functools.partial(call, *args)
        gc.collect()
        costs.append(elapsed(now) - elapsed(now))
    yield Row("compile", f"{program.name}, cold", costs[0], costs[1], "s", costs[0] / costs[1], "≤ 0.6")


def targets(bench: Bench) -> Iterator[Row]:
    """Yield the time to compile for a GPU next to the CPU, with tracing and without: medians of turns."""
    specs = jax.eval_shape(lambda: bench.arguments(BERT, BERT.shapes[0]))
    seconds: dict[str, list[tuple[float, float]]] = {"cpu": [], "cuda": []}
    for _ in range(3 if bench.quick else 7):
        for target, times in seconds.items():
            start = time.perf_counter()
            lowered = in_jax.compiled(BERT, target=target).lower(*specs)
            traced = time.perf_counter()
            lowered.compile()
            end = time.perf_counter()
            times.append((end - start, end - traced))
    for number, how in enumerate(("traced and compiled", "compiled")):
        cpu, gpu = (statistics.median(times[number] for times in taken) for taken in seconds.values())
        case = f"BERT-base {how} for a GPU; value: to the CPU"
        yield Row("targets", case, gpu, None, "s", gpu / cpu, "" if number else "≤ 2.5")


def stream(bench: Bench) -> Iterator[Row]:
    """Yield the time of 40 distinct BERT shapes one after the other, including compilation."""
    for program in (BERT, closed_over(bench)):
        inputs = [bench.arguments(program, sizes) for sizes in program.stream_sizes()]
        ours_total = run_all(in_jax.compiled(program), inputs)
        sample = inputs[::8] if bench.quick else inputs
        theirs_total = run_all(jax.jit(in_jax.function(program)), sample) * len(inputs) / len(sample)
        note = f", jax.jit extrapolated from {len(sample)}" if len(sample) < len(inputs) else ""
        case = f"{program.name}, {len(inputs)} shapes{note}"
        yield Row("stream", case, ours_total, theirs_total, "s", theirs_total / ours_total, "≥ 15")


def run_all(call: Any, inputs: list[tuple[Any, ...]]) -> float:
    """Return the seconds of calls with all inputs, one after the other."""
    return elapsed(lambda: [jax.block_until_ready(call(*args)) for args in inputs])


def recompilations(bench: Bench) -> Iterator[Row]:
    """Yield the number of compilations at 30 shapes after the first call: there must be none."""
    for program in (BERT, PREFILL, DECODE):
        ours = in_jax.compiled(program)
        ours(*bench.arguments(program, program.sizes(2, 9)))
        first = ours.stats().compilations
        for sizes in program.stream_sizes()[: 10 if bench.quick else 30]:
            jax.block_until_ready(ours(*bench.arguments(program, sizes)))
        again = ours.stats().compilations - first
        yield Row("recompilations", f"{program.name}, random shapes", again, None, "", again, "≤ 0")


def memory(bench: Bench) -> Iterator[Row]:
    """Yield the peak of temporary memory of BERT at (4, 128)."""
    sizes = BERT.sizes(4, 128)
    args = bench.arguments(BERT, sizes)
    ours = in_jax.compiled(BERT).lower(*args).compile().memory(**sizes).temporary / 2**20
    theirs = jax.jit(in_jax.function(BERT)).lower(*args).compile().memory_analysis().temp_size_in_bytes / 2**20
    yield Row("memory", "BERT (4, 128), temporary", ours, theirs, "MiB", ours / theirs, "≤ 1.1")


def overhead(bench: Bench) -> Iterator[Row]:
    """Yield the overhead of calls, measured by functions that have almost nothing to do."""
    x = jnp.ones(8, jnp.float32)
    ours, theirs = hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"}), jax.jit(lambda x: x + 1)
    jax.block_until_ready((ours(x), theirs(x)))
    a, b = (1e6 * per_call(functools.partial(call, x)) for call in (ours, theirs))
    yield Row("overhead", "x + 1 on f32[8], eager", a, b, "µs", a, "≤ 12")

    arrays = [x + i for i in range(300)]
    for used, fn in (("all used", lambda xs: sum(xs)), ("one used", lambda xs: xs[0] + 1)):
        ours300, theirs300 = hlo_disc.jit(fn), jax.jit(fn)
        jax.block_until_ready((ours300(arrays), ours300(arrays), theirs300(arrays)))
        a, b = (1e6 * per_call(functools.partial(call, arrays), 200) for call in (ours300, theirs300))
        yield Row("overhead", f"300 arrays of f32[8], {used}, eager", a, b, "µs", a / b, "≤ 1")

    for leaves in (1, 100, 300):
        a, b = fallen_back(leaves)
        name = f"what runs through jax.jit, {leaves} {'leaf' if leaves == 1 else 'leaves'}"
        yield Row("overhead", name, a, b, "µs", a / b, "≤ 1.1")

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


def fallen_back(leaves: int) -> tuple[float, float]:
    """Return the microseconds of a call of a function that falls back, hlo_disc's and jax.jit's, the best of 40.

    The function cannot be compiled, as the handler of an op is removed.
    """
    tree = jnp.ones(8) if leaves == 1 else {f"leaf{k}": jnp.ones(8) for k in range(leaves)}
    with warnings.catch_warnings(), unittest.mock.patch.dict(HANDLERS):
        warnings.simplefilter("ignore", hlo_disc.FallbackWarning)
        del HANDLERS["stablehlo.cosine"]
        calls = [functools.partial(jit(lambda t: jax.tree.map(jnp.cos, t)), tree) for jit in (hlo_disc.jit, jax.jit)]
        jax.block_until_ready([call() for call in calls])
    ours, theirs = zip(*([per_call(call, 10, 1) for call in calls] for _ in range(40)), strict=True)
    return 1e6 * min(ours), 1e6 * min(theirs)


# The sizes at which errors are looked at; those of kernels are the last ones.
ACCURACY: list[tuple[Program, Sizes]] = [
    (BERT, [(2, 77)]),
    (PREFILL, [(2, 33)]),
    (DECODE, [(2, 40)]),
    (MLP, [(33,)]),
    (RESNET, [(1, 224, 224), (2, 97, 65), (1, 33, 32), (3, 64, 96), (1, 160, 128), (5, 48, 33)]),
    (TRAINING, [(1,), (2,), (7,), (32,), (100,), (257,)]),
    (LSTM, [(128, 1), (17, 3), (64, 8), (1, 2), (33, 16), (100, 5)]),
]


def accuracy(bench: Bench) -> Iterator[Row]:
    """Yield errors against float64, next to XLA's. Some programs run at several shapes, from one executable."""
    last: list[tuple[Program, Sizes]] = [(program, [tuple(program.shapes[-1].values())]) for program in MEMORY_BOUND]
    for program, shapes in (*ACCURACY, *last):
        ours = in_jax.compiled(program)
        for values in shapes[:2] if bench.quick else shapes:
            sizes = program.sizes(*values)
            args = bench.arguments(program, sizes)
            fn = in_jax.function(program)
            reference = float64(fn, args)
            found, theirs = error(ours(*args), reference), error(jax.jit(fn)(*args), reference)
            ratio = found / theirs if theirs else 1.0
            yield Row("accuracy", shown(program, sizes), found, theirs, "error", ratio, "≤ 2")
        if len(shapes) > 1:
            count = ours.stats().compilations
            yield Row("accuracy", f"{program.name}, compilations", count, len(shapes), "", count, "≤ 1")


SECTIONS = {
    "models": models,
    "constants": constants,
    "targets": targets,
    "kernels": kernels,
    "indexing": indexing,
    "products": products,
    "programs": control_flow,
    "gradients": gradients,
    "slopes": slopes,
    "memory": memory,
    "overhead": overhead,
    "accuracy": accuracy,
    "recompilations": recompilations,
    "stream": stream,
}
