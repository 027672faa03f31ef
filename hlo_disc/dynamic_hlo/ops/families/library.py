"""The ops that a library computes: custom calls and Fourier transforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NoReturn

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.inference import Types, agree, broken
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.dim import ONE
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import UnsupportedOpError

# A Fourier transform as a custom call, and the runtime's handler of it.
FFT_CALL = "hlo_disc.fft"
# What a dump calls the attributes of a custom call for which StableHLO has no words.
ORDERS: Mapping[Literal["operand_orders", "result_orders"], str] = {
    "operand_orders": "hlo_disc.operand_orders",
    "result_orders": "hlo_disc.result_orders",
}
TRANSFORMS = ("FFT", "IFFT", "RFFT", "IRFFT")


def infer_custom_call(op: Op, facts: ShapeFacts) -> Types:
    """Return the types that the call itself states; its handler checks the rest."""
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


def custom_call(*arrays: np.ndarray, **attrs: object) -> NoReturn:
    raise UnsupportedOpError(f"custom call @{attrs['target']}: native code has no meaning in numpy")


def infer_fft(op: Op, facts: ShapeFacts) -> Types:
    """Infer `fft`: the last axes of the operand are as long as `length` says; a half spectrum has n // 2 + 1 elements,
    or none."""
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


def fft(x: np.ndarray, *, transform: str, length: tuple[int, ...]) -> np.ndarray:
    """Transform in double precision, and round once."""
    axes = tuple(range(x.ndim - len(length), x.ndim))
    wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
    half = (*length[:-1], length[-1] // 2 + 1 if length[-1] else 0)
    shape = (*x.shape[: axes[0]], *(half if transform == "RFFT" else length))
    single = x.dtype.itemsize == (4 if transform == "RFFT" else 8)
    kinds = ("float32", "float64") if transform == "IRFFT" else ("complex64", "complex128")
    dtype = np.dtype(kinds[not single])
    if 0 in shape or 0 in x.shape:
        return np.zeros(shape, dtype)
    result: np.ndarray
    match transform:
        case "FFT":
            result = np.fft.fftn(wide, axes=axes)
        case "IFFT":
            result = np.fft.ifftn(wide, axes=axes)
        case "RFFT":
            result = np.fft.rfftn(wide, axes=axes)
        case _:
            result = np.fft.irfftn(wide, s=length, axes=axes)
    return result.astype(dtype)


_CUSTOM_CALL = (
    "target", "config", "sizes", "ranks", "dtypes", "operand_orders", "result_orders", "aliases", "effect",
)  # fmt: skip

ROWS = (
    OpDef("custom_call", "call", None, infer_custom_call, custom_call, _CUSTOM_CALL),
    OpDef("fft", "call", 1, infer_fft, fft, ("transform", "length")),
)
