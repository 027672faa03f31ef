"""Ops with other sizes: every `Dim` in attributes, types and regions replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Op, Region, Value, make_op
from hlo_disc.dynamic_hlo.sizes.dim import Dim

Change = Callable[[Dim], Dim]


def resized_attributes(attrs: Attributes, change: Change) -> Attributes:
    """The attributes with each size changed."""
    return cast("Attributes", {name: _attribute(attr, change) for name, attr in attrs.items()})


def resized_value(x: Value, change: Change) -> Value:
    """A new value that nothing makes, of the same type but for its sizes."""
    return Value(x.dtype, tuple([change(d) for d in x.shape]), None, x.index)


def resized_ops(ops: Iterable[Op], values: dict[Value, Value], change: Change) -> tuple[Op, ...]:
    """New ops on the operands that `values` says. What their results become is added there, and other operands."""
    made: list[Op] = []
    for op in ops:
        types = [(x.dtype, tuple([change(d) for d in x.shape])) for x in op.results]
        for x in op.operands:
            if x not in values:
                values[x] = resized_value(x, change)
        operands = [values[x] for x in op.operands]
        made.append(make_op(op.name, operands, resized_attributes(op.attrs, change), types, op.loc))
        values.update(zip(op.results, made[-1].results, strict=True))
    return tuple(made)


def _attribute(attr: object, change: Change) -> object:
    if type(attr) is Dim:
        return change(attr)
    if type(attr) is tuple:
        return tuple([_attribute(x, change) for x in attr])
    return _region(attr, change) if type(attr) is Region else attr


def _region(region: Region, change: Change) -> Region:
    values = {x: resized_value(x, change) for x in region.inputs}
    ops = resized_ops(region.ops, values, change)
    return Region(tuple([values[x] for x in region.inputs]), ops, tuple([values[x] for x in region.outputs]))
