"""The variants in which a scatter is compiled.

On one core updates come in the order of the indices. Teams of threads take them in any order where that makes no
difference; sums of floats are not among it, so that a result is the same every time.
"""

from __future__ import annotations

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.schedules.scatters.axes import scatter_of, update_of
from hlo_disc.stitch.schedules.scatters.ordered import OrderedScatter
from hlo_disc.stitch.schedules.scatters.parallel import ParallelScatter, atomic_kind, lane_axis, meets_nothing
from hlo_disc.stitch.variant import Choice, Condition


def scatter_choices(group: Group, facts: ShapeFacts, device: Device, static: Static) -> list[Choice]:
    """Return one variant, or for those in any order one for each size of team, by the length of the axis that lanes
    share."""
    if not device.teams:
        return [Choice(OrderedScatter(group, facts, device))]
    # Teams side by side meet by shuffles alone.
    teams = [team for team in device.teams if team.warps == 1]
    op = scatter_of(group)
    alone, atomic, axis = meets_nothing(op), atomic_kind(op) if device.atomics else None, lane_axis(op)
    if axis is None or not (alone or atomic):
        return [Choice(OrderedScatter(group, facts, device, teams[-1]))]
    forms = [ParallelScatter(group, facts, device, team, None if alone else atomic) for team in teams]
    length = update_of(op).shape[axis]
    rules = [Choice(form, (Condition(length, "<=", form.width),)) for form in forms[:-1]]
    return [*rules, Choice(forms[-1])]


def updates_shape(result: Value) -> Shape:
    """Return the shape of the updates, each computed once, of the scatter that computes a value."""
    assert result.op is not None
    return update_of(result.op).shape
