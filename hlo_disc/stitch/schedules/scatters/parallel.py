"""Scatters whose updates may come in any order, for teams of threads: lanes on the elements of the updates.

Either no two elements of the updates meet, or they meet by an operation on integers that a machine makes of memory at
once (`Builder.atomic`), whose result does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from hlo_disc.device import Device, Team
from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.families.combiners import monoid_kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.stitch.codegen.body import Body, InMemory
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val, product
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.schedules.kernel import block_grain, each_item, group_kernel
from hlo_disc.stitch.schedules.scatters.axes import Axes, Places, scatter_of, update_of
from hlo_disc.stitch.variant import Variant


def meets_nothing(op: Op) -> bool:
    """Whether at most one element of the updates meets each element of the result."""
    update = update_of(op).shape
    return op.attrs["unique"] or all(update[a] is ONE for a in Axes.find(op).serial)


def atomic_kind(op: Op) -> str | None:
    """Return the atomic operation of the region, see `Builder.atomic`."""
    dtype = op.results[0].dtype
    if dtype_class(dtype) not in ("int", "uint") or dtype.itemsize < 4:
        return None
    kind = monoid_kind(op.attrs["body"])
    if kind in ("max", "min"):
        return kind + ("s" if dtype_class(dtype) == "int" else "u")
    return {"add": "addi", "and": "andi", "or": "ori", "xor": "xori"}.get(kind or "")


def lane_axis(op: Op) -> int | None:
    """Return the axis of the updates along which lanes run: neighbours in memory, if there are any."""
    update = update_of(op).shape
    return max((a for a, size in enumerate(update) if size is not ONE), default=None)


@frozen
class ParallelScatter(Variant):
    """Kernel arguments: inputs, outputs, symbols, items, items a block. An item is a step of the lanes.

    atomic: how an element meets others, None where it meets none.
    """

    group: Group
    facts: ShapeFacts
    device: Device
    team: Team
    atomic: str | None

    @property
    def name(self) -> str:
        return f"scatter_{self.atomic or 'unique'}_{self.team.threads}"

    @property
    def op(self) -> Op:
        return scatter_of(self.group)

    @property
    def width(self) -> int:
        return self.team.runs * self.device.lanes

    def key(self) -> tuple[Hashable, ...]:
        return (self.group.key, self.team, self.atomic)

    def launch(self, b: Builder, sizes: Sizes, kernel: str, buffers: Sequence[Val], symbols: Sequence[Scalar]) -> None:
        """Divide the updates into blocks that are worth handing out, and launch."""
        size, axis = sizes.shape(update_of(self.op).shape), lane_axis(self.op)
        items = product([n if a != axis else b.ceil_div(n, self.width) for a, n in enumerate(size)])
        per = b.maximum(block_grain(b, self.device, self.team, items * self.width) // self.width, 1)
        b.launch(kernel, b.ceil_div(items, per), [*buffers, *symbols, items, per], 0, self.team)

    def build(self, b: Builder, name: str) -> None:
        """Add the kernel to the module."""
        group = self.group
        with group_kernel(b, name, group, self.facts, 2, team=self.team) as (sizes, buffers, (items, per)):
            leaves = {
                v: InMemory(m, sizes.shape(v.shape), v.dtype, fixed=v in group.inputs)
                for v, m in zip((*group.inputs, *group.outputs), buffers, strict=True)
            }
            body = Body(b, self.width, sizes, leaves)
            places = Places(b, self.op, Axes.find(self.op), sizes, leaves)
            with each_item(b, items, per) as item:
                self._step(b, body, places, item)

    def _step(self, b: Builder, body: Body, places: Places, item: Val) -> None:
        """Apply the updates of one item, all at once."""
        axis = lane_axis(self.op)
        assert axis is not None
        counts = [n if a != axis else b.ceil_div(n, body.width) for a, n in enumerate(places.size)]
        places.at = dict(enumerate(body.math.delinear(Index(item), counts)))
        first: Scalar = places.at[axis].base * body.width
        places.at[axis] = Index(first, 1)
        body.mask = here = b.lanes.first(b.minimum(places.size[axis] - first, body.width), body.width)
        starts = places.starts(body)
        inside = places.inside(body, starts)
        if inside is not None:
            body.mask = b.both(here, b.splat(inside, body.width))
        place = places.place(body, starts)
        at = body.math.linear(place, places.shape)
        # Where all lanes have the same place, one of them at most is here.
        at = Index(at.base, body.math.offsets(at)) if at.lanes is None else at
        if self.atomic:
            (update,), (target,) = places.given(body), places.targets
            offsets = body.math.offsets(at)
            b.atomic(self.atomic, b.splat(update, body.width), target.buffer, at.base, offsets, body.mask)
        else:
            count = product(places.shape)
            places.combine(body, [replace(leaf, shape=[count]) for leaf in places.targets], [at])
        body.mask = None
