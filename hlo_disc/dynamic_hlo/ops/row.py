"""The row of the op table for an op."""

from __future__ import annotations

from collections.abc import Callable

from hlo_disc.dynamic_hlo.ops.axes import AxisRule
from hlo_disc.dynamic_hlo.ops.inference import Rule
from hlo_disc.frozen import frozen


@frozen
class OpDef:
    """One op.

    kind: the class by which stages treat ops alike: source, elementwise, view, gather, scatter, sort, reduce,
        cumulative, window, dot; assemble, of blocks that are written one by one; control, a loop or a choice; call, of
        a library; host, for host code only. `table.kind` knows one more.
    operands: their number, None for any.
    infer: result types of an op under given facts; see inference.py for what it raises.
    reference: `reference(*arrays, **attrs)`, every Dim in the attributes evaluated, every Region a function
        `(*arrays) -> list of arrays`; one array, or a tuple of one a result.
    attrs: the names that an op's attributes have, exactly.
    dialect: the dialect of the op in StableHLO's text; "" for ops that no program has.
    expensive: the op costs about ten additions or more, so its result is worth keeping.
    axes: the rule by which axes of the operands follow those of the results. None for elementwise ops, which share one
        rule, and for ops without a rule: these keep all their axes.
    """

    name: str
    kind: str
    operands: int | None
    infer: Rule
    reference: Callable[..., object]
    attrs: tuple[str, ...] = ()
    dialect: str = "stablehlo"
    expensive: bool = False
    axes: AxisRule | None = None
