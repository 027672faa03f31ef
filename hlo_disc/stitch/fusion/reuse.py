"""Updates in place: values that reuse the memory of the value that they change.

    y = dynamic_update_slice(x, update, i)        y is x's memory, if nobody needs x any more

An update, a scatter and a loop may reuse the memory of a value that the scope owns, if no op that follows from the
result reads the old value. Other readers must run before. If fusion has put one behind, it tries again (`fuse.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Region, Value
from hlo_disc.dynamic_hlo.ops.axes import whole
from hlo_disc.dynamic_hlo.ops.table import kind, parts_of

# An operand that an op may change: the op and the operand's number.
Use = tuple[Op, int]


def old_value(use: Use) -> Value:
    """The value that is changed."""
    op, number = use
    return op.operands[number]


@dataclass
class Reuse:
    """taken: the uses that change their operand in place. family: the operands' memory under all shapes, each with the
    value that it is. views: reshapes that are such memory under another shape. readers: the other ops that read it.
    """

    taken: set[Use] = field(default_factory=set)
    family: dict[Value, Value] = field(default_factory=dict)
    views: set[Op] = field(default_factory=set)
    readers: dict[Value, list[Op]] = field(default_factory=dict)


def changed_operands(op: Op) -> Sequence[int]:
    """The operands whose memory a result could be, by number."""
    match kind(op), op.name:
        case "assemble", _:
            base = parts_of(op)[0]
            return (0,) if base == whole(op.operands[0]) and base.value.shape == op.result.shape else ()
        case "scatter", _:
            return range(op.attrs["count"])
        case _, "while":
            return [k for k in range(op.attrs["carried"]) if op.operands[k].shape]
        case _, "case":
            changed = set[int]().union(*map(_changed_inputs, op.attrs["branches"]))
            return [k for k in range(1, len(op.operands)) if k - 1 in changed]
    return ()


def _changed_inputs(region: Region) -> set[int]:
    """The inputs of a region that its ops, or those of their regions, may change, by number."""
    numbers = {value: number for number, value in enumerate(region.inputs)}
    changed = set()
    for op in region.ops:
        if op.name == "reshape" and op.operands[0] in numbers:
            numbers[op.result] = numbers[op.operands[0]]
        else:
            changed |= {numbers[op.operands[k]] for k in changed_operands(op) if op.operands[k] in numbers}
    return changed


def find_reuse(
    graph: Graph,
    users: Mapping[Value, Sequence[Op]],
    free: Collection[Op],
    owned: Collection[Value],
    banned: Collection[Use],
) -> Reuse:
    """owned: inputs that the scope may change. banned: uses that must not."""
    found = Reuse()
    claims = _Claims(graph, users, free, owned, found)
    for op in reversed(graph.ops):
        for number in changed_operands(op):
            if (op, number) not in banned:
                claims.claim(op, number)
    return found


class _Claims:
    def __init__(
        self,
        graph: Graph,
        users: Mapping[Value, Sequence[Op]],
        free: Collection[Op],
        owned: Collection[Value],
        found: Reuse,
    ):
        self.users, self.free, self.owned, self.found = users, free, owned, found
        self.position = {op: i for i, op in enumerate(graph.ops)}
        self.roots = set(graph.roots)

    def claim(self, op: Op, number: int) -> None:
        """Let the op change its operand, if that is legal and no op behind it does."""
        found = self.found
        base, views = op.operands[number], []
        while base.op is not None and base.op.name == "reshape":
            views.append(base.op)
            base = base.op.operands[0]
        if not base.shape or not self._is_owned(base):
            return
        family, readers = self._family(base)
        if any(value in self.roots or value in found.family for value in family):
            return
        if sum(x in family for x in op.operands) > 1:
            return
        others = [reader for reader in dict.fromkeys(readers) if reader is not op]
        later = [reader for reader in others if self.position[reader] > self.position[op]]
        if later and not self._descendants(op).isdisjoint(later):
            return
        found.taken.add((op, number))
        found.views.update(views)
        found.family.update(dict.fromkeys(family, base))
        found.readers[base] = others

    def _is_owned(self, value: Value) -> bool:
        if value.op is None:
            return value in self.owned
        return value.op not in self.free and kind(value.op) not in ("source", "alias")

    def _family(self, base: Value) -> tuple[set[Value], list[Op]]:
        """The value under all shapes, and the ops that read it."""
        family, readers, todo = {base}, [], [base]
        while todo:
            for user in self.users[todo.pop()]:
                if user.name == "reshape" or kind(user) == "alias":
                    family.add(user.result)
                    todo.append(user.result)
                else:
                    readers.append(user)
        return family, readers

    def _descendants(self, op: Op) -> set[Op]:
        found: set[Op] = set()
        todo = list(op.results)
        while todo:
            for user in self.users[todo.pop()]:
                if user not in found:
                    found.add(user)
                    todo += user.results
        return found
