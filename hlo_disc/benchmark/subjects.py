"""The callables of a benchmark: programs and functions, at every combination of sizes, next to `jax.jit`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
from jax import tree_util

from hlo_disc import sources
from hlo_disc.benchmark import peer
from hlo_disc.benchmark.cost import Work, work
from hlo_disc.compiled.program import InputRow
from hlo_disc.conformance.cases import functions
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, ShapeError
from hlo_disc.executable import Executable, load
from hlo_disc.import_.stablehlo.source import is_text, load_module
from hlo_disc.jitted import JitFunction, jit
from hlo_disc.mlir import ir
from hlo_disc.options import Options
from hlo_disc.pipeline import build
from hlo_disc.random_inputs import draw
from hlo_disc.tracing.signature import spec_dims

if TYPE_CHECKING:
    from jax.typing import ArrayLike

Sizes = Mapping[str, Sequence[int]]


class Case(NamedTuple):
    """A subject at one size of each dim. theirs: the call of `jax.jit`'s program, or None if there is none."""

    dims: Mapping[str, int]
    ours: Callable[[], object]
    theirs: Callable[[], object] | None
    work: Work


class Subject(NamedTuple):
    """A program to measure. compiling: seconds before the first calls. wide: it needs JAX's 64-bit types, whatever is
    set."""

    name: str
    cases: Iterator[Case]
    compiling: float = 0.0
    wide: bool = False
    notes: tuple[str, ...] = ()


# -------------------------------------------------------------------------------------------------------- programs


def program(
    source: object,
    specs: Sequence[object],
    sizes: Sizes,
    dims: sources.Dims,
    constraints: str | Sequence[str],
    trusted: bool,
    signature: str,
    options: Options,
    seed: int,
) -> Subject:
    """Return the subject of a source of `hlo_disc.compile`, except functions of JAX. Raises what `compile` raises."""
    start = time.perf_counter()
    graph = sources.graph(source, *specs, dims=dims, constraints=constraints, trusted=trusted, signature=signature)
    executable = build(graph, options)
    compiling = time.perf_counter() - start
    module, notes = _module(source, graph, dims)
    least = simplify(graph)

    def cases() -> Iterator[Case]:
        for chosen, arrays in _drawn(executable, sizes, seed):
            theirs = peer.Peer(module, [(x.dtype, x.shape) for x in arrays])
            yield Case(
                chosen,
                functools.partial(executable.native, *arrays),
                functools.partial(theirs, *arrays),
                work(least, [x.shape for x in arrays]),
            )

    return Subject(_name(source), cases(), compiling, True, notes)


def compiled(source: Executable | str | os.PathLike[str], sizes: Sizes, options: Options, seed: int) -> Subject:
    """Return the subject of an executable or its file. Raises what `load` raises, and ArgumentError for a GPU's."""
    executable = source if isinstance(source, Executable) else load(source, options)
    if executable.program.target != "cpu":
        raise ArgumentError(f"{_name(source)} is compiled for {executable.program.target}: only the CPU is measured")

    def cases() -> Iterator[Case]:
        for chosen, arrays in _drawn(executable, sizes, seed):
            read = [x for i, x in enumerate(arrays) if i not in executable.program.unread]
            size = sum(x.nbytes for x in read) + executable.program.weights
            size += executable.memory(**chosen).outputs
            yield Case(chosen, functools.partial(executable.native, *arrays), None, Work({}, size, "products"))

    note = "what is compiled already has no program for jax.jit, nor says what it multiplies"
    return Subject(_name(source), cases(), wide=True, notes=(note,))


def _module(source: object, graph: Graph, dims: sources.Dims) -> tuple[ir.Module, tuple[str, ...]]:
    """Return the module for XLA, and notes: the source if it has the same inputs, else the graph as StableHLO."""
    if sources.is_module(source) and not dims:
        module = load_module(source)
        if len(functions(module)["main"].regions[0].blocks[0].arguments) == len(graph.inputs):
            return module, ()
    return load_module(to_stablehlo(graph)), ("jax.jit has the program as hlo_disc.stablehlo writes it",)


def _drawn(executable: Executable, sizes: Sizes, seed: int) -> Iterator[tuple[dict[str, int], list[jax.Array]]]:
    inputs = executable.program.inputs
    for chosen in _combinations(inputs, sizes):
        yield chosen, [jax.device_put(x) for x in draw(inputs, {}, chosen, seed)]


# ------------------------------------------------------------------------------------------------------- functions


def function(
    source: Callable[..., object],
    args: Sequence[object],
    sizes: Sizes,
    dims: Mapping[str, object] | None,
    constraints: str | Sequence[str],
    options: Options,
    seed: int,
) -> Subject:
    """Return the subject of a function of JAX or of `hlo_disc.jit`. Raises ArgumentError, ParseError, ShapeError."""
    made = source if isinstance(source, JitFunction) else jit(source, dims=dims, constraints=constraints)
    if made is source and (dims is not None or constraints):
        raise ArgumentError("dims and constraints are for hlo_disc.jit to know, when it makes the function")
    signature = made.signature
    if signature.donated_positions or signature.donated_names:
        raise ArgumentError(f"{signature.name} donates arguments, which are gone after a call: measure it without")
    signature.check(args, {})
    arrays, _, static = signature.split(tuple(args), {})
    leaves, tree = tree_util.tree_flatten(arrays)
    names = signature.leaves(arrays, {}, static)
    texts = signature.dims(dims or {}, arrays, {}, static)
    specs = [spec_dims(*spec) for spec in zip(leaves, texts, names, strict=True)]
    if made is not source and any(isinstance(leaf, str) for leaf in leaves):
        shapes = iter(f"({', '.join(axis or '_' for axis in axes)})" for _, axes in specs)
        dims = {n: tree_util.tree_map(lambda _: next(shapes), x) for n, x in signature.arguments(arrays, {}, static)}
    rows = {
        i: InputRow(name, str(struct.dtype), tuple(axis or str(n) for axis, n in zip(axes, struct.shape, strict=True)))
        for i, (name, (struct, axes)) in enumerate(zip(names, specs, strict=True))
        if isinstance(leaves[i], (str, jax.ShapeDtypeStruct))
    }
    fn, own_dims, own_constraints, nums, names_, _, parameters = made._made_of
    if made is source:
        dims, constraints = own_dims, own_constraints
    options = dataclasses.replace(options, fallback=False)  # what runs through jax.jit is nothing to compare with it
    ours = JitFunction(_fresh(fn), dims, constraints, nums, names_, options, parameters)
    theirs = JitFunction(_fresh(fn), None, (), nums, names_, options, parameters)._jax

    def cases() -> Iterator[Case]:
        for chosen in _combinations(tuple(rows.values()), sizes):
            drawn = dict(zip(rows, draw(tuple(rows.values()), {}, chosen, seed), strict=True))
            given = [_on_device(drawn.get(i, leaf)) for i, leaf in enumerate(leaves)]
            split = tree_util.tree_unflatten(tree, given)
            rest = iter(split)
            full = [x if i in signature.static_positions else next(rest) for i, x in enumerate(args)]
            graph = sources.graph(signature.bind(static), *split)
            yield Case(
                chosen,
                functools.partial(ours, *full),
                functools.partial(theirs, *full),
                work(simplify(graph), [np.shape(x) for x in given]),
            )

    return Subject(signature.name, cases())


def _fresh(fn: Callable[..., object]) -> Callable[..., object]:
    """Wrap a function in a new object, for which JAX has compiled nothing."""

    @functools.wraps(fn)
    def again(*args: object, **kwargs: object) -> object:
        return fn(*args, **kwargs)

    return again


def _on_device(x: ArrayLike) -> ArrayLike:
    return jax.device_put(x) if isinstance(x, np.ndarray) else x


# ----------------------------------------------------------------------------------------------------------- sizes


def _combinations(inputs: Sequence[InputRow], sizes: Sizes) -> Iterator[dict[str, int]]:
    """List all combinations of one size a dim. Raises ShapeError for a dim without sizes, and for sizes of no dim."""
    named = dict.fromkeys(s for x in inputs for d in x.shape for s in sorted(Dim.parse(d).symbols))
    if unknown := [name for name in sizes if name not in named]:
        raise ShapeError(
            f"a size is given for {', '.join(unknown)}, but the dims are {', '.join(named) or 'all fixed'}"
        )
    if missing := [name for name in named if name not in sizes]:
        options = " ".join(f"--dim {name}=…" for name in missing)
        entries = ", ".join(f"{name!r}: …" for name in missing)
        raise ShapeError(f"no size for {', '.join(missing)}: give {options}, in Python sizes={{{entries}}}")
    for chosen in itertools.product(*(sizes[name] for name in named)):
        yield dict(zip(named, chosen, strict=True))


def _name(source: object) -> str:
    if isinstance(source, os.PathLike) or isinstance(source, str) and not is_text(source):
        return os.path.basename(os.path.normpath(source))
    return getattr(source, "__name__", type(source).__name__) if not isinstance(source, (str, bytes)) else "module"
