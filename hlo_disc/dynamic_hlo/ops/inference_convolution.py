"""Shape inference of `convolution` (x, w).

Attributes: `lhs_spec` and `out_spec` are (batch, feature, spatial …) axes, `rhs_spec` (output feature, input feature,
spatial …); `reversal` lists the spatial dims whose window is turned round. Source: StableHLO, "convolution".
"""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.inference import Types, broken, disagree
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth
from hlo_disc.dynamic_hlo.sizes.windows import ZERO, dilated, padded, positions


def convolution(op: Op, facts: ShapeFacts) -> Types:
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
    """The number of spatial dims, with everything that is counted in them checked."""
    (x, w), attrs = op.operands, op.attrs
    spatial = x.rank - 2
    for name in ("lhs_spec", "rhs_spec", "out_spec"):
        if sorted(attrs[name]) != list(range(x.rank)) or w.rank != x.rank or spatial < 0:
            broken(op, f"{name} {attrs[name]} must name every axis of rank {x.rank} and {w.rank}")
    for name in ("strides", "base_dilations", "window_dilations", "low", "high"):
        if len(attrs[name]) != spatial:
            broken(op, f"{name} {attrs[name]} must have one entry for each of {spatial} spatial dims")
    for name in ("strides", "base_dilations", "window_dilations"):
        if any(n < 1 for n in attrs[name]):
            broken(op, f"{name} {attrs[name]} must be positive")
    if len(set(attrs["reversal"])) != len(attrs["reversal"]) or not set(attrs["reversal"]) <= set(range(spatial)):
        broken(op, f"reversal {attrs['reversal']} must be distinct spatial dims below {spatial}")
    groups = attrs["feature_groups"], attrs["batch_groups"]
    if min(groups) < 1 or min(groups) != 1:
        broken(op, f"{groups[0]} feature groups and {groups[1]} batch groups: at least one of them must be 1")
    return spatial
