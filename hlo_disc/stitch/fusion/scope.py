"""A fused program: scopes of groups that run one after another, with scopes inside them for control flow.

One table each has the values of all scopes: `Plan.root` gives the value whose memory or register a value is. A value
that a region reads from outside is the outside value; `Carried` has the values that a loop carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.frozen import frozen
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import CONTROL, HOST


@frozen(eq=False)
class Scope:
    """A program, the condition or body of a loop, or a branch. groups: in an order in which they can run."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    groups: tuple[Group, ...]


@frozen(eq=False)
class Carried:
    """A value that a loop carries: `entry` before it, `before` and `after` an iteration, `result` behind it.

    Scalars are carried in registers. In memory, which the loop owns, `after` may be `before`'s own, changed in place
    (`in_place`). Else two buffers take turns: `after` is made in `spare`, or is what another carried value, the one
    numbered `follows`, was.
    """

    entry: Value
    before: Value
    after: Value
    result: Value
    in_place: bool = False
    spare: Value | None = None
    follows: int | None = None

    @property
    def in_register(self) -> bool:
        return not self.entry.shape


@frozen(eq=False)
class Loop:
    """cond: its one output says whether to go on. carried: in the order of the op's results."""

    carried: tuple[Carried, ...]
    cond: Scope
    body: Scope


@frozen(eq=False)
class Branches:
    """Every branch leaves its outputs in the memory of `results`, or returns them in registers."""

    index: Value
    scopes: tuple[Scope, ...]
    results: tuple[Value, ...]


@dataclass(eq=False)
class Plan:
    """scope: the outermost one. loops, branches: what the control groups are, by their op.

    aliases: values that are another's memory under another shape or type, or come from outside a region. reused: values
    in memory that was another value's, which nothing reads any more. registers: scalars that the host flow computes.
    moving: values whose memory only the run knows, being that of buffers that take turns. splits: ops that start
    a kernel of their own, and why.
    """

    scope: Scope = field(default_factory=lambda: Scope((), (), ()))
    loops: dict[Op, Loop] = field(default_factory=dict)
    branches: dict[Op, Branches] = field(default_factory=dict)
    aliases: dict[Value, Value] = field(default_factory=dict)
    reused: dict[Value, Value] = field(default_factory=dict)
    registers: set[Value] = field(default_factory=set)
    moving: set[Value] = field(default_factory=set)
    splits: list[tuple[Op, str]] = field(default_factory=list)

    def root(self, value: Value) -> Value:
        """The value whose memory or register `value` is."""
        while True:
            found = self.aliases.get(value) or self.reused.get(value)
            if found is None:
                return value
            value = found

    def inner(self, group: Group) -> tuple[Scope, ...]:
        """The scopes of a group's regions."""
        if group.schedule is not CONTROL:
            return ()
        (op,) = group.ops
        if op in self.loops:
            return self.loops[op].cond, self.loops[op].body
        return self.branches[op].scopes

    def groups(self, scope: Scope | None = None) -> Iterator[Group]:
        """All groups in order, those of regions after the group that they belong to."""
        for group in (scope or self.scope).groups:
            yield group
            for inside in self.inner(group):
                yield from self.groups(inside)

    def host_ops(self, name: str) -> list[Op]:
        """The ops of that name among those that check and define sizes, in order."""
        found = (group.ops[0] for group in self.groups() if group.schedule is HOST)
        return [op for op in found if op.name == name]
