"""Random DHLO graphs over the symbols b and s, as a hypothesis strategy: what passes and backends are fuzzed with."""

from __future__ import annotations

import numpy as np
from dhlo import make_graph, shape
from hypothesis import strategies as st

from hlo_disc.dynamic_hlo.dim import Dim, dim_product
from hlo_disc.dynamic_hlo.graph import Graph, GraphBuilder, Value

F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
_SHAPES = ("b, s", "s, b", "b", "s", "", "b, 1", "b, s, 2", "1, s", "3, b")
# Functions that keep values in a range where f32 results can be compared.
_UNARY = ("tanh", "negate", "abs", "logistic", "sine", "floor", "erf", "sign")
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum")


@st.composite
def graphs(draw: st.DrawFn, max_ops: int = 8) -> Graph:
    """A graph of up to `max_ops` random steps on f32 inputs; everything that nothing reads is an output."""
    inputs = [
        ("float32", "b, s"),
        *(("float32", text) for text in draw(st.lists(st.sampled_from(_SHAPES), max_size=2))),
    ]

    def build(builder: GraphBuilder, *values: Value) -> list[Value]:
        pool = list(values)
        for _ in range(draw(st.integers(1, max_ops))):
            pool.append(_STEPS[draw(st.sampled_from(sorted(_STEPS)))](draw, builder, pool))
        read = {value for op in builder.ops for value in op.operands}
        return [value for value in pool if value not in read]

    return make_graph(inputs, build)


def _pick(draw: st.DrawFn, pool: list[Value], rank: int = 0) -> Value | None:
    fit = [value for value in pool if value.rank >= rank]
    return draw(st.sampled_from(fit)) if fit else None


def _unary(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    return b.op(draw(st.sampled_from(_UNARY)), [_pick(draw, pool)])


def _binary(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool)
    y = draw(st.sampled_from([value for value in pool if value.shape == x.shape]))
    name = draw(st.sampled_from((*_BINARY, "compare", "select")))
    if name not in ("compare", "select"):
        return b.op(name, [x, y])
    less = b.op("compare", [x, y], direction=draw(st.sampled_from(("LT", "GE", "EQ"))))
    return b.op("select", [less, x, y]) if name == "select" else b.op("convert", [less], dtype=F32)


def _constant(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    value = b.op("constant", value=np.array(draw(st.sampled_from((-1.5, 0.0, 0.25, 3.0))), F32))
    return b.op("broadcast", [value], shape=shape(draw(st.sampled_from(_SHAPES))), dims=())


def _iota(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    return b.op("iota", shape=shape("b, s"), dim=draw(st.integers(0, 1)), dtype=F32)


def _broadcast(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool)
    at = draw(st.integers(0, x.rank))
    new = draw(st.sampled_from(shape("b, s, 2")))
    sizes = (*x.shape[:at], new, *x.shape[at:])
    return b.op("broadcast", [x], shape=sizes, dims=tuple(i + (i >= at) for i in range(x.rank)))


def _transpose(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool)
    return b.op("transpose", [x], perm=tuple(draw(st.permutations(range(x.rank)))))


def _reshape(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool)
    at = draw(st.integers(0, x.rank))
    merged = (dim_product(x.shape[:at]), *x.shape[at:])
    return b.op("reshape", [x], shape=draw(st.sampled_from((merged, (*x.shape, Dim.const(1))))))


def _reduce(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool, rank=1) or pool[0]
    kind, init = draw(st.sampled_from((("add", 0.0), ("max", -np.inf), ("min", np.inf))))
    axes = draw(st.lists(st.integers(0, x.rank - 1), min_size=1, unique=True))
    result = b.op("reduce", [x, b.op("constant", value=np.array(init, F32))], dims=tuple(sorted(axes)), kind=kind)
    return b.op("tanh", [result])


def _slice(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool, rank=1) or pool[0]
    stride = draw(st.integers(1, 3))
    start = draw(st.sampled_from((Dim.const(0), x.shape[0] // 2)))
    whole = (Dim.const(0),) * (x.rank - 1)
    return b.op(
        "slice", [x], start=(start, *whole), limit=x.shape, stride=(stride, *([1] * (x.rank - 1)))
    )  # fmt: skip


def _pad(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool, rank=1) or pool[0]
    low, high = (Dim.const(draw(st.integers(0, 2))) for _ in range(2))
    none = (Dim.const(0),) * (x.rank - 1)
    interior = (draw(st.integers(0, 1)), *([0] * (x.rank - 1)))
    value = b.op("constant", value=np.array(0.5, F32))
    return b.op("pad", [x, value], low=(low, *none), high=(high, *none), interior=interior)


def _concatenate(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool, rank=1) or pool[0]
    axis = draw(st.integers(0, x.rank - 1))
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    fit = [v for v in pool if v.rank == x.rank and v.shape[:axis] + v.shape[axis + 1 :] == rest]
    return b.op("concatenate", [x, draw(st.sampled_from(fit))], dim=axis)


def _dot(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    x = _pick(draw, pool, rank=2) or pool[0]
    axis = draw(st.integers(0, x.rank - 1))
    fits = [(v, k) for v in pool if v.rank == 2 for k in range(2) if v.shape[k] == x.shape[axis]]
    y, k = draw(st.sampled_from(fits)) if fits else (x, axis)
    dims = dict(lhs_contract=(axis,), rhs_contract=(k,), lhs_batch=(), rhs_batch=(), dtype=F32)
    return b.op("tanh", [b.op("dot_general", [x, y], **dims)])


def _gather(draw: st.DrawFn, b: GraphBuilder, pool: list[Value]) -> Value:
    """Rows of x by rounded values of the first input; at least one row is there to be read."""
    x = _pick(draw, pool, rank=1) or pool[0]
    one = b.op("broadcast", [b.op("constant", value=np.array(1, F32))], shape=(Dim.const(1), *x.shape[1:]),
               dims=())  # fmt: skip
    rows = b.op("concatenate", [one, x], dim=0)
    count = dim_product(pool[0].shape)
    indices = b.op("convert", [b.op("reshape", [pool[0]], shape=(count, Dim.const(1)))], dtype=I32)
    return b.op(
        "gather", [rows, indices], offset_dims=tuple(range(1, x.rank)), collapsed_slice_dims=(0,),
        operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(0,), index_vector_dim=1,
        slice_sizes=(Dim.const(1), *x.shape[1:]),
    )  # fmt: skip


_STEPS = {
    "unary": _unary,
    "binary": _binary,
    "constant": _constant,
    "iota": _iota,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "reduce": _reduce,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "dot": _dot,
    "gather": _gather,
}
