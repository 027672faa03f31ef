"""All schedules: one row each. Fusion starts groups of "row" where no other row of the machine has the op's kind."""

from __future__ import annotations

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.stitch.schedule import Joins, Schedule
from hlo_disc.stitch.schedules.attention.choices import attention_choices
from hlo_disc.stitch.schedules.dot.choices import dot_choices
from hlo_disc.stitch.schedules.library import library_choices
from hlo_disc.stitch.schedules.row.choices import row_choices
from hlo_disc.stitch.schedules.scatters.choices import scatter_choices, updates_shape
from hlo_disc.stitch.schedules.sort.choices import sort_choices


def _shape(result: Value) -> Shape:
    return result.shape


_ROWS = (
    Schedule("row", row_choices, Joins.ROWS, collapses=True),
    Schedule("dot", dot_choices, Joins.READ, once=_shape, most_ops=None),
    Schedule("attention", attention_choices, Joins.READ, most_ops=None, teams=False),
    Schedule("scatter", scatter_choices, Joins.READ, once=updates_shape, collapses=True),
    Schedule("sort", sort_choices, Joins.READ, once=_shape),
    Schedule("call", library_choices, Joins.NOTHING, may_fail=True),
)
SCHEDULES: dict[str, Schedule] = {row.name: row for row in _ROWS}


def schedules_for(device: Device) -> dict[str, Schedule]:
    """The schedules that the machine has, by name."""
    return {name: row for name, row in SCHEDULES.items() if row.teams or not device.teams}
