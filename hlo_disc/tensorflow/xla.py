"""A program inside functions that XLA compiles (`jit_compile=True`): a custom call in a StableHLO module.

XLA compiles for the sizes of a call, so the module computes the results' sizes from those of its operands.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.compiler.mlir.stablehlo import stablehlo
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

from hlo_disc.compiled.program import dtype_named
from hlo_disc.dynamic_hlo.ir.dtypes import element_type
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.ral import _ral

if TYPE_CHECKING:
    from hlo_disc.tensorflow.types import Tensor


_TARGET = "hlo_disc_alone"
_VERSION = 9  # of XlaCallModule


def is_traced() -> bool:
    """Return whether the graph that is traced now is for XLA."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph()))


@functools.cache
def _register() -> str:
    return _ral.register_tensorflow_ffi(os.path.join(tf.sysconfig.get_lib(), "libtensorflow_cc.so.2"))


def call(executable: Executable, number: int, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Add a call of a program to a graph for XLA. Return its results.

    number: the number under which the program is published. Raises UnsupportedOpError.
    """
    if wrong := _register():
        raise UnsupportedOpError(f"inside jit_compile=True: TensorFlow {tf.__version__} takes no handler: {wrong}")
    module = _Module(executable, number)
    text = stablehlo.serialize_portable_artifact_str(module.text(), stablehlo.get_current_version())
    types = [tf.as_dtype(x.dtype) for x in executable.linked.outputs]
    shapes = [tf.TensorShape([None] * len(x.shape)) for x in executable.linked.outputs]
    made = xla.call_module(inputs, version=_VERSION, module=text, Tout=types, Sout=shapes, platforms=["CPU"])
    return list(made)


class _Module:
    """The text of a module with one custom call."""

    def __init__(self, executable: Executable, number: int):
        self.program = executable.linked
        self.number = number
        self.lines: list[str] = []
        self.symbols: dict[str, str] = {}

    def text(self) -> str:
        inputs = [_type(x.dtype, x.shape) for x in self.program.inputs]
        outputs = [_type(x.dtype, x.shape) for x in self.program.outputs]
        for i, x in enumerate(self.program.inputs):
            for axis, d in enumerate(x.shape):
                if d.isidentifier() and d not in self.symbols:
                    size = self._add(
                        f"stablehlo.get_dimension_size %arg{i}, dim = {axis} : ({inputs[i]}) -> tensor<i32>"
                    )
                    self.symbols[d] = size
        shapes = [self._shape(x.shape) for x in self.program.outputs]
        count = len(inputs)
        operands = ", ".join([*(f"%arg{i}" for i in range(count)), *shapes])
        sizes = [f"tensor<{len(x.shape)}xi32>" for x in self.program.outputs]
        where = ", ".join(str(count + k) for k in range(len(shapes)))
        attributes = ", ".join(
            (
                "api_version = 4 : i32",
                f'call_target_name = "{_TARGET}"',
                f"backend_config = {{executable = {self.number} : i64}}",
                f"indices_of_shape_operands = dense<[{where}]> : tensor<{len(shapes)}xi64>",
            )
        )
        kind = f"({', '.join([*inputs, *sizes])}) -> ({', '.join(outputs)})"
        results = ", ".join(f"%r#{k}" for k in range(len(outputs))) if len(outputs) > 1 else "%r"
        many = f":{len(outputs)}" if len(outputs) > 1 else ""
        self.lines.append(f'%r{many} = "stablehlo.custom_call"({operands}) {{{attributes}}} : {kind}')
        self.lines.append(f"return {results} : {', '.join(outputs)}")
        arguments = ", ".join(f"%arg{i}: {kind}" for i, kind in enumerate(inputs))
        head = f"func.func public @main({arguments}) -> ({', '.join(outputs)}) {{"
        body = "\n".join(self.lines)
        return f"module attributes {{jax.uses_shape_polymorphism = true}} {{\n{head}\n{body}\n}}\n}}"

    def _add(self, op: str) -> str:
        name = f"%{len(self.lines)}"
        self.lines.append(f"{name} = {op}")
        return name

    def _shape(self, shape: Sequence[str]) -> str:
        """Emit the sizes of a shape as a vector. Return its name."""
        if not shape:
            return self._add("stablehlo.constant dense<> : tensor<0xi32>")
        parts = [self._add(f"stablehlo.reshape {self._size(d)} : (tensor<i32>) -> tensor<1xi32>") for d in shape]
        kinds = ", ".join(["tensor<1xi32>"] * len(parts))
        return self._add(f"stablehlo.concatenate {', '.join(parts)}, dim = 0 : ({kinds}) -> tensor<{len(parts)}xi32>")

    def _size(self, text: str) -> str:
        size = Dim.parse(text)
        unknown = size.symbols - self.symbols.keys()
        if unknown:
            raise UnsupportedOpError(
                f"inside jit_compile=True: the size '{text}' of a result is not one that XLA can know before it runs"
            )

        def binary(name: str) -> Callable[[str, str], str]:
            return lambda a, b: self._add(f"stablehlo.{name} {a}, {b} : tensor<i32>")

        def mod(a: str, b: str) -> str:
            rest = binary("remainder")(a, b)
            return binary("remainder")(binary("add")(rest, b), b)

        def floordiv(a: str, b: str) -> str:
            return binary("divide")(binary("subtract")(a, mod(a, b)), b)

        operations = {
            "add": binary("add"),
            "mul": binary("multiply"),
            "min": binary("minimum"),
            "max": binary("maximum"),
            "mod": mod,
            "floordiv": floordiv,
        }

        def constant(value: int) -> str:
            return self._add(f"stablehlo.constant dense<{value}> : tensor<i32>")

        return size.lower(constant, self.symbols.__getitem__, operations)


def _type(dtype: str, shape: Sequence[str]) -> str:
    sizes = "".join(f"{d if d.isdigit() else '?'}x" for d in shape)
    return f"tensor<{sizes}{element_type(np.dtype(dtype_named(dtype)))}>"
