"""Convolution in numpy, by its definition: windows of the padded operand times the kernel, summed in f64."""

from __future__ import annotations

import math

import numpy as np

from hlo_disc.dynamic_hlo.ops.inference import dtype_class
from hlo_disc.dynamic_hlo.ops.semantics import Array, Ints, pad
from hlo_disc.errors import ShapeError

_WIDE = {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}


def convolution(
    x: Array,
    w: Array,
    *,
    lhs_spec: Ints,
    rhs_spec: Ints,
    out_spec: Ints,
    strides: Ints,
    low: Ints,
    high: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
    reversal: Ints,
    feature_groups: int,
    batch_groups: int,
    dtype: np.dtype,
) -> Array:
    kernel = np.flip(w.transpose(rhs_spec), tuple(2 + i for i in reversal))
    windows = x.transpose(lhs_spec)
    wide = _WIDE.get(dtype_class(dtype), np.dtype(np.int64) if dtype.kind == "b" else dtype)
    zeros = (0, 0)
    windows = pad(windows, windows.dtype.type(0), low=(*zeros, *low), high=(*zeros, *high),
                  interior=(*zeros, *(d - 1 for d in base_dilations)))  # fmt: skip
    for i, (stride, dilation) in enumerate(zip(strides, window_dilations, strict=True)):
        size, window = windows.shape[2 + 2 * i], kernel.shape[2 + i]
        count = max((size - (max(window - 1, -1) * dilation + 1 if window else 0)) // stride + 1, 0)
        at = np.arange(count)[:, None] * stride + np.arange(window)[None, :] * dilation
        taken = np.take(windows, at.reshape(-1), axis=2 + 2 * i)
        windows = taken.reshape(*windows.shape[: 2 + 2 * i], count, window, *windows.shape[3 + 2 * i :])
    result = _grouped(windows.astype(wide), kernel.astype(wide), feature_groups, batch_groups)
    return np.asarray(result).astype(dtype).transpose(np.argsort(out_spec))


def _grouped(windows: Array, kernel: Array, feature_groups: int, batch_groups: int) -> Array:
    """windows: (batch, feature, position and offset of each spatial dim …). Gives (batch, feature, position …)."""
    spatial = kernel.ndim - 2
    groups = feature_groups * batch_groups
    axis = 1 if feature_groups > 1 else 0
    if windows.shape[axis] % groups or kernel.shape[0] % groups or windows.shape[1] != kernel.shape[1] * feature_groups:
        raise ShapeError(f"features {windows.shape[1]} and kernel {kernel.shape[:2]} do not make {groups} groups")
    order = (0, *range(2, 2 + 2 * spatial, 2), 1, *range(3, 3 + 2 * spatial, 2))
    results = []
    for part, filters in zip(np.split(windows, groups, axis), np.split(kernel, groups, 0), strict=True):
        rows = part.transpose(order)
        flat = rows.reshape(*rows.shape[: 1 + spatial], math.prod(rows.shape[1 + spatial :]))
        with np.errstate(all="ignore"):
            results.append(flat @ filters.reshape(filters.shape[0], flat.shape[-1]).T)
    return np.moveaxis(np.concatenate(results, axis=-1), -1, 1)
