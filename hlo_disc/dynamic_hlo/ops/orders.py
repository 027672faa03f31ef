"""Orders of elements, written in elementwise ops."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder

# Of these element types not every value has a sign bit: NaN is where -0 would be, or there is no sign at all.
_NO_SIGNS = ("fnuz", "fnu")


def total_order(b: GraphBuilder, x: Value, loc: str = "") -> Value:
    """Map floats to signed integers in the order of IEEE's totalOrder; other values stay.

    The integers are the bits; for negative floats all bits except the sign are flipped, because their magnitudes grow
    downwards.
    """
    if dtype_class(x.dtype) != "float":
        return x
    if bit_width(x.dtype) < 8 or x.dtype.name.endswith(_NO_SIGNS):
        x = b.op("convert", [x], loc, dtype=np.dtype(np.float32))
    bits = 8 * x.dtype.itemsize
    dtype = np.dtype(f"int{bits}")
    number = b.op("bitcast_convert", [x], loc, dtype=dtype)

    def shift(name: str, y: Value, by: int) -> Value:
        amount = b.op("constant", [], loc, value=np.array(by, dtype))
        return b.op(name, [y, b.op("broadcast", [amount], loc, shape=x.shape, dims=()) if x.rank else amount], loc)

    flipped = shift("shift_right_logical", shift("shift_right_arithmetic", number, bits - 1), 1)
    return b.op("xor", [number, flipped], loc)
