"""Calls, loops and branches of functions; lists of tensors, which are one tensor with one more axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value, raw_dim
from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.import_.handlers.arrays import Array, array, filled, joined
from hlo_disc.import_.handlers.control import make_while
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.elements import Compare, conjuncts
from hlo_disc.import_.sizes.shapes import Bundle, Operand, Symbolic, Token
from hlo_disc.import_.sizes.symbols import Bindings, Input, parse_constraints
from hlo_disc.import_.tensorflow.flow.branches import Kept, Optionals, choose, of_branch

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.import_.tensorflow import program
    from hlo_disc.import_.tensorflow.program import Block, Node, Region


class Reserved(Bundle):
    """A list of which only the length is known, until a tensor is put into it; None if it grows.

    A list of length 0 may grow when it is written.

    Of a list of lists the dtype is that of the tensors in these, known when one is put into it.
    """

    length: Dim | None
    dtype: np.dtype | None
    shape: Shape | None

    def __new__(cls, length: Dim | None, dtype: np.dtype | None) -> Reserved:
        made = super().__new__(cls, ())
        made.length, made.dtype, made.shape = length, dtype, None
        return made

    def filled(self, r: Reader, shape: Shape, dtype: np.dtype | None = None) -> Array:
        """Return the list, filled with zeros."""
        self.shape, self.dtype = shape, self.dtype or dtype
        if self.length is None:
            r.unsupported("a list that grows outside of a loop, or in one without maximum_iterations")
        return filled(r, 0, self.dtype, (self.length, *shape))


class Repeated(Token):
    """A list that grows by the same sizes in each iteration of a loop: its length does not matter."""

    def __init__(self, sizes: Symbolic):
        self.sizes = sizes


def _program(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Inline a compiled program in a graph: the function that it was made from, called with the program's arguments."""
    arguments = r.functions[op.attributes["f"]].regions[0].blocks[0].arguments
    inputs, given = [], dict[str, Dim]()
    for i, (name, shape, argument, x) in enumerate(
        zip(op.attributes["names"], op.attributes["shapes"], arguments, operands, strict=True)
    ):
        value = r.data(x)
        if (value.dtype, value.rank) != (argument.type.dtype, len(shape)):
            r.unsupported(f"argument {name!r} is {value.dtype} of rank {value.rank}, the program's is {argument.type}")
        inputs.append(Input(name, value.dtype, tuple(map(Dim.parse, shape))))
        given.update((str(raw_dim(i, axis)), d) for axis, d in enumerate(value.shape))
    bindings = Bindings(inputs)
    given.update({symbol: d.substitute(given) for symbol, d in bindings.symbols.items()})
    for guard in (*bindings.guards(), *parse_constraints(op.attributes["constraints"])):
        lhs, rhs, *args = (d.substitute(given) for d in (guard.lhs, guard.rhs, *guard.args))
        r.require(lhs, guard.relation, rhs, guard.message, tuple(args))
    return r.call(op.attributes["f"], operands)


def _while(r: Reader, op: Node, operands: list[Operand]) -> Result:
    test, step = (r.functions[op.attributes[name]].regions[0] for name in ("cond", "body"))
    if any(isinstance(x, Reserved) for x in operands):
        _bound(_turns(r, test, step, operands), step.blocks[0], operands)
        operands = _with_shapes(r, step, operands)
    return make_while(r, test, step, operands)


_GROWS = (
    "a list that grows as it is written, other than by one tensor in each turn of a loop over a range from 0: give "
    "tf.TensorArray its size"
)


class Turns(NamedTuple):
    """The number of iterations of a loop at most, None if unknown, and whether the loop runs all of them.

    counters: arguments to which each iteration adds a number, with their initial values and that number.
    """

    most: Dim | None
    exact: bool = False
    counters: Mapping[program.Result, tuple[Dim, int]] = MappingProxyType({})


def _bound(turns: Turns, block: Block, operands: list[Operand]) -> None:
    """Give a list that grows by a tensor in each iteration, as gradients need it, the maximal number of iterations.

    A list that each iteration writes at its own number gets it too.
    """
    for argument, after, x in zip(block.arguments, block.operations[-1].operands, operands, strict=True):
        if not isinstance(x, Reserved):
            continue
        at = _written_at(block, argument, after) if x.length is ZERO and turns.exact else None
        if x.length is None or (at is not None and turns.counters.get(at) == (ZERO, 1)):
            x.length = turns.most


def _written_at(block: Block, argument: program.Result, after: program.Result) -> program.Result | None:
    """Return the index at which an iteration writes a list, if it does nothing else to the list; else None."""
    write = next((op for op in block.operations if after in op.results), None)
    if write is not None and write.name == "tf.TensorListSetItem" and write.operands[0] is argument:
        return write.operands[1]
    return None


def _turns(r: Reader, test: Region, step: Region, operands: list[Operand]) -> Turns:
    """Return the maximal number of iterations: `maximum_iterations`, or the end of a counter in the test."""
    most = _size(r, operands[1]) if len(operands) > 1 else None
    if most is not None and r.evaluator.scalar.nonnegative(most):
        return Turns(most)
    block = step.blocks[0]
    slots = list(zip(block.arguments, block.operations[-1].operands, operands, strict=True))
    kept = {argument: x for argument, after, x in slots if argument is after}
    turn, given = Dim.symbol("_turn"), list[Operand]()
    counters: dict[program.Result, tuple[Dim, int]] = {}
    for argument, after, x in slots:
        if argument in kept or isinstance(x, (Bundle, Token)):
            given.append(x)
        elif (start := _size(r, x)) is not None and (each := _added(r, block, argument, after, kept)):
            counters[argument] = start, each
            given.append(Symbolic(x.dtype, (), (start + turn * each,)))
        else:
            given.append(Value((v := r.data(x)).dtype, v.shape, None, 0))
    (condition,) = r.probe(test, given)  # type: ignore[arg-type]  # a region has the form of MLIR's
    if isinstance(condition, Symbolic) and condition.elements[0] is False:
        return Turns(ONE)  # there is none, but its body is read all the same
    parts = list(conjuncts(condition.elements[0])) if isinstance(condition, Symbolic) and condition.exact else []
    for part in parts:
        if isinstance(part, Compare) and part.relation not in ("==", "!="):
            # `0 <= rest - slope * turn` for a turn to be made
            rest = part.rhs - part.lhs if "<" in part.relation else part.lhs - part.rhs
            rest = rest if "=" in part.relation else rest - 1
            now = rest.substitute({"_turn": ZERO})
            slope = now - rest.substitute({"_turn": ONE})
            if slope.is_const and slope.value > 0 and rest is now - slope * turn:
                return Turns(r.evaluator.scalar.maximum(now // slope + 1, ZERO), len(parts) == 1, counters)
    return Turns(None)


def _size(r: Reader, x: Operand) -> Dim | None:
    """Return a scalar that is a size."""
    if isinstance(x, Symbolic) and x.exact and not x.sizes:
        return r.evaluator.scalar.number(x.elements[0])
    return None


def _added(
    r: Reader, block: Block, argument: program.Result, after: program.Result, kept: Mapping[program.Result, Operand]
) -> int:
    """Return the number that an iteration adds to an argument; else 0. kept: arguments that do not change."""
    makers = {op.results[0]: op for op in block.operations if op.results}
    add = makers.get(after)
    if add is None or add.name not in ("tf.AddV2", "tf.Sub") or argument not in add.operands:
        return 0
    first, second = add.operands
    if add.name == "tf.Sub" and argument is second:
        return 0
    other = second if argument is first else first
    maker = makers.get(other)
    if other in kept:
        size = _size(r, kept[other])
        number = size.value if size is not None and size.is_const else 0
    else:
        number = int(maker.attributes["value"]) if maker is not None and maker.name == "tf.Const" else 0
    return number if add.name == "tf.AddV2" else -number


def _with_shapes(r: Reader, step: Region, operands: list[Operand]) -> list[Operand]:
    """Give lists the shapes of the tensors that a first iteration puts into them; that iteration is discarded."""
    given = [x if isinstance(x, (Bundle, Token)) else Value((v := r.data(x)).dtype, v.shape, None, 0) for x in operands]
    returned = r.probe(step, given)  # type: ignore[arg-type]  # the same
    made: list[Operand] = []
    for x, after in zip(operands, returned, strict=True):
        if not isinstance(x, Reserved):
            made.append(x)
        elif isinstance(after, Repeated):
            made.append(after)
        elif x.shape is not None:
            made.append(x.filled(r, x.shape).value)
        elif isinstance(after, Value):
            made.append(x.filled(r, after.shape[1:], after.dtype).value)
        else:
            made.append(x)
    return made


def _if(r: Reader, op: Node, operands: list[Operand]) -> Result:
    condition, *rest = operands
    names = [op.attributes[name] for name in ("else_branch", "then_branch")]
    if isinstance(condition, Symbolic) and not condition.wraps and isinstance(condition.elements[0], bool):
        return _branch(r, names, condition.elements[0], rest)
    known = r.constant_of(condition)
    if known is not None:
        return _branch(r, names, bool(known), rest)
    index = array(r, condition)
    index = index if index.dtype == np.bool_ else index != 0
    if any(isinstance(x, Reserved) and x.length is ZERO for x in rest):
        r.unsupported(_GROWS)
    return choose(r, index.cast(np.int32).value, names, rest)


def _case(r: Reader, op: Node, operands: list[Operand]) -> Result:
    index, *rest = operands
    names = op.attributes["branches"]
    known = r.constant_of(index)
    if known is not None:
        return _branch(r, names, known if 0 <= known < len(names) else len(names) - 1, rest)
    return choose(r, r.data(index), names, rest)


def _branch(r: Reader, names: Sequence[str], number: int, operands: Sequence[Operand]) -> Result:
    """Return the branch that is known to be taken."""
    return r.call(names[number], of_branch(operands, number))


def _device(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Return which of an op's device branches is this device; a number behind them if none is."""
    names = op.attributes["device_names"]
    return Symbolic(np.dtype(np.int32), (), (Dim.const(names.index("CPU") if "CPU" in names else len(names)),))


def _stand_in(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Make zeros for a result that a branch does not have and that nothing reads."""
    sizes = op.attributes["shape"]
    if sizes is None or None in sizes:
        r.unsupported("a result of unknown size that a branch has not")
    return filled(r, 0, op.results[0].type.dtype, tuple(map(Dim.const, sizes))).value


# --------------------------------------------------------------------------------------------------------------- lists


def _reserve(r: Reader, op: Node, operands: list[Operand]) -> Result:
    sizes = r.elements(operands[0]) if _is_shape(r, operands[0]) else None
    (count,) = r.tensor_shape(r.elements(operands[1]))
    made = Reserved(count, op.attributes["element_dtype"])
    if count is not ZERO and sizes is not None and all(not d.is_const or d.value >= 0 for d in sizes):
        return made.filled(r, sizes).value
    return made


def _is_shape(r: Reader, x: Operand) -> bool:
    """Whether an element shape is a vector, and not the -1 for an unknown rank."""
    return not (isinstance(x, Symbolic) and not x.sizes)


def _get_item(r: Reader, op: Node, operands: list[Operand]) -> Result:
    if isinstance(operands[0], Reserved):
        shape = r.elements(operands[2])
        if any(d.is_const and d.value < 0 for d in shape):
            r.unsupported("a tensor is taken of a list into which nothing was put, and its shape is not known")
        return filled(r, 0, operands[0].dtype, shape).value
    return array(r, operands[0]).window(0, array(r, operands[1])).squeeze(0).value


def _gather_items(r: Reader, op: Node, operands: list[Operand]) -> Result:
    if isinstance(operands[0], Reserved):
        r.unsupported("tensors are taken of a list into which nothing was put")
    return array(r, operands[0]).take(array(r, operands[1]), 0).value


def _set_item(r: Reader, op: Node, operands: list[Operand]) -> Result:
    item, at = array(r, operands[2]), array(r, operands[1])
    x = operands[0].filled(r, item.shape, item.dtype) if isinstance(operands[0], Reserved) else array(r, operands[0])
    if op.attributes.get("resize_if_index_out_of_bounds"):
        x = _grown(r, x, r.constant_of(operands[1]))
    row = item.reshape((ONE, *x.shape[1:]))
    return x.put(0, at, row).value


def _grown(r: Reader, x: Array, at: int | None) -> Array:
    """Return a list that has room for a tensor at an index."""
    size = x.shape[0]
    if at is not None and size.is_const and at >= size.value:
        return joined([x, filled(r, 0, x.dtype, (Dim.const(at + 1) - size, *x.shape[1:]))], 0)
    if size is ZERO:
        r.unsupported(_GROWS)
    return x


def _push(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Push a tensor: the last row of a growing list; the others move up."""
    sizes = operands[1]
    if isinstance(sizes, (Kept, Optionals)):
        r.unsupported("the gradient of a branch inside of a loop")
    if isinstance(operands[0], Repeated):
        return operands[0]
    if isinstance(operands[0], Reserved) and isinstance(sizes, Symbolic) and sizes.exact:
        return Repeated(sizes)
    item = array(r, operands[1])
    x = operands[0].filled(r, item.shape, item.dtype) if isinstance(operands[0], Reserved) else array(r, operands[0])
    return joined([x.slice(0, ONE, x.shape[0]), item.expand(0)], 0).value


def _pop(r: Reader, op: Node, operands: list[Operand]) -> Result:
    if isinstance(operands[0], Repeated):
        return [operands[0], operands[0].sizes]
    x = array(r, operands[0])
    n = x.shape[0]
    last = x.slice(0, n - 1, n)
    rest = joined([filled(r, 0, x.dtype, last.shape), x.slice(0, 0, n - 1)], 0)
    return [rest.value, last.reshape(x.shape[1:]).value]


def _stack(r: Reader, op: Node, operands: list[Operand]) -> Result:
    if isinstance(operands[0], Reserved):
        shape = r.elements(operands[1])
        if any(d.is_const and d.value < 0 for d in shape):
            r.unsupported("nothing was put into the list, and the shape of its tensors is not known")
        return operands[0].filled(r, shape).value
    return operands[0]


def _length(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = operands[0]
    count = x.length if isinstance(x, Reserved) else r.data(x).shape[0]
    if count is None:
        r.unsupported("the length of a list that grows")
    return Symbolic(np.dtype(np.int32), (), (count,))


def _element_shape(r: Reader, op: Node, operands: list[Operand]) -> Result:
    x = operands[0]
    if isinstance(x, Reserved) and x.shape is None:
        r.unsupported("the shape of a list's tensors is asked before one is put into it")
    shape = x.shape if isinstance(x, Reserved) else r.data(x).shape[1:]
    return Symbolic(op.results[0].type.dtype, (len(shape),), tuple(shape))  # type: ignore[arg-type]


def _concat(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Concatenate the tensors of a list. Returns the result and the length of each."""
    x = array(r, operands[0])
    count, size, *rest = x.shape
    lengths = filled(r, size, I64).broadcast((count,))
    return [x.reshape((count * size, *rest)).value, lengths.value]


def _split(r: Reader, op: Node, operands: list[Operand]) -> Result:
    """Split into equal parts: other lists are no tensor."""
    x, lengths = array(r, operands[0]), r.elements(operands[2])
    if not lengths or any(d is not lengths[0] for d in lengths):
        r.unsupported("parts of different lengths")
    return x.reshape((len(lengths), lengths[0], *x.shape[1:])).value


HANDLERS: dict[str, Handler] = {
    "Case": _case,
    "DeviceIndex": _device,
    "EmptyTensorList": lambda r, op, operands: Reserved(None, op.attributes["element_dtype"]),
    "FakeParam": _stand_in,
    "HloDiscCall": _program,
    "If": _if,
    "PartitionedCall": lambda r, op, operands: r.call(op.attributes["f"], operands),
    "StatefulPartitionedCall": lambda r, op, operands: r.call(op.attributes["f"], operands),
    "StatelessCase": _case,
    "StatelessIf": _if,
    "StatelessWhile": _while,
    "TensorListConcatV2": _concat,
    "TensorListElementShape": _element_shape,
    "TensorListFromTensor": lambda r, op, operands: r.data(operands[0]),
    "TensorListGather": _gather_items,
    "TensorListGetItem": _get_item,
    "TensorListLength": _length,
    "TensorListPopBack": _pop,
    "TensorListPushBack": _push,
    "TensorListReserve": _reserve,
    "TensorListSetItem": _set_item,
    "TensorListSplit": _split,
    "TensorListStack": _stack,
    "While": _while,
}
