"""Lowers a convolution to a dot over windows, which the schedules of dots compute.

    x (b, h, w, c), kernel (p, q, c, f) -> windows (b, i, j, c, p, q) of x, summed over (p, q, c) with the kernel

`window` (x) {dims, sizes, window, strides, dilations} is a view of this package only: element (…, i, …, p) of axis
`dims[n]` is element i*strides[n] + p*dilations[n]; the offsets p are new axes behind all others. Padding and holes are
written to memory before, so that nothing reads outside. If a group has one feature in or out, a dot per group would
have a width of one; then products of vectors are summed. The sum is written out for depthwise convolutions, which have
one feature in per group, and for windows of known size: lanes run along the features or along a row of the image,
nothing is reduced, and padding without holes is not written to memory (`slice_padded`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, make_op
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.frozen import frozen

# Up to so many offsets in a window a depthwise convolution is written out: 7 x 7.
MOST_OFFSETS = 49


@frozen
class _Named:
    """A value whose axes have names: b, c (batch and feature of x), f (output feature), g (group), i0 … (position),
    p0 … (offset in the window)."""

    value: Value
    names: tuple[str, ...]

    def axes(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.names.index(name) for name in names)


def lower_convolutions(graph: Graph) -> Graph:
    """Return the graph with every convolution written as pad, window and dot_general (or multiply and reduce)."""
    return replaced(graph, lambda b, op, _: [_Lowering(b, op).run()] if op.name == "convolution" else None)


class _Lowering:
    def __init__(self, builder: GraphBuilder, op: Op):
        self.builder, self.op, self.attrs = builder, op, op.attrs
        self.x, self.w = op.operands
        self.spatial = len(self.attrs["strides"])
        self.windows: list[Dim] = [self.w.shape[a] for a in self.attrs["rhs_spec"][2:]]
        self.groups = self.attrs["feature_groups"] * self.attrs["batch_groups"]

    def run(self) -> Value:
        result = tuple(self._spec("out_spec", ["b", "f"], "i"))
        if self._is_depthwise():
            return self._typed(self._written_out(result))
        x, w = self._windows(self._padded()), self._kernel()
        if self.groups > 1:
            x = self._split(x, "c" if self.attrs["feature_groups"] > 1 else "b")
            w = self._split(w, "f")
            at = result.index("f")
            result = (*result[:at], "g", *result[at:])
            narrow = ONE in (w.value.shape[w.names.index("f")], w.value.shape[w.names.index("c")])
        contracted = [name for name in w.names if name not in ("g", "f")]
        multiply = self.groups > 1 and narrow
        value = (self._sum_of_products if multiply else self._dot)(x, w, contracted, result)
        return self._typed(value)

    def _emit(self, name: str, operands: Sequence[Value], **attrs: Unpack[Attributes]) -> Value:
        return self.builder.op(name, operands, self.op.loc, **attrs)

    def _spec(self, spec: Literal["lhs_spec", "rhs_spec", "out_spec"], names: Sequence[str], prefix: str) -> list[str]:
        """Return the names of an operand's axes, in its own order."""
        named = zip(self.attrs[spec], [*names, *(f"{prefix}{i}" for i in range(self.spatial))], strict=True)
        return [name for _, name in sorted(named)]

    # The operands.

    def _padded(self) -> Value:
        """Return x with its padding and holes in memory; a crop stays a view."""
        x, spatial = self.x, self.attrs["lhs_spec"][2:]
        low, high, interior = ([ZERO] * x.rank for _ in range(3))
        for i, axis in enumerate(spatial):
            low[axis], high[axis] = self.attrs["low"][i], self.attrs["high"][i]
            interior[axis] = Dim.const(self.attrs["base_dilations"][i] - 1)
        if all(d is ZERO for d in (*low, *high, *interior)):
            return x
        if all(d.is_const and d.value <= 0 for d in (*low, *high, *interior)):
            start = tuple(ZERO - d for d in low)
            limit = tuple(n + d for n, d in zip(x.shape, high, strict=True))
            return self._emit("slice", [x], start=start, limit=limit, stride=(1,) * x.rank)
        zero = self._emit("constant", [], value=np.zeros((), x.dtype))
        return self._emit("pad", [x, zero], low=tuple(low), high=tuple(high), interior=tuple(interior))

    def _windows(self, x: Value) -> _Named:
        names = self._spec("lhs_spec", ["b", "c"], "i")
        out = self.op.result.shape
        moved = [i for i in range(self.spatial) if self.windows[i] is not ONE or self.attrs["strides"][i] != 1]
        if not moved:
            return _Named(x, tuple(names))
        attrs: Attributes = {
            "dims": tuple(self.attrs["lhs_spec"][2 + i] for i in moved),
            "sizes": tuple(out[self.attrs["out_spec"][2 + i]] for i in moved),
            "window": tuple(self.windows[i] for i in moved),
            "strides": tuple(self.attrs["strides"][i] for i in moved),
            "dilations": tuple(self.attrs["window_dilations"][i] for i in moved),
        }
        return _Named(self._emit("window", [x], **attrs), (*names, *(f"p{i}" for i in moved)))

    def _kernel(self) -> _Named:
        """Return the kernel, reversed if asked for, without the offsets that x's windows do not have."""
        names, w = self._spec("rhs_spec", ["f", "c"], "p"), self.w
        turned = tuple(self.attrs["rhs_spec"][2 + i] for i in self.attrs["reversal"] if self.windows[i] is not ONE)
        if turned:
            w = self._emit("reverse", [w], dims=turned)
        single = {f"p{i}" for i in range(self.spatial) if self.windows[i] is ONE and self.attrs["strides"][i] == 1}
        kept = [a for a, name in enumerate(names) if name not in single]
        if single:
            w = self._emit("reshape", [w], shape=tuple(w.shape[a] for a in kept))
        return _Named(w, tuple(names[a] for a in kept))

    def _split(self, x: _Named, name: str) -> _Named:
        """Split the axis `name` into groups and the features of each."""
        at, shape = x.names.index(name), x.value.shape
        inside = shape[at] // self.groups
        if name == "c":
            inside = self.w.shape[self.attrs["rhs_spec"][1]]
        split = (*shape[:at], Dim.const(self.groups), inside, *shape[at + 1 :])
        return _Named(self._emit("reshape", [x.value], shape=split), (*x.names[:at], "g", *x.names[at:]))

    # The sums.

    def _is_depthwise(self) -> bool:
        """Whether each group has one input feature, and the window few offsets."""
        one_in = self.attrs["feature_groups"] > 1 and self.w.shape[self.attrs["rhs_spec"][1]] is ONE
        if not one_in or not all(size.is_const for size in self.windows):
            return False
        return 0 < math.prod(size.value for size in self.windows) <= MOST_OFFSETS

    def _written_out(self, result: tuple[str, ...]) -> _Named:
        """Sum over the offsets: a slice of x times the factors of the features."""
        at = result.index("f")
        result = (*result[:at], "g", *result[at:])
        holes = any(n > 1 for n in self.attrs["base_dilations"])
        low = [ZERO] * self.spatial if holes else self.attrs["low"]
        padded, factors = self._padded() if holes else self.x, self._features()
        total: Value | None = None
        for offset in itertools.product(*(range(size.value) for size in self.windows)):
            x = self._by_group(self._shifted(padded, low, offset))
            w = self._without(self._part(factors, offset), [f"p{i}" for i in range(self.spatial)])
            pair = self._factors(x, w, result)
            total = self._emit("fma", [*pair, total]) if total else self._emit("multiply", pair)
        assert total is not None  # there is an offset
        return _Named(self._of_type(total), result)

    def _features(self) -> _Named:
        """Return the kernel without its one input feature; the output features are split into groups."""
        names, w = self._spec("rhs_spec", ["f", "c"], "p"), self.w
        turned = tuple(self.attrs["rhs_spec"][2 + i] for i in self.attrs["reversal"])
        if turned:
            w = self._emit("reverse", [w], dims=turned)
        return self._without(self._split(_Named(w, tuple(names)), "f"), ("c",))

    def _shifted(self, x: Value, low: Sequence[Dim], offset: Sequence[int]) -> _Named:
        """Return the elements of x that a position of the window meets.

        Along each axis, x is taken to have `low` zeros before it.
        """
        start, stride, shape = [ZERO] * x.rank, [1] * x.rank, list(x.shape)
        for i, p in enumerate(offset):
            axis = self.attrs["lhs_spec"][2 + i]
            start[axis] = Dim.const(p * self.attrs["window_dilations"][i]) - low[i]
            stride[axis] = self.attrs["strides"][i]
            shape[axis] = self.op.result.shape[self.attrs["out_spec"][2 + i]]
        value = self._emit("slice_padded", [x], start=tuple(start), stride=tuple(stride), shape=tuple(shape))
        return _Named(value, tuple(self._spec("lhs_spec", ["b", "c"], "i")))

    def _by_group(self, x: _Named) -> _Named:
        """Return x with its features as groups, of which each has one."""
        at, shape = x.names.index("c"), x.value.shape
        grouped = (*shape[:at], Dim.const(self.groups), *shape[at + 1 :])
        value = x.value if shape == grouped else self._emit("reshape", [x.value], shape=grouped)
        return _Named(value, (*x.names[:at], "g", *x.names[at + 1 :]))

    def _part(self, w: _Named, offset: Sequence[int]) -> _Named:
        """Return the factors at an offset."""
        start, limit = [ZERO] * w.value.rank, list(w.value.shape)
        for i, p in enumerate(offset):
            axis = w.names.index(f"p{i}")
            start[axis], limit[axis] = Dim.const(p), Dim.const(p + 1)
        stride = (1,) * w.value.rank
        return _Named(self._emit("slice", [w.value], start=tuple(start), limit=tuple(limit), stride=stride), w.names)

    def _without(self, x: _Named, names: Sequence[str]) -> _Named:
        """Drop axes of size 1."""
        kept = [a for a, name in enumerate(x.names) if name not in names]
        shape = tuple(x.value.shape[a] for a in kept)
        return _Named(self._emit("reshape", [x.value], shape=shape), tuple(x.names[a] for a in kept))

    def _dot(self, x: _Named, w: _Named, contracted: Sequence[str], result: tuple[str, ...]) -> _Named:
        """Build a dot. The operand whose axes come last in the result runs along the vectors."""
        lhs, rhs = (x, w) if result[-1] == "f" else (w, x)
        shared = ("g",) * (self.groups > 1)
        attrs: Attributes = {
            "lhs_batch": lhs.axes(shared),
            "rhs_batch": rhs.axes(shared),
            "lhs_contract": lhs.axes(contracted),
            "rhs_contract": rhs.axes(contracted),
            "dtype": self.attrs["dtype"],
            "tf32": False,
        }
        value = self._emit("dot_general", [lhs.value, rhs.value], **attrs)
        free = [name for side in (lhs, rhs) for name in side.names if name not in (*contracted, *shared)]
        return self._ordered(_Named(value, (*shared, *free)), result)

    def _sum_of_products(self, x: _Named, w: _Named, contracted: Sequence[str], result: tuple[str, ...]) -> _Named:
        """Multiply over all result axes and, before the last of them, the contracted ones, which are summed."""
        order = (*result[:-1], *contracted, result[-1])
        product = self._emit("multiply", self._factors(x, w, order))
        zero = self._emit("constant", [], value=np.zeros((), product.dtype))
        dims = tuple(order.index(name) for name in contracted)
        value = self._emit("reduce", [product, zero], dims=dims, kind="add") if dims else product
        return _Named(self._of_type(value), result)

    def _factors(self, x: _Named, w: _Named, order: tuple[str, ...]) -> list[Value]:
        """Broadcast both operands over all axes of `order`, in the type of sums."""
        shape = dict(zip(w.names, w.value.shape, strict=True)) | dict(zip(x.names, x.value.shape, strict=True))
        dtype = self._sum_dtype()
        factors = []
        for side in (x, w):
            value = side.value
            if value.dtype != dtype:
                value = self._emit("convert", [value], dtype=dtype)
            ordered = self._ordered(_Named(value, side.names), tuple(name for name in order if name in side.names))
            dims = tuple(order.index(name) for name in ordered.names)
            wide = tuple(shape[name] for name in order)
            factors.append(self._emit("broadcast", [ordered.value], shape=wide, dims=dims))
        return factors

    def _of_type(self, value: Value) -> Value:
        """Convert a sum to the convolution's type."""
        return (
            value if value.dtype == self.attrs["dtype"] else self._emit("convert", [value], dtype=self.attrs["dtype"])
        )

    def _sum_dtype(self) -> np.dtype:
        from hlo_disc.stitch.schedules.dot.product import sum_dtype

        return sum_dtype(self.attrs["dtype"], self.x.dtype, self.w.dtype)

    # The result.

    def _ordered(self, x: _Named, names: tuple[str, ...]) -> _Named:
        perm = x.axes(names)
        if perm == tuple(range(len(perm))):
            return x
        return _Named(self._emit("transpose", [x.value], perm=perm), names)

    def _typed(self, x: _Named) -> Value:
        """Merge groups and features to one axis again, and return the convolution's exact type."""
        value, want = x.value, self.op.result
        if value.rank != want.rank:
            value = self._emit("reshape", [value], shape=want.shape)
        if value.shape != want.shape and value.op is self.builder.ops[-1]:
            last = self.builder.ops.pop()
            attrs = last.attrs | {"shape": want.shape} if "shape" in last.attrs else last.attrs
            self.builder.ops.append(make_op(last.name, last.operands, attrs, [(want.dtype, want.shape)], last.loc))
            value = self.builder.ops[-1].result
        return value
