"""Rows of products: dots, convolutions, Fourier transforms."""

from __future__ import annotations

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from op_rows.gen import BF16, C64, C128, COMPLEX, F16, F32, F64, FLOATS, I8, I32, INTS, ONE, UINTS, ZERO, B, Gen, S

_WIDER = {I8: (I8, I32), BF16: (BF16, F32), F16: (F16, F32), F32: (F32,)}


def _result(g: Gen, dtype: np.dtype) -> np.dtype:
    return g.choose(_WIDER.get(dtype, (dtype,)))


def _dot_general(g: Gen) -> Value:
    x = g.value((*FLOATS, *INTS, *UINTS, *COMPLEX))
    roles = [g.choose(("batch", "contract", "free", "contract")) for _ in x.shape]
    free = [g.choose((B, S, Dim.const(5), ONE)) for _ in range(g.integer(0, 2))]
    batch = [axis for axis, role in enumerate(roles) if role == "batch"]
    contract = [axis for axis, role in enumerate(roles) if role == "contract"]
    places = g.order([*batch, *contract, *(-1 - i for i in range(len(free)))])
    y = g.of(x.dtype, tuple(free[-1 - p] if p < 0 else x.shape[p] for p in places))
    batch, contract = g.order(batch), g.order(contract)
    return g.b.op(
        "dot_general", [x, y], dtype=_result(g, x.dtype), tf32=False,
        lhs_batch=tuple(batch), rhs_batch=tuple(places.index(axis) for axis in batch),
        lhs_contract=tuple(contract), rhs_contract=tuple(places.index(axis) for axis in contract),
    )  # fmt: skip


def _convolution(g: Gen) -> Value:
    spatial = g.choose((1, 2, 2, 3, 0))
    batch, features, channels = g.choose((B, S, ONE)), g.choose((1, 2, 4)), g.choose((1, 2, 3))
    groups, batch_groups = g.choose(((1, 1), (1, 1), (2, 1), (1, 2)))
    features *= groups * batch_groups
    symbolic = g.integer(0, spatial) if spatial else 0
    sizes = [g.choose((S, B + 1)) if i == symbolic else Dim.const(g.choose((4, 5))) for i in range(spatial)]
    windows = [Dim.const(g.choose((1, 2, 3))) for _ in range(spatial)]
    specs = [tuple(g.order(range(spatial + 2))) for _ in range(3)]
    x = _laid_out((batch * batch_groups, Dim.const(channels * groups), *sizes), specs[0])
    w = _laid_out((Dim.const(features), Dim.const(channels), *windows), specs[1])
    dtype = g.dtype((*FLOATS, I32, I8, *COMPLEX))
    return g.b.op(
        "convolution", [g.of(dtype, x), g.of(dtype, w)], dtype=_result(g, dtype),
        lhs_spec=specs[0], rhs_spec=specs[1], out_spec=specs[2],
        strides=tuple(g.choose((1, 1, 2)) for _ in windows),
        low=tuple(g.choose((ZERO, ONE, Dim.const(2))) for _ in windows),
        high=tuple(g.choose((ZERO, ONE, Dim.const(2))) for _ in windows),
        base_dilations=tuple(g.choose((1, 1, 1, 2)) for _ in windows),
        window_dilations=tuple(g.choose((1, 1, 1, 2)) for _ in windows),
        reversal=tuple(i for i in range(spatial) if g.integer(0, 3) == 0),
        feature_groups=groups, batch_groups=batch_groups,
    )  # fmt: skip


def _laid_out(sizes: tuple[Dim, ...], spec: tuple[int, ...]) -> tuple[Dim, ...]:
    return tuple(sizes[spec.index(axis)] for axis in range(len(sizes)))


def _fft(g: Gen) -> Value:
    transform = g.choose(("FFT", "IFFT", "RFFT", "IRFFT"))
    x = g.value((F32, F64) if transform == "RFFT" else (C64, C128), 1, 3, g.positive)  # a length is at least 1
    axes = g.integer(1, x.rank)
    length = x.shape[-axes:]
    if transform == "IRFFT":
        n = g.choose((B + 1, S + 2, Dim.const(6), Dim.const(5), ONE))
        x = g.of(x.dtype, (*x.shape[:-1], n // 2 + 1))
        length = (*length[:-1], n)
    return g.b.op("fft", [x], transform=transform, length=length)


ROWS = {"dot_general": _dot_general, "convolution": _convolution, "fft": _fft}
