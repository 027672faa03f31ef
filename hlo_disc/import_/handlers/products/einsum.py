"""`einsum` and `unary_einsum`: sums over what one operand alone has, then a dot, then a transpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.frozen import frozen
from hlo_disc.import_.handlers.products.precision import allows_tf32
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import text

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader
    from hlo_disc.mlir import ir


@frozen
class _Labelled:
    """A value with a label for each axis."""

    value: Value
    labels: tuple[str, ...]


def _einsum(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return make_einsum(r, op, r.attr(op, "einsum_config", text), [r.data(x) for x in operands], r.result_type(op)[0])


def make_einsum(r: Reader, op: ir.OpView, config: str, values: list[Value], dtype: np.dtype) -> Value:
    """The sum that a config says."""
    config = "".join(config.split())
    left, arrow, result = config.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(values):
        r.unsupported(f"the config {config!r} must name {len(values)} operands and a result")
    named = [_Labelled(x, _labels(r, term, x.rank)) for term, x in zip(terms, values, strict=True)]
    ellipsis = max((sum(name.startswith(".") for name in x.labels) for x in named), default=0)
    out = _labels(r, result, len(result.replace("...", "")) + ellipsis * ("..." in result))
    known = {name for x in named for name in x.labels}
    if len(set(out)) != len(out) or not set(out) <= known:
        r.unsupported(f"the result of {config!r} must have labels of the operands, each once")
    if len(named) == 1:
        return _ordered(r, _summed(r, _diagonal(r, named[0]), set(out)), out)
    a, b = (_diagonal(r, x) for x in named)
    a, b = _summed(r, a, {*out, *b.labels}), _summed(r, b, {*out, *a.labels})
    both = [name for name in a.labels if name in b.labels]
    for name in both:
        i, j = a.labels.index(name), b.labels.index(name)
        r.equal(a.value.shape[i], b.value.shape[j], f"dimensions {i} and {j} of the operands, both {name!r},")
    batch, contract = [name for name in both if name in out], [name for name in both if name not in out]
    numbers = {
        f"{side}_{what}": tuple(x.labels.index(name) for name in names)
        for side, x in (("lhs", a), ("rhs", b))
        for what, names in (("batch", batch), ("contract", contract))
    }
    free = [name for x in (a, b) for name in x.labels if name not in both]
    tf32 = allows_tf32(r, op, a.value, b.value, dtype)
    product = r.emit("dot_general", (a.value, b.value), **numbers, dtype=dtype, tf32=tf32)
    return _ordered(r, _Labelled(product, (*batch, *free)), out)


def _labels(r: Reader, term: str, rank: int) -> tuple[str, ...]:
    """The labels of a term; the axes of an ellipsis are counted from its end: ".0" is the last."""
    before, dots, after = term.partition("...")
    inside = rank - len(before) - len(after)
    if (inside and not dots) or inside < 0 or not (before + after).isalpha() and before + after:
        r.unsupported(f"{term!r} does not label the {rank} dimensions of an operand")
    return (*before, *(f".{i}" for i in reversed(range(inside))), *after)


def _diagonal(r: Reader, x: _Labelled) -> _Labelled:
    """A label that stands twice takes the diagonal: what is elsewhere is dropped, and the sum over it has one term."""
    for name in dict.fromkeys(x.labels):
        while x.labels.count(name) > 1:
            first, last = x.labels.index(name), len(x.labels) - 1 - x.labels[::-1].index(name)
            value, shape = x.value, x.value.shape
            r.equal(shape[first], shape[last], f"dimensions {first} and {last} of an operand, both {name!r},")
            rows, cols = (r.emit("iota", shape=shape, dim=i, dtype=np.dtype(np.int64)) for i in (first, last))
            zero = r.constant(np.zeros((), value.dtype))
            outside = r.emit("broadcast", (zero,), shape=shape, dims=())
            value = r.emit("select", (r.emit("compare", (rows, cols), direction="EQ"), value, outside))
            value = r.emit("reduce", (value, zero), dims=(last,), kind="or" if value.dtype == np.bool_ else "add")
            x = _Labelled(value, (*x.labels[:last], *x.labels[last + 1 :]))
    return x


def _summed(r: Reader, x: _Labelled, wanted: set[str]) -> _Labelled:
    """Without the axes that nobody wants."""
    dims = tuple(i for i, name in enumerate(x.labels) if name not in wanted)
    if not dims:
        return x
    zero = r.constant(np.zeros((), x.value.dtype))
    kind = "or" if x.value.dtype == np.bool_ else "add"
    return _Labelled(
        r.emit("reduce", (x.value, zero), dims=dims, kind=kind), tuple(name for name in x.labels if name in wanted)
    )


def _ordered(r: Reader, x: _Labelled, labels: tuple[str, ...]) -> Value:
    perm = tuple(x.labels.index(name) for name in labels)
    return x.value if perm == tuple(range(len(perm))) else r.emit("transpose", (x.value,), perm=perm)


def _checked(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """The verifier does not look at what a config means."""
    result = _einsum(r, op, operands)
    r.need_types(op, [result])
    return result


HANDLERS: dict[str, Handler] = {"stablehlo.einsum": _checked, "stablehlo.unary_einsum": _checked}
