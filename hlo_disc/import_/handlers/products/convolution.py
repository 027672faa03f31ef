"""Convolutions, whose padding is written in the module or computed from sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.windows import padded
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import integer, ints
from hlo_disc.mlir import stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


def _convolution(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    pairs: Shape = (ZERO,) * (2 * (len(r.attr(op, "dimension_numbers", _specs)["lhs_spec"]) - 2))
    if "padding" in op.attributes:
        pairs = tuple(map(Dim.const, r.attr(op, "padding", ints)))
    return _make(r, op, operands, pairs)


def _make(r: Reader, op: ir.OpView, operands: list[Operand], pairs: Shape) -> Value:
    x, w = map(r.data, operands)
    groups, batch_groups = (r.attr(op, f"{name}_group_count", integer) for name in ("feature", "batch"))
    spatial = x.rank - 2
    return make_convolution(
        r,
        x,
        w,
        r.attr(op, "dimension_numbers", _specs),
        pairs,
        strides=_numbers(r, op, "window_strides", spatial),
        base_dilations=_numbers(r, op, "lhs_dilation", spatial),
        window_dilations=_numbers(r, op, "rhs_dilation", spatial),
        reversal=r.attr(op, "window_reversal", _true) if "window_reversal" in op.attributes else (),
        feature_groups=groups,
        batch_groups=batch_groups,
        dtype=r.result_type(op)[0],
    )


def make_convolution(
    r: Reader, x: Value, w: Value, specs: Attributes, pairs: Shape, **attrs: Unpack[Attributes]
) -> Value:
    """Emit a convolution whose operands fit. pairs: the padding of each spatial axis. Others are DHLO's attributes."""
    groups, batch_groups = attrs["feature_groups"], attrs["batch_groups"]
    low, high = pairs[::2], pairs[1::2]
    batch, channels, *sizes = (x.shape[a] for a in specs["lhs_spec"])
    features, inputs, *_ = (w.shape[a] for a in specs["rhs_spec"])
    r.equal(channels, inputs * groups, "the input features and those that the kernel takes in all groups")
    for count, size, what in ((batch_groups, batch, "the batch"), (groups * batch_groups, features, "the features")):
        if count > 1:
            r.require(size % count, "==", ZERO, f"{what} of {{0}} cannot be divided into {count} groups", (size,))
    for i, (size, dilation) in enumerate(zip(sizes, attrs["base_dilations"], strict=True)):
        extent = padded(size, dilation, low[i], high[i], r.facts)
        r.at_most(ZERO, extent, f"spatial dimension {i} would be padded to the size {{1}}")
    return r.emit("convolution", (x, w), **specs | attrs | {"low": low, "high": high})


def _numbers(r: Reader, op: ir.OpView, name: str, count: int) -> tuple[int, ...]:
    return r.attr(op, name, ints) if name in op.attributes else (1,) * count


def _true(attribute: ir.Attribute) -> tuple[int, ...]:
    """Return the numbers of the true elements."""
    return tuple(i for i, flag in enumerate(ints(attribute)) if flag)


def _specs(attribute: ir.Attribute) -> Attributes:
    numbers = stablehlo.ConvDimensionNumbers(attribute)
    return {
        "lhs_spec": _spec(numbers, "input", "batch", "feature"),
        "rhs_spec": _spec(numbers, "kernel", "output_feature", "input_feature"),
        "out_spec": _spec(numbers, "output", "batch", "feature"),
    }


def _spec(numbers: stablehlo.ConvDimensionNumbers, side: str, *names: str) -> tuple[int, ...]:
    own = tuple(getattr(numbers, f"{side}_{name}_dimension") for name in names)
    return (*own, *getattr(numbers, f"{side}_spatial_dimensions"))


HANDLERS: dict[str, Handler] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_conv": lambda r, op, operands: _make(r, op, operands[:2], r.dims(operands[2])),
}
