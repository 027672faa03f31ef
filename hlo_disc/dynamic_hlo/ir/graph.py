"""DHLO: a small SSA graph. A value has a dtype and a shape of `Dim`s; static and dynamic StableHLO ops are one op here.

Values and ops are immutable and compared by identity. A `Graph` lists its ops in topological order. Passes are pure
functions `Graph -> Graph`: they build a new graph with `GraphBuilder` and leave the old one alone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_text
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.ir.attributes import Attributes

Shape = tuple[Dim, ...]
# Attributes of these types are hashable, and of two that are equal each can stand for the other.
_PLAIN = frozenset((Dim, int, str))
RELATIONS = {
    "==": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip
NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", "<=": ">", ">": "<="}


@frozen(eq=False)
class Value:
    """A tensor. `op` is None for an input; `index` is the result number of `op`, or the input number."""

    dtype: np.dtype
    shape: Shape
    op: Op | None = None
    index: int = 0

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"{dtype_text(self.dtype)}[{', '.join(map(str, self.shape))}]"


@frozen(eq=False)
class Op:
    """One operation. `loc` is the user's source line as text, "" when unknown."""

    name: str
    operands: tuple[Value, ...]
    attrs: Attributes
    loc: str = ""
    results: tuple[Value, ...] = field(default=(), init=False)

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value

    def with_operands(self, operands: Sequence[Value]) -> Op:
        """Return the op on other operands; its results keep their types."""
        return make_op(self.name, operands, self.attrs, [(r.dtype, r.shape) for r in self.results], self.loc)


@frozen(eq=False)
class Region:
    """A function of values that is an attribute of an op: the body of a loop, the combiner of a reduction.

    It is isolated: its ops read its inputs and each other. Sizes are in the symbols and facts of the enclosing graph.
    """

    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[Value, ...]

    @functools.cached_property
    def key(self) -> tuple[Hashable, ...]:
        """Return a key that is equal for regions that compute the same: the structure, with numbered values."""
        numbers = {value: i for i, value in enumerate(self.inputs)}
        rows: list[Hashable] = [types_key(self.inputs)]
        rows += [op_key(op, op.operands, numbers) for op in self.ops]
        return (*rows, tuple([numbers[value] for value in self.outputs]))


def op_key(op: Op, operands: Iterable[Value], numbers: dict[Value, int]) -> Hashable:
    """Return a key that is equal for ops that compute the same of equally numbered operands; number the results."""
    read = tuple([numbers[x] for x in operands])
    for result in op.results:
        numbers[result] = len(numbers)
    attrs = tuple(sorted([(name, attribute_key(attr)) for name, attr in op.attrs.items()])) if op.attrs else ()
    return op.name, read, attrs, types_key(op.results)


def types_key(values: Iterable[Value]) -> Hashable:
    """Return a key that is equal for values of the same types."""
    return tuple([(v.dtype, v.shape) for v in values])


def attribute_key(attr: object) -> Hashable:
    """Return a hashable key that is equal for attributes of the same meaning."""
    if type(attr) is tuple:
        return attr if _PLAIN.issuperset(map(type, attr)) else tuple(map(attribute_key, attr))
    if isinstance(attr, Dim | int | str) and type(attr) in _PLAIN:
        return attr
    if type(attr) is Region:
        return attr.key
    if isinstance(attr, np.dtype):
        return dtype_text(attr)
    return f"{attr.dtype}{attr.shape}{attr.tobytes().hex()}" if isinstance(attr, np.ndarray) else str(attr)


def regions(op: Op) -> list[Region]:
    """List all regions of an op, in the order of its attributes."""
    found: list[Region] = []
    for attr in op.attrs.values() if has_regions(op) else ():
        if type(attr) is Region:
            found.append(attr)
        elif type(attr) is tuple:
            found += [x for x in attr if type(x) is Region]
    return found


def all_ops(ops: Iterable[Op]) -> Iterator[Op]:
    """List the ops, and those in their regions."""
    for op in ops:
        yield op
        for region in regions(op):
            yield from all_ops(region.ops)


def has_effect(op: Op) -> bool:
    """Whether an op must run although nothing reads its results; a check must in the region that it is in."""
    if not has_regions(op):
        return op.name == "check" or op.attrs.get("effect", False)
    inner = [inner for region in regions(op) for inner in region.ops]
    return any(x.name != "check" and has_effect(x) for x in inner)


def has_regions(op: Op) -> bool:
    return "body" in op.attrs or "branches" in op.attrs


def map_regions(op: Op, change: Callable[[Region], Region]) -> Attributes:
    """Return the op's attributes with each region changed; the same object if none is."""
    changed: dict[str, object] = {}
    for name, attr in op.attrs.items():
        if isinstance(attr, Region):
            changed[name] = change(attr)
        elif name == "branches":
            changed[name] = tuple(map(change, op.attrs["branches"]))
    return op.attrs if changed.items() <= op.attrs.items() else cast("Attributes", {**op.attrs, **changed})


def everywhere(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Apply `change` to every region as to a graph of its own, innermost first, and then to the graph."""
    if not any(map(has_regions, graph.ops)):
        return change(graph)

    def inside(region: Region) -> Region:
        names = ("",) * len(region.inputs)
        own = Graph(graph.name, region.inputs, names, region.outputs, region.ops, graph.facts, {})
        new = everywhere(own, change)
        return region if new is own else Region(new.inputs, new.ops, new.outputs)

    values: dict[Value, Value] = {}
    ops = tuple([substitute(op, values, map_regions(op, inside) if has_regions(op) else None) for op in graph.ops])
    return change(graph if not values else graph.with_roots(values, ops=ops))


def substitute(op: Op, values: dict[Value, Value], attrs: Attributes | None = None) -> Op:
    """Return the op with operands replaced as `values` says, and with other attributes. Its new results are added to
    `values`.

    Returns the op itself if nothing changes.
    """
    attrs = op.attrs if attrs is None else attrs
    operands = tuple([values.get(x, x) for x in op.operands]) if values else op.operands
    if attrs is op.attrs and operands == op.operands:
        return op
    new = make_op(op.name, operands, attrs, [(r.dtype, r.shape) for r in op.results], op.loc)
    values.update(zip(op.results, new.results, strict=True))
    return new


def copied(op: Op, values: dict[Value, Value]) -> Op:
    """Make a new op with operands replaced as `values` says. Its new results are added to `values`."""
    new = op.with_operands([values.get(x, x) for x in op.operands])
    values.update(zip(op.results, new.results, strict=True))
    return new


def dims_in(op: Op) -> list[Dim]:
    """List every size in an op's attributes and result types, and in its regions."""
    found = [dim for value in op.results for dim in value.shape]
    for attr in op.attrs.values():
        if type(attr) is Dim:
            found.append(attr)
        elif type(attr) is tuple:
            found += [x for x in attr if type(x) is Dim]
    for region in regions(op) if has_regions(op) else ():
        found += [dim for value in region.inputs for dim in value.shape]
        for inner in region.ops:
            found += dims_in(inner)
    return found


@frozen
class Guard:
    """A condition that a call must meet: `lhs relation rhs`, relation one of == != >= > <= <.

    The dims range over the graph's symbols and over `raw_dim` symbols. `message` may hold {0}, {1} …: the values of
    `args` at the call.

    overflow: whether the guard says that a type can hold a number. A call that breaks it is then a SizeOverflowError
    instead of a ShapeError.
    """

    lhs: Dim
    relation: str
    rhs: Dim
    message: str
    args: tuple[Dim, ...] = ()
    overflow: bool = False


def guard_of(check: Op) -> Guard:
    attrs = check.attrs
    return Guard(attrs["lhs"], attrs["relation"], attrs["rhs"], attrs["message"], attrs["args"])


def raw_dim(argument: int, axis: int) -> Dim:
    """Return the size that a call passes for `axis` of `argument`, as a symbol, for bindings and guards."""
    return Dim.symbol(f"%{argument}.{axis}")


@frozen(eq=False)
class Graph:
    """A program.

    input_names: one for each input, for messages ("args[0]['w']", "x").
    bindings: how each symbol follows from the call's sizes, a Dim over `raw_dim` symbols.
    guards: checked in order before anything runs; those with symbols of `definitions` once these are known.
    asked: conditions that the function asked about, and that hold at this program's calls; others take another program.
    definitions: symbols whose value is computed, each with the i64 scalar that it is. Ops with such a symbol in a size
        come behind the op that computes it.
    """

    name: str
    inputs: tuple[Value, ...]
    input_names: tuple[str, ...]
    outputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    facts: ShapeFacts
    bindings: Mapping[str, Dim]
    guards: tuple[Guard, ...] = ()
    asked: tuple[Guard, ...] = ()
    definitions: Mapping[str, Value] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Value, ...]:
        """Return the values that must be computed: outputs and definitions."""
        return (*self.outputs, *self.definitions.values())

    def with_roots(self, values: Mapping[Value, Value], **changes: Any) -> Graph:
        """Return the graph with `changes`, and with outputs and definitions replaced as `values` says; others stay."""
        outputs = tuple(values.get(v, v) for v in self.outputs)
        definitions = {name: values.get(v, v) for name, v in self.definitions.items()}
        return replace(self, outputs=outputs, definitions=definitions, **changes)


def make_op(
    name: str, operands: Sequence[Value], attrs: Attributes, types: Sequence[tuple[np.dtype, Shape]], loc: str
) -> Op:
    """Make an op whose result types are known already."""
    return with_results(Op(name, tuple(operands), attrs, loc), types)


def with_results(op: Op, types: Sequence[tuple[np.dtype, Shape]]) -> Op:
    """Give a new op its results."""
    object.__setattr__(op, "results", tuple([Value(t, shape, op, i) for i, (t, shape) in enumerate(types)]))
    return op


def is_array(op: Op | None) -> bool:
    """Whether an op is a constant of other than one element."""
    return op is not None and op.name == "constant" and op.attrs["value"].size != 1


def isolated(inputs: Sequence[Value], ops: Sequence[Op], outputs: Sequence[Value]) -> tuple[Region, tuple[Value, ...]]:
    """Make a region of `ops`. Values that they read from outside become its last inputs, and are returned.

    inputs: values without an op. Outside values without operands (numbers, iotas, sizes) are computed inside. Large
    constants stay outside, so that there is one copy of each.
    """
    new = {value: Value(value.dtype, value.shape, None, i) for i, value in enumerate(inputs)}
    captured: list[Value] = []
    made: list[Op] = []

    def inside(value: Value) -> Value:
        if value not in new:
            if value.op is not None and not value.op.operands and not is_array(value.op):
                copy(value.op)
            else:
                new[value] = Value(value.dtype, value.shape, None, len(inputs) + len(captured))
                captured.append(value)
        return new[value]

    def copy(op: Op) -> None:
        operands = [inside(x) for x in op.operands]
        made.append(op.with_operands(operands))
        new.update(zip(op.results, made[-1].results, strict=True))

    for op in ops:
        copy(op)
    results = tuple(inside(value) for value in outputs)
    return Region(tuple(new[v] for v in (*inputs, *captured)), tuple(made), results), tuple(captured)


def with_captures(
    regions: Sequence[tuple[Region, tuple[Value, ...]]], count: int
) -> tuple[tuple[Region, ...], tuple[Value, ...]]:
    """Give regions the same captured values after their `count` inputs. Returns the regions and these values.

    regions: each with its captured values, which are its last inputs.
    """
    captured = tuple(dict.fromkeys(value for _, values in regions for value in values))
    made = []
    for region, values in regions:
        own = dict(zip(values, region.inputs[count:], strict=True))
        outside = {x: own.get(x) or Value(x.dtype, x.shape, None, count + i) for i, x in enumerate(captured)}
        made.append(Region((*region.inputs[:count], *outside.values()), region.ops, region.outputs))
    return tuple(made), captured


def uses(graph: Graph) -> dict[Value, list[Op]]:
    """Return the ops that read each value, in order; an op that reads a value twice is listed twice."""
    users: dict[Value, list[Op]] = {value: [] for value in graph.inputs}
    for op in graph.ops:
        for value in op.results:
            users[value] = []
    for op in graph.ops:
        for value in op.operands:
            users[value].append(op)
    return users
