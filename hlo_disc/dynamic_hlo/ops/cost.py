"""What ops cost, as far as passes and schedules need to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.table import OPS

# Ops that cost about ten additions or more: worth keeping rather than computing twice.
EXPENSIVE = frozenset(
    (
        *(name for name, row in OPS.items() if row.expensive),
        *("reduce_window", "select_windows", "window_scatter", "cumulative"),
    )
)


def free_ops(ops: Iterable[Op], kind: Callable[[Op], str]) -> set[Op]:
    """Ops that are computed where they are used, every time: they read no memory and cost little. ops: in order."""
    free: set[Op] = set()
    for op in ops:
        source = op.name in ("iota", "dim") or (op.name == "constant" and op.attrs["value"].size == 1)
        cheap = kind(op) in ("elementwise", "view") and op.name not in EXPENSIVE
        if source or (cheap and all(x.op in free for x in op.operands)):
            free.add(op)
    return free
