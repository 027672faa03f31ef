"""From a function of TensorFlow to something that can be called: captured tensors are arguments, read at each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import ArgumentError
from hlo_disc.executable import Executable
from hlo_disc.import_.symbols import constraint_texts
from hlo_disc.import_.tensorflow.reader import read_program
from hlo_disc.options import Options
from hlo_disc.tensorflow.graphs import program_of, type_of


class Imported:
    """A concrete function with what it captured.

    concrete: TensorFlow's function. names: of its arguments, then of what it captured. captures: variables, and
    tensors that no variable holds.
    """

    def __init__(self, concrete: Any):
        self.concrete = concrete
        graph = concrete.graph
        count = len(graph.inputs) - len(concrete.captured_inputs)
        variables = {id(v.handle): v for v in graph.variables}
        self.captures = [variables.get(id(x), x) for x in concrete.captured_inputs]
        for x in self.captures:
            if getattr(x, "dtype", None) == tf.resource:
                raise ArgumentError(f"{graph.name} captures {x}, which is no variable")
        self.arguments = graph.inputs[:count]
        own = [x.op.name for x in self.arguments]
        held = [x.name if isinstance(x, tf.Variable) else f"captured[{i}]" for i, x in enumerate(self.captures)]
        self.names = _distinct([*own, *held])

    def graph(self, dims: Any = None, constraints: Sequence[str] = ()) -> Graph:
        """The DHLO graph. Raises UnsupportedOpError, ShapeError."""
        held = [type_of(x.dtype, x.shape) for x in self.captures]
        return read_program(program_of(self.concrete, self.names, held), dims=dims, constraints=constraints)


def _distinct(names: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"args[{i}]" for i, name in enumerate(names)]


def concrete_of(function: Any, signature: Sequence[Any] | None) -> Any:
    """The concrete function for a signature. Raises ArgumentError for what is no function of TensorFlow."""
    if hasattr(function, "structured_outputs") and hasattr(function, "graph"):
        return function
    if signature is None and getattr(function, "input_signature", None) is None:
        raise ArgumentError("give input_signature, a tf.TensorSpec for each parameter, with None for unknown sizes")
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function)
    return function.get_concrete_function(*(signature or ()))


def compile_program(
    imported: Imported,
    dims: Any,
    constraints: str | Sequence[str],
    options: Options | None,
    overrides: Mapping[str, Any],
) -> Executable:
    """The executable of an imported function: its arguments, then what it captured."""
    merged = pipeline.merge(options, overrides)
    texts = constraint_texts(constraints)
    return Executable(pipeline.compile(lambda: imported.graph(dims, texts), merged), merged)
