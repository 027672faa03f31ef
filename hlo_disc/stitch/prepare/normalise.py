"""The last rewrite before fusion: it replaces ops that no schedule computes by ops that schedules compute.

`pad` becomes `place`: the padding value everywhere, then the operand on top. Sums and products of floats smaller than
f32 are computed in f32, however many kernels share them, and rounded in the end. A convolution becomes a dot over
windows (`convolution.py`), `select_and_scatter` two ops over windows. Operands of the same shape have size 1 in the
same axes. No product allows TF32 on a machine that never rounds to it, so that programs that differ in this alone share
kernels. `dynamic_hlo/ops/families/private.py` has the ops that no program has.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import is_small_float
from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Shape, Value, everywhere, raw_dim
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, replaced
from hlo_disc.dynamic_hlo.ops.inference import agree_shapes
from hlo_disc.dynamic_hlo.ops.table import kind
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.stitch.prepare.convolution import lower_convolutions
from hlo_disc.stitch.prepare.subbyte_bitcast import move_bits, moves_bits
from hlo_disc.stitch.prepare.top_k_pattern import cut_sorts


def normalise(graph: Graph, tf32: bool = True) -> Graph:
    """Replace ops that no schedule computes, in regions too; drop the guards that repeat the signature.

    tf32: whether the machine may round operands of products to TF32.
    """
    spelled = functools.partial(_spelled, tf32)
    graph = everywhere(graph, lambda scope: replaced(cut_sorts(lower_convolutions(scope)), spelled))
    # Every caller of compiled code checks the sizes in the signature before it calls.
    static = {raw_dim(i, a): n for i, v in enumerate(graph.inputs) for a, n in enumerate(v.shape) if n.is_const}
    guards = tuple(g for g in graph.guards if g.relation != "==" or static.get(g.lhs) != g.rhs)
    return replace(graph, guards=guards)


def _spelled(tf32: bool, builder: GraphBuilder, op: Op, _: Op) -> Sequence[Value] | None:
    operands = _alike(builder, op, [*op.operands])
    if op.name == "pad":
        return [_pad(builder, op, operands)]
    if op.name == "reduce" and op.attrs["kind"] in ("add", "mul") and is_small_float(op.result.dtype):
        return [_wide_reduce(builder, op, operands)]
    if moves_bits(op):
        return [move_bits(builder, op, operands[0])]
    if op.name == "select_and_scatter":
        return [_select_and_scatter(builder, op, operands)]
    if kind(op) == "cumulative" and operands[0].shape[op.attrs["dim"]] is ONE:  # of one element each
        return operands[: len(op.results)]
    attrs = op.attrs | {"tf32": False} if op.attrs.get("tf32") and not tf32 else op.attrs
    if operands == [*op.operands] and attrs is op.attrs:
        return None
    return builder.multi(op.name, operands, op.loc, **attrs)


def _alike(builder: GraphBuilder, op: Op, operands: list[Value]) -> list[Value]:
    """Reshape the operands that do not write 1 for an axis that is 1 elsewhere in the op.

    Fusion drops axes of size 1. A fact, or only a check, may say that the sizes are equal.
    """
    pairs = zip(operands, _agreed(builder, op, operands), strict=False)
    alike = [x if _ones(x.shape) == _ones(to) else builder.op("reshape", [x], op.loc, shape=to) for x, to in pairs]
    return alike + operands[len(alike) :]


def _agreed(builder: GraphBuilder, op: Op, operands: list[Value]) -> list[Shape]:
    """Return the shapes of the first operands, with 1 for all sizes that must be 1; none if all are so already."""
    if op.name == "broadcast":
        (x,), made = operands, [op.result.shape[a] for a in op.attrs["dims"]]
        if ONE not in made or x.shape == tuple(made):
            return []
        return [tuple(ONE if to is ONE else n for n, to in zip(x.shape, made, strict=True))]
    several = len(op.results) if op.name in ("reduce_with", "cumulative") else 0
    count = len(operands) if kind(op) == "elementwise" else several
    shapes = [x.shape for x in operands[:count]]
    if count < 2 or shapes.count(shapes[0]) == count or len({tuple(_ones(shape)) for shape in shapes}) == 1:
        return []
    return [agree_shapes(op, builder.facts, operands[:count])] * count


def _ones(shape: Shape) -> list[bool]:
    return [n is ONE for n in shape]


def _pad(builder: GraphBuilder, op: Op, operands: list[Value]) -> Value:
    x, value = operands
    low, high = op.attrs["low"], op.attrs["high"]
    strides = tuple(Dim.max(i, ZERO) + 1 for i in op.attrs["interior"])  # also where a guard is broken
    if any(_may_be_negative(builder, d) for d in (*low, *high)):
        x, low = _cut(builder, op, x, low, strides)
    shape = op.result.shape
    fill = builder.op("broadcast", [value], op.loc, shape=shape, dims=())
    return builder.op("place", [fill, x], op.loc, starts=low, steps=strides)


def _wide_reduce(builder: GraphBuilder, op: Op, operands: list[Value]) -> Value:
    wide = [builder.op("convert", [x], op.loc, dtype=np.dtype(np.float32)) for x in operands]
    return builder.op("convert", [builder.op("reduce", wide, op.loc, **op.attrs)], op.loc, dtype=op.result.dtype)


def _select_and_scatter(builder: GraphBuilder, op: Op, operands: list[Value]) -> Value:
    """Select each window's element, then combine for each element the windows that selected it."""
    x, source, init, *captured = operands
    attrs = op.attrs.copy()
    select = attrs.pop("select")
    places = builder.op("select_windows", [x, *captured], op.loc, **attrs | {"shape": source.shape, "body": select})
    return builder.op("window_scatter", [places, source, init, *captured], op.loc, **attrs | {"shape": x.shape})


def _cut(
    builder: GraphBuilder, op: Op, x: Value, low: tuple[Dim, ...], strides: tuple[Dim, ...]
) -> tuple[Value, tuple[Dim, ...]]:
    """Drop the elements that negative padding cuts: element i of an axis goes to low + i*stride."""
    start = tuple(Dim.max(ZERO, (ZERO - first + (k - 1)) // k) for first, k in zip(low, strides, strict=True))
    rows = zip(start, low, strides, x.shape, op.result.shape, strict=True)
    limit = tuple(Dim.max(i, Dim.min(n, (size - 1 - first) // k + 1)) for i, first, k, n, size in rows)
    kept = builder.op("slice", [x], op.loc, start=start, limit=limit, stride=(1,) * x.rank)
    return kept, tuple(first + i * k for first, i, k in zip(low, start, strides, strict=True))


def _may_be_negative(builder: GraphBuilder, d: Dim) -> bool:
    low, _ = builder.facts.bounds(d)
    return low is None or low < 0
