"""Random graphs through the rewrites and through the whole compiler, against the reference."""

from __future__ import annotations

from differential import SIZES, bands, check, inputs, wrong
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_graphs import graphs

from hlo_disc.dynamic_hlo.ops.reference import evaluate
from hlo_disc.dynamic_hlo.ops.verify import verify
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo


@settings(max_examples=100, deadline=None)
@given(graphs(max_ops=10), st.sampled_from(range(len(SIZES))))
def test_rewrites_keep_the_meaning(graph, number):
    note(to_stablehlo(graph))
    rewritten = simplify(graph)
    verify(rewritten)
    note(to_stablehlo(rewritten))
    arrays = inputs(graph, dict(zip("bs", SIZES[number], strict=True)), number)
    for got, band in zip(evaluate(rewritten, arrays), bands(graph, arrays, number), strict=True):
        assert not wrong(got, band)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(max_ops=6))
def test_one_binary_runs_every_shape(graph):
    note(to_stablehlo(graph))
    check(graph)
