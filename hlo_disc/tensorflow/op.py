"""The op HloDiscCall: a compiled program as an op of TensorFlow's, eagerly, in graphs, and in those that are saved.

An op names its program by a number. In a graph it has the program itself besides, from which a process that has none of
that number makes it: to import this module is all that such a process needs to do.
"""

from __future__ import annotations

import functools
import io
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context, core, execute
from tensorflow.python.framework import op_def_library, ops

from hlo_disc import errors
from hlo_disc.executable import Executable
from hlo_disc.ral import _ral
from hlo_disc.saved import read_open, save
from hlo_disc.tensorflow import xla

_NAME = "HloDiscCall"
_lock = threading.Lock()
# By number: what makes of an op's inputs and its results' gradients the gradients of the inputs.
_gradients: dict[int, Callable[..., Sequence[Any]]] = {}


def _load(number: int, content: bytes) -> None:
    """Publish a program of a graph. TensorFlow calls this when it makes a node of which the process has no program."""
    if not content:
        raise errors.FormatError(f"the graph has no program, and this process none of the number {number}")
    executable = Executable(read_open(io.BytesIO(content), "a program in a graph"))
    executable.native.publish(number)


@functools.cache
def _register() -> None:
    path = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    if wrong := _ral.register_tensorflow_op(path, _load):
        raise errors.ArgumentError(f"TensorFlow {tf.__version__} takes no op through its C API: {wrong}")


_register()


class Op:
    """A program as an op: called with tensors it gives a list of tensors, eager or of the graph that is being traced.

    gradient: of (inputs, gradients of the results) those of the inputs, None for an input that has none.
    shapes: what is known of the results' shapes, for graphs.
    """

    def __init__(
        self,
        executable: Executable,
        shapes: Sequence[tf.TensorShape],
        gradient: Callable[..., Sequence[Any]] | None = None,
    ):
        self.executable = executable
        self.shapes = shapes
        self.types = [tf.as_dtype(x.dtype) for x in executable.program.outputs]
        self._codes = [t.as_datatype_enum for t in self.types]
        self._gradient = gradient

    @functools.cached_property
    def key(self) -> int:
        """The program's number. From now on it is kept for the life of the process, for graphs may name it."""
        with _lock:
            number = self.executable.native.publish(self.executable.content)
            if self._gradient is not None:
                _gradients[number] = self._gradient
            return number

    @functools.cached_property
    def content(self) -> bytes:
        """The program as it is in graphs."""
        stream = io.BytesIO()
        save(self.executable.program, stream)
        return stream.getvalue()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """Run, or add a node. Raises as an executable does when it is called."""
        ctx = context.context()
        if ctx.executing_eagerly():
            try:
                return pywrap_tfe.TFE_Py_FastPathExecute(ctx, _NAME, None, inputs, "Tout", self._codes, "key", self.key)
            except (tf.errors.OpError, core._NotOkStatusException) as error:
                raise _translated(error) from None
        attributes = {"Tout": self.types, "key": self.key, "program": self.content}
        if xla.is_traced():
            results = xla.call(self.executable, self.key, inputs)
        else:
            results = op_def_library.apply_op(_NAME, args=inputs, **attributes)
        if execute.must_record_gradient():
            execute.record_gradient(_NAME, inputs, sum(attributes.items(), ()), results)
        for x, shape in zip(results, self.shapes, strict=True):
            x.set_shape(shape)
        return results


def _translated(error: Exception) -> Exception:
    """An error of the op as the class of ours whose name its message begins with."""
    message = str(getattr(error, "message", error))
    _, found, rest = message.partition("hlo_disc.")
    name, _, rest = rest.partition(": ")
    kind = getattr(errors, name, None) if found else None
    if kind is None:
        return error
    return kind(rest.partition(" [Op:")[0])


@ops.RegisterGradient(_NAME)
def _gradient(op: Any, *grads: Any) -> Sequence[Any]:
    function = _gradients.get(op.get_attr("key"))
    if function is None:
        raise LookupError("a program that was loaded with a graph has no gradient: import the function in this process")
    return function(list(op.inputs), list(grads))
