"""Random DHLO graphs over the symbols b and s, as hypothesis strategies: one op, or many that read each other."""

from __future__ import annotations

from hypothesis import strategies as st
from op_rows import ROWS
from op_rows.gen import ALL, F32, B, Gen, S, Types, facts, finish

from hlo_disc.dynamic_hlo.graph import Graph, GraphBuilder, Value, uses


@st.composite
def single_ops(draw: st.DrawFn, name: str, types: Types = ALL) -> Graph:
    """A graph of one op on inputs of any of the types; everything that it makes is an output."""
    gen = Gen(draw, GraphBuilder(facts()), types=types)
    made = ROWS[name](gen)
    return finish(gen, (made,) if isinstance(made, Value) else made)


@st.composite
def graphs(draw: st.DrawFn, min_ops: int = 1, max_ops: int = 8, types: Types = ALL, ops: tuple[str, ...] = ()) -> Graph:
    """A graph of `min_ops` to `max_ops` steps, each a row of the table; everything that nothing reads is an output.

    ops: the rows to draw from, all by default.
    """
    gen = Gen(draw, GraphBuilder(facts()), reuse=True, types=types)
    gen.input(F32, (B, S))
    names = sorted(ops or ROWS)
    for _ in range(draw(st.integers(min_ops, max_ops))):
        made = ROWS[gen.choose(names)](gen)
        gen.pool += [made] if isinstance(made, Value) else made
    graph = finish(gen, ())
    read = uses(graph)
    outputs = tuple(value for op in graph.ops for value in op.results if not read[value])
    return finish(gen, outputs)
