"""Rows of gather, scatter and sort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Region, Shape, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from op_rows.gen import BOOL, F32, FLOATS, I32, INDEX, INTS, ONE, REAL, UINTS, ZERO, B, Gen, S, never_empty

_DATA = (F32, I32, *REAL, BOOL)


@dataclass(frozen=True)
class Numbers:
    """The numbers of a gather or scatter, and the types that follow. windows: sizes by operand axis."""

    attrs: dict[str, Any]
    indices: Value
    windows: Shape
    result: Shape


def _numbers(g: Gen, x: Value) -> Numbers:
    roles = [g.choose(("window", "collapsed", "batching")) for _ in range(x.rank)]
    # A window of one element does not fit into nothing.
    roles = ["window" if r == "collapsed" and not never_empty(d) else r for r, d in zip(roles, x.shape, strict=True)]
    batching = g.order(axis for axis, role in enumerate(roles) if role == "batching")
    kept = [axis for axis, role in enumerate(roles) if role == "window"]
    started = g.order(axis for axis, role in enumerate(roles) if role != "batching")
    started = started[: g.integer(0, len(started))]
    windows = tuple(
        _window(g, size) if role == "window" else ONE for size, role in zip(x.shape, roles, strict=True)
    )  # fmt: skip
    free = [g.choose((B, S, ONE, Dim.const(3))) for _ in range(g.integer(0, 2))]
    places = g.order([*(("batching", axis) for axis in batching), *(("free", i) for i in range(len(free)))])
    batch = [x.shape[i] if what == "batching" else free[i] for what, i in places]
    vector = g.integer(0, len(batch))
    if len(started) == 1 and g.flag():
        vector = len(batch)
        shape = tuple(batch)
    else:
        shape = (*batch[:vector], Dim.const(len(started)), *batch[vector:])
    along = [places.index(("batching", axis)) for axis in batching]
    along = [i + (i >= vector) if len(shape) > len(batch) else i for i in along]
    rank = len(batch) + len(kept)
    offsets = tuple(sorted(g.order(range(rank))[: len(kept)]))
    outer = iter(batch)
    inner = iter(windows[axis] for axis in kept)
    result = tuple(next(inner) if axis in offsets else next(outer) for axis in range(rank))
    attrs = dict(
        offset_dims=offsets,
        collapsed_slice_dims=tuple(axis for axis, role in enumerate(roles) if role == "collapsed"),
        operand_batching_dims=tuple(sorted(batching)),
        start_indices_batching_dims=tuple(along[batching.index(axis)] for axis in sorted(batching)),
        start_index_map=tuple(started),
        index_vector_dim=vector,
    )
    return Numbers(attrs, g.of(g.dtype(INDEX), shape), windows, result)


def _window(g: Gen, size: Dim) -> Dim:
    return g.choose((size, size, size // 2, ZERO, *([ONE] if never_empty(size) else [])))


def _gather(g: Gen) -> Value:
    x = g.value((*_DATA, np.dtype(np.complex64)), 0, 4, g.positive)
    numbers = _numbers(g, x)
    return g.b.op("gather", [x, numbers.indices], slice_sizes=numbers.windows, **numbers.attrs)


def _scatter(g: Gen) -> tuple[Value, ...]:
    return scatter_into(g, g.value(_DATA, 0, 3, g.positive))


def scatter_into(g: Gen, x: Value) -> tuple[Value, ...]:
    """x, and sometimes another value like it, with updates combined at random places."""
    numbers = _numbers(g, x)
    count = g.choose((1, 1, 1, 2))
    xs = [x, *(g.of(g.choose((x.dtype, I32)), x.shape) for _ in range(count - 1))]
    updates = [g.of(v.dtype, numbers.result) for v in xs]
    types = [(v.dtype, ()) for v in (*xs, *updates)]
    body = g.region(types, lambda inner, v: [combine(inner, a, b) for a, b in zip(v[:count], v[count:], strict=True)])
    attrs = dict(numbers.attrs, unique=False, count=count, body=body)
    return g.b.multi("scatter", [*xs, numbers.indices, *updates], **attrs)


def combine(g: Gen, old: Value, new: Value) -> Value:
    """One of the ways to combine two numbers that scatters and reductions have."""
    kind = dtype_class(old.dtype)
    names = ["maximum", "minimum"] if kind != "complex" else []
    names += ["and", "or"] if kind == "bool" else ["add", "multiply", "add"]
    names += ["xor", "or", "and"] if kind in ("int", "uint") else []
    name = g.choose((*names, "new"))
    return new if name == "new" else g.b.op(name, [old, new])


def _sort(g: Gen) -> tuple[Value, ...]:
    key = g.value((*FLOATS, *INTS, *UINTS), 1)
    count = g.choose((1, 1, 2, 3))
    xs = [key, *(g.of(g.choose((I32, F32)), key.shape) for _ in range(count - 1))]
    types = [(v.dtype, ()) for v in xs for _ in range(2)]
    return g.b.multi(
        "sort", xs, dim=g.integer(0, key.rank - 1), count=count, body=_comparator(g, types),
        stable=count > 1 or dtype_class(key.dtype) == "float" or g.flag(),
    )  # fmt: skip


def _comparator(g: Gen, types: list) -> Region:
    """An order of the keys, which also says where NaN goes: the order of a sort that does not is anybody's guess."""
    direction = g.choose(("LT", "GT"))

    def build(inner: Gen, values: tuple[Value, ...]) -> Value:
        a, b = values[:2]
        if dtype_class(a.dtype) == "float":
            large = inner.number(a.dtype, np.inf)
            a, b = (
                inner.b.op("select", [inner.b.op("compare", [v, v], direction="NE"), large, v]) for v in (a, b)
            )  # fmt: skip
        return inner.b.op("compare", [a, b], direction=direction)

    return g.region(types, build)


ROWS = {"gather": _gather, "scatter": _scatter, "sort": _sort}
