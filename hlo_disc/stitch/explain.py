"""What was compiled and why, as text for people: groups, their kernels and variants, memory, and reasons for splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value
from hlo_disc.dynamic_hlo.ops.cost import operations
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim, dim_product
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan, Scope
from hlo_disc.stitch.hostflow.placement import Placement
from hlo_disc.stitch.schedule import CONTROL, HOST
from hlo_disc.stitch.scheduling import Scheduled, Step


def explain(graph: Graph, plan: Plan, scheduled: Scheduled, placement: Placement, device: Device) -> str:
    """One line an input, a line a launch, the arena, and why ops were not fused."""
    lines = [f"program {graph.name}"]
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        if not all(n.is_const for n in value.shape):
            lines.append(f"  input {name}: {_type(value)}")
    lines += [f"  output: {_type(v)}" for v in graph.outputs]
    lines.append(launches_text(plan, scheduled))
    lines.append("what launches read and write, each once, and compute:")
    lines += [f"{number:6d}  {_work(group)}" for number, group in enumerate(scheduled.steps)]
    if device.teams:
        lines.append("fast memory of a block, in bytes, which launches ask for:")
        needs = {
            k: c.variant.fast_bytes()
            for s in scheduled.steps.values()
            for c, k in zip(s.choices, s.kernels, strict=True)
        }
        lines += [f"  {kernel}: {need}" for kernel, need in needs.items() if need != Dim.const(0)]
    lines.append(f"arena: {len(placement.slots)} slots for {len(placement.places)} values")
    lines += [f"  {slot.size} bytes" for slot in placement.slots]
    if plan.notes:
        lines.append("not fused:")
        lines += [f"  {note}" for note in dict.fromkeys(plan.notes)]
    return "\n".join(lines)


def groups_text(graph: Graph, plan: Plan) -> str:
    """A line a group: its schedule, the memory and registers that it writes and reads, its ops.

    What has one name shares memory: a group that writes what it or another one reads changes it in place.
    """
    names = _names(graph, plan)
    return "\n".join([*_groups(plan.scope, plan, names, ""), f"outputs {_list(plan.scope.outputs, plan, names)}"])


def launches_text(plan: Plan, scheduled: Scheduled) -> str:
    """A line a launch: the forms of the group and when each of them is taken."""
    steps, packs = scheduled.steps, scheduled.packs
    kernels = {name for step in steps.values() for name in step.kernels}
    head = f"{len(steps)} launches, {len(kernels)} kernels, {len(packs)} packed weights"
    numbers = {group: number for number, group in enumerate(steps)}
    return "\n".join([head, *_scope(plan.scope, plan, scheduled, numbers, "  ")])


def memory_text(graph: Graph, plan: Plan, placement: Placement) -> str:
    """A line a slot of the arena: what lies there, and from which step to which. Steps count through all scopes."""
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
    """Names for all memory and registers, by root, in order of appearance."""
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
    return f"{value.dtype}({', '.join(map(str, value.shape))})"


def _scope(scope: Scope, plan: Plan, scheduled: Scheduled, numbers: dict[Group, int], indent: str) -> list[str]:
    """The launches in order, those of loops and branches indented."""
    lines: list[str] = []
    for group in scope.groups:
        if group.schedule is CONTROL:
            lines.append(f"{indent}      {_control(group, plan)}")
            for name, inside in zip(_parts(group), plan.inner(group), strict=True):
                lines.append(f"{indent}      {name}:")
                lines += _scope(inside, plan, scheduled, numbers, indent + "  ")
        elif group.schedule is HOST:
            lines.append(f"{indent}      host: {', '.join(op.name for op in group.ops)}")
        else:
            lines.append(f"{indent}{numbers[group]:4d}  {_step(scheduled.steps[group])}")
    return lines


def _control(group: Group, plan: Plan) -> str:
    (op,) = group.ops
    if op.name == "case":
        return f"case -> {', '.join(map(_type, op.results))}"
    kinds = [
        "register" if c.in_register else "in place" if c.in_place else "two buffers" for c in plan.loops[op].carried
    ]
    return f"while -> {', '.join(f'{_type(v)} {kind}' for v, kind in zip(op.results, kinds, strict=True))}"


def _parts(group: Group) -> list[str]:
    """What the scopes of a group's regions are called."""
    if group.schedule is not CONTROL:
        return []
    (op,) = group.ops
    return ["condition", "body"] if op.name == "while" else [f"branch {i}" for i in range(len(op.attrs["branches"]))]


def _step(step: Step) -> str:
    forms = []
    for choice, kernel in zip(step.choices, step.kernels, strict=True):
        conditions = [str(condition) for condition in choice.when]
        if choice.packing is not None:
            conditions.append("weight packed")
        if choice.may_decline:
            conditions.append("the vendor's library takes it")
        forms.append(kernel + (f" if {' and '.join(conditions)}" if conditions else ""))
    return f"{' else '.join(forms)} -> {', '.join(map(_type, step.group.written))}  [{_ops(step.group.ops)}]"


def _work(group: Group) -> str:
    """Both axes of a roofline: bytes, and operations on numbers."""
    moved = sum((v.dtype.itemsize * dim_product(v.shape) for v in (*group.inputs, *group.outputs)), ZERO)
    return f"{moved} bytes, {sum(map(operations, group.ops), ZERO)} operations"


def _ops(ops: Iterable[Op]) -> str:
    names = Counter(op.name for op in ops)
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in names.items()) or "copy"
