"""The backend of `torch.compile`: graphs of ATen ops, forward and backward, become executables."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import FallbackWarning, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.import_.aten.decompositions import decompositions
from hlo_disc.import_.aten.reader import Imported, read_graph, refused
from hlo_disc.options import Options
from hlo_disc.torch import reports
from hlo_disc.torch.call import caller
from hlo_disc.torch.parts import in_parts


def backend(module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a graph that Dynamo has found; the name "hlo_disc" of `torch.compile(…, backend=…)`.

    Args:
        module: Dynamo's graph. example_inputs: its inputs, as fake tensors.
        options: fields of `hlo_disc.Options` by name, and `fallback`: whether ops that are not supported stay
            PyTorch's, with a `FallbackWarning` that names them (the default), or raise `UnsupportedOpError`.
    """
    own = dict(options or {})
    fallback = own.pop("fallback", True)
    merged = pipeline.merge(None, own)

    def compiler(kind: str) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        return lambda graph, _: make_boxed_func(compile_graph(graph, kind, merged, fallback))

    return aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )(module, example_inputs)


def compile_graph(module: GraphModule, kind: str, options: Options, fallback: bool) -> Callable[..., Any]:
    """A graph of ATen ops as a function of its placeholders' tensors and sizes. kind: what it is in a report."""
    start = time.perf_counter()
    programs: list[str] = []
    left: dict[Node, str] = {}

    def whole(part: GraphModule) -> Callable[..., list[Any]]:
        imported: list[Imported] = []

        def read() -> Graph:
            imported.append(read_graph(part, constraints()))
            return imported[0].graph

        executable = Executable(pipeline.compile(read, options), options)
        programs.append(executable.explain())
        return caller(executable, imported[0])

    try:
        compiled = whole(module)
    except UnsupportedOpError:
        if not fallback:
            raise
        left = refused(module, constraints())
        for why in dict.fromkeys(left.values()):
            warnings.warn(FallbackWarning(f"{why}; it stays PyTorch's"), stacklevel=2)
        compiled = in_parts(module, left, whole)
    reports.add(kind, time.perf_counter() - start, programs, list(left.values()))
    return compiled


def constraints() -> list[sympy.Basic]:
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
