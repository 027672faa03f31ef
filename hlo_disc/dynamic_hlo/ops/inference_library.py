"""Shape and dtype inference of the ops that a library computes: custom calls and Fourier transforms."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.inference import ONE, Types, agree, broken
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts

TRANSFORMS = ("FFT", "IFFT", "RFFT", "IRFFT")


def custom_call(op: Op, facts: ShapeFacts) -> Types:
    """What the call says of itself: its handler checks the rest."""
    attrs = op.attrs
    sizes, ranks, dtypes = attrs["sizes"], attrs["ranks"], attrs["dtypes"]
    if len(ranks) != len(dtypes) or sum(ranks) != len(sizes):
        broken(op, f"ranks {ranks} do not fit {len(dtypes)} results with {len(sizes)} sizes")
    types: Types = []
    at = 0
    for dtype, rank in zip(dtypes, ranks, strict=True):
        types.append((dtype, sizes[at : at + rank]))
        at += rank
    for what, orders, have in (
        ("operand_orders", attrs["operand_orders"], [x.rank for x in op.operands]),
        ("result_orders", attrs["result_orders"], list(ranks)),
    ):
        if [sorted(order) for order in orders] != [list(range(rank)) for rank in have]:
            broken(op, f"{what} {orders} must be permutations of ranks {have}")
    for operand, result in attrs["aliases"]:
        if not (operand < len(op.operands) and result < len(types)):
            broken(op, f"there is no operand {operand} or no result {result} to share memory")
        x = op.operands[operand]
        if (x.dtype, x.rank) != (types[result][0], len(types[result][1])):
            broken(op, f"operand {operand} ({x!r}) and result {result} share memory but not their type")
        for a, b in zip(x.shape, types[result][1], strict=True):
            agree(op, facts, a, b, f"sizes of operand {operand} and result {result}, which share memory,")
    return types


def fft(op: Op, facts: ShapeFacts) -> Types:
    """The last axes of the operand are as long as `length` says; a half spectrum has n // 2 + 1 elements, or none."""
    (x,), transform, length = op.operands, op.attrs["transform"], op.attrs["length"]
    axes = len(length)
    if not 1 <= axes <= min(3, x.rank):
        broken(op, f"a transform of {axes} axes of a value of rank {x.rank}")
    real = transform == "RFFT"
    if dtype_class(x.dtype) != ("float" if real else "complex") or x.dtype.itemsize < 4:
        broken(op, f"{transform} of dtype {x.dtype}")
    last = length[-1]
    half = last if last.is_const and last.value == 0 else last // 2 + ONE
    taken = (*length[:-1], half if transform == "IRFFT" else last)
    for axis, (size, n) in enumerate(zip(x.shape[-axes:], taken, strict=True)):
        agree(op, facts, size, n, f"dimension {x.rank - axes + axis} and the transform's length")
    dtype = np.dtype(f"complex{16 * x.dtype.itemsize}") if real else x.dtype
    if transform == "IRFFT":
        dtype = part_dtype(x.dtype)
    return [(dtype, (*x.shape[:-axes], *length[:-1], half if real else last))]
