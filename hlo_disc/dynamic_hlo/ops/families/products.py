"""Sums of products: `dot_general`, and `convolution` by its definition, windows of a padded operand times the kernel.

Of a convolution (x, w): `lhs_spec` and `out_spec` are (batch, feature, spatial …) axes, `rhs_spec` (output feature,
input feature, spatial …); `reversal` lists the spatial dims whose window is turned round. Source: StableHLO,
"convolution".
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.arrays import Array, Ints, accumulator
from hlo_disc.dynamic_hlo.ops.axes import dot_sides, sides_of
from hlo_disc.dynamic_hlo.ops.families.views import pad
from hlo_disc.dynamic_hlo.ops.inference import Types, agree, broken, disagree, need_axes
from hlo_disc.dynamic_hlo.ops.row import OpDef
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.windows import dilated, padded, positions
from hlo_disc.errors import ShapeError

_WIDE = {"float": np.dtype(np.float64), "complex": np.dtype(np.complex128)}


def infer_dot_general(op: Op, facts: ShapeFacts) -> Types:
    (a, b), (left, right) = op.operands, dot_sides(op)
    for what, mine, other in (("batch", left.batch, right.batch), ("contract", left.contract, right.contract)):
        if len(mine) != len(other):
            broken(op, f"lhs_{what} {mine} and rhs_{what} {other} differ in length")
    need_axes(op, left.batch + left.contract, a.rank, "lhs_batch and lhs_contract")
    need_axes(op, right.batch + right.contract, b.rank, "rhs_batch and rhs_contract")
    pairs = zip(left.batch, right.batch, strict=True)
    shape = [agree(op, facts, a.shape[i], b.shape[j], f"batch dims {i} and {j}") for i, j in pairs]
    for i, j in zip(left.contract, right.contract, strict=True):
        agree(op, facts, a.shape[i], b.shape[j], f"contracting dims {i} and {j}")
    shape += [x.shape[axis] for x, side in ((a, left), (b, right)) for axis in side.free]
    return [(op.attrs["dtype"], tuple(shape))]


def dot_general(a: Array, b: Array, *, dtype: np.dtype, tf32: bool, **numbers: Ints) -> Array:
    """Multiply and sum. tf32: f32 operands may be rounded to TF32's 11 digits; the reference does not round them."""
    left, right = sides_of(cast("Attributes", numbers), a.ndim, b.ndim)
    batch, contract = [a.shape[i] for i in left.batch], math.prod(a.shape[i] for i in left.contract)
    for i, j in zip(left.batch + left.contract, right.batch + right.contract, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(f"lhs dim {i} of size {a.shape[i]} meets rhs dim {j} of size {b.shape[j]}")
    rows, columns = [a.shape[i] for i in left.free], [b.shape[j] for j in right.free]
    wide = accumulator(dtype)
    lhs = a.astype(wide).transpose([*left.batch, *left.free, *left.contract])
    rhs = b.astype(wide).transpose([*right.batch, *right.contract, *right.free])
    with np.errstate(all="ignore"):
        product: Array = np.matmul(
            lhs.reshape([*batch, math.prod(rows), contract]), rhs.reshape([*batch, contract, math.prod(columns)])
        )
        return product.reshape([*batch, *rows, *columns]).astype(dtype)


def infer_convolution(op: Op, facts: ShapeFacts) -> Types:
    (x, w), attrs = op.operands, op.attrs
    spatial = _need_spatial(op)
    batch, channels, *sizes = (x.shape[a] for a in attrs["lhs_spec"])
    features, inputs, *windows = (w.shape[a] for a in attrs["rhs_spec"])
    groups, batch_groups = attrs["feature_groups"], attrs["batch_groups"]
    if facts.equal(channels, inputs * groups) is Truth.NO:
        disagree(op, f"{channels} input features are not {groups} groups of the {inputs} that the kernel takes")
    for count, size, what in (
        (batch_groups, batch, "the batch"),
        (batch_groups, features, "the output features"),
        (groups, features, "the output features"),
    ):
        if facts.equal(size % count, ZERO) is Truth.NO:
            disagree(op, f"{what} of size {size} cannot be divided into {count} groups")
    shape = [ZERO] * (spatial + 2)
    shape[attrs["out_spec"][0]] = batch if batch_groups == 1 else batch // batch_groups
    shape[attrs["out_spec"][1]] = features
    for i, axis in enumerate(attrs["out_spec"][2:]):
        shape[axis] = _positions(op, i, sizes[i], windows[i], facts)
    return [(attrs["dtype"], tuple(shape))]


def _positions(op: Op, i: int, size: Dim, window: Dim, facts: ShapeFacts) -> Dim:
    attrs = op.attrs
    extent = padded(size, attrs["base_dilations"][i], attrs["low"][i], attrs["high"][i], facts)
    if facts.at_most(ZERO, extent) is Truth.NO:
        disagree(op, f"spatial dim {i} of size {size} would be padded to {extent}")
    return positions(extent, dilated(window, attrs["window_dilations"][i], facts), attrs["strides"][i], facts)


def _need_spatial(op: Op) -> int:
    """Return the number of spatial dims, after checking everything that has one entry for each."""
    (x, w), attrs = op.operands, op.attrs
    spatial = x.rank - 2
    for spec in ("lhs_spec", "rhs_spec", "out_spec"):
        if sorted(attrs[spec]) != list(range(x.rank)) or w.rank != x.rank or spatial < 0:
            broken(op, f"{spec} {attrs[spec]} must name every axis of rank {x.rank} and {w.rank}")
    for name in ("strides", "base_dilations", "window_dilations", "low", "high"):
        if len(attrs[name]) != spatial:
            broken(op, f"{name} {attrs[name]} must have one entry for each of {spatial} spatial dims")
    for step in ("strides", "base_dilations", "window_dilations"):
        if any(n < 1 for n in attrs[step]):
            broken(op, f"{step} {attrs[step]} must be positive")
    if len(set(attrs["reversal"])) != len(attrs["reversal"]) or not set(attrs["reversal"]) <= set(range(spatial)):
        broken(op, f"reversal {attrs['reversal']} must be distinct spatial dims below {spatial}")
    groups = attrs["feature_groups"], attrs["batch_groups"]
    if min(groups) < 1 or min(groups) != 1:
        broken(op, f"{groups[0]} feature groups and {groups[1]} batch groups: at least one of them must be 1")
    return spatial


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
    """Multiply windows, (batch, feature, position and offset of each spatial dim …). Returns (batch, feature, position
    …)."""
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


_DOT = ("lhs_batch", "rhs_batch", "lhs_contract", "rhs_contract", "dtype", "tf32")
_CONVOLUTION = (
    "lhs_spec", "rhs_spec", "out_spec", "strides", "low", "high", "base_dilations", "window_dilations", "reversal",
    "feature_groups", "batch_groups", "dtype",
)  # fmt: skip

ROWS = (
    OpDef("dot_general", "dot", 2, infer_dot_general, dot_general, _DOT),
    OpDef("convolution", "dot", 2, infer_convolution, convolution, _CONVOLUTION),
)
