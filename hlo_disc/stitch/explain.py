"""What was compiled and why, as text for people: groups, their kernels and variants, memory, and reasons for splits."""

from __future__ import annotations

from collections import Counter

from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan, Scope
from hlo_disc.stitch.hostflow.flow import Flow, Step
from hlo_disc.stitch.schedule import CONTROL, HOST


def explain(graph: Graph, plan: Plan, flow: Flow) -> str:
    """One line an input, a line a launch, the arena, and why ops were not fused."""
    lines = [f"program {graph.name}"]
    for name, value in zip(graph.input_names, graph.inputs, strict=True):
        if not all(n.is_const for n in value.shape):
            lines.append(f"  input {name}: {_type(value)}")
    lines += [f"  output: {_type(v)}" for v in graph.outputs]
    kernels = {name for step in flow.steps for name in step.kernels}
    lines.append(f"{len(flow.steps)} launches, {len(kernels)} kernels, {len(flow.packs)} packed weights")
    lines += _scope(plan.scope, plan, flow, "  ")
    lines.append(f"arena: {len(flow.slots)} slots for {len(flow.places)} values")
    lines += [f"  {slot.size} bytes" for slot in flow.slots]
    if plan.notes:
        lines.append("not fused:")
        lines += [f"  {note}" for note in dict.fromkeys(plan.notes)]
    return "\n".join(lines)


def _type(value: Value) -> str:
    return f"{value.dtype}({', '.join(map(str, value.shape))})"


def _scope(scope: Scope, plan: Plan, flow: Flow, indent: str) -> list[str]:
    """The launches in order, those of loops and branches indented."""
    lines: list[str] = []
    for group in scope.groups:
        if group.schedule is CONTROL:
            lines.append(f"{indent}      {_control(group, plan)}")
            for name, inside in zip(_parts(group), plan.inner(group), strict=True):
                lines.append(f"{indent}      {name}:")
                lines += _scope(inside, plan, flow, indent + "  ")
        elif group.schedule is HOST:
            lines.append(f"{indent}      host: {', '.join(op.name for op in group.ops)}")
        else:
            lines.append(f"{indent}{flow.steps.index(flow.step_of[group]):4d}  {_step(flow.step_of[group])}")
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
    (op,) = group.ops
    return ["condition", "body"] if op.name == "while" else [f"branch {i}" for i in range(len(op.attrs["branches"]))]


def _step(step: Step) -> str:
    names = Counter(op.name for op in step.group.ops)
    ops = ", ".join(name if n == 1 else f"{n} {name}" for name, n in names.items()) or "copy"
    forms = []
    for choice, kernel in zip(step.choices, step.kernels, strict=True):
        conditions = [f"{size} <= {bound}" for size, bound in choice.when]
        if choice.packing is not None:
            conditions.append("weight packed")
        forms.append(kernel + (f" if {' and '.join(conditions)}" if conditions else ""))
    return f"{' else '.join(forms)} -> {', '.join(map(_type, step.group.written))}  [{ops}]"
