"""The producer's conventions, and the source of result shapes that an op's operands do not determine.

`StaticShapes` takes such shapes from the module: a static op has the sizes that it writes. Re-opening a static module
(reopen.py) puts symbols in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.frozen import frozen

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir

Sizes = tuple[int, ...]


@frozen
class Origin:
    """The meaning of a program where its producer deviates from StableHLO's specification.

    allow_zero: assertions that a dimension variable is at least 1 are dropped.
    xla_windows: windows leave out padding and holes, as in XLA; to the specification they are initial values.
    """

    allow_zero: bool = False
    xla_windows: bool = False


STABLEHLO = Origin()
JAX = Origin(allow_zero=True, xla_windows=True)
# It carries its assertions to wherever it is called.
JAX_EXPORT = Origin(xla_windows=True)


class StaticShapes:
    """The module's own sizes."""

    # Whether the sizes that result types write hold, so that they can be checked against inference.
    trusts_types = True

    def created(self, r: Reader, op: ir.OpView, sizes: Sizes) -> Shape:
        """Return the shape of an iota or of a constant of one value."""
        return tuple(map(Dim.const, sizes))

    def broadcast(self, r: Reader, op: ir.OpView, x: Value, dims: tuple[int, ...], sizes: Sizes) -> Shape:
        """Return the shape to which `broadcast_in_dim` broadcasts `x`."""
        return tuple(map(Dim.const, sizes))

    def reshape(self, r: Reader, op: ir.OpView, x: Value, sizes: Sizes) -> Shape:
        """Return the result shape of `reshape`."""
        return tuple(map(Dim.const, sizes))

    def slice(self, r: Reader, op: ir.OpView, x: Value, start: Sizes, limit: Sizes) -> tuple[Shape, Shape]:
        """Return start and limit of `slice`."""
        return tuple(map(Dim.const, start)), tuple(map(Dim.const, limit))

    def window(self, r: Reader, op: ir.OpView, x: Value, sizes: Sizes) -> Shape:
        """Return the sizes that `gather` and `dynamic_slice` take of `x`."""
        return tuple(map(Dim.const, sizes))

    def update(self, r: Reader, op: ir.OpView, x: Value, part: Value) -> None:
        """Note that `dynamic_update_slice` writes `part` into `x`."""

    def bind(self, r: Reader, a: Dim, b: Dim) -> bool:
        """Try to settle `a == b` by binding an open size. Returns whether it could."""
        return False
