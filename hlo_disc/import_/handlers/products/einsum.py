"""`einsum` and `unary_einsum`: sums over labels that one operand alone has, then a dot, then a transpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.attributes import Attributes
from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.ops.axes import SIDES
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.frozen import frozen
from hlo_disc.import_.handlers.arrays import Array
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

    value: Array
    labels: tuple[str, ...]


def _einsum(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    return make_einsum(r, op, r.attr(op, "einsum_config", text), [r.data(x) for x in operands], r.result_type(op)[0])


def make_einsum(r: Reader, op: ir.OpView, config: str, values: list[Value], dtype: np.dtype) -> Value:
    """Emit the sum that a config describes."""
    config = "".join(config.split())
    left, arrow, result = config.partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(values):
        r.unsupported(f"the config {config!r} must name {len(values)} operands and a result")
    named = [_Labelled(Array(r, x), _labels(r, term, x.rank)) for term, x in zip(terms, values, strict=True)]
    ellipsis = max((sum(name.startswith(".") for name in x.labels) for x in named), default=0)
    out = _labels(r, result, len(result.replace("...", "")) + ellipsis * ("..." in result))
    known = {name for x in named for name in x.labels}
    if len(set(out)) != len(out) or not set(out) <= known:
        r.unsupported(f"the result of {config!r} must have labels of the operands, each once")
    if len(named) == 1:
        return _ordered(_summed(_diagonal(named[0]), set(out)), out)
    a, b = map(_diagonal, named)
    a, b = _summed(a, {*out, *b.labels}), _summed(b, {*out, *a.labels})
    both = [name for name in a.labels if name in b.labels]
    for name in both:
        i, j = a.labels.index(name), b.labels.index(name)
        r.equal(a.value.shape[i], b.value.shape[j], f"dimensions {i} and {j} of the operands, both {name!r},")
    batch, contract = [name for name in both if name in out], [name for name in both if name not in out]
    numbers: Attributes = {"dtype": dtype, "tf32": allows_tf32(r, op, a.value.value, b.value.value, dtype)}
    for x, (batched, contracted) in zip((a, b), SIDES, strict=True):
        numbers[batched] = tuple(x.labels.index(name) for name in batch)
        numbers[contracted] = tuple(x.labels.index(name) for name in contract)
    free = [name for x in (a, b) for name in x.labels if name not in both]
    product = a.value.emit("dot_general", b.value, **numbers)
    return _ordered(_Labelled(product, (*batch, *free)), out)


def _labels(r: Reader, term: str, rank: int) -> tuple[str, ...]:
    """Return the labels of a term; the axes of an ellipsis are counted from its end: ".0" is the last."""
    before, dots, after = term.partition("...")
    inside = rank - len(before) - len(after)
    if (inside and not dots) or inside < 0 or not (before + after).isalpha() and before + after:
        r.unsupported(f"{term!r} does not label the {rank} dimensions of an operand")
    return (*before, *(f".{i}" for i in reversed(range(inside))), *after)


def _diagonal(x: _Labelled) -> _Labelled:
    """Take the diagonal for a label that occurs twice."""
    for name in dict.fromkeys(x.labels):
        while x.labels.count(name) > 1:
            first, last = x.labels.index(name), len(x.labels) - 1 - x.labels[::-1].index(name)
            value, (n, m) = x.value, (x.value.shape[axis] for axis in (first, last))
            value.r.equal(n, m, f"dimensions {first} and {last} of an operand, both {name!r},")
            inside = value.iota(first, I64) == value.iota(last, I64)
            x = _Labelled(where(inside, value, 0).sum(last), (*x.labels[:last], *x.labels[last + 1 :]))
    return x


def _summed(x: _Labelled, wanted: set[str]) -> _Labelled:
    """Sum over the axes whose labels nothing needs."""
    dims = [i for i, name in enumerate(x.labels) if name not in wanted]
    return _Labelled(x.value.sum(dims), tuple(name for name in x.labels if name in wanted))


def _ordered(x: _Labelled, labels: tuple[str, ...]) -> Value:
    return x.value.transpose([x.labels.index(name) for name in labels]).value


def _checked(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Check a config, which the verifier does not look into."""
    result = _einsum(r, op, operands)
    r.need_types(op, [result])
    return result


HANDLERS: dict[str, Handler] = {"stablehlo.einsum": _checked, "stablehlo.unary_einsum": _checked}
