"""The effects of a graph's ops besides their results: no visible effect, assignments to variables, or others."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from hlo_disc.errors import UnsupportedOpError
from hlo_disc.tensorflow.lines import at_line

if TYPE_CHECKING:
    from hlo_disc.tensorflow.types import Graph, GraphFunction, Operation, Tensor


# Ops that check or print their operand, and return it.
CHECKS = ("CheckNumerics", "CheckNumericsV2", "Print")
# Ops that return their operand: a loop that returns an argument through one has not changed it.
NOTHING = frozenset(("Identity", "ReadVariableOp", "StopGradient", "PreventGradient", "Snapshot", *CHECKS))
HANDED_ON = frozenset((*NOTHING, "IdentityN"))
LEFT_OUT = ("Assert", "ControlTrigger", "NoOp", "PrintV2")  # without a result that an op could need
# Stateful ops that compiled functions leave out if no result needs them. Nothing is checked or printed, as under XLA.
# Reading a variable or the time, or drawing a number, has no visible effect.
_READS = (
    "Const",
    "Empty",
    "Placeholder",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "Timestamp",
    "VarIsInitializedOp",
)
_DRAWS = (
    "Multinomial",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "TruncatedNormal",
)
_IGNORED = frozenset((*LEFT_OUT, *CHECKS, *_READS, *_DRAWS))
_LOOPS = ("While", "StatelessWhile")
# Attributes of a graph, and of a function that came as a definition, for data that lives as long as these.
_ASSIGNED, _GRAPH = "_hlo_disc_assigned", "_hlo_disc_graph"


@functools.cache
def assigning() -> frozenset[str]:
    """Return the ops that assign to each variable that they are given."""
    from hlo_disc.import_.tensorflow import optimizers  # not needed to run a program
    from hlo_disc.import_.tensorflow.flow import variables

    return frozenset((*optimizers.HANDLERS, *variables.HANDLERS)) - {*_READS}


def assigned_inputs(graph: Graph) -> Mapping[int, Operation]:
    """Return the inputs of a graph that are variables to which it assigns, each with the first op that does.

    Raises UnsupportedOpError for an assignment to a variable that is no input.
    """
    version, known = getattr(graph, _ASSIGNED, (None, {}))
    if version == graph.version:  # gradients add ops
        return known
    number = {x.name: i for i, x in enumerate(graph.inputs)}
    found: dict[int, Any] = {}
    for op in graph.get_operations():
        for place, assigns in assigned_operands(op).items():
            root = _origin(op.inputs[place])
            if root.name not in number:
                raise UnsupportedOpError(
                    f"tf.{op.type}{at_line(op)}: it assigns to a variable that tf.{root.op.type} makes or chooses: "
                    "make variables outside of the function, and choose one in Python"
                )
            found.setdefault(number[root.name], assigns)
    found = dict(sorted(found.items()))
    setattr(graph, _ASSIGNED, (graph.version, found))
    return found


def assigned_operands(op: Operation) -> Mapping[int, Operation]:
    """Return the operands of an op that are variables to which it assigns, each with the op that does.

    That op may be one of a function that the op calls.
    """
    places = [i for i, x in enumerate(op.inputs) if x.dtype == tf.resource]
    if not places:
        return {}
    if op.type in assigning():
        return dict.fromkeys(places, op)
    first, found = first_argument(op), dict[int, Any]()
    for name in called(op):
        for i, assigns in assigned_inputs(function_graph(op.graph, name)).items():
            found.setdefault(first + i, assigns)
    return found


def first_argument(op: Operation) -> int:
    """Return the number of the first operand that an op passes to the functions that it calls."""
    return 1 if op.type in ("Case", "If", "StatelessCase", "StatelessIf") else 0


def is_loop(op: Operation) -> bool:
    """Return whether an op is a loop. A loop has a result for each operand: the last value of that operand."""
    return op.type in _LOOPS


def _origin(tensor: Tensor) -> Tensor:
    """Return the tensor from which a variable's handle comes, through identities and loops."""
    while tensor.op.type in ("Identity", *_LOOPS):
        tensor = tensor.op.inputs[tensor.value_index]
    return tensor


def has_effect(op: Operation) -> bool:
    """Return whether an op that no result needs has an effect other than assignments.

    A call has the effects of the functions that it calls.
    """
    if not op.op_def.is_stateful or op.type in _IGNORED or op.type in assigning():
        return False
    names = list(called(op))
    if not names:
        return True
    return any(any(map(has_effect, function_graph(op.graph, name).get_operations())) for name in names)


def called(op: Operation) -> Iterator[str]:
    """Yield the names of the functions that an op calls."""
    if found_function(op.graph, op.type) is not None:
        yield op.type
    for attribute in op.node_def.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        yield from (f.name for f in attribute.list.func)


def found_function(graph: Graph | None, name: str) -> GraphFunction | None:
    """Return the function of this name of a graph or of one around it; None if there is none."""
    while graph is not None:
        if (function := graph._get_function(name)) is not None:
            return function
        graph = getattr(graph, "outer_graph", None)
    return None


def function_graph(graph: Graph, name: str) -> Graph:
    """Return the graph of a function that a graph calls. Build it if the function came as a definition."""
    function = found_function(graph, name)
    assert function is not None
    if hasattr(function, "graph"):
        return function.graph
    if not hasattr(function, _GRAPH):
        with graph.as_default():  # which has the functions that it calls
            setattr(function, _GRAPH, function_def_to_graph(function.definition))
    return getattr(function, _GRAPH)


def ordered(graph: Graph, effects: Sequence[Operation]) -> list[Operation]:
    """Return the ops that the results and `effects` need, in an order in which they can run.

    An op comes after its operands, since gradients may add operands to loops that exist already. It also comes after
    its control inputs: if one of two ops that use a variable assigns to it, they say which op is first. Otherwise the
    ops keep the order in which they were created.
    """
    needed = _needed([x.op for x in graph.outputs] + list(effects))
    done: dict[Any, None] = {}
    entered: set[Any] = set()
    for start in graph.get_operations():
        waiting = [start] if start in needed else []
        while waiting:
            op = waiting[-1]
            if op in entered:
                done.setdefault(waiting.pop())
                continue
            entered.add(op)
            waiting += [x for x in (*(t.op for t in op.inputs), *op.control_inputs) if x not in entered]
    return [op for op in done if op in needed]


def _needed(ops: Sequence[Operation]) -> set[Operation]:
    found: set[Any] = set()
    waiting = list(ops)
    while waiting:
        op = waiting.pop()
        if op.type == "NextIteration":
            raise UnsupportedOpError(
                f"tf.{op.type}{at_line(op)}: loops of TensorFlow 1 are not supported: keep tf.while_loop as one op, "
                "with tf.compat.v1.enable_control_flow_v2(), or lower_control_flow=False where variables are frozen"
            )
        if op not in found:
            found.add(op)
            waiting += [x.op for x in op.inputs]
    return found
