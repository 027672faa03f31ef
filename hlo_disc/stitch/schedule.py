"""A way to compute groups, as one row of a table: everything that fusion and the host flow need of a schedule.

The rows are in `schedules/table.py`. Beside them are groups that the host flow computes, with no kernel of their own,
and parts of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen

if TYPE_CHECKING:
    from hlo_disc.stitch.fusion.group import Group
    from hlo_disc.stitch.variant import Choice


@frozen(eq=False)
class Static:
    """Answers about a program that facts of a group do not give.

    value: is a value's data the same at every call that passes the same array? size: a size in the program's symbols;
    a form that depends on more of it than the facts say has that in its key.
    """

    value: Callable[[Value], bool] = lambda value: False
    size: Callable[[Dim], Dim] = lambda size: size


class Joins(Enum):
    """The ops that may join a group that computes their operands."""

    ROWS = "all that one tiling of rows covers together with it"
    READ = "what nothing else reads, computed where it is read"
    NOTHING = "none: operands are read in memory, and all results are left there"


@frozen(eq=False)
class Schedule:
    """name: also the kind of the ops that start a group of it.

    choices: the compiled forms of a group, given the facts, the machine and what is static; None for the host flow.
    joins: see there. once: the shape over which a group computes everything once, by its first result, so that
    expensive ops of that shape may join; None if elements are computed several times. most_ops: a group with so many
    ops, views aside, takes no more, because its kernel would only compile slower; None for no limit.
    collapses: its groups have as few axes as possible. takes_sizes: on CPUs, its forms know sizes as arguments
    (`size_arguments.py`). may_fail: its launch returns a status, and names the user's line when it fails. teams:
    machines whose blocks are shared by teams of threads have it, too.
    """

    name: str
    choices: Callable[[Group, ShapeFacts, Device, Static], list[Choice]] | None
    joins: Joins
    once: Callable[[Value], Shape] | None = None
    most_ops: int | None = 64
    collapses: bool = False
    takes_sizes: bool = False
    may_fail: bool = False
    teams: bool = True


# What a schedule takes out of a group to look at by itself.
PART = Schedule("part", None, Joins.NOTHING)
# Scalars, checks and definitions in registers; loops and branches.
HOST = Schedule("host", None, Joins.NOTHING)
CONTROL = Schedule("control", None, Joins.NOTHING)
