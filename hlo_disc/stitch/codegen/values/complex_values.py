"""Complex numbers in registers: a vector that interleaves real and imaginary parts.

Nothing computes on this form. `complex` makes it for a store, and `real` and `imag` split it after a load, so that
memory is read and written in whole vectors. A scalar is a vector of two; `lanes` counts numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.values.val import Val

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.body import Body, InMemory


def join(b: Builder, re: Val, im: Val) -> Val:
    lanes = max(re.lanes, im.lanes)
    if not lanes:
        return _counted(b.pair(re, im), 0)
    return _counted(b.lanes.in_turn(b.splat(re, lanes), b.splat(im, lanes)), lanes)


def part(b: Builder, z: Val, k: int) -> Val:
    """Return the real (0) or imaginary (1) parts."""
    parts = _counted(z, 2 * max(z.lanes, 1))
    return b.lanes.every_second(parts, k)


def _counted(x: Val, lanes: int) -> Val:
    """Return the vector with `lanes` as its number of lanes."""
    return Val(x.b, x.v, lanes, x.scope)


def spread(b: Builder, z: Val, lanes: int) -> Val:
    """Broadcast a scalar to all lanes."""
    return z if z.lanes == lanes else join(b, b.splat(part(b, z, 0), lanes), part(b, z, 1))


def load(body: Body, leaf: InMemory, at: Index) -> Val:
    b, i = body.b, at.base * 2
    if not at.lanes:
        return _counted(b.load(leaf.buffer, i, 2, fixed=leaf.fixed), 0)
    if isinstance(at.lanes, int) and at.lanes == 1:
        return _counted(b.load(leaf.buffer, i, 2 * body.width, _both(body), fixed=leaf.fixed), body.width)
    offsets = b.binary("*", body.math.offsets(at), 2)
    re, im = (b.gather(leaf.buffer, b.index(i) + k, offsets, body.mask, fixed=leaf.fixed) for k in range(2))
    return join(b, re, im)


def store(body: Body, z: Val, leaf: InMemory, at: Index) -> None:
    b, i = body.b, at.base * 2
    if not at.lanes:
        b.store(_counted(z, 2), leaf.buffer, i)
        return
    z = spread(b, z, body.width)
    if isinstance(at.lanes, int) and at.lanes == 1:
        b.store(_counted(z, 2 * body.width), leaf.buffer, i, _both(body))
        return
    offsets = b.binary("*", body.math.offsets(at), 2)
    for k in range(2):
        b.scatter(part(b, z, k), leaf.buffer, b.index(i) + k, offsets, body.mask)


def _both(body: Body) -> Val | None:
    """Repeat the mask of lanes for both parts."""
    mask = body.mask
    return None if mask is None else _counted(join(body.b, mask, mask), 2 * mask.lanes)
