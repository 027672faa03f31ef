"""The implicit rules of a graph of ATen ops: broadcasting, and numbers among tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.arrays import Array, filled

Operand = Array | Dim | complex
Size = Dim | int


class Tensors(Construction):
    """The rules by which operands of ATen ops become tensors of one type and shape."""

    def scalar(self, x: Operand | np.ndarray, dtype: np.dtype) -> Array:
        """Return a number or a size as a scalar of this type; tensors as they are."""
        return x.cast(dtype) if isinstance(x, Array) else filled(self, x, dtype)

    def held(self, x: Operand, dtype: np.dtype) -> Array:
        """Return a number for a tensor of this type, which must hold it: in arithmetic it would wrap."""
        if isinstance(x, Dim) and dtype.kind in "iu" and dtype.itemsize < 8:
            self.fits(x, dtype)
        return self.scalar(x, dtype)

    def full(self, x: Operand, dtype: np.dtype, shape: Shape) -> Array:
        return self.held(x, dtype).broadcast(shape)

    def wider(self, a: Dim, b: Dim, axis: int) -> Dim:
        """Return the size that is not 1; both must be equal if none is."""
        if a is not ONE and b is not ONE:
            self.equal(a, b, f"dimension {axis} of two operands")
        return b if a is ONE else a

    def broadcast(self, x: Value, shape: Shape, dims: tuple[int, ...] | None = None) -> Value:
        """Broadcast by PyTorch's and numpy's rule; a size that may be 1 stays as it is."""
        if dims is not None:
            return self.emit("broadcast", (x,), shape=shape, dims=dims)
        before = len(shape) - x.rank
        spread = before > 0
        for axis, (size, target) in enumerate(zip(x.shape, shape[before:], strict=True)):
            if size is ONE and target is not ONE:
                spread = True
            elif size is not target:
                self.equal(size, target, f"dimension {axis} of an operand and the size that it is spread to")
        return self.emit("broadcast", (x,), shape=shape, dims=tuple(range(before, len(shape)))) if spread else x


def is_just(x: Operand, number: float) -> bool:
    """Whether an operand is this number at every call."""
    return not isinstance(x, Array) and x == number


def arrays_of(r: Tensors, x: object) -> Any:
    """Convert an argument to the form that formulas take."""
    if isinstance(x, (list, tuple)):
        return type(x)(arrays_of(r, y) for y in x)
    return Array(r, x) if isinstance(x, Value) else x


def values_of(x: object) -> Any:
    """Convert a result of a formula, or several, to values of the graph."""
    if isinstance(x, (list, tuple)):
        return [values_of(y) for y in x]
    return x.value if isinstance(x, Array) else x
