"""Products of matrices, convolutions, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.import_.aten.reductions import computed
from hlo_disc.import_.aten.tensors import BOOL, I64, Operand

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def _product(r: AtenReader, a: Value, b: Value, batch: int = 0) -> Value:
    """Of matrices, in the type in which sums of theirs are made."""
    return r.matmul(a, b, computed(a.dtype), batch)


def _mm(r: AtenReader, a: Value, b: Value) -> Value:
    return r.convert(_product(r, a, b), r.out.dtype)


def _bmm(r: AtenReader, a: Value, b: Value) -> Value:
    return r.convert(_product(r, a, b, 1), r.out.dtype)


def _scaled(r: AtenReader, x: Value, factor: Operand) -> Value:
    return x if factor == 1 else r.op("multiply", x, factor)


def _added(batch: int) -> Callable[..., Value]:
    """beta * c + alpha * a @ b; where beta is 0, what c holds does not count."""

    def handle(r: AtenReader, c: Value, a: Value, b: Value, *, beta: Operand = 1, alpha: Operand = 1) -> Value:
        made = _scaled(r, _product(r, a, b, batch), alpha)
        if beta != 0:
            made = r.op("add", made, _scaled(r, r.convert(c, made.dtype), beta))
        return r.convert(made, r.out.dtype)

    return handle


def _attention(
    r: AtenReader,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value]:
    """Scaled dot products of (batch, heads, length, width); also the logarithms of the softmax's sums."""
    if dropout:
        r.unsupported("dropout inside of an attention is not supported")
    dtype = computed(query.dtype)
    factor = scale if scale is not None else None
    scaled = r.convert(query, dtype)
    if factor is None:
        width = r.scalar(query.shape[-1], dtype)
        scaled = r.op("multiply", scaled, r.emit("rsqrt", (width,)))
    else:
        scaled = r.op("multiply", scaled, factor)
    scores = r.matmul(scaled, r.transpose(r.convert(key, dtype), (0, 1, 3, 2)), dtype, 2)
    if causal:
        rows, columns = r.iota(I64, scores.shape[-2:], 0), r.iota(I64, scores.shape[-2:], 1)
        scores = r.select(r.compare(rows, "GE", columns), scores, r.scalar(float("-inf"), dtype))
    if attn_mask is not None:
        if attn_mask.dtype == BOOL:
            scores = r.select(attn_mask, scores, r.scalar(float("-inf"), dtype))
        else:
            scores = r.op("add", scores, r.convert(attn_mask, dtype))
    top = r.reduce(scores, -1, "max", True)
    exps = r.emit("exponential", (r.op("subtract", scores, top),))
    total = r.reduce(exps, -1, "add", True)
    weights = r.op("divide", exps, total)
    made = r.matmul(weights, r.convert(value, dtype), dtype, 2)
    logsumexp = r.squeeze(r.op("add", r.emit("log", (total,)), top), -1)
    return [r.convert(made, r.outs[0].dtype), r.convert(logsumexp, r.outs[1].dtype)]


ROWS: dict[str, Callable[..., Any]] = {
    "aten.mm.default": _mm,
    "aten.bmm.default": _bmm,
    "aten.addmm.default": _added(0),
    "aten.baddbmm.default": _added(1),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
}
