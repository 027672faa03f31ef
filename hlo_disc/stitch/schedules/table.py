"""All schedules: one row each. Fusion starts groups of "row" where no other row of the machine has the op's kind.

The files of a schedule are imported when a program has a group of it: few programs have groups of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.stitch.schedule import Joins, Schedule, Static
from hlo_disc.stitch.schedules.row.choices import row_choices

if TYPE_CHECKING:
    from hlo_disc.stitch.fusion.group import Group
    from hlo_disc.stitch.variant import Choice


def _dot(group: Group, facts: ShapeFacts, device: Device, is_static: Static) -> list[Choice]:
    from hlo_disc.stitch.schedules.dot.choices import dot_choices

    return dot_choices(group, facts, device, is_static)


def _attention(group: Group, facts: ShapeFacts, device: Device, is_static: Static) -> list[Choice]:
    from hlo_disc.stitch.schedules.attention.choices import attention_choices

    return attention_choices(group, facts, device, is_static)


def _scatter(group: Group, facts: ShapeFacts, device: Device, is_static: Static) -> list[Choice]:
    from hlo_disc.stitch.schedules.scatters.choices import scatter_choices

    return scatter_choices(group, facts, device, is_static)


def _sort(group: Group, facts: ShapeFacts, device: Device, is_static: Static) -> list[Choice]:
    from hlo_disc.stitch.schedules.sort.choices import sort_choices

    return sort_choices(group, facts, device, is_static)


def _call(group: Group, facts: ShapeFacts, device: Device, is_static: Static) -> list[Choice]:
    from hlo_disc.stitch.schedules.library import library_choices

    return library_choices(group, facts, device, is_static)


def _shape(result: Value) -> Shape:
    return result.shape


def _updates(result: Value) -> Shape:
    from hlo_disc.stitch.schedules.scatters.choices import updates_shape

    return updates_shape(result)


_ROWS = (
    Schedule("row", row_choices, Joins.ROWS, collapses=True, takes_sizes=True),
    Schedule("dot", _dot, Joins.READ, once=_shape, most_ops=None, takes_sizes=True),
    Schedule("attention", _attention, Joins.READ, most_ops=None, teams=False),
    Schedule("scatter", _scatter, Joins.READ, once=_updates, collapses=True, takes_sizes=True),
    Schedule("sort", _sort, Joins.READ, once=_shape),
    Schedule("call", _call, Joins.NOTHING, may_fail=True),
)
SCHEDULES: dict[str, Schedule] = {row.name: row for row in _ROWS}


def schedules_for(device: Device) -> dict[str, Schedule]:
    """Return the machine's schedules, by name."""
    return {name: row for name, row in SCHEDULES.items() if row.teams or not device.teams}
