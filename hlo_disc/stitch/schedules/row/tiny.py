"""The schedule of a few elements: no kernel, but straight code in the host function that would launch it.

It is for a loop's update of a counter, of one element of an array, or of a random key. There a launch costs more than
the arithmetic, and a kernel would take longer to compile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.cost import is_expensive
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.row.kernel import placed
from hlo_disc.stitch.variant import Variant

# So many elements, and so many ops over all of them, are worth no kernel.
MOST_ELEMENTS, MOST_OPS = 8, 96
_KINDS = ("source", "view", "gather", "elementwise")


@frozen
class TinyVariant(Variant):
    """The only variant of a row group with few elements. It writes nothing before it has read everything."""

    group: Group
    facts: ShapeFacts

    @property
    def name(self) -> str:
        return "inline"

    def key(self) -> tuple[Hashable, ...]:
        return ("tiny", self.group.key)

    def build(self, b: Builder, name: str) -> None:
        """Do nothing: there is no kernel."""

    def launch(self, b: Builder, sizes: Sizes, name: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        group, count = self.group, len(self.group.inputs)
        leaves = {v: self._leaf(v, m, sizes) for v, m in zip(group.inputs, buffers, strict=False)}
        body = Body(b, 1, sizes, leaves)
        results = []
        for value, buffer in zip(group.outputs, buffers[count:], strict=True):
            shape = group.place.shape if group.place else value.shape
            leaf = InMemory(buffer, sizes.shape(shape), value.dtype)
            for at in itertools.product(*(range(n.value) for n in value.shape)):
                index = tuple(map(Index, at))
                where = placed(body, group.place, value, index) if group.place else index
                results.append((body.eval(value, index), leaf, where))
        for x, leaf, where in results:
            body.store(x, leaf, where)

    def _leaf(self, value: Value, buffer: Val, sizes: Sizes) -> InMemory:
        return InMemory(buffer, sizes.shape(value.shape), value.dtype, fixed=False)


def is_tiny(group: Group) -> bool:
    """Whether a row group is so small that no kernel is worth it, at any sizes."""
    if not all(n.is_const for v in group.outputs for n in v.shape):
        return False
    elements = sum(math.prod(n.value for n in v.shape) for v in group.outputs)
    cost = sum(10 if is_expensive(op) else 1 for op in group.ops)
    simple = all(kind(op) in _KINDS for op in group.ops)
    return simple and elements <= MOST_ELEMENTS and elements * cost <= MOST_OPS
