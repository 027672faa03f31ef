"""The backend of `torch.compile`: graphs of ATen ops, forward and backward, become executables."""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sympy
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from hlo_disc import pipeline
from hlo_disc.errors import ArgumentError, FallbackWarning, HloDiscError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.import_.aten import sizes
from hlo_disc.import_.aten.decompositions import decompositions
from hlo_disc.import_.aten.imported import Imported
from hlo_disc.import_.aten.reader import line_of, read_graph, refused, target_name
from hlo_disc.options import Options
from hlo_disc.ral import OwnFloats
from hlo_disc.torch import reports
from hlo_disc.torch.call import caller
from hlo_disc.torch.parts import in_parts, put_program

if TYPE_CHECKING:
    from hlo_disc.torch.precompiled import Precompiled

T = TypeVar("T")

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Left(NamedTuple):
    """The reason why ops stay PyTorch's, which names the op and its types, and the user's file and line."""

    why: str
    where: tuple[str, int]


def backend(
    module: GraphModule,
    example_inputs: Sequence[torch.Tensor],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., object]:
    """Compile a graph of Dynamo. `torch.compile(…, backend="hlo_disc")` calls this function.

    Args:
        module: Dynamo's graph.
        example_inputs: the graph's inputs, as fake tensors.
        options: fields of `hlo_disc.Options` by name, and these:
            fallback: whether ops that cannot be compiled stay PyTorch's, with a `FallbackWarning` that names them (the
            default), or are an error.
            freeze: whether parameters and buffers are constants of the program, packed for its matrix products. The
            program does not see later changes of them, in place or not. Only without gradients.
        mode: the mode of `torch.compile`. PyTorch's modes say how hard Inductor tries; they have no effect here.
    """
    if mode not in (None, *MODES):
        raise ArgumentError(f"mode={mode!r} is none of PyTorch's: {', '.join(MODES)}")
    own = dict(options or {})
    fallback, freeze = own.pop("fallback", True), own.pop("freeze", False)
    merged = pipeline.merge(None, own)
    frozen = {i: x for i, x in enumerate(example_inputs) if freeze and hasattr(x, "_dynamo_static_input_type")}

    def compiler(kind: str) -> Callable[[GraphModule, Sequence[torch.Tensor]], Callable[..., object]]:
        def compile_(graph: GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., object]:
            if frozen and (kind != "inference" or len(inputs) != len(example_inputs)):
                raise ArgumentError("freeze=True is for inference: call the function under torch.no_grad()")
            if functorch_config.bundled_autograd_cache:
                return precompiled(graph, kind, merged, frozen)
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
) -> Callable[..., object]:
    """Compile a graph of ATen ops to a function of its placeholders' tensors and sizes.

    kind: the graph's kind in a report. frozen: the constant tensors, by the numbers of their placeholders.

    A backward graph may never run, so it is compiled at its first call. It is read now: the questions that reading asks
    about sizes become guards of PyTorch's only now.
    """
    graph = _Graph(module, kind, options, fallback, frozen)
    if kind != "backward":
        return graph.compiled()
    graph.read()
    return _at_first_call(graph.compiled)


def precompiled(module: GraphModule, kind: str, options: Options, frozen: Mapping[int, torch.Tensor]) -> Precompiled:
    """Compile a graph to one program, as `aot_compile` needs it: ops that stay PyTorch's cannot be saved.

    The arguments are those of `compile_graph`. Raises HloDiscError.
    """
    from hlo_disc.torch.precompiled import Precompiled  # with all of Inductor

    start = time.perf_counter()
    read = functools.cache(lambda: read_graph(module, constraints(), frozen))
    executable = pipeline.build(lambda: read().graph, options)
    reports.add(kind, time.perf_counter() - start, [executable], [])
    return Precompiled(executable, read().interface)


class _Graph:
    """A graph during compilation: its parts, as functions that read them. At first one part, named "", is the whole.

    If a step fails for the whole graph, the graph is cut into parts. If a step fails for a part, the part stays
    PyTorch's. Without `fallback` both are errors. Ops of hlo_disc run programs of their own, and are in no part.
    """

    def __init__(
        self, module: GraphModule, kind: str, options: Options, fallback: bool, constants: Mapping[int, torch.Tensor]
    ):
        self.whole, self.kind, self.options, self.fallback = module, kind, options, fallback
        self.conditions = constraints()
        self.parts = {"": self._reads(module, constants)}
        self.left: list[Left] = []
        self.calls: dict[str, Callable[..., list[Any]]] = {}
        self.programs: list[Executable] = []
        self.seconds = 0.0
        if any(map(_is_ours, module.graph.nodes)):
            self._cut(None)

    def read(self) -> None:
        start = time.perf_counter()
        with OwnFloats():
            self._each(lambda name: self.parts[name]())
        self.seconds += time.perf_counter() - start

    def compiled(self) -> Callable[..., object]:
        """Compile the parts, add the compilation to the reports, and return the graph as a function."""
        start = time.perf_counter()
        self._each(self._compile)
        self.seconds += time.perf_counter() - start
        reports.add(self.kind, self.seconds, self.programs, [x.why for x in self.left])
        for why, (file, line) in dict.fromkeys(self.left):
            warnings.warn_explicit(FallbackWarning(f"{why}; it stays PyTorch's"), None, file, line)
        if "" in self.calls:
            return self.calls[""]
        for name, call in self.calls.items():
            put_program(self.whole, name, call)
        return self.whole.forward

    def _reads(self, part: GraphModule, constants: Mapping[int, torch.Tensor]) -> Callable[[], Imported]:
        return functools.cache(lambda: read_graph(part, self.conditions, constants))

    def _compile(self, name: str) -> None:
        read = self.parts[name]
        placeholders = self.whole.get_submodule(name).graph.find_nodes(op="placeholder")
        examples = [node.meta.get("val") for node in placeholders]
        executable = pipeline.build(lambda: read().graph, self.options, lambda: read().interface.sizes(examples))
        self.programs.append(executable)
        self.calls[name] = caller(executable, read().interface)

    def _each(self, step: Callable[[str], object]) -> None:
        for name in list(self.parts):
            try:
                step(name)
            except Exception as error:
                if not self.fallback:
                    raise
                del self.parts[name]
                if name:
                    self._leave(name, error)
                else:
                    self._cut(error)
                    self._each(step)

    def _cut(self, error: Exception | None) -> None:
        """Cut the graph at unsupported ops and at ops of hlo_disc: the ops between these become the parts."""
        try:
            ops = refused(self.whole, self.conditions)
        except Exception as again:
            if not self.fallback:
                raise
            self.parts = {}
            self._leave("", error or again)  # of the same cause: the first error says more
            return
        left = {node: why for node, why in ops.items() if not _is_ours(node)}
        if left and not self.fallback:
            raise UnsupportedOpError(next(iter(left.values())))
        self.left += [Left(why, line_of(node)) for node, why in left.items()]
        self.whole, names = in_parts(self.whole, ops)
        self.parts = {name: self._reads(self.whole.get_submodule(name), {}) for name in names}

    def _leave(self, name: str, error: Exception) -> None:
        nodes = [x for x in self.whole.get_submodule(name).graph.nodes if x.op == "call_function"]
        node = next((x for x in nodes if line_of(x)[1]), nodes[0])
        file, line = line_of(node)
        why = str(error) if isinstance(error, HloDiscError) else repr(error)
        place = f"{len(nodes)} ops from {target_name(node)} at {file}:{line} on"
        self.left.append(Left(f"{place} cannot be compiled: {why}", (file, line)))


def _is_ours(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "hlo_disc"


def _at_first_call(make: Callable[[], Callable[..., T]]) -> Callable[..., T]:
    """Return a function that runs `make` at its first call, releases it, and always calls the function that it made."""
    lock = threading.Lock()
    waiting = [make]
    made: list[Callable[..., Any]] = []

    def call(*args: object) -> T:
        if not made:
            with lock:
                if waiting:
                    made.append(waiting[0]())
                    waiting.clear()
        return made[0](*args)

    return call


def constraints() -> list[sympy.Basic]:
    """Return the conditions that PyTorch has found for the symbols of the graph that it compiles now."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is None or context.fake_mode.shape_env is None:
        return []
    env = context.fake_mode.shape_env
    return [*sizes.conditions(env.var_to_range), *(guard.expr for guard in env.guards)]  # most follow from the ranges
