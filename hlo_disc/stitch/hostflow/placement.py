"""The memory of every value: the caller's memory, a slot of the arena, or memory that is allocated during the run.

Everything except sizes that depend on data is decided before the call.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo_disc.dynamic_hlo.ir.graph import Graph, Value, is_array
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.scope import Plan
from hlo_disc.stitch.hostflow.memory import Lives, Slot, plan_memory
from hlo_disc.stitch.scheduling import Scheduled


@frozen
class Placement:
    """places: the slot of a value in the arena, which has `slots` one behind the other; lives: its first and last step;
    order: the step of each group.

    outputs: values that lie in an output, by its number. constants: the constants that kernels read. packed: constants
    that kernels read only in packed form, by number. stored: registers that kernels read in memory. late: symbols
    that are known only at run time; late_places: the slots of values of such sizes, each allocated by itself.
    """

    outputs: Mapping[Value, int]
    constants: tuple[Value, ...]
    packed: tuple[int, ...]
    stored: frozenset[Value]
    lives: Mapping[Value, tuple[int, int]]
    order: Mapping[Group, int]
    places: Mapping[Value, Slot]
    slots: tuple[Slot, ...]
    late: frozenset[str]
    late_places: Mapping[Value, Slot]

    def is_known(self, *dims: Dim) -> bool:
        """Whether the sizes follow from the call's arguments, before it runs."""
        return _is_known(self.late, dims)


def place(graph: Graph, plan: Plan, scheduled: Scheduled) -> Placement:
    """Give every value its memory."""
    outputs = {plan.root(v): i for i, v in enumerate(plan.scope.outputs)}
    read = dict.fromkeys(plan.root(x) for group in scheduled.steps for x in group.inputs)
    stored = frozenset(plan.registers & {*read, *outputs})
    counted = Lives(plan, scheduled.workspace, stored, outputs)
    lives = counted.steps
    late = frozenset(op.attrs["symbol"] for op in plan.host_ops("define"))
    early = {v: steps for v, steps in lives.items() if _is_known(late, v.shape)}
    places, slots = plan_memory(early, graph.facts)
    late_places, _ = plan_memory({v: steps for v, steps in lives.items() if v not in early}, graph.facts, exact=True)
    constants = tuple(v for v in read if is_array(v.op))
    unpacked = _read_as_they_are(plan, scheduled)
    packed = tuple(i for i, v in enumerate(constants) if v not in unpacked)
    return Placement(outputs, constants, packed, stored, lives, counted.order, places, tuple(slots), late, late_places)


def _read_as_they_are(plan: Plan, scheduled: Scheduled) -> set[Value]:
    """Return the values that kernels read unpacked if all packed forms exist, as those of constants do."""
    found: set[Value] = set()
    for group, step in scheduled.steps.items():
        first = step.choices[0]
        source = first.packing.source if first.packing and not first.when else None
        found.update(plan.root(x) for x in group.inputs if x is not source or not _is_only_operand(x, group))
    return found


def _is_only_operand(value: Value, group: Group) -> bool:
    """Whether a group reads a value, through views, as one operand of a dot and for nothing else."""
    views, dots = {value}, 0
    for op in group.ops:
        uses = sum(x in views for x in op.operands)
        if uses and kind(op) == "dot":
            dots += uses
        elif uses and kind(op) == "view" and not views.intersection(op.operands[1:]):
            views.update(op.results)
        elif uses:
            return False
    return dots == 1 and views.isdisjoint(group.outputs)


def _is_known(late: frozenset[str], dims: tuple[Dim, ...]) -> bool:
    return not late or all(late.isdisjoint(d.symbols) for d in dims)
