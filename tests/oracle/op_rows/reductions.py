"""Rows of the ops that combine elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, int_limits
from hlo_disc.dynamic_hlo.ir.graph import Region, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from op_rows.gen import ALL, BOOL, COMPLEX, FLOATS, I32, INTS, ONE, REAL, UINTS, ZERO, Gen

_OP = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or", "xor": "xor"}


def kinds(dtype: np.dtype) -> tuple[str, ...]:
    """Return the reductions that a type has."""
    match dtype_class(dtype):
        case "complex":
            return ("add", "mul")
        case "float":
            return ("add", "max", "min", "mul")
        case "bool":
            return ("and", "or", "xor")
    return ("add", "max", "min", "mul", "and", "or", "xor")


def long_kinds(dtype: np.dtype) -> tuple[str, ...]:
    """Return those of many elements: how a long product of floats leaves their range depends on the order."""
    exact = dtype_class(dtype) not in ("float", "complex")
    return tuple(kind for kind in kinds(dtype) if exact or kind != "mul")


def identity(kind: str, dtype: np.dtype) -> complex | float | int:
    """Return the identity of a reduction: to combine a value with it changes nothing."""
    if kind in ("add", "or", "xor"):
        return 0
    if kind == "mul":
        return 1
    if dtype == BOOL:
        return kind in ("and", "min")
    if kind == "and":
        return int_limits(dtype)[1] if dtype_class(dtype) == "uint" else -1
    if dtype_class(dtype) == "float":
        return -np.inf if kind == "max" else np.inf
    return int_limits(dtype)[0 if kind == "max" else 1]


def _axes(g: Gen, rank: int) -> tuple[int, ...]:
    return tuple(sorted(g.some(range(rank))))


def _reduce(g: Gen) -> Value:
    x = g.value((*REAL, *COMPLEX, BOOL))
    kind = g.choose(long_kinds(x.dtype))
    init = g.number(x.dtype, identity(kind, x.dtype)) if g.integer(0, 2) else g.of(x.dtype, ())
    return g.b.op("reduce", [x, init], dims=_axes(g, x.rank), kind=kind)


def _combining(
    g: Gen, dtype: np.dtype, options: Callable[[np.dtype], tuple[str, ...]] = long_kinds
) -> tuple[Region, complex | float | int]:
    """Return a region that combines two scalars, and its identity."""
    kind = g.choose(options(dtype))
    region = g.region([(dtype, ()), (dtype, ())], lambda inner, v: inner.b.op(_OP[kind], v))
    return region, identity(kind, dtype)


def _first_largest(g: Gen, dtype: np.dtype, index: np.dtype) -> Region:
    """Argmax as frameworks write it: the larger value, of equal ones that of the smaller index."""

    def build(inner: Gen, v: tuple[Value, ...]) -> list[Value]:
        a, i, b, j = v
        larger, equal = (inner.b.op("compare", [a, b], direction=d) for d in ("GT", "EQ"))
        if dtype_class(dtype) == "float":
            larger = inner.b.op("or", [larger, inner.b.op("compare", [a, a], direction="NE")])
        earlier = inner.b.op("and", [equal, inner.b.op("compare", [i, j], direction="LT")])
        return [inner.b.op("select", [larger, a, b]), inner.b.op("select", [inner.b.op("or", [larger, earlier]), i, j])]

    return g.region([(dtype, ()), (index, ())] * 2, build)


def _reduce_with(g: Gen) -> tuple[Value, ...]:
    x = g.value((*FLOATS, *INTS, *UINTS))
    dims = _axes(g, x.rank)
    if g.flag():
        body, number = _combining(g, x.dtype)
        return g.b.multi("reduce_with", [x, g.number(x.dtype, number)], dims=dims, body=body)
    index = g.b.op("iota", shape=x.shape, dim=g.integer(0, x.rank - 1), dtype=I32) if x.rank else g.of(I32, ())
    inits = [g.number(x.dtype, identity("max", x.dtype)), g.number(I32, 0)]
    return g.b.multi("reduce_with", [x, index, *inits], dims=dims, body=_first_largest(g, x.dtype, I32))


def _cumulative(g: Gen) -> tuple[Value, ...]:
    x = g.value(ALL, 1)
    body, number = _combining(g, x.dtype)
    attrs = dict(dim=g.integer(0, x.rank - 1), reverse=g.flag(), body=body)
    return g.b.multi("cumulative", [x, g.number(x.dtype, number)], **attrs)


def _each(x: Value, draw: Callable[[], object]) -> tuple:
    return tuple(draw() for _ in x.shape)


def _window(g: Gen, x: Value, dilated: bool) -> dict[str, tuple]:
    attrs: dict[str, tuple] = dict(
        window=_each(x, lambda: g.choose((ONE, Dim.const(2), Dim.const(3)))),
        strides=_each(x, lambda: g.choose((1, 1, 2, 3))),
        low=_each(x, lambda: g.choose((ZERO, ZERO, ONE, Dim.const(2)))),
        high=_each(x, lambda: g.choose((ZERO, ZERO, ONE, Dim.const(2)))),
    )
    if dilated:
        for name in ("base_dilations", "window_dilations"):
            attrs[name] = _each(x, lambda: g.choose((1, 1, 1, 2, 3)))
    return attrs


def _reduce_window(g: Gen) -> tuple[Value, ...]:
    x = g.value((*REAL, *COMPLEX, BOOL), 0, 3)
    attrs = _window(g, x, dilated=True)
    body, number = _combining(g, x.dtype, kinds)
    init = g.number(x.dtype, number) if g.integer(0, 2) else g.of(x.dtype, ())
    return g.b.multi("reduce_window", [x, init], body=body, **attrs)


def _select_and_scatter(g: Gen) -> Value:
    x = g.value((*FLOATS, *INTS), 0, 3)
    attrs = _window(g, x, dilated=False)
    direction = g.choose(("GE", "LE", "GT"))
    select = g.region([(x.dtype, ())] * 2, lambda inner, v: inner.b.op("compare", v, direction=direction))
    body, number = _combining(g, x.dtype, kinds)
    ones = (1,) * x.rank
    counted = dict(attrs, base_dilations=ones, window_dilations=ones, body=body)
    (windows,) = g.b.multi("reduce_window", [x, g.number(x.dtype, number)], **counted)
    source = g.of(x.dtype, windows.shape)
    return g.b.op("select_and_scatter", [x, source, g.of(x.dtype, ())], select=select, body=body, **attrs)


ROWS = {
    "reduce": _reduce,
    "reduce_with": _reduce_with,
    "cumulative": _cumulative,
    "reduce_window": _reduce_window,
    "select_and_scatter": _select_and_scatter,
}
