"""The ops that join a dot's kernel: views between memory and its operands, and the ops after its result.

Every dot, or the two dots of an attention, has one `Anchor`. A view joins if it reads memory with fixed strides;
consumers join while they lead to a single value, through transposes too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

from hlo_disc.dynamic_hlo.ir.dependence import backward_slice
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.shapes import same_shape
from hlo_disc.frozen import frozen
from hlo_disc.stitch.fusion.attention_pattern import match_attention
from hlo_disc.stitch.fusion.strided import strided


@frozen
class Anchor:
    """schedule: the group's, by name. ops: the dots and what is computed between and after them, in order.

    The last one makes the output. views: of the operands, computed in this kernel whoever else wants them. memory: what
    the operands are read from.
    """

    schedule: str
    ops: tuple[Op, ...]
    views: tuple[Op, ...]
    memory: tuple[Value, ...]


def anchors(
    graph: Graph, users: Mapping[Value, Sequence[Op]], free: Collection[Op], schedules: Collection[str]
) -> list[Anchor]:
    """The anchors of a graph, which have no op but views in common. schedules: the names of those that there are."""
    return _Anchors(graph, users, free, schedules).run()


class _Anchors:
    def __init__(
        self, graph: Graph, users: Mapping[Value, Sequence[Op]], free: Collection[Op], schedules: Collection[str]
    ):
        self.graph, self.facts, self.users, self.free, self.schedules = graph, graph.facts, users, free, schedules
        self.position = {op: i for i, op in enumerate(graph.ops)}
        self.outputs = set(graph.outputs)
        self.taken: set[Op] = set()

    def run(self) -> list[Anchor]:
        dots = [op for op in self.graph.ops if kind(op) == "dot"]
        walks: dict[Op, list[list[Op]]] = {op: [self._views(x) for x in op.operands] for op in dots}
        self.read_through = {op for chains in walks.values() for chain in chains for op in chain}
        found = []
        for op in dots if "attention" in self.schedules else ():
            inside = match_attention(op, self.users, self.position, self.outputs, self.facts)
            if inside is not None and self.taken.isdisjoint(inside):
                found.append(self._anchor("attention", inside, walks))
        for op in dots:
            if op not in self.taken:
                found.append(self._anchor("dot", [op], walks))
        return found

    def _anchor(self, schedule: str, ops: Sequence[Op], walks: Mapping[Op, list[list[Op]]]) -> Anchor:
        self.taken.update(ops)
        ops = self._with_epilogue(ops)
        self.taken.update(ops)
        views: dict[Op, None] = {}
        memory: dict[Value, None] = {}
        for dot in ops:
            for x, chain in zip(dot.operands, walks.get(dot, ()), strict=False):
                if x.op not in ops:
                    views.update(dict.fromkeys(chain))
                    memory[chain[-1].operands[0] if chain else x] = None
        return Anchor(schedule, tuple(ops), tuple(views), tuple(memory))

    def _views(self, value: Value) -> list[Op]:
        """The longest chain of views from a dot's operand up that is a walk over memory."""
        chain: list[Op] = []
        best = 0
        while value.op is not None and kind(value.op) == "view" and value.op not in self.free:
            chain.append(value.op)
            (value,) = value.op.operands
            top = chain[0].result
            if (value.op is None or value.op not in self.free) and strided(top, set(chain), self.facts):
                best = len(chain)
        return chain[:best]

    # The epilogue.

    def _with_epilogue(self, ops: Sequence[Op]) -> list[Op]:
        """Follow the result through elementwise ops and transposes, as long as there is a single result."""
        grown = [*ops]
        while True:
            *before, last = grown
            grown = [*before, *self._elementwise(last)]
            value = grown[-1].result
            (user,) = self.users[value] if len(self.users[value]) == 1 else (None,)
            if user is None or user.name != "transpose" or value in self.outputs:
                return grown
            if user in self.read_through or user in self.taken:
                return grown
            grown.append(user)

    def _elementwise(self, root: Op) -> list[Op]:
        """`root` and the elementwise consumers of its result that end in a single value."""
        inside: dict[Op, None] = {}
        best = [root]
        seen, following = {root}, {root}
        at = self.position[root]
        waiting = [at]  # places in the graph, of which the first is next: what an op reads is decided before it
        while waiting:
            place = heappop(waiting)
            self._follow(following, at, place)
            op, at = self.graph.ops[place], place
            if op is not root and not all(x.op in inside or x.op not in following for x in op.operands):
                continue
            inside[op] = None
            needed = self._within(op, inside)
            if op is root or self._only_result(needed, op.result):
                best = needed
            for user in self.users[op.result]:
                if user not in seen and user not in self.taken and self._is_epilogue(user, root):
                    seen.add(user)
                    heappush(waiting, self.position[user])
        return best

    def _is_epilogue(self, user: Op, root: Op) -> bool:
        if kind(user) != "elementwise":
            return False
        return same_shape(self.facts, user.result.shape, root.result.shape)

    def _follow(self, following: set[Op], first: int, last: int) -> None:
        """Add what follows from the ops in a set, of those between two places, to the set."""
        for op in self.graph.ops[first + 1 : last + 1]:
            for x in op.operands:
                if x.op in following:
                    following.add(op)
                    break

    def _within(self, last: Op, inside: dict[Op, None]) -> list[Op]:
        """`last` and everything of `inside` that it follows from, in order."""
        return sorted(backward_slice([last.result], inside), key=self.position.__getitem__)

    def _only_result(self, ops: list[Op], result: Value) -> bool:
        return all(
            op.result is result or (op.result not in self.outputs and all(u in ops for u in self.users[op.result]))
            for op in ops
        )


def unneeded(
    graph: Graph, found: Sequence[Anchor], users: Mapping[Value, Sequence[Op]], in_memory: Collection[Value]
) -> set[Op]:
    """The views that nobody needs in memory: all their users read through them."""
    reading: dict[Op, set[Op]] = {}
    for anchor in found:
        for op in (*anchor.ops, *anchor.views):
            for x in op.operands:
                if x.op in anchor.views:
                    reading.setdefault(x.op, set()).add(op)
    skipped: set[Op] = set()
    for op in reversed(graph.ops):
        if op in reading and op.result not in in_memory:
            if all(u in reading[op] and (kind(u) == "dot" or u in skipped) for u in users[op.result]):
                skipped.add(op)
    return skipped
