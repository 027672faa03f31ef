"""A graph of TensorFlow as plain data (`import_/tensorflow/program.py`): the ops that its results need, in order.

Plain data has the values of variables, but no variables. A value that an op assigns is a result of the op, and later
ops read it in place of the old value. A function that assigns to variables returns their last values as results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import tensor_util
from tensorflow.python.ops.resource_variable_ops import get_eager_safe_handle_data

from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.tensorflow.program import Block, Function, Node, Program, Result, TensorType
from hlo_disc.tensorflow.effects import (
    NOTHING,
    assigned_inputs,
    assigned_operands,
    first_argument,
    found_function,
    function_graph,
    has_effect,
    is_loop,
    ordered,
)
from hlo_disc.tensorflow.lines import at_line, line_of
from hlo_disc.tensorflow.op import NAME, function_of

if TYPE_CHECKING:
    from hlo_disc.tensorflow.types import ConcreteFunction, Graph, Operation, Tensor


def program_of(
    concrete: ConcreteFunction,
    inputs: Sequence[str],
    variables: Sequence[TensorType],
    assigned: Sequence[int] = (),
    values: Sequence[np.ndarray] | None = None,
) -> Program:
    """Convert a concrete function to a program.

    variables: the types of the values that the graph's trailing arguments hold. assigned: the inputs whose last values
    are results too. values: the values of `variables`, if these become constants.

    Raises UnsupportedOpError for a function with effects other than to assign to variables.
    """
    functions: dict[str, Function] = {}
    graph = concrete.graph
    main = _function(graph, functions, variables, assigned)
    if values:
        block, first = main.block, len(main.block.arguments) - len(values)
        for argument, value in zip(block.arguments[first:], values, strict=True):
            node = Node("tf.Const", [], [argument.type], {"value": value}, "")
            node.results = [argument]
            block.operations.insert(0, node)
        del block.arguments[first:]
    return Program(graph.name, main, inputs, functions)


def _function(
    graph: Graph,
    functions: dict[str, Function],
    variables: Sequence[TensorType] = (),
    assigned: Sequence[int] = (),
) -> Function:
    """Convert a graph, and add the functions that it calls to `functions`.

    assigned: the inputs whose last values are results too. variables: see `program_of`.
    """
    first = len(graph.inputs) - len(variables)
    arguments = [Result(variables[i - first] if i >= first else held_type(x)) for i, x in enumerate(graph.inputs)]
    block = Block(list(arguments))
    values = {tensor.name: argument for tensor, argument in zip(graph.inputs, arguments, strict=True)}
    now: dict[Result, Result] = {}  # the values last assigned to arguments that are variables

    def operand(tensor: Tensor) -> Result:
        value = values[tensor.name]
        return now.get(value, value) if tensor.dtype == tf.resource else value

    operations = graph.get_operations()
    assigning = {op: places for op in operations if (places := list(assigned_operands(op)))}
    running = ordered(graph, list(assigning))
    for op in set(operations).difference(running):
        if has_effect(op):
            raise UnsupportedOpError(
                f"tf.{op.type}{at_line(op)}: a function that has effects other than to assign to variables is not "
                "supported"
            )
    for op in running:
        if op.type in NOTHING:
            source = op.inputs[0]
            values[op.outputs[0].name] = operand(source) if op.type == "ReadVariableOp" else values[source.name]
        elif op.type == "IdentityN":
            for source, result in zip(op.inputs, op.outputs, strict=True):
                values[result.name] = values[source.name]
        elif op.type != "Placeholder" or op.outputs[0].name not in values:
            places = assigning.get(op, [])
            roots = [values[op.inputs[i].name] for i in places]
            _check_aliases(op, roots, values)
            name, attributes = _called(op, functions, places)
            types = [tensor_type(x) for x in op.outputs]
            after = () if is_loop(op) else [root.type for root in roots]  # a loop returns its variables in order
            node = Node(f"tf.{name}", [operand(x) for x in op.inputs], [*types, *after], attributes, line_of(op))
            block.operations.append(node)
            values.update((x.name, result) for x, result in zip(op.outputs, node.results, strict=False))
            made = [node.results[i] for i in places] if is_loop(op) else node.results[len(types) :]
            now.update(zip(roots, made, strict=True))
            if is_loop(op):
                values.update((x.name, values[op.inputs[i].name]) for i, x in _handles(op))
    results = [*map(operand, graph.outputs), *(now.get(arguments[i], arguments[i]) for i in assigned)]
    block.operations.append(Node("tf.return", results, [], {}, ""))
    return Function(block)


def _handles(op: Operation) -> list[tuple[int, Tensor]]:
    """Return the results of a loop that are variables, with their numbers."""
    return [(i, x) for i, x in enumerate(op.outputs) if x.dtype == tf.resource]


def _check_aliases(op: Operation, assigned: Sequence[Result], values: dict[str, Result]) -> None:
    """Refuse an op that takes a variable twice and assigns to it: it would read the old value."""
    given = [values[x.name] for x in op.inputs if x.dtype == tf.resource]
    if any(given.count(root) > 1 for root in assigned):
        raise UnsupportedOpError(
            f"tf.{op.type}{at_line(op)}: it is given one variable twice, and assigns to it: give it the variable once"
        )


def check_captured(graph: Graph, argument: Tensor) -> None:
    """Refuse an argument of a graph that is a captured table, iterator or text: programs hold numbers."""
    if tensor_type(argument).dtype is None:
        op = next(iter(argument.consumers()), argument.op)
        raise UnsupportedOpError(
            f"tf.{op.type}{at_line(op)}: {graph.name} captures a {argument.dtype.name}, which is neither a variable "
            "nor a tensor of numbers: keep what needs it outside, and pass on what comes of it as an argument"
        )


def tensor_type(tensor: Tensor) -> TensorType:
    """Return the type of a tensor of a graph."""
    return type_of(tensor.dtype, tensor.shape)


def held_type(tensor: Tensor) -> TensorType:
    """Return the type of a tensor; for a variable, the type of its value."""
    if tensor.dtype == tf.resource:
        data = get_eager_safe_handle_data(tensor)
        if data is not None and data.is_set and len(data.shape_and_type) == 1:
            held = data.shape_and_type[0]
            if held.dtype != types_pb2.DT_INVALID:
                return type_of(tf.as_dtype(held.dtype), tf.TensorShape(held.shape))
    return tensor_type(tensor)


def type_of(dtype: tf.DType, shape: tf.TensorShape) -> TensorType:
    """Convert a dtype and a shape of TensorFlow to a type."""
    own = dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool
    sizes = None if shape.rank is None else tuple(shape.as_list())
    kind = np.dtype(dtype.as_numpy_dtype) if own and not dtype.is_quantized else None
    return TensorType(kind, sizes, dtype.name)


def _called(op: Operation, functions: dict[str, Function], assigned: Sequence[int]) -> tuple[str, dict[str, object]]:
    """Return the name of an op and its attributes. An op that has the name of a function is a call of the function.

    assigned: the operands that are variables to which it, or a function that it calls, assigns.
    """
    if op.type == NAME:
        return NAME, _program(op, functions)
    first = first_argument(op)
    last = [i - first for i in assigned] if not is_loop(op) else []
    if found_function(op.graph, op.type) is not None:
        return "PartitionedCall", {"f": _follow(op.graph, op.type, functions, last)}
    if is_loop(op) and assigned_inputs(function_graph(op.graph, op.get_attr("cond").name)):
        raise UnsupportedOpError(f"tf.{op.type}{at_line(op)}: the condition of a loop assigns to a variable")
    return op.type, _attributes(op, functions, last)


def _follow(graph: Graph, name: str, functions: dict[str, Function], assigned: Sequence[int]) -> str:
    """Return the key of a function in `functions`, and add it if it is missing. assigned: see `_function`."""
    key = f"{name}:{','.join(map(str, assigned))}" if assigned else name
    if key not in functions:
        functions[key] = _function(function_graph(graph, name), functions, assigned=assigned)
    return key


def _attributes(op: Operation, functions: dict[str, Function], assigned: Sequence[int]) -> dict[str, object]:
    found: dict[str, Any] = {}
    for name in op.node_def.attr:
        if not name.startswith("_"):
            found[name] = _attribute(op, op.get_attr(name), functions, assigned)
    return found


def _program(op: Operation, functions: dict[str, Function]) -> dict[str, object]:
    """Return the attributes of an op that runs a program of hlo_disc: its function, and the inputs that it accepts."""
    compiled = function_of(op)
    if compiled is None:
        raise UnsupportedOpError(
            f"tf.{op.type}{at_line(op)}: a program of hlo_disc that was loaded with a graph is machine code, which "
            "cannot become part of another program: compile in a process that has the function it was made from"
        )
    name = f"hlo_disc.{op.get_attr('key')}"
    if name not in functions:
        imported = compiled.imported
        functions[name] = _function(imported.concrete.graph, functions, imported.held, list(imported.assigned))
    rows = compiled.executable.linked.inputs
    shapes = [list(row.shape) for row in rows]
    return {"f": name, "names": [row.name for row in rows], "shapes": shapes, "constraints": list(compiled.constraints)}


def _attribute(op: Operation, value: Any, functions: dict[str, Function], assigned: Sequence[int]) -> object:
    """Convert an attribute to plain data. A function is added to `functions`, and its key is the attribute."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:  # no text: a module, or a message
            return value
    if isinstance(value, tf.DType):
        return type_of(value, tf.TensorShape([])).dtype
    if isinstance(value, list):
        return [_attribute(op, x, functions, assigned) for x in value]
    kind = type(value).__name__
    if kind == "TensorProto":
        return tensor_util.MakeNdarray(value)
    if kind == "TensorShapeProto":
        return None if value.unknown_rank else [None if d.size < 0 else d.size for d in value.dim]
    if kind == "NameAttrList":
        return _follow(op.graph, value.name, functions, assigned)
    return value
