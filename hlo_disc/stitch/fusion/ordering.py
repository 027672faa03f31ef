"""The order in which the groups of a scope run: each after its operands, and readers of memory before its writers.

Groups can wait for each other if a value is changed in place. Then one change in place has to be given up. This file
decides which, and the fusion is repeated without it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_disc.dynamic_hlo.ir.graph import Op, Value, dims_in, has_effect
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.errors import CompileError
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.reuse import Use, old_value
from hlo_disc.stitch.schedule import HOST


@dataclass
class Changes:
    """The changes in place that ops make.

    changed: by the value that came of it. consumed: further operands that an op may change.
    aliases: values that are another's memory under another shape.
    """

    changed: dict[Value, Use] = field(default_factory=dict)
    consumed: dict[Op, list[Use]] = field(default_factory=dict)
    aliases: dict[Value, Value] = field(default_factory=dict)

    def version(self, value: Value) -> Value:
        """The value whose contents `value` are; what came of a change in place is another."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def of(self, group: Group) -> list[Use]:
        """Return the operands that the group changes in place."""
        own = [self.changed[value] for value in group.written if value in self.changed]
        return own + [use for op in group.ops for use in self.consumed.get(op, ())]


class Conflict(Exception):
    """A group reads memory that has been changed before: the op that changes it, and which operand."""

    def __init__(self, use: Use):
        self.use = use


def ordered(groups: Sequence[Group], changes: Changes, defines: bool) -> list[Group]:
    """The groups in an order in which they can run: as given, but for those that others need before.

    defines: some of them define sizes. Raises Conflict when a value that is read again has been changed in place,
    CompileError when groups wait for each other for another reason.
    """
    readers: dict[Value, list[Group]] = {}
    for group in groups:
        for value in group.inputs:
            readers.setdefault(changes.version(value), []).append(group)
    before = _before(groups, changes, readers, defines)
    order = _depth_first(groups, before)
    for group in order:
        if any(order[other] > order[group] for other in before[group]):
            use = _change_to_give_up(order, changes, readers)
            if use is not None:
                raise Conflict(use)
            raise CompileError(f"groups wait for each other: {[op.name for op in group.ops]}")
    return list(order)


def _before(
    groups: Sequence[Group], changes: Changes, readers: Mapping[Value, Sequence[Group]], defines: bool
) -> dict[Group, list[Group]]:
    """For each group those that must have run when it does."""
    before = _sources(groups, changes)
    if defines:
        _wait_for_checks(groups, before)
    for group in groups:
        uses = changes.of(group)
        for use in uses:
            old = changes.version(old_value(use))
            before[group] += [g for g in readers.get(old, []) if use not in changes.of(g)]
    return before


def _sources(groups: Sequence[Group], changes: Changes) -> dict[Group, list[Group]]:
    """For each group those that make what it reads, changes or overwrites, and define the sizes that it mentions."""
    made: dict[Value, list[Group]] = {}
    for group in groups:
        for value in group.written:
            made.setdefault(value, []).append(group)
    host = [group for group in groups if group.schedule is HOST]
    definers = {group.ops[0].attrs["symbol"]: group for group in host if group.ops[0].name == "define"}
    effects = [group for group in groups if any(map(_acts, group.ops))]
    previous = dict(zip(effects[1:], effects, strict=False))

    def needed(group: Group) -> list[Group]:
        found: list[Group] = []
        for value in group.inputs:
            found += made.get(changes.version(value), [])
        for value in group.written:  # parts are written in order: later ones may overwrite
            parts = made[value]
            found += parts[: parts.index(group)]
        found += [definers[name] for name in _mentioned(group, made) if name in definers] if definers else []
        found += [previous[group]] if group in previous else []
        for use in changes.of(group):
            found += made.get(changes.version(old_value(use)), [])
        return found

    return {group: needed(group) for group in groups}


def _mentioned(group: Group, made: Container[Value]) -> Iterable[str]:
    """The symbols that a group mentions; those of a definition also where its operand is computed, if no group does."""
    if group.schedule is not HOST or group.ops[0].name != "define":
        return group.symbols
    seen: set[Op] = set()
    todo = list(group.ops[0].operands)
    while todo:
        value = todo.pop()
        if value.op is not None and value.op not in seen and value not in made:
            seen.add(value.op)
            todo += value.op.operands
    return {name for op in seen for d in dims_in(op) for name in d.symbols}


def _wait_for_checks(groups: Sequence[Group], before: Mapping[Group, list[Group]]) -> None:
    """Let groups wait for the checks of sizes that data decide, but for those that a check waits for itself.

    Whether a group mentions these sizes or not: what is known of others may follow from what is checked.
    """
    checks = [group for group in groups if group.schedule is HOST and group.ops[0].name == "check"]
    for check in checks:
        needed = _with_all_before(check, before)
        for group in groups:
            if group not in needed and group not in checks:
                before[group].append(check)


def _with_all_before(group: Group, before: Mapping[Group, Sequence[Group]]) -> set[Group]:
    found: set[Group] = set()
    todo = [group]
    while todo:
        current = todo.pop()
        if current not in found:
            found.add(current)
            todo += before[current]
    return found


def _acts(op: Op) -> bool:
    """Whether the op does something that is seen outside of the program; such ops keep their order."""
    return kind(op) != "host" and has_effect(op)


def _depth_first(groups: Sequence[Group], before: Mapping[Group, Sequence[Group]]) -> dict[Group, int]:
    """The groups with their places; one that waits for itself comes somewhere."""
    order: dict[Group, int] = {}
    for group in groups:
        stack = [(group, iter(before[group]))]
        while stack:
            current, rest = stack[-1]
            step = next((g for g in rest if g not in order and g is not current), None)
            if step is not None and all(step is not g for g, _ in stack):
                stack.append((step, iter(before[step])))
            elif step is None:
                order.setdefault(current, len(order))
                stack.pop()
    return order


def _change_to_give_up(
    order: Mapping[Group, int], changes: Changes, readers: Mapping[Value, Sequence[Group]]
) -> Use | None:
    """The change in place that is in the way of a reader, else any; None when there is no change."""
    writers: dict[Use, list[Group]] = {}
    for group in order:
        for use in changes.of(group):
            writers.setdefault(use, []).append(group)
    for use, groups in writers.items():
        last = [order[g] for g in readers.get(changes.version(old_value(use)), []) if g not in groups]
        if last and max(last) > min(order[g] for g in groups):
            return use
    return next(iter(writers), None)
