"""Regions over scalars (see `combiners.scalar_region`) computed in registers, on scalars and vectors alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from hlo_disc.errors import CompileError
from hlo_disc.stitch.codegen.values.elementwise import ELEMENTWISE
from hlo_disc.stitch.codegen.values.val import Val

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.body import Body


def inline(body: Body, region: Region, args: Sequence[Val]) -> list[Val]:
    """Inline a region on these inputs. Returns its outputs, all in registers."""
    values: dict[Value, Val] = dict(zip(region.inputs, args, strict=True))
    for op in region.ops:
        rule = ELEMENTWISE.get(op.name)
        with body.b.at(op.loc):
            if rule is not None:
                values[op.result] = rule(body.b, op, [values[x] for x in op.operands])
            elif not op.operands:  # a constant, or a size
                values[op.result] = body.eval(op.result, ())
            else:
                raise CompileError(f"{op.name} cannot be computed on scalars ({op.loc or 'unknown line'})")
    return [values[v] for v in region.outputs]
