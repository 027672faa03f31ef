"""The beginning of every group's kernel: its arguments, and the items of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hlo_disc.device import Device, Team
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.mlir import ir
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.fusion.group import Group


@contextmanager
def group_kernel(
    b: Builder,
    name: str,
    group: Group,
    facts: ShapeFacts,
    scalars: int,
    read: Sequence[Value] = (),
    more: Sequence[tuple[ir.Type, str]] = (),
    calls_only: bool = False,
    team: Team | None = None,
) -> Iterator[tuple[Sizes, list[Val], list[Val]]]:
    """Open a kernel of (inputs, others that it reads, outputs, more buffers, symbols, scalars).

    Yields sizes made of the symbols, all buffers, and the scalars. more: (type, access), see `ModuleBuilder.kernel`, as
    for the rest.
    """
    memory = [(b.buffer_type(b.memory_type(v.dtype)), "r") for v in (*group.inputs, *read)]
    memory += [(b.buffer_type(b.memory_type(v.dtype)), "w") for v in group.outputs]
    memory += more
    names, count = group.symbols, len(memory)
    with b.module.kernel(name, [*memory, *[(b.index_type, "")] * (len(names) + scalars)], calls_only, team) as values:
        buffers, symbols, rest = values[:count], values[count : count + len(names)], values[count + len(names) :]
        yield Sizes(b, dict(zip(names, symbols, strict=True)), facts), buffers, rest


def block_grain(b: Builder, device: Device, team: Team | None, work: Scalar) -> Scalar:
    """Return the elements of memory-bound work for each block, of `work` in all."""
    runs = team.runs if team else 1
    most = device.grain * runs
    if not device.at_once:
        return most
    return b.minimum(b.maximum(work * runs // device.at_once, device.lanes * runs), most)


@contextmanager
def each_item(b: Builder, items: Scalar, per: Scalar) -> Iterator[Val]:
    """Loop over the items of this block, of which there are at most `per`."""
    lo = b.block_id() * per
    with b.loop(lo, b.minimum(lo + per, items)) as loop:
        yield loop.i
