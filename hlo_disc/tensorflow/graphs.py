"""A graph of TensorFlow as plain data (`import_/tensorflow/program.py`): what is reached from its results, in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.tensorflow.program import Block, Function, Node, Program, Result, TensorType
from hlo_disc.tensorflow.op import NAME, function_of

_HERE = os.path.dirname(tf.__file__)
_OURS = os.path.dirname(os.path.dirname(__file__))
# Checks and texts that hand on their operand.
_CHECKS = ("CheckNumerics", "CheckNumericsV2", "Print")
# What hands on its operand: a loop that returns an argument through one has not changed it.
_NOTHING = frozenset(("Identity", "ReadVariableOp", "StopGradient", "PreventGradient", "Snapshot", *_CHECKS))
HANDED_ON = frozenset((*_NOTHING, "IdentityN"))
LEFT_OUT = ("Assert", "ControlTrigger", "NoOp", "PrintV2")  # without a result, that anyone could need
# Stateful ops that compiled functions do without where no result needs them. Nothing is checked or printed, as under
# XLA; and to read a variable or the time, or to draw a number, changes nothing that anyone could see.
_READS = ("Const", "Empty", "Placeholder", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "Timestamp")
_DRAWS = (
    "Multinomial",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
)
_IGNORED = frozenset((*LEFT_OUT, *_CHECKS, *_READS, *_DRAWS))


def program_of(
    concrete: Any, inputs: Sequence[str], variables: Sequence[TensorType], values: Sequence[np.ndarray] | None = None
) -> Program:
    """A concrete function as a program.

    variables: what the trailing arguments of the graph hold. values: their contents, where they shall be constants.

    Raises UnsupportedOpError for a function that changes variables.
    """
    functions: dict[str, Function] = {}
    graph = concrete.graph
    main = _function(graph, functions, variables)
    if values:
        block, first = main.block, len(main.block.arguments) - len(values)
        for argument, value in zip(block.arguments[first:], values, strict=True):
            node = Node("tf.Const", [], [argument.type], {"value": value}, "")
            node.results = [argument]
            block.operations.insert(0, node)
        del block.arguments[first:]
    return Program(graph.name, main, inputs, functions)


def _function(graph: Any, functions: dict[str, Function], variables: Sequence[TensorType] = ()) -> Function:
    block = Block()
    values: dict[str, Result] = {}
    first = len(graph.inputs) - len(variables)
    for i, tensor in enumerate(graph.inputs):
        argument = Result(variables[i - first] if variables and i >= first else tensor_type(tensor))
        values[tensor.name] = argument
        block.arguments.append(argument)
    ordered = _ordered(graph)
    for op in set(graph.get_operations()).difference(ordered):
        if op.op_def.is_stateful and op.type not in _IGNORED and _has_effect(op):
            raise UnsupportedOpError(
                f"tf.{op.type}{_at(op)}: a function that changes variables or has other effects is not supported"
            )
    for op in ordered:
        if op.type in _NOTHING:
            values[op.outputs[0].name] = values[op.inputs[0].name]
        elif op.type == "IdentityN":
            for source, result in zip(op.inputs, op.outputs, strict=True):
                values[result.name] = values[source.name]
        elif op.type != "Placeholder" or op.outputs[0].name not in values:
            name, attributes = _called(op, functions)
            operands, types = [values[x.name] for x in op.inputs], [tensor_type(x) for x in op.outputs]
            node = Node(f"tf.{name}", operands, types, attributes, _line(op))
            values.update((x.name, result) for x, result in zip(op.outputs, node.results, strict=True))
            block.operations.append(node)
    block.operations.append(Node("tf.return", [values[x.name] for x in graph.outputs], [], {}, ""))
    return Function(block)


def check_captured(graph: Any, argument: Any) -> None:
    """Refuse an argument of a graph that is a captured table, iterator or text: programs hold numbers."""
    if tensor_type(argument).dtype is None:
        op = next(iter(argument.consumers()), argument.op)
        raise UnsupportedOpError(
            f"tf.{op.type}{_at(op)}: {graph.name} captures a {argument.dtype.name}, which is neither a variable nor a "
            "tensor of numbers: keep what needs it outside, and pass on what comes of it as an argument"
        )


def _ordered(graph: Any) -> list[Any]:
    """The ops that results are made of, operands first: gradients add operands to loops that are there already."""
    done: dict[Any, None] = {}
    waiting = [x.op for x in reversed(graph.outputs)]
    while waiting:
        op = waiting[-1]
        if op.type == "NextIteration":
            raise UnsupportedOpError(
                f"tf.{op.type}{_at(op)}: loops of TensorFlow 1 are not supported: keep tf.while_loop as one op, with "
                "tf.compat.v1.enable_control_flow_v2(), or lower_control_flow=False where variables are frozen"
            )
        missing = [x.op for x in op.inputs if x.op not in done]
        if missing and op not in done:
            waiting += missing
        else:
            done.setdefault(waiting.pop())
    return list(done)


def _has_effect(op: Any) -> bool:
    """Whether an op that no result needs does something: calls may, by what they call."""
    names = [op.get_attr(name).name for name in ("f", "body", "cond", "then_branch", "else_branch") if _has(op, name)]
    names += [op.type] if _found(op.graph, op.type) is not None else []
    if not names:
        return True
    return any(_changes(_function_graph(op.graph, name)) for name in names)


def _changes(graph: Any) -> bool:
    return any(op.op_def.is_stateful and op.type not in _IGNORED and _has_effect(op) for op in graph.get_operations())


def _found(graph: Any, name: str) -> Any:
    """A function that a graph or one around it has; None for none."""
    while graph is not None:
        if (function := graph._get_function(name)) is not None:
            return function
        graph = getattr(graph, "outer_graph", None)
    return None


def _function_graph(graph: Any, name: str) -> Any:
    """The graph of a function that is called in a graph; those that came as definitions have none yet."""
    function = _found(graph, name)
    if hasattr(function, "graph"):
        return function.graph
    with graph.as_default():  # where the functions are that it calls
        return function_def_to_graph(function.definition)


def _has(op: Any, name: str) -> bool:
    return name in op.node_def.attr and op.node_def.attr[name].HasField("func")


def tensor_type(tensor: Any) -> TensorType:
    """The type of a tensor of a graph."""
    return type_of(tensor.dtype, tensor.shape)


def type_of(dtype: Any, shape: Any) -> TensorType:
    """A dtype and a shape of TensorFlow."""
    own = dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool
    sizes = None if shape.rank is None else tuple(shape.as_list())
    kind = np.dtype(dtype.as_numpy_dtype) if own and not dtype.is_quantized else None
    return TensorType(kind, sizes, dtype.name)


def _called(op: Any, functions: dict[str, Function]) -> tuple[str, dict[str, Any]]:
    """What an op is called, and its attributes. An op may be the call of a function that it has the name of."""
    if op.type == NAME:
        return NAME, _program(op, functions)
    if _found(op.graph, op.type) is not None:
        return "PartitionedCall", {"f": _follow(op.graph, op.type, functions)}
    return op.type, _attributes(op, functions)


def _follow(graph: Any, name: str, functions: dict[str, Function]) -> str:
    """The name of a function, which is one of the program's from now on."""
    if name not in functions:
        functions[name] = _function(_function_graph(graph, name), functions)
    return name


def _attributes(op: Any, functions: dict[str, Function]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in op.node_def.attr:
        if not name.startswith("_"):
            found[name] = _attribute(op, op.get_attr(name), functions)
    return found


def _program(op: Any, functions: dict[str, Function]) -> dict[str, Any]:
    """Of an op that runs a program of ours: the function that this was compiled from, and what calls it takes."""
    compiled = function_of(op)
    if compiled is None:
        raise UnsupportedOpError(
            f"tf.{op.type}{_at(op)}: a program of hlo_disc that was loaded with a graph is machine code, which cannot "
            "become part of another program: compile in a process that has the function it was made from"
        )
    name = f"hlo_disc.{op.get_attr('key')}"
    if name not in functions:
        functions[name] = _function(compiled.imported.concrete.graph, functions, compiled.imported.held)
    rows = compiled.executable.program.inputs
    shapes = [list(row.shape) for row in rows]
    return {"f": name, "names": [row.name for row in rows], "shapes": shapes, "constraints": list(compiled.constraints)}


def _attribute(op: Any, value: Any, functions: dict[str, Function]) -> Any:
    """An attribute as plain data; a function is followed, and stands there by its name."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:  # no text: a module, or a message
            return value
    if isinstance(value, tf.DType):
        return type_of(value, tf.TensorShape([])).dtype
    if isinstance(value, list):
        return [_attribute(op, x, functions) for x in value]
    kind = type(value).__name__
    if kind == "TensorProto":
        return tensor_util.MakeNdarray(value)
    if kind == "TensorShapeProto":
        return None if value.unknown_rank else [None if d.size < 0 else d.size for d in value.dim]
    if kind == "NameAttrList":
        return _follow(op.graph, value.name, functions)
    return value


def _at(op: Any) -> str:
    line = _line(op)
    return f" at {line}" if line else ""


def _line(op: Any) -> str:
    """The user's line that made an op, else what the graph calls it."""
    for frame in reversed(op.traceback or ()):
        if not frame.filename.startswith((_HERE, _OURS)) and "site-packages" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return op.name
