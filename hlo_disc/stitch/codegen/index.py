"""Index expressions of a kernel: a scalar part, and the contribution of the lanes of a vector.

Views (broadcast, transpose, slice, reshape …) map a tuple of these to another. A leaf turns it into one linear index.
It loads contiguously, with a splat, or with a gather, depending on the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.values.val import Scalar, Val


class Index(NamedTuple):
    """`base` for a scalar (lanes None); base + lane*lanes for an int; base + lanes[lane] for a vector of type index."""

    base: Scalar
    lanes: int | Val | None = None

    def shift(self, offset: Scalar) -> Index:
        return Index(self.base + offset, self.lanes)


ZERO = Index(0)


class IndexMath:
    """Arithmetic on `Index` for kernels of `width` lanes."""

    def __init__(self, b: Builder, width: int):
        self.b, self.width = b, width

    def vector(self, i: Index) -> Val:
        """Return all lanes of `i` as one vector of type index."""
        offsets = self.offsets(i)
        return offsets if i.base == 0 else offsets + self.b.index(i.base)

    def value(self, i: Index) -> Val:
        """Return `i` as a vector of type index if lanes add to it, otherwise as a scalar."""
        return self.vector(i) if i.lanes else self.b.index(i.base)

    def offsets(self, i: Index) -> Val:
        """Return the offsets that the lanes add to the base, as a vector."""
        if isinstance(i.lanes, Val):
            return i.lanes
        if not i.lanes:
            return self.b.const(0, self.b.index_type, self.width)
        step = self.b.lanes.numbers(self.width)
        return self.b.binary("*", step, i.lanes) if i.lanes != 1 else step

    def scale(self, i: Index, factor: Scalar) -> Index:
        if i.lanes is None or factor == 0:
            return Index(i.base * factor)
        if isinstance(i.lanes, int) and isinstance(factor, int):
            return Index(i.base * factor, i.lanes * factor)
        return Index(i.base * factor, self.b.binary("*", self.offsets(i), self.b.index(factor)))

    def add(self, i: Index, j: Index) -> Index:
        base = i.base + j.base
        if i.lanes is None or j.lanes is None:
            return Index(base, j.lanes if i.lanes is None else i.lanes)
        if isinstance(i.lanes, int) and isinstance(j.lanes, int):
            return Index(base, i.lanes + j.lanes)
        return Index(base, self.offsets(i) + self.offsets(j))

    def divmod(self, i: Index, divisor: Scalar) -> tuple[Index, Index]:
        """Return quotient and remainder by a size; by 1 if the size is 0, since a window may look at an empty array."""
        divisor = self.b.maximum(divisor, 1)
        if divisor == 1:
            return i, ZERO
        if i.lanes is None:
            return Index(i.base // divisor), Index(i.base % divisor)
        x = self.vector(i)
        d = self.b.index(divisor)
        return Index(0, x // d), Index(0, self.b.binary("%", x, d))

    def clamp(self, i: Index, high: Scalar) -> Index:
        """Clamp into [0, high]."""
        if i.lanes is None:
            return Index(self.b.maximum(self.b.minimum(i.base, high), 0))
        x = self.b.apply(arith.MinSIOp, self.vector(i), self.b.index(high))
        return Index(0, self.b.apply(arith.MaxSIOp, x, self.b.index(0)))

    def linear(self, index: Sequence[Index], shape: Sequence[Scalar]) -> Index:
        """Return the row-major position."""
        at = ZERO
        for i, size in zip(index, shape, strict=True):
            at = self.add(self.scale(at, size), i)
        return at

    def delinear(self, at: Index, shape: Sequence[Scalar]) -> list[Index]:
        """Return the index tuple of a row-major position."""
        index: list[Index] = []
        for size in reversed(shape[1:]):
            at, last = self.divmod(at, size)
            index.append(last)
        return [at, *reversed(index)] if shape else []
