"""Random DHLO graphs over the symbols b and s, as hypothesis strategies: one op, or many that read each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st
from op_rows import ON_THE_CPU_ONLY, ROWS
from op_rows.assemble import update_of
from op_rows.gen import ALL, F32, REAL, B, Gen, S, Types, facts, finish
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
        made = _change(gen, shown) if gen.integer(0, 2) == 0 else ROWS[gen.choose(names)](gen)
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
