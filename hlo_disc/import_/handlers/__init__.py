"""One function an op, one file a family: from a StableHLO or CHLO op whose operands are known to DHLO ops.

Static and dynamic forms end in the same DHLO op. What StableHLO leaves undefined for sizes that do not agree becomes a
guard here (`Reader.equal`, `Reader.at_most`), so nothing behind this stage reads outside a tensor.
"""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ops.table import OPS
from hlo_disc.import_.handlers import (
    bitcast,
    broadcasts,
    calls,
    control,
    distributed,
    elementwise,
    gather,
    library,
    random,
    sort,
    views,
)
from hlo_disc.import_.handlers.products import convolution, dot, einsum, ragged
from hlo_disc.import_.handlers.reductions import norm, reduce, scan, windows
from hlo_disc.import_.handlers.types import Handler

_FAMILIES = (
    elementwise, bitcast, broadcasts, views, gather, sort, reduce, windows, scan, norm, dot, einsum, ragged,
    convolution, control, library, random, calls, distributed,
)  # fmt: skip
HANDLERS: dict[str, Handler] = {name: handler for family in _FAMILIES for name, handler in family.HANDLERS.items()}
assert len(HANDLERS) == sum(len(family.HANDLERS) for family in _FAMILIES), "an op has two handlers"

_ELEMENTWISE = (elementwise.HANDLERS.keys() | bitcast.HANDLERS.keys()) - elementwise.SPELLED.keys()
_OPS = {f"{row.dialect}.{name}" for name, row in OPS.items() if row.kind == "elementwise" and row.dialect}
assert _ELEMENTWISE == _OPS, _ELEMENTWISE ^ _OPS
