"""The backend of `torch.compile`: graphs of ATen ops, forward and backward, become executables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.executable import Executable
from hlo_disc.import_.aten.decompositions import decompositions
from hlo_disc.import_.aten.reader import Imported, read_graph
from hlo_disc.options import Options

# In place of the tensors that a program does not have.
_NOTHING = torch.empty((0, 0), dtype=torch.bool)


def backend(module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a graph that Dynamo has found; the name "hlo_disc" of `torch.compile(…, backend=…)`.

    Args:
        module: Dynamo's graph. example_inputs: its inputs, as fake tensors.
        options: fields of `hlo_disc.Options` by name.
    """
    merged = pipeline.merge(None, options or {})

    def compile_(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(compile_graph(graph, merged))

    return aot_autograd(
        fw_compiler=compile_,
        bw_compiler=compile_,
        inference_compiler=compile_,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )(module, example_inputs)


def compile_graph(module: GraphModule, options: Options) -> Callable[..., list[Any]]:
    """A graph of ATen ops as a function of its placeholders' tensors and sizes."""
    imported: list[Imported] = []

    def read() -> Any:
        imported.append(read_graph(module, _constraints()))
        return imported[0].graph

    executable = Executable(pipeline.compile(read, options), options)
    return caller(executable, imported[0])


def _constraints() -> list[sympy.Basic]:
    """What PyTorch has found to hold of the symbols of the graph that is compiled now."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return []
    env = context.fake_mode.shape_env
    found = [guard.expr for guard in env.guards]
    for symbol, values in env.var_to_range.items():
        found += [sympy.Ge(symbol, values.lower, evaluate=False)] if values.lower.is_Integer else []
        found += [sympy.Le(symbol, values.upper, evaluate=False)] if values.upper.is_Integer else []
    return found


def caller(executable: Executable, imported: Imported) -> Callable[..., list[Any]]:
    """Calls the executable with what PyTorch passes, and gives it the results that it expects."""
    arguments, results = imported.arguments, imported.results
    numbers = imported.numbers
    bindings = imported.graph.bindings
    plain = not numbers and all(x.output == i and x.order is None for i, x in enumerate(results))
    every = arguments == tuple(range(imported.placeholders))

    nothing = [] if arguments or numbers else [_NOTHING]

    def size(d: Dim, tensors: Sequence[torch.Tensor]) -> int:
        if d.is_const:
            return d.value
        raw = {f"%{i}.{axis}": n for i, t in enumerate(tensors) for axis, n in enumerate(t.shape)}
        return d.substitute(bindings).evaluate(raw)

    def call(*args: Any) -> list[Any]:
        tensors = [args[i] for i in arguments]
        tensors += [_NOTHING.new_empty((-args[i] if negative else args[i], 0)) for i, negative in numbers]
        made = executable(*tensors, *nothing)
        made = made if isinstance(made, tuple) else (made,)
        given = []
        for x in results:
            if x.output is not None:
                y = made[x.output]
                given.append(y if x.order is None else y.permute(tuple(map(x.order.index, range(y.dim())))))
            elif x.view is not None and x.argument is not None:
                shape, strides, offset = x.view
                at = [[size(d, tensors) for d in ds] for ds in (shape, strides)]
                given.append(torch.as_strided(args[x.argument], *at, size(offset, tensors)))
            elif x.argument is not None:
                given.append(args[x.argument])
            else:
                given.append(None if x.size is None else size(x.size, tensors))
        return given

    if plain and every:
        return lambda *args: _listed(executable(*args))
    return call


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]
