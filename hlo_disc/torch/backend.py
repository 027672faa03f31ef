"""The backend of `torch.compile`: graphs of ATen ops, forward and backward, become executables."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import ArgumentError, FallbackWarning, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.import_.aten import sizes
from hlo_disc.import_.aten.decompositions import decompositions
from hlo_disc.import_.aten.imported import Imported
from hlo_disc.import_.aten.reader import read_graph, refused
from hlo_disc.options import Options
from hlo_disc.torch import reports
from hlo_disc.torch.call import caller
from hlo_disc.torch.parts import in_parts


def backend(module: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a graph that Dynamo has found; the name "hlo_disc" of `torch.compile(…, backend=…)`.

    Args:
        module: Dynamo's graph. example_inputs: its inputs, as fake tensors.
        options: fields of `hlo_disc.Options` by name, and these:
            fallback: whether ops that are not supported stay PyTorch's, with a `FallbackWarning` that names them (the
            default), or raise `UnsupportedOpError`.
            freeze: whether parameters and buffers are constants of the program, packed as products want them. What
            changes them later, in place or not, is not seen. Only without gradients.
    """
    own = dict(options or {})
    fallback, freeze = own.pop("fallback", True), own.pop("freeze", False)
    merged = pipeline.merge(None, own)
    frozen = {i: x for i, x in enumerate(example_inputs) if freeze and hasattr(x, "_dynamo_static_input_type")}

    def compiler(kind: str) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile_(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            if frozen and (kind != "inference" or len(inputs) != len(example_inputs)):
                raise ArgumentError("freeze=True is for inference: call the function under torch.no_grad()")
            return make_boxed_func(compile_graph(graph, kind, merged, fallback, frozen))

        return compile_

    compiled = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )
    with functorch_config.patch(unlift_effect_tokens=True):  # they begin and end inside of a graph
        return compiled(module, example_inputs)


def compile_graph(
    module: GraphModule, kind: str, options: Options, fallback: bool, frozen: Mapping[int, torch.Tensor]
) -> Callable[..., Any]:
    """A graph of ATen ops as a function of its placeholders' tensors and sizes.

    kind: what it is in a report. frozen: the tensors that placeholders are at all calls.
    """
    start = time.perf_counter()
    programs: list[str] = []
    left: dict[Node, str] = {}

    def whole(part: GraphModule, constants: Mapping[int, torch.Tensor] | None = None) -> Callable[..., list[Any]]:
        imported: list[Imported] = []

        def read() -> Graph:
            imported.append(read_graph(part, constraints(), constants))
            return imported[0].graph

        executable = Executable(pipeline.compile(read, options), options)
        programs.append(executable.explain(full=True))
        return caller(executable, imported[0])

    try:
        compiled = whole(module, frozen)
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
    return [*(guard.expr for guard in env.guards), *sizes.conditions(env.var_to_range)]
