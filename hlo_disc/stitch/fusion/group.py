"""A fused group: the ops that one kernel computes, the values that it reads, and those that it writes to memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property

from hlo_disc.dynamic_hlo.ir.graph import Op, Shape, Value, dims_in, op_key, types_key
from hlo_disc.dynamic_hlo.ops.axes import whole
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.stitch.schedule import Schedule


@frozen(eq=False)
class Place:
    """The place of a group's one output in a larger value: element i is at starts + i*strides, axis by axis.

    A start is a Dim, or a scalar value that is read at run time and clamped so that everything fits. `shape` is the
    target's, with axes merged where that changes nothing; `axes` gives the output's axis for each, None for size 1.
    """

    target: Value
    shape: Shape
    starts: tuple[Dim | Value, ...]
    strides: tuple[Dim, ...]
    axes: tuple[int | None, ...]


def reads(op: Op) -> tuple[Value, ...]:
    """The operands that a kernel with the op reads: what a scatter changes lies in its results before it starts."""
    return op.operands[op.attrs["count"] :] if kind(op) == "scatter" else op.operands


class Key(tuple[Hashable, ...]):
    """A large key, which takes its hash from a part that tells most apart."""

    part: int

    def __hash__(self) -> int:
        return self.part


@frozen(eq=False)
class Group:
    """`ops` in topological order; `inputs` lie in memory before, `outputs` after.

    place: the output is written into a part of `place.target`, which other groups fill too.
    """

    schedule: Schedule
    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    place: Place | None = None

    @staticmethod
    def of(schedule: Schedule, ops: Sequence[Op], outputs: Sequence[Value], place: Place | None = None) -> Group:
        made = {value for op in ops for value in op.results}
        read = [x for op in ops for x in reads(op)]
        if place:
            read += [*outputs, *(x for x in place.starts if isinstance(x, Value))]
        inputs = dict.fromkeys(x for x in read if x not in made)
        return Group(schedule, tuple(ops), tuple(inputs), tuple(outputs), place)

    @property
    def written(self) -> tuple[Value, ...]:
        """The values whose memory the group writes."""
        return (self.place.target,) if self.place else self.outputs

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Every symbol that the group's shapes and attributes mention, in the order in which sizes of one symbol do.

        Programs name symbols as they like: in the order of names, equal kernels would take them in another order.
        """
        dims = self.dims()
        found = [name for dim in dims if len(dim.symbols) == 1 for name in dim.symbols]
        return tuple(dict.fromkeys([*found, *sorted({name for dim in dims for name in dim.symbols})]))

    def dims(self) -> list[Dim]:
        """Every size that the group's shapes and attributes mention."""
        found = [dim for value in (*self.inputs, *self.outputs) for dim in value.shape]
        if self.place:
            found += [*self.place.shape, *self.place.strides, *(x for x in self.place.starts if isinstance(x, Dim))]
        for op in self.ops:
            found += dims_in(op)
        return found

    @cached_property
    def key(self) -> Key:
        """Equal for groups that the same kernels serve: the structure, with values numbered in order."""
        numbers: dict[Value, int] = {value: i for i, value in enumerate(self.inputs)}
        rows: list[Hashable] = [self.schedule.name, types_key(self.inputs)]
        rows += [op_key(op, reads(op), numbers) for op in self.ops]
        rows.append(tuple([numbers[value] for value in self.outputs]))
        if self.schedule.may_fail:  # it names its line when it fails
            rows.append(tuple(op.loc for op in self.ops))
        if self.place:
            starts = tuple(numbers[x] if isinstance(x, Value) else (x,) for x in self.place.starts)
            rows.append((self.place.shape, starts, self.place.strides, self.place.axes))
        key = Key(rows)
        key.part = hash((*[op.name for op in self.ops], *[v.shape for v in self.outputs]))
        return key


def copy_group(value: Value, row: Schedule) -> tuple[Group, Value]:
    """A group that copies a value, and the copy."""
    target = Value(value.dtype, value.shape)
    place = Place(target, value.shape, *whole(value)[1:], tuple(range(value.rank)))
    return Group.of(row, [], [value], place), target
