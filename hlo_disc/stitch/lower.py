"""From a DHLO graph and a `Device` to one MLIR module of kernels and host functions, and what the runtime needs.

normalise -> fuse -> collapse each group -> choose variants -> kernels (equal ones once) -> host flow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hlo_disc.abi import EnvLayout
from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard, Value
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.mlir import ir
from hlo_disc.program import LibraryCall, PackRow
from hlo_disc.stitch.codegen.module import ModuleBuilder
from hlo_disc.stitch.explain import explain
from hlo_disc.stitch.fusion.collapse import collapse
from hlo_disc.stitch.fusion.fuse import fuse, is_stored_constant
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan
from hlo_disc.stitch.hostflow.flow import Flow, Pack, Step, constant_array
from hlo_disc.stitch.prepare.definitions import with_definitions
from hlo_disc.stitch.prepare.normalise import normalise
from hlo_disc.stitch.schedules.table import SCHEDULES
from hlo_disc.stitch.variant import Packing, Variant


@dataclass(frozen=True)
class Lowered:
    """The module, and what a caller must bring.

    symbols: names in the order of `env`. guards: in the order of `plan`'s statuses.
    calls: the library functions, by number.
    """

    module: ir.Module
    constants: tuple[np.ndarray, ...]
    packs: tuple[PackRow, ...]
    calls: tuple[LibraryCall, ...]
    symbols: tuple[str, ...]
    guards: tuple[Guard, ...]
    env: EnvLayout
    explain: str


def lower(graph: Graph, device: Device, verified: bool = True) -> Lowered:
    """Compile a graph to MLIR for a device. Raises UnsupportedOpError for what no schedule covers.

    verified: check what `normalise` makes of the graph, as every stage's result is.
    """
    graph = with_definitions(normalise(graph))
    if verified:
        verify(graph)
    plan = fuse(graph, SCHEDULES)
    static = _Static(graph, plan)
    builder = ModuleBuilder()
    b = builder.builder
    try:
        kernels: dict[tuple, str] = {}

        def kernel(item: Variant | Packing) -> str:
            """The kernel of a variant or packing; equal ones are built once."""
            name = f"k{len(kernels)}_{item.name}"
            known = kernels.setdefault(item.key(), name)  # keys are large: each is hashed once
            if known is name:
                item.build(b, name)
            return known

        def scheduled(group: Group) -> Step:
            schedule = group.schedule
            assert schedule.choices is not None
            small = collapse(group, graph.facts) if schedule.collapses else group
            choices = schedule.choices(small, graph.facts, device, static)
            return Step(group, tuple(choices), tuple(kernel(c.variant) for c in choices), small.symbols)

        steps: dict[Group, Step] = {}
        alike: dict[tuple, Step] = {}
        packs: dict[Packing, Pack] = {}
        for group in plan.groups():
            if group.schedule.choices is None:  # the host flow is what they are
                continue
            key = (group.key(), tuple(static(v) for v in group.inputs))
            same = alike.get(key)
            step = same.for_group(group) if same else scheduled(group)
            if not same and not any(c.variant.workspace for c in step.choices):  # that is memory of this step alone
                alike[key] = step
            for packing in (c.packing for c in step.choices if c.packing):
                if packing not in packs:
                    packs[packing] = Pack(packing, kernel(packing))
            steps[group] = step
        flow = Flow(b, graph, plan, steps, tuple(packs.values()))
        flow.build_plan()
        flow.build_main()
        flow.build_packs()
    finally:
        module = builder.close()
    return Lowered(
        module,
        tuple(constant_array(v) for v in flow.constants),
        tuple(PackRow(*flow.source(p), p.packing.size, p.function) for p in flow.packs),
        tuple(builder.library),
        flow.symbols,
        flow.guards,
        flow.env,
        explain(graph, plan, flow),
    )


class _Static:
    """Is a value's data the same at every call that passes the same array? Then a packed form of it can be kept."""

    def __init__(self, graph: Graph, plan: Plan):
        self.inputs, self.root = set(graph.inputs), plan.root

    def __call__(self, value: Value) -> bool:
        value = self.root(value)
        return all(n.is_const for n in value.shape) and (value in self.inputs or is_stored_constant(value.op))
