"""Rules for gathers of evenly spaced places: with indices `first + step * iota` a gather is a slice, or a reversed one.

JAX writes `x[::-1]` and `x[::2]` so where a size is no number.
"""

from __future__ import annotations

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.dtypes import bit_width
from hlo_disc.dynamic_hlo.ir.graph import Op, Value
from hlo_disc.dynamic_hlo.passes.rules.patterns import are_equal, broadcast_scalar, scalar_dim
from hlo_disc.dynamic_hlo.passes.rules.rule import Instead, Rule, make, rule
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth

AFFINE_RULES: list[Rule] = []
_DEPTH = 6  # ops between the iota and the gather


def _spaced(value: Value, depth: int = _DEPTH) -> tuple[Dim, Dim] | None:
    """The first element of a vector of integers and the step to the next, where arithmetic does not wrap."""
    op = value.op
    if op is None or not depth:
        return None
    if op.name == "iota":
        return ZERO, ONE
    scalar = broadcast_scalar(value)
    if scalar is not None:
        number = scalar_dim(scalar)
        return None if number is None else (number, ZERO)
    if op.name == "reverse":
        turned = _spaced(op.operands[0], depth - 1)
        return turned and (turned[0] + turned[1] * (value.shape[0] - 1), -turned[1])
    if op.name not in ("add", "subtract", "multiply"):
        return None
    left, right = (_spaced(x, depth - 1) for x in op.operands)
    if left is None or right is None:
        return None
    (a, i), (b, j) = left, right
    if op.name == "add":
        return a + b, i + j
    if op.name == "subtract":
        return a - b, i - j
    return (a * b, a * j + b * i) if ZERO in (i, j) else None


def _spaced_places(op: Op) -> tuple[int, Dim, int] | None:
    """The axis that is gathered from, the first place in it, and the step."""
    x, indices = op.operands
    attrs = op.attrs
    if indices.rank != 1 or attrs["index_vector_dim"] != 1 or bit_width(indices.dtype) < 32:
        return None
    (axis,) = attrs["start_index_map"]
    others = tuple(other for other in range(x.rank) if other != axis)
    if attrs["collapsed_slice_dims"] != (axis,) or attrs["offset_dims"] != others:
        return None
    found = _spaced(indices)
    if found is None or not found[1].is_const or not found[1].value:
        return None
    return axis, found[0], found[1].value


def _span(facts: ShapeFacts, op: Op, axis: int, first: Dim, step: int) -> tuple[Dim, Dim] | None:
    """Return the first index in the axis and the end, if all indices are known to be inside; None otherwise."""
    count, size = op.operands[1].shape[0], op.operands[0].shape[axis]
    last = first + step * (count - 1)
    low, stride = (first, step) if step > 0 else (last, -step)
    for limit in (size, (first if step < 0 else last) + 1):
        ordered = all(facts.at_most(*pair) is Truth.YES for pair in ((ZERO, low), (low, limit), (limit, size)))
        if ordered and are_equal(facts, (limit - low + (stride - 1)) // stride, count):
            return low, limit
    return None


@rule(AFFINE_RULES, "gather")
def gather_of_evenly_spaced_places(facts: ShapeFacts, op: Op) -> Instead | None:
    """gather(x : (n), n - 1 - iota : (n)) → reverse(x)"""
    places = _spaced_places(op)
    span = places and _span(facts, op, *places)
    if places is None or span is None:
        return None
    (axis, _, step), x = places, op.operands[0]
    attrs: Attributes = {
        "start": tuple(span[0] if other == axis else ZERO for other in range(x.rank)),
        "limit": tuple(span[1] if other == axis else size for other, size in enumerate(x.shape)),
        "stride": tuple(abs(step) if other == axis else 1 for other in range(x.rank)),
    }
    found = make("slice", x, **attrs)
    return found if step > 0 else make("reverse", found, dims=(axis,))
