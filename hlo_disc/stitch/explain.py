"""Report what was compiled and why: as plain data for `explain`, and as text for dumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from hlo_disc.compiled.account import Account, Condition, Form, Held, Launch, Slot, Split
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.dtypes import dtype_text
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value
from hlo_disc.dynamic_hlo.ops.cost import only_gathers, only_moves, operations
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan, Scope
from hlo_disc.stitch.hostflow.memory import Slot as MemorySlot
from hlo_disc.stitch.hostflow.memory import value_bytes
from hlo_disc.stitch.hostflow.placement import Placement
from hlo_disc.stitch.schedule import CONTROL, HOST
from hlo_disc.stitch.scheduling import Scheduled, Step
from hlo_disc.stitch.variant import Choice


def account(graph: Graph, plan: Plan, scheduled: Scheduled, placement: Placement | None, device: Device) -> Account:
    """Return the variants of all launches and, once memory is planned, where and when values are stored."""
    places = _Places()
    different = {group.key: group for group in scheduled.steps}
    work = {key: _work(group, graph.facts) for key, group in different.items()}
    numbers = {group: number for number, group in enumerate(scheduled.steps)}
    order = placement.order if placement else {}
    owner = {op: number for group, number in numbers.items() for op in group.ops}
    return Account(
        graph.name,
        places.texts,
        [
            _launch(step, places, work[group.key], order.get(group, 0), device)
            for group, step in scheduled.steps.items()
        ],
        _flow(plan.scope, plan, numbers),
        _slots(placement) if placement else [],
        len(placement.places) if placement else 0,
        [Split(op.name, places.number(op), why, owner.get(op, -1)) for op, why in dict.fromkeys(plan.splits)],
        len(scheduled.packs),
    )


class _Places:
    """The user's lines, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, op: Op) -> int:
        found = self._numbers.setdefault(op.loc, len(self.texts))
        if found == len(self.texts):
            self.texts.append(op.loc)
        return found


def _work(group: Group, facts: ShapeFacts) -> tuple[str, str]:
    """Return the bytes that a group reads and writes, and its operations: both axes of a roofline."""
    moved = sum(map(value_bytes, group.outputs), ZERO)
    for value in group.inputs:
        whole, read = value_bytes(value), _read(value, group, facts)
        moved = moved + (whole if read is None else Dim.min(whole, read * value.dtype.itemsize))
    return str(moved), str(sum(map(operations, group.ops), ZERO))


def _launch(step: Step, places: _Places, work: tuple[str, str], at: int, device: Device) -> Launch:
    group = step.group
    ops = Counter([(op.name, places.number(op)) for op in group.ops])
    return Launch(
        [_form(choice, step, kernel, device) for choice, kernel in zip(step.choices, step.kernels, strict=True)],
        list(map(_type, group.written)),
        [(name, place, count) for (name, place), count in ops.items()],
        *work,
        next((str(op.operands[0].dtype) for op in group.ops if kind(op) == "dot"), ""),
        at,
    )


def _read(value: Value, group: Group, facts: ShapeFacts) -> Dim | None:
    """Return how many elements of a value a group reads, where gathers or slices leave some out; None for all."""
    uses = [(op, number) for op in group.ops for number, x in enumerate(op.operands) if x is value]
    parts = [_read_by(op, number, group, facts) for op, number in uses]
    known = [n for n in parts if n is not None]
    return sum(known, ZERO) if uses and len(known) == len(uses) and value not in group.outputs else None


def _read_by(op: Op, number: int, group: Group, facts: ShapeFacts) -> Dim | None:
    if only_gathers(op, number):
        return dim_product(op.result.shape)
    if not only_moves(op):
        return None
    read, old, new = _read(op.result, group, facts), op.operands[0].shape, op.result.shape
    rows = zip(new, old, strict=False)
    if new == old or len(new) != len(old) or any(facts.at_most(n, m) is not Truth.YES for n, m in rows):
        return read
    return dim_product(new) if read is None else Dim.min(read, dim_product(new))


def _form(choice: Choice, step: Step, kernel: str, device: Device) -> Form:
    real = step.sized.real
    when = [Condition(str(real(c.size)), c.relation, c.bound) for c in choice.when]
    fast = real(choice.variant.fast_bytes()) if device.teams else ZERO  # elsewhere a block takes what the call has
    return Form(kernel, when, choice.packing is not None, choice.may_decline, str(fast))


def _slots(placement: Placement) -> list[Slot]:
    late = dict.fromkeys(placement.late_places.values())
    places = {**placement.places, **placement.late_places}
    inside: dict[MemorySlot, list[Held]] = {slot: [] for slot in (*placement.slots, *late)}
    for value, slot in places.items():
        inside[slot].append(Held(_type(value), str(value_bytes(value)), *placement.lives[value]))
    return [Slot(str(slot.size), slot in late, values) for slot, values in inside.items()]


def _flow(scope: Scope, plan: Plan, numbers: Mapping[Group, int]) -> list[object]:
    """Return the launches in order, with those of loops and branches inside them."""
    found: list[object] = []
    for group in scope.groups:
        if group.schedule is CONTROL:
            parts = zip(_parts(group), plan.inner(group), strict=True)
            found.append([_control(group, plan), [[name, _flow(inside, plan, numbers)] for name, inside in parts]])
        elif group.schedule is HOST:
            found.append([f"host: {', '.join(op.name for op in group.ops)}", []])
        else:
            found.append(numbers[group])
    return found


def groups_text(graph: Graph, plan: Plan) -> str:
    """Return a line for each group: its schedule, the memory and registers that it writes and reads, its ops.

    What has one name shares memory: a group that writes what it or another one reads changes it in place.
    """
    names = _names(graph, plan)
    return "\n".join([*_groups(plan.scope, plan, names, ""), f"outputs {_list(plan.scope.outputs, plan, names)}"])


def memory_text(graph: Graph, plan: Plan, placement: Placement) -> str:
    """Return a line for each slot of the arena: its values, and their first and last steps."""
    names = _names(graph, plan)

    def held(lives: Mapping[Value, tuple[int, int]]) -> str:
        return ", ".join(f"{names.get(v, 'workspace')} in {first}-{last}" for v, (first, last) in lives.items())

    lines = [f"arena: {len(placement.slots)} slots for {len(placement.places)} values"]
    late = dict.fromkeys(placement.late_places.values())
    for slot, places in [(s, placement.places) for s in placement.slots] + [(s, placement.late_places) for s in late]:
        inside = {v: placement.lives[v] for v, other in places.items() if other is slot}
        lines.append(f"  {slot.size} bytes{' when it runs' if slot in late else ''}: {held(inside)}")
    return "\n".join(lines)


def _names(graph: Graph, plan: Plan) -> dict[Value, str]:
    """Name all memory and registers, by root, in order of appearance."""
    found: dict[Value, str] = {}

    def see(values: Iterable[Value]) -> None:
        for value in map(plan.root, values):
            found.setdefault(value, f"%{len(found)}")

    see(graph.inputs)
    for group in plan.groups():
        see((*group.inputs, *group.written))
        for op in group.ops if group.schedule is CONTROL else ():
            if op in plan.loops:
                see(c.spare for c in plan.loops[op].carried if c.spare)
        for scope in plan.inner(group):
            see((*scope.inputs, *scope.outputs))
    see(plan.scope.outputs)
    return found


def _list(values: Iterable[Value], plan: Plan, names: dict[Value, str]) -> str:
    return ", ".join(dict.fromkeys(names[plan.root(v)] for v in values))


def _groups(scope: Scope, plan: Plan, names: dict[Value, str], indent: str) -> Iterator[str]:
    for group in scope.groups:
        written = ", ".join(f"{names[plan.root(v)]} {_type(v)}" for v in group.written)
        if group.place:
            starts = (
                names.get(plan.root(x), "computed") if isinstance(x, Value) else str(x) for x in group.place.starts
            )
            written += f" at ({', '.join(starts)})"
        read = _list(group.inputs, plan, names)
        yield f"{indent}{group.schedule.name} {written} <- {read or 'nothing'}  [{_ops(group.ops)}]"
        for name, inside in zip(_parts(group), plan.inner(group), strict=True):
            yield f"{indent}  {name} -> {_list(inside.outputs, plan, names)}:"
            yield from _groups(inside, plan, names, indent + "    ")


def _type(value: Value) -> str:
    return f"{dtype_text(value.dtype)}({', '.join(map(str, value.shape))})"


def _control(group: Group, plan: Plan) -> str:
    (op,) = group.ops
    if op.name == "case":
        return f"case -> {', '.join(map(_type, op.results))}"
    kinds = [
        "register" if c.in_register else "in place" if c.in_place else "two buffers" for c in plan.loops[op].carried
    ]
    return f"while -> {', '.join(f'{_type(v)} {kind}' for v, kind in zip(op.results, kinds, strict=True))}"


def _parts(group: Group) -> list[str]:
    """Return the names of the scopes of a group's regions."""
    if group.schedule is not CONTROL:
        return []
    (op,) = group.ops
    return ["condition", "body"] if op.name == "while" else [f"branch {i}" for i in range(len(op.attrs["branches"]))]


def _ops(ops: Iterable[Op]) -> str:
    names = Counter(op.name for op in ops)
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in names.items()) or "copy"
