"""The op HloDiscCall: a compiled program as an op of TensorFlow's, eagerly, in graphs and in saved graphs.

An op names its program by a number. In a graph the op also holds the program itself, for processes that have no program
of that number. Such a process only needs to import this module.
"""

from __future__ import annotations

import functools
import io
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, core, execute
from tensorflow.python.framework import op_def_library, ops

from hlo_disc import errors
from hlo_disc.compiled.saved import read_open, save
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.executable import Executable
from hlo_disc.ral import _ral
from hlo_disc.tensorflow import xla

if TYPE_CHECKING:
    from hlo_disc.tensorflow.compiled import Compiled
    from hlo_disc.tensorflow.types import Operation, Tensor


NAME = "HloDiscCall"
_lock = threading.Lock()
# The `Compiled` of each program, by number, for gradients and for compiled graphs that contain the op.
_functions: dict[int, Any] = {}


def _load(number: int, content: bytes) -> None:
    """Publish a program of a graph. TensorFlow calls this when it creates a node whose program the process lacks."""
    if not content:
        raise errors.FormatError(f"the graph has no program, and this process none of the number {number}")
    executable = Executable(read_open(io.BytesIO(content), "a program in a graph"))
    executable.native.publish(number)


@functools.cache
def _register() -> None:
    path = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    if wrong := _ral.register_tensorflow_op(path, _load):
        raise errors.ArgumentError(f"TensorFlow {tf.__version__} takes no op through its C API: {wrong}")


# With the module: a process that loads a saved graph calls nothing here before TensorFlow asks for the op.
_register()


class Op:
    """A program as an op: a function from tensors to a list of tensors, eager or of the graph that is traced now.

    function: the `Compiled` that has the program.
    shapes: the known shapes of the results, for graphs.
    """

    def __init__(self, function: Compiled, shapes: Sequence[tf.TensorShape]):
        self.executable: Executable = function.executable
        self.shapes = shapes
        self.types = [tf.as_dtype(x.dtype) for x in self.executable.linked.outputs]
        self._codes = [t.as_datatype_enum for t in self.types]
        self._function = function

    @functools.cached_property
    def key(self) -> int:
        """The number of the program, which is then kept for the life of the process, for graphs may name it.

        The program is then complete: TensorFlow's threads never wait for Python, nor for a kernel that it compiles.
        """
        content = self.executable.content
        with _lock:
            number = self.executable.native.publish(content)
            _functions[number] = self._function
            return number

    @functools.cached_property
    def content(self) -> bytes:
        """The file of the program, as graphs hold it."""
        stream = io.BytesIO()
        save(self.executable.program, stream)
        return stream.getvalue()

    def __call__(self, inputs: list[Tensor]) -> list[Tensor]:
        """Run the program, or add a node to the graph that is traced now. Raises the errors of an executable's call."""
        ctx = context.context()
        if ctx.executing_eagerly():
            try:
                return pywrap_tfe.TFE_Py_FastPathExecute(ctx, NAME, None, inputs, "Tout", self._codes, "key", self.key)
            except (tf.errors.OpError, core._NotOkStatusException) as error:
                raise _translated(error) from None
        attributes = {"Tout": self.types, "key": self.key, "program": self.content}
        if xla.is_traced():
            results = xla.call(self.executable, self.key, inputs)
        else:
            results = op_def_library.apply_op(NAME, args=inputs, **attributes)
        if execute.must_record_gradient():
            execute.record_gradient(NAME, inputs, sum(attributes.items(), ()), results)
        for x, *shapes in zip(results, self.shapes, self.sizes(inputs), strict=True):
            for shape in shapes:
                x.set_shape(shape)
        return results

    def sizes(self, inputs: Sequence[Tensor]) -> list[list[int | None]]:
        """Return the results' sizes that follow from known sizes of inputs, None for others. Loops need them."""
        program, known = self.executable.linked, dict[str, int]()
        for row, x in zip(program.inputs, inputs, strict=True):
            for name, size in zip(row.shape, x.shape if x.shape.rank is not None else (), strict=False):
                if size is not None:
                    known.setdefault(name, size)
        return [[_value(Dim.parse(text), known) for text in row.shape] for row in program.outputs]


def _value(d: Dim, known: Mapping[str, int]) -> int | None:
    """Return the value of a size; None if it is unknown or invalid. An invalid one is an error when the call runs."""
    if not d.symbols <= known.keys():
        return None
    try:
        value = d.evaluate(known)
    except ZeroDivisionError:
        return None
    return value if value >= 0 else None


def _translated(error: Exception) -> Exception:
    """Convert an error of the op to the class of hlo_disc that its message names. Return other errors unchanged."""
    message = str(getattr(error, "message", error))
    _, found, rest = message.partition("hlo_disc.")
    name, _, rest = rest.partition(": ")
    kind = getattr(errors, name, None) if found else None
    if kind is None:
        return error
    return kind(rest.partition(" [Op:")[0])


def function_of(op: Operation) -> Compiled | None:
    """Return the `Compiled` whose program an op runs; None if it was loaded with a graph, from another process."""
    return _functions.get(op.get_attr("key"))


@ops.RegisterGradient(NAME)
def _gradient(op: Operation, *grads: Tensor | None) -> Sequence[Tensor | None]:
    function = function_of(op)
    if function is None:
        raise LookupError("a program that was loaded with a graph has no gradient: import the function in this process")
    return function.gradients(list(op.inputs), list(grads))
