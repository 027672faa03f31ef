"""The import of a TensorFlow function as an executable. Captured variables are arguments, after the function's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

from hlo_disc import pipeline
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.import_.tensorflow.program import TensorType
from hlo_disc.import_.tensorflow.reader import read_program
from hlo_disc.nest import describe_structure
from hlo_disc.options import Options
from hlo_disc.tensorflow.effects import assigned_inputs
from hlo_disc.tensorflow.graphs import check_captured, held_type, program_of, type_of
from hlo_disc.tensorflow.lines import at_line

if TYPE_CHECKING:
    from hlo_disc.import_.sizes.symbols import DimsOfInputs
    from hlo_disc.tensorflow.types import ConcreteFunction, Tensor


class Imported:
    """A concrete function with its captures: variables, and tensors that no variable holds.

    changes: whether values that it assigns to variables are results, after its own. A gradient does not need them.
    """

    def __init__(self, concrete: ConcreteFunction, changes: bool = True):
        self.concrete = concrete
        graph = concrete.graph
        variables = {id(v.handle): v for v in graph.variables}
        captured = enumerate(concrete.captured_inputs)
        self.captures = [variables[id(x)] if id(x) in variables else _held(x, i) for i, x in captured]
        self.count = len(graph.inputs) - len(self.captures)
        for x, argument in zip(self.captures, graph.inputs[self.count :], strict=True):
            if not isinstance(x, tf.Variable):
                check_captured(graph, argument)
        self.assigned = assigned_inputs(graph) if changes else {}
        own = [x.op.name for x in graph.inputs[: self.count]]
        held = [x.name if isinstance(x, tf.Variable) else f"captured[{i}]" for i, x in enumerate(self.captures)]
        names = [*own, *held]
        self.names = [name if names.count(name) == 1 else f"args[{i}]" for i, name in enumerate(names)]

    def graph(
        self,
        dims: Mapping[str, object] | Sequence[object] | None = None,
        constraints: Sequence[str] = (),
        frozen: bool = False,
    ) -> Graph:
        """Build the DHLO graph. frozen: whether captures become constants. Raises UnsupportedOpError, ShapeError."""
        if frozen and self.assigned:
            number, op = next(iter(self.assigned.items()))
            raise UnsupportedOpError(
                f"tf.{op.type}{at_line(op)}: it assigns to {self.names[number]!r}, and variables are constants of this "
                "program: hlo_disc.tensorflow.compile keeps them"
            )
        values = [x.numpy() for x in self.captures] if frozen else None
        names = self.names[: self.count] if frozen else self.names
        program = program_of(self.concrete, names, self.held, list(self.assigned), values)
        return read_program(program, dims=cast("DimsOfInputs | None", dims), constraints=constraints)

    @property
    def assigned_variables(self) -> list[tf.Variable]:
        """The variables whose new values are results, after those of the function."""
        return [self.captures[i - self.count] for i in self.assigned]

    @property
    def held(self) -> list[TensorType]:
        """The types of the captures."""
        return [type_of(x.dtype, x.shape) for x in self.captures]

    def compiled(
        self,
        dims: Mapping[str, object] | Sequence[object] | None = None,
        constraints: Sequence[str] = (),
        options: Options | None = None,
        overrides: Mapping[str, object] | None = None,
        sizes: Sequence[Sequence[int]] | None = None,
    ) -> Executable:
        """Compile the function. Return the executable.

        sizes: the sizes of the arguments in a call. Kernels that this call does not take may be compiled later.
        """
        merged = pipeline.merge(options, overrides or {})
        held = [x.shape for x in self.captures]
        known = sizes is not None and all(shape.is_fully_defined() for shape in held)
        every = [*sizes, *map(tuple, held)] if sizes is not None and known else None
        return pipeline.build(lambda: self.graph(dims, constraints), merged, lambda: every)

    def frozen(
        self, dims: Mapping[str, object] | Sequence[object] | None, constraints: Sequence[str]
    ) -> tuple[Graph, str]:
        """Build the graph with captures as constants. Return it and its results' nest. Raises the errors of `graph`."""
        graph = self.graph(dims, constraints, frozen=True)
        return graph, describe_structure(nested(self.concrete.structured_outputs, range(len(graph.outputs))))


def _held(x: Tensor, number: int) -> Tensor | tf.Variable:
    """Return a captured tensor, or a variable object for a handle.

    The graph does not know a variable of which ops were given the handle alone.
    """
    kind = held_type(x)
    if x.dtype != tf.resource or kind.dtype is None:
        return x
    name = f"captured[{number}]"
    known = {"shape": tf.TensorShape(kind.sizes), "dtype": tf.as_dtype(kind.dtype), "handle": x, "trainable": False}
    return BaseResourceVariable(name=name, handle_name=name, unique_id=name, **known)


def nested(structure: object, results: Iterable[object]) -> object:
    """Nest results as a function does. `results` has no element for a None of the function."""
    left = iter(results)
    flat = tf.nest.flatten(structure, expand_composites=True)
    return tf.nest.pack_sequence_as(structure, [None if x is None else next(left) for x in flat], True)


def concrete_of(function: Any, signature: object) -> ConcreteFunction:
    """Return the concrete function for a signature: a list of specs, or the spec of the one parameter.

    Raises ArgumentError if the object is no function of TensorFlow, or lacks a signature.
    """
    if hasattr(function, "structured_outputs") and hasattr(function, "graph"):
        return function
    if not callable(function):
        raise ArgumentError(f"{function!r} is no function of TensorFlow")
    if signature is None and getattr(function, "input_signature", None) is None:
        raise ArgumentError("give a signature, a tf.TensorSpec for each parameter, with None for unknown sizes")
    if not hasattr(function, "get_concrete_function"):
        function = tf.function(function)
    specs = signature if isinstance(signature, (list, tuple)) else () if signature is None else (signature,)
    return function.get_concrete_function(*specs)


def saved_function(directory: str, signature: str) -> ConcreteFunction:
    """Load a signature of a SavedModel as a concrete function, which keeps the model alive. Raises ArgumentError."""
    model = tf.saved_model.load(directory)
    found = model.signatures.get(signature)
    if found is None:
        known = ", ".join(model.signatures) or "none"
        raise ArgumentError(
            f"{directory} has no signature {signature!r}; it has {known}: name one with signature=… (--signature)"
        )
    found._hlo_disc_model = model
    return found
