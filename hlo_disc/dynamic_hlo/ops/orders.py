"""Orders of elements, written in elementwise ops."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import bit_width, dtype_class
from hlo_disc.dynamic_hlo.ops.expr import F32, A

# Of these element types not every value has a sign bit: NaN is where -0 would be, or there is no sign at all.
_NO_SIGNS = ("fnuz", "fnu")


def total_order(x: A) -> A:
    """Map floats to signed integers in the order of IEEE's totalOrder; other values stay.

    The integers are the bits; for negative floats all bits except the sign are flipped, because their magnitudes grow
    downwards.
    """
    if dtype_class(x.dtype) != "float":
        return x
    if bit_width(x.dtype) < 8 or x.dtype.name.endswith(_NO_SIGNS):
        x = x.cast(F32)
    bits = 8 * x.dtype.itemsize
    number = x.op("bitcast_convert", dtype=np.dtype(f"int{bits}"))
    return number ^ (number >> (bits - 1)).op("shift_right_logical", 1)
