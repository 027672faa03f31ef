"""A compiled function of TensorFlow: tensors in and out, eagerly and in graphs, with gradients."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context

from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.tensorflow.importing import Imported, nested
from hlo_disc.tensorflow.op import Op

if TYPE_CHECKING:
    from hlo_disc.profile import Profile
    from hlo_disc.tensorflow.types import ConcreteFunction, Tensor


class Compiled:
    """A compiled function of tensors, from `hlo_disc.tensorflow.compile`. Any thread may call it.

    A call takes tensors, arrays or numbers of any shape that fits the signature, and returns the function's results. In
    a `tf.function` the call is an op of the graph, and the program is saved with the graph. Each call reads the
    variables, and after the program has run it assigns to those that the function assigns to.

    Args:
        imported: the function with its captured variables and tensors.
        executable: the program. Its inputs are those of the function, and then the captured ones. Its results are those
            of the function, and then the new values of the variables to which the function assigns.
        constraints: the conditions on dims that it was compiled with.
    """

    autograph_info__: dict[str, Any] = {}  # AutoGraph does not convert objects that have this

    def __init__(self, imported: Imported, executable: Executable, constraints: Sequence[str] = ()):
        self.executable = executable
        self.imported = imported
        self.constraints = constraints
        concrete = imported.concrete
        self._types = [x.dtype for x in concrete.graph.inputs[: imported.count]]
        self._structure = concrete.structured_outputs
        self._is_flat = type(self._structure) is tuple and all(isinstance(x, tf.Tensor) for x in self._structure)
        self._backward: dict[tuple[bool, ...], _Backward] = {}
        self._lock = threading.Lock()
        self._count = len(concrete.graph.outputs)
        self._assigned = imported.assigned_variables
        self._op = Op(self, [*(x.shape for x in concrete.graph.outputs), *(v.shape for v in self._assigned)])
        self._run = self._first if executable.tally else executable.native

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the function.

        Args:
            args: the arguments of the function.
            kwargs: its keyword arguments.

        Returns:
            The results of the function, with tensors.

        Raises:
            ArgumentError: arguments do not fit the signature.
            ShapeError: sizes are not the program's, or disagree.
            OutOfMemoryError: there is no memory for results or intermediates.
        """
        flat = self._flat(args, kwargs)
        return self.packed(self.run(flat))

    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the flat results of flat tensors. Eager calls that no tape records need no op."""
        captures = self.imported.captures
        results: Sequence[Any]
        if is_direct() and (inputs or captures):
            results = self._run(*inputs, *map(_read_now, captures))
        else:
            results = self._op([*inputs, *map(_read, captures)])
        if not self._assigned:
            return results
        assign = _assign_now if context.executing_eagerly() else _assign
        for variable, value in zip(self._assigned, results[self._count :], strict=True):
            assign(variable, value)
        return results[: self._count]

    def _first(self, *tensors: Tensor) -> Sequence[Tensor]:
        self._run = self.executable.native
        with self.executable.first_call():
            return self._run(*tensors)

    def is_for(self, shapes: Sequence[Sequence[int | None]]) -> bool:
        """Return whether the program is for arguments of these sizes: it may assume other ones.

        If a size is unknown, the result is True.
        """
        if not self.executable.linked.asked:
            return True
        held = [tuple(x.shape) for x in self.imported.captures]
        sizes = [n for shape in (*shapes, *held) for n in shape]
        return None in sizes or not self.executable.native.unmet(sizes)

    def gives(self, exact: ConcreteFunction) -> bool:
        """Return whether its results have the number, types and shapes of those of `exact`, a trace for some sizes."""
        inputs = [*exact.graph.inputs[: self.imported.count], *self.imported.captures]
        sizes = self._op.sizes(inputs)[: self._count]
        if len(inputs) != len(self.executable.linked.inputs) or len(sizes) != len(exact.graph.outputs):
            return False
        return all(
            x.dtype == kind and x.shape.is_compatible_with(shape)
            for x, kind, shape in zip(exact.graph.outputs, self._op.types, sizes, strict=False)
        )

    def packed(self, results: Sequence[Tensor]) -> object:
        """Nest flat results as the function does."""
        if isinstance(self._structure, tf.Tensor):
            return results[0]
        if self._is_flat:
            return tuple(results)
        return nested(self._structure, results)

    def _flat(self, args: Sequence[Any], kwargs: dict[str, object]) -> list[Tensor]:
        if not kwargs and len(args) == len(self._types) and all(isinstance(x, tf.Tensor) for x in args):
            return list(args)
        flat: Sequence[object]
        kind = self.imported.concrete.function_type
        try:
            if kind is None:  # of a signature of a SavedModel
                named = {**dict(zip(self.imported.names, args, strict=False)), **kwargs}
                flat = [named[name] for name in self.imported.names[: self.imported.count]]
            else:
                flat = kind.unpack_inputs(kind.bind(*args, **kwargs))
            return [tf.convert_to_tensor(x, t) for x, t in zip(flat, self._types, strict=True)]
        except (TypeError, ValueError, KeyError) as error:
            raise ArgumentError(f"{self.imported.concrete.graph.name}: {error}") from None

    def gradients(self, inputs: list[Tensor], grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Return the gradients of the op's inputs, None for an input without one, from those of its results."""
        grads = grads[: self._count]  # new values of variables have none: a variable is another one from then on
        pattern = tuple(g is not None for g in grads)
        with self._lock:
            if pattern not in self._backward:
                ranks = [len(x.shape) for x in self.executable.linked.outputs[: self._count]]
                self._backward[pattern] = _Backward(self.imported, pattern, ranks)
        return self._backward[pattern](inputs, [g for g in grads if g is not None])

    def explain(
        self, full: bool = False, html: str | os.PathLike[str] | None = None, profile: Profile | None = None
    ) -> str:
        """Describe how the function is compiled, as `Executable.explain` does."""
        return self.executable.explain(full, html, profile)

    def profile(self, *args: object, seconds: float = 1.0, **kwargs: object) -> Profile:
        """Measure the time of each kernel: `Executable.profile` for a call with these arguments."""
        return self.measured(self._flat(args, kwargs), seconds)

    def measured(self, inputs: Sequence[Tensor], seconds: float) -> Profile:
        """Measure the time of each kernel in calls with these flat tensors."""
        return self.executable.profile(*inputs, *map(_read_now, self.imported.captures), seconds=seconds)

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """The variables that it reads."""
        return tuple(x for x in self.imported.captures if isinstance(x, tf.Variable))

    def __repr__(self) -> str:
        return f"<hlo_disc.tensorflow {self.imported.concrete.graph.name}: {self.executable!r}>"


def is_direct() -> bool:
    """Return whether a call now is eager and no tape records it. Such a call needs no op."""
    return bool(context.executing_eagerly() and pywrap_tfe.TFE_Py_TapeSetIsEmpty())


def _read(x: Tensor | tf.Variable) -> Tensor:
    return x.read_value() if isinstance(x, tf.Variable) else x


def _read_now(x: Tensor | tf.Variable) -> Tensor:
    """Read a variable eagerly when no tape records it: `read_value` takes four times as long."""
    if not isinstance(x, tf.Variable):
        return x
    code = x.dtype.as_datatype_enum
    return pywrap_tfe.TFE_Py_FastPathExecute(context.context(), "ReadVariableOp", None, x.handle, "dtype", code)


def _assign(x: tf.Variable, value: Tensor) -> None:
    x.assign(value, read_value=False)


def _assign_now(x: tf.Variable, value: Tensor) -> None:
    """Assign to a variable eagerly. The program has checked types and sizes already: `assign` takes twice as long."""
    code = x.dtype.as_datatype_enum
    pywrap_tfe.TFE_Py_FastPathExecute(context.context(), "AssignVariableOp", None, x.handle, value, "dtype", code)


class _Backward:
    """A program that computes the gradients of a function's inputs from those of some of its results.

    It takes the inputs of the op's call, so captured variables have the values that they had then.

    pattern: for each result, whether it has a gradient. ranks: the ranks of the results, which TensorFlow may not know.
    """

    def __init__(self, imported: Imported, pattern: Sequence[bool], ranks: Sequence[int]):
        concrete, count = imported.concrete, imported.count
        graph = concrete.graph
        chosen = [i for i, has in enumerate(pattern) if has]
        given = [tf.TensorSpec(x.shape, x.dtype) for x in graph.inputs[:count]]
        shapes = [graph.outputs[i].shape.merge_with(tf.TensorShape([None] * ranks[i])) for i in chosen]
        cotangents = [tf.TensorSpec(shape, graph.outputs[i].dtype) for i, shape in zip(chosen, shapes, strict=True)]
        inputs = [*given, *imported.captures]
        self._sources = [i for i, x in enumerate(inputs) if x.dtype.is_floating or x.dtype.is_complex]
        self._count = len(inputs)
        found: list[int] = []

        def backward(*tensors: Tensor) -> list[Tensor]:
            args, dys = tensors[:count], list(tensors[count:])
            sources = [([*args, *imported.captures])[i] for i in self._sources]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                results = tf.nest.flatten(concrete._call_flat(list(args), concrete.captured_inputs))
                wanted = [results[i] for i in chosen]
            made = tape.gradient(wanted, sources, output_gradients=dys)
            found[:] = [i for i, g in zip(self._sources, made, strict=True) if g is not None]
            return [tf.convert_to_tensor(g) for g in made if g is not None]

        traced = tf.function(backward, autograph=False).get_concrete_function(*given, *cotangents)
        self._found = found
        self._imported = Imported(traced, changes=False)
        held = {id(x): count + i for i, x in enumerate(imported.captures)}
        self._places = [held.get(id(x)) for x in self._imported.captures]
        try:
            self._compiled = Compiled(self._imported, self._imported.compiled())
        except UnsupportedOpError as error:
            raise UnsupportedOpError(f"the gradient of {graph.name}: {error}") from None

    def __call__(self, inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> Sequence[Tensor | None]:
        own = inputs[: self._imported.count - len(grads)]
        captured = [
            _read(x) if place is None else inputs[place]
            for x, place in zip(self._imported.captures, self._places, strict=True)
        ]
        results = self._compiled._op([*own, *grads, *captured]) if self._found else []
        made: list[Any] = [None] * self._count
        for i, x in zip(self._found, results, strict=True):
            made[i] = x
        return made
