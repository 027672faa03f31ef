"""Random graphs through the rewrites and through the whole compiler, against the reference."""

from __future__ import annotations

from comparison.differential import SIZES, bands, check, inputs, wrong
from depth import examples
from graphs.random_graphs import graphs
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from op_rows.gen import F32, I32

from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo

# Ops whose results, or operands, lie in memory: not computed where they are read.
KEPT = ("add", "cumulative", "concatenate", "dynamic_slice", "sort", "transpose")

# Making a failing graph smaller would take minutes: `make fuzz` has a quicker way.
compiled = settings(
    max_examples=examples(10, 200),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)


@settings(max_examples=examples(60, 1000), deadline=None)
@given(graphs(max_ops=10), st.sampled_from(range(len(SIZES))))
def test_rewrites_keep_the_meaning(graph, number):
    note(to_stablehlo(graph))
    rewritten = simplify(graph)
    verify(rewritten)
    note(to_stablehlo(rewritten))
    arrays = inputs(graph, dict(zip("bs", SIZES[number], strict=True)), number)
    for got, band in zip(evaluate(rewritten, arrays), bands(graph, arrays, number), strict=True):
        assert not wrong(got, band)


@compiled
@given(graphs(max_ops=6))
def test_one_binary_runs_every_shape(graph):
    note(to_stablehlo(graph))
    check(graph)


@compiled
@given(graphs(min_ops=6, max_ops=12, types=(F32, I32), ops=KEPT))
def test_values_in_memory_keep_until_they_are_read(graph):
    note(to_stablehlo(graph))
    check(graph)
