"""Random DHLO graphs over the symbols b and s, as hypothesis strategies: one op, or many that read each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st
from op_rows import ON_THE_CPU_ONLY, ROWS
from op_rows.assemble import update_of
from op_rows.gen import ALL, BF16, F16, F32, REAL, B, Gen, S, Types, facts, finish
from op_rows.indexing import scatter_into

from hlo_disc.dynamic_hlo.ir.graph import Graph, Op, Value, regions, uses
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.options import Options

_MOST = 200_000  # elements of a value at the largest sizes


def too_large(ops: Sequence[Op]) -> bool:
    """Whether a value of the ops, or in a region of them, has more elements than a quick comparison takes."""
    for op in ops:
        if any(map(too_large, (region.ops for region in regions(op)))):
            return True
        elements = [_elements(value) for value in (*op.operands, *op.results)]
        if max(elements, default=0) > _MOST or op.name == "convolution" and elements[1] * elements[2] > 50 * _MOST:
            return True
    return False


def _elements(value: Value) -> int:
    return math.prod(max(d.evaluate({"b": 257, "s": 33}), 1) for d in value.shape)


@st.composite
def single_ops(draw: st.DrawFn, name: str, types: Types = ALL) -> Graph:
    """A graph of one op on inputs of any of the types; everything that it makes is an output."""
    gen = Gen(draw, GraphBuilder(facts()), types=types)
    made = ROWS[name](gen)
    assume(not too_large(gen.b.ops))
    return finish(gen, (made,) if isinstance(made, Value) else made)


@st.composite
def graphs(draw: st.DrawFn, min_ops: int = 1, max_ops: int = 8, types: Types = ALL, ops: tuple[str, ...] = ()) -> Graph:
    """A graph of `min_ops` to `max_ops` steps, each a row of the table, or a change of what an op has made.

    Everything that nothing reads is an output, and some of the rest. ops: the rows to draw from, by default all that
    the target has code for.
    """
    gen = Gen(draw, GraphBuilder(facts()), reuse=True, types=types)
    gen.input(F32, (B, S))
    names = sorted(ops or (ROWS if Options.from_env().target == "cpu" else ROWS.keys() - ON_THE_CPU_ONLY))
    shown: list[Value] = []
    for _ in range(draw(st.integers(min_ops, max_ops))):
        drawn = gen.b.ops, gen.inputs, gen.pool, shown
        counts = list(map(len, drawn))
        match gen.integer(0, 11):
            case 0 | 1 | 2 | 3:
                made = _change(gen, shown)
            case 4 if not ops:
                made = _own_extreme(gen)
            case _:
                made = ROWS[gen.choose(names)](gen)
        if too_large(gen.b.ops[counts[0] :]):
            for values, count in zip(drawn, counts, strict=True):
                del values[count:]
        else:
            gen.pool += [made] if isinstance(made, Value) else made
    graph = finish(gen, ())
    read = uses(graph)
    values = [value for op in graph.ops for value in op.results]
    shown += gen.some((value for value in values if read[value]), 0, 2)
    return finish(gen, [value for value in values if value in shown or not read[value]])


def _own_extreme(gen: Gen) -> Sequence[Value]:
    """A sum with a product, beside its own largest or smallest element, and what the gradient of that one reads.

    Differences are exactly 0 at that element, and never of the other sign, if each value is rounded in one way wherever
    it is computed.
    """
    x = gen.value((F32, BF16, F16), low=1)
    axes = tuple(sorted(gen.some(range(x.rank), 1)))
    product = gen.b.op("multiply", [x, gen.of(x.dtype, x.shape)])
    value = product
    if gen.flag():
        value = gen.b.op(gen.choose(("add", "subtract")), gen.order([product, gen.of(x.dtype, x.shape)]))
    kind = gen.choose(("max", "min"))
    start = gen.number(x.dtype, -math.inf if kind == "max" else math.inf)
    kept = tuple(axis for axis in range(x.rank) if axis not in axes)
    reduced = gen.b.op("reduce", [value, start], dims=axes, kind=kind)
    extreme = gen.b.op("broadcast", [reduced], shape=x.shape, dims=kept)
    apart = [extreme, value] if kind == "max" else [value, extreme]
    root = gen.b.op("sqrt", [gen.b.op("subtract", apart)])
    chosen = gen.b.op("compare", [value, extreme], direction="EQ")
    zero, one = (gen.spread(gen.number(x.dtype, number), x.shape) for number in (0, 1))
    ones = gen.b.op("select", [chosen, one, zero])
    count = gen.b.op("reduce", [ones, gen.number(x.dtype, 0)], dims=axes, kind="add")
    share = gen.b.op("divide", [ones, gen.b.op("broadcast", [count], shape=x.shape, dims=kept)])
    return product, value, root, share


def _change(gen: Gen, shown: list[Value]) -> Value | Sequence[Value]:
    """A value that an op has made, changed at some places: in place, if nothing needs it any more.

    It may become an output too: then it is added to `shown`.
    """
    fit = [value for value in gen.pool if value.op is not None and value.rank and value.dtype in REAL]
    if not fit:
        return ROWS["dynamic_update_slice"](gen)
    old = gen.choose(fit)
    if gen.flag():
        shown.append(old)
    return gen.choose((update_of, update_of, scatter_into))(gen, old)
